//! `scx_amp pmc mrc`: miss-rate curves, found out while a program runs.
//!
//! ```text
//! allocation (resctrl, the board) ◄─ allot ─ sweep ─ fill ─► filler (others' data in the other ways)
//!                                              │
//!                                   counts of a window ─► curve ─► output
//! ```

mod curve;
mod filler;
mod output;

use super::counting::{Counting, Order, Rows, Scope, ROUND_ROBIN};
use super::formula::Formula;
use super::groups;
use super::inventory::CounterInventory;
use super::sets::{Set, USER_MODE_ONLY};
use super::stat;
use super::target::{RunningTarget, TargetArgs};
use crate::trust::TrustArgs;
use amp_host::bad_input;
use amp_metrics::cache_allocation::{self, CacheAllocation};
use amp_metrics::multiplex::by_name;
use amp_metrics::virtual_counters::Roots;
use anyhow::Result;
use clap::Args;
use curve::Curve;
use filler::Filler;
use indicatif::ProgressBar;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::SeedableRng;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The group whose metrics are shown when nothing is asked for.
const USUAL: &str = "caches";
/// Of the order of sizes: the same every time.
const SEED: u64 = 1;

/// Options of `scx_amp pmc mrc`.
///
/// A command is ended when every size has had its turns. When it ends before, the exit status is the
/// command's, 128 + signal when one ended it.
#[derive(Args, Debug)]
#[command(
    override_usage = "scx_amp pmc mrc [OPTIONS] [-p PID | [--] COMMAND…]",
    mut_arg("all_cpus", |a| a.hide(true))
)]
pub struct MrcArgs {
    /// Events to count beside each other, separated by commas, as perf writes them
    #[arg(short = 'e', long = "event", value_name = "SET", requires = "metrics")]
    set: Option<String>,
    /// Events and metrics by a name (`scx_amp pmc list` explains each), or a file FILE.toml like
    /// those in metrics/pmc/groups/ [default: caches]
    #[arg(short = 'g', long, value_name = "GROUP", conflicts_with = "set")]
    group: Option<String>,
    /// Metric made of counts, such as `mpki=1000*cache-misses/instructions`
    #[arg(short = 'm', long = "metric", value_name = "NAME=FORMULA")]
    metrics: Vec<String>,
    /// Sizes to try, as numbers of ways separated by commas [default: all that can be given]
    #[arg(long, value_name = "WAYS", value_delimiter = ',')]
    ways: Vec<u32>,
    /// How often each size has its turn, in an order by chance that is the same every time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    sweeps: u32,
    /// Milliseconds that are counted at each turn
    #[arg(short = 'i', long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    interval: u64,
    /// Milliseconds before them, in which the program fills what it has been given
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    settle: u64,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Write JSON to FILE, or to standard output with `-`; the command's own output then goes to
    /// standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with a plot per metric to FILE, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The command.
///
/// # Errors
/// Bad input ([`amp_host::BadInput`]), naming the event, metric, size or process; others when no
/// cache can be divided here, or counting fails.
pub fn main(args: &MrcArgs, stop: &AtomicBool) -> Result<ExitCode> {
    stat::check_outputs(&[&args.json, &args.html])?;
    args.target.check("given parts of a cache")?;
    if args.target.all_cpus {
        return Err(bad_input(
            "-a: what all of the machine has is all of the cache; give a command or -p PID",
        ));
    }
    let inventory = CounterInventory::detect()?.with_trust(args.trust.find()?);
    let (set, formulas) = events(args, &inventory)?;
    let mut allocation = cache_allocation::detect(&Roots::default())?;
    let (report, status) = sweep(args, &inventory, set, &formulas, &mut *allocation, stop)?;
    drop(allocation);
    let shown = match &args.json {
        Some(path) => {
            let text = serde_json::to_string(&report)?;
            amp_host::write_out(path, &format!("{text}\n"))
        }
        None => stat::emit(&output::text(&report)),
    };
    let page = match &args.html {
        Some(path) => amp_host::write_out(path, &output::page(&report)),
        None => Ok(()),
    };
    amp_host::output::all([shown, page])?;
    Ok(status)
}

/// The one set and the metrics that are asked for.
fn events(args: &MrcArgs, inventory: &CounterInventory) -> Result<(Set, Vec<Formula>)> {
    let (text, mut metrics) = match (&args.set, &args.group) {
        (Some(set), _) => (set.clone(), Vec::new()),
        (None, group) => {
            let name = group.as_deref().unwrap_or(USUAL);
            let group = groups::find(inventory, name)?;
            let [set] = group.events.as_slice() else {
                return Err(bad_input(format!(
                    "-g {name}: its sets take turns, and a size is to be judged by events of the same time; choose some with -e and -m"
                )));
            };
            (set.clone(), group.metrics)
        }
    };
    metrics.extend(args.metrics.iter().cloned());
    let mut set = Set::parse(inventory, &text)?;
    // what is misspelt is told whatever else is missing
    stat::formulas(&metrics, std::slice::from_ref(&set), &[])?;
    inventory.need_pmu()?;
    set.supported();
    if let Some(n) = set.not_supported.first() {
        return Err(bad_input(format!(
            "event `{}` cannot be counted here: choose others with -e and -m",
            n.event
        )));
    }
    if set.permitted() {
        log::warn!("{USER_MODE_ONLY}");
    }
    let formulas = stat::formulas(&metrics, std::slice::from_ref(&set), &[])?;
    Ok((set, formulas))
}

/// The sizes to try, of those that can be given.
fn sizes(asked: &[u32], possible: Vec<u32>) -> Result<Vec<u32>> {
    if let Some(odd) = asked.iter().find(|n| !possible.contains(n)) {
        let all: Vec<String> = possible.iter().map(u32::to_string).collect();
        return Err(bad_input(format!(
            "--ways {odd}: this cache can be given in {} ways",
            all.join(", ")
        )));
    }
    let mut out = if asked.is_empty() {
        possible
    } else {
        asked.to_vec()
    };
    out.sort_unstable();
    out.dedup();
    Ok(out)
}

/// Gives the target one size after the other, and counts at each.
fn sweep(
    args: &MrcArgs,
    inventory: &CounterInventory,
    set: Set,
    formulas: &[Formula],
    allocation: &mut dyn CacheAllocation,
    stop: &AtomicBool,
) -> Result<(output::Report, ExitCode)> {
    let quiet = stat::is_to_stdout(&[&args.json, &args.html]);
    let chosen = args.target.choose(quiet)?;
    let cache = allocation.confine(&chosen.tids)?;
    let mut order = sizes(&args.ways, cache.sizes())?;
    let mut filler = Filler::start(&cache, allocation)?;
    let scope = Scope::Tasks(chosen.tids.clone());
    let on_exec = chosen.on_exec();
    let sets = [set];
    let strategy = by_name(ROUND_ROBIN, sets.len()).map_err(bad_input)?;
    let names = &inventory.counted_names();
    let turns = Order::one_by_one(strategy);
    let opened = Counting::open(&sets, names, &scope, Rows::Summed, on_exec, turns, None);
    let mut counting = opened.map_err(|e| stat::refused(inventory, &sets, e, "Leave some out"))?;
    let [set] = sets;
    if !on_exec {
        counting.start()?;
    }
    let mut watched = chosen.release(stop)?;
    let begin = watched.begin;
    let mut curve = Curve::new(&set, formulas, args.interval as f64 / 1e3);
    let mut rng = SmallRng::seed_from_u64(SEED);
    let bar = ProgressBar::new(u64::from(args.sweeps) * order.len() as u64);
    let (mut sweeps, mut has, mut ended) = (0, cache.ways, false);
    while sweeps < args.sweeps && !ended {
        order.shuffle(&mut rng);
        for &ways in &order {
            allocation.allot(ways)?;
            // who is given less keeps what it has until others take it
            if ways < has {
                filler.fill()?;
            }
            has = ways;
            ended = stay(&mut watched, Duration::from_millis(args.settle))?;
            if !ended {
                counting.turn(begin.elapsed().as_secs_f64(), false)?;
                ended = stay(&mut watched, Duration::from_millis(args.interval))?;
            }
            if ended {
                break;
            }
            let window = counting.turn(begin.elapsed().as_secs_f64(), false)?;
            curve.add(ways, &window);
            bar.inc(1);
        }
        sweeps += u32::from(!ended);
    }
    bar.finish_and_clear();
    let elapsed_s = begin.elapsed().as_secs_f64();
    allocation.allot(cache.ways)?;
    if ended {
        log::warn!(
            "it ended after {sweeps} of {} sweeps: give it more to do, or choose fewer --ways, a shorter -i or a shorter --settle",
            args.sweeps
        );
    }
    let complete = !ended;
    watched.enough();
    while !ended {
        ended = watched.wait(None)?;
    }
    let status = watched.status()?;
    let status = if complete { ExitCode::SUCCESS } else { status };
    let report = output::Report {
        command: args.target.command(),
        pid: args.target.pid,
        elapsed_s,
        level: cache.level,
        ways: cache.ways,
        bytes: u64::from(cache.ways) * cache.way_bytes,
        events: set.text.clone(),
        settle_ms: args.settle,
        interval_ms: args.interval,
        sweeps,
        points: curve.points(cache.way_bytes),
    };
    Ok((report, status))
}

/// Lets the target run for so long; whether it has ended.
fn stay(watched: &mut RunningTarget, time: Duration) -> Result<bool> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if watched.wait(Some(until))? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_that_can_be_given() {
        let possible = || vec![2, 3, 4, 8];
        assert_eq!(sizes(&[], possible()).unwrap(), possible());
        assert_eq!(sizes(&[8, 2, 8], possible()).unwrap(), [2, 8]);
        let e = sizes(&[4, 5], possible()).unwrap_err();
        assert!(e.is::<amp_host::BadInput>(), "{e}");
        assert!(
            e.to_string().contains("--ways 5: ") && e.to_string().contains("2, 3, 4, 8"),
            "{e}"
        );
    }
}
