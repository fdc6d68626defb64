//! `scx_amp pmc record`: where a program is when events happen.
//!
//! ```text
//! periods   how many events between two samples
//! sampler   perf's ring buffers
//! maps      which file an address is from
//! profile   functions and blocks by their samples; blocks cuts code into them
//! ```

mod blocks;
mod maps;
mod output;
mod periods;
mod profile;
mod sampler;

use super::here::Here;
use super::sets::{Set, Unit};
use super::target::TargetArgs;
use crate::usage::bad_input;
use amp_metrics::Event;
use anyhow::{Context, Result};
use clap::Args;
use maps::Maps;
use output::{Choice, Report};
use periods::Method;
use profile::Samples;
use rand::rngs::SmallRng;
use rand::SeedableRng;
use sampler::{CpuSampler, Found, Of, What};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// Events between two samples of cycles, instructions and clocks (which count nanoseconds): a thousand samples a second and
/// more on a fast core.
const FREQUENT: u64 = 1_000_000;
/// The same of any other event.
const RARE: u64 = 10_000;

/// Options of `scx_amp pmc record`.
///
/// With a command the exit status is the command's, 128 + signal when one ended it.
#[derive(Args, Debug)]
#[command(override_usage = "scx_amp pmc record [OPTIONS] [-a | -p PID | [--] COMMAND…]")]
pub struct RecordArgs {
    /// The event, as perf writes it; on each core type its own PMU counts it. Without a PMU: `cpu-clock`, in nanoseconds
    #[arg(
        short = 'e',
        long = "event",
        value_name = "EVENT",
        default_value = "cycles"
    )]
    event: String,
    /// Events between two samples [default: 1000000 for cycles, instructions and clocks, else 10000]
    #[arg(short = 'c', long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(100..=1_000_000_000_000))]
    period: Option<u64>,
    /// How periods are chosen
    #[arg(long, value_enum, default_value_t = Method::Random)]
    method: Method,
    /// Seed of random periods
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    target: TargetArgs,
    /// Lines of each table
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Write JSON to FILE, or to standard output with `-`; the command's own output then goes to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The command.
///
/// # Errors
/// Bad input ([`crate::usage::BadInput`]), naming the event or process; others when sampling fails.
pub fn main(args: &RecordArgs, stop: &AtomicBool) -> Result<ExitCode> {
    args.target.check("sampled")?;
    let here = Here::detect()?;
    let mut set = Set::parse(&here, &args.event)?;
    if set.units.iter().any(|u| u.events.len() > 1) {
        return Err(bad_input(format!("-e {}: one event at a time", args.event)));
    }
    let everywhere = here.all_cpus();
    for u in &mut set.units {
        if u.pmu == "software" {
            u.cpus.clone_from(&everywhere);
        }
    }
    let foreign = |u: &&Unit| u.core_type.is_none() && u.pmu != "software";
    if let Some(u) = set.units.iter().find(foreign) {
        return Err(bad_input(format!(
            "event `{}`: PMU `{}` is not one of cores, and only those tell where a program is",
            args.event, u.pmu
        )));
    }
    let json_out = args.json.as_ref().is_some_and(|p| p.as_os_str() == "-");
    let chosen = args.target.choose(json_out)?;
    let of: Vec<Of> = match args.target.all_cpus {
        true => vec![Of::Everybody],
        false => chosen.tids.iter().map(|t| Of::Task(*t)).collect(),
    };
    let mut maps = Maps::default();
    let mut rng = SmallRng::seed_from_u64(args.seed);
    let on_exec = chosen.on_exec();
    let (mut cpus, choices) = open(args, &set, &everywhere, &of, on_exec, &mut rng)?;
    if !on_exec {
        cpus.iter_mut().try_for_each(CpuSampler::start)?;
    }
    // after the events: what is mapped from now on they tell
    if let Some(pid) = args.target.pid {
        maps.read(pid)
            .with_context(|| format!("-p {pid}: cannot see what it has mapped"))?;
    }
    if args.target.all_cpus {
        for p in procfs::process::all_processes()
            .context("cannot list processes")?
            .flatten()
        {
            // one that has gone meanwhile has no samples
            let _ = maps.read(p.pid);
        }
    }
    let mut watched = chosen.release(stop)?;
    let nominal = nominal(args, &set);
    let (mut samples, mut lost, mut throttled) = (Samples::default(), 0, 0);
    let mut batch = Vec::new();
    loop {
        let last = watched.wait(None)?;
        for c in &mut cpus {
            c.drain(|time, found| batch.push((time, found)));
            if args.method == Method::Random && !last {
                c.set_periods(|| periods::next(nominal, &mut rng))?;
            }
        }
        // CPUs tell of mappings and of samples in them in any order
        batch.sort_by_key(|(time, _)| *time);
        for (_, found) in batch.drain(..) {
            match found {
                Found::Sample {
                    ip,
                    period,
                    kernel: true,
                    ..
                } => samples.kernel(ip, period),
                Found::Sample {
                    ip, pid, period, ..
                } => samples.user(maps.find(pid, ip), period),
                Found::Mapped(pid, m) => maps.add(pid, m),
                Found::Forked(pid, parent) => maps.fork(pid, parent),
                Found::Executed(pid) => maps.exec(pid),
                Found::Lost(n) => lost += n,
                Found::Throttled => throttled += 1,
            }
        }
        if last {
            break;
        }
    }
    let report = Report {
        command: args.target.command(),
        pid: args.target.pid,
        system_wide: args.target.all_cpus,
        elapsed_s: watched.begin.elapsed().as_secs_f64(),
        choices,
        lost,
        throttled,
        profile: samples.profile(),
    };
    match &args.json {
        Some(path) => {
            let text = serde_json::to_string(&report)?;
            crate::write_out(path, &format!("{text}\n"))?;
        }
        None => super::stat::emit(&mut std::io::stderr(), &output::tables(&report, args.top)),
    }
    watched.status()
}

fn nominal(args: &RecordArgs, set: &Set) -> u64 {
    args.period.unwrap_or_else(|| {
        let mut units = set.units.iter();
        // whatever cycles they are
        let clock = ["clock", "cycles"].iter().any(|c| args.event.contains(c));
        if clock || units.any(|u| u.instructions.is_some() || u.cycles.is_some()) {
            FREQUENT
        } else {
            RARE
        }
    })
}

/// A sampler per CPU; and what was chosen for each PMU.
fn open(
    args: &RecordArgs,
    set: &Set,
    everywhere: &[u32],
    of: &[Of],
    on_exec: bool,
    rng: &mut SmallRng,
) -> Result<(Vec<CpuSampler>, Vec<Choice>)> {
    let nominal = nominal(args, set);
    let mut samplers = Vec::new();
    for &cpu in everywhere {
        let unit = set.units.iter().find(|u| u.cpus.contains(&cpu));
        let what = match unit.and_then(|u| u.events.first()) {
            Some(event) => What::Samples {
                event,
                period: periods::first(args.method, nominal, rng),
                precision: sampler::precision(&event.pmu),
            },
            None => What::Mappings,
        };
        samplers.push(CpuSampler::open(cpu, of, on_exec, what)?);
    }
    let events = set
        .units
        .iter()
        .flat_map(|u| u.events.first().map(|e| (u, e)));
    let choice = |(unit, event): (&Unit, &Event)| Choice {
        event: event.name.clone(),
        pmu: unit.pmu.clone(),
        period: nominal,
        method: args.method,
        precision: sampler::precision(&unit.pmu),
    };
    Ok((samplers, events.map(choice).collect()))
}
