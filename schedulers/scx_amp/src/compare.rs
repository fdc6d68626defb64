//! `scx_amp compare`: policies over whole folders of mixes on the simulator, beside what was
//! published of them.

use amp_host::bad_input;
use amp_host::progress::Progress;
use amp_sim::bench::Step;
use amp_sim::compare::Comparison;
use amp_sim::SimError;
use anyhow::{bail, Result};
use clap::Args;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flags of `scx_amp compare`.
#[derive(Args)]
pub struct CompareArgs {
    /// Files that say which mixes, machine and policies, and what was published (see
    /// `tools/workloads/comparisons/`)
    #[arg(required = true, value_name = "COMPARISON.toml")]
    files: Vec<PathBuf>,
    /// Runs of each mix under each policy, in shuffled start order
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Prints a table per file.
///
/// # Errors
/// Bad input, a mix that does not end, an interrupt.
pub fn main(args: &CompareArgs, cancel: &AtomicBool) -> Result<()> {
    let all: Result<Vec<Comparison>, SimError> =
        args.files.iter().map(|f| Comparison::load(f)).collect();
    for comparison in all.map_err(bad_input)? {
        let mut progress = Progress::bar();
        let mut watch = |mix: &str, step: Step<'_>| {
            progress.note(&format!("{mix}: {}", step.what));
            match cancel.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let outcome = comparison.run(args.runs, args.seed, &mut watch);
        drop(progress);
        match outcome {
            Ok(outcome) => amp_host::print(&format!("{outcome}\n"))?,
            Err(SimError::Interrupted) => bail!("interrupted"),
            Err(e) => return Err(bad_input(e)),
        }
    }
    Ok(())
}
