//! A simulated asymmetric machine.
//!
//! [`SimMachine`] is an [`amp_sched::Machine`] with virtual time: the same engine, policies and
//! evaluation schedule it that schedule a real kernel. [`bench()`] runs a workload on it under
//! several policies and reports as the live bench does; [`compare`] does so for a folder of mixes,
//! beside published figures.
//!
//! ```text
//! MachineFile ─┐
//! Workload ────┴─► SimMachine ──Snapshot──► Engine ◄── provider (exact | ipc-sampling) ◄── truth
//!                      ▲                       │
//!                      └───── Placement ───────┘
//! ```
//!
//! What is simulated: core types, applications with phases, barriers and serial phases, restarts,
//! sleeps, arrivals and departures, affinities, run queues and time slices, migration cost, energy,
//! and contention for a shared cache among phases that state what they want of it. What is not:
//! contention for memory, caches that take time to fill, simultaneous multithreading, frequency
//! changes, the cost of the scheduler itself.
#![forbid(unsafe_code)]

pub mod alone;
pub mod bench;
pub mod compare;
pub mod draws;
mod error;
mod event;
mod machine;
pub mod provider;
mod rates;
mod scenario;
mod truth;

pub use bench::{bench, SimLab};
pub use error::SimError;
pub use machine::{topology_of, AppStats, Discipline, MachineOptions, MachineStats, SimMachine};
pub use provider::ProviderSpec;
pub use scenario::{apps_of, SimApp};
pub use truth::{efficiency_factor, ThreadTruth, TruthHandle};
