//! Models that predict speedup factors (SF) and efficiency factors (EF) from counters on the
//! current core type.
//!
//! ```text
//! windows of programs ──data──► runs per core type ──matching──► matched windows: metrics, true SF and EF
//!                                    │ metrology: same conditions?            │
//!                                    ▼                                        ▼ training: stumps | linear, CV by program,
//!                              what to repeat                  platform file ◄── elimination of events
//! ```
//!
//! Pure: it counts nothing, asks no clock and touches no file but through [`std::io::BufRead`].
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod candidates;
pub mod data;
#[cfg(feature = "train")]
pub mod elimination;
pub mod journal;
#[cfg(feature = "train")]
pub mod linear;
pub mod matching;
pub mod metrology;
pub mod phases;
#[cfg(feature = "train")]
pub mod platform;
pub mod programs;
pub mod sample;
#[cfg(feature = "train")]
pub mod stumps;
#[cfg(feature = "train")]
pub mod training;
#[cfg(feature = "train")]
mod variance;
