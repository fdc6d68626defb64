//! The shipped candidates on trees of real machines' PMUs.

use amp_metrics::pmu::Tables;
use amp_metrics::{CoreTypeId, Pmus};
use amp_models::candidates::Candidates;
use std::collections::BTreeSet;
use std::path::Path;

/// The tree of a fixture of amp-metrics, unpacked.
fn tree(name: &str) -> tempfile::TempDir {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../metrics/tests/fixtures");
    let text = std::fs::read_to_string(folder.join(format!("{name}.sysfs"))).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for line in text.lines() {
        let (path, content) = line.split_once(" = ").unwrap();
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{content}\n")).unwrap();
    }
    dir
}

/// Vendor, family and model of a machine's processor, as in its `modalias`.
type Processor = (&'static str, u32, u32);

/// Candidates of each core type of a machine, and whether its PMU has them by the kernel or by the
/// vendor's table.
fn candidates(
    machine: &str,
    (vendor, family, model): Processor,
    core_types: &[Vec<u32>],
) -> Vec<(String, Vec<(String, bool)>)> {
    let tree = tree(machine);
    let proc = tree.path().join("proc");
    std::fs::create_dir_all(&proc).unwrap();
    let cpuinfo = format!("vendor_id: {vendor}\ncpu family: {family}\nmodel: {model}\n");
    std::fs::write(proc.join("cpuinfo"), cpuinfo).unwrap();
    let pmus = Pmus::discover(tree.path())
        .unwrap()
        .with_core_types(core_types)
        .with_vendor_events(tree.path(), Tables::Shipped)
        .unwrap();
    let shipped = Candidates::shipped().unwrap();
    let of = |t: CoreTypeId| {
        let pmu = pmus.of_core_type(t).unwrap().name.clone();
        let events = shipped.of(&pmu).unwrap_or_else(|| panic!("none for {pmu}"));
        let has = |e: &String| (e.clone(), pmus.resolve(t, &e.parse().unwrap()).is_ok());
        (pmu, events.iter().map(has).collect())
    };
    pmus.core_types().map(of).collect()
}

fn list(a: u32, b: u32) -> Vec<u32> {
    (a..=b).collect()
}

/// Names that no machine has would be left out everywhere, and nobody would see it.
#[test]
fn every_name_is_an_event_of_a_core_that_it_is_for() {
    let machines = [
        (
            "alderlake",
            ("GenuineIntel", 6, 0x97),
            vec![list(0, 15), list(16, 23)],
        ),
        (
            "meteorlake",
            ("GenuineIntel", 6, 0xaa),
            vec![list(0, 11), list(12, 21)],
        ),
        (
            "arrowlake",
            ("GenuineIntel", 6, 0xc6),
            vec![list(0, 7), list(8, 23)],
        ),
        (
            "zen",
            ("AuthenticAMD", 0x19, 0x61),
            vec![list(0, 7), list(8, 15)],
        ),
    ];
    let (mut all, mut found) = (BTreeSet::new(), BTreeSet::new());
    for (machine, processor, core_types) in &machines {
        for (pmu, events) in candidates(machine, *processor, core_types) {
            let here = events.iter().filter(|(_, has)| *has).count();
            println!("{machine}: {pmu} has {here} of {}", events.len());
            for (event, has) in events {
                if has {
                    found.insert((pmu.clone(), event.clone()));
                }
                all.insert((pmu.clone(), event));
            }
        }
    }
    let pmus: BTreeSet<&str> = all.iter().map(|(pmu, _)| pmu.as_str()).collect();
    assert_eq!(Vec::from_iter(pmus), ["cpu", "cpu_atom", "cpu_core"]);
    let nowhere: Vec<_> = all.difference(&found).collect();
    assert!(nowhere.is_empty(), "{nowhere:?}");
    for (pmu, waits) in [
        ("cpu_core", "memory_activity.stalls_l3_miss"),
        ("cpu_core", "topdown.memory_bound_slots"),
        ("cpu_atom", "topdown_be_bound.all"),
        ("cpu", "de_no_dispatch_per_slot.backend_stalls"),
    ] {
        assert!(
            found.contains(&(pmu.into(), waits.into())),
            "{pmu}: {waits}"
        );
    }
}
