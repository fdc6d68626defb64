//! What a model has said of threads, and for how long it has said the same.

use crate::estimate::{Estimate, Quality};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::provider::{MetricId, Provider};
use crate::providers::programs::Programs;
use crate::providers::threads::Threads;
use crate::sample::{ProgramName, Snapshot};

/// Difference of the logarithms of two factors from which on one of them is wrong: half as much again. Moves of real programs,
/// which change what they do as they go, are off by up to a third.
pub(super) const WRONG: f64 = 0.4;
/// CPU time of a thread, in units of 100 ms, for which a model must have said the same before moves count against it: a phase
/// and a bit, of those that are worth following.
const STEADY: f64 = 20.0;
/// Relative standard uncertainty from which on a model is unsure of its word: it may be wrong by [`WRONG`], and by more
/// in one case of twenty.
pub(super) const UNSURE: f64 = WRONG / 2.0;

/// Relative standard uncertainty of an estimate, 0 where it states none; none where that is no number.
pub(super) fn relative(e: &Estimate) -> Option<f64> {
    let u = e.uncertainty.unwrap_or(0.0) / e.value;
    (e.value > 0.0 && u.is_finite()).then_some(u)
}

/// Whether the model was unsure of its last two words from a core type: one in doubt may be between two phases, or of a program that
/// begins.
#[derive(Clone, Copy, Debug, Default)]
struct Doubt {
    /// Until when what the last one rests on was counted; none before the first.
    at: Option<Nanos>,
    last: bool,
    before: bool,
}

/// What the model has said of a thread.
#[derive(Clone, Debug, Default)]
struct Word {
    /// Its program: an exec makes it another.
    of: ProgramName,
    /// Logarithm of the factor, by the core type that it was heard from: a model that is wrong says one thing on one and another on
    /// the other.
    said: [Option<f64>; MAX_CORE_TYPES],
    /// How unsure it is of that, by the same.
    doubts: [Doubt; MAX_CORE_TYPES],
    /// When it last said another thing, in units of the thread's CPU time; none if never.
    changed: Option<f64>,
    /// How often it did.
    changes: u32,
}

impl Word {
    /// Nothing yet, of a thread of this program. `changes`: another thread of it has shown that it changes as it goes.
    fn new(of: ProgramName, changes: bool) -> Word {
        Word {
            of,
            changed: changes.then_some(0.0),
            ..Word::default()
        }
    }

    /// Takes in what is said from core type `on` at `now`.
    fn hear(&mut self, ln: f64, on: CoreTypeId, now: f64) {
        let Some(said) = self.said.get_mut(on.index()) else {
            return;
        };
        match said {
            Some(before) if (*before - ln).abs() <= WRONG => {}
            Some(before) => {
                (*before, self.changed) = (ln, Some(now));
                self.changes += 1;
                // what it does now was heard from nowhere else
                self.doubts = Default::default();
            }
            None => *said = Some(ln),
        }
    }

    /// Takes in how unsure a word is that rests on what was counted until `at`.
    fn doubt(&mut self, unsure: bool, on: CoreTypeId, at: Nanos) {
        let doubt = self.doubts.get_mut(on.index());
        if let Some(d) = doubt.filter(|d| d.at != Some(at)) {
            *d = Doubt {
                at: Some(at),
                last: unsure,
                before: d.last,
            };
        }
    }

    fn is_unsure(&self, on: CoreTypeId) -> bool {
        self.doubts
            .get(on.index())
            .is_some_and(|d| d.last && d.before)
    }
}

/// What a model has said of everybody.
#[derive(Debug, Default)]
pub(super) struct Words {
    threads: Threads<Word>,
    programs: Programs<Told>,
}

/// What the model has said of threads of a program.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// Whether they change as they go.
    changes: bool,
    /// Whether it was unsure of one.
    doubted: bool,
}

impl Words {
    /// Listens to what `model` says of those who ran. `units`: CPU time of a thread, in units of 100 ms; none where it is not known.
    pub fn listen(
        &mut self,
        snapshot: &Snapshot,
        model: &dyn Provider,
        units: impl Fn(ThreadKey) -> Option<f64>,
    ) {
        let (threads, programs) = (&mut self.threads, &mut self.programs);
        let new = |programs: &Programs<Told>, of| {
            Word::new(of, programs.get(&of).is_some_and(|told| told.changes))
        };
        threads.keep(snapshot, |t| new(programs, t.program()));
        for t in &snapshot.threads {
            match threads.get_mut(t.key) {
                Some(w) if w.of != t.program() => *w = new(programs, t.program()),
                _ => {}
            }
        }
        let speedup = MetricId::SpeedupFactor(CoreTypeId::FASTEST);
        for r in &snapshot.readings {
            let told = model.estimate(r.thread, speedup);
            let (Some(told), Some(now)) = (told, units(r.thread)) else {
                continue;
            };
            let heard = model.heard_on(r.thread);
            let on = heard.unwrap_or(CoreTypeId::FASTEST);
            let Some(word) = threads.get_mut(r.thread).filter(|_| told.value > 0.0) else {
                continue;
            };
            word.hear(told.value.ln(), on, now);
            // of what is only recalled it does not say how sure it is, nor from where
            let own = told.quality < Quality::Partial && heard.is_some();
            if let Some(u) = relative(&told).filter(|_| own) {
                word.doubt(u >= UNSURE, on, snapshot.now.saturating_sub(told.age));
                if word.is_unsure(on) {
                    programs.meet(word.of, snapshot.now).doubted = true;
                }
            }
            // once is how most begin: they load what they work on
            if word.changes > 1 {
                programs.meet(word.of, snapshot.now).changes = true;
            } else if now >= 2.0 * STEADY {
                if let Some(told) = programs.get_mut(&word.of) {
                    told.changes = false;
                }
            }
        }
        programs.make_room();
    }

    /// Whether the model has said the same of a thread for long enough at `now`, in units of its CPU time.
    pub fn are_steady(&self, thread: ThreadKey, now: f64) -> bool {
        let changed = self.threads.get(thread).and_then(|w| w.changed);
        changed.is_none_or(|at| now - at >= STEADY)
    }

    /// Whether the model is unsure of what it says of a thread from core type `on`.
    pub fn are_unsure(&self, thread: ThreadKey, on: CoreTypeId) -> bool {
        self.threads.get(thread).is_some_and(|w| w.is_unsure(on))
    }

    /// Whether it was unsure of a thread of the same program.
    pub fn are_doubted(&self, thread: ThreadKey) -> bool {
        let program = self
            .threads
            .get(thread)
            .and_then(|w| self.programs.get(&w.of));
        program.is_some_and(|told| told.doubted)
    }
}
