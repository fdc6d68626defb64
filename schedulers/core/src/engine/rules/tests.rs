use super::*;
use crate::engine::Engine;
use crate::machine::Machine;
use crate::policy;
use crate::testing::{Fake, Noisy};
use crate::Done;
use amp_metrics::{AppId, Nanos};
use proptest::prelude::*;

/// Rules by application.
struct ByApp(Vec<(u64, Rule)>);

impl Rulebook for ByApp {
    fn begin(&mut self, _now: Nanos) {}

    fn rule(&mut self, thread: &ThreadSample) -> Option<Rule> {
        let found = self.0.iter().find(|(app, _)| AppId(*app) == thread.app);
        found.map(|(_, rule)| *rule)
    }
}

const FAST: CoreTypeId = CoreTypeId(0);
const SLOW: CoreTypeId = CoreTypeId(1);

fn hsp(fake: &Fake, factors: &[(u64, f64)], rules: Vec<(u64, Rule)>) -> Engine {
    let mut e = Engine::new(
        fake.topology().clone(),
        policy::by_name("hsp", 1).unwrap(),
        Box::new(Noisy::new(factors, 0.0, 1)),
    );
    e.set_rules(Some(Box::new(ByApp(rules))));
    e
}

fn prefer(prefer: Prefer) -> Rule {
    Rule {
        number: 1,
        prefer,
        ..Rule::default()
    }
}

#[test]
fn who_prefers_fast_cores_gets_one_and_who_prefers_slow_ones_leaves_it() {
    let mut fake = Fake::new(&[1, 2]);
    let [gains, some, none] = [0, 1, 2].map(|app| fake.spawn(app));
    let factors = [(0, 3.0), (1, 2.0), (2, 1.0)];
    let mut e = hsp(&fake, &factors, vec![(2, prefer(Prefer::Fast))]);
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(fake.thread(none).placed, Some(FAST));
    assert_eq!(fake.thread(gains).placed, Some(SLOW));
    assert_eq!(e.rule(none).unwrap().prefer, Prefer::Fast);
    assert_eq!(e.rule(gains), None);
    // nothing moves once everybody is in place, although the policy would have it otherwise
    let swaps = e.totals().swaps;
    for _ in 0..10 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(e.totals().swaps, swaps);

    e.set_rules(Some(Box::new(ByApp(vec![(0, prefer(Prefer::Slow))]))));
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(fake.thread(gains).placed, Some(SLOW));
    let on_fast = [some, none].map(|k| fake.thread(k).placed == Some(FAST));
    assert_eq!(on_fast.iter().filter(|f| **f).count(), 1);

    // who prefers what all others prefer, too, leaves it to the policy
    let all = [0, 1, 2].map(|app| (app, prefer(Prefer::Fast)));
    e.set_rules(Some(Box::new(ByApp(all.to_vec()))));
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(fake.thread(gains).placed, Some(FAST));
    assert_eq!(e.totals().refused, 0);
}

#[test]
fn a_bound_on_its_slowdown_gives_a_thread_the_time_on_fast_cores_that_it_takes() {
    const BOUND: f64 = 1.25;
    let bound = |prefer| Rule {
        number: 1,
        prefer,
        slowdown: Some(BOUND),
        ..Rule::default()
    };
    // alone it would be where it gains least: on a slow core, half as fast
    let factors = [(0, 3.0), (1, 3.0), (2, 2.0)];
    let slowdown = |rules: Vec<(u64, Rule)>| {
        let mut fake = Fake::new(&[1, 2]);
        let keys = [0, 1, 2].map(|app| fake.spawn(app));
        let mut e = hsp(&fake, &factors, rules);
        for _ in 0..1000 {
            e.tick(&mut fake).unwrap();
        }
        assert_eq!(e.totals().refused, 0);
        let before = e.done(keys[2]).unwrap();
        for _ in 0..500 {
            e.tick(&mut fake).unwrap();
        }
        let after = e.done(keys[2]).unwrap();
        (after.rated - before.rated) / (after.alone - before.alone)
    };
    assert!((slowdown(Vec::new()) - 2.0).abs() < 1e-9);
    for prefer in [Prefer::Any, Prefer::Slow] {
        let kept = slowdown(vec![(2, bound(prefer))]);
        // neither slower nor much faster than it must be
        assert!((kept - BOUND).abs() < 0.01, "{prefer:?}: {kept}");
    }
}

#[test]
fn never_fast_holds_for_threads_that_rest_and_ends_with_the_rule() {
    let mut fake = Fake::new(&[2, 2]);
    let keys = [0, 1].map(|app| fake.spawn(app));
    fake.thread(keys[1]).runnable = false;
    let never = Rule {
        number: 1,
        never_fast: true,
        ..Rule::default()
    };
    let rules = vec![(0, never), (1, never)];
    let mut e = hsp(&fake, &[(0, 3.0), (1, 3.0)], rules);
    for _ in 0..6 {
        e.tick(&mut fake).unwrap();
        for k in keys {
            assert_eq!(fake.thread(k).placed, Some(SLOW));
        }
    }
    assert_eq!(e.totals().refused, 0);
    e.set_rules(None);
    for _ in 0..6 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(fake.thread(keys[0]).placed, Some(FAST));
    assert_eq!(fake.thread(keys[1]).placed, None);
    // a thread whose affinity allows nothing else is left there
    fake.thread(keys[0]).allowed = CoreTypeSet::EMPTY.with(FAST);
    e.set_rules(Some(Box::new(ByApp(vec![(0, never)]))));
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(fake.thread(keys[0]).placed, Some(FAST));
    assert_eq!(e.totals().refused, 0);
}

