//! The journal of a collection: what it is to do, and every run that is done. An interrupted
//! collection goes on from it.
//!
//! JSON Lines: a [`Plan`], then a [`Finished`] per run, and a [`SampleSize`] per program and core type once
//! its runs say how many it takes. A run that was made again stands there again; the last one counts.
//! A last line that was cut off is not there.

use crate::data::{Dataset, Header, Row};
use crate::metrology;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Version of the journal's format.
pub const VERSION: u32 = 2;

/// What the runs of a collection have in common. Runs under another plan do not go together with
/// these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`VERSION`].
    pub journal: u32,
    /// Instructions in a window.
    pub window: u64,
    /// Time between two readings, milliseconds.
    pub sample_ms: u64,
    /// Relative uncertainty of retired instructions that the number of runs was chosen for.
    pub sigma_ref: f64,
    /// What else the figures depend on: version of the board's model, the machine.
    pub on: String,
    /// Header of the data. Run n of a program counts set n modulo the number of sets.
    pub header: Header,
}

/// How many runs of a program on a core type make a measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleSize {
    /// Name of the program.
    pub program: String,
    /// What was executed.
    pub command: Vec<String>,
    /// Index of the core type in the header.
    pub core_type: usize,
    /// R, at least 1 ([`metrology::sample_size`]).
    pub r: usize,
}

/// A window of a run, as in the data: instructions, cycles, nanoseconds, joules, counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted(pub u64, pub u64, pub u64, pub Option<f64>, pub Vec<u64>);

/// A run that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    /// Name of the program.
    pub program: String,
    /// What was executed.
    pub command: Vec<String>,
    /// Index of the core type in the header.
    pub core_type: usize,
    /// Number of the run.
    pub run: u32,
    /// Index of the event set.
    pub set: usize,
    /// Instructions retired in all.
    pub instructions: u64,
    /// The windows.
    pub windows: Vec<Counted>,
}

/// A journal, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    /// What was to be done; `None` in an empty journal.
    pub plan: Option<Plan>,
    /// The runs, by program, core type and number.
    pub runs: BTreeMap<(String, usize, u32), Finished>,
    /// How many runs make a measure, by program and core type.
    pub sizes: BTreeMap<(String, usize), SampleSize>,
    /// Runs that were made again.
    pub repeated: usize,
    /// Whether the last line was cut off.
    pub cut_off: bool,
}

/// Why a journal cannot be used.
#[derive(Debug, Error)]
#[error("{path}: line {line}: {message}; delete the file to start over")]
pub struct JournalError {
    path: PathBuf,
    line: usize,
    message: String,
}

impl Journal {
    /// Reads a journal; `path` is for messages.
    ///
    /// # Errors
    /// The line that is not right, unless it is the last one and has no end.
    pub fn parse(path: &Path, text: &str) -> Result<Journal, JournalError> {
        let mut out = Journal::default();
        for (i, line) in text.split_inclusive('\n').enumerate() {
            let bad = |message: String| JournalError {
                path: path.to_owned(),
                line: i + 1,
                message,
            };
            if !line.ends_with('\n') {
                out.cut_off = true;
                break;
            }
            if i == 0 {
                let plan: Plan = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
                if plan.journal != VERSION {
                    return Err(bad(format!("version {}, not {VERSION}", plan.journal)));
                }
                // an empty data set checks the header
                Dataset::new(plan.header.clone()).map_err(bad)?;
                out.plan = Some(plan);
            } else {
                match serde_json::from_str::<Finished>(line) {
                    Ok(run) => out.add(run),
                    Err(e) => match serde_json::from_str::<SampleSize>(line) {
                        Ok(size) => out.size(size),
                        Err(_) => return Err(bad(e.to_string())),
                    },
                }
            }
        }
        Ok(out)
    }

    /// Takes a run; one of the same number is replaced.
    pub fn add(&mut self, run: Finished) {
        let key = (run.program.clone(), run.core_type, run.run);
        if self.runs.insert(key, run).is_some() {
            self.repeated += 1;
        }
    }

    /// Takes how many runs of a program make a measure.
    pub fn size(&mut self, size: SampleSize) {
        self.sizes
            .insert((size.program.clone(), size.core_type), size);
    }

