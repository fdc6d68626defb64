//! How much simulated time a second of the host's buys: the machine alone, and with the engine at
//! 10 Hz.
#![allow(missing_docs)] // criterion's macro makes a function without any

use amp_machine::MachineFile;
use amp_metrics::Nanos;
use amp_sched::{policy, Engine, Machine};
use amp_sim::{Discipline, MachineOptions, ProviderSpec, SimApp, SimMachine};
use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use std::path::Path;

/// Half of the CPUs are big.
fn machine(cpus: usize) -> MachineFile {
    let text = format!(
        "name = \"bench\"\n[migration]\ncost_us = 50\n\
         [[core_type]]\nname = \"big\"\ncpus = \"0-{}\"\ncapacity = 1024\n\
         [[core_type]]\nname = \"small\"\ncpus = \"{}-{}\"\ncapacity = 400\n",
        cpus / 2 - 1,
        cpus / 2,
        cpus - 1
    );
    MachineFile::parse(Path::new("bench.toml"), &text).expect("a machine of two core types")
}

/// Endless applications of one thread each, phases of 0.5 s and 0.2 s on a small core.
fn apps(n: usize) -> Vec<SimApp> {
    let app = |i: usize| {
        let mut a = SimApp::steady(&format!("a{i}"), 1e18, 2e9 + 1e6 * i as f64, 1e9);
        let mut second = a.phases[0];
        a.phases[0].instructions = 0.5e9;
        second.instructions = 0.2e9;
        second.ips_big = 1.2e9;
        a.phases.push(second);
        a
    };
    (0..n).map(app).collect()
}

fn sim(cpus: usize, threads: usize, discipline: Discipline) -> SimMachine {
    let options = MachineOptions {
        discipline,
        ..MachineOptions::default()
    };
    SimMachine::new(&machine(cpus), &apps(threads), options, 1).expect("a right scenario")
}

fn one_second(c: &mut Criterion) {
    let mut group = c.benchmark_group("simulated second");
    group.sample_size(20);
    group.throughput(Throughput::Elements(1));
    for (cpus, threads) in [(8, 8), (8, 16), (64, 64), (64, 256)] {
        let id = |what: &str| BenchmarkId::new(what, format!("{threads} threads on {cpus} CPUs"));
        for (name, discipline) in [("placed", Discipline::Placed), ("fair", Discipline::Fair)] {
            let mut s = sim(cpus, threads, discipline);
            group.bench_function(id(name), |b| {
                b.iter(|| s.run_until(s.now() + Nanos::from_millis(1000)));
            });
        }
        for name in ["hsp", "rr"] {
            let mut s = sim(cpus, threads, Discipline::Placed);
            let provider = ProviderSpec::TRUE.make(&mut s, 1).expect("no noise");
            let policy = policy::by_name(name, 1).expect("a policy of this name");
            let mut engine = Engine::new(s.topology().clone(), policy, provider);
            group.bench_function(id(name), |b| {
                b.iter(|| {
                    for _ in 0..10 {
                        s.run_until(s.now() + Nanos::from_millis(100));
                        engine
                            .tick(&mut s)
                            .expect("a simulated machine does not fail");
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, one_second);
criterion_main!(benches);
