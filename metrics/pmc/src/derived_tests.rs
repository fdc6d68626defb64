use super::*;
use crate::groups::tests::{intel, machine_in};
use crate::sets::Set;
use std::path::Path;

/// Alder Lake as `/sys` of one lists it.
fn alder_lake(root: &Path) -> CounterInventory {
    let (core, atom): (Vec<u32>, Vec<u32>) = ((0..16).collect(), (16..24).collect());
    machine_in(root, "alderlake", &intel(151), &[&core, &atom])
}

fn wanted(here: &CounterInventory, names: &str) -> Wanted {
    let names: Vec<String> = names.split(',').map(str::to_owned).collect();
    find(here, &names, false).unwrap()
}

#[test]
fn each_pmu_of_a_hybrid_has_its_own_formula() {
    let root = tempfile::tempdir().unwrap();
    let here = alder_lake(root.path());
    let w = wanted(&here, "TopdownL1");
    let of = |pmu: &str| -> Vec<&str> {
        let own = w.formulas.iter().filter(|f| f.pmu.as_deref() == Some(pmu));
        own.map(|f| f.name.as_str()).collect()
    };
    let level = [
        "tma_backend_bound",
        "tma_bad_speculation",
        "tma_frontend_bound",
        "tma_retiring",
    ];
    assert_eq!(of("cpu_core"), level);
    assert_eq!(of("cpu_atom"), level);
    let set = Set::parse(&here, &w.events).unwrap();
    let events = |i: usize| -> Vec<&str> {
        set.units[i]
            .events
            .iter()
            .map(|e| e.name.as_str())
            .collect()
    };
    assert_eq!(
        (
            set.units[0].pmu.as_str(),
            set.units[1].pmu.as_str(),
            set.units.len()
        ),
        ("cpu_core", "cpu_atom", 2)
    );
    assert!(
        events(0).contains(&"cpu_core/topdown-retiring/"),
        "{:?}",
        events(0)
    );
    assert!(
        events(1).iter().all(|e| e.starts_with("cpu_atom/")),
        "{:?}",
        events(1)
    );
    // in per cent, and worth a look as the table says
    let f = |name: &str| w.formulas.iter().find(|f| f.name == name).unwrap();
    let backend = f("tma_backend_bound");
    assert_eq!(backend.unit.as_deref(), Some("%"));
    let slots = |n: &String| match n.as_str() {
        "cpu_core/topdown-be-bound/" => 3.0,
        _ => 1.0,
    };
    let values: Vec<f64> = backend.names.iter().map(slots).collect();
    let (value, _) = backend.evaluate(&values).unwrap();
    assert!((value - 50.0).abs() < 1e-9, "{value}: {:?}", backend.names);
    let t = backend.threshold.as_ref().unwrap();
    assert_eq!(t.text, "tma_backend_bound > 0.2");
    assert_eq!(t.over_events.leaves(), &backend.names[..]);
}

#[test]
fn a_metric_may_be_made_of_others_and_of_the_machine() {
    let root = tempfile::tempdir().unwrap();
    let here = alder_lake(root.path());
    let w = wanted(&here, "tma_info_thread_ipc,TMA_INFO_CORE_IPC,tma_port_0");
    let names: Vec<(&str, &str)> = w
        .formulas
        .iter()
        .map(|f| (f.name.as_str(), f.pmu.as_deref().unwrap()))
        .collect();
    assert!(
        names.contains(&("tma_info_thread_ipc", "cpu_core")),
        "{names:?}"
    );
    assert!(
        names.contains(&("tma_info_core_ipc", "cpu_atom")),
        "{names:?}"
    );
    let ipc = &w.formulas[0];
    assert_eq!(
        ipc.names,
        [
            "cpu_core/INST_RETIRED.ANY/",
            "cpu_core/CPU_CLK_UNHALTED.THREAD/"
        ]
    );
    assert_eq!(ipc.evaluate(&[6.0, 2.0]).unwrap().0, 3.0);
}

#[test]
fn refusals_say_what_is_wrong() {
    let root = tempfile::tempdir().unwrap();
    let here = alder_lake(root.path());
    let e = |name: &str| {
        let e = find(&here, &[name.to_owned()], false).unwrap_err();
        assert!(e.is::<amp_host::BadInput>());
        e.to_string()
    };
    assert!(
        e("tma_retirin").contains("`tma_retiring`"),
        "{}",
        e("tma_retirin")
    );
    assert!(e("ipc=a/b").contains("behind -m"));
    let other = e("C2_Pkg_Residency");
    assert!(
        other.contains("`cstate_pkg`") || other.contains("cstate_pkg/c2"),
        "{other}"
    );
}

/// How many of the metrics of a processor can be worked out from its core PMU alone.
#[test]
fn most_metrics_of_cores_can_be_worked_out() {
    let root = tempfile::tempdir().unwrap();
    let here = alder_lake(root.path());
    for of in here.vendor_metrics().unwrap() {
        let all = listed(&here, &of);
        let here = all.iter().filter(|m| m.not_here.is_none()).count();
        println!("{}: {here} of {}", of.pmu, all.len());
        for m in all.iter().filter(|m| m.not_here.is_some()) {
            println!("  {}: {}", m.name, m.not_here.as_deref().unwrap());
        }
        assert!(
            10 * here > 8 * all.len(),
            "{}: {here} of {}",
            of.pmu,
            all.len()
        );
    }
}
