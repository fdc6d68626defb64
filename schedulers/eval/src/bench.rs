//! The bench: one protocol for every laboratory [PMCTrack §4; TR5028].
//!
//! ```text
//! every program alone, on each core type                      (kept times are used where there are enough)
//! run 1: policy A, policy B, …   run 2: policy A, policy B, …   by turns, so that a drift meets all alike
//! evaluate, steady-state prediction, timeline of the first run
//! ```
//!
//! In a run of the mix all programs start together, in an order that is drawn anew for each run and
//! the same for every policy; a program that ends is started again, until each has completed often
//! enough.

use crate::contender::Contender;
use crate::evaluation::{
    evaluate, oracle, AppSpec, BenchReport, Environment, EvaluationError, FailedContender,
    MachineFacts, PinnedFacts, PolicyResult, Progress, Run, Solo, WorkFrom,
};
use crate::lab::{Cores, Lab, MixSpec, RunRecord};
use crate::solos::{KeepError, SoloCache, SoloTimes};
use crate::workload::Workload;
use amp_metrics::uncertainty::Measured;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::SeedableRng;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

pub mod pinned;
mod runs;

use pinned::Placement;
pub use runs::{NoRuns, Runs};

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The mix.
    pub workload: &'a Workload,
    /// What is to be compared, each once; the baseline may be among them.
    pub policies: &'a [Contender],
    /// Runs of the mix per policy.
    pub runs: Runs,
    /// Runs of each program alone, on each core type, ≥ 1.
    pub solo_runs: u32,
    /// Completions of every program that end a run of the mix, ≥ 1.
    pub completions: usize,
    /// Seed of the start orders.
    pub seed: u64,
}

/// What the bench is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// Steps that are done.
    pub done: u64,
    /// Steps in all, as far as that is known: it may grow.
    pub total: u64,
    /// The step that begins.
    pub what: What<'a>,
}

