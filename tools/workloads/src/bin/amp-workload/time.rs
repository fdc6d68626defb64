//! `amp-workload time`: a program's completion time and counts, on one CPU or wherever it runs.

use crate::counters::{Counters, Scope, What};
use crate::model::ModelTotals;
use crate::run::counted;
use crate::{machine, report};
use anyhow::{bail, Context, Result};
use serde_json::json;
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub struct Args {
    /// Run on this CPU only
    #[arg(long, value_name = "CPU")]
    pin: Option<u32>,
    /// Count instructions, cycles, cache refills and branch misses; needs --pin, which chooses the PMU
    #[arg(long, requires = "pin")]
    count: bool,
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
    let counted_cpu = args.pin.filter(|_| args.count);
    let mut counters = match counted_cpu {
        Some(cpu) => Some(Counters::open(cpu, Scope::Thread, &What::ALL).context("--count")?),
        None => None,
    };
    let mut model = match counted_cpu {
        Some(cpu) => ModelTotals::open(cpu)?,
        None => None,
    };
    if let Some(m) = &mut model {
        m.start()?;
    }
    if let Some(c) = &mut counters {
        c.start()?;
    }
    let start = machine::now_ns();
    let status = command
        .status()
        .with_context(|| format!("cannot run `{name}`"))?;
    let wall_ns = machine::now_ns() - start;
    let perf = counters.as_mut().map(counted).transpose()?;
    let model = model.map(|m| m.since()).transpose()?;
    if !status.success() {
        bail!("`{}` failed: {status}", args.command.join(" "));
    }
    let fields = json!({
        "command": args.command,
        "cpu": args.pin,
        "wall_ns": wall_ns,
        "perf": perf,
        "model": model,
    });
    report::print("done", &fields, args.json);
    Ok(())
}
