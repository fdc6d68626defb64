//! What must hold for every policy, and the analytic oracle for each.

mod energy;
mod fairness;
mod frontier;
mod steadiness;
mod table;
mod types;

use crate::engine::Engine;
use crate::policy::by_name;
use crate::policy::contract::Entry;
use crate::policy::registry::{ENTRIES, NAMES};
use crate::testing::{Fake, Noisy};
use amp_metrics::{CoreTypeId, CoreTypeSet, Nanos, Provider, ThreadKey, MAX_CORE_TYPES};
use proptest::prelude::*;

fn engine(fake: &Fake, policy: &str, provider: Box<dyn Provider>) -> Engine {
    use crate::machine::Machine;
    Engine::new(
        fake.topology().clone(),
        by_name(policy, 1).unwrap(),
        provider,
    )
}

/// Single-threaded applications 1, 2, … with these speedup factors on such a machine.
fn mix(cpus: &[u32], sf: &[f64], noise: f64) -> (Fake, Vec<ThreadKey>, Box<dyn Provider>) {
    let mut fake = Fake::new(cpus);
    let keys = (1..=sf.len() as u64).map(|a| fake.spawn(a)).collect();
    let declared: Vec<(u64, f64)> = sf
        .iter()
        .enumerate()
        .map(|(i, s)| (i as u64 + 1, *s))
        .collect();
    (fake, keys, Box::new(Noisy::new(&declared, noise, 7)))
}

fn placed(fake: &Fake, t: u8) -> usize {
    fake.snapshot
        .threads
        .iter()
        .filter(|x| x.placed == Some(CoreTypeId(t)))
        .count()
}

/// One application of four threads and two of one, on two fast and four slow cores, under a policy
/// with one knob turned: each thread's shares, and what each application progresses by relative to
/// running alone.
fn four_threads_and_two_of_one(
    policy: &str,
    (knob, value): (&str, &str),
    ticks: usize,
) -> (Vec<[f64; MAX_CORE_TYPES]>, [f64; 3]) {
    let mut fake = Fake::new(&[2, 4]);
    let keys: Vec<_> = [1, 1, 1, 1, 2, 3]
        .into_iter()
        .map(|a| fake.spawn(a))
        .collect();
    let provider = Noisy::new(&[(1, 3.0), (2, 2.5), (3, 2.0)], 0.0, 1);
    let mut e = engine(&fake, policy, Box::new(provider));
    e.policy_mut().set(knob, value).unwrap();
    let s = shares(&mut e, &mut fake, &keys, ticks);
    let big: f64 = s[..4].iter().map(|s| s[0]).sum();
    // SP of the first: (2/4)(3-1)+1 = 2
    let progress = [
        (1.0 + big / 4.0 * 2.0) / 2.0,
        (1.0 + s[4][0] * 1.5) / 2.5,
        (1.0 + s[5][0]) / 2.0,
    ];
    (s, progress)
}

/// Runs `ticks` intervals after a warm-up of five; returns each thread's share of time per core
/// type.
fn shares(
    e: &mut Engine,
    fake: &mut Fake,
    keys: &[ThreadKey],
    ticks: usize,
) -> Vec<[f64; MAX_CORE_TYPES]> {
    for _ in 0..5 {
        e.tick(fake).unwrap();
    }
    let since = fake.snapshot.now;
    let before: Vec<_> = keys.iter().map(|k| fake.thread(*k).runtime).collect();
    for _ in 0..ticks {
        e.tick(fake).unwrap();
    }
    let share = |(k, b): (&ThreadKey, &[Nanos; MAX_CORE_TYPES])| {
        let mut s = [0.0; MAX_CORE_TYPES];
        for (t, s) in s.iter_mut().enumerate() {
            *s = fake.share(*k, t as u8, since, b[t]);
        }
        s
    };
    keys.iter().zip(&before).map(share).collect()
}

