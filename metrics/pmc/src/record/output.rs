//! What `pmc record` prints.

use super::periods::Method;
use super::profile::{BlockShare, Function, Profile};
use super::source::Source;
use super::spe::OUTCOMES;
use amp_metrics::uncertainty::Measured;
use serde::Serialize;
use std::fmt::Write;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

/// How samples were taken on the CPUs of one PMU.
#[derive(Debug, Serialize)]
pub struct Choice {
    /// The event.
    pub event: String,
    /// Its PMU.
    pub pmu: String,
    /// Events between two samples, nominally.
    pub period: u64,
    /// Method by which periods were chosen.
    pub method: Method,
    /// What takes the samples.
    pub source: Source,
    /// Whether that was never tried on hardware.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub experimental: bool,
    /// What the PMU says of where a sample is: 0 (arbitrary skid) to 3 (no skid). For IBS and SPE what
    /// was written behind the event: their samples are of the instruction itself.
    pub precision: u8,
    /// How many last-branch records of user mode come with a sample at most.
    pub branches: u32,
    /// Why there are no last-branch records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_branches: Option<String>,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The command that was sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// The process that was sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Whether everything on every CPU was.
    pub system_wide: bool,
    /// Seconds from start to end.
    pub elapsed_s: f64,
    /// Choices made for each PMU.
    pub choices: Vec<Choice>,
    /// Samples that did not fit the buffers.
    pub lost: u64,
    /// How often the kernel held samples back (`sysctl kernel.perf_event_max_sample_rate`).
    pub throttled: u64,
    /// What SPE could not deliver; only with SPE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spe: Option<SpeLosses>,
    /// Functions and blocks that samples fell in.
    #[serde(flatten)]
    pub profile: Profile,
}

/// What Arm's Statistical Profiling Extension could not deliver.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SpeLosses {
    /// Records that could not be read.
    pub odd: u64,
    /// How often the buffer was full, so that sampling stood still.
    pub full: u64,
    /// Parts of the buffer in which an operation was to be sampled while another one still was.
    pub collided: u64,
}

impl SpeLosses {
    /// A line for each kind of loss.
    fn lines(&self) -> impl Iterator<Item = String> {
        let lines = [
            (self.odd, "records of SPE could not be read"),
            (self.full, "times the buffer of SPE was full, and sampling stood still; use a longer period"),
            (self.collided, "parts of the buffer of SPE lack samples, because the one before had not ended; use a longer period"),
        ];
        let some = lines.into_iter().filter(|(n, _)| *n > 0);
        some.map(|(n, what)| format!("{n} {what}"))
    }
}

fn percent(m: Measured) -> [String; 2] {
    [
        format!("{:.1} %", 100.0 * m.value),
        m.u.map_or_else(String::new, |u| format!("± {:.1}", 100.0 * u)),
    ]
}

