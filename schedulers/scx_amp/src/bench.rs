//! `scx_amp bench`: how well policies do on a mix of programs. Its options, what is wrong with
//! them, and showing what came out; the work is done in a laboratory ([`crate::labs`]).

use crate::cpufreq::Cpufreq;
use crate::labs::{board, host, sim};
use crate::recording;
use amp_eval::evaluation::BenchReport;
use amp_eval::report;
use amp_eval::workload::{App, Workload};
use amp_eval::Runs;
use amp_eval::{Contender, Contenders};
use amp_host::{bad_input, check_out, output};
use amp_machine::CpuList;
use amp_metrics::trust::Trust;
use amp_pmc::TrustArgs;
use amp_sched::policy::Settings;
use anyhow::{bail, Result};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Completions of every program that end a run, where nobody says how many.
pub const COMPLETIONS: u32 = 3;
/// Milliseconds between two decisions, where nobody says how many.
pub const INTERVAL_MS: u64 = 100;

/// Where a bench runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// The virtual AMP board
    Board,
    /// This machine
    Host,
    /// The simulated machine
    Sim,
}

/// Options of `scx_amp bench`. A guest of the board reads the same from its request file.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchArgs {
    /// The mix of programs
    #[arg(
        value_name = "WORKLOAD.toml",
        required_unless_present_any = ["request", "compare"],
        default_value = ".",
        hide_default_value = true
    )]
    pub workload: PathBuf,
    /// Where it runs
    #[arg(long, value_enum, default_value = "board")]
    pub on: On,
    /// The machine to model: a shipped one or a machine file [default: the mix's own, else juno].
    /// On the host, only a name for the report
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub machine: Option<String>,
    /// What to compare, separated by commas: policies, `eevdf` (the kernel's own scheduler),
    /// `eevdf:no-eas` (the same without energy-aware scheduling), `pinned` (the best placement by
    /// threads pinned to core types; which one it is stands in the result), and scx:NAME or
    /// scx:"NAME ARGS" (another sched_ext scheduler; on the board one that `board fetch --peers` built)
    #[arg(long, value_name = "LIST", default_value = "eevdf,rr,hsp")]
    pub policies: Contenders,
    /// Set a knob of a policy (see `scx_amp help policy NAME`); may be repeated
    #[arg(long = "set", value_name = "[POLICY.]KNOB=VALUE")]
    pub settings: Vec<String>,
    /// Source of factors. `declared`: speedup factors from the workload file, else from the solo
    /// runs; efficiency factors from the energies of the solo runs, where the machine tells them
    #[arg(long, default_value = "declared", value_name = "NAME|FILE.toml")]
    pub provider: String,
    #[command(flatten)]
    pub trust: TrustArgs,
    /// What programs were like in earlier benches: read from FILE if it is there, and written to it
    /// at the end, as `run --memory` does (board, host) [default: nothing is remembered]
    #[arg(long, value_name = "FILE")]
    pub memory: Option<PathBuf>,
    /// Seed of the start orders
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs of the mix per policy, each in another start order: a number (fewer than two give no
    /// uncertainty), or `auto[:SECS]`, until ASP is known within 1 % or SECS (3600) of the machine's
    /// time are over [default: 5; 10 for eevdf and for what differs by more than 5 % from run to run]
    #[arg(long, default_value_t = Runs::Enough, hide_default_value = true, value_name = "N|auto")]
    pub runs: Runs,
    /// Runs of each program alone, on slow cores and with fast ones
    /// (board, host) [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub solo_runs: Option<u32>,
    /// Completions of every program that end a run of the mix
    #[arg(long, default_value_t = COMPLETIONS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub completions: u32,
    /// Time between two decisions, in milliseconds
    #[arg(long, default_value_t = INTERVAL_MS, value_name = "MS", value_parser = clap::value_parser!(u64).range(5..=10_000))]
    pub interval: u64,
    /// CPUs of the fast core type, where the kernel cannot distinguish them (host)
    #[arg(long, value_name = "LIST")]
    #[serde(skip)]
    pub big_cpus: Option<CpuList>,
    /// The board's kernel: `newest`, or the beginning of a version such as 7.0, both of the cloud
    /// flavour; `generic` or 7.0-generic [default: newest]
    #[arg(long, value_name = "VERSION")]
    pub kernel: Option<String>,
    /// Let the board's kernel set the clocks of the core types, as on a board with frequency scaling;
    /// takes the generic flavour of the newest kernel (machines with operating points: juno)
    #[arg(long)]
    #[serde(skip)]
    pub dvfs: bool,
    /// What policies of ours ask the kernel's frequency scaling for, where its governor is schedutil
    /// (board, host) [default: load]
    #[arg(long, value_enum)]
    pub cpufreq: Option<Cpufreq>,
    /// Longest time a single run may take, in seconds of the machine's own time [default: 600; none
    /// for the simulator]
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// Write the results as JSON to FILE, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the results as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Times of programs alone, from earlier benches (board, host) [default: on the board a file in
    /// the cache folder, on a host none]
    #[arg(long, value_name = "FILE")]
    pub solo_cache: Option<PathBuf>,
    /// Programs measured alone, for the simulator to run them as one steady phase: a solo cache, or
    /// the JSON of a bench
    #[arg(long, value_name = "FILE")]
    pub solo: Option<PathBuf>,
    /// Instead of a bench: what changed from the results in A.json to those in B.json, and whether
    /// that is more than chance
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"], conflicts_with = "workload")]
    #[serde(skip)]
    pub compare: Vec<PathBuf>,
    /// Record what the scheduler saw and did in each run under a policy of ours, in DIR/POLICY-RUN: for
    /// `scx_amp replay`, or to see why a run differs from the others (board, host)
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Folder the programs run in (host) [default: a temporary one, with the catalogue's inputs]
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// What times of programs alone depend on beside kernel and program
    #[arg(long, hide = true, default_value = "")]
    pub model_version: String,
    /// Progress as lines for a host that reads the console
    #[arg(long, hide = true)]
    pub progress_lines: bool,
    /// Read all options from this file instead: how a guest of the board is told what to do
    #[arg(long, hide = true, value_name = "FILE")]
    #[serde(skip)]
    pub request: Option<PathBuf>,
}

impl BenchArgs {
    /// Runs of each program alone.
    pub fn solo_runs(&self) -> u32 {
        self.solo_runs.unwrap_or(3)
    }

    /// The machine to model for `workload`: the one that was asked for, else the one that the mix
    /// is for. A mix on another machine than its own is worth a warning: its figures are not those
    /// that were published of it.
    pub fn machine_for<'a>(&'a self, workload: &'a Workload) -> Option<&'a str> {
        let own = workload.machine.as_deref();
        if let (Some(asked), Some(own)) = (self.machine.as_deref(), own) {
            if asked != own {
                let mix = &workload.name;
                log::warn!("--machine {asked}: the mix `{mix}` is for {own}");
            }
        }
        self.machine.as_deref().or(own)
    }

    /// Longest time a run of real programs may take, in seconds.
    pub fn timeout_s(&self) -> u64 {
        self.timeout.unwrap_or(600)
    }
}

/// The user wants to stop.
#[derive(Debug, PartialEq, Eq)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "interrupted: the scheduler is unloaded and every program it started has been killed",
        )
    }
}

