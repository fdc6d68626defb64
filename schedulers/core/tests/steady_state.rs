//! A tick in the steady state allocates nothing, with any policy, while threads swap and pause.

use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, Declarations, Declared, Nanos, Snapshot, Speedups, ThreadKey,
    ThreadSample, MAX_CORE_TYPES,
};
use amp_sched::{policy, CoreType, Engine, Machine, MachineError, Placement, Topology};

/// Threads run where they are placed; some pause now and then.
struct Steady {
    topology: Topology,
    snapshot: Snapshot,
    ticks: u64,
}

impl Machine for Steady {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<&Snapshot, MachineError> {
        self.ticks += 1;
        let interval = Nanos::from_millis(100);
        self.snapshot.now += interval;
        for (i, t) in self.snapshot.threads.iter_mut().enumerate() {
            t.runnable = i % 7 != 0 || (self.ticks / 5).is_multiple_of(2);
            if t.runnable {
                t.core_type = t.placed.unwrap_or(CoreTypeId(1));
                t.runtime[t.core_type.index()] += interval;
            }
        }
        Ok(&self.snapshot)
    }

    fn apply(&mut self, placement: &Placement) -> Result<(), MachineError> {
        for (key, to) in placement.iter() {
            self.snapshot.threads[key.slot as usize].placed = to;
        }
        Ok(())
    }

    fn now(&self) -> Nanos {
        self.snapshot.now
    }
}

fn machine(threads: u32) -> Steady {
    let core_type = |name: &str, cpus: std::ops::Range<u32>, capacity| CoreType {
        name: name.into(),
        cpus: cpus.collect(),
        capacity,
    };
    let types = vec![
        core_type("big", 0..8, 1024),
        core_type("little", 8..24, 400),
    ];
    let threads = (0..threads).map(|slot| ThreadSample {
        key: ThreadKey {
            slot,
            generation: 1,
        },
        tid: slot as i32,
        app: AppId(u64::from(slot / 3)),
        comm: [0; 16],
        arguments: 0,
        weight: 100 + slot % 5,
        // some are pinned, so that the seats have to be rearranged
        allowed: if slot % 11 == 0 {
            CoreTypeSet::EMPTY.with(CoreTypeId(0))
        } else {
            CoreTypeSet::ALL
        },
        runnable: true,
        core_type: CoreTypeId(1),
        placed: None,
        runtime: [Nanos::ZERO; MAX_CORE_TYPES],
    });
    Steady {
        topology: Topology::new(types).unwrap(),
        snapshot: Snapshot {
            now: Nanos::ZERO,
            threads: threads.collect(),
            ..Snapshot::default()
        },
        ticks: 0,
    }
}

#[test]
fn a_tick_allocates_nothing() {
    for name in policy::NAMES {
        for threads in [20, 300] {
            let mut m = machine(threads);
            let declarations = Declarations::default();
            // two applications in three are declared, the others fair-shared
            for app in (0..u64::from(threads)).filter(|a| a % 3 != 0) {
                let sf = Speedups::fastest(1.0 + app as f64 / 10.0).unwrap();
                declarations.declare(AppId(app), sf);
            }
            let mut e = Engine::new(
                m.topology.clone(),
                policy::by_name(name, 1).unwrap(),
                Box::new(Declared::new(declarations)),
            );
            for _ in 0..300 {
                e.tick(&mut m).unwrap();
            }
            let before = e.totals();
            let info = allocation_counter::measure(|| {
                for _ in 0..100 {
                    e.tick(&mut m).unwrap();
                }
            });
            assert_eq!(info.count_total, 0, "{name}, {threads} threads: {info:?}");
            // and it was not because nothing went on
            assert_eq!(e.totals().ticks, before.ticks + 100);
            assert!(
                e.totals().changes > before.changes,
                "{name}, {threads} threads"
            );
        }
    }
}
