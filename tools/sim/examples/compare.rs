//! Policies over a folder of mixes, beside what was published:
//! `cargo run --release -p amp-sim --example compare -- [COMPARISON.toml]... [--runs N]`
//! (all of `tools/workloads/comparisons/` when none is named, five runs each).

use amp_sim::compare::Comparison;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut files, mut runs) = (Vec::new(), 5);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--runs" => runs = args.next().ok_or("--runs needs a number")?.parse()?,
            file => files.push(PathBuf::from(file)),
        }
    }
    if files.is_empty() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/comparisons");
        for entry in std::fs::read_dir(folder)? {
            files.push(entry?.path());
        }
        files.sort();
    }
    for file in files {
        let outcome =
            Comparison::load(&file)?.run(runs, 1, &mut |_, _| ControlFlow::Continue(()))?;
        println!("{outcome}");
    }
    Ok(())
}
