//! Threads that share a cache.

use crate::common::{app, phase};
use amp_eval::workload::{CacheUse, Phase};
use amp_machine::MachineFile;
use amp_metrics::Nanos;
use amp_sim::{MachineOptions, SimApp, SimMachine};
use proptest::prelude::*;

/// Two big cores (0 and 1) that share 2 MiB, four little ones that share 1 MiB.
fn juno() -> MachineFile {
    MachineFile::load("juno").unwrap()
}

/// 10⁹ instructions, half a second on a big core and one on a little one when alone.
fn program(cpu: u32, kib: f64, loss: f64) -> SimApp {
    let cache = Some(CacheUse { kib, loss });
    SimApp {
        affinity: Some(vec![cpu]),
        restart: false,
        ..app(
            "a",
            1,
            1.0,
            vec![Phase {
                cache,
                ..phase(1.0, true)
            }],
        )
    }
}

/// Seconds that each took.
fn took(apps: &[SimApp]) -> Vec<f64> {
    let options = MachineOptions {
        completions: 1,
        ..MachineOptions::default()
    };
    let mut s = SimMachine::new(&juno(), apps, options, 1).unwrap();
    s.run_until(Nanos::from_secs(1000));
    let stats = (0..apps.len()).map(|i| s.app_stats(i).unwrap());
    stats.map(|a| a.completions[0].as_secs_f64()).collect()
}

fn near(got: &[f64], want: &[f64]) {
    let same = got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(got.len() == want.len() && same, "{got:?} {want:?}");
}

#[test]
fn alone_a_program_has_the_speed_that_its_phase_states() {
    near(&took(&[program(2, 640.0, 7.0)]), &[1.0]);
    // more than the cache holds: that is in the stated speed
    near(&took(&[program(2, 5000.0, 7.0)]), &[1.0]);
}

#[test]
fn those_that_do_not_fit_together_share_in_proportion() {
    // 1280 KiB are wanted of 1024: a fifth of each is missing, and costs a fifth of six times
    let together = took(&[program(2, 640.0, 7.0), program(3, 640.0, 7.0)]);
    near(&together, &[2.2, 2.2]);
    // the big cores' cache holds both
    let big = took(&[program(0, 640.0, 7.0), program(1, 640.0, 7.0)]);
    near(&big, &[0.5, 0.5]);
    // apart, they have nothing to do with each other
    let apart = took(&[program(0, 1700.0, 7.0), program(2, 640.0, 7.0)]);
    near(&apart, &[0.5, 1.0]);
}

#[test]
fn a_stream_harms_others_and_not_itself_and_only_while_it_runs() {
    let both = took(&[program(2, 8192.0, 1.0), program(3, 640.0, 7.0)]);
    let slowdown = 1.0 + 6.0 * (1.0 - 1024.0 / (8192.0 + 640.0));
    near(&both, &[1.0, 1.0 + (1.0 - 1.0 / slowdown)]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (kib, loss) in [(0.0, 2.0), (-1.0, 2.0), (f64::NAN, 2.0), (10.0, 0.5)] {
        let app = program(2, kib, loss);
        let e = SimMachine::new(&juno(), &[app], MachineOptions::default(), 1).unwrap_err();
        assert!(e.to_string().contains("cache"), "{e}");
    }
}

proptest! {
    /// Neighbours cost something or nothing: nobody is ever faster for them, and without any use of
    /// the cache nobody is slower.
    #[test]
    fn neighbours_never_help(
        uses in prop::collection::vec((10.0f64..5000.0, 1.0f64..9.0, any::<bool>()), 1..7),
    ) {
        let apps: Vec<SimApp> = (0..)
            .zip(&uses)
            .map(|(cpu, (kib, loss, uses))| {
                let mut a = program(cpu, *kib, *loss);
                a.phases[0].cache = a.phases[0].cache.filter(|_| *uses);
                a
            })
            .collect();
        for (i, t) in took(&apps).into_iter().enumerate() {
            let alone = if i < 2 { 0.5 } else { 1.0 };
            prop_assert!(t > alone - 1e-6, "{i}: {t}");
            if apps[i].phases[0].cache.is_none() {
                prop_assert!((t - alone).abs() < 1e-6, "{i}: {t}");
            }
        }
    }
}
