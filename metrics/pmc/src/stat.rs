//! `scx_amp pmc stat`.

pub(crate) mod output;
mod repeat;
mod run;

use super::counting::ROUND_ROBIN;
use super::derived;
use super::factors::{Factor, Factors};
use super::formula::Formula;
use super::groups;
use super::inventory::CounterInventory;
use super::plot;
use super::sets::{Set, USER_MODE_ONLY};
use super::target::TargetArgs;
use super::virtuals::Virtuals;
use crate::trust::TrustArgs;
use amp_host::bad_input;
use amp_metrics::group::overflow::LONGEST_PERIOD;
use amp_metrics::group::GroupError;
use amp_metrics::multiplex::by_name;
use amp_metrics::pmu::DURATION;
use amp_workloads::quantity::parse_count;
use anyhow::{Context, Result};
use clap::Args;
use output::Format;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// What is counted when nothing is asked for.
const USUAL: &str = "task-clock,instructions,cycles,branches,branch-misses";
/// The shortest window by overflow: shorter ones have more instructions of the kernel than of the
/// program.
const LEAST_OVERFLOW: u64 = 1_000;
/// The usual metric.
const USUAL_METRIC: &str = "ipc=instructions/cycles";
/// Options of `scx_amp pmc stat`.
///
/// With a command the exit status is the command's, 128 + signal when one ended it.
#[derive(Args, Debug)]
#[command(
    override_usage = "scx_amp pmc stat [OPTIONS] [-a | -p PID | [--] COMMAND…]",
    after_long_help = groups::help()
)]
pub struct StatArgs {
    /// Events counted at the same time, separated by commas, as perf writes them; several -e are
    /// counted by turns, and so are the events of one that does not fit at once [default: task-clock,instructions,cycles,branches,branch-misses]
    #[arg(short = 'e', long = "event", value_name = "SET")]
    sets: Vec<String>,
    /// Events and metrics by a name (`scx_amp pmc list` explains each), or a file FILE.toml like
    /// those in metrics/pmc/groups/
    #[arg(short = 'g', long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Metric made of counts, such as `ipc=instructions/cycles`; an event has every name that its
    /// PMU counts it under; `seconds` is the time counted on a core type, `duration_time` that from
    /// start to end
    #[arg(short = 'm', long = "metric", value_name = "NAME=FORMULA")]
    metrics: Vec<String>,
    /// Metrics of the vendor's tables, or groups of them (TopdownL1), by name, separated by commas
    /// (`scx_amp pmc list` shows them; experimental: not tried on hardware)
    #[arg(
        short = 'M',
        long = "metrics",
        value_name = "NAMES",
        value_delimiter = ','
    )]
    vendor_metrics: Vec<String>,
    /// Print counts every so many milliseconds; with several sets, the time each is on [default
    /// then: 10 and up to a quarter more or less, the first ones shorter; not printed]
    #[arg(short = 'i', visible_short_alias = 'I', long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    interval: Option<u64>,
    /// Print counts of every so many instructions of each PMU, for example 10M, instead of
    /// intervals; counters are read every
    /// -i milliseconds [default then: 5], all of them at once, and cut by interpolation
    #[arg(long, value_name = "INSTRUCTIONS", value_parser = parse_count)]
    window: Option<u64>,
    /// With --window: the kernel reads the counters when that of instructions overflows, instead of
    /// interpolation. Windows are of each thread, which are found as with --per-thread, or with -a
    /// of each CPU; -i says how often windows are fetched from the kernel [default then: 5]
    #[arg(long)]
    overflow: bool,
    /// Write a page with plots over time to FILE, or to standard output with `-`; needs -i or
    /// --window
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Each CPU for itself
    #[arg(short = 'A', long, visible_alias = "no-aggr", requires = "all_cpus")]
    per_cpu: bool,
    /// Each thread for itself; those that turn up later are looked for every 10 ms, and what they
    /// did before they were found is extrapolated. Other processes that a program starts are not
    /// counted then
    #[arg(long, conflicts_with_all = ["all_cpus", "per_cpu"])]
    per_thread: bool,
    /// Virtual counters beside the events, separated by commas: energy, llc (occupancy, mean),
    /// traffic (to memory); sf and ef, the speedup and the efficiency factor of the program, or with
    /// --per-thread of each thread, as a platform model estimates them from events that take turns
    /// with the others (experimental on hardware)
    #[arg(
        short = 'V',
        long = "virtual",
        value_name = "NAMES",
        value_delimiter = ','
    )]
    virtuals: Vec<String>,
    /// Platform model for -V sf and ef [default: the one for this machine, as `run --provider
    /// model` takes it]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Which of several sets is next: round-robin, rate-of-change, relative-error
    /// (docs/evidence/multiplexing.md)
    #[arg(long, value_name = "NAME", default_value = ROUND_ROBIN)]
    strategy: String,
    /// Each event of -e, -g and -M takes turns by itself, as many at once as the PMU can count,
    /// instead of in sets
    #[arg(long, conflicts_with = "window")]
    single_events: bool,
    /// Run the command so many times: means with their standard uncertainty
    #[arg(short = 'r', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000),
        conflicts_with_all = ["interval", "window", "html", "per_thread", "timeout"])]
    repeat: u32,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Comma-separated values with a header line
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Write JSON to FILE, or to standard output with `-`; the command's own output then goes to
    /// standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table or the values to FILE instead of standard error
    #[arg(short = 'o', long, value_name = "FILE", conflicts_with = "json")]
    output: Option<PathBuf>,
}

