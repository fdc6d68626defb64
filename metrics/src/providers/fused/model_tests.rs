//! With a model.

use super::tests::{prepared, run, SF};
use super::*;
use crate::providers::testing::{key, readings, snapshot};
use crate::providers::PlatformModel;
use proptest::prelude::*;
use std::path::Path;

const EF: MetricId = MetricId::EfficiencyFactor(CoreTypeId(0));

/// A model that says so from either core type, whatever it counts.
fn model(big: f64, little: f64, error: f64) -> Model {
    let side = |name: &str, sf: f64| {
        format!(
            "[[core_type]]\nname = \"{name}\"\n[[core_type.event_set]]\ncycles = \"cycles\"\n\
             [[core_type.factor]]\npredicts = \"speedup\"\nof = \"big\"\nbase = {sf}\nerror = {error}\n\
             [[core_type.factor]]\npredicts = \"efficiency\"\nof = \"big\"\nbase = {}\nerror = 0.1\n",
            sf / 2.0
        )
    };
    let text = format!(
        "kind = \"model\"\n{}{}",
        side("big", big),
        side("little", little)
    );
    Model::new(PlatformModel::parse(Path::new("m.toml"), &text).unwrap())
}

fn provider(model: Model) -> Fused {
    prepared(Fused::new(model))
}

/// A thread of rates 2.2 and 2.0 (a factor of 1.1) on the big core for a second, then on the little
/// one; the time now.
fn meets_both(p: &mut Fused, little: u64) -> u64 {
    for i in 0..10 {
        run(p, 100 * i, 1, "triad", 0, 2.2);
    }
    for i in 10..10 + little {
        run(p, 100 * i, 1, "triad", 1, 2.0);
    }
    100 * (10 + little)
}

#[test]
fn the_model_alone_until_there_is_more() {
    let mut p = provider(model(3.3, 2.1, 0.17));
    assert_eq!(p.estimate(key(1), SF), None);
    run(&mut p, 0, 1, "triad", 0, 2.2);
    let e = p.estimate(key(1), SF).unwrap();
    // put right a little by what programs in general are like
    assert!((e.value - 3.3).abs() < 0.02, "{e:?}");
    assert!((e.uncertainty.unwrap() - 0.17).abs() < 0.01, "{e:?}");
    assert_eq!(e.quality, Quality::Exact);
    // a program that is over soon is not looked at elsewhere for the sake of a model that is sure
    for i in 1..20 {
        assert_eq!(p.wanted_on(key(1)), None);
        run(&mut p, 100 * i, 1, "triad", 0, 2.2);
    }
    assert_eq!(p.wanted_on(key(1)), Some(CoreTypeId(1)));
}

/// The case of the review: 1.1 in truth, predicted 3.3 from big and 2.1 from little.
#[test]
fn a_program_outside_of_the_training_is_put_right_by_two_moves() {
    let mut p = provider(model(3.3, 2.1, 0.17));
    let now = meets_both(&mut p, 2);
    assert_eq!(p.wanted_on(key(1)), Some(CoreTypeId(0)));
    // back on big, where the model says 3.3 again
    for i in 0..10 {
        run(&mut p, now + 100 * i, 1, "triad", 0, 2.2);
        let e = p.estimate(key(1), SF).unwrap();
        assert!((e.value - 1.1).abs() < 0.2, "{e:?}");
    }
    for i in 10..13 {
        run(&mut p, now + 100 * i, 1, "triad", 1, 2.0);
    }
    let now = now + 300;
    let e = p.estimate(key(1), SF).unwrap();
    assert!((e.value - 1.1).abs() < 0.06, "{e:?}");
    assert!(e.uncertainty.unwrap() < 0.2, "{e:?}");
    assert_eq!(p.wanted_on(key(1)), None);
    // the next of its name is known at its start, and at its first window
    let empty = snapshot(now + 1000, &[2], Vec::new());
    let mut empty = empty;
    empty.threads[0].comm[..5].copy_from_slice(b"triad");
    p.observe(&empty);
    let e = p.estimate(key(2), SF).unwrap();
    assert_eq!(e.quality, Quality::Stale);
    run(&mut p, now + 1100, 2, "triad", 1, 2.0);
    let e = p.estimate(key(2), SF).unwrap();
    assert!((e.value - 1.1).abs() < 0.06, "{e:?}");
    assert_eq!(p.wanted_on(key(2)), None);
}

/// By more than the model states, so that at least one of its words is wrong: nobody knows which.
#[test]
fn two_core_types_that_disagree_widen_the_prior() {
    let mut p = provider(model(3.3, 2.1, 0.17));
    // too short on each to be compared
    let short = |p: &mut Fused, ms, t: u8, rate: f64| {
        let r = readings(1, t, 0, 40, &[(rate * 4e7) as u64, 40_000_000]);
        p.observe(&snapshot(ms, &[1], vec![r]));
        let follower = p.threads.get(key(1)).unwrap().follower.as_ref();
        let (ln, variance) = follower.unwrap().factor(0, 1).unwrap();
        (ln, variance.sqrt())
    };
    let (ln, u) = short(&mut p, 0, 0, 2.2);
    assert!((ln - 3.3f64.ln()).abs() < 0.01 && u < 0.06, "{ln} {u}");
    let (ln, u) = short(&mut p, 100, 1, 2.0);
    let (mean, half) = ((3.3f64 * 2.1).ln() / 2.0, (3.3f64 / 2.1).ln() / 2.0);
    assert!((ln - mean).abs() < 0.4 * half && u > 0.8 * half, "{ln} {u}");
    assert_eq!(p.estimate(key(1), SF), None, "too little is known");
}

