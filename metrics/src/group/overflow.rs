//! Readings of a group that the kernel takes when the count of one of its events overflows
//! (event-based sampling).
//!
//! ```text
//! leader of the group   0───────── period ───────── 2 period ─────────►  its counter overflows
//! readings                         ●                ●                    all counts of the group
//! ```
//!
//! The interrupt of the PMU comes a few instructions after the overflow. Leader and others are read
//! at the same moment, so a reading says exactly where it was taken.

use super::{dummy, explain, Group, GroupError, Whom};
use perf_event::data::Record;
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleFlag, Sampler};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Bytes of a ring buffer, a power of two: 500 readings of four events. With the page that goes
/// before it, an ordinary user may have eight per CPU (516 KiB, `kernel.perf_event_mlock_kb`).
const BUFFER: usize = 64 << 10;

/// The longest period that the kernel takes.
pub const LONGEST_PERIOD: u64 = i64::MAX as u64;

/// Which event's overflow has a group read, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// Position of the event in its group, from 0.
    pub leader: usize,
    /// Counts of the event between two readings, at most [`LONGEST_PERIOD`].
    pub period: NonZeroU64,
}

/// What both the leader of a group and the owner of its buffer are asked for: records are read by
/// the owner's layout.
fn ask(b: &mut Builder<'_>) {
    b.sample(SampleFlag::TIME | SampleFlag::READ).read_format(
        ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING | ReadFormat::GROUP,
    );
    Overflow::of_member(b);
}

impl Overflow {
    /// What every event of the group is asked for: the kernel refuses groups, and buffers, of
    /// several clocks. A buffer has one writer at a time, so that nothing is inherited.
    pub(super) fn of_member(b: &mut Builder<'_>) {
        b.inherit(false).clockid(Clock::MONOTONIC);
    }

    /// Asks for readings of a group by its leader.
    pub(super) fn of_leader(self, b: &mut Builder<'_>) {
        ask(b);
        b.sample_period(self.period.get());
    }
}

/// What the refusal of a group means that is to be read when `leader` overflows: `counts` says
/// whether the same group can be opened without that.
fn refusal(e: GroupError, leader: &str, counts: impl Fn() -> bool) -> GroupError {
    match e {
        GroupError::Unsupported { ref event, .. } | GroupError::Refused { ref event, .. }
            if event != leader || !counts() =>
        {
            e
        }
        GroupError::Unsupported {
            event,
            pmu,
            whom,
            source,
        }
        | GroupError::Refused {
            event,
            pmu,
            whom,
            source,
            ..
        } => GroupError::NoInterrupt {
            event,
            pmu,
            whom,
            source,
        },
        e => e,
    }
}

/// What a buffer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overflowed {
    /// A reading of a group.
    Reading {
        /// The group ([`Group::id`]).
        group: u64,
        /// When, by `CLOCK_MONOTONIC`.
        time: Duration,
        /// Time for which the group was on the hardware.
        running: Duration,
        /// Counts since the group was opened, the leader's first ([`Group::in_order`]).
        counts: Vec<u64>,
    },
    /// The kernel stopped counting a while ago, because interrupts came too often, and goes on now.
    /// Kernels before Linux 6.16 stop the leader alone.
    Paused {
        /// The group.
        group: u64,
    },
}

/// Where readings of a thread's or a CPU's groups go.
pub struct OverflowBuffer {
    /// An event that counts nothing owns the buffer.
    owner: Sampler,
    whom: Whom,
}

impl OverflowBuffer {
    /// A buffer for groups on `whom`.
    ///
    /// # Errors
    /// [`GroupError::Buffer`] when there is no memory for it; as [`Group::open`].
    pub fn open(whom: Whom) -> Result<OverflowBuffer, GroupError> {
        let event = dummy(!matches!(whom, Whom::Cpu(_)));
        let mut b = Builder::new(event.attr);
        whom.observe(&mut b);
        ask(&mut b);
        b.exclude_kernel(event.attr.exclude_kernel)
            .exclude_hv(false)
            .enabled(false);
        let counter = b.build().map_err(|e| explain(&event, whom, 0, 1, e))?;
        let owner = counter
            .sampled(BUFFER)
            .map_err(|source| GroupError::Buffer {
                whom,
                kib: BUFFER >> 10,
                source,
            })?;
        Ok(OverflowBuffer { owner, whom })
    }

    /// Has the readings of `group`, which is on the same thread or CPU, written here.
    ///
    /// # Errors
    /// [`GroupError::Io`] when the kernel refuses.
    pub fn attach(&self, group: &Group) -> Result<(), GroupError> {
        let Some(leader) = group.counters.first() else {
            return Ok(());
        };
        #[allow(unsafe_code)]
        // SAFETY: both descriptors are live perf events'; the request takes the second by value and
        // touches no memory of ours.
        let r = unsafe {
            libc::ioctl(
                leader.as_raw_fd(),
                perf_event_open_sys::bindings::SET_OUTPUT as _,
                self.owner.as_raw_fd(),
            )
        };
        match r {
            0 => Ok(()),
            _ => Err(group.failed(std::io::Error::last_os_error())),
        }
    }

    /// The thread or the CPU.
    pub fn whom(&self) -> Whom {
        self.whom
    }