/// Tables of functions and blocks, `most` lines each.
pub fn tables(r: &Report, most: usize) -> String {
    let mut out = String::new();
    for c in &r.choices {
        let how = match c.method {
            Method::Fixed => "fixed",
            Method::Prime => "prime",
            Method::Random => "random primes",
        };
        let skid = match c.precision {
            _ if c.source == Source::Ibs => {
                "each sample is of the very instruction (IBS, experimental: never run on hardware)"
            }
            _ if c.source == Source::Spe => {
                "each sample is of the very instruction (SPE, experimental: never run on hardware)"
            }
            3 => "no skid",
            2 => "no skid asked for",
            1 => "constant skid",
            _ => "samples come late by an unknown number of instructions (the PMU has nothing better)",
        };
        // a string takes all that is written
        let _ = writeln!(
            out,
            "{} on {}: every {} events ({how}); {skid}; {}",
            c.event,
            c.pmu,
            c.period,
            match &c.no_branches {
                Some(why) => format!("no last-branch records ({why})"),
                None => format!("up to {} last-branch records", c.branches),
            }
        );
    }
    let p = &r.profile;
    let _ = writeln!(out, "{} samples in {:.3} s", p.samples, r.elapsed_s);
    if r.lost > 0 {
        let _ = writeln!(
            out,
            "{} samples lost: the system was too slow to take them; use a longer period",
            r.lost
        );
    }
    if r.throttled > 0 {
        let _ = writeln!(
            out,
            "sampling was held back {} times (sysctl kernel.perf_event_max_sample_rate); use a longer period",
            r.throttled
        );
    }
    for line in r.spe.iter().flat_map(SpeLosses::lines) {
        let _ = writeln!(out, "{line}");
    }
    if let Some(b) = &p.branches {
        let _ = writeln!(
            out,
            "{} runs of blocks by the last-branch records of {} samples; {} pairs of records with something missing in between, {} runs in no known function. Executions are without bias where the event is taken branches, else seen from where it happens",
            b.runs, b.stacks, b.odd, b.unplaced
        );
    }
    if p.samples == 0 {
        out.push_str("too short for the period: give a smaller one with -c\n");
        return out;
    }
    let mut table = Builder::default();
    let heads = ["share", "", "samples", "function", "file"];
    let outcomes = OUTCOMES.map(|(name, _)| name);
    let outcomes = if r.spe.is_some() { &outcomes[..] } else { &[] };
    table.push_record(heads.iter().chain(outcomes).copied());
    for f in p.functions.iter().take(most) {
        let [share, u] = percent(f.share);
        let line = [
            share,
            u,
            f.samples.to_string(),
            f.function.clone(),
            f.file.clone(),
        ];
        let count = |name: &&str| f.outcomes.get(name).unwrap_or(&0).to_string();
        table.push_record(line.into_iter().chain(outcomes.iter().map(count)));
    }
    finish(
        &mut out,
        table,
        p.functions.len().saturating_sub(most),
        "functions",
    );
    let mut blocks: Vec<_> = (p.functions.iter())
        .flat_map(|f| f.blocks.iter().map(move |b| (f, b)))
        .collect();
    if blocks.is_empty() {
        return out;
    }
    if p.branches.is_some() {
        return executed(out, blocks, most);
    }
    blocks.sort_by_key(|(_, b)| std::cmp::Reverse(b.events));
    let mut table = Builder::default();
    table.push_record(["share", "", "samples", "basic block", "instructions"]);
    for (f, b) in blocks.iter().take(most) {
        let [share, u] = percent(b.share);
        let place = format!("{}+{:#x}", f.function, b.offset);
        table.push_record([
            share,
            u,
            b.samples.to_string(),
            place,
            b.instructions.to_string(),
        ]);
    }
    finish(&mut out, table, blocks.len().saturating_sub(most), "blocks");
    out
}

/// Blocks by how often they ran.
fn executed(mut out: String, mut blocks: Vec<(&Function, &BlockShare)>, most: usize) -> String {
    let share = |b: &BlockShare| b.executed.unwrap_or(Measured::exact(0.0));
    blocks.sort_by(|(_, a), (_, b)| share(b).value.total_cmp(&share(a).value));
    let mut table = Builder::default();
    table.push_record([
        "of instructions",
        "",
        "executions",
        "basic block",
        "instructions",
        "samples",
    ]);
    for (f, b) in blocks.iter().take(most) {
        let [part, u] = percent(share(b));
        table.push_record([
            part,
            u,
            b.executions.unwrap_or(0).to_string(),
            format!("{}+{:#x}", f.function, b.offset),
            b.instructions.to_string(),
            b.samples.to_string(),
        ]);
    }
    finish(&mut out, table, blocks.len().saturating_sub(most), "blocks");
    out
}

fn finish(out: &mut String, table: Builder, left: usize, what: &str) {
    let mut table = table.build();
    table
        .with(Style::rounded())
        .modify(Columns::new(..3), Alignment::right());
    out.push_str(&table.to_string());
    out.push('\n');
    if left > 0 {
        let _ = writeln!(out, "and {left} more {what} (--top, or --json for all)");
    }
}