    /// R of a program on a core type, if it is of this command; `None` while that is not known.
    pub fn r(&self, program: &str, command: &[String], core_type: usize) -> Option<usize> {
        let size = self.sizes.get(&(program.to_owned(), core_type))?;
        (size.command == command).then_some(size.r.max(1))
    }

    /// The runs of a program on a core type, by number, if they are of this command.
    pub fn of(&self, program: &str, command: &[String], core_type: usize) -> Vec<&Finished> {
        let from = (program.to_owned(), core_type, 0);
        let to = (program.to_owned(), core_type, u32::MAX);
        let all = self.runs.range(from..=to).map(|(_, run)| run);
        all.filter(|r| r.command == command).collect()
    }

    /// The data of these programs, in their order; a program whose runs are not all there is left
    /// out and named.
    ///
    /// # Errors
    /// When there is no plan, or a run does not fit it: the program, and what is wrong.
    pub fn dataset<'a>(
        &self,
        programs: impl Iterator<Item = (&'a str, &'a [String])>,
    ) -> Result<(Dataset, Vec<String>), String> {
        let plan = self.plan.as_ref().ok_or("the journal is empty")?;
        let mut data = Dataset::new(plan.header.clone())?;
        let mut missing = Vec::new();
        for (program, command) in programs {
            let types = || plan.header.core_types.iter().enumerate();
            let complete = types().all(|(t, of)| {
                let there = self.of(program, command, t);
                let r = self.r(program, command, t);
                r.is_some_and(|r| there.len() == metrology::runs(of.sets.len(), r))
                    && there.iter().all(|r| !r.windows.is_empty())
            });
            if !complete {
                missing.push(program.to_owned());
                continue;
            }
            let runs = types().flat_map(|(t, _)| self.of(program, command, t));
            for row in runs.flat_map(|r| rows(&plan.header, r)) {
                data.add(row)
                    .map_err(|e| format!("program `{program}`: {e}"))?;
            }
        }
        Ok((data, missing))
    }

    /// What the runs of all programs would have taken otherwise.
    pub fn saving(&self) -> metrology::Saving {
        let mut all = metrology::Saving {
            made: self.repeated,
            ..metrology::Saving::default()
        };
        let Some(plan) = &self.plan else { return all };
        for ((program, core_type), size) in &self.sizes {
            let Some(t) = plan.header.core_types.get(*core_type) else {
                continue;
            };
            let events = t.events().count();
            // whoever repeats each set fills them up
            let sets = events.div_ceil(t.events_per_set.max(1)).max(1);
            let made = self.of(program, &size.command, *core_type).len();
            all.add(made, size.r.max(1), sets, events);
        }
        all
    }
}

