//! Shared by the tests.

use amp_eval::evaluation::Solo;
use amp_eval::lab::Cores;
use amp_eval::workload::{Phase, Schedule};
use amp_machine::MachineFile;
use amp_metrics::{CoreTypeId, Nanos, ThreadKey};
use amp_sched::{Machine, Placement};
use amp_sim::bench::{alone, BenchOptions};
use amp_sim::{SimApp, SimMachine};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Nobody wants to stop.
pub static NEVER: AtomicBool = AtomicBool::new(false);

/// `app` alone, on slow cores and with fast ones.
pub fn solo(app: &SimApp, machine: &MachineFile, options: &BenchOptions) -> Solo {
    let time = |cores| alone(app, cores, machine, options, &NEVER).unwrap().took_s;
    Solo {
        slow_s: vec![time(Cores::Slow); 2],
        fast_s: vec![time(Cores::Fast); 2],
    }
}

/// A machine with these many CPUs per core type, fastest first; capacities halve from type to type.
pub fn machine(cpus: &[u32], cost_us: u32) -> MachineFile {
    let mut text = format!("name = \"test\"\n[migration]\ncost_us = {cost_us}\n");
    let mut next = 0;
    for (i, n) in cpus.iter().enumerate() {
        text += &format!(
            "[[core_type]]\nname = \"t{i}\"\ncpus = \"{next}-{}\"\ncapacity = {}\n",
            next + n - 1,
            1024 >> i
        );
        next += n;
    }
    MachineFile::parse(Path::new("test.toml"), &text).unwrap()
}

/// A phase of these many 10⁹ instructions that runs at 2·10⁹ a second on a big core and at 10⁹ on a
/// small one.
pub fn phase(giga: f64, parallel: bool) -> Phase {
    Phase {
        instructions: giga * 1e9,
        ips_big: 2e9,
        ips_small: 1e9,
        power_big: Some(2.0),
        power_small: Some(0.5),
        parallel,
        schedule: Schedule::Static,
        loops: 1,
        sleep: 0.0,
        cache: None,
    }
}

pub fn app(name: &str, threads: u32, giga: f64, phases: Vec<Phase>) -> SimApp {
    SimApp {
        threads,
        phases,
        ..SimApp::steady(name, giga * 1e9, 2e9, 1e9)
    }
}

/// Samples and returns the keys of all threads, in the order of their slots.
pub fn keys(sim: &mut SimMachine) -> Vec<ThreadKey> {
    sim.sample()
        .unwrap()
        .threads
        .iter()
        .map(|t| t.key)
        .collect()
}

pub fn place(sim: &mut SimMachine, places: &[(ThreadKey, u8)]) {
    let mut p = Placement::default();
    for (key, t) in places {
        p.place(*key, CoreTypeId(*t));
    }
    sim.apply(&p).unwrap();
}

/// CPU time per core type of the thread in slot `i` of the snapshot, in milliseconds.
pub fn ran_ms(sim: &mut SimMachine, i: usize) -> Vec<u64> {
    let t = sim.sample().unwrap().threads[i];
    t.runtime[..3].iter().map(|r| r.0 / 1_000_000).collect()
}

pub const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}
