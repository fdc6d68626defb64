//! `scx_amp pmc stat`.

use super::counting::{Counting, Scope, Window};
use super::formula::Formula;
use super::groups;
use super::here::Here;
use super::output::{self, Format, Multiplexing, Report};
use super::plot;
use super::sets::Set;
use super::target::{self, Held, Target};
use super::windows::Windows;
use crate::usage::bad_input;
use amp_metrics::group::GroupError;
use amp_metrics::perf;
use amp_workloads::quantity::parse_count;
use anyhow::{Context, Result};
use clap::Args;
use std::io::Write;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is counted when nothing is asked for.
const USUAL: &str = "task-clock,instructions,cycles,branches,branch-misses";
/// What is made of it.
const USUAL_METRIC: &str = "ipc=instructions/cycles";
/// How often counters are read to be cut into windows of instructions.
const CUT: Duration = Duration::from_millis(5);
/// How long each set is on when no interval is given.
const TURN: Duration = Duration::from_millis(10);

/// Options of `scx_amp pmc stat`.
///
/// With a command the exit status is the command's, 128 + signal when one ended it.
#[derive(Args, Debug)]
#[command(override_usage = "scx_amp pmc stat [OPTIONS] [-a | -p PID | [--] COMMAND…]")]
pub struct StatArgs {
    /// Events counted at the same time, separated by commas, as perf writes them; several -e are counted by turns
    /// [default: task-clock,instructions,cycles,branches,branch-misses]
    #[arg(short = 'e', long = "event", value_name = "SET")]
    sets: Vec<String>,
    /// Events and metrics by a name: branches, caches, stalls, or a file FILE.toml (metrics/groups/)
    #[arg(short = 'g', long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Metric made of counts, such as `ipc=instructions/cycles`; `seconds` is the time counted on a core type
    #[arg(short = 'm', long = "metric", value_name = "NAME=FORMULA")]
    metrics: Vec<String>,
    /// Print counts every so many milliseconds; with several sets, the time each is on [default then: 10, not printed]
    #[arg(short = 'i', long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    interval: Option<u64>,
    /// Print counts of every so many instructions of each PMU, for example 10M, instead of intervals; counters are read every
    /// -i milliseconds [default then: 5], one after the other, and cut by interpolation
    #[arg(long, value_name = "INSTRUCTIONS", value_parser = parse_count)]
    window: Option<u64>,
    /// Write a page with plots over time to FILE, or to standard output with `-`; needs -i or --window
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Whatever runs on any CPU, while the command runs, or until interrupted
    #[arg(short = 'a', long, conflicts_with = "pid")]
    all_cpus: bool,
    /// Each CPU for itself
    #[arg(short = 'A', long, requires = "all_cpus")]
    per_cpu: bool,
    /// A process with its threads and what they start, until it ends or this is interrupted
    #[arg(
        short = 'p',
        long,
        value_name = "PID",
        conflicts_with = "command",
        allow_hyphen_values = true
    )]
    pid: Option<i32>,
    /// Stop counting after so many milliseconds; a command is ended
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Comma-separated values with a header line
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Write JSON to FILE, or to standard output with `-`; the command's own output then goes to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table or the values to FILE instead of standard error
    #[arg(short = 'o', long, value_name = "FILE", conflicts_with = "json")]
    output: Option<PathBuf>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The command.
