//! Policies side by side over a folder of mixes:
//! `cargo run --release -p amp-sim --example compare -- quickia tools/workloads/mixes/quickia hsp,rr,acfs [sigma] [runs]`.

use amp_machine::MachineFile;
use amp_sched::workload::Workload;
use amp_sim::bench::{bench, BenchOptions};
use amp_sim::ProviderSpec;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [machine, mixes, policies, rest @ ..] = &args[..] else {
        return Err(
            "usage: compare MACHINE FOLDER|MIX.toml POLICIES [SIGMA|average] [RUNS]".into(),
        );
    };
    let machine = MachineFile::load(machine)?;
    let policies: Vec<&str> = policies.split(',').collect();
    let mut options = BenchOptions {
        runs: 3,
        ..BenchOptions::default()
    };
    match rest.first().map(String::as_str) {
        Some("average") => options.provider = ProviderSpec::Average,
        Some(sigma) => {
            options.provider = ProviderSpec::Exact {
                sigma: sigma.parse()?,
                latency: 1,
            };
        }
        None => {}
    }
    if let Some(runs) = rest.get(1) {
        options.runs = runs.parse()?;
    }
    println!(
        "{:<18}{:<8}{:>8}{:>12}{:>12}{:>9}",
        "mix", "policy", "ASP", "unfairness", "EDP", "swaps/s"
    );
    let mut sums = vec![(0.0, 0.0, 0.0); policies.len()];
    let files = files(Path::new(mixes))?;
    for file in &files {
        let workload = Workload::load(file)?;
        let go = &mut |_: amp_sim::bench::Step<'_>| ControlFlow::Continue(());
        let report = bench(&workload, &machine, &policies, &options, go)?;
        for (r, sum) in report.results.iter().zip(&mut sums) {
            let edp = r.edp.map(|e| e.value);
            println!(
                "{:<18}{:<8}{:>8.3}{:>12.4}{:>12.3e}{:>9.2}",
                report.workload,
                r.policy,
                r.asp.value,
                r.unfairness.value,
                edp.unwrap_or(f64::NAN),
                r.swaps_per_s.unwrap_or(0.0)
            );
            sum.0 += r.asp.value;
            sum.1 += r.unfairness.value;
            sum.2 += edp.unwrap_or(f64::NAN);
        }
    }
    let n = files.len() as f64;
    for (p, (asp, unfairness, edp)) in policies.iter().zip(sums) {
        println!(
            "{:<18}{p:<8}{:>8.3}{:>12.4}{:>12.3e}",
            "mean",
            asp / n,
            unfairness / n,
            edp / n
        );
    }
    Ok(())
}

fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.into()]);
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(path)?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    Ok(files)
}