/// What is to be counted, checked.
struct Measurement<'a> {
    args: &'a StatArgs,
    inventory: CounterInventory,
    /// Those that are asked for, then those of `factors`.
    sets: Vec<Set>,
    /// How many of them are on at the same time.
    at_once: usize,
    formulas: Vec<Formula>,
    factors: Option<Factors>,
    /// Virtual counters that are asked for, but for factors.
    virtuals: Vec<String>,
}

impl<'a> Measurement<'a> {
    /// The measurement, and the virtual counters of its first run.
    fn of(args: &'a StatArgs) -> Result<(Measurement<'a>, Option<Virtuals>)> {
        args.target.check("counted")?;
        if args.overflow {
            can_overflow(args.window)?;
        }
        let inventory = CounterInventory::detect()?.with_trust(args.trust.find()?);
        let Asked {
            sets: texts,
            metrics,
            virtuals: names,
            derived,
        } = asked(args, &inventory)?;
        let mut sets: Vec<Set> = texts
            .iter()
            .map(|t| Set::parse(&inventory, t))
            .collect::<Result<_>>()?;
        sets.iter_mut().for_each(Set::supported);
        // whole CPUs are either permitted with the kernel or not at all
        if !args.target.all_cpus {
            let changed = sets.iter_mut().filter_map(|s| s.permitted().then_some(()));
            if changed.count() > 0 {
                log::warn!("{USER_MODE_ONLY}");
            }
        }
        // windows are cut from one set, which its user has to choose
        let mut at_once = 1;
        if args.single_events {
            (sets, at_once) = singly(sets);
        } else if args.window.is_none() {
            sets = sets.into_iter().flat_map(fitting).collect();
        }
        let virtuals = virtuals(args, &names, &inventory)?;
        if args.target.all_cpus && virtuals.as_ref().is_some_and(Virtuals::needs_program) {
            return Err(bad_input(
                "-V llc and traffic are measured per program: give a command or -p PID, without -a",
            ));
        }
        let factors = factors(args, &inventory)?;
        let mut beside: Vec<String> = virtuals.iter().flat_map(Virtuals::names).collect();
        beside.extend(factors.iter().flat_map(Factors::names));
        beside.push(DURATION.to_owned());
        let mut formulas = formulas(&metrics, &sets, &beside)?;
        formulas.extend(derived);
        sets.extend(factors.iter().flat_map(|f| f.sets().to_vec()));
        by_name(&args.strategy, sets.len()).map_err(bad_input)?;
        if !args.target.all_cpus {
            let tied = sets
                .iter()
                .flat_map(|s| &s.units)
                .find(|u| u.core_type.is_none() && !u.cpus.is_empty());
            if let Some(u) = tied {
                let event = u.events.first().map_or("", |e| e.name.as_str());
                return Err(bad_input(format!(
                    "event `{event}`: PMU `{}` cannot count a single thread; count it on the whole machine with -a",
                    u.pmu
                )));
            }
        }
        if args.window == Some(0) {
            return Err(bad_input(
                "--window 0: a window has one instruction at least",
            ));
        }
        let windowed = args.interval.is_some() || args.window.is_some();
        if args.html.is_some() && !windowed {
            return Err(bad_input(
                "--html plots counts over time: give -i MS or --window INSTRUCTIONS",
            ));
        }
        if args.repeat > 1 && args.target.command.is_empty() {
            return Err(bad_input(format!(
                "-r {}: only a command can be run again",
                args.repeat
            )));
        }
        let measurement = Measurement {
            args,
            inventory,
            sets,
            at_once,
            formulas,
            factors,
            virtuals: names,
        };
        Ok((measurement, virtuals))
    }

    /// Number of sets that are asked for.
    fn own_sets(&self) -> usize {
        self.sets.iter().filter(|s| !s.hidden).count()
    }

    fn format(&self) -> Format {
        match self.args.csv {
            true => Format::Csv,
            false => Format::Table,
        }
    }
}

