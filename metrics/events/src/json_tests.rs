use super::*;

fn file(dir: &Path, name: &str, text: &str) {
    let p = dir.join(name);
    std::fs::create_dir_all(p.parent().unwrap()).unwrap();
    std::fs::write(p, text).unwrap();
}

/// The one event of a file with one entry.
fn one(json: &str) -> PmuEvent {
    let entry: Entry = serde_json::from_str(json).unwrap();
    event(&entry, &Standard::default()).unwrap()
}

fn refused(json: &str) -> String {
    let entry: Entry = serde_json::from_str(json).unwrap();
    event(&entry, &Standard::default()).unwrap_err()
}

#[test]
fn fields_become_terms_in_the_generators_order() {
    let e = one(
        r#"{"EventName":"X.MISS","EventCode":"0xB7,0xBB","UMask":"0x41","CounterMask":"16",
        "Invert":"1","EdgeDetect":"0","SampleAfterValue":"100003","AnyThread":"0x0",
        "MSRIndex":"0x1a6,0x1a7","MSRValue":"0x10003C0001","Counter":"0,1,2,3"}"#,
    );
    assert_eq!(e.name, "x.miss");
    assert_eq!(
        e.terms,
        "event=0xb7,cmask=16,inv=1,period=100003,umask=0x41,offcore_rsp=0x10003C0001"
    );
    assert_eq!(
        e.code(),
        "event=0xb7,cmask=16,inv=1,umask=0x41,offcore_rsp=0x10003C0001"
    );
    assert_eq!(e.pmu, DEFAULT_CORE);
    assert_eq!(e.counters.as_deref(), Some("0,1,2,3"));
}

