//! The same mixes on the board, on the simulator and by the analytic oracle, side by side.
//!
//! ```text
//! cargo run --release -p amp-tests --example board-sim-oracle -- measure DIR [MIX]…   measures on the board, keeps it in DIR
//! cargo run --release -p amp-tests --example board-sim-oracle -- show DIR         what DIR holds
//! ```
//!
//! The simulator gets each program as one steady phase of the speeds that the board measured of it
//! alone, and true speedup factors. What it leaves out is what the columns differ by: contention
//! for caches, start-up, the cost of scheduling.

use amp_eval::evaluation::{BenchReport, PolicyResult};
use amp_eval::report::measured;
use amp_eval::workload::{App, Workload};
use amp_metrics::uncertainty::Measured;
use amp_sim::alone::Alone;
use amp_sim::bench::{bench, BenchOptions};
use amp_tests::{command, repository};
use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Mixes that are measured, and the machine of each.
const MIXES: [(&str, &str); 5] = [
    ("juno-2h4l", "juno"),
    ("juno-real", "juno"),
    ("juno-contention", "juno"),
    ("quickia-2h2l", "quickia"),
    ("quickia-3h1l", "quickia"),
];

const POLICIES: &str = "eevdf,hsp,rr,acfs,eqp,pareto";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["show", dir] => show(Path::new(dir)),
        ["measure", dir, ref mixes @ ..] => {
            measure(Path::new(dir), mixes)?;
            show(Path::new(dir))
        }
        _ => Err("usage: board-sim-oracle show DIR | measure DIR [MIX]…".into()),
    }
}

fn measure(dir: &Path, mixes: &[&str]) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    for (mix, machine) in MIXES
        .iter()
        .filter(|(m, _)| mixes.is_empty() || mixes.contains(m))
    {
        eprintln!("{mix} on {machine}");
        let raw = tempfile::NamedTempFile::new()?;
        let workload = repository().join(format!("tools/workloads/mixes/{mix}.toml"));
        let out = command(&[
            "bench",
            &workload.display().to_string(),
            "--on=board",
            &format!("--machine={machine}"),
            &format!("--policies={POLICIES}"),
            &format!("--json={}", raw.path().display()),
        ]);
        if !out.status.success() {
            return Err(format!("{mix}: {}", String::from_utf8_lossy(&out.stderr)).into());
        }
        keep(&std::fs::read_to_string(raw.path())?, dir)?;
    }
    Ok(())
}

/// Keeps a report without what only a page of charts needs.
fn keep(report: &str, dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut report: BenchReport = serde_json::from_str(report)?;
    for r in &mut report.results {
        r.timeline.clear();
    }
    let path = dir.join(format!("{}.json", report.workload));
    std::fs::write(path, format!("{}\n", serde_json::to_string(&report)?))?;
    Ok(())
}

fn show(dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let board: BenchReport =
            serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        table(&board, &simulate(&board)?);
    }
    Ok(())
}

/// The mix of a report as the simulator takes it.
fn workload(board: &BenchReport) -> Result<Workload, Box<dyn Error>> {
    let apps = &board
        .results
        .first()
        .ok_or("a report without results")?
        .apps;
    let app = |a: &amp_eval::evaluation::AppResult| {
        let mut app = App {
            name: a.name.clone(),
            threads: 1,
            weight: a.weight,
            speedup: None,
            command: None,
            instructions: None,
            phases: Vec::new(),
        };
        Alone::of(a).give(&mut app);
        app
    };
    Ok(Workload {
        name: board.workload.clone(),
        machine: None,
        apps: apps.iter().map(app).collect(),
    })
}

fn simulate(board: &BenchReport) -> Result<BenchReport, Box<dyn Error>> {
    let machine = amp_machine::MachineFile::load(&board.machine.name)?;
    let policies: Vec<&str> = board.results.iter().map(|r| r.policy.as_str()).collect();
    let options = BenchOptions {
        provider_of: Vec::new(), // as on the board: true factors for everybody
        ..BenchOptions::default()
    };
    let go = &mut |_: amp_sim::bench::Step<'_>| ControlFlow::Continue(());
    Ok(bench(&workload(board)?, &machine, &policies, &options, go)?)
}

fn table(board: &BenchReport, sim: &BenchReport) {
    let known = |t: &Option<String>| t.clone().unwrap_or_else(|| "?".into());
    let runs = board.results.first().map_or(0, |r| r.runs.len());
    println!(
        "{} on {} ({} big, {} small): {runs} runs on the board, kernel {}, commit {}",
        board.workload,
        board.machine.name,
        board.machine.big,
        board.machine.small,
        known(&board.environment.kernel),
        known(&board.environment.commit),
    );
    if let Some(first) = board.results.first() {
        let sf = first
            .apps
            .iter()
            .map(|a| format!("{} {:.2}", a.name, a.ct_slow_s / a.ct_fast_s));
        println!("speedup factors: {}", sf.collect::<Vec<_>>().join(", "));
    }
    println!(
        "{:<8}{:>18}{:>18}{:>9}{:>20}{:>18}{:>9}",
        "policy", "ASP board", "sim", "oracle", "unfairness board", "sim", "oracle"
    );
    let unfair = |r: &PolicyResult| r.unfairness;
    let exact = |v: Option<f64>| v.map_or_else(|| "–".into(), |value| format!("{value:.3}"));
    let show = |m: Measured| measured(m);
    for (b, s) in board.results.iter().zip(&sim.results) {
        println!(
            "{:<8}{:>18}{:>18}{:>9}{:>20}{:>18}{:>9}",
            b.policy,
            show(b.asp),
            show(s.asp),
            exact(b.oracle.as_ref().map(|o| o.asp)),
            show(unfair(b)),
            show(unfair(s)),
            exact(b.oracle.as_ref().map(|o| o.unfairness)),
        );
    }
    println!();
}
