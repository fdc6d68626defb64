//! What a machine reports once per interval.

use crate::ids::{AppId, CoreTypeId, CoreTypeSet, Nanos, ThreadKey, MAX_CORE_TYPES};

/// One thread as seen at the end of an interval. All totals are since the thread was first seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadSample {
    /// Stable name of the thread.
    pub key: ThreadKey,
    /// Kernel thread id (simulator: a running number).
    pub tid: i32,
    /// The application it belongs to.
    pub app: AppId,
    /// Command name, NUL-padded, as the kernel shows it.
    pub comm: [u8; 16],
    /// Scheduling weight, 100 = default (nice 0).
    pub weight: u32,
    /// Core types on which its affinity allows at least one CPU.
    pub allowed: CoreTypeSet,
    /// Whether it was running or waiting for a CPU when the snapshot was taken.
    pub runnable: bool,
    /// Core type it ran on last.
    pub core_type: CoreTypeId,
    /// Core type it is placed on, if a policy has placed it.
    pub placed: Option<CoreTypeId>,
    /// CPU time per core type since it was first seen.
    pub runtime: [Nanos; MAX_CORE_TYPES],
}

/// The state of a machine at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was taken.
    pub now: Nanos,
    /// Every thread that may be placed, in no particular order.
    pub threads: Vec<ThreadSample>,
}