/// Checks that windows may be cut by overflow.
fn can_overflow(window: Option<u64>) -> Result<()> {
    match window {
        None => Err(bad_input(
            "--overflow: give --window INSTRUCTIONS, after which the counter is to overflow",
        )),
        Some(n) if !(LEAST_OVERFLOW..=LONGEST_PERIOD).contains(&n) => Err(bad_input(format!(
            "--window {n}: with --overflow it is {LEAST_OVERFLOW} to {LONGEST_PERIOD} instructions, each window being an interrupt"
        ))),
        Some(_) => Ok(()),
    }
}

/// The virtual counters with these names.
fn virtuals(
    args: &StatArgs,
    names: &[String],
    inventory: &CounterInventory,
) -> Result<Option<Virtuals>> {
    match names {
        [] => Ok(None),
        names => Ok(Some(Virtuals::open(inventory, names, args.per_cpu)?)),
    }
}

/// The factors that are asked for.
fn factors(args: &StatArgs, inventory: &CounterInventory) -> Result<Option<Factors>> {
    let wanted = args.virtuals.iter().filter_map(|n| Factor::named(n));
    let wanted: Vec<Factor> = wanted.collect();
    let Some(first) = wanted.first().map(|f| f.name()) else {
        return match &args.model {
            None => Ok(None),
            Some(_) => Err(bad_input(
                "--model: it is for -V sf and -V ef, and neither is asked for",
            )),
        };
    };
    if args.target.all_cpus {
        return Err(bad_input(format!(
            "-V {first} is of a program or its threads: give a command or -p PID, without -a"
        )));
    }
    if args.single_events {
        return Err(bad_input(format!(
            "-V {first}: the model's events take turns in sets; leave --single-events out"
        )));
    }
    if args.window.is_some() {
        return Err(bad_input(format!(
            "-V {first}: the model's events take turns with those of -e, and --window takes one set; give -i MS instead"
        )));
    }
    Factors::open(inventory, wanted, args.model.as_deref()).map(Some)
}

/// The command.
///
/// # Errors
/// Bad input ([`amp_host::BadInput`]), naming the event, metric or process; others when counting
/// fails.
pub fn main(args: &StatArgs, stop: &AtomicBool) -> Result<ExitCode> {
    check_outputs(&[&args.json, &args.html, &args.output])?;
    let (measurement, virtuals) = Measurement::of(args)?;
    let mut out = Shown::to(args.output.as_deref())?;
    let (report, status) = match args.repeat {
        0 | 1 => measurement.count(virtuals, &mut out, stop)?,
        runs => measurement.repeat(runs, virtuals, &mut out, stop)?,
    };
    let shown = match &args.json {
        Some(path) => {
            let text = serde_json::to_string(&report)?;
            amp_host::write_out(path, &format!("{text}\n"))
        }
        None => {
            out.show(&output::report(&report, measurement.format()));
            out.end()
        }
    };
    let page = match (&args.html, &report.intervals) {
        (Some(path), Some(windows)) => amp_host::write_out(path, &plot::page(&report, windows)),
        _ => Ok(()),
    };
    amp_host::output::all([shown, page])?;
    Ok(status)
}

/// Checks that outputs can be written, before a command runs.
///
/// # Errors
/// As [`amp_host::check_out`].
pub fn check_outputs(outputs: &[&Option<PathBuf>]) -> Result<()> {
    let outputs = outputs.iter().filter_map(|p| p.as_deref());
    outputs.into_iter().try_for_each(amp_host::check_out)
}

/// Whether one of the outputs is standard output, where nothing else is to be then.
pub fn is_to_stdout(outputs: &[&Option<PathBuf>]) -> bool {
    let mut outputs = outputs.iter().filter_map(|p| p.as_deref());
    outputs.any(|p| p.as_os_str() == "-")
}

/// What is asked for, by itself and by groups.
struct Asked {
    sets: Vec<String>,
    metrics: Vec<String>,
    /// Virtual counters but for factors.
    virtuals: Vec<String>,
    /// Metrics of the vendor's tables, whose events are in the last set.
    derived: Vec<Formula>,
}

/// What is asked for; the usual events and metric when none is.
fn asked(args: &StatArgs, inventory: &CounterInventory) -> Result<Asked> {
    let (mut sets, mut metrics) = (args.sets.clone(), args.metrics.clone());
    let mut virtuals = args.virtuals.clone();
    virtuals.retain(|n| Factor::named(n).is_none());
    for g in &args.groups {
        let group = groups::find(inventory, g)?;
        sets.extend(group.events);
        metrics.extend(group.metrics);
        for name in group.virtuals {
            if !virtuals.contains(&name) {
                virtuals.push(name);
            }
        }
    }
    let mut derived = Vec::new();
    if !args.vendor_metrics.is_empty() {
        let whole_machine = args.target.all_cpus;
        let wanted = derived::find(inventory, &args.vendor_metrics, whole_machine)?;
        sets.push(wanted.events);
        derived = wanted.formulas;
    }
    if sets.is_empty() {
        sets.push(USUAL.to_owned());
        if metrics.is_empty() {
            metrics.push(USUAL_METRIC.to_owned());
        }
    }
    Ok(Asked {
        sets,
        metrics,
        virtuals,
        derived,
    })
}

