//! The engine and the policies of scx_amp.
//!
//! ```text
//! Machine ──Snapshot──► Engine ──View──► Policy ──Placement──► Engine ──► Machine
//!                          ▲
//!                      Provider (metrics)
//! ```
//!
//! A [`Machine`] is a live kernel or a simulated one; everything here runs unchanged on both.
#![forbid(unsafe_code)]

mod closest;
mod done;
pub mod engine;
mod machine;
pub mod policy;
// Always built: behind a feature, every crate above this one would be built twice for the tests.
#[doc(hidden)]
pub mod testing;
pub mod utility;
mod view;

pub use closest::{closest, did_you_mean};
pub use engine::{Changes, Done, Engine, Prefer, Rule, Rulebook, Tick};
pub use machine::{CoreType, Machine, MachineError, Placement, Topology, TopologyError};
pub use policy::Policy;
pub use view::{AppView, ThreadView, View};