impl std::error::Error for Interrupted {}

/// Runs the bench and shows its results.
///
/// # Errors
/// Bad input, failed work, or [`Interrupted`].
pub fn main(args: &BenchArgs, cancel: &AtomicBool) -> Result<()> {
    if let [first, second] = &args.compare[..] {
        return compare(args, first, second);
    }
    let in_guest = args.request.is_some();
    let requested: BenchArgs;
    let args = match &args.request {
        None => args,
        Some(path) => {
            requested = crate::on_board::request(path)?;
            &requested
        }
    };
    let results = measure(args, &prepared(args)?, cancel)?;
    show(args, &results)?;
    // the host of a guest takes the report home, whatever is in it
    if results.results.is_empty() && !in_guest {
        bail!("no contender has a result");
    }
    Ok(())
}

/// Reads the mix, and checks everything that can be said about the input before anything is
/// started.
///
/// # Errors
/// Bad input.
pub fn prepared(args: &BenchArgs) -> Result<Workload> {
    refuse_meaningless(args)?;
    let mut workload = Workload::load(&args.workload).map_err(bad_input)?;
    if args.machine.is_none() && args.on != On::Host {
        let machine = workload.check_machine(&args.workload);
        machine.map_err(bad_input)?;
    }
    if args.on == On::Sim {
        sim::complete(args, &mut workload)?;
    }
    check(args, &workload)?;
    Ok(workload)
}

