use super::*;
use crate::ids::{AppId, Nanos};
pub(super) use crate::providers::testing::key;
use crate::providers::testing::{readings, snapshot};
use crate::providers::{DeclaredFactors, Efficiencies};
use crate::{Declarations, Declared, Speedups};

pub(super) const SF: MetricId = MetricId::SpeedupFactor(CoreTypeId(0));
const EF: MetricId = MetricId::EfficiencyFactor(CoreTypeId(0));

/// Around a model that says this of applications 1 to 3, on a machine of two big and two little cores.
fn checked(sf: f64) -> Checked {
    let declared = Declarations::default();
    for app in 1..4 {
        let factors = DeclaredFactors {
            speedups: Speedups::fastest(sf).ok(),
            efficiencies: Efficiencies::fastest(1.5).ok(),
        };
        declared.declare(AppId(app), factors);
    }
    let pmus = Pmus::generic(&[vec![0, 1], vec![2, 3]], 4);
    let p = Checked::new(Box::new(Declared::new(declared)), &pmus);
    assert!(p.counted);
    p
}

/// A program's thread that runs by itself.
struct Run {
    p: Checked,
    slot: u32,
    now: u64,
}

impl Run {
    fn of(sf: f64) -> Run {
        Run {
            p: checked(sf),
            slot: 1,
            now: 0,
        }
    }

    /// So many intervals of 100 ms on a core type at these rates.
    fn goes(&mut self, t: u8, rates: &[f64]) {
        for rate in rates {
            let counted = [(rate * 1e8) as u64, 100_000_000];
            let r = readings(self.slot, t, 0, 100, &counted);
            let mut s = snapshot(self.now, &[self.slot], vec![r]);
            s.threads[0].comm[..5].copy_from_slice(b"triad");
            self.p.observe(&s);
            self.now += 100;
        }
    }

    fn says(&self) -> f64 {
        self.p.estimate(key(self.slot), SF).unwrap().value
    }
}

#[test]
fn a_model_that_is_about_right_is_left_alone() {
    let mut r = Run::of(2.0);
    for _ in 0..6 {
        // a third more than the model says
        r.goes(0, &[2.6; 8]);
        r.goes(1, &[1.0; 8]);
        assert_eq!(r.says(), 2.0);
    }
    let shown = r.p.rates.estimate(key(1), SF).unwrap();
    assert!((shown.value - 2.6).abs() < 0.1, "{shown:?}");
    assert_eq!(r.p.estimate(key(1), EF).unwrap().value, 1.5);
    assert_eq!(r.p.wanted_on(key(1)), None);
}

/// The program `between` of juno-between: predicted 1.2, it loads on a big core, works on a little one, and comes back after two seconds.
/// Phases of 0.9 s, 3.4 times as fast on a big core and next to nothing, as `hash` and `chase` are; the model knows both. It is
/// moved as they change.
#[test]
fn who_changes_as_the_model_says_is_not_shown_to_be_another() {
    let declared = Declarations::default();
    let pmus = Pmus::generic(&[vec![0, 1], vec![2, 3]], 4);
    let model = Box::new(Declared::new(declared.clone()));
    let mut r = Run {
        p: Checked::new(model, &pmus),
        slot: 1,
        now: 0,
    };
    for phase in 0..8u8 {
        let (sf, rates) = [(3.4, [3.4, 1.0]), (1.1, [0.33, 0.3])][usize::from(phase % 2)];
        // the model knows of a phase after two intervals
        for i in 0..9 {
            if i == 2 {
                declared.declare(
                    AppId(1),
                    DeclaredFactors {
                        speedups: Speedups::fastest(sf).ok(),
                        efficiencies: None,
                    },
                );
            }
            // to a big core with the phase that gains, and once in the middle of the other
            let t = u8::from(phase % 2 == 1 && i != 5);
            r.goes(t, &[rates[usize::from(t)]]);
            if phase > 0 || i > 2 {
                let told = if i < 2 { 4.5 - sf } else { sf };
                assert!((r.says() - told).abs() < 1e-9, "{phase} {i}: {}", r.says());
            }
        }
    }
    assert!(
        r.p.shown(key(1), CoreTypeId(0)).is_none(),
        "to be remembered"
    );
    // the next run of it is left to the model, too
    let speedups = Speedups::fastest(1.1).ok();
    let efficiencies = None;
    declared.declare(
        AppId(2),
        DeclaredFactors {
            speedups,
            efficiencies,
        },
    );
    r.slot = 2;
    r.goes(1, &[0.3; 3]);
    assert!((r.says() - 1.1).abs() < 1e-9, "{}", r.says());
}

