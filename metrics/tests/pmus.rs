//! Discovery and resolution on the fixture trees.

mod common;

use amp_metrics::pmu::PmuError;
use amp_metrics::{CoreTypeId, EventAttr, EventError, EventSpec, Pmus};

const BIG: CoreTypeId = CoreTypeId(0);
const LITTLE: CoreTypeId = CoreTypeId(1);

fn list(a: u32, b: u32) -> Vec<u32> {
    (a..=b).collect()
}

fn machine(name: &str, core_types: &[Vec<u32>]) -> Pmus {
    let tree = common::sysfs(name);
    Pmus::discover(tree.path())
        .unwrap()
        .with_core_types(core_types)
}

fn alderlake() -> Pmus {
    machine("alderlake", &[list(0, 15), list(16, 23)])
}

fn juno() -> Pmus {
    machine("juno", &[list(1, 2), vec![0, 3, 4, 5]])
}

fn attr(pmus: &Pmus, t: CoreTypeId, spec: &str) -> (u32, u64) {
    let e = pmus.resolve(t, &spec.parse().unwrap()).unwrap();
    (e.attr.type_, e.attr.config)
}

fn refusal(pmus: &Pmus, t: CoreTypeId, spec: &str) -> EventError {
    pmus.resolve(t, &spec.parse::<EventSpec>().unwrap())
        .unwrap_err()
}

#[test]
fn each_core_type_has_its_pmu() {
    let name = |p: &Pmus, t| p.of_core_type(CoreTypeId(t)).map(|p| p.name.clone());
    let p = alderlake();
    assert_eq!(name(&p, 0).as_deref(), Some("cpu_core"));
    assert_eq!(name(&p, 1).as_deref(), Some("cpu_atom"));
    assert_eq!(p.of_core_type(LITTLE).unwrap().cpus, list(16, 23));

    // the low-power cores are a core type of their own, on the PMU of the others
    let p = machine("meteorlake", &[list(0, 11), list(12, 19), list(20, 21)]);
    assert_eq!(name(&p, 0).as_deref(), Some("cpu_core"));
    assert_eq!(name(&p, 1).as_deref(), Some("cpu_atom"));
    assert_eq!(name(&p, 2).as_deref(), Some("cpu_atom"));

    let p = juno();
    assert_eq!(name(&p, 0).as_deref(), Some("armv8_cortex_a57"));
    assert_eq!(name(&p, 1).as_deref(), Some("armv8_cortex_a53"));
    // the boot CPU is a small one, and the big ones come next
    assert_eq!(p.of_core_type(LITTLE).unwrap().cpus, [0, 3, 4, 5]);

    let p = machine("rk3399", &[list(4, 5), list(0, 3)]);
    assert_eq!(name(&p, 0).as_deref(), Some("armv8_cortex_a72"));
    assert_eq!(name(&p, 1).as_deref(), Some("armv8_cortex_a53"));
    assert_eq!(
        p.machine(),
        ["firefly,roc-rk3399-pc", "libre-computer roc-rk3399-pc"]
    );

    let p = machine("arrowlake", &[list(0, 7), list(8, 23)]);
    assert_eq!(name(&p, 0).as_deref(), Some("cpu_core"));
    assert_eq!(name(&p, 1).as_deref(), Some("cpu_atom"));

    let p = machine("pixel", &[list(6, 7), list(4, 5), list(0, 3)]);
    assert_eq!(name(&p, 0).as_deref(), Some("armv8_cortex_x1"));
    assert_eq!(name(&p, 1).as_deref(), Some("armv8_cortex_a76"));
    assert_eq!(name(&p, 2).as_deref(), Some("armv8_cortex_a55"));
    // the PMU of the cluster's shared cache counts on all CPUs and is none of a core type
    assert!(!p.by_name("arm_dsu_0").unwrap().core);

    // two core types that differ in frequency only share the one PMU, which lists no CPUs
    let p = machine("zen", &[list(0, 7), list(8, 15)]);
    assert_eq!(name(&p, 0).as_deref(), Some("cpu"));
    assert_eq!(name(&p, 1).as_deref(), Some("cpu"));
    // an interconnect's PMU is none of a core type
    assert!(!p.by_name("amd_l3").unwrap().core);
    let power = p.by_name("power_core").unwrap();
    assert!(!power.core && power.cpus == list(0, 7), "one CPU per core");

    let p = machine("vm", &[vec![0], vec![1]]);
    assert_eq!(name(&p, 0), None);
}

