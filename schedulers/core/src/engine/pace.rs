//! When the engine looks at the machine between two decisions.
//!
//! A decision is due once per interval, and a provider with several event sets needs a window of
//! each before it knows a thread: three or four intervals, where the shortest programs last six. So
//! while it is finding something out ([`amp_metrics::Provider::unsettled`]) the engine glances at the
//! machine every quarter of an interval, and decides at once when it has learned something.
//! Glances come out of an allowance, because each of them wakes user space.
//!
//! Where the machine tells of threads that have come ([`Engine::arrived`]), it is looked at an eighth of an interval later, and
//! there is a decision if one of them is known already: from an earlier run, because it was declared, or because a rule is for
//! it. A program of half a second is not to wait for its place for a tenth of a second. Who is not known is found out about from
//! then on, and has no place to wait for.

use super::activity::{Entry, Load};
use super::rest::Rest;
use super::{Engine, Tick};
use crate::machine::{Machine, MachineError};
use crate::view::ThreadView;
use amp_metrics::multiplex::PhaseRule;
use amp_metrics::{CoreTypeId, MetricId, Nanos, Snapshot, ThreadKey, ThreadSample};

/// Parts of an interval between two looks, while something is found out.
const PARTS: u64 = 4;
/// The least time between two looks: counters of threads that go on running are not read more often
/// for less.
const SHORTEST: Nanos = Nanos::from_millis(10);
/// Glances for threads of which nothing is known: how many may be made in a row, and per second in the
/// long run.
const UNKNOWN: Rate = Rate {
    most: 16.0,
    per_second: 3.0,
};
/// Glances for threads that have changed: their places are not wrong for certain.
const CHANGED: Rate = Rate {
    most: 4.0,
    per_second: 1.0,
};

/// Looks for threads that have come.
const ARRIVED: Rate = Rate {
    most: 4.0,
    per_second: 4.0,
};
/// Part of an interval in which others may come, too.
const TOGETHER: u64 = 8;

#[derive(Clone, Copy, Debug)]
struct Rate {
    most: f64,
    per_second: f64,
}

/// What is left of a rate.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    rate: Rate,
    left: f64,
}

impl Allowance {
    fn full(rate: Rate) -> Allowance {
        Allowance {
            rate,
            left: rate.most,
        }
    }

    fn fill(&mut self, seconds: f64) {
        self.left = (self.left + self.rate.per_second * seconds).min(self.rate.most);
    }

    fn any(&self) -> bool {
        self.left >= 1.0
    }
}

/// Whom a glance is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Somebody of whom nothing is known.
    Unknown,
    /// Somebody who has changed.
    Changed,
}

/// When to look again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    unknown: Allowance,
    changed: Allowance,
    arrived: Allowance,
    /// When to look at who has come.
    come: Option<Nanos>,
    /// The last look, glance or decision.
    looked: Option<Nanos>,
    /// Whom the next glance is for; none if the next look is to be a decision.
    next: Option<For>,
    pub(super) rest: Rest,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            unknown: Allowance::full(UNKNOWN),
            changed: Allowance::full(CHANGED),
            arrived: Allowance::full(ARRIVED),
            come: None,
            looked: None,
            next: None,
            rest: Rest::default(),
        }
    }
}

impl Pace {
    /// The machine was looked at at `now`, and something is being found out of somebody.
    pub(super) fn looked(&mut self, now: Nanos, unsettled: Option<For>) {
        let before = self.looked.replace(now).unwrap_or(now);
        self.come = self.come.filter(|at| *at > now);
        let since = now.saturating_sub(before).as_secs_f64();
        self.unknown.fill(since);
        self.changed.fill(since);
        self.arrived.fill(since);
        self.next = unsettled.filter(|whom| match whom {
            For::Unknown => self.unknown.any(),
            For::Changed => self.changed.any(),
        });
    }

    /// A glance is made at `now`.
    pub(super) fn take(&mut self, now: Nanos) {
        match self.next {
            _ if self.come.is_some_and(|at| at <= now) => self.arrived.left -= 1.0,
            Some(For::Changed) => self.changed.left -= 1.0,
            _ => self.unknown.left -= 1.0,
        }
    }

    /// Somebody has come. While something is found out, the next glance shows who.
    fn come(&mut self, now: Nanos, interval: Nanos) {
        if self.come.is_none() && self.next.is_none() && self.arrived.any() {
            self.come = Some(now + Nanos(interval.0 / TOGETHER));
        }
    }

    /// When the next glance is due, if that is before a decision that is due at `tick`.
    pub(super) fn glance(&self, interval: Nanos, tick: Nanos) -> Option<Nanos> {
        let part = Nanos(interval.0 / PARTS).max(SHORTEST);
        let at = self.next.and(self.looked)? + part;
        // a window between two looks is not to be shorter than the others
        (at + Nanos(part.0 / 2) < tick).then_some(at)
    }
}

