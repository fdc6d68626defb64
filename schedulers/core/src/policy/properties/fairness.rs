//! The fairness policies against the analytic optimum, weights, arrivals and changes of policy.

use super::*;
use amp_metrics::{Estimate, MetricId, Phase, Snapshot};

/// The largest least normalised progress m that big-core time of `nb` cores allows: Σ F_i = NB with
/// F_i = clamp((m·SF_i − 1)/(SF_i − 1), 0, 1), which makes all slowdowns equal where it can
/// [TR5028].
fn fairest_shares(sf: &[f64], nb: usize) -> Vec<f64> {
    let shares = |m: f64| -> Vec<f64> {
        sf.iter()
            .map(|s| {
                if *s > 1.0 {
                    ((m * s - 1.0) / (s - 1.0)).clamp(0.0, 1.0)
                } else {
                    0.0
                }
            })
            .collect()
    };
    let (mut lo, mut hi) = (0.0, 1.0);
    for _ in 0..100 {
        let m = (lo + hi) / 2.0;
        if shares(m).iter().sum::<f64>() < nb as f64 {
            lo = m;
        } else {
            hi = m;
        }
    }
    shares(lo)
}

fn oracle(sf: &[f64], nb: usize) -> (f64, f64) {
    let f: Vec<_> = fairest_shares(sf, nb)
        .iter()
        .map(|f| {
            let mut s = [0.0; MAX_CORE_TYPES];
            (s[0], s[1]) = (*f, 1.0 - f);
            s
        })
        .collect();
    asp_and_unfairness(sf, &f)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// ACFS reaches the fairness optimum within 2 % on steady single-threaded mixes, one thread per
    /// CPU.
    #[test]
    fn acfs_reaches_the_fairness_optimum(
        nb in 1usize..5,
        ns in 1usize..9,
        sf in prop::collection::vec(1.0f64..5.0, 12),
    ) {
        let sf = &sf[..nb + ns];
        let (asp, unfairness) = oracle(sf, nb);
        let (mut fake, keys, provider) = mix(&[nb as u32, ns as u32], sf, 0.0);
        let mut e = engine(&fake, "acfs", provider);
        let s = shares(&mut e, &mut fake, &keys, 1500);
        let (a, u) = asp_and_unfairness(sf, &s);
        prop_assert!((u / unfairness - 1.0).abs() < 0.02, "unfairness {} for {}", u, unfairness);
        prop_assert!((a - asp).abs() < 0.02 * asp.max(0.1), "ASP {} for {}", a, asp);
    }
}

/// Weighted slowdowns relative to the first one.
fn weighted(sf: &[f64], weights: &[f64], shares: &[[f64; MAX_CORE_TYPES]]) -> Vec<f64> {
    let slow: Vec<f64> = sf
        .iter()
        .zip(weights)
        .zip(shares)
        .map(|((sf, w), s)| w * sf / (s[0] * sf + s[1]))
        .collect();
    slow.iter().map(|s| s / slow[0]).collect()
}

#[test]
fn acfs_honours_weights() {
    let sf = [3.0, 3.0, 2.5, 2.5];
    let weights = [1.2, 1.0, 1.2, 1.0];
    let (mut fake, keys, provider) = mix(&[2, 2], &sf, 0.0);
    for (k, w) in keys.iter().zip(weights) {
        fake.thread(*k).weight = (w * 100.0) as u32;
    }
    let mut e = engine(&fake, "acfs", provider);
    let s = shares(&mut e, &mut fake, &keys, 3000);
    let w = weighted(&sf, &weights, &s);
    assert!(w.iter().all(|w| (w - 1.0).abs() < 0.02), "{w:?}");
}

#[test]
fn acfs_lets_the_unfairness_factor_buy_throughput() {
    let sf = [3.5, 2.6, 1.9, 1.4];
    let mut last = (0.0, 0.0);
    for uf in ["1", "1.3", "1.8"] {
        let (mut fake, keys, provider) = mix(&[1, 3], &sf, 0.0);
        let mut e = engine(&fake, "acfs", provider);
        e.policy_mut().set("uf", uf).unwrap();
        let s = shares(&mut e, &mut fake, &keys, 3000);
        let now = asp_and_unfairness(&sf, &s);
        let (_, best) = oracle(&sf, 1);
        let uf: f64 = uf.parse().unwrap();
        assert!(now.1 <= uf * best * 1.03, "{uf}: {now:?}, best {best}");
        assert!(
            now.0 != last.0 && now.1 >= last.1 * 0.99,
            "{uf}: {now:?} after {last:?}"
        );
        last = now;
    }
    // equal speedups: nothing to divide by
    let (mut fake, keys, provider) = mix(&[1, 3], &[2.0; 4], 0.0);
    let mut e = engine(&fake, "acfs", provider);
    e.policy_mut().set("uf", "2").unwrap();
    let s = shares(&mut e, &mut fake, &keys, 2000);
    assert!(s.iter().all(|s| (s[0] - 0.25).abs() < 0.02), "{s:?}");
}

