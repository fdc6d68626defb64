//! Speedup factors from instruction rates, and from a platform model where there is one.
//!
//! ```text
//! windows (instructions, CPU time) ─► as if alone (`neighbours`) ─► a Kalman filter per thread ─► SF ± u
//! model on the core type the thread is on ──────────────────────────►  ▲          │
//!                   noise, phases and their factors, biases of the model ┴─ program ◄
//! ```
//!
//! A thread's factor shows when it comes to another core type: by how much its rate changes. But rates change by
//! themselves, too. So what a program did just before and just after a move is weighed against its means over longer
//! stays, by how much its rates were seen to vary from window to window, and how long such departures last
//! ([`filter`], [`noise`]). A rate that leaves for good is another phase. Of each program (command name and arguments) there
//! are the factors of up to eight phases, told apart by their rates ([`program`]): a thread that shows one of these
//! rates has that phase's factor. In another one, the factor before is worth the less the more the rate has changed.
//!
//! **A model** is there before the first move, and when a phase changes. It is worth what it states. What it is off by is
//! taken for the same as long as the program does the same: the filter learns this bias from moves, of each core type that
//! the model is heard from. A model that is off by more than it states loses its weight by the second move; the first surprise
//! is taken for the thread's: programs begin by loading what they work on.
//!
//! **Uncertainty** is the filter's own. Each move has the variance of what may change together with it, so that one
//! alone is worth about 10 %.
//!
//! What an earlier run of the scheduler remembers is what a program is expected to be like until then.
//!
//! **What is not known.** Without a model there is no factor until a program was on two core types. A phase that has the same
//! rate as another one on one core type, but not on the other, is taken for it, unless the model tells them apart; a change of the rate by
//! less than a quarter is none. A change of phase together with a move is taken for the move's, until the next moves contradict it. The
//! model's prediction is made from programs that ran alone, and what neighbours do to its inputs is put right by its bias only. Nothing
//! tells whether a combination of metrics, each within its range, was in the model's training data. A cost of neighbours that is not known
//! yet is in the rate, and so in what moves show until then; that is forgotten once it is known. Where one core type has no counters, there
//! is the model alone.

mod filter;
mod follower;
#[cfg(test)]
mod model_tests;
mod noise;
mod program;
#[cfg(test)]
mod tests;

pub(super) use follower::EARLY;

use super::ipc_sampling::instructions_and_cycles;
use super::model::Model;
use super::neighbours::Neighbours;
use super::programs::Programs;
use super::threads::Threads;
use crate::contention::{Cost, ProgramId};
use crate::estimate::{Estimate, Quality};
use crate::event::{EventError, EventSets};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::pmu::Pmus;
use crate::provider::{Caveats, MetricId, Phase, Provider};
use crate::sample::{ProgramName, Reading, Snapshot};
use filter::Factor;
use follower::{Follower, Window};
use program::{Program, Trying};

/// Standard deviation of the logarithm of a program's factor between its phases.
const PHASE: f64 = 0.1;
/// Standard deviation of the logarithm of the factors of programs that have the same command name and other
/// arguments.
const KIN: f64 = 0.3;
/// Standard deviation up to which there is an estimate: less than that of programs in general.
const KNOWN: f64 = 0.4;
/// Standard deviation up to which there is an estimate by a model alone. A program of which no more is known takes turns, by
/// which it is known soon; by an estimate it would have to wait for a probe.
const TOLD: f64 = 0.15;
/// Relative uncertainty at which a program counts as known: nobody need look at it again.
const SURE: f64 = 0.1;
/// The least relative uncertainty of a model that is believed, whatever it states: one that says it is off by a thousandth could
/// not be put right by a few moves.
const SUREST: f64 = 0.05;
/// Moves from which on it is believed what they show: one or two may have fallen together with a change of phase.
const ENOUGH_MOVES: u32 = 3;
/// Units of time (100 ms) on a core type after which a look at another one is worth it.
const ENOUGH: f64 = 0.6;
/// Units of time that a thread has run before what a model says surely of it is tried: programs that are over by then
/// would be gone before that pays.
const SHORT: f64 = 20.0;
/// Units of time after which most programs have loaded what they work on: before [`EARLY`], so that a trial then has something to be
/// compared with.
const LOADED: f64 = 3.0;
/// Least CPU time of a window.
const LEAST_TIME: Nanos = Nanos::from_millis(1);
/// A thread that was read no longer ago goes on running.
const LATELY: Nanos = Nanos::from_millis(100);
/// Time that a trial of a program may take, from when its thread was seen elsewhere until it was seen back.
const TRIAL: Nanos = Nanos::from_millis(500);
/// Age beyond which an estimate is stale.
const STALE: Nanos = Nanos::from_millis(5000);

