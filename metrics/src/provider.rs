//! The contract of a source of metrics.

use crate::estimate::Estimate;
use crate::ids::{CoreTypeId, ThreadKey};
use crate::sample::Snapshot;

/// A quantity a policy may ask for. No policy ever names a hardware event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricId {
    /// Instructions per second on this core type over those on the slowest one, at the thread's present phase
    /// (SF; ≥ 0, 1 for the slowest type itself).
    SpeedupFactor(CoreTypeId),
    /// EDP on the slowest core type over that on this one (EF; ≥ 0) [PMCTrack eq. 3-7].
    EfficiencyFactor(CoreTypeId),
}

/// A source of metrics. Providers are swapped while the scheduler runs; nothing but this trait is known of them.
///
/// Event sets per core type and virtual counters join this trait with the counting layer: until then a provider
/// that needs counters cannot be written, so no method pretends otherwise.
pub trait Provider: Send {
    /// The name it is registered under, for messages and reports.
    fn name(&self) -> &str;

    /// Takes in one interval. Called once per interval, before any query for it.
    fn observe(&mut self, snapshot: &Snapshot);

    /// The present estimate of `metric` for `thread`; `None` when there is no honest one.
    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate>;
}
