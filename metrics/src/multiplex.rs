//! More events than counters: event sets by turns.
//!
//! ```text
//! what a set counted in a window ─► Strategy ─► which set next
//!                                └► Rounds   ─► one sample of every set, none from another phase
//! windows of a whole run         ──► reconstruct ─► totals, with what lies between the windows filled in
//! ```
//!
//! Everything here is pure: no clock, no counters. It works on readings of a running machine and on
//! recorded [`Trace`]s alike.

mod phase;
mod reconstruct;
mod rounds;
mod sampled;
mod strategy;
mod trace;
mod turns;

pub(crate) use phase::PHASE_STEP;
pub use phase::{PhaseDetector, PhaseRule, DEFAULT_PHASE_CONFIRM, DEFAULT_PHASE_RATIO};
pub use reconstruct::{linear, phase_aware, scaled, Plan};
pub use rounds::{Complete, Rounds, Step};
pub use sampled::Sampled;
pub use strategy::{by_name, Observation, Strategy, UnknownStrategy, STRATEGIES};
pub use trace::{Trace, TraceError, Window};
pub use turns::Turns;
