//! What is simulated: applications with their phases, arrivals and affinities.

use crate::error::SimError;
use amp_eval::workload::{Phase, Schedule, Workload};
use amp_metrics::Nanos;

/// An application of a simulated mix.
#[derive(Clone, Debug, PartialEq)]
pub struct SimApp {
    /// Label; unique in the scenario.
    pub name: String,
    /// Threads, ≥ 1.
    pub threads: u32,
    /// Scheduling weight of each thread, ≥ 1; 100 = default.
    pub weight: u32,
    /// Instructions from start to completion, > 0.
    pub instructions: f64,
    /// Its phases; the list repeats until `instructions` are done. At least one.
    pub phases: Vec<Phase>,
    /// CPUs that its threads may use; any when `None`.
    pub affinity: Option<Vec<u32>>,
    /// Time of the first start.
    pub arrival: Nanos,
    /// When it is killed, not to be started again; never when `None`.
    pub departure: Option<Nanos>,
    /// Whether it is started again, as a new process, when it completes.
    pub restart: bool,
}

impl SimApp {
    /// A steady single-threaded application, for experiments: one phase with these speeds
    /// (instructions per second).
    pub fn steady(name: &str, instructions: f64, ips_big: f64, ips_small: f64) -> SimApp {
        SimApp {
            name: name.to_owned(),
            threads: 1,
            weight: 100,
            instructions,
            phases: vec![Phase {
                instructions,
                ips_big,
                ips_small,
                power_big: None,
                power_small: None,
                parallel: true,
                schedule: Schedule::Static,
                loops: 1,
                sleep: 0.0,
                cache: None,
            }],
            affinity: None,
            arrival: Nanos::ZERO,
            departure: None,
            restart: true,
        }
    }
}

/// The applications of `workload`, all arriving at time 0 and restarting.
///
/// # Errors
/// When an application has no phases: the error names it.
pub fn apps_of(workload: &Workload) -> Result<Vec<SimApp>, SimError> {
    let app = |a: &amp_eval::workload::App| match a.instructions {
        Some(instructions) if !a.phases.is_empty() => Ok(SimApp {
            name: a.name.clone(),
            threads: a.threads,
            weight: a.weight,
            instructions,
            phases: a.phases.clone(),
            affinity: None,
            arrival: Nanos::ZERO,
            departure: None,
            restart: true,
        }),
        _ => Err(SimError::NoPhases {
            workload: workload.name.clone(),
            app: a.name.clone(),
        }),
    };
    workload.apps.iter().map(app).collect()
}

/// Checks what [`Workload`] would have checked had the application come from a file, and what the
/// machine adds.
pub(crate) fn check(app: &SimApp, cpus: &[u32]) -> Result<(), SimError> {
    let bad = |what: String| {
        Err(SimError::App {
            app: app.name.clone(),
            what,
        })
    };
    let positive = |x: f64| x.is_finite() && x > 0.0;
    if app.threads == 0 || app.weight == 0 {
        return bad("threads and weight must be at least 1".into());
    }
    if !positive(app.instructions) || app.phases.is_empty() {
        return bad("it needs a positive number of instructions and at least one phase".into());
    }
    for p in &app.phases {
        if ![p.instructions, p.ips_big, p.ips_small]
            .into_iter()
            .all(positive)
        {
            return bad("instructions and ips of each phase must be finite and above 0".into());
        }
        if p.loops == 0 {
            return bad("a phase has at least one loop".into());
        }
        if !(p.sleep.is_finite() && p.sleep >= 0.0) {
            return bad("sleep of each phase must be finite and not negative".into());
        }
        let fits = |c: amp_eval::workload::CacheUse| {
            positive(c.kib) && c.loss.is_finite() && c.loss >= 1.0
        };
        if !p.cache.is_none_or(fits) {
            return bad("a phase's cache has a positive size and a loss of at least 1".into());
        }
        let watts = |w: Option<f64>| w.is_none_or(|w| w.is_finite() && w >= 0.0);
        if !(watts(p.power_big) && watts(p.power_small)) {
            return bad("power of each phase must be finite and not negative".into());
        }
    }
    if let Some(list) = &app.affinity {
        if let Some(cpu) = list.iter().find(|c| !cpus.contains(c)) {
            return bad(format!(
                "its affinity names CPU {cpu}, which the machine does not have"
            ));
        }
        if list.is_empty() {
            return bad("its affinity admits no CPU".into());
        }
    }
    if app.departure.is_some_and(|d| d <= app.arrival) {
        return bad("its departure must come after its arrival".into());
    }
    Ok(())
}
