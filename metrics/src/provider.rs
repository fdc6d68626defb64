//! The contract of a source of metrics.

use crate::contention::{Cost, ProgramId};
use crate::estimate::Estimate;
use crate::event::{EventError, EventSets};
use crate::ids::{CoreTypeId, Nanos, ThreadKey};
use crate::pmu::Pmus;
use crate::sample::Snapshot;

/// A quantity a policy may ask for. No policy ever names a hardware event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MetricId {
    /// Instructions per second on this core type over those on the slowest one, at the thread's
    /// present phase (SF; ≥ 0, 1 for the slowest type itself).
    SpeedupFactor(CoreTypeId),
    /// EDP on the slowest core type over that on this one (EF; ≥ 0) [PMCTrack eq. 3-7].
    EfficiencyFactor(CoreTypeId),
    /// Instructions per cycle on this core type, as last measured there (≥ 0).
    Ipc(CoreTypeId),
}

/// A program phase of a thread: a stretch in which its metrics keep about the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Running number, from 0; it grows with every change. A phase that comes back gets a new
    /// number.
    pub number: u32,
    /// Time since it began.
    pub age: Nanos,
}

/// Whether a provider can be relied on now.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Health {
    /// The provider works.
    #[default]
    Working,
    /// It has failed and answers nothing; the text says why and what happens next.
    Failed(String),
}

/// What is to be said against the present estimates of a thread, beyond their uncertainty and
/// quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Caveats {
    /// An input lies outside the range for which the model was made; the uncertainty is widened.
    pub extrapolated: bool,
    /// Part of the data was taken in another phase of the program.
    pub other_phase: bool,
}

/// A source of metrics. Providers are swapped while the scheduler runs; nothing but this trait is
/// known of them.
///
/// ```text
/// event_sets ─► (the counting layer programs set `active_set(t)` of each core type t) ─► Snapshot.readings
///      ▲                                                                                     │
///      └────────────── next interval ◄── active_set ◄── estimate … ◄── observe ◄─────────────┘
/// ```
pub trait Provider: Send {
    /// The name it is registered under, for messages and reports.
    fn name(&self) -> &str;

    /// The provider that it stands in front of, if it does: what this one has nothing of its own to
    /// say about is asked there.
    fn inner(&self) -> Option<&dyn Provider> {
        None
    }

    /// The event sets it needs, per core type, resolved on the PMUs of this machine. Asked once,
    /// before the provider is put in place; [`crate::sample::Reading::set`] and the order of the
    /// deltas refer to what was answered here. A provider that needs no counters declares none.
    ///
    /// # Errors
    /// When a core type has no PMU, or the PMU has no such event; the error names both and what
    /// there is. The provider is not put in place then.
    fn event_sets(&mut self, _pmus: &Pmus) -> Result<EventSets, EventError> {
        Ok(EventSets::default())
    }

    /// The set that is to be counted on core type `t` in the next interval: an index into those
    /// declared for `t`. Asked after every [`Provider::observe`]; a change is a new generation.
    fn active_set(&self, t: CoreTypeId) -> usize {
        self.inner().map_or(0, |i| i.active_set(t))
    }

    /// Takes in what happened since the last call: once per interval, and in between where it asks for
    /// that ([`Provider::unsettled`]). Called before any query for it.
    fn observe(&mut self, snapshot: &Snapshot);

    /// What an earlier run of the scheduler knew of the program of `thread`, which is about to be observed for the first
    /// times. A provider that weighs what it measures against what it expects may begin with that. It may be wrong. `None` takes
    /// back what was said before: it was forgotten.
    fn expect(&mut self, _thread: ThreadKey, _metric: MetricId, _remembered: Option<Estimate>) {}

    /// What an earlier run of the scheduler knew of its program by moves alone ([`Provider::shown`]). A provider that holds
    /// that against something else need not have the thread moved for it. `None` takes back what was said before.
    fn expect_shown(&mut self, _thread: ThreadKey, _of: CoreTypeId, _remembered: Option<Estimate>) {
    }

    /// The speedup factor of `thread` on core type `of` as moves to and fro alone show it, where a provider holds
    /// that against what something else says of the thread: for a memory, in which the one must not be taken for the other.
    fn shown(&self, thread: ThreadKey, of: CoreTypeId) -> Option<Estimate> {
        self.inner()?.shown(thread, of)
    }

    /// The present estimate of `metric` for `thread`; `None` when there is no honest one.
    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate>;

    /// The core type from which the present estimates of `thread`'s factors were heard; `None` where they are from no single one.
    fn heard_on(&self, thread: ThreadKey) -> Option<CoreTypeId> {
        self.inner()?.heard_on(thread)
    }

    /// The present phase of `thread`; `None` when the provider does not follow phases or does not
    /// know the thread.
    fn phase(&self, thread: ThreadKey) -> Option<Phase> {
        self.inner()?.phase(thread)
    }

    /// What is to be said against the present estimates of `thread`.
    fn caveats(&self, thread: ThreadKey) -> Caveats {
        let inner = self.inner().map(|i| i.caveats(thread));
        inner.unwrap_or_default()
    }

    /// A core type on which the provider would like to see `thread` soon, because it lacks data
    /// from there. A policy may ignore it.
    fn wanted_on(&self, thread: ThreadKey) -> Option<CoreTypeId> {
        self.inner()?.wanted_on(thread)
    }

    /// Whether a window soon would tell more than one at the end of the interval: a thread that ran
    /// in the last window is new or has changed, and not every event set has been counted on it.
    fn unsettled(&self) -> bool {
        self.inner().is_some_and(|i| i.unsettled())
    }

    /// What programs are known to cost each other, in no particular order.
    fn costs(&self) -> &[Cost] {
        self.inner().map_or(&[], |i| i.costs())
    }

    /// The program of `thread`, as [`Provider::costs`] names it; `None` where no costs are known of it.
    fn program(&self, thread: ThreadKey) -> Option<ProgramId> {
        self.inner()?.program(thread)
    }

    /// The command name, NUL-padded, of a program that [`Provider::costs`] names; `None` for a stranger.
    fn program_name(&self, program: ProgramId) -> Option<[u8; 16]> {
        self.inner()?.program_name(program)
    }

    /// Whether `thread` may cost its neighbours something that only its going elsewhere would show:
    /// that is worth more than what is still to be learned of its own metrics.
    fn suspects(&self, thread: ThreadKey) -> bool {
        self.inner().is_some_and(|i| i.suspects(thread))
    }

    /// The rate of `thread` in the last interval over what it would have been without neighbours, as
    /// far as their costs are known, told by [`Provider::costs`] or not: 0 to 1, and 1 where nothing is.
    fn slowed(&self, thread: ThreadKey) -> f64 {
        self.inner().map_or(1.0, |i| i.slowed(thread))
    }

    /// Whether it can be relied on now. A provider that has failed answers no estimates, and
    /// policies fall back.
    fn health(&self) -> Health {
        self.inner().map_or(Health::Working, |i| i.health())
    }
}
