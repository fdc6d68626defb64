//! The protocol's arithmetic [PMCTrack eq. 1-2, TR5028 eq. 1-2, MET].
//!
//! All applications of a mix start together, one that completes is restarted, and the run ends when
//! the longest has completed [`COMPLETIONS`] times. Runs of a dynamic scheduler are repeated in
//! shuffled start order.

use crate::evaluation::results::{AppResult, PolicyResult, RunResult};
use amp_metrics::uncertainty::Measured;
use serde::{Deserialize, Serialize};
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
    /// CPU time per core type, fastest first, in seconds; empty when nobody counted.
    #[serde(default)]
    pub time_s: Vec<f64>,
}

/// One run of the mix under a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The applications, in the order of the workload file.
    pub apps: Vec<AppRun>,
    /// Length of the run, in seconds.
    pub duration_s: f64,
    /// Energy that the machine used, in joules.
    #[serde(default)]
    pub energy_j: Option<f64>,
    /// Instructions that it retired.
    #[serde(default)]
    pub instructions: Option<f64>,
    /// Pairs of threads that changed places; none for the baseline.
    #[serde(default)]
    pub swaps: Option<u64>,
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
    slow: Measured,
    fast: Measured,
    sched: Measured,
    /// Geometric mean of each run.
    per_run: Vec<f64>,
    /// Arithmetic mean of each run.
    mean_per_run: Vec<f64>,
}

/// The figures of `policy` from the applications' solo times and the runs of the mix.
///
/// CT_slow, CT_fast and CT_sched are geometric means over all completions. ASP = Σ(CT_slow/CT_sched
/// − 1) and unfairness = max/min of W·CT_sched/CT_fast [PMCTrack eq. 1-2] follow from them. Their
/// uncertainty is propagated from that of the times; with two or more runs the part of the mix is
/// taken from the scatter of the runs' own figures instead, because within a run one application's
/// luck is another's misfortune. It is unknown when any input has a single observation.
///
/// The geometric mean counts completions, not time: a program that completes often on a fast core
/// and seldom on a slow one looks faster by it than the work it gets done.
/// [`PolicyResult::asp_by_work`] is the ASP of the latter.
///
/// # Errors
/// When times are missing or not positive; the error names the application.
pub fn evaluate(
    policy: &str,
    apps: &[AppSpec],
    solos: &[Solo],
    runs: &[Run],
) -> Result<PolicyResult, EvaluationError> {
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
            let duration_s = run.duration_s;
            let policy = policy.to_owned();
            return Err(EvaluationError::Duration {
                policy,
                run: i + 1,
                duration_s,
            });
        }
    }
    let times: Vec<Times> = (0..apps.len())
        .map(|i| sum_up(&apps[i].name, &solos[i], runs, i))
        .collect::<Result<_, _>>()?;

    let weights: Vec<f64> = apps.iter().map(|a| f64::from(a.weight) / 100.0).collect();
    let pooled = figures(&times, &weights, |t| t.sched);
    let of_runs = |of: fn(&Times) -> &[f64]| -> Vec<(f64, f64)> {
        let of_run = |r: usize| figures(&times, &weights, |t| Measured::exact(of(t)[r]));
        let all = (0..runs.len()).map(of_run);
        all.map(|(asp, unfairness)| (asp.value, unfairness.value))
            .collect()
    };
    let per_run = of_runs(|t| &t.per_run);
    // the solos' part by propagation, the mix's from the scatter between runs
    let solo_only = figures(&times, &weights, |t| Measured::exact(t.sched.value));
    let scattered = |m: Measured, values: &[f64]| {
        m.with_further(Measured::mean(values).and_then(|mean| mean.u))
    };
    let (asps, unfairnesses): (Vec<f64>, Vec<f64>) = per_run.iter().copied().unzip();
    let (asp, unfairness) = if runs.len() >= 2 {
        (
            scattered(solo_only.0, &asps),
            scattered(solo_only.1, &unfairnesses),
        )
    } else {
        pooled
    };
    let by_work: Vec<f64> = of_runs(|t| &t.mean_per_run).iter().map(|r| r.0).collect();
    let asp_by_work = Measured::mean(&by_work).map(|mean| Measured {
        value: mean.value,
        u: scattered(solo_only.0, &by_work).u,
    });

    let edp = |r: &Run| match (r.energy_j, r.instructions) {
        (Some(e), Some(i)) if i > 0.0 => Some(e * r.duration_s / i),
        _ => None,
    };
    let all = |of: &dyn Fn(&Run) -> Option<f64>| {
        let values: Option<Vec<f64>> = runs.iter().map(of).collect();
        values.and_then(|v| Measured::mean(&v))
    };
    let duration: f64 = runs.iter().map(|r| r.duration_s).sum();
    let swaps: Option<u64> = runs.iter().map(|r| r.swaps).sum();
    let results = runs
        .iter()
        .zip(&per_run)
        .map(|(r, (asp, unfairness))| RunResult {
            asp: *asp,
            unfairness: *unfairness,
            edp: edp(r),
            duration_s: r.duration_s,
        });
    Ok(PolicyResult {
        scheduler: None,
        policy: policy.to_owned(),
        asp,
        asp_by_work,
        unfairness,
        unfairness_per_run: (runs.len() >= 2)
            .then(|| Measured::mean(&per_run.iter().map(|r| r.1).collect::<Vec<_>>()))
            .flatten(),
        edp: all(&edp),
        energy_j: all(&|r| r.energy_j),
        swaps_per_s: swaps.map(|s| s as f64 / duration),
        apps: (0..apps.len())
            .map(|i| app_result(&apps[i], &times[i], runs, i))
            .collect(),
        runs: results.collect(),
        oracle: None,
        timeline: Vec::new(),
    })
}

