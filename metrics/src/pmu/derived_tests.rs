use super::super::Pmu;
use super::*;

fn file(dir: &Path, name: &str, text: &str) {
    let p = dir.join(name);
    std::fs::create_dir_all(p.parent().unwrap()).unwrap();
    std::fs::write(p, text).unwrap();
}

/// An Arm core of four CPUs on two cores, and tables with these metrics of it.
fn machine(metrics: &str) -> (tempfile::TempDir, Pmus, Vec<VendorMetrics>) {
    let d = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| file(d.path(), name, text);
    let cpu = "sys/devices/system/cpu";
    at(
        &format!("{cpu}/cpu0/regs/identification/midr_el1"),
        "0x410fd490\n",
    );
    at(&format!("{cpu}/present"), "0-7\n");
    at(&format!("{cpu}/online"), "0-3\n");
    at(&format!("{cpu}/smt/active"), "1\n");
    for i in 0..4 {
        let core = ["0-1\n", "2-3\n"][i / 2];
        at(&format!("{cpu}/cpu{i}/topology/core_cpus_list"), core);
        at(&format!("{cpu}/cpu{i}/topology/package_cpus_list"), "0-3\n");
    }
    at(
        &format!("sys/{}/pmu0/caps/slots", crate::pmu::DEVICES),
        "0x5\n",
    );
    at(
        "tables/arm64/mapfile.csv",
        "h\n0x00000000410fd490,v1,n2,core\n",
    );
    at("tables/arm64/standard.json", "[]");
    at(
        "tables/arm64/n2/all.json",
        r#"[{"EventName": "STALL", "EventCode": "0x24"}, {"EventName": "CYC", "EventCode": "0x11"}]"#,
    );
    at("tables/arm64/n2/metrics.json", metrics);
    let pmu = Pmu {
        name: "pmu0".into(),
        type_: 8,
        cpus: vec![0, 1, 2, 3],
        core: true,
        formats: [("event", "config:0-15"), ("threshold", "config1:0-7")]
            .map(|(k, v)| (k.to_owned(), v.parse().unwrap()))
            .into(),
        ..Pmu::default()
    };
    let other = Pmu {
        name: "dmc".into(),
        type_: 9,
        cpus: vec![0],
        ..Pmu::default()
    };
    let pmus = Pmus::from_list(vec![pmu, other], &[vec![0, 1, 2, 3]]);
    let tables = d.path().join("tables");
    let tables = Tables::Folder(&tables);
    let pmus = pmus.with_vendor_events(d.path(), tables).unwrap();
    let metrics = pmus.vendor_metrics(d.path(), tables).unwrap();
    (d, pmus, metrics)
}

fn one(expression: &str) -> Result<Expression<String>, String> {
    let text = format!(r#"[{{"MetricName": "m", "MetricExpr": "{expression}"}}]"#);
    let (_root, pmus, metrics) = machine(&text);
    let metric = metrics[0].iter().next().unwrap();
    metrics[0].formula(&pmus, metric, false)
}

#[test]
fn events_get_their_pmu() {
    let e = one(
        r"STALL:u / cpu@cyc\\,threshold\\=2@ + CYC@threshold\\=0x1@ + pmu0@event\\=0x3@k + duration_time",
    );
    assert_eq!(
        e.unwrap().leaves(),
        [
            "pmu0/STALL/u",
            "pmu0/cyc,threshold=2/",
            "pmu0/CYC,threshold=0x1/",
            "pmu0/event=0x3/k",
            DURATION,
        ]
    );
}

#[test]
fn what_the_machine_is_like_is_known() {
    for (expression, value) in [
        ("#slots + #num_cpus * 10", 85.0),
        (
            "#num_cpus_online + #num_cores * 10 + #num_packages * 100",
            124.0,
        ),
        ("(1 if #smt_on else 2) + (10 if #core_wide else 20)", 21.0),
        (
            "has_event(STALL) + 2 * has_event(NONE) + 4 * source_count(CYC)",
            5.0,
        ),
        (
            "strcmp_cpuid_str(0x410fd490) + 2 * strcmp_cpuid_str(0x410fd493)",
            1.0,
        ),
        ("1 if #has_pmem else 0", 0.0),
    ] {
        let e = one(expression).unwrap();
        assert_eq!(e.evaluate(&[]).unwrap().0, value, "{expression}");
    }
}

#[test]
fn what_cannot_be_worked_out_says_why() {
    let e = |t: &str| one(t).unwrap_err();
    assert_eq!(e("NOTHING / CYC"), "PMU `pmu0` has no event `NOTHING`");
    assert!(e("dmc@reads@").contains("of PMU `dmc`"));
    // no file says it
    assert_eq!(e("#num_dies * CYC"), "`#num_dies` is not known here");
    assert_eq!(
        e("#system_tsc_freq"),
        "`#system_tsc_freq` is not known here"
    );
    assert!(e("CYC +").contains("`m`"));
}

#[test]
fn names_are_of_metrics_and_groups() {
    let (_root, pmus, metrics) = machine(
        r#"[{"MetricName": "a", "MetricExpr": "CYC", "MetricGroup": "Default;Top"},
            {"MetricName": "b", "MetricExpr": "a + 1", "MetricGroup": "top", "MetricThreshold": "b > a"},
            {"MetricName": "c", "MetricExpr": "STALL", "Unit": "cpu_core"}]"#,
    );
    let m = &metrics[0];
    let names = |n: &str| m.named(n).map(|m| m.name.clone()).collect::<Vec<_>>();
    assert_eq!(names("TOP"), ["a", "b"]);
    assert_eq!(names("A"), ["a"]);
    assert_eq!(names("c"), [""; 0], "another PMU's");
    let b = m.named("b").next().unwrap();
    let t = m.threshold(&pmus, b, true).unwrap().unwrap();
    assert_eq!(t.leaves(), ["pmu0/CYC/"]);
    assert_eq!(t.evaluate(&[1.0]).unwrap().0, 1.0);
}
