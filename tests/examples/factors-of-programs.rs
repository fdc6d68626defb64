//! What `scx_amp pmc stat -V sf,ef` says of known kernels on each core type of the board, beside
//! what the times and energies of the whole programs alone say; beside what the scheduler's own
//! provider says of two of them that have run for a while; and of a program of two phases over time.
//!
//! `cargo run --release -p amp-tests --example factors-of-programs [MACHINE]`

use amp_metrics::uncertainty::Measured;
use amp_tests::{Lab, Reply};
use serde_json::Value;
use std::error::Error;
use std::fmt::Write as _;

/// Kernels, and units of work.
const KERNELS: [(&str, &str); 9] = [
    ("alu", "5M"),
    ("mul", "3M"),
    ("fp", "800k"),
    ("stream --size 8M", "800k"),
    ("chase --size 8M", "300k"),
    ("hash --size 8M", "600k"),
    ("branchy", "1M"),
    ("sort", "50"),
    ("phased --phase alu=10M --phase hash@8M=600k", "2"),
];
/// Those of them that the scheduler is asked about, too.
const SCHEDULED: [usize; 2] = [1, 5];
const PHASED: usize = 8;
const RUNS: usize = 5;
/// Core types.
const ON: [&str; 2] = ["big", "little"];
const ASK: &str = "
wait_for() { i=0; while [ \"$(cat /sys/kernel/sched_ext/state)\" != $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; }
ask() { scx_amp ctl status | tr -d '\\n'; echo; }
# name, options, target: the factors of the whole run
factors() {
    n=$1 o=$2; shift 2
    scx_amp pmc stat --csv -o /seen $o \"$@\" >/dev/null || exit 1
    awk -F, -v n=$n '/^value,counter/ { on = 1; next } on { print n, $2, $1, $6, $7, $8, $9 }' /seen
}
sleep 5
";

fn script(cpus: [u32; 2]) -> String {
    let mut s = String::from(ASK);
    for (k, (kernel, work)) in KERNELS.iter().enumerate() {
        for (c, cpu) in cpus.into_iter().enumerate() {
            let run = format!("amp-workload run {kernel} --work {work} --pin {cpu}");
            for _ in 0..RUNS {
                let _ = writeln!(s, "echo \"solo-{k}-{c} $(amp-workload time --pin {cpu} --count --json -- {run})\"");
            }
            for _ in 0..RUNS {
                let _ = writeln!(s, "factors factor-{k}-{c} '-V sf,ef' -- {run}");
            }
        }
    }
    for (c, cpu) in cpus.into_iter().enumerate() {
        let (kernel, work) = KERNELS[PHASED];
        let _ = writeln!(
            s,
            "factors phases-{c} '-V sf -i 10 -e task-clock' -- amp-workload run {kernel} --work {work} --pin {cpu}\n\
             awk -F, '$6 == \"sf of big\" && $5 == \"{}\" {{ print \"over-{c}\", $1, $7 }}' /seen",
            ON[c]
        );
    }
    let endless = |s: &mut String, k: usize, cpu: u32, each: &str| {
        let (kernel, _) = KERNELS[k];
        let _ = writeln!(
            s,
            "amp-workload run {kernel} --work 1000G --pin {cpu} >/dev/null & one=$!\nsleep 1\n\
             for r in $(seq {RUNS}); do {each}; done\nkill $one; wait $one"
        );
    };
    for (i, k) in SCHEDULED.into_iter().enumerate() {
        for (c, cpu) in cpus.into_iter().enumerate() {
            let each = format!("factors steady-{i}-{c} '-V sf,ef --timeout 300' -p $one");
            endless(&mut s, k, cpu, &each);
        }
    }
    s += "scx_amp run --policy rr --provider model 2>/dev/null & pid=$!\nwait_for enabled\n";
    for (i, k) in SCHEDULED.into_iter().enumerate() {
        for (c, cpu) in cpus.into_iter().enumerate() {
            let each = format!("sleep 0.6; echo \"status-{i}-{c} $one $(ask)\"");
            endless(&mut s, k, cpu, &each);
        }
    }
    s + "kill $pid; wait $pid\n"
}

/// `mean ± standard deviation`.
fn shown(of: &[f64]) -> String {
    let Some(Measured { value, u: Some(u) }) = Measured::mean(of) else {
        return "-".to_owned();
    };
    let deviation = u * (of.len() as f64).sqrt();
    format!("{value:>6.3} ± {deviation:.3}")
}

/// The values of a factor of the big core type behind `tag`, from core type `on`, with the uncertainties that the model
/// states, and the part of the time that has estimates.
fn factors(r: &Reply, tag: &str, factor: &str, on: &str) -> Vec<[f64; 3]> {
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // sf of big, value, uncertainty, core type, estimates, coverage
        let [name, "of", "big", value, u, from, _, coverage] = words[..] else {
            return None;
        };
        let numbers = [value, u, coverage].map(|n| n.parse().unwrap_or(f64::NAN));
        // where it ran before it was pinned is another matter
        (name == factor && from == on).then_some(numbers)
    };
    r.lines(tag).filter_map(of).collect()
}

fn column(rows: &[[f64; 3]], i: usize) -> Vec<f64> {
    rows.iter().map(|r| r[i]).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let machine = std::env::args().nth(1).unwrap_or_else(|| "juno".to_owned());
    let cpus = match machine.as_str() {
        "quickia" => [1, 3],
        _ => [1, 4],
    };
    let r = Lab::board(&machine).measurement().run(&script(cpus)).ok();
    println!("{machine}: factors of big, {RUNS} runs, mean ± standard deviation");
    for (k, (kernel, _)) in KERNELS.iter().enumerate() {
        let solo = |c: usize| -> Vec<(f64, f64)> {
            let tag = format!("solo-{k}-{c}");
            let said = r
                .lines(&tag)
                .map(|l| serde_json::from_str::<Value>(l).expect("JSON"));
            let number = |v: &Value| v.as_f64().expect("a number");
            said.map(|j| (number(&j["wall_ns"]), number(&j["model"]["energy_uj"])))
                .collect()
        };
        let (big, little) = (solo(0), solo(1));
        assert_eq!((big.len(), little.len()), (RUNS, RUNS), "{kernel}");
        let both = || big.iter().zip(&little);
        let sf: Vec<f64> = both().map(|(b, l)| l.0 / b.0).collect();
        let ef: Vec<f64> = both().map(|(b, l)| l.0 / b.0 * l.1 / b.1).collect();
        for (name, truth) in [("sf", sf), ("ef", ef)] {
            let of = |c: usize| factors(&r, &format!("factor-{k}-{c}"), name, ON[c]);
            let [from_big, from_little] = [0, 1].map(of);
            let stated = |rows: &[[f64; 3]]| Measured::mean(&column(rows, 1)).map(|m| m.value);
            let covered =
                |rows: &[[f64; 3]]| column(rows, 2).into_iter().fold(f64::INFINITY, f64::min);
            println!(
                "{kernel:<42} {name}  alone {}  from big {} ({} runs, states ± {:.3}, least coverage {:.3})  from little {} ({} runs, states ± {:.3}, least coverage {:.3})",
                shown(&truth),
                shown(&column(&from_big, 0)),
                from_big.len(),
                stated(&from_big).unwrap_or(f64::NAN),
                covered(&from_big),
                shown(&column(&from_little, 0)),
                from_little.len(),
                stated(&from_little).unwrap_or(f64::NAN),
                covered(&from_little),
            );
        }
    }
    for (i, k) in SCHEDULED.into_iter().enumerate() {
        for (c, on) in ON.into_iter().enumerate() {
            let mut said = [vec![], vec![]];
            for line in r.lines(&format!("status-{i}-{c}")) {
                let (tid, status) = line.split_once(' ').expect("a thread");
                let status: Value = serde_json::from_str(status)?;
                let threads = status["per_thread"].as_array().expect("threads");
                let tid: i64 = tid.parse()?;
                let thread = threads.iter().find(|t| t["tid"].as_i64() == Some(tid));
                for (of, name) in said.iter_mut().zip(["sf", "ef"]) {
                    let value = thread.and_then(|t| t["metrics"][name]["value"].as_f64());
                    of.extend(value);
                }
            }
            for (of, name) in said.iter().zip(["sf", "ef"]) {
                let stat = factors(&r, &format!("steady-{i}-{c}"), name, on);
                println!(
                    "{:<42} {name} on {on:<6}  ctl status {} ({} looks)  pmc stat -p {}",
                    KERNELS[k].0,
                    shown(of),
                    of.len(),
                    shown(&column(&stat, 0)),
                );
            }
        }
    }
    for (c, on) in ON.into_iter().enumerate() {
        println!("{} on {on}, -i 10: time (s), sf", KERNELS[PHASED].0);
        for line in r.lines(&format!("over-{c}")) {
            println!("  {line}");
        }
    }
    Ok(())
}
