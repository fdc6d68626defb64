//! What the groups of `scx_amp pmc stat -g` derive, beside what programs of known counts do.
//!
//! Whatever a program counts beside its kernel (its start, its data) is counted by a second run that
//! ends before the kernel. Cycles are the board's own; stalls follow from the machine file.

use amp_machine::{CoreModel, MachineFile};
use amp_tests::{Lab, Reply};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

const MACHINE: &str = "juno";
/// Where each core type's programs are put, and its L2.
const PLACES: [(&str, u32, &str); 2] = [("big", 1, "2M"), ("little", 4, "1M")];
/// Groups, and the kernels they are held against.
const CASES: [(&str, &[&str]); 5] = [
    (
        "branches",
        &["nops --work 200k", "random-branches --work 4M"],
    ),
    (
        "caches",
        &["load --level L2 --work 8M", "load --level memory --work 8M"],
    ),
    (
        "memory",
        &[
            "load --level memory --work 8M",
            "triad --level memory --work 8M",
        ],
    ),
    ("flops", &["triad --work 4M", "dot-product --work 4M"]),
    (
        "stalls",
        &[
            "nops --work 200k",
            "random-branches --work 4M",
            "load --level memory --work 8M",
        ],
    ),
];
/// Groups whose events the board's PMUs lack.
const LACKING: [(&str, &str, &str); 2] = [
    // the kernel's names are known, but no driver here counts them
    ("tlb", "0", "no value without `dTLB-load-misses`"),
    ("topdown", "2", "has no event `stall_slot_frontend`"),
];

/// Errors that are allowed, and what a value is at least taken for when its error is judged: there is
/// no relative error of nothing. Three runs were within 4.8 %: the system's ticks are counted beside the
/// programs.
const ALLOWED: [(&str, f64, f64); 12] = [
    ("ipc", 0.06, 0.1),
    ("miss_rate", 0.05, 0.1),
    ("misses_per_1000", 0.08, 10.0),
    ("l1d_miss_rate", 0.03, 0.1),
    ("l1d_mpki", 0.08, 10.0),
    ("l2_mpki", 0.08, 10.0),
    ("llc_mpki", 0.08, 10.0),
    ("llc_miss_rate", 0.03, 0.1),
    ("bytes_per_second", 0.03, 1e6),
    ("fp_per_1000", 0.06, 10.0),
    // parts of all cycles
    ("frontend", 0.03, 1.0),
    ("backend", 0.03, 1.0),
];

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// What a run is known to count, and what the run without the kernel counted, by what it is.
struct Known {
    counts: BTreeMap<&'static str, f64>,
    /// Instructions with those of the system: cycles have its part as well.
    all_instructions: f64,
    seconds: f64,
}

/// Events of the groups by what they count. A kernel is not said to have those without a quantity.
const EVENTS: [(&str, &str); 11] = [
    ("inst_retired", "instructions"),
    ("cpu_cycles", "cycles"),
    ("br_retired", "branches"),
    ("br_mis_pred", "mispredicts"),
    ("l1d_cache", "accesses"),
    ("l1d_cache_refill", "l1-refills"),
    ("l2d_cache", "l2-accesses"),
    ("l2d_cache_refill", "l2-refills"),
    ("vfp_spec", "floating-point"),
    ("stall_frontend", "frontend"),
    ("stall_backend", "backend"),
];
/// The same events where the kernel has names of its own for them.
const GENERIC: [(&str, &str); 4] = [
    ("instructions", "inst_retired"),
    ("cycles", "cpu_cycles"),
    ("branches", "br_retired"),
    ("branch-misses", "br_mis_pred"),
];

impl Known {
    fn new(
        kernel: &str,
        exact: &Value,
        setup: &Value,
        core_type: &str,
        model: &CoreModel,
    ) -> Known {
        let expected = |q: &str| exact["expected"][q]["count"].as_f64();
        let cycles = exact["model"]["cycles"]
            .as_f64()
            .expect("the board's cycles");
        // The pipeline's share: cycles that are lost after wrong guesses are known by their number,
        // those that wait for data are what is left when nothing else takes time.
        let frontend = expected("mispredicts").unwrap_or(0.0) * model.branch.penalty;
        let issue = issue(kernel, exact, model);
        let mut counts = BTreeMap::new();
        for (event, quantity) in EVENTS {
            let of_kernel = match quantity {
                "cycles" => Some(cycles),
                "frontend" => Some(frontend),
                "backend" => issue.map(|issue| cycles - frontend - issue),
                q => expected(q),
            };
            if let Some(of_kernel) = of_kernel {
                counts.insert(event, of_kernel + row(setup, event, core_type, "count"));
            }
        }
        let rows = setup["counts"].as_array().expect("counts");
        let seconds = rows.iter().find(|r| r["core_type"] == core_type);
        let seconds = seconds.and_then(|r| r["seconds"].as_f64()).unwrap_or(0.0);
        let cpu_ns = exact["cpu_ns"].as_f64().expect("CPU time");
        let all = exact["model"]["instructions"].as_f64();
        let all = all.expect("the board's instructions");
        Known {
            counts,
            all_instructions: all + row(setup, "inst_retired", core_type, "count"),
            seconds: seconds + cpu_ns / 1e9,
        }
    }

