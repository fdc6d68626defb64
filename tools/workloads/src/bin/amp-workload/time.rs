//! `amp-workload time`: a program's completion time and counts, on one CPU or wherever it runs.

use crate::model::UserTotals;
use crate::window::Instruments;
use crate::{machine, report};
use anyhow::{bail, Context, Result};
use serde_json::json;
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub struct Args {
    /// Run on this CPU only
    #[arg(long, value_name = "CPU")]
    pin: Option<u32>,
    /// Count instructions, cycles, cache refills and branch misses; needs --pin, which chooses the
    /// PMU
    #[arg(long, requires = "pin")]
    count: bool,
    /// Also what this CPU does in user mode meanwhile, whoever runs there, by the virtual board's
    /// own totals
    #[arg(long, value_name = "CPU")]
    totals: Option<u32>,
    /// Directory to run in
    #[arg(long)]
    cwd: Option<std::path::PathBuf>,
    /// One JSON line
    #[arg(long)]
    json: bool,
    /// The program and its arguments; its standard output is thrown away
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Runs the command once and prints its time from start to exit.
///
/// # Errors
/// When it cannot be started or counted, or fails.
pub fn run(args: &Args) -> Result<()> {
    let (name, arguments) = args.command.split_first().context("a command")?;
    if let Some(cpu) = args.pin {
        machine::pin(cpu)?;
    }
    let mut command = Command::new(name);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if let Some(dir) = &args.cwd {
        command.current_dir(dir);
    }
    let instruments = Instruments::open(args.pin.filter(|_| args.count))?;
    let totals = args.totals.map(UserTotals::start).transpose()?;
    if let Some(cpu) = args.pin.filter(|_| totals.is_some()) {
        machine::pin(cpu)?;
    }
    let (status, measured) = instruments.measure(|| command.status())?;
    let totals = totals.map(UserTotals::since).transpose()?;
    let status = status.with_context(|| format!("cannot run `{name}`"))?;
    if !status.success() {
        bail!("`{}` failed: {status}", args.command.join(" "));
    }
    let fields = json!({
        "command": args.command,
        "cpu": args.pin,
        "wall_ns": measured.wall_ns,
        "perf": measured.perf,
        "model": measured.model,
        "totals": totals,
    });
    report::print("done", &fields, args.json);
    Ok(())
}
