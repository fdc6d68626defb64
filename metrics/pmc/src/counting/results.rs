//! What is counted, and what has been.

use super::VirtualCount;
use crate::trust::Trusted;
use serde::Serialize;

/// What to count with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Threads, with those that they start.
    Tasks(Vec<i32>),
    /// All CPUs of the machine.
    Cpus(Vec<u32>),
}

/// Whether CPUs or threads have counts of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// None: counts are summed.
    Summed,
    /// Each CPU; goes with [`Scope::Cpus`].
    Cpus,
    /// Each thread, without those that it starts; goes with [`Scope::Tasks`].
    Threads,
}

/// The CPU or the thread that a count is of, where each has one of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// The thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<i32>,
    /// Its name, and its number behind a hyphen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

impl Row {
    /// Whether it is the same CPU and thread, whatever the thread is called now.
    pub fn same(&self, other: &Row) -> bool {
        (self.cpu, self.tid) == (other.cpu, other.tid)
    }

    /// `place` with the CPU or thread behind it.
    pub fn named(&self, place: &str) -> String {
        match (self.cpu, &self.thread) {
            (Some(cpu), _) => format!("{place} CPU {cpu}"),
            (None, Some(thread)) => format!("{place} {thread}"),
            (None, None) => place.to_owned(),
        }
    }
}

/// The count of an event on a PMU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Count {
    /// The event as it was written.
    pub event: String,
    /// Number of its set, from 1.
    pub set: usize,
    /// The PMU; `None` for an event of cores where no PMU counts what cores do.
    pub pmu: Option<String>,
    /// Name of the core type, for PMUs of cores.
    pub core_type: Option<String>,
    /// The CPU or thread, where each has a count of its own.
    #[serde(flatten)]
    pub row: Row,
    /// Whether anything counts it here; in JSON only where nothing does.
    #[serde(skip_serializing_if = "is_true")]
    pub supported: bool,
    /// The count; extrapolated when `coverage` is below 1; `None` when there is no basis for one.
    pub count: Option<f64>,
    /// What was really counted; `None` where nothing counts it.
    pub counted: Option<u64>,
    /// Standard uncertainty of `count`: 0 for what was counted all the time, but for the error of the
    /// event itself, where the trust file states one; `None` when unknown.
    pub u: Option<f64>,
    /// Ends of the interval that holds the truth at [`LEVEL`](super::LEVEL), widened by the largest
    /// errors of the event that the trust file states.
    pub low: Option<f64>,
    /// See `low`.
    pub high: Option<f64>,
    /// Part of the time on this PMU's CPUs for which the set was on; `None` when there was no such
    /// time.
    pub coverage: Option<f64>,
    /// Seconds for which it was on.
    pub seconds: f64,
    /// Number of stretches of time that is made of.
    pub windows: u64,
    /// What the machine's trust file says of the event.
    #[serde(flatten)]
    pub trusted: Option<Trusted>,
}

/// A derived metric on a core type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Derived {
    /// Its name.
    pub metric: String,
    /// Its formula.
    pub formula: String,
    /// The PMU; `None` where no PMU counts what cores do.
    pub pmu: Option<String>,
    /// Name of the core type.
    pub core_type: Option<String>,
    /// The CPU or thread, where each has counts of its own.
    #[serde(flatten)]
    pub row: Row,
    /// Its unit, where the vendor's table has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The value; `None` when an event was not counted, or on a division by zero.
    pub value: Option<f64>,
    /// Standard uncertainty, of the events' errors, too; `None` when unknown.
    pub u: Option<f64>,
    /// Part of it that more runs do not make less: the events' errors.
    #[serde(skip)]
    pub u_of_events: Option<f64>,
    /// Whether the value is worth a look, where the vendor's table says so and all of the events in
    /// that are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Judged>,
    /// Events in it that nothing counts here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_supported: Vec<String>,
}

/// What a threshold says of a value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The threshold, over metrics.
    pub text: String,
    /// Whether the value is worth a look. Of several runs: in most of them.
    pub exceeded: bool,
}

/// For fields of JSON that are there only when something is missing.
fn is_true(b: &bool) -> bool {
    *b
}

/// What was counted in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// Seconds since counting began, at its end.
    pub at_s: f64,
    /// Number of the set that was on, from 1; of several the first.
    pub set: usize,
    /// What its events have counted, really.
    pub counts: Vec<WindowCount>,
    /// What virtual counters have; empty without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub virtual_counters: Vec<VirtualCount>,
}

/// The count of an event in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowCount {
    /// The event as it was written.
    pub event: String,
    /// The PMU; `None` for an event of cores where no PMU counts what cores do.
    pub pmu: Option<String>,
    /// Name of the core type, for PMUs of cores.
    pub core_type: Option<String>,
    /// The CPU or thread, where each has a count of its own.
    #[serde(flatten)]
    pub row: Row,
    /// The count; `None` where nothing counts it here.
    pub count: Option<u64>,
    /// Seconds for which it was on the hardware.
    pub seconds: f64,
}
