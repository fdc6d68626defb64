//! Counters that are lost while they count: seen, and asked for again.
//!
//! Another user's pinned events that were opened before ours and are switched on later take our
//! counters, and the kernel never gives them back by itself. BPF notices first: its readings fail.
//! That alone may have other reasons, so after a few intervals the set is asked whether it still
//! counts.

use amp_metrics::Nanos;

/// Intervals in a row with failed readings on a CPU after which its set is asked.
const SUSPICIOUS: u32 = 3;
/// Time until counters are asked for again; doubled with every refusal.
const FIRST_PAUSE: Nanos = Nanos::from_millis(1000);
/// The longest pause.
const LONGEST_PAUSE: Nanos = Nanos::from_millis(60_000);

/// When something that was refused is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    pause: Nanos,
    next: Nanos,
}

impl BackOff {
    /// After a first refusal at `now`.
    pub fn new(now: Nanos) -> BackOff {
        BackOff {
            pause: FIRST_PAUSE,
            next: now + FIRST_PAUSE,
        }
    }

    /// Whether it is time to try again.
    pub fn due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// After another refusal at `now`.
    pub fn refused(&mut self, now: Nanos) {
        self.pause = Nanos((self.pause.0 * 2).min(LONGEST_PAUSE.0));
        self.next = now + self.pause;
    }
}

/// What is to be done about a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Ask the set whether it counts there.
    Ask,
    /// Start it there again.
    Restart,
}

/// What is known of the counters of one CPU.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Failed readings at the last look.
    unread: Option<u64>,
    /// Intervals in a row that had some.
    failing: u32,
    lost: Option<(String, BackOff)>,
}

impl Watch {
    /// Looks at the number of readings that have failed so far, once per interval.
    pub fn look(&mut self, unread: u64, now: Nanos) -> Due {
        let before = self.unread.replace(unread).unwrap_or(unread);
        if let Some((_, again)) = &self.lost {
            return if again.due(now) {
                Due::Restart
            } else {
                Due::Nothing
            };
        }
        self.failing = if unread > before { self.failing + 1 } else { 0 };
        if self.failing < SUSPICIOUS {
            return Due::Nothing;
        }
        self.failing = 0;
        Due::Ask
    }

    /// The set does not count there, as `why` says.
    pub fn is_lost(&mut self, why: String, now: Nanos) {
        match &mut self.lost {
            Some((said, again)) => {
                *said = why;
                again.refused(now);
            }
            None => self.lost = Some((why, BackOff::new(now))),
        }
    }

    /// The set counts there, or another one is asked for. The count of failures goes on.
    pub fn counts(&mut self) {
        self.lost = None;
        self.failing = 0;
    }

    /// The reason why nothing counts there, if so.
    pub fn why(&self) -> Option<&str> {
        self.lost.as_ref().map(|(why, _)| why.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(intervals: u64) -> Nanos {
        Nanos::from_millis(100 * intervals)
    }

    #[test]
    fn a_set_is_asked_after_intervals_in_a_row_that_failed() {
        let mut w = Watch::default();
        // what failed before is nobody's news, and a single interval is not either
        for (i, unread) in [7, 9, 9, 12, 13, 13].into_iter().enumerate() {
            assert_eq!(w.look(unread, at(i as u64)), Due::Nothing);
        }
        assert_eq!(w.look(14, at(6)), Due::Nothing);
        assert_eq!(w.look(15, at(7)), Due::Nothing);
        assert_eq!(w.look(16, at(8)), Due::Ask);
        // it counts after all
        w.counts();
        assert_eq!(w.look(17, at(9)), Due::Nothing);
        assert_eq!(w.why(), None);
    }

    #[test]
    fn what_is_lost_is_asked_for_again_less_and_less_often() {
        let mut w = Watch::default();
        w.look(0, at(0));
        w.is_lost("taken".into(), at(0));
        let mut tries = Vec::new();
        for i in 1..2000 {
            if w.look(i, at(i)) == Due::Restart {
                tries.push(i);
                w.is_lost("still taken".into(), at(i));
            }
        }
        assert_eq!(tries, [10, 30, 70, 150, 310, 630, 1230, 1830]);
        assert_eq!(w.why(), Some("still taken"));
        w.counts();
        assert_eq!(w.why(), None);
        assert_eq!(w.look(5000, at(2001)), Due::Nothing);
        // the next loss begins with the short pause
        w.is_lost("taken".into(), at(2001));
        assert_eq!(w.look(5001, at(2010)), Due::Nothing);
        assert_eq!(w.look(5002, at(2011)), Due::Restart);
    }
}
