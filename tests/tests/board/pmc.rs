//! `scx_amp pmc` on the board: what there is, and counts beside known ones.

use super::derived;
use amp_tests::{Lab, Reply};
use serde_json::Value;

/// Where each core type's programs are put.
const PLACES: [(&str, u32); 2] = [("big", 1), ("little", 4)];
/// Units of work by which the longer run of `alu` differs from the shorter one: those are known.
const UNITS: f64 = 4e6;
/// Millions of units of `hash` in its two runs: enough that what is left in caches from before
/// makes no difference.
const HASH: [u32; 2] = [1, 4];
/// How far counts may be from known ones.
pub const CLOSE: f64 = 0.005;
/// One more than the six counters, that of cycles left out, can hold.
const WIDE: &str = "l1d_cache:u,l1d_cache_refill:u,l2d_cache:u,l2d_cache_refill:u,br_retired:u,br_mis_pred:u,inst_retired:u";

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Value `key` of the row of `event` on a core type.
pub fn value(report: &Value, event: &str, core_type: &str, key: &str) -> f64 {
    let rows = report["counts"].as_array().expect("counts");
    let row = rows
        .iter()
        .find(|r| r["event"] == event && r["core_type"] == core_type)
        .unwrap_or_else(|| panic!("no {event} on {core_type} in {report}"));
    row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"))
}

fn near(what: &str, got: f64, known: f64) {
    let error = got / known - 1.0;
    println!("{what}: {got} of {known}, {:+.4} %", error * 100.0);
    assert!(known > 100_000.0, "{what}: too few to compare: {known}");
    assert!(error.abs() <= CLOSE, "{what}: {got}, known are {known}");
}

/// `alu` in windows of a million instructions, every ninth of which is a branch.
fn windows(report: &Value) {
    assert_eq!(report["window"], 1_000_000);
    let windows = report["intervals"].as_array().expect("windows");
    let of = |w: &Value, event: &str| {
        let counts = w["counts"].as_array().unwrap();
        let little = |c: &&Value| c["event"] == event && c["core_type"] == "little";
        counts
            .iter()
            .find(little)
            .map(|c| c["count"].as_f64().unwrap())
    };
    let little: Vec<&Value> = windows
        .iter()
        .filter(|w| of(w, "instructions:u").is_some())
        .collect();
    println!("{} windows", little.len());
    assert!(little.len() >= 36);
    assert!(little.iter().all(|w| of(w, "instructions:u") == Some(1e6)));
    // After the start of the program. Counters are read one after the other while it runs, which
    // moves some of one window's counts to the next, and is made up for there.
    let branches = little[5..].iter().filter_map(|w| of(w, "branches:u"));
    let branches: Vec<f64> = branches.map(|b| b / (1e6 / 9.0) - 1.0).collect();
    let mean = branches.iter().sum::<f64>() / branches.len() as f64;
    let worst = branches.iter().fold(0.0, |w: f64, b| w.max(b.abs()));
    println!(
        "branches in a window: {:+.3} %, at most {:.3} % off",
        100.0 * mean,
        100.0 * worst
    );
    assert!(mean.abs() < 0.005 && worst < 0.1, "{mean}, {worst}");
    let times: Vec<f64> = little.iter().map(|w| w["at_s"].as_f64().unwrap()).collect();
    assert!(times.windows(2).all(|t| t[0] < t[1]), "{times:?}");
}

/// Instructions in windows by overflow, for each of [`PLACES`].
const OVERFLOW: [u64; 2] = [1_000_000, 100_000];
/// How many instructions late the kernel may read the counters.
const LATE: f64 = 100.0;
/// How many branches a window may have more or less than the known ones.
const BRANCHES_OFF: f64 = 10.0;

/// `alu` in windows that the kernel cut, every ninth instruction of which is a branch.
fn overflow_windows(core_type: &str, size: u64, report: &Value) {
    assert_eq!(
        (&report["window"], &report["overflow"]),
        (
            &size.into(),
            &serde_json::json!({"lost": 0, "throttled": 0})
        )
    );
    let (mut n, mut length, mut worst) = (0, 0.0_f64, 0.0_f64);
    for w in report["intervals"].as_array().expect("windows") {
        let counts = w["counts"].as_array().unwrap();
        if counts[0]["core_type"] != core_type {
            continue;
        }
        // in the order in which they were asked for, whichever the leader is
        let of = |i: usize, event: &str| {
            assert_eq!((&counts[i]["event"], counts.len()), (&event.into(), 2));
            counts[i]["count"].as_f64().unwrap()
        };
        let (branches, instructions) = (of(0, "branches:u"), of(1, "instructions:u"));
        assert!(counts.iter().all(|c| c["tid"].is_u64()), "{w}");
        n += 1;
        length = length.max((instructions - size as f64).abs());
        // after the start of the program
        if n * size > 5_000_000 {
            worst = worst.max((branches - instructions / 9.0).abs());
        }
    }
    println!("{core_type}: {n} windows of {size} by overflow, {length} off at most; branches {worst:.1} off at most");
    assert!(n * size >= 36_000_000, "{n}");
    assert!(length <= LATE && worst <= BRANCHES_OFF, "{length}, {worst}");
    let counted = value(report, "instructions:u", core_type, "count");
    assert!(counted >= (n * size) as f64, "{counted}");
}

