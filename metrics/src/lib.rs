//! Metrics for asymmetric scheduling.
//!
//! ```text
//! Snapshot ──► Provider ──► MetricId → Option<Estimate>
//! (what ran where,           (speedup factor, efficiency factor, …
//!  counter deltas)            with age and quality)
//! ```
//!
//! This crate holds the vocabulary of *what was observed* ([`Snapshot`], [`ThreadSample`],
//! [`Reading`]) and of *what is concluded from it* ([`Provider`], [`Estimate`]), the hardware side
//! of it ([`pmu`], [`event`]), and the arithmetic of measurement ([`uncertainty`]). It knows
//! nothing of scheduling: no placement, no policy, no BPF map.
// one exception: what a child must be told between fork and exec (`providers/exec/child.rs`)
#![deny(unsafe_code)]

pub mod cache_allocation;
mod contention;
pub mod distributions;
mod estimate;
pub mod event;
pub mod group;
mod ids;
pub mod memory;
pub mod multiplex;
pub mod perf;
pub mod pmu;
mod provider;
pub mod providers;
pub mod resctrl_fs;
mod sample;
mod thread_map;
mod topology;
pub mod trust;
pub mod uncertainty;
pub mod virtual_counters;
pub mod windows;

pub use contention::{Cost, ProgramId, Seat};
pub use estimate::{Estimate, Quality};
pub use event::{Event, EventAttr, EventError, EventSet, EventSets, EventSpec, MAX_EVENTS};
pub use ids::{AppId, CoreTypeId, CoreTypeSet, Nanos, ThreadKey, MAX_CORE_TYPES};
pub use pmu::{Pmu, Pmus};
pub use provider::{Caveats, Health, MetricId, Phase, Provider};
pub use providers::{Declarations, Declared, DeclaredFactors, Efficiencies, Speedups};
pub use sample::{
    EndedThread, ProgramName, Reading, Snapshot, Subject, ThreadSample, VirtualCounter,
    VirtualReading, RESTING_AFTER,
};
pub use thread_map::ThreadMap;
pub use topology::{CoreType, Topology, TopologyError};