#[test]
fn a_model_that_is_right_is_confirmed_and_follows_the_phases() {
    let mut p = provider(model(2.0, 2.0, 0.1));
    for i in 0..5 {
        run(&mut p, 100 * i, 1, "x", 0, 2.0);
    }
    for i in 5..10 {
        run(&mut p, 100 * i, 1, "x", 1, 1.0);
    }
    let e = p.estimate(key(1), SF).unwrap();
    assert!(
        (e.value - 2.0).abs() < 0.02 && e.uncertainty.unwrap() < 0.1,
        "{e:?}"
    );
    assert_eq!(
        p.wanted_on(key(1)),
        None,
        "a move has shown what the model said"
    );
    for i in 10..20 {
        let t = u8::from(i >= 15);
        run(&mut p, 100 * i, 1, "x", t, [2.0, 1.0][usize::from(t)]);
    }
    // another phase, on little: the model still says 2, and is known to be right
    for i in 20..25 {
        run(&mut p, 100 * i, 1, "x", 1, 0.3);
    }
    let e = p.estimate(key(1), SF).unwrap();
    assert!((e.value - 2.0).abs() < 0.05, "{e:?}");
    assert_eq!(p.wanted_on(key(1)), None);
    let ef = p.estimate(key(1), EF).unwrap();
    assert!((ef.value - 1.0).abs() < 0.03, "{ef:?}");
}

#[test]
fn without_counters_on_a_core_type_the_model_speaks_alone() {
    let some = Pmus::generic(&[vec![0, 1]], 4).with_core_types(&[vec![0, 1], vec![2, 3]]);
    let has = |t: u8| some.of_core_type(CoreTypeId(t)).is_some();
    assert!(has(0));
    if has(1) {
        amp_skips::skip("every CPU of this machine has counters");
        return;
    }
    let mut p = Fused::new(model(3.0, 2.0, 0.2));
    let sets = p.event_sets(&some).unwrap();
    assert_eq!(
        (sets.of(CoreTypeId(0)).len(), sets.of(CoreTypeId(1)).len()),
        (1, 0)
    );
    for i in 0..5 {
        run(&mut p, 100 * i, 1, "x", 0, 2.0);
    }
    assert!((p.estimate(key(1), SF).unwrap().value - 3.0).abs() < 0.02);
    assert_eq!(p.wanted_on(key(1)), None, "nothing can be measured there");
}

proptest! {
    /// However wrong the model is and however sure of itself: once a thread was on both core types and
    /// back, for three windows each, no estimate is further from what was measured than the measurement's
    /// own noise explains (20 %), or its uncertainty says so, on either core type and for whoever comes next; and
    /// 15 % once there were three moves.
    #[test]
    fn a_lying_model_costs_no_more_than_two_moves(
        lies in (0.2f64..8.0, 0.2f64..8.0),
        error in 0.001f64..1.0,
        truth in 0.8f64..6.0,
        noise in prop::collection::vec(-0.05f64..0.05, 40),
    ) {
        let mut p = provider(model(lies.0, lies.1, error));
        let rate = |t: u8, i: usize| (if t == 0 { truth } else { 1.0 }) * (1.0 + noise[i % 40]);
        let mut i = 0;
        for (slot, t, n) in [(1, 0, 4), (1, 1, 4), (1, 0, 10), (1, 1, 10), (2, 1, 6), (3, 0, 6)] {
            for k in 0..n {
                run(&mut p, 100 * i as u64, slot, "liar", t, rate(t, i));
                i += 1;
                if i >= 11 && (slot == 1 || k > 0) {
                    let e = p.estimate(key(slot), SF).unwrap();
                    let off = (e.value / truth).ln().abs();
                    let u = e.uncertainty.unwrap() / e.value;
                    let most = if i < 22 { (2.0 * u).max(0.2) } else { 0.15 };
                    prop_assert!(off < most, "window {i}: {e:?} for {truth}");
                }
            }
        }
    }
}

/// A program whose phases flow into each other, each too near to the last to be told from it: what
/// it did on one core type a second ago is no measure for what it does on the other one now. Seen
/// with opusenc on the board, whose factor of 2.3 came out as 1.5 to 3.6.
#[test]
fn phases_that_flow_into_each_other_are_not_compared_with_each_other() {
    let truth = 2.3;
    let course = [
        2.18, 2.18, 2.0, 2.0, 1.72, 1.72, 1.6, 1.55, 1.55, 1.7, 1.9, 2.1,
    ];
    let mut p = provider(model(truth * 1.07, truth * 1.07, 0.115));
    let mut i = 0;
    let mut worst = 0.0f64;
    // processes of two rounds of the course, moved after 3 to 9 windows
    for (slot, stays) in (1..).zip([[9, 5, 7, 3], [4, 8, 3, 9], [6, 6, 4, 8], [5, 9, 7, 3]]) {
        let mut at = 0;
        for (stay, n) in stays.into_iter().enumerate() {
            let t = (stay % 2) as u8;
            for _ in 0..n {
                let rate = course[at % course.len()] / if t == 0 { 1.0 } else { truth };
                run(&mut p, 100 * i, slot, "opusenc", t, rate);
                (at, i) = (at + 1, i + 1);
                let e = p.estimate(key(slot), SF).unwrap();
                if slot > 1 {
                    worst = worst.max((e.value / truth).ln().abs());
                }
            }
        }
    }
    // the model alone is off by 7 %; what was measured must not make that twice as bad
    assert!(worst < 2.0 * 1.07f64.ln(), "{worst}");
}

/// A model speaks of a program before it has moved.
#[test]
fn nobody_is_waited_for() {
    let mut p = provider(model(2.0, 2.0, 0.1));
    run(&mut p, 0, 1, "x", 1, 1.0);
    assert!(!p.unsettled());
}