#[test]
fn a_move_is_no_change_of_phase_and_one_change_is_one() {
    let mut r = Run::of(1.2);
    let phase = |r: &Run| r.p.phase(key(1)).unwrap().number;
    r.goes(0, &[8.6; 8]);
    let loading = phase(&r);
    r.goes(0, &[1.6; 4]);
    let works = phase(&r);
    assert_ne!(works, loading);
    r.goes(1, &[0.5; 8]);
    r.goes(0, &[1.6; 4]);
    r.goes(1, &[0.5; 4]);
    assert_eq!(phase(&r), works);
}

/// The case of the review: 1.1 in truth, predicted 3.3. It keeps a big core until the model is tried.
#[test]
fn one_that_is_wrong_about_a_program_is_found_out_by_one_trial() {
    let mut r = Run::of(3.3);
    r.goes(0, &[2.2; 19]);
    assert_eq!(r.p.wanted_on(key(1)), None, "programs may be over by then");
    r.goes(0, &[2.2]);
    assert_eq!(r.p.wanted_on(key(1)), Some(CoreTypeId(1)));
    assert!(r.p.suspects(key(1)));
    r.goes(1, &[2.0, 2.0]);
    assert_eq!(r.says(), 3.3, "one move may be a change of phase");
    r.goes(0, &[2.2, 2.2]);
    assert!((r.says() - 1.1).abs() < 0.1, "{}", r.says());
    assert!(!r.p.suspects(key(1)));
    let ef = r.p.estimate(key(1), EF).unwrap();
    assert!((ef.value - 1.5 * r.says() / 3.3).abs() < 1e-9, "{ef:?}");
    // and the next run of the program is known by it at once
    r.slot = 2;
    r.goes(1, &[2.0]);
    assert!((r.says() - 1.1).abs() < 0.15, "{}", r.says());
    assert!(!r.p.suspects(key(2)));
}

/// A model that says this of everybody, with a relative standard uncertainty by the core type that a thread was on last.
#[derive(Debug)]
struct Unsure {
    says: f64,
    relative: [f64; 2],
    on: CoreTypeId,
}

impl Provider for Unsure {
    fn name(&self) -> &str {
        "unsure"
    }

    fn event_sets(&mut self, _: &Pmus) -> Result<EventSets, EventError> {
        Ok(EventSets::default())
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.on = snapshot.readings.last().map_or(self.on, |r| r.core_type);
    }

    fn heard_on(&self, _: ThreadKey) -> Option<CoreTypeId> {
        Some(self.on)
    }

    fn estimate(&self, _: ThreadKey, metric: MetricId) -> Option<Estimate> {
        (metric == SF).then_some(Estimate {
            value: self.says,
            uncertainty: Some(self.says * self.relative[self.on.index()]),
            age: Nanos::ZERO,
            quality: Quality::Exact,
        })
    }
}

/// On big and on little cores, as unsure as that.
fn unsure(says: f64, relative: [f64; 2]) -> Run {
    let model = Unsure {
        says,
        relative,
        on: CoreTypeId(1),
    };
    let pmus = Pmus::generic(&[vec![0, 1], vec![2, 3]], 4);
    Run {
        p: Checked::new(Box::new(model), &pmus),
        slot: 1,
        now: 0,
    }
}

