use super::*;
use crate::counting::Judged;

fn count(event: &str, coverage: Option<f64>) -> Count {
    Count {
        event: event.into(),
        set: 1,
        pmu: Some("armv8_cortex_a57".into()),
        core_type: Some("big".into()),
        row: Row::default(),
        supported: true,
        count: Some(1_234_567.0),
        counted: Some(617_283),
        u: Some(1000.0),
        low: Some(1_232_567.0),
        high: Some(1_246_912.67),
        coverage,
        seconds: 0.5,
        windows: 7,
        trusted: None,
    }
}

fn one(sets: &[&str], counts: Vec<Count>) -> Report {
    Report {
        command: Some(vec!["sleep".into(), "1".into()]),
        pid: None,
        system_wide: false,
        window: None,
        overflow: None,
        elapsed_s: 1.0,
        sets: sets.iter().map(|s| (*s).to_owned()).collect(),
        multiplexing: (sets.len() > 1).then_some(Multiplexing {
            strategy: "round-robin",
            interval_ms: 10,
            spread: Some(0.25),
            at_once: 1,
            turns: 14,
        }),
        counts,
        metrics: vec![],
        virtual_counters: vec![],
        intervals: None,
        repeated: None,
    }
}

#[test]
fn a_table_names_turns_coverage_and_interval() {
    let text = table(&one(&["a", "b"], vec![count("a", Some(0.5))]));
    assert!(
        text.contains("round-robin, each for 10 ms ± 25 %, 14 turns"),
        "{text}"
    );
    assert!(
        text.contains(
            "1,234,567  a [1]  big (armv8_cortex_a57)  ± 1.00 %, counted 50.0 % of the time"
        ),
        "{text}"
    );
    let text = table(&one(&["a"], vec![count("a", Some(1.0)), count("b", None)]));
    assert!(
        !text.contains('±') && text.contains("never ran here"),
        "{text}"
    );
}

#[test]
fn an_event_that_is_off_by_itself_says_so() {
    let trusted = |verdict, error_min: f64| Trusted {
        verdict,
        error_min,
        error_max: 0.01,
    };
    let of = |verdict, min| Count {
        trusted: Some(trusted(verdict, min)),
        ..count("a", Some(1.0))
    };
    let report = one(&["a"], vec![of(Verdict::Usable, -0.02)]);
    let text = table(&report);
    assert!(
        text.contains("usable: the event itself is off by -2.0 to +1.0 %"),
        "{text}"
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["counts"][0]["verdict"], "usable");
    assert_eq!(json["counts"][0]["error_min"], -0.02);
    let text = table(&one(&["a"], vec![of(Verdict::Exact, -0.001)]));
    assert!(!text.contains("off by"), "{text}");
    let text = table(&one(&["a"], vec![of(Verdict::Broken, -1.0)]));
    assert!(text.contains("broken, says the trust file"), "{text}");
    let json = serde_json::to_value(one(&["a"], vec![count("a", None)])).unwrap();
    assert!(json["counts"][0].get("verdict").is_none(), "{json}");
}

