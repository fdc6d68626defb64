//! `scx_amp model`: windows of counters, from them a platform file, and how good it is.

mod collect;
#[cfg(feature = "train")]
mod fitting;
#[cfg(feature = "train")]
mod over_time;
#[cfg(feature = "train")]
mod phases;
#[cfg(feature = "train")]
mod scatter;
#[cfg(feature = "train")]
mod tables;

use anyhow::Result;
use clap::Subcommand;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// What `scx_amp model` does.
#[derive(Subcommand)]
pub enum ModelCommand {
    /// Run programs on each core type and record instruction windows of counters to train on
    Collect(Box<collect::CollectArgs>),
    /// Train a platform file for `--provider` from files of instruction windows
    #[cfg(feature = "train")]
    Train(fitting::TrainArgs),
    /// Predict windows with a platform file and compare with the truth, per program and core type
    #[cfg(feature = "train")]
    Eval(fitting::EvalArgs),
    /// Show what is in a platform file
    #[cfg(feature = "train")]
    Show {
        /// The platform file
        #[arg(value_name = "FILE.toml")]
        file: std::path::PathBuf,
    },
}

/// Runs it; `cancel` gives a flag that is set when the user wants to stop.
///
/// # Errors
/// Bad input, naming file and line; a file that cannot be written; a model that cannot be fitted.
pub fn main(what: &ModelCommand, cancel: impl FnOnce() -> Result<Arc<AtomicBool>>) -> Result<()> {
    match what {
        ModelCommand::Collect(args) => collect::main(args, cancel()?.as_ref()),
        #[cfg(feature = "train")]
        ModelCommand::Train(args) => fitting::train_command(args),
        #[cfg(feature = "train")]
        ModelCommand::Eval(args) => fitting::eval(args),
        #[cfg(feature = "train")]
        ModelCommand::Show { file } => fitting::show(file),
    }
}
