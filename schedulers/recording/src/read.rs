//! From the files of a recording to what they say, or to what is wrong in which line.

use crate::format::{Change, Factor, Header, Tick, Who, VERSION};
use amp_machine::{read_bytes, BadFile};
use amp_metrics::{Topology, MAX_CORE_TYPES};
use amp_sched::CoreType;
use serde::de::DeserializeOwned;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Longest file of a recording, bytes: what `--record-size` allows for each of the two.
pub const LONGEST_FILE: u64 = 1 << 30;
/// Threads that a recording may name: more have never been seen, and each takes memory.
const MOST_THREADS: usize = 1_000_000;
/// Longest recording, in microseconds: ten years.
const LONGEST: u64 = 10 * 365 * 24 * 3600 * 1_000_000;
/// Longest time between two ticks, in microseconds: as `scx_amp run` has it.
const LONGEST_INTERVAL: u64 = 10_000_000;

/// A recording, as far as its files reach back.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The file it was read from.
    pub path: PathBuf,
    /// The first line of the first file there is.
    pub header: Header,
    /// The core types it names.
    pub topology: Topology,
    /// When the first line begins, in microseconds since the recording began.
    pub begin_us: u64,
    /// Its lines.
    pub spans: Vec<Span>,
    /// Its threads; a thread's number in [`Ran::thread`] is its place here.
    pub threads: Vec<Who>,
    /// What is to be said beside what it says: torn off at the end, without its beginning.
    pub notes: Vec<String>,
}

/// The time from one line to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// Its end, in microseconds since the recording began.
    pub t_us: u64,
    /// Its length in seconds, > 0.
    pub length_s: f64,
    /// What each thread did in it that ran or waited at its end.
    pub ran: Vec<Ran>,
    /// Threads that have ended, by place in [`Recording::threads`].
    pub gone: Vec<usize>,
    /// What was changed in the scheduler.
    pub change: Option<Change>,
}

/// What a thread did in a span. Lists go by core type, fastest first, and are all of the machine's
/// length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ran {
    /// Its place in [`Recording::threads`].
    pub thread: usize,
    /// CPU time in seconds.
    pub cpu_s: Vec<f64>,
    /// Instructions in the counted part of it.
    pub instructions: Vec<f64>,
    /// That part, in seconds.
    pub counted_s: Vec<f64>,
    /// Speedup factors of all core types but the slowest.
    pub sf: Vec<Option<Factor>>,
    /// Efficiency factors, likewise.
    pub ef: Vec<Option<Factor>>,
    /// Number of its phase.
    pub phase: Option<u32>,
    /// Core type it was placed on.
    pub on: Option<u8>,
    /// Whether it was running or waiting for a CPU at the end.
    pub runnable: bool,
}

impl Recording {
    /// Reads the recording at `path`; the older half of it, `path.1`, too, where it belongs to it.
    ///
    /// # Errors
    /// When a file cannot be read or is not right, with line and key. A last line without an end is
    /// left out, with a note.
    pub fn load(path: &Path) -> Result<Recording, BadFile> {
        let read = |p: &Path| read_bytes(p, LONGEST_FILE).map(|(bytes, _)| bytes);
        let bytes = read(path).map_err(|e| BadFile::whole(path, e.to_string()))?;
        let mut older = path.as_os_str().to_owned();
        older.push(".1");
        let older = PathBuf::from(older);
        // whether it belongs to this one, its header says
        let before = read(&older).ok();
        let before = before.as_deref().map(|b| (older.as_path(), b));
        Recording::parse(path, &bytes, before)
    }

    /// As [`Recording::load`], from bytes; `path` is for messages, `before` is what is at `path.1`.
    ///
    /// # Errors
    /// As [`Recording::load`].
    pub fn parse(
        path: &Path,
        bytes: &[u8],
        before: Option<(&Path, &[u8])>,
    ) -> Result<Recording, BadFile> {
        if bytes.is_empty() {
            return Err(BadFile::whole(path, "it is empty: nothing was recorded"));
        }
        let newest = FileReader::begin(path, bytes)?;
        let mut files = Vec::new();
        if let Some((older, bytes)) = before.filter(|_| newest.header.part > 0) {
            let older = FileReader::begin(older, bytes);
            // another recording's, or no recording at all: not ours to complain about
            let follows = |o: &FileReader<'_>| {
                o.header.run == newest.header.run
                    && o.header.part + 1 == newest.header.part
                    && o.header.core_types == newest.header.core_types
            };
            files.extend(older.ok().filter(follows));
        }
        files.push(newest);
        let first = &files[0];
        let mut all = Recording {
            path: path.to_owned(),
            topology: first.topology()?,
            header: first.header.clone(),
            begin_us: 0,
            spans: Vec::new(),
            threads: Vec::new(),
            notes: Vec::new(),
        };
        if all.header.part > 0 {
            let note = "its beginning is no longer there: the size of the recording is bounded";
            all.notes.push(note.to_owned());
        }
        let mut places = BTreeMap::new();
        for file in files {
            file.read(&mut all, &mut places)?;
        }
        if all.spans.is_empty() {
            let message = "there is a header and no complete tick: nothing was recorded";
            return Err(BadFile::whole(path, message));
        }
        Ok(all)
    }

    /// Length of what is recorded, in seconds.
    pub fn length_s(&self) -> f64 {
        self.spans.iter().map(|s| s.length_s).sum()
    }
}

