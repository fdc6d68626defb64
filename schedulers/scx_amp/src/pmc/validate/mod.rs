//! `scx_amp pmc validate`: events against kernels whose counts are known.

mod usual;

use super::caches;
use super::here::Here;
use crate::bench::apps::stay_on;
use crate::usage::bad_input;
use crate::write_out;
use amp_machine::page::{publish_hint, CpuTotals, Page, PageError, Total};
use amp_metrics::group::{Group, GroupError, Whom};
use amp_metrics::pmu::Processor;
use amp_metrics::trust::{CoreTypeTrust, EventTrust, Trust, Verdict, FORMAT};
use amp_metrics::{CoreTypeId, Event, EventSpec};
use amp_workloads::exact::{Caches, Expected, Kernel, Level, Quantity, Traffic};
use anyhow::{Context, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use tabled::builder::Builder;
use tabled::settings::{Padding, Style};

/// Loads and stores of a kernel whose data fits a cache.
const ACCESSES: u64 = 400_000;
/// Rounds of the loop of 64 instructions.
const ROUNDS: u64 = 20_000;
/// Branches that go either way.
const BRANCHES: u64 = 200_000;
/// Times nothing is measured, to know what starting and stopping counts.
const EMPTY: usize = 5;

/// Options of `scx_amp pmc validate`.
#[derive(Args, Debug)]
pub struct ValidateArgs {
    /// Try this event for what it is to count (instructions, loads, stores, accesses, l1-refills, l2-accesses, l2-refills,
    /// l2-write-backs, branches, mispredicts) instead of the usual ones; may be repeated
    #[arg(short = 'e', long = "event", value_name = "QUANTITY=EVENT", value_parser = quantity_of)]
    events: Vec<(Quantity, String)>,
    /// Times each kernel is run with each event
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Write the trust file (TOML) to FILE, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write verdicts and the errors of each kernel as JSON to FILE, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn quantity_of(s: &str) -> Result<(Quantity, String), String> {
    let (quantity, event) = s
        .split_once('=')
        .ok_or("QUANTITY=EVENT, such as loads=ld_retired")?;
    let found = Quantity::by_name(quantity.trim()).ok_or_else(|| {
        let names: Vec<&str> = Quantity::ALL.iter().map(|q| q.name()).collect();
        format!("`{quantity}` is none of {}", names.join(", "))
    })?;
    Ok((found, event.trim().to_owned()))
}

/// An event and what it is to count.
#[derive(Clone, Debug)]
struct Candidate {
    event: Event,
    quantity: Quantity,
}

/// How an event did in one run of a kernel.
#[derive(Clone, Debug, Serialize)]
struct Comparison {
    kernel: String,
    expected: f64,
    tolerance: f64,
    counted: f64,
    /// What the board's model has counted, where this is the board.
    #[serde(skip_serializing_if = "Option::is_none")]
    truth: Option<u64>,
    /// Relative to what was expected, or to the chances where that is nothing.
    error: f64,
    /// Size of the error beyond the tolerance, relative likewise.
    beyond: f64,
}

/// An event on a core type, with all comparisons.
#[derive(Debug, Serialize)]
struct Findings {
    core_type: String,
    pmu: String,
    #[serde(flatten)]
    trust: EventTrust,
    comparisons_made: Vec<Comparison>,
}

fn compare(kernel: &str, e: Expected, counted: f64, truth: Option<u64>) -> Comparison {
    let scale = if e.count > 0.0 {
        e.count
    } else {
        e.chances.max(1.0)
    };
    let difference = counted - e.count;
    Comparison {
        kernel: kernel.to_owned(),
        expected: e.count,
        tolerance: e.tolerance,
        counted,
        truth,
        error: difference / scale,
        beyond: (difference.abs() - e.tolerance).max(0.0) / scale,
    }
}

/// The verdict on an event. One that was never expected to count anything is not tried.
fn judge(event: &str, quantity: Quantity, all: &[Comparison]) -> Option<EventTrust> {
    let worst = all.iter().max_by(|a, b| a.beyond.total_cmp(&b.beyond))?;
    if !all.iter().any(|c| c.expected > 0.0) {
        return None;
    }
    let errors = || all.iter().map(|c| c.error);
    Some(EventTrust {
        event: event.to_owned(),
        quantity: quantity.name().to_owned(),
        verdict: Verdict::of(worst.beyond),
        error_min: errors().fold(f64::INFINITY, f64::min),
        error_mean: errors().sum::<f64>() / all.len() as f64,
        error_max: errors().fold(f64::NEG_INFINITY, f64::max),
        worst_kernel: worst.kernel.clone(),
        comparisons: u32::try_from(all.len()).unwrap_or(u32::MAX),
    })
}

/// What makes a kernel, for only one is to have its data in place at a time.
type Make = Box<dyn Fn() -> Option<Kernel>>;

/// All kernels. Those that take a second thread have it on CPU `partner`, and are left out where there is none.
fn kernels(caches: &Caches, partner: Option<u32>) -> Vec<Make> {
    let caches = *caches;
    let mut out: Vec<Make> = vec![
        Box::new(|| Some(Kernel::nops(ROUNDS))),
        Box::new(|| Some(Kernel::random_branches(BRANCHES, 1))),
    ];
    for traffic in Traffic::ALL {
        for level in [Level::L1, Level::L2, Level::Memory] {
            out.push(Box::new(move || {
                Some(Kernel::stream(traffic, level, &caches, ACCESSES))
            }));
        }
    }
    let Some(cpu) = partner else {
        log::warn!("one CPU only: kernels of two threads are left out");
        return out;
    };
    let begin = move || {
        if let Err(e) = stay_on(&[cpu]) {
            log::warn!("{e:#}");
        }
    };
    for first in [true, false] {
        for level in [Level::L1, Level::L2] {
            out.push(Box::new(move || {
                Kernel::triangle(first, level, &caches, ACCESSES, begin)
            }));
        }
        out.push(Box::new(move || {
            Some(Kernel::handoff(first, &caches, begin))
        }));
    }
    out
}

/// A CPU beside `cpu`, of the same core type where there is one.
fn partner(here: &Here, t: CoreTypeId, cpu: u32) -> Option<u32> {
    let same = here.cpus(t).into_iter().rev();
    let others = here.core_pmus().flat_map(|(t, _)| here.cpus(t));
    same.chain(others).find(|c| *c != cpu)
}

/// The command.
///
/// # Errors
/// [`super::here::NoPmu`]; [`crate::usage::BadInput`] naming an event that does not exist; others when counting fails.
pub fn main(args: &ValidateArgs, stop: &AtomicBool) -> Result<ExitCode> {
    let here = Here::detect()?;
    here.need_pmu()?;
    let page = match Page::open() {
        Ok(p) => Some(p),
        Err(PageError::NoBoard { .. }) => None,
        // only root may read it: no reason not to measure
        Err(e) => {
            log::warn!("{e}");
            None
        }
    };
    let mut trust = Trust {
        format: FORMAT,
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        repetitions: args.repetitions,
        core_types: Vec::new(),
    };
    let mut findings = Vec::new();
    let types: Vec<CoreTypeId> = here.core_pmus().map(|(t, _)| t).collect();
    for t in types {
        let (of_type, all) = core_type(args, &here, t, page.as_ref(), stop)?;
        trust.core_types.push(of_type);
        findings.extend(all);
    }
    let quiet = [&args.out, &args.json]
        .iter()
        .any(|p| p.as_ref().is_some_and(|p| p.as_os_str() == "-"));
    if !quiet {
        write_out("-".as_ref(), &text(&trust))?;
    }
    if let Some(path) = &args.out {
        write_out(path, &trust.to_toml()?)?;
    }
    if let Some(path) = &args.json {
        write_out(
            path,
            &format!("{}\n", serde_json::json!({ "events": findings })),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The events to try on a core type. Usual ones that the PMU does not have are left out, others are errors.
fn candidates(args: &ValidateArgs, here: &Here, t: CoreTypeId) -> Result<Vec<Candidate>> {
    let resolve = |text: &str| -> Result<Event, String> {
        let spec: EventSpec = text.parse().map_err(|e| format!("{e}"))?;
        here.pmus.resolve(t, &spec).map_err(|e| format!("{e}"))
    };
    let mut out = Vec::new();
    for (quantity, text) in &args.events {
        out.push(Candidate {
            event: resolve(text).map_err(bad_input)?,
            quantity: *quantity,
        });
    }
    if out.is_empty() {
        let usual = usual::events()?.into_iter().filter_map(|(quantity, text)| {
            Some(Candidate {
                event: resolve(&text).ok()?,
                quantity,
            })
        });
        out.extend(usual);
    }
    for c in &mut out {
        // the kernels' counts are those of user mode
        c.event.attr.exclude_kernel = true;
        c.event.attr.exclude_user = false;
    }
    Ok(out)
}

/// Shares events out over groups that fit the PMU. Events that it does not count by themselves are left out with a warning.
fn groups(all: Vec<Candidate>, asked: bool) -> Result<Vec<(Vec<Candidate>, Group)>> {
    let open = |some: &[Candidate]| {
        let events: Vec<Event> = some.iter().map(|c| c.event.clone()).collect();
        let mut group = Group::open(&events, Whom::Caller, false)?;
        // a group can be opened and yet find no counters
        group.start()?;
        group.stop()?;
        group.read()?;
        Ok::<Group, GroupError>(group)
    };
    let mut out: Vec<(Vec<Candidate>, Group)> = Vec::new();
    let mut wanted = Vec::new();
    for c in all {
        match open(std::slice::from_ref(&c)) {
            Ok(_) => wanted.push(c),
            Err(e @ (GroupError::Unsupported { .. } | GroupError::Refused { .. })) if !asked => {
                log::warn!("{e}");
            }
            Err(e) => return Err(e.into()),
        }
    }
    let mut rest = &wanted[..];
    while !rest.is_empty() {
        let fits = (1..=rest.len()).take_while(|n| open(&rest[..*n]).is_ok());
        let n = fits.last().unwrap_or(1);
        out.push((rest[..n].to_vec(), open(&rest[..n])?));
        rest = &rest[n..];
    }
    Ok(out)
}

fn core_type(
    args: &ValidateArgs,
    here: &Here,
    t: CoreTypeId,
    page: Option<&Page>,
    stop: &AtomicBool,
) -> Result<(CoreTypeTrust, Vec<Findings>)> {
    let pmu = here.pmus.of_core_type(t).map_or("", |p| p.name.as_str());
    // the first CPU has more interrupts to serve than others
    let cpu = *here.cpus(t).last().context("a core type without CPUs")?;
    stay_on(&[cpu])?;
    let candidates = candidates(args, here, t)?;
    let mut groups = groups(candidates, !args.events.is_empty())
        .with_context(|| format!("core type {} (PMU `{pmu}`)", here.name(t)))?;
    let (caches, guessed) = caches::of_cpu(Path::new("/sys"), cpu);
    if !guessed.is_empty() {
        log::warn!(
            "CPU {cpu}: size of {} unknown; taken for {} KiB and {} KiB",
            guessed.join(" and "),
            caches.l1 >> 10,
            caches.l2 >> 10
        );
    }
    let made = kernels(&caches, partner(here, t, cpu));
    let bar = progress(made.len() as u64, here.name(t));
    let mut all: Vec<Vec<Vec<Comparison>>> = groups
        .iter()
        .map(|(c, _)| vec![Vec::new(); c.len()])
        .collect();
    let empty: Vec<Vec<Counted>> = groups
        .iter_mut()
        .map(|(c, g)| empty(g, c, page, cpu))
        .collect::<Result<_>>()?;
    for make in made {
        let Some(mut kernel) = make() else { continue };
        // one after the other: their data has the caches to itself
        bar.set_message(kernel.name.clone());
        for ((tried, group), (out, empty)) in groups.iter_mut().zip(all.iter_mut().zip(&empty)) {
            for _ in 0..args.repetitions {
                if stop.load(Ordering::Relaxed) {
                    anyhow::bail!("interrupted");
                }
                kernel.prepare();
                let counted = counted(group, tried, page, cpu, || kernel.run())?;
                for (i, c) in tried.iter().enumerate() {
                    let Some(expected) = kernel.expected(c.quantity) else {
                        continue;
                    };
                    let (counts, truth) = counted[i];
                    let (of_counts, of_truth) = empty[i];
                    let counts = counts as f64 - of_counts as f64;
                    let truth = truth.zip(of_truth).map(|(t, e)| t.saturating_sub(e));
                    out[i].push(compare(&kernel.name, expected, counts, truth));
                }
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut findings = Vec::new();
    for ((tried, _), comparisons) in groups.iter().zip(all) {
        for (c, comparisons) in tried.iter().zip(comparisons) {
            if let Some(trust) = judge(&c.event.name, c.quantity, &comparisons) {
                findings.push(Findings {
                    core_type: here.name(t).to_owned(),
                    pmu: pmu.to_owned(),
                    trust,
                    comparisons_made: comparisons,
                });
            }
        }
    }
    let of_type = CoreTypeTrust {
        name: here.name(t).to_owned(),
        pmu: pmu.to_owned(),
        processor: match Processor::detect(Path::new("/proc"), Path::new("/sys"), &[cpu]) {
            Some(Processor::X86(id)) => id,
            Some(Processor::Arm(midr)) => {
                midr.first().map_or_else(String::new, |m| format!("{m:#x}"))
            }
            None => String::new(),
        },
        cpu,
        events: findings.iter().map(|f| f.trust.clone()).collect(),
    };
    Ok((of_type, findings))
}

/// Counts of `work`.
fn measure(group: &mut Group, work: impl FnOnce()) -> Result<Vec<u64>> {
    let before = group.read()?;
    group.start()?;
    work();
    group.stop()?;
    let after = group.read()?;
    let (enabled, running) = (
        after.enabled - before.enabled,
        after.running - before.running,
    );
    if running < enabled {
        anyhow::bail!("the counters were on for {running:?} of {enabled:?} only: another perf user takes them");
    }
    let counts = after.counts.iter().zip(&before.counts);
    Ok(counts.map(|(a, b)| a.saturating_sub(*b)).collect())
}

/// What an event has counted, and what the board's model has counted meanwhile, reading the counters included.
type Counted = (u64, Option<u64>);

/// Counts of `work` for each of the events `tried`, which are those of the group.
fn counted(
    group: &mut Group,
    tried: &[Candidate],
    page: Option<&Page>,
    cpu: u32,
    work: impl FnOnce(),
) -> Result<Vec<Counted>> {
    let before = truth(page, cpu);
    let counts = measure(group, work)?;
    let after = truth(page, cpu);
    let of = |c: &Candidate| {
        let (b, a) = (before.as_ref()?, after.as_ref()?);
        Some(user(a, c.quantity).wrapping_sub(user(b, c.quantity)))
    };
    let counts = counts.into_iter().chain(std::iter::repeat(0));
    Ok(tried.iter().zip(counts).map(|(c, n)| (n, of(c))).collect())
}

/// What starting, stopping and reading alone count, at least.
fn empty(
    group: &mut Group,
    tried: &[Candidate],
    page: Option<&Page>,
    cpu: u32,
) -> Result<Vec<Counted>> {
    let mut least = counted(group, tried, page, cpu, || {})?;
    for _ in 1..EMPTY {
        for (l, c) in least
            .iter_mut()
            .zip(counted(group, tried, page, cpu, || {})?)
        {
            *l = (l.0.min(c.0), l.1.min(c.1));
        }
    }
    Ok(least)
}

/// The board's own totals of the CPU that this runs on.
fn truth(page: Option<&Page>, cpu: u32) -> Option<CpuTotals> {
    publish_hint();
    page?.cpu(cpu).ok()
}

fn user(t: &CpuTotals, q: Quantity) -> u64 {
    let of = |total| t.split(total).user;
    match q {
        Quantity::Instructions => of(Total::Instructions),
        Quantity::Loads => of(Total::L1dAccess).wrapping_sub(of(Total::Stores)),
        Quantity::Stores => of(Total::Stores),
        Quantity::Accesses => of(Total::L1dAccess),
        Quantity::L1Refills => of(Total::L1dRefill),
        Quantity::L2Accesses => of(Total::L2Access),
        Quantity::L2Refills => of(Total::L2Refill),
        Quantity::L2WriteBacks => of(Total::L2WriteBack),
        Quantity::Branches => of(Total::Branches),
        Quantity::Mispredicts => of(Total::Mispredicts),
    }
}

/// A bar on a terminal, nothing elsewhere.
fn progress(kernels: u64, core_type: &str) -> ProgressBar {
    let bar = ProgressBar::new(kernels);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(core_type.to_owned());
    bar
}

fn text(trust: &Trust) -> String {
    let mut out = String::new();
    for t in &trust.core_types {
        out += &format!("{} (PMU {}), on CPU {}\n", t.name, t.pmu, t.cpu);
        let mut table = Builder::default();
        table.push_record([
            "event",
            "counts",
            "verdict",
            "error: least",
            "mean",
            "most",
            "decided by",
        ]);
        for e in &t.events {
            let percent = |v: f64| format!("{:+.3} %", v * 100.0);
            let verdict = match e.verdict {
                Verdict::Usable => {
                    let most = e.error_max.abs().max(e.error_min.abs());
                    format!("usable ± {:.1} %", most * 100.0)
                }
                v => v.name().to_owned(),
            };
            table.push_record([
                e.event.clone(),
                e.quantity.clone(),
                verdict,
                percent(e.error_min),
                percent(e.error_mean),
                percent(e.error_max),
                e.worst_kernel.clone(),
            ]);
        }
        let mut table = table.build();
        table.with(Style::empty()).with(Padding::new(2, 0, 0, 0));
        for line in table.to_string().lines() {
            out += line.trim_end();
            out.push('\n');
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(count: f64, tolerance: f64) -> Expected {
        Expected {
            count,
            tolerance,
            chances: 1000.0,
        }
    }

    #[test]
    fn errors_are_relative_to_what_was_expected_or_could_have_been() {
        let c = compare("k", expected(100.0, 2.0), 105.0, None);
        assert!((c.error - 0.05).abs() < 1e-12 && (c.beyond - 0.03).abs() < 1e-12);
        let c = compare("k", expected(100.0, 2.0), 98.0, None);
        assert_eq!((c.error, c.beyond), (-0.02, 0.0));
        let c = compare("k", expected(0.0, 0.0), 5.0, None);
        assert!((c.error - 0.005).abs() < 1e-12);
    }

    #[test]
    fn frozen_and_doubled_events_are_broken_and_good_ones_are_not() {
        let verdict = |factor: f64, noise: f64| {
            let all: Vec<Comparison> = [1e6, 0.0, 3e5]
                .iter()
                .map(|e| {
                    compare(
                        "k",
                        Expected {
                            chances: 1e6,
                            ..expected(*e, 0.0)
                        },
                        e * factor + noise,
                        None,
                    )
                })
                .collect();
            judge("e", Quantity::Loads, &all).unwrap().verdict
        };
        assert_eq!(verdict(1.0, 0.0), Verdict::Exact);
        assert_eq!(verdict(1.02, 0.0), Verdict::Usable);
        assert_eq!(verdict(0.7, 0.0), Verdict::Qualitative);
        assert_eq!(verdict(0.0, 0.0), Verdict::Broken);
        assert_eq!(verdict(2.0, 0.0), Verdict::Broken);
        // counts that come from nowhere
        assert_eq!(verdict(1.0, 6e5), Verdict::Broken);
        let silent = [compare("k", expected(0.0, 0.0), 0.0, None)];
        assert!(judge("e", Quantity::Loads, &silent).is_none());
    }

    #[test]
    fn quantities_on_the_command_line() {
        assert_eq!(
            quantity_of("l1-refills=cpu/event=0x3,umask=1/").unwrap(),
            (Quantity::L1Refills, "cpu/event=0x3,umask=1/".to_owned())
        );
        assert!(quantity_of("x=y").unwrap_err().contains("mispredicts"));
        assert!(quantity_of("loads").is_err());
    }
}
