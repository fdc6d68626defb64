//! What is trained and written, the provider loads, and predicts the very same.

use amp_metrics::providers::{Model, PlatformModel};
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, Estimate, MetricId, Nanos, Provider, Reading, Snapshot,
    ThreadKey, ThreadSample, MAX_CORE_TYPES,
};
use amp_models::data::{CoreType, Dataset, Header, Row, FORMAT, VERSION};
use amp_models::matching::matched;
use amp_models::platform::{write, EvaluationError, Platform};
use amp_models::sample::{Quantity, Target};
use amp_models::stumps::{generator, Settings};
use amp_models::training::{train, Formula, Method, Options, Trained, TrainingError};
use proptest::prelude::*;
use rand::RngExt;
use std::path::Path;

const SETS: [&[&str]; 2] = [
    &["l2d_cache_refill", "br_mis_pred"],
    &["dtlb_walk", "stall_backend"],
];

fn header() -> Header {
    let core_type = |name: &str, pmu: &str| CoreType {
        name: name.to_owned(),
        pmu: Some(pmu.to_owned()),
        instructions: Some("inst_retired".to_owned()),
        cycles: Some("cpu_cycles".to_owned()),
        events_per_set: 2,
        sets: SETS
            .iter()
            .map(|s| s.iter().map(|e| (*e).to_owned()).collect())
            .collect(),
    };
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        platform: "synthetic".to_owned(),
        machine: Some("acme,two".to_owned()),
        kernel: Some("6.18.0 \"test\"".to_owned()),
        date: Some("2026-11-20".to_owned()),
        core_types: vec![core_type("big", "pmu_a"), core_type("little", "pmu_b")],
    }
}

/// Programs with a few phases each. Cache and branch misses decide on speed and energy. With
/// `noise`, windows and runs differ a little, and the events of the second set mean nothing;
/// without, windows are equally long, runs are equal, and all events matter.
fn dataset(programs: usize, noise: bool) -> Dataset {
    let mut data = Dataset::new(header()).unwrap();
    let mut rng = generator(7, 0);
    for p in 0..programs {
        for w in 0..24u64 {
            let phase = (w / 8) as f64 + p as f64 * 3.0;
            let misses = 30.0 * (phase * 0.37).sin().abs();
            let branches = 10.0 * (phase * 0.73).cos().abs();
            let [walks, stalls] = [
                rng.random_range(0..10_000_000u64),
                rng.random_range(0..50_000_000u64),
            ];
            for (t, name) in ["big", "little"].into_iter().enumerate() {
                let (base, per_miss, per_branch, mhz, watts) = [
                    (500.0, 40.0, 20.0, 1.1, 1.0),
                    (1500.0, 30.0, 10.0, 0.8, 0.2),
                ][t];
                for run in 0..2usize {
                    let mut n = 100_000_000u64;
                    let mut factor = 1.0;
                    if noise {
                        n += rng.random_range(0..1000);
                        factor = rng.random_range(0.98..1.02);
                    }
                    let per_kilo = n as f64 / 1000.0;
                    let cycles =
                        per_kilo * (base + per_miss * misses + per_branch * branches) * factor;
                    let extra = if noise {
                        0
                    } else {
                        (20 - 10 * t as u64) * walks + stalls
                    };
                    let cycles = cycles as u64 + extra;
                    let ns = (cycles as f64 / mhz) as u64;
                    let counts = match run {
                        0 => [(per_kilo * misses) as u64, (per_kilo * branches) as u64],
                        _ => [walks, stalls],
                    };
                    let row = Row(
                        format!("prog{p}"),
                        name.to_owned(),
                        run as u32,
                        run,
                        w,
                        n,
                        cycles,
                        ns,
                        Some(watts * ns as f64 * 1e-9),
                        counts.to_vec(),
                    );
                    data.add(row).unwrap();
                }
            }
        }
    }
    data
}

fn options(method: Method) -> Options {
    let mut o = Options::seeded(11);
    o.learner.method = method;
    o.learner.boosting = Settings {
        rounds: 200,
        splits: 2,
        ..Settings::default()
    };
    o
}

