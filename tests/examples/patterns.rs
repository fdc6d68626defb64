//! `scx_amp pmc patterns` on programs of which it is known which patterns they have: a row per
//! program, and right and wrong verdicts per pattern.
//!
//! `cargo run --release -p amp-tests --example patterns`

use amp_tests::Lab;
use serde_json::Value;

/// Times each program runs.
const REPEATS: usize = 3;
const PATTERNS: [&str; 3] = ["bandwidth saturation", "load imbalance", "false sharing"];

/// These share for a purpose.
const TRUE_SHARING: [&str; 2] = [
    "handoff --threads 2 --cpus 2,3 --work 1k",
    "handoff --threads 2 --cpus 0,3 --work 1k",
];
/// Program of `amp-workload pattern`, and which patterns it has. `handoff` shares for a purpose,
/// which counters cannot tell from sharing without one.
const PROGRAMS: [(&str, [bool; 3]); 28] = [
    (
        "triad --threads 6 --cpus 0,1,2,3,4,5 --size 8M --work 6",
        [true, false, false],
    ),
    (
        "copy --threads 6 --cpus 0,1,2,3,4,5 --size 8M --work 8",
        [true, false, false],
    ),
    (
        "store --threads 2 --cpus 0,1 --size 8M --work 16",
        [true, false, false],
    ),
    (
        "store --threads 4 --cpus 2,3,4,5 --size 8M --work 8",
        [true, false, false],
    ),
    (
        "triad --threads 6 --cpus 0,1,2,3,4,5 --size 24K --work 2k",
        [false, false, false],
    ),
    (
        "dot --threads 4 --cpus 2,3,4,5 --size 24K --work 2k",
        [false, false, false],
    ),
    (
        "store --threads 1 --cpus 0 --size 8M --work 16",
        [false, false, false],
    ),
    (
        "load --threads 2 --cpus 0,1 --size 8M --work 16",
        [false, false, false],
    ),
    (
        "vtriad --threads 1 --cpus 3 --size 8M --work 8",
        [false, false, false],
    ),
    (
        "triangle --threads 2 --cpus 0,1 --work 150",
        [false, true, false],
    ),
    (
        "triangle --threads 2 --cpus 2,3 --work 100",
        [false, true, false],
    ),
    (
        "triangle --threads 2 --cpus 2,3 --work 100 --sleep",
        [false, true, false],
    ),
    (
        "triangle --threads 4 --cpus 2,3,4,5 --work 150",
        [false, true, false],
    ),
    (
        "triangle-even --threads 2 --cpus 0,1 --work 200",
        [false, false, false],
    ),
    (
        "triangle-even --threads 2 --cpus 2,3 --work 150",
        [false, false, false],
    ),
    (
        "triangle-even --threads 2 --cpus 2,3 --work 150 --sleep",
        [false, false, false],
    ),
    (
        "counters --threads 2 --cpus 0,1 --work 2k",
        [false, false, true],
    ),
    (
        "counters --threads 4 --cpus 2,3,4,5 --work 600",
        [false, false, true],
    ),
    (
        "counters --threads 2 --cpus 0,3 --work 1k",
        [false, false, true],
    ),
    (
        "histogram --threads 2 --cpus 0,1 --work 500",
        [false, false, true],
    ),
    (
        "histogram --threads 4 --cpus 2,3,4,5 --work 200",
        [false, false, true],
    ),
    (
        "histogram --threads 2 --cpus 0,3 --work 200",
        [false, false, true],
    ),
    (
        "counters-apart --threads 2 --cpus 0,1 --work 4k",
        [false, false, false],
    ),
    (
        "counters-apart --threads 4 --cpus 2,3,4,5 --work 2k",
        [false, false, false],
    ),
    (
        "counters-apart --threads 2 --cpus 0,3 --work 2k",
        [false, false, false],
    ),
    (
        "histogram-apart --threads 2 --cpus 0,3 --work 500",
        [false, false, false],
    ),
    (
        "histogram-apart --threads 4 --cpus 2,3,4,5 --work 500",
        [false, false, false],
    ),
    (
        "handoff-apart --threads 2 --cpus 2,3 --work 2k",
        [false, false, false],
    ),
];

