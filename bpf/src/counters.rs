//! Which hardware counters are read at context switches, and what they counted for each thread.

use crate::shared::{Counts as Raw, Meter, MAX_BANKS as BANKS, MAX_EVENTS as EVENTS, MAX_TYPES};
use memmap2::{MmapOptions, MmapRaw};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::atomic::{fence, Ordering};
use thiserror::Error;

/// Most events that count at a time on a CPU.
pub const MAX_EVENTS: usize = EVENTS;

/// Most sets of events per CPU that are at hand, of which one counts.
pub const MAX_SETS: usize = BANKS;

/// Times that a set of values is read before it is left for later, because the kernel is writing
/// it.
const PATIENCE: usize = 100;

/// One set of perf events of one CPU, opened for the CPU whoever runs there, on the PMU of its core
/// type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuEvents {
    /// The CPU.
    pub cpu: u32,
    /// Which of the sets of its core type this is; below [`MAX_SETS`].
    pub set: u32,
    /// In the order of the values that threads get; at most [`MAX_EVENTS`]. They need be open only
    /// while they are handed over.
    pub events: Vec<RawFd>,
}

/// What was counted for one thread on one core type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Which [`set_counters`](crate::Scheduler::set_counters) the values belong to; 0 when there
    /// are none.
    pub generation: u64,
    /// CPU time in ns that they cover.
    pub counted_ns: u64,
    /// By event, cumulative since the generation began.
    pub values: [u64; MAX_EVENTS],
}

