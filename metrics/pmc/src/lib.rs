//! Hardware counters from user space: everything behind `scx_amp pmc`.
//!
//! ```text
//! list      what there is to count, per core type
//! stat      counts of a command, a process or the machine
//! record    where a program is when events happen
//! patterns  what slows a program of several threads down
//! mrc       how often a program misses a cache of which it has more or less
//! validate  which events count what they should
//! ```
//!
//! A command flattens [`Pmc`] into its own and calls [`main`]. This crate knows neither scheduling
//! nor BPF, and needs no toolchain but Rust's.

// they panic where nobody reads: see `amp_host::output`
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod counting;
mod derived;
mod describe;
mod factors;
mod formula;
mod groups;
mod inventory;
mod list;
mod mrc;
mod patterns;
mod plot;
mod record;
mod sets;
mod stat;
mod target;
mod trust;
mod validate;
mod virtuals;
mod windows;

#[doc(hidden)]
pub use groups::is_group;
pub use inventory::{CounterInventory, NoPmu};
#[doc(hidden)]
pub use record::spe::has_operations as holds_spe_operations;
pub use trust::TrustArgs;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// The subcommands of `scx_amp pmc`.
#[derive(Subcommand, Debug)]
pub enum Pmc {
    /// Show every PMU with its CPUs, usable counters and events
    List(list::ListArgs),
    /// Count events of a command, a process or the whole machine
    Stat(stat::StatArgs),
    /// Sample where a command, a process or the machine is: a profile by function and basic block
    Record(record::RecordArgs),
    /// Tell whether a command saturates memory, shares its work out badly, or has threads write to
    /// the same cache lines
    Patterns(patterns::PatternsArgs),
    /// Show how a program does with more and less of a cache, while it runs: its miss-rate curve
    /// (experimental on hardware)
    Mrc(mrc::MrcArgs),
    /// Compare events with kernels of known counts on each core type, to know which can be trusted
    Validate(validate::ValidateArgs),
}

/// Does what is asked for. `stop` gives the flag that an interrupt sets.
///
/// # Errors
/// Bad input ([`amp_host::BadInput`]), or why the work failed.
pub fn main(what: &Pmc, stop: impl FnOnce() -> Result<Arc<AtomicBool>>) -> Result<ExitCode> {
    match what {
        Pmc::List(args) => list::main(args),
        Pmc::Stat(args) => stat::main(args, stop()?.as_ref()),
        Pmc::Record(args) => record::main(args, stop()?.as_ref()),
        Pmc::Patterns(args) => patterns::main(args, stop()?.as_ref()),
        Pmc::Mrc(args) => mrc::main(args, stop()?.as_ref()),
        Pmc::Validate(args) => validate::main(args, stop()?.as_ref()),
    }
}