#[test]
fn the_code_may_be_missing_or_of_another_kind() {
    let terms = |json: &str| one(json).terms;
    assert_eq!(
        terms(r#"{"EventName":"TOPDOWN.SLOTS","UMask":"0x4","Counter":"Fixed counter 3"}"#),
        "event=0,umask=4"
    );
    assert_eq!(
        terms(r#"{"EventName":"a","EventCode":"0x11","ExtSel":"2"}"#),
        "event=0x211"
    );
    assert_eq!(terms(r#"{"EventName":"a","EventCode":"9"}"#), "event=9");
    assert_eq!(
        terms(r#"{"EventName":"a","ConfigCode":"0x20","EventCode":"1","UMask":"3"}"#),
        "config=0x20,umask=3"
    );
    assert_eq!(
        terms(r#"{"EventName":"a","EventidCode":"0x5"}"#),
        "eventid=5"
    );
    for (key, value, term) in [
        ("MSRIndex", "0x3F6", "ldlat=0x80"),
        ("MSRIndex", "0x3F7", "frontend=0x80"),
    ] {
        let json = format!(r#"{{"EventName":"a","{key}":"{value}","MSRValue":"0x80"}}"#);
        assert_eq!(terms(&json), format!("event=0,{term}"));
    }
    assert_eq!(terms(r#"{"EventName":"a","MSRIndex":"0x3F6"}"#), "event=0");
    let filtered = r#"{"EventName":"a","EventCode":"0x35","Filter":"filter_opc=0x19e"}"#;
    assert_eq!(terms(filtered), "event=0x35,filter_opc=0x19e");
}

#[test]
fn fixed_counters_of_intel_have_the_codes_that_the_driver_knows() {
    let e = one(r#"{"EventName":"INST_RETIRED.ANY","UMask":"0x1","SampleAfterValue":"2000003"}"#);
    assert_eq!(e.code(), "event=0xc0");
    assert_eq!(
        one(r#"{"EventName":"CPU_CLK_UNHALTED.THREAD"}"#).code(),
        "event=0x3c"
    );
    assert_eq!(
        one(r#"{"EventName":"CPU_CLK_UNHALTED.REF_TSC","UMask":"0x3"}"#).code(),
        "event=0,umask=3",
        "not among those"
    );
}

#[test]
fn units_are_pmus() {
    let pmu = |unit: &str| one(&format!(r#"{{"EventName":"a","Unit":"{unit}"}}"#)).pmu;
    for (unit, name) in [
        ("cpu_atom", "cpu_atom"),
        ("L3PMC", "amd_l3"),
        ("CBO", "uncore_cbox"),
        ("iMC", "uncore_imc"),
        ("imc_free_running_0", "uncore_imc_free_running_0"),
    ] {
        assert_eq!(pmu(unit), name);
    }
    let e = one(
        r#"{"EventName":"a","Unit":"iMC","PerPkg":"1","ScaleUnit":"64Bytes","Deprecated":"1"}"#,
    );
    assert!(e.per_package && e.deprecated);
    assert_eq!(e.scale.as_deref(), Some("64Bytes"));
}

#[test]
fn descriptions_say_what_the_generator_says() {
    let brief = |more: &str| {
        let json = format!(r#"{{"EventName":"a","BriefDescription":"Loads.  "{more}}}"#);
        one(&json).brief.unwrap()
    };
    assert_eq!(brief(""), "Loads");
    assert_eq!(brief(r#","PEBS":"1""#), "Loads (Precise event)");
    assert_eq!(brief(r#","PEBS":"2""#), "Loads (Must be precise)");
    assert_eq!(
        brief(r#","Data_LA":"1","Errata":"ADL038""#),
        "Loads  Supports address when precise.  Spec update: ADL038"
    );
}

#[test]
fn arm_tables_refer_to_standard_events() {
    let d = tempfile::tempdir().unwrap();
    file(
        d.path(),
        "arm64/common-and-microarch.json",
        r#"[{"EventName":"L1D_CACHE","EventCode":"0x04","BriefDescription":"L1D access"}]"#,
    );
    file(
        d.path(),
        "arm64/recommended.json",
        r#"[{"EventName":"L1D_CACHE_RD","EventCode":"0x40"},
            {"MetricName":"ipc","MetricExpr":"a / b","BriefDescription":"metric"}]"#,
    );
    file(
        d.path(),
        "arm64/a57/c.json",
        r#"[{"ArchStdEvent":"L1D_CACHE"}, {"ArchStdEvent":"l1d_cache_rd","BriefDescription":"own"},
            {"EventName":"MINE","EventCode":"0xC2","ArchStdEvent":"L1D_CACHE"},
            {"ArchStdEvent":"ipc"}, {"MetricName":"m","MetricExpr":"a"}]"#,
    );
    file(d.path(), "arm64/a57/metricgroups.json", r#"{"a":"b"}"#);
    file(d.path(), "arm64/a57/sys/other.json", "nonsense");
    file(d.path(), "arm64/a53/c.json", r#"[{"ArchStdEvent":"L9"}]"#);
    let arm64 = d.path().join("arm64");
    let standard = Standard::read(&arm64).unwrap();
    let all = read_model(&arm64.join("a57"), &standard).unwrap();
    let rows: Vec<_> = all
        .iter()
        .map(|e| (e.name.as_str(), e.terms.as_str(), e.brief.as_deref()))
        .collect();
    assert_eq!(
        rows,
        [
            ("l1d_cache", "event=4", Some("L1D access")),
            ("l1d_cache_rd", "event=0x40", Some("own")),
            ("mine", "event=4", Some("L1D access")),
        ]
    );
    let e = read_model(&arm64.join("a53"), &standard).unwrap_err();
    let text = e.to_string();
    assert!(
        text.contains("a53/c.json") && text.contains("`L9`"),
        "{text}"
    );
}

#[test]
fn what_is_wrong_is_named() {
    let wrong = [
        (r#"{"EventName":"X","EventCode":"0xzz"}"#, "`0xzz`"),
        (r#"{"EventName":"X","UMask":4}"#, "`UMask`: 4"),
        (r#"{"EventName":"X","UMask":"few"}"#, "`few`"),
        (
            r#"{"EventName":"X","MSRIndex":"0x99","MSRValue":"1"}"#,
            "0x99",
        ),
        (
            r#"{"EventName":"X","MSRIndex":"0x1a6","MSRValue":"None"}"#,
            "`MSRValue`",
        ),
    ];
    for (json, part) in wrong {
        let e = refused(json);
        assert!(e.contains(part) && e.contains("`X`"), "{e}");
    }
    let d = tempfile::tempdir().unwrap();
    file(d.path(), "m/a.json", "[{]");
    let e = read_model(&d.path().join("m"), &Standard::default()).unwrap_err();
    assert!(e.to_string().contains("m/a.json"), "{e}");
    let e = read_map(d.path()).unwrap_err();
    assert!(e.to_string().contains("mapfile.csv"), "{e}");
}

#[test]
fn a_table_that_is_no_file_is_not_waited_for() {
    let d = tempfile::tempdir().unwrap();
    let map = d.path().join("mapfile.csv");
    let made = std::process::Command::new("mkfifo").arg(&map).status();
    assert!(made.unwrap().success());
    let e = read_map(d.path()).unwrap_err().to_string();
    assert!(e.contains("mapfile.csv") && e.contains("pipe"), "{e}");
}