/// A profile by instructions of ten functions of equal work: as many samples as counters wrapped,
/// in each function as many as in the others but for the skid, which moves samples from the end of
/// a function into the next.
fn profile(core_type: &str, profile: &Value, blocks: &Value) {
    let blocks = blocks.as_array().unwrap();
    let of = |b: &Value| b["instructions"].as_f64().unwrap() * b["executions"].as_f64().unwrap();
    let known: f64 = blocks.iter().map(of).sum();
    assert_eq!(
        (&profile["lost"], &profile["throttled"]),
        (&0.into(), &0.into())
    );
    let functions = profile["functions"].as_array().unwrap();
    let ours = |f: &&Value| f["function"].as_str().unwrap().starts_with("amp_blocks_");
    let samples = functions
        .iter()
        .filter(ours)
        .map(|f| f["samples"].as_f64().unwrap());
    // The first prime from 10,000 on. A wrap that the kernel is entered with (a tick, a page fault)
    // finds it in the kernel, and gives no sample of user mode: 998 to 1000 were seen.
    let wraps = known / 10_007.0;
    let samples: f64 = samples.sum();
    println!("{core_type}: {samples} samples of {wraps:.1}");
    assert!(
        (samples - wraps).abs() <= 0.01 * wraps,
        "{samples} samples, {wraps} wraps"
    );
    for choice in profile["choices"].as_array().unwrap() {
        // the board has none, and says so
        let why = choice["no_branches"].as_str().unwrap();
        assert!(
            choice["branches"] == 0 && why.contains("states none"),
            "{choice}"
        );
    }
    for level in 1..=10 {
        let name = format!("amp_blocks_level_{level}");
        let f = functions.iter().find(|f| f["function"] == name.as_str());
        let f = f.unwrap_or_else(|| panic!("no {name} in {profile}"));
        let share = f["events"].as_f64().unwrap() / (samples * 10_007.0);
        // 14 of 143 instructions, 6 of which the block after may get, and what chance does to 1,000
        // samples, four times
        let expected = 14.0 / 143.0;
        assert!(
            (share - expected).abs() <= 8.0 / 143.0 + 0.038,
            "{name}: {share}"
        );
        let sampled = f["blocks"].as_array().unwrap();
        assert!(!sampled.is_empty(), "{name} is not cut into blocks");
        for b in sampled {
            let same = |t: &&Value| t["function"] == name.as_str() && t["offset"] == b["offset"];
            let truth = blocks.iter().find(same);
            let truth = truth.unwrap_or_else(|| panic!("{name}: no such block: {b}"));
            assert_eq!(truth["instructions"], b["instructions"], "{name}");
        }
    }
}

/// A thousand threads, watched from outside and from their beginning; threads and CPUs for
/// themselves; a program that measures itself; an event that is known to be broken.
const MANY: &str = r#"
amp-workload run alu --threads 1000 --work 100M >/dev/null & pid=$!
sleep 0.3
# stopped until both have opened their events: six to eight thousand each
kill -STOP $pid
scx_amp pmc stat -e instructions:u -p $pid --json /many-stat.json & stat=$!
(sleep 5; kill -CONT $pid) &
scx_amp pmc record -e instructions:u -c 20000 -p $pid --json /many.json || exit 1
wait $stat || exit 1
scx_amp pmc record -e instructions:u -c 100000 -a --json /all.json -- amp-workload run alu --work 10M || exit 1
scx_amp pmc stat -a -A -e instructions:u --json /cpus.json -- amp-workload bench spin --by counting --threads 6 --seconds 0.2 || exit 1
scx_amp pmc stat -e instructions:u --json /forked-stat.json -- amp-workload run alu --threads 1000 --work 10M || exit 1
scx_amp pmc record -e instructions:u -c 10000 --json /forked.json -- amp-workload run alu --threads 1000 --work 10M || exit 1
scx_amp pmc stat --per-thread -e instructions:u -V energy -m 'nj=energy*1e9/instructions:u' --json /threads.json -- amp-workload bench spin --by counting --threads 3 --seconds 0.5 || exit 1
scx_amp pmc stat -g energy --json /energy.json -- amp-workload run alu --work 1M --pin 1 || exit 1
mkdir -p /etc/scx_amp; cp /trust.toml /etc/scx_amp
scx_amp pmc stat -e br_mis_pred,br_retired,instructions -m 'bpi=br_retired/instructions' --json /limited.json -- amp-workload run alu --work 100k --pin 1 || exit 1
scx_amp run --provider model 2>/err; echo "refused $?"; sed 's/^/broken /' /err
rm /etc/scx_amp/trust.toml
scx_amp bench /mix.toml --on host --provider model --trust /trust.toml 2>/err; echo "refused-bench $?"; sed 's/^/bench-says /' /err
"#;

