//! Counting: event sets on the CPUs of a core type, through `perf-event2`.
//!
//! The set is opened per CPU as one pinned group, so that its events are on the hardware together
//! or not at all; nothing is ever multiplexed by the kernel behind our back. [`OpenSet::fds`] gives
//! the descriptors for a BPF `PERF_EVENT_ARRAY`; [`OpenSet::read`] reads per-CPU counts from user
//! space.

use crate::event::{Event, EventAttr, EventSet, EventSpec, MAX_EVENTS};
use crate::ids::CoreTypeId;
use crate::pmu::Pmus;
use crate::EventError;
use perf_event::{Builder, Counter, ReadFormat};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// How `perf-event2` is told what to open: it has no event of its own that carries a PMU type in
/// the upper bits of a generic event, or all three code words.
impl perf_event::events::Event for EventAttr {
    fn update_attrs(self, attr: &mut perf_event_open_sys::bindings::perf_event_attr) {
        attr.type_ = self.type_;
        attr.config = self.config;
        attr.config1 = self.config1;
        attr.config2 = self.config2;
        attr.set_precise_ip(u64::from(self.precise));
        // Intel's driver refuses precise events of guests
        attr.set_exclude_guest(u64::from(self.precise > 0));
    }
}

/// Why nothing counts.
#[derive(Debug, Error)]
pub enum CounterError {
    /// The kernel does not let this user count.
    #[error(
        "event `{event}` on CPU {cpu}: not permitted. Run as root or with CAP_PERFMON, or `sysctl \
         kernel.perf_event_paranoid=-1`{}", paranoid_now(*.paranoid)
    )]
    Denied {
        /// The event.
        event: String,
        /// The CPU.
        cpu: u32,
        /// `kernel.perf_event_paranoid` now, if it can be read.
        paranoid: Option<i32>,
    },
    /// There is no PMU that counts it.
    #[error("event `{event}` on CPU {cpu}: the kernel has no PMU that counts it there ({source}): a virtual machine without PMU, an offline CPU, or an event this core does not have")]
    Unsupported {
        /// The event.
        event: String,
        /// The CPU.
        cpu: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The set does not fit the counters, or an event's code is not accepted.
    #[error("event `{event}` on CPU {cpu}: refused as event {position} of its set ({source}): more events than counters, or a code that the PMU does not take")]
    Refused {
        /// The event.
        event: String,
        /// The CPU.
        cpu: u32,
        /// Position of the event in its group, from 1.
        position: usize,
        /// The system's error.
        source: io::Error,
    },
    /// Opened, but somebody else has the counters.
    #[error("CPU {cpu}: the set of {events} events is never on the hardware: counters are taken{}", watchdog_hint(*.watchdog))]
    Taken {
        /// The CPU.
        cpu: u32,
        /// Events in the set.
        events: usize,
        /// Whether the NMI watchdog runs (it takes one counter on x86).
        watchdog: bool,
    },
    /// Too many open files.
    #[error("event `{event}` on CPU {cpu}: too many open files: raise `ulimit -n` (one per event and CPU is needed)")]
    Files {
        /// The event.
        event: String,
        /// The CPU.
        cpu: u32,
    },
    /// The event cannot be named on this machine.
    #[error(transparent)]
    Event(#[from] EventError),
    /// Anything else.
    #[error("event `{event}` on CPU {cpu}: {source}")]
    Io {
        /// The event.
        event: String,
        /// The CPU.
        cpu: u32,
        /// The system's error.
        source: io::Error,
    },
}

fn paranoid_now(level: Option<i32>) -> String {
    level.map_or_else(String::new, |l| {
        format!(" (it is {l}; counting every thread of a CPU needs 0 or less)")
    })
}

fn watchdog_hint(on: bool) -> &'static str {
    if on {
        " by another perf user: end it (`perf stat -a`, a profiler, another instance); where the NMI watchdog uses the PMU (x86) it has one, too: `sysctl kernel.nmi_watchdog=0`"
    } else {
        " by another perf user: end it (`perf stat -a`, a profiler, another instance)"
    }
}