///
/// # Errors
/// Bad input ([`crate::usage::BadInput`]), naming the event, metric or process; others when counting fails.
pub fn main(args: &StatArgs, stop: &AtomicBool) -> Result<ExitCode> {
    if !args.all_cpus && args.pid.is_none() && args.command.is_empty() {
        return Err(bad_input(
            "what is to be counted? Give a command, -p PID, or -a for the whole machine",
        ));
    }
    let here = Here::detect()?;
    let (texts, metrics) = asked(args, &here)?;
    let sets: Vec<Set> = texts
        .iter()
        .map(|t| Set::parse(&here, t))
        .collect::<Result<_>>()?;
    let formulas = formulas(&metrics, &sets)?;
    if !args.all_cpus {
        let tied = sets
            .iter()
            .flat_map(|s| &s.units)
            .find(|u| u.core_type.is_none() && !u.cpus.is_empty());
        if let Some(u) = tied {
            let event = u.events.first().map_or("", |e| e.name.as_str());
            return Err(bad_input(format!(
                "event `{event}`: PMU `{}` cannot tell threads apart; count it on the whole machine with -a",
                u.pmu
            )));
        }
    }
    let mut cutter = match args.window.map(NonZeroU64::new) {
        None => None,
        Some(Some(size)) => Some(Windows::new(size, &sets)?),
        Some(None) => {
            return Err(bad_input(
                "--window 0: a window has one instruction at least",
            ))
        }
    };
    let windowed = args.interval.is_some() || cutter.is_some();
    if args.html.is_some() && !windowed {
        return Err(bad_input(
            "--html plots counts over time: give -i MS or --window INSTRUCTIONS",
        ));
    }
    let keep = args.json.is_some() || args.html.is_some();
    let mut out = open_output(args)?;
    let format = if args.csv { Format::Csv } else { Format::Table };
    if windowed && args.json.is_none() {
        emit(&mut out, &output::window_head(format));
    }

    let json_out = [&args.json, &args.html]
        .into_iter()
        .flatten()
        .any(|p| p.as_os_str() == "-");
    let held = match args.command.is_empty() {
        true => None,
        false => Some(Held::start(&args.command, json_out)?),
    };
    target::open_many_files();
    let scope = scope(args, &here, held.as_ref())?;
    let on_exec = held.is_some() && !args.all_cpus;
    let opened = Counting::open(&sets, &here.core_types, &scope, args.per_cpu, on_exec);
    let mut counting = opened.map_err(|e| refused(&here, e))?;
    let watched = match args.pid {
        Some(pid) => Some(target::process(pid)?),
        None => None,
    };
    let begin = Instant::now();
    if !on_exec {
        counting.start()?;
    }
    let target = match (held, watched) {
        (Some(h), _) => Target::Command(h.release()?),
        (None, Some(fd)) => Target::Process(fd),
        (None, None) => Target::Machine,
    };

    let turn = match (args.interval, sets.len()) {
        (Some(ms), _) => Some(Duration::from_millis(ms)),
        (None, _) if cutter.is_some() => Some(CUT),
        (None, 0 | 1) => None,
        (None, _) => Some(TURN),
    };
    let end = args.timeout.map(|ms| begin + Duration::from_millis(ms));
    let mut windows: Vec<Window> = Vec::new();
    let mut next = turn.map(|t| begin + t);
    let mut asked = false;
    loop {
        // a command that was asked to end takes its time
        let until = [next, end.filter(|_| !asked)].into_iter().flatten().min();
        let gone = target.wait(until)?;
        let now = Instant::now();
        let over = stop.load(Ordering::Relaxed) || end.is_some_and(|e| now >= e);
        if over && !gone {
            if let (Target::Command(r), false) = (&target, asked) {
                // it may have something to say at its end: that counts, too
                r.end();
                asked = true;
            }
        }
        let last = gone || (over && !matches!(target, Target::Command(_)));
        let due = next.is_some_and(|n| now >= n);
        if last || due {
            let w = counting.turn(begin.elapsed().as_secs_f64(), last)?;
            let done = match &mut cutter {
                Some(cutter) => cutter.take(&w),
                None if windowed => vec![w],
                None => Vec::new(),
            };
            for w in done {
                if args.json.is_none() {
                    emit(&mut out, &output::window(&w, format));
                }
                if keep {
                    windows.push(w);
                }
            }
        }
        if last {
            break;
        }
        if let (true, Some(t)) = (due, turn) {
            // not from when it was due: a turn that came late is to last as long as others
            next = Some(Instant::now() + t);
        }
    }
    let elapsed_s = begin.elapsed().as_secs_f64();
    let (counts, metrics) = counting.totals(&formulas)?;
    let report = Report {
        command: (!args.command.is_empty()).then(|| args.command.clone()),
        pid: args.pid,
        system_wide: args.all_cpus,
        elapsed_s,
        sets: sets.iter().map(|s| s.text.clone()).collect(),
        multiplexing: turn.filter(|_| sets.len() > 1).map(|t| Multiplexing {
            strategy: "round-robin",
            interval_ms: t.as_millis() as u64,
            turns: counting.turns(),
        }),
        counts,
        metrics,
        window: args.window,
        intervals: windowed.then_some(windows),
    };
    if let (Some(path), Some(windows)) = (&args.html, &report.intervals) {
        crate::write_out(path, &plot::page(&report, windows)?)?;
    }
    match &args.json {
        Some(path) => {
            let text = serde_json::to_string(&report)?;
            crate::write_out(path, &format!("{text}\n"))?;
        }
        None => emit(&mut out, &output::report(&report, format)),
    }
    Ok(match target {
        Target::Command(r) => ExitCode::from(r.status()?),
        _ => ExitCode::SUCCESS,
    })
}

