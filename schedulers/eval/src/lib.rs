//! The evaluation of scheduling policies, apart from the engine that runs them.
//!
//! ```text
//! Workload (file) ─► bench ──asks──► Lab (this machine, the board's guest, the simulator)
//!                      │ RunRecord, SoloTimes
//!                      └─► evaluation ─► BenchReport ─► report (text, HTML)
//! ```
//!
//! [`workload`] reads the mix, [`contender`] what is to be compared, [`bench()`] runs the protocol over a [`Lab`], [`evaluation`] turns
//! completion times into aggregate speedup, unfairness and EDP, and [`report`] shows them.
#![forbid(unsafe_code)]

pub mod bench;
pub mod campaign;
pub mod changes;
pub mod contender;
pub mod evaluation;
pub mod lab;
pub mod report;
pub mod solos;
pub mod workload;

pub use bench::{bench, BenchError, Plan, Runs, Step, Watch, What};
pub use contender::{Contender, Contenders};
pub use lab::Lab;