/// One file, and how far it has been read.
struct FileReader<'a> {
    path: &'a Path,
    header: Header,
    lines: Vec<&'a [u8]>,
    /// Whether the last line has no end.
    open: bool,
}

impl<'a> FileReader<'a> {
    fn begin(path: &'a Path, bytes: &'a [u8]) -> Result<FileReader<'a>, BadFile> {
        let open = bytes.last() != Some(&b'\n');
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let mut lines = bytes.split(|b| *b == b'\n').collect::<Vec<_>>();
        let first = lines.remove(0);
        // of another version nothing but the version can be relied on
        #[derive(Deserialize)]
        struct Version {
            scx_amp_recording: u32,
        }
        let bad = |message: String| BadFile {
            path: path.to_owned(),
            line: Some(1),
            key: Some("scx_amp_recording".into()),
            message,
        };
        let Version { scx_amp_recording } = serde_json::from_slice(first).map_err(|_| {
            bad("this is no recording: `scx_amp run --record FILE` makes one".into())
        })?;
        if scx_amp_recording != VERSION {
            return Err(bad(format!(
                "format {scx_amp_recording}: this program reads format {VERSION}"
            )));
        }
        let reader = FileReader {
            path,
            header: line(path, 1, first)?,
            lines,
            open,
        };
        reader.topology()?;
        Ok(reader)
    }

    fn bad(&self, line: usize, key: impl Into<String>, message: impl Into<String>) -> BadFile {
        BadFile {
            path: self.path.to_owned(),
            line: Some(line),
            key: Some(key.into()),
            message: message.into(),
        }
    }

    fn topology(&self) -> Result<Topology, BadFile> {
        let header = &self.header;
        let of = |t: &crate::format::RecordedCoreType| CoreType {
            name: t.name.clone(),
            cpus: t.cpus.0.clone(),
            capacity: t.capacity,
        };
        if let Some(i) = header.core_types.iter().position(|t| t.capacity == 0) {
            let key = format!("core_types[{i}].capacity");
            return Err(self.bad(1, key, "0: a number from 1 to 1024 is needed"));
        }
        if !(1..=LONGEST_INTERVAL).contains(&header.interval_us) {
            let message = format!("{}: from 1 to {LONGEST_INTERVAL}", header.interval_us);
            return Err(self.bad(1, "interval_us", message));
        }
        Topology::new(header.core_types.iter().map(of).collect())
            .map_err(|e| self.bad(1, "core_types", e.to_string()))
    }

    /// Adds this file's lines to `all`; `places` has the place of each thread by its number.
    fn read(self, all: &mut Recording, places: &mut BTreeMap<u32, usize>) -> Result<(), BadFile> {
        let last = self.lines.len();
        let mut told = BTreeMap::new();
        for (i, text) in self.lines.iter().enumerate() {
            let number = i + 2;
            let tick: Tick = match line(self.path, number, text) {
                Ok(tick) => tick,
                Err(_) if self.open && i + 1 == last => {
                    let note = format!("line {number} was cut off in the middle and is left out");
                    all.notes.push(note);
                    break;
                }
                Err(e) => return Err(e),
            };
            self.add(all, places, &mut told, number, tick)?;
        }
        Ok(())
    }

    fn add(
        &self,
        all: &mut Recording,
        places: &mut BTreeMap<u32, usize>,
        told: &mut BTreeMap<u32, Told>,
        number: usize,
        tick: Tick,
    ) -> Result<(), BadFile> {
        let before = match all.spans.last() {
            Some(span) => span.t_us,
            None if all.header.part == 0 => 0,
            // of what came before only the usual time is known
            None => tick.t.saturating_sub(self.header.interval_us),
        };
        if tick.t <= before {
            let message = format!("{}: the line before says {before}, and time grows", tick.t);
            return Err(self.bad(number, "t", message));
        }
        if tick.t > LONGEST {
            return Err(self.bad(number, "t", format!("{}: more than ten years", tick.t)));
        }
        if all.spans.is_empty() {
            all.begin_us = before;
        }
        let types = self.header.core_types.len();
        let length_s = (tick.t - before) as f64 / 1e6;
        let mut ran = Vec::with_capacity(tick.threads.len());
        for (i, th) in tick.threads.into_iter().enumerate() {
            let key = |what: &str| format!("threads[{i}].{what}");
            for (what, list) in [("cpu", &th.cpu), ("ins", &th.ins), ("counted", &th.counted)] {
                if list.len() > types {
                    let message = format!("{} core types, and the machine has {types}", list.len());
                    return Err(self.bad(number, key(what), message));
                }
            }
            if th.on.is_some_and(|t| usize::from(t) >= types) {
                let message = format!("the machine has {types} core types, counted from 0");
                return Err(self.bad(number, key("on"), message));
            }
            for (what, list) in [("sf", &th.sf), ("ef", &th.ef)] {
                let list = list.iter().flatten();
                let fine = |(v, u): &Factor| {
                    v.is_finite() && *v > 0.0 && u.is_none_or(|u| u.is_finite() && u >= 0.0)
                };
                if list.clone().count() >= MAX_CORE_TYPES || !list.flatten().all(fine) {
                    let message = "a list of [factor above 0, uncertainty of at least 0] is needed";
                    return Err(self.bad(number, key(what), message));
                }
            }
            let place = match (th.who, told.contains_key(&th.id)) {
                (Some(who), _) => {
                    let same = |p: &&usize| {
                        let old = &all.threads[**p];
                        (old.tid, old.pid, &old.comm) == (who.tid, who.pid, &who.comm)
                    };
                    match places.get(&th.id).filter(same) {
                        Some(place) => *place,
                        None if all.threads.len() >= MOST_THREADS => {
                            let message = format!("more than {MOST_THREADS} threads");
                            return Err(self.bad(number, key("id"), message));
                        }
                        None => {
                            all.threads.push(who);
                            places.insert(th.id, all.threads.len() - 1);
                            all.threads.len() - 1
                        }
                    }
                }
                (None, true) => places.get(&th.id).copied().unwrap_or_default(),
                (None, false) => {
                    let message = "it is missing where the thread is first mentioned in a file";
                    return Err(self.bad(number, key("who"), message));
                }
            };
            let told = told.entry(th.id).or_default();
            if let Some(sf) = th.sf {
                told.sf = sf;
            }
            if let Some(ef) = th.ef {
                told.ef = ef;
            }
            told.phase = th.phase.or(told.phase);
            let seconds = |list: &[u64]| -> Vec<f64> {
                let at = |t: usize| list.get(t).map_or(0.0, |us| *us as f64 / 1e6);
                (0..types).map(|t| at(t).min(length_s)).collect()
            };
            let instructions = (0..types).map(|t| th.ins.get(t).map_or(0.0, |n| *n as f64));
            ran.push(Ran {
                thread: place,
                cpu_s: seconds(&th.cpu),
                instructions: instructions.collect(),
                counted_s: seconds(&th.counted),
                sf: told.sf.clone(),
                ef: told.ef.clone(),
                phase: told.phase,
                on: th.on,
                runnable: th.r,
            });
        }
        let gone = tick
            .gone
            .iter()
            .filter_map(|id| places.remove(id))
            .collect();
        for id in &tick.gone {
            told.remove(id);
        }
        all.spans.push(Span {
            t_us: tick.t,
            length_s,
            ran,
            gone,
            change: tick.change,
        });
        Ok(())
    }
}

/// What holds of a thread until it is told otherwise.
#[derive(Clone, Debug, Default)]
struct Told {
    sf: Vec<Option<Factor>>,
    ef: Vec<Option<Factor>>,
    phase: Option<u32>,
}

/// One line as JSON; what is wrong with it by line and key.
fn line<T: DeserializeOwned>(path: &Path, number: usize, text: &[u8]) -> Result<T, BadFile> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = serde_path_to_error::deserialize(&mut json);
    let bad = |key: Option<String>, e: &serde_json::Error| BadFile {
        path: path.to_owned(),
        line: Some(number),
        key,
        // its line is 1 always
        message: e.to_string().replace(" at line 1 column", " at column"),
    };
    let value = read.map_err(|e| {
        let key = e.path().to_string();
        bad((key != ".").then_some(key), e.inner())
    })?;
    json.end().map_err(|e| bad(None, &e))?;
    Ok(value)
}
