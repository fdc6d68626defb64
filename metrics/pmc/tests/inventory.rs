//! The inventory of machines whose sysfs is a fixture.

use amp_host::BadInput;
use amp_metrics::trust::{CoreTypeTrust, EventTrust, Trust, TrustFile, Verdict, FORMAT, PLACE};
use amp_metrics::{CoreType, CoreTypeId, Event, Topology};
use amp_pmc::{CounterInventory, NoPmu};
use std::path::Path;
use tempfile::TempDir;

const BIG: CoreTypeId = CoreTypeId(0);
const LITTLE: CoreTypeId = CoreTypeId(1);

/// A file system of our own.
struct Root(TempDir);

impl Root {
    /// With the `/sys` of a fixture of amp-metrics.
    fn of(machine: &str) -> Root {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
        let text = std::fs::read_to_string(fixtures.join(format!("{machine}.sysfs"))).unwrap();
        let root = Root(tempfile::tempdir().unwrap());
        for line in text.lines() {
            let (path, content) = line.split_once(" = ").unwrap();
            root.file(&format!("sys/{path}"), content);
        }
        root
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn inventory(&self, big: &[u32], little: &[u32]) -> CounterInventory {
        CounterInventory::under(self.path(), &types(big, little), None).unwrap()
    }
}

fn types(big: &[u32], little: &[u32]) -> Topology {
    let core_type = |name: &str, cpus: &[u32], capacity| CoreType {
        name: name.into(),
        cpus: cpus.to_vec(),
        capacity,
    };
    let types = vec![
        core_type("big", big, 1024),
        core_type("little", little, 446),
    ];
    Topology::new(types).unwrap()
}

fn juno() -> (Root, CounterInventory) {
    let root = Root::of("juno");
    let inventory = root.inventory(&[1, 2], &[0, 3, 4, 5]);
    (root, inventory)
}

fn event(inventory: &CounterInventory, t: CoreTypeId, name: &str) -> Event {
    inventory.pmus.resolve(t, &name.parse().unwrap()).unwrap()
}

#[test]
fn each_core_type_has_its_pmu_name_and_cpus() {
    let (_root, juno) = juno();
    juno.need_pmu().unwrap();
    let pmus: Vec<_> = juno
        .core_pmus()
        .map(|(t, p)| (juno.name(t), p.name.as_str(), juno.cpus(t)))
        .collect();
    let (big, little) = (vec![1, 2], vec![0, 3, 4, 5]);
    assert_eq!(
        pmus,
        [
            ("big", "armv8_cortex_a57", big),
            ("little", "armv8_cortex_a53", little)
        ]
    );
    assert_eq!(juno.all_cpus(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(juno.name(CoreTypeId(7)), "?");
}

#[test]
fn without_a_pmu_it_says_what_else_there_is() {
    let root = Root::of("vm");
    let mut vm = root.inventory(&[0], &[1]);
    assert!(!vm.has_pmu());
    let e = vm.need_pmu().unwrap_err();
    assert!(
        e.is::<NoPmu>() && e.to_string().contains("`software`"),
        "{e}"
    );
    let context = vm.context();
    let why = context.counters.unwrap_err();
    assert!(why.contains("no PMU"), "{why}");
    assert!(!context.energy_per_core_type);
}

#[test]
fn the_vendors_tables_name_events() {
    let root = Root::of("alderlake");
    let cpuinfo = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 151";
    root.file("proc/cpuinfo", cpuinfo);
    root.file(
        "tables/x86/mapfile.csv",
        "Family-model,Version,Filename,EventType\nGenuineIntel-6-97,v1,adl,core",
    );
    root.file(
        "tables/x86/adl/a.json",
        r#"[{"EventName":"X.MISS","EventCode":"0x10","UMask":"0x1","Unit":"cpu_core"}]"#,
    );
    let topology = types(&[0, 1], &[16, 17]);
    let under = |tables: Option<&str>| {
        let tables = tables.map(|t| root.path().join(t));
        CounterInventory::under(root.path(), &topology, tables.as_deref())
    };
    let with = under(Some("tables")).unwrap();
    assert_eq!(event(&with, BIG, "x.miss").attr.config, 0x110);
    assert!(with
        .pmus
        .resolve(LITTLE, &"x.miss".parse().unwrap())
        .is_err());
    // without a folder, the shipped ones
    let shipped = under(None).unwrap();
    assert!(shipped
        .pmus
        .resolve(BIG, &"x.miss".parse().unwrap())
        .is_err());
    let l2_hit = event(&shipped, BIG, "mem_load_retired.l2_hit");
    assert_eq!(l2_hit.attr.config, 0x2d1);
    let stalls = event(&shipped, LITTLE, "topdown_be_bound.all");
    assert_eq!(stalls.attr.config, 0x74);
    let e = under(Some("no-such-folder")).err().unwrap();
    assert!(
        e.is::<BadInput>() && e.to_string().contains("no-such-folder"),
        "{e:#}"
    );
}

#[test]
fn the_trust_file_judges_events() {
    let (root, juno) = juno();
    let judged = event(&juno, BIG, "cpu_cycles");
    assert!(juno.trust().is_none() && juno.trusted(BIG, &judged).is_none());
    let trust = Trust {
        format: FORMAT,
        kernel: "7.1".into(),
        repetitions: 5,
        core_types: vec![CoreTypeTrust {
            name: "big".into(),
            pmu: "armv8_cortex_a57".into(),
            processor: String::new(),
            cpu: 0,
            events: vec![EventTrust {
                event: "cpu_cycles".into(),
                quantity: "instructions".into(),
                verdict: Verdict::Broken,
                error_min: -0.5,
                error_mean: -0.4,
                error_max: -0.3,
                worst_kernel: "nops".into(),
                comparisons: 5,
            }],
        }],
    };
    root.file(PLACE, &trust.to_toml().unwrap());
    let juno = juno.with_trust(TrustFile::find(root.path(), None).unwrap());
    let verdict = juno.trusted(BIG, &judged).map(|e| e.verdict);
    assert_eq!(verdict, Some(Verdict::Broken));
    let why = juno.broken(BIG, &judged).unwrap().to_string();
    assert!(why.contains("core type big"), "{why}");
    let elsewhere = event(&juno, LITTLE, "cpu_cycles");
    assert!(juno.broken(LITTLE, &elsewhere).is_none());
}

#[test]
fn sensors_are_found_by_the_names_of_cores() {
    let (root, mut juno) = juno();
    let sensor = |i: u32, label: &str| {
        root.file(&format!("sys/class/hwmon/hwmon0/energy{i}_label"), label);
        root.file(
            &format!("sys/class/hwmon/hwmon0/energy{i}_input"),
            "1000000",
        );
    };
    sensor(1, "A57 Energy");
    sensor(2, "little cluster");
    assert!(juno.context().energy_per_core_type);
    let taken = juno.virtual_counters();
    assert_eq!(taken.names().collect::<Vec<_>>(), ["hwmon"]);
    assert_eq!(
        juno.virtual_counters().names().count(),
        0,
        "they were taken"
    );
    assert!(
        juno.context().energy_per_core_type,
        "there they are all the same"
    );
    let anew = juno.energy_sources();
    assert_eq!(anew.names().collect::<Vec<_>>(), ["hwmon"]);
    assert_eq!(juno.cache_sources().names().count(), 0);
}