#[derive(Clone, Debug, Default)]
struct Thread {
    program: ProgramName,
    /// When it began the program.
    since: Nanos,
    /// From its first window on.
    follower: Option<Box<Follower>>,
    /// By core type of the factor, what the model said last.
    told: [Option<Word>; MAX_CORE_TYPES],
    /// When its last window ended.
    read: Option<Nanos>,
}

/// What a model said of a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Word {
    /// The core type that it was heard from.
    on: CoreTypeId,
    ln: f64,
    /// When the oldest of its samples was taken.
    at: Nanos,
}

/// The provider.
pub struct Fused {
    name: String,
    model: Option<Model>,
    core_types: usize,
    /// Whether the core type has counters.
    counted: [bool; MAX_CORE_TYPES],
    threads: Threads<Thread>,
    programs: Programs<Program>,
    neighbours: Neighbours,
    /// Whether what neighbours may have cost makes what moves show less sure, and what a thread does as it begins counts: there is no
    /// model that would know better.
    doubts: bool,
    /// Whether a thread of a program that was not on two core types yet needs another window where it is.
    arriving: bool,
    now: Nanos,
}

impl std::fmt::Debug for Fused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fused")
            .field("model", &self.model)
            .field("programs", &self.programs.len())
            .finish_non_exhaustive()
    }
}

impl Fused {
    /// The provider with this model.
    pub fn new(model: Model) -> Fused {
        let name = format!("fused({})", model.name());
        Fused {
            model: Some(model),
            ..Fused::without_model(&name)
        }
    }

    /// The provider without a model, under this name.
    pub fn without_model(name: &str) -> Fused {
        Fused {
            name: name.to_owned(),
            model: None,
            core_types: 0,
            counted: [false; MAX_CORE_TYPES],
            threads: Threads::default(),
            programs: Programs::default(),
            neighbours: Neighbours::default(),
            doubts: true,
            arriving: false,
            now: Nanos::ZERO,
        }
    }

    /// What a model is checked by. Neighbours are no excuse for a model that is off by half: whoever they were, the thread
    /// did so much more elsewhere. And a cost that is found while a thread is moved to and fro takes nothing back of what that
    /// has shown.
    pub fn checking() -> Fused {
        Fused {
            doubts: false,
            ..Fused::without_model("measured")
        }
    }

    fn slowest(&self) -> usize {
        self.core_types.saturating_sub(1)
    }

