//! What `ctl memory` shows, and which programs a pattern means.

use crate::top::clean;
use amp_host::bad_input;
use amp_metrics::memory::{Memory, Program, SHOWN};
use anyhow::Result;
use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tabled::builder::Builder;
use tabled::settings::Style;

/// A program that is remembered, for a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramLine {
    /// Path of the executable.
    pub executable: String,
    /// Command name.
    pub comm: String,
    /// Hash of the arguments that it was started with; none: whatever they are.
    #[serde(default)]
    pub arguments: Option<String>,
    /// Core types that the factors are between, with their capacities.
    pub on: String,
    /// Runs in which it was met.
    pub runs: u32,
    /// Seconds since it was met last.
    pub age_s: u64,
    /// Speedup factors by core type.
    pub speedup: BTreeMap<String, FactorLine>,
    /// Efficiency factors by core type.
    pub efficiency: BTreeMap<String, FactorLine>,
    /// Speedup factors as moves between core types alone have shown them, where a model was checked by those.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shown: BTreeMap<String, FactorLine>,
}

/// A factor that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FactorLine {
    /// Value.
    pub value: f64,
    /// Standard uncertainty, age included.
    pub uncertainty: f64,
    /// Intervals that stand behind it, old ones counting less.
    pub weight: f64,
}

fn name(p: &Program) -> String {
    let comm = &p.key.name.comm;
    let end = comm.iter().position(|b| *b == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}

/// The programs of a memory at `now`, the one that was met last first.
pub fn lines(memory: &Memory, now: u64) -> Vec<ProgramLine> {
    let line = |p: &Program| {
        let row = |which| {
            let all = p.factors_at(which, now).into_iter();
            let entry = |f: amp_metrics::memory::Factor| {
                let line = FactorLine {
                    value: f.value,
                    uncertainty: f.uncertainty,
                    weight: f.weight,
                };
                (f.core_type, line)
            };
            all.map(entry).collect()
        };
        ProgramLine {
            executable: p.key.executable.path.clone(),
            comm: name(p),
            arguments: (!p.key.name.is_any()).then(|| format!("{:016x}", p.key.name.arguments)),
            on: p.key.on.to_string(),
            runs: p.runs,
            age_s: now.saturating_sub(p.met),
            speedup: row(0),
            efficiency: row(1),
            shown: row(SHOWN),
        }
    };
    memory.programs().into_iter().map(line).collect()
}

/// The list for people. Names are chosen by whoever runs programs: control characters are not shown.
pub fn table(lines: &[ProgramLine]) -> String {
    if lines.is_empty() {
        return "no program is remembered\n".to_owned();
    }
    let mut b = Builder::default();
    b.push_record(["executable", "comm", "arguments", "factors", "runs", "age"]);
    for l in lines {
        let factors = |what: &str, row: &BTreeMap<String, FactorLine>| -> Vec<String> {
            row.iter()
                .map(|(t, f)| format!("{what} {t} {:.2} ± {:.2}", f.value, f.uncertainty))
                .collect()
        };
        let mut all = factors("sf", &l.speedup);
        all.extend(factors("ef", &l.efficiency));
        all.extend(factors("sf by moves", &l.shown));
        b.push_record([
            clean(&l.executable),
            clean(&l.comm),
            // the first digits tell them apart
            l.arguments
                .as_deref()
                .and_then(|a| a.get(..6))
                .unwrap_or("any")
                .to_owned(),
            clean(&all.join(", ")),
            l.runs.to_string(),
            age(l.age_s),
        ]);
    }
    format!("{}\n", b.build().with(Style::rounded()))
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Which programs are meant: a glob over the path of the executable, or, without a `/`, over its
/// file name and the command name.
#[derive(Clone, Debug)]
pub struct Pattern {
    glob: GlobMatcher,
    path: bool,
}

impl Pattern {
    /// The pattern in this text.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] saying what is wrong with it.
    pub fn parse(text: &str) -> Result<Pattern> {
        let bad = |why: String| bad_input(format!("`{text}`: {why}"));
        if text.is_empty() {
            return Err(bad("want a pattern, such as gcc* or /usr/lib/**".to_owned()));
        }
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        Ok(Pattern {
            glob: glob
                .map_err(|e| bad(e.kind().to_string()))?
                .compile_matcher(),
            path: text.contains('/'),
        })
    }

    /// Whether it means this program.
    pub fn fits(&self, p: &Program) -> bool {
        let path = p.key.executable.path.as_str();
        if self.path {
            return self.glob.is_match(path);
        }
        let file = path.rsplit('/').next().unwrap_or(path);
        self.glob.is_match(file) || self.glob.is_match(name(p))
    }
}
