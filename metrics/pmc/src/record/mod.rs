//! `scx_amp pmc record`: where a program is when events happen.
//!
//! ```text
//! periods   how many events between two samples
//! source    what takes samples: counters, IBS, SPE
//! sampler   perf's ring buffers
//! aux       the second buffer, which hardware writes into
//! spe       Arm's sample records in it
//! branches  last-branch records, and what ran between them
//! maps      which file an address is from
//! profile   functions and blocks by their samples; blocks cuts code into them, executed counts how often they ran
//! ```

mod aux;
mod blocks;
mod branches;
mod executed;
mod maps;
mod output;
mod periods;
mod profile;
mod sampler;
mod source;
pub(crate) mod spe;

use super::inventory::CounterInventory;
use super::sets::{Set, Unit, USER_MODE_ONLY};
use super::target::{TargetArgs, LOOK};
use amp_host::bad_input;
use amp_metrics::pmu::DEVICES;
use amp_metrics::Event;
use anyhow::{Context, Result};
use clap::Args;
use maps::Maps;
use output::{Choice, Report, SpeLosses};
use periods::Method;
use profile::Samples;
use rand::rngs::SmallRng;
use rand::SeedableRng;
use sampler::{CpuSampler, Found, SampledTasks, What};
use source::{Plan, Source};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The event of whoever names none.
const CYCLES: &str = "cycles";
/// The same without a PMU.
const CLOCK: &str = "cpu-clock";
/// Events between two samples of cycles, instructions and clocks (which count nanoseconds): a
/// thousand samples a second and more on a fast core.
const FREQUENT: u64 = 1_000_000;
/// The same of IBS and SPE, which take powers of two.
const INSTRUCTIONS: u64 = 1 << 20;
/// Default period of any other event.
const RARE: u64 = 10_000;

