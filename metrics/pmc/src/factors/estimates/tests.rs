use super::*;
use amp_metrics::pmu::Pmus;
use amp_metrics::virtual_counters::VirtualCounters;
use amp_metrics::{MetricId, Quality};
use std::path::Path;

use crate::inventory::CounterInventory;
use crate::sets::Set;

/// Two sets on each core type; speedup factors from both, efficiency factors from big alone.
const MODEL: &str = r#"
kind = "model"
name = "made-up"
[[core_type]]
name = "big"
[[core_type.event_set]]
misses = "cache-misses"
[[core_type.event_set]]
branches = "branch-misses"
[[core_type.metric]]
name = "misses"
count = "misses"
per = "cycles"
range = [0.0, 0.5]
[[core_type.metric]]
name = "branches"
count = "branches"
per = "cycles"
[[core_type.factor]]
predicts = "speedup"
base = 1.5
error = 0.1
linear = { misses = 4.0, branches = 1.0 }
[[core_type.factor]]
predicts = "efficiency"
base = 0.5
error = 0.05
linear = { misses = 2.0 }
[[core_type]]
name = "little"
[[core_type.event_set]]
misses = "cache-misses"
[[core_type.event_set]]
branches = "branch-misses"
[[core_type.metric]]
name = "misses"
count = "misses"
per = "cycles"
[[core_type.factor]]
predicts = "speedup"
base = 1.0
error = 0.2
linear = { misses = 10.0 }
"#;

const ON: [&str; 2] = ["big", "little"];

fn inventory(core_types: &[&str]) -> CounterInventory {
    let cpus: Vec<Vec<u32>> = (0..core_types.len() as u32).map(|c| vec![c]).collect();
    let pmus = Pmus::generic(&cpus, 6);
    CounterInventory::from_parts(pmus, core_types, VirtualCounters::of(Vec::new()))
}

fn model() -> PlatformModel {
    PlatformModel::parse(Path::new("made-up.toml"), MODEL).unwrap()
}

/// Estimates of both factors, after one set of somebody else's.
fn estimates() -> Estimates {
    let inventory = inventory(&ON);
    let pmus = &inventory.pmus;
    let mut sets = Model::new(model());
    let sets = sets.event_sets(pmus).unwrap();
    let wanted = vec![Factor::Speedup, Factor::Efficiency];
    let factors = Factors::of(&inventory, wanted, model(), &sets);
    let texts: Vec<&str> = factors.sets().iter().map(|s| s.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "for model `made-up`: instructions,cycles,misses",
            "for model `made-up`: instructions,cycles,branches"
        ]
    );
    assert!(factors
        .sets()
        .iter()
        .all(|s: &Set| s.hidden && s.units.len() == 2));
    factors.begin(1)
}

/// A window of set `set` (from 1) in which a thread, or the program, ran for so many seconds on a
/// core type and counted so much.
fn window(at_s: f64, set: usize, of: &[(Option<i32>, &str, f64, [u64; 3])]) -> Window {
    let mut counts = vec![WindowCount {
        event: "task-clock".into(),
        pmu: Some("software".into()),
        core_type: None,
        row: Row::default(),
        count: Some(7),
        seconds: 1.0,
    }];
    for (tid, on, seconds, deltas) in of {
        let row = Row {
            cpu: None,
            tid: *tid,
            thread: tid.map(|t| format!("thread-{t}")),
        };
        for (i, n) in deltas.iter().enumerate() {
            counts.push(WindowCount {
                event: format!("event-{i}"),
                pmu: Some((*on).to_owned()),
                core_type: Some((*on).to_owned()),
                row: row.clone(),
                count: Some(*n),
                seconds: *seconds,
            });
        }
    }
    Window {
        at_s,
        set,
        counts,
        virtual_counters: Vec::new(),
    }
}

/// Of the program on `on`, in turns of 10 ms.
fn turn(i: usize, on: &str, deltas: [u64; 3]) -> Window {
    let set = [2, 3][i % 2];
    window(0.01 * (i + 1) as f64, set, &[(None, on, 0.01, deltas)])
}

/// What the provider itself says of the same readings.
fn asked(readings: &[(u32, [u64; 3])], metric: MetricId) -> Estimate {
    let mut provider = Model::new(model());
    let key = key(0);
    for (i, (set, deltas)) in readings.iter().enumerate() {
        let ms = Nanos::from_millis(10);
        provider.observe(&Snapshot {
            now: Nanos::from_millis(10 * (i as u64 + 1)),
            threads: vec![ThreadSample {
                key,
                tid: 1,
                app: AppId(1),
                comm: [0; 16],
                arguments: 0,
                weight: 100,
                allowed: CoreTypeSet::ALL,
                runnable: true,
                core_type: CoreTypeId(0),
                placed: None,
                runtime: [Nanos::ZERO; MAX_CORE_TYPES],
            }],
            readings: vec![Reading::new(key, CoreTypeId(0), *set, 1, deltas).over(ms, ms)],
            ..Snapshot::default()
        });
    }
    provider.estimate(key, metric).unwrap()
}

