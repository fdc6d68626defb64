//! The engine, the policies and the evaluation of scx_amp.
//!
//! ```text
//! Machine ──Snapshot──► Engine ──View──► Policy ──Placement──► Engine ──► Machine
//!                          ▲
//!                      Provider (metrics)
//! ```
//!
//! A [`Machine`] is a live kernel or a simulated one; everything here runs unchanged on both.
#![forbid(unsafe_code)]

mod machine;

pub use machine::{CoreType, Machine, MachineError, Placement, Topology, TopologyError};
