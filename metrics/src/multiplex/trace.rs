//! Recorded windows, as text.
//!
//! ```text
//! # scx_amp trace 1
//! # whatever else: program, machine, date
//! ns<TAB>instructions<TAB>cycles<TAB>l1d_refill<TAB>br_mis_pred
//! 10000000<TAB>18734211<TAB>10999870<TAB>20311<TAB>1204
//! …
//! ```
//! The first line is the version. Lines that begin with `#` and empty lines are comments. The
//! header names the columns; the first three are fixed, then one per event. Each further line is
//! one window with *increments*: its length in nanoseconds, and what was counted in it. Columns are
//! separated by tabs or blanks.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use thiserror::Error;

const VERSION_LINE: &str = "# scx_amp trace 1";

/// What was counted in one window.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Length, nanoseconds.
    pub ns: f64,
    /// Instructions.
    pub instructions: f64,
    /// Cycles.
    pub cycles: f64,
    /// Increments, in the order of [`Trace::events`].
    pub counts: Vec<f64>,
}

impl Window {
    /// Instructions per cycle; 0 when nothing ran.
    pub fn ipc(&self) -> f64 {
        if self.cycles > 0.0 {
            self.instructions / self.cycles
        } else {
            0.0
        }
    }
}

/// A run, counted without multiplexing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Names of the events beside instructions and cycles.
    pub events: Vec<String>,
    /// The windows, side by side.
    pub windows: Vec<Window>,
}

/// Why a trace cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is not a trace.
    #[error("{path}: line {line}: {reason}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
}

impl Trace {
    /// Reads a trace file.
    ///
    /// # Errors
    /// [`TraceError`], naming file and line.
    pub fn load(path: &Path) -> Result<Trace, TraceError> {
        let text = std::fs::read_to_string(path).map_err(|source| TraceError::Read {
            path: path.to_owned(),
            source,
        })?;
        Trace::parse(path, &text)
    }

    /// As [`Trace::load`], from text; `path` is for messages.
    ///
    /// # Errors
    /// [`TraceError::Bad`].
    pub fn parse(path: &Path, text: &str) -> Result<Trace, TraceError> {
        let bad = |line: usize, reason: String| TraceError::Bad {
            path: path.to_owned(),
            line: line + 1,
            reason,
        };
        if text.lines().next().map(str::trim) != Some(VERSION_LINE) {
            return Err(bad(0, format!("the first line must be `{VERSION_LINE}`")));
        }
        let mut trace = Trace::default();
        let mut header = false;
        for (n, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let mut columns = line.split_whitespace();
            if !header {
                for want in ["ns", "instructions", "cycles"] {
                    if columns.next() != Some(want) {
                        let reason = "the columns begin with `ns`, `instructions`, `cycles`";
                        return Err(bad(n, reason.into()));
                    }
                }
                trace.events = columns.map(str::to_owned).collect();
                header = true;
                continue;
            }
            let values: Result<Vec<f64>, String> = columns
                .map(|c| match c.parse::<f64>() {
                    Ok(v) if v.is_finite() && v >= 0.0 => Ok(v),
                    _ => Err(format!("`{c}` is not a count (a finite number from 0)")),
                })
                .collect();
            let values = values.map_err(|reason| bad(n, reason))?;
            match values.as_slice() {
                [ns, instructions, cycles, counts @ ..]
                    if counts.len() == trace.events.len() && *ns > 0.0 =>
                {
                    trace.windows.push(Window {
                        ns: *ns,
                        instructions: *instructions,
                        cycles: *cycles,
                        counts: counts.to_vec(),
                    });
                }
                [ns, ..] if *ns <= 0.0 => {
                    return Err(bad(n, "a window has a length above 0".into()))
                }
                _ => {
                    let (has, want) = (values.len(), trace.events.len() + 3);
                    return Err(bad(n, format!("{has} columns, the header has {want}")));
                }
            }
        }
        if trace.windows.is_empty() {
            let reason = "no windows: a header and at least one line of counts are needed";
            return Err(bad(text.lines().count().saturating_sub(1), reason.into()));
        }
        Ok(trace)
    }

    /// The trace as text.
    pub fn to_text(&self) -> String {
        let mut out = format!("{VERSION_LINE}\nns\tinstructions\tcycles");
        for e in &self.events {
            out.push('\t');
            out.push_str(e);
        }
        out.push('\n');
        for w in &self.windows {
            // writing to a string cannot fail
            let _ = write!(out, "{}\t{}\t{}", w.ns, w.instructions, w.cycles);
            for c in &w.counts {
                let _ = write!(out, "\t{c}");
            }
            out.push('\n');
        }
        out
    }

    /// What event `e` counted over the whole run.
    pub fn total(&self, e: usize) -> f64 {
        self.windows.iter().filter_map(|w| w.counts.get(e)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Trace, TraceError> {
        Trace::parse(Path::new("t.trace"), text)
    }

    #[test]
    fn refusals_name_file_and_line() {
        for (text, wants) in [
            ("", ["line 1", VERSION_LINE]),
            (
                "# scx_amp trace 1\nns cycles\n",
                ["line 2", "`instructions`"],
            ),
            (
                "# scx_amp trace 1\nns instructions cycles a\n1 2 3\n",
                ["line 3", "3 columns, the header has 4"],
            ),
            (
                "# scx_amp trace 1\nns instructions cycles a\n1 2 3 -4\n",
                ["line 3", "`-4`"],
            ),
            (
                "# scx_amp trace 1\n\nns instructions cycles\n0 2 3\n",
                ["line 4", "above 0"],
            ),
            (
                "# scx_amp trace 1\nns instructions cycles\n",
                ["line 2", "no windows"],
            ),
        ] {
            let e = parse(text).unwrap_err().to_string();
            assert!(
                e.starts_with("t.trace: ") && wants.iter().all(|w| e.contains(w)),
                "{text}: {e}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_trace_survives_its_text(
            events in proptest::collection::vec("[a-z_]{1,8}", 0..4),
            rows in proptest::collection::vec(proptest::array::uniform8(0.0f64..1e12), 1..10),
        ) {
            let windows = rows.iter().map(|r| Window {
                ns: r[0] + 1.0, instructions: r[1], cycles: r[2], counts: r[3..3 + events.len()].to_vec(),
            });
            let t = Trace { windows: windows.collect(), events };
            prop_assert_eq!(parse(&t.to_text()).unwrap(), t);
        }

        #[test]
        fn no_text_makes_it_panic(s in "(# scx_amp trace 1\n)?[a-z0-9 \n\t.#-]{0,80}") {
            let _ = parse(&s);
        }
    }
}
