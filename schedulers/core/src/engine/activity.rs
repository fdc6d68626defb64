//! Which threads are worth placing.

use amp_metrics::Nanos;

/// When a thread counts as active.
///
/// A thread is *busy* in an interval when it ran for at least `fraction` of it, or is runnable at
/// its end. It is offered to the policy while busy, once it has been busy for `admit_after`
/// intervals in a row, so that a daemon that wakes up now and then takes no seat; at once when it
/// ran for at least `admit_at_once` of the interval, or appeared within the interval and is busy
/// and running: an application that has just been started would otherwise lose its first intervals,
/// and its seat to another. The next run of a program that was offered need not have run for long to be
/// busy: otherwise a program of short runs would be there in some intervals and not in others. When it has not been busy for `release_after` intervals in a row it is
/// released, so that a thread that waits at a barrier or for a disk keeps its place meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActivityRule {
    /// Share of the interval, 0 to 1.
    pub fraction: f64,
    /// Share of the interval, 0 to 1.
    pub admit_at_once: f64,
    /// Intervals.
    pub admit_after: u32,
    /// Intervals.
    pub release_after: u32,
}

impl Default for ActivityRule {
    fn default() -> ActivityRule {
        ActivityRule {
            fraction: 0.1,
            admit_at_once: 0.5,
            admit_after: 2,
            release_after: 3,
        }
    }
}

impl ActivityRule {
    /// How busy a thread was that ran for `ran` in `interval`.
    pub(super) fn load(&self, ran: Nanos, interval: Nanos, runnable: bool, entry: Entry) -> Load {
        let share = |f: f64| ran > Nanos::ZERO && ran.0 as f64 >= f * interval.0 as f64;
        let enters = match entry {
            Entry::Before => false,
            Entry::Now => runnable && share(self.fraction),
            Entry::Expected => runnable,
        };
        if share(self.admit_at_once) || enters {
            Load::Heavy
        } else if runnable || share(self.fraction) {
            Load::Busy
        } else {
            Load::Idle
        }
    }
}

/// When a thread appeared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Before the interval.
    Before,
    /// Within it.
    Now,
    /// Within it, and it is the next run of a program: the mechanism has given it the seat of the last
    /// one, or its place is known to the engine.
    Expected,
}

/// How busy a thread was in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Hardly ran, and does not wait for a CPU.
    Idle,
    /// Busy.
    Busy,
    /// Busy for most of the interval.
    Heavy,
}

/// What to do with a thread in this interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Offer it to the policy.
    Offer,
    /// Leave it as it is.
    Keep,
    /// Withdraw its placement.
    Release,
}

/// How busy a thread has been lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Activity {
    admitted: bool,
    /// Intervals in a row that spoke against the present state.
    against: u32,
}

impl Activity {
    /// Whether another idle interval would change nothing.
    pub(super) fn rests(&self) -> bool {
        !self.admitted && self.against == 0
    }

    pub(super) fn step(&mut self, load: Load, rule: &ActivityRule) -> Step {
        let busy = load != Load::Idle;
        self.against = if busy == self.admitted {
            0
        } else {
            self.against.saturating_add(1)
        };
        let needed = if self.admitted {
            rule.release_after
        } else {
            rule.admit_after
        };
        if self.against >= needed.max(1) || (load == Load::Heavy && !self.admitted) {
            self.admitted = busy;
            self.against = 0;
        }
        match (self.admitted, busy) {
            (true, true) => Step::Offer,
            (false, false) => Step::Release,
            _ => Step::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(busy: &[bool]) -> Vec<Step> {
        let mut a = Activity::default();
        let load = |b: &bool| if *b { Load::Busy } else { Load::Idle };
        busy.iter()
            .map(|b| a.step(load(b), &ActivityRule::default()))
            .collect()
    }

    #[test]
    fn a_blip_is_never_offered() {
        let s = steps(&[true, false, true, false, false]);
        assert!(!s.contains(&Step::Offer));
    }

    #[test]
    fn a_pause_keeps_the_place_and_a_rest_gives_it_up() {
        use Step::{Keep, Offer, Release};
        let s = steps(&[
            true, true, false, false, true, false, false, false, false, true,
        ]);
        assert_eq!(
            s,
            [Keep, Offer, Keep, Keep, Offer, Keep, Keep, Release, Release, Keep]
        );
    }

    #[test]
    fn who_ran_most_of_the_interval_is_offered_at_once() {
        assert_eq!(
            Activity::default().step(Load::Heavy, &ActivityRule::default()),
            Step::Offer
        );
    }

    #[test]
    fn busy_is_a_share_of_the_interval_or_waiting() {
        let r = ActivityRule::default();
        let i = Nanos::from_millis(100);
        for (ms, runnable, load) in [
            (0, false, Load::Idle),
            (9, false, Load::Idle),
            (0, true, Load::Busy),
            (10, false, Load::Busy),
            (50, false, Load::Heavy),
        ] {
            assert_eq!(
                r.load(Nanos::from_millis(ms), i, runnable, Entry::Before),
                load
            );
        }
        assert_eq!(
            r.load(Nanos::ZERO, Nanos::ZERO, false, Entry::Before),
            Load::Idle
        );
        // a new thread cannot have run for long yet
        for (ms, runnable, entry, load) in [
            (10, true, Entry::Now, Load::Heavy),
            (10, false, Entry::Now, Load::Busy),
            (9, true, Entry::Now, Load::Busy),
            (1, true, Entry::Expected, Load::Heavy),
            (1, false, Entry::Expected, Load::Idle),
        ] {
            assert_eq!(r.load(Nanos::from_millis(ms), i, runnable, entry), load);
        }
    }
}
