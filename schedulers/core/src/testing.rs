//! A minimal simulated machine for tests: steady threads that never sleep unless told to, quanta of
//! equal length, per-type queues ordered by weighted run time, idle CPUs that take from other
//! types' queues.

use crate::machine::{CoreType, Machine, MachineError, Placement, Topology};
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, Declarations, Declared, EndedThread, Estimate, MetricId, Nanos,
    Provider, Quality, Snapshot, ThreadKey, ThreadSample, MAX_CORE_TYPES,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;

/// A topology with these many CPUs per type, fastest first.
pub fn topology(cpus: &[u32]) -> Topology {
    let mut next = 0;
    let types = cpus.iter().enumerate().map(|(i, n)| {
        let cpus = (next..next + n).collect();
        next += n;
        CoreType {
            name: format!("type{i}"),
            cpus,
            capacity: 1024 >> i,
        }
    });
    Topology::new(types.collect()).unwrap()
}

/// A made-up machine.
pub struct Fake {
    topology: Topology,
    /// The snapshot that the machine shows next.
    pub snapshot: Snapshot,
    /// Threads that have ended since the last look.
    pub ended: Vec<EndedThread>,
    /// Time that passes before each look.
    pub interval: Nanos,
    /// CPUs that had nothing to run in the last quantum although a thread waited that may run
    /// there.
    pub idle: usize,
    vruntime: HashMap<ThreadKey, f64>,
    next: u32,
}

impl Fake {
    /// A machine with these many CPUs per type, fastest first, and no thread.
    pub fn new(cpus: &[u32]) -> Fake {
        Fake {
            topology: topology(cpus),
            snapshot: Snapshot::default(),
            ended: Vec::new(),
            interval: Nanos::from_millis(100),
            idle: 0,
            vruntime: HashMap::new(),
            next: 0,
        }
    }

    /// Makes cores of the CPUs for which `core_of` says the same.
    pub fn set_cores(&mut self, core_of: impl Fn(u32) -> u32) {
        self.topology = self.topology.clone().with_cores(core_of);
    }

    /// Starts a thread of that application.
    pub fn spawn(&mut self, app: u64) -> ThreadKey {
        let key = ThreadKey {
            slot: self.next,
            generation: 1,
        };
        self.next += 1;
        self.snapshot.threads.push(ThreadSample {
            key,
            tid: key.slot as i32 + 100,
            app: AppId(app),
            comm: u128::from(key.slot).to_le_bytes(),
            arguments: 0,
            weight: 100,
            allowed: CoreTypeSet::ALL,
            runnable: true,
            core_type: CoreTypeId(0),
            placed: None,
            runtime: [Nanos::ZERO; MAX_CORE_TYPES],
        });
        key
    }

    /// The thread of that key, which must exist.
    pub fn thread(&mut self, key: ThreadKey) -> &mut ThreadSample {
        self.snapshot
            .threads
            .iter_mut()
            .find(|t| t.key == key)
            .unwrap()
    }

    /// Ends a thread.
    pub fn exit(&mut self, key: ThreadKey) {
        let t = *self.thread(key);
        self.snapshot.threads.retain(|t| t.key != key);
        self.ended.push(EndedThread {
            key,
            tid: t.tid,
            app: t.app,
            comm: t.comm,
            arguments: 0,
            runtime: t.runtime,
        });
    }

