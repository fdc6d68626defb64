//! A simulated run is recorded and replayed under another policy, and compared with simulating that
//! policy itself.

use amp_eval::evaluation::BenchReport;
use amp_eval::workload::{App, Phase, Schedule, Workload};
use amp_eval::{Contender, Runs};
use amp_machine::{CpuList, MachineFile};
use amp_metrics::event::{Event, EventAttr, EventSet};
use amp_metrics::uncertainty::Measured;
use amp_metrics::{CoreTypeId, EventSets, Nanos};
use amp_recording::format::{RecordedCoreType, VERSION};
use amp_recording::{Header, Recorder, Recording, Replay};
use amp_sched::policy::Settings;
use amp_sched::{Engine, Machine};
use amp_sim::bench::BenchOptions;
use amp_sim::{apps_of, draws, MachineOptions, ProviderSpec, SimMachine};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const SECONDS: u64 = 60;

fn juno() -> MachineFile {
    MachineFile::load("juno").unwrap()
}

/// Six to nine programs, some of them parallel, some that sleep; phases of some seconds.
fn mix(seed: u64) -> Workload {
    let mut rng = SmallRng::seed_from_u64(seed);
    let app = |i: usize, rng: &mut SmallRng| {
        let sf = rng.random_range(1.2..3.5);
        let gips = rng.random_range(0.3..1.0);
        let naps = rng.random_bool(0.25);
        let phases: Vec<Phase> = (0..rng.random_range(1..4))
            .map(|_| {
                let seconds = rng.random_range(1.0..8.0);
                let small = gips * rng.random_range(0.6..1.4) * 1e9;
                let loops = if naps { (seconds / 0.05) as u32 } else { 1 };
                Phase {
                    instructions: small * seconds,
                    ips_big: small * sf * rng.random_range(0.8..1.2),
                    ips_small: small,
                    power_big: None,
                    power_small: None,
                    parallel: true,
                    schedule: Schedule::Dynamic,
                    loops,
                    sleep: if naps { 0.02 } else { 0.0 },
                    cache: None,
                }
            })
            .collect();
        App {
            name: format!("app{i}"),
            threads: if rng.random_bool(0.2) { 3 } else { 1 },
            weight: 100,
            speedup: None,
            command: None,
            instructions: Some(phases.iter().map(|p| p.instructions).sum::<f64>() * 2.0),
            phases,
        }
    };
    let n = rng.random_range(6..10);
    Workload {
        name: format!("mix{seed}"),
        machine: None,
        apps: (0..n).map(|i| app(i, &mut rng)).collect(),
    }
}

/// Records the mix under `policy`; with counters, or with the factors that `provider` tells.
fn record(mix: &Workload, policy: &str, counted: bool, provider: &ProviderSpec) -> Recording {
    let machine = juno();
    let apps = apps_of(mix).unwrap();
    let mut sim = SimMachine::new(&machine, &apps, MachineOptions::default(), 1).unwrap();
    let made = Settings::default()
        .policy(policy, 1, Some(sim.topology()))
        .unwrap();
    let source = provider.make(&mut sim, 1).unwrap();
    let mut sets = EventSets::default();
    if counted {
        for t in 0..2 {
            let generic = amp_metrics::event::Generic::by_name("instructions").unwrap();
            let event = Event {
                name: "instructions".into(),
                pmu: "cpu".into(),
                attr: EventAttr {
                    type_: generic.type_,
                    config: generic.config,
                    ..EventAttr::default()
                },
            };
            sets.push(
                CoreTypeId(t),
                EventSet {
                    events: vec![event],
                },
            );
        }
        sim.count_events(&sets).unwrap();
    }
    let topology = sim.topology().clone();
    let core_type = |t: &amp_sched::CoreType| RecordedCoreType {
        name: t.name.clone(),
        cpus: CpuList(t.cpus.clone()),
        capacity: t.capacity,
    };
    let header = Header {
        scx_amp_recording: VERSION,
        program: "test".into(),
        run: "r".into(),
        part: 0,
        interval_us: 100_000,
        core_types: topology.core_types().iter().map(core_type).collect(),
        policy: policy.into(),
        knobs: Default::default(),
        provider: provider.name(),
        kernel: None,
        commands: false,
    };
    let mut recorder = Recorder::new(header, 1 << 30, &sets, None);
    let mut engine = Engine::new(topology, made, source);
    let mut bytes = Vec::new();
    for i in 1..=SECONDS * 10 {
        sim.run_until(Nanos::from_millis(100 * i));
        engine.tick(&mut sim).unwrap();
        // what the engine has just seen
        let snapshot = sim.last().clone();
        if let Some(chunk) = recorder.tick(&snapshot, engine.provider()) {
            bytes.extend(chunk.bytes);
            recorder.taken();
        }
    }
    Recording::parse(Path::new("r"), &bytes, None).unwrap()
}

fn bench(draws: &[Workload], machine: &MachineFile, policies: &[&str], runs: u32) -> BenchReport {
    let policies: Vec<Contender> = policies.iter().map(|p| p.parse().unwrap()).collect();
    let options = BenchOptions {
        runs: Runs::Exactly(runs),
        completions: 2,
        ..BenchOptions::default()
    };
    let never = AtomicBool::new(false);
    let watch = &mut |_: amp_eval::Step<'_>| ControlFlow::Continue(());
    draws::bench(draws, machine, &options, &policies, watch, &never).unwrap()
}

