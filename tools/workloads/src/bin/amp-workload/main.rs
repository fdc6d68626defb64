//! `amp-workload`: kernels whose behaviour is known, and micro-benchmarks of the scheduler.
//!
//! A static program for guests without a C library. `run` does a fixed amount of work of one kind,
//! `bench` measures what the scheduler costs, `list` says what there is.

mod bench;
mod blocks;
mod counters;
mod exact;
mod machine;
mod meter;
mod model;
mod pattern;
mod report;
mod run;
mod time;
mod window;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};

#[derive(Parser)]
#[command(name = "amp-workload", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Do a fixed amount of work of one kernel
    Run(run::Args),
    /// Run a program to its end and tell how long it took
    Time(time::Args),
    /// Measure what the scheduler costs
    Bench(bench::Args),
    /// Run a kernel of which every basic block is known, to hold profiles against
    Blocks(blocks::Args),
    /// Run a kernel whose counts are known, and print them as JSON
    Exact(exact::Args),
    /// Run a program of several threads that has a performance pattern, or its twin without
    Pattern(pattern::Args),
    /// Show the kernels: unit of work, instructions per unit, what they stress
    List {
        /// One JSON array instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Make the input files of the real programs in the catalogue
    Inputs {
        /// Where they go
        dir: PathBuf,
        /// Root that the packages with data were unpacked into
        #[arg(long, default_value = "/")]
        packages: PathBuf,
    },
}

fn main() -> std::process::ExitCode {
    let done = match Cli::parse().command {
        Command::Run(a) => run::run(&a),
        Command::Time(a) => time::run(&a),
        Command::Bench(a) => bench::run(&a),
        Command::Blocks(a) => blocks::run(&a),
        Command::Exact(a) => exact::run(&a),
        Command::Pattern(a) => pattern::run(&a),
        Command::List { json } => list(json),
        Command::Inputs { dir, packages } => inputs(&dir, &packages),
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("amp-workload: {e:#}");
            // 2: bad input, as everywhere in scx_amp; 1: the work failed
            std::process::ExitCode::from(if e.is::<run::Usage>() { 2 } else { 1 })
        }
    }
}

fn inputs(dir: &Path, packages: &Path) -> Result<()> {
    let catalogue = amp_workloads::catalogue::Catalogue::shipped()?;
    for made in amp_workloads::inputs::prepare(catalogue.inputs(), packages, dir)? {
        println!("{}", made.display());
    }
    Ok(())
}

fn list(json: bool) -> Result<()> {
    use amp_workloads::kernels::SIMPLE;
    let mut rows: Vec<_> = SIMPLE
        .iter()
        .map(|i| {
            serde_json::json!({
                "kernel": i.name, "unit": i.unit, "stresses": i.stresses,
                "instructions_per_unit": {"arm64": i.instructions_arm64, "x86_64": i.instructions_x86_64},
                "default_size": (i.default_size > 0).then_some(i.default_size),
            })
        })
        .collect();
    for (name, unit, stresses) in run::COMPOUND {
        rows.push(serde_json::json!({"kernel": name, "unit": unit, "stresses": stresses}));
    }
    if json {
        println!("{}", serde_json::Value::Array(rows));
        return Ok(());
    }
    println!(
        "{:<9} {:>8} {:>8}  {:<58} stresses",
        "kernel", "arm64", "x86_64", "unit of work"
    );
    for r in &rows {
        let text = |k: &str| r[k].as_str().unwrap_or_default();
        let count = |a: &str| {
            r["instructions_per_unit"][a]
                .as_f64()
                .map_or("-".into(), |v| v.to_string())
        };
        let (a, x) = (count("arm64"), count("x86_64"));
        println!(
            "{:<9} {a:>8} {x:>8}  {:<58} {}",
            text("kernel"),
            text("unit"),
            text("stresses")
        );
    }
    println!("\narm64, x86_64: instructions per unit. Start-up and data set-up come on top.");
    Ok(())
}
