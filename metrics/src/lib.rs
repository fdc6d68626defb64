//! Metrics for asymmetric scheduling.
//!
//! ```text
//! Snapshot ──► Provider ──► MetricId → Option<Estimate>
//! (what ran where,           (speedup factor, efficiency factor, …
//!  counter deltas)            with age and quality)
//! ```
//!
//! This crate holds the vocabulary of *what was observed* ([`Snapshot`], [`ThreadSample`]) and of *what is
//! concluded from it* ([`Provider`], [`Estimate`]), and the arithmetic of measurement ([`uncertainty`]). It knows
//! nothing of scheduling: no placement, no policy, no BPF map.
#![forbid(unsafe_code)]

mod estimate;
mod ids;
mod provider;
pub mod providers;
mod sample;
pub mod uncertainty;

pub use estimate::{Estimate, Quality};
pub use ids::{AppId, CoreTypeId, CoreTypeSet, Nanos, ThreadKey, MAX_CORE_TYPES};
pub use provider::{MetricId, Provider};
pub use providers::{Declarations, Declared, Speedups};
pub use sample::{Snapshot, ThreadSample};