/// Runs the bench of a mix that is [`prepared`].
///
/// # Errors
/// Bad input, failed work, or [`Interrupted`].
pub fn measure(args: &BenchArgs, workload: &Workload, cancel: &AtomicBool) -> Result<BenchReport> {
    match args.on {
        On::Host => host::bench(args, workload, cancel),
        On::Board => board::bench(args, workload, cancel),
        On::Sim => sim::bench(args, workload, cancel),
    }
}

/// Shows what changed from one bench to another.
fn compare(args: &BenchArgs, first: &Path, second: &Path) -> Result<()> {
    let read = |path: &Path| -> Result<BenchReport> {
        let told = |e: &dyn std::fmt::Display| bad_input(format!("{}: {e}", path.display()));
        let (text, _) = amp_machine::read_text(path).map_err(|e| told(&e))?;
        serde_json::from_str(&text)
            .map_err(|e| told(&format!("no result of `scx_amp bench --json`: {e}")))
    };
    let (a, b) = (read(first)?, read(second)?);
    let Some(text) = report::changes::text(&a, &b, amp_host::terminal_width()) else {
        let of = |r: &BenchReport| -> String {
            let names: Vec<&str> = r.results.iter().map(|r| r.policy.as_str()).collect();
            names.join(", ")
        };
        return Err(bad_input(format!(
            "--compare: no policy is in both {} ({}) and {} ({}): name two results with a policy in common, or with one each",
            first.display(),
            of(&a),
            second.display(),
            of(&b)
        )));
    };
    let json = args.json.as_deref();
    let shown = match json == Some(Path::new("-")) {
        true => Ok(()),
        false => amp_host::print(&text),
    };
    let written = json.map_or(Ok(()), |path| {
        let json = serde_json::to_string_pretty(&report::changes::json(&a, &b))?;
        amp_host::write_out(path, &format!("{json}\n"))
    });
    output::all([shown, written])
}

/// Refuses options that mean nothing where the bench runs: what is ignored in silence is taken for
/// granted.
fn refuse_meaningless(args: &BenchArgs) -> Result<()> {
    let real = &[On::Board, On::Host][..];
    for (option, given, goes_with) in [
        ("--big-cpus", args.big_cpus.is_some(), &[On::Host][..]),
        ("--workdir", args.workdir.is_some(), &[On::Host]),
        ("--kernel", args.kernel.is_some(), &[On::Board]),
        ("--dvfs", args.dvfs, &[On::Board]),
        ("--cpufreq", args.cpufreq.is_some(), real),
        ("--trust", args.trust.trust.is_some(), real),
        ("--memory", args.memory.is_some(), real),
        ("--record", args.record.is_some(), real),
        ("--solo-cache", args.solo_cache.is_some(), real),
        ("--solo-runs", args.solo_runs.is_some(), real),
        ("--solo", args.solo.is_some(), &[On::Sim]),
    ] {
        if given && !goes_with.contains(&args.on) {
            let (place, flag) = args.on.names();
            let others: Vec<&str> = goes_with.iter().map(|on| on.names().1).collect();
            let others = others.join(" or ");
            return Err(bad_input(format!(
                "{option} means nothing on {place} (--on {flag}): it goes with --on {others}"
            )));
        }
    }
    Ok(())
}