/// Options of `scx_amp pmc record`.
///
/// With a command the exit status is the command's, 128 + signal when one ended it.
#[derive(Args, Debug)]
#[command(override_usage = "scx_amp pmc record [OPTIONS] [-a | -p PID | [--] COMMAND…]")]
pub struct RecordArgs {
    /// The event, as perf writes it; on each core type its own PMU counts it [default: cycles;
    /// without a PMU cpu-clock, in nanoseconds]. `ibs_op//` and `ibs_fetch//` (AMD) and `arm_spe_0//`
    /// (Arm) follow single instructions: experimental, never run on hardware
    #[arg(short = 'e', long = "event", value_name = "EVENT")]
    event: Option<String>,
    /// Events between two samples [default: 1000000 for cycles, instructions and clocks, 1048576 for
    /// IBS and SPE, else 10000]
    #[arg(short = 'c', long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(100..=1_000_000_000_000))]
    period: Option<u64>,
    /// How periods are chosen
    #[arg(long, value_enum, default_value_t = Method::Random)]
    method: Method,
    /// Seed of random periods
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Leave out last-branch records where the PMU keeps them
    #[arg(long)]
    no_branches: bool,
    #[command(flatten)]
    target: TargetArgs,
    /// Lines of each table
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Write JSON to FILE, or to standard output with `-`; the command's own output then goes to
    /// standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The command.
///
/// # Errors
/// Bad input ([`amp_host::BadInput`]), naming the event or process; others when sampling fails.
pub fn main(args: &RecordArgs, stop: &AtomicBool) -> Result<ExitCode> {
    args.target.check("sampled")?;
    super::stat::check_outputs(&[&args.json])?;
    let inventory = CounterInventory::detect()?;
    let event = match (&args.event, inventory.need_pmu()) {
        (Some(event), _) => event,
        (None, Ok(())) => CYCLES,
        (None, Err(why)) => {
            log::warn!("{why}. Samples are of `{CLOCK}` instead of `{CYCLES}`");
            CLOCK
        }
    };
    let mut set = Set::parse(&inventory, event)?;
    if !set.not_supported.is_empty() {
        let without = || format!("-e {event}: give a software event, such as `{CLOCK}`");
        inventory.need_pmu().with_context(without)?;
    }
    if !args.target.all_cpus && set.permitted() {
        log::warn!("{USER_MODE_ONLY}");
    }
    if set.units.iter().any(|u| u.events.len() > 1) {
        return Err(bad_input(format!("-e {event}: one event at a time")));
    }
    let devices = Path::new("/sys").join(DEVICES);
    let all = args.target.all_cpus;
    let plan = source::plan(&inventory.pmus, &mut set.units, &devices, args.period, all)?;
    let everywhere = inventory.all_cpus();
    for u in &mut set.units {
        if u.cpus.is_empty() {
            u.cpus.clone_from(&everywhere);
        }
    }
    let quiet = super::stat::is_to_stdout(&[&args.json]);
    let chosen = args.target.choose(quiet)?;
    let of: Vec<SampledTasks> = match args.target.all_cpus {
        true => vec![SampledTasks::Everybody],
        false => chosen.tids.iter().map(|t| SampledTasks::Task(*t)).collect(),
    };
    let mut maps = Maps::default();
    let mut rng = SmallRng::seed_from_u64(args.seed);
    let on_exec = chosen.on_exec();
    let (mut cpus, choices) = open(args, &set, plan, &everywhere, &of, on_exec, &mut rng)?;
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
    let nominal = nominal(args, &set, plan.source);
    let (mut samples, mut lost, mut throttled) = (Samples::default(), 0, 0);
    let mut spe = SpeLosses::default();
    let mut batch = Vec::new();
    loop {
        let last = watched.wait(Some(Instant::now() + LOOK))?;
        for c in &mut cpus {
            c.drain(|time, found| batch.push((time, found)))?;
            if args.method == Method::Random && !last {
                c.set_periods(|| periods::next(nominal, plan.periods, &mut rng))?;
            }
        }
        // CPUs tell of mappings and of samples in them in any order
        batch.sort_by_key(|(time, _)| *time);
        for (_, found) in batch.drain(..) {
            match found {
                Found::Sample {
                    ip,
                    pid,
                    period,
                    kernel,
                    branches,
                } => {
                    samples.runs.add(&branches, |a| maps.find(pid, a));
                    match kernel {
                        true => samples.kernel(ip, period),
                        false => samples.user(maps.find(pid, ip), period),
                    };
                }
                // the record does not have the period, which is on average the nominal one
                Found::Operation { pid, operation: o } => {
                    let at = match o.kernel {
                        true => samples.kernel(o.pc, nominal),
                        false => samples.user(maps.find(pid, o.pc), nominal),
                    };
                    at.note(o.events);
                }
                Found::Odd(n) => spe.odd += n,
                Found::Full => spe.full += 1,
                Found::Collided => spe.collided += 1,
                Found::Mapped(pid, m) => maps.add(pid, m),
                Found::Forked(pid, parent) => maps.fork(pid, parent),
                Found::Executed(pid) => maps.exec(pid),
                Found::Ended(pid) => maps.end(pid),
                Found::Lost(n) => lost += n,
                Found::Throttled => throttled += 1,
            }
        }
        maps.forget_ended(|pid| Path::new(&format!("/proc/{pid}")).exists());
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
        spe: (plan.source == Source::Spe).then_some(spe),
        profile: samples.profile(),
    };
    match &args.json {
        Some(path) => {
            let text = serde_json::to_string(&report)?;
            amp_host::write_out(path, &format!("{text}\n"))?;
        }
        None => super::stat::emit(&output::tables(&report, args.top))?,
    }
    watched.status()
}

fn nominal(args: &RecordArgs, set: &Set, source: Source) -> u64 {
    args.period.unwrap_or_else(|| {
        if source != Source::Counter {
            return INSTRUCTIONS;
        }
        let mut units = set.units.iter();
        // whatever cycles they are
        let clock = ["clock", "cycles"].iter().any(|c| set.text.contains(c));
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
    plan: Plan,
    everywhere: &[u32],
    of: &[SampledTasks],
    on_exec: bool,
    rng: &mut SmallRng,
) -> Result<(Vec<CpuSampler>, Vec<Choice>)> {
    let nominal = nominal(args, set, plan.source);
    let mut samplers = Vec::new();
    // why there are no last-branch records, by PMU
    let mut refused: BTreeMap<&str, String> = BTreeMap::new();
    for &cpu in everywhere {
        let unit = set.units.iter().find(|u| u.cpus.contains(&cpu));
        let Some((unit, event)) = unit.and_then(|u| Some((u, u.events.first()?))) else {
            samplers.push(CpuSampler::open(cpu, of, on_exec, What::Mappings)?);
            continue;
        };
        let period = periods::first(args.method, nominal, plan.periods, rng);
        let precision = sampler::asked(event, plan.source)?;
        let open = |branches| {
            let what = What::Samples {
                event,
                period,
                precision,
                source: plan.source,
                branches,
            };
            CpuSampler::open(cpu, of, on_exec, what)
        };
        let known = refused.get(unit.pmu.as_str());
        let ask = wanted(args, unit, plan.source).is_ok() && known.is_none();
        let (sampler, why) = with_or_without(ask, open)?;
        refused.extend(why.map(|why| (unit.pmu.as_str(), why)));
        samplers.push(sampler);
    }
    let events = set
        .units
        .iter()
        .flat_map(|u| u.events.first().map(|e| (u, e)));
    let choice = |(unit, event): (&Unit, &Event)| {
        let wanted = wanted(args, unit, plan.source);
        let refused = refused.get(unit.pmu.as_str());
        Choice {
            event: event.name.clone(),
            pmu: unit.pmu.clone(),
            period: nominal,
            method: args.method,
            source: plan.source,
            experimental: plan.source.is_experimental(),
            // bad input by now
            precision: sampler::asked(event, plan.source).unwrap_or_default(),
            branches: match refused {
                None => wanted.as_ref().copied().unwrap_or(0),
                Some(_) => 0,
            },
            no_branches: match refused {
                Some(why) => Some(format!("the kernel refuses them: {why}")),
                None => wanted.err().map(str::to_owned),
            },
        }
    };
    Ok((samplers, events.map(choice).collect()))
}

/// What is opened with last-branch records if they are `wanted`, and without them if not or if that
/// fails; why it did.
fn with_or_without<T>(
    wanted: bool,
    mut open: impl FnMut(bool) -> Result<T>,
) -> Result<(T, Option<String>)> {
    if !wanted {
        return Ok((open(false)?, None));
    }
    match open(true) {
        Ok(opened) => Ok((opened, None)),
        // there may be samples all the same
        Err(e) => Ok((open(false)?, Some(format!("{e:#}")))),
    }
}

/// How many last-branch records to ask the unit's PMU for; else why none.
fn wanted(args: &RecordArgs, unit: &Unit, source: Source) -> Result<u32, &'static str> {
    match branches::depth(&unit.pmu) {
        _ if args.no_branches => Err("not wanted"),
        _ if source == Source::Ibs => Err("IBS has none"),
        _ if source == Source::Spe => Err("SPE has none"),
        0 => Err("the PMU states none"),
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_what_the_kernel_refuses_there_are_samples_all_the_same() {
        let open = |can: &'static [bool]| {
            move |branches| match can.contains(&branches) {
                true => Ok(branches),
                false => Err(std::io::Error::from_raw_os_error(libc::EOPNOTSUPP).into()),
            }
        };
        let both = open(&[false, true]);
        assert_eq!(with_or_without(true, both).unwrap(), (true, None));
        assert_eq!(with_or_without(false, both).unwrap(), (false, None));
        let (got, why) = with_or_without(true, open(&[false])).unwrap();
        assert!(!got && why.unwrap().contains("not supported"));
        assert!(with_or_without(true, open(&[])).is_err());
    }

    /// Software events have no branches, on any kernel: the refusal is a real one.
    #[test]
    fn a_kernel_refuses_branches_of_a_software_event() {
        let event = amp_metrics::group::software(&"cpu-clock:u".parse().unwrap()).unwrap();
        let us = [SampledTasks::Task(std::process::id() as i32)];
        let open = |branches| {
            let what = What::Samples {
                event: &event,
                period: 1_000_000,
                precision: 0,
                source: Source::Counter,
                branches,
            };
            CpuSampler::open(0, &us, false, what)
        };
        match with_or_without(true, open) {
            Ok((_, why)) => {
                let why = why.expect("a refusal");
                assert!(why.contains("cpu-clock"), "{why}");
            }
            // a container without perf
            Err(e) => println!("not tried: {e:#}"),
        }
    }
}