/// Progress of a single thread relative to the fastest cores, over the time it ran.
fn progress(fake: &mut Fake, key: ThreadKey, sf: f64) -> f64 {
    let t = fake.thread(key).runtime;
    let (big, small) = (t[0].as_secs_f64(), t[1].as_secs_f64());
    (big + small / sf) / (big + small)
}

/// The same of each of these.
fn progresses(fake: &mut Fake, keys: &[ThreadKey], sf: &[f64]) -> Vec<f64> {
    let each = keys.iter().zip(sf);
    each.map(|(k, sf)| progress(fake, *k, *sf)).collect()
}

#[test]
fn acfs_neither_rewards_nor_punishes_sleep() {
    let sf = [3.0, 2.5, 2.0, 2.5];
    let (mut fake, keys, provider) = mix(&[1, 3], &sf, 0.0);
    let mut e = engine(&fake, "acfs", provider);
    for tick in 0..6000 {
        // the first one rests for 2 s now and then
        fake.thread(keys[0]).runnable = tick % 80 >= 20;
        e.tick(&mut fake).unwrap();
    }
    let p = progresses(&mut fake, &keys, &sf);
    let (min, max) = p
        .iter()
        .fold((1.0f64, 0.0f64), |(a, b), p| (a.min(*p), b.max(*p)));
    assert!(max / min < 1.12, "{p:?}");
}

#[test]
fn acfs_starts_newcomers_at_the_maximum_but_not_behind_those_who_do_not_compete() {
    // 1.0 never competes, and leads by far after a minute
    let sf = [3.0, 3.0, 1.0];
    let (mut fake, _, _) = mix(&[1, 3], &sf, 0.0);
    let declared = [(1, 3.0), (2, 3.0), (3, 1.0), (9, 3.0)];
    let mut e = engine(&fake, "acfs", Box::new(Noisy::new(&declared, 0.0, 1)));
    for _ in 0..600 {
        e.tick(&mut fake).unwrap();
    }
    let new = fake.spawn(9);
    e.tick(&mut fake).unwrap();
    let t = e.tick(&mut fake).unwrap();
    assert_eq!(t.swaps, 0, "a newcomer does not push anybody out");
    let s = shares(&mut e, &mut fake, &[new], 600);
    assert!((s[0][0] - 1.0 / 3.0).abs() < 0.05, "{s:?}");
}

/// What a newcomer did in the interval in which it came counts as that of everybody else.
#[test]
fn acfs_does_not_forget_the_interval_in_which_somebody_came() {
    let (mut fake, _, _) = mix(&[1, 1], &[3.0], 0.0);
    let declared = [(1, 3.0), (9, 3.0)];
    let mut e = engine(&fake, "acfs", Box::new(Noisy::new(&declared, 0.0, 1)));
    for _ in 0..20 {
        e.tick(&mut fake).unwrap();
    }
    let new = fake.spawn(9);
    // a tick is 0.1 s, in which the one on the slow core falls 0.067 s behind; they change places at 0.167
    let swaps: Vec<usize> = (0..4).map(|_| e.tick(&mut fake).unwrap().swaps).collect();
    assert_eq!(swaps[..3].iter().sum::<usize>(), 1, "{swaps:?}");
    assert_eq!(fake.thread(new).placed, Some(CoreTypeId(0)));
}

/// Says 1.6 of the first thread until so many snapshots were seen, and the truth from then on.
struct Mistaken {
    truth: Box<dyn Provider>,
    first: ThreadKey,
    until: u32,
    seen: u32,
    /// After so many snapshots more it is known that this is another phase; none if it is not.
    another: Option<u32>,
}

impl Provider for Mistaken {
    fn name(&self) -> &str {
        "mistaken"
    }
    fn observe(&mut self, s: &Snapshot) {
        self.truth.observe(s);
        self.seen += 1;
    }
    fn estimate(&self, t: ThreadKey, m: MetricId) -> Option<Estimate> {
        let mut e = self.truth.estimate(t, m)?;
        if t == self.first && self.seen <= self.until {
            e.value = 1.6;
        }
        Some(e)
    }
    fn phase(&self, _: ThreadKey) -> Option<Phase> {
        let begun = |late| self.seen > self.until + late;
        Some(Phase {
            number: u32::from(self.another.is_some_and(begun)),
            age: Nanos::ZERO,
        })
    }
}