/// An event of one core type is broken, another's of the same name is not.
const TRUST: &str = r#"
format = 1
kernel = "some other"
repetitions = 1
[[core_type]]
name = "big"
pmu = "armv8_cortex_a57"
processor = "0x411fd070"
cpu = 1
[[core_type.event]]
event = "armv8_cortex_a57/event=0x10/"
quantity = "mispredicts"
verdict = "broken"
error_min = -1.0
error_mean = -1.0
error_max = -1.0
worst_kernel = "branches"
comparisons = 1
[[core_type.event]]
event = "armv8_cortex_a57/br_retired/"
quantity = "branches"
verdict = "usable"
error_min = -0.05
error_mean = 0.0
error_max = 0.04
worst_kernel = "branches"
comparisons = 1
"#;

/// Something to bench, were its provider not refused.
const MIX: &str = r#"
name = "one"
[[app]]
name = "alu"
command = ["amp-workload", "run", "alu", "--work", "1M"]
"#;

/// Events of all functions whose names hold `part`, or of all.
fn sampled(profile: &Value, part: &str) -> f64 {
    let functions = profile["functions"].as_array().unwrap();
    let of = functions
        .iter()
        .filter(|f| f["function"].as_str().is_some_and(|n| n.contains(part)));
    of.map(|f| f["events"].as_f64().unwrap()).sum()
}

/// Counts of `event` on all core types.
fn sum(report: &Value, event: &str) -> f64 {
    let rows = report["counts"].as_array().expect("counts");
    let of = rows.iter().filter(|r| r["event"] == event);
    of.filter_map(|r| r["count"].as_f64()).sum()
}

fn many(r: &Reply) {
    let file = |name: &str| json(&r.file(name));
    for name in ["/many.json", "/all.json", "/forked.json"] {
        let profile = file(name);
        let (all, of_kernel) = (sampled(&profile, ""), sampled(&profile, "Alu"));
        println!(
            "{name}: {} samples, {of_kernel} of {all} instructions in the kernel",
            profile["samples"]
        );
        assert_eq!(profile["lost"], 0, "{name}");
        // a thousand threads begin and end, too
        assert!(of_kernel > 0.5 * all && all > 0.0, "{name}: {profile}");
    }
    for (name, least) in [("many", 100e6), ("forked", 90e6)] {
        let counted = sum(&file(&format!("/{name}-stat.json")), "instructions:u");
        let sampled = sampled(&file(&format!("/{name}.json")), "");
        println!("{name}, a thousand threads: {counted} counted, {sampled} sampled");
        assert!(counted > least, "{counted}");
        // every thread begins a period of its own, and ends in the midst of one
        let missed = 1.0 - sampled / counted;
        assert!((-0.02..0.1).contains(&missed), "{sampled} of {counted}");
    }
}

