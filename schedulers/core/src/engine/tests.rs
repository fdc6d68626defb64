use super::*;
use crate::policy;
use crate::testing::{Fake, Noisy};
use amp_metrics::providers;

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
    assert_eq!((t.apps[1].threads, t.apps[1].runnable), (2, 1));
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
