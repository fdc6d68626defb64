//! What is remembered of programs from one run of the scheduler to the next.
//!
//! A program is an executable (path, size, time of its last change) under a command name and with certain
//! arguments, on a machine with certain core types; and once more with any arguments. Of each program the memory holds its factors per core type with
//! their uncertainties. What is old counts less, and how many programs there are is bounded.
//!
//! This module is pure: no file, no clock, no process. Who fills a memory and asks it is
//! [`crate::providers::Lasting`].

mod format;
mod known;

pub use format::{read, write, MemoryFormatError, VERSION};
pub use known::Known;

use crate::estimate::Estimate;
use crate::ids::{AppId, MAX_CORE_TYPES};
use crate::sample::ProgramName;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Programs that are remembered; of those that were met once and not lately, then of all, the one that was met
/// longest ago makes room.
pub const MOST_PROGRAMS: usize = 2048;
/// Seconds after which a program that was met once is not expected again as much as others.
const SOON: u64 = 600;
/// Bytes that their paths may have together.
pub const MOST_PATH_BYTES: usize = 256 << 10;
/// Bytes of a path; what lies deeper is not remembered.
pub const LONGEST_PATH: usize = 1024;

/// The row of factors that moves between core types alone have shown, beside those of speedup (0) and efficiency (1): what there
/// is to hold against a model.
pub const SHOWN: usize = 2;

/// A command name, NUL-padded, as the kernel shows it.
pub type Comm = [u8; 16];

/// An executable file. Another size or time of change makes it another program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Executable {
    /// Its path, as `/proc/PID/exe` shows it.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was changed last, nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// What distinguishes programs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The core types that factors are between ([`core_types`]).
    pub on: Arc<str>,
    /// The executable.
    pub executable: Executable,
    /// The command name, as threads of a program may do different things under different names, and the
    /// arguments; or the name alone, for what programs of that name have in common.
    pub name: ProgramName,
}

/// The core types of a machine in a word, such as `big=1024 little=446`: factors that were measured
/// between other core types are not asked.
pub fn core_types<'a>(types: impl Iterator<Item = (&'a str, u32)>) -> String {
    let words: Vec<String> = types
        .map(|(name, capacity)| format!("{}={capacity}", name.replace([' ', '='], "_")))
        .collect();
    words.join(" ")
}

/// The names of the core types in such a word.
fn names(on: &str) -> impl Iterator<Item = &str> {
    on.split(' ')
        .map(|w| w.split_once('=').map_or(w, |(name, _)| name))
}

/// A program that is remembered.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Which it is.
    pub key: Key,
    /// Speedup and efficiency factor per core type, and the speedup factor as moves alone have shown it ([`SHOWN`]).
    pub factors: [[Option<Known>; MAX_CORE_TYPES]; 3],
    /// Processes in which it was met.
    pub runs: u32,
    /// When it was met last, seconds since 1970.
    pub met: u64,
    /// The process in which it was met last.
    last: Option<AppId>,
}

/// A factor of a program, for a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// Core type.
    pub core_type: String,
    /// Its value, and its standard uncertainty now.
    pub value: f64,
    /// Standard uncertainty now.
    pub uncertainty: f64,
    /// Intervals that stand behind it, old ones counting less.
    pub weight: f64,
}

impl Program {
    fn new(key: Key, now: u64) -> Program {
        Program {
            key,
            factors: Default::default(),
            runs: 0,
            met: now,
            last: None,
        }
    }

    /// Its speedup (0) or efficiency (1) factors, or those that moves have [`SHOWN`], at `now`, by core type.
    pub fn factors_at(&self, which: usize, now: u64) -> Vec<Factor> {
        let row = self.factors.get(which).into_iter().flatten();
        row.zip(names(&self.key.on))
            .filter_map(|(known, name)| {
                let known = known.as_ref()?;
                let e = known.recall(self.runs, now);
                Some(Factor {
                    core_type: name.to_owned(),
                    value: e.value,
                    uncertainty: e.uncertainty.unwrap_or(0.0),
                    weight: known.weight(now),
                })
            })
            .collect()
    }
}

/// The programs that are remembered.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    programs: FxHashMap<u64, Program>,
    ids: FxHashMap<Key, u64>,
    /// The program of a name that was met last.
    by_name: FxHashMap<(Arc<str>, ProgramName), u64>,
    next: u64,
    path_bytes: usize,
    changes: u64,
    forgotten: u64,
}

