//! What stands between the truth and the policy.

use crate::common::{app, keys, machine, ms, phase, place};
use amp_eval::workload::Phase;
use amp_metrics::{CoreTypeId, EventSet, EventSets, MetricId, Provider, Quality};
use amp_sched::Machine;
use amp_sim::{MachineOptions, ProviderSpec, SimApp, SimMachine};

const SF: MetricId = MetricId::SpeedupFactor(CoreTypeId(0));
const EF: MetricId = MetricId::EfficiencyFactor(CoreTypeId(0));

/// Two phases, of SF 2 and 4, one second each on the small core, where it is kept.
fn two_phases() -> SimMachine {
    two_phases_on(Some(vec![1]))
}

/// The same, wherever it is placed.
fn two_phases_anywhere() -> SimMachine {
    two_phases_on(None)
}

fn two_phases_on(affinity: Option<Vec<u32>>) -> SimMachine {
    let second = Phase {
        ips_big: 4e9,
        power_big: Some(4.0),
        ..phase(1.0, true)
    };
    let a = SimApp {
        affinity,
        ..app("a", 1, 100.0, vec![phase(1.0, true), second])
    };
    SimMachine::new(&machine(&[1, 1], 0), &[a], MachineOptions::default(), 1).unwrap()
}

fn step(sim: &mut SimMachine, p: &mut dyn Provider, t: u64) -> (Option<f64>, Option<f64>) {
    sim.run_until(ms(t));
    p.observe(sim.sample().unwrap());
    let key = keys(sim)[0];
    let value = |m| p.estimate(key, m).map(|e| e.value);
    (value(SF), value(EF))
}

#[test]
fn the_truth_follows_the_phase_and_the_average_does_not() {
    let mut sim = two_phases();
    let mut p = ProviderSpec::TRUE.make(&mut sim, 1).unwrap();
    let mut mean = ProviderSpec::Average.make(&mut sim, 1).unwrap();
    // EF = SF²·P_small/P_big: 4·0.5/2 and 16·0.5/4
    assert_eq!(step(&mut sim, &mut *p, 900), (Some(2.0), Some(1.0)));
    let (sf, ef) = step(&mut sim, &mut *mean, 900);
    assert_eq!(step(&mut sim, &mut *p, 1100), (Some(4.0), Some(2.0)));
    // 2 s on the small core, 0.5 + 0.25 s on the big one; 1 J·2 s on the small, 2 J·0.75 s on the
    // big
    assert!((sf.unwrap() - 2.0 / 0.75).abs() < 1e-9);
    assert!((ef.unwrap() - 2.0 / 1.5).abs() < 1e-9);
    assert_eq!(step(&mut sim, &mut *mean, 1200), (sf, ef));
}

#[test]
fn latency_is_in_intervals_and_the_young_have_no_estimate() {
    let mut sim = two_phases();
    let mut p = ProviderSpec::Exact {
        sigma: 0.0,
        latency: 2,
    }
    .make(&mut sim, 1)
    .unwrap();
    assert_eq!(step(&mut sim, &mut *p, 800).0, None);
    assert_eq!(step(&mut sim, &mut *p, 900).0, None);
    assert_eq!(step(&mut sim, &mut *p, 1000).0, Some(2.0));
    assert_eq!(step(&mut sim, &mut *p, 1100).0, Some(2.0));
    let e = p.estimate(keys(&mut sim)[0], SF).unwrap();
    assert_eq!((e.age, e.quality), (ms(200), Quality::Exact));
    assert_eq!(step(&mut sim, &mut *p, 1200).0, Some(4.0));
}

