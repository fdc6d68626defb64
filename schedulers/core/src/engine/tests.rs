use super::*;
use crate::policy;
use crate::testing::{Fake, Noisy};
use amp_metrics::providers;
use amp_metrics::{CoreTypeId, CoreTypeSet};
use proptest::prelude::*;

fn engine(fake: &Fake, name: &str) -> Engine {
    let none = providers::by_name("none").unwrap();
    Engine::new(
        fake.topology().clone(),
        policy::by_name(name, 1).unwrap(),
        none,
    )
}

#[test]
fn only_busy_threads_are_placed_and_idle_ones_released() {
    let mut fake = Fake::new(&[1, 1]);
    let (a, b) = (fake.spawn(1), fake.spawn(2));
    fake.thread(b).runnable = false;
    let mut e = engine(&fake, "rr");
    for _ in 0..5 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(fake.thread(a).placed, Some(CoreTypeId(0)));
    assert_eq!(fake.thread(b).placed, None);
    fake.thread(a).runnable = false;
    for left in [true, true, false] {
        e.tick(&mut fake).unwrap();
        assert_eq!(fake.thread(a).placed.is_some(), left);
    }
}

#[test]
fn a_steady_state_applies_nothing() {
    let mut fake = Fake::new(&[2, 4]);
    for app in 0..4 {
        fake.spawn(app);
    }
    let mut e = engine(&fake, "hsp");
    e.set_provider(Box::new(Noisy::new(
        &[(0, 3.0), (1, 2.0), (2, 1.5), (3, 1.2)],
        0.0,
        1,
    )));
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    let t = e.tick(&mut fake).unwrap();
    assert_eq!((t.changes, t.swaps, t.offered), (0, 0, 4));
}

#[test]
fn a_tick_tells_what_each_application_ran() {
    let mut fake = Fake::new(&[1, 1]);
    let keys = [fake.spawn(7), fake.spawn(7)];
    fake.spawn(3);
    fake.thread(keys[0]).allowed = CoreTypeSet::EMPTY.with(CoreTypeId(1));
    fake.thread(keys[1]).runnable = false;
    let mut e = engine(&fake, "rr");
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    let t = e.tick(&mut fake).unwrap();
    assert_eq!(t.interval, Nanos::from_millis(100));
    assert_eq!(t.apps.iter().map(|a| a.app.0).collect::<Vec<_>>(), [3, 7]);
    assert_eq!(t.apps[1].runnable, 1);
    assert_eq!(t.apps[1].ran[..2], [Nanos::ZERO, Nanos::from_millis(100)]);
    assert_eq!(t.apps[0].ran[..2], [Nanos::from_millis(100), Nanos::ZERO]);
}

#[test]
fn what_ran_before_the_engine_came_is_not_counted() {
    let mut fake = Fake::new(&[1, 1]);
    fake.spawn(1);
    for _ in 0..50 {
        fake.run();
    }
    let mut e = engine(&fake, "rr");
    assert_eq!(
        e.tick(&mut fake).unwrap().apps[0].ran,
        [Nanos::ZERO; MAX_CORE_TYPES]
    );
    assert_eq!(
        e.tick(&mut fake).unwrap().apps[0].ran[0],
        Nanos::from_millis(100)
    );
}

#[test]
fn swaps_are_counted_in_pairs() {
    let mut fake = Fake::new(&[1, 1]);
    fake.spawn(1);
    fake.spawn(2);
    let mut e = engine(&fake, "rr");
    let mut seen = 0;
    for _ in 0..100 {
        let t = e.tick(&mut fake).unwrap();
        seen += t.swaps as u64;
        assert!(t.swaps == 0 || t.changes == 2);
    }
    assert!(seen > 10 && e.totals().swaps == seen);
}

