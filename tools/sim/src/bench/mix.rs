//! One run of a mix.

use super::BenchOptions;
use crate::error::SimError;
use crate::machine::{AppStats, Discipline, MachineOptions, SimMachine};
use crate::scenario::SimApp;
use amp_eval::evaluation::{AppRun, Timeline, TimelineEntry, Unfinished};
use amp_eval::lab::RunRecord;
use amp_eval::solos::SoloTimes;
use amp_machine::MachineFile;
use amp_metrics::{Nanos, MAX_CORE_TYPES};
use amp_sched::{Engine, Machine};
use std::sync::atomic::{AtomicBool, Ordering};

/// Another number for each (seed, run, purpose), far from its neighbours (the finalizer of
/// SplitMix64).
pub(super) fn derive(seed: u64, run: u32, purpose: u64) -> u64 {
    let mut z = seed ^ (u64::from(run) << 32 | purpose).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Runs `apps` once on `machine` under `policy` (`eevdf`: the baseline) until each that restarts
/// has completed as often as `options` says. `run` (from 1) chooses start order and noise; every
/// policy meets the same start order. `solos` are the applications alone, as far as they are known:
/// what the pass that the end cuts off is worth ([`amp_eval::evaluation::Progress`]).
///
/// # Errors
/// When an input is not right, the run does not end within the limit, or `cancel` is set.
pub fn run_mix(
    apps: &[SimApp],
    machine: &MachineFile,
    policy: &str,
    options: &BenchOptions,
    run: u32,
    solos: &[SoloTimes],
    cancel: &AtomicBool,
) -> Result<RunRecord, SimError> {
    let (sim, swaps, timeline) =
        run_watched(apps, machine, policy, options, run, cancel, &mut |_| ())?;
    Ok(record(&sim, apps, solos, swaps, timeline))
}

/// A run that was simulated to its end: the machine, the threads that changed places (none for the
/// baseline), and who was where.
type Ended = (SimMachine, Option<u64>, Vec<TimelineEntry>);

/// As [`run_mix`]; calls `look` whenever the engine is about to look.
pub(super) fn run_watched(
    apps: &[SimApp],
    machine: &MachineFile,
    policy: &str,
    options: &BenchOptions,
    run: u32,
    cancel: &AtomicBool,
    look: &mut dyn FnMut(&SimMachine),
) -> Result<Ended, SimError> {
    let made = options.make_policy(policy, derive(options.seed, run, 1))?;
    let discipline = if made.is_some() {
        Discipline::Placed
    } else {
        Discipline::Fair
    };
    let parameters = MachineOptions {
        discipline,
        completions: options.completions,
        ..options.machine
    };
    let mut sim = SimMachine::new(machine, apps, parameters, derive(options.seed, run, 0))?;
    let mut engine = match made {
        None => None,
        Some(p) => {
            let provider = options
                .provider_for(policy)
                .make(&mut sim, derive(options.seed, run, 2))?;
            let mut engine = Engine::new(sim.topology().clone(), p, provider);
            engine.set_knobs(options.settings.engine());
            Some(engine)
        }
    };
    let labels: Vec<&str> = apps.iter().map(|a| a.name.as_str()).collect();
    let types = sim.topology().core_types().len();
    let mut timeline = Timeline::new(&labels, types, Nanos::ZERO);
    let mut ticks = 0;
    let mut seen = vec![[Nanos::ZERO; MAX_CORE_TYPES]; apps.len()];
    let mut slice = sim.now();
    loop {
        let now = sim.now();
        let due = engine.as_ref().map(|e| e.due(options.interval));
        let due = due.filter(|d| *d > now).unwrap_or(now + options.interval);
        sim.run_until_or(due, |sim| {
            cancel.load(Ordering::Relaxed) || ticks + sim.stats().events > options.most_events
        });
        look(&sim);
        let over = sim.is_over();
        if !over {
            if cancel.load(Ordering::Relaxed) {
                return Err(SimError::Interrupted);
            }
            ticks += 1;
            if sim.now() > options.limit || ticks + sim.stats().events > options.most_events {
                return Err(endless(&sim, apps, options));
            }
        }
        let glanced = match &mut engine {
            Some(engine) if !over => engine.call(&mut sim, options.interval)?.is_none(),
            _ => false,
        };
        if glanced {
            continue;
        }
        for (i, seen) in seen.iter_mut().enumerate() {
            let Some(stats) = sim.app_stats(i) else {
                continue;
            };
            let mut ran = stats.runtime;
            for (r, s) in ran.iter_mut().zip(seen.iter()) {
                *r = r.saturating_sub(*s);
            }
            *seen = stats.runtime;
            timeline.record(i, sim.now(), sim.now().saturating_sub(slice), &ran);
        }
        slice = sim.now();
        if over {
            break;
        }
    }
    let swaps = engine.as_ref().map(|e| e.totals().swaps);
    Ok((sim, swaps, timeline.entries()))
}

/// What the machine did.
fn record(
    sim: &SimMachine,
    apps: &[SimApp],
    solos: &[SoloTimes],
    swaps: Option<u64>,
    timeline: Vec<TimelineEntry>,
) -> RunRecord {
    let types = sim.topology().core_types().len();
    let stats: Vec<&AppStats> = (0..apps.len()).filter_map(|i| sim.app_stats(i)).collect();
    let course = |app: usize| solos.get(app).and_then(|s| s.progress.as_ref());
    let app = |(i, (s, app)): (usize, (&&AppStats, &SimApp))| AppRun {
        completions_s: s.completions.iter().map(|c| c.as_secs_f64()).collect(),
        unfinished: {
            let passes = s.instructions.iter().sum::<f64>() / app.instructions;
            let begun = passes - s.completions.len() as f64;
            Unfinished::exactly(course(i).map_or(begun, |c| c.time(begun)))
        },
        time_s: s.runtime[..types].iter().map(|t| t.as_secs_f64()).collect(),
    };
    let busy: Option<f64> = stats.iter().map(|s| s.energy_j).sum();
    RunRecord {
        apps: stats.iter().zip(apps).enumerate().map(app).collect(),
        duration_s: sim.now().as_secs_f64(),
        energy_j: busy.map(|e| e + sim.stats().idle_energy_j),
        instructions: Some(stats.iter().flat_map(|s| s.instructions).sum()),
        swaps,
        timeline,
    }
}

fn endless(sim: &SimMachine, apps: &[SimApp], options: &BenchOptions) -> SimError {
    let short = |(i, a): (usize, &SimApp)| {
        let done = sim.app_stats(i).map_or(0, |s| s.completions.len());
        (done < options.completions).then(|| format!("{} ({done})", a.name))
    };
    let short: Vec<String> = apps.iter().enumerate().filter_map(short).collect();
    let in_time = sim.now() <= options.limit;
    SimError::Endless {
        after_s: sim.now().min(options.limit).as_secs_f64(),
        events: match in_time {
            true => format!(" and {} events", options.most_events),
            false => String::new(),
        },
        needed: options.completions,
        short: short.join(", "),
    }
}