/// Shows the provider one reading of each set and asks it.
fn ask(provider: &mut Model, on: CoreTypeId, readings: &[Vec<u64>], metric: MetricId) -> Estimate {
    let key = ThreadKey {
        slot: 1,
        generation: 1,
    };
    let second = Nanos(1_000_000_000);
    let all = (0u32..).zip(readings);
    let snapshot = Snapshot {
        now: second,
        threads: vec![ThreadSample {
            key,
            tid: 1,
            app: AppId(1),
            comm: [0; 16],
            arguments: 0,
            weight: 100,
            allowed: CoreTypeSet::ALL,
            runnable: true,
            core_type: on,
            placed: None,
            runtime: [Nanos::ZERO; MAX_CORE_TYPES],
        }],
        readings: all
            .map(|(set, d)| Reading::new(key, on, set, 1, d).over(second, second))
            .collect(),
        ..Snapshot::default()
    };
    provider.observe(&snapshot);
    provider.estimate(key, metric).unwrap()
}

#[test]
fn the_provider_predicts_the_very_same() {
    let data = dataset(13, false);
    let all = matched(&data);
    let events: Vec<&str> = SETS.concat();
    for method in [Method::Stumps, Method::Linear, Method::Both] {
        let o = options(method);
        let outliers = ["prog12".to_owned()];
        let trained = train(&data, &outliers, &o, &mut |_| {}).unwrap();
        assert_eq!(
            (trained.programs.len(), &trained.outliers[..]),
            (12, &outliers[..])
        );
        let text = write(&data, &trained, &o).unwrap();
        let path = Path::new("synthetic.toml");
        let platform = Platform::parse(path, &text).unwrap();
        let model = PlatformModel::parse(path, &text).unwrap();
        let mut unsure = 0;
        let evaluated = platform.evaluate(&data, &all).unwrap();
        assert_eq!(evaluated.len(), 4);
        for e in &evaluated {
            let of = CoreTypeId(e.target.of as u8);
            let metric = match e.target.quantity {
                Quantity::Speedup => MetricId::SpeedupFactor(of),
                Quantity::Efficiency => MetricId::EfficiencyFactor(of),
            };
            // in the order of the provider's readings: by name
            let sets: Vec<Vec<&str>> = platform.core_types().nth(e.on).unwrap().2;
            let windows: Vec<_> = all.programs.iter().flat_map(|p| &p.windows).collect();
            assert_eq!((windows.len(), e.predicted.len()), (13 * 24, 13 * 24));
            let range = trained.core_types[e.on]
                .factors
                .iter()
                .find(|f| f.target == e.target);
            let (low, high) = range.unwrap().range;
            let stated = e.predicted.iter().zip(&e.uncertainty);
            for (w, (p, u)) in windows.iter().zip(stated) {
                let here = &w.on[e.on];
                let count = |name: &&str| {
                    here.counts[events.iter().position(|x| x == name).unwrap()] as u64
                };
                let reading = |set: &Vec<&str>| -> Vec<u64> {
                    [w.instructions as u64, here.cycles as u64]
                        .into_iter()
                        .chain(set.iter().map(count))
                        .collect()
                };
                let readings: Vec<Vec<u64>> = sets.iter().map(reading).collect();
                let mut provider = Model::new(model.clone());
                let got = ask(&mut provider, CoreTypeId(e.on as u8), &readings, metric);
                assert_eq!(
                    got.value.to_bits(),
                    p.predicted.to_bits(),
                    "{method:?} {:?}",
                    e.target
                );
                // outside of what was trained on it is less sure, and the same within
                unsure += u32::from(*u > 1.1 * e.stated);
                let (got, within) = (
                    got.uncertainty.unwrap(),
                    p.predicted > low && p.predicted < high,
                );
                assert!(got >= *u, "{got} {u}");
                assert!(
                    got == *u || !within || all.programs[p.program].name == outliers[0],
                    "{got} {u}"
                );
            }
        }
        assert!(unsure > 0, "no variance is tried");
        let formulas = trained
            .core_types
            .iter()
            .flat_map(|t| &t.factors)
            .map(|f| &f.formula);
        assert!(formulas.clone().count() == 4 && trained.core_types[1].metrics.len() > 2);
        assert!(
            trained.core_types.iter().any(|t| t.sets.len() == 2),
            "multiplexing is not tried"
        );
    }
}

