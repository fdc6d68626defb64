//! The file of instruction windows: what was counted, program by program, core type by core type.
//!
//! JSON Lines. The first line is a [`Header`], an object; every other line is a window, an array of
//! ten columns ([`COLUMNS`]):
//!
//! ```text
//! {"format":"amp-windows","version":1,"platform":"juno","kernel":"6.18.2","date":"2026-11-20","core_types":[
//!  {"name":"big","pmu":"armv8_cortex_a57","events_per_set":4,"sets":[["l1d_cache_refill","br_mis_pred"],["stall_backend"]]}, …]}
//! ["bzip2","big",0,0,0,100000000,52000000,47272727,0.031,[81234,4711]]
//! ["bzip2","big",1,1,0,100000000,52100000,47363636,0.031,[9100000]]
//! ```
//!
//! (The header is on one line; it is broken here to be read.) A run is one execution of a program,
//! pinned to one core type, alone, counting one event set. Its windows are in order, from window 0
//! and without gaps, so that the sum of instructions before a window is its position in the
//! program; lines of several runs may be mixed. Lines that are empty are passed over.

use amp_metrics::{EventSpec, MAX_CORE_TYPES, MAX_EVENTS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What [`Header::format`] must be.
pub const FORMAT: &str = "amp-windows";
/// Version of the format that is read and written.
pub const VERSION: u32 = 1;
/// Most bytes in one line: a bound on memory, far above what any window needs.
pub const LONGEST_LINE: u64 = 1 << 20;
/// Longest file of windows, bytes.
pub const LONGEST_FILE: u64 = 1 << 30;

/// The columns of a window, in order: their name and what is in them.
pub const COLUMNS: [(&str, &str); 10] = [
    ("program", "what ran; the same text on every core type"),
    ("core_type", "name of a core type of the header"),
    (
        "run",
        "number of the execution, unique per program and core type",
    ),
    (
        "set",
        "index of the event set of that core type, the same in the whole run",
    ),
    ("window", "index of the window in its run, from 0"),
    (
        "instructions",
        "instructions retired in the window, above 0",
    ),
    ("cycles", "core cycles in the window, above 0"),
    ("time", "CPU time in the window, nanoseconds, above 0"),
    (
        "energy",
        "energy of the core in the window, joules, or null where there is no meter",
    ),
    (
        "counts",
        "array: the count of each event of the set, in the header's order",
    ),
];

/// A core type of the platform and what was counted on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreType {
    /// Its name.
    pub name: String,
    /// Name of its PMU, as sysfs has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pmu: Option<String>,
    /// The event counted as instructions retired, where it is not perf's generic one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The event counted as cycles, where it is not perf's generic one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<String>,
    /// How many events can be counted at once beside instructions and cycles, at least 1.
    pub events_per_set: usize,
    /// The event sets, without instructions and cycles; events as perf writes them, each in one set
    /// only.
    pub sets: Vec<Vec<String>>,
}

impl CoreType {
    /// Every event, set by set.
    pub fn events(&self) -> impl Iterator<Item = &str> {
        self.sets.iter().flatten().map(String::as_str)
    }
}

/// The first line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Name of the platform.
    pub platform: String,
    /// What the machine calls itself (`amp_metrics::pmu::identity`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Kernel release it was counted under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Day of the collection, `2026-11-20`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Core types, fastest first, at least two.
    pub core_types: Vec<CoreType>,
}

/// One window: one line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row(
    /// Program.
    pub String,
    /// Core type.
    pub String,
    /// Run.
    pub u32,
    /// Event set.
    pub usize,
    /// Window.
    pub u64,
    /// Instructions.
    pub u64,
    /// Cycles.
    pub u64,
    /// Nanoseconds.
    pub u64,
    /// Joules.
    pub Option<f64>,
    /// Counts.
    pub Vec<u64>,
);