/// A number in a file below `/proc/sys/kernel`.
fn sysctl(proc: &Path, name: &str) -> Option<i32> {
    let text = std::fs::read_to_string(proc.join("sys/kernel").join(name)).ok()?;
    text.trim().parse().ok()
}

/// What an error of `perf_event_open` means for event number `position` (from 0) of a set.
pub fn explain(
    proc: &Path,
    event: &str,
    cpu: u32,
    position: usize,
    source: io::Error,
) -> CounterError {
    use libc::{
        EACCES, EINVAL, EMFILE, ENFILE, ENODEV, ENOENT, ENOSPC, ENOSYS, ENXIO, EOPNOTSUPP, EPERM,
    };
    let event = event.to_owned();
    match source.raw_os_error() {
        Some(EPERM | EACCES) => CounterError::Denied {
            event,
            cpu,
            paranoid: sysctl(proc, "perf_event_paranoid"),
        },
        Some(ENOENT | ENXIO | ENODEV | ENOSYS | EOPNOTSUPP) => {
            CounterError::Unsupported { event, cpu, source }
        }
        Some(EINVAL | ENOSPC) => CounterError::Refused {
            event,
            cpu,
            position: position + 1,
            source,
        },
        Some(EMFILE | ENFILE) => CounterError::Files { event, cpu },
        _ => CounterError::Io { event, cpu, source },
    }
}

/// Counts of one CPU since the set was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuCounts {
    /// The CPU.
    pub cpu: u32,
    /// Time the set was enabled.
    pub enabled: Duration,
    /// Time it was on the hardware; less than `enabled` when the counters were taken.
    pub running: Duration,
    /// In the order of the set's events.
    pub counts: Vec<u64>,
}

#[derive(Debug)]
struct CpuGroup {
    cpu: u32,
    counters: Vec<Counter>,
}

/// An event set, opened on every CPU of a core type. Closes its descriptors when dropped.
#[derive(Debug)]
pub struct OpenSet {
    groups: Vec<CpuGroup>,
}

impl OpenSet {
    /// Opens `set` on each of `cpus` (online ones only), counting every thread, and starts it.
    ///
    /// # Errors
    /// [`CounterError`], naming the event and the CPU; nothing stays open then.
    pub fn open(set: &EventSet, cpus: &[u32]) -> Result<OpenSet, CounterError> {
        let mut open = OpenSet::open_stopped(set, cpus)?;
        open.switch(true)?;
        Ok(open)
    }

    /// As [`OpenSet::open`], without starting it: it takes no counters then.
    ///
    /// # Errors
    /// As [`OpenSet::open`].
    pub fn open_stopped(set: &EventSet, cpus: &[u32]) -> Result<OpenSet, CounterError> {
        let mut groups = Vec::with_capacity(cpus.len());
        for &cpu in cpus {
            groups.push(open_group(&set.events, cpu)?);
        }
        Ok(OpenSet { groups })
    }

    /// Starts it on every CPU, and sees whether it got its counters.
    ///
    /// # Errors
    /// [`CounterError::Taken`] when a CPU has not enough free counters; it is stopped everywhere
    /// then.
    pub fn start(&mut self) -> Result<(), CounterError> {
        let started = self.switch(true).and_then(|()| {
            self.groups
                .iter_mut()
                .try_for_each(|g| read_group(g).map(drop))
        });
        if started.is_err() {
            self.stop();
        }
        started
    }

    /// As [`start`](Self::start), without asking whether it got its counters: that is another
    /// interruption of every CPU. For a set that takes turns with others and had them a moment ago.
    ///
    /// # Errors
    /// When it cannot be switched on.
    pub fn start_again(&mut self) -> Result<(), CounterError> {
        let started = self.switch(true);
        if started.is_err() {
            self.stop();
        }
        started
    }

