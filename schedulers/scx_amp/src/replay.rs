//! `scx_amp replay`: what other policies would have done with what was recorded.

use crate::bench::{show_all, Interrupted};
use amp_eval::evaluation::{BenchReport, PolicyResult};
use amp_eval::{Contender, Contenders, Runs, Step};
use amp_host::progress::Progress;
use amp_host::{bad_input, write_out};
use amp_metrics::uncertainty::Measured;
use amp_metrics::Nanos;
use amp_recording::replay::ReplayFacts;
use amp_recording::{trace, Recording, Replay};
use amp_sched::policy::Settings;
use amp_sim::bench::BenchOptions;
use amp_sim::{draws, SimError};
use anyhow::Result;
use clap::Args;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Options of `scx_amp replay`.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// What `scx_amp run --record FILE` wrote; FILE.1 is read with it
    #[arg(value_name = "FILE")]
    pub recording: PathBuf,
    /// Policies to compare, separated by commas [default: the recorded one, hsp, rr, acfs]
    #[arg(long, value_name = "LIST")]
    pub policies: Option<Contenders>,
    /// Set a knob of a policy (see `scx_amp help policy NAME`); may be repeated
    #[arg(long = "set", value_name = "[POLICY.]KNOB=VALUE")]
    pub settings: Vec<String>,
    /// Source of speedup factors of the simulated policies
    #[arg(long, default_value = "true", value_name = "NAME|FILE.toml")]
    pub provider: String,
    /// Workloads that are drawn where the recording does not know a speed
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u64).range(5..=100))]
    pub draws: u64,
    /// Runs of each policy in each draw, in different start orders
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub runs: u32,
    /// Seed of draws and start orders
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the results as JSON to FILE, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the results as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Simulate nothing; write placements, phases and factors as a trace that ui.perfetto.dev opens
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policies", "settings", "json", "html"])]
    pub perfetto: Option<PathBuf>,
}

fn export(recording: &Recording, path: &Path) -> Result<()> {
    let mut text = Vec::new();
    trace::write(recording, &mut text)?;
    write_out(path, &String::from_utf8(text)?)
}

/// Replays a recording and shows what came out.
///
/// # Errors
/// Bad input, a replay that does not end, or [`Interrupted`].
pub fn main(args: &ReplayArgs, cancel: &AtomicBool) -> Result<()> {
    let recording = Recording::load(&args.recording).map_err(bad_input)?;
    if let Some(path) = &args.perfetto {
        return export(&recording, path);
    }
    let replay = Replay::of(&recording).map_err(bad_input)?;
    let policies = policies(args, &recording.header.policy)?;
    let names = Contenders(policies.clone()).names();
    let options = BenchOptions {
        provider: crate::labs::sim::provider(&args.provider)?,
        provider_of: Vec::new(),
        settings: Settings::new(&args.settings, &names).map_err(bad_input)?,
        interval: Nanos(recording.header.interval_us.saturating_mul(1000)),
        seed: args.seed,
        runs: Runs::Exactly(args.runs),
        completions: 2,
        ..BenchOptions::default()
    };
    let certain = replay.is_certain();
    let drawn = replay.draws(if certain { 1 } else { args.draws as usize }, args.seed);
    let mut report = simulate(&replay, &drawn, &options, &policies, cancel)?;
    report.results.iter_mut().for_each(doubt);
    report.environment.kernel = recording.header.kernel.clone();
    report.environment.commit = Some(env!("SCX_AMP_COMMIT").into());
    let facts = serde_json::to_value(&replay.facts)?;
    report.environment.more.insert("replay".into(), facts);
    let drawn = serde_json::to_value(drawn.len())?;
    report.environment.more.insert("draws".into(), drawn);
    show(args, &replay, &report)
}

/// What replays were off by beside the board, besides what draws and runs differ by: standard uncertainties of a program's mean
/// speed and of the unfairness, relative to them (docs/evidence/simulator.md, "Beside the board").
const OFF: (f64, f64) = (0.09, 0.2);

/// Adds that to the uncertainties of a result. Figures of single programs have only what draws differ by.
fn doubt(result: &mut PolicyResult) {
    let n = result.apps.len() as f64;
    let wider = |m: &mut Measured, by: f64| m.u = Some(m.u.unwrap_or(0.0).hypot(by));
    for asp in std::iter::once(&mut result.asp).chain(&mut result.asp_gm) {
        // a sum of speeds over those of slow cores, less one for each program
        let speed = (asp.value + n).max(0.0);
        wider(asp, OFF.0 * speed);
    }
    if let Some(stp) = &mut result.stp {
        wider(stp, OFF.0 * stp.value);
    }
    let unfairness = result.unfairness.value;
    wider(&mut result.unfairness, OFF.1 * unfairness);
}

