//! `scx_amp pmc stat` beside `perf stat` on the board: what both count of the same programs, and
//! what counting at intervals costs the program that is counted.
//!
//! `cargo run --release -p amp-tests --example pmc-against-perf`

use amp_metrics::uncertainty::Measured;
use amp_tests::{Lab, Reply};
use amp_workloads::catalogue::Catalogue;
use std::error::Error;
use std::fmt::Write as _;

const PROGRAMS: [&str; 6] = ["bzip2", "gawk", "lame", "perl", "sqlite3", "xz"];
const REPEATS: usize = 3;
/// Core types: name, CPU, PMU.
const CORES: [(&str, u32, &str); 2] = [
    ("big", 1, "armv8_cortex_a57"),
    ("little", 4, "armv8_cortex_a53"),
];
/// In user mode: what the kernel does differs from run to run. So do misses with where things are
/// in memory: addresses are not randomised.
const EVENTS: [&str; 5] = [
    "inst_retired",
    "cpu_cycles",
    "l1d_cache_refill",
    "l2d_cache_refill",
    "br_mis_pred",
];

/// Of both PMUs by name: perf takes `instructions` for those of the PMU that comes first, that of
/// the little cores, reads nothing of a program on a big one, and costs it nothing.
const WATCHED_EVENTS: [&str; 4] = ["inst_retired", "cpu_cycles", "br_retired", "br_mis_pred"];
/// The program that is watched executes so many instructions, and a few more in the kernel.
const WATCHED_INSTRUCTIONS: f64 = 540e6;

/// Ways to watch a program that runs for 1.7 s on a big core: name, command before it.
const WATCHED: [(&str, &str); 6] = [
    ("not watched", ""),
    ("pmc stat", "scx_amp pmc stat -o /w/seen -e EVENTS --"),
    (
        "pmc stat -i 100",
        "scx_amp pmc stat -o /w/seen -i 100 -e EVENTS --",
    ),
    (
        "pmc stat -i 10",
        "scx_amp pmc stat -o /w/seen -i 10 -e EVENTS --",
    ),
    ("perf stat -I 100", "perf stat -o /w/seen -I 100 -e EVENTS"),
    ("perf stat -I 10", "perf stat -o /w/seen -I 10 -e EVENTS"),
];
const WATCHED_REPEATS: usize = 5;

fn script(commands: &[(String, String)]) -> String {
    let mut s =
        String::from("set -e; sleep 5; echo 0 >/proc/sys/kernel/randomize_va_space; mkdir /w; amp-workload inputs /w >/dev/null; cd /w\n");
    // What is in the caches when a program begins is not to depend on what ran before, nor where
    // its stack lies on which tool started it: perf adds variables to the environment, and gawk's
    // refills of L1 differ by 8 % with the size of that.
    s += "clear() { amp-workload run stream --size 16M --work 2M --pin $1 >/dev/null; }\n";
    for (name, command) in commands {
        // by its path: the guest's `env` takes BusyBox's own bzip2 and xz otherwise
        let command = format!("env -i \"PATH=$PATH\" $(which {name}) {command}");
        for (core_type, cpu, pmu) in CORES {
            let events: Vec<String> = EVENTS.iter().map(|e| format!("{pmu}/{e}/u")).collect();
            let events = events.join(",");
            // whoever counts is pinned, too: on which core a program starts is not to matter
            let pinned = format!("amp-workload time --pin {cpu} --");
            for _ in 0..REPEATS {
                let _ = writeln!(
                    s,
                    "clear {cpu}\n\
                     {pinned} perf stat -x, -o /w/csv -e {events} -- {command} >/dev/null\n\
                     awk -F, -v ORS=' ' 'NF > 3 {{ print $1 }}' /w/csv | sed 's/^/perf-{name}-{core_type} /'; echo\n\
                     clear {cpu}\n\
                     {pinned} scx_amp pmc stat --csv -o /w/csv -e {events} -- {command} >/dev/null\n\
                     awk -F, -v ORS=' ' '/retired|cycles|refill|mis_pred/ {{ print $1 }}' /w/csv | sed 's/^/ours-{name}-{core_type} /'; echo"
                );
            }
        }
    }
    let (_, cpu, pmu) = CORES[0];
    let of_pmu = |pmu: &str| WATCHED_EVENTS.map(|e| format!("{pmu}/{e}/")).join(",");
    let watched_events = CORES.map(|(.., pmu)| of_pmu(pmu)).join(",");
    for _ in 0..WATCHED_REPEATS {
        for (i, (_, watch)) in WATCHED.iter().enumerate() {
            let watch = watch.replace("EVENTS", &watched_events);
            let _ = writeln!(
                s,
                ": >/w/seen; echo \"watched-{i} $({watch} amp-workload run alu --work 60M --pin {cpu} --json)\"\n\
                 awk '/{pmu}.inst_retired/ {{ gsub(\",\", \"\", $2); n += $2 }} END {{ print \"seen-{i}\", n + 0 }}' /w/seen"
            );
        }
    }
    s
}

