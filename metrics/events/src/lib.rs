//! Names that vendors give to the events of their PMUs.
//!
//! The kernel lists few events in sysfs. The full lists are perf's tables, JSON files in the
//! kernel's tree (`tools/perf/pmu-events/arch`). perf's generator (`jevents.py`) compiles them into
//! perf. This crate reads the same files by the same rules ([`json`]), and carries the result for
//! processors in use ([`Shipped`]), so that names need no kernel tree on the machine.
//!
//! ```text
//! JSON files ──json::read_model──► PmuEvent ──compact::write──► tables/*.gz ──Shipped──► PmuEvent
//! mapfile.csv ──MapRow::parse──► Cpu::find ──────────────────► tables/map.csv
//! ```
//!
//! Derived metrics of the same files go the same way ([`PmuMetric`], [`Metrics`]).
//!
//! The crate knows nothing of the machine that it runs on: which PMUs there are and which of the
//! events belong to which is the business of `amp-metrics`.
#![forbid(unsafe_code)]

pub mod compact;
mod counters;
mod cpu;
pub mod expression;
pub mod json;
mod metric;
mod shipped;

pub use counters::Counters;
pub use cpu::{Cpu, MapRow};
pub use metric::{Leaf, MetricError, MetricExpression, Metrics, PmuMetric};
pub use shipped::{file_name, Shipped, KERNEL};

use std::path::PathBuf;
use thiserror::Error;

/// The name that tables use for the core PMU of a processor with one kind of core, whatever the
/// kernel calls that PMU.
pub const DEFAULT_CORE: &str = "default_core";

/// An event as a table describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PmuEvent {
    /// PMU: [`DEFAULT_CORE`], `cpu_core`, `cpu_atom`, or a pattern of uncore PMUs such as
    /// `uncore_imc`, which also means `uncore_imc_0`.
    pub pmu: String,
    /// Name in lower case.
    pub name: String,
    /// Terms as perf writes them, `event=0x24,period=200003,umask=0x21`. `period` is the period to
    /// sample by, and no field of the PMU.
    pub terms: String,
    /// The vendor's description, one sentence.
    pub brief: Option<String>,
    /// Factor and unit of one count, `64Bytes`.
    pub scale: Option<String>,
    /// Counters that can count the event, as the table says it. perf does not keep them.
    pub counters: Option<String>,
    /// Whether it is counted once per package.
    pub per_package: bool,
    /// Whether the vendor has replaced it by another one.
    pub deprecated: bool,
}

impl PmuEvent {
    /// The terms that are fields of the PMU: without the period to sample by.
    pub fn code(&self) -> String {
        let terms = self.terms.split(',');
        let terms: Vec<&str> = terms.filter(|t| !t.starts_with("period=")).collect();
        terms.join(",")
    }
}

/// Why a table cannot be used.
#[derive(Debug, Error)]
pub enum TableError {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is not what it must be.
    #[error("{path}: {reason}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}
