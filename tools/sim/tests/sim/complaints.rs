//! What users of schedulers for hybrid machines complain of does not happen, under any policy.

use crate::common::{app, machine, ms, phase};
use amp_machine::MachineFile;
use amp_metrics::Nanos;
use amp_sched::policy::{self, NAMES};
use amp_sched::{Engine, Machine};
use amp_sim::{MachineOptions, ProviderSpec, SimApp, SimMachine};

/// Two core types, a machine of many small cores, and three clusters.
const MACHINES: &[&[u32]] = &[&[2, 4], &[2, 10], &[8, 8], &[1, 3, 4]];
const INTERVAL: Nanos = ms(100);
/// A slower CPU takes what waits for a faster one after this long; the goal that users' patience
/// sets.
const PATIENCE: Nanos = ms(20);

/// Which metrics there are: all, blurred ones, or none.
const SOURCES: &[ProviderSpec] = &[
    ProviderSpec::TRUE,
    ProviderSpec::Exact {
        sigma: 0.05,
        latency: 1,
    },
    ProviderSpec::None,
];

/// Calls `each` with a machine and an engine for every policy that the machine may have, and what
/// they are.
fn under_every_policy(
    cpus: &[u32],
    apps: impl Fn(usize) -> Vec<SimApp>,
    mut each: impl FnMut(&str, &mut SimMachine, &mut Engine),
) {
    let file: MachineFile = machine(cpus, 50);
    for name in NAMES {
        for (i, source) in SOURCES.iter().enumerate() {
            let seed = 7 + i as u64;
            let total = cpus.iter().sum::<u32>() as usize;
            let options = MachineOptions::default();
            let mut sim = SimMachine::new(&file, &apps(total), options, seed).unwrap();
            let Ok(made) = policy::for_machine(name, seed, sim.topology()) else {
                assert!(cpus.len() > 2, "{name}");
                continue;
            };
            let provider = source.make(&mut sim, seed).unwrap();
            let mut engine = Engine::new(sim.topology().clone(), made, provider);
            each(
                &format!("{name} on {cpus:?} with {}", source.name()),
                &mut sim,
                &mut engine,
            );
        }
    }
}

/// Runs until `end`, deciding every interval, and looks at the machine every few milliseconds.
fn run(
    sim: &mut SimMachine,
    engine: &mut Engine,
    end: Nanos,
    mut look: impl FnMut(&mut SimMachine),
) {
    let mut decide = sim.now() + INTERVAL;
    while sim.now() < end {
        let next = (sim.now() + ms(4)).min(decide).min(end);
        sim.run_until(next);
        look(sim);
        if sim.now() >= decide {
            engine.tick(sim).unwrap();
            decide += INTERVAL;
            look(sim);
        }
    }
}

/// Never ends.
fn busy(name: &str, at: u64) -> SimApp {
    SimApp {
        arrival: ms(at),
        ..app(name, 1, 1e6, vec![phase(1.0, true)])
    }
}

/// Runs for a few milliseconds at a time: two threads that wait for each other by turns.
fn restless(name: &str, threads: u32) -> SimApp {
    app(
        name,
        threads,
        1e6,
        vec![phase(0.004, false), phase(0.003 * f64::from(threads), true)],
    )
}

#[test]
fn a_lone_busy_thread_is_on_a_big_core() {
    for cpus in MACHINES {
        under_every_policy(
            cpus,
            |_| vec![busy("lone", 0)],
            |what, sim, engine| {
                run(sim, engine, ms(60_000), |_| {});
                let ran = sim.app_stats(0).unwrap().runtime;
                let share = ran[0].as_secs_f64() / 60.0;
                assert!(share >= 0.99, "{what}: {:.2} %", share * 100.0);
            },
        );
    }
}

#[test]
fn no_core_idles_while_a_thread_waits() {
    for cpus in MACHINES {
        // more threads than CPUs at times, fewer at others: some come and go, some sleep
        let apps = |n: usize| {
            let mut apps: Vec<SimApp> = (0..n - 1)
                .map(|i| busy(&format!("busy{i}"), 40 * i as u64))
                .collect();
            for (i, a) in apps.iter_mut().enumerate().filter(|(i, _)| i % 3 == 1) {
                a.departure = Some(ms(2_000 + 250 * i as u64));
            }
            apps.push(restless("restless", 4));
            apps.push(restless("pair", 2));
            apps
        };
        under_every_policy(cpus, apps, |what, sim, engine| {
            assert_eq!(sim.options().steal_after, PATIENCE);
            let mut waited = 0;
            run(sim, engine, ms(8_000), |sim| {
                // nobody waits beside an idle core that is as fast as the one it is placed on or
                // faster, nor for longer than the bound beside a slower one
                sim.audit().unwrap_or_else(|e| panic!("{what}: {e}"));
                waited += 1;
            });
            assert!(waited > 1_000);
        });
    }
}

#[test]
fn a_burst_uses_every_cpu() {
    for cpus in MACHINES {
        // the machine is idle but for one thread, then there are as many as CPUs
        let apps = |n: usize| {
            let burst = (1..n).map(|i| busy(&format!("b{i}"), 1_030));
            std::iter::once(busy("lone", 0)).chain(burst).collect()
        };
        under_every_policy(cpus, apps, |what, sim, engine| {
            run(sim, engine, ms(1_030) + PATIENCE, |_| {});
            let before: Vec<Nanos> = sim.stats().idle.to_vec();
            run(sim, engine, ms(6_000), |_| {});
            assert_eq!(before, sim.stats().idle.to_vec(), "{what}");
        });
    }
}

/// With fewer threads than CPUs it is the slowest cores that are idle, whoever comes and goes.
#[test]
fn core_order_never_inverts() {
    for cpus in MACHINES {
        let total = cpus.iter().sum::<u32>() as usize;
        for threads in 1..total {
            under_every_policy(
                cpus,
                |_| (0..threads).map(|i| busy(&format!("t{i}"), 0)).collect(),
                |what, sim, engine| {
                    let seconds = 5.0;
                    run(sim, engine, ms(5_000), |_| {});
                    let mut left = threads as f64;
                    for (t, n) in cpus.iter().enumerate() {
                        let want = left.min(f64::from(*n));
                        left -= want;
                        let busy = sim.stats().busy[t].as_secs_f64() / seconds;
                        assert!(
                            (busy - want).abs() <= 0.01 * want.max(1.0),
                            "{what}, {threads} threads: {busy:.3} of {want} cores of type {t} are busy"
                        );
                    }
                },
            );
        }
    }
}
