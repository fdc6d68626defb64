//! The protocol's arithmetic [PMCTrack eq. 1-2, TR5028 eq. 1-2, MET].
//!
//! All applications of a mix start together, one that completes is restarted, and the run ends when
//! the longest has completed [`COMPLETIONS`] times. Runs of a dynamic scheduler are repeated in
//! shuffled start order.
//!
//! ```text
//! passes of a run = completions + share of the pass that was cut off
//! CT of a run     = length of the run / passes                        (time per unit of work)
//! ASP             = mean over runs of Σ (CT_slow / CT − 1)
//! STP             = mean over runs of Σ CT_fast / CT
//! unfairness      = mean over runs of max(W·CT/CT_fast) / min(W·CT/CT_fast)
//! ```
//!
//! Nothing is pooled over runs: a policy that is unfair to another application in every run is
//! unfair, and an application that completes often in a lucky run does not count more in it.

use crate::evaluation::figures::{AppTimes, Made, FIGURES};
use crate::evaluation::passes::{Unfinished, WorkFrom};
use crate::evaluation::results::{AppResult, PolicyResult, RunResult};
use amp_metrics::uncertainty::Measured;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// Completions of the longest application after which a run ends.
pub const COMPLETIONS: usize = 3;

/// An application as the evaluation needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppSpec {
    /// Label.
    pub name: String,
    /// Weight, 100 = default.
    pub weight: u32,
}

/// Completion times of an application by itself, in seconds. Two or more of each give an
/// uncertainty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Solo {
    /// On slow cores only.
    pub slow_s: Vec<f64>,
    /// With all fast cores available.
    pub fast_s: Vec<f64>,
}

/// What an application did in one run of the mix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppRun {
    /// Its completion times, in seconds.
    pub completions_s: Vec<f64>,
    /// How far it was in the pass that the end of the run cut off.
    #[serde(default)]
    pub unfinished: Unfinished,
    /// CPU time per core type, fastest first, in seconds; empty when nobody counted.
    #[serde(default)]
    pub time_s: Vec<f64>,
}

impl AppRun {
    /// Passes through its work, the part of the unfinished one included.
    pub fn passes(&self, from: WorkFrom) -> f64 {
        self.completions_s.len() as f64 + self.unfinished.share(from)
    }
}

/// One run of the mix under a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The applications, in the order of the workload file.
    pub apps: Vec<AppRun>,
    /// Length of the run, in seconds.
    pub duration_s: f64,
    /// Energy of as many instructions as one completion of every program has, in joules.
    #[serde(default)]
    pub energy_j: Option<f64>,
    /// Energy that the machine used in the whole run, in joules.
    #[serde(default)]
    pub total_j: Option<f64>,
    /// Instructions that it retired.
    #[serde(default)]
    pub instructions: Option<f64>,
    /// Pairs of threads that changed places; none for the baseline.
    #[serde(default)]
    pub swaps: Option<u64>,
}

impl Run {
    /// What the work of its unfinished passes can be known from: instructions when they were
    /// counted for every application.
    pub fn work_from(&self) -> WorkFrom {
        let counted = |a: &AppRun| a.unfinished.by_instructions.is_some();
        match self.apps.iter().all(counted) {
            true => WorkFrom::Instructions,
            false => WorkFrom::Time,
        }
    }
}

/// Why there is no result.
#[derive(Debug, Error, PartialEq)]
pub enum EvaluationError {
    /// There is nothing to evaluate.
    #[error("policy `{0}`: no run of the mix was completed")]
    NoRun(String),
    /// Lists of different length.
    #[error(
        "policy `{policy}`: {apps} applications but {got} {what}: there must be one per application"
    )]
    Count {
        /// The policy.
        policy: String,
        /// Applications of the workload.
        apps: usize,
        /// Entries there are.
        got: usize,
        /// What the list holds.
        what: &'static str,
    },
    /// A time is missing or makes no sense.
    #[error("application `{app}`: {what}: at least one completion time above 0 s is needed, and no other")]
    Times {
        /// Label of the application.
        app: String,
        /// Which times.
        what: String,
    },
    /// The length of a run makes no sense.
    #[error("policy `{policy}`: run {run} took {duration_s} s: a time above 0 is needed")]
    Duration {
        /// The policy.
        policy: String,
        /// The run, from 1.
        run: usize,
        /// Its length.
        duration_s: f64,
    },
}

