use super::*;
use crate::providers::programs::MOST_NAMES;
use crate::providers::testing::{key, readings, snapshot};

pub(super) const SF: MetricId = MetricId::SpeedupFactor(CoreTypeId(0));

fn provider() -> Fused {
    prepared(Fused::without_model("measured"))
}

/// The provider on a machine of two big and two little cores.
pub(super) fn prepared(mut p: Fused) -> Fused {
    let pmus = Pmus::generic(&[vec![0, 1], vec![2, 3]], 4);
    let sets = p.event_sets(&pmus).unwrap();
    assert!(sets.of(CoreTypeId(0))[0].events[0]
        .name
        .starts_with("instructions"));
    p
}

/// One interval in which the thread, of program `name`, ran on core type `t` at this rate.
pub(super) fn run(p: &mut Fused, ms: u64, slot: u32, name: &str, t: u8, rate: f64) {
    let r = readings(slot, t, 0, 100, &[(rate * 1e8) as u64, 100_000_000]);
    let mut s = snapshot(ms, &[slot], vec![r]);
    s.threads[0].comm[..name.len()].copy_from_slice(name.as_bytes());
    p.observe(&s);
}

/// `python3 a.py` and `python3 b.py` gain 1.1 and 3 from a fast core; neither is taken for the other.
#[test]
fn programs_of_one_name_with_other_arguments_are_told_apart() {
    let mut p = provider();
    let both = |p: &mut Fused, ms, t: u8, rates: [f64; 2]| {
        let counted = |slot: u32| (rates[slot as usize - 1] * 1e8) as u64;
        let all = [1, 2].map(|slot| readings(slot, t, 0, 100, &[counted(slot), 100_000_000]));
        let mut s = snapshot(ms, &[1, 2], all.to_vec());
        for t in &mut s.threads {
            t.comm[..7].copy_from_slice(b"python3");
            t.arguments = u64::from(t.key.slot);
        }
        p.observe(&s);
    };
    for i in 0..60 {
        match i / 10 % 2 {
            0 => both(&mut p, 100 * i, 0, [2.2, 2.25]),
            _ => both(&mut p, 100 * i, 1, [2.0, 0.75]),
        }
    }
    let sf = |p: &Fused, slot| p.estimate(key(slot), SF).unwrap().value;
    assert!((sf(&p, 1) - 1.1).abs() < 0.06, "{}", sf(&p, 1));
    assert!((sf(&p, 2) - 3.0).abs() < 0.15, "{}", sf(&p, 2));
    // one of that name that nobody has met is taken for the one that was counted last, with doubt
    let mut s = snapshot(6100, &[3], Vec::new());
    s.threads[0].comm[..7].copy_from_slice(b"python3");
    s.threads[0].arguments = 3;
    p.observe(&s);
    let e = p.estimate(key(3), SF).unwrap();
    assert!(e.uncertainty.unwrap() / e.value >= KIN, "{e:?}");
}

#[test]
fn phases_are_told_by_their_rates() {
    let mut p = provider();
    let mut now = 0;
    let mut stretch = |p: &mut Fused, slot: u32, t: u8, rate: f64, n: u64| {
        for _ in 0..n {
            run(p, now, slot, "x", t, rate);
            now += 100;
        }
    };
    // one phase of factor 2, one of factor 4, each met on both
    stretch(&mut p, 1, 0, 2.0, 5);
    assert_eq!(p.estimate(key(1), SF), None, "no factor is made up");
    assert_eq!(p.wanted_on(key(1)), Some(CoreTypeId(1)));
    stretch(&mut p, 1, 1, 1.0, 5);
    let first = p.estimate(key(1), SF).unwrap();
    assert!((first.value - 2.0).abs() < 0.05, "{first:?}");
    stretch(&mut p, 1, 1, 0.5, 5);
    let e = p.estimate(key(1), SF).unwrap();
    assert!(
        e.uncertainty.unwrap() / e.value > 0.1,
        "a phase nobody compared: {e:?}"
    );
    assert_eq!(p.wanted_on(key(1)), Some(CoreTypeId(0)));
    stretch(&mut p, 1, 0, 4.0 * 0.5, 5);
    // the third move
    stretch(&mut p, 1, 1, 0.5, 3);
    // another process: each phase by its rate on little
    for (rate, sf) in [(1.0, 2.0), (0.5, 4.0), (1.0, 2.0)] {
        stretch(&mut p, 2, 1, rate, 4);
        let e = p.estimate(key(2), SF).unwrap();
        assert!((e.value / sf - 1.0).abs() < 0.05, "{sf}: {e:?}");
        assert!(e.uncertainty.unwrap() / e.value < 0.15, "{sf}: {e:?}");
    }
    // on big both phases have the same rate: it is one of the two, and the uncertainty says so
    stretch(&mut p, 3, 0, 2.0, 4);
    let e = p.estimate(key(3), SF).unwrap();
    assert!(
        (2.0..=4.0).contains(&e.value) && e.uncertainty.unwrap() > 0.8,
        "{e:?}"
    );
}

