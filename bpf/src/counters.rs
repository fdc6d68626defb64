//! Which hardware counters are read at context switches, and what they counted for each thread.

use crate::shared::{Counting, Counts as Raw, MAX_EVENTS as EVENTS};
use memmap2::{MmapOptions, MmapRaw};
use rustix::ioctl::{ioctl, IntegerSetter};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::atomic::{fence, Ordering};
use thiserror::Error;

/// Most events that count at a time on a CPU.
pub const MAX_EVENTS: usize = EVENTS;

/// `PERF_EVENT_IOC_ENABLE` and `_DISABLE`, with `PERF_IOC_FLAG_GROUP` as their argument.
const ENABLE: u32 = 0x2400;
const DISABLE: u32 = 0x2401;
const GROUP: usize = 1;

/// The perf events of one CPU: opened for the CPU whoever runs there, on the PMU of its core type, disabled, the first one
/// leading the group that the others are in.
#[derive(Debug)]
pub struct CpuEvents {
    /// The CPU.
    pub cpu: u32,
    /// In the order of the values that threads get; at most [`MAX_EVENTS`].
    pub events: Vec<OwnedFd>,
}

/// What was counted for one thread on one core type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Which [`set_counters`](crate::Scheduler::set_counters) the values belong to; 0 when there are none.
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
    #[error("CPU {cpu} has {events} events, another of its core type {others}: all CPUs of a type count the same")]
    Uneven {
        /// The CPU.
        cpu: u32,
        /// Events given for it.
        events: usize,
        /// Events of the others.
        others: usize,
    },
    /// The CPU is out of range.
    #[error("CPU {0} is not one of this machine")]
    Cpu(u32),
    /// A step that the kernel refused.
    #[error("{what} failed")]
    Kernel {
        /// The step.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// Switches the groups on or off.
pub(crate) fn switch(sets: &[CpuEvents], on: bool) -> Result<(), CounterError> {
    for leader in sets.iter().filter_map(|s| s.events.first()) {
        // SAFETY: both take an integer and touch none of our memory; the type says which request it is.
        let done = unsafe {
            if on {
                ioctl(leader.as_fd(), IntegerSetter::<ENABLE>::new_usize(GROUP))
            } else {
                ioctl(leader.as_fd(), IntegerSetter::<DISABLE>::new_usize(GROUP))
            }
        };
        done.map_err(|e| CounterError::Kernel {
            what: if on {
                "starting to count"
            } else {
                "ending to count"
            },
            source: e.into(),
        })?;
    }
    Ok(())
}

/// Number of events by core type. `type_of` is by CPU.
pub(crate) fn per_type(
    sets: &[CpuEvents],
    type_of: &[u8],
    nr_cpus: usize,
) -> Result<[u32; 8], CounterError> {
    let mut nr: [Option<usize>; 8] = [None; 8];
    for s in sets {
        let (cpu, events) = (s.cpu, s.events.len());
        if events > MAX_EVENTS {
            return Err(CounterError::TooMany { cpu, events });
        }
        let known = type_of
            .get(cpu as usize)
            .filter(|_| (cpu as usize) < nr_cpus);
        let Some(of_type) = known.and_then(|t| nr.get_mut(usize::from(*t))) else {
            return Err(CounterError::Cpu(cpu));
        };
        match *of_type {
            Some(others) if others != events => {
                return Err(CounterError::Uneven {
                    cpu,
                    events,
                    others,
                })
            }
            _ => *of_type = Some(events),
        }
    }
    Ok(nr.map(|n| n.unwrap_or(0) as u32))
}

/// The mapped table of what was counted: one entry per slot and core type.
pub(crate) struct CountTable {
    map: MmapRaw,
    types: u32,
    slots: u32,
}

impl CountTable {
    /// Maps the array map behind `fd`.
    pub fn map(fd: impl AsFd, slots: u32, types: u32) -> std::io::Result<CountTable> {
        let len = slots as usize * types as usize * size_of::<Raw>();
        let map = MmapOptions::new()
            .len(len)
            .map_raw(fd.as_fd().as_raw_fd())?;
        Ok(CountTable { map, types, slots })
    }

    /// What has been counted for the thread in `slot` on core type `core_type`.
    pub fn read(&self, slot: u32, core_type: u8) -> Counts {
        let t = u32::from(core_type);
        if slot >= self.slots || t >= self.types {
            return Counts::default();
        }
        let at = slot as usize * self.types as usize + t as usize;
        // SAFETY: the mapping holds `slots * types` entries and `at` is below that.
        let entry = unsafe { self.map.as_mut_ptr().cast::<Raw>().add(at) };
        // SAFETY: `entry` points into the mapping, which lives as long as the table; BPF may change it at any time, hence
        // volatile. Every bit pattern is valid.
        let (before, raw, after) = unsafe {
            let before = addr_of!((*entry).generation).read_volatile();
            fence(Ordering::Acquire);
            let raw = entry.read_volatile();
            fence(Ordering::Acquire);
            (before, raw, addr_of!((*entry).generation).read_volatile())
        };
        if before == 0 || before != after || raw.generation != before {
            return Counts::default();
        }
        Counts {
            generation: before,
            counted_ns: raw.counted,
            values: raw.value,
        }
    }
}

/// Tells BPF what is counted from now on.
///
/// # Safety
/// `counting` must point to the live `counting` of a loaded object.
pub(crate) unsafe fn announce(counting: *mut Counting, generation: u64, nr: &[u32; 8]) {
    // SAFETY: the caller's; BPF only reads these two fields. The numbers come first: BPF may act on the generation at once.
    unsafe {
        addr_of_mut!((*counting).nr_events[(generation & 1) as usize]).write_volatile(*nr);
        fence(Ordering::SeqCst);
        addr_of_mut!((*counting).generation).write_volatile(generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(cpu: u32, n: usize) -> CpuEvents {
        let null = || std::fs::File::open("/dev/null").unwrap().into();
        CpuEvents {
            cpu,
            events: (0..n).map(|_| null()).collect(),
        }
    }

    #[test]
    fn all_cpus_of_a_type_count_the_same() {
        let types = [0, 0, 1, 1];
        let good = [events(0, 3), events(1, 3), events(2, 5)];
        assert_eq!(per_type(&good, &types, 4).unwrap()[..3], [3, 5, 0]);
        let err = |sets: &[CpuEvents]| per_type(sets, &types, 4).unwrap_err().to_string();
        assert!(err(&[events(0, 3), events(1, 2)])
            .contains("CPU 1 has 2 events, another of its core type 3"));
        assert!(err(&[events(0, 9)]).contains("9 events on CPU 0"));
        assert!(err(&[events(7, 1)]).contains("CPU 7"));
    }

    #[test]
    fn reads_what_bpf_counted() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(6 * size_of::<Raw>() as u64).unwrap();
        let t = CountTable::map(&file, 3, 2).unwrap();
        assert_eq!(t.read(1, 1), Counts::default());
        // SAFETY: a test's own mapping, one thread.
        let raw = unsafe { &mut *t.map.as_mut_ptr().cast::<Raw>().add(3) };
        (raw.generation, raw.counted, raw.value[7]) = (4, 5, 6);
        let c = t.read(1, 1);
        assert_eq!((c.generation, c.counted_ns, c.values[7]), (4, 5, 6));
        assert_eq!(t.read(1, 0), Counts::default());
        assert_eq!(
            (t.read(3, 0), t.read(0, 2)),
            (Counts::default(), Counts::default())
        );
    }
}