/// ASP and unfairness of steady single-threaded applications from their shares of big-core time.
fn asp_and_unfairness(sf: &[f64], shares: &[[f64; MAX_CORE_TYPES]]) -> (f64, f64) {
    let rate: Vec<f64> = sf
        .iter()
        .zip(shares)
        .map(|(sf, s)| s[0] * sf + s[1])
        .collect();
    let asp = rate.iter().map(|r| r - 1.0).sum();
    let slow: Vec<f64> = sf.iter().zip(&rate).map(|(sf, r)| sf / r).collect();
    let max = slow.iter().copied().fold(0.0, f64::max);
    (
        asp,
        max / slow.iter().copied().fold(f64::INFINITY, f64::min),
    )
}

/// Two threads that share their work gain half each of what one alone would.
#[test]
fn hsp_fills_fast_cores_by_what_each_of_them_adds() {
    let mut fake = Fake::new(&[2, 4]);
    let keys: Vec<_> = [1, 1, 2, 3, 4, 5]
        .into_iter()
        .map(|a| fake.spawn(a))
        .collect();
    let sf = [(1, 3.0), (2, 2.8), (3, 2.7), (4, 1.2), (5, 1.1)];
    let mut e = engine(&fake, "hsp", Box::new(Noisy::new(&sf, 0.0, 1)));
    let s = shares(&mut e, &mut fake, &keys, 500);
    // both threads of the first make one unit of its progress
    let asp = (s[0][0] + s[1][0]) / 2.0 * 2.0
        + (2..6).map(|i| s[i][0] * (sf[i - 1].1 - 1.0)).sum::<f64>();
    assert!((asp - 3.5).abs() < 0.02, "{asp}: {s:?}");
}

/// A thread keeps its seat unless another's factor is better beyond their uncertainties.
#[test]
fn hsp_does_not_swap_what_it_cannot_tell_apart() {
    struct Unsure(Noisy, f64);
    impl Provider for Unsure {
        fn name(&self) -> &str {
            "unsure"
        }
        fn observe(&mut self, s: &amp_metrics::Snapshot) {
            self.0.observe(s);
        }
        fn estimate(
            &self,
            t: ThreadKey,
            m: amp_metrics::MetricId,
        ) -> Option<amp_metrics::Estimate> {
            let e = self.0.estimate(t, m)?;
            Some(amp_metrics::Estimate {
                uncertainty: Some(self.1),
                ..e
            })
        }
    }
    for (u, caution, swaps) in [(0.3, "1", false), (0.05, "1", true), (0.3, "0", true)] {
        let mut fake = Fake::new(&[1, 1]);
        let keys = [fake.spawn(1), fake.spawn(2)];
        fake.thread(keys[0]).placed = Some(CoreTypeId(0));
        fake.thread(keys[1]).placed = Some(CoreTypeId(1));
        let provider = Unsure(Noisy::new(&[(1, 2.5), (2, 2.8)], 0.0, 1), u);
        let mut e = engine(&fake, "hsp", Box::new(provider));
        e.policy_mut().set("caution", caution).unwrap();
        for _ in 0..10 {
            e.tick(&mut fake).unwrap();
        }
        let swapped = fake.thread(keys[0]).placed == Some(CoreTypeId(1));
        assert_eq!(swapped, swaps, "uncertainty {u}, caution {caution}");
    }
}

#[test]
fn hsp_and_rr_reproduce_the_oracle() {
    for (cpus, sf) in [
        (vec![2, 4], vec![3.1, 2.8, 1.4, 1.3, 1.2, 1.1]),
        (vec![2, 2], vec![1.2, 3.0, 1.3, 2.7]),
        (
            vec![2, 10],
            (0..12).map(|i| 1.1 + 0.2 * f64::from(i)).collect(),
        ),
        (
            vec![8, 8],
            (0..16).map(|i| 3.4 - 0.15 * f64::from(i)).collect(),
        ),
    ] {
        let n = sf.len() as f64;
        let nb = cpus[0] as usize;
        let mut sorted = sf.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let hsp_asp: f64 = sorted[..nb].iter().map(|s| s - 1.0).sum();
        let hsp_unf = sorted[nb];
        let f = nb as f64 / n;
        let rr_asp: f64 = sf.iter().map(|s| f * (s - 1.0)).sum();
        let slowdown = |s: &f64| s / (f * (s - 1.0) + 1.0);
        let rr_unf = slowdown(&sorted[0]) / slowdown(&sorted[sf.len() - 1]);
        for (policy, asp, unfairness) in [("hsp", hsp_asp, hsp_unf), ("rr", rr_asp, rr_unf)] {
            let (mut fake, keys, provider) = mix(&cpus, &sf, 0.0);
            let mut e = engine(&fake, policy, provider);
            let s = shares(&mut e, &mut fake, &keys, 2000);
            let (a, u) = asp_and_unfairness(&sf, &s);
            assert!(
                (a / asp - 1.0).abs() < 0.02,
                "{policy} {cpus:?}: ASP {a} for {asp}"
            );
            assert!(
                (u / unfairness - 1.0).abs() < 0.02,
                "{policy} {cpus:?}: {u} for {unfairness}"
            );
        }
    }
}