/// What was counted in a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Instructions retired, above 0.
    pub instructions: u64,
    /// Core cycles, above 0.
    pub cycles: u64,
    /// CPU time in nanoseconds, above 0.
    pub time_ns: u64,
    /// Energy in joules, at least 0.
    pub energy_j: Option<f64>,
    /// Count of each event of the run's set.
    pub counts: Vec<u64>,
}

/// One execution of a program on one core type.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its number.
    pub number: u32,
    /// Index of the event set that was counted.
    pub set: usize,
    /// Its windows, in order.
    pub windows: Vec<Window>,
}

impl Run {
    /// Instructions retired in all its windows.
    pub fn instructions(&self) -> f64 {
        self.windows.iter().map(|w| w.instructions as f64).sum()
    }
}

/// The windows of one platform, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// What the first line says.
    pub header: Header,
    /// Runs per program, then per core type in the header's order, by number.
    pub programs: BTreeMap<String, Vec<Vec<Run>>>,
}

/// Why a file of windows cannot be used.
#[derive(Debug, Error)]
pub enum DataError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is not what it must be.
    #[error("{path}: line {line}: {message}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The column or key, and what would be right.
        message: String,
    },
    /// Two files do not belong together.
    #[error("{path}: {message}")]
    Differs {
        /// The second file.
        path: PathBuf,
        /// What differs from the first one.
        message: String,
    },
}

fn column(n: usize, message: &str) -> String {
    let name = COLUMNS.get(n).map_or("?", |c| c.0);
    format!("column {} (`{name}`): {message}", n + 1)
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<String> = names.map(|n| format!("`{n}`")).collect();
    all.join(", ")
}

impl Header {
    fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!("key `format`: `{}` is not `{FORMAT}`", self.format));
        }
        if self.version != VERSION {
            return Err(format!(
                "key `version`: {} is not {VERSION}, the one that is known",
                self.version
            ));
        }
        let n = self.core_types.len();
        if !(2..=MAX_CORE_TYPES).contains(&n) {
            return Err(format!(
                "key `core_types`: {n} core types, there must be 2 to {MAX_CORE_TYPES}"
            ));
        }
        for (i, t) in self.core_types.iter().enumerate() {
            let bad = |key: &str, why: String| {
                Err(format!("key `core_types[{i}].{key}` (`{}`): {why}", t.name))
            };
            if self.core_types[..i].iter().any(|o| o.name == t.name) {
                return bad("name", "it is there twice".to_owned());
            }
            // with instructions and cycles
            if !(1..=MAX_EVENTS - 2).contains(&t.events_per_set) {
                let most = MAX_EVENTS - 2;
                return bad(
                    "events_per_set",
                    format!("{} is not within 1 to {most}", t.events_per_set),
                );
            }
            if t.sets.is_empty() {
                return bad(
                    "sets",
                    "there is none; `[[]]` counts instructions and cycles only".into(),
                );
            }
            let mut seen: Vec<&str> = Vec::new();
            for (s, set) in t.sets.iter().enumerate() {
                if set.len() > t.events_per_set {
                    let (have, most) = (set.len(), t.events_per_set);
                    return bad(
                        &format!("sets[{s}]"),
                        format!("{have} events, `events_per_set` says at most {most}"),
                    );
                }
                for e in set {
                    if let Err(why) = e.parse::<EventSpec>() {
                        return bad(&format!("sets[{s}]"), why.to_string());
                    }
                    if seen.contains(&e.as_str()) {
                        return bad(&format!("sets[{s}]"), format!("event `{e}` is there twice"));
                    }
                    seen.push(e);
                }
            }
            for (key, e) in [("instructions", &t.instructions), ("cycles", &t.cycles)] {
                if let Some(Err(why)) = e.as_ref().map(|e| e.parse::<EventSpec>()) {
                    return bad(key, why.to_string());
                }
            }
        }
        Ok(())
    }
}