/// A model that was wrong about a program for three seconds: what it suffered by that is made up for, unless that was
/// another phase, in which it may have been right, even if that is known two intervals later.
#[test]
fn what_a_wrong_factor_has_done_is_made_up_for() {
    let sf = [3.0, 2.8, 2.6, 2.4];
    let all = |policy, another| {
        let (mut fake, keys, truth) = mix(&[1, 3], &sf, 0.0);
        let provider = Mistaken {
            truth,
            first: keys[0],
            until: 30,
            seen: 0,
            another,
        };
        let mut e = engine(&fake, policy, Box::new(provider));
        if policy == "pareto" {
            e.policy_mut().set("unfairness", "1").unwrap();
        }
        for _ in 0..110 {
            e.tick(&mut fake).unwrap();
        }
        let p = progresses(&mut fake, &keys, &sf);
        p[1..].iter().copied().fold(0.0, f64::max) / p[0]
    };
    for policy in ["acfs", "pareto"] {
        let [same, other, late] = [None, Some(0), Some(2)].map(|another| all(policy, another));
        println!("{policy}: {same:.3}, {other:.3}, {late:.3}");
        assert!((0.93..1.07).contains(&same), "{policy}: {same}");
        assert!(other > 1.1, "{policy}: {other}");
        assert!(
            (late / other - 1.0).abs() < 0.01,
            "{policy}: {late} {other}"
        );
    }
}

/// A program of twelve intervals that is run again and again, as in a shell's loop, beside five
/// that go on: its share of the fast cores.
fn share_of_short_runs(policy: &str, provider: Box<dyn Provider>) -> f64 {
    let (mut fake, keys, _) = mix(&[2, 4], &[2.0; 6], 0.0);
    let mut e = engine(&fake, policy, provider);
    let mut now = keys[0];
    fake.thread(now).tid = 1;
    let (mut fast, mut all) = (Nanos::ZERO, Nanos::ZERO);
    for n in 0..100 {
        for _ in 0..12 {
            e.tick(&mut fake).unwrap();
        }
        let last = *fake.thread(now);
        fast += last.runtime[0];
        all += last.runtime.iter().copied().sum();
        fake.exit(now);
        now = fake.spawn(10 + n);
        let thread = fake.thread(now);
        (thread.comm, thread.tid) = (last.comm, thread.app.0 as i32);
        (thread.placed, thread.core_type) = (None, CoreTypeId(1));
    }
    fast.as_secs_f64() / all.as_secs_f64()
}

#[test]
fn programs_of_short_runs_get_their_share() {
    for policy in ["acfs", "adwrr", "rr"] {
        let all: Vec<(u64, f64)> = (1..200).map(|app| (app, 2.0)).collect();
        let share = share_of_short_runs(policy, Box::new(Noisy::new(&all, 0.0, 1)));
        println!("{policy}: {share:.3}");
        assert!((share - 1.0 / 3.0).abs() < 0.03, "{policy}: {share}");
    }
}

#[test]
fn acfs_makes_up_for_what_happened_under_another_policy() {
    let sf = [3.0, 2.9, 2.8];
    let (mut fake, keys, _) = mix(&[1, 2], &sf, 0.0);
    let declared = [(1, 3.0), (2, 2.9), (3, 2.8)];
    let mut e = engine(&fake, "hsp", Box::new(Noisy::new(&declared, 0.0, 1)));
    for _ in 0..100 {
        e.tick(&mut fake).unwrap();
    }
    assert!(progress(&mut fake, keys[2], 2.8) < 0.4);
    e.set_policy(by_name("acfs", 1).unwrap());
    for _ in 0..500 {
        e.tick(&mut fake).unwrap();
    }
    let p = progresses(&mut fake, &keys, &sf);
    let (min, max) = p
        .iter()
        .fold((1.0f64, 0.0f64), |(a, b), p| (a.min(*p), b.max(*p)));
    assert!(max / min < 1.03, "{p:?}");
}