    /// Lets one interval pass.
    pub fn run(&mut self) {
        const QUANTA: u64 = 20;
        let quantum = Nanos(self.interval.0 / QUANTA);
        for _ in 0..QUANTA {
            let mut waiting: Vec<usize> = (0..self.snapshot.threads.len())
                .filter(|&i| self.snapshot.threads[i].runnable)
                .collect();
            let v = &self.vruntime;
            let t = &self.snapshot.threads;
            waiting.sort_by(|a, b| {
                let at = |i: &usize| v.get(&t[*i].key).copied().unwrap_or(0.0);
                at(a).total_cmp(&at(b)).then(t[*a].key.cmp(&t[*b].key))
            });
            let types = self.topology.core_types().len() as u8;
            let mut free: Vec<usize> = (0..types)
                .map(|t| self.topology.nr_cpus(CoreTypeId(t)))
                .collect();
            // own queue first, then whatever waits
            for own in [true, false] {
                for ty in 0..types {
                    let t = CoreTypeId(ty);
                    waiting.retain(|&i| {
                        let th = &mut self.snapshot.threads[i];
                        let mine = if own { th.placed == Some(t) } else { true };
                        if free[t.index()] == 0 || !mine || !th.allowed.contains(t) {
                            return true;
                        }
                        free[t.index()] -= 1;
                        th.runtime[t.index()] += quantum;
                        th.core_type = t;
                        *self.vruntime.entry(th.key).or_default() += 100.0 / f64::from(th.weight);
                        false
                    });
                }
            }
            self.idle = (0..types)
                .filter(|t| {
                    let t = CoreTypeId(*t);
                    free[t.index()] > 0
                        && waiting
                            .iter()
                            .any(|&i| self.snapshot.threads[i].allowed.contains(t))
                })
                .count();
        }
        self.snapshot.now += self.interval;
    }

    /// Share of the elapsed time that a thread spent on `t`.
    pub fn share(&mut self, key: ThreadKey, t: u8, since: Nanos, before: Nanos) -> f64 {
        let elapsed = (self.snapshot.now - since).as_secs_f64();
        (self.thread(key).runtime[usize::from(t)] - before).as_secs_f64() / elapsed
    }
}

impl Machine for Fake {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<&Snapshot, MachineError> {
        self.run();
        self.snapshot.ended = std::mem::take(&mut self.ended);
        Ok(&self.snapshot)
    }

    fn apply(&mut self, placement: &Placement) -> Result<(), MachineError> {
        for (key, to) in placement.iter() {
            if let Some(t) = self.snapshot.threads.iter_mut().find(|t| t.key == key) {
                t.placed = to;
            }
        }
        Ok(())
    }

    fn now(&self) -> Nanos {
        self.snapshot.now
    }
}

/// A provider that declares one speedup factor (fastest over slowest) per application, with
/// relative noise.
pub struct Noisy {
    /// The factors without noise.
    pub inner: Declared,
    /// Largest relative noise.
    pub amplitude: f64,
    rng: SmallRng,
    noise: HashMap<ThreadKey, f64>,
}

impl Noisy {
    /// These factors by application, with noise up to `amplitude`.
    pub fn new(sf: &[(u64, f64)], amplitude: f64, seed: u64) -> Noisy {
        let sf: Vec<(u64, Vec<f64>)> = sf.iter().map(|(app, sf)| (*app, vec![*sf])).collect();
        Noisy::per_type(&sf, amplitude, seed)
    }

    /// As [`Noisy::new`], with a factor per core type.
    pub fn per_type(sf: &[(u64, Vec<f64>)], amplitude: f64, seed: u64) -> Noisy {
        let d = Declarations::default();
        for (app, sf) in sf {
            d.declare(AppId(*app), amp_metrics::Speedups::per_type(sf).unwrap());
        }
        let rng = SmallRng::seed_from_u64(seed);
        Noisy {
            inner: Declared::new(d),
            amplitude,
            rng,
            noise: HashMap::new(),
        }
    }
}

impl Provider for Noisy {
    fn name(&self) -> &str {
        "noisy"
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.inner.observe(snapshot);
        for t in &snapshot.threads {
            let n = self.rng.random_range(-1.0..=1.0) * self.amplitude;
            self.noise.insert(t.key, 1.0 + n);
        }
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let e = self.inner.estimate(thread, metric)?;
        let value = e.value * self.noise.get(&thread).copied().unwrap_or(1.0);
        Some(Estimate {
            value,
            quality: Quality::Exact,
            ..e
        })
    }
}