/// The completion times of one application, summed up.
struct Times {
    /// Alone: with several runs of the mix, a time that was measured once counts as exact.
    slow: Measured,
    fast: Measured,
    /// What the times alone are uncertain by, as far as that is known.
    alone_u: [Option<f64>; 2],
    weight: f64,
    /// Time per pass of each run.
    by_work: Vec<f64>,
    /// Geometric mean of the completion times of each run.
    geometric: Vec<f64>,
    /// Relative uncertainty of the time per pass within a single run.
    within: Option<f64>,
}

impl Times {
    /// Time per pass over all runs: the inverse of the mean rate.
    fn sched(&self) -> Measured {
        let rates: Vec<f64> = self.by_work.iter().map(|t| 1.0 / t).collect();
        match Measured::mean(&rates) {
            Some(rate) if rates.len() >= 2 => rate.powf(-1.0),
            _ => {
                let value = self.by_work.first().copied().unwrap_or(f64::NAN);
                Measured {
                    value,
                    u: self.within.map(|u| u * value),
                }
            }
        }
    }
}

/// A figure of a whole mix, from the times of its applications.
type Figure = fn(&[AppTimes]) -> Measured;

/// The times of all applications, those in the mix as `mix` has them.
fn of_apps(times: &[Times], mix: impl Fn(&Times) -> Measured) -> Vec<AppTimes> {
    let of = |t: &Times| AppTimes {
        slow: t.slow,
        fast: t.fast,
        mix: mix(t),
        weight: t.weight,
    };
    times.iter().map(of).collect()
}

