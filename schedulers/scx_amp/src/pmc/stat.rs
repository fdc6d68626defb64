//! `scx_amp pmc stat`.

use super::counting::{Count, Counting, Rows, Scope, Window, ROUND_ROBIN};
use super::formula::Formula;
use super::groups;
use super::here::Here;
use super::output::{self, Format, Multiplexing, Report};
use super::plot;
use super::sets::Set;
use super::target::{self, TargetArgs};
use super::virtuals::Virtuals;
use super::windows::Windows;
use crate::trust::TrustArgs;
use crate::usage::bad_input;
use amp_metrics::group::GroupError;
use amp_metrics::multiplex::{by_name, Turns};
use amp_metrics::perf;
use amp_metrics::trust::TrustFile;
use amp_workloads::quantity::parse_count;
use anyhow::{Context, Result};
use clap::Args;
use std::collections::BTreeSet;
use std::io::Write;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// What is counted when nothing is asked for.
const USUAL: &str = "task-clock,instructions,cycles,branches,branch-misses";
/// What is made of it.
const USUAL_METRIC: &str = "ipc=instructions/cycles";
/// How often counters are read to be cut into windows of instructions.
const CUT: Duration = Duration::from_millis(5);
/// How long each set is on when no interval is given.
const TURN: Duration = Duration::from_millis(10);
/// Of the lengths of turns: the same every time.
const SEED: u64 = 1;
/// How often new threads are looked for.
const THREADS: Duration = Duration::from_millis(10);
/// After how many looks names of threads are read anew.
const NAMES: u32 = 32;

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
    /// Metric made of counts, such as `ipc=instructions/cycles`; an event has every name that its PMU counts it under; `seconds` is the
    /// time counted on a core type
    #[arg(short = 'm', long = "metric", value_name = "NAME=FORMULA")]
    metrics: Vec<String>,
    /// Print counts every so many milliseconds; with several sets, the time each is on [default then: 10
    /// and up to a quarter more or less, the first ones shorter; not printed]
    #[arg(short = 'i', long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    interval: Option<u64>,
    /// Print counts of every so many instructions of each PMU, for example 10M, instead of intervals; counters are read every
    /// -i milliseconds [default then: 5], all of them at once, and cut by interpolation
    #[arg(long, value_name = "INSTRUCTIONS", value_parser = parse_count)]
    window: Option<u64>,
    /// Write a page with plots over time to FILE, or to standard output with `-`; needs -i or --window
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Each CPU for itself
    #[arg(short = 'A', long, visible_alias = "no-aggr", requires = "all_cpus")]
    per_cpu: bool,
    /// Each thread for itself; those that turn up later are looked for every 10 ms, and what they did before they were found is
    /// extrapolated. Other processes that a program starts are not counted then
    #[arg(long, conflicts_with_all = ["all_cpus", "per_cpu"])]
    per_thread: bool,
    /// Virtual counters beside the events, separated by commas: energy, llc (occupancy, mean), traffic (to memory)
    #[arg(
        short = 'V',
        long = "virtual",
        value_name = "NAMES",
        value_delimiter = ','
    )]
    virtuals: Vec<String>,
    /// Which of several sets is next: round-robin, rate-of-change, relative-error (docs/multiplexing.md)
    #[arg(long, value_name = "NAME", default_value = ROUND_ROBIN)]
    strategy: String,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Comma-separated values with a header line
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Write JSON to FILE, or to standard output with `-`; the command's own output then goes to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table or the values to FILE instead of standard error
    #[arg(short = 'o', long, value_name = "FILE", conflicts_with = "json")]
    output: Option<PathBuf>,
}

