//! EF-driven and PRIM.

use super::table::{Row, Table};
use super::*;
use crate::policy::registry::prim;

fn run(policy: &str, rows: &[(f64, f64, Option<f64>)], ticks: usize) -> Vec<bool> {
    run_with(policy, &[], rows, ticks)
}

fn run_with(
    policy: &str,
    knobs: &[(&str, &str)],
    rows: &[(f64, f64, Option<f64>)],
    ticks: usize,
) -> Vec<bool> {
    let mut fake = Fake::new(&[2, 4]);
    let keys: Vec<_> = (1..=rows.len() as u64).map(|a| fake.spawn(a)).collect();
    let rows = (1..).zip(rows).map(|(app, (sf, ef, u))| Row {
        app,
        sf: Some(*sf),
        ef: Some(*ef),
        u: *u,
    });
    let mut e = engine(&fake, policy, Box::new(Table::new(rows.collect(), 0.02, 3)));
    for (knob, value) in knobs {
        e.policy_mut().knobs_mut().set(knob, value).unwrap();
    }
    for _ in 0..ticks {
        e.tick(&mut fake).unwrap();
    }
    keys.iter()
        .map(|k| fake.thread(*k).placed == Some(CoreTypeId(0)))
        .collect()
}

#[test]
fn ef_ranks_by_efficiency_and_inside_the_noise_by_speedup() {
    // clearly different: by EF, against the order of SF
    let clear = [
        (1.2, 2.0, None),
        (3.0, 1.2, None),
        (1.3, 1.8, None),
        (2.9, 1.1, None),
        (2.0, 1.0, None),
        (2.0, 0.9, None),
    ];
    assert_eq!(
        run("ef", &clear, 30),
        [true, false, true, false, false, false]
    );
    // the same, but the second seat is contested by those the provider cannot tell from it: by SF
    let mut unsure = clear;
    (unsure[1].2, unsure[2].2) = (Some(0.4), Some(0.4));
    assert_eq!(
        run("ef", &unsure, 30),
        [true, true, false, false, false, false]
    );
    // within the margin all: by SF
    let close = [
        (1.2, 1.02, None),
        (3.0, 1.01, None),
        (1.3, 1.0, None),
        (2.9, 1.0, None),
        (2.0, 0.995, None),
        (2.0, 1.0, None),
    ];
    assert_eq!(
        run("ef", &close, 30),
        [false, true, false, true, false, false]
    );
}

#[test]
fn ef_leaves_fast_cores_idle_where_nobody_saves_energy_there() {
    const ON: &[(&str, &str)] = &[("spare", "on")];
    let two = [(2.0, 0.8, None), (3.0, 1.4, None)];
    assert_eq!(run("ef", &two, 30), [true, true]);
    assert_eq!(run_with("ef", ON, &two, 30), [false, true]);
    // slow cores are full of those that save least on fast ones
    let six = [
        (2.0, 0.8, None),
        (2.0, 0.9, None),
        (2.0, 0.7, None),
        (2.0, 0.6, None),
        (2.0, 0.5, None),
        (2.0, 0.4, None),
    ];
    let paper = run("ef", &six, 30);
    assert_eq!(paper, [true, true, false, false, false, false]);
    assert_eq!(run_with("ef", ON, &six, 30), paper);
    // three of them fit: a core's worth of room remains
    assert_eq!(run_with("ef", ON, &six[..3], 30), [false; 3]);
}

#[test]
fn ef_without_efficiency_factors_goes_by_speedup() {
    let (mut fake, keys, provider) = mix(&[2, 4], &[1.2, 3.0, 1.5, 2.5, 1.1, 2.0], 0.0);
    let mut e = engine(&fake, "ef", provider);
    for _ in 0..20 {
        e.tick(&mut fake).unwrap();
    }
    let fast = |k: &ThreadKey| fake.snapshot.threads[k.slot as usize].placed == Some(CoreTypeId(0));
    assert_eq!(
        keys.iter().map(fast).collect::<Vec<_>>(),
        [false, true, false, true, false, false]
    );
}

#[test]
fn ef_lets_equal_threads_of_an_application_take_turns() {
    let mut fake = Fake::new(&[2, 2]);
    let keys: Vec<_> = [1, 1, 1, 1].into_iter().map(|a| fake.spawn(a)).collect();
    let row = Row {
        app: 1,
        sf: Some(2.0),
        ef: Some(1.3),
        u: Some(0.05),
    };
    let mut e = engine(&fake, "ef", Box::new(Table::new(vec![row], 0.0, 1)));
    let s = shares(&mut e, &mut fake, &keys, 1000);
    assert!(s.iter().all(|s| (s[0] - 0.5).abs() < 0.05), "{s:?}");
}

#[test]
fn ef_follows_a_change_of_phase() {
    let mut fake = Fake::new(&[1, 1]);
    let keys = [fake.spawn(1), fake.spawn(2)];
    let rows = |a: f64, b: f64| {
        let row = |app, ef| Row {
            app,
            sf: Some(2.0),
            ef: Some(ef),
            u: Some(0.02),
        };
        Box::new(Table::new(vec![row(1, a), row(2, b)], 0.02, 1))
    };
    let mut e = engine(&fake, "ef", rows(1.8, 1.1));
    for _ in 0..20 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(fake.thread(keys[0]).placed, Some(CoreTypeId(0)));
    e.set_provider(rows(1.0, 1.7));
    for _ in 0..4 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(fake.thread(keys[1]).placed, Some(CoreTypeId(0)));
}

#[test]
fn prim_finds_the_efficient_pairs_in_time_from_any_start() {
    let rows: Vec<_> = [1.0, 1.9, 1.2, 1.4, 2.2, 1.1]
        .map(|ef| (2.0, ef, None))
        .into();
    assert_eq!(
        run("prim", &rows, 300),
        [false, true, false, false, true, false]
    );
    // by seed, different threads start on fast cores
    let mut starts = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let (mut fake, keys, _) = mix(&[2, 4], &[2.0; 6], 0.0);
        let rows = (1..=6).map(|app| Row {
            app,
            sf: Some(2.0),
            ef: Some(1.5),
            u: None,
        });
        let mut e = engine(&fake, "prim", Box::new(Table::new(rows.collect(), 0.0, 1)));
        e.set_policy(by_name("prim", seed).unwrap());
        for _ in 0..4 {
            e.tick(&mut fake).unwrap();
        }
        assert_eq!(placed(&fake, 0), 2);
        let fast: Vec<_> = keys
            .iter()
            .map(|k| fake.thread(*k).placed == Some(CoreTypeId(0)))
            .collect();
        starts.insert(fast);
    }
    assert!(starts.len() > 5, "{starts:?}");
}

#[test]
fn prim_follows_the_rules_it_is_given() {
    let rules = prim::Rules::parse(
        "[[rule]]\nname = 'the slower the better'\nall = [{ metric = 'sf_gain', max = 0.9 }]",
    )
    .unwrap();
    let (mut fake, keys, provider) = mix(&[1, 3], &[1.2, 3.0, 2.5, 2.0], 0.0);
    let mut e = engine(&fake, "prim", provider);
    e.set_policy(Box::new(prim::Prim::with_rules(rules, 1)));
    for _ in 0..200 {
        e.tick(&mut fake).unwrap();
    }
    assert_eq!(fake.thread(keys[0]).placed, Some(CoreTypeId(0)));
}