/// The program `between` of juno-between: predicted 1.2, 3.4 in truth, and the model knows that it cannot know.
#[test]
fn one_that_is_unsure_is_tried_soon_and_gives_way_to_what_is_surer() {
    for (u, tried) in [([0.08; 2], 20), ([0.6; 2], 4), ([0.08, 0.6], 4)] {
        let mut r = unsure(1.2, u);
        for i in 1..=tried {
            r.goes(1, &[1.0]);
            assert_eq!(r.p.suspects(key(1)), i == tried, "{u:?}: {i}");
        }
        assert_eq!(r.p.wanted_on(key(1)), Some(CoreTypeId(0)));
        r.goes(0, &[3.4; 2]);
        r.goes(1, &[1.0; 2]);
        assert!((r.says() - 3.4).abs() < 0.3, "{u:?}: {}", r.says());
        assert!(!r.p.suspects(key(1)));
        // and on a big core, where it may be sure
        r.goes(0, &[3.4; 2]);
        assert!((r.says() - 3.4).abs() < 0.3, "{u:?}: {}", r.says());
        // the next run of the program is known by it
        r.slot = 2;
        r.goes(0, &[3.4]);
        assert!((r.says() - 3.4).abs() < 0.3, "{u:?}: {}", r.says());
        assert!(!r.p.suspects(key(2)));
    }
}

/// What moves show of it differs by a third.
#[test]
fn by_less_than_half_a_model_is_wrong_only_where_it_is_unsure() {
    for (u, little, big) in [
        ([0.08; 2], 1.2, 1.2),
        ([0.6; 2], 1.6, 1.6),
        ([0.08, 0.6], 1.6, 1.2),
    ] {
        let mut r = unsure(1.2, u);
        r.goes(1, &[1.0; 20]);
        r.goes(0, &[1.6; 2]);
        r.goes(1, &[1.0; 2]);
        assert!((r.says() - little).abs() < 0.1, "{u:?}: {}", r.says());
        // it is not asked for again for that
        r.goes(1, &[1.0; 40]);
        assert_eq!(r.p.wanted_on(key(1)), None, "{u:?}");
        r.goes(0, &[1.6; 2]);
        assert!((r.says() - big).abs() < 0.1, "{u:?}: {}", r.says());
    }
}

/// One window in ten is unlike what the model was made from.
#[test]
fn a_window_in_doubt_is_no_program_in_doubt() {
    let mut r = unsure(2.0, [0.05; 2]);
    for i in 0..19 {
        let inner = [0.05, if i % 10 == 3 { 0.6 } else { 0.05 }];
        r.p.inner = Box::new(Unsure {
            says: 2.0,
            relative: inner,
            on: CoreTypeId(1),
        });
        r.goes(1, &[1.0]);
        assert!(!r.p.suspects(key(1)), "{i}");
    }
}

/// It loads for 0.9 s, during which it is tried, and then does something else, which nobody has seen elsewhere: it is tried once more, when
/// all others are.
#[test]
fn an_early_trial_of_a_phase_that_is_over_is_made_again() {
    let mut r = unsure(1.2, [0.6; 2]);
    r.goes(1, &[0.2; 5]);
    r.goes(0, &[0.4; 2]);
    r.goes(1, &[0.2; 2]);
    assert!(!r.p.suspects(key(1)));
    r.goes(1, &[1.0; 10]);
    assert!(!r.p.suspects(key(1)));
    r.goes(1, &[1.0; 2]);
    assert!(r.p.suspects(key(1)));
    r.goes(0, &[3.4; 3]);
    r.goes(1, &[1.0; 3]);
    assert!((r.says() - 3.4).abs() < 0.3, "{}", r.says());
    assert!(!r.p.suspects(key(1)));
}

/// A memory has the model's word from an earlier run of the scheduler.
#[test]
fn a_memory_of_the_models_word_is_no_trial() {
    let mut r = Run::of(3.3);
    let word = Estimate {
        value: 3.3,
        uncertainty: Some(0.2),
        age: Nanos::ZERO,
        quality: Quality::Stale,
    };
    for i in 0..20 {
        r.goes(0, &[2.2]);
        r.p.expect(key(1), SF, Some(word));
        assert_eq!(r.p.wanted_on(key(1)).is_some(), i == 19, "{i}");
    }
    r.goes(1, &[2.0, 2.0]);
    r.goes(0, &[2.2, 2.2]);
    assert!((r.says() - 1.1).abs() < 0.1, "{}", r.says());
}

/// It loads for half a second, at rates that say nothing of what it does afterwards, and is moved meanwhile.
#[test]
fn what_a_program_does_as_it_begins_is_not_held_against_the_model() {
    let mut r = Run::of(2.0);
    r.goes(0, &[0.2, 0.2, 0.3]);
    r.goes(1, &[0.3, 0.9]);
    r.goes(0, &[1.9, 2.0, 2.0]);
    r.goes(1, &[1.0; 6]);
    assert_eq!(r.says(), 2.0);
    r.goes(0, &[2.0; 6]);
    assert_eq!(r.says(), 2.0);
}

