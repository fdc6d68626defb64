//! Applications alone.

use super::mix::run_mix;
use super::BenchOptions;
use crate::error::SimError;
use crate::machine::topology_of;
use crate::provider::ProviderSpec;
use crate::scenario::SimApp;
use amp_eval::evaluation::Solo;
use amp_machine::MachineFile;
use amp_sched::policy::Settings;

/// The policy under which an application that has the machine to itself uses the fast cores: it keeps them busy and lets
/// its threads take turns on them, which is what the application-wide speedup assumes [TR5028 §4].
const ALONE: &str = "hsp";

/// Completion times of `app` by itself: on the slowest core type only, and with all cores and exact speedup factors under
/// `hsp`. The simulator's are exact, so each is stated twice: as two equal observations, whose uncertainty is 0.
///
/// # Errors
/// When an input is not right or it does not end within the limit.
pub fn solo(app: &SimApp, machine: &MachineFile, options: &BenchOptions) -> Result<Solo, SimError> {
    let topology = topology_of(machine)?;
    let slow = topology.core_types()[topology.slowest().index()]
        .cpus
        .clone();
    let slow = time(
        SimApp {
            affinity: Some(slow),
            ..app.clone()
        },
        machine,
        options,
    )?;
    let fast = time(
        SimApp {
            affinity: None,
            ..app.clone()
        },
        machine,
        options,
    )?;
    Ok(Solo {
        slow_s: vec![slow; 2],
        fast_s: vec![fast; 2],
    })
}

fn time(app: SimApp, machine: &MachineFile, options: &BenchOptions) -> Result<f64, SimError> {
    let alone = SimApp {
        arrival: Default::default(),
        departure: None,
        restart: true,
        ..app
    };
    let options = BenchOptions {
        provider: ProviderSpec::TRUE,
        provider_of: Vec::new(),
        settings: Settings::default(),
        completions: 1,
        ..options.clone()
    };
    let done = run_mix(std::slice::from_ref(&alone), machine, ALONE, &options, 1)?;
    Ok(done.run.duration_s)
}
