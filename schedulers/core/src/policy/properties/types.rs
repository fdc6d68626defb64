//! What must hold on machines of three core types and more.

use super::*;
use amp_metrics::providers::{DeclaredFactors, Efficiencies};
use amp_metrics::{AppId, Declarations, Declared, Estimate, MetricId, Snapshot, Speedups};

/// Single-threaded applications 1, 2, … with these speedup factors per core type.
fn mix_of(cpus: &[u32], sf: &[Vec<f64>]) -> (Fake, Vec<ThreadKey>, Box<dyn Provider>) {
    let mut fake = Fake::new(cpus);
    let keys = (1..=sf.len() as u64).map(|a| fake.spawn(a)).collect();
    let declared = Declarations::default();
    for (app, sf) in (1..).zip(sf) {
        declared.declare(AppId(app), Speedups::per_type(sf).unwrap());
    }
    (fake, keys, Box::new(Declared::new(declared)))
}

/// Factors with a standard uncertainty of 0.1.
struct Doubtful(Box<dyn Provider>);

impl Provider for Doubtful {
    fn name(&self) -> &str {
        "doubtful"
    }
    fn observe(&mut self, snapshot: &Snapshot) {
        self.0.observe(snapshot);
    }
    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let estimate = self.0.estimate(thread, metric)?;
        Some(Estimate {
            uncertainty: Some(0.1),
            ..estimate
        })
    }
}

/// Core types of these threads once the policy has settled.
fn settled(fake: &mut Fake, e: &mut Engine, keys: &[ThreadKey]) -> Vec<usize> {
    for _ in 0..20 {
        e.tick(fake).unwrap();
    }
    let on = |k: &ThreadKey| fake.thread(*k).placed.unwrap().index();
    keys.iter().map(on).collect()
}

/// The largest sum of speeds that threads can have, one on a CPU.
fn most(sf: &[Vec<f64>], cpus: &mut [u32]) -> f64 {
    let Some((first, rest)) = sf.split_first() else {
        return 0.0;
    };
    let mut best = f64::NEG_INFINITY;
    for t in 0..cpus.len() {
        if cpus[t] > 0 {
            cpus[t] -= 1;
            best = best.max(first[t] + most(rest, cpus));
            cpus[t] += 1;
        }
    }
    best
}

/// The first has the largest factor on both fast types, and loses least on the second.
#[test]
fn hsp_gives_the_fastest_core_to_whom_the_next_one_serves_worst() {
    let sf = [
        vec![5.0, 4.8, 1.0],
        vec![4.5, 2.0, 1.0],
        vec![1.2, 1.1, 1.0],
    ];
    let (mut fake, keys, provider) = mix_of(&[1, 1, 1], &sf);
    let mut e = engine(&fake, "hsp", provider);
    assert_eq!(settled(&mut fake, &mut e, &keys), [1, 0, 2]);
}

/// Whom a better known factor could not move is not contested, and whom it could is.
#[test]
fn hsp_contests_between_each_two_core_types() {
    // doubt of 0.1: the first two differ by 2.4 on the fast pair, the last two by 0.05 on the slow one
    let sf = [
        vec![5.0, 4.8, 1.0],
        vec![4.6, 2.0, 1.0],
        vec![1.3, 1.15, 1.0],
        vec![1.25, 1.1, 1.0],
    ];
    let (mut fake, keys, provider) = mix_of(&[1, 2, 1], &sf);
    let mut e = engine(&fake, "hsp", Box::new(Doubtful(provider)));
    assert_eq!(settled(&mut fake, &mut e, &keys), [1, 0, 1, 2]);
    let contested: Vec<bool> = (0..4).map(|i| e.policy().contested(i)).collect();
    assert_eq!(contested, [false, false, true, true]);
}

