//! A thread's windows: what it did before and after its neighbours changed.

use super::presence::{
    add_up, changes_between, is_event, own_part, there, Change, Presence, MOST_CHANGES,
};
use super::row::MOST_NEIGHBOURS;
use crate::contention::{ProgramId, Seat};
use crate::ids::{AppId, CoreTypeId, Nanos, MAX_CORE_TYPES};
use crate::multiplex::PHASE_STEP;
use rustc_hash::FxHashSet;

/// Standard deviation of what a thread's rate may have changed by while it was elsewhere, and the
/// longest such time.
const STAY: f64 = 0.15;
const LONG_AGO: Nanos = Nanos::from_millis(5000);
/// Windows that what was before an event goes back.
const BEFORE: f64 = 3.0;
/// Part of an interval that a window covers to be compared with.
pub(super) const WHOLE: f64 = 0.5;
/// CPU time in which a program begins: it loads what it works on, faster or slower than it works.
const BEGINS: Nanos = Nanos::from_millis(300);

/// A thread's windows.
#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    pub program: ProgramId,
    /// Its process.
    pub app: Option<AppId>,
    /// CPU time by core type, since it was first seen.
    pub runtime: [Nanos; MAX_CORE_TYPES],
    /// Nanoseconds of this interval that it ran, by core type.
    pub ran: [f64; MAX_CORE_TYPES],
    /// Instructions that were counted in this interval, and in how many nanoseconds, by core type.
    pub sums: [(f64, f64); MAX_CORE_TYPES],
    /// Where it ran for most of the last interval, if anywhere, and for which part of it.
    pub was: Option<(CoreTypeId, f64)>,
    /// Mean logarithm of its rate there since the last event.
    pub rate: f64,
    /// Windows in it; none yet after a move, whose first window has cold caches.
    pub windows: f64,
    /// The interval in which it ran last.
    pub round: u64,
    /// Who came and left in intervals in which it was not counted.
    pub unseen: Vec<Change>,
    /// An event whose first interval has passed.
    pub event: Option<Begun>,
    /// What it did where it was before, and who was there.
    pub stays: Vec<Stay>,
    /// See [`Neighbours::doubt`].
    pub doubt: [f64; MAX_CORE_TYPES],
}

/// An event, as it began. What neighbours change takes a while to be seen: a cache has to be filled. So the
/// interval after the first one is compared, if nobody else comes or leaves in it.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    changes: Vec<Change>,
    /// The logarithm of the rate before it, and in its first interval.
    rates: [f64; 2],
}

impl Begun {
    fn showed(self, rate: Option<f64>) -> Showed {
        let [before, first] = self.rates;
        Showed::Event(self.changes, (rate.unwrap_or(first) - before, 0.0))
    }
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
    /// Programs of several threads, now and in the interval before.
    pub parallel: [&'a FxHashSet<ProgramId>; 2],
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

/// A core type, how much of a neighbour a thread was there in an interval, and the logarithm of its rate, if it was counted.
pub(super) type Whole = (CoreTypeId, f64, Option<f64>);

impl Thread {
    /// A thread of `program` that has not run in any interval yet, and had run for `runtime` before.
    pub fn new(program: ProgramId, app: AppId, runtime: [Nanos; MAX_CORE_TYPES]) -> Thread {
        Thread {
            program,
            app: Some(app),
            round: u64::MAX,
            runtime,
            ..Thread::default()
        }
    }

    /// Ends the interval: where it ran for most of it, if anywhere.
    pub fn window(&mut self, interval: Nanos) -> Option<Whole> {
        let sums = std::mem::take(&mut self.sums);
        let ran = std::mem::take(&mut self.ran);
        let mut types = (0..MAX_CORE_TYPES as u8).map(CoreTypeId);
        types.find_map(|t| {
            let (instructions, time) = sums[t.index()];
            let part = ran[t.index()] / interval.0 as f64;
            let rate = (instructions > 0.0 && time > 0.0).then(|| (instructions / time).ln());
            (part >= WHOLE).then(|| (t, there(part), rate))
        })
    }

    /// Takes in what it did in this interval.
    pub fn step(&mut self, whole: Option<Whole>, around: &Around<'_>) -> Option<(Seat, Showed)> {
        let parallel = |p: &ProgramId| around.parallel.iter().any(|all| all.contains(p));
        let of_parallel = |c: &Change| parallel(&c.beside.program);
        let begins = self.runtime.iter().copied().sum::<Nanos>() <= BEGINS;
        if begins || parallel(&self.program) || around.changes.iter().any(of_parallel) {
            self.skip();
            return None;
        }
        let was = std::mem::replace(&mut self.was, whole.map(|(t, part, _)| (t, part)));
        let program = self.program;
        let left = was.filter(|(on, _)| whole.is_none_or(|(t, ..)| t != *on));
        let mut begun = self.event.take();
        let mut before = None;
        if let Some((on, part)) = left {
            if self.windows > 0.0 {
                self.leave(on, part, around);
            }
            before = begun.take().map(|b| (Seat { program, on }, b.showed(None)));
        }
        let stayed = whole.zip(was).filter(|((t, ..), (on, _))| t == on);
        let Some(((on, part, rate), (_, had))) = stayed else {
            // what it does next is compared with its second window here
            self.windows = 0.0;
            self.unseen.clear();
            return before;
        };
        let seat = Seat { program, on };
        let mut changes = around.changes.clone();
        own_part(&mut changes, seat, part - had);
        let Some(ln) = rate else {
            add_up(&mut self.unseen, changes);
            self.event = begun;
            return None;
        };
        add_up(&mut changes, std::mem::take(&mut self.unseen));
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
        if is_event(&changes) {
            self.windows = 1.0;
            self.event = Some(Begun {
                changes,
                rates: [rate, ln],
            });
            return begun.map(|b| (seat, b.showed(None)));
        }
        if changes.len() > MOST_CHANGES {
            self.windows = 1.0;
            return begun.map(|b| (seat, b.showed(None)));
        }
        if let Some(begun) = begun {
            self.windows = 1.0;
            return Some((seat, begun.showed(Some(ln))));
        }
        match (ln - rate).abs() > PHASE_STEP {
            // some of this window may be of what it did before, and what it did elsewhere is
            true => {
                self.windows = 0.0;
                self.stays.clear();
            }
            false => {
                self.windows = (self.windows + 1.0).min(BEFORE);
                self.rate = rate + (ln - rate) / self.windows;
            }
        }
        Some((seat, Showed::Wavering(ln - rate)))
    }

    /// Nothing can be learned from this interval, and the next one begins anew.
    fn skip(&mut self) {
        self.was = None;
        self.windows = 0.0;
        self.event = None;
        self.unseen.clear();
        self.stays.clear();
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
