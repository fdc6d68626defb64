//! A group of events on whatever is to be followed: a thread with its children, a CPU, or the
//! calling thread.
//!
//! The group is pinned: its events are on the hardware together or not at all, and the kernel
//! multiplexes nothing. On a machine with several core types a thread's group runs only while the
//! thread is on a CPU of the group's PMU, so [`GroupCounts::running`] is the time spent on that
//! core type.

pub mod fit;
pub mod overflow;
mod topdown;
mod trial;

pub use topdown::without_slots;
pub use trial::counts_at_once;

use crate::event::{Event, EventAttr, EventSpec, SpecKind, Term};
use overflow::Overflow;
use perf_event::{Builder, Counter, ReadFormat};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use thiserror::Error;

/// `PERF_TYPE_SOFTWARE`.
pub const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_DUMMY`: counts nothing, but its times are kept.
const DUMMY: u64 = 9;

/// Software events by the names that perf gives them, with their numbers (`perf_event.h`).
pub const SOFTWARE_NAMES: &[(&str, u64)] = &[
    ("cpu-clock", 0),
    ("task-clock", 1),
    ("page-faults", 2),
    ("faults", 2),
    ("context-switches", 3),
    ("cs", 3),
    ("cpu-migrations", 4),
    ("migrations", 4),
    ("minor-faults", 5),
    ("major-faults", 6),
    ("alignment-faults", 7),
    ("emulation-faults", 8),
    ("cgroup-switches", 11),
];

/// The kernel's own event that `spec` names, as `task-clock` or `software/task-clock/`; `None` when
/// it names none.
pub fn software(spec: &EventSpec) -> Option<Event> {
    let name = match &spec.kind {
        SpecKind::Name(name) => name,
        SpecKind::Terms { pmu, terms } if pmu == "software" => match terms.as_slice() {
            [Term::Name(name)] => name,
            _ => return None,
        },
        _ => return None,
    };
    let (_, config) = SOFTWARE_NAMES.iter().find(|(n, _)| n == name)?;
    Some(Event {
        name: spec.to_string(),
        pmu: "software".into(),
        attr: EventAttr {
            type_: SOFTWARE,
            config: *config,
            exclude_user: spec.modifiers.exclude_user,
            exclude_kernel: spec.modifiers.exclude_kernel,
            precise: spec.modifiers.precise,
            ..EventAttr::default()
        },
    })
}

/// Target of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// A thread by its id, and every thread and process it starts from now on.
    Task(i32),
    /// A thread by its id, alone.
    Thread(i32),
    /// The calling thread alone.
    Caller,
    /// A CPU, whoever runs.
    Cpu(u32),
}

impl Whom {
    /// The CPU, where it is one.
    pub fn cpu(self) -> Option<u32> {
        match self {
            Whom::Cpu(cpu) => Some(cpu),
            _ => None,
        }
    }

    fn observe(self, b: &mut Builder<'_>) {
        match self {
            Whom::Task(tid) => b.observe_pid(tid).any_cpu().inherit(true),
            Whom::Thread(tid) => b.observe_pid(tid).any_cpu(),
            Whom::Caller => b.observe_self().any_cpu(),
            Whom::Cpu(cpu) => b.any_pid().one_cpu(cpu as usize),
        };
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whom::Task(tid) | Whom::Thread(tid) => write!(f, "thread {tid}"),
            Whom::Caller => f.write_str("the calling thread"),
            Whom::Cpu(cpu) => write!(f, "CPU {cpu}"),
        }
    }
}

/// Why a group does not count.
#[derive(Debug, Error)]
pub enum GroupError {
    /// The kernel does not let this user count.
    #[error("event `{event}` on {whom}: not permitted (kernel.perf_event_paranoid is {paranoid}). Run as root or with CAP_PERFMON, or `sysctl kernel.perf_event_paranoid={needed}`{user_only}")]
    Denied {
        /// The event.
        event: String,
        /// Target of the group.
        whom: Whom,
        /// The sysctl now, or `?`.
        paranoid: String,
        /// Value of `perf_event_paranoid` that would do.
        needed: i32,
        /// A way out, or nothing.
        user_only: &'static str,
    },
    /// The PMU does not have it.
    #[error("event `{event}` on {whom}: PMU `{pmu}` does not count it ({source})")]
    Unsupported {
        /// The event.
        event: String,
        /// Its PMU.
        pmu: String,
        /// Target of the group.
        whom: Whom,
        /// The system's error.
        source: io::Error,
    },
    /// It does not fit, or its code is not accepted.
    #[error("event `{event}` on {whom}: PMU `{pmu}` refuses it as number {position} of a set of {size} ({source})")]
    Refused {
        /// The event.
        event: String,
        /// Its PMU.
        pmu: String,
        /// Target of the group.
        whom: Whom,
        /// Position of the event in its group, from 1.
        position: usize,
        /// Events in the set.
        size: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The PMU counts it, but does not interrupt when its count overflows.
    #[error("event `{event}` on {whom}: PMU `{pmu}` counts it, but cannot interrupt when it overflows ({source})")]
    NoInterrupt {
        /// The event.
        event: String,
        /// Its PMU.
        pmu: String,
        /// Target of the group.
        whom: Whom,
        /// The system's error.
        source: io::Error,
    },
    /// No memory for a ring buffer.
    #[error("{whom}: no memory for a ring buffer of {kib} KiB ({source}). Raise `sysctl kernel.perf_event_mlock_kb` or `ulimit -l`, or run as root")]
    Buffer {
        /// Target of the group.
        whom: Whom,
        /// Size of the buffer.
        kib: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The thread has ended.
    #[error("{whom} is gone")]
    Gone {
        /// The thread.
        whom: Whom,
    },
    /// Too many open files.
    #[error("event `{event}` on {whom}: {limit} files may be open, and all are; each event needs one per thread and, when sampled, per CPU. {way_out}, or count the whole machine (-a)")]
    Files {
        /// The event.
        event: String,
        /// Target of the group.
        whom: Whom,
        /// Number of files that may be open.
        limit: String,
        /// Which limit to raise.
        way_out: &'static str,
    },
    /// The group lost its counters to somebody else.
    #[error("{whom}: the counters of `{event}` and its set were taken by another user of PMU `{pmu}` (the NMI watchdog: `sysctl kernel.nmi_watchdog=0`; a profiler)")]
    Taken {
        /// First event of the set.
        event: String,
        /// Its PMU.
        pmu: String,
        /// Target of the group.
        whom: Whom,
    },
    /// Anything else.
    #[error("event `{event}` on {whom}: {source}")]
    Io {
        /// The event.
        event: String,
        /// Target of the group.
        whom: Whom,
        /// The system's error.
        source: io::Error,
    },
}

impl GroupError {
    /// Whether the next reading may succeed: the kernel reads no group while one of its children is
    /// being taken apart.
    pub fn is_passing(&self) -> bool {
        matches!(self, GroupError::Io { source, .. } if source.raw_os_error() == Some(libc::ECHILD))
    }
}

/// Counts since the group was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Time for which the group was enabled while its threads ran, or its CPU was there.
    pub enabled: Duration,
    /// Time for which it was on the hardware.
    pub running: Duration,
    /// In the order of the events.
    pub counts: Vec<u64>,
}

/// Events that are counted together. Closed, and thereby gone without a trace, when dropped.
#[derive(Debug)]
pub struct Group {
    events: Vec<Event>,
    whom: Whom,
    /// In the order in which they were opened: the leader, then the others in theirs.
    counters: Vec<Counter>,
    /// Position of the leader among the events.
    leader: usize,
    at_once: bool,
}

impl Group {
    /// Opens `events`, which are of one PMU, stopped. With `on_exec` they start by themselves when
    /// the thread executes a new program.
    ///
    /// # Errors
    /// [`GroupError`], naming the event, its PMU and whom it was to follow; nothing stays open
    /// then.
    pub fn open(events: &[Event], whom: Whom, on_exec: bool) -> Result<Group, GroupError> {
        Group::opened(events, whom, on_exec, false, None)
    }

    /// As [`Group::open`], but the counts of a reading are all of the same moment, and cost one
    /// system call. While a thread that the followed one has started ends, there may be no reading:
    /// [`GroupError::is_passing`].
    ///
    /// # Errors
    /// As [`Group::open`].
    pub fn open_at_once(events: &[Event], whom: Whom, on_exec: bool) -> Result<Group, GroupError> {
        Group::opened(events, whom, on_exec, true, None)
    }

    fn opened(
        events: &[Event],
        whom: Whom,
        on_exec: bool,
        at_once: bool,
        overflow: Option<Overflow>,
    ) -> Result<Group, GroupError> {
        let mut counters: Vec<Counter> = Vec::with_capacity(events.len());
        let leader = overflow.map_or_else(|| topdown::leader(events), |o| o.leader);
        let order = || events.iter().enumerate();
        let others = order().filter(|(i, _)| *i != leader);
        for (i, event) in order().filter(|(i, _)| *i == leader).chain(others) {
            let mut b = Builder::new(event.attr);
            whom.observe(&mut b);
            let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
            // the leader reads all of them at one moment
            b.read_format(match counters.is_empty() {
                true if at_once => times | ReadFormat::GROUP,
                _ => times,
            });
            if let Some(o) = overflow {
                match counters.is_empty() {
                    true => o.of_leader(&mut b),
                    false => Overflow::of_member(&mut b),
                }
            }
            b.exclude_user(event.attr.exclude_user)
                .exclude_kernel(event.attr.exclude_kernel)
                .exclude_hv(false);
            let built = match counters.first_mut() {
                None => b
                    .pinned(true)
                    .enabled(false)
                    .enable_on_exec(on_exec)
                    .build(),
                // members follow their leader
                Some(leader) => b.enabled(true).build_with_group(leader),
            };
            counters.push(built.map_err(|e| explain(event, whom, i, events.len(), e))?);
        }
        Ok(Group {
            events: events.to_vec(),
            whom,
            counters,
            leader,
            at_once,
        })
    }

    /// A group that counts nothing: its [`GroupCounts::enabled`] is how long its threads ran.
    ///
    /// # Errors
    /// As [`Group::open`].
    pub fn clock(whom: Whom, on_exec: bool) -> Result<Group, GroupError> {
        let dummy = dummy(!matches!(whom, Whom::Cpu(_)));
        Group::open(&[dummy], whom, on_exec)
    }

    /// What it counts.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The open file of each event, in their order; the group closes them.
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.in_order(self.counters.iter().map(AsRawFd::as_raw_fd).collect())
    }

    /// Target of the group.
    pub fn whom(&self) -> Whom {
        self.whom
    }

    /// Starts it, for children that are already there, too.
    ///
    /// # Errors
    /// [`GroupError::Io`] when the kernel refuses.
    pub fn start(&mut self) -> Result<(), GroupError> {
        self.on_leader(Counter::enable)
    }

    /// Stops it; its counters are free for others.
    ///
    /// # Errors
    /// [`GroupError::Io`] when the kernel refuses.
    pub fn stop(&mut self) -> Result<(), GroupError> {
        self.on_leader(Counter::disable)
    }

    fn on_leader(&mut self, f: fn(&mut Counter) -> io::Result<()>) -> Result<(), GroupError> {
        let Some(leader) = self.counters.first_mut() else {
            return Ok(());
        };
        f(leader).map_err(|source| self.failed(source))
    }

    /// The counts.
    ///
    /// # Errors
    /// [`GroupError::Taken`] when the group lost its counters, which a pinned one does not survive.
    pub fn read(&mut self) -> Result<GroupCounts, GroupError> {
        if self.at_once {
            return self.read_at_once();
        }
        let mut out = GroupCounts::default();
        let mut error = None;
        for c in &mut self.counters {
            match c.read_full() {
                Ok(v) => {
                    out.enabled = v.time_enabled().unwrap_or_default();
                    out.running = v.time_running().unwrap_or_default();
                    out.counts.push(v.count());
                }
                Err(e) => error = Some(e),
            }
        }
        match error {
            None => Ok(out),
            Some(e) => Err(self.failed(e)),
        }
    }

    fn read_at_once(&mut self) -> Result<GroupCounts, GroupError> {
        let Some(leader) = self.counters.first_mut() else {
            return Ok(GroupCounts::default());
        };
        let all = leader.read_group().map_err(|e| self.failed(e))?;
        Ok(GroupCounts {
            enabled: all.time_enabled().unwrap_or_default(),
            running: all.time_running().unwrap_or_default(),
            // the kernel lists them in the order in which they were opened
            counts: self.in_order(all.iter().map(|c| c.value()).collect()),
        })
    }

    fn failed(&self, source: io::Error) -> GroupError {
        let (event, pmu) = self.events.first().map_or_else(
            || (String::new(), String::new()),
            |e| (e.name.clone(), e.pmu.clone()),
        );
        let whom = self.whom;
        match source.kind() {
            // reads of a pinned group in error end at once
            io::ErrorKind::UnexpectedEof => GroupError::Taken { event, pmu, whom },
            _ => GroupError::Io {
                event,
                whom,
                source,
            },
        }
    }
}

/// An event that counts nothing, of user mode only on demand, which needs no more rights than it
/// has.
pub fn dummy(exclude_kernel: bool) -> Event {
    Event {
        name: "dummy".into(),
        pmu: "software".into(),
        attr: EventAttr {
            type_: SOFTWARE,
            config: DUMMY,
            exclude_kernel,
            ..EventAttr::default()
        },
    }
}

/// Whether a thread is another user's than ours.
fn is_anothers(tid: i32) -> bool {
    let of = std::fs::metadata(format!("/proc/{tid}"));
    of.is_ok_and(|m| m.uid() != rustix::process::geteuid().as_raw())
}

/// What an error of `perf_event_open` means for `event`, number `position` (from 0) of `size` in
/// its group.
pub fn explain(
    event: &Event,
    whom: Whom,
    position: usize,
    size: usize,
    source: io::Error,
) -> GroupError {
    use libc::{
        EACCES, EINVAL, EMFILE, ENFILE, ENODEV, ENOENT, ENOSPC, ENOSYS, ENXIO, EOPNOTSUPP, EPERM,
        ESRCH,
    };
    let (name, pmu) = (event.name.clone(), event.pmu.clone());
    match source.raw_os_error() {
        Some(EPERM | EACCES) => {
            let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            let cpu = matches!(whom, Whom::Cpu(_));
            let user = event.attr.exclude_kernel;
            let number = level.as_ref().ok().and_then(|l| l.trim().parse().ok());
            let paranoid: i32 = number.unwrap_or(2);
            GroupError::Denied {
                event: name,
                whom,
                paranoid: level.map_or_else(|_| "?".into(), |l| l.trim().to_owned()),
                needed: match (cpu, user) {
                    (true, _) => 0,
                    (false, false) => 1,
                    (false, true) => 2,
                },
                user_only: match whom {
                    Whom::Task(tid) | Whom::Thread(tid) if is_anothers(tid) => {
                        ". For another user's thread the sysctl is not enough"
                    }
                    _ if cpu || user => "",
                    _ if paranoid > 2 => ", or =2 and count user mode only by writing `:u` behind the event",
                    _ => ", or count user mode only by writing `:u` behind the event",
                },
            }
        }
        Some(ENOENT | ENXIO | ENODEV | ENOSYS | EOPNOTSUPP) => GroupError::Unsupported {
            event: name,
            pmu,
            whom,
            source,
        },
        Some(EINVAL | ENOSPC) => GroupError::Refused {
            event: name,
            pmu,
            whom,
            position: position + 1,
            size,
            source,
        },
        Some(ESRCH) => GroupError::Gone { whom },
        Some(EMFILE) => GroupError::Files {
            event: name,
            whom,
            limit: rustix::process::getrlimit(rustix::process::Resource::Nofile)
                .current
                .map_or_else(|| "as many as there is memory for".into(), |l| l.to_string()),
            way_out: "Raise RLIMIT_NOFILE (`ulimit -Hn`; `LimitNOFILE=` of a service), or run as root, which raises it up to `sysctl fs.nr_open`",
        },
        Some(ENFILE) => GroupError::Files {
            event: name,
            whom,
            limit: std::fs::read_to_string("/proc/sys/fs/file-max")
                .map_or_else(|_| "no more".into(), |l| l.trim().to_owned()),
            way_out: "Raise `sysctl fs.file-max`",
        },
        _ => GroupError::Io {
            event: name,
            whom,
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn software(name: &str) -> Event {
        let (_, config) = SOFTWARE_NAMES.iter().find(|(n, _)| *n == name).unwrap();
        Event {
            name: name.into(),
            pmu: "software".into(),
            attr: EventAttr {
                type_: SOFTWARE,
                config: *config,
                exclude_kernel: true,
                ..EventAttr::default()
            },
        }
    }

    #[test]
    fn it_counts_from_start_to_stop_only() {
        let mut g = match Group::open(
            &[software("task-clock"), software("page-faults")],
            Whom::Caller,
            false,
        ) {
            Ok(g) => g,
            // a container without perf: that the error says so is all that can be shown
            Err(e) => {
                assert!(e.to_string().contains("task-clock"), "{e}");
                amp_skips::skip(&format!("nothing can be counted here: {e}"));
                return;
            }
        };
        let spin = || (0..200_000u64).fold(1, |a, b| std::hint::black_box(a ^ b));
        spin();
        assert_eq!(g.read().unwrap().counts, [0, 0]);
        g.start().unwrap();
        spin();
        g.stop().unwrap();
        let c = g.read().unwrap();
        assert!(c.counts[0] > 0 && c.enabled == c.running, "{c:?}");
        spin();
        assert_eq!(g.read().unwrap(), c);
    }

    #[test]
    fn errors_name_event_pmu_and_whom() {
        let e = software("cs");
        let text = |code, whom| explain(&e, whom, 2, 4, io::Error::from_raw_os_error(code));
        let denied = text(libc::EACCES, Whom::Cpu(3)).to_string();
        assert!(
            denied.contains("`cs` on CPU 3") && denied.contains("perf_event_paranoid=0"),
            "{denied}"
        );
        let refused = text(libc::EINVAL, Whom::Task(7)).to_string();
        assert!(
            refused.contains("number 3 of a set of 4") && refused.contains("thread 7"),
            "{refused}"
        );
        assert!(text(libc::ENOENT, Whom::Caller)
            .to_string()
            .contains("PMU `software`"));
        assert!(matches!(
            text(libc::ESRCH, Whom::Task(7)),
            GroupError::Gone { .. }
        ));
        assert!(text(libc::EMFILE, Whom::Task(7))
            .to_string()
            .contains("ulimit"));
    }
}