impl Memory {
    /// How many programs there are.
    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// A number that grows with every change.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How often programs were forgotten on demand.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The programs, the one that was met last first.
    pub fn programs(&self) -> Vec<&Program> {
        let mut all: Vec<&Program> = self.programs.values().collect();
        all.sort_by(|a, b| {
            let name = |p: &Program| (p.key.executable.clone(), p.key.name);
            b.met.cmp(&a.met).then_with(|| name(a).cmp(&name(b)))
        });
        all
    }

    /// The program `key`, if it is remembered.
    pub fn find(&self, key: &Key) -> Option<u64> {
        self.ids.get(key).copied()
    }

    /// The program of this name that was met last, or else one of the same command name.
    pub fn of_name(&self, on: &Arc<str>, name: ProgramName) -> Option<u64> {
        let of = |name| self.by_name.get(&(on.clone(), name)).copied();
        of(name).or_else(|| of(name.kin()))
    }

    /// What is remembered of a program: its speedup (0) or efficiency (1) factor on core type `c`, or what moves have [`SHOWN`].
    pub fn recall(&self, id: u64, which: usize, c: usize, now: u64) -> Option<Estimate> {
        let program = self.programs.get(&id)?;
        let known = program.factors.get(which)?.get(c)?.as_ref()?;
        Some(known.recall(program.runs, now))
    }

    /// The program was met in process `app`. Threads of one process are one run.
    pub fn meet(&mut self, id: u64, app: AppId, now: u64) {
        let Some(p) = self.programs.get_mut(&id) else {
            return;
        };
        if p.last != Some(app) {
            p.runs = p.runs.saturating_add(1);
            p.last = Some(app);
        }
        p.met = p.met.max(now);
        let name = (p.key.on.clone(), p.key.name);
        self.by_name.insert(name, id);
        self.changes += 1;
    }

    /// The program `key`, remembered from now on if it was not; `None` when it is not one to be
    /// remembered.
    pub fn enter(&mut self, key: &Key, now: u64) -> Option<u64> {
        if let Some(id) = self.find(key) {
            return Some(id);
        }
        if key.executable.path.len() > LONGEST_PATH {
            return None;
        }
        let id = self.put(Program::new(key.clone(), now));
        self.make_room(id, now);
        Some(id)
    }

    fn put(&mut self, program: Program) -> u64 {
        let id = self.next;
        self.next += 1;
        self.path_bytes += program.key.executable.path.len();
        self.ids.insert(program.key.clone(), id);
        let name = (program.key.on.clone(), program.key.name);
        let newer = |other: &u64| {
            let other = self.programs.get(other);
            other.is_some_and(|o| o.met > program.met)
        };
        if !self.by_name.get(&name).is_some_and(newer) {
            self.by_name.insert(name, id);
        }
        self.programs.insert(id, program);
        self.changes += 1;
        id
    }

    /// Takes in a factor that was measured: speedup (0), efficiency (1) or [`SHOWN`] (2) on core type `c`, with
    /// its standard uncertainty. What is no number, or not above zero, is not taken in.
    pub fn learn(&mut self, id: u64, (which, c): (usize, usize), value: (f64, f64), now: u64) {
        let Some(p) = self.programs.get_mut(&id) else {
            return;
        };
        let place = p.factors.get_mut(which).and_then(|row| row.get_mut(c));
        if place.is_some_and(|place| Known::take_in(place, value, now)) {
            p.met = p.met.max(now);
            self.changes += 1;
        }
    }

