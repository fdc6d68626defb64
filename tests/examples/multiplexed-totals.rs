//! Totals of `scx_amp pmc stat` with sets by turns beside the truth, on the board: how far they are
//! off, and how often the 95 % interval holds the truth.
//!
//! `cargo run --release -p amp-tests --example multiplexed-totals [-- REPETITIONS]`
//!
//! The truth is the board's own totals of the CPU that the program has to itself, in user mode, of
//! the same run: no second run that might differ.

use amp_tests::Lab;
use amp_workloads::catalogue::Catalogue;
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

const PROGRAMS: [&str; 6] = ["bzip2", "gawk", "lame", "perl", "sqlite3", "xz"];
/// Kernels beside them: one that does the same all the time, and three with phases.
const KERNELS: [(&str, &str); 4] = [
    ("steady", "hash --size 8M --work 3M"),
    ("phased-two", "phased --phase alu=4M --phase hash@8M=400k --work 6"),
    (
        "phased-five",
        "phased --phase fp=1M --phase branchy=1M --phase chase@8M=100k --phase sort=200 --phase hash@8M=300k --work 3",
    ),
    (
        "phased-short",
        "phased --phase stream@8M=100k --phase mul=500k --phase branchy=200k --phase alu=1M --work 12",
    ),
];
/// Core types: name, the program's CPU, and one of the other type for who counts.
const CORES: [(&str, u32, u32); 2] = [("big", 1, 3), ("little", 4, 0)];
/// Eight events of user mode, in sets that take turns.
const FOUR: [&str; 2] = [
    "inst_retired:u,cpu_cycles:u,l1d_cache:u,br_retired:u",
    "l1d_cache_refill:u,l2d_cache:u,l2d_cache_refill:u,br_mis_pred:u",
];
const TWO: [&str; 4] = [
    "inst_retired:u,cpu_cycles:u",
    "l1d_cache:u,br_retired:u",
    "l1d_cache_refill:u,l2d_cache:u",
    "l2d_cache_refill:u,br_mis_pred:u",
];
/// Ways to count: what they are called, sets, strategy.
const WAYS: [(&str, &[&str], &str); 4] = [
    ("4 counters, round-robin", &FOUR, "round-robin"),
    ("2 counters, round-robin", &TWO, "round-robin"),
    ("2 counters, rate-of-change", &TWO, "rate-of-change"),
    ("2 counters, relative-error", &TWO, "relative-error"),
];
/// Fewer of an event are too few to be told from what comes and goes with a process.
const LEAST: f64 = 1000.0;

/// Relative errors, relative half widths of intervals, and how many of them hold the truth.
#[derive(Default)]
struct Held {
    errors: Vec<f64>,
    widths: Vec<f64>,
    held: usize,
}

impl Held {
    fn add(&mut self, count: &Value, truth: f64) {
        let get = |key: &str| count[key].as_f64().unwrap_or(f64::NAN);
        let (value, low, high) = (get("count"), get("low"), get("high"));
        self.errors.push(value / truth - 1.0);
        self.widths.push((high - value) / truth);
        self.held += usize::from(low <= truth && truth <= high);
    }

    fn row(&mut self) -> String {
        let n = self.errors.len();
        let mean = self.errors.iter().sum::<f64>() / n as f64;
        let mut size: Vec<f64> = self.errors.iter().map(|e| e.abs()).collect();
        size.sort_by(f64::total_cmp);
        self.widths.sort_by(f64::total_cmp);
        format!(
            "{:+.2} | {:.2} | {:.2} | {:.2} | {} of {n} ({:.1} %)",
            100.0 * mean,
            100.0 * size[n / 2],
            100.0 * size[n - 1],
            100.0 * self.widths[n / 2],
            self.held,
            100.0 * self.held as f64 / n as f64
        )
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let repetitions: usize = match std::env::args().nth(1) {
        Some(n) => n.parse()?,
        None => 3,
    };
    let catalogue = Catalogue::shipped()?;
    let programs: Vec<_> = catalogue
        .programs()
        .filter(|p| PROGRAMS.contains(&p.executable.as_str()))
        .collect();
    let needs = catalogue.needs(programs.iter().map(|p| p.command.as_slice()))?;
    let mut commands: Vec<(String, String)> = Vec::new();
    for p in &programs {
        let words: Vec<String> = p.command.iter().map(|w| format!("'{w}'")).collect();
        commands.push((p.executable.clone(), words.join(" ")));
    }
    for (name, arguments) in KERNELS {
        commands.push((name.into(), format!("amp-workload run {arguments}")));
    }
    let mut script =
        String::from("set -e; sleep 5; mkdir /w; amp-workload inputs /w >/dev/null; cd /w\n");
    for (name, command) in &commands {
        for (core_type, cpu, other) in CORES {
            for (w, (_, sets, strategy)) in WAYS.iter().enumerate() {
                let sets: String = sets.iter().map(|s| format!("-e {s} ")).collect();
                for _ in 0..repetitions {
                    let _ = writeln!(
                        script,
                        "amp-workload time --pin {other} --totals {cpu} --json -- scx_amp pmc stat {sets} --strategy {strategy} --json /w/stat.json -- amp-workload time --pin {cpu} -- {command} >/w/truth.json\n\
                         echo \"run-{name}-{core_type}-{w} $(cat /w/truth.json) $(cat /w/stat.json)\""
                    );
                }
            }
        }
    }
    let lab = Lab::board("juno").measurement().needs(&needs);
    let reply = lab.run(&script).ok();

    println!("| what | mean error (%) | median size | largest | half of the interval, median | holds the truth |\n|---|---|---|---|---|---|");
    for (w, (way, ..)) in WAYS.iter().enumerate() {
        let mut all = Held::default();
        let mut by_event: BTreeMap<String, Held> = BTreeMap::new();
        let mut by_program: BTreeMap<String, Held> = BTreeMap::new();
        for (name, _) in &commands {
            for (core_type, ..) in CORES {
                for line in reply.lines(&format!("run-{name}-{core_type}-{w}")) {
                    let mut values = serde_json::Deserializer::from_str(line).into_iter::<Value>();
                    let truth = values.next().ok_or("no truth")??;
                    let stat = values.next().ok_or("no counts")??;
                    let counts = stat["counts"].as_array().ok_or("no counts")?;
                    for c in counts.iter().filter(|c| c["core_type"] == core_type) {
                        let event = c["event"].as_str().ok_or("no event")?;
                        let event = event.trim_end_matches(":u");
                        let t = truth["totals"][event].as_f64().ok_or("no total")?;
                        if t >= LEAST {
                            all.add(c, t);
                            by_event.entry(event.into()).or_default().add(c, t);
                            by_program.entry(name.clone()).or_default().add(c, t);
                        }
                    }
                }
            }
        }
        println!("| **{way}** | {} |", all.row());
        if w == 0 {
            for (name, held) in by_event.iter_mut().chain(&mut by_program) {
                println!("| {name} | {} |", held.row());
            }
        }
    }
    Ok(())
}