impl Engine {
    /// When the engine is to be called next, with a decision every `interval`: at once at first.
    pub fn due(&self, interval: Nanos) -> Nanos {
        let Some(last) = self.last else {
            return Nanos::ZERO;
        };
        let tick = self.pace.rest.tick(last, interval);
        let next = self.pace.glance(interval, tick).unwrap_or(tick);
        self.pace.come.map_or(next, |at| next.min(at))
    }

    /// The machine says at `now` that threads have come and go on running, or that somebody runs although no decision has
    /// come for longer than an interval. [`Engine::due`] may be sooner for that.
    pub fn arrived(&mut self, now: Nanos, interval: Nanos) {
        let together = Nanos(interval.0 / TOGETHER);
        if self.pace.rest.wakes(now + together) {
            return;
        }
        // nobody is decided on early for whom there is neither a factor nor a rule
        if self.by_metrics || self.rulebook.is_some() {
            self.pace.come(now, interval);
        }
    }

    /// What is due now: [`Engine::glance`], if that is before the decision that comes every `interval`,
    /// and [`Engine::tick`] otherwise. `None` for a glance that led to no decision.
    ///
    /// # Errors
    /// When the machine can be scheduled no longer.
    pub fn call(
        &mut self,
        machine: &mut dyn Machine,
        interval: Nanos,
    ) -> Result<Option<Tick<'_>>, MachineError> {
        self.period = Some(interval);
        let now = machine.now();
        let come = self.pace.come.is_some_and(|at| at <= now);
        let early = self.last.is_some_and(|last| {
            let tick = self.pace.rest.tick(last, interval);
            now < tick && (come || self.pace.glance(interval, tick).is_some())
        });
        match early {
            true => self.glance(machine),
            false => self.tick(machine).map(Some),
        }
    }

    /// Has the provider see what has happened, and decides only if it knows a thread better for that.
    ///
    /// # Errors
    /// When the machine can be scheduled no longer.
    pub fn glance(&mut self, machine: &mut dyn Machine) -> Result<Option<Tick<'_>>, MachineError> {
        self.totals.glances += 1;
        self.pace.take(machine.now());
        let snapshot = machine.sample()?;
        self.provider.observe(snapshot);
        if self.knows_better() || self.knows_who_came(snapshot) {
            let (now, interval) = self.begin(snapshot);
            return self.decide(machine, now, interval).map(Some);
        }
        let now = snapshot.now;
        self.bury(snapshot);
        let provider = &*self.provider;
        machine.count(&|t| provider.active_set(t))?;
        self.set_pace(now);
        Ok(None)
    }

    /// The factor that says whose place it should be on a fast core.
    fn factor(&self, thread: ThreadKey) -> Option<f64> {
        let fastest = MetricId::SpeedupFactor(CoreTypeId::FASTEST);
        Some(self.provider.estimate(thread, fastest)?.value)
    }

    /// Keeps the factors by which is decided now.
    pub(super) fn note_factors(&mut self) {
        let mut placed_by = std::mem::take(&mut self.placed_by);
        placed_by.clear();
        placed_by.extend(self.offered.iter().map(|th| self.factor(th.key)));
        self.placed_by = placed_by;
    }

    /// Whether the provider knows a thread that it did not know at the last decision, or knows it as
    /// another: as different as two phases are.
    fn knows_better(&self) -> bool {
        let rule = PhaseRule::default();
        let mut all = self.offered.iter().zip(&self.placed_by);
        all.any(|(th, before)| match (before, self.factor(th.key)) {
            (None, now) => now.is_some(),
            (Some(before), Some(now)) => rule.departs(*before, now),
            (Some(_), None) => false,
        })
    }

    /// Whether somebody has come since the last decision, runs, and his place can be decided on.
    fn knows_who_came(&self, snapshot: &Snapshot) -> bool {
        let since = self
            .last
            .map_or(Nanos::ZERO, |last| snapshot.now.saturating_sub(last));
        let since = self.over(since);
        let enters = |t: &ThreadSample| {
            let ran = t.runtime.iter().copied().sum();
            self.rule.load(ran, since, t.runnable, Entry::Now) == Load::Heavy
        };
        let is_known = |t: &ThreadSample| {
            self.rulebook.is_some() || self.by_metrics && self.factor(t.key).is_some()
        };
        let mut new = snapshot
            .threads
            .iter()
            .filter(|t| self.states.get(t.key).is_none());
        new.any(|t| enters(t) && is_known(t))
    }

    /// The engine looked at the machine at `now`: how soon it looks again.
    pub(super) fn set_pace(&mut self, now: Nanos) {
        let unsettled = self.by_metrics && !self.offered.is_empty() && self.provider.unsettled();
        let unknown = |th: &ThreadView| self.factor(th.key).is_none();
        let whom = match unsettled && self.offered.iter().any(unknown) {
            true => For::Unknown,
            false => For::Changed,
        };
        self.pace.looked(now, unsettled.then_some(whom));
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