/// Why counters cannot be set.
#[derive(Debug, Error)]
pub enum CounterError {
    /// The scheduler was loaded without the means to count.
    #[error("this scheduler counts nothing: it was loaded with `Config::counters` off")]
    Off,
    /// More events than there is room for.
    #[error("{events} events on CPU {cpu}: at most {MAX_EVENTS} can be read at a switch")]
    TooMany {
        /// The CPU.
        cpu: u32,
        /// Events given for it.
        events: usize,
    },
    /// CPUs of one type count differently.
    #[error("CPU {cpu} has {events} events in set {set}, another of its core type {others}: all CPUs of a type count the same")]
    Uneven {
        /// The CPU.
        cpu: u32,
        /// The set.
        set: u32,
        /// Events given for it.
        events: usize,
        /// Events of the others.
        others: usize,
    },
    /// The CPU is out of range.
    #[error("CPU {0} is not one of this machine")]
    Cpu(u32),
    /// The set is out of range.
    #[error("event set {set} of core type {core_type}: it has {sets}, and at most {MAX_SETS} can be at hand")]
    Set {
        /// The core type.
        core_type: u8,
        /// The set.
        set: u32,
        /// Sets there are.
        sets: usize,
    },
    /// A step that the kernel refused.
    #[error("{what} failed")]
    Kernel {
        /// The step.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Number of events by set, per core type.
pub(crate) type Sets = [Vec<u32>; MAX_TYPES];

/// Checks `events` and returns how many events each set has. `type_of` is by CPU.
pub(crate) fn per_type(
    events: &[CpuEvents],
    type_of: &[u8],
    nr_cpus: usize,
) -> Result<Sets, CounterError> {
    let mut nr: [[Option<usize>; MAX_SETS]; MAX_TYPES] = [[None; MAX_SETS]; MAX_TYPES];
    for e in events {
        let (cpu, set, events) = (e.cpu, e.set, e.events.len());
        if events > MAX_EVENTS {
            return Err(CounterError::TooMany { cpu, events });
        }
        let known = type_of
            .get(cpu as usize)
            .filter(|_| (cpu as usize) < nr_cpus);
        let Some((core_type, of_type)) =
            known.and_then(|t| Some((*t, nr.get_mut(usize::from(*t))?)))
        else {
            return Err(CounterError::Cpu(cpu));
        };
        let sets = of_type.iter().flatten().count();
        let Some(of_set) = of_type.get_mut(set as usize) else {
            return Err(CounterError::Set {
                core_type,
                set,
                sets,
            });
        };
        match *of_set {
            Some(others) if others != events => {
                return Err(CounterError::Uneven {
                    cpu,
                    set,
                    events,
                    others,
                })
            }
            _ => *of_set = Some(events),
        }
    }
    Ok(nr.map(|sets| {
        let used = sets.iter().rposition(Option::is_some).map_or(0, |i| i + 1);
        let sizes = sets.iter().take(used);
        sizes.map(|n| n.unwrap_or(0) as u32).collect()
    }))
}

/// The key of an event in BPF's map.
pub(crate) fn key(cpu: u32, set: u32, event: usize) -> u32 {
    (cpu * MAX_SETS as u32 + set) * MAX_EVENTS as u32 + event as u32
}

/// The mapped table of what was counted: one entry per slot and core type.
pub(crate) struct CountTable {
    map: MmapRaw,
    types: u32,
    slots: u32,
}

impl CountTable {
    /// How many core types it is for.
    pub fn types(&self) -> u32 {
        self.types
    }

    /// Maps the array map behind `fd`.
    pub fn map(fd: impl AsFd, slots: u32, types: u32) -> std::io::Result<CountTable> {
        let len = slots as usize * types as usize * size_of::<Raw>();
        let map = MmapOptions::new()
            .len(len)
            .map_raw(fd.as_fd().as_raw_fd())?;
        Ok(CountTable { map, types, slots })
    }

    /// What has been counted for the thread in `slot` on core type `core_type`; `None` while the
    /// kernel is writing it.
    pub fn read(&self, slot: u32, core_type: u8) -> Option<Counts> {
        let t = u32::from(core_type);
        if slot >= self.slots || t >= self.types {
            return Some(Counts::default());
        }
        let at = slot as usize * self.types as usize + t as usize;
        // SAFETY: the mapping holds `slots * types` entries and `at` is below that.
        let entry = unsafe { self.map.as_mut_ptr().cast::<Raw>().add(at) };
        for _ in 0..PATIENCE {
            // SAFETY: `entry` points into the mapping, which lives as long as the table; BPF may
            // change it at any time, hence volatile. Every bit pattern is valid.
            let (before, raw, after) = unsafe {
                let before = addr_of!((*entry).version).read_volatile();
                fence(Ordering::Acquire);
                let raw = entry.read_volatile();
                fence(Ordering::Acquire);
                (before, raw, addr_of!((*entry).version).read_volatile())
            };
            if before % 2 == 0 && before == after {
                return Some(match raw.generation {
                    0 => Counts::default(),
                    generation => Counts {
                        generation,
                        counted_ns: raw.counted,
                        values: raw.value,
                    },
                });
            }
            std::hint::spin_loop();
        }
        None
    }
}

/// Tells BPF what a CPU of type `core_type` of `types` counts from now on: `events` events from the
/// one of key `first` on, or nothing with generation 0.
///
/// # Safety
/// `meter` must point to a live meter of a loaded object.
pub(crate) unsafe fn announce(
    meter: *mut Meter,
    (core_type, types): (u32, u32),
    generation: u64,
    first: u32,
    events: u32,
) {
    // SAFETY: the caller's. BPF only reads these fields. What the generation selects comes first:
    // BPF may act on it at once.
    unsafe {
        addr_of_mut!((*meter).core_type).write_volatile(core_type);
        addr_of_mut!((*meter).nr_types).write_volatile(types);
        if generation > 0 {
            let which = (generation & 1) as usize;
            addr_of_mut!((*meter).first[which]).write_volatile(first);
            addr_of_mut!((*meter).nr_events[which]).write_volatile(events);
            fence(Ordering::SeqCst);
        }
        addr_of_mut!((*meter).wanted).write_volatile(generation);
        fence(Ordering::SeqCst);
    }
}

/// Tells BPF after how many ns of CPU time a thread that goes on running is read at a tick.
///
/// # Safety
/// `meter` must point to a live meter of a loaded object.
pub(crate) unsafe fn read_every(meter: *mut Meter, ns: u64) {
    // SAFETY: the caller's. BPF only reads the field, at any time.
    unsafe { addr_of_mut!((*meter).every).write_volatile(ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(cpu: u32, set: u32, n: usize) -> CpuEvents {
        CpuEvents {
            cpu,
            set,
            events: vec![-1; n],
        }
    }

    #[test]
    fn all_cpus_of_a_type_count_the_same() {
        let types = [0, 0, 1, 1];
        let good = [
            events(0, 0, 3),
            events(1, 0, 3),
            events(2, 0, 5),
            events(2, 2, 1),
        ];
        let nr = per_type(&good, &types, 4).unwrap();
        assert_eq!((&nr[0][..], &nr[1][..]), (&[3][..], &[5, 0, 1][..]));
        assert!(nr[2].is_empty());
        let err = |sets: &[CpuEvents]| per_type(sets, &types, 4).unwrap_err().to_string();
        assert!(err(&[events(0, 0, 3), events(1, 0, 2)])
            .contains("CPU 1 has 2 events in set 0, another of its core type 3"));
        assert!(err(&[events(0, 0, 9)]).contains("9 events on CPU 0"));
        assert!(err(&[events(7, 0, 1)]).contains("CPU 7"));
        assert!(err(&[events(0, 16, 1)]).contains("set 16 of core type 0"));
    }

    #[test]
    fn every_event_has_a_key_of_its_own() {
        let mut keys: Vec<u32> = (0..3)
            .flat_map(|c| (0..MAX_SETS as u32).map(move |s| (c, s)))
            .flat_map(|(c, s)| (0..MAX_EVENTS).map(move |e| key(c, s, e)))
            .collect();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert_eq!(keys.last().copied(), Some(all as u32 - 1));
    }

    #[test]
    fn reads_what_bpf_counted() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(6 * size_of::<Raw>() as u64).unwrap();
        let t = CountTable::map(&file, 3, 2).unwrap();
        assert_eq!(t.read(1, 1), Some(Counts::default()));
        // SAFETY: a test's own mapping, one thread.
        let raw = unsafe { &mut *t.map.as_mut_ptr().cast::<Raw>().add(3) };
        (raw.generation, raw.counted, raw.value[7]) = (4, 5, 6);
        let c = t.read(1, 1).unwrap();
        assert_eq!((c.generation, c.counted_ns, c.values[7]), (4, 5, 6));
        assert_eq!(t.read(1, 0), Some(Counts::default()));
        assert_eq!(
            (t.read(3, 0), t.read(0, 2)),
            (Some(Counts::default()), Some(Counts::default()))
        );
        // half written: not to be taken for nothing
        raw.version = 1;
        assert_eq!(t.read(1, 1), None);
    }

    #[test]
    fn a_generation_selects_what_was_told_with_it() {
        // SAFETY: plain integers, for which zero is a value.
        let mut m: Meter = unsafe { std::mem::zeroed() };
        // SAFETY: a local of the right type.
        let mut tell = |g, first, n| unsafe { announce(&mut m, (1, 2), g, first, n) };
        tell(6, 16, 3);
        tell(7, 24, 5);
        tell(0, 99, 9);
        assert_eq!((m.wanted, m.first, m.nr_events), (0, [16, 24], [3, 5]));
        assert_eq!((m.core_type, m.nr_types), (1, 2));
    }
}
