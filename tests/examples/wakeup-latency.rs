//! How long threads that sleep most of the time wait for a CPU when they wake up, and how long
//! hackbench takes, under the kernel's own scheduler and under others, on each boot of the board.
//!
//! `cargo run --release -p amp-tests --example wakeup-latency [-- BOOTS [SCHEDULER…]]`. A scheduler is a
//! policy, `eevdf` (which takes part in any case), `scx:NAME` (built by `scx_amp board fetch --peers=NAME`), or
//! `eevdf:little`: the kernel's own, with the threads that wake up kept on little cores.

use amp_board::{peers, Cache};
use amp_metrics::uncertainty::Measured;
use amp_tests::Lab;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is busy meanwhile: label, command. The board has six CPUs.
const BESIDE: [(&str, &str); 5] = [
    ("nothing", "sleep 600"),
    (
        "3 busy threads",
        "amp-workload bench spin --by dividing --threads 3 --seconds 600",
    ),
    (
        "6 busy threads",
        "amp-workload bench spin --by dividing --threads 6 --seconds 600",
    ),
    (
        "12 busy threads",
        "amp-workload bench spin --by dividing --threads 12 --seconds 600",
    ),
    (
        "12 of nice 19",
        "nice -n 19 amp-workload bench spin --by dividing --threads 12 --seconds 600",
    ),
];
/// Threads that wake up every 4 to 7 ms, 1000 times each.
const WAKERS: [u32; 4] = [4000, 5000, 6000, 7000];
/// Boots side by side.
const AT_A_TIME: usize = 2;
const FIGURES: [&str; 3] = ["p50", "p99", "p99.9"];
/// Six processes that write 300 messages to each of six others.
const HACKBENCH: &str = "hackbench -g 1 -f 6 -l 300";

/// A published scheduler.
const SCX: &str = "scx:";
/// The kernel's own, with the threads that wake up kept on little cores.
const LITTLE: &str = "eevdf:little";

fn script(policies: &[String]) -> String {
    let mut s = String::from(
        "wait_for() { i=0; until [ \"$(cat /sys/kernel/sched_ext/state)\" = $1 ]; do \
         i=$((i+1)); [ $i -lt 1200 ] || { echo \"the scheduler is not $1 after two minutes\"; exit 1; }; sleep 0.1; done; }\n\
         sleep 5\n",
    );
    for policy in std::iter::once("eevdf").chain(policies.iter().map(String::as_str)) {
        let start = match policy.strip_prefix(SCX) {
            Some(name) => format!("scx_{name} >/dev/null 2>&1"),
            None => format!("scx_amp run --policy {policy} 2>/dev/null"),
        };
        let loaded = !["eevdf", LITTLE].contains(&policy);
        if loaded {
            s += &format!("{start} & pid=$!; wait_for enabled; sleep 1\n");
        }
        let kept = match policy {
            LITTLE => "taskset 3c ",
            _ => "",
        };
        for (i, (_, command)) in BESIDE.iter().enumerate() {
            s += &format!("{command} >/dev/null & busy=$!; sleep 0.5; wakers=\n");
            for us in WAKERS {
                s += &format!(
                    "{kept}amp-workload bench wake --period-us {us} --rounds 1000 --json >/tmp/w{us} & wakers=\"$wakers $!\"\n"
                );
            }
            s += "wait $wakers; kill $busy || exit 1; wait $busy\n";
            for us in WAKERS {
                s += &format!("echo \"wake {policy} {i} $(cat /tmp/w{us})\"\n");
            }
        }
        s += &format!(
            "for i in 1 2 3; do echo \"hackbench {policy} $({HACKBENCH} | sed -n 's/^Time: //p')\"; done\n"
        );
        if loaded {
            s += "kill -INT $pid; wait $pid; wait_for disabled\n";
        }
    }
    s
}