#[test]
fn weight_is_what_the_policy_sees_and_a_thread_may_be_left_out() {
    let mut fake = Fake::new(&[1, 2]);
    let keys = [0, 1].map(|app| fake.spawn(app));
    let heavy = Rule {
        weight: Some(400),
        ..Rule::default()
    };
    let left_out = Rule {
        place: false,
        ..Rule::default()
    };
    let mut e = hsp(&fake, &[(0, 3.0), (1, 2.0)], Vec::new());
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    assert!(fake.thread(keys[0]).placed.is_some());
    e.set_rules(Some(Box::new(ByApp(vec![(0, left_out), (1, heavy)]))));
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(fake.thread(keys[0]).placed, None);
    let [th] = e.offered() else { panic!() };
    assert_eq!((th.app_id, th.weight), (AppId(1), 400));
}

/// Threads of a made-up decision: allowed types as bits, where it is, where the policy wants it,
/// what it prefers.
type Case = Vec<(u8, Option<u8>, Option<u8>, u8)>;

fn cases(types: u8) -> impl Strategy<Value = Case> {
    let place = move || proptest::option::of(0..types);
    proptest::collection::vec((1..1u8 << types, place(), place(), 0..3u8), 0..24)
}

fn thread(i: usize, allowed: u8, placed: Option<CoreTypeId>) -> ThreadView {
    let (slot, none) = (i as u32, [Nanos::ZERO; MAX_CORE_TYPES]);
    ThreadView {
        key: ThreadKey {
            slot,
            generation: 1,
        },
        tid: 0,
        app_id: AppId(0),
        app: 0,
        weight: 100,
        allowed: CoreTypeSet::from_bits(allowed),
        placed,
        core_type: CoreTypeId(0),
        runtime: none,
        ran: none,
        done: Done::default(),
        unrated: Default::default(),
        succeeds: None,
    }
}

proptest! {
    #[test]
    fn places_are_exchanged_only_and_preferences_met_as_far_as_possible(
        case in (2u8..4).prop_flat_map(cases)
    ) {
        let topology = crate::testing::topology(&[2, 2, 2]);
        // a policy keeps to affinity
        let within = |allowed: u8, t: Option<u8>| {
            t.filter(|t| allowed >> t & 1 == 1).map(CoreTypeId)
        };
        let mut offered: Vec<ThreadView> = case
            .iter()
            .enumerate()
            .map(|(i, (allowed, placed, _, _))| thread(i, *allowed, within(*allowed, *placed)))
            .collect();
        let prefer: Vec<Prefer> = case
            .iter()
            .map(|c| [Prefer::Slow, Prefer::Any, Prefer::Fast][usize::from(c.3)])
            .collect();
        let decide = |offered: &[ThreadView]| {
            let mut decided = Placement::default();
            for (th, (allowed, _, to, _)) in offered.iter().zip(&case) {
                if let Some(t) = within(*allowed, *to) {
                    decided.place(th.key, t);
                }
            }
            decided
        };
        let targets = |offered: &[ThreadView], decided: &Placement| -> Vec<Option<CoreTypeId>> {
            offered
                .iter()
                .map(|th| {
                    let found = decided.iter().find(|(key, _)| *key == th.key);
                    found.map_or(th.placed, |(_, to)| to)
                })
                .collect()
        };
        let mut decided = decide(&offered);
        let before = targets(&offered, &decided);
        let mut preferences = Preferences::default();
        preferences.lay_over(&topology, &offered, &prefer, &mut decided);
        let after = targets(&offered, &decided);

        let count = |to: &[Option<CoreTypeId>]| {
            let mut n = [0; MAX_CORE_TYPES];
            to.iter().flatten().for_each(|t| n[t.index()] += 1);
            n
        };
        prop_assert_eq!(count(&before), count(&after));
        for (th, to) in offered.iter().zip(&after) {
            prop_assert!(to.is_none_or(|t| th.allowed.contains(t)));
        }
        // on two core types a better exchange is never left; on more, one exchange a thread is made
        if topology.core_types().len() == 3 && case.iter().all(|c| c.0 == 3) {
            for (i, a) in after.iter().enumerate() {
                for (j, b) in after.iter().enumerate() {
                    let worse = prefer[i] > prefer[j] && a.is_some() && b.is_some() && a > b;
                    prop_assert!(!worse, "{i} {j} {before:?} {after:?} {prefer:?}");
                }
            }
        }
        // the same decision again moves nobody
        for (th, to) in offered.iter_mut().zip(&after) {
            th.placed = *to;
        }
        let mut again = decide(&offered);
        let policy_wants = targets(&offered, &again);
        preferences.lay_over(&topology, &offered, &prefer, &mut again);
        if count(&policy_wants) == count(&after) && case.iter().all(|c| c.0 == 3) {
            for ((i, to), was) in targets(&offered, &again).iter().enumerate().zip(&after) {
                prop_assert!(
                    prefer[i] == Prefer::Any || to == was,
                    "{i}: {was:?} then {to:?}, {prefer:?}"
                );
            }
        }
    }
}
