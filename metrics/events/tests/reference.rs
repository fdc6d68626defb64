//! The shipped tables are what the kernel's own generator makes of the same tree: every name, code,
//! modifier, unit, flag and description of every PMU, and every derived metric. The generator's result is in `reference.txt`,
//! made without this crate's reader.

#[path = "../examples/pmu_tables/digest.rs"]
mod digest;

use amp_pmu_events::{Counters, Cpu, Leaf, Metrics, Shipped, DEFAULT_CORE, KERNEL};
use std::collections::BTreeSet;

const REFERENCE: &str = include_str!("reference.txt");

#[test]
fn every_event_is_the_generators() {
    let wanted: BTreeSet<&str> = REFERENCE
        .lines()
        .filter(|l| l.starts_with("table "))
        .collect();
    let mut have = BTreeSet::new();
    for table in Shipped::all() {
        have.extend(digest::table_lines(
            table.name,
            &digest::by_pmu(table.events()),
        ));
    }
    let have: BTreeSet<&str> = have.iter().map(String::as_str).collect();
    assert!(wanted.len() > 300, "{}", wanted.len());
    let differences: Vec<_> = have.symmetric_difference(&wanted).collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn every_metric_is_the_generators() {
    let wanted: BTreeSet<&str> = REFERENCE
        .lines()
        .filter(|l| l.starts_with("metrics "))
        .collect();
    let mut have = BTreeSet::new();
    for table in Shipped::all() {
        have.extend(digest::metric_table_lines(
            table.name,
            &digest::metrics_by_pmu(table.metrics()),
        ));
    }
    let have: BTreeSet<&str> = have.iter().map(String::as_str).collect();
    assert!(wanted.len() > 50, "{}", wanted.len());
    let differences: Vec<_> = have.symmetric_difference(&wanted).collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

/// What metrics are made of beside events of the tables: events that the kernel lists in sysfs or
/// counts itself, by their beginnings.
const OTHERS: &[&str] = &[
    // of sysfs: Intel's top-down metrics and transactions
    "topdown-",
    "cycles-t",
    "cycles-ct",
    "tx-start",
    "el-start",
    // of any PMU and of the tool
    "instructions",
    "cycles",
    "duration_time",
    // other PMUs of sysfs
    "msr/",
    "power/",
    "cstate_core/",
    "cstate_pkg/",
    // codes
    "cbox_0/event=",
    "cha_0/event=",
    "uncore_cha_0/event=",
    "imc_0/event=",
    "armv8_pmuv3_0/event=",
    // Hisilicon's hip08: events of the architecture, which its table does not repeat
    "CPU_CYCLES",
    "BR_MIS_PRED",
    "INST_RETIRED",
    "INST_SPEC",
    "L2I_",
    // a slip of the kernel's table of Granite Rapids: there is no such event
    "PEBS",
];

/// Every formula and threshold can be read, and what it is made of is there.
#[test]
fn every_metric_is_made_of_events() {
    let mut all = 0;
    let mut others = BTreeSet::new();
    for table in Shipped::all() {
        let events: BTreeSet<String> = table.events().into_iter().map(|e| e.name).collect();
        for (_, metrics) in digest::metrics_by_pmu(table.metrics()) {
            let metrics = Metrics::new(metrics);
            for m in metrics.iter() {
                all += 1;
                let formula = metrics.formula(m, &|_| None).unwrap();
                let threshold = metrics.threshold(m, &|_| None).unwrap();
                let leaves = threshold.iter().flat_map(|t| t.leaves());
                for leaf in formula.leaves().iter().chain(leaves) {
                    let Leaf::Value(text) = leaf else {
                        continue;
                    };
                    // an event of a PMU, or one with fields
                    let mut parts = text.split('/');
                    let first = parts.next().unwrap_or_default();
                    let names = [first, parts.next().unwrap_or_default()];
                    let name = |n: &str| n.split([',', ':']).next().unwrap().to_lowercase();
                    let known = names.iter().any(|n| events.contains(&name(n)));
                    let of_core = text.strip_prefix("cpu_core/").unwrap_or(text);
                    if !known && !OTHERS.iter().any(|o| of_core.starts_with(o)) {
                        others.insert(format!("{}: {text} in {}", table.name, m.name));
                    }
                }
            }
        }
    }
    assert!(all > 6000, "{all}");
    assert!(others.is_empty(), "{} {others:#?}", others.len());
}

#[test]
fn every_row_of_the_map_is_the_generators_in_its_order() {
    for arch in ["x86", "arm64"] {
        let prefix = format!("map {arch} ");
        let wanted = REFERENCE.lines().filter(|l| l.starts_with(&prefix));
        let rows = Shipped::map(arch);
        let have: Vec<String> = rows.iter().map(|r| digest::map_line(arch, r)).collect();
        assert!(have.len() > 10);
        assert_eq!(have, wanted.collect::<Vec<_>>());
    }
}

#[test]
fn the_kernel_is_the_references() {
    let first = REFERENCE.lines().next().unwrap();
    assert!(first.contains(&format!("Linux {KERNEL} ")), "{first}");
}

#[test]
fn the_reference_is_of_the_processors_that_are_promised() {
    let x86 = |model: &str| {
        let model = model.to_owned();
        Shipped::of(&Cpu::X86 {
            model,
            stepping: Some(1),
        })
    };
    for (model, name) in [
        ("GenuineIntel-6-97", "x86-alderlake"),
        ("GenuineIntel-6-B7", "x86-alderlake"),
        ("GenuineIntel-6-BE", "x86-alderlaken"),
        ("GenuineIntel-6-AA", "x86-meteorlake"),
        ("GenuineIntel-6-BD", "x86-lunarlake"),
        ("GenuineIntel-6-C6", "x86-arrowlake"),
        ("GenuineIntel-6-CC", "x86-pantherlake"),
        ("GenuineIntel-6-8F", "x86-sapphirerapids"),
        ("GenuineIntel-6-AD", "x86-graniterapids"),
        ("GenuineIntel-6-AF", "x86-sierraforest"),
        ("GenuineIntel-6-DD", "x86-clearwaterforest"),
        ("AuthenticAMD-25-21", "x86-amdzen3"),
        ("AuthenticAMD-25-61", "x86-amdzen4"),
        ("AuthenticAMD-26-44", "x86-amdzen5"),
        ("AuthenticAMD-26-24", "x86-amdzen5"),
    ] {
        assert_eq!(x86(model).unwrap().name, name, "{model}");
    }
    // Pentium III
    assert_eq!(x86("GenuineIntel-6-8"), None);
    for (midr, name) in [
        (0x410f_d034, "arm64-arm-cortex-a53"),
        (0x411f_d072, "arm64-arm-cortex-a57-a72"),
        (0x410f_d083, "arm64-arm-cortex-a57-a72"),
        (0x411f_d4b0, "arm64-arm-cortex-a78"),
        (0x412f_d461, "arm64-arm-cortex-a510"),
        (0x411f_d440, "arm64-arm-cortex-x1"),
        (0x412f_d480, "arm64-arm-cortex-x2"),
        (0x413f_d0c1, "arm64-arm-neoverse-n1"),
        (0x410f_d4f0, "arm64-arm-neoverse-n2-v2"),
        (0x410f_d830, "arm64-arm-neoverse-v3"),
    ] {
        assert_eq!(
            Shipped::of(&Cpu::Arm(midr)).unwrap().name,
            name,
            "{midr:#x}"
        );
    }
    // Apple's Icestorm: the tree has no table
    assert_eq!(Shipped::of(&Cpu::Arm(0x611f_0221)), None);
}

#[test]
fn counters_of_core_events_are_understood() {
    let mut fixed = 0;
    for table in Shipped::all() {
        for e in table.events() {
            let core = [DEFAULT_CORE, "cpu_core", "cpu_atom"].contains(&e.pmu.as_str());
            let Some(text) = e.counters.filter(|_| core) else {
                continue;
            };
            let counters: Counters = text.parse().unwrap();
            fixed += usize::from(matches!(counters, Counters::Fixed(_)));
        }
    }
    assert!(fixed > 20, "{fixed}");
}