/// What serde says, without its own line number (it sees one line).
fn syntax(e: &serde_json::Error) -> String {
    let text = e.to_string();
    let text = text.rsplit_once(" at line ").map_or(&*text, |(t, _)| t);
    let cut = if e.is_eof() {
        " (cut off? delete the line to use the rest)"
    } else {
        ""
    };
    format!("character {}: {text}{cut}", e.column())
}

impl Dataset {
    /// An empty one.
    ///
    /// # Errors
    /// What is wrong with the header.
    pub fn new(header: Header) -> Result<Dataset, String> {
        header.check()?;
        Ok(Dataset {
            header,
            programs: BTreeMap::new(),
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`DataError`], naming file, line and column.
    pub fn load(path: &Path) -> Result<Dataset, DataError> {
        let read = |source| DataError::Read {
            path: path.to_owned(),
            source,
        };
        let (file, about) = amp_machine::open_regular(path).map_err(read)?;
        if about.len() > LONGEST_FILE {
            let why = format!("longer than {} MiB", LONGEST_FILE >> 20);
            let too_long = std::io::ErrorKind::FileTooLarge;
            return Err(read(std::io::Error::new(too_long, why)));
        }
        Dataset::read(path, std::io::BufReader::new(file))
    }

    /// As [`Dataset::load`], from any reader; `path` is for messages.
    ///
    /// # Errors
    /// [`DataError`], naming file, line and column.
    pub fn read(path: &Path, mut input: impl BufRead) -> Result<Dataset, DataError> {
        let mut data: Option<Dataset> = None;
        let mut number = 0;
        loop {
            number += 1;
            let bad = |message: String| DataError::Line {
                path: path.to_owned(),
                line: number,
                message,
            };
            let mut bytes = Vec::new();
            let limited = &mut std::io::Read::take(&mut input, LONGEST_LINE + 1);
            limited
                .read_until(b'\n', &mut bytes)
                .map_err(|source| DataError::Read {
                    path: path.to_owned(),
                    source,
                })?;
            if bytes.is_empty() {
                break;
            }
            if bytes.len() as u64 > LONGEST_LINE {
                return Err(bad(format!("longer than {LONGEST_LINE} bytes")));
            }
            let text = std::str::from_utf8(&bytes)
                .map_err(|e| bad(format!("character {}: not UTF-8", e.valid_up_to() + 1)))?
                .trim();
            match &mut data {
                None => {
                    let header: Header = serde_json::from_str(text).map_err(|e| {
                        bad(format!("the first line must be the header: {}", syntax(&e)))
                    })?;
                    data = Some(Dataset::new(header).map_err(bad)?);
                }
                Some(_) if text.is_empty() => {}
                Some(data) => {
                    let row: Row = serde_json::from_str(text).map_err(|e| bad(syntax(&e)))?;
                    data.add(row).map_err(bad)?;
                }
            }
        }
        data.ok_or_else(|| DataError::Line {
            path: path.to_owned(),
            line: 1,
            message: "the file is empty; its first line must be the header".to_owned(),
        })
    }

    /// Adds a window: the next one of its run.
    ///
    /// # Errors
    /// The column at fault, and what would be right.
    pub fn add(&mut self, row: Row) -> Result<(), String> {
        let Row(program, type_name, run, set, window, instructions, cycles, time, energy, counts) =
            row;
        let types = &self.header.core_types;
        if program.is_empty() {
            return Err(column(0, "it is empty"));
        }
        let Some((t, core_type)) = types.iter().enumerate().find(|(_, t)| t.name == type_name)
        else {
            let have = quoted(types.iter().map(|t| t.name.as_str()));
            return Err(column(
                1,
                &format!("no core type `{type_name}` in the header, there are {have}"),
            ));
        };
        let Some(events) = core_type.sets.get(set) else {
            let n = core_type.sets.len();
            return Err(column(
                3,
                &format!("no event set {set} on `{type_name}`, there are {n} (from 0)"),
            ));
        };
        for (n, value) in [(5, instructions), (6, cycles), (7, time)] {
            if value == 0 {
                return Err(column(n, "it must be above 0"));
            }
        }
        if let Some(e) = energy.filter(|e| !(e.is_finite() && *e >= 0.0)) {
            return Err(column(
                8,
                &format!("{e} is not a finite number of at least 0"),
            ));
        }
        if counts.len() != events.len() {
            let (have, want) = (counts.len(), events.len());
            return Err(column(
                9,
                &format!("{have} counts, event set {set} of `{type_name}` has {want} events"),
            ));
        }
        let new = Window {
            instructions,
            cycles,
            time_ns: time,
            energy_j: energy,
            counts,
        };
        let n = types.len();
        let mut first = Vec::new();
        let known = self.programs.get(&program);
        let runs = known.and_then(|p| p.get(t)).unwrap_or(&first);
        let place = runs.binary_search_by_key(&run, |r| r.number);
        let next = place.map_or(0, |i| runs[i].windows.len() as u64);
        if let Some(other) = place.ok().map(|i| runs[i].set).filter(|s| *s != set) {
            return Err(column(
                3,
                &format!("run {run} counted event set {other} before"),
            ));
        }
        if window != next {
            return Err(column(
                4,
                &format!("{window}, but {next} is the next window of run {run} of `{program}` on `{type_name}`"),
            ));
        }
        first = Vec::new();
        let runs = self
            .programs
            .entry(program)
            .or_insert_with(|| vec![Vec::new(); n])
            .get_mut(t)
            .unwrap_or(&mut first);
        match place {
            Ok(i) => runs[i].windows.push(new),
            Err(i) => runs.insert(
                i,
                Run {
                    number: run,
                    set,
                    windows: vec![new],
                },
            ),
        }
        Ok(())
    }

    /// Takes in the programs of another file of the same platform.
    ///
    /// # Errors
    /// [`DataError::Differs`] when the platform, its core types or event sets differ, or a program
    /// is in both.
    pub fn merge(&mut self, path: &Path, other: Dataset) -> Result<(), DataError> {
        let differs = |message: String| {
            Err(DataError::Differs {
                path: path.to_owned(),
                message,
            })
        };
        if self.header.platform != other.header.platform {
            let (a, b) = (&other.header.platform, &self.header.platform);
            return differs(format!(
                "it is of platform `{a}`, the files before it of `{b}`"
            ));
        }
        if self.header.core_types != other.header.core_types {
            return differs(
                "its core types or event sets are not those of the files before it".into(),
            );
        }
        if let Some(program) = other
            .programs
            .keys()
            .find(|p| self.programs.contains_key(*p))
        {
            return differs(format!("program `{program}` is in a file before it, too"));
        }
        // the file keeps one kernel and one date: the latest collection's
        if other.header.date > self.header.date {
            self.header.date = other.header.date;
            self.header.kernel = other.header.kernel;
        }
        self.programs.extend(other.programs);
        Ok(())
    }

    /// The rows, in order of program, core type, run and window.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.programs.iter().flat_map(move |(program, types)| {
            let named = self.header.core_types.iter().zip(types);
            named.flat_map(move |(t, runs)| {
                runs.iter().flat_map(move |r| {
                    r.windows.iter().zip(0u64..).map(move |(w, i)| {
                        Row(
                            program.clone(),
                            t.name.clone(),
                            r.number,
                            r.set,
                            i,
                            w.instructions,
                            w.cycles,
                            w.time_ns,
                            w.energy_j,
                            w.counts.clone(),
                        )
                    })
                })
            })
        })
    }

    /// Writes the file.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write(&self, mut out: impl std::io::Write) -> std::io::Result<()> {
        writeln!(out, "{}", serde_json::to_string(&self.header)?)?;
        for row in self.rows() {
            writeln!(out, "{}", serde_json::to_string(&row)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