    /// A window: every event set begins with instructions.
    fn take_in(&mut self, r: &Reading) {
        let (on, slowest, at) = (r.core_type.index(), self.slowest(), self.now);
        let modelled = self.model.is_some();
        let (Some(thread), [instructions, ..]) = (self.threads.get_mut(r.thread), r.deltas())
        else {
            return;
        };
        if on > slowest || *instructions == 0 || r.counted < LEAST_TIME {
            return;
        }
        let (instructions, time) = (*instructions as f64, r.counted.0 as f64);
        thread.read = Some(at);
        let w = Window {
            on,
            // neighbours come and go, and are accounted for by themselves
            ln: (instructions / time).ln() + self.neighbours.paid(&thread.program, r.core_type),
            time,
            doubt: match self.doubts {
                true => self.neighbours.doubt(r.thread, on),
                false => 0.0,
            },
            at,
        };
        let program = self.programs.meet(thread.program, at);
        let since = thread.since;
        let new = || Box::new(Follower::new(program, slowest, modelled, since));
        let follower = thread.follower.get_or_insert_with(new);
        let before = follower.units;
        follower.take_in(&w, r.thread, program);
        let loaded = before < LOADED && follower.units >= LOADED;
        let tried = program.tried || program.tried_early || program.tried_before.contains(&true);
        if loaded && !self.doubts && !tried {
            // what it loaded, wherever it was then, shows nothing of what it does
            let trying = program.trying;
            program.unlearn();
            program.trying = trying;
            follower.unlearn(program, slowest);
        }
        for c in 0..slowest {
            let of = MetricId::SpeedupFactor(CoreTypeId(c as u8)); // below MAX_CORE_TYPES
            let heard = self.model.as_ref().and_then(|m| m.heard(r.thread, of));
            let Some((from, e)) = heard.filter(|(from, _)| *from == r.core_type) else {
                continue;
            };
            let word = Word {
                on: from,
                ln: e.value.ln(),
                at: at.saturating_sub(e.age),
            };
            let u = e.uncertainty.unwrap_or(0.0) / e.value;
            let sound = word.ln.is_finite() && u.is_finite() && e.quality < Quality::Partial;
            if sound && thread.told[c].replace(word) != Some(word) {
                follower.hear(c, on, (word.ln, (u * u).max(SUREST * SUREST)), program);
            }
        }
        if (0..slowest).any(|c| follower.factor(c, slowest).is_some_and(known)) {
            self.programs.is_latest(thread.program);
        }
    }

    /// Learns what neighbours cost. What was measured of a program before is forgotten once that is
    /// known: it was measured beside them.
    fn learn_costs(&mut self, snapshot: &Snapshot, interval: Nanos) {
        let slowest = self.slowest();
        let turned = self.neighbours.observe(snapshot, interval);
        for name in turned.into_iter().filter(|_| self.doubts) {
            let Some(program) = self.programs.get_mut(&name) else {
                continue;
            };
            program.unlearn();
            for t in &snapshot.threads {
                let thread = self.threads.get_mut(t.key).filter(|t| t.program == name);
                if let Some(follower) = thread.and_then(|t| t.follower.as_mut()) {
                    follower.unlearn(program, slowest);
                }
            }
        }
    }

    /// Notes what the model says of a thread that ran, for others of its name.
    fn remember(&mut self, key: ThreadKey) {
        let slowest = self.slowest();
        let ran = self
            .threads
            .get(key)
            .filter(|t| t.read == Some(self.now) && t.told.iter().any(Option::is_some));
        let Some(name) = ran.map(|t| t.program) else {
            return;
        };
        for (which, c) in (0..2).flat_map(|w| (0..slowest).map(move |c| (w, c))) {
            let said = self.present(key, which, c);
            if let Some(p) = self.programs.get_mut(&name) {
                p.told[which][c] = said.map(|s| s.factor);
            }
            if said.is_some() {
                self.programs.is_latest(name);
            }
        }
    }

    fn thread(&self, key: ThreadKey) -> Option<(&Thread, Option<&Program>)> {
        let thread = self.threads.get(key)?;
        Some((thread, self.programs.get(&thread.program)))
    }

    /// What a model says of a factor of a thread.
    fn heard(&self, key: ThreadKey, which: usize, c: usize) -> Option<Estimate> {
        let c = CoreTypeId(c as u8); // below MAX_CORE_TYPES
        let of = match which {
            0 => MetricId::SpeedupFactor(c),
            _ => MetricId::EfficiencyFactor(c),
        };
        Some(self.model.as_ref()?.heard(key, of)?.1)
    }