fn sum_up(name: &str, solo: &Solo, runs: &[Run], i: usize) -> Result<Times, EvaluationError> {
    let mean = |times: &[f64], what: &str| {
        Measured::geometric_mean(times).ok_or_else(|| EvaluationError::Times {
            app: name.to_owned(),
            what: what.to_owned(),
        })
    };
    let completions: Vec<&[f64]> = runs.iter().map(|r| &r.apps[i].completions_s[..]).collect();
    let (mut geometric, mut arithmetic) = (Vec::new(), Vec::new());
    for (r, c) in completions.iter().enumerate() {
        geometric.push(mean(c, &format!("run {} of the mix", r + 1))?.value);
        // there are times, and all are positive, or there would be no geometric mean
        arithmetic.push(c.iter().sum::<f64>() / c.len() as f64);
    }
    let bad = || EvaluationError::Times {
        app: name.to_owned(),
        what: "the mix".to_owned(),
    };
    Ok(Times {
        slow: mean(&solo.slow_s, "alone on slow cores")?,
        fast: mean(&solo.fast_s, "alone with fast cores")?,
        sched: Measured::geometric_mean_of_runs(&completions).ok_or_else(bad)?,
        per_run: geometric,
        mean_per_run: arithmetic,
    })
}

/// ASP and unfairness, with `sched` as completion time in the mix.
fn figures(
    times: &[Times],
    weights: &[f64],
    sched: impl Fn(&Times) -> Measured,
) -> (Measured, Measured) {
    let asp = times
        .iter()
        .map(|t| t.slow / sched(t) - Measured::exact(1.0))
        .sum();
    let slowdowns: Vec<Measured> = times
        .iter()
        .zip(weights)
        .map(|(t, w)| (sched(t) / t.fast).scale(*w))
        .collect();
    // Times are positive (sum_up) and weights too, so there is an extreme; a weight of 0 makes all
    // alike.
    let unfairness = Measured::max_over_min(&slowdowns).unwrap_or(Measured::single(1.0));
    (asp, unfairness)
}

fn app_result(app: &AppSpec, t: &Times, runs: &[Run], i: usize) -> AppResult {
    let slowdown = t.sched / t.fast;
    let speedup = t.slow / t.sched;
    let counted: f64 = runs.iter().flat_map(|r| &r.apps[i].time_s).sum();
    let big: f64 = runs.iter().filter_map(|r| r.apps[i].time_s.first()).sum();
    AppResult {
        name: app.name.clone(),
        weight: app.weight,
        ct_slow_s: t.slow.value,
        ct_fast_s: t.fast.value,
        ct_sched_s: t.sched.value,
        slowdown: slowdown.value,
        speedup: speedup.value,
        ct_slow_u: t.slow.u,
        ct_fast_u: t.fast.u,
        ct_sched_u: t.sched.u,
        slowdown_u: slowdown.u,
        speedup_u: speedup.u,
        big_time_share: (counted > 0.0).then(|| big / counted),
        completions_s: runs
            .iter()
            .flat_map(|r| r.apps[i].completions_s.clone())
            .collect(),
    }
}

#[cfg(test)]
mod tests;
