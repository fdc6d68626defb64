//! What a tick pays for being recorded: taking in the snapshot and making the line. Writing is
//! another thread's.

use amp_metrics::event::{Event, EventAttr, EventSet};
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, Estimate, EventSets, MetricId, Nanos, Provider, Quality,
    Reading, Snapshot, ThreadKey, ThreadSample, MAX_CORE_TYPES,
};
use amp_recording::format::{RecordedCoreType, VERSION};
use amp_recording::{Header, Recorder};
use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion};

/// Factors that differ a little at every tick.
struct Restless(u64);

impl Provider for Restless {
    fn name(&self) -> &str {
        "restless"
    }
    fn observe(&mut self, _: &Snapshot) {
        self.0 += 1;
    }
    fn estimate(&self, thread: ThreadKey, _: MetricId) -> Option<Estimate> {
        Some(Estimate {
            value: 1.0 + f64::from(thread.slot % 7) / 7.0 + (self.0 % 16) as f64 / 50.0,
            uncertainty: Some(0.1),
            age: Nanos::ZERO,
            quality: Quality::Exact,
        })
    }
}

fn tick(c: &mut Criterion) {
    let mut group = c.benchmark_group("tick");
    for threads in [10u32, 100, 1000] {
        group.bench_function(BenchmarkId::from_parameter(threads), |b| {
            let mut sets = EventSets::default();
            for t in 0..2 {
                let events = vec![Event {
                    name: "instructions".into(),
                    pmu: "cpu".into(),
                    attr: EventAttr::default(),
                }];
                sets.push(CoreTypeId(t), EventSet { events });
            }
            let mut recorder = Recorder::new(header(), 32 << 20, &sets, None);
            let mut provider = Restless(0);
            let mut snapshot = Snapshot::default();
            b.iter(|| {
                next(&mut snapshot, threads);
                provider.observe(&snapshot);
                let chunk = recorder.tick(&snapshot, &provider);
                if chunk.is_some() {
                    recorder.taken();
                }
                chunk
            });
        });
    }
    group.finish();
}

fn header() -> Header {
    let core_type = |name: &str, cpus: &str, capacity| RecordedCoreType {
        name: name.into(),
        cpus: cpus.parse().unwrap(),
        capacity,
    };
    Header {
        scx_amp_recording: VERSION,
        program: "0".into(),
        run: "r".into(),
        part: 0,
        interval_us: 100_000,
        core_types: vec![
            core_type("big", "0-1", 1024),
            core_type("little", "2-5", 446),
        ],
        policy: "rr".into(),
        knobs: Default::default(),
        provider: "none".into(),
        kernel: None,
        commands: false,
    }
}

fn next(snapshot: &mut Snapshot, threads: u32) {
    snapshot.now += Nanos::from_millis(100);
    let total = snapshot.now.0;
    snapshot.threads.clear();
    snapshot.readings.clear();
    for slot in 0..threads {
        let key = ThreadKey {
            slot,
            generation: 1,
        };
        let mut runtime = [Nanos::ZERO; MAX_CORE_TYPES];
        runtime[slot as usize % 2] = Nanos(total);
        let core_type = CoreTypeId((slot % 2) as u8);
        snapshot.threads.push(ThreadSample {
            key,
            tid: slot as i32 + 1,
            app: AppId(u64::from(slot / 4)),
            comm: *b"worker\0\0\0\0\0\0\0\0\0\0",
            arguments: 0,
            weight: 100,
            allowed: CoreTypeSet::ALL,
            runnable: true,
            core_type,
            placed: Some(core_type),
            runtime,
        });
        let ran = Nanos::from_millis(100);
        let reading = Reading::new(key, core_type, 0, 1, &[123_456_789]);
        snapshot.readings.push(reading.over(ran, ran));
    }
}

criterion_group!(benches, tick);
criterion_main!(benches);