/// The figures of `policy` from the applications' solo times and the runs of the mix; `from` says
/// which account of unfinished passes to use.
///
/// ASP, STP and unfairness are figures of each run by itself, by the work done over the whole run,
/// and averaged. Uncertainties of solo times are propagated; the part of the mix is the scatter of
/// the runs' own figures. With a single run it is that of its completion times, and unknown when
/// any input has a single observation. With several, times alone that were measured once are left out of
/// it; that their own uncertainty is unknown shows in [`AppResult::ct_slow_u`] and
/// [`AppResult::ct_fast_u`].
///
/// [`PolicyResult::asp_gm`] is the papers' aggregate speedup, from the geometric mean of a run's
/// completion times. A geometric mean counts passes and not time: a program that completes often on
/// a fast core and seldom on a slow one looks faster than its work is.
///
/// # Errors
/// When times are missing or not positive; the error names the application.
pub fn evaluate(
    policy: &str,
    apps: &[AppSpec],
    solos: &[Solo],
    runs: &[Run],
    from: WorkFrom,
) -> Result<PolicyResult, EvaluationError> {
    check(policy, apps, solos, runs)?;
    let times: Vec<Times> = (0..apps.len())
        .map(|i| sum_up(&apps[i], &solos[i], runs, i, from))
        .collect::<Result<_, _>>()?;

    // of a run: what it did, taken for exact, so that only the scatter between runs counts
    let in_run = |r: usize| of_apps(&times, |t| Measured::exact(t.by_work[r]));
    let in_runs: Vec<Vec<AppTimes>> = (0..runs.len()).map(in_run).collect();
    let in_all = of_apps(&times, Times::sched);
    let exact_in_all = of_apps(&times, |t| Measured::exact(t.sched().value));
    let averaged = |figure: Figure, of_runs: &[f64]| {
        let solo_part = figure(&exact_in_all);
        match Measured::mean(of_runs) {
            Some(mean) if of_runs.len() >= 2 => Measured {
                value: mean.value,
                u: solo_part.with_further(mean.u).u,
            },
            _ => figure(&in_all),
        }
    };
    let each = |figure: Figure| -> Vec<f64> { in_runs.iter().map(|r| figure(r).value).collect() };
    let (asps, stps, unfairnesses) = (each(asp), each(stp), each(unfairness));
    let geometric = |r: usize| asp(&of_apps(&times, |t| Measured::exact(t.geometric[r]))).value;
    let geometric: Vec<f64> = (0..runs.len()).map(geometric).collect();
    let asp_all = averaged(asp, &asps);
    let asp_gm = Measured::mean(&geometric).map(|mean| Measured {
        value: mean.value,
        u: match runs.len() {
            1 => asp_all.u,
            _ => asp(&exact_in_all).with_further(mean.u).u,
        },
    });

    let edp = |r: &Run| match (r.energy_j, r.instructions) {
        (Some(e), Some(i)) if i > 0.0 => Some(e * r.duration_s / i),
        _ => None,
    };
    // The part of a run's work that one completion of every program is, a program's work measured by
    // its time alone on slow cores.
    let once = |r: usize| {
        let slow: f64 = times.iter().map(|t| t.slow.value).sum();
        let speeds: f64 = times.iter().map(|t| t.slow.value / t.by_work[r]).sum();
        slow / (runs[r].duration_s * speeds)
    };
    let edps_by_work: Vec<Option<f64>> = (0..runs.len())
        .map(|r| Some(runs[r].total_j? * runs[r].duration_s * once(r).powi(2)))
        .collect();
    let mean = |values: Option<Vec<f64>>| values.and_then(|v| Measured::mean(&v));
    let all = |of: &dyn Fn(&Run) -> Option<f64>| mean(runs.iter().map(of).collect());
    let duration: f64 = runs.iter().map(|r| r.duration_s).sum();
    let swaps: Option<u64> = runs.iter().map(|r| r.swaps).sum();
    let mut figures = BTreeMap::new();
    let mut figures_of_runs = vec![BTreeMap::new(); runs.len()];
    for f in FIGURES {
        let (of_runs, of_all) = match f.made {
            Made::OfTimes(figure) => {
                let of_runs = each(figure);
                let of_all = averaged(figure, &of_runs);
                (of_runs, Some(of_all))
            }
            Made::OfRun(figure) => {
                let of_runs: Option<Vec<f64>> = runs.iter().map(figure).collect();
                (of_runs.clone().unwrap_or_default(), mean(of_runs))
            }
        };
        figures.extend(of_all.map(|all| (f.key.to_owned(), all)));
        for (figures, of_run) in figures_of_runs.iter_mut().zip(of_runs) {
            figures.insert(f.key.to_owned(), of_run);
        }
    }
    let results = runs
        .iter()
        .zip(figures_of_runs)
        .enumerate()
        .map(|(r, (run, figures))| RunResult {
            asp: asps[r],
            asp_gm: Some(geometric[r]),
            stp: Some(stps[r]),
            unfairness: unfairnesses[r],
            edp: edp(run),
            edp_by_work: edps_by_work[r],
            duration_s: run.duration_s,
            figures,
        });
    Ok(PolicyResult {
        policy: policy.to_owned(),
        scheduler: None,
        pinned: None,
        asp: asp_all,
        asp_gm,
        stp: Some(averaged(stp, &stps)),
        unfairness: averaged(unfairness, &unfairnesses),
        edp: all(&edp),
        edp_by_work: mean(edps_by_work.iter().copied().collect()),
        energy_j: all(&|r| r.energy_j),
        swaps_per_s: swaps.map(|s| s as f64 / duration),
        figures,
        work_from: Some(from),
        apps: (0..apps.len())
            .map(|i| app_result(&apps[i], &times[i], runs, i, from))
            .collect(),
        runs: results.collect(),
        oracle: None,
        timeline: Vec::new(),
    })
}

