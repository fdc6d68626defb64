//! What the mechanism costs: guest instructions (and, for threads that may move, virtual time) of context switches
//! under the scheduler against the kernel's own, in one boot of the board.
//!
//! `cargo run --release -p amp-tests --example mechanism-cost`

use amp_metrics::uncertainty::Measured;
use amp_tests::{Lab, Reply};

const REPEATS: usize = 6;

/// What is measured: label, command, field, goal as a ratio to EEVDF.
const CASES: [(&str, &str, &str, f64); 3] = [
    (
        "yield, one CPU (instructions)",
        "yield --cpu 1 --rounds 4k",
        "instructions_per_op",
        1.10,
    ),
    (
        "pipe, one CPU (instructions)",
        "pipe --cpus 1,1 --rounds 4k",
        "instructions_per_op",
        0.95,
    ),
    (
        "pipe, unpinned (virtual time)",
        "pipe --unpinned --rounds 4k",
        "ns_per_op",
        0.70,
    ),
];

fn script() -> String {
    let mut s = String::from(
        "wait_for() { while [ \"$(cat /sys/kernel/sched_ext/state)\" != $1 ]; do sleep 0.1; done; }\nsleep 5\n",
    );
    for _ in 0..REPEATS {
        for (tag, start, stop) in [
            ("eevdf", "", ""),
            (
                "scx_amp",
                "scx_amp run --policy rr 2>/dev/null & pid=$!; wait_for enabled; sleep 1\n",
                "kill $pid; wait $pid\n",
            ),
        ] {
            s += start;
            for (i, (_, command, _, _)) in CASES.iter().enumerate() {
                s += &format!("echo \"{tag}-{i} $(amp-workload bench {command} --json)\"\n");
            }
            s += stop;
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
    let reply = Lab::board("juno").run(&script()).ok();
    println!(
        "{:<32} {:>14} {:>14}  {:>15}  goal",
        "", "eevdf", "scx_amp", "ratio"
    );
    for (i, (label, _, field, goal)) in CASES.iter().enumerate() {
        let mean = |tag: &str| {
            let v = values(&reply, &format!("{tag}-{i}"), field);
            assert_eq!(v.len(), REPEATS);
            Measured::mean(&v).expect("six values")
        };
        let (base, ours) = (mean("eevdf"), mean("scx_amp"));
        let ratio = ours / base;
        let show = |m: Measured| format!("{:.0} ± {:.0}", m.value, m.u.unwrap_or(f64::NAN));
        println!(
            "{label:<32} {:>14} {:>14}  {:>6.3} ± {:.3}  ≤ {goal:.2}",
            show(base),
            show(ours),
            ratio.value,
            ratio.u.unwrap_or(f64::NAN)
        );
    }
}