/// A factor that is not known on the type between is made up for nobody.
#[test]
fn hsp_does_not_exchange_whom_it_knows_in_part() {
    let sf = [vec![5.0], vec![4.5, 2.0, 1.0], vec![1.2, 1.1, 1.0]];
    let (mut fake, keys, provider) = mix_of(&[1, 1, 1], &sf);
    let mut e = engine(&fake, "hsp", provider);
    assert_eq!(settled(&mut fake, &mut e, &keys), [0, 1, 2]);
}

/// What an application of more threads than fastest cores would do alone, it does on the types
/// between, too.
#[test]
fn acfs_evens_out_progress_of_parallel_applications_on_three_core_types() {
    let mut fake = Fake::new(&[1, 2, 3]);
    let keys: Vec<_> = [1, 1, 1, 1, 2, 3].map(|app| fake.spawn(app)).into();
    let sf: Vec<(u64, Vec<f64>)> = (1..=3).map(|app| (app, vec![3.0, 2.0, 1.0])).collect();
    let mut e = engine(&fake, "acfs", Box::new(Noisy::per_type(&sf, 0.0, 1)));
    let s = shares(&mut e, &mut fake, &keys, 2000);
    let speed = |s: &[f64; MAX_CORE_TYPES]| 3.0 * s[0] + 2.0 * s[1] + s[2];
    // alone the four have the prime core, both of the next and one slow one: 8 between them
    let parallel = s[..4].iter().map(speed).sum::<f64>() / 8.0;
    for single in [speed(&s[4]) / 3.0, speed(&s[5]) / 3.0] {
        assert!(
            (parallel / single - 1.0).abs() < 0.05,
            "{parallel} {single} {s:?}"
        );
    }
}

/// Time on each fast core type goes by what is gained there; nobody has more than all of his own.
#[test]
fn propsp_shares_each_core_type_by_gain_and_weight() {
    let sf = vec![vec![3.0, 2.0, 1.0]; 6];
    let (mut fake, keys, provider) = mix_of(&[1, 2, 3], &sf);
    fake.thread(keys[0]).weight = 150;
    let mut e = engine(&fake, "propsp", provider);
    let s = shares(&mut e, &mut fake, &keys, 2000);
    for t in 0..2 {
        let others = s[1..].iter().map(|s| s[t]).sum::<f64>() / 5.0;
        assert!((s[0][t] / others / 1.5 - 1.0).abs() < 0.06, "{t}: {s:?}");
    }
    // who gains nothing on the type between is not there
    let sf = [
        vec![4.0, 1.0, 1.0],
        vec![4.0, 1.0, 1.0],
        vec![1.0, 3.0, 1.0],
        vec![1.0, 3.0, 1.0],
    ];
    let (mut fake, keys, provider) = mix_of(&[1, 1, 2], &sf);
    let mut e = engine(&fake, "propsp", provider);
    let s = shares(&mut e, &mut fake, &keys, 2000);
    for (i, t) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        assert!((s[i][t] - 0.5).abs() < 0.03, "{s:?}");
    }
}

/// Each core type has an efficiency factor of its own.
#[test]
fn ef_gives_each_core_type_to_the_highest_factor_for_it() {
    let (mut fake, keys, _) = mix_of(&[1, 1, 2], &vec![vec![1.0, 1.0, 1.0]; 4]);
    let declared = Declarations::default();
    let factors = [[1.2, 1.1], [2.0, 1.9], [1.9, 1.0], [1.1, 1.8]];
    for (app, ef) in (1..).zip(factors) {
        let known = DeclaredFactors {
            speedups: Speedups::per_type(&[2.0, 1.5]).ok(),
            efficiencies: Efficiencies::per_type(&ef).ok(),
        };
        declared.declare(AppId(app), known);
    }
    let provider = Box::new(Declared::new(declared));
    let mut e = engine(&fake, "ef", provider);
    assert_eq!(settled(&mut fake, &mut e, &keys), [2, 0, 2, 1]);
}