#[test]
fn what_is_learnt_is_what_was_put_in() {
    let data = dataset(12, true);
    let mut o = options(Method::Both);
    // the error is that of the noise, whatever is left out; small as it is, it is not quite the
    // same
    o.tolerance = 0.2;
    let trained = train(&data, &[], &o, &mut |_| {}).unwrap();
    assert_eq!(
        (trained.programs.len(), trained.windows),
        (12, 12 * 24 - trained_tail(&data))
    );
    for t in &trained.core_types {
        // the second set is noise: one set is enough, and the file says what the other would bring
        assert!(t.sets.len() == 1 && t.ladder.len() == 2, "{:?}", t.ladder);
        assert!(t.ladder[1].chosen && t.sets[0].contains(&0), "{:?}", t.sets);
        assert_eq!(t.factors.len(), 2);
        for f in &t.factors {
            let r = f.accuracy.correlation.unwrap();
            assert!(r.value > 0.9, "{:?}: {r}", f.target);
            assert!(f.accuracy.rmse < 0.25 * (f.range.1 - f.range.0));
        }
    }
    let text = write(&data, &trained, &o).unwrap();
    let model = PlatformModel::parse(Path::new("m"), &text).unwrap();
    let worst = trained
        .core_types
        .iter()
        .map(|t| t.factors[0].accuracy.uncertainty())
        .fold(0.0, f64::max);
    assert_eq!(model.error(), worst);
    let summary: toml::Table = toml::from_str::<toml::Table>(&text).unwrap()["summary"]
        .clone()
        .try_into()
        .unwrap();
    assert_eq!(summary["kernel"].as_str(), Some("6.18.0 \"test\""));
    assert_eq!(summary["programs"].as_array().unwrap().len(), 12);
    // 2 core types × (SF, EF) × (both, linear)
    assert_eq!(summary["accuracy"].as_array().unwrap().len(), 8);
    // a second time: byte by byte
    assert_eq!(
        write(&data, &train(&data, &[], &o, &mut |_| {}).unwrap(), &o).unwrap(),
        text
    );
}

/// Windows at the end of a program that its runs do not all cover.
fn trained_tail(data: &Dataset) -> usize {
    let all = matched(data);
    all.programs.iter().map(|p| 24 - p.windows.len()).sum()
}

#[test]
fn models_and_data_that_do_not_go_together() {
    let data = dataset(4, true);
    let all = matched(&data);
    let shipped = include_str!("hand-made.toml");
    let juno = Platform::parse(Path::new("hand-made.toml"), shipped).unwrap();
    // the hand-made model needs branch misses only, and the data have them
    let e = juno.evaluate(&data, &all).unwrap();
    assert_eq!(e.len(), 2);
    assert!(e.iter().all(|e| e.accuracy.as_ref().unwrap().programs == 4));
    assert_eq!(
        e[0].target,
        Target {
            quantity: Quantity::Speedup,
            of: 0
        }
    );
    let other =
        Platform::parse(Path::new("x"), &shipped.replace("br_mis_pred", "br_pred")).unwrap();
    let e = other.evaluate(&data, &all).unwrap_err();
    assert_eq!(
        e,
        EvaluationError::NoEvent {
            event: "br_pred".into(),
            core_type: "big".into()
        }
    );
    let other =
        Platform::parse(Path::new("x"), &shipped.replace("\"little\"", "\"small\"")).unwrap();
    assert!(matches!(
        other.evaluate(&data, &all),
        Err(EvaluationError::CoreTypes { .. })
    ));
    let e = Platform::parse(Path::new("x.toml"), "kind = 3")
        .unwrap_err()
        .to_string();
    assert!(e.starts_with("x.toml: "), "{e}");
}