impl On {
    /// What the place is called, and its word on the command line.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            On::Board => ("the board", "board"),
            On::Host => ("this machine", "host"),
            On::Sim => ("the simulated machine", "sim"),
        }
    }
}

/// Everything that can be said about the input before anything is started.
fn check(args: &BenchArgs, workload: &Workload) -> Result<()> {
    if args.policies.is_empty() {
        return Err(bad_input("--policies names none"));
    }
    for (i, name) in args.policies.iter().enumerate() {
        if args.policies[..i].contains(name) {
            return Err(bad_input(format!("--policies: `{name}` is named twice")));
        }
    }
    for contender in args.policies.iter() {
        match (contender, args.on) {
            (Contender::Scx(_), On::Sim) => {
                return Err(bad_input(format!(
                    "--policies: `{contender}` needs a kernel to load it into, and the simulator has none: it goes with --on board or --on host"
                )))
            }
            (Contender::KernelWithoutEas, On::Sim) => {
                return Err(bad_input(format!(
                    "--policies: the simulator's `eevdf` knows no energy model: `{contender}` goes with --on board --dvfs or --on host"
                )))
            }
            (Contender::Scx(scx), On::Host) => {
                host::peer::Installed::find(scx)?;
            }
            (Contender::Scx(scx), On::Board) => {
                board::peer(scx)?;
            }
            _ => {}
        }
    }
    Settings::new(&args.settings, &args.policies.names()).map_err(bad_input)?;
    if args.on == On::Sim {
        sim::provider(&args.provider)?;
    } else {
        crate::provider::check_name(&args.provider)?;
        // as the guest would, but before it is booted
        args.trust
            .trust
            .as_deref()
            .map(Trust::load)
            .transpose()
            .map_err(bad_input)?;
    }
    let needed = |a: &&App| {
        if args.on == On::Sim {
            a.phases.is_empty()
        } else {
            a.command.is_none()
        }
    };
    if let Some(app) = workload.apps.iter().find(needed) {
        if args.on == On::Sim {
            return Err(bad_input(format!(
                "{}: app `{}` has no `phases`: it can only run on the board or a host, or with what was measured of it alone (--solo)",
                args.workload.display(),
                app.name
            )));
        }
        return Err(bad_input(format!(
            "{}: app `{}` has no `command`: it can only be simulated",
            args.workload.display(),
            app.name
        )));
    }
    if let Some(dir) = &args.record {
        recording::check_folder(dir)?;
    }
    let outputs = [&args.json, &args.html].into_iter().flatten();
    outputs.into_iter().try_for_each(|path| check_out(path))
}

fn show(args: &BenchArgs, results: &BenchReport) -> Result<()> {
    let (json, html) = (args.json.as_deref(), args.html.as_deref());
    show_all(results, "", json, html, results)
}

/// Shows a report: first as text, with `words` before it, unless its JSON goes to standard output;
/// then in files. Each is tried, whatever becomes of the others: a bench that took hours is not
/// lost with a full disk. `page` is what the HTML page shows.
///
/// # Errors
/// Each output that failed.
pub fn show_all(
    results: &BenchReport,
    words: &str,
    json: Option<&Path>,
    html: Option<&Path>,
    page: &BenchReport,
) -> Result<()> {
    let shown = match json == Some(Path::new("-")) {
        true => Ok(()),
        false => {
            let text = report::text(results, amp_host::terminal_width());
            amp_host::print(&format!("{words}{text}"))
        }
    };
    let json = json.map_or(Ok(()), |path| {
        let json = serde_json::to_string_pretty(results)?;
        amp_host::write_out(path, &format!("{json}\n"))
    });
    let html = html.map_or(Ok(()), |path| {
        amp_host::write_out(path, &report::html(page))
    });
    output::all([shown, json, html])
}