#[test]
fn perf_syntax_on_the_right_pmu() {
    let p = alderlake();
    assert_eq!(
        attr(&p, BIG, "cpu_core/event=0x2e,umask=0x41/"),
        (4, 0x412e)
    );
    assert_eq!(
        attr(&p, LITTLE, "cpu_atom/cache-misses/"),
        (10, 0x412e),
        "as sysfs lists it"
    );
    assert_eq!(attr(&p, BIG, "mem-loads"), (4, 0x1cd));
    assert_eq!(
        attr(&p, LITTLE, "mem-loads"),
        (10, 0x5d0),
        "same name, another code"
    );
    let loads = p.resolve(BIG, &"mem-loads".parse().unwrap()).unwrap();
    assert_eq!(loads.attr.config1, 3, "ldlat is in config1");
    assert_eq!(attr(&p, BIG, "r412e"), (4, 0x412e));
    let p = juno();
    assert_eq!(
        attr(&p, BIG, "armv8_cortex_a57/l1d_cache_refill/"),
        (10, 0x03)
    );
    assert_eq!(attr(&p, LITTLE, "l2d_cache_refill"), (11, 0x17));
    assert_eq!(
        attr(&p, LITTLE, "cpu/event=0x17/"),
        (11, 0x17),
        "`cpu` is the PMU of the core"
    );
    // in two ranges
    let p = machine("zen", &[list(0, 15)]);
    assert_eq!(
        attr(&p, BIG, "cpu/event=0x18e,umask=0x1f/"),
        (4, 0x1_0000_1f8e)
    );
    // so does the driver itself
    assert_eq!(
        attr(&p, BIG, "cpu/ref-cycles/"),
        (4, 0x1_0000_0120),
        "as sysfs lists it"
    );
    // a unit mask in two ranges, since version 6 of Intel's counters
    let p = machine("arrowlake", &[list(0, 7), list(8, 23)]);
    assert_eq!(
        attr(&p, BIG, "cpu_core/event=0xd1,umask=0x102/"),
        (4, 0x100_0000_02d1)
    );
    assert_eq!(attr(&p, BIG, "topdown-fe-bound"), (4, 0x8200));
    assert_eq!(attr(&p, LITTLE, "topdown-fe-bound"), (10, 0x19c));
}

#[test]
fn generic_events_carry_the_pmu_type_on_hybrids() {
    let p = alderlake();
    assert_eq!(
        attr(&p, BIG, "cycles"),
        (0, 0),
        "type 4 is the kernel's default"
    );
    assert_eq!(attr(&p, LITTLE, "cycles"), (0, 10 << 32));
    assert_eq!(
        attr(&p, LITTLE, "L1-dcache-load-misses"),
        (3, 10 << 32 | 0x1_0000)
    );
    assert_eq!(attr(&p, LITTLE, "cpu_atom/cycles/"), (0, 10 << 32));
    // what perf on that board opens for `cycles` of its small cores
    let p = machine("rk3399", &[list(4, 5), list(0, 3)]);
    assert_eq!(attr(&p, LITTLE, "cycles"), (0, 0x7_0000_0000));
    assert_eq!(attr(&p, BIG, "armv8_cortex_a72/cpu_cycles/"), (8, 0x11));
    let p = juno();
    assert_eq!(attr(&p, BIG, "instructions"), (0, 10 << 32 | 1));
    let user = p
        .resolve(LITTLE, &"branch-misses:u".parse().unwrap())
        .unwrap();
    assert_eq!(
        user.attr,
        EventAttr {
            type_: 0,
            config: 11 << 32 | 5,
            exclude_kernel: true,
            ..EventAttr::default()
        }
    );
}

#[test]
fn refusals_say_what_there_is() {
    let p = juno();
    let e = refusal(&p, BIG, "l1d_cache_refil").to_string();
    assert!(
        e.contains("armv8_cortex_a57") && e.contains("close are `l1d_cache_refill`"),
        "{e}"
    );
    let e = refusal(&p, BIG, "cpu_core/cycles/").to_string();
    assert!(
        e.contains("no PMU `cpu_core`") && e.contains("`armv8_cortex_a53`"),
        "{e}"
    );
    let e = refusal(&p, BIG, "armv8_cortex_a53/l1d_cache/").to_string();
    assert!(
        e.contains("does not count on core type 0") && e.contains("`armv8_cortex_a57` does"),
        "{e}"
    );
    let e = refusal(&p, BIG, "armv8_cortex_a57/umask=1/").to_string();
    assert!(
        e.contains("no field `umask`") && e.contains("event, long"),
        "{e}"
    );
    let e = refusal(&p, BIG, "armv8_cortex_a57/event=0x10000/").to_string();
    assert!(
        e.contains("event=0x10000 does not fit") && e.contains("16 bits"),
        "{e}"
    );
    // an event that only the other PMU has
    let e = refusal(&p, LITTLE, "inst_spec").to_string();
    assert!(
        e.contains("`armv8_cortex_a53` has no event `inst_spec`"),
        "{e}"
    );
    let vm = machine("vm", &[list(0, 1)]);
    let e = refusal(&vm, BIG, "cycles");
    assert!(matches!(e, EventError::NoPmu { .. }));
    assert!(
        e.to_string().contains("bus/event_source/devices") && e.to_string().contains("without PMU"),
        "{e}"
    );
}

