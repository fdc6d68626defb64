//! What a model has said of threads, and for how long it has said the same.

use crate::ids::{CoreTypeId, ThreadKey, MAX_CORE_TYPES};
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

/// What the model has said of a thread.
#[derive(Clone, Debug, Default)]
struct Word {
    /// Its program: an exec makes it another.
    of: ProgramName,
    /// Logarithm of the factor, by the core type that it was heard from: a model that is wrong says one thing on one and another on
    /// the other.
    said: [Option<f64>; MAX_CORE_TYPES],
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
            }
            None => *said = Some(ln),
        }
    }
}

/// What a model has said of everybody.
#[derive(Debug, Default)]
pub(super) struct Words {
    threads: Threads<Word>,
    /// Whether programs change as they go.
    programs: Programs<bool>,
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
        let new = |programs: &Programs<bool>, of| {
            Word::new(of, programs.get(&of).is_some_and(|changes| *changes))
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
            let on = model.heard_on(r.thread).unwrap_or(CoreTypeId::FASTEST);
            let Some(word) = threads.get_mut(r.thread).filter(|_| told.value > 0.0) else {
                continue;
            };
            word.hear(told.value.ln(), on, now);
            // once is how most begin: they load what they work on
            if word.changes > 1 {
                *programs.meet(word.of, snapshot.now) = true;
            } else if now >= 2.0 * STEADY {
                if let Some(changes) = programs.get_mut(&word.of) {
                    *changes = false;
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
}
