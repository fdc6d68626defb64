//! What must hold for every policy under noise, sleep, missing estimates and odd input.

use super::table::{Row, Table};
use super::*;

fn table(rows: &[(u64, f64, f64)], noise: f64, seed: u64) -> Box<Table> {
    let row = |(app, sf, ef): &(u64, f64, f64)| Row {
        app: *app,
        sf: Some(*sf),
        ef: Some(*ef),
        u: None,
    };
    Box::new(Table::new(rows.iter().map(row).collect(), noise, seed))
}

/// Names of the policies that do what `of` asks.
fn policies(of: fn(&Entry) -> bool) -> Vec<&'static str> {
    ENTRIES.iter().filter(|e| of(e)).map(|e| e.name).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Under ±5 % noise equals keep their places, or take turns no faster than turns last.
    #[test]
    fn noise_causes_no_ping_pong(seed in any::<u64>(), base in 1.2f64..3.5) {
        for policy in NAMES {
            let mut fake = Fake::new(&[2, 4]);
            for app in 1..=6 { fake.spawn(app); }
            let rows: Vec<_> = (1..=6).map(|a| (a, base, base / 1.5)).collect();
            let mut e = engine(&fake, policy, table(&rows, 0.05, seed));
            if *policy == "rr" {
                e.policy_mut().set("threshold", "250").unwrap();
            }
            for _ in 0..20 { e.tick(&mut fake).unwrap(); }
            let before = e.totals().swaps;
            for _ in 0..1000 { e.tick(&mut fake).unwrap(); }
            let swaps = e.totals().swaps - before;
            // 100 s, two seats, turns of 250 ms; who takes turns changes places for good reasons
            let most = if policies(|e| e.takes_turns).contains(policy) { 2 * 4 * 100 } else { 4 };
            prop_assert!(swaps <= most, "{}: {} swaps", policy, swaps);
        }
    }

    /// Time adds up: every core busy, every thread somewhere, whatever the mix.
    #[test]
    fn shares_add_up(
        policy in prop::sample::select(NAMES),
        nb in 1u32..4,
        ns in 1u32..5,
        factors in prop::collection::vec((0.8f64..4.0, 0.8f64..2.0), 12),
        extra in 0usize..5,
    ) {
        let n = (nb + ns) as usize + extra;
        let mut fake = Fake::new(&[nb, ns]);
        let keys: Vec<_> = (1..=n as u64).map(|a| fake.spawn(a)).collect();
        let rows: Vec<_> = (1..).zip(&factors).map(|(a, f)| (a, f.0, f.1)).take(n).collect();
        let mut e = engine(&fake, policy, table(&rows, 0.02, 5));
        let s = shares(&mut e, &mut fake, &keys, 300);
        for (t, cpus) in [(0, nb), (1, ns)] {
            let sum: f64 = s.iter().map(|s| s[t]).sum();
            prop_assert!((sum - f64::from(cpus)).abs() < 1e-9, "{}: {} on {} CPUs", policy, sum, cpus);
        }
        if extra == 0 {
            prop_assert!(s.iter().all(|s| (s[0] + s[1] - 1.0).abs() < 1e-9));
        }
        prop_assert_eq!(e.totals().refused, 0);
    }

    /// Placements stay sound while threads sleep, come, go, lose their estimates and have their
    /// knobs turned.
    #[test]
    fn placements_are_sound_in_a_storm(
        policy in prop::sample::select(NAMES),
        cpus in prop::collection::vec(1u32..4, 1..4),
        events in prop::collection::vec((0u8..6, 0usize..16, 0.2f64..6.0), 60),
    ) {
        let mut fake = Fake::new(&cpus);
        let mut keys: Vec<_> = (1..=4).map(|a| fake.spawn(a)).collect();
        let rows: Vec<_> = (1..=12).map(|a| (a, 0.7 + 0.3 * a as f64, 2.0 - 0.1 * a as f64)).collect();
        let mut e = engine(&fake, policy, table(&rows, 0.1, 3));
        for (what, which, value) in events {
            let k = keys[which % keys.len()];
            match what {
                0 => keys.push(fake.spawn(which as u64)), // some are in no table
                1 if keys.len() > 1 => {
                    fake.exit(k);
                    keys.retain(|x| *x != k);
                }
                2 => fake.thread(k).runnable ^= true,
                3 => fake.thread(k).weight = (value * 100.0) as u32,
                4 => fake.thread(k).allowed = CoreTypeSet::from_bits(1 + which as u8 % 7),
                _ => {
                    for knob in by_name(policy, 1).unwrap().knobs().iter() {
                        let _ = e.policy_mut().set(knob.key, &(value * 10.0).to_string());
                    }
                }
            }
            for _ in 0..3 { e.tick(&mut fake).unwrap(); }
            let total: u32 = cpus.iter().sum();
            let all = (1u8 << cpus.len()) - 1;
            let awake: Vec<_> = keys.iter().map(|k| *fake.thread(*k)).filter(|t| t.runnable).collect();
            for t in &awake {
                let here = t.allowed.intersection(CoreTypeSet::from_bits(all));
                // who may run nowhere is left alone
                let nowhere = here == CoreTypeSet::EMPTY;
                prop_assert!(nowhere || t.placed.is_none_or(|p| here.contains(p)), "{:?}", t);
            }
            let free = keys.iter().all(|k| fake.thread(*k).allowed == CoreTypeSet::ALL);
            if free && keys.len() <= total as usize {
                for (t, n) in cpus.iter().enumerate() {
                    let on = awake.iter().filter(|x| x.placed == Some(CoreTypeId(t as u8))).count();
                    prop_assert!(on <= *n as usize, "{}: {} on type {}", policy, on, t);
                }
            }
        }
        prop_assert_eq!(e.totals().refused, 0);
    }

    /// Who has no estimate gets its fair share, whatever the others do.
    #[test]
    fn missing_estimates_mean_a_fair_share(
        policy in prop::sample::select(policies(|e| e.uses_metrics)),
        sf in prop::collection::vec(1.2f64..4.0, 4),
    ) {
        let mut fake = Fake::new(&[2, 4]);
        let keys: Vec<_> = [1, 2, 3, 4, 50, 51].into_iter().map(|a| fake.spawn(a)).collect();
        let rows: Vec<_> = (1..).zip(&sf).map(|(a, s)| (a, *s, *s)).collect();
        let mut e = engine(&fake, policy, table(&rows, 0.0, 3));
        let s = shares(&mut e, &mut fake, &keys, 1500);
        for s in &s[4..] {
            prop_assert!((s[0] - 1.0 / 3.0).abs() < 0.04, "{}: {:?}", policy, s);
        }
    }

    /// Any seed gives the same twice.
    #[test]
    fn the_same_seed_gives_the_same(policy in prop::sample::select(NAMES), seed in any::<u64>()) {
        let run = || {
            let mut fake = Fake::new(&[2, 3]);
            for app in 1..=7 { fake.spawn(app); }
            let rows: Vec<_> = (1..=7).map(|a| (a, 1.0 + 0.3 * a as f64, 2.0 - 0.1 * a as f64)).collect();
            let mut e = engine(&fake, policy, table(&rows, 0.2, 9));
            e.set_policy(by_name(policy, seed).unwrap());
            let mut log = Vec::new();
            for _ in 0..60 {
                e.tick(&mut fake).unwrap();
                log.push(fake.snapshot.threads.iter().map(|t| t.placed).collect::<Vec<_>>());
            }
            log
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn a_lone_thread_runs_on_the_fastest_core() {
    for policy in NAMES {
        for cpus in [&[2, 4][..], &[1, 3, 4]] {
            let mut fake = Fake::new(cpus);
            let k = fake.spawn(1);
            let mut e = engine(&fake, policy, table(&[(1, 1.05, 0.7)], 0.05, 1));
            for _ in 0..3 {
                e.tick(&mut fake).unwrap();
            }
            for _ in 0..50 {
                e.tick(&mut fake).unwrap();
                assert_eq!(fake.thread(k).placed, Some(CoreTypeId(0)), "{policy}");
            }
        }
    }
}

#[test]
fn knobs_refuse_what_makes_no_sense() {
    for policy in NAMES {
        let mut p = by_name(policy, 1).unwrap();
        let before: Vec<_> = p.knobs().values().collect();
        let keys: Vec<_> = p.knobs().iter().map(|k| k.key).collect();
        assert!(!keys.is_empty());
        for key in keys {
            for value in ["NaN", "-1", "-inf", "", "fast", "1e999999"] {
                if *policy == "pareto" && key == "unfairness" && value == "1e999999" {
                    continue; // infinite, and allowed
                }
                let e = p.set(key, value).unwrap_err().to_string();
                assert!(e.starts_with(&format!("{key}={value}: ")), "{policy}: {e}");
            }
        }
        let e = p.set("speed", "1").unwrap_err().to_string();
        assert!(e.contains(policy) && e.contains("`speed`"), "{e}");
        assert_eq!(p.knobs().values().collect::<Vec<_>>(), before);
    }
    let mut p = by_name("pareto", 1).unwrap();
    p.set("unfairness", "inf").unwrap();
    assert!(p
        .knobs()
        .values()
        .any(|v| v == ("unfairness", "inf".to_owned())));
    assert!(p.set("unfairness", "0.9").is_err());
}