fn rows(r: &Reply) {
    let threads = json(&r.file("/threads.json"));
    let rows = threads["counts"].as_array().unwrap();
    for i in 0..3 {
        let name = format!("amp-spin-{i}-");
        let mine = |c: &&Value| c["thread"].as_str().is_some_and(|t| t.starts_with(&name));
        let of: Vec<&Value> = rows.iter().filter(mine).collect();
        let counted: f64 = of.iter().filter_map(|c| c["count"].as_f64()).sum();
        println!("{name}: {counted} in {} rows", of.len());
        // a row per core type
        assert!(of.len() == 2 && counted > 10e6, "{name}: {threads}");
        assert!(of
            .iter()
            .all(|c| c["coverage"].as_f64().is_none_or(|v| v > 0.8)));
    }
    let energy = threads["virtual_counters"].as_array().unwrap();
    for core_type in ["big", "little"] {
        let e = energy.iter().find(|e| e["of"] == core_type).unwrap();
        let joules = e["value"].as_f64().unwrap();
        println!("{core_type}: {joules} J");
        assert!(e["source"] == "board" && joules > 0.0, "{e}");
        // energy of all big cores per instruction of a thread on one of them
        let metrics = threads["metrics"].as_array().unwrap();
        let m = metrics
            .iter()
            .find(|m| m["core_type"] == core_type && m["value"].is_f64());
        let tid = &m.unwrap()["tid"];
        let count = rows
            .iter()
            .find(|c| c["tid"] == *tid && c["core_type"] == core_type);
        let known = joules * 1e9 / count.unwrap()["count"].as_f64().unwrap();
        assert!((m.unwrap()["value"].as_f64().unwrap() / known - 1.0).abs() < 1e-9);
    }
    let cpus = json(&r.file("/cpus.json"));
    let cpus = cpus["counts"].as_array().unwrap();
    let busy = cpus
        .iter()
        .filter(|c| c["count"].as_f64().is_some_and(|n| n > 1e6));
    let mut busy: Vec<u64> = busy.map(|c| c["cpu"].as_u64().unwrap()).collect();
    busy.sort_unstable();
    assert_eq!(busy, [0, 1, 2, 3, 4, 5]);
}

/// A command that ran three times: means of what each run counted.
fn repeated(report: &Value) {
    let runs = report["repeated"]["counts"].as_array().expect("runs");
    assert_eq!((runs.len(), &report["repeated"]["runs"]), (3, &3.into()));
    let of = |counts: &Value, core_type: &str, key: &str| {
        let all = counts.as_array().unwrap();
        let mut rows = all.iter().filter(|c| c["core_type"] == core_type);
        rows.next().expect("a count")[key].as_f64()
    };
    for core_type in ["big", "little"] {
        let each: Vec<f64> = runs
            .iter()
            .map(|r| of(r, core_type, "count").unwrap_or(0.0))
            .collect();
        let get = |key: &str| of(&report["counts"], core_type, key).unwrap_or(0.0);
        println!(
            "{core_type}: {each:?}, mean {} ± {}",
            get("count"),
            get("u")
        );
        assert!((get("count") - each.iter().sum::<f64>() / 3.0).abs() < 1.0);
        assert!(get("low") <= get("count") && get("count") <= get("high"));
    }
    // where the program begins, before it goes to its CPU, is chance
    let whole = |r: &Value| -> f64 {
        let on = |t| of(r, t, "count").unwrap_or(0.0);
        on("big") + on("little")
    };
    near("a run again", whole(&runs[0]), whole(&runs[2]));
}

/// Windows by overflow are of each thread, or of each CPU, and bad combinations are refused.
fn overflow_rows(r: &Reply) {
    let rows = |file: &str, key: &str| {
        let report = json(&r.file(file));
        let mut of = std::collections::BTreeMap::<u64, u64>::new();
        for w in report["intervals"].as_array().expect("windows") {
            *of.entry(w["counts"][0][key].as_u64().expect("a row"))
                .or_default() += 1;
        }
        println!("{file}: windows {of:?}, {}", report["overflow"]);
        assert_eq!(report["overflow"]["lost"], 0);
        of
    };
    // 60 million instructions a thread, less what they did before they were found
    let threads = rows("/overflow-threads.json", "tid");
    assert!(threads.values().filter(|n| **n >= 30).count() >= 3);
    assert!(rows("/overflow-cpus.json", "cpu").contains_key(&4));
    assert_eq!(r.lines("overflow").collect::<Vec<_>>(), ["2"; 3]);
    let says: Vec<&str> = r.lines("overflow-says").collect();
    for (says, part) in says.iter().zip(["--window", "--window 5", "give one -e"]) {
        assert!(says.contains(part), "{says}");
    }
}

fn energy_stands_beside_instructions(r: &Reply) {
    let report = json(&r.file("/energy.json"));
    let of = |list: &str, key: &str, name: &str| {
        let rows = report[list].as_array().unwrap();
        let row = |c: &&Value| c[key] == name && (c["core_type"] == "big" || c["of"] == "big");
        let row = rows.iter().find(row);
        row.unwrap_or_else(|| panic!("{name}: {report}")).clone()
    };
    let number = |v: &Value| v.as_f64().unwrap();
    let instructions = of("counts", "event", "instructions");
    let joules = number(&of("virtual_counters", "counter", "energy")["value"]);
    let nj = number(&of("metrics", "metric", "nj_per_instruction")["value"]);
    let watts = number(&of("metrics", "metric", "watts")["value"]);
    println!("big: {nj} nJ per instruction, {watts} W");
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
    close(nj, 1e9 * joules / number(&instructions["count"]));
    close(watts, joules / number(&instructions["seconds"]));
}

