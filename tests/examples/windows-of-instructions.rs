//! Windows of instructions on the board, interpolated and by overflow: how far the branches of a
//! window are from the known ones, and what cutting costs the program.
//!
//! `cargo run --release -p amp-tests --example windows-of-instructions`

use amp_metrics::uncertainty::Measured;
use amp_tests::{Lab, Reply};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

/// Core types: name, CPU.
const CORES: [(&str, u32); 2] = [("big", 1), ("little", 4)];
/// Ways to cut: name, option.
const WAYS: [(&str, &str); 2] = [("interpolated", ""), ("by overflow", "--overflow")];
/// Instructions in a window.
const SIZES: [u64; 2] = [1_000_000, 100_000];
const RUNS: usize = 5;
/// Every ninth instruction of `alu` is a branch.
const BRANCHES: f64 = 1.0 / 9.0;
/// The program: 36 million instructions, and for the cost five times as many.
const WORK: [&str; 2] = ["4M", "20M"];
/// Windows at the beginning that are left out, in instructions: they have the start of the program.
const START: f64 = 5e6;

fn script() -> String {
    let mut s = String::from(
        "set -e; sleep 5; echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent\n\
         stat() { o=$1; shift; scx_amp pmc stat --csv -o /seen -e instructions:u,branches:u $o \"$@\"; }\n",
    );
    for (c, (_, cpu)) in CORES.iter().enumerate() {
        for _ in 0..RUNS {
            let (short, long) = (WORK[0], WORK[1]);
            let alu = |work| format!("amp-workload run alu --work {work} --pin {cpu} --json");
            let mut cost = |tag: &str, before: &str| {
                let _ = writeln!(s, "echo \"cost-{c}-{tag} $({before} {})\"", alu(long));
            };
            cost("alone", "");
            cost("counted", "stat \"\" --");
            for (w, (_, option)) in WAYS.iter().enumerate() {
                for (i, size) in SIZES.iter().enumerate() {
                    let before = format!("stat \"--window {size} {option}\" --");
                    cost(&format!("{w}-{i}"), &before);
                }
            }
            for (w, (_, option)) in WAYS.iter().enumerate() {
                for (i, size) in SIZES.iter().enumerate() {
                    // time, core type, event, count of each window
                    let _ = writeln!(
                        s,
                        "stat \"--window {size} {option}\" -- {} >/dev/null\n\
                         awk -F, '/^count/ {{ exit }} NR > 1 {{ print \"window-{c}-{w}-{i}\", $1, $5, $6, $7 }}' /seen\n\
                         echo \"window-{c}-{w}-{i} end\"",
                        alu(short)
                    );
                }
            }
        }
    }
    s
}

/// Instructions and branches of each window on a core type, run by run.
fn windows(reply: &Reply, tag: &str, core_type: &str) -> Vec<Vec<(f64, f64)>> {
    let mut runs = Vec::new();
    let mut run: Vec<(f64, f64)> = Vec::new();
    let mut at: BTreeMap<String, f64> = BTreeMap::new();
    for line in reply.lines(tag) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, of, event, count] = words[..] else {
            runs.push(std::mem::take(&mut run));
            continue;
        };
        if of != core_type {
            continue;
        }
        at.insert(event.to_owned(), count.parse().expect("a count"));
        if let (Some(n), Some(b)) = (at.get("instructions:u"), at.get("branches:u")) {
            run.push((*n, *b));
            at.clear();
        }
    }
    runs
}

fn main() -> Result<(), Box<dyn Error>> {
    let reply = Lab::board("juno").measurement().run(&script()).ok();
    for (c, (core_type, _)) in CORES.iter().enumerate() {
        for (w, (way, _)) in WAYS.iter().enumerate() {
            for (i, size) in SIZES.iter().enumerate() {
                let all = windows(&reply, &format!("window-{c}-{w}-{i}"), core_type);
                let size = *size as f64;
                assert_eq!(all.len(), RUNS);
                let skip = (START / size) as usize;
                let (mut error, mut length) = (Vec::new(), Vec::new());
                for run in &all {
                    for (n, branches) in run.iter().skip(skip) {
                        error.push(branches / (n * BRANCHES) - 1.0);
                        length.push((n / size - 1.0).abs());
                    }
                }
                let most = |v: &[f64]| v.iter().fold(0.0, |m: f64, e| m.max(e.abs()));
                let mean = error.iter().sum::<f64>() / error.len() as f64;
                let square = error.iter().map(|e| e * e).sum::<f64>() / error.len() as f64;
                println!(
                    "{core_type:<8} {way:<13} {size:>9}  {:>5} windows  branches: mean {:+.4} %, rms {:.4} %, at most {:.4} %  length off by at most {:.4} %",
                    error.len(),
                    100.0 * mean,
                    100.0 * square.sqrt(),
                    100.0 * most(&error),
                    100.0 * most(&length),
                );
            }
        }
        let time = |tag: &str| {
            let walls = reply.wall_times(&format!("cost-{c}-{tag}"));
            assert_eq!(walls.len(), RUNS, "{tag}");
            Measured::mean(&walls).expect("runs")
        };
        let alone = time("alone");
        let show = |name: &str, tag: &str| {
            let (t, q) = (time(tag), time(tag) / alone);
            println!(
                "{core_type:<8} {name:<30} {:>9.2} ± {:.2} ms  {:+.3} ± {:.3} %",
                t.value * 1e-6,
                t.u.unwrap_or(f64::NAN) * 1e-6,
                100.0 * (q.value - 1.0),
                100.0 * q.u.unwrap_or(f64::NAN)
            );
        };
        show("not watched", "alone");
        show("pmc stat", "counted");
        for (w, (way, _)) in WAYS.iter().enumerate() {
            for (i, size) in SIZES.iter().enumerate() {
                show(&format!("{way}, {size}"), &format!("{w}-{i}"));
            }
        }
    }
    Ok(())
}
