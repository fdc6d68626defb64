//! The laboratories of `scx_amp bench`: where its protocol ([`amp_eval::bench()`]) is run.
//!
//! ```text
//! host   this machine
//!   session    one run of the mix: start, restart, time, tick
//!   apps       starting programs
//!   peer       other sched_ext schedulers
//!   where_ran  which application was on which core type
//!   counts     instructions and energy, where the machine counts them
//! board  boots a guest, in which this command benches its own machine
//! sim    the simulated machine; no_sim in its place in a build without it
//! inputs     the folder that programs run in
//! ```

pub mod board;
pub mod host;
pub mod inputs;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(not(feature = "sim"))]
#[path = "labs/no_sim.rs"]
pub mod sim;

use crate::bench::{BenchArgs, Interrupted};
use amp_eval::evaluation::BenchReport;
use amp_eval::solos::SoloCache;
use amp_eval::workload::Workload;
use amp_eval::{BenchError, Lab, Plan, Step};
use amp_host::progress::Progress;
use anyhow::Result;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

/// Runs the protocol in `lab`, showing how far it is; `failed` makes of a failure what the command
/// says.
///
/// # Errors
/// What `failed` made, or [`Interrupted`].
fn measure<L: Lab>(
    args: &BenchArgs,
    workload: &Workload,
    lab: &mut L,
    kept: &mut SoloCache,
    cancel: &AtomicBool,
    failed: impl FnOnce(BenchError<L::Error>) -> anyhow::Error,
) -> Result<BenchReport> {
    let plan = Plan {
        workload,
        policies: &args.policies,
        runs: args.runs,
        solo_runs: args.solo_runs(),
        completions: args.completions as usize,
        seed: args.seed,
    };
    let mut progress = match args.progress_lines {
        true => Progress::lines(),
        false => Progress::bar(),
    };
    let mut announced = 0;
    let mut watch = |step: Step<'_>| {
        if step.done > 0 {
            progress.end();
        }
        progress.expect(step.total.saturating_sub(announced));
        announced = announced.max(step.total);
        progress.begin(&step.what.to_string());
        ControlFlow::Continue(())
    };
    amp_eval::bench(&plan, lab, kept, &mut watch, cancel).map_err(|e| match e {
        BenchError::Interrupted => Interrupted.into(),
        e => failed(e),
    })
}