#[test]
fn noise_has_the_stated_size_and_repeats_with_its_seed() {
    let draw = |seed| {
        let mut sim = two_phases();
        let mut p = ProviderSpec::Exact {
            sigma: 0.1,
            latency: 0,
        }
        .make(&mut sim, seed)
        .unwrap();
        (1..=2000u64)
            .map(|i| {
                step(&mut sim, &mut *p, i * 10).0.unwrap() / if i % 200 < 100 { 2.0 } else { 4.0 }
            })
            .collect::<Vec<f64>>()
    };
    let a = draw(1);
    let mean = a.iter().sum::<f64>() / a.len() as f64;
    let sigma = (a.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / a.len() as f64).sqrt();
    assert!(
        (mean - 1.0).abs() < 0.01 && (sigma - 0.1).abs() < 0.01,
        "{mean} {sigma}"
    );
    assert_eq!(a, draw(1));
    assert_ne!(a, draw(2));
}

/// The shipped estimator is what policies see on a kernel too: before warm-up they get a value that
/// they must not use.
#[test]
fn ipc_sampling_needs_both_core_types() {
    let a = app("a", 1, 1e3, vec![phase(1e3, true)]);
    let mut sim =
        SimMachine::new(&machine(&[1, 1], 0), &[a], MachineOptions::default(), 1).unwrap();
    let mut p = ProviderSpec::IPC_SAMPLING.make(&mut sim, 1).unwrap();
    for i in 1..=20 {
        let (sf, _) = step(&mut sim, &mut *p, i * 100);
        assert_eq!(sf, Some(2.5), "the published default");
    }
    assert_eq!(
        p.estimate(keys(&mut sim)[0], SF).unwrap().quality,
        Quality::Partial
    );
    let key = keys(&mut sim)[0];
    place(&mut sim, &[(key, 1)]);
    for i in 21..=30 {
        step(&mut sim, &mut *p, i * 100);
    }
    let e = p.estimate(key, SF).unwrap();
    assert!(
        (e.value - 2.0).abs() < 1e-9 && e.quality == Quality::Multiplexed,
        "{e:?}"
    );
    // energy per core type is known, and with it what a program of one thread draws on each: EF =
    // SF²·P_small/P_big
    let ef = p.estimate(key, EF).unwrap();
    assert!((ef.value - 4.0 * 0.5 / 2.0).abs() < 0.05, "{ef:?}");
}

/// A kernel's readings: what was counted of a thread since the last look, by core type, and over
/// what time.
#[test]
fn readings_are_what_was_done_since_the_last_look() {
    let mut sim = two_phases();
    let sets = instructions_and_cycles(&sim, 1);
    assert!(sim.sample().unwrap().readings.is_empty());
    sim.count_events(&sets).unwrap();
    let mut totals = [0, 0];
    for t in [300, 900, 1100] {
        sim.run_until(ms(t));
        let now = sim.sample().unwrap();
        let [r] = now.readings[..] else {
            panic!("{:?}", now.readings)
        };
        assert_eq!((r.core_type, r.set), (CoreTypeId(1), 0));
        assert_eq!((r.ran, r.counted), (r.ran, r.ran));
        totals[0] += r.deltas()[0];
        totals[1] += r.deltas()[1];
        assert_eq!(now.threads[0].runtime[1], ms(t));
    }
    // 10⁹ instructions a second on the small core in both phases; a machine file without a model
    // has 10⁹ cycles
    assert!(
        totals[0].abs_diff(1_100_000_000) <= 2 && totals[1] == 1_100_000_000,
        "{totals:?}"
    );
    // nothing was done, nothing is read
    assert!(sim.sample().unwrap().readings.is_empty());
}

#[test]
fn sets_are_counted_by_turns_and_a_stretch_begins_with_nothing() {
    let mut sim = two_phases();
    let sets = instructions_and_cycles(&sim, 2);
    sim.count_events(&sets).unwrap();
    sim.run_until(ms(100));
    let first = sim.sample().unwrap().readings[0];
    // between two looks: what was done before the turn belongs to no stretch
    sim.run_until(ms(150));
    sim.count(&|_| 1).unwrap();
    sim.run_until(ms(200));
    let second = sim.sample().unwrap().readings[0];
    assert_eq!((first.set, second.set), (0, 1));
    assert_ne!(first.generation, second.generation);
    assert_eq!((second.ran, second.counted), (ms(100), ms(50)));
    assert!((second.coverage() - 0.5).abs() < 1e-9);
    // its order of events: cycles first
    assert_eq!(second.deltas()[0], 50_000_000);
    // there is no third set: the second one goes on
    sim.count(&|_| 2).unwrap();
    sim.run_until(ms(300));
    let third = sim.sample().unwrap().readings[0];
    assert_eq!((third.set, third.generation), (1, second.generation));
}