#[test]
fn acfs_and_eqp_even_out_three_core_types() {
    for policy in ["acfs", "eqp"] {
        let mut fake = Fake::new(&[1, 2, 3]);
        let keys: Vec<_> = (1..=6).map(|a| fake.spawn(a)).collect();
        let mut provider = Noisy::new(&[], 0.0, 1);
        let declarations = amp_metrics::Declarations::default();
        let sf = [
            [3.0, 2.0],
            [2.8, 1.5],
            [2.6, 1.9],
            [3.2, 2.5],
            [2.9, 1.8],
            [3.0, 2.2],
        ];
        for (app, sf) in (1..).zip(sf) {
            let sf = amp_metrics::Speedups::per_type(&sf).unwrap();
            declarations.declare(amp_metrics::AppId(app), sf);
        }
        provider.inner = amp_metrics::Declared::new(declarations);
        let mut e = engine(&fake, policy, Box::new(provider));
        let s = shares(&mut e, &mut fake, &keys, 3000);
        let x: Vec<f64> = s
            .iter()
            .zip(sf)
            .map(|(s, sf)| s[0] + s[1] * sf[1] / sf[0] + s[2] / sf[0])
            .collect();
        let (min, max) = x
            .iter()
            .fold((1.0f64, 0.0f64), |(a, b), x| (a.min(*x), b.max(*x)));
        assert!(max / min < 1.03, "{policy}: {x:?} {s:?}");
    }
}

#[test]
fn acfs_counts_what_parallel_applications_do_on_fast_cores() {
    let (_, x) = four_threads_and_two_of_one("acfs", ("progress", "exact"), 2000);
    assert!(x.iter().all(|v| (v / x[0] - 1.0).abs() < 0.03), "{x:?}");
}

#[test]
fn eqp_evens_out_steady_slowdowns() {
    let sf = [3.1, 2.8, 2.4, 2.3, 2.2, 2.1];
    let (mut fake, keys, provider) = mix(&[2, 4], &sf, 0.05);
    let mut e = engine(&fake, "eqp", provider);
    let s = shares(&mut e, &mut fake, &keys, 3000);
    let (_, u) = asp_and_unfairness(&sf, &s);
    assert!(u < 1.06, "{u}");
}

#[test]
fn adwrr_shares_scaled_time_by_weight_and_rating() {
    // the machine's capacities are 1024 and 512: rating 2
    for (weight, rating) in [(100, "auto"), (140, "auto"), (140, "3")] {
        let (mut fake, keys, provider) = mix(&[1, 3], &[2.0; 4], 0.0);
        fake.thread(keys[0]).weight = weight;
        let mut e = engine(&fake, "adwrr", provider);
        e.policy_mut().set("rating", rating).unwrap();
        let s = shares(&mut e, &mut fake, &keys, 3000);
        let rating: f64 = rating.parse().unwrap_or(2.0);
        let scaled = |s: &[f64; MAX_CORE_TYPES]| 1.0 + (rating - 1.0) * s[0];
        for other in &s[1..] {
            let ratio = scaled(&s[0]) / scaled(other) / (f64::from(weight) / 100.0);
            assert!((ratio - 1.0).abs() < 0.04, "{weight} {rating}: {s:?}");
        }
    }
}

#[test]
fn propsp_shares_by_benefit_and_weight() {
    let sf = [3.0, 2.0, 1.5, 1.5];
    for (weight, wants) in [
        // benefits 2, 1, 0.5, 0.5 of one core
        (100, [0.5, 0.25, 0.125, 0.125]),
        // 2, 3, 0.5, 0.5
        (300, [1.0 / 3.0, 0.5, 1.0 / 12.0, 1.0 / 12.0]),
    ] {
        let (mut fake, keys, provider) = mix(&[1, 3], &sf, 0.0);
        fake.thread(keys[1]).weight = weight;
        let mut e = engine(&fake, "propsp", provider);
        let s = shares(&mut e, &mut fake, &keys, 3000);
        for (s, want) in s.iter().zip(wants) {
            assert!((s[0] - want).abs() < 0.02, "{wants:?}: {s:?}");
        }
    }
    // an application with two threads splits its credits; what one thread cannot use goes to the
    // others
    let mut fake = Fake::new(&[2, 2]);
    let keys: Vec<_> = [1, 1, 2, 3].into_iter().map(|a| fake.spawn(a)).collect();
    let provider = Noisy::new(&[(1, 2.0), (2, 5.0), (3, 2.0)], 0.0, 1);
    let mut e = engine(&fake, "propsp", Box::new(provider));
    let s = shares(&mut e, &mut fake, &keys, 3000);
    for (s, want) in s.iter().zip([0.25, 0.25, 1.0, 0.5]) {
        assert!((s[0] - want).abs() < 0.02, "{s:?}");
    }
}
