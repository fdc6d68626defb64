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

/// Decisions in a row with nothing to decide on after which the machine is idle.
const STILL: u32 = 10;
/// Intervals between two decisions on an idle machine.
const AT_REST: u64 = 4;
/// Part of one CPU's time up to which a machine that has nobody to place is idle.
const IDLE: f64 = 0.05;

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
    /// The most time between two decisions on an idle machine; none if it is to be decided on as often as a busy one.
    rest: Option<Nanos>,
    /// Decisions in a row that found it idle.
    still: u32,
    /// Whether the last decision left the machine at rest.
    rested: bool,
    /// Not before that is the first decision after a rest.
    woken: Option<Nanos>,
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
            rest: None,
            still: 0,
            rested: false,
            woken: None,
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

    /// A decision found the machine idle, or at work.
    fn found(&mut self, idle: bool) {
        self.still = match idle {
            true => self.still.saturating_add(1),
            false => 0,
        };
    }

    /// Whether the machine is at rest.
    fn rests(&self) -> bool {
        self.rest.is_some() && self.still >= STILL
    }

    /// When the next decision is due after one at `last`, with one every `interval` on a machine at work.
    fn tick(&self, last: Nanos, interval: Nanos) -> Nanos {
        let longer = Nanos(interval.0.saturating_mul(AT_REST));
        let at = match self.rest.filter(|_| self.rests()) {
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
        let tick = self.pace.tick(last, interval);
        let next = self.pace.glance(interval, tick).unwrap_or(tick);
        self.pace.come.map_or(next, |at| next.min(at))
    }

    /// Decisions may come less often than every interval from now on while the machine is idle, with at most `most` between
    /// two. Only for whoever calls [`Engine::arrived`] as soon as somebody runs again.
    pub fn let_rest(&mut self, most: Nanos) {
        self.pace.rest = Some(most);
    }

    /// Whether the machine is idle, and decisions come less often.
    pub fn rests(&self) -> bool {
        self.pace.rests()
    }

    /// Notes whether the decision that is made now, `interval` after the last one, finds the machine idle: nobody is to be
    /// placed, and hardly anybody has run.
    pub(super) fn note_rest(&mut self, interval: Nanos) {
        let ran = self.app_ticks.iter().flat_map(|a| &a.ran);
        let ran: f64 = ran.map(|r| r.0 as f64).sum();
        let idle =
            self.offered.is_empty() && self.rulebook.is_none() && ran <= IDLE * interval.0 as f64;
        self.pace.found(idle);
        (self.pace.rested, self.pace.woken) = (self.pace.rests(), None);
    }

    /// What a thread's CPU time since the last decision, `passed` ago, is held against.
    pub(super) fn over(&self, passed: Nanos) -> Nanos {
        self.pace.over(passed, self.period)
    }

    /// The machine says at `now` that threads have come and go on running, or that somebody runs although no decision has
    /// come for longer than an interval. [`Engine::due`] may be sooner for that.
    pub fn arrived(&mut self, now: Nanos, interval: Nanos) {
        if self.pace.rests() {
            // two that find nothing to decide on, and it rests again: it may have been a daemon
            self.pace.still = STILL - 2;
            self.pace.woken = Some(now + Nanos(interval.0 / TOGETHER));
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
            let tick = self.pace.tick(last, interval);
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
mod tests {
    use super::*;
    use crate::machine::Placement;
    use crate::policy::{self, contract::Policy, knobs::Knobs};
    use crate::testing::{Fake, Noisy};
    use crate::view::View;
    use amp_metrics::{Estimate, Provider, Snapshot};
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    const INTERVAL: Nanos = Nanos::from_millis(100);

    /// A provider that knows a thread after so many windows.
    struct Learner {
        inner: Noisy,
        needs: u32,
        seen: HashMap<ThreadKey, u32>,
    }

    impl Provider for Learner {
        fn name(&self) -> &str {
            "learner"
        }
        fn observe(&mut self, s: &Snapshot) {
            self.inner.observe(s);
            for t in &s.threads {
                *self.seen.entry(t.key).or_default() += 1;
            }
        }
        fn estimate(&self, t: ThreadKey, m: MetricId) -> Option<Estimate> {
            let known = self.seen.get(&t).is_some_and(|n| *n >= self.needs);
            self.inner.estimate(t, m).filter(|_| known)
        }
        fn unsettled(&self) -> bool {
            self.seen.values().any(|n| *n < self.needs)
        }
    }

    fn lab(policy: &str, needs: u32) -> (Fake, Engine) {
        let fake = Fake::new(&[1, 2]);
        let provider = Learner {
            inner: Noisy::new(&[(1, 1.2), (2, 3.0)], 0.0, 1),
            needs,
            seen: HashMap::new(),
        };
        let made = policy::by_name(policy, 1).unwrap();
        let engine = Engine::new(fake.topology().clone(), made, Box::new(provider));
        (fake, engine)
    }

    /// What is due next, when it is due.
    fn call(e: &mut Engine, fake: &mut Fake) {
        let due = e.due(INTERVAL);
        // the machine is looked at when this has passed
        fake.interval = match due.saturating_sub(fake.now()) {
            Nanos::ZERO => INTERVAL,
            until => until,
        };
        // a glance is one by the time at which it is made
        let glance = e.totals().ticks > 0 && due < e.last.unwrap_or_default() + INTERVAL;
        match glance {
            true => drop(e.glance(fake).unwrap()),
            false => drop(e.tick(fake).unwrap()),
        }
    }

    #[test]
    fn an_idle_machine_is_looked_at_less_often() {
        let (mut fake, mut e) = lab("hsp", 1);
        let gap = |e: &Engine, fake: &Fake| e.due(INTERVAL).saturating_sub(fake.now());
        let idle = |e: &mut Engine, fake: &mut Fake, n: u32| {
            for _ in 0..n {
                call(e, fake);
            }
            gap(e, fake)
        };
        // whoever cannot be told of somebody who runs again goes on as before
        assert_eq!(idle(&mut e, &mut fake, 30), INTERVAL);
        let most = Nanos(5 * INTERVAL.0);
        e.let_rest(most);
        assert_eq!(gap(&e, &fake), Nanos(4 * INTERVAL.0));
        let ticks = e.totals().ticks;
        assert_eq!(idle(&mut e, &mut fake, 5), Nanos(4 * INTERVAL.0));
        assert_eq!(e.totals().ticks, ticks + 5);
        // somebody runs: a decision is due an interval after the last one, and then every interval
        let last = fake.now();
        let early = Nanos(INTERVAL.0 / 8);
        e.arrived(last + Nanos(1), INTERVAL);
        assert_eq!(e.due(INTERVAL), last + INTERVAL, "as without a rest");
        for _ in 0..10 {
            call(&mut e, &mut fake);
        }
        let now = fake.now() + Nanos(3 * INTERVAL.0);
        e.arrived(now, INTERVAL);
        assert_eq!(e.due(INTERVAL), now + early);
        fake.spawn(1);
        assert_eq!(idle(&mut e, &mut fake, 20), INTERVAL);
    }

    #[test]
    fn who_is_new_is_known_and_placed_within_an_interval() {
        let (mut fake, mut e) = lab("hsp", 4);
        call(&mut e, &mut fake);
        let began = fake.now();
        let fast = fake.spawn(2);
        fake.spawn(1);
        call(&mut e, &mut fake);
        // whoever is taken of two that nobody knows
        assert_ne!(fake.thread(fast).placed, Some(CoreTypeId::FASTEST));
        while fake.thread(fast).placed != Some(CoreTypeId::FASTEST) {
            call(&mut e, &mut fake);
            assert!(fake.now() < began + INTERVAL + INTERVAL, "too late");
        }
        // a whole interval until it was seen, and three quarters until it was known
        let took = fake.now().saturating_sub(began);
        assert_eq!(took, Nanos::from_millis(175));
        assert_eq!(e.totals().glances, 3);
        // nothing is to be found out any more: one look per interval
        for _ in 0..50 {
            call(&mut e, &mut fake);
        }
        assert_eq!((e.totals().glances, e.totals().ticks), (3, 53));
    }

    /// Lets so much time pass without a look.
    fn pass(fake: &mut Fake, ms: u64) {
        fake.interval = Nanos::from_millis(ms);
        fake.run();
        fake.interval = Nanos::ZERO;
    }

    #[test]
    fn who_comes_and_is_known_is_decided_on_soon() {
        let (mut fake, mut e) = lab("hsp", 1);
        e.period = Some(INTERVAL);
        call(&mut e, &mut fake);
        pass(&mut fake, 30);
        let fast = fake.spawn(2);
        pass(&mut fake, 6);
        e.arrived(fake.now(), INTERVAL);
        let due = fake.now() + Nanos(INTERVAL.0 / 8);
        fake.spawn(1);
        pass(&mut fake, 6);
        e.arrived(fake.now(), INTERVAL);
        assert_eq!(e.due(INTERVAL), due);
        pass(&mut fake, 7);
        assert!(e.call(&mut fake, INTERVAL).unwrap().is_some());
        assert_eq!((e.totals().ticks, e.offered().len()), (2, 2));
        assert_eq!(fake.thread(fast).placed, Some(CoreTypeId::FASTEST));
        // the interval begins anew with that
        assert_eq!(e.due(INTERVAL), fake.now() + INTERVAL);
    }

    #[test]
    fn who_comes_is_nothing_to_a_policy_without_metrics() {
        let (mut fake, mut e) = lab("rr", 1);
        e.period = Some(INTERVAL);
        call(&mut e, &mut fake);
        pass(&mut fake, 30);
        e.arrived(fake.now(), INTERVAL);
        assert_eq!(e.due(INTERVAL), INTERVAL + INTERVAL);
    }

    /// It is found out about from then on, and decided on when it is known.
    #[test]
    fn who_comes_and_is_not_known_has_no_place_to_wait_for() {
        let (mut fake, mut e) = lab("hsp", 3);
        e.period = Some(INTERVAL);
        call(&mut e, &mut fake);
        pass(&mut fake, 30);
        let fast = fake.spawn(2);
        pass(&mut fake, 6);
        e.arrived(fake.now(), INTERVAL);
        pass(&mut fake, 13);
        assert!(e.call(&mut fake, INTERVAL).unwrap().is_none());
        assert_eq!(fake.thread(fast).placed, None);
        // the decision comes in time
        assert_eq!(e.due(INTERVAL), INTERVAL + INTERVAL);
        assert_eq!((e.totals().ticks, e.totals().glances), (1, 1));
    }

    #[test]
    fn whoever_comes_user_space_is_woken_four_times_a_second_more() {
        let (mut fake, mut e) = lab("hsp", u32::MAX);
        e.period = Some(INTERVAL);
        while fake.now() < Nanos::from_secs(60) {
            pass(&mut fake, 10);
            e.arrived(fake.now(), INTERVAL);
            if e.due(INTERVAL) <= fake.now() {
                e.call(&mut fake, INTERVAL).unwrap();
            }
        }
        let most = 60.0 * ARRIVED.per_second + ARRIVED.most;
        let glances = e.totals().glances as f64;
        assert!((most / 2.0..=most).contains(&glances), "{glances}");
        assert!((599..=601).contains(&e.totals().ticks));
    }

    #[test]
    fn who_is_never_known_wakes_user_space_three_times_a_second() {
        let (mut fake, mut e) = lab("hsp", u32::MAX);
        fake.spawn(1);
        while fake.now() < Nanos::from_secs(60) {
            call(&mut e, &mut fake);
        }
        let glances = e.totals().glances as f64;
        assert!(
            (170.0..=UNKNOWN.most + 60.0 * UNKNOWN.per_second).contains(&glances),
            "{glances}"
        );
        // decisions come in time nevertheless
        assert!(
            (598..=601).contains(&e.totals().ticks),
            "{}",
            e.totals().ticks
        );
    }

    /// While nobody knows them, two share a fast core equally, and whoever gains more from it falls
    /// behind: that is made up for once they are known.
    #[test]
    fn what_was_done_before_it_was_known_counts() {
        // known after 700 ms
        let (mut fake, mut e) = lab("acfs", 20);
        e.policy_mut().knobs_mut().set("t_swap", "100").unwrap();
        let both = [(fake.spawn(1), 1.2), (fake.spawn(2), 3.0)];
        while fake.now() < Nanos::from_secs(2) {
            call(&mut e, &mut fake);
        }
        let slowdown = both.map(|(key, sf)| {
            let [fast, slow, ..] = fake.thread(key).runtime.map(|r| r.as_secs_f64());
            (fast + slow) / (fast + slow / sf)
        });
        let unfairness = slowdown[1] / slowdown[0];
        assert!(
            (0.95..1.05).contains(&unfairness),
            "{unfairness:.3}, {slowdown:.3?}"
        );
    }

    /// Notes interval and period of every decision.
    struct Clocked(Arc<Mutex<Vec<(u64, u64)>>>, Knobs);

    impl Policy for Clocked {
        fn place(&mut self, view: &View<'_>, _: &mut Placement) {
            let both = (view.interval.as_millis(), view.period.as_millis());
            self.0.lock().unwrap().push(both);
        }
        fn knobs(&self) -> &Knobs {
            &self.1
        }
        fn knobs_mut(&mut self) -> &mut Knobs {
            &mut self.1
        }
    }

    /// `acfs` counts turns in periods: counted in intervals that a glance has shortened, they would
    /// change with what others do.
    #[test]
    fn a_decision_that_was_hurried_knows_the_usual_period() {
        let (mut fake, mut e) = lab("hsp", 4);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let knobs = policy::by_name("hsp", 1).unwrap().knobs().clone();
        e.set_policy(Box::new(Clocked(seen.clone(), knobs)));
        e.by_metrics = true;
        fake.spawn(1);
        for _ in 0..20 {
            let due = e.due(INTERVAL);
            fake.interval = due.saturating_sub(fake.now()).max(Nanos::from_millis(1));
            e.call(&mut fake, INTERVAL).unwrap();
        }
        let seen = seen.lock().unwrap();
        assert!(seen.iter().all(|s| s.1 == 100), "{seen:?}");
        assert!(seen.iter().skip(1).any(|s| s.0 < 100), "{seen:?}");
    }

    #[test]
    fn a_policy_without_metrics_is_in_no_hurry() {
        let (mut fake, mut e) = lab("rr", u32::MAX);
        fake.spawn(1);
        for _ in 0..20 {
            call(&mut e, &mut fake);
        }
        assert_eq!(e.totals().glances, 0);
    }

    #[test]
    fn a_quarter_of_an_interval_while_something_is_found_out() {
        let mut p = Pace::default();
        let (now, tick) = (Nanos::from_millis(1000), Nanos::from_millis(1100));
        p.looked(now, None);
        assert_eq!(p.glance(INTERVAL, tick), None);
        p.looked(now, Some(For::Unknown));
        assert_eq!(p.glance(INTERVAL, tick), Some(Nanos::from_millis(1025)));
        // a decision is as near
        assert_eq!(p.glance(INTERVAL, Nanos::from_millis(1030)), None);
        // short intervals have none
        assert_eq!(
            p.glance(Nanos::from_millis(10), Nanos::from_millis(1010)),
            None
        );
    }

    #[test]
    fn who_has_changed_takes_nothing_from_who_is_unknown() {
        let mut p = Pace::default();
        let now = Nanos::from_secs(1);
        let tick = now + INTERVAL;
        for _ in 0..4 {
            p.looked(now, Some(For::Changed));
            assert!(p.glance(INTERVAL, tick).is_some());
            p.take(now);
        }
        p.looked(now, Some(For::Changed));
        assert_eq!(p.glance(INTERVAL, tick), None);
        for _ in 0..UNKNOWN.most as u32 {
            p.looked(now, Some(For::Unknown));
            assert!(p.glance(INTERVAL, tick).is_some());
            p.take(now);
        }
        p.looked(now, Some(For::Unknown));
        assert_eq!(p.glance(INTERVAL, tick), None);
    }

    proptest! {
        /// However much is unsettled, glances stay within the allowance.
        #[test]
        fn glances_are_bounded(
            steps in proptest::collection::vec((1u64..200, 0usize..3), 1..400),
        ) {
            let mut p = Pace::default();
            let (mut now, mut glances) = (Nanos::from_secs(1), 0);
            for (ms, whom) in steps {
                now += Nanos::from_millis(ms);
                p.looked(now, [None, Some(For::Unknown), Some(For::Changed)][whom]);
                if p.glance(INTERVAL, now + INTERVAL).is_some() {
                    p.take(now);
                    glances += 1;
                }
            }
            let seconds = now.as_secs_f64() - 1.0;
            let most = |r: Rate| r.most + r.per_second * seconds;
            prop_assert!(f64::from(glances) <= most(UNKNOWN) + most(CHANGED) + 1e-6);
        }
    }
}