fn main() {
    let mut script = String::from("sleep 2\n");
    for round in 0..REPEATS {
        for (i, (program, _)) in PROGRAMS.iter().enumerate() {
            // what memory can do is the same each time: it is measured by one of them
            let rate = if i == 0 { "" } else { "--attainable $rate" };
            script += &format!(
                "scx_amp pmc patterns -i 20 {rate} --json /o.json -- amp-workload pattern {program} >/dev/null || exit 1\n\
                 echo \"run-{round}-{i} $(cat /o.json)\"\n"
            );
            if i == 0 {
                script += "rate=$(sed -n 's|.*bytes/s\",\"value\":\\([0-9]*\\).*|\\1|p' /o.json)\necho \"rate $rate\"\n";
            }
        }
    }
    for program in TRUE_SHARING {
        for _ in 0..REPEATS {
            script += &format!(
                "scx_amp pmc patterns -i 20 --attainable $rate --json /o.json -- amp-workload pattern {program} >/dev/null || exit 1\n\
                 echo \"handoff $(cat /o.json)\"\n"
            );
        }
    }
    let reply = Lab::board("juno").run(&script).ok();
    for rate in reply.lines("rate") {
        println!("attainable: {rate} bytes/s");
    }
    let read = |tag: &str| -> Value {
        let line = reply.lines(tag).next().unwrap_or_else(|| panic!("{tag}"));
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{tag}: {e}"))
    };
    let mut right = [[0; 2]; 3];
    let mut wrong = [[0; 2]; 3];
    println!(
        "| program | {} | seconds | least counted |",
        PATTERNS.join(" | ")
    );
    println!("|---|---|---|---|---|---|");
    for (i, (program, truth)) in PROGRAMS.iter().enumerate() {
        let runs: Vec<Value> = (0..REPEATS)
            .map(|r| read(&format!("run-{r}-{i}")))
            .collect();
        let mut row = format!("| {program} |");
        for (p, has) in truth.iter().enumerate() {
            for run in &runs {
                let f = &run["findings"][p];
                assert_eq!(f["pattern"], PATTERNS[p]);
                let ok = f["verdict"] == if *has { "present" } else { "absent" };
                let to = if ok { &mut right } else { &mut wrong };
                to[p][usize::from(*has)] += 1;
                row += &cell(f, if ok { "" } else { " WRONG" });
            }
            row += " |";
        }
        let of = |key: &str| runs[0][key].as_f64().unwrap_or(f64::NAN);
        let threads = runs.iter().flat_map(|r| r["threads"].as_array()).flatten();
        let least = threads
            .filter_map(|t| t["coverage"].as_f64())
            .fold(1.0, f64::min);
        println!("{row} {:.2} | {:.3} |", of("elapsed_s"), least);
    }
    let mut handoffs = reply.lines("handoff");
    for program in TRUE_SHARING {
        let cells = handoffs.by_ref().take(REPEATS).map(|line| {
            let run: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
            cell(&run["findings"][2], "")
        });
        println!("{program}: {}", cells.collect::<String>());
    }
    println!("\n| pattern | has it: found | has it: missed | has it not: absent | has it not: false alarm |");
    println!("|---|---|---|---|---|");
    for (p, name) in PATTERNS.iter().enumerate() {
        let ([absent, found], [alarm, missed]) = (right[p], wrong[p]);
        println!("| {name} | {found} | {missed} | {absent} | {alarm} |");
    }
}

/// The deciding figure.
fn cell(finding: &Value, mark: &str) -> String {
    let f = &finding["figures"][0];
    let yes = if finding["verdict"] == "present" {
        "**"
    } else {
        ""
    };
    let value = f["value"].as_f64().unwrap_or(f64::NAN);
    match f["u"].as_f64() {
        Some(u) => format!(" {yes}{value:.3} ± {u:.3}{yes}{mark}"),
        None => format!(" {yes}{value:.3}{yes}{mark}"),
    }
}