fn instructions_and_cycles(sim: &SimMachine, sets: usize) -> EventSets {
    let pmus = sim.pmus();
    let mut all = EventSets::default();
    for t in pmus.core_types() {
        let event = |name: &str| pmus.resolve(t, &name.parse().unwrap()).unwrap();
        let mut events = vec![event("instructions"), event("cycles")];
        for _ in 0..sets {
            all.push(
                t,
                EventSet {
                    events: events.clone(),
                },
            );
            events.reverse();
        }
    }
    all
}

#[test]
fn what_a_simulated_pmu_does_not_count_is_refused_by_name() {
    let mut sim = two_phases();
    let pmus = sim.pmus();
    let misses = pmus.resolve(CoreTypeId(0), &"cache-misses".parse().unwrap());
    let mut sets = EventSets::default();
    sets.push(
        CoreTypeId(0),
        EventSet {
            events: vec![misses.unwrap()],
        },
    );
    let e = sim.count_events(&sets).unwrap_err().to_string();
    assert!(
        e.contains("`cache-misses`") && e.contains("instructions and cycles"),
        "{e}"
    );
}

/// Every shipped provider that needs no more than instructions and cycles, as it stands.
#[test]
fn shipped_providers_work_on_the_simulator() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let sampling = file(
        "sampling.toml",
        "kind = \"ipc-sampling\"\n[settings]\nwarm_up_samples = 3\n",
    );
    let windows = file(
        "windows.toml",
        "kind = \"windows\"\ninner = \"ipc-sampling\"\ninstructions = 50_000_000\n",
    );
    let names = [
        "ipc-sampling",
        "remembered",
        "measured",
        "fused",
        "auto",
        &sampling,
        &windows,
    ];
    for name in names {
        let mut sim = two_phases_anywhere();
        let mut p = ProviderSpec::named(name)
            .unwrap()
            .make(&mut sim, 1)
            .unwrap();
        let mut last = None;
        for i in 1..=80 {
            last = step(&mut sim, &mut *p, i * 100).0;
            let key = keys(&mut sim)[0];
            place(&mut sim, &[(key, (i / 8 % 2) as u8)]);
        }
        let sf = last.unwrap();
        assert!((1.9..=4.1).contains(&sf), "{name}: {sf}");
    }
    let e = ProviderSpec::named("model")
        .unwrap()
        .make(&mut two_phases(), 1);
    let e = e.err().unwrap().to_string();
    assert!(e.contains("no model fits"), "{e}");
    let e = ProviderSpec::named("ipc-smapling").unwrap_err().to_string();
    assert!(
        e.contains("`ipc-smapling`") && e.contains("`average`"),
        "{e}"
    );
    let e = ProviderSpec::named("/no/such.toml")
        .unwrap_err()
        .to_string();
    assert!(e.contains("/no/such.toml"), "{e}");
}

#[test]
fn without_power_there_is_no_efficiency_factor() {
    let a = SimApp::steady("a", 1e12, 2e9, 1e9);
    let mut sim =
        SimMachine::new(&machine(&[1, 1], 0), &[a], MachineOptions::default(), 1).unwrap();
    let mut p = ProviderSpec::TRUE.make(&mut sim, 1).unwrap();
    assert_eq!(step(&mut sim, &mut *p, 100), (Some(2.0), None));
    assert_eq!(sim.app_stats(0).unwrap().energy_j, None);
    let mut none = ProviderSpec::None.make(&mut sim, 1).unwrap();
    assert_eq!(step(&mut sim, &mut *none, 200), (None, None));
}