#[test]
fn rr_shares_are_equal_and_sum_to_the_big_cores() {
    let (mut fake, keys, provider) = mix(&[2, 4], &[3.0, 2.5, 1.5, 1.4, 1.2, 1.1], 0.0);
    let mut e = engine(&fake, "rr", provider);
    let s = shares(&mut e, &mut fake, &keys, 600);
    assert!((s.iter().map(|s| s[0]).sum::<f64>() - 2.0).abs() < 1e-9);
    assert!(s.iter().all(|s| (s[0] - 1.0 / 3.0).abs() < 0.03), "{s:?}");
    assert!(e.totals().swaps > 10);
    assert_eq!(e.totals().refused, 0);
}

#[test]
fn rr_shares_every_core_type() {
    let (mut fake, keys, provider) = mix(&[1, 2, 3], &[2.0; 6], 0.0);
    let mut e = engine(&fake, "rr", provider);
    for s in shares(&mut e, &mut fake, &keys, 3000) {
        for (t, want) in [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0].into_iter().enumerate() {
            assert!((s[t] - want).abs() < 0.03, "type {t}: {s:?}");
        }
    }
}

#[test]
fn rr_shares_among_applications_or_threads() {
    for (share, wants) in [
        ("app", [2.0 / 3.0; 3]),
        ("thread", [4.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]),
    ] {
        let mut fake = Fake::new(&[2, 4]);
        let keys: Vec<_> = [1, 1, 1, 1, 2, 3]
            .into_iter()
            .map(|a| fake.spawn(a))
            .collect();
        let mut e = engine(
            &fake,
            "rr",
            amp_metrics::providers::by_name("none").unwrap(),
        );
        e.policy_mut().set("share", share).unwrap();
        let s = shares(&mut e, &mut fake, &keys, 2000);
        let apps = [s[..4].iter().map(|s| s[0]).sum::<f64>(), s[4][0], s[5][0]];
        for (got, want) in apps.iter().zip(wants) {
            assert!((got - want).abs() < 0.03, "{share}: {apps:?}");
        }
        // the four threads of the first take turns
        assert!(
            s[..4].iter().all(|x| (x[0] - apps[0] / 4.0).abs() < 0.03),
            "{share}: {s:?}"
        );
    }
}

#[test]
fn rr_honours_weights() {
    let (mut fake, keys, provider) = mix(&[1, 3], &[2.0; 4], 0.0);
    fake.thread(keys[0]).weight = 200;
    let mut e = engine(&fake, "rr", provider);
    let s = shares(&mut e, &mut fake, &keys, 3000);
    for (s, want) in s.iter().zip([0.4, 0.2, 0.2, 0.2]) {
        assert!((s[0] - want).abs() < 0.03, "{s:?}");
    }
}

