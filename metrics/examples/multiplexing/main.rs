//! How well totals are reconstructed when 8 events share 2, 3 or 4 counters.
//!
//! ```sh
//! cargo run --release -p amp-metrics --example multiplexing                  # synthetic programs
//! cargo run --release -p amp-metrics --example multiplexing -- metrics/traces/*.trace   # recorded ones
//! cargo run --release -p amp-metrics --example multiplexing -- --save DIR    # writes the synthetic ones down
//! ```
//!
//! Each trace is counted under each strategy from several offsets (the windows rotated), as a run
//! would begin at another moment. The figure is the mean squared *relative* error of an event's
//! total, (estimate/truth − 1)², averaged over traces and offsets: relative, because a mean over
//! events of the absolute one is that of cycles alone.
//!
//! Events take turns in fixed sets, as a provider's do, or each for itself, as the kernel's do in
//! [ROC]: then a strategy chooses as many as there are counters. Changes against round-robin come
//! with their 95 % interval, from drawing programs with replacement (bootstrap): what other
//! programs would have given.

mod synth;

use amp_metrics::multiplex::{
    by_name, linear, phase_aware, scaled, PhaseDetector, PhaseRule, Plan, Trace, STRATEGIES,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::error::Error;
use std::path::Path;

/// Starts at which each trace is counted.
const OFFSETS: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() {
        detection();
    }
    let traces: Vec<(String, Trace)> = match args.as_slice() {
        [] => synth::programs(),
        [save, dir] if save == "--save" => {
            for (name, t) in synth::programs() {
                std::fs::write(Path::new(dir).join(format!("{name}.trace")), t.to_text())?;
            }
            return Ok(());
        }
        files => {
            let load = |f: &String| Ok((f.clone(), Trace::load(Path::new(f))?));
            files
                .iter()
                .map(load)
                .collect::<Result<_, Box<dyn Error>>>()?
        }
    };
    let events = traces
        .first()
        .map(|(_, t)| t.events.clone())
        .unwrap_or_default();
    println!(
        "{} traces, {} offsets each, events: {}",
        traces.len(),
        OFFSETS,
        events.join(", ")
    );
    for singly in [false, true] {
        let how = if singly { "each for itself" } else { "in sets" };
        for counters in 2..=4 {
            println!(
                "\n{} events {how} on {counters} counters: mean squared relative error of totals (percent squared)",
                events.len()
            );
            let mut columns: Vec<(String, Vec<Vec<f64>>)> = Vec::new();
            for (name, _) in STRATEGIES {
                for (filled, totals) in FILLED {
                    let errors = errors(&traces, counters, singly, name, *totals)?;
                    columns.push((format!("{name}, {filled}"), errors));
                }
            }
            print(&events, &traces, &columns);
        }
    }
    Ok(())
}

/// How well phase changes are found: programs of phases of at least three windows.
fn detection() {
    println!("\nphase changes (IPC quotient beyond 1.12/0.88): found within two samples; false alarms per sample");
    for confirm in [1, 2] {
        let rule = PhaseRule {
            confirm,
            ..PhaseRule::default()
        };
        let (mut visible, mut found, mut alarms, mut samples) = (0, 0, 0, 0);
        for seed in 0..40 {
            let (windows, changes) = synth::phases(seed, 20.0);
            let mut d = PhaseDetector::default();
            let hits: Vec<usize> = (0..windows.len())
                .filter(|w| d.step(windows[*w].ipc(), &rule))
                .collect();
            samples += windows.len();
            // a change that is hardly one may or may not be found: it is neither
            let near = |h: usize| changes.iter().any(|(at, _)| h >= *at && h <= at + 2);
            alarms += hits.iter().filter(|h| !near(**h)).count();
            for (at, quotient) in &changes {
                if quotient.max(1.0 / quotient) > 1.12 / 0.88 * 1.05 {
                    visible += 1;
                    found += usize::from(hits.iter().any(|h| *h >= *at && *h < at + 2));
                }
            }
        }
        println!(
            "confirm {confirm}: {found} of {visible} found, {alarms} false alarms in {samples} samples ({:.3} %)",
            100.0 * alarms as f64 / samples as f64
        );
    }
}

fn mean(v: &[f64]) -> f64 {
    v.iter().sum::<f64>() / v.len().max(1) as f64
}

/// Totals of all events from what was counted.
type Totals = fn(&Trace, &Plan) -> Vec<Option<f64>>;

/// Ways to fill in what was not counted.
const FILLED: &[(&str, Totals)] = &[
    ("scaled", scaled),
    ("lines", linear),
    ("phases", |t, p| phase_aware(t, p, &PhaseRule::default())),
];