#[test]
fn windows_give_what_the_provider_gives_for_the_same_counts() {
    let counts = [[900, 1000, 50], [910, 1000, 30]];
    let mut e = estimates();
    assert_eq!(e.take(&mut turn(0, "big", counts[0])), []);
    let mut second = turn(1, "big", counts[1]);
    let got = e.take(&mut second);
    assert_eq!(got.len(), 2);
    let readings = [(0, counts[0]), (1, counts[1])];
    for (count, factor) in got.iter().zip(Factor::ALL) {
        let direct = asked(&readings, factor.of(CoreTypeId::FASTEST));
        assert_eq!(direct.quality, Quality::Multiplexed);
        assert_eq!(
            (count.counter, count.value, count.u),
            (factor.name(), Some(direct.value), direct.uncertainty)
        );
        assert_eq!((count.of.as_str(), count.unit), ("program", "ratio"));
        assert_eq!(count.source, "model made-up");
        let f = count.factor.as_ref().unwrap();
        assert_eq!(
            (f.core_type.as_str(), f.on.as_deref()),
            ("big", Some("big"))
        );
        assert_eq!((f.estimates, f.extrapolated), (1, 0));
    }
    // 1.5 + 4 · 0.05 + 0.03
    assert!((got[0].value.unwrap() - 1.73).abs() < 1e-12);
    // what the model counted is nobody's else
    let left: Vec<&str> = second.counts.iter().map(|c| c.event.as_str()).collect();
    assert_eq!(left, ["task-clock"]);
    // the next turn completes nothing
    assert_eq!(e.take(&mut turn(2, "big", counts[0])), []);
    // of 30 ms, 20 are the estimate's
    let totals = e.totals();
    let f = totals[0].factor.as_ref().unwrap();
    assert_eq!((totals.len(), f.estimates), (2, 1));
    assert!((f.coverage.unwrap() - 2.0 / 3.0).abs() < 1e-12);
}

#[test]
fn other_sets_count_as_time_and_keep_their_counts() {
    let mut e = estimates();
    let mut other = window(0.01, 1, &[(None, "big", 0.01, [1, 2, 3])]);
    let before = other.clone();
    assert_eq!(e.take(&mut other), []);
    assert_eq!(other, before);
    e.take(&mut window(
        0.02,
        2,
        &[(None, "big", 0.01, [900, 1000, 50])],
    ));
    e.take(&mut window(
        0.03,
        3,
        &[(None, "big", 0.01, [900, 1000, 50])],
    ));
    let f = e.totals()[0].factor.clone().unwrap();
    assert_eq!((f.estimates, f.coverage), (1, Some(1.0)));
}

#[test]
fn without_a_sample_that_is_long_enough_there_is_no_estimate_but_a_reason() {
    let mut e = estimates();
    for i in 0..6 {
        let mut w = turn(i, "big", [90, 100, 5]);
        w.counts.iter_mut().for_each(|c| c.seconds = 0.0009);
        assert_eq!(e.take(&mut w), []);
    }
    let totals = e.totals();
    assert_eq!(totals.len(), 2);
    for t in &totals {
        let f = t.factor.as_ref().unwrap();
        assert_eq!((t.value, t.u, f.estimates), (None, None, 0));
        let why = f.why.as_deref().unwrap();
        assert!(
            why.contains("in 5.4 ms") && why.contains("2 event sets") && why.contains("1 ms"),
            "{why}"
        );
    }
    assert_eq!(e.known(), []);
    // nobody ran at all
    let mut e = estimates();
    e.take(&mut window(0.01, 2, &[(None, "big", 0.0, [0, 0, 0])]));
    let totals = e.totals();
    let why = |t: &VirtualCount| t.factor.as_ref().unwrap().why.clone().unwrap();
    assert_eq!((totals.len(), totals[0].value), (2, None));
    assert!(why(&totals[0]).contains("nothing ran"), "{totals:?}");
}

#[test]
fn a_core_type_without_a_factor_is_named() {
    let mut e = estimates();
    for i in 0..2 {
        e.take(&mut turn(i, "little", [900, 1000, 50]));
    }
    let totals = e.totals();
    let [sf, ef] = &totals[..] else {
        panic!("{totals:?}");
    };
    assert!((sf.value.unwrap() - 1.5).abs() < 1e-12);
    assert_eq!((ef.counter, ef.value), ("ef", None));
    let why = ef.factor.as_ref().unwrap().why.as_deref().unwrap();
    assert_eq!(
        why,
        "the model has no efficiency factors of threads on little"
    );
}

