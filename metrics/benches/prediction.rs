//! What the shipped model costs per interval, by the number of threads that ran in it: taking their
//! counts in and predicting every factor from each. `cargo bench -p amp-metrics`
#![allow(missing_docs)] // criterion's macro makes a function without any

use amp_metrics::providers::{Model, PlatformModel, SHIPPED_MODELS};
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, MetricId, Nanos, Provider, Reading, Snapshot, ThreadKey,
    ThreadSample, MAX_CORE_TYPES,
};
use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use std::hint::black_box;
use std::path::Path;

const INTERVAL_MS: u64 = 100;
/// More events than any set has: instructions, cycles and others.
const DELTAS: [u64; 7] = [
    30_000_000, 40_000_000, 900_000, 400_000, 2_000_000, 300_000, 100_000,
];

/// What a kernel with `threads` threads, half of them on each core type, says after interval number
/// `n`, in which set `n mod sets` of the core type was counted.
fn snapshot(threads: u32, n: u64, sets: [u32; 2]) -> Snapshot {
    let ran = Nanos::from_millis(INTERVAL_MS);
    let key = |slot| ThreadKey {
        slot,
        generation: 1,
    };
    let on = |slot: u32| CoreTypeId((slot % 2) as u8);
    let sample = |slot: u32| ThreadSample {
        key: key(slot),
        tid: slot as i32,
        app: AppId(slot.into()),
        comm: [0; 16],
        arguments: 0,
        weight: 100,
        allowed: CoreTypeSet::ALL,
        runnable: true,
        core_type: on(slot),
        placed: None,
        runtime: [Nanos::ZERO; MAX_CORE_TYPES],
    };
    let reading = |slot: u32| {
        let set = n as u32 % sets[on(slot).index()];
        Reading::new(key(slot), on(slot), set, 1, &DELTAS).over(ran, ran)
    };
    Snapshot {
        now: Nanos::from_millis(INTERVAL_MS * (n + 1)),
        threads: (0..threads).map(sample).collect(),
        readings: (0..threads).map(reading).collect(),
        ..Snapshot::default()
    }
}

fn prediction(c: &mut Criterion) {
    let mut group = c.benchmark_group("model, one interval");
    for (name, text) in SHIPPED_MODELS {
        let sets = text.split("[[core_type]]").skip(1);
        let sets: Vec<u32> = sets
            .map(|t| t.matches("[[core_type.event_set]]").count() as u32)
            .collect();
        let sets = [sets[0], sets[1]];
        for threads in [1u32, 10, 100, 1000, 10_000] {
            let mut model = Model::new(
                PlatformModel::parse(Path::new(name), text).expect("shipped models are right"),
            );
            // as many intervals as sets: each ends a round or is part of one
            let intervals = u64::from(sets[0] * sets[1]);
            let mut all: Vec<Snapshot> =
                (0..intervals).map(|n| snapshot(threads, n, sets)).collect();
            all.iter().for_each(|s| model.observe(s));
            let mut n = intervals;
            group.throughput(Throughput::Elements(threads.into()));
            group.bench_function(BenchmarkId::new(*name, threads), |b| {
                b.iter(|| {
                    let s = &mut all[(n % intervals) as usize];
                    n += 1;
                    s.now = Nanos::from_millis(INTERVAL_MS * n);
                    model.observe(s);
                    for t in &s.threads {
                        let sf = MetricId::SpeedupFactor(CoreTypeId(0));
                        black_box(model.estimate(t.key, sf));
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, prediction);
criterion_main!(benches);