    /// Takes out what there is, in its order.
    pub fn drain(&mut self, mut found: impl FnMut(Overflowed)) {
        while let Some(record) = self.owner.next_record() {
            // this kernel may know more kinds of records than we do
            let Ok(record) = record.parse_record() else {
                continue;
            };
            match record {
                Record::Sample(s) => {
                    let (Some(time), Some(values)) = (s.time(), s.values()) else {
                        continue;
                    };
                    let mut entries = values.entries().peekable();
                    let Some(group) = entries.peek().and_then(|e| e.id()) else {
                        continue;
                    };
                    found(Overflowed::Reading {
                        group,
                        time: Duration::from_nanos(time),
                        running: Duration::from_nanos(values.time_running().unwrap_or(0)),
                        counts: entries.map(|e| e.value()).collect(),
                    });
                }
                Record::Unthrottle(t) => found(Overflowed::Paused { group: t.id }),
                _ => {}
            }
        }
    }
}

impl Group {
    /// As [`Group::open_at_once`], and the kernel also reads the group by itself, into an
    /// [`OverflowBuffer`], whenever the count of `at.leader` has grown by `at.period`. A thread is
    /// followed alone, [`Whom::Task`] too.
    ///
    /// # Errors
    /// [`GroupError::NoInterrupt`] where the PMU can count the events, but not say that one
    /// overflows; as [`Group::open`].
    pub fn open_overflowing(
        events: &[crate::Event],
        whom: Whom,
        on_exec: bool,
        at: Overflow,
    ) -> Result<Group, GroupError> {
        let leader = events.get(at.leader).map_or("", |e| e.name.as_str());
        Group::opened(events, whom, on_exec, true, Some(at)).map_err(|e| {
            refusal(e, leader, || {
                Group::opened(events, whom, on_exec, true, None).is_ok()
            })
        })
    }

    /// The kernel's number for it; `None` for a group of nothing.
    pub fn id(&self) -> Option<u64> {
        self.counters.first().map(Counter::id)
    }

    /// What is listed with the leader's first, in the order of the events.
    pub fn in_order<T>(&self, mut leader_first: Vec<T>) -> Vec<T> {
        if self.leader > 0 && self.leader < leader_first.len() {
            leader_first[..=self.leader].rotate_left(1);
        }
        leader_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::software;

    fn error(code: i32, position: usize) -> GroupError {
        let event = software(&"task-clock".parse().unwrap()).unwrap();
        let source = std::io::Error::from_raw_os_error(code);
        explain(&event, Whom::Cpu(2), position, 3, source)
    }

    #[test]
    fn a_pmu_that_counts_but_does_not_interrupt_is_named() {
        let leader = "task-clock";
        for code in [libc::EOPNOTSUPP, libc::EINVAL] {
            let e = refusal(error(code, 0), leader, || true);
            assert!(matches!(e, GroupError::NoInterrupt { .. }), "{e}");
            let text = e.to_string();
            assert!(
                text.contains("PMU `software`") && text.contains("`task-clock` on CPU 2"),
                "{text}"
            );
            // it does not count either
            let e = refusal(error(code, 0), leader, || false);
            assert!(!matches!(e, GroupError::NoInterrupt { .. }), "{e}");
        }
        // what does not fit is another event
        let e = refusal(error(libc::EINVAL, 1), "cs", || true);
        assert!(matches!(e, GroupError::Refused { position: 2, .. }), "{e}");
        let no_refusal = || unreachable!("not a refusal");
        let e = refusal(error(libc::EACCES, 0), leader, no_refusal);
        assert!(matches!(e, GroupError::Denied { .. }), "{e}");
    }

    /// The kernel's clock overflows as a counter does.
    #[test]
    fn a_group_is_read_whenever_its_leader_overflows() {
        let events = ["page-faults:u", "task-clock:u", "context-switches:u"]
            .map(|e| software(&e.parse().unwrap()).unwrap());
        let at = Overflow {
            leader: 1,
            period: NonZeroU64::new(1_000_000).unwrap(),
        };
        let mut g = match Group::open_overflowing(&events, Whom::Caller, false, at) {
            Ok(g) => g,
            // a container without perf: that the error says so is all that can be shown
            Err(e) => {
                amp_skips::skip(&format!("nothing can be counted here: {e}"));
                return;
            }
        };
        let mut buffer = OverflowBuffer::open(Whom::Caller).unwrap();
        buffer.attach(&g).unwrap();
        g.start().unwrap();
        while g.read().unwrap().counts[1] < 20_000_000 {
            std::hint::black_box(vec![1u8; 1 << 20]);
        }
        g.stop().unwrap();
        let total = g.read().unwrap();
        let mut readings = Vec::new();
        buffer.drain(|o| {
            if let Overflowed::Reading { group, counts, .. } = o {
                assert_eq!(Some(group), g.id());
                readings.push(g.in_order(counts));
            }
        });
        assert!(readings.len() >= 2, "{readings:?}");
        for pair in readings.windows(2) {
            for (before, after) in pair[0].iter().zip(&pair[1]) {
                assert!(before <= after, "{readings:?}");
            }
            assert!(pair[0][1] < pair[1][1], "{readings:?}");
        }
        let last = &readings[readings.len() - 1];
        // The leader's own count is where it was written, and it is read once per period. A reading that
        // comes late does not put off the next one, so that two of them may be closer.
        let periods = last[1] as f64 / 1e6;
        println!("{} readings in {periods:.3} periods", readings.len());
        assert!(readings.len() as f64 <= periods + 1.0, "{readings:?}");
        assert!(last[1] <= total.counts[1] && total.counts[1] > 10_000_000);
        buffer.drain(|_| unreachable!("drained"));
    }
}