fn numbers(reply: &Reply, tag: &str) -> Vec<Vec<f64>> {
    let parse = |l: &str| {
        l.split_whitespace()
            .map(|w| w.parse().expect("a count"))
            .collect()
    };
    reply.lines(tag).map(parse).collect()
}

fn column(rows: &[Vec<f64>], i: usize) -> Measured {
    let v: Vec<f64> = rows.iter().map(|r| r[i]).collect();
    Measured::mean(&v).expect("repeats")
}

fn main() -> Result<(), Box<dyn Error>> {
    let catalogue = Catalogue::shipped()?;
    let programs: Vec<_> = catalogue
        .programs()
        .filter(|p| PROGRAMS.contains(&p.executable.as_str()))
        .collect();
    let needs = catalogue.needs(programs.iter().map(|p| p.command.as_slice()))?;
    let commands: Vec<(String, String)> = programs
        .iter()
        .map(|p| {
            let arguments = p.command.iter().skip(1);
            let arguments: Vec<String> = arguments.map(|w| format!("'{w}'")).collect();
            (p.executable.clone(), arguments.join(" "))
        })
        .collect();
    let lab = Lab::board("juno").measurement().needs(&needs);
    let reply = lab.package("linux-perf").run(&script(&commands)).ok();

    println!(
        "{:<10} {:<8} {}",
        "program",
        "core",
        EVENTS.map(|e| format!("{e:>24}")).join("")
    );
    for (name, _) in &commands {
        for (core_type, ..) in CORES {
            let (theirs, ours) = (
                numbers(&reply, &format!("perf-{name}-{core_type}")),
                numbers(&reply, &format!("ours-{name}-{core_type}")),
            );
            assert!(theirs.len() == REPEATS && ours.len() == REPEATS);
            let difference = |i: usize| {
                let (a, b) = (column(&ours, i), column(&theirs, i));
                let q = a / b;
                format!(
                    "{:>+14.3} ± {:.3} %",
                    100.0 * (q.value - 1.0),
                    100.0 * q.u.unwrap_or(f64::NAN)
                )
            };
            let all: Vec<String> = (0..EVENTS.len())
                .map(difference)
                .map(|d| format!("{d:>24}"))
                .collect();
            println!("{name:<10} {core_type:<8} {}", all.join(""));
        }
    }
    let time = |i: usize| {
        let walls = reply.wall_times(&format!("watched-{i}"));
        assert_eq!(walls.len(), WATCHED_REPEATS);
        let (name, watch) = WATCHED[i];
        if watch.contains("-i ") || watch.contains("-I ") {
            // who counts nothing costs nothing
            for seen in numbers(&reply, &format!("seen-{i}")) {
                let part = seen[0] / WATCHED_INSTRUCTIONS;
                assert!((0.99..1.02).contains(&part), "{name}: {seen:?}");
            }
        }
        Measured::mean(&walls).expect("repeats")
    };
    let alone = time(0);
    for (i, (name, _)) in WATCHED.iter().enumerate() {
        let (t, q) = (time(i), time(i) / alone);
        println!(
            "{name:<18} {:>8.2} ± {:.2} ms  {:+.3} ± {:.3} %",
            t.value * 1e-6,
            t.u.unwrap_or(f64::NAN) * 1e-6,
            100.0 * (q.value - 1.0),
            100.0 * q.u.unwrap_or(f64::NAN)
        );
    }
    Ok(())
}