#[test]
fn policy_and_provider_are_exchanged_while_threads_keep_their_place() {
    let mut fake = Fake::new(&[1, 1]);
    let keys = [fake.spawn(1), fake.spawn(2)];
    let mut e = engine(&fake, "hsp");
    e.set_provider(Box::new(Noisy::new(&[(1, 1.0), (2, 3.0)], 0.0, 1)));
    for _ in 0..5 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(fake.thread(keys[1]).placed, Some(CoreTypeId(0)));
    e.set_policy(policy::by_name("hsp", 1).unwrap());
    e.set_provider(Box::new(Noisy::new(&[(1, 3.0), (2, 1.0)], 0.0, 1)));
    assert_eq!(e.tick(&mut fake).unwrap().swaps, 1);
    assert_eq!(fake.thread(keys[0]).placed, Some(CoreTypeId(0)));
}

/// A book without rules: with one, the engine looks at every thread at every tick.
struct NoRules;

impl Rulebook for NoRules {
    fn begin(&mut self, _: Nanos) {}
    fn rule(&mut self, _: &amp_metrics::ThreadSample) -> Option<Rule> {
        None
    }
}

/// A machine that tells who rests and who is gone.
struct Telling<'a> {
    fake: &'a mut Fake,
    told: &'a mut Told,
}

#[derive(Default)]
struct Told {
    snapshot: Snapshot,
    /// Run time, and snapshots without a sign of life.
    known: std::collections::BTreeMap<ThreadKey, ([Nanos; MAX_CORE_TYPES], u8)>,
}

impl Machine for Telling<'_> {
    fn topology(&self) -> &Topology {
        self.fake.topology()
    }
    fn sample(&mut self) -> Result<&Snapshot, MachineError> {
        let Told { snapshot, known } = &mut *self.told;
        let now = self.fake.sample()?;
        (snapshot.now, snapshot.threads, snapshot.resting) = (now.now, Vec::new(), Vec::new());
        let here = |key: &ThreadKey| now.threads.iter().any(|t| t.key == *key);
        snapshot.ended.clone_from(&now.ended);
        snapshot.gone = known.keys().filter(|k| !here(k)).copied().collect();
        known.retain(|k, _| here(k));
        for t in &now.threads {
            let (runtime, quiet) = known.entry(t.key).or_insert((t.runtime, 0));
            let restless = *runtime != t.runtime || t.runnable || t.placed.is_some();
            *quiet = if restless { 0 } else { quiet.saturating_add(1) };
            *runtime = t.runtime;
            match *quiet >= amp_metrics::RESTING_AFTER {
                true => snapshot.resting.push(*t),
                false => snapshot.threads.push(*t),
            }
        }
        Ok(&self.told.snapshot)
    }
    fn apply(&mut self, placement: &Placement) -> Result<(), MachineError> {
        self.fake.apply(placement)
    }
    fn now(&self) -> Nanos {
        self.fake.now()
    }
}

