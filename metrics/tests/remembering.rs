//! What providers make of threads that they know too little of: expected to be like others of their name, or tried elsewhere.

use amp_metrics::providers::{files_of, prepare, Context};
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, Estimate, MetricId, Nanos, Pmus, Provider, Quality, Reading,
    Snapshot, ThreadKey, ThreadSample, MAX_CORE_TYPES,
};
use std::path::Path;

/// Cycles per instruction as the speedup factor.
const MODEL: &str = r#"
kind = "model"
[[core_type]]
name = "big"
[[core_type.event_set]]
[[core_type.metric]]
name = "cpi"
count = "cycles"
per = "instructions"
[[core_type.factor]]
predicts = "speedup"
base = 0.0
error = 0.1
linear = { cpi = 1.0 }

[[core_type]]
name = "little"
[[core_type.event_set]]
"#;

fn key(slot: u32) -> ThreadKey {
    ThreadKey {
        slot,
        generation: 1,
    }
}

/// Two threads of the same name ran on a big core; only the first was counted.
fn snapshot(ms: u64) -> Snapshot {
    let ran = Nanos::from_millis(100);
    let mut comm = [0; 16];
    comm[..3].copy_from_slice(b"cc1");
    let threads = [1, 2].map(|slot| ThreadSample {
        key: key(slot),
        tid: slot as i32,
        app: AppId(u64::from(slot)),
        comm,
        arguments: 0,
        weight: 100,
        allowed: CoreTypeSet::ALL,
        runnable: true,
        core_type: CoreTypeId(0),
        placed: None,
        runtime: [Nanos::from_millis(ms); MAX_CORE_TYPES],
    });
    Snapshot {
        now: Nanos::from_millis(ms),
        threads: threads.to_vec(),
        readings: vec![
            Reading::new(key(1), CoreTypeId(0), 0, 1, &[1_000_000, 2_500_000]).over(ran, ran),
        ],
        ..Snapshot::default()
    }
}

/// The provider of this name on a machine of two CPUs with these models.
fn provider(name: &str, models: &Path) -> Box<dyn Provider> {
    let pmus = Pmus::generic(&[vec![0], vec![1]], 4);
    let context = Context {
        pmus: &pmus,
        counters: Ok(()),
        energy_per_core_type: false,
        thread_director: Err("none in a test".to_owned()),
        models: Some(models.to_owned()),
        trust: None,
    };
    prepare(name, &context).unwrap().provider
}

/// What a provider of this name says of the two.
fn says(name: &str, models: &Path) -> [Option<Estimate>; 2] {
    let mut p = provider(name, models);
    p.observe(&snapshot(100));
    p.observe(&snapshot(200));
    [1, 2].map(|slot| p.estimate(key(slot), MetricId::SpeedupFactor(CoreTypeId(0))))
}

#[test]
fn a_model_by_name_remembers_and_by_its_file_does_not() {
    let models = tempfile::tempdir().unwrap();
    let model = models.path().join("mine.toml");
    std::fs::write(&model, MODEL).unwrap();
    for name in ["model", "auto"] {
        let [counted, other] = says(name, models.path());
        assert_eq!(counted.map(|e| e.value), Some(2.5), "{name}");
        let other = other.unwrap();
        assert_eq!(
            (other.value, other.quality),
            (2.5, Quality::Stale),
            "{name}"
        );
    }
    let [counted, other] = says(&model.display().to_string(), models.path());
    assert_eq!(counted.map(|e| e.value), Some(2.5));
    assert!(other.is_none(), "{other:?}");
}

/// Under a policy that keeps a thread where the model says, nothing else would show that the model is wrong about it.
#[test]
fn auto_has_a_model_tried_and_a_model_by_name_does_not() {
    let models = tempfile::tempdir().unwrap();
    std::fs::write(models.path().join("mine.toml"), MODEL).unwrap();
    for (name, wanted) in [("model", None), ("auto", Some(CoreTypeId(1)))] {
        let mut p = provider(name, models.path());
        for i in 1..20 {
            p.observe(&snapshot(100 * i));
            assert_eq!(p.wanted_on(key(1)), None, "{name} after {i}");
        }
        p.observe(&snapshot(2000));
        assert_eq!(p.wanted_on(key(1)), wanted, "{name}");
        assert_eq!(p.suspects(key(1)), wanted.is_some(), "{name}");
        assert_eq!(p.wanted_on(key(2)), None, "{name}: never counted");
    }
}

/// The same by a file, for which the machine says which model it is.
#[test]
fn a_file_puts_a_memory_in_front_of_the_machines_model() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("models")).unwrap();
    std::fs::write(dir.path().join("models/mine.toml"), MODEL).unwrap();
    let file = dir.path().join("memory.toml");
    for (inner, files) in [("model", 1), ("models/mine.toml", 2)] {
        let text = format!("kind = \"remembered\"\ninner = \"{inner}\"\n");
        std::fs::write(&file, text).unwrap();
        let [_, other] = says(&file.display().to_string(), &dir.path().join("models"));
        assert_eq!(other.map(|e| e.quality), Some(Quality::Stale), "{inner}");
        // and without a machine it is known which files that takes
        assert_eq!(files_of(&file).unwrap().len(), files, "{inner}");
    }
}