/// Two programs that are slow on the slow core type, as what waits for memory is, and one that is not: what the two may cost
/// each other is not known when one of them is moved to and fro.
#[test]
fn neighbours_are_no_excuse_for_a_model() {
    let mut p = checked(1.2);
    let mut runtime = [[Nanos::ZERO; 8]; 4];
    for i in 0..24u64 {
        // the first is away in the intervals 20 and 21
        let on = |slot: usize| usize::from(slot != 1 || !(20..22).contains(&i));
        let rates = [[0.0; 2], [0.17, 0.05], [0.17, 0.05], [1.2, 1.0]];
        let counted = [1usize, 2, 3].map(|slot| {
            let n = (rates[slot][on(slot)] * 1e8) as u64;
            readings(slot as u32, on(slot) as u8, 0, 100, &[n, 100_000_000])
        });
        let mut s = snapshot(100 * i, &[1, 2, 3], counted.to_vec());
        for t in &mut s.threads {
            let slot = t.key.slot as usize;
            t.comm[0] = b'a' + slot as u8;
            runtime[slot][on(slot)].0 += 100_000_000;
            t.runtime = runtime[slot];
        }
        p.observe(&s);
    }
    let says = p.estimate(key(1), SF).unwrap();
    assert!((says.value - 3.4).abs() < 0.3, "{says:?}");
}

/// What a program of two threads does shows in one of them.
#[test]
fn one_thread_of_a_program_is_tried_at_a_time() {
    let mut p = checked(3.3);
    let interval = |p: &mut Checked, i: u64, on: [u8; 2]| {
        let counted = [1, 2].map(|slot| {
            let t = on[slot as usize - 1];
            let n = if t == 0 { 220_000_000 } else { 200_000_000 };
            readings(slot, t, 0, 100, &[n, 100_000_000])
        });
        let mut s = snapshot(100 * i, &[1, 2], counted.to_vec());
        for t in &mut s.threads {
            t.app = AppId(1);
            t.comm[..5].copy_from_slice(b"triad");
        }
        p.observe(&s);
        [1, 2].map(|slot| p.suspects(key(slot)))
    };
    for i in 0..19 {
        assert_eq!(interval(&mut p, i, [0, 0]), [false; 2], "{i}");
    }
    assert_eq!(interval(&mut p, 19, [0, 0]), [true; 2]);
    // the first is away, and comes back
    assert_eq!(interval(&mut p, 20, [1, 0]), [true, false]);
    assert_eq!(interval(&mut p, 21, [0, 0]), [false; 2]);
    assert_eq!(interval(&mut p, 40, [0, 0]), [false; 2]);
}

/// It ended elsewhere.
#[test]
fn a_trial_that_does_not_end_is_made_by_another_thread() {
    let mut p = checked(3.3);
    for i in 0..30u64 {
        let away = i >= 20;
        let slots: &[u32] = if away && i > 20 { &[2] } else { &[1, 2] };
        let counted = slots.iter().map(|&slot| {
            let t = u8::from(slot == 1 && away);
            readings(slot, t, 0, 100, &[210_000_000, 100_000_000])
        });
        let mut s = snapshot(100 * i, slots, counted.collect());
        for t in &mut s.threads {
            t.app = AppId(1);
            t.comm[..5].copy_from_slice(b"triad");
        }
        p.observe(&s);
        assert_eq!(p.suspects(key(2)), i == 19 || i >= 25, "{i}");
    }
}