/// A step of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A program alone.
    Alone {
        /// Its label.
        app: &'a str,
        /// Where.
        cores: Cores,
    },
    /// A run of the mix with a placement by pinned threads, to find the best one.
    Pinned {
        /// Number of the placement, from 1.
        placement: usize,
        /// Placements of this round.
        of: usize,
        /// Number of the round, from 1: in the first one all are tried, in the others the best ones.
        round: usize,
    },
    /// A run of the mix.
    Mix {
        /// Under this policy, or another contender.
        policy: &'a Contender,
        /// Number of the run, from 1.
        run: u32,
        /// Runs of this policy, as far as that is known.
        runs: u32,
    },
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Alone { app, cores } => write!(f, "{app} alone, {cores}"),
            What::Pinned {
                placement,
                of,
                round: 1,
            } => write!(f, "pinned, placement {placement} of {of}"),
            What::Pinned {
                placement,
                of,
                round,
            } => write!(
                f,
                "pinned, placement {placement} of the best {of}, run {round}"
            ),
            What::Mix { policy, run, runs } => write!(f, "{policy}, run {run} of {runs}"),
        }
    }
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum BenchError<E: fmt::Debug + fmt::Display> {
    /// The plan makes no sense.
    #[error("{0}")]
    Plan(&'static str),
    /// Somebody wants it to stop.
    #[error("interrupted")]
    Interrupted,
    /// The laboratory cannot do what is asked for.
    #[error("{0}")]
    Lab(E),
    /// A program alone failed.
    #[error("application `{app}` alone on {cores}: {error}")]
    Alone {
        /// Its label.
        app: String,
        /// Where it ran.
        cores: Cores,
        /// What happened.
        error: E,
    },
    /// A run of the mix failed.
    #[error("policy `{policy}`, run {run}: {error}")]
    Mix {
        /// The policy.
        policy: String,
        /// Number of the run, from 1.
        run: u32,
        /// What happened.
        error: E,
    },
    /// The runs cannot be evaluated.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// What was measured alone cannot be kept.
    #[error(transparent)]
    Keep(#[from] KeepError),
}

/// Hears of every step before it is taken, and may stop the bench.
pub type Watch<'a> = dyn FnMut(Step<'_>) -> ControlFlow<()> + 'a;

/// Runs the whole protocol in `lab`. `kept` has times of programs alone from earlier benches and
/// takes those of this one. The bench stops when `watch` breaks off or `cancel` is set.
///
/// A report's timeline is that of each policy's first run: run 1 begins after the shortest time, so
/// the machine has drifted least, and every laboratory shows the same run.
///
/// # Errors
/// When the plan makes no sense, something fails in the laboratory (the error names the program, or
/// policy and run), or the bench is stopped ([`BenchError::Interrupted`]).
pub fn bench<L: Lab>(
    plan: &Plan<'_>,
    lab: &mut L,
    kept: &mut SoloCache,
    watch: &mut Watch<'_>,
    cancel: &AtomicBool,
) -> Result<BenchReport, BenchError<L::Error>> {
    plan.check().map_err(BenchError::Plan)?;
    lab.prepare(plan).map_err(BenchError::Lab)?;
    let mut bench = Bench {
        plan,
        lab,
        watch,
        cancel,
        done: 0,
        total: 0,
    };
    let solos = bench.solos(kept)?;
    let facts = bench.lab.facts(plan);
    let pinned = match plan.policies.contains(&Contender::Pinned) {
        true => Some(bench.best_pinned(&facts.machine, &solos)?),
        false => None,
    };
    let mixes = bench.mixes(&solos, pinned.as_ref())?;
    // one account of unfinished passes for the whole table
    let from = work_from(mixes.iter().flatten().flatten());
    let measured = plan.policies.iter().zip(&mixes);
    let results = measured.clone().filter_map(|(policy, mixes)| {
        let records = mixes.as_ref().ok()?;
        Some((policy, policy.to_string(), records))
    });
    let results = results.map(|(policy, name, records)| {
        let mut result = figures(plan, &name, records, &solos, from)?;
        result.scheduler = bench.lab.scheduler(policy);
        if *policy == Contender::Pinned {
            result.pinned = pinned
                .as_ref()
                .map(|p| p.facts(plan.workload, &facts.machine));
        }
        let sf: Option<Vec<f64>> = solos.iter().map(SoloTimes::speedup).collect();
        result.oracle = sf.and_then(|sf| oracle::of_mix(&name, plan.workload, &sf, &facts.machine));
        Ok(result)
    });
    let results = results.collect::<Result<_, EvaluationError>>()?;
    Ok(BenchReport {
        workload: plan.workload.name.clone(),
        machine: facts.machine,
        on: facts.on,
        provider: facts.provider,
        environment: Environment {
            seed: Some(plan.seed),
            ..facts.environment
        },
        results,
        failed: measured
            .filter_map(|(policy, mixes)| {
                let (run, why) = mixes.as_ref().err()?;
                Some(FailedContender {
                    policy: policy.to_string(),
                    run: *run,
                    why: why.clone(),
                    scheduler: bench.lab.scheduler(policy),
                })
            })
            .collect(),
    })
}

impl Plan<'_> {
    fn check(&self) -> Result<(), &'static str> {
        if self.policies.is_empty() {
            return Err("no policy is named");
        }
        if self.runs == Runs::Exactly(0) || self.completions == 0 || self.solo_runs == 0 {
            return Err("at least one run and one completion are needed");
        }
        Ok(())
    }
}

/// The runs under one contender, or the run in which it failed and why.
type Mixes = Result<Vec<RunRecord>, (u32, String)>;

/// A bench at work.
struct Bench<'a, 'b, L> {
    plan: &'a Plan<'a>,
    lab: &'a mut L,
    watch: &'a mut Watch<'b>,
    cancel: &'a AtomicBool,
    done: u64,
    total: u64,
}

impl<L: Lab> Bench<'_, '_, L> {
    /// Announces a step.
    fn begin(&mut self, what: What<'_>) -> Result<(), BenchError<L::Error>> {
        let step = Step {
            done: self.done,
            total: self.total,
            what,
        };
        self.done += 1;
        if (self.watch)(step).is_break() || self.cancel.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        Ok(())
    }

    /// What a failed run means: nothing more than an interruption when there is one.
    fn failed(&self, error: BenchError<L::Error>) -> BenchError<L::Error> {
        match self.cancel.load(Ordering::Relaxed) {
            true => BenchError::Interrupted,
            false => error,
        }
    }

