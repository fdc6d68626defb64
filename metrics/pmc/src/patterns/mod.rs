//! `scx_amp pmc patterns`: which performance patterns a command has [VAL].
//!
//! ```text
//! signatures (data: events and thresholds per PMU) ─► watch (counts per thread and interval) ─┐
//!                                                     attain (what memory can do) ────────────┴─► judge ─► report
//! ```

mod attain;
mod judge;
mod report;
mod signatures;
mod watch;

use super::inventory::CounterInventory;
use super::target::{self, Target};
use crate::trust::TrustArgs;
use amp_host::bad_input;
use amp_workloads::quantity::parse_count;
use anyhow::Result;
use clap::Args;
use judge::Attainable;
use signatures::{SignatureEvents, Signatures};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often new threads are looked for.
const LOOK: Duration = Duration::from_millis(5);
/// The same while a program starts.
const LOOK_FIRST: Duration = Duration::from_millis(1);
/// Time that counts as the start of a program.
const STARTS: Duration = Duration::from_millis(100);

/// Options of `scx_amp pmc patterns`.
///
/// The exit status is the command's, 128 + signal when one ended it.
#[derive(Args, Debug)]
#[command(override_usage = "scx_amp pmc patterns [OPTIONS] [--] COMMAND…")]
pub struct PatternsArgs {
    /// Milliseconds of an interval: rates are of intervals
    #[arg(short = 'i', long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(5..=60_000))]
    interval: u64,
    /// Bytes per second that memory can do, for example 10G, instead of measuring it on all CPUs
    /// first
    #[arg(long, value_name = "BYTES", value_parser = parse_count)]
    attainable: Option<u64>,
    #[command(flatten)]
    trust: TrustArgs,
    /// Write JSON to FILE, or to standard output with `-`; the command's own output then goes to
    /// standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND", required = true)]
    command: Vec<String>,
}

/// The command.
///
/// # Errors
/// Bad input ([`amp_host::BadInput`]); others when counting fails.
pub fn main(args: &PatternsArgs, stop: &AtomicBool) -> Result<ExitCode> {
    super::stat::check_outputs(&[&args.json])?;
    let inventory = CounterInventory::detect()?.with_trust(args.trust.find()?);
    let signatures = Signatures::shipped()?;
    let plans = signatures.plans(&inventory)?;
    let trusted = trusted(&inventory, &plans)?;
    let attainable = match args.attainable {
        Some(rate) => Some(Attainable {
            rate: rate as f64,
            u: None,
        }),
        None => attain::measure(&inventory, &plans)?,
    };
    amp_host::limits::open_many_files();
    let quiet = super::stat::is_to_stdout(&[&args.json]);
    let held = target::hold(&args.command, quiet)?;
    let mut watch = watch::Watch::start(&plans, held.pid())?;
    let begin = Instant::now();
    let mut target = Target::Command(target::release(held)?);
    let interval = Duration::from_millis(args.interval);
    let (mut intervals, mut last) = (Vec::new(), begin);
    let mut ending = target::Ending::default();
    loop {
        let look = if begin.elapsed() < STARTS {
            LOOK_FIRST
        } else {
            LOOK.min(interval)
        };
        let gone = target.wait(Some(Instant::now() + look))?;
        if let (true, false, Target::Command(r)) = (stop.load(Ordering::Relaxed), gone, &mut target)
        {
            ending.hurry(r, true);
        }
        watch.find()?;
        let now = Instant::now();
        if gone || now >= last + interval {
            let read = watch.read(now.duration_since(last).as_secs_f64())?;
            // what is left at the end is too short to be a rate
            if now >= last + interval / 2 {
                intervals.push(read);
            }
            last = now;
        }
        if gone {
            break;
        }
    }
    let threads = watch.threads();
    let names: Vec<String> = plans.iter().map(|p| p.name.clone()).collect();
    let report = report::Report {
        command: args.command.clone(),
        elapsed_s: begin.elapsed().as_secs_f64(),
        findings: vec![
            judge::bandwidth(&signatures, &intervals, attainable),
            judge::imbalance(&signatures, &threads),
            judge::sharing(&signatures, &intervals, &names),
        ],
        threads,
        core_types: names,
        intervals: intervals.len(),
        tested: plans
            .iter()
            .map(|p| format!("{} ({}): {}", p.name, p.pmu, p.tested))
            .collect(),
        trusted,
    };
    match &args.json {
        Some(path) => amp_host::write_out(path, &format!("{}\n", serde_json::to_string(&report)?))?,
        None => super::stat::emit(&report.text())?,
    }
    Ok(match target {
        Target::Command(mut r) => ExitCode::from(r.status()?),
        _ => ExitCode::SUCCESS,
    })
}

/// What the trust file, where there is one, says of the events, whatever they are called there;
/// those that it does not know are named.
///
/// # Errors
/// [`amp_host::BadInput`] when one is broken.
fn trusted(inventory: &CounterInventory, plans: &[SignatureEvents]) -> Result<Vec<String>> {
    let mut told = Vec::new();
    if inventory.trust().is_none() {
        return Ok(told);
    }
    for p in plans {
        for (_, e) in &p.events {
            if let Some(broken) = inventory.broken(p.core_type, e) {
                return Err(bad_input(format!("a pattern depends on it: {broken}")));
            }
            let known = inventory.trusted(p.core_type, e);
            told.push(format!(
                "{} ({}): {}",
                e.name.trim_end_matches(":u"),
                p.name,
                known.map_or("not tried", |k| k.verdict.name())
            ));
        }
    }
    Ok(told)
}
