//! What a machine looks like and how the mechanism is to behave on it.

use crate::shared::{MAX_CPUS, MAX_QUEUES, MAX_SLOTS, MAX_TYPES};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use thiserror::Error;

/// Most core types a machine may have.
pub const MAX_CORE_TYPES: usize = MAX_TYPES;

/// CPUs of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreType {
    /// Their numbers.
    pub cpus: Vec<u32>,
    /// Capacity of one of them, 1024 for the fastest of the machine (1..=1024).
    pub capacity: u32,
}

/// How [`Scheduler::load`](crate::Scheduler::load) sets the mechanism up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The core types, fastest first. A CPU in none of them counts as one of the last type.
    pub core_types: Vec<CoreType>,
    /// Last-level cache of each CPU by number; CPUs beyond its end share cache 0. A core type with
    /// several caches gets one queue per cache.
    pub llc: Vec<u32>,
    /// Physical core of each CPU, by number: hardware threads of one core have the same. CPUs beyond
    /// its end are cores of their own.
    pub core: Vec<u32>,
    /// How long a thread runs before the next one that waits gets its turn.
    pub slice: Duration,
    /// Longest time that work placed on a core type waits, the same thread or several by turns,
    /// while a CPU of a slower type idles; then that CPU takes it. It never does so sooner than one
    /// timer period before.
    pub steal_after: Duration,
    /// After this wait a thread goes in front of everything, even where its CPUs are full of pinned
    /// threads. In a long queue it waits for two slices of each in it, and below nice 0 in weight
    /// longer in proportion; 4 s at most, or this if it is more.
    pub starve_after: Duration,
    /// A thread that ran for less than this since its last wake-up may wake on an idle CPU of any
    /// type.
    pub short_run: Duration,
    /// Silence (no commit) after which BPF shares fairly by itself; `None`: never.
    pub heartbeat_timeout: Option<Duration>,
    /// In the fallback: lead in scaled run time at which a thread on a fast CPU changes places with
    /// one on a slow CPU.
    pub rotate_after: Duration,
    /// Period of the timer behind the three bounds above; they hold to within one period.
    pub timer: Duration,
    /// Threads that can be tracked at a time (2..=65535); more run untracked.
    pub slots: u32,
    /// Whether counters can be set later on; takes 96 bytes per slot and core type.
    pub counters: bool,
    /// Schedule only threads that ask for `SCHED_EXT`, not every normal one.
    pub only_sched_ext: bool,
}

impl Config {
    /// The defaults on a machine with these core types (fastest first), one cache per type.
    pub fn new(core_types: Vec<CoreType>) -> Config {
        let mut llc = Vec::new();
        for (i, t) in core_types.iter().enumerate() {
            for &cpu in t.cpus.iter().filter(|c| (**c as usize) < MAX_CPUS) {
                if llc.len() <= cpu as usize {
                    llc.resize(cpu as usize + 1, 0);
                }
                llc[cpu as usize] = i as u32;
            }
        }
        Config {
            core_types,
            llc,
            core: Vec::new(),
            slice: Duration::from_millis(5),
            steal_after: Duration::from_millis(12),
            starve_after: Duration::from_millis(500),
            short_run: Duration::from_millis(1),
            heartbeat_timeout: None,
            rotate_after: Duration::from_millis(20),
            timer: Duration::from_millis(5),
            slots: 16384,
            counters: false,
            only_sched_ext: false,
        }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// [`ConfigError`], naming what makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.layout().map(drop)
    }

