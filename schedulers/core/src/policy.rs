//! Policies: which thread goes to which core type.
//!
//! One file per policy in [`registry`], holding its formula with its source. A policy is pure: no
//! clock, no I/O, no randomness but a generator made from the seed it was given. [`contract`] is
//! what a policy keeps to. Shared parts, from what is known of a thread to where it goes:
//!
//! - [`threads`], [`apps`]: what is remembered from decision to decision, per thread and per
//!   application; [`smooth`]: running means that start afresh at a change of phase; [`speedups`]:
//!   application-wide speedups per core type.
//! - Accounts of who has had what: [`progress`] (virtual time: who is ahead), [`hindsight`] (what was
//!   charged by factors that are known better now), [`ledger`] (time on fast cores), [`steering`]
//!   (towards given shares, which [`level`] and [`room`] work out), [`turns`] (fair sharing for
//!   threads without estimates, for every policy that needs them); [`sharing`] is what policies that
//!   give away shares have in common.
//! - [`seats`] turns "who deserves a fast core most" into a placement for any number of core types:
//!   affinity, load balance, hysteresis and work conservation are its business and no policy's.
//! - [`exchange`] finds the placement of the largest sum of speeds on three core types and more.
//! - [`contention`] puts threads apart that slow each other down, where that is known and pays.
//! - [`knobs`] are the parameters that a user may turn while the scheduler runs; [`settings`] is
//!   the road from a name and what the user set to a policy.
//!
//! The kernel's own scheduler, `eevdf`, is the baseline of every evaluation and not a policy: it
//! means that no scheduler is loaded.

pub mod apps;
pub mod contention;
pub mod contract;
pub mod exchange;
pub mod hindsight;
pub mod knobs;
pub mod ledger;
pub mod level;
pub mod progress;
pub mod registry;
pub mod room;
pub mod seats;
pub mod settings;
pub mod sharing;
pub mod smooth;
pub mod speedups;
pub mod steering;
pub mod threads;
pub mod turns;

pub use contract::Policy;
pub use knobs::{Knob, KnobError, KnobKind, Knobs};
pub use registry::{
    by_name, for_machine, help, PolicyError, TooManyCoreTypes, UnknownPolicy, BASELINE, NAMES,
};
pub use settings::{Settings, SettingsError};

#[cfg(test)]
mod properties;
