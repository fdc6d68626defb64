//! `scx_amp pmc`: hardware counters from user space.
//!
//! ```text
//! list      what there is to count, per core type
//! stat      counts of a command, a process or the machine
//! record    where a program is when events happen
//! patterns  what slows a program of several threads down
//! validate  which events count what they should
//! ```

mod caches;
mod counting;
mod describe;
mod formula;
mod groups;
pub(crate) mod here;
mod list;
mod output;
mod patterns;
mod plot;
mod record;
mod sets;
mod stat;
pub(crate) mod target;
mod validate;
mod virtuals;
mod windows;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// What is asked for.
#[derive(Subcommand, Debug)]
pub enum Pmc {
    /// Show every PMU with its CPUs, usable counters and events
    List(list::ListArgs),
    /// Count events of a command, a process or the whole machine
    Stat(stat::StatArgs),
    /// Sample where a command, a process or the machine is: a profile by function and basic block
    Record(record::RecordArgs),
    /// Tell whether a command saturates memory, shares its work out badly, or has threads write to the same cache lines
    Patterns(patterns::PatternsArgs),
    /// Hold events against kernels of known counts on each core type: which of them can be trusted
    Validate(validate::ValidateArgs),
}

/// Runs `scx_amp pmc`.
///
/// # Errors
/// Bad input ([`amp_host::BadInput`]), or why the work failed.
pub fn main(what: &Pmc) -> Result<ExitCode> {
    match what {
        Pmc::List(args) => list::main(args),
        Pmc::Stat(args) => stat::main(args, amp_host::stop_flag()?.as_ref()),
        Pmc::Record(args) => record::main(args, amp_host::stop_flag()?.as_ref()),
        Pmc::Patterns(args) => patterns::main(args, amp_host::stop_flag()?.as_ref()),
        Pmc::Validate(args) => validate::main(args, amp_host::stop_flag()?.as_ref()),
    }
}