/// A figure of a replay and of the truth, each with its uncertainty.
#[derive(Clone, Copy, Debug)]
struct Pair {
    told: Measured,
    real: Measured,
}

/// What a replay says of a mix under each policy, and what simulating the mix itself says: ASP per
/// program, and unfairness.
fn compare(mix: &Workload, recording: &Recording, policies: &[&str]) -> Vec<[Pair; 2]> {
    let replay = Replay::of(recording).unwrap();
    let draws = replay.draws(if replay.is_certain() { 1 } else { 5 }, 1);
    let told = bench(&draws, &replay.machine, policies, 2);
    let real = bench(std::slice::from_ref(mix), &juno(), policies, 2);
    assert_eq!(told.results.len(), policies.len());
    let per_program = |m: Measured| m.scale(1.0 / mix.apps.len() as f64);
    let pairs = told.results.iter().zip(&real.results);
    pairs
        .map(|(told, real)| {
            assert_eq!(
                (&told.policy, told.apps.len()),
                (&real.policy, mix.apps.len())
            );
            let asp = Pair {
                told: per_program(told.asp),
                real: per_program(real.asp),
            };
            let unfairness = Pair {
                told: told.unfairness,
                real: real.unfairness,
            };
            [asp, unfairness]
        })
        .collect()
}

fn largest(errors: &[f64]) -> f64 {
    errors.iter().map(|e| e.abs()).fold(0.0, f64::max)
}

fn typical(errors: &[f64]) -> f64 {
    (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt()
}

/// Recorded under rr with counters: every program is seen on both core types. ASP is a sum over
/// programs that may be near 0, so its error is told per program.
#[test]
fn a_recording_under_rr_says_what_hsp_and_acfs_would_do() {
    let (mut asp, mut unfairness) = (Vec::new(), Vec::new());
    for seed in 1..=20 {
        let mix = mix(seed);
        let recording = record(&mix, "rr", true, &ProviderSpec::None);
        for [a, u] in compare(&mix, &recording, &["hsp", "acfs"]) {
            asp.push(a.told.value - a.real.value);
            unfairness.push(u.told.value / u.real.value - 1.0);
        }
    }
    for (what, errors) in [("ASP per program", &asp), ("unfairness", &unfairness)] {
        println!(
            "{what}: typical {:.4}, largest {:.4}",
            typical(errors),
            largest(errors)
        );
        println!("{errors:.3?}");
    }
    assert!(typical(&asp) < 0.02 && largest(&asp) < 0.06, "{asp:.3?}");
    assert!(
        typical(&unfairness) < 0.15 && largest(&unfairness) < 0.5,
        "{unfairness:.3?}"
    );
}

/// Recorded under hsp, where most programs stay on one core type: what they would do on the other
/// is known from uncertain factors only, and the uncertainty of the replay says so.
#[test]
fn what_was_never_seen_is_in_the_uncertainty() {
    let noisy = ProviderSpec::Exact {
        sigma: 0.1,
        latency: 0,
    };
    let mut errors = Vec::new();
    for seed in 1..=10 {
        let mix = mix(seed);
        let recording = record(&mix, "hsp", true, &noisy);
        let facts = Replay::of(&recording).unwrap().facts;
        assert!(
            facts.by_provider + facts.by_program > 0.1 && facts.unknown == 0.0,
            "{facts:?}"
        );
        for [asp, _] in compare(&mix, &recording, &["rr", "acfs"]) {
            let u = asp.told.u.unwrap();
            assert!(u > 0.002, "{asp:?}");
            errors.push((asp.told.value - asp.real.value) / u.hypot(asp.real.u.unwrap()));
        }
    }
    println!("{errors:.2?}");
    assert!(
        typical(&errors) < 2.0 && largest(&errors) < 4.0,
        "{errors:.2?}"
    );
}

/// Without counters and factors nothing is known of speed: draws differ widely, and a policy that
/// goes by factors has an uncertainty that says as much.
#[test]
fn where_nothing_is_known_the_draws_are_wide() {
    let mix = mix(1);
    let recording = record(&mix, "rr", false, &ProviderSpec::None);
    let replay = Replay::of(&recording).unwrap();
    let facts = &replay.facts;
    assert!((facts.unknown - 1.0).abs() < 1e-9 && (facts.uncounted - 1.0).abs() < 1e-9);
    assert!(!replay.is_certain());
    let ratio = |w: &Workload| w.apps[0].phases[0].ips_big / w.apps[0].phases[0].ips_small;
    let draws = replay.draws(8, 1);
    let mut ratios: Vec<f64> = draws.iter().map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let most = replay.largest_factor();
    // one of each eighth
    for (i, r) in ratios.iter().enumerate() {
        let q = r.ln() / most.ln() * 8.0;
        assert!(q >= i as f64 && q <= i as f64 + 1.0, "{ratios:?} of {most}");
    }
    assert_eq!(replay.draws(8, 1), draws);
    assert_ne!(replay.draws(8, 2), draws);
    // the same work whatever the draw: what ran on slow cores took that long
    let told = bench(&draws[..5], &replay.machine, &["hsp"], 2);
    assert!(
        told.results[0].asp.u.unwrap() > 0.05,
        "{:?}",
        told.results[0].asp
    );
}
