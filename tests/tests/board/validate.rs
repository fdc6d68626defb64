//! `scx_amp pmc validate` on the board: verdicts beside the model's ground truth.

use super::pmc::{json, value, CLOSE};
use amp_metrics::trust::{Trust, Verdict};
use amp_tests::{Lab, Reply};
use serde_json::Value;

/// Validates on the board and returns the trust file with each event's comparisons. With nothing
/// broken, events of other quantities are tried after that, into files of their own.
fn validate(broken: Option<&str>) -> (Trust, Vec<Value>, Reply) {
    let mut lab = Lab::board("juno").collect("/trust.toml").collect("/v.json");
    if let Some(argument) = broken {
        lab = lab.plugin_argument(&format!("break={argument}"));
    }
    // of broken ones two events are enough, the broken one and another
    let events = match broken {
        None => "",
        Some(_) => "-e l1-refills=l1d_cache_refill -e branches=br_retired",
    };
    let mut script = format!(
        "sleep 5\nscx_amp pmc validate {events} --repetitions 2 --out /trust.toml --json /v.json 2>/dev/null || exit 1\ncat /trust.toml\n"
    );
    if broken.is_none() {
        lab = lab.collect("/others.toml").collect("/others.json");
        let events: String = OTHERS
            .iter()
            .map(|(event, quantity, _)| format!(" -e {quantity}={event}"))
            .collect();
        script += &format!(
            "scx_amp pmc validate{events} --repetitions 1 --out /others.toml --json /others.json 2>/dev/null || exit 1\n"
        );
    }
    let r = lab.run(&script).ok();
    let events = comparisons(&r, "/v.json");
    (trust(&r, "/trust.toml"), events, r)
}

/// Events that are tried for a quantity that they do not count, and events beside them that tell
/// whether the kernels do what they should: on the board nothing counts translations, but the
/// kernels that are about them run.
const OTHERS: [(&str, &str, Verdict); 6] = [
    ("inst_retired", "instructions", Verdict::Exact),
    ("ld_retired", "loads", Verdict::Exact),
    ("br_retired", "branches", Verdict::Exact),
    ("l1d_cache", "dtlb-walks", Verdict::Broken),
    ("inst_retired:u", "cycles", Verdict::Broken),
    ("l2d_cache_refill", "memory-reads", Verdict::Exact),
];

fn trust(r: &Reply, name: &str) -> Trust {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trust.toml");
    std::fs::write(&path, r.file(name)).unwrap();
    Trust::load(&path).unwrap()
}

fn comparisons(r: &Reply, name: &str) -> Vec<Value> {
    json(&r.file(name))["events"].as_array().unwrap().clone()
}

/// The verdict on each of [`OTHERS`].
fn others_are_rated(r: &Reply) {
    let trust = trust(r, "/others.toml");
    assert_eq!(trust.core_types.len(), 2);
    for t in &trust.core_types {
        for (event, quantity, verdict) in OTHERS {
            let mut all = t.events.iter();
            let rated = all
                .find(|e| e.event == event && e.quantity == quantity)
                .unwrap_or_else(|| panic!("{}: no {quantity}={event}: {t:?}", t.name));
            assert_eq!(rated.verdict, verdict, "{}: {rated:?}", t.name);
        }
    }
    let mut kernels = std::collections::BTreeSet::new();
    for e in comparisons(r, "/others.json") {
        for c in e["comparisons_made"].as_array().unwrap() {
            kernels.insert(c["kernel"].as_str().unwrap().to_owned());
        }
    }
    for pages in ["few pages", "some pages", "many pages"] {
        assert!(kernels.contains(pages), "{pages}: {kernels:?}");
    }
}

/// Largest relative difference between what an event counted and what the model did.
fn off_the_truth(event: &Value) -> f64 {
    let all = event["comparisons_made"].as_array().unwrap();
    let off = |c: &Value| {
        let get = |key: &str| c[key].as_f64().unwrap_or_else(|| panic!("no {key}: {c}"));
        // the model has no total of floating-point instructions: the kernel's count is the truth
        let truth = match event["quantity"].as_str() {
            Some("floating-point") => "expected",
            _ => "truth",
        };
        (get("counted") - get(truth)).abs() / get("expected").max(100_000.0)
    };
    all.iter().map(off).fold(0.0, f64::max)
}

/// What `pmc validate` expects of each kernel beside what the board's model has done for it:
/// instructions and traffic, whatever the counters say.
fn models_of_kernels_are_right(events: &[Value]) {
    let mut kernels = std::collections::BTreeMap::<String, usize>::new();
    for e in events {
        let close = match e["quantity"].as_str() {
            // random branches may be predicted by luck
            Some("mispredicts") => 0.02,
            // what the kernel changes at each tick leaves L2 by the program's refills
            Some("l2-write-backs") => 0.02,
            // in some runs 0.7 to 0.94 % of one triangle's lines are not in L2 any more: the counter
            // and the board's model agree on that, the kernel's model knows nothing of it
            Some("l2-refills") => 0.015,
            _ => CLOSE,
        };
        for c in e["comparisons_made"].as_array().unwrap() {
            *kernels
                .entry(c["kernel"].as_str().unwrap().into())
                .or_default() += 1;
            if e["quantity"] == "floating-point" {
                continue;
            }
            let get = |key: &str| c[key].as_f64().unwrap_or_else(|| panic!("no {key}: {c}"));
            let (expected, truth) = (get("expected"), get("truth"));
            // what starting and stopping the counters does is in the truth of short kernels
            let scale = get("scale").max(100_000.0);
            let off = ((truth - expected).abs() - get("tolerance")).max(0.0) / scale;
            assert!(off <= close, "{} {}: {off} {c}", e["core_type"], e["event"]);
        }
    }
    println!("{} kernels: {kernels:?}", kernels.len());
    for two in [
        "triangle most L1",
        "triangle least L2",
        "consumer",
        "producer",
    ] {
        assert!(kernels.contains_key(two), "{two}: {kernels:?}");
    }
    // two without data, six streams at three levels, four triangles, two that hand lines over, two
    // of additions, three of floating-point arithmetic
    assert_eq!(kernels.len(), 2 + 18 + 4 + 2 + 2 + 3);
}