/// The bound on unfairness is kept, and bought with no more throughput than it must: more is done than by turns.
#[test]
fn pareto_keeps_its_bound_on_three_core_types() {
    let sf = [
        vec![5.0, 3.0, 1.0],
        vec![4.0, 3.0, 1.0],
        vec![3.0, 2.5, 1.0],
        vec![1.5, 1.3, 1.0],
        vec![1.4, 1.3, 1.0],
        vec![2.0, 1.8, 1.0],
    ];
    let done = |policy: &str, unfairness: Option<&str>| -> (f64, f64) {
        let (mut fake, keys, provider) = mix_of(&[1, 2, 3], &sf);
        let mut e = engine(&fake, policy, provider);
        if let Some(bound) = unfairness {
            e.policy_mut().set("unfairness", bound).unwrap();
        }
        let s = shares(&mut e, &mut fake, &keys, 3000);
        let speed = |i: usize| (0..3).map(|t| s[i][t] * sf[i][t]).sum::<f64>();
        let slowdown: Vec<f64> = (0..6).map(|i| sf[i][0] / speed(i)).collect();
        let most = slowdown.iter().copied().fold(0.0, f64::max);
        let least = slowdown.iter().copied().fold(f64::INFINITY, f64::min);
        (most / least, (0..6).map(speed).sum::<f64>())
    };
    let (fair, by_turns) = (done("acfs", None), done("rr", None));
    for bound in ["1.3", "1.6", "2"] {
        let (unfairness, speed) = done("pareto", Some(bound));
        let most: f64 = bound.parse().unwrap();
        assert!(unfairness < most * 1.03, "{bound}: {unfairness}");
        assert!(speed > fair.1, "{bound}: {speed} {fair:?}");
        assert!(most < 2.0 || speed > by_turns.1, "{speed} {by_turns:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// On any number of core types HSP has the largest sum of speeds, up to what is not worth a
    /// change of places.
    #[test]
    fn hsp_is_the_throughput_optimum_on_many_core_types(
        cpus in prop::collection::vec(1u32..3, 3..5),
        steps in prop::collection::vec((0.0f64..2.0, 0.0f64..2.0, 0.0f64..2.0), 8),
        fewer in 0usize..3,
    ) {
        let n = (cpus.iter().sum::<u32>() as usize).saturating_sub(fewer).max(1);
        let types = cpus.len();
        let sf: Vec<Vec<f64>> = steps.iter().take(n).map(|s| {
            let steps = [s.0, s.1, s.2];
            (0..types).map(|t| 1.0 + steps[..types - 1 - t].iter().sum::<f64>()).collect()
        }).collect();
        let (mut fake, keys, provider) = mix_of(&cpus, &sf);
        let mut e = engine(&fake, "hsp", provider);
        e.policy_mut().set("hysteresis", "0").unwrap();
        let on = settled(&mut fake, &mut e, &keys);
        let sum: f64 = on.iter().zip(&sf).map(|(t, sf)| sf[*t]).sum();
        let best = most(&sf, &mut cpus.clone());
        prop_assert!(sum > best - 1e-6, "{sum} of {best}: {on:?} {sf:?}");
    }

    /// Who sits where keeps it under noise that is smaller than the hysteresis.
    #[test]
    fn hsp_exchanges_nobody_for_noise(seed in any::<u64>(), base in 1.5f64..3.5) {
        let mut fake = Fake::new(&[1, 3, 4]);
        for app in 1..=8 { fake.spawn(app); }
        let sf: Vec<(u64, Vec<f64>)> =
            (1..=8).map(|a| (a, vec![2.0 * base, base, 1.0])).collect();
        let mut e = engine(&fake, "hsp", Box::new(Noisy::per_type(&sf, 0.05, seed)));
        for _ in 0..20 { e.tick(&mut fake).unwrap(); }
        let before = e.totals().swaps;
        for _ in 0..1000 { e.tick(&mut fake).unwrap(); }
        prop_assert!(e.totals().swaps - before <= 4, "{} swaps", e.totals().swaps - before);
    }
}
