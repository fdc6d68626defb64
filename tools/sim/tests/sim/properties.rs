//! What holds for every scenario: nothing is lost, nobody waits for an idle core, the same seed is
//! the same run.

use crate::common::{machine, ms};
use amp_eval::workload::{Phase, Schedule};
use amp_metrics::{CoreTypeId, Nanos, MAX_CORE_TYPES};
use amp_sched::{Machine, Placement};
use amp_sim::{Discipline, MachineOptions, SimApp, SimMachine};
use chacha20::ChaCha8Rng;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};

/// What is drawn of an application: phases, threads, weight, giga-instructions, arrival in ms,
/// further choices.
type Drawn = (Vec<Phase>, u32, u32, f64, u64, [bool; 3]);

#[derive(Clone, Debug)]
struct Scenario {
    cpus: Vec<u32>,
    cost_us: u32,
    apps: Vec<SimApp>,
    fair: bool,
    seed: u64,
}

fn phases() -> impl Strategy<Value = Vec<Phase>> {
    let schedule = prop::sample::select(vec![Schedule::Static, Schedule::Dynamic]);
    let phase = (
        0.01f64..0.4,
        1.0f64..4.0,
        0.2f64..1.0,
        any::<bool>(),
        schedule,
        1u32..4,
        prop::sample::select(vec![0.0, 0.0, 0.001, 0.05]),
    )
        .prop_map(|(giga, sf, gips, parallel, schedule, loops, sleep)| Phase {
            instructions: giga * 1e9,
            ips_big: sf * gips * 1e9,
            ips_small: gips * 1e9,
            power_big: Some(1.0 + sf),
            power_small: Some(0.5),
            parallel,
            schedule,
            loops,
            sleep,
            cache: None,
        });
    prop::collection::vec(phase, 1..4)
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let app = (
        phases(),
        1u32..5,
        prop::sample::select(vec![50u32, 100, 300]),
        0.05f64..1.0,
        0u64..300,
        any::<[bool; 3]>(),
    );
    (
        prop::collection::vec(1u32..4, 1..4),
        0u32..300,
        prop::collection::vec(app, 1..6),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(|(cpus, cost_us, apps, fair, seed)| {
            let total: u32 = cpus.iter().sum();
            let make = |(i, drawn): (usize, Drawn)| {
                let (phases, threads, weight, giga, arrival, bits) = drawn;
                let affinity = bits[0].then(|| vec![0, total - 1]).filter(|_| bits[1]);
                SimApp {
                    name: format!("app{i}"),
                    threads,
                    weight,
                    instructions: giga * 1e9,
                    phases,
                    affinity,
                    arrival: ms(arrival),
                    departure: None,
                    restart: bits[2],
                }
            };
            let apps = apps.into_iter().enumerate().map(make).collect();
            Scenario {
                cpus,
                cost_us,
                apps,
                fair,
                seed,
            }
        })
}

impl Scenario {
    fn machine(&self) -> SimMachine {
        let discipline = if self.fair {
            Discipline::Fair
        } else {
            Discipline::Placed
        };
        let options = MachineOptions {
            discipline,
            completions: 2,
            ..MachineOptions::default()
        };
        SimMachine::new(
            &machine(&self.cpus, self.cost_us),
            &self.apps,
            options,
            self.seed,
        )
        .unwrap()
    }

    /// Runs to the end, placing threads at random (within their affinity) every few milliseconds,
    /// and calls `check` each time.
    fn run(&self, mut check: impl FnMut(&mut SimMachine)) -> SimMachine {
        let mut sim = self.machine();
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        while !sim.is_over() {
            sim.run_until(sim.now() + Nanos(rng.random_range(1..9_000_000)));
            check(&mut sim);
            if self.fair {
                continue;
            }
            let mut placement = Placement::default();
            for t in &sim.sample().unwrap().threads {
                let to = CoreTypeId(rng.random_range(0..self.cpus.len()) as u8);
                match rng.random_range(0..4) {
                    0 if t.allowed.contains(to) => placement.place(t.key, to),
                    1 => placement.release(t.key),
                    _ => {}
                }
            }
            sim.apply(&placement).unwrap();
            check(&mut sim);
        }
        sim
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Books that agree, affinity, no idle core while an allowed thread waits; time is either busy
    /// or idle; counters never run backwards.
    #[test]
    fn invariants_hold_at_every_moment(s in scenario()) {
        let cpus: u32 = s.cpus.iter().sum();
        let mut last = [Nanos::ZERO; MAX_CORE_TYPES];
        let sim = s.run(|sim| {
            sim.audit().unwrap();
            let busy = sim.stats().busy;
            assert!(last.iter().zip(&busy).all(|(a, b)| a <= b));
            last = busy;
        });
        let stats = sim.stats();
        let time: Nanos = stats.busy.iter().chain(&stats.idle).copied().sum();
        prop_assert_eq!(time.0, sim.now().0 * u64::from(cpus));
        let apps: Nanos = (0..s.apps.len()).flat_map(|i| sim.app_stats(i).unwrap().runtime).sum();
        prop_assert_eq!(apps, stats.busy.iter().copied().sum::<Nanos>());
        prop_assert!(stats.migration_time.0 <= stats.migrations * u64::from(s.cost_us) * 1000);
    }

    /// What was asked for is done, no more and no less, and energy is what the instructions cost:
    /// power over speed, plus what migrations took.
    #[test]
    fn instructions_and_energy_are_conserved(mut s in scenario()) {
        for app in &mut s.apps {
            app.restart = false;
            let power = (3.0, 0.5);
            for p in &mut app.phases {
                p.ips_big = 2.0 * p.ips_small;
                (p.power_big, p.power_small) = (Some(power.0), Some(power.1));
            }
            app.phases.truncate(1);
        }
        s.cost_us = 0;
        s.cpus.truncate(2);
        s.cpus.resize(2, 1);
        for app in &mut s.apps {
            app.affinity = None;
        }
        let sim = s.run(|_| {});
        for (i, app) in s.apps.iter().enumerate() {
            let stats = sim.app_stats(i).unwrap();
            let done: f64 = stats.instructions.iter().sum();
            prop_assert!((done / app.instructions - 1.0).abs() < 1e-9, "{done} of {}", app.instructions);
            prop_assert_eq!(stats.completions.len(), 1);
            let p = app.phases[0];
            let energy = stats.instructions[0] / p.ips_big * 3.0 + stats.instructions[1] / p.ips_small * 0.5;
            // each event is rounded up to a nanosecond
            prop_assert!((stats.energy_j.unwrap() - energy).abs() < 1e-5 + 1e-6 * energy);
            let time = stats.instructions[0] / p.ips_big + stats.instructions[1] / p.ips_small;
            let ran: f64 = stats.runtime.iter().map(|r| r.as_secs_f64()).sum();
            prop_assert!((ran - time).abs() < 1e-5, "{ran} {time}");
        }
    }

    /// Of N restarts, N + (what the last process has done) times the instructions are done.
    #[test]
    fn restarts_do_the_whole_program_each_time(s in scenario()) {
        let sim = s.run(|_| {});
        for (i, app) in s.apps.iter().enumerate() {
            let stats = sim.app_stats(i).unwrap();
            let done: f64 = stats.instructions.iter().sum::<f64>() / app.instructions;
            let n = stats.completions.len() as f64;
            prop_assert!(done >= n - 1e-6 && done <= n + 1.0 + 1e-6, "{done} of {n}");
            let needed = if app.restart { 2.0 } else { 1.0 };
            prop_assert!(n >= needed);
        }
    }

    #[test]
    fn the_same_seed_is_the_same_run(s in scenario()) {
        let (a, b) = (s.run(|_| {}), s.run(|_| {}));
        prop_assert_eq!(a.stats(), b.stats());
        prop_assert_eq!(a.now(), b.now());
        for i in 0..s.apps.len() {
            prop_assert_eq!(a.app_stats(i), b.app_stats(i));
        }
    }

    /// Migrations cost what the machine says: everything that was lost has been paid by a
    /// migration.
    #[test]
    fn migration_cost_is_accounted(mut s in scenario()) {
        for app in &mut s.apps {
            app.restart = false;
        }
        let sim = s.run(|_| {});
        let stats = sim.stats();
        // all programs have ended: all debts are paid
        prop_assert_eq!(stats.migration_time.0, stats.migrations * u64::from(s.cost_us) * 1000);
    }
}