    /// The cores that programs run on alone: those of each core type.
    fn cores_alone(&self) -> Vec<Cores> {
        let types = self.lab.facts(self.plan).machine.core_types.len();
        let between = (1..types.saturating_sub(1)).map(Cores::Between);
        [Cores::Slow, Cores::Fast]
            .into_iter()
            .chain(between)
            .collect()
    }

    /// How often each program runs alone on each of them.
    fn solo_runs(&self) -> usize {
        match self.lab.repeatable() {
            true => 1,
            false => self.plan.solo_runs as usize,
        }
    }

    /// Whether a policy ranks by efficiency factors, and the laboratory can tell them.
    fn wants_efficiency(&self) -> bool {
        let ranks = |p: &Contender| {
            let mut entries = amp_sched::policy::registry::ENTRIES.iter();
            let entry = entries.find(|e| p.policy() == Some(e.name));
            entry.is_some_and(|e| e.needs.contains("EF"))
        };
        self.lab.tells_energy() && self.plan.policies.iter().any(ranks)
    }

    /// Every program alone.
    fn solos(&mut self, kept: &mut SoloCache) -> Result<Vec<SoloTimes>, BenchError<L::Error>> {
        let wanted = self.solo_runs();
        let efficiency = self.wants_efficiency();
        let cores = self.cores_alone();
        let between = cores.len() - 2;
        let enough = |t: &&SoloTimes| {
            let all = |slow: &[f64], fast: &[f64], others: &[Vec<f64>]| {
                let others = others.len() == between && others.iter().all(|o| o.len() >= wanted);
                slow.len() >= wanted && fast.len() >= wanted && others
            };
            let energies = !efficiency || all(&t.slow_j, &t.fast_j, &t.between_j);
            all(&t.slow_s, &t.fast_s, &t.between_s) && energies
        };
        let keys: Vec<Option<String>> = (0..self.plan.workload.apps.len())
            .map(|app| self.lab.key(app))
            .collect();
        let known = |kept: &SoloCache, key: &Option<String>| {
            let times = key.as_deref().and_then(|k| kept.get(k));
            times.filter(enough).cloned()
        };
        let missing = keys.iter().filter(|k| known(kept, k).is_none()).count();
        let planned = |p: &Contender| u64::from(self.plan.runs.planned(p.is_kernel(), None));
        let mixes: u64 = self.plan.policies.iter().map(planned).sum();
        self.total = (missing * wanted * cores.len()) as u64 + mixes;
        let mut out = Vec::with_capacity(keys.len());
        for (app, key) in keys.into_iter().enumerate() {
            // looked up again: a program that is in the mix twice has just been measured
            if let Some(times) = known(kept, &key) {
                out.push(times);
                continue;
            }
            let times = self.alone(app, &cores)?;
            if let Some(key) = key {
                kept.put(key, times.clone())?;
            }
            out.push(times);
        }
        Ok(out)
    }

    /// One program alone.
    fn alone(&mut self, app: usize, cores: &[Cores]) -> Result<SoloTimes, BenchError<L::Error>> {
        let app_spec = &self.plan.workload.apps[app];
        let name = &app_spec.name;
        let mut times = SoloTimes {
            name: name.clone(),
            command: app_spec.command.clone(),
            between_s: vec![Vec::new(); cores.len() - 2],
            between_j: vec![Vec::new(); cores.len() - 2],
            ..SoloTimes::default()
        };
        let (mut instructions, mut courses) = (Vec::new(), Vec::new());
        for _ in 0..self.solo_runs() {
            for &cores in cores {
                self.begin(What::Alone { app: name, cores })?;
                let record = self.lab.alone(app, cores, self.cancel).map_err(|error| {
                    self.failed(BenchError::Alone {
                        app: name.clone(),
                        cores,
                        error,
                    })
                })?;
                instructions.extend(record.instructions);
                match cores {
                    Cores::Slow => {
                        times.slow_s.push(record.took_s);
                        times.slow_j.extend(record.energy_j);
                        courses.extend(record.progress);
                    }
                    Cores::Fast => {
                        times.fast_s.push(record.took_s);
                        times.fast_j.extend(record.energy_j);
                    }
                    Cores::Between(t) => {
                        times.between_s[t - 1].push(record.took_s);
                        times.between_j[t - 1].extend(record.energy_j);
                    }
                }
            }
        }
        if self.lab.repeatable() {
            let ends = [&mut times.slow_s, &mut times.fast_s];
            let energies = [&mut times.slow_j, &mut times.fast_j];
            let between = times.between_s.iter_mut().chain(&mut times.between_j);
            for all in ends.into_iter().chain(energies).chain(between) {
                all.extend_from_within(..);
            }
        }
        times.instructions = Measured::mean(&instructions).map(|m| m.value);
        times.progress = Progress::mean(&courses);
        Ok(times)
    }

