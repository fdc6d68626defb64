//! Windows that the kernel cuts: all counts are read when that of instructions overflows.

use super::{Counting, Part, Row, Window, WindowCount};
use amp_host::clock;
use amp_metrics::group::overflow::{Overflow, OverflowBuffer, Overflowed};
use amp_metrics::group::{Group, GroupError, Whom};
use amp_metrics::Event;
use serde::Serialize;
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// What no window holds, though it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// Windows whose ends were not all seen.
    pub lost: u64,
    /// How often the kernel paused the counters, because interrupts came too often.
    pub throttled: u64,
}

/// The windows of a PMU's group on a thread or a CPU.
struct Stream {
    part: usize,
    group: u64,
    /// Position of instructions among the counts.
    leader: usize,
    /// The last reading: time on the hardware, and counts.
    running: Duration,
    counts: Vec<u64>,
    /// Whether the counters were paused since then.
    paused: bool,
}

/// The buffer of a thread or a CPU, and what is in it.
struct Source {
    row: Row,
    /// `None` once a thread has ended and what it left was taken out.
    buffer: Option<OverflowBuffer>,
    streams: Vec<Stream>,
    /// Whether the thread has ended: nothing is written any more.
    ended: bool,
}

/// All windows that the kernel cuts.
pub struct Overflows {
    size: NonZeroU64,
    sources: Vec<Source>,
    missed: Missed,
}

impl Stream {
    /// Takes a reading; what was counted since the last one, and for how long, if both are the
    /// ends of one window. Else so many windows are lost.
    fn take(
        &mut self,
        size: NonZeroU64,
        running: Duration,
        counts: Vec<u64>,
    ) -> Result<(Duration, Vec<u64>), u64> {
        let grown = counts.iter().zip(&self.counts);
        let grown: Vec<u64> = grown.map(|(now, then)| now.saturating_sub(*then)).collect();
        let seconds = running.saturating_sub(self.running);
        let ends = match grown.get(self.leader) {
            Some(n) => rounded(*n, size).max(1),
            None => 1,
        };
        (self.running, self.counts) = (running, counts);
        let paused = std::mem::take(&mut self.paused);
        match paused || ends > 1 {
            true => Err(ends),
            false => Ok((seconds, grown)),
        }
    }
}

/// How many times `size` goes into `n`, to the nearest.
fn rounded(n: u64, size: NonZeroU64) -> u64 {
    let size = size.get();
    n / size + u64::from(n % size > size / 2)
}

impl Overflows {
    /// Windows of `size` instructions, of nobody yet.
    pub fn new(size: NonZeroU64) -> Overflows {
        Overflows {
            size,
            sources: Vec::new(),
            missed: Missed::default(),
        }
    }

    /// Opens the events of a unit, which are read when number `leader` overflows.
    ///
    /// # Errors
    /// As [`Group::open_overflowing`].
    pub fn open(
        &self,
        events: &[Event],
        leader: usize,
        whom: Whom,
        on_exec: bool,
    ) -> Result<Group, GroupError> {
        let period = self.size;
        Group::open_overflowing(events, whom, on_exec, Overflow { leader, period })
    }

    /// Has the groups of `parts` write into buffers; the first of them has number `first`.
    ///
    /// # Errors
    /// As [`OverflowBuffer::open`]; nothing is watched then.
    pub(super) fn watch(&mut self, parts: &[Part], first: usize) -> Result<(), GroupError> {
        let mut new: Vec<Source> = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            let Some(leader) = part.unit.instructions else {
                continue;
            };
            for group in &part.groups {
                let known = new.iter().position(|s| s.row.same(&part.row));
                let at = match known {
                    Some(at) => at,
                    None => {
                        new.push(Source {
                            row: part.row.clone(),
                            buffer: Some(OverflowBuffer::open(group.whom())?),
                            streams: Vec::new(),
                            ended: false,
                        });
                        new.len() - 1
                    }
                };
                let source = &mut new[at];
                if let Some(buffer) = &source.buffer {
                    buffer.attach(group)?;
                }
                source.streams.push(Stream {
                    part: first + i,
                    group: group.id().unwrap_or_default(),
                    leader,
                    running: Duration::ZERO,
                    counts: vec![0; part.unit.events.len()],
                    paused: false,
                });
            }
        }
        self.sources.extend(new);
        Ok(())
    }

    /// Whether windows of `row` may yet come.
    pub(super) fn reads(&self, row: &Row) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|s| s.row.same(row) && s.buffer.is_some())
    }

    /// What was written until now, as `window` makes windows of it.
    fn drain(
        &mut self,
        parts: &[Part],
        mut window: impl FnMut(&Part, Duration, Duration, Vec<u64>) -> Window,
    ) -> Vec<Window> {
        let mut out = Vec::new();
        let (size, missed) = (self.size, &mut self.missed);
        for source in &mut self.sources {
            let (Some(buffer), streams) = (&mut source.buffer, &mut source.streams) else {
                continue;
            };
            buffer.drain(|found| match found {
                Overflowed::Paused { group } => {
                    missed.throttled += 1;
                    for s in streams.iter_mut().filter(|s| s.group == group) {
                        s.paused = true;
                    }
                }
                Overflowed::Reading {
                    group,
                    time,
                    running,
                    counts,
                } => {
                    let stream = streams.iter_mut().find(|s| s.group == group);
                    let Some((s, part)) = stream.and_then(|s| {
                        let part = parts.get(s.part)?;
                        Some((s, part))
                    }) else {
                        return;
                    };
                    let counts = match part.groups.first() {
                        Some(g) => g.in_order(counts),
                        None => counts,
                    };
                    match s.take(size, running, counts) {
                        Ok((of_window, counts)) => out.push(window(part, time, of_window, counts)),
                        Err(ends) => missed.lost += ends,
                    }
                }
            });
            if source.ended {
                source.buffer = None;
            }
        }
        out.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        out
    }
}