/// Mean squared relative error by trace and event.
fn errors(
    traces: &[(String, Trace)],
    counters: usize,
    singly: bool,
    strategy: &str,
    totals: Totals,
) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
    let mut all = Vec::new();
    for (_, trace) in traces {
        let events = trace.events.len();
        let (mut sum, mut n) = (vec![0.0; events], vec![0usize; events]);
        for offset in 0..OFFSETS {
            let mut t = trace.clone();
            let shift = offset * t.windows.len() / OFFSETS;
            t.windows.rotate_left(shift);
            let plan = if singly {
                Plan::of_events(&t, counters, &mut *by_name(strategy, events)?)
            } else {
                let sets = Plan::partition(events, counters);
                Plan::of(&t, &sets, &mut *by_name(strategy, sets.len())?)
            };
            for (e, estimate) in totals(&t, &plan).into_iter().enumerate() {
                let truth = t.total(e);
                if let (Some(estimate), true) = (estimate, truth > 0.0) {
                    sum[e] += (estimate / truth - 1.0).powi(2);
                    n[e] += 1;
                }
            }
        }
        let mean = sum.iter().zip(n).map(|(s, n)| s / n.max(1) as f64);
        all.push(mean.collect());
    }
    Ok(all)
}

/// The 95 % interval of the change of the mean over programs and events, in percent: programs are
/// drawn with replacement.
fn interval(base: &[Vec<f64>], other: &[Vec<f64>]) -> (f64, f64) {
    let means = |v: &[Vec<f64>]| -> Vec<f64> { v.iter().map(|e| mean(e)).collect() };
    let (base, other) = (means(base), means(other));
    let mut rng = SmallRng::seed_from_u64(1);
    let mut changes: Vec<f64> = (0..4000)
        .map(|_| {
            let (mut b, mut o) = (0.0, 0.0);
            for _ in 0..base.len() {
                let i = rng.random_range(0..base.len());
                b += base[i];
                o += other[i];
            }
            (o / b - 1.0) * 100.0
        })
        .collect();
    changes.sort_by(f64::total_cmp);
    (changes[100], changes[3899])
}

fn print(events: &[String], traces: &[(String, Trace)], columns: &[(String, Vec<Vec<f64>>)]) {
    let Some((_, base)) = columns.iter().find(|(n, _)| n == "round-robin, lines") else {
        return;
    };
    println!(
        "{:28}{:>10}{:>34}  {:>10}  better in",
        "strategy, filled in by", "mean", "against round-robin, lines", "median"
    );
    let all = |v: &[Vec<f64>]| mean(&v.iter().map(|e| mean(e)).collect::<Vec<_>>());
    for (name, errors) in columns {
        let change = (all(errors) / all(base) - 1.0) * 100.0;
        let (low, high) = interval(base, errors);
        let mut ratios: Vec<f64> = base
            .iter()
            .zip(errors)
            .map(|(b, e)| (mean(e) / mean(b) - 1.0) * 100.0)
            .filter(|r| r.is_finite())
            .collect();
        ratios.sort_by(f64::total_cmp);
        let better = ratios.iter().filter(|r| **r < 0.0).count();
        println!(
            "{name:28}{:>10.4}{change:>+10.1} % ({low:>+7.1} to {high:>+7.1}) {:>+9.1} %  {better} of {}",
            all(errors) * 1e4,
            ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN),
            ratios.len()
        );
    }
    let lines: Vec<_> = columns
        .iter()
        .filter(|(n, _)| n.ends_with("lines"))
        .collect();
    print!("{:28}", "by event (lines)");
    for (name, _) in &lines {
        print!("{:>22}", name.trim_end_matches(", lines"));
    }
    println!();
    let row = |name: &str, of: &dyn Fn(&[Vec<f64>]) -> f64| {
        print!("  {name:26}");
        let first = lines.first().map_or(f64::NAN, |(_, v)| of(v));
        for (i, (_, v)) in lines.iter().enumerate() {
            match i {
                0 => print!("{:>22.4}", of(v) * 1e4),
                _ => print!(
                    "{:>10.4} ({:>+7.1} %)",
                    of(v) * 1e4,
                    (of(v) / first - 1.0) * 100.0
                ),
            }
        }
        println!();
    };
    for (e, name) in events.iter().enumerate() {
        row(name, &|v| mean(&v.iter().map(|t| t[e]).collect::<Vec<_>>()));
    }
    if traces.len() <= 20 {
        println!("by program (lines)");
        for (i, (name, _)) in traces.iter().enumerate() {
            let name = Path::new(name)
                .file_stem()
                .map_or(name.clone(), |n| n.to_string_lossy().into_owned());
            row(&name, &|v| mean(&v[i]));
        }
    }
}
