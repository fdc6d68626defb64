//! In the place of the simulated machine in a build without it, as guests of the board have.

use crate::bench::BenchArgs;
use amp_eval::evaluation::BenchReport;
use amp_eval::workload::Workload;
use amp_host::bad_input;
use anyhow::Result;
use std::sync::atomic::AtomicBool;

fn missing<T>() -> Result<T> {
    Err(bad_input(
        "--on sim: this scx_amp was built without the simulator (cargo feature `sim`)",
    ))
}

/// Refuses, as everything here does.
///
/// # Errors
/// [`amp_host::BadInput`], always.
pub fn complete(_args: &BenchArgs, _workload: &mut Workload) -> Result<()> {
    missing()
}

/// Refuses.
///
/// # Errors
/// [`amp_host::BadInput`], always.
pub fn provider(_name: &str) -> Result<()> {
    missing()
}

/// Refuses.
///
/// # Errors
/// [`amp_host::BadInput`], always.
pub fn bench(_args: &BenchArgs, _workload: &Workload, _cancel: &AtomicBool) -> Result<BenchReport> {
    missing()
}