    /// Tries every placement by pinned threads, where there are few, and the best ones again; chooses by
    /// speedup factors where there are many.
    fn best_pinned(
        &mut self,
        machine: &MachineFacts,
        solos: &[SoloTimes],
    ) -> Result<Best, BenchError<L::Error>> {
        let plan = self.plan;
        let Some(all) = pinned::placements(plan.workload, machine, pinned::MOST) else {
            let sf: Vec<Vec<f64>> = solos.iter().filter_map(SoloTimes::speedups).collect();
            return Ok(Best {
                placement: pinned::by_speedup(plan.workload, machine, &sf),
                trials: Vec::new(),
            });
        };
        let in_finals = pinned::finalists(all.len());
        self.total += pinned::trial_runs(all.len()) as u64;
        let mut trials: Vec<Trial> = all.into_iter().map(Trial::of).collect();
        let mut order: Vec<usize> = (0..plan.workload.apps.len()).collect();
        let mut rng = SmallRng::seed_from_u64(plan.seed);
        for round in 0..=pinned::FINALS {
            let of = match round {
                0 => trials.len(),
                _ => in_finals,
            };
            for (i, trial) in trials.iter_mut().take(of).enumerate() {
                self.begin(What::Pinned {
                    placement: i + 1,
                    of,
                    round: round + 1,
                })?;
                let run = round as u32 + 1;
                let asp = self.pinned_asp(&trial.placement, run, &order, solos)?;
                trial.asp.push(asp);
            }
            if round == 0 {
                trials.sort_by(|a, b| b.mean().total_cmp(&a.mean()));
            }
            order.shuffle(&mut rng);
        }
        let finals = &trials[..in_finals.max(1).min(trials.len())];
        let best = finals.iter().max_by(|a, b| a.mean().total_cmp(&b.mean()));
        Ok(Best {
            // there is always one: every program on the last core type, if nowhere else
            placement: best.map(|t| t.placement.clone()).unwrap_or_default(),
            trials,
        })
    }

    /// ASP of run number `run` of the mix with `placement`, its programs started in `order`.
    fn pinned_asp(
        &mut self,
        placement: &Placement,
        run: u32,
        order: &[usize],
        solos: &[SoloTimes],
    ) -> Result<f64, BenchError<L::Error>> {
        let policy = &Contender::Pinned;
        let spec = MixSpec {
            policy,
            run,
            order,
            pinned: Some(placement),
            completions: self.plan.completions,
            solos,
        };
        let record = self.lab.mix(&spec, self.cancel).map_err(|error| {
            self.failed(BenchError::Mix {
                policy: policy.to_string(),
                run,
                error,
            })
        })?;
        let from = work_from([&record]);
        let figures = figures(self.plan, &policy.to_string(), &[record], solos, from)?;
        Ok(figures.asp.value)
    }