fn broken_events_are_refused(r: &Reply) {
    let report = json(&r.file("/limited.json"));
    let verdict = |core_type: &str| {
        let rows = report["counts"].as_array().unwrap();
        let of = |c: &&Value| c["event"] == "br_mis_pred" && c["core_type"] == core_type;
        rows.iter().find(of).unwrap()["verdict"].clone()
    };
    assert_eq!(
        (verdict("big"), verdict("little")),
        ("broken".into(), Value::Null)
    );
    // one that is off by itself is so however long it is counted, and so is what is made of it
    let of = |rows: &Value, name: &str, is: &str, core_type: &str| {
        let mut rows = rows.as_array().unwrap().iter();
        rows.find(|c| c[name] == is && c["core_type"] == core_type)
            .map(|c| ["count", "value", "u", "low", "high"].map(|k| c[k].as_f64()))
    };
    for (core_type, error) in [("big", (-0.05, 0.04)), ("little", (0.0, 0.0))] {
        let counted = of(&report["counts"], "event", "br_retired", core_type).unwrap();
        let [Some(count), _, Some(u), Some(low), Some(high)] = counted else {
            panic!("{core_type}: {report}");
        };
        if count == 0.0 {
            // where it is started from; it is pinned to a big core
            assert_eq!(core_type, "little");
            continue;
        }
        let relative = (1.0 / (1.0 + error.0) - 1.0) / 3f64.sqrt();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-6 * count, "{a} {b}: {report}");
        close(u, count * relative);
        close(low, count / (1.0 + error.1));
        close(high, count / (1.0 + error.0));
        let [_, value, u, ..] = of(&report["metrics"], "metric", "bpi", core_type).unwrap();
        let (value, u) = (value.unwrap(), u.unwrap());
        assert!((u - value * relative).abs() < 1e-6, "{report}");
    }
    for (status, tag, file) in [
        ("refused", "broken", "/etc/scx_amp/trust.toml"),
        ("refused-bench", "bench-says", " (/trust.toml)"),
    ] {
        assert_eq!(r.line(status), "1");
        let says: Vec<&str> = r.lines(tag).collect();
        let says = says.join(" ");
        for part in ["`juno`", "br_mis_pred", "big", "broken", file] {
            assert!(says.contains(part), "{part}: {says}");
        }
    }
}

