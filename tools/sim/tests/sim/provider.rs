//! What stands between the truth and the policy.

use crate::common::{app, keys, machine, ms, phase, place};
use amp_eval::workload::Phase;
use amp_metrics::{CoreTypeId, MetricId, Provider, Quality};
use amp_sched::Machine;
use amp_sim::{MachineOptions, ProviderSpec, SimApp, SimMachine};

const SF: MetricId = MetricId::SpeedupFactor(CoreTypeId(0));
const EF: MetricId = MetricId::EfficiencyFactor(CoreTypeId(0));

/// Two phases, of SF 2 and 4, one second each on the small core, where it is kept.
fn two_phases() -> SimMachine {
    let second = Phase {
        ips_big: 4e9,
        power_big: Some(4.0),
        ..phase(1.0, true)
    };
    let a = SimApp {
        affinity: Some(vec![1]),
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
    let mut p = ProviderSpec::TRUE.make(sim.truth(), 1).unwrap();
    let mut mean = ProviderSpec::Average.make(sim.truth(), 1).unwrap();
    // EF = SF²·P_small/P_big: 4·0.5/2 and 16·0.5/4
    assert_eq!(step(&mut sim, &mut *p, 900), (Some(2.0), Some(1.0)));
    let (sf, ef) = step(&mut sim, &mut *mean, 900);
    assert_eq!(step(&mut sim, &mut *p, 1100), (Some(4.0), Some(2.0)));
    // 2 s on the small core, 0.5 + 0.25 s on the big one; 1 J·2 s on the small, 2 J·0.75 s on the big
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
    .make(sim.truth(), 1)
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
        .make(sim.truth(), seed)
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

#[test]
fn ipc_sampling_needs_both_core_types() {
    let a = app("a", 1, 1e3, vec![phase(1e3, true)]);
    let mut sim =
        SimMachine::new(&machine(&[1, 1], 0), &[a], MachineOptions::default(), 1).unwrap();
    let mut p = ProviderSpec::IpcSampling.make(sim.truth(), 1).unwrap();
    for i in 1..=20 {
        assert_eq!(
            step(&mut sim, &mut *p, i * 100),
            (Some(2.5), None),
            "the published default"
        );
    }
    assert_eq!(
        p.estimate(keys(&mut sim)[0], SF).unwrap().quality,
        Quality::Stale
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
}

#[test]
fn without_power_there_is_no_efficiency_factor() {
    let a = SimApp::steady("a", 1e12, 2e9, 1e9);
    let mut sim =
        SimMachine::new(&machine(&[1, 1], 0), &[a], MachineOptions::default(), 1).unwrap();
    let mut p = ProviderSpec::TRUE.make(sim.truth(), 1).unwrap();
    assert_eq!(step(&mut sim, &mut *p, 100), (Some(2.0), None));
    assert_eq!(sim.app_stats(0).unwrap().energy_j, None);
    let mut none = ProviderSpec::None.make(sim.truth(), 1).unwrap();
    assert_eq!(step(&mut sim, &mut *none, 200), (None, None));
}
