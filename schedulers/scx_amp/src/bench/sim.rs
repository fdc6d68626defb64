//! The bench on the simulated machine: seconds instead of minutes, and machines that nobody has.

use super::{BenchArgs, Interrupted};
use amp_eval::evaluation::BenchReport;
use amp_eval::workload::Workload;
use amp_host::bad_input;
use amp_host::progress::Progress;
use amp_machine::MachineFile;
use amp_metrics::Nanos;
use amp_sched::policy::Settings;
use amp_sim::bench::{BenchOptions, Step};
use amp_sim::{ProviderSpec, SimError};
use anyhow::Result;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

/// Source of metrics by its name on the command line.
///
/// # Errors
/// [`amp_host::BadInput`] naming the ones there are.
pub fn provider(name: &str) -> Result<ProviderSpec> {
    ProviderSpec::named(name).map_err(|e| bad_input(format!("--provider: {e}")))
}

/// Runs the whole protocol on the simulated machine.
///
/// # Errors
/// Bad input, a mix that does not end, or [`Interrupted`].
pub fn bench(args: &BenchArgs, workload: &Workload, cancel: &AtomicBool) -> Result<BenchReport> {
    let machine =
        MachineFile::load(args.machine.as_deref().unwrap_or("juno")).map_err(bad_input)?;
    let options = BenchOptions {
        provider: provider(&args.provider)?,
        settings: Settings::new(&args.settings, &args.policies).map_err(bad_input)?,
        interval: Nanos::from_millis(args.interval),
        seed: args.seed,
        runs: args.runs,
        completions: args.completions as usize,
        limit: Nanos(args.timeout.saturating_mul(1_000_000_000)),
        ..BenchOptions::default()
    };
    let policies: Vec<&str> = args.policies.iter().map(String::as_str).collect();
    let mut progress = Progress::bar();
    progress.expect((workload.apps.len() + policies.len() * args.runs as usize) as u64);
    let mut first = true;
    let mut watch = |step: Step<'_>| {
        if !std::mem::take(&mut first) {
            progress.end();
        }
        match step {
            Step::Solo { app } => progress.begin(&format!("{app} alone")),
            Step::Mix { policy, run } => progress.begin(&format!("{policy}, run {run}")),
        }
        if cancel.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    match amp_sim::bench(workload, &machine, &policies, &options, &mut watch) {
        Ok(mut report) => {
            report.environment.commit = Some(env!("SCX_AMP_COMMIT").into());
            Ok(report)
        }
        Err(SimError::Interrupted) => Err(Interrupted.into()),
        Err(e) => Err(bad_input(e)),
    }
}