#[test]
fn lists_counts_and_attaches() {
    let mut script = String::from(
        "sleep 5
scx_amp pmc list --json /list.json || exit 1
amp-workload list --json >/kernels.json
",
    );
    let mut lab = Lab::board("juno")
        .collect("/attached.json")
        .collect("/list.json")
        .collect("/kernels.json")
        .collect("/group.json")
        .collect("/windows.json")
        .collect("/again.json")
        .collect("/windows.html")
        .collect("/overflow-1.json")
        .collect("/overflow-4.json")
        .collect("/overflow-threads.json")
        .collect("/overflow-cpus.json")
        .collect("/blocks.json");
    for (_, cpu) in PLACES {
        lab = lab.collect(&format!("/record-{cpu}.json"));
    }
    let mut collected = Vec::new();
    let mut stat = |name: String, options: &str, command: String| {
        let path = format!("/{name}.json");
        script += &format!("scx_amp pmc stat {options} --json {path} -- {command} || exit 1\n");
        collected.push(path);
    };
    for (_, cpu) in PLACES {
        for times in [1, 2] {
            let alu = format!("amp-workload run alu --work {}M --pin {cpu}", 4 * times);
            // the same events by other names
            let e = "-e instructions:u,cycles:u,br_retired:u -m ipc=inst_retired:u/cpu_cycles:u";
            stat(format!("alu-{cpu}-{times}"), e, alu.clone());
            let turns = "-e instructions:u,cycles:u -e br_retired:u -e l1d_cache";
            stat(format!("turns-{cpu}-{times}"), turns, alu.clone());
            let wide = format!("-e task-clock,{WIDE}");
            stat(format!("wide-{cpu}-{times}"), &wide, alu.clone());
            if times == 2 {
                let single = format!("{wide} --single-events");
                stat(format!("single-{cpu}-{times}"), &single, alu);
            }
            // its own counters and the model's beside ours
            let work = HASH[times - 1];
            let hash = format!(
                "amp-workload run hash --size 8M --work {work}M --pin {cpu} --count --json"
            );
            let e = "-e l1d_cache_refill,l2d_cache_refill";
            stat(format!("hash-{cpu}-{times}"), e, hash);
        }
    }
    script += "
amp-workload run alu --work 20M --pin 4 --json & pid=$!
scx_amp pmc stat -e instructions -p $pid --timeout 300 --json /attached.json || exit 1
wait $pid; echo \"attached $?\"
scx_amp pmc stat -g branches --json /group.json -- amp-workload run alu --work 1M --pin 4 || exit 1
scx_amp pmc stat -r 3 -e instructions:u --json /again.json -- amp-workload run alu --work 1M --pin 4 || exit 1
scx_amp pmc stat -e instructions:u,branches:u --window 1M --json /windows.json --html /windows.html -- amp-workload run alu --work 4M --pin 4 || exit 1
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
ALU
scx_amp pmc stat -e instructions:u --window 1M --overflow --json /overflow-threads.json -- amp-workload run alu --threads 3 --work 20M || exit 1
scx_amp pmc stat -e instructions --window 1M --overflow -a --json /overflow-cpus.json -- amp-workload run alu --work 4M --pin 4 || exit 1
for cpu in 1 4; do
scx_amp pmc record -e instructions:u -c 10000 --method prime --json /record-$cpu.json -- amp-workload blocks chain --rounds 70k --pin $cpu || exit 1
done
amp-workload blocks chain --rounds 70k --list >/blocks.json
scx_amp pmc stat -e nosuch -- true 2>/err; echo \"unknown $?\"; sed 's/^/says /' /err
scx_amp pmc stat -e instructions:u,WIDE --window 1M -- true 2>/err
echo \"toomany $?\"; sed 's/^/says /' /err
for options in '--overflow' '--overflow --window 5' '--overflow --window 1M -e branches:u'; do
scx_amp pmc stat -e instructions:u $options -- true 2>/err; echo \"overflow $?\"; sed 's/^/overflow-says /' /err
done
scx_amp pmc stat -e instructions -p 999999 2>/err; echo \"gone $?\"
";
    script = script.replace("WIDE", WIDE);
    let alu = PLACES.iter().zip(OVERFLOW).map(|((_, cpu), size)| format!(
        "scx_amp pmc stat -e branches:u,instructions:u --window {size} --overflow --json /overflow-{cpu}.json -- amp-workload run alu --work 4M --pin {cpu} || exit 1\n"
    ));
    script = script.replace("ALU\n", &alu.collect::<String>());
    script += MANY;
    script += derived::SCRIPT;
    for (path, text) in derived::FILES {
        lab = lab.file(path, text);
    }
    for path in derived::COLLECTED {
        lab = lab.collect(path);
    }
    for file in [
        "many",
        "many-stat",
        "all",
        "forked",
        "forked-stat",
        "threads",
        "cpus",
        "limited",
        "energy",
    ] {
        lab = lab.collect(&format!("/{file}.json"));
    }
    lab = lab.file("/trust.toml", TRUST).file("/mix.toml", MIX);
    for path in &collected {
        lab = lab.collect(path);
    }
    let r = lab.run(&script).ok();

    for (core_type, cpu) in PLACES {
        profile(
            core_type,
            &json(&r.file(&format!("/record-{cpu}.json"))),
            &json(&r.file("/blocks.json")),
        );
    }
    windows(&json(&r.file("/windows.json")));
    for ((core_type, cpu), size) in PLACES.into_iter().zip(OVERFLOW) {
        let report = json(&r.file(&format!("/overflow-{cpu}.json")));
        overflow_windows(core_type, size, &report);
    }
    overflow_rows(&r);
    many(&r);
    rows(&r);
    energy_stands_beside_instructions(&r);
    broken_events_are_refused(&r);
    derived::check(&r);
    repeated(&json(&r.file("/again.json")));
    let group = json(&r.file("/group.json"));
    for metric in ["ipc", "miss_rate", "misses_per_1000"] {
        let all = group["metrics"].as_array().expect("metrics");
        let little = |m: &&Value| m["metric"] == metric && m["core_type"] == "little";
        let m = all.iter().find(little);
        assert!(
            m.is_some_and(|m| m["value"].as_f64().is_some()),
            "{metric}: {group}"
        );
    }
    let page = r.file("/windows.html");
    assert!(
        page.matches("<svg").count() == 2 && page.contains("branches:u"),
        "a plot per event"
    );
    let list = json(&r.file("/list.json"));
    let pmus = list["pmus"].as_array().unwrap();
    for (core_type, cpus) in [("big", "0-1"), ("little", "2-5")] {
        let pmu = pmus.iter().find(|p| p["core_types"][0] == core_type);
        let pmu = pmu.unwrap_or_else(|| panic!("no PMU for {core_type}: {list}"));
        assert_eq!(pmu["cpus"], cpus);
        // six event counters and that of cycles
        assert_eq!(pmu["counters"], 7, "{pmu}");
        let events = pmu["events"].as_array().unwrap();
        let refill = events.iter().find(|e| e["name"] == "l1d_cache_refill");
        let refill = refill.unwrap_or_else(|| panic!("{pmu}"));
        assert_eq!(refill["code"], "event=0x0003");
    }

    let kernels = json(&r.file("/kernels.json"));
    let alu = kernels
        .as_array()
        .unwrap()
        .iter()
        .find(|k| k["kernel"] == "alu")
        .unwrap();
    let per_unit = alu["instructions_per_unit"]["arm64"].as_f64().unwrap();
    let models: Vec<Value> = r
        .json()
        .into_iter()
        .filter(|j| j["kernel"] == "hash")
        .collect();
    assert_eq!(models.len(), 4);
    for (i, (core_type, cpu)) in PLACES.into_iter().enumerate() {
        let report = |name: &str, times: u32| json(&r.file(&format!("/{name}-{cpu}-{times}.json")));
        let (one, two) = (report("alu", 1), report("alu", 2));
        // on both types: where a program begins, before it goes to its CPU, is chance
        let of = |event: &str| sum(&two, event) - sum(&one, event);
        near(
            &format!("{core_type} alu instructions"),
            of("instructions:u"),
            UNITS * per_unit,
        );
        near(
            &format!("{core_type} alu branches"),
            of("br_retired:u"),
            UNITS,
        );
        let ipc = two["metrics"]
            .as_array()
            .unwrap()
            .iter()
            .find(|m| m["core_type"] == core_type);
        let known = value(&two, "instructions:u", core_type, "count")
            / value(&two, "cycles:u", core_type, "count");
        assert!((ipc.unwrap()["value"].as_f64().unwrap() / known - 1.0).abs() < 1e-9);

        // three sets by turns: the truth is within four standard uncertainties
        let turns = report("turns", 2);
        assert_eq!(turns["multiplexing"]["strategy"], "round-robin");
        let seen: f64 = ["instructions:u", "br_retired:u", "l1d_cache"]
            .map(|e| value(&turns, e, core_type, "coverage"))
            .iter()
            .sum();
        println!("{core_type}: {seen} of the time one of three sets is on");
        assert!(seen > 0.96, "too long between two sets: {turns}");
        for event in ["instructions:u", "br_retired:u"] {
            let get = |key| value(&turns, event, core_type, key);
            let truth = value(&two, event, core_type, "count");
            println!(
                "{core_type} {event} by turns: {} ± {}, truth {truth}",
                get("count"),
                get("u")
            );
            assert!((0.1..0.7).contains(&get("coverage")), "{turns}");
            assert!(
                (get("count") - truth).abs() <= 4.0 * get("u") + CLOSE * truth,
                "{turns}"
            );
        }

        // one that does not fit is split, and what needs no counter is counted all the time
        let wide = report("wide", 2);
        assert_eq!(wide["sets"].as_array().map(Vec::len), Some(2), "{wide}");
        // or each event takes turns by itself, as many at once as there are counters
        let single = report("single", 2);
        assert_eq!(single["sets"].as_array().map(Vec::len), Some(7), "{single}");
        assert_eq!(single["multiplexing"]["at_once"], 6, "{single}");
        for (event, known) in [
            ("inst_retired:u", "instructions:u"),
            ("br_retired:u", "br_retired:u"),
        ] {
            let truth = value(&two, known, core_type, "count");
            for (how, report, coverage) in [
                ("of a split set", &wide, 0.2..0.8),
                // six sevenths of the time
                ("by itself", &single, 0.75..0.95),
            ] {
                let get = |key| value(report, event, core_type, key);
                println!(
                    "{core_type} {event} {how}: {} ± {}, {} of the time, truth {truth}",
                    get("count"),
                    get("u"),
                    get("coverage")
                );
                assert!(coverage.contains(&get("coverage")), "{report}");
                assert!(
                    (get("count") - truth).abs() <= 4.0 * get("u") + CLOSE * truth,
                    "{report}"
                );
            }
        }
        let clock = wide["counts"].as_array().unwrap().iter();
        let clock: Vec<&Value> = clock.filter(|c| c["event"] == "task-clock").collect();
        assert_eq!(clock.len(), 1, "{wide}");
        assert_eq!(clock[0]["coverage"], 1.0, "{wide}");

        let (one, two) = (report("hash", 1), report("hash", 2));
        for (event, key) in [
            ("l1d_cache_refill", "l1d_refills"),
            ("l2d_cache_refill", "l2_refills"),
        ] {
            let of =
                value(&two, event, core_type, "count") - value(&one, event, core_type, "count");
            let model = |times: usize| models[2 * i + times]["model"][key].as_f64().unwrap();
            near(
                &format!("{core_type} hash {event}"),
                of,
                model(1) - model(0),
            );
        }
    }

    let attached = json(&r.file("/attached.json"));
    let count = value(&attached, "instructions", "little", "count");
    assert!(
        count > 1e6 && count < 20e6 * per_unit,
        "a part of it: {count}"
    );
    assert_eq!(r.line("attached"), "0");
    assert_eq!(
        (r.line("unknown"), r.line("toomany"), r.line("gone")),
        ("2", "2", "2")
    );
    let says: Vec<&str> = r.lines("says").collect();
    assert!(says[0].contains("`nosuch`"), "{says:?}");
    assert!(
        says[1].contains("without --window")
            && says[1].contains("7 events fit")
            && says[1].contains("beside `instructions:u`, `l1d_cache:u`"),
        "{says:?}"
    );
}

