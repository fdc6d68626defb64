//! The journal of a collection: what it is to do, and every run that is done. An interrupted
//! collection goes on from it.
//!
//! JSON Lines: a [`Plan`], then a [`Finished`] per run. A run that was made again stands there
//! again; the last one counts. A last line that was cut off is not there.

use crate::data::{Dataset, Header, Row};
use crate::metrology;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Version of the journal's format.
pub const VERSION: u32 = 1;

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
    /// Header of the data.
    pub header: Header,
    /// Per core type, how its event sets are distributed over runs.
    pub core_types: Vec<Runs>,
}

/// The runs of every program on a core type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runs {
    /// Runs in one measure, R.
    pub r: usize,
    /// Index of the set that each run counts.
    pub sets: Vec<usize>,
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
                let run: Finished = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
                out.add(run);
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
            let runs: Vec<&Finished> = (0..plan.core_types.len())
                .flat_map(|t| self.of(program, command, t))
                .collect();
            let wanted: usize = plan.core_types.iter().map(|t| t.sets.len()).sum();
            if runs.len() != wanted || runs.iter().any(|r| r.windows.is_empty()) {
                missing.push(program.to_owned());
                continue;
            }
            for row in runs.into_iter().flat_map(|r| rows(&plan.header, r)) {
                data.add(row)
                    .map_err(|e| format!("program `{program}`: {e}"))?;
            }
        }
        Ok((data, missing))
    }

    /// What the runs of so many programs would have taken otherwise, summed over the core types.
    pub fn saving(&self, programs: usize) -> metrology::Saving {
        let mut all = metrology::Saving {
            made: self.repeated,
            set_by_set: 0,
            event_by_event: 0,
        };
        let Some(plan) = &self.plan else { return all };
        for (t, runs) in plan.header.core_types.iter().zip(&plan.core_types) {
            let of_type = metrology::Plan {
                sets: t.sets.clone(),
                runs: runs.sets.clone(),
            };
            let s = metrology::Saving::of(programs, &of_type, t.events_per_set, runs.r, 0);
            all.made += s.made;
            all.set_by_set += s.set_by_set;
            all.event_by_event += s.event_by_event;
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
            core_types: vec![
                Runs {
                    r: 2,
                    sets: vec![0, 1]
                };
                2
            ],
        }
    }

    fn run(program: &str, core_type: usize, run: u32) -> Finished {
        Finished {
            program: program.into(),
            command: vec!["x".into()],
            core_type,
            run,
            set: run as usize,
            instructions: 250,
            windows: vec![Counted(100, 50, 25, Some(0.5), vec![3]); 2],
        }
    }

    fn text(runs: &[Finished]) -> String {
        let mut out = serde_json::to_string(&plan()).unwrap() + "\n";
        for r in runs {
            out += &(serde_json::to_string(r).unwrap() + "\n");
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
        // 4 runs each; set by set 2 · 2 on each core type, and as many events
        let s = j.saving(3);
        assert_eq!((s.made, s.set_by_set, s.saved()), (12, 24, 12));
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
            assert_eq!(j.runs.len(), lines.saturating_sub(1), "cut at {cut}");
            assert_eq!(j.cut_off, cut > 0 && !whole[..cut].ends_with('\n'));
        }
        let e = read(&whole.replacen("\"run\":0", "\"run\":x", 1)).unwrap_err();
        assert!(
            e.starts_with("j: line 2: ") && e.contains("delete the file"),
            "{e}"
        );
        assert!(read(&whole.replacen("\"journal\":1", "\"journal\":9", 1))
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
        let j = read(&text(&[run("a", 0, 0), again.clone()])).unwrap();
        assert_eq!(j.of("a", &again.command, 0), [&again]);
        assert_eq!((j.repeated, j.saving(1).made), (1, 5));
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