proptest! {
    /// Passing over threads that rest changes no decision, whether the machine tells or not.
    #[test]
    fn threads_that_rest_are_passed_over_without_a_trace(
        events in proptest::collection::vec(proptest::collection::vec((0u32..12, 0u8..6), 0..3), 1..120),
        policy in prop_oneof![Just("rr"), Just("acfs"), Just("hsp")],
    ) {
        let mut labs: Vec<(Fake, Engine, Option<Told>)> = (0..3)
            .map(|way| {
                let mut fake = Fake::new(&[2, 2]);
                for app in 0..6 {
                    fake.spawn(app / 2);
                }
                let mut e = engine(&fake, policy);
                if way == 1 {
                    e.set_rules(Some(Box::new(NoRules)));
                }
                (fake, e, (way == 2).then(Told::default))
            })
            .collect();
        for events in events {
            let mut seen = Vec::new();
            for (fake, e, told) in &mut labs {
                for (thread, what) in &events {
                    let nth = *thread as usize % fake.snapshot.threads.len().max(1);
                    let Some(t) = fake.snapshot.threads.get_mut(nth) else { continue };
                    match what {
                        0 | 1 => t.runnable = true,
                        // ran for a moment, and sleeps again
                        2 => t.runtime[1] += Nanos::from_millis(3),
                        3 | 4 => t.runnable = false,
                        _ => {
                            let (key, app) = (t.key, t.app.0);
                            fake.exit(key);
                            fake.spawn(app);
                        }
                    }
                }
                let (offered, apps) = {
                    let t = match told {
                        Some(told) => e.tick(&mut Telling { fake: &mut *fake, told }).unwrap(),
                        None => e.tick(fake).unwrap(),
                    };
                    let apps: Vec<_> = t.apps.iter().filter(|a| a.ran != [Nanos::ZERO; MAX_CORE_TYPES]).copied().collect();
                    (t.offered, apps)
                };
                let placed: Vec<_> = fake.snapshot.threads.iter().map(|t| (t.key, t.placed)).collect();
                let done: Vec<_> = fake.snapshot.threads.iter().map(|t| e.done(t.key).is_some()).collect();
                seen.push((offered, apps, placed, done, e.totals()));
            }
            prop_assert_eq!(&seen[0], &seen[1]);
            prop_assert_eq!(&seen[0], &seen[2]);
        }
    }
}

/// A machine on which nobody gets any further.
struct Stands<'a>(&'a mut Fake);

impl Machine for Stands<'_> {
    fn topology(&self) -> &Topology {
        self.0.topology()
    }
    fn sample(&mut self) -> Result<&Snapshot, MachineError> {
        self.0.snapshot.now += Nanos::from_millis(100);
        Ok(&self.0.snapshot)
    }
    fn apply(&mut self, placement: &Placement) -> Result<(), MachineError> {
        self.0.apply(placement)
    }
    fn now(&self) -> Nanos {
        self.0.snapshot.now
    }
}

#[test]
fn who_is_placed_when_it_appears_is_offered_at_once() {
    let mut fake = Fake::new(&[1, 1]);
    let (a, _) = (fake.spawn(1), fake.spawn(2));
    let mut e = engine(&fake, "rr");
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(e.offered().len(), 2);
    // it ends, and the mechanism lets the next of its name, which has hardly run, have its place
    fake.exit(a);
    let b = fake.spawn(1);
    fake.thread(b).placed = Some(CoreTypeId(0));
    fake.thread(b).runtime[0] = Nanos(1);
    e.tick(&mut Stands(&mut fake)).unwrap();
    assert!(e.offered().iter().any(|t| t.key == b));
}

/// A program of short runs would otherwise get half an interval of each for nothing.
#[test]
fn what_a_run_did_after_the_last_decision_counts_for_the_next() {
    let mut fake = Fake::new(&[1, 1]);
    let (a, _) = (fake.spawn(1), fake.spawn(2));
    let mut e = engine(&fake, "rr");
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    // it runs for 70 ms more, and another one for 20 ms that nobody sees
    let name = fake.thread(a).comm;
    fake.exit(a);
    fake.ended[0].runtime[0] += Nanos::from_millis(70);
    let unseen = fake.spawn(1);
    fake.thread(unseen).comm = name;
    fake.exit(unseen);
    fake.ended[1].runtime[1] = Nanos::from_millis(20);
    let b = fake.spawn(1);
    fake.thread(b).comm = name;
    let tick = e.tick(&mut fake).unwrap();
    let told = |t| tick.apps.iter().find(|a| a.app == AppId(t)).map(|a| a.ran);
    let first = told(1).unwrap();
    assert_eq!(
        first.iter().copied().sum::<Nanos>(),
        Nanos::from_millis(190)
    );
    let all = |e: &Engine| {
        let th = e.offered().iter().find(|t| t.key == b).unwrap();
        (th.succeeds, th.ran.iter().copied().sum::<Nanos>())
    };
    // and it ran through the interval itself
    assert_eq!(all(&e), (Some(a), Nanos::from_millis(190)));
    e.tick(&mut fake).unwrap();
    assert_eq!(all(&e), (Some(a), Nanos::from_millis(100)), "told once");
}

