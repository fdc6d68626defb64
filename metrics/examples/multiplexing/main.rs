//! How well totals are reconstructed when 8 events share 2, 3 or 4 counters.
//!
//! ```sh
//! cargo run --release -p amp-metrics --example multiplexing                  # synthetic programs
//! cargo run --release -p amp-metrics --example multiplexing -- run1.trace …  # recorded ones (format: multiplex::Trace)
//! cargo run --release -p amp-metrics --example multiplexing -- --save DIR    # writes the synthetic ones down
//! ```
//!
//! Each trace is counted under each strategy from several offsets (the windows rotated), as a run would begin at
//! another moment. The figure is the mean squared *relative* error of an event's total, (estimate/truth − 1)², averaged
//! over traces and offsets: relative, because a mean over events of the absolute one is that of cycles alone.

mod synth;

use amp_metrics::multiplex::{
    by_name, linear, phase_aware, PhaseDetector, PhaseRule, Plan, Trace, STRATEGIES,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Starts at which each trace is counted.
const OFFSETS: usize = 8;

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
    for counters in 2..=4 {
        println!("\n{} events on {counters} counters: mean squared relative error of totals (percent squared)", events.len());
        let mut columns: Vec<(String, Vec<f64>)> = Vec::new();
        for (name, _) in STRATEGIES {
            for aware in [false, true] {
                let label = format!("{name}{}", if aware { " + phases" } else { "" });
                columns.push((label, errors(&traces, counters, name, aware)?));
            }
        }
        print(&events, &columns);
    }
    println!("\nby kind of program, mean over events, 2 counters:");
    let mut kinds: BTreeMap<String, Vec<(String, Trace)>> = BTreeMap::new();
    for (name, t) in &traces {
        let kind = name.split('-').next().unwrap_or(name).to_owned();
        kinds
            .entry(kind)
            .or_default()
            .push((name.clone(), t.clone()));
    }
    for (kind, traces) in kinds {
        print!("{kind:12}");
        for (name, _) in STRATEGIES {
            for aware in [false, true] {
                let e = errors(&traces, 2, name, aware)?;
                print!("{:14.4}", mean(&e) * 1e4);
            }
        }
        println!();
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

/// Mean squared relative error per event.
fn errors(
    traces: &[(String, Trace)],
    counters: usize,
    strategy: &str,
    aware: bool,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let events = traces.first().map_or(0, |(_, t)| t.events.len());
    let (mut sum, mut n) = (vec![0.0; events], vec![0usize; events]);
    for (_, t) in traces {
        for offset in 0..OFFSETS {
            let mut t = t.clone();
            let shift = offset * t.windows.len() / OFFSETS;
            t.windows.rotate_left(shift);
            let sets = Plan::partition(events, counters);
            let mut s = by_name(strategy, sets.len())?;
            let plan = Plan::of(&t, sets, &mut *s);
            let totals = if aware {
                phase_aware(&t, &plan, &PhaseRule::default())
            } else {
                linear(&t, &plan)
            };
            for (e, estimate) in totals.into_iter().enumerate() {
                let truth = t.total(e);
                if let (Some(estimate), true) = (estimate, truth > 0.0) {
                    sum[e] += (estimate / truth - 1.0).powi(2);
                    n[e] += 1;
                }
            }
        }
    }
    Ok(sum
        .iter()
        .zip(n)
        .map(|(s, n)| s / n.max(1) as f64)
        .collect())
}

fn print(events: &[String], columns: &[(String, Vec<f64>)]) {
    print!("{:20}", "");
    for (label, _) in columns {
        print!("{label:>26}");
    }
    println!();
    let line = |name: &str, of: &dyn Fn(&[f64]) -> f64| {
        print!("{name:20}");
        let base = columns.first().map_or(f64::NAN, |(_, v)| of(v));
        for (i, (_, v)) in columns.iter().enumerate() {
            let x = of(v);
            match i {
                0 => print!("{:>26.4}", x * 1e4),
                _ => print!("{:>16.4} ({:>+5.1} %)", x * 1e4, (x / base - 1.0) * 100.0),
            }
        }
        println!();
    };
    for (e, name) in events.iter().enumerate() {
        line(name, &|v| v[e]);
    }
    line("mean", &mean);
}
