//! Hardware events: how they are written, what they are on a given PMU, and the sets in which they
//! are counted.
//!
//! ```text
//! "cpu_core/event=0x2e,umask=0x41/"  ──parse──►  EventSpec  ──Pmus::resolve──►  Event (perf_event_attr fields)
//! ```

mod generic;
mod set;
mod spec;

pub use generic::Generic;
pub(crate) use generic::{CACHE, HARDWARE};
pub use set::{EventSet, EventSets};
pub(crate) use spec::terms as parse_terms;
pub use spec::{split_list, EventSpec, Modifiers, SpecKind, Term};

use crate::ids::CoreTypeId;
use thiserror::Error;

/// Most events in one set. The increments of a set are stored inline, per thread; no core PMU in
/// use has more counters (Arm's and Intel's fixed ones included) that one set could need.
pub const MAX_EVENTS: usize = 16;

/// What the kernel is told: the fields of `perf_event_attr` that name an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventAttr {
    /// Type number of the PMU, or a generic type (`PERF_TYPE_HARDWARE`, `PERF_TYPE_HW_CACHE`).
    pub type_: u32,
    /// The event; for generic types the PMU's type number is in the upper 32 bits on hybrids.
    pub config: u64,
    /// First extension.
    pub config1: u64,
    /// Second extension.
    pub config2: u64,
    /// Leave out user mode.
    pub exclude_user: bool,
    /// Leave out kernel mode.
    pub exclude_kernel: bool,
    /// How precise samples are to be, from 0 to 3 (`precise_ip`).
    pub precise: u8,
}

/// An event on one PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is called in this set: the text it was written as, or a name the provider gave it.
    pub name: String,
    /// The PMU's name, for messages.
    pub pmu: String,
    /// Attributes that the kernel is given.
    pub attr: EventAttr,
}

impl EventAttr {
    /// Whether it is an event that the kernel has a name for on every PMU, and that a PMU need not
    /// have.
    pub fn is_generic(&self) -> bool {
        matches!(self.type_, HARDWARE | CACHE)
    }
}

/// `; close are …`, the three of `known` that are most like `wanted`; empty where none is.
pub fn closest(wanted: &str, known: impl Iterator<Item = String>) -> String {
    let wanted = wanted.to_lowercase();
    let mut scored: Vec<(f64, String)> = known
        .map(|n| (strsim::jaro_winkler(&wanted, &n.to_lowercase()), n))
        .filter(|(score, _)| *score >= 0.7)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.dedup();
    let best = scored.into_iter().take(3);
    let best: Vec<String> = best.map(|(_, n)| format!("`{n}`")).collect();
    match best.len() {
        0 => String::new(),
        _ => format!("; close are {}", best.join(", ")),
    }
}

impl Event {
    /// The same event under another name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Event {
        self.name = name.to_owned();
        self
    }
}

/// Why an event cannot be counted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EventError {
    /// The text is not an event.
    #[error("event `{spec}`: {reason}; write `pmu/event=0x2e,umask=0x41/`, `pmu/name/`, a name such as `branch-misses`, or a raw code such as `r412e`")]
    Syntax {
        /// The event as it was written.
        spec: String,
        /// The reason.
        reason: String,
    },
    /// The machine has no PMU at all that counts on these cores.
    #[error("{core_type}: no PMU counts on its CPUs ({looked_in} has none that lists them): a virtual machine without PMU, or no driver for it")]
    NoPmu {
        /// The core type.
        core_type: CoreTypeId,
        /// Where PMUs are listed.
        looked_in: String,
    },
    /// There is no PMU of this name.
    #[error("event `{spec}`: no PMU `{pmu}` here; there are {have}")]
    UnknownPmu {
        /// The event as it was written.
        spec: String,
        /// The name that was asked for.
        pmu: String,
        /// What there is instead.
        have: String,
    },
    /// The PMU does not count on the core type the event was asked for.
    #[error("event `{spec}`: PMU `{pmu}` does not count on {core_type}, `{right}` does")]
    WrongPmu {
        /// The event as it was written.
        spec: String,
        /// The PMU that was named.
        pmu: String,
        /// The core type it was asked for.
        core_type: CoreTypeId,
        /// The PMU that counts there.
        right: String,
    },
    /// The PMU has no such event.
    #[error("event `{spec}`: PMU `{pmu}` has no event `{event}`{closest}")]
    UnknownEvent {
        /// The event as it was written.
        spec: String,
        /// The PMU.
        pmu: String,
        /// The event name at fault.
        event: String,
        /// `; close are …`, or nothing.
        closest: String,
    },
    /// No PMU here counts what cores do, and the name is none of those that every machine knows.
    #[error(
        "event `{spec}`: `{event}` is neither a software event nor a generic hardware \
         event{closest}. This machine has no PMU of cores; the names of a vendor's events are \
         known where its PMU is"
    )]
    UnknownName {
        /// The event as it was written.
        spec: String,
        /// The event name at fault.
        event: String,
        /// `; close are …`, or nothing.
        closest: String,
    },
    /// The PMU has no such field.
    #[error("event `{spec}`: PMU `{pmu}` has no field `{field}`; it has {have}")]
    UnknownField {
        /// The event as it was written.
        spec: String,
        /// The PMU.
        pmu: String,
        /// The field at fault.
        field: String,
        /// What there is instead.
        have: String,
    },
    /// The PMU's driver leaves fields of the event's code to the user, and they are not given.
    #[error(
        "event `{spec}`: `{event}` leaves a part of its code to you; write \
         `{pmu}/{event},{fields}/` with a number for each N"
    )]
    Open {
        /// The event as it was written.
        spec: String,
        /// The PMU.
        pmu: String,
        /// The event.
        event: String,
        /// The fields, as they are to be written behind the event.
        fields: String,
    },
    /// A value does not fit its field.
    #[error(
        "event `{spec}`: {field}={value:#x} does not fit: the field has {bits} bits on PMU `{pmu}`"
    )]
    TooLarge {
        /// The event as it was written.
        spec: String,
        /// The PMU.
        pmu: String,
        /// The field.
        field: String,
        /// The value.
        value: u64,
        /// Width of the field.
        bits: u32,
    },
    /// A description in sysfs is not right.
    #[error("{file}: {reason}")]
    Sysfs {
        /// The file.
        file: String,
        /// The reason.
        reason: String,
    },
    /// A set has too many events.
    #[error("event set {set} of {core_type}: {events} events, at most {max} can be counted at once{why}")]
    TooMany {
        /// Index of the set.
        set: usize,
        /// The core type.
        core_type: CoreTypeId,
        /// Number of events in the set.
        events: usize,
        /// Number of events that can be counted at once.
        max: usize,
        /// Why no more, or nothing.
        why: String,
    },
}