/// A hash table, then a list of pointers: what moves have shown of the one says nothing of the other.
#[test]
fn a_phase_that_does_far_less_does_not_have_the_factor_of_the_one_before() {
    let mut p = provider();
    let mut now = 0;
    let mut stretch = |p: &mut Fused, t: u8, rate: f64| {
        for _ in 0..4 {
            run(p, now, 1, "x", t, rate);
            now += 100;
        }
        p.estimate(key(1), SF)
    };
    for (t, rate) in [(1, 0.3), (0, 1.5), (1, 0.3)] {
        stretch(&mut p, t, rate);
    }
    let hash = p.estimate(key(1), SF).unwrap();
    assert!((hash.value - 5.0).abs() < 0.5, "{hash:?}");
    assert_eq!(stretch(&mut p, 1, 0.03), None, "nobody compared that");
    assert_eq!(p.wanted_on(key(1)), Some(CoreTypeId(0)));
    stretch(&mut p, 0, 0.036);
    let list = stretch(&mut p, 1, 0.03).unwrap();
    assert!((list.value - 1.2).abs() < 0.1, "{list:?}");
    // both are known from then on
    for _ in 0..2 {
        let e = stretch(&mut p, 1, 0.3).unwrap();
        assert!((e.value / hash.value - 1.0).abs() < 0.1, "{e:?}");
        let e = stretch(&mut p, 1, 0.03).unwrap();
        assert!((e.value / list.value - 1.0).abs() < 0.1, "{e:?}");
    }
}

#[test]
fn whole_runs_on_one_core_type_each_are_compared_too() {
    let mut p = provider();
    for i in 0..20 {
        run(
            &mut p,
            100 * i,
            1,
            "x",
            0,
            if i % 2 == 0 { 3.0 } else { 2.0 },
        );
    }
    for i in 20..60 {
        run(
            &mut p,
            100 * i,
            2,
            "x",
            1,
            if i % 2 == 0 { 1.5 } else { 1.0 },
        );
    }
    let e = p.estimate(key(2), SF).unwrap();
    assert!((e.value - 2.0).abs() < 0.1, "{e:?}");
    assert!(e.uncertainty.unwrap() > 0.2, "{e:?}");
}

#[test]
fn memory_is_bounded_and_an_exec_is_another_program() {
    let mut p = provider();
    for n in 0..MOST_NAMES as u64 + 10 {
        run(&mut p, 100 * n, 1, &format!("p{n}"), 0, 1.0);
    }
    assert_eq!(p.programs.len(), MOST_NAMES);
    let t = p.threads.get(key(1)).unwrap();
    let (_, units) = t.follower.as_ref().unwrap().here().unwrap();
    assert!((units - 1.0).abs() < 1e-9, "{units}");
}

