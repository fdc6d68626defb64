//! `scx_amp model collect`: instruction windows of programs, each alone on a CPU of each core type.
//!
//! ```text
//! board    boots a guest that runs `model collect --on host`, takes over each run as it is done
//! here     plan → runs → compatible? repeat : next → data
//!   plan     which events, in which sets, how many runs [MET]
//!   run      one execution: started on one CPU, read every few milliseconds, cut into windows
//!   journal  runs that are done: an interrupted collection goes on from there
//! ```

mod board;
mod collection;
mod exercise;
mod journal;
mod plan;
mod run;

use amp_host::bad_input;
use amp_machine::CpuList;
use amp_models::candidates::Candidates;
use amp_models::programs::{self, Program};
use amp_pmc::TrustArgs;
use anyhow::{bail, Result};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Where programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum On {
    /// The virtual AMP board
    Board,
    /// This machine
    Host,
}

/// Which programs of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Select {
    /// Those to train on
    Training,
    /// Those that are held out of training
    HeldOut,
    /// Both
    All,
}

/// Flags of `scx_amp model collect`. A guest of the board reads the same from its request file.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectArgs {
    /// Where to write the windows (models/README.md). FILE.journal beside it keeps finished runs
    /// until all are done
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "request",
        default_value = ".",
        hide_default_value = true
    )]
    out: PathBuf,
    /// Where the programs run
    #[arg(long, value_enum, default_value = "board")]
    on: On,
    /// The board's machine: a shipped one or a machine file. On the host, the platform's name
    #[arg(long, value_name = "NAME|FILE.toml")]
    machine: Option<String>,
    /// The list of programs [default: the shipped one, models/programs.toml]
    #[arg(long, value_name = "FILE.toml")]
    programs: Option<PathBuf>,
    /// Which programs of the list
    #[arg(long, value_enum, default_value = "training")]
    select: Select,
    /// Only the programs of these names
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Events that may be worth counting, by PMU [default: the shipped ones, models/events/]
    #[arg(long, value_name = "FILE.toml")]
    events: Option<PathBuf>,
    #[command(flatten)]
    trust: TrustArgs,
    /// Instructions in a window, with k or M
    #[arg(long, value_name = "N", default_value = "3M", value_parser = window)]
    window: NonZeroU64,
    /// Time between two readings, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    sample: u64,
    /// Relative uncertainty of retired instructions that decides on the number of runs
    #[arg(long, value_name = "SHARE", default_value_t = 0.01)]
    sigma_ref: f64,
    /// How often runs that were not made under the same conditions are made again
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100))]
    repeats: u32,
    /// Longest time a run may take, in seconds of the machine's own time
    #[arg(long, value_name = "SECS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// CPUs of the fast core type, where the kernel cannot distinguish them (host)
    #[arg(long, value_name = "LIST")]
    #[serde(skip)]
    big_cpus: Option<CpuList>,
    /// Folder the programs run in (host) [default: a temporary one, with the catalogue's inputs]
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// The board's kernel: `newest`, or the beginning of a version such as 7.0 [default: newest]
    #[arg(long, value_name = "VERSION")]
    kernel: Option<String>,
    /// Day of the collection
    #[arg(long, hide = true)]
    date: Option<String>,
    /// What figures depend on beside kernel and program
    #[arg(long, hide = true, default_value = "")]
    model_version: String,
    /// Progress and finished runs as lines for a host that reads the console
    #[arg(long, hide = true)]
    progress_lines: bool,
    /// Read all options from this file instead: how a guest of the board is told what to do
    #[arg(long, hide = true, value_name = "FILE")]
    #[serde(skip)]
    request: Option<PathBuf>,
}

fn window(text: &str) -> Result<NonZeroU64, String> {
    let n = amp_workloads::quantity::parse_count(text)?;
    NonZeroU64::new(n)
        .filter(|n| n.get() >= 10_000)
        .ok_or_else(|| "at least 10k: shorter windows hold less than a reading costs".into())
}

/// Outcome of the runs.
struct Outcome {
    /// Programs that have no windows, and why.
    failed: Vec<(String, String)>,
}

/// Collects.
///
/// # Errors
/// Bad input, a machine that cannot count, or programs that failed (the others' windows are written
/// then).
pub fn main(args: &CollectArgs, cancel: &AtomicBool) -> Result<()> {
    let requested: CollectArgs;
    let args = match &args.request {
        None => args,
        Some(path) => {
            requested = crate::on_board::request(path)?;
            &requested
        }
    };
    if args.on == On::Board && (args.big_cpus.is_some() || args.workdir.is_some()) {
        return Err(bad_input("--big-cpus and --workdir go with --on host"));
    }
    if args.on == On::Host && args.kernel.is_some() {
        return Err(bad_input("--kernel goes with --on board"));
    }
    if !(args.sigma_ref.is_finite() && args.sigma_ref > 0.0 && args.sigma_ref < 1.0) {
        let got = args.sigma_ref;
        return Err(bad_input(format!(
            "--sigma-ref: {got} is not between 0 and 1"
        )));
    }
    let programs = selected(args)?;
    let events = events(args)?;
    let dir = args.out.parent().filter(|d| !d.as_os_str().is_empty());
    if let Some(dir) = dir.filter(|d| !d.is_dir()) {
        return Err(bad_input(format!("{}: no such folder", dir.display())));
    }
    let outcome = match args.on {
        On::Board => board::collect(args, &programs, cancel)?,
        On::Host => collection::collect(args, &programs, &events, cancel)?,
    };
    if outcome.failed.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = outcome
        .failed
        .iter()
        .map(|(p, why)| format!("{p}: {why}"))
        .collect();
    bail!(
        "{} of {} programs have no windows, the others' are in {}:\n{}",
        named.len(),
        programs.len(),
        args.out.display(),
        named.join("\n")
    )
}

fn read(path: &Path) -> Result<String> {
    let read = amp_machine::read_text(path);
    let (text, _) = read.map_err(|e| bad_input(format!("{}: {e}", path.display())))?;
    Ok(text)
}

/// The list of programs as text, with its name for messages.
fn list(args: &CollectArgs) -> Result<(PathBuf, String)> {
    Ok(match &args.programs {
        Some(path) => (path.clone(), read(path)?),
        None => ("models/programs.toml".into(), programs::SHIPPED.to_owned()),
    })
}

fn selected(args: &CollectArgs) -> Result<Vec<Program>> {
    let (path, text) = list(args)?;
    let mut all = programs::parse(&path, &text).map_err(bad_input)?;
    if let Some(name) = args.only.iter().find(|n| all.iter().all(|p| p.name != **n)) {
        return Err(bad_input(format!(
            "--only: no program `{name}` in {}",
            path.display()
        )));
    }
    all.retain(|p| match args.select {
        _ if !args.only.is_empty() => args.only.contains(&p.name),
        Select::Training => !p.held_out,
        Select::HeldOut => p.held_out,
        Select::All => true,
    });
    if all.is_empty() {
        return Err(bad_input(format!(
            "{}: no program is selected",
            path.display()
        )));
    }
    Ok(all)
}

fn events(args: &CollectArgs) -> Result<Candidates> {
    match &args.events {
        Some(path) => Candidates::parse(path, &read(path)?).map_err(bad_input),
        None => Candidates::shipped().map_err(bad_input),
    }
}

/// The journal beside the data.
fn journal_path(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}