    /// Checks the configuration and works out the queues.
    pub(crate) fn layout(&self) -> Result<Layout, ConfigError> {
        let n = self.core_types.len();
        if n == 0 || n > MAX_TYPES {
            return Err(ConfigError::CoreTypes(n));
        }
        if self.slots < 2 || self.slots >= MAX_SLOTS {
            return Err(ConfigError::Slots(self.slots));
        }
        for (name, d) in [("slice", self.slice), ("timer", self.timer)] {
            if d < Duration::from_micros(100) || d > Duration::from_secs(1) {
                return Err(ConfigError::Span(name, d));
            }
        }
        let last = (n - 1) as u8;
        let mut cpu_type = vec![last; MAX_CPUS];
        let mut listed = vec![false; MAX_CPUS];
        for (t, core) in self.core_types.iter().enumerate() {
            if core.cpus.is_empty() {
                return Err(ConfigError::Empty(t));
            }
            if core.capacity == 0 || core.capacity > 1024 {
                return Err(ConfigError::Capacity(t, core.capacity));
            }
            for &cpu in &core.cpus {
                let Some(seen) = listed.get_mut(cpu as usize) else {
                    return Err(ConfigError::Cpu(cpu));
                };
                if std::mem::replace(seen, true) {
                    return Err(ConfigError::Twice(cpu));
                }
                cpu_type[cpu as usize] = t as u8;
            }
        }
        // Queues in order of type; within a type in order of cache.
        let mut queues: BTreeMap<(u8, u32), u8> = BTreeMap::new();
        let listed = || (0..MAX_CPUS).filter(|c| listed[*c]);
        let llc = |cpu: usize| self.llc.get(cpu).copied().unwrap_or(0);
        let groups: BTreeSet<(u8, u32)> = listed().map(|c| (cpu_type[c], llc(c))).collect();
        // More groups than there are queues: neighbours share one, so that no type has to do
        // without caches altogether. Firmware that names no shared cache gives each CPU its own.
        let shared_by = groups.len().div_ceil(MAX_QUEUES - n).max(1);
        let nth = |g: (u8, u32)| groups.range((g.0, 0)..g).count();
        let llc_of = |cpu: usize| (nth((cpu_type[cpu], llc(cpu))) / shared_by) as u32;
        for cpu in listed() {
            queues.insert((cpu_type[cpu], llc_of(cpu)), 0);
        }
        let mut queue_type = vec![last; MAX_QUEUES + 1];
        let mut type_queue = vec![queues.len() as u32; MAX_TYPES + 1];
        for (i, ((t, _), q)) in queues.iter_mut().enumerate() {
            *q = i as u8;
            queue_type[i] = *t;
            let first = &mut type_queue[usize::from(*t)];
            *first = (*first).min(i as u32);
        }
        let cpu_queue = (0..MAX_CPUS)
            .map(|cpu| {
                let t = cpu_type[cpu];
                let own = queues.get(&(t, llc_of(cpu))).copied();
                own.unwrap_or(type_queue[usize::from(t)] as u8)
            })
            .collect();
        let (cpu_sibling, smt) = self.siblings(listed());
        Ok(Layout {
            nr_queues: queues.len() as u32,
            cpu_type,
            cpu_sibling,
            smt,
            cpu_queue,
            queue_type,
            type_queue,
        })
    }

    /// For each CPU the next of the same core, round in a circle; itself where there is no other.
    /// And whether there is any.
    fn siblings(&self, cpus: impl Iterator<Item = usize>) -> (Vec<u16>, bool) {
        let mut cores: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for cpu in cpus {
            if let Some(core) = self.core.get(cpu) {
                cores.entry(*core).or_default().push(cpu);
            }
        }
        // a CPU's number is below MAX_CPUS, which fits
        let mut next: Vec<u16> = (0..MAX_CPUS as u16).collect();
        for threads in cores.values() {
            for (i, cpu) in threads.iter().enumerate() {
                next[*cpu] = threads[(i + 1) % threads.len()] as u16;
            }
        }
        (next, cores.values().any(|t| t.len() > 1))
    }
}

/// The tables that BPF gets.
#[derive(Debug)]
pub(crate) struct Layout {
    pub nr_queues: u32,
    /// Core type of each CPU.
    pub cpu_type: Vec<u8>,
    /// Next CPU of the same core, by CPU.
    pub cpu_sibling: Vec<u16>,
    /// Whether some cores run several hardware threads.
    pub smt: bool,
    /// Queue of each CPU.
    pub cpu_queue: Vec<u8>,
    /// Core type of each queue.
    pub queue_type: Vec<u8>,
    /// By core type: its first queue; one more entry ends the last.
    pub type_queue: Vec<u32>,
}