#[test]
fn rr_gives_a_restarted_application_no_advantage() {
    let (mut fake, mut keys, provider) = mix(&[2, 4], &[2.0; 6], 0.0);
    let mut e = engine(&fake, "rr", provider);
    let (mut big, mut all) = (0.0, 0.0);
    for round in 0..100 {
        for _ in 0..30 + round % 17 {
            e.tick(&mut fake).unwrap();
        }
        let t = *fake.thread(keys[0]);
        big += t.runtime[0].as_secs_f64();
        all += t.runtime[0].as_secs_f64() + t.runtime[1].as_secs_f64();
        fake.exit(keys[0]);
        keys[0] = fake.spawn(100 + round);
    }
    assert!((big / all - 1.0 / 3.0).abs() < 0.05, "{}", big / all);
}

#[test]
fn hsp_follows_a_change_of_phase_and_of_parallelism() {
    let mut fake = Fake::new(&[1, 3]);
    let keys: Vec<_> = [1, 2, 2, 2].into_iter().map(|a| fake.spawn(a)).collect();
    let provider = Noisy::new(&[(1, 2.0), (2, 3.0)], 0.0, 1);
    let mut e = engine(&fake, "hsp", Box::new(provider));
    for _ in 0..10 {
        e.tick(&mut fake).unwrap();
    }
    // three threads: SP = (1/3)(3-1)+1 = 1.67 < 2
    assert_eq!(fake.thread(keys[0]).placed, Some(CoreTypeId(0)));
    for k in &keys[2..] {
        fake.thread(*k).runnable = false;
    }
    for _ in 0..3 {
        e.tick(&mut fake).unwrap();
    }
    // its serial phase: SP = 3
    assert_eq!(fake.thread(keys[1]).placed, Some(CoreTypeId(0)));
}

#[test]
fn hsp_lets_the_threads_of_an_application_take_turns() {
    let mut fake = Fake::new(&[2, 2]);
    let keys: Vec<_> = [1, 1, 1, 1].into_iter().map(|a| fake.spawn(a)).collect();
    let mut e = engine(&fake, "hsp", Box::new(Noisy::new(&[(1, 2.0)], 0.05, 1)));
    let s = shares(&mut e, &mut fake, &keys, 1000);
    assert!(s.iter().all(|s| (s[0] - 0.5).abs() < 0.03), "{s:?}");
}

#[test]
fn hsp_fair_shares_who_has_no_speedup_factor() {
    let (mut fake, mut keys, provider) = mix(&[2, 4], &[3.0, 2.5, 1.5, 1.2], 0.0);
    keys.extend([fake.spawn(50), fake.spawn(51)]);
    let mut e = engine(&fake, "hsp", provider);
    let s = shares(&mut e, &mut fake, &keys, 3000);
    assert!(
        (s[4][0] - 1.0 / 3.0).abs() < 0.03 && (s[5][0] - 1.0 / 3.0).abs() < 0.03,
        "{s:?}"
    );
    assert!(
        (s[0][0] + s[1][0] - 4.0 / 3.0).abs() < 0.03 && s[0][0] > 0.9,
        "{s:?}"
    );
    assert!(s[2][0] < 0.03 && s[3][0] < 0.03, "{s:?}");

    let (mut fake, _, _) = mix(&[2, 4], &[1.0; 6], 0.0);
    let keys: Vec<_> = fake.snapshot.threads.iter().map(|t| t.key).collect();
    let mut e = engine(
        &fake,
        "hsp",
        amp_metrics::providers::by_name("none").unwrap(),
    );
    let s = shares(&mut e, &mut fake, &keys, 3000);
    assert!(s.iter().all(|s| (s[0] - 1.0 / 3.0).abs() < 0.03), "{s:?}");
}

#[test]
fn hsp_fills_three_core_types_by_speedup() {
    let (mut fake, keys, provider) = mix(&[1, 2, 3], &[1.1, 1.2, 3.0, 1.3, 2.0, 2.5], 0.0);
    let mut e = engine(&fake, "hsp", provider);
    for _ in 0..10 {
        e.tick(&mut fake).unwrap();
    }
    let t: Vec<_> = keys
        .iter()
        .map(|k| fake.thread(*k).placed.unwrap().0)
        .collect();
    assert_eq!(t, [2, 2, 0, 2, 1, 1]);
}

