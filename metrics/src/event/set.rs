//! Event sets: what is counted at the same time.

use super::{Event, EventError, MAX_EVENTS};
use crate::ids::{CoreTypeId, MAX_CORE_TYPES};
use crate::pmu::Pmus;

/// Events that are counted together on the CPUs of one core type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSet {
    /// In the order of the deltas of a reading; at most [`MAX_EVENTS`].
    pub events: Vec<Event>,
}

impl EventSet {
    /// Where the event called `name` stands in the set.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.events.iter().position(|e| e.name == name)
    }
}

/// Event sets per core type: what a provider wants counted. With more than one for a core type they
/// are counted by turns, see [`crate::Provider::active_set`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSets {
    by_type: [Vec<EventSet>; MAX_CORE_TYPES],
}

impl EventSets {
    /// The sets of core type `t`; none when nothing is to be counted there.
    pub fn of(&self, t: CoreTypeId) -> &[EventSet] {
        self.by_type.get(t.index()).map_or(&[], Vec::as_slice)
    }

    /// Adds a set for core type `t` and returns its index. Ignored beyond [`MAX_CORE_TYPES`].
    pub fn push(&mut self, t: CoreTypeId, set: EventSet) -> usize {
        match self.by_type.get_mut(t.index()) {
            Some(sets) => {
                sets.push(set);
                sets.len() - 1
            }
            None => 0,
        }
    }

    /// Whether nothing is to be counted at all.
    pub fn is_empty(&self) -> bool {
        self.by_type.iter().all(Vec::is_empty)
    }

    /// The most events in one set.
    pub fn widest(&self) -> usize {
        let sets = self.by_type.iter().flatten();
        sets.map(|s| s.events.len()).max().unwrap_or(0)
    }

    /// Checks every set against what can be stored and, where known, against the number of counters
    /// of its PMU.
    ///
    /// # Errors
    /// [`EventError::TooMany`] for the first set that cannot be counted at once.
    pub fn check(&self, pmus: &Pmus) -> Result<(), EventError> {
        for (t, sets) in self.by_type.iter().enumerate() {
            let core_type = CoreTypeId(t as u8);
            let usable = pmus.of_core_type(core_type).and_then(|p| p.counters);
            for (set, s) in sets.iter().enumerate() {
                let events = s.events.len();
                let too_many = |max, why: &str| EventError::TooMany {
                    set,
                    core_type,
                    events,
                    max,
                    why: why.to_owned(),
                };
                if events > MAX_EVENTS {
                    return Err(too_many(MAX_EVENTS, ""));
                }
                if let Some(max) = usable.filter(|max| events > *max) {
                    return Err(too_many(
                        max,
                        " on its PMU now, as a trial has shown (counters may be taken by the NMI watchdog, \
                         `sysctl kernel.nmi_watchdog=0`, or by another perf user)",
                    ));
                }
            }
        }
        Ok(())
    }
}
