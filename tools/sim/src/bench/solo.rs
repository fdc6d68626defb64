//! Applications alone.

use super::mix::run_watched;
use super::BenchOptions;
use crate::error::SimError;
use crate::machine::{topology_of, MachineOptions, SimMachine};
use crate::provider::ProviderSpec;
use crate::scenario::SimApp;
use amp_eval::evaluation::Progress;
use amp_eval::lab::{AloneRecord, Cores};
use amp_machine::MachineFile;
use amp_sched::policy::Settings;
use amp_sched::Machine as _;
use std::sync::atomic::AtomicBool;

/// The policy under which an application that has the machine to itself uses the fast cores: it
/// keeps them busy and lets its threads take turns on them, which is what the application-wide
/// speedup assumes [TR5028 §4].
const ALONE: &str = "hsp";

/// `app` by itself, its time in seconds: on the slowest core type only, or with all cores, or all
/// from one type on, and exact speedup factors under `hsp`.
///
/// # Errors
/// When an input is not right, it does not end within the limit, or `cancel` is set.
pub fn alone(
    app: &SimApp,
    cores: Cores,
    machine: &MachineFile,
    options: &BenchOptions,
    cancel: &AtomicBool,
) -> Result<AloneRecord, SimError> {
    let topology = topology_of(machine)?;
    let from = |t: usize| {
        let types = topology.core_types().iter().skip(t);
        types.flat_map(|t| t.cpus.iter().copied()).collect()
    };
    let alone = SimApp {
        affinity: match cores {
            Cores::Slow => Some(from(topology.slowest().index())),
            Cores::Fast => None,
            Cores::Between(t) => Some(from(t)),
        },
        arrival: Default::default(),
        departure: None,
        restart: true,
        ..app.clone()
    };
    let options = BenchOptions {
        provider: ProviderSpec::TRUE,
        provider_of: Vec::new(),
        settings: Settings::default(),
        completions: 1,
        // what the application-wide speedup assumes: a fast core waits for its own thread
        machine: MachineOptions {
            lending: false,
            ..options.machine
        },
        ..options.clone()
    };
    let apps = std::slice::from_ref(&alone);
    let mut looks = Vec::new();
    let mut look = |sim: &SimMachine| {
        let done = sim.app_stats(0).map(|s| s.instructions.iter().sum());
        looks.extend(done.map(|done: f64| (done, sim.now().as_secs_f64())));
    };
    let (sim, ..) = run_watched(apps, machine, ALONE, &options, 1, cancel, &mut look)?;
    Ok(AloneRecord {
        took_s: sim.now().as_secs_f64(),
        instructions: Some(app.instructions),
        energy_j: sim.app_stats(0).and_then(|s| s.energy_j),
        progress: Progress::of(&looks),
    })
}
