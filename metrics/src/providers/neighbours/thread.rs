//! A thread's windows: what it did before and after its neighbours changed.

use super::presence::{changes_between, is_event, own_part, there, Change, Presence, MOST_CHANGES};
use super::row::MOST_NEIGHBOURS;
use crate::contention::{ProgramId, Seat};
use crate::ids::{CoreTypeId, Nanos, MAX_CORE_TYPES};

/// Standard deviation of what a thread's rate may have changed by while it was elsewhere, and the
/// longest such time.
const STAY: f64 = 0.15;
const LONG_AGO: Nanos = Nanos::from_millis(5000);
/// Windows that what was before an event goes back.
const BEFORE: f64 = 3.0;
/// Part of an interval that a window covers to be compared with.
pub(super) const WHOLE: f64 = 0.5;

/// A thread's windows.
#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    pub program: ProgramId,
    /// Instructions and nanoseconds of this interval, by core type.
    pub sums: [(f64, f64); MAX_CORE_TYPES],
    /// Where it ran for most of the last interval, if anywhere, and for which part of it.
    pub was: Option<(CoreTypeId, f64)>,
    /// Mean logarithm of its rate there since the last event.
    pub rate: f64,
    /// Windows in it; none yet after a move, whose first window has cold caches.
    pub windows: f64,
    /// The interval in which it ran last.
    pub round: u64,
    /// What it did where it was before, and who was there.
    pub stays: Vec<Stay>,
    /// See [`Neighbours::doubt`].
    pub doubt: [f64; MAX_CORE_TYPES],
}

/// The end of a thread's stay on a core type.
#[derive(Clone, Debug)]
pub(super) struct Stay {
    pub on: CoreTypeId,
    /// Part of the last interval in which it ran there.
    pub part: f64,
    pub rate: f64,
    pub presence: Presence,
    pub at: Nanos,
}

/// Who is around in this interval and was in the one before.
pub(super) struct Around<'a> {
    pub before: &'a Presence,
    pub here: &'a Presence,
    pub changes: Vec<Change>,
    pub now: Nanos,
}

/// What a thread's window showed of its program there.
pub(super) enum Showed {
    /// The logarithm of its rate changed by so much although nobody came or left.
    Wavering(f64),
    /// These came and left, and the logarithm of its rate changed by so much; the variance that this
    /// has for other reasons.
    Event(Vec<Change>, (f64, f64)),
}

/// A core type, the part of an interval that a thread ran there, and the logarithm of its rate.
pub(super) type Whole = (CoreTypeId, f64, f64);

impl Thread {
    /// Ends the interval: where it ran for most of it, if anywhere.
    pub fn window(&mut self, interval: Nanos) -> Option<Whole> {
        let sums = std::mem::take(&mut self.sums);
        let mut types = (0..MAX_CORE_TYPES as u8).map(CoreTypeId);
        types.find_map(|t| {
            let (instructions, time) = sums[t.index()];
            let part = time / interval.0 as f64;
            let whole = part >= WHOLE && instructions > 0.0;
            whole.then(|| (t, there(part), (instructions / time).ln()))
        })
    }

    /// Takes in what it did in this interval.
    pub fn step(&mut self, whole: Option<Whole>, around: &Around<'_>) -> Option<(Seat, Showed)> {
        let was = std::mem::replace(&mut self.was, whole.map(|(t, part, _)| (t, part)));
        let left = was.filter(|(on, _)| whole.is_none_or(|(t, ..)| t != *on));
        if let Some((on, part)) = left.filter(|_| self.windows > 0.0) {
            self.leave(on, part, around);
        }
        let stayed = whole.zip(was).filter(|((t, ..), (on, _))| t == on);
        let Some(((on, part, ln), (_, had))) = stayed else {
            // what it does next is compared with its second window here
            self.windows = 0.0;
            return None;
        };
        let program = self.program;
        let seat = Seat { program, on };
        let rate = std::mem::replace(&mut self.rate, ln);
        if self.windows == 0.0 {
            self.windows = 1.0;
            let stay = self.stays.iter().position(|s| s.on == on)?;
            let stay = self.stays.swap_remove(stay);
            let mut changes = changes_between(&stay.presence, around.here);
            own_part(&mut changes, seat, part - stay.part);
            let recent = around.now.saturating_sub(stay.at) <= LONG_AGO;
            return (recent && is_event(&changes)).then(|| {
                let by = (ln - stay.rate, STAY * STAY);
                (seat, Showed::Event(changes, by))
            });
        }
        let mut changes = around.changes.clone();
        own_part(&mut changes, seat, part - had);
        if is_event(&changes) {
            self.windows = 1.0;
            return Some((seat, Showed::Event(changes, (ln - rate, 0.0))));
        }
        if changes.len() > MOST_CHANGES {
            self.windows = 1.0;
            return None;
        }
        self.windows = (self.windows + 1.0).min(BEFORE);
        self.rate = rate + (ln - rate) / self.windows;
        Some((seat, Showed::Wavering(ln - rate)))
    }

    /// Keeps what it did on a core type that it has left.
    pub fn leave(&mut self, on: CoreTypeId, part: f64, around: &Around<'_>) {
        self.stays.retain(|s| s.on != on);
        if around.before.len() <= MOST_NEIGHBOURS {
            self.stays.push(Stay {
                on,
                part,
                rate: self.rate,
                presence: around.before.clone(),
                at: around.now,
            });
        }
    }
}
