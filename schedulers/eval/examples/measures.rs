//! The same runs by several measures of aggregate speedup: `measures REPORT.json...` prints a line
//! per contender of each report (the JSON of `bench`, or a job of a campaign).
//!
//! - *instructions*: by work, where the pass that the end of a run cut off counts by the
//!   instructions that it retired. This is the headline of `bench` wherever instructions are counted.
//! - *time*: by work, where it counts by the CPU time on each core type: what a host without an
//!   instruction counter has. Nothing of it depends on counters.
//! - *geometric*: from the geometric mean of each run's completion times, averaged over runs
//!   [PMCTrack eq. 1].
//! - *pooled*: the geometric mean over the completions of all runs together, without the pass that
//!   was cut off. `bench` had this until 2026-11-22. It is kept here alone, to read older tables.

use amp_eval::evaluation::{evaluate, AppResult, AppRun, AppSpec, BenchReport, PolicyResult};
use amp_eval::evaluation::{Run, RunResult, Solo, Unfinished, WorkFrom};
use amp_metrics::uncertainty::Measured;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        return Err("usage: measures REPORT.json...".into());
    }
    println!(
        "{:<18} {:<14} {:>4} {:>15} {:>15} {:>15} {:>7}",
        "mix", "contender", "runs", "instructions", "time", "geometric", "pooled"
    );
    for file in &files {
        let json = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
        let bench: BenchReport = serde_json::from_str(&json).map_err(|e| format!("{file}: {e}"))?;
        for result in &bench.results {
            let by_time = by_time(result).map_err(|e| format!("{file}: {e}"))?;
            println!(
                "{:<18} {:<14} {:>4} {:>15} {:>15} {:>15} {:>7.3}",
                bench.workload,
                result.policy,
                result.runs.len(),
                shown(counted(result).then_some(result.asp)),
                shown(by_time),
                shown(result.asp_gm),
                pooled(result),
            );
        }
    }
    Ok(())
}

/// Whether the headline counts unfinished passes by instructions.
fn counted(result: &PolicyResult) -> bool {
    result.work_from == Some(WorkFrom::Instructions)
}

/// `2.31 ± 0.04`, or `–` where nothing is known.
fn shown(m: Option<Measured>) -> String {
    let Some(m) = m else { return "–".to_owned() };
    let u = m.u.map_or("?".to_owned(), |u| format!("{u:.3}"));
    format!("{:.3} ± {u}", m.value)
}

/// ASP by work, each unfinished pass by its CPU time; `None` where the report does not have that.
fn by_time(result: &PolicyResult) -> Result<Option<Measured>, Box<dyn Error>> {
    let share = |app: &AppResult, run: usize| {
        let of = match counted(result) {
            true => &app.unfinished_by_time,
            false => &app.unfinished_share,
        };
        of.get(run).copied()
    };
    let run = |(r, of): (usize, &RunResult)| {
        let app = |a: &AppResult| {
            let unfinished = Unfinished {
                by_instructions: None,
                by_time: Some(share(a, r)?),
            };
            Some(AppRun {
                completions_s: a.completions_s.get(r)?.clone(),
                unfinished,
                time_s: Vec::new(),
            })
        };
        let apps: Option<Vec<AppRun>> = result.apps.iter().map(app).collect();
        apps.map(|apps| Run {
            apps,
            duration_s: of.duration_s,
            ..Run::default()
        })
    };
    let runs: Option<Vec<Run>> = result.runs.iter().enumerate().map(run).collect();
    let Some(runs) = runs else { return Ok(None) };
    let specs = result.apps.iter().map(|a| AppSpec {
        name: a.name.clone(),
        weight: a.weight,
    });
    let specs: Vec<AppSpec> = specs.collect();
    let solos = result.apps.iter().map(|a| Solo {
        slow_s: vec![a.ct_slow_s],
        fast_s: vec![a.ct_fast_s],
    });
    let solos: Vec<Solo> = solos.collect();
    let from = WorkFrom::Time;
    Ok(Some(
        evaluate(&result.policy, &specs, &solos, &runs, from)?.asp,
    ))
}

/// ASP from the geometric mean of all completions of all runs.
fn pooled(result: &PolicyResult) -> f64 {
    let gain = |app: &AppResult| {
        let all: Vec<f64> = app.completions_s.iter().flatten().copied().collect();
        let mean_log = all.iter().map(|t| t.ln()).sum::<f64>() / all.len() as f64;
        app.ct_slow_s / mean_log.exp() - 1.0
    };
    result.apps.iter().map(gain).sum()
}