    /// What is known of a thread that was counted: its speedup (0) or efficiency factor (1) of core type `c`.
    fn present(&self, key: ThreadKey, which: usize, c: usize) -> Option<Said> {
        let (thread, program) = self.thread(key)?;
        let word = *thread.told.get(c)?;
        let factor = thread.follower.as_ref()?.factor(c, self.slowest());
        let rests_on_it =
            word.is_some() && !program.is_some_and(|p| p.is_measured() || p.is_expected(c));
        let most = if rests_on_it { TOLD } else { KNOWN };
        let (ln, variance) = factor.filter(|(_, variance)| *variance <= most * most)?;
        let heard = word.and_then(|_| self.heard(key, which, c));
        let by_model = heard.map(|e| (self.now.saturating_sub(e.age), e.quality));
        if which == 0 {
            let measured = program.filter(|p| p.is_measured());
            let measured = measured.map(|p| (p.measured_at(), Quality::Multiplexed));
            let last = by_model
                .into_iter()
                .chain(measured)
                .max_by_key(|(at, _)| *at);
            // what is merely expected is not news: a memory would hear its own word again
            let (at, quality) = last.unwrap_or((self.now, Quality::Stale));
            return Some(Said {
                factor: (ln, variance),
                at,
                quality,
            });
        }
        // EF = SF over a ratio of energies: what is wrong with the model's SF is in its EF
        let ((at, quality), e, word) = (by_model?, heard?, word?);
        let relative = e.uncertainty.unwrap_or(0.0) / e.value;
        (e.value > 0.0).then(|| Said {
            factor: (
                e.value.ln() + ln - word.ln,
                (relative * relative).max(variance),
            ),
            at,
            quality,
        })
    }

    /// What others of its name had, for a thread that was not counted.
    fn recalled(&self, key: ThreadKey, which: usize, c: usize) -> Option<Said> {
        let thread = self.threads.get(key)?;
        if which == 0 && thread.follower.as_ref().is_some_and(|f| f.phase.0 > 0) {
            return None; // it does something that nobody has seen, and what others had is not that
        }
        let name = thread.program;
        let of = |p: &Program, more: f64| {
            let (measured, most) = match which {
                0 => (p.filter(self.slowest(), false).factor(c), TOLD),
                _ => (None, KNOWN),
            };
            let told = || (*p.told.get(which)?.get(c)?).filter(|(_, v)| *v <= most * most);
            let (ln, variance) = measured.filter(|f| known(*f)).or_else(told)?;
            let factor = (ln, variance + more);
            known(factor).then_some(Said {
                factor,
                at: p.measured_at(),
                quality: Quality::Stale,
            })
        };
        let own = self.programs.get(&name).and_then(|p| of(p, 0.0));
        own.or_else(|| of(self.programs.kin(&name)?, KIN * KIN))
    }

    /// How far a thread's program was tried on another core type.
    pub(super) fn trial(&self, key: ThreadKey) -> Option<Trial> {
        let (thread, program) = self.thread(key)?;
        let program = program?;
        let follower = thread.follower.as_ref();
        let lately = |t: &Trying| t.by != key && self.now.saturating_sub(t.at) < TRIAL;
        let by_another = program.trying.filter(lately);
        Some(Trial {
            tried: program.tried || program.tried_before.contains(&true),
            tried_early: program.tried_early,
            units: follower.map_or(0.0, |f| f.units),
            here: follower.and_then(|f| f.here()),
            by_another: by_another.is_some_and(|t| t.begun),
            by_another_early: by_another.is_some(),
        })
    }

    /// Whether a model says enough of a thread.
    fn is_told(&self, key: ThreadKey) -> bool {
        let told = |t: &Thread| t.told.iter().any(Option::is_some);
        self.threads.get(key).is_some_and(told)
            && (0..self.slowest()).all(|c| self.present(key, 0, c).is_some())
    }

    /// Whether a thread needs another window where it is before it can be compared, and its program was
    /// not yet.
    fn arrives(&self, key: ThreadKey) -> bool {
        let Some((thread, Some(program))) = self.thread(key) else {
            return false;
        };
        let here = thread.follower.as_ref().and_then(|f| f.here());
        let enough = here.is_none_or(|(_, units)| units >= ENOUGH);
        // its counters are not read at every look
        let read = |at| self.now.saturating_sub(at) < LATELY;
        thread.read.is_some_and(read) && program.moves == 0 && !enough && !self.is_told(key)
    }
}