    /// The mix under each contender by turns, as long as there is one that needs more runs: per
    /// contender its runs, or the run in which it failed and why. It is left out of later runs then.
    fn mixes(
        &mut self,
        solos: &[SoloTimes],
        pinned: Option<&Best>,
    ) -> Result<Vec<Mixes>, BenchError<L::Error>> {
        let plan = self.plan;
        let mut rng = SmallRng::seed_from_u64(plan.seed);
        let mut out: Vec<Mixes> = plan.policies.iter().map(|_| Ok(Vec::new())).collect();
        let first = |p: &Contender| plan.runs.planned(p.is_kernel(), None);
        let mut planned: Vec<u32> = plan.policies.iter().map(first).collect();
        for run in 1.. {
            if planned.iter().all(|p| run > *p) {
                break;
            }
            let mut order: Vec<usize> = (0..plan.workload.apps.len()).collect();
            order.shuffle(&mut rng);
            let contenders = plan.policies.iter().zip(&mut out).zip(&mut planned);
            for ((policy, mixes), planned) in contenders {
                if run > *planned {
                    continue;
                }
                let Ok(records) = mixes else {
                    self.done += 1;
                    continue;
                };
                self.begin(What::Mix {
                    policy,
                    run,
                    runs: *planned,
                })?;
                let spec = MixSpec {
                    policy,
                    run,
                    order: &order,
                    pinned: match policy {
                        Contender::Pinned => pinned.map(|p| &p.placement[..]),
                        _ => None,
                    },
                    completions: plan.completions,
                    solos,
                };
                match self.lab.mix(&spec, self.cancel) {
                    Ok(record) => {
                        records.push(record);
                        let from = work_from(records.iter());
                        let so_far = figures(plan, &policy.to_string(), records, solos, from)?;
                        let more = plan.runs.planned(policy.is_kernel(), Some(&so_far));
                        self.total += u64::from(more.saturating_sub(*planned));
                        *planned = more;
                    }
                    Err(error) => match L::gave_up(&error) {
                        Some(why) if !self.cancel.load(Ordering::Relaxed) => {
                            *mixes = Err((run, why));
                        }
                        _ => {
                            return Err(self.failed(BenchError::Mix {
                                policy: policy.to_string(),
                                run,
                                error,
                            }))
                        }
                    },
                }
            }
        }
        Ok(out)
    }
}

/// A placement by pinned threads and the ASP of each run of it.
struct Trial {
    placement: Placement,
    asp: Vec<f64>,
}

impl Trial {
    fn of(placement: Placement) -> Trial {
        let asp = Vec::new();
        Trial { placement, asp }
    }

    fn mean(&self) -> f64 {
        self.asp.iter().sum::<f64>() / self.asp.len().max(1) as f64
    }
}

/// The best placement by pinned threads, and all that were tried.
struct Best {
    placement: Placement,
    trials: Vec<Trial>,
}

impl Best {
    fn facts(&self, workload: &Workload, machine: &MachineFacts) -> PinnedFacts {
        let apps = workload.apps.iter().zip(&self.placement);
        let named = |t: &Option<usize>| t.map_or("any".to_owned(), |t| machine.core_type_name(t));
        let best = self.trials.iter().find(|t| t.placement == self.placement);
        let worst = self.trials.iter().map(Trial::mean).reduce(f64::min);
        PinnedFacts {
            placement: apps.map(|(a, t)| (a.name.clone(), named(t))).collect(),
            tried: self.trials.len(),
            runs_of_best: best.map_or(0, |t| t.asp.len()),
            asp_of_best_and_worst: best.map(Trial::mean).zip(worst),
        }
    }
}

/// The account of unfinished passes that all of these runs have.
fn work_from<'a>(runs: impl IntoIterator<Item = &'a RunRecord>) -> WorkFrom {
    let from = runs.into_iter().map(|r| r.as_run(None).work_from());
    from.max().unwrap_or(WorkFrom::Time)
}

/// The figures of a policy.
fn figures(
    plan: &Plan<'_>,
    policy: &str,
    records: &[RunRecord],
    solos: &[SoloTimes],
    from: WorkFrom,
) -> Result<PolicyResult, EvaluationError> {
    let specs = plan.workload.apps.iter().map(|a| AppSpec {
        name: a.name.clone(),
        weight: a.weight,
    });
    let specs: Vec<AppSpec> = specs.collect();
    let times: Vec<Solo> = solos.iter().map(SoloTimes::times).collect();
    let once: Option<f64> = solos.iter().map(|s| s.instructions).sum();
    let runs: Vec<Run> = records.iter().map(|r| r.as_run(once)).collect();
    let mut result = evaluate(policy, &specs, &times, &runs, from)?;
    result.timeline = records
        .first()
        .map_or_else(Vec::new, |r| r.timeline.clone());
    Ok(result)
}

#[cfg(test)]
mod tests;