    fn make_room(&mut self, but: u64, now: u64) {
        while self.programs.len() > MOST_PROGRAMS || self.path_bytes > MOST_PATH_BYTES {
            let others = self.programs.iter().filter(|(id, _)| **id != but);
            // of a build, each process has arguments of its own, which are never met again
            let again =
                |p: &Program| p.key.name.is_any() || p.runs > 1 || now.saturating_sub(p.met) < SOON;
            let oldest = others.map(|(id, p)| (again(p), p.met, *id)).min();
            let Some((.., oldest)) = oldest else {
                return;
            };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, id: u64) {
        let Some(p) = self.programs.remove(&id) else {
            return;
        };
        self.path_bytes -= p.key.executable.path.len();
        self.ids.remove(&p.key);
        let name = (p.key.on, p.key.name);
        if self.by_name.get(&name) == Some(&id) {
            self.by_name.remove(&name);
        }
        self.changes += 1;
    }

    /// Forgets the programs that `which` names; how many those were.
    pub fn forget(&mut self, which: impl Fn(&Program) -> bool) -> usize {
        let gone = self.programs.iter().filter(|(_, p)| which(p));
        let gone: Vec<u64> = gone.map(|(id, _)| *id).collect();
        gone.iter().for_each(|id| self.remove(*id));
        self.forgotten += u64::from(!gone.is_empty());
        gone.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn key(path: &str, mtime_ns: i64) -> Key {
        let mut comm = [0; 16];
        comm[..4].copy_from_slice(b"prog");
        Key {
            on: "big=1024 little=446".into(),
            executable: Executable {
                path: path.to_owned(),
                size: 10,
                mtime_ns,
            },
            name: ProgramName::any(comm),
        }
    }

    #[test]
    fn a_new_version_of_an_executable_is_another_program() {
        let mut m = Memory::default();
        let old = m.enter(&key("/bin/a", 1), NOW).unwrap();
        m.learn(old, (0, 0), (3.0, 0.1), NOW);
        let new = m.enter(&key("/bin/a", 2), NOW).unwrap();
        assert_ne!(old, new);
        assert_eq!(m.recall(new, 0, 0, NOW), None);
        assert_eq!(m.recall(old, 0, 0, NOW).unwrap().value, 3.0);
        let elsewhere = Key {
            on: "big=1024 little=300".into(),
            ..key("/bin/a", 1)
        };
        assert_eq!(m.find(&elsewhere), None);
    }

    #[test]
    fn number_and_bytes_are_bounded_and_the_oldest_goes() {
        let mut m = Memory::default();
        for n in 0..MOST_PROGRAMS as u64 + 7 {
            m.enter(&key(&format!("/bin/{n}"), 0), NOW + n).unwrap();
        }
        assert_eq!(m.len(), MOST_PROGRAMS);
        assert_eq!(m.find(&key("/bin/6", 0)), None);
        assert!(m.find(&key("/bin/7", 0)).is_some());
        let long = "x".repeat(LONGEST_PATH - 10);
        for n in 0..1000 {
            m.enter(&key(&format!("/{n}{long}"), 0), NOW + 10_000 + n)
                .unwrap();
        }
        assert!(m.path_bytes <= MOST_PATH_BYTES && m.len() > 100, "{m:?}");
        let bytes: usize = m
            .programs()
            .iter()
            .map(|p| p.key.executable.path.len())
            .sum();
        assert_eq!(bytes, m.path_bytes);
        assert_eq!(m.enter(&key(&"x".repeat(LONGEST_PATH + 1), 0), NOW), None);
    }

    #[test]
    fn threads_of_a_process_are_one_run_and_the_last_met_answers_for_its_name() {
        let mut m = Memory::default();
        let (a, b) = (key("/bin/a", 1), key("/bin/b", 1));
        let first = m.enter(&a, NOW).unwrap();
        m.meet(first, AppId(1), NOW);
        m.meet(first, AppId(1), NOW + 1);
        m.meet(first, AppId(2), NOW + 2);
        assert_eq!(m.programs()[0].runs, 2);
        let second = m.enter(&b, NOW + 3).unwrap();
        assert_eq!(m.of_name(&a.on, a.name), Some(second));
        m.meet(first, AppId(3), NOW + 4);
        assert_eq!(m.of_name(&a.on, a.name), Some(first));
        assert_eq!(m.forget(|p| p.key.executable.path == "/bin/a"), 1);
        assert_eq!((m.find(&a), m.forgotten()), (None, 1));
        assert_eq!(m.of_name(&a.on, a.name), None);
        assert_eq!(m.forget(|_| true), 1);
        assert!(m.is_empty() && m.path_bytes == 0);
    }

    #[test]
    fn core_types_are_named_in_a_word() {
        let on = core_types([("big", 1024), ("very little", 446)].into_iter());
        assert_eq!(on, "big=1024 very_little=446");
        assert_eq!(names(&on).collect::<Vec<_>>(), ["big", "very_little"]);
    }
}
