//! The evaluation of scheduling policies, apart from the engine that runs them.
//!
//! ```text
//! Workload (file) ──► runs of the mix ──► evaluation ──► BenchReport ──► report (text, HTML)
//! ```
//!
//! [`workload`] reads the mix, [`evaluation`] turns completion times into aggregate speedup, unfairness and EDP, and
//! [`report`] shows them.
#![forbid(unsafe_code)]

pub mod evaluation;
pub mod report;
pub mod workload;