/// How far a thread's program was tried on another core type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trial {
    /// Whether a thread of it moved to and fro in a phase after it had begun, in this run of the scheduler or in an earlier one
    /// that is remembered.
    pub tried: bool,
    /// Whether one did in this run of the scheduler from 0.4 s of its CPU time on.
    pub tried_early: bool,
    /// CPU time of the thread that was counted, in units of 100 ms.
    pub units: f64,
    /// The core type where it was last, and the same since it came there.
    pub here: Option<(usize, f64)>,
    /// Whether another thread of it has moved once lately, and may be about to come back.
    pub by_another: bool,
    /// The same from 0.4 s of its CPU time on.
    pub by_another_early: bool,
}

/// A factor, with what it is worth.
#[derive(Clone, Copy, Debug)]
struct Said {
    factor: Factor,
    at: Nanos,
    quality: Quality,
}

/// Whether a factor is worth being told without a model.
fn known((_, variance): Factor) -> bool {
    variance <= KNOWN * KNOWN
}

impl Provider for Fused {
    fn name(&self) -> &str {
        &self.name
    }

    /// Those of the model; without one, instructions and cycles. A ratio needs two core types: where there is no model, it is an
    /// error if one has no PMU, and with one, if all have none.
    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        self.core_types = pmus.core_types().count().min(MAX_CORE_TYPES);
        let mut sets = EventSets::default();
        let mut without = None;
        for t in pmus.core_types().take(MAX_CORE_TYPES) {
            let wanted = match &self.model {
                Some(model) => model.sets_of(pmus, t),
                None => instructions_and_cycles(pmus, t).map(|set| vec![set]),
            };
            match wanted {
                Ok(wanted) => {
                    self.counted[t.index()] = !wanted.is_empty();
                    for set in wanted {
                        sets.push(t, set);
                    }
                }
                Err(e @ EventError::NoPmu { .. }) => without = Some(e),
                Err(e) => return Err(e),
            }
        }
        match without {
            Some(e) if sets.is_empty() || self.model.is_none() => Err(e),
            _ => Ok(sets),
        }
    }

    fn active_set(&self, t: CoreTypeId) -> usize {
        self.model.as_ref().map_or(0, |m| m.active_set(t))
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        let interval = snapshot.now.saturating_sub(self.now);
        self.now = snapshot.now;
        if let Some(model) = &mut self.model {
            model.observe(snapshot);
        }
        self.threads.keep(snapshot, |_| Thread::default());
        for t in &snapshot.threads {
            let Some(thread) = self.threads.get_mut(t.key) else {
                continue;
            };
            // an exec makes it another program
            if thread.program != t.program() {
                *thread = Thread {
                    program: t.program(),
                    since: snapshot.now,
                    ..Thread::default()
                };
            }
        }
        self.learn_costs(snapshot, interval);
        for r in &snapshot.readings {
            self.take_in(r);
        }
        for t in &snapshot.threads {
            self.remember(t.key);
        }
        self.arriving = snapshot.threads.iter().any(|t| self.arrives(t.key));
        self.programs.make_room();
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let (which, c) = match metric {
            MetricId::SpeedupFactor(c) => (0, c.index()),
            MetricId::EfficiencyFactor(c) => (1, c.index()),
            MetricId::Ipc(_) => return self.model.as_ref()?.estimate(thread, metric),
        };
        if c >= self.slowest() {
            return None;
        }
        let present = self.present(thread, which, c);
        let said = present.or_else(|| self.recalled(thread, which, c))?;
        let (ln, variance) = said.factor;
        let age = self.now.saturating_sub(said.at);
        let (value, uncertainty) = (ln.exp(), ln.exp() * variance.sqrt());
        (value.is_finite() && uncertainty.is_finite()).then_some(Estimate {
            value,
            uncertainty: Some(uncertainty),
            age,
            quality: match said.quality < Quality::Partial && age > STALE {
                true => Quality::Stale,
                false => said.quality,
            },
        })
    }

    fn expect(&mut self, thread: ThreadKey, metric: MetricId, remembered: Option<Estimate>) {
        let (slowest, now) = (self.slowest(), self.now);
        let MetricId::SpeedupFactor(c) = metric else {
            return;
        };
        let Some(thread) = self.threads.get_mut(thread).filter(|_| c.index() < slowest) else {
            return;
        };
        let program = self.programs.meet(thread.program, now);
        if program.expect(c.index(), remembered) {
            if let Some(follower) = thread.follower.as_mut().filter(|f| !f.was_compared()) {
                follower.unlearn(program, slowest);
            }
        }
    }

    fn expect_shown(&mut self, thread: ThreadKey, of: CoreTypeId, remembered: Option<Estimate>) {
        self.expect(thread, MetricId::SpeedupFactor(of), remembered);
        let name = self.threads.get(thread).map(|t| t.program);
        if let Some(program) = name.and_then(|name| self.programs.get_mut(&name)) {
            if let Some(tried) = program.tried_before.get_mut(of.index()) {
                *tried = remembered.is_some();
            }
        }
    }

    /// By rates, with a model, too: its own phases are those of one core type.
    fn phase(&self, thread: ThreadKey) -> Option<Phase> {
        let thread = self.threads.get(thread)?;
        let first = (0, thread.since);
        let (number, since) = thread.follower.as_ref().map_or(first, |f| f.phase);
        Some(Phase {
            number,
            age: self.now.saturating_sub(since),
        })
    }

    /// As the model needs it, and while a thread of a program that was not on two core types yet has not run long enough where
    /// it is, unless the model says enough.
    fn unsettled(&self) -> bool {
        self.arriving || self.model.as_ref().is_some_and(Model::unsettled)
    }

    fn costs(&self) -> &[Cost] {
        self.neighbours.costs()
    }

    fn program(&self, thread: ThreadKey) -> Option<ProgramId> {
        self.neighbours.program(&self.threads.get(thread)?.program)
    }

    fn program_name(&self, program: ProgramId) -> Option<[u8; 16]> {
        self.neighbours.name(program).map(|n| n.comm)
    }

    fn suspects(&self, thread: ThreadKey) -> bool {
        self.neighbours.suspects(thread)
    }

    fn slowed(&self, thread: ThreadKey) -> f64 {
        let on = self.threads.get(thread).and_then(|t| {
            let (on, _) = t.follower.as_ref()?.here()?;
            Some((t.program, on))
        });
        let paid = on.map_or(0.0, |(name, t)| {
            self.neighbours.paid(&name, CoreTypeId(t as u8)) // below MAX_CORE_TYPES
        });
        (-paid).exp()
    }

    fn caveats(&self, thread: ThreadKey) -> Caveats {
        let model = self.model.as_ref().map(|m| m.caveats(thread));
        model.unwrap_or_default()
    }

    /// The slowest core type for a thread on another one, the fastest for one on the slowest, as
    /// long as its factor in this phase is not known well, as long as all that is known of its program comes from a few
    /// moves, or when its neighbours may be better off without it.
    fn wanted_on(&self, key: ThreadKey) -> Option<CoreTypeId> {
        let (thread, program) = self.thread(key)?;
        let follower = thread.follower.as_ref()?;
        let (here, _) = follower.here().filter(|(_, units)| *units >= ENOUGH)?;
        let slowest = self.slowest();
        let (c, want) = match here == slowest {
            true => (0, 0),
            false => (here, slowest),
        };
        if !self.counted[want] {
            return None;
        }
        let (_, variance) = follower.factor(c, slowest)?;
        let few = program.is_none_or(|p| {
            let trusted = p.steady > 0 || follower.units < SHORT;
            let told = follower.was_told() && trusted;
            p.moves < ENOUGH_MOVES && !told && !p.is_expected(c)
        });
        (few || variance > SURE * SURE || self.neighbours.suspects(key))
            .then_some(CoreTypeId(want as u8))
    }
}