/// A move away from a slow neighbour whom the thread was never seen without: how much of what it gains
/// is the core type's nobody can tell yet.
#[test]
fn a_move_away_from_a_slow_neighbour_is_uncertain() {
    let sf_after = |beside: bool| {
        let mut p = provider();
        let mut runtime = [[Nanos::ZERO; MAX_CORE_TYPES]; 4];
        let mut interval = |ms: u64, what: &[(u32, &str, u8, f64)], p: &mut Fused| {
            let all = what.iter().map(|(slot, _, t, rate)| {
                readings(*slot, *t, 0, 100, &[(rate * 1e8) as u64, 100_000_000])
            });
            let slots: Vec<u32> = what.iter().map(|(slot, ..)| *slot).collect();
            let mut s = snapshot(ms, &slots, all.collect());
            for (thread, (slot, name, t, _)) in s.threads.iter_mut().zip(what) {
                thread.comm[..name.len()].copy_from_slice(name.as_bytes());
                let ran = &mut runtime[*slot as usize];
                ran[usize::from(*t)].0 += 100_000_000;
                thread.runtime = *ran;
            }
            p.observe(&s);
        };
        let fast = (3, "f", 1, 1.0);
        for i in 0..5 {
            let all = [(1, "a", 1, 0.43), fast, (2, "b", 1, 0.43)];
            interval(100 * i, &all[..2 + usize::from(beside)], &mut p);
        }
        for i in 5..8 {
            let all = [(1, "a", 0, 1.6), fast, (2, "b", 1, 0.43)];
            interval(100 * i, &all[..2 + usize::from(beside)], &mut p);
        }
        p.estimate(key(1), SF).unwrap()
    };
    let relative = |e: Estimate| e.uncertainty.unwrap() / e.value;
    assert!(relative(sf_after(false)) < 0.15, "{:?}", sf_after(false));
    assert!(relative(sf_after(true)) > 0.3, "{:?}", sf_after(true));
}

/// Whoever has just come or moved is to be looked at again soon, until its program was compared.
#[test]
fn a_move_that_shows_something_new_is_watched() {
    let mut p = provider();
    let mut ms = 0;
    // quarters of an interval
    let mut seen = |p: &mut Fused, slot: u32, t: u8, rate: f64| {
        ms += 25;
        let r = readings(slot, t, 0, 25, &[(rate * 25e6) as u64, 25_000_000]);
        p.observe(&snapshot(ms, &[slot], vec![r]));
        p.unsettled()
    };
    assert!(!p.unsettled());
    // the first one shows how it is loaded
    assert!(seen(&mut p, 1, 1, 1.0));
    // only another one is read at the next look
    p.observe(&snapshot(26, &[1, 9], vec![]));
    assert!(p.unsettled());
    assert!(seen(&mut p, 1, 1, 1.0));
    assert!(!seen(&mut p, 1, 1, 1.0));
    assert!(seen(&mut p, 1, 0, 2.0));
    assert!(!seen(&mut p, 1, 0, 2.0));
    // the next of that program shows nothing new
    assert!(!seen(&mut p, 2, 1, 1.0));
}

#[test]
fn without_counters_on_a_core_type_there_is_nothing_to_compare() {
    let some = Pmus::generic(&[vec![0, 1]], 4).with_core_types(&[vec![0, 1], vec![2, 3]]);
    if some.of_core_type(CoreTypeId(1)).is_some() {
        amp_skips::skip("every CPU of this machine has counters");
        return;
    }
    let e = provider().event_sets(&some).unwrap_err();
    assert!(matches!(e, EventError::NoPmu { .. }));
}

/// What an earlier run remembers is there from the first window on, is not asked for again, and gives way to what is measured.
#[test]
fn what_is_remembered_is_expected_until_it_is_measured() {
    let remembered = |value: f64| Estimate {
        value,
        uncertainty: Some(0.05 * value),
        age: Nanos::ZERO,
        quality: Quality::Stale,
    };
    let mut p = provider();
    run(&mut p, 0, 1, "x", 1, 1.0);
    assert_eq!(p.estimate(key(1), SF), None);
    p.expect(key(1), SF, Some(remembered(3.0)));
    for i in 1..4 {
        run(&mut p, 100 * i, 1, "x", 1, 1.0);
        let e = p.estimate(key(1), SF).unwrap();
        assert!((e.value - 3.0).abs() < 0.1, "{e:?}");
        assert_eq!(p.wanted_on(key(1)), None);
        assert_eq!(
            e.quality,
            Quality::Stale,
            "a memory must not hear its own word"
        );
    }
    p.expect(key(1), SF, None);
    assert_eq!(p.estimate(key(1), SF), None, "it was forgotten");
    p.expect(key(1), SF, Some(remembered(3.0)));
    // it is 1.5 in truth
    for i in 4..24 {
        let t = u8::from(i / 4 % 2 == 0);
        run(&mut p, 100 * i, 1, "x", t, if t == 0 { 1.5 } else { 1.0 });
    }
    let e = p.estimate(key(1), SF).unwrap();
    assert!((e.value - 1.5).abs() < 0.15, "{e:?}");
    assert_eq!(e.quality, Quality::Multiplexed);
}