#[test]
fn too_few_programs() {
    let e = train(
        &dataset(2, true),
        &[],
        &options(Method::Stumps),
        &mut |_| {},
    )
    .unwrap_err();
    assert!(
        matches!(e, TrainingError::TooFewPrograms { have: 2, .. }),
        "{e}"
    );
}

/// Programs that look like others of many cache misses, and are half as fast on little cores.
#[test]
fn outliers_make_the_factors_of_their_like_unsure_and_change_none() {
    let mut data = dataset(12, true);
    let o = options(Method::Both);
    let before = train(&data, &[], &o, &mut |_| {}).unwrap();
    let (rows, mut odd): (Vec<Row>, Vec<Row>) = (data.rows().collect(), Vec::new());
    let mut outliers = Vec::new();
    // phases of many misses
    for (p, from) in [(1, 8), (4, 8), (7, 0)] {
        let name = format!("odd{p}");
        outliers.push(name.clone());
        let of = format!("prog{p}");
        let phase = rows
            .iter()
            .filter(|r| r.0 == of && (from..from + 8).contains(&r.4));
        for (row, again) in phase.flat_map(|r| [0, 8, 16].map(|again| (r, again))) {
            let mut row = row.clone();
            (row.0, row.4) = (name.clone(), row.4 - from + again);
            // twice the time on a little core, for the same counts by cycle
            if row.1 == "little" {
                row.7 *= 2;
            }
            odd.push(row);
        }
    }
    odd.sort_by_key(|r| r.4);
    odd.into_iter().for_each(|row| data.add(row).unwrap());
    let after = train(&data, &outliers, &o, &mut |_| {}).unwrap();
    assert_eq!(after.outliers, outliers);
    let formulas = |t: &Trained| -> Vec<(Formula, f64)> {
        let factors = t.core_types.iter().flat_map(|t| &t.factors);
        factors
            .map(|f| (f.formula.clone(), f.accuracy.uncertainty()))
            .collect()
    };
    assert_eq!(
        (before.windows, formulas(&before)),
        (after.windows, formulas(&after))
    );
    let text = write(&data, &after, &o).unwrap();
    let platform = Platform::parse(Path::new("m"), &text).unwrap();
    let all = matched(&data);
    for e in platform.evaluate(&data, &all).unwrap() {
        let mean = |of: std::ops::Range<f64>| {
            let misses = |p: usize, i: usize| {
                let w = &all.programs[p].windows[i];
                1e3 * w.on[e.on].counts[0] / w.instructions
            };
            let each = e.predicted.iter().zip(&e.windows).zip(&e.uncertainty);
            let own = each.filter(|((p, i), _)| of.contains(&misses(p.program, **i)));
            let relative: Vec<f64> = own.map(|((p, _), u)| u / p.predicted).collect();
            relative.iter().sum::<f64>() / relative.len() as f64
        };
        let (many, few) = (mean(28.0..31.0), mean(0.0..20.0));
        assert!(
            many > 0.2 && few < 0.5 * many,
            "{:?}: {many} {few}",
            e.target
        );
    }
}

proptest! {
    /// A platform file with some bytes changed: read or refused with its name, and predictions come
    /// without a panic.
    #[test]
    fn damaged_platform_files(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
        let mut bytes = amp_metrics::providers::SHIPPED_MODELS[0].1.as_bytes().to_vec();
        for (at, b) in changes {
            let n = bytes.len();
            bytes[at % n] = b;
        }
        let text = String::from_utf8_lossy(&bytes);
        match Platform::parse(Path::new("x.toml"), &text) {
            Ok(p) => {
                let data = dataset(1, true);
                if let Ok(all) = p.evaluate(&data, &matched(&data)) {
                    prop_assert!(all.iter().all(|e| e.stated.is_finite()));
                }
            }
            Err(e) => prop_assert!(e.to_string().starts_with("x.toml: "), "{}", e),
        }
    }
}