/// Sets and metrics that are asked for, by themselves and by groups; the usual ones when nothing is.
fn asked(args: &StatArgs, here: &Here) -> Result<(Vec<String>, Vec<String>)> {
    let (mut sets, mut metrics) = (args.sets.clone(), args.metrics.clone());
    for g in &args.groups {
        let group = groups::find(here, g)?;
        sets.extend(group.events);
        metrics.extend(group.metrics);
    }
    if sets.is_empty() {
        sets.push(USUAL.to_owned());
        if metrics.is_empty() {
            metrics.push(USUAL_METRIC.to_owned());
        }
    }
    Ok((sets, metrics))
}

fn formulas(texts: &[String], sets: &[Set]) -> Result<Vec<Formula>> {
    let mut known: Vec<String> = sets.iter().flat_map(Set::names).cloned().collect();
    known.sort();
    known.dedup();
    let mut out = Vec::new();
    for text in texts {
        let f = Formula::parse(text, &known).map_err(bad_input)?;
        // on one and the same PMU, else there is no value
        let mut pmus = sets.iter().flat_map(|s| &s.units);
        let counted_on = |pmu: &str, name: &String| {
            let mut units = sets.iter().flat_map(|s| &s.units);
            units.any(|u| u.pmu == pmu && u.events.iter().any(|e| e.name == *name))
        };
        let names: Vec<&String> = f
            .names
            .iter()
            .filter(|n| *n != super::formula::SECONDS)
            .collect();
        if !pmus.any(|u| names.iter().all(|n| counted_on(&u.pmu, n))) {
            return Err(bad_input(format!(
                "metric `{}`: no PMU counts all of its events: a metric is of one PMU",
                f.name
            )));
        }
        out.push(f);
    }
    Ok(out)
}

fn scope(args: &StatArgs, here: &Here, held: Option<&Held>) -> Result<Scope> {
    if args.all_cpus {
        return Ok(Scope::Cpus(here.all_cpus()));
    }
    if let Some(pid) = args.pid {
        // says more of what is wrong than the list of threads would
        drop(target::process(pid)?);
        let mut tids = Vec::new();
        target::threads(pid, |t| {
            tids.push(t);
            Ok(())
        })?;
        return Ok(Scope::Tasks(tids));
    }
    Ok(Scope::Tasks(held.map(Held::pid).into_iter().collect()))
}

/// A set that does not fit is bad input, and how much would fit is worth a trial.
fn refused(here: &Here, e: GroupError) -> anyhow::Error {
    match &e {
        GroupError::Refused { pmu, size, .. } if *size > 1 => {
            let trial = here.core_pmus().find(|(_, p)| p.name == *pmu);
            let fit = trial.and_then(|(t, _)| {
                let cpu = *here.cpus(t).first()?;
                perf::usable_counters(&here.pmus, t, cpu).ok()
            });
            let fit = fit.map_or_else(String::new, |n| {
                format!("; {n} events fit at once there, instructions and cycles among them")
            });
            bad_input(format!(
                "{e}{fit}. Give several -e, which are counted by turns"
            ))
        }
        GroupError::Refused { .. } => bad_input(e),
        _ => e.into(),
    }
}

fn open_output(args: &StatArgs) -> Result<Box<dyn Write>> {
    Ok(match &args.output {
        Some(path) => {
            let file = std::fs::File::create(path);
            Box::new(file.with_context(|| format!("cannot write {}", path.display()))?)
        }
        None => Box::new(std::io::stderr()),
    })
}

/// Shows what is measured; a reader that is gone ends nothing.
pub fn emit(out: &mut dyn Write, text: &str) {
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
