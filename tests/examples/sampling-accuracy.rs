//! How far profiles by sampling are from the truth [TRUST Table 1], in one boot of the board:
//! kernels of which it is known how often each basic block runs, sampled by retired instructions
//! with periods that are fixed and round, prime, and random primes.
//!
//! The error of a profile is Σ |instructions sampled − instructions executed| over all blocks, per
//! instruction: 0 to 2. What drawing as many samples by lot would give is printed beside it; that
//! much is no fault of the method.
//!
//! `cargo run --release -p amp-tests --example sampling-accuracy [MACHINE]`

use amp_metrics::uncertainty::Measured;
use amp_tests::{Lab, Reply};
use serde::Deserialize;
use std::collections::BTreeMap;

const REPEATS: usize = 4;
const PERIOD: u64 = 10_000;
const METHODS: [&str; 3] = ["fixed", "prime", "random"];

/// Kernels and how many rounds make some twenty million instructions.
const KERNELS: [(&str, u64); 3] = [
    ("latency", 2_000_000),
    ("chain", 140_000),
    ("short", 1_600_000),
];

/// A core type, one of its CPUs, and its PMU.
type Core = (&'static str, u32, &'static str);

/// Core types by machine.
const MACHINES: [(&str, [Core; 2]); 1] = [(
    "juno",
    [
        ("big", 0, "armv8_cortex_a57"),
        ("little", 2, "armv8_cortex_a53"),
    ],
)];

#[derive(Deserialize)]
struct Truth {
    function: String,
    offset: u64,
    instructions: u64,
    executions: u64,
}

#[derive(Deserialize)]
struct Profile {
    lost: u64,
    throttled: u64,
    functions: Vec<Function>,
}

#[derive(Deserialize)]
struct Function {
    function: String,
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    offset: u64,
    samples: u64,
    events: u64,
}

/// Shares by function and block.
type Shares = BTreeMap<(String, u64), f64>;

fn shares(of: impl Iterator<Item = ((String, u64), f64)>) -> Shares {
    let mut out = Shares::new();
    of.for_each(|(key, weight)| *out.entry(key).or_default() += weight);
    let total: f64 = out.values().sum();
    out.values_mut().for_each(|w| *w /= total);
    out
}

fn by_function(s: &Shares) -> Shares {
    shares(s.iter().map(|((f, _), w)| ((f.clone(), 0), *w)))
}

fn error(sampled: &Shares, truth: &Shares) -> f64 {
    let none = sampled.keys().filter(|k| !truth.contains_key(*k));
    let unknown: f64 = none.map(|k| sampled[k]).sum();
    let known = truth
        .iter()
        .map(|(k, p)| (sampled.get(k).copied().unwrap_or(0.0) - p).abs());
    unknown + known.sum::<f64>()
}

/// What `n` samples by lot are off by on average: of a normal distribution, √(2/π) of its standard
/// deviation.
fn by_lot(truth: &Shares, n: f64) -> f64 {
    let each = truth.values().map(|p| (p * (1.0 - p) / n).sqrt());
    each.sum::<f64>() * std::f64::consts::FRAC_2_PI.sqrt()
}

fn script(cpus: &[Core]) -> String {
    // the board is a slow machine: an interrupt takes longer than the kernel would have it
    let mut s = String::from("echo 0 > /proc/sys/kernel/perf_cpu_time_max_percent\n");
    for (kernel, rounds) in KERNELS {
        s += &format!(
            "echo \"truth-{kernel} $(amp-workload blocks {kernel} --rounds {rounds} --list)\"\n"
        );
        for (core_type, cpu, pmu) in cpus {
            for method in METHODS {
                for seed in 0..REPEATS {
                    s += &format!(
                        "echo \"{core_type}-{kernel}-{method} $(scx_amp pmc record -e {pmu}/inst_retired/u -c {PERIOD} \
                         --method {method} --seed {seed} --json - -- amp-workload blocks {kernel} --rounds {rounds} --pin {cpu})\"\n"
                    );
                }
            }
        }
    }
    s
}

fn parsed<T: for<'a> Deserialize<'a>>(reply: &Reply, tag: &str) -> Vec<T> {
    let read = |l: &str| serde_json::from_str(l).unwrap_or_else(|e| panic!("{tag}: {e}"));
    reply.lines(tag).map(read).collect()
}

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_else(|| "juno".into());
    let machine = MACHINES.iter().find(|(name, _)| *name == wanted);
    let (name, cpus) = machine.expect("one of the machines known here");
    let reply = Lab::board(name).run(&script(cpus)).ok();
    println!(
        "{:<8} {:<8} {:<7} {:>9} {:>22} {:>8} {:>22} {:>8}",
        "core", "kernel", "method", "samples", "blocks", "by lot", "functions", "by lot"
    );
    for (core_type, ..) in cpus {
        for (kernel, _) in KERNELS {
            let blocks: Vec<Truth> = parsed(&reply, &format!("truth-{kernel}"))
                .pop()
                .expect("the truth");
            let truth = shares(blocks.iter().map(|b| {
                (
                    (b.function.clone(), b.offset),
                    (b.instructions * b.executions) as f64,
                )
            }));
            for method in METHODS {
                let profiles: Vec<Profile> =
                    parsed(&reply, &format!("{core_type}-{kernel}-{method}"));
                assert_eq!(profiles.len(), REPEATS);
                let (mut samples, mut fine, mut coarse) = (0.0, Vec::new(), Vec::new());
                for p in &profiles {
                    assert_eq!((p.lost, p.throttled), (0, 0), "samples are missing");
                    let ours = p
                        .functions
                        .iter()
                        .filter(|f| f.function.starts_with("amp_blocks_"));
                    let ours: Vec<_> = ours
                        .flat_map(|f| f.blocks.iter().map(move |b| (f, b)))
                        .collect();
                    samples +=
                        ours.iter().map(|(_, b)| b.samples as f64).sum::<f64>() / REPEATS as f64;
                    let sampled = shares(
                        ours.iter()
                            .map(|(f, b)| ((f.function.clone(), b.offset), b.events as f64)),
                    );
                    fine.push(error(&sampled, &truth));
                    coarse.push(error(&by_function(&sampled), &by_function(&truth)));
                }
                let show = |v: &[f64]| {
                    let m = Measured::mean(v).expect("repeats");
                    format!("{:.3} ± {:.3}", m.value, m.u.unwrap_or(f64::NAN))
                };
                println!(
                    "{core_type:<8} {kernel:<8} {method:<7} {samples:>9.0} {:>22} {:>8.3} {:>22} {:>8.3}",
                    show(&fine),
                    by_lot(&truth, samples),
                    show(&coarse),
                    by_lot(&by_function(&truth), samples),
                );
            }
        }
    }
}