/// A memory has what moves showed in an earlier run of the scheduler, apart from the model's word.
#[test]
fn what_a_trial_has_shown_need_not_be_tried_again() {
    let shown = |value| Estimate {
        value,
        uncertainty: Some(0.1 * value),
        age: Nanos::ZERO,
        quality: Quality::Stale,
    };
    let mut r = Run::of(1.2);
    r.goes(1, &[1.0]);
    r.p.expect_shown(key(1), CoreTypeId(0), Some(shown(3.4)));
    r.p.expect_shown(key(1), CoreTypeId(1), None);
    assert!((r.says() - 3.4).abs() < 0.1, "{}", r.says());
    r.goes(0, &[3.4; 25]);
    assert!((r.says() - 3.4).abs() < 0.2, "{}", r.says());
    assert!(!r.p.suspects(key(1)));
    // forgotten on demand: it has not moved to and fro in this run
    r.p.expect_shown(key(1), CoreTypeId(0), None);
    assert_eq!((r.says(), r.p.suspects(key(1))), (1.2, true));
    // one about which the model was right is not tried either
    let mut r = Run::of(1.2);
    r.goes(1, &[1.0]);
    r.p.expect_shown(key(1), CoreTypeId(0), Some(shown(1.3)));
    r.goes(1, &[1.0; 25]);
    assert_eq!((r.says(), r.p.suspects(key(1))), (1.2, false));
    assert!(r.p.shown(key(1), CoreTypeId(0)).unwrap().quality == Quality::Stale);
}

/// A memory that is wrong is put right by moves.
#[test]
fn a_memory_of_a_trial_may_be_wrong() {
    let mut r = Run::of(1.2);
    r.goes(1, &[1.0]);
    let wrong = Estimate {
        value: 3.4,
        uncertainty: Some(0.34),
        age: Nanos::ZERO,
        quality: Quality::Stale,
    };
    r.p.expect_shown(key(1), CoreTypeId(0), Some(wrong));
    r.goes(0, &[1.2; 8]);
    assert_eq!(
        r.p.wanted_on(key(1)),
        Some(CoreTypeId(1)),
        "looked at again"
    );
    r.goes(1, &[1.0; 4]);
    r.goes(0, &[1.2; 4]);
    assert!(r.says() < 1.5, "{}", r.says());
}

/// It begins on a big core, where nobody knows it yet, and is sent to a little one by the model: that was no trial.
#[test]
fn the_first_seat_of_a_program_is_no_trial() {
    let mut r = Run::of(1.2);
    r.goes(0, &[0.9, 3.6]);
    r.goes(1, &[1.0; 18]);
    assert_eq!(r.says(), 1.2);
    assert!(r.p.suspects(key(1)));
    r.goes(0, &[3.6, 3.6]);
    assert!(r.p.suspects(key(1)), "it has not come back yet");
    r.goes(1, &[1.0, 1.0]);
    assert!((r.says() - 3.6).abs() < 0.4, "{}", r.says());
    assert!(!r.p.suspects(key(1)));
}

/// Two programs that slow each other down to 0.43 on the slow core type, and take turns on the fast one.
#[test]
fn what_neighbours_cost_is_learned() {
    let mut p = checked(1.6);
    let mut runtime = [[Nanos::ZERO; 8]; 3];
    let mut interval = |p: &mut Checked, i: u64, away: u64| {
        let rate = |slot: u64| match (away == slot, away == 0) {
            (true, _) => (0, 1.6),
            (false, true) => (1, 0.43),
            (false, false) => (1, 1.0),
        };
        let counted = [1, 2].map(|slot| {
            let (t, rate) = rate(slot);
            readings(slot as u32, t, 0, 100, &[(rate * 1e8) as u64, 100_000_000])
        });
        let mut s = snapshot(100 * i, &[1, 2], counted.to_vec());
        for t in &mut s.threads {
            let slot = t.key.slot as usize;
            t.comm[0] = b'a' + slot as u8;
            runtime[slot][usize::from(rate(slot as u64).0)].0 += 100_000_000;
            t.runtime = runtime[slot];
        }
        p.observe(&s);
    };
    for i in 0..60 {
        interval(&mut p, i, (i / 10) % 3);
    }
    assert_eq!(p.estimate(key(1), SF).unwrap().value, 1.6);
    // the last ten intervals had `b` on the fast core type, alone
    for slot in [1, 2] {
        assert!((p.slowed(key(slot)) - 1.0).abs() < 1e-9);
    }
    interval(&mut p, 60, 0);
    for slot in [1, 2] {
        let slowed = p.slowed(key(slot));
        assert!((slowed - 0.43).abs() < 0.08, "{slowed}");
    }
    assert!(p.costs().is_empty(), "nobody is put apart for it");
}
