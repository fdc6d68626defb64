//! The bench on the simulated machine: seconds instead of minutes, and machines that nobody has.

use super::measure;
use crate::bench::BenchArgs;
use amp_eval::evaluation::BenchReport;
use amp_eval::solos::SoloCache;
use amp_eval::workload::Workload;
use amp_eval::BenchError;
use amp_host::bad_input;
use amp_machine::MachineFile;
use amp_metrics::Nanos;
use amp_sched::policy::Settings;
use amp_sim::alone::Kept;
use amp_sim::bench::BenchOptions;
use amp_sim::{ProviderSpec, SimError, SimLab};
use anyhow::Result;
use std::sync::atomic::AtomicBool;

/// Source of metrics by its name on the command line.
///
/// # Errors
/// [`amp_host::BadInput`] naming the ones there are.
pub fn provider(name: &str) -> Result<ProviderSpec> {
    ProviderSpec::named(name).map_err(|e| bad_input(format!("--provider: {e}")))
}

/// Gives the programs of `workload` that were measured alone (`--solo`) the phase that was
/// measured.
///
/// # Errors
/// [`amp_host::BadInput`] when the file cannot be used or a program is not in it.
pub fn complete(args: &BenchArgs, workload: &mut Workload) -> Result<()> {
    let Some(path) = &args.solo else {
        return Ok(());
    };
    let kept = Kept::load(path).and_then(|kept| kept.complete(workload));
    kept.map_err(|e| bad_input(format!("--solo: {e}")))
}

/// Runs the whole protocol on the simulated machine.
///
/// # Errors
/// Bad input, a mix that does not end, or [`crate::bench::Interrupted`].
pub fn bench(args: &BenchArgs, workload: &Workload, cancel: &AtomicBool) -> Result<BenchReport> {
    let machine =
        MachineFile::load(args.machine_for(workload).unwrap_or("juno")).map_err(bad_input)?;
    let no_limit = BenchOptions::default().limit;
    let options = BenchOptions {
        provider: provider(&args.provider)?,
        settings: Settings::new(&args.settings, &args.policies.names()).map_err(bad_input)?,
        interval: Nanos::from_millis(args.interval),
        seed: args.seed,
        runs: args.runs,
        completions: args.completions as usize,
        limit: args
            .timeout
            .map_or(no_limit, |s| Nanos(s.saturating_mul(1_000_000_000))),
        ..BenchOptions::default()
    };
    let mut lab = SimLab::new(workload, &machine, &options).map_err(bad_input)?;
    // the simulator's times are exact and cost nothing: none are kept
    let kept = &mut SoloCache::default();
    let mut report = measure(args, workload, &mut lab, kept, cancel, failed)?;
    report.environment.commit = Some(env!("SCX_AMP_COMMIT").into());
    Ok(report)
}

/// A simulation fails for what it was given, but for a run without an end.
fn failed(e: BenchError<SimError>) -> anyhow::Error {
    let endless = |e: &SimError| matches!(e, SimError::Endless { .. });
    match &e {
        BenchError::Alone { error, .. } | BenchError::Mix { error, .. } if endless(error) => {
            SimError::from(e).into()
        }
        _ => bad_input(SimError::from(e)),
    }
}