    /// Whether it still has its counters on `cpu`.
    ///
    /// # Errors
    /// [`CounterError::Taken`] when another user's events have taken its place, which a pinned
    /// group does not survive by itself.
    pub fn check(&mut self, cpu: u32) -> Result<(), CounterError> {
        let mut group = self.groups.iter_mut().filter(|g| g.cpu == cpu);
        group.try_for_each(|g| read_group(g).map(drop))
    }

    /// Starts it again on `cpu`, where it has lost its counters. It goes on from what it had
    /// counted.
    ///
    /// # Errors
    /// [`CounterError::Taken`] when there are still not enough.
    pub fn restart(&mut self, cpu: u32) -> Result<(), CounterError> {
        for g in self.groups.iter_mut().filter(|g| g.cpu == cpu) {
            switch_group(g, true)?;
            read_group(g)?;
        }
        Ok(())
    }

    /// Stops it on every CPU; others may have its counters.
    pub fn stop(&mut self) {
        // one that cannot be stopped is gone
        let _ = self.switch(false);
    }

    fn switch(&mut self, on: bool) -> Result<(), CounterError> {
        let mut groups = self.groups.iter_mut();
        groups.try_for_each(|g| switch_group(g, on))
    }

    /// CPU, index of the event in the set, and descriptor, for every counter. They are valid while
    /// `self` lives.
    pub fn fds(&self) -> impl Iterator<Item = (u32, usize, RawFd)> + '_ {
        self.groups.iter().flat_map(|g| {
            let numbered = g.counters.iter().enumerate();
            numbered.map(move |(i, c)| (g.cpu, i, c.as_raw_fd()))
        })
    }

    /// How many descriptors are open.
    pub fn len(&self) -> usize {
        self.groups.iter().map(|g| g.counters.len()).sum()
    }

    /// Whether nothing is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counts of every CPU.
    ///
    /// # Errors
    /// [`CounterError::Taken`] when the set of a CPU was put off the hardware, which a pinned group
    /// does not survive; others when a counter cannot be read.
    pub fn read(&mut self) -> Result<Vec<CpuCounts>, CounterError> {
        self.groups.iter_mut().map(read_group).collect()
    }
}

fn proc() -> PathBuf {
    PathBuf::from("/proc")
}

fn open_group(events: &[Event], cpu: u32) -> Result<CpuGroup, CounterError> {
    let mut counters: Vec<Counter> = Vec::with_capacity(events.len());
    for (i, event) in events.iter().enumerate() {
        let mut b = Builder::new(event.attr);
        b.any_pid().one_cpu(cpu as usize);
        b.read_format(ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING);
        b.exclude_user(event.attr.exclude_user)
            .exclude_kernel(event.attr.exclude_kernel)
            .exclude_hv(false);
        let built = match counters.first_mut() {
            // The leader starts the group once all its members are there.
            None => b.pinned(true).enabled(false).build(),
            Some(leader) => b.enabled(true).build_with_group(leader),
        };
        counters.push(built.map_err(|e| explain(&proc(), &event.name, cpu, i, e))?);
    }
    Ok(CpuGroup { cpu, counters })
}

fn switch_group(g: &mut CpuGroup, on: bool) -> Result<(), CounterError> {
    let (cpu, events) = (g.cpu, g.counters.len());
    let Some(leader) = g.counters.first_mut() else {
        return Ok(());
    };
    let done = if on {
        leader.enable()
    } else {
        leader.disable()
    };
    done.map_err(|source| CounterError::Io {
        event: format!("first of {events}"),
        cpu,
        source,
    })
}

fn read_group(g: &mut CpuGroup) -> Result<CpuCounts, CounterError> {
    let (cpu, events) = (g.cpu, g.counters.len());
    let mut out = CpuCounts {
        cpu,
        enabled: Duration::ZERO,
        running: Duration::ZERO,
        counts: Vec::with_capacity(events),
    };
    for (i, c) in g.counters.iter_mut().enumerate() {
        let v = c.read_full().map_err(|source| match source.kind() {
            // a pinned group that lost its counters is in an error state, and reads end at once
            io::ErrorKind::UnexpectedEof => taken(cpu, events),
            _ => CounterError::Io {
                event: format!("number {} of the set", i + 1),
                cpu,
                source,
            },
        })?;
        out.enabled = v.time_enabled().unwrap_or_default();
        out.running = v.time_running().unwrap_or_default();
        out.counts.push(v.count());
    }
    Ok(out)
}