    /// A metric by its meaning, not by the group's formula; `None` where no answer is known.
    fn metric(&self, name: &str) -> Option<f64> {
        let c = |event: &str| self.counts.get(event).copied();
        let per = |a: &str, b: &str| Some(c(a)? / c(b)?);
        let per_1000 = |a: &str| Some(1000.0 * per(a, "inst_retired")?);
        match name {
            "ipc" => Some(self.all_instructions / c("cpu_cycles")?),
            "miss_rate" => per("br_mis_pred", "br_retired"),
            "misses_per_1000" => per_1000("br_mis_pred"),
            "l1d_miss_rate" => per("l1d_cache_refill", "l1d_cache"),
            "l1d_mpki" => per_1000("l1d_cache_refill"),
            "l2_mpki" | "llc_mpki" => per_1000("l2d_cache_refill"),
            "llc_miss_rate" => per("l2d_cache_refill", "l2d_cache"),
            "bytes_per_second" => Some(64.0 * c("l2d_cache_refill")? / self.seconds),
            "fp_per_1000" => per_1000("vfp_spec"),
            "frontend" => per("stall_frontend", "cpu_cycles"),
            "backend" => per("stall_backend", "cpu_cycles"),
            other => panic!("no meaning of `{other}` is known"),
        }
    }
}

/// Cycles in which the kernel's instructions are issued, by the machine file; `None` where it is not
/// said what they are.
fn issue(kernel: &str, exact: &Value, model: &CoreModel) -> Option<f64> {
    let cpi = &model.cpi;
    let of = |q: &str| exact["expected"][q]["count"].as_f64();
    let known = of("branches")? * cpi.branch + of("loads")? * cpi.load + of("stores")? * cpi.store;
    let fp = of("floating-point")?;
    let rest = of("instructions")? - of("branches")? - of("accesses")? - fp;
    (!kernel.starts_with("random")).then_some(known + fp * cpi.fp + rest * cpi.alu)
}

/// A value of an event's row, 0 where that core type did not run.
fn row(report: &Value, event: &str, core_type: &str, key: &str) -> f64 {
    let generic = GENERIC.iter().find(|(_, own)| *own == event);
    let is = |name: &Value| *name == event || generic.is_some_and(|(g, _)| *name == *g);
    let rows = report["counts"].as_array().expect("counts");
    let found = rows
        .iter()
        .find(|r| is(&r["event"]) && r["core_type"] == core_type);
    found.and_then(|r| r[key].as_f64()).unwrap_or(0.0)
}

fn script() -> (String, Vec<String>) {
    let mut script = String::from("sleep 5\n");
    let mut files = Vec::new();
    for (_, cpu, _) in PLACES {
        // the first of all comes from no cache
        let mask = 1 << cpu;
        writeln!(
            script,
            "taskset {mask:x} scx_amp pmc stat -g branches -- amp-workload exact nops --work 1k --pin {cpu} >/dev/null || exit 1"
        )
        .unwrap();
    }
    for (core_type, cpu, l2) in PLACES {
        for (group, kernels) in CASES {
            for (i, kernel) in kernels.iter().enumerate() {
                for (run, option) in [("kernel", ""), ("setup", "--setup-only")] {
                    let name = format!("/{core_type}-{group}-{i}-{run}");
                    let mask = 1 << cpu;
                    writeln!(
                        script,
                        "taskset {mask:x} scx_amp pmc stat -g {group} --json {name}.json -- \
                         amp-workload exact {kernel} --l2 {l2} --pin {cpu} {option} >/out || exit 1\n\
                         grep '\"exact\"' /out >{name}.exact || exit 1"
                    )
                    .unwrap();
                    files.push(format!("{name}.json"));
                    files.push(format!("{name}.exact"));
                }
            }
        }
    }
    for (group, ..) in LACKING {
        writeln!(
            script,
            "scx_amp pmc stat -g {group} -- true >/dev/null 2>/err; echo \"{group} $?\"; sed 's/^/{group}-says /' /err"
        )
        .unwrap();
    }
    script +=
        "amp-workload exact nops --work 5G 2>/err; echo \"much $?\"; sed 's/^/much-says /' /err\n";
    script += "amp-workload exact load --work 1k --l1 7 2>/err; echo \"small $?\"; sed 's/^/small-says /' /err\n";
    (script, files)
}