/// Why a [`Config`] makes no sense.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// There are no core types, or too many.
    #[error("{0} core types: between 1 and {MAX_TYPES} are supported")]
    CoreTypes(usize),
    /// A core type without CPUs.
    #[error("core type {0} has no CPU")]
    Empty(usize),
    /// Capacity out of range.
    #[error("core type {0} has capacity {1}: must be 1 to 1024, 1024 being the fastest")]
    Capacity(usize, u32),
    /// A CPU number that the tables do not hold.
    #[error("CPU {0} is out of range: CPUs 0 to {last} are supported", last = MAX_CPUS - 1)]
    Cpu(u32),
    /// A CPU of two types.
    #[error("CPU {0} belongs to more than one core type")]
    Twice(u32),
    /// Table size out of range.
    #[error("a table of {0} slots: must be 2 to {last}", last = MAX_SLOTS - 1)]
    Slots(u32),
    /// A duration out of range.
    #[error("{0} of {1:?}: must be 100 us to 1 s")]
    Span(&'static str, Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn juno() -> Config {
        Config::new(vec![
            CoreType {
                cpus: vec![0, 1],
                capacity: 1024,
            },
            CoreType {
                cpus: vec![2, 3, 4, 5],
                capacity: 446,
            },
        ])
    }

    #[test]
    fn one_queue_per_type() {
        let l = juno().layout().unwrap();
        assert_eq!(l.nr_queues, 2);
        assert_eq!(&l.cpu_type[..6], [0, 0, 1, 1, 1, 1]);
        assert_eq!(&l.cpu_queue[..6], [0, 0, 1, 1, 1, 1]);
        assert_eq!(&l.type_queue[..3], [0, 1, 2]);
        assert_eq!(l.queue_type[1], 1);
    }

    #[test]
    fn one_queue_per_cache_within_a_type() {
        let mut c = Config::new(vec![
            CoreType {
                cpus: vec![4, 5],
                capacity: 1024,
            },
            CoreType {
                cpus: vec![0, 1],
                capacity: 700,
            },
            CoreType {
                cpus: vec![2, 3],
                capacity: 300,
            },
        ]);
        c.llc = vec![0, 1, 2, 3, 4, 4];
        let l = c.layout().unwrap();
        assert_eq!(l.nr_queues, 5);
        assert_eq!(&l.cpu_queue[..6], [1, 2, 3, 4, 0, 0]);
        assert_eq!(&l.type_queue[..4], [0, 1, 3, 5]);
        assert_eq!(&l.queue_type[..5], [0, 1, 1, 2, 2]);
    }

    #[test]
    fn more_caches_than_queues_share_them() {
        let mut c = Config::new(vec![
            CoreType {
                cpus: (0..96).collect(),
                capacity: 1024,
            },
            CoreType {
                cpus: (96..128).collect(),
                capacity: 500,
            },
        ]);
        c.llc = (0..128).collect();
        let l = c.layout().unwrap();
        assert!(l.nr_queues <= MAX_QUEUES as u32, "{}", l.nr_queues);
        // 128 caches for 61 queues: three CPUs each
        assert_eq!(l.nr_queues, 32 + 11);
        assert_eq!(&l.cpu_queue[..7], [0, 0, 0, 1, 1, 1, 2]);
        assert_eq!(&l.cpu_queue[94..100], [31, 31, 32, 32, 32, 33]);
        assert_eq!(&l.type_queue[..3], [0, 32, 43]);
    }

    #[test]
    fn threads_of_a_core_are_in_a_circle() {
        let plain = juno().layout().unwrap();
        assert!(!plain.smt);
        assert_eq!(plain.cpu_sibling[..3], [0, 1, 2]);
        let mut c = juno();
        c.core = vec![0, 0, 2, 3, 2, 2];
        let l = c.layout().unwrap();
        assert!(l.smt);
        assert_eq!(l.cpu_sibling[..7], [1, 0, 4, 3, 5, 2, 6]);
    }

    #[test]
    fn unlisted_cpus_are_of_the_last_type() {
        let l = juno().layout().unwrap();
        assert_eq!((l.cpu_type[77], l.cpu_queue[77]), (1, 1));
    }

    #[test]
    fn refuses_nonsense() {
        let err = |f: fn(&mut Config)| {
            let mut c = juno();
            f(&mut c);
            c.layout().unwrap_err()
        };
        assert_eq!(err(|c| c.core_types.clear()), ConfigError::CoreTypes(0));
        assert_eq!(err(|c| c.core_types[1].cpus.clear()), ConfigError::Empty(1));
        assert_eq!(err(|c| c.core_types[1].cpus.push(0)), ConfigError::Twice(0));
        assert_eq!(
            err(|c| c.core_types[1].cpus.push(4096)),
            ConfigError::Cpu(4096)
        );
        assert_eq!(
            err(|c| c.core_types[0].capacity = 0),
            ConfigError::Capacity(0, 0)
        );
        assert_eq!(err(|c| c.slots = 70000), ConfigError::Slots(70000));
        assert_eq!(
            err(|c| c.slice = Duration::ZERO),
            ConfigError::Span("slice", Duration::ZERO)
        );
    }
}