fn taken(cpu: u32, events: usize) -> CounterError {
    CounterError::Taken {
        cpu,
        events,
        watchdog: sysctl(&proc(), "nmi_watchdog") == Some(1),
    }
}

/// How many events can be counted at once: `opens_and_counts(n)` tries a set of n. Sizes are tried
/// from 1 up to `most`; the first failure ends it.
///
/// # Errors
/// The error of the first try, when not even one event counts.
pub fn largest_set<E>(
    mut opens_and_counts: impl FnMut(usize) -> Result<(), E>,
    most: usize,
) -> Result<usize, E> {
    for n in 1..=most {
        if let Err(e) = opens_and_counts(n) {
            return if n == 1 { Err(e) } else { Ok(n - 1) };
        }
    }
    Ok(most)
}

/// Tries how many events can be counted at once on `cpu` of core type `t`, now: whatever others
/// hold (the NMI watchdog, another profiler) is not counted. Sets are instructions, cycles, then
/// instructions again as often as they fit: any other event may be one that the driver lacks.
///
/// # Errors
/// [`CounterError`], when not even instructions can be counted: no PMU, not permitted, or every
/// counter taken.
pub fn usable_counters(pmus: &Pmus, t: CoreTypeId, cpu: u32) -> Result<usize, CounterError> {
    usable_on_all(pmus, t, &[cpu])
}

/// The set of a trial with `n` events.
fn trial(instructions: &Event, cycles: &Event, n: usize) -> Vec<Event> {
    let event = |i| if i == 1 { cycles } else { instructions };
    (0..n).map(|i| event(i).clone()).collect()
}

/// As [`usable_counters`], on every one of `cpus`.
fn usable_on_all(pmus: &Pmus, t: CoreTypeId, cpus: &[u32]) -> Result<usize, CounterError> {
    let resolve =
        |s: &str| -> Result<Event, CounterError> { Ok(pmus.resolve(t, &s.parse::<EventSpec>()?)?) };
    let (instructions, cycles) = (resolve("instructions")?, resolve("cycles")?);
    let attempt = |n: usize| -> Result<(), CounterError> {
        let events = trial(&instructions, &cycles, n);
        let mut group = OpenSet::open(&EventSet { events }, cpus)?;
        // long enough for the group to be scheduled in on a CPU that is idle
        std::thread::sleep(Duration::from_millis(2));
        for c in group.read()? {
            if c.running.is_zero() || c.running < c.enabled / 2 {
                return Err(taken(c.cpu, n));
            }
        }
        Ok(())
    };
    largest_set(attempt, MAX_EVENTS)
}