/// Two phases of different length: each with its factors, as time and energy of the same work say.
#[test]
fn the_whole_run_is_a_ratio_of_times_and_energies() {
    for (on, value, efficiency) in [
        // on big, times there add up by what they would be on little: (30·1.5 + 10·3.5)/40
        (
            "big",
            (0.03 * 1.5 + 0.01 * 3.5) / 0.04,
            // energy on little of what takes 1 J on big: 0.5/1.5 and 1.5/3.5
            Some((0.03 * 0.5 / 1.5 + 0.01 * 1.5 / 3.5) / 0.04),
        ),
        // on little, by what they would be on big: 40 / (30/1 + 10/6)
        ("little", 0.04 / (0.03 / 1.0 + 0.01 / 6.0), None),
    ] {
        let mut e = estimates();
        let mut first = turn(0, on, [900, 1000, 0]);
        first.counts.iter_mut().for_each(|c| c.seconds = 0.02);
        e.take(&mut first);
        e.take(&mut turn(1, on, [900, 1000, 0]));
        let mut third = turn(2, on, [900, 1000, 500]);
        third.counts.iter_mut().for_each(|c| c.seconds = 0.005);
        e.take(&mut third);
        let mut fourth = turn(3, on, [900, 1000, 0]);
        fourth.counts.iter_mut().for_each(|c| c.seconds = 0.005);
        assert!(!e.take(&mut fourth).is_empty());
        let ef = e.totals().remove(1).value;
        match (ef, efficiency) {
            (Some(ef), Some(by)) => assert!((ef - value * by).abs() < 1e-9, "{ef}"),
            (ef, by) => assert_eq!(ef, by),
        }
        let sf = e.totals().remove(0);
        assert!((sf.value.unwrap() - value).abs() < 1e-9, "{on}: {sf:?}");
        let f = sf.factor.unwrap();
        assert_eq!(f.estimates, 2);
        assert!((f.coverage.unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(e.known()[0].core_type.as_deref(), Some(on));
    }
}

#[test]
fn threads_and_core_types_are_told_apart() {
    let mut e = estimates();
    let slow = [900, 1000, 100];
    let fast = [900, 1000, 0];
    let mut got = Vec::new();
    for i in 0..4 {
        let of = [
            (Some(7), "big", 0.004, fast),
            (Some(8), "big", 0.004, slow),
            (Some(7), "little", 0.004, fast),
            (Some(9), "little", 0.0, [0, 0, 0]),
        ];
        let mut w = window(0.01 * f64::from(i + 1), 2 + i as usize % 2, &of);
        got.extend(e.take(&mut w));
    }
    let sf = |v: &&VirtualCount| v.counter == "sf";
    assert_eq!(got.iter().filter(sf).count(), 6);
    let totals = e.totals();
    let named: Vec<(String, f64)> = totals
        .iter()
        .filter(sf)
        .map(|v| {
            let f = v.factor.as_ref().unwrap();
            let on = f.on.as_deref().unwrap();
            (format!("{} {:?} {on}", v.of, f.row.tid), v.value.unwrap())
        })
        .collect();
    let is = |i: usize, name: &str, value: f64| {
        assert_eq!(named[i].0, name);
        assert!((named[i].1 - value).abs() < 1e-9, "{named:?}");
    };
    assert_eq!(named.len(), 3, "{named:?}");
    is(0, "thread-7 Some(7) big", 1.5);
    is(1, "thread-8 Some(8) big", 2.0);
    is(2, "thread-7 Some(7) little", 1.0);
    let tids: Vec<Option<i32>> = e.known().iter().map(|k| k.tid).collect();
    assert_eq!(tids, [Some(7), Some(7), Some(8), Some(8), Some(7)]);
}

#[test]
fn metrics_beyond_the_models_data_are_counted() {
    let mut e = estimates();
    for i in 0..2 {
        // 0.6 where the model has seen 0 to 0.5
        e.take(&mut turn(i, "big", [900, 1000, 600]));
    }
    let sf = e.totals().remove(0);
    assert!(sf.u.unwrap() > 0.1);
    assert_eq!(sf.factor.unwrap().extrapolated, 1);
}

#[test]
fn one_core_type_has_no_factors() {
    let wanted = vec![Factor::Speedup];
    let e = Factors::open(&inventory(&["only"]), wanted, None).err();
    let e = e.unwrap();
    assert!(!e.is::<amp_host::BadInput>());
    assert!(e.to_string().contains("one core type (`only`)"), "{e}");
}

#[test]
fn a_file_that_is_not_right_is_bad_input() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.toml");
    let open = |path: &Path, factor| {
        let opened = Factors::open(&inventory(&ON), vec![factor], Some(path));
        let e = opened.err().unwrap();
        assert!(e.is::<amp_host::BadInput>(), "{e}");
        e.to_string()
    };
    let e = open(&path, Factor::Speedup);
    assert!(e.contains("--model") && e.contains("m.toml"), "{e}");
    std::fs::write(&path, "kind = \"declared\"\n").unwrap();
    assert!(open(&path, Factor::Speedup).contains("`kind`"));
    let (without, _) = MODEL
        .split_once("[[core_type.factor]]\npredicts = \"efficiency\"")
        .unwrap();
    let (_, little) = MODEL
        .split_once("[[core_type]]\nname = \"little\"")
        .unwrap();
    let text = format!("{without}[[core_type]]\nname = \"little\"{little}");
    std::fs::write(&path, text).unwrap();
    let e = open(&path, Factor::Efficiency);
    assert!(
        e.contains("model `made-up` has no efficiency factors"),
        "{e}"
    );
}