#[test]
fn good_events_are_trusted_on_both_core_types() {
    let (trust, events, reply) = validate(None);
    others_are_rated(&reply);
    assert_eq!(trust.core_types.len(), 2);
    for t in &trust.core_types {
        assert!(t.events.len() >= 10, "{t:?}");
        for e in &t.events {
            assert!(e.verdict <= Verdict::Usable, "{}: {e:?}", t.name);
            assert!(e.comparisons >= 4, "{e:?}");
        }
        for counted in [
            "inst_retired",
            "br_retired",
            "ld_retired",
            "st_retired",
            "mem_access",
            "l1d_cache_refill",
            "vfp_spec",
            "cpu_cycles",
            "cycles",
        ] {
            assert_eq!(
                trust.verdict(&t.pmu, counted),
                Some(Verdict::Exact),
                "{counted}"
            );
        }
    }
    models_of_kernels_are_right(&events);
    for e in &events {
        let off = off_the_truth(e);
        println!(
            "{} {}: at most {:.4} % off the model",
            e["core_type"],
            e["event"],
            off * 100.0
        );
        assert!(off <= CLOSE, "{} {}: {off}", e["core_type"], e["event"]);
    }
}

fn only_the_broken_one_is_called_broken(argument: &str) {
    let (trust, events, _) = validate(Some(argument));
    assert_eq!(trust.core_types.len(), 2);
    for t in &trust.core_types {
        assert_eq!(
            trust.verdict(&t.pmu, "l1d_cache_refill"),
            Some(Verdict::Broken),
            "{t:?}"
        );
        assert_eq!(
            trust.verdict(&t.pmu, "br_retired"),
            Some(Verdict::Exact),
            "{t:?}"
        );
    }
    for e in &events {
        // the model itself is right all the while
        assert_eq!(
            off_the_truth(e) > 0.5,
            e["event"] == "l1d_cache_refill",
            "{e}"
        );
    }
}

#[test]
fn a_frozen_event_is_called_broken() {
    only_the_broken_one_is_called_broken("0x03:0");
}

#[test]
fn an_event_that_counts_twice_is_called_broken() {
    only_the_broken_one_is_called_broken("0x03:2");
}

/// Arm's driver puts an event into the first free counter, so its place in its set decides on the
/// counter. Two events of the board that stand still in some counters: the first counts in the first
/// two only, the other one in the fourth.
#[test]
fn an_event_that_stands_still_in_some_counters_is_called_broken() {
    let r = Lab::board("juno")
        .plugin_argument("tied=0x10:0-1")
        .plugin_argument("tied=0x22:3")
        .collect("/trust.toml")
        .collect("/stat.json")
        .run(
            "sleep 5
scx_amp pmc validate -e mispredicts=br_mis_pred -e branches=br_retired -e mispredicts=br_mis_pred_retired -e loads=ld_retired --repetitions 2 --out /trust.toml 2>/err || exit 1
grep 'some counters' /err | sed 's/^/says /'
scx_amp pmc stat --trust /trust.toml -e ld_retired,br_retired,inst_retired,br_mis_pred,br_mis_pred_retired --json /stat.json -- amp-workload run branchy --work 1M --pin 1 || exit 1
",
        )
        .ok();
    let trust = trust(&r, "/trust.toml");
    assert_eq!(trust.core_types.len(), 2);
    for t in &trust.core_types {
        for (event, verdict) in [
            ("br_mis_pred", Verdict::Broken),
            ("br_mis_pred_retired", Verdict::Broken),
            ("br_retired", Verdict::Exact),
            ("ld_retired", Verdict::Exact),
        ] {
            assert_eq!(trust.verdict(&t.pmu, event), Some(verdict), "{event}");
        }
    }
    let says: Vec<&str> = r.lines("says").collect();
    for places in [
        "`br_mis_pred` counts right as number 1, 2 of its set and wrong as number 3, 4, 5, 6",
        "`br_mis_pred_retired` counts right as number 4 of its set and wrong as number 1, 2, 3, 5, 6",
    ] {
        let of = says.iter().filter(|s| s.contains(places)).count();
        assert_eq!(of, 2, "on both core types: {places}: {says:?}");
    }
    // in the fourth and the fifth counter they count nothing, and that is said
    let report = json(&r.file("/stat.json"));
    for event in ["br_mis_pred", "br_mis_pred_retired"] {
        assert_eq!(value(&report, event, "big", "count"), 0.0, "{event}");
        let rows = report["counts"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|r| r["event"] == event && r["core_type"] == "big");
        assert_eq!(row.unwrap()["verdict"], "broken", "{event}");
    }
}