/// Tries every PMU of a core type and notes the number of usable counters in it.
///
/// # Errors
/// As [`usable_counters`], for the first core type on which nothing can be counted.
pub fn try_all(pmus: &mut Pmus) -> Result<(), CounterError> {
    let types: Vec<CoreTypeId> = pmus.core_types().collect();
    for t in types {
        let pmu = pmus.of_core_type(t);
        let known = pmu.map(|p| (p.name.clone(), p.counters));
        // the PMU lists online CPUs only; the core type may have others
        let online = |c: &&u32| pmu.is_none_or(|p| p.cpus.contains(c));
        let all = pmus.cpus_of(t);
        let mut cpus: Vec<u32> = all.iter().filter(online).copied().collect();
        if cpus.is_empty() {
            cpus = vec![all.first().copied().unwrap_or(0)];
        }
        match known {
            Some((_, Some(_))) => {}
            Some((name, None)) => {
                let n = usable_on_all(pmus, t, &cpus)?;
                pmus.set_counters(&name, n);
            }
            None => {
                // says where was looked
                usable_on_all(pmus, t, &cpus)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn software(config: u64) -> Event {
        Event {
            name: format!("software/{config}/"),
            pmu: "software".into(),
            attr: EventAttr {
                type_: 1,
                config,
                ..EventAttr::default()
            },
        }
    }

    #[test]
    fn a_trial_needs_no_event_but_instructions_and_cycles() {
        let (instructions, cycles) = (software(1), software(2));
        let of = |n| trial(&instructions, &cycles, n);
        assert_eq!(of(0), []);
        assert_eq!(of(2), [instructions.clone(), cycles.clone()]);
        let six = of(6);
        assert_eq!(six.len(), 6);
        assert_eq!(six.iter().filter(|e| **e == instructions).count(), 5);
    }

    #[test]
    fn the_largest_set_is_the_last_that_works() {
        let up_to = |limit| move |n| if n <= limit { Ok(()) } else { Err("full") };
        assert_eq!(largest_set(up_to(6), 16), Ok(6));
        assert_eq!(largest_set(up_to(99), 16), Ok(16));
        assert_eq!(largest_set(up_to(0), 16), Err("full"));
    }

    #[test]
    fn errors_tell_denied_missing_and_full_apart() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
        std::fs::write(dir.path().join("sys/kernel/perf_event_paranoid"), "3\n").unwrap();
        let text = |code| {
            let e = io::Error::from_raw_os_error(code);
            explain(dir.path(), "cycles", 4, 2, e).to_string()
        };
        let denied = text(13);
        assert!(
            denied.contains("perf_event_paranoid=-1")
                && denied.contains("it is 3")
                && denied.contains("CPU 4")
        );
        assert!(text(2).contains("no PMU"));
        assert!(text(95).contains("without PMU"));
        assert!(text(22).contains("event 3 of its set"));
        assert!(text(24).contains("ulimit -n"));
        assert!(taken(1, 6).to_string().contains("taken"));
    }

    // Software events count on every kernel, so that the way through perf is tested where there is
    // no PMU.
    #[test]
    fn a_set_of_software_events_counts_per_cpu() {
        let set = EventSet {
            events: vec![software(0), software(3)],
        };
        let mut open = match OpenSet::open(&set, &[0]) {
            Ok(open) => open,
            // an unprivileged user: that the error says so is all that can be shown
            Err(e @ CounterError::Denied { .. }) => {
                assert!(e.to_string().contains("kernel.perf_event_paranoid"), "{e}");
                amp_skips::skip(&format!("nothing can be counted here: {e}"));
                return;
            }
            Err(e @ CounterError::Unsupported { .. }) => {
                amp_skips::skip(&format!("nothing can be counted here: {e}"));
                return;
            }
            Err(e) => panic!("{e}"),
        };
        assert_eq!(open.len(), 2);
        assert_eq!(
            open.fds().map(|(c, i, _)| (c, i)).collect::<Vec<_>>(),
            [(0, 0), (0, 1)]
        );
        std::thread::sleep(Duration::from_millis(5));
        let counts = open.read().unwrap();
        assert_eq!((counts[0].cpu, counts[0].counts.len()), (0, 2));
        assert!(counts[0].running > Duration::ZERO);
        // stopped, it does not go on; started, it does
        open.stop();
        let at = open.read().unwrap()[0].enabled;
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(open.read().unwrap()[0].enabled, at);
        open.start().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        assert!(open.read().unwrap()[0].enabled > at);
    }

    #[test]
    fn a_machine_without_pmu_says_so() {
        let pmus = Pmus::none().with_core_types(&[vec![0]]);
        let e = usable_counters(&pmus, CoreTypeId(0), 0).unwrap_err();
        assert!(matches!(e, CounterError::Event(EventError::NoPmu { .. })));
        assert!(e.to_string().contains("without PMU"), "{e}");
    }
}
