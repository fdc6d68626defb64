//! Decisions come less often while the machine is idle.

use super::Engine;
use amp_metrics::Nanos;

/// Decisions in a row with nothing to decide on after which the machine is idle.
const STILL: u32 = 10;
/// Intervals between two decisions on an idle machine.
const AT_REST: u64 = 4;
/// Part of one CPU's time up to which a machine that has nobody to place is idle.
const IDLE: f64 = 0.05;

/// Whether the machine is idle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// The most time between two decisions on an idle machine; none if it is to be decided on as often as a busy one.
    most: Option<Nanos>,
    /// Decisions in a row that found it idle.
    still: u32,
    /// Whether the last decision left the machine at rest.
    rested: bool,
    /// Not before that is the first decision after a rest.
    woken: Option<Nanos>,
}

impl Rest {
    /// A decision found the machine idle, or at work.
    fn found(&mut self, idle: bool) {
        self.still = match idle {
            true => self.still.saturating_add(1),
            false => 0,
        };
        (self.rested, self.woken) = (self.rests(), None);
    }

    /// Whether the machine is at rest.
    fn rests(&self) -> bool {
        self.most.is_some() && self.still >= STILL
    }

    /// Somebody runs: a machine at rest is decided on at `at`. Whether it was at rest.
    pub(super) fn wakes(&mut self, at: Nanos) -> bool {
        let rests = self.rests();
        if rests {
            // two that find nothing to decide on, and it rests again: it may have been a daemon
            self.still = STILL - 2;
            self.woken = Some(at);
        }
        rests
    }

    /// When the next decision is due after one at `last`, with one every `interval` on a machine at work.
    pub(super) fn tick(&self, last: Nanos, interval: Nanos) -> Nanos {
        let longer = Nanos(interval.0.saturating_mul(AT_REST));
        let at = match self.most.filter(|_| self.rests()) {
            Some(most) => last + longer.min(most).max(interval),
            None => last + interval,
        };
        self.woken.map_or(at, |w| at.max(w))
    }

    /// What a thread's CPU time of the last `passed` is held against: after a rest an interval, for it began to run at the
    /// end of it.
    fn over(&self, passed: Nanos, interval: Option<Nanos>) -> Nanos {
        match interval {
            Some(interval) if self.rested => passed.min(interval),
            _ => passed,
        }
    }
}

impl Engine {
    /// Decisions may come less often than every interval from now on while the machine is idle, with at most `most` between
    /// two. Only for whoever calls [`Engine::arrived`] as soon as somebody runs again.
    pub fn let_rest(&mut self, most: Nanos) {
        self.pace.rest.most = Some(most);
    }

    /// Whether the machine is idle, and decisions come less often.
    pub fn rests(&self) -> bool {
        self.pace.rest.rests()
    }

    /// Notes whether the decision that is made now, `interval` after the last one, finds the machine idle: nobody is to be
    /// placed, and hardly anybody has run.
    pub(super) fn note_rest(&mut self, interval: Nanos) {
        let ran = self.app_ticks.iter().flat_map(|a| &a.ran);
        let ran: f64 = ran.map(|r| r.0 as f64).sum();
        let idle =
            self.offered.is_empty() && self.rulebook.is_none() && ran <= IDLE * interval.0 as f64;
        self.pace.rest.found(idle);
    }

    /// What a thread's CPU time since the last decision, `passed` ago, is held against.
    pub(super) fn over(&self, passed: Nanos) -> Nanos {
        self.pace.rest.over(passed, self.period)
    }
}