#[test]
fn uncore_events_are_resolved_on_the_pmu_they_name() {
    let p = alderlake();
    let e = p
        .resolve_named(&"power/energy-pkg/".parse().unwrap())
        .unwrap();
    assert_eq!((e.attr.type_, e.attr.config), (25, 2));
    assert!(p.resolve_named(&"cycles".parse().unwrap()).is_err());
}

/// Whatever a kernel lists can be written, on every machine that we know.
#[test]
fn every_event_of_every_fixture_resolves() {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut machines = 0;
    for entry in std::fs::read_dir(fixtures).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = file.strip_suffix(".sysfs") else {
            continue;
        };
        machines += 1;
        let pmus = machine(name, &[]);
        for pmu in pmus.iter() {
            for event in pmu.events.keys() {
                let spec = format!("{}/{event}/", pmu.name).parse().unwrap();
                let found = pmus.resolve_named(&spec);
                assert_eq!(found.unwrap().attr.type_, pmu.type_, "{name}: {event}");
            }
        }
    }
    assert!(machines >= 9, "{machines}");
}

/// Interconnects of Arm (CCI, CCN, CMN) and controllers of PCIe leave a field of an event's code to
/// the user. Names, codes and fields are those of the kernel's `drivers/perf/arm-cci.c`.
#[test]
fn an_event_asks_for_the_field_it_leaves_open() {
    let dir = tempfile::tempdir().unwrap();
    let pmu = dir.path().join("bus/event_source/devices/CCI_400_r1");
    for (file, text) in [
        ("type", "12"),
        ("cpumask", "0"),
        ("format/event", "config:0-4"),
        ("format/source", "config:5-7"),
        ("events/si_rrq_hs_any", "source=?,event=0x0"),
        ("events/si_wrq_hs_any", "source=?,event=0xc"),
        ("events/cycles", "config=0xff"),
    ] {
        let path = pmu.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }
    let pmus = Pmus::discover(dir.path()).unwrap();
    let code = |spec: &str| {
        let event = pmus.resolve_named(&spec.parse().unwrap());
        event.map(|e| e.attr.config)
    };
    assert_eq!(code("CCI_400_r1/si_wrq_hs_any,source=3/").unwrap(), 0x6c);
    assert_eq!(code("CCI_400_r1/source=0,si_wrq_hs_any/").unwrap(), 0x0c);
    assert_eq!(code("CCI_400_r1/cycles/").unwrap(), 0xff);
    let e = code("CCI_400_r1/si_rrq_hs_any/").unwrap_err().to_string();
    assert!(
        e.contains("write `CCI_400_r1/si_rrq_hs_any,source=N/`"),
        "{e}"
    );
    let e = code("CCI_400_r1/si_rrq_hs_any,source=8/").unwrap_err();
    assert!(matches!(e, EventError::TooLarge { .. }), "{e}");
    // the question mark itself is no value
    assert!("CCI_400_r1/source=?/".parse::<EventSpec>().is_err());
}

#[test]
fn a_broken_file_is_named() {
    for (file, text) in [
        (
            "bus/event_source/devices/armv8_cortex_a57/type",
            "armv8_cortex_a57/type",
        ),
        (
            "bus/event_source/devices/armv8_cortex_a57/cpus",
            "armv8_cortex_a57/cpus",
        ),
        (
            "bus/event_source/devices/armv8_cortex_a57/format/event",
            "format/event",
        ),
    ] {
        let tree = common::sysfs("juno");
        std::fs::write(tree.path().join(file), "x-\n").unwrap();
        let e = Pmus::discover(tree.path()).unwrap_err();
        assert!(
            matches!(e, PmuError::Bad { .. }) && e.to_string().contains(text),
            "{e}"
        );
    }
}

#[test]
fn no_sysfs_at_all_is_a_machine_without_pmu() {
    let d = tempfile::tempdir().unwrap();
    assert_eq!(Pmus::discover(d.path()).unwrap().iter().count(), 0);
}