/// The command.
///
/// # Errors
/// Bad input ([`crate::usage::BadInput`]), naming the event, metric or process; others when counting fails.
pub fn main(args: &StatArgs, stop: &AtomicBool) -> Result<ExitCode> {
    args.target.check("counted")?;
    let here = Here::detect()?;
    let (texts, metrics) = asked(args, &here)?;
    let sets: Vec<Set> = texts
        .iter()
        .map(|t| Set::parse(&here, t))
        .collect::<Result<_>>()?;
    let trust = args.trust.find()?;
    let mut virtuals = match args.virtuals.is_empty() {
        true => None,
        false => Some(Virtuals::open(&here, &args.virtuals, args.per_cpu)?),
    };
    if args.target.all_cpus && virtuals.as_ref().is_some_and(Virtuals::needs_program) {
        return Err(bad_input(
            "-V llc and traffic are told per program: give a command or -p PID, without -a",
        ));
    }
    let beside: Vec<String> = virtuals.iter().flat_map(Virtuals::names).collect();
    let formulas = formulas(&metrics, &sets, &beside)?;
    let strategy = by_name(&args.strategy, sets.len()).map_err(bad_input)?;
    if !args.target.all_cpus {
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
    let chosen = args.target.choose(json_out)?;
    let scope = match args.target.all_cpus {
        true => Scope::Cpus(here.all_cpus()),
        false => Scope::Tasks(chosen.tids.clone()),
    };
    let rows = match (args.per_cpu, args.per_thread) {
        (true, _) => Rows::Cpus,
        (_, true) => Rows::Threads,
        _ => Rows::Summed,
    };
    let on_exec = chosen.on_exec();
    let opened = Counting::open(&sets, &here.core_types, &scope, rows, on_exec, strategy);
    let mut counting = opened.map_err(|e| refused(&here, &sets, e))?;
    let pid = chosen.pid.filter(|_| !args.target.all_cpus);
    if !on_exec {
        counting.start()?;
    }
    if let Some(v) = &mut virtuals {
        // where increments begin
        v.sample(0.0, pid);
    }
    let mut watched = chosen.release(stop)?;
    let begin = watched.begin;
    let mut found = Found::new(pid.filter(|_| args.per_thread), &scope);

    let turn = match (args.interval, sets.len()) {
        (Some(ms), _) => Some(Duration::from_millis(ms)),
        (None, _) if cutter.is_some() => Some(CUT),
        (None, 0 | 1) => None,
        (None, _) => Some(TURN),
    };
    let uneven = args.interval.is_none() && cutter.is_none();
    let mut turns = turn.map(|t| Turns::new(t, sets.len(), SEED));
    let mut length = || match (turn, &mut turns) {
        (Some(_), Some(turns)) if uneven => Some(turns.next()),
        (t, _) => t,
    };
    let mut windows: Vec<Window> = Vec::new();
    let mut next = length().map(|t| begin + t);
    loop {
        let look = found.when();
        // levels are sampled even where nothing is shown before the end
        let sampled = virtuals.as_ref().filter(|_| !windowed);
        let sample = sampled.map(|_| Instant::now() + target::LOOK);
        let last = watched.wait([next, look, sample].into_iter().flatten().min())?;
        found.look(&mut counting)?;
        let due = next.is_some_and(|n| Instant::now() >= n);
        if let (Some(v), false) = (&mut virtuals, windowed || last) {
            v.sample(begin.elapsed().as_secs_f64(), pid);
        }
        if last || due {
            let at_s = begin.elapsed().as_secs_f64();
            let mut w = counting.turn(at_s, last)?;
            if let (Some(v), true) = (&mut virtuals, windowed || last) {
                w.virtual_counters = v.sample(at_s, pid);
            }
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
        if due {
            // not from when it was due: a turn that came late is to last as long as others
            next = length().map(|t| Instant::now() + t);
        }
    }
    let elapsed_s = begin.elapsed().as_secs_f64();
    for failure in virtuals.iter().flat_map(Virtuals::failed) {
        log::warn!("-V: {failure}");
    }
    let known = virtuals.as_ref().map(Virtuals::known).unwrap_or_default();
    let (mut counts, metrics) = counting.totals(&formulas, &known)?;
    if let Some(trust) = &trust {
        judge(&mut counts, &sets, &here, trust);
    }
    let report = Report {
        command: args.target.command(),
        pid: args.target.pid,
        system_wide: args.target.all_cpus,
        elapsed_s,
        sets: sets.iter().map(|s| s.text.clone()).collect(),
        multiplexing: turn.filter(|_| sets.len() > 1).map(|t| Multiplexing {
            strategy: counting.strategy(),
            interval_ms: t.as_millis() as u64,
            spread: uneven.then(Turns::spread),
            turns: counting.turns(),
        }),
        counts,
        metrics,
        virtual_counters: virtuals.as_ref().map(Virtuals::totals).unwrap_or_default(),
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
    watched.status()
}

/// Notes what the trust file says of each event.
fn judge(counts: &mut [Count], sets: &[Set], here: &Here, trust: &TrustFile) {
    for c in counts {
        let units = sets
            .get(c.set.wrapping_sub(1))
            .map_or(&[][..], |s| &s.units);
        let unit = units.iter().find(|u| u.pmu == c.pmu);
        c.verdict = unit.and_then(|u| {
            let event = u.events.iter().find(|e| e.name == c.event)?;
            Some(trust.of(&here.pmus, u.core_type?, event)?.verdict.name())
        });
    }
}

/// Threads of a process that turn up while it is counted thread by thread.
struct Found {
    /// The process, where there is something to look for.
    pid: Option<i32>,
    known: BTreeSet<i32>,
    next: Instant,
    /// Looks after which names are read anew.
    looks: u32,
}

impl Found {
    fn new(pid: Option<i32>, scope: &Scope) -> Found {
        Found {
            pid,
            known: match scope {
                Scope::Tasks(tids) => tids.iter().copied().collect(),
                Scope::Cpus(_) => BTreeSet::new(),
            },
            next: Instant::now(),
            looks: 0,
        }
    }

    fn when(&self) -> Option<Instant> {
        self.pid.map(|_| self.next)
    }

    fn look(&mut self, counting: &mut Counting) -> Result<()> {
        let (Some(pid), true) = (self.pid, Instant::now() >= self.next) else {
            return Ok(());
        };
        for tid in target::task(pid) {
            if self.known.insert(tid) {
                counting.adopt(tid, target::ran(tid))?;
            }
        }
        // most threads name themselves as soon as they begin
        if self.looks % NAMES == 1 {
            counting.rename();
        }
        self.looks += 1;
        self.next = Instant::now() + THREADS;
        Ok(())
    }
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

fn formulas(texts: &[String], sets: &[Set], beside: &[String]) -> Result<Vec<Formula>> {
    let mut known: Vec<String> = sets.iter().flat_map(Set::names).cloned().collect();
    known.extend(beside.iter().cloned());
    known.sort();
    known.dedup();
    let mut aliases: Vec<String> = sets.iter().flat_map(Set::aliases).cloned().collect();
    // a virtual counter is what it says
    aliases.retain(|a| !known.contains(a));
    let mut out = Vec::new();
    for text in texts {
        let f = Formula::parse_with(text, &known, &aliases).map_err(bad_input)?;
        // on one and the same PMU, else there is no value
        let mut pmus = sets.iter().flat_map(|s| &s.units);
        let counted_on = |pmu: &str, name: &String| {
            let mut units = sets.iter().flat_map(|s| &s.units);
            units.any(|u| u.pmu == pmu && u.find(name).is_some())
        };
        let names: Vec<&String> = f
            .names
            .iter()
            .filter(|n| *n != super::formula::SECONDS && !beside.contains(n))
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

/// A set that does not fit is bad input: beside which events, and how much would fit, is worth a trial.
fn refused(here: &Here, sets: &[Set], e: GroupError) -> anyhow::Error {
    match &e {
        GroupError::Refused {
            event,
            pmu,
            size,
            position,
            ..
        } if *size > 1 => {
            let beside = beside(sets, pmu, event, *position);
            let beside = match beside.is_empty() {
                true => String::new(),
                false => format!("; it does not fit beside {}", beside.join(", ")),
            };
            let trial = here.core_pmus().find(|(_, p)| p.name == *pmu);
            let fit = trial.and_then(|(t, _)| {
                let cpu = *here.cpus(t).first()?;
                perf::usable_counters(&here.pmus, t, cpu).ok()
            });
            let fit = fit.map_or_else(String::new, |n| {
                format!("; {n} events fit at once there, instructions and cycles among them")
            });
            bad_input(format!(
                "{e}{beside}{fit}. Give several -e, which are counted by turns"
            ))
        }
        GroupError::Refused { .. } => bad_input(e),
        _ => e.into(),
    }
}

/// Events that stand before `event`, number `position` (from 1), in its set on `pmu`.
fn beside(sets: &[Set], pmu: &str, event: &str, position: usize) -> Vec<String> {
    let units = sets.iter().flat_map(|s| &s.units).filter(|u| u.pmu == pmu);
    let before = units.filter_map(|u| {
        let last = u.events.get(position.checked_sub(1)?)?;
        (last.name == event).then(|| &u.events[..position - 1])
    });
    let before = before.take(1).flatten();
    before.map(|e| format!("`{}`", e.name)).collect()
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
