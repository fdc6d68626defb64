use super::*;
use crate::CoreTypeId;

const BIG: CoreTypeId = CoreTypeId(0);
const LITTLE: CoreTypeId = CoreTypeId(1);

fn file(dir: &Path, name: &str, text: &str) {
    let p = dir.join(name);
    std::fs::create_dir_all(p.parent().unwrap()).unwrap();
    std::fs::write(p, text).unwrap();
}

fn pmu(name: &str, type_: u32, cpus: &[u32], core: bool) -> Pmu {
    Pmu {
        name: name.into(),
        type_,
        cpus: cpus.to_vec(),
        core,
        formats: [("event", "config:0-7"), ("umask", "config:8-15")]
            .map(|(k, v)| (k.to_owned(), v.parse().unwrap()))
            .into(),
        ..Pmu::default()
    }
}

fn hybrid() -> Pmus {
    let mut core = pmu("cpu_core", 4, &[0, 1], true);
    core.events
        .insert("mem-loads".into(), "event=0xcd".to_owned());
    Pmus::from_list(
        vec![
            core,
            pmu("cpu_atom", 10, &[2, 3], true),
            pmu("uncore_imc_0", 20, &[0], false),
            pmu("software", 1, &[], false),
        ],
        &[vec![0, 1], vec![2, 3]],
    )
}

/// A machine with this processor.
fn x86(model: u32) -> tempfile::TempDir {
    let d = tempfile::tempdir().unwrap();
    let text = format!(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nmodel name\t: x\nstepping\t: 2\n"
    );
    file(d.path(), "proc/cpuinfo", &text);
    d
}

fn config(pmus: &Pmus, t: CoreTypeId, name: &str) -> u64 {
    let spec = name.parse().unwrap();
    pmus.resolve(t, &spec).unwrap().attr.config
}

#[test]
fn alder_lake_has_its_names_without_a_kernel_tree() {
    let root = x86(0x97);
    let pmus = hybrid().with_vendor_events(root.path(), Tables::Shipped);
    let pmus = pmus.unwrap();
    // one name, two PMUs, two codes
    assert_eq!(config(&pmus, BIG, "mem_load_retired.l2_hit"), 0x2d1);
    assert_eq!(config(&pmus, BIG, "topdown.backend_bound_slots"), 0x2a4);
    assert_eq!(config(&pmus, LITTLE, "TOPDOWN_BE_BOUND.ALL"), 0x74);
    assert_eq!(
        config(&pmus, LITTLE, "cpu_atom/topdown_retiring.all/"),
        0xc2
    );
    assert_eq!(config(&pmus, BIG, "inst_retired.any"), 0xc0);
    let core = pmus.by_name("cpu_core").unwrap();
    let e = &core.vendor["inst_retired.any"];
    assert!(e.description.as_ref().unwrap().contains("nstructions"));
    assert_eq!(e.counters, Some(Counters::Fixed(0)));
    assert!(pmus.by_name("software").unwrap().vendor.is_empty());
    let wrong = "topdown_be_bound.all".parse().unwrap();
    let e = pmus.resolve(BIG, &wrong).unwrap_err().to_string();
    assert!(e.contains("`cpu_core` has no event"), "{e}");
}

#[test]
fn each_arm_core_type_has_its_own_names() {
    let root = tempfile::tempdir().unwrap();
    let midr = |cpu: u32, id: &str| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
        file(root.path(), &path, id);
    };
    midr(1, "0x00000000411fd072\n");
    midr(2, "0x00000000410fd034\n");
    let pmus = hybrid().with_vendor_events(root.path(), Tables::Shipped);
    let pmus = pmus.unwrap();
    assert_eq!(
        config(&pmus, BIG, "l1d_cache_refill_rd"),
        0x42,
        "CPU 0 is off"
    );
    assert_eq!(config(&pmus, LITTLE, "prefetch_linefill"), 0xc2);
    let a53_only = "prefetch_linefill".parse().unwrap();
    assert!(pmus.resolve(BIG, &a53_only).is_err());
}

#[test]
fn a_common_event_that_an_arm_core_does_not_list_is_not_there() {
    let root = tempfile::tempdir().unwrap();
    let path = "sys/devices/system/cpu/cpu0/regs/identification/midr_el1";
    file(root.path(), path, "0x00000000411fd072\n");
    let mut a57 = pmu("armv8_cortex_a57", 9, &[0], true);
    a57.events
        .insert("other_name".into(), "event=0x0003".into());
    let pmus = Pmus::from_list(vec![a57], &[vec![0]]);
    let pmus = pmus.with_vendor_events(root.path(), Tables::Shipped);
    let names = &pmus.unwrap().pmus[0].vendor;
    assert!(
        names.contains_key("l1d_cache_refill"),
        "listed by another name"
    );
    assert!(!names.contains_key("l1d_tlb_refill"), "0x5 is not listed");
    assert!(
        names.contains_key("vfp_spec"),
        "the core does not say so of 0x75"
    );
}

