//! What the mechanism costs: guest instructions (and, for threads that may move, virtual time) of
//! context switches under the scheduler against the kernel's own, in one boot of the board; without
//! counters, with so many events read at every switch, and with five of them beside many other
//! threads: once with the policy's rounds, which look at every thread ten times a second, and once
//! between two of them, so that only the switches are left.
//!
//! `cargo run --release -p amp-tests --example mechanism-cost`

use amp_metrics::uncertainty::Measured;
use amp_tests::{Lab, Reply};

const REPEATS: usize = 6;

/// What is measured: label, command, field.
const CASES: [(&str, &str, &str); 4] = [
    (
        "yield, one CPU (instructions)",
        "yield --cpu 1 --rounds 4k",
        "instructions_per_op",
    ),
    (
        "pipe, one CPU (instructions)",
        "pipe --cpus 1,1 --rounds 4k",
        "instructions_per_op",
    ),
    (
        "pipe, unpinned (virtual time)",
        "pipe --unpinned --rounds 4k",
        "ns_per_op",
    ),
    (
        "pipe, unpinned (instructions)",
        "pipe --unpinned --rounds 4k",
        "instructions_per_op",
    ),
];

/// Events, in the order in which they are added to the set.
const EVENTS: [(&str, &str); 6] = [
    ("instructions", "inst_retired"),
    ("cycles", "cpu_cycles"),
    ("l1d_refills", "l1d_cache_refill"),
    ("l2_refills", "l2d_cache_refill"),
    ("branch_misses", "br_mis_pred"),
    ("branches", "br_pred"),
];

/// Sizes of the set, and the goals with them by case, as ratios to EEVDF.
const SIZES: [(usize, [Option<f64>; 4]); 5] = [
    (0, [Some(1.10), Some(0.95), Some(0.70), None]),
    (2, [None; 4]),
    (4, [None; 4]),
    (5, [Some(1.5), Some(1.15), Some(1.15), None]),
    (6, [None; 4]),
];

/// Threads that sleep beside the benchmark.
const BESIDE: [usize; 3] = [10, 100, 1000];

/// With and without the policy's rounds: intervals in milliseconds.
const ROUNDS: [(&str, u32); 2] = [("rounds", 100), ("switches", 10_000)];

/// A provider file that wants `n` events counted on both core types, and estimates nothing.
fn provider(n: usize) -> String {
    let mut s = String::from("kind = \"model\"\nname = \"events\"\n");
    for (t, pmu) in [("big", "armv8_cortex_a57"), ("little", "armv8_cortex_a53")] {
        s += &format!("[[core_type]]\nname = \"{t}\"\npmu = \"{pmu}\"\n[[core_type.event_set]]\n");
        for (name, event) in EVENTS.iter().take(n) {
            s += &format!("{name} = \"{event}\"\n");
        }
    }
    s
}

fn measure(s: &mut String, tag: &str) {
    let mut last = "";
    for (i, (_, command, _)) in CASES.iter().enumerate() {
        // one run serves all its fields
        if *command == last {
            *s += &format!("echo \"{tag}-{i} $json\"\n");
            continue;
        }
        last = command;
        *s += &format!("json=$(amp-workload bench {command} --json); echo \"{tag}-{i} $json\"\n");
    }
}

fn script() -> String {
    let mut s = String::from(
        "wait_for() { while [ \"$(cat /sys/kernel/sched_ext/state)\" != $1 ]; do sleep 0.1; done; }\n\
         provider() { scx_amp ctl provider $1 >/dev/null || exit 1; sleep 0.5; }\n\
         start() { scx_amp run --policy rr --provider $1 --interval ${2:-100} 2>/dev/null & pid=$!; wait_for enabled; sleep 1; }\n\
         stop() { kill $pid; wait $pid; }\n\
         sleep 5\n",
    );
    for _ in 0..REPEATS {
        measure(&mut s, "eevdf");
        s += "start none\n";
        for (n, _) in SIZES {
            if n > 0 {
                s += &format!("provider /{n}.toml\n");
            }
            measure(&mut s, &format!("events{n}"));
        }
        s += "stop\n";
    }
    let mut there = 0;
    for n in BESIDE {
        s += &format!(
            "i={there}; while [ $i -lt {n} ]; do sleep 100000 & i=$((i+1)); done; sleep 2\n"
        );
        there = n;
        for (tag, interval) in ROUNDS {
            s += &format!("start /5.toml {interval}\n");
            for _ in 0..REPEATS {
                measure(&mut s, &format!("{tag}{n}"));
            }
            s += "stop\n";
        }
    }
    s
}

fn values(reply: &Reply, tag: &str, field: &str) -> Vec<f64> {
    reply
        .lines(tag)
        .map(|l| {
            let v: serde_json::Value = serde_json::from_str(l).expect("JSON of amp-workload");
            v[field]
                .as_f64()
                .unwrap_or_else(|| panic!("no {field} in {v}"))
        })
        .collect()
}

fn main() {
    let mut lab = Lab::board("juno");
    for (n, _) in SIZES.iter().filter(|(n, _)| *n > 0) {
        lab = lab.file(&format!("/{n}.toml"), &provider(*n));
    }
    let reply = lab.run(&script()).ok();
    for (i, (label, _, field)) in CASES.iter().enumerate() {
        let mean = |tag: &str| {
            let v = values(&reply, &format!("{tag}-{i}"), field);
            assert_eq!(v.len(), REPEATS);
            Measured::mean(&v).expect("six values")
        };
        let base = mean("eevdf");
        let row = |what: String, m: Measured, goal: Option<f64>| {
            let ratio = m / base;
            let goal = goal.map_or(String::new(), |g| format!("  goal ≤ {g:.2}"));
            println!(
                "  {what:<28} {:>8.0} ± {:<6.0} {:.3} ± {:.3}{goal}",
                m.value,
                m.u.unwrap_or(f64::NAN),
                ratio.value,
                ratio.u.unwrap_or(f64::NAN)
            );
        };
        println!("{label}");
        row("eevdf".into(), base, None);
        for (n, goals) in SIZES {
            row(format!("{n} events"), mean(&format!("events{n}")), goals[i]);
        }
        for n in BESIDE {
            for (tag, _) in ROUNDS {
                let what = format!("5 events, {n} more, {tag}");
                row(what, mean(&format!("{tag}{n}")), None);
            }
        }
    }
}
