//! Snapshots for the providers' tests.

use crate::ids::{AppId, CoreTypeId, CoreTypeSet, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::sample::{Reading, Snapshot, ThreadSample};

/// The thread in `slot`.
pub(crate) fn key(slot: u32) -> ThreadKey {
    ThreadKey {
        slot,
        generation: 1,
    }
}

/// A snapshot at `ms` with these threads, each its own application, and these readings.
pub(crate) fn snapshot(ms: u64, threads: &[u32], readings: Vec<Reading>) -> Snapshot {
    let thread = |slot: &u32| ThreadSample {
        key: key(*slot),
        tid: *slot as i32,
        app: AppId(u64::from(*slot)),
        comm: [0; 16],
        arguments: 0,
        weight: 100,
        allowed: CoreTypeSet::ALL,
        runnable: true,
        core_type: readings
            .iter()
            .rev()
            .find(|r| r.thread.slot == *slot)
            .map_or(CoreTypeId(0), |r| r.core_type),
        placed: None,
        runtime: [Nanos::ZERO; MAX_CORE_TYPES],
    };
    Snapshot {
        now: Nanos::from_millis(ms),
        threads: threads.iter().map(thread).collect(),
        readings,
        ..Snapshot::default()
    }
}

/// A fully covered reading of `ms` milliseconds.
pub(crate) fn readings(slot: u32, t: u8, set: u32, ms: u64, deltas: &[u64]) -> Reading {
    let ran = Nanos::from_millis(ms);
    Reading::new(key(slot), CoreTypeId(t), set, 1, deltas).over(ran, ran)
}