/// The policies to compare. The recorded one comes first: it is what the others are held against.
fn policies(args: &ReplayArgs, recorded: &str) -> Result<Vec<Contender>> {
    if let Some(asked) = &args.policies {
        for (i, name) in asked.0.iter().enumerate() {
            if asked.0[..i].contains(name) {
                return Err(bad_input(format!("--policies: `{name}` is named twice")));
            }
        }
        return Ok(asked.0.clone());
    }
    let mut out: Vec<Contender> = Vec::new();
    for name in [recorded, "hsp", "rr", "acfs"] {
        // a recording of a later version may name one that is not here
        let contender = name.parse::<Contender>().map_err(|e| {
            let path = args.recording.display();
            bad_input(format!(
                "{path}: line 1: key `policy`: {e}; name others with --policies"
            ))
        })?;
        if !out.contains(&contender) {
            out.push(contender);
        }
    }
    Ok(out)
}

fn simulate(
    replay: &Replay,
    drawn: &[amp_eval::workload::Workload],
    options: &BenchOptions,
    policies: &[Contender],
    cancel: &AtomicBool,
) -> Result<BenchReport> {
    let mut progress = Progress::bar();
    let mut announced = 0;
    let mut watch = |step: Step<'_>| {
        if step.done > 0 || announced > 0 {
            progress.end();
        }
        // every draw is a bench of its own, as long as the first
        let all = step.total * drawn.len() as u64;
        progress.expect(all.saturating_sub(announced));
        announced = announced.max(all);
        progress.begin(&step.what.to_string());
        ControlFlow::Continue(())
    };
    let report = draws::bench(
        drawn,
        &replay.machine,
        options,
        policies,
        &mut watch,
        cancel,
    );
    report.map_err(|e| {
        let endless = |e: &SimError| match e {
            SimError::Endless { .. } => true,
            SimError::Run { source, .. } => matches!(**source, SimError::Endless { .. }),
            _ => false,
        };
        match e {
            SimError::Interrupted => Interrupted.into(),
            e if endless(&e) => e.into(),
            e => bad_input(e),
        }
    })
}

fn show(args: &ReplayArgs, replay: &Replay, report: &BenchReport) -> Result<()> {
    let words = words(&replay.facts, replay.largest_factor(), report);
    // people read the page: what the JSON has as figures is there in words
    let mut readable = report.clone();
    let more = &mut readable.environment.more;
    more.insert("replay".into(), words.as_str().into());
    let (json, html) = (args.json.as_deref(), args.html.as_deref());
    show_all(report, &format!("{words}\n"), json, html, &readable)
}

/// What a replay rests on, in words.
fn words(facts: &ReplayFacts, largest: f64, report: &BenchReport) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let mut out = String::new();
    // writing to a text never fails
    let _ = writeln!(
        out,
        "{:.1} s recorded under {}{}, replayed on a simulated machine.",
        facts.recorded_s,
        facts.policy,
        if facts.policy_changed {
            " (changed meanwhile)"
        } else {
            ""
        },
    );
    for note in &facts.notes {
        let _ = writeln!(out, "Note: {note}.");
    }
    let unseen = facts.by_provider + facts.by_program + facts.unknown;
    let _ = writeln!(
        out,
        "{} of the work was seen on both core types. {} was not: {} by the provider's factors, {} by the program's other stretches, {} unknown.",
        percent(facts.counted_on_both),
        percent(unseen),
        percent(facts.by_provider),
        percent(facts.by_program),
        percent(facts.unknown),
    );
    if facts.unknown > 0.0 {
        let _ = writeln!(out, "Unknown factors are drawn between 1 and {largest:.1}.");
    }
    if facts.uncounted > 0.0 {
        let _ = writeln!(
            out,
            "{} of the work has no counted instructions: it is known by CPU time.",
            percent(facts.uncounted)
        );
    }
    if facts.left_out > 0 {
        let _ = writeln!(
            out,
            "Left out: {} programs with {:.1} % of the CPU time.",
            facts.left_out,
            100.0 * facts.left_out_share
        );
    }
    let _ = writeln!(
        out,
        "Sleep ({} of the programs' time) and contention for memory are taken as they were.",
        percent(facts.slept)
    );
    let _ = writeln!(
        out,
        "± has what draws and runs differ by, and what replays were off by beside the board: {} of speeds, {} of unfairness.",
        percent(OFF.0),
        percent(OFF.1)
    );
    let of = report.results.iter().find(|r| r.policy == facts.policy);
    if let Some(result) = of.filter(|_| !facts.policy_changed) {
        let longest = result.apps.iter().map(|a| a.ct_sched_s).sum::<f64>();
        let ratio = longest / (result.apps.len() as f64 * facts.recorded_s);
        let _ = writeln!(
            out,
            "Check: under {} the programs take {ratio:.2} of the recorded time.",
            facts.policy
        );
    }
    out
}
