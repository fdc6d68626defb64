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
