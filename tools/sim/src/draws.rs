//! A bench of a workload that is not known for certain: the whole protocol for each of several
//! workloads that it may be, and one report of them all.

use crate::bench::{BenchOptions, SimLab};
use crate::error::SimError;
use amp_eval::evaluation::{AppResult, BenchReport, PolicyResult};
use amp_eval::solos::SoloCache;
use amp_eval::workload::Workload;
use amp_eval::{Contender, Watch};
use amp_machine::MachineFile;
use amp_metrics::uncertainty::Measured;
use std::sync::atomic::AtomicBool;

/// Benches every one of `draws`, which have the same applications, and puts the results together.
///
/// A figure is the mean over the draws. Its uncertainty is that of the runs, and with it how much
/// the draws differ: more draws do not make that smaller, for only one of them is the truth.
///
/// # Errors
/// As a bench; when there is no draw.
pub fn bench(
    draws: &[Workload],
    machine: &MachineFile,
    options: &BenchOptions,
    policies: &[Contender],
    watch: &mut Watch<'_>,
    cancel: &AtomicBool,
) -> Result<BenchReport, SimError> {
    let mut reports = Vec::with_capacity(draws.len());
    for (i, draw) in draws.iter().enumerate() {
        let options = BenchOptions {
            // other start orders, too
            seed: options.seed.wrapping_add(i as u64),
            ..options.clone()
        };
        let mut lab = SimLab::new(draw, machine, &options)?;
        let plan = options.plan(draw, policies);
        let kept = &mut SoloCache::default();
        reports.push(amp_eval::bench(&plan, &mut lab, kept, watch, cancel)?);
    }
    let mut all = reports.first().cloned().ok_or_else(|| {
        SimError::Parameter("there is no workload to bench: at least one draw is needed".into())
    })?;
    all.environment.seed = Some(options.seed);
    for (i, result) in all.results.iter_mut().enumerate() {
        let of: Vec<&PolicyResult> = reports.iter().filter_map(|r| r.results.get(i)).collect();
        pool(result, &of);
    }
    Ok(all)
}

/// Makes of `result` that of all draws; its timeline is the first one's.
fn pool(result: &mut PolicyResult, draws: &[&PolicyResult]) {
    if draws.len() < 2 {
        return;
    }
    let known = |of: &dyn Fn(&PolicyResult) -> Option<Measured>| {
        let all: Option<Vec<Measured>> = draws.iter().map(|d| of(d)).collect();
        all.and_then(|all| over(&all))
    };
    result.asp = known(&|d| Some(d.asp)).unwrap_or(result.asp);
    result.unfairness = known(&|d| Some(d.unfairness)).unwrap_or(result.unfairness);
    result.asp_gm = known(&|d| d.asp_gm);
    result.stp = known(&|d| d.stp);
    result.edp = known(&|d| d.edp);
    result.edp_by_work = known(&|d| d.edp_by_work);
    result.energy_j = known(&|d| d.energy_j);
    result.figures = std::mem::take(&mut result.figures)
        .into_keys()
        .filter_map(|key| Some((key.clone(), known(&|d| d.figures.get(&key).copied())?)))
        .collect();
    let swaps: Option<Vec<f64>> = draws.iter().map(|d| d.swaps_per_s).collect();
    result.swaps_per_s = swaps.map(|s| s.iter().sum::<f64>() / s.len() as f64);
    result.runs = draws.iter().flat_map(|d| d.runs.iter().cloned()).collect();
    // the steady state of one draw is not that of the others
    result.oracle = None;
    for (i, app) in result.apps.iter_mut().enumerate() {
        let of: Vec<&AppResult> = draws.iter().filter_map(|d| d.apps.get(i)).collect();
        pool_app(app, &of);
    }
}

fn pool_app(app: &mut AppResult, draws: &[&AppResult]) {
    let known = |of: fn(&AppResult) -> (f64, Option<f64>)| {
        let all: Vec<Measured> = draws
            .iter()
            .map(|d| of(d))
            .map(|(value, u)| Measured { value, u })
            .collect();
        over(&all).map_or((f64::NAN, None), |m| (m.value, m.u))
    };
    (app.ct_slow_s, app.ct_slow_u) = known(|a| (a.ct_slow_s, a.ct_slow_u));
    (app.ct_fast_s, app.ct_fast_u) = known(|a| (a.ct_fast_s, a.ct_fast_u));
    (app.ct_sched_s, app.ct_sched_u) = known(|a| (a.ct_sched_s, a.ct_sched_u));
    (app.slowdown, app.slowdown_u) = known(|a| (a.slowdown, a.slowdown_u));
    (app.speedup, app.speedup_u) = known(|a| (a.speedup, a.speedup_u));
    let shares: Option<Vec<f64>> = draws.iter().map(|d| d.big_time_share).collect();
    app.big_time_share = shares.map(|s| s.iter().sum::<f64>() / s.len() as f64);
    let all = || draws.iter();
    app.completions_s = all()
        .flat_map(|d| d.completions_s.iter().cloned())
        .collect();
    app.unfinished_share = all()
        .flat_map(|d| d.unfinished_share.iter().copied())
        .collect();
    app.unfinished_by_time = all()
        .flat_map(|d| d.unfinished_by_time.iter().copied())
        .collect();
}

/// The mean of a figure over draws, D in number. Its variance is s²·(1 + 1/D), s being the standard
/// deviation from draw to draw: that of the truth around the mean, and of the mean itself. The
/// scatter of the runs is in s.
fn over(draws: &[Measured]) -> Option<Measured> {
    let values: Vec<f64> = draws.iter().map(|m| m.value).collect();
    let mean = Measured::mean(&values)?;
    let d = values.len() as f64;
    Some(Measured {
        value: mean.value,
        // u of a mean is s/√D
        u: mean.u.map(|u| u * (d + 1.0).sqrt()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_that_differ_stay_uncertain_however_many_there_are() {
        let draws = |n: usize| -> Vec<Measured> {
            let value = |i| Measured::new(3.0 + (i % 2) as f64, 0.0);
            (0..n).map(value).collect()
        };
        let few = over(&draws(4)).unwrap();
        assert!((few.value - 3.5).abs() < 1e-12);
        // s² = 4·0.25/3
        assert!((few.u.unwrap() - (1.0f64 / 3.0 * 1.25).sqrt()).abs() < 1e-12);
        let many = over(&draws(400)).unwrap();
        assert!((many.u.unwrap() - 0.5).abs() < 0.01);
        assert_eq!(over(&draws(4)[..1]).unwrap().u, None);
    }

    #[test]
    fn further_figures_are_of_all_draws() {
        let draw = |antt: f64| -> PolicyResult {
            let m = |value: f64| serde_json::json!({"value": value, "u": null});
            serde_json::from_value(serde_json::json!({
                "policy": "rr", "asp": m(1.0), "unfairness": m(1.0), "apps": [],
                "figures": {"antt": m(antt)},
            }))
            .unwrap()
        };
        let (first, second) = (draw(1.0), draw(2.0));
        let mut all = first.clone();
        pool(&mut all, &[&first, &second]);
        assert_eq!(all.figures["antt"].value, 1.5);
    }
}