/// As on cores that do not have the event behind `branch-misses`: Linux's driver does not show it,
/// and refuses the kernel's name for it.
#[test]
fn a_pmu_without_branch_misses_counts_the_rest() {
    let r = Lab::board("juno")
        .plugin_argument("lacks=0x10")
        .collect("/list.json")
        .collect("/usual.json")
        .collect("/group.json")
        .run(
            "sleep 5
scx_amp pmc list --json /list.json || exit 1
scx_amp pmc stat --json /usual.json -- amp-workload run alu --work 4M --pin 1; echo \"usual $?\"
scx_amp pmc stat -g branches --json /group.json -- amp-workload run alu --work 4M --pin 1; echo \"group $?\"
scx_amp pmc stat -e br_mis_pred -- true 2>/err; echo \"named $?\"; sed 's/^/named-says /' /err
scx_amp pmc stat -e br_mis_pred_retired --json /other.json -- true; echo \"other $?\"
scx_amp run --policy hsp --provider auto 2>/log & pid=$!
i=0; while ! grep -q scheduling /log && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done
kill $pid; wait $pid; echo \"run $?\"; sed 's/^/run-says /' /log
scx_amp run --policy hsp --provider model 2>/err; echo \"model $?\"; sed 's/^/model-says /' /err
",
        )
        .ok();
    let list = json(&r.file("/list.json"));
    for pmu in list["pmus"].as_array().unwrap() {
        let has = |name: &str| {
            let mut events = pmu["events"].as_array().unwrap().iter();
            events.any(|e| e["name"] == name)
        };
        if pmu["core_types"].as_array().is_some_and(|t| !t.is_empty()) {
            assert!(!has("br_mis_pred") && has("br_mis_pred_retired"), "{pmu}");
        }
    }
    for file in ["/usual.json", "/group.json"] {
        let report = json(&r.file(file));
        let rows = report["counts"].as_array().unwrap();
        let of = |event: &str| {
            let of = rows.iter().filter(|r| r["event"] == event);
            of.map(|r| r["supported"].as_bool().unwrap_or(true))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("branch-misses"), [false; 2], "{report}");
        assert_eq!(of("instructions"), [true; 2], "{report}");
        assert!(value(&report, "branches", "big", "count") > 4e6, "{report}");
    }
    let group = json(&r.file("/group.json"));
    let metrics = group["metrics"].as_array().unwrap();
    for m in metrics.iter().filter(|m| m["metric"] != "ipc") {
        assert_eq!(
            m["not_supported"],
            serde_json::json!(["branch-misses"]),
            "{m}"
        );
    }
    assert_eq!(metrics.len(), 6);
    let says = |key: &str| r.lines(key).collect::<Vec<_>>().join(" ");
    for (key, status, parts) in [
        ("usual", "0", &[][..]),
        ("group", "0", &[]),
        (
            "named",
            "2",
            &["has no event `br_mis_pred`", "`br_mis_pred_retired`"],
        ),
        ("other", "0", &[]),
        // juno's model needs it, so what was measured in the mix has to do
        ("run", "0", &["`measured`", "no event `br_mis_pred`"]),
        ("model", "1", &["no event `br_mis_pred`"]),
    ] {
        let says = says(&format!("{key}-says"));
        assert_eq!(r.line(key), status, "{key}: {says}");
        for part in parts {
            assert!(says.contains(part), "{key}: {part}: {says}");
        }
    }
}