/// The lines of a run in the data.
fn rows<'a>(header: &'a Header, run: &'a Finished) -> impl Iterator<Item = Row> + 'a {
    let core_type = header.core_types.get(run.core_type).map_or("", |t| &t.name);
    run.windows.iter().zip(0u64..).map(move |(w, i)| {
        let Counted(instructions, cycles, time, energy, counts) = w.clone();
        Row(
            run.program.clone(),
            core_type.to_owned(),
            run.run,
            run.set,
            i,
            instructions,
            cycles,
            time,
            energy,
            counts,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{CoreType, FORMAT};

    fn plan() -> Plan {
        let t = |name: &str| CoreType {
            name: name.into(),
            pmu: None,
            instructions: None,
            cycles: None,
            events_per_set: 1,
            sets: vec![vec!["a".into()], vec!["b".into()]],
        };
        Plan {
            journal: VERSION,
            window: 100,
            sample_ms: 5,
            sigma_ref: 0.01,
            on: String::new(),
            header: Header {
                format: FORMAT.into(),
                version: crate::data::VERSION,
                platform: "p".into(),
                machine: None,
                kernel: None,
                date: None,
                core_types: vec![t("big"), t("little")],
            },
        }
    }

    fn sized(program: &str, core_type: usize, r: usize) -> SampleSize {
        SampleSize {
            program: program.into(),
            command: vec!["x".into()],
            core_type,
            r,
        }
    }

    fn run(program: &str, core_type: usize, run: u32) -> Finished {
        Finished {
            program: program.into(),
            command: vec!["x".into()],
            core_type,
            run,
            set: run as usize % 2,
            instructions: 250,
            windows: vec![Counted(100, 50, 25, Some(0.5), vec![3]); 2],
        }
    }

    fn text(runs: &[Finished]) -> String {
        let mut out = serde_json::to_string(&plan()).unwrap() + "\n";
        for r in runs {
            out += &(serde_json::to_string(r).unwrap() + "\n");
            if r.run == 1 {
                let size = sized(&r.program, r.core_type, 1);
                out += &(serde_json::to_string(&size).unwrap() + "\n");
            }
        }
        out
    }

    fn read(text: &str) -> Result<Journal, String> {
        Journal::parse(Path::new("j"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_written_is_read() {
        let all = [
            run("a", 0, 0),
            run("a", 0, 1),
            run("a", 1, 0),
            run("a", 1, 1),
            run("b", 0, 0),
        ];
        let j = read(&text(&all)).unwrap();
        assert_eq!(j.plan, Some(plan()));
        assert_eq!((j.runs.len(), j.repeated, j.cut_off), (5, 0, false));
        let x = vec!["x".to_owned()];
        assert_eq!(j.of("a", &x, 0), [&all[0], &all[1]]);
        assert!(j.of("a", &["y".to_owned()], 0).is_empty());
        let both = [("a", x.as_slice()), ("b", x.as_slice())];
        let (data, missing) = j.dataset(both.into_iter()).unwrap();
        assert_eq!(missing, ["b"]);
        assert_eq!(data.programs["a"][1][1].windows.len(), 2);
        // 4 runs of the one that is all there, of two sets of one event on each core type, once each
        let s = j.saving();
        assert_eq!((s.made, s.set_by_set, s.event_by_event), (4, 4, 4));
        assert_eq!((j.r("a", &x, 1), j.r("b", &x, 0)), (Some(1), None));
        assert_eq!(j.r("a", &["y".to_owned()], 1), None);
        // three runs make a measure, and two of them are there
        let mut j = j;
        j.size(sized("a", 1, 3));
        let (data, missing) = j.dataset(both.into_iter()).unwrap();
        assert_eq!((data.programs.len(), missing.len()), (0, 2));
    }

    #[test]
    fn an_interrupted_journal_goes_on() {
        let whole = text(&[run("a", 0, 0), run("a", 0, 1)]);
        for cut in 0..whole.len() {
            if !whole.is_char_boundary(cut) {
                continue;
            }
            let j = read(&whole[..cut]).unwrap();
            let lines = whole[..cut].matches('\n').count();
            let there = j.runs.len() + j.sizes.len();
            assert_eq!(there, lines.saturating_sub(1), "cut at {cut}");
            assert_eq!(j.cut_off, cut > 0 && !whole[..cut].ends_with('\n'));
        }
        let e = read(&whole.replacen("\"run\":0", "\"run\":x", 1)).unwrap_err();
        assert!(
            e.starts_with("j: line 2: ") && e.contains("delete the file"),
            "{e}"
        );
        assert!(read(&whole.replacen("\"journal\":2", "\"journal\":9", 1))
            .unwrap_err()
            .contains("version 9"));
        assert!(read(&whole.replace("amp-windows", "x"))
            .unwrap_err()
            .contains("line 1"));
        assert!(read("").unwrap().dataset(std::iter::empty()).is_err());
    }

    #[test]
    fn a_run_that_was_made_again_counts_once() {
        let mut again = run("a", 0, 0);
        again.instructions = 251;
        let j = read(&text(&[run("a", 0, 0), run("a", 0, 1), again.clone()])).unwrap();
        assert_eq!(j.of("a", &again.command, 0), [&again, &run("a", 0, 1)]);
        assert_eq!((j.repeated, j.saving().made), (1, 3));
    }

    #[test]
    fn a_run_that_does_not_fit_is_refused() {
        let mut odd = run("a", 0, 1);
        odd.set = 7;
        let j = read(&text(&[
            run("a", 0, 0),
            odd,
            run("a", 1, 0),
            run("a", 1, 1),
        ]))
        .unwrap();
        let x = vec!["x".to_owned()];
        let e = j.dataset([("a", x.as_slice())].into_iter()).unwrap_err();
        assert!(
            e.contains("program `a`") && e.contains("event set 7"),
            "{e}"
        );
    }
}