/// The program of a published scheduler.
fn program(name: &str) -> PathBuf {
    let cache = Cache::open().expect("a folder for what is fetched");
    let built = peers::built(&cache);
    let peer = built.iter().find(|p| p.name == name);
    let peer = peer
        .unwrap_or_else(|| panic!("scx_{name} is not built: `scx_amp board fetch --peers={name}`"));
    peer.program(&cache)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let boots: usize = args
        .next()
        .map_or(5, |n| n.parse().expect("a number of boots"));
    let mut policies: Vec<String> = args.collect();
    if policies.is_empty() {
        policies = ["hsp", "acfs"].map(str::to_owned).to_vec();
    }
    // per policy, load and figure: the mean over the wakers of each boot, ms
    let mut late: BTreeMap<(String, usize, usize), Vec<f64>> = BTreeMap::new();
    let mut hack: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let boot = |i: usize| {
        eprintln!("boot {} of {boots}", i + 1);
        let mut lab = Lab::board("juno")
            .package("rt-tests")
            .package("coreutils")
            .measurement();
        for name in policies.iter().filter_map(|p| p.strip_prefix(SCX)) {
            lab = lab.host_file(&format!("/usr/local/bin/scx_{name}"), &program(name));
        }
        lab.run(&script(&policies)).ok()
    };
    let numbers: Vec<usize> = (0..boots).collect();
    let mut replies = Vec::new();
    // the board's clock is its own
    for some in numbers.chunks(AT_A_TIME) {
        std::thread::scope(|s| {
            let booted: Vec<_> = some.iter().map(|i| s.spawn(|| boot(*i))).collect();
            replies.extend(
                booted
                    .into_iter()
                    .map(|b| b.join().expect("a boot that ends")),
            );
        });
    }
    for r in replies {
        let mut sums: BTreeMap<(String, usize, usize), f64> = BTreeMap::new();
        for line in r.lines("wake") {
            let [policy, load, json] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let json: serde_json::Value = serde_json::from_str(json).expect("JSON of amp-workload");
            for (k, figure) in FIGURES.iter().enumerate() {
                let ms = json["latency_ns"][figure].as_f64().expect("a percentile") / 1e6;
                let key = (policy.to_owned(), load.parse().expect("a number"), k);
                *sums.entry(key).or_default() += ms / WAKERS.len() as f64;
            }
        }
        for (key, ms) in sums {
            late.entry(key).or_default().push(ms);
        }
        let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for line in r.lines("hackbench") {
            let (policy, seconds) = line.split_once(' ').expect("a policy and a time");
            let seconds = seconds.parse().expect("seconds");
            times.entry(policy.to_owned()).or_default().push(seconds);
        }
        for (policy, seconds) in times {
            let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
            hack.entry(policy).or_default().push(mean);
        }
    }
    let cell = |values: Option<&Vec<f64>>| {
        let mean = values.and_then(|v| Measured::mean(v));
        mean.map_or_else(|| "–".to_owned(), |m| m.to_string())
    };
    let all: Vec<&str> = std::iter::once("eevdf")
        .chain(policies.iter().map(String::as_str))
        .collect();
    println!(
        "Wake-up latency in ms, {} threads, {boots} boots",
        WAKERS.len()
    );
    println!("| beside | figure | {} |", all.join(" | "));
    println!("|---|---|{}", "---|".repeat(all.len()));
    for (load, (label, _)) in BESIDE.iter().enumerate() {
        for (k, figure) in FIGURES.iter().enumerate() {
            let row = all
                .iter()
                .map(|p| cell(late.get(&((*p).to_owned(), load, k))));
            println!(
                "| {label} | {figure} | {} |",
                row.collect::<Vec<_>>().join(" | ")
            );
        }
    }
    let row = all.iter().map(|p| cell(hack.get(*p)));
    println!(
        "| `{HACKBENCH}` | s | {} |",
        row.collect::<Vec<_>>().join(" | ")
    );
}