#[test]
fn more_threads_than_cpus_are_balanced_by_weight() {
    for policy in NAMES {
        let (mut fake, keys, provider) = mix(&[2, 4], &[2.0; 12], 0.0);
        for k in &keys[..6] {
            fake.thread(*k).weight = 300;
        }
        let mut e = engine(&fake, policy, provider);
        for _ in 0..100 {
            e.tick(&mut fake).unwrap();
            if e.totals().ticks < 3 {
                continue;
            }
            // 2400 of weight: 800 belong on the big cores, to within half the heaviest thread
            let on = |t: u8| -> u32 {
                let at = |x: &&amp_metrics::ThreadSample| x.placed == Some(CoreTypeId(t));
                fake.snapshot
                    .threads
                    .iter()
                    .filter(at)
                    .map(|x| x.weight)
                    .sum()
            };
            assert!((650..=950).contains(&on(0)), "{policy}: {}", on(0));
            assert!(placed(&fake, 0) >= 2 && placed(&fake, 1) >= 4);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Seats: at most one thread per CPU, fast cores never idle, affinity kept, nothing refused,
    /// any core type count.
    #[test]
    fn placements_are_sound(
        policy in prop::sample::select(NAMES),
        cpus in prop::collection::vec(1u32..5, 1..5),
        threads in prop::collection::vec((1u64..6, 1u32..400, any::<u8>(), 1.0f64..4.0, any::<bool>()), 1..24),
        noise in 0.0f64..0.3,
        pin in any::<bool>(),
    ) {
        let mut fake = Fake::new(&cpus);
        let all = (1u8 << cpus.len()) - 1;
        let sf: Vec<(u64, f64)> =
            threads.iter().filter(|t| t.4).map(|t| (t.0, t.3)).collect();
        let keys: Vec<_> = threads.iter().map(|t| {
            let k = fake.spawn(t.0);
            fake.thread(k).weight = t.1;
            if pin && t.2 & all != 0 {
                fake.thread(k).allowed = CoreTypeSet::from_bits(t.2 & all);
            }
            k
        }).collect();
        let mut e = engine(&fake, policy, Box::new(Noisy::new(&sf, noise, 3)));
        let total: usize = cpus.iter().map(|c| *c as usize).sum();
        for tick in 0..40 {
            e.tick(&mut fake).unwrap();
            if tick < 2 { continue; }
            for k in &keys {
                let t = *fake.thread(*k);
                prop_assert!(t.placed.is_some_and(|p| t.allowed.contains(p)), "{t:?}");
            }
            for (t, n) in cpus.iter().enumerate() {
                let on = placed(&fake, t as u8);
                if !pin && keys.len() <= total {
                    prop_assert!(on <= *n as usize, "type {t}: {on} threads on {n} CPUs");
                }
                if !pin && keys.len() >= total {
                    prop_assert!(on >= *n as usize, "type {t}: {on} threads on {n} CPUs");
                }
            }
            // faster types first
            let fast_first = (0..cpus.len()).all(|t| {
                placed(&fake, t as u8) == cpus[t] as usize
                    || (t + 1..cpus.len()).all(|s| placed(&fake, s as u8) == 0)
            });
            prop_assert!(pin || keys.len() > total || fast_first);
        }
        prop_assert_eq!(e.totals().refused, 0);
    }

    /// A core of two hardware threads gets a second thread only where there are more threads than
    /// cores, and then no slow core is left without one.
    #[test]
    fn cores_are_filled_before_their_other_threads(
        policy in prop::sample::select(NAMES),
        n in 1usize..12,
        noise in 0.0f64..0.1,
    ) {
        let sf: Vec<f64> = (0..n).map(|i| 1.2 + 0.2 * i as f64).collect();
        let (mut fake, _, provider) = mix(&[4, 3], &sf, noise);
        fake.set_cores(|cpu| if cpu < 4 { cpu / 2 } else { cpu });
        let mut e = engine(&fake, policy, provider);
        for tick in 0..40 {
            e.tick(&mut fake).unwrap();
            if tick < 2 { continue; }
            let on = [placed(&fake, 0), placed(&fake, 1)];
            match n {
                ..=5 => prop_assert!(on[0] <= 2 && on[1] <= 3, "{on:?}"),
                6 => prop_assert_eq!(on, [3, 3]),
                7 => prop_assert_eq!(on, [4, 3]),
                _ => prop_assert!(on[0] >= 4 && on[1] >= 3, "{on:?}"),
            }
        }
    }

    /// Work conservation under affinity: the placement itself uses as many CPUs as any placement
    /// could.
    #[test]
    fn affinity_leaves_no_cpu_idle_needlessly(
        policy in prop::sample::select(NAMES),
        cpus in prop::collection::vec(1u32..4, 2..5),
        masks in prop::collection::vec(any::<u8>(), 1..14),
    ) {
        let all = (1u8 << cpus.len()) - 1;
        let masks: Vec<u8> = masks.iter().map(|m| if m & all == 0 { all } else { m & all }).collect();
        let sf: Vec<f64> = (0..masks.len()).map(|i| 1.0 + 0.2 * i as f64).collect();
        let (mut fake, keys, provider) = mix(&cpus, &sf, 0.0);
        for (k, m) in keys.iter().zip(&masks) {
            fake.thread(*k).allowed = CoreTypeSet::from_bits(*m);
        }
        let mut e = engine(&fake, policy, provider);
        for _ in 0..5 { e.tick(&mut fake).unwrap(); }
        let used: usize = (0..cpus.len()).map(|t| placed(&fake, t as u8).min(cpus[t] as usize)).sum();
        // Hall: the most CPUs that can be used is the minimum over sets of types S of
        // CPUs in S + threads allowed outside S only partly
        let best = (0u8..=all).map(|s| {
            let inside: usize = (0..cpus.len()).filter(|t| s >> t & 1 == 1).map(|t| cpus[t] as usize).sum();
            inside + masks.iter().filter(|m| **m & !s != 0).count()
        }).min().unwrap();
        prop_assert_eq!(used, best);
    }

    /// Equals under ±5 % noise of their speedup factors stay where they are.
    #[test]
    fn hsp_does_not_ping_pong(seed in any::<u64>(), base in 1.2f64..3.5) {
        let mut fake = Fake::new(&[2, 4]);
        for app in 1..=6 { fake.spawn(app); }
        let sf: Vec<(u64, f64)> = (1..=6).map(|a| (a, base)).collect();
        let mut e = engine(&fake, "hsp", Box::new(Noisy::new(&sf, 0.05, seed)));
        for _ in 0..20 { e.tick(&mut fake).unwrap(); }
        let before = e.totals().swaps;
        for _ in 0..1000 { e.tick(&mut fake).unwrap(); }
        prop_assert!(e.totals().swaps - before <= 2, "{} swaps", e.totals().swaps - before);
    }

    /// RR swaps no more often than the threshold makes it: each swap needs a difference of one
    /// threshold.
    #[test]
    fn rr_swaps_are_bounded(nb in 1u32..4, ns in 1u32..6) {
        let n = (nb + ns) as usize;
        let (mut fake, _, provider) = mix(&[nb, ns], &vec![2.0; n], 0.05);
        let mut e = engine(&fake, "rr", provider);
        e.policy_mut().set("threshold", "250").unwrap();
        for _ in 0..1000 { e.tick(&mut fake).unwrap(); }
        // 100 s; a seat is held for at least a threshold of 250 ms
        prop_assert!(e.totals().swaps <= 100 * 4 * u64::from(nb));
    }

    /// The same views give the same placements.
    #[test]
    fn decisions_are_reproducible(
        policy in prop::sample::select(NAMES),
        sf in prop::collection::vec(1.0f64..4.0, 1..14),
    ) {
        let run = || {
            let (mut fake, _, provider) = mix(&[2, 4], &sf, 0.2);
            let mut e = engine(&fake, policy, provider);
            let mut log = Vec::new();
            for _ in 0..100 {
                e.tick(&mut fake).unwrap();
                log.push(fake.snapshot.threads.iter().map(|t| t.placed).collect::<Vec<_>>());
            }
            log
        };
        prop_assert_eq!(run(), run());
    }
}