#[test]
fn the_next_run_of_a_program_is_offered_at_once() {
    let mut fake = Fake::new(&[1, 1]);
    let (a, _) = (fake.spawn(1), fake.spawn(2));
    let mut e = engine(&fake, "rr");
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    let name = fake.thread(a).comm;
    fake.exit(a);
    // both have hardly run
    let (next, other) = (fake.spawn(1), fake.spawn(3));
    fake.thread(next).comm = name;
    for new in [next, other] {
        fake.thread(new).runtime[0] = Nanos(1);
    }
    fake.snapshot.ended = std::mem::take(&mut fake.ended);
    e.tick(&mut Stands(&mut fake)).unwrap();
    let offered = |k| e.offered().iter().any(|t| t.key == k);
    assert!(offered(next) && !offered(other));
}

/// A policy that does everything wrong.
struct Wrong(policy::Knobs);

impl Policy for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }
    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        out.place(
            ThreadKey {
                slot: 99,
                generation: 9,
            },
            CoreTypeId(0),
        );
        for t in view.threads {
            out.place(t.key, CoreTypeId(0)); // outside the affinity
            out.place(t.key, CoreTypeId(7)); // no such type
            out.place(t.key, CoreTypeId(1));
            out.place(t.key, CoreTypeId(1)); // once more
        }
    }
    fn knobs(&self) -> &policy::Knobs {
        &self.0
    }
    fn knobs_mut(&mut self) -> &mut policy::Knobs {
        &mut self.0
    }
}

#[test]
fn a_wrong_policy_does_no_harm() {
    let mut fake = Fake::new(&[1, 1]);
    let a = fake.spawn(1);
    fake.thread(a).allowed = CoreTypeSet::EMPTY.with(CoreTypeId(1));
    let mut e = engine(&fake, "rr");
    e.set_policy(Box::new(Wrong(policy::Knobs::new("wrong", &[]))));
    e.tick(&mut fake).unwrap();
    assert_eq!(e.totals().refused, 1);
    e.tick(&mut fake).unwrap();
    assert_eq!(fake.thread(a).placed, Some(CoreTypeId(1)));
    assert_eq!(e.totals().refused, 5);
}

#[test]
fn threads_come_and_go() {
    let mut fake = Fake::new(&[2, 2]);
    let mut e = engine(&fake, "rr");
    for i in 0..200u64 {
        let k = fake.spawn(i);
        e.tick(&mut fake).unwrap();
        if i % 3 == 0 {
            fake.exit(k);
        }
        assert!(e.states.len() <= fake.snapshot.threads.len() + 1);
    }
}

/// A machine that keeps whether it was told to lend.
struct Lends<'a>(&'a mut Fake, Option<bool>);

impl Machine for Lends<'_> {
    fn topology(&self) -> &Topology {
        self.0.topology()
    }
    fn sample(&mut self) -> Result<&Snapshot, MachineError> {
        self.0.sample()
    }
    fn apply(&mut self, placement: &Placement) -> Result<(), MachineError> {
        self.0.apply(placement)
    }
    fn lend(&mut self, fast: bool) {
        self.1 = Some(fast);
    }
    fn now(&self) -> Nanos {
        self.0.now()
    }
}

#[test]
fn fast_cores_are_lent_under_the_policies_that_want_it() {
    let mut fake = Fake::new(&[1, 1]);
    fake.spawn(1);
    let mut e = engine(&fake, "hsp");
    for name in policy::NAMES {
        e.set_policy(policy::by_name(name, 1).unwrap());
        let mut machine = Lends(&mut fake, None);
        e.tick(&mut machine).unwrap();
        let wanted = ["acfs", "pareto"].contains(name);
        assert_eq!(machine.1, Some(wanted), "{name}");
    }
}