fn check(
    policy: &str,
    apps: &[AppSpec],
    solos: &[Solo],
    runs: &[Run],
) -> Result<(), EvaluationError> {
    if runs.is_empty() || apps.is_empty() {
        return Err(EvaluationError::NoRun(policy.to_owned()));
    }
    let same = |got: usize, what| match got == apps.len() {
        true => Ok(()),
        false => Err(EvaluationError::Count {
            policy: policy.to_owned(),
            apps: apps.len(),
            got,
            what,
        }),
    };
    same(solos.len(), "solo times")?;
    for (i, run) in runs.iter().enumerate() {
        same(run.apps.len(), "applications in a run")?;
        if !(run.duration_s.is_finite() && run.duration_s > 0.0) {
            return Err(EvaluationError::Duration {
                policy: policy.to_owned(),
                run: i + 1,
                duration_s: run.duration_s,
            });
        }
    }
    Ok(())
}

fn sum_up(
    app: &AppSpec,
    solo: &Solo,
    runs: &[Run],
    i: usize,
    from: WorkFrom,
) -> Result<Times, EvaluationError> {
    let mean = |times: &[f64], what: &str| {
        Measured::geometric_mean(times).ok_or_else(|| EvaluationError::Times {
            app: app.name.clone(),
            what: what.to_owned(),
        })
    };
    let (mut geometric, mut by_work) = (Vec::new(), Vec::new());
    for (r, run) in runs.iter().enumerate() {
        let a = &run.apps[i];
        geometric.push(mean(&a.completions_s, &format!("run {} of the mix", r + 1))?.value);
        // there is a completion, or there would be no geometric mean
        by_work.push(run.duration_s / a.passes(from));
    }
    let within = |r: &Run| Measured::mean(&r.apps[i].completions_s)?.relative();
    let slow = mean(&solo.slow_s, "alone on slow cores")?;
    let fast = mean(&solo.fast_s, "alone with fast cores")?;
    let known = |alone: Measured| match alone.u {
        None if runs.len() > 1 => Measured::exact(alone.value),
        _ => alone,
    };
    Ok(Times {
        slow: known(slow),
        fast: known(fast),
        alone_u: [slow.u, fast.u],
        weight: f64::from(app.weight) / 100.0,
        by_work,
        geometric,
        within: runs.first().and_then(within),
    })
}

fn asp(apps: &[AppTimes]) -> Measured {
    let gain = |a: &AppTimes| a.slow / a.mix - Measured::exact(1.0);
    apps.iter().map(gain).sum()
}

fn stp(apps: &[AppTimes]) -> Measured {
    apps.iter().map(|a| a.fast / a.mix).sum()
}

fn unfairness(apps: &[AppTimes]) -> Measured {
    let slowdowns = apps.iter().map(|a| (a.mix / a.fast).scale(a.weight));
    let slowdowns: Vec<Measured> = slowdowns.collect();
    // Times are positive (sum_up) and weights too, so there is an extreme; a weight of 0 makes all
    // alike.
    Measured::max_over_min(&slowdowns).unwrap_or(Measured::single(1.0))
}

fn app_result(app: &AppSpec, t: &Times, runs: &[Run], i: usize, from: WorkFrom) -> AppResult {
    let sched = t.sched();
    let (slowdown, speedup) = (sched / t.fast, t.slow / sched);
    let mine = || runs.iter().map(|r| &r.apps[i]);
    let counted: f64 = mine().flat_map(|a| &a.time_s).sum();
    let big: f64 = mine().filter_map(|a| a.time_s.first()).sum();
    AppResult {
        name: app.name.clone(),
        weight: app.weight,
        ct_slow_s: t.slow.value,
        ct_fast_s: t.fast.value,
        ct_sched_s: sched.value,
        slowdown: slowdown.value,
        speedup: speedup.value,
        ct_slow_u: t.alone_u[0],
        ct_fast_u: t.alone_u[1],
        ct_sched_u: sched.u,
        slowdown_u: slowdown.u,
        speedup_u: speedup.u,
        big_time_share: (counted > 0.0).then(|| big / counted),
        completions_s: mine().map(|a| a.completions_s.clone()).collect(),
        unfinished_share: mine().map(|a| a.unfinished.share(from)).collect(),
        unfinished_by_time: match from {
            // the other account beside it, where there are both
            WorkFrom::Instructions => mine().filter_map(|a| a.unfinished.by_time).collect(),
            WorkFrom::Time => Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests;