impl Counting {
    /// The windows whose ends were read since the last call, in order; `begin` is where their times
    /// begin. Empty unless windows are cut by overflow.
    pub fn overflows(&mut self, begin: Instant) -> Vec<Window> {
        let Some(overflows) = &mut self.overflows else {
            return Vec::new();
        };
        let now = Duration::from_nanos(clock::now().0);
        let zero = now.saturating_sub(begin.elapsed());
        let names = &self.names;
        overflows.drain(&self.parts, |part, time, of_window, counts| Window {
            at_s: time.saturating_sub(zero).as_secs_f64(),
            set: part.set + 1,
            counts: (part.unit.events.iter().zip(counts))
                .map(|(event, count)| WindowCount {
                    event: event.name.clone(),
                    pmu: Some(part.unit.pmu.clone()),
                    core_type: part.type_name(names),
                    row: part.row.clone(),
                    count: Some(count),
                    seconds: of_window.as_secs_f64(),
                })
                .collect(),
            virtual_counters: Vec::new(),
        })
    }

    /// Has the buffers of threads given back that are not among `alive`, once they are empty.
    pub fn keep_buffers_of(&mut self, alive: &BTreeSet<i32>) {
        for s in self.overflows.iter_mut().flat_map(|o| &mut o.sources) {
            s.ended = s.row.tid.is_some_and(|t| !alive.contains(&t));
        }
    }

    /// What windows by overflow have missed, after the last [`turn`](Self::turn) and
    /// [`overflows`](Self::overflows); `None` unless windows are cut so.
    pub fn missed_overflows(&self) -> Option<Missed> {
        let overflows = self.overflows.as_ref()?;
        let mut missed = overflows.missed;
        for s in overflows.sources.iter().flat_map(|s| &s.streams) {
            let counted = self.parts.get(s.part).and_then(|p| p.last.1.get(s.leader));
            let seen = s.counts.get(s.leader);
            let rest = counted.zip(seen).map_or(0, |(c, s)| c.saturating_sub(*s));
            missed.lost += rest / overflows.size;
        }
        Some(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Stream {
            part: 0,
            group: 7,
            leader: 1,
            running: Duration::ZERO,
            counts: vec![0; 2],
            paused: false,
        }
    }

    fn take(s: &mut Stream, ms: u64, cycles: u64, instructions: u64) -> Result<Vec<u64>, u64> {
        let size = NonZeroU64::new(100).unwrap();
        let taken = s.take(size, Duration::from_millis(ms), vec![cycles, instructions]);
        taken.map(|(time, mut counts)| {
            counts.push(time.as_millis() as u64);
            counts
        })
    }

    #[test]
    fn a_window_lies_between_two_readings() {
        let mut s = stream();
        // the interrupt comes a few instructions late, and never as many as would make it another's
        assert_eq!(take(&mut s, 2, 150, 103), Ok(vec![150, 103, 2]));
        assert_eq!(take(&mut s, 5, 350, 201), Ok(vec![200, 98, 3]));
        assert_eq!(take(&mut s, 6, 450, 349), Ok(vec![100, 148, 1]));
        assert_eq!(take(&mut s, 7, 550, 400), Ok(vec![100, 51, 1]));
    }

    #[test]
    fn what_is_between_other_readings_is_lost() {
        let mut s = stream();
        take(&mut s, 1, 100, 101).unwrap();
        // two ends were not written
        assert_eq!(take(&mut s, 4, 400, 402), Err(3));
        assert_eq!(take(&mut s, 5, 500, 501), Ok(vec![100, 99, 1]));
        // the others went on while instructions did not
        s.paused = true;
        assert_eq!(take(&mut s, 9, 900, 602), Err(1));
        assert_eq!(take(&mut s, 10, 1000, 701), Ok(vec![100, 99, 1]));
    }

    #[test]
    fn any_readings_are_taken() {
        let mut s = stream();
        for n in [0, u64::MAX, 0, 5] {
            let _ = take(&mut s, n, n, n);
        }
        let size = NonZeroU64::new(1).unwrap();
        assert_eq!(
            s.take(size, Duration::ZERO, Vec::new()),
            Ok((Duration::ZERO, vec![]))
        );
        assert_eq!(rounded(u64::MAX, size), u64::MAX);
        let size = NonZeroU64::new(u64::MAX).unwrap();
        assert_eq!((rounded(u64::MAX, size), rounded(3, size)), (1, 0));
    }
}
