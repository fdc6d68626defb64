//! The trace of a recording.

use amp_recording::{trace, Recording};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const RECORDING: &str = r#"{"scx_amp_recording":1,"program":"0.1.0","run":"r","part":0,"interval_us":100000,"core_types":[{"name":"big","cpus":"0-1","capacity":1024},{"name":"little","cpus":"2-5","capacity":446}],"policy":"rr","provider":"history"}
{"t":100000,"threads":[{"id":0,"who":{"tid":812,"pid":812,"start":0,"comm":"bzip2","weight":100},"cpu":[98000],"sf":[[1.9,0.1]],"phase":0,"on":0,"r":true},{"id":1,"who":{"tid":814,"pid":813,"start":0,"comm":"a \"b\"","weight":100},"cpu":[0,50000],"r":true}]}
{"t":200000,"threads":[{"id":0,"cpu":[60000,40000],"on":0,"r":true},{"id":1,"r":true}]}
{"t":300000,"change":{"policy":"hsp","knobs":{"utility":"speedup"},"provider":"history"},"threads":[{"id":0,"cpu":[0,99000],"phase":1,"on":1,"sf":[[1.2,null]]},{"id":1,"cpu":[0,50000]}]}
{"t":400000,"threads":[{"id":0,"cpu":[0,99000],"on":1,"r":true}],"gone":[1]}
"#;

fn events() -> Vec<Value> {
    let recording = Recording::parse(Path::new("r"), RECORDING.as_bytes(), None).unwrap();
    let mut out = Vec::new();
    trace::write(&recording, &mut out).unwrap();
    let all: Value = serde_json::from_slice(&out).unwrap();
    all["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn placements_are_slices_that_do_not_overlap() {
    let mut slices: BTreeMap<u64, Vec<(u64, u64, String)>> = BTreeMap::new();
    for e in events().iter().filter(|e| e["ph"] == "X") {
        let (ts, dur) = (e["ts"].as_u64().unwrap(), e["dur"].as_u64().unwrap());
        let name = format!("{} at {}", e["name"].as_str().unwrap(), e["args"]["placed"]);
        slices
            .entry(e["tid"].as_u64().unwrap())
            .or_default()
            .push((ts, ts + dur, name));
    }
    assert_eq!(
        slices[&812],
        [
            (0, 200_000, "big at \"big\"".to_owned()),
            (200_000, 400_000, "little at \"little\"".to_owned()),
        ]
    );
    // it only waited in the second span
    assert_eq!(
        slices[&814],
        [
            (0, 100_000, "little at null".to_owned()),
            (200_000, 300_000, "little at null".to_owned()),
        ]
    );
}

#[test]
fn phases_factors_cores_and_changes_are_there() {
    let events = events();
    let of = |ph: &str| -> Vec<(String, u64)> {
        let all = events.iter().filter(|e| e["ph"] == ph);
        all.map(|e| {
            (
                e["name"].as_str().unwrap().to_owned(),
                e["ts"].as_u64().unwrap(),
            )
        })
        .collect()
    };
    let named = |name: &str, ts| (name.to_owned(), ts);
    assert_eq!(of("b"), [named("phase 0", 0), named("phase 1", 200_000)]);
    assert_eq!(
        of("e"),
        [named("phase 0", 200_000), named("phase 1", 400_000)]
    );
    assert_eq!(of("i"), [named("hsp, provider history", 200_000)]);
    let counters = of("C");
    assert!(counters.contains(&named("SF bzip2 812", 0)), "{counters:?}");
    assert!(counters.contains(&named("SF bzip2 812", 200_000)));
    assert_eq!(counters.iter().filter(|c| c.0 == "busy big").count(), 4);
    let busy = events
        .iter()
        .find(|e| e["name"] == "busy little" && e["ts"] == 100_000)
        .unwrap();
    assert_eq!(busy["args"]["cores"], 0.4);
    let names: Vec<&str> = events
        .iter()
        .filter(|e| e["ph"] == "M")
        .map(|e| e["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["bzip2", "a \"b\"", "machine", "bzip2", "a \"b\""]);
}