/// Compares every metric; those that are off, each with what was counted.
fn metrics(r: &Reply, worst: &mut BTreeMap<String, f64>) -> BTreeMap<String, String> {
    let mut off = BTreeMap::new();
    let machine = MachineFile::load(MACHINE).unwrap();
    for (core_type, ..) in PLACES {
        let of_type = machine.core_types.iter().find(|t| t.name == core_type);
        let model = of_type.and_then(|t| t.model.as_ref()).expect("a model");
        for (group, kernels) in CASES {
            for (i, kernel) in kernels.iter().enumerate() {
                let file = |run: &str, kind: &str| {
                    json(&r.file(&format!("/{core_type}-{group}-{i}-{run}.{kind}")))
                };
                let report = file("kernel", "json");
                let exact = file("kernel", "exact");
                let known = Known::new(kernel, &exact, &file("setup", "json"), core_type, model);
                let derived = report["metrics"].as_array().expect("metrics");
                let here = derived.iter().filter(|m| m["core_type"] == core_type);
                let mut seen = 0;
                for m in here {
                    let name = m["metric"].as_str().expect("a name");
                    let value = m["value"].as_f64().unwrap_or_else(|| panic!("{m}"));
                    let Some(expected) = known.metric(name) else {
                        println!(
                            "{group} | {kernel} | {core_type} | {name} | {value:.6} | not known"
                        );
                        continue;
                    };
                    let (_, allowed, least) = *ALLOWED
                        .iter()
                        .find(|(n, ..)| *n == name)
                        .unwrap_or_else(|| panic!("no bound for {name}"));
                    let error = (value - expected) / expected.abs().max(least);
                    println!(
                        "{group} | {kernel} | {core_type} | {name} | {value:.6} | {expected:.6} | {:+.3} %",
                        error * 100.0
                    );
                    let of_name = worst.entry(name.to_owned()).or_default();
                    *of_name = of_name.max(error.abs());
                    if error.abs() > allowed {
                        let what = format!("{group} {kernel} {core_type} {name}");
                        let counts =
                            [report.clone(), file("setup", "json")].map(|r| r["counts"].clone());
                        let counts = format!("{value}, expected {expected}; counted, and before the kernel: {counts:?}; {exact}");
                        off.insert(what, counts);
                    }
                    seen += 1;
                }
                assert!(seen > 0, "{group} {kernel} {core_type}: {report}");
            }
        }
    }
    off
}

/// Boots at most: one that is off is compared with others, because once in ten boots the kernel
/// `load` in memory had 16 % more refills than in all others. In 150 runs by itself it was within
/// 0.7 %; why is not known. What is off in two boots is wrong.
const BOOTS: usize = 3;

#[test]
fn groups_derive_what_known_programs_do() {
    let (script, files) = script();
    let boot = || {
        let lab = Lab::board(MACHINE);
        let lab = files.iter().fold(lab, |lab, path| lab.collect(path));
        lab.run(&script).ok()
    };
    let mut worst = BTreeMap::new();
    let r = boot();
    let mut off = metrics(&r, &mut worst);
    println!("largest errors: {worst:.5?}");
    let mut wrong = Vec::new();
    for boots in 1..BOOTS {
        if off.is_empty() || !wrong.is_empty() {
            break;
        }
        println!("off in one of {boots} boots: {off:#?}");
        let again = metrics(&boot(), &mut worst);
        wrong.extend(again.keys().filter(|k| off.contains_key(*k)).cloned());
        off.extend(again);
    }
    assert!(wrong.is_empty(), "off in two boots: {wrong:?}");
    for (group, status, why) in LACKING {
        let says = r
            .lines(&format!("{group}-says"))
            .collect::<Vec<_>>()
            .join(" ");
        println!("group {group} cannot be counted on the board: {says}");
        assert_eq!(r.line(group), status, "{says}");
        assert!(says.contains(why), "{says}");
    }
    for (word, option) in [("much", "--work"), ("small", "--l1")] {
        assert_eq!(r.line(word), "2");
        let says = r
            .lines(&format!("{word}-says"))
            .collect::<Vec<_>>()
            .join(" ");
        assert!(says.contains(option), "{says}");
    }
}