#[test]
fn what_nothing_counts_is_not_supported() {
    let not = |pmu: Option<&str>| Count {
        pmu: pmu.map(str::to_owned),
        core_type: None,
        supported: false,
        count: None,
        counted: None,
        u: None,
        low: None,
        high: None,
        ..count("cycles", None)
    };
    let mut report = one(&["a"], vec![not(None), not(Some("a57"))]);
    report.metrics.push(Derived {
        metric: "ipc".into(),
        formula: "a/b".into(),
        pmu: None,
        core_type: None,
        row: Row::default(),
        unit: None,
        value: None,
        u: None,
        u_of_events: None,
        threshold: None,
        not_supported: vec!["a".into()],
    });
    let text = table(&report);
    for part in [
        "<not supported>  cycles  no PMU  this machine has no PMU",
        "<not supported>  cycles  a57     the PMU does not count it",
        "-  ipc     no PMU  no value without `a`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = csv(&report);
    assert!(
        text.contains("\n<not supported>,,,,cycles,a57,,,1,,,,\n"),
        "{text}"
    );
    assert!(text.ends_with("\n<not supported>,,ipc,,,,\n"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["counts"][0]["supported"], false);
    assert!(json["counts"][0]["counted"].is_null());
}

#[test]
fn a_vendors_metric_has_a_unit_and_a_threshold() {
    let mut report = one(&["a"], vec![count("a", Some(1.0))]);
    let metric = |name: &str, exceeded| Derived {
        metric: name.into(),
        formula: "a/b".into(),
        pmu: Some("p".into()),
        core_type: None,
        row: Row::default(),
        unit: Some("%".into()),
        value: Some(25.0),
        u: Some(0.5),
        u_of_events: Some(0.0),
        threshold: Some(Judged {
            text: "bound > 0.2".into(),
            exceeded,
        }),
        not_supported: vec![],
    };
    report.metrics = vec![metric("bound", true), metric("idle", false)];
    let text = table(&report);
    let line = |name: &str| text.lines().find(|l| l.contains(name)).unwrap();
    assert!(
        line("bound (%)").ends_with("± 0.5000 (standard uncertainty); worth a look: bound > 0.2")
    );
    assert!(
        line("idle (%)").ends_with("± 0.5000 (standard uncertainty)"),
        "{text}"
    );
    let text = csv(&report);
    assert!(
        text.ends_with(
            "\nvalue,u,metric,pmu,core_type,cpu,thread,unit,exceeded\n\
             25,0.5,bound,p,,,,%,true\n25,0.5,idle,p,,,,%,false\n"
        ),
        "{text}"
    );
}

#[test]
fn csv_has_as_many_fields_in_each_line() {
    let text = csv(&one(
        &["a"],
        vec![count("cycles", Some(1.0)), count("b", None)],
    ));
    let fields: Vec<usize> = text.lines().map(|l| l.split(',').count()).collect();
    assert_eq!(fields, [13; 3], "{text}");
    assert_eq!(
        field("cpu/event=1,umask=\"2\"/"),
        "\"cpu/event=1,umask=\"\"2\"\"/\""
    );
}

fn factor(value: Option<f64>) -> VirtualCount {
    VirtualCount {
        counter: "sf",
        of: "alu-7".into(),
        value,
        unit: "ratio",
        source: "model juno".into(),
        readings: None,
        u: value.map(|_| 0.125),
        factor: Some(FactorCount {
            row: Row {
                cpu: None,
                tid: Some(7),
                thread: Some("alu-7".into()),
            },
            core_type: "big".into(),
            on: Some("little".into()),
            estimates: value.map_or(0, |_| 3),
            extrapolated: value.map_or(0, |_| 1),
            coverage: Some(0.5),
            why: value.is_none().then(|| "nothing, really".into()),
        }),
    }
}

#[test]
fn factors_say_what_they_rest_on_and_why_there_is_none() {
    let mut report = one(&["a"], vec![]);
    report.virtual_counters = vec![factor(Some(2.5)), factor(None)];
    let text = table(&report);
    for part in [
        "2.500  sf of big (ratio)  alu-7 on little  ± 0.125 (standard uncertainty), model juno: 3 estimates of 50.0 % of the time there, 1 beyond the model's data\n",
        "    -  sf of big (ratio)  alu-7 on little  nothing, really\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = csv(&report);
    let rows: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(
        rows,
        [
            "value,counter,unit,of,source,u,core_type,estimates,coverage,remark",
            "2.5,sf of big,ratio,alu-7,model juno,0.125,little,3,0.5000,",
            ",sf of big,ratio,alu-7,model juno,,little,0,0.5000,\"nothing, really\"",
        ]
    );
    let json = serde_json::to_value(&report).unwrap();
    let of = &json["virtual_counters"];
    assert_eq!((&of[0]["tid"], &of[0]["on"]), (&7.into(), &"little".into()));
    assert!(of[1]["value"].is_null() && of[1]["why"].is_string(), "{of}");
    let w = Window {
        at_s: 0.25,
        set: 2,
        counts: vec![],
        virtual_counters: vec![factor(Some(2.5))],
    };
    assert_eq!(
        window(&w, Format::Csv),
        "0.250000,,,model juno,little,sf of big,2.5,,alu-7\n"
    );
    assert_eq!(
        window(&w, Format::Table),
        "    0.250000            2.500  sf of big in ratio of alu-7 on little (model juno)\n"
    );
}

#[test]
fn means_of_few_are_not_rounded() {
    for (v, text) in [(1.25, "1.25"), (3.0, "3"), (1234.5, "1,234")] {
        assert_eq!(mean_or_count(v), text);
    }
}

#[test]
fn thousands_are_apart() {
    for (v, text) in [
        (0.0, "0"),
        (999.0, "999"),
        (1000.4, "1,000"),
        (-1_234_567.0, "-1,234,567"),
    ] {
        assert_eq!(grouped(v), text);
    }
}