/// Every event of the sets, once, as a set of its own, and how many of these can be on at the same time. Where all can, they are
/// one set.
fn singly(sets: Vec<Set>) -> (Vec<Set>, usize) {
    let Some(whole) = Set::joined(sets) else {
        return (Vec::new(), 1);
    };
    let all = whole.clone().single_events();
    match Set::at_once(&all) {
        n if n < all.len() => (all, n),
        _ => (vec![whole], 1),
    }
}

/// The set in as many as can be counted at once; says so where that is more than one.
fn fitting(set: Set) -> Vec<Set> {
    let text = set.text.clone();
    let sets = set.fitting();
    if sets.len() > 1 {
        let parts: Vec<String> = sets.iter().map(|s| format!("`{}`", s.text)).collect();
        log::warn!(
            "-e `{text}`: more than can be counted at once here and now; these take turns: {}",
            parts.join(", ")
        );
    }
    sets
}

/// The metrics, each of which one PMU counts all events of; `beside` are names of other values.
///
/// # Errors
/// [`amp_host::BadInput`] naming the metric.
pub fn formulas(texts: &[String], sets: &[Set], beside: &[String]) -> Result<Vec<Formula>> {
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
        // one that has an event which nothing counts has no value, and the report tells why
        let mut others = sets.iter().flat_map(|s| &s.not_supported);
        let without = others.any(|n| names.iter().any(|name| n.is(name)));
        if !without && !pmus.any(|u| names.iter().all(|n| counted_on(&u.pmu, n))) {
            return Err(bad_input(format!(
                "metric `{}`: no PMU counts all of its events: a metric is of one PMU",
                f.name
            )));
        }
        out.push(f);
    }
    Ok(out)
}

/// A set that does not fit is bad input: beside which events, and how much would fit, is worth a
/// trial. `advice` says what to do then.
pub fn refused(
    inventory: &CounterInventory,
    sets: &[Set],
    e: GroupError,
    advice: &str,
) -> anyhow::Error {
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
            let trial = inventory.core_pmus().find(|(_, p)| p.name == *pmu);
            let fit = trial.and_then(|(t, _)| {
                let cpu = *inventory.cpus(t).first()?;
                inventory.usable_counters(t, cpu).ok()
            });
            let fit = fit.map_or_else(String::new, |n| {
                format!("; {n} events fit at once there, instructions and cycles among them")
            });
            bad_input(format!("{e}{beside}{fit}. {advice}"))
        }
        GroupError::Refused { .. } => bad_input(e),
        GroupError::NoInterrupt { .. } => bad_input(format!(
            "--overflow: {e}. Leave --overflow out: windows are interpolated then"
        )),
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

/// Where what is measured is shown as it goes. A failure is told at the end: it is no reason not to
/// measure.
pub struct Shown {
    to: Box<dyn Write>,
    name: String,
    failed: Option<std::io::Error>,
}

impl Shown {
    /// A file, or standard error. The file is written as it goes, because somebody may follow it.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn to(file: Option<&Path>) -> Result<Shown> {
        let name = file.map_or("to standard error".to_owned(), |f| f.display().to_string());
        let to: Box<dyn Write> = match file {
            Some(path) => {
                let file = std::fs::File::create(path);
                Box::new(file.with_context(|| format!("cannot write {name}"))?)
            }
            None => Box::new(std::io::stderr()),
        };
        Ok(Shown {
            to,
            name,
            failed: None,
        })
    }

    /// Shows some text.
    pub fn show(&mut self, text: &str) {
        if self.failed.is_none() {
            let shown = self.to.write_all(text.as_bytes());
            self.failed = shown.and_then(|()| self.to.flush()).err();
        }
    }

    /// Says whether all of it was shown.
    ///
    /// # Errors
    /// When something could not be shown. A reader that has gone is none.
    pub fn end(self) -> Result<()> {
        match self.failed {
            Some(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(e).with_context(|| format!("cannot write {}", self.name))
            }
            _ => Ok(()),
        }
    }
}

/// Shows a report on standard error.
///
/// # Errors
/// As [`Shown::end`].
pub fn emit(text: &str) -> Result<()> {
    let mut out = Shown::to(None)?;
    out.show(text);
    out.end()
}