#[test]
fn what_sysfs_says_goes_before_the_tables() {
    let root = x86(0x97);
    file(
        root.path(),
        "t/x86/mapfile.csv",
        "Family-model,Version,Filename,EventType\nGenuineIntel-6-97,v1,adl,core\n",
    );
    file(
        root.path(),
        "t/x86/adl/a.json",
        r#"[{"EventName":"MEM-LOADS","EventCode":"0x11","Unit":"cpu_core"},
            {"EventName":"UNC","EventCode":"0x12","Unit":"iMC","ScaleUnit":"64Bytes"}]"#,
    );
    let folder = root.path().join("t");
    let pmus = hybrid().with_vendor_events(root.path(), Tables::Folder(&folder));
    let pmus = pmus.unwrap();
    assert_eq!(config(&pmus, BIG, "mem-loads"), 0xcd);
    // events of an uncore unit are those of each of its instances
    let uncore = pmus.resolve_named(&"uncore_imc_0/unc/".parse().unwrap());
    assert_eq!(uncore.unwrap().attr.config, 0x12);
    let imc = pmus.by_name("uncore_imc_0").unwrap();
    assert_eq!(imc.vendor["unc"].scale.as_deref(), Some("64Bytes"));
}

#[test]
fn a_folder_that_is_named_must_know_the_processor() {
    let root = x86(0x3a);
    let refused = |folder: &Path| {
        let pmus = hybrid().with_vendor_events(root.path(), Tables::Folder(folder));
        pmus.unwrap_err().to_string()
    };
    let folder = root.path().join("t");
    assert!(refused(&folder).contains("mapfile.csv"));
    file(
        &folder,
        "x86/mapfile.csv",
        "heading\nGenuineIntel-6-97,v1,a,core\n",
    );
    let e = refused(&folder);
    assert!(e.contains("`GenuineIntel-6-3A-2`"), "{e}");
    file(
        &folder,
        "x86/mapfile.csv",
        "heading\nGenuineIntel-6-(,v1,a,core\n",
    );
    assert!(refused(&folder).contains("mapfile.csv"));
    file(
        &folder,
        "x86/mapfile.csv",
        "heading\n.*,v1,../../proc,core\n",
    );
    assert!(refused(&folder).contains("no events for"));
    // nothing says what this machine is: no error for the shipped tables
    let nothing = tempfile::tempdir().unwrap();
    let pmus = hybrid().with_vendor_events(nothing.path(), Tables::Shipped);
    assert_eq!(pmus.unwrap(), hybrid());
    let pmus = hybrid().with_vendor_events(nothing.path(), Tables::Folder(&folder));
    assert!(matches!(pmus, Err(TableError::NoProcessor)));
}

#[test]
fn pmus_are_matched_as_perf_matches_them() {
    let core = |name: &str| pmu(name, 4, &[0], true);
    let uncore = |name: &str| pmu(name, 4, &[0], false);
    assert!(is_of("cpu_core", &core("cpu_core")) && !is_of("cpu_core", &core("cpu_atom")));
    assert!(is_of(DEFAULT_CORE, &core("armv8_cortex_a57")));
    assert!(is_of("uncore_cpu_lowpower", &core("cpu_lowpower")));
    assert!(!is_of(DEFAULT_CORE, &uncore("amd_l3")) && !is_of("amd_l3", &core("cpu")));
    for (wanted, name, is) in [
        ("uncore_imc", "uncore_imc_0", true),
        ("uncore_imc", "uncore_imc_11", true),
        ("uncore_imc", "uncore_imc", true),
        ("uncore_imc", "uncore_imc_free_running_0", false),
        (
            "uncore_imc_free_running_0",
            "uncore_imc_free_running_0",
            true,
        ),
        ("uncore_cha", "uncore_cha_3", true),
        ("uncore_cha", "uncore_chacms_3", false),
        ("uncore_cbox", "uncore_cbox", true),
        ("amd_umc", "amd_umc_7", true),
        ("amd_l3", "amd_l3", true),
        ("uncore_imc", "uncore_imc_a", false),
        ("uncore_imc", "uncore_imc_a0f", true),
        ("uncore_imc", "uncore_imc_", false),
        ("hisi_sccl,ddrc", "hisi_sccl1_ddrc0", true),
        ("hisi_sccl,ddrc", "hisi_sccl1_hha0", false),
    ] {
        assert_eq!(is_of(wanted, &uncore(name)), is, "{wanted} on {name}");
    }
}
