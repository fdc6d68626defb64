//! A platform model as the prior, the measured ratio of instruction rates as the posterior.
//!
//! ```text
//! model on the core type the thread is on ─► ln SF_model + bias of the program ─┐
//!                                                     ▲ learned                 ├─► 1/σ² ─► SF ± u
//! instruction rates just before and after a move ─────┴─► ln (rate/rate) ───────┘
//! ```
//!
//! All is done on logarithms, in which uncertainties are relative. What is measured is a *move*:
//! the rate of a thread in its last two windows on one core type and in its first two on another.
//! Means over longer stays are not compared: phases flow into each other, and of two such means
//! nobody knows whether the thread did the same in both. Of each program (command name and arguments) there are
//!
//! - the rates of up to eight phases on all core types: a thread that shows one of these rates has
//!   that phase's factor, on whichever core type it is;
//! - the bias of the model, by the core type that the model measured on: the median of what the last
//!   fifteen moves say, because a move may fall together with a change of phase;
//! - what its threads had on average: for a thread of which nothing was counted yet.
//!
//! **Uncertainty.** A move has the scatter of the windows before it (at least 5 %), twice; the first
//! window after it has cold caches and a quarter of the weight. What is inferred for another phase is worth
//! [`PHASE`] less, and so is what was compared a minute ago. The model has the error that it
//! states, widened by itself outside of its training data. Nothing tells whether a combination of
//! metrics, each within its range, was in those data; but where the model has been heard from two
//! core types, half of the square of their disagreement is its least variance. A model that is off
//! by more than both uncertainties allow loses weight accordingly, so that a wrong model costs no
//! more than the time until a thread of the program was on both core types.
//!
//! **What is told apart, and what not.** A factor is that of a thread without neighbours, as far as
//! their cost is known (`neighbours`): what a thread paid in a window is added to its rate. A cost that is
//! not known yet is in the rate, and so in the factors of moves until then; they are forgotten once it is
//! known. The model's prediction is made from programs that ran alone, and what neighbours do to its inputs
//! is put right by its bias only. A phase that has the same rate as another one on one core type, but
//! not on the other, is taken for it.
//!
//! Without counters on a core type there is the model alone. Without a model: [`Measured`](super::Measured).

mod program;
mod rates;
#[cfg(test)]
mod tests;

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
use program::Program;
use rates::{Move, Sides};

/// Standard deviation of the logarithm of a program's factor between its phases.
const PHASE: f64 = 0.1;
/// Standard deviation of the logarithm of the factors of programs that have the same command name and other
/// arguments.
const KIN: f64 = 0.3;
/// Standard deviation of the logarithm of what a move shows beside the factor, beyond its scatter:
/// phases that begin with it, neighbours that change. Many moves do not make it less.
const ASIDE: f64 = 0.07;
/// Moves from which on the middle one is worth something: one or two may have fallen together with a
/// change of phase.
const ENOUGH_MOVES: usize = 3;
/// Relative uncertainty at which a program counts as known: nobody need look at it again.
const SURE: f64 = 0.1;
/// Least part of an interval that a window covers, and least CPU time of one.
const LEAST_PART: f64 = 0.1;
const LEAST_TIME: Nanos = Nanos::from_millis(1);
/// Windows after a move in which the model's first word from there is held against it.
const HEARD: u32 = 3;
/// Part of an interval from which on a window is a measure of what is done next to a move.
const WHOLE: f64 = 0.5;
/// Standard deviation of the logarithm of what is left of a model's error once the program's bias
/// is known.
const REST: f64 = 0.02;
/// Weight of windows on a core type from which on a look at another one is worth it: a cold one and
/// another.
const ENOUGH: f64 = 1.25;
/// Age beyond which an estimate is stale.
const STALE: Nanos = Nanos::from_millis(5000);

/// The logarithm of a factor, with what it is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    ln: f64,
    /// Squared standard uncertainty of the logarithm.
    variance: f64,
    age: Nanos,
    quality: Quality,
}

impl Said {
    /// Put right by what was measured, as far as the two contradict each other. What is contradicted
    /// by nothing stays, and is surer than before.
    fn and(self, measured: Said) -> Said {
        let d = measured.ln - self.ln;
        let theirs = measured.variance + ASIDE * ASIDE;
        let k = correction(self.variance, d, theirs);
        let heavier = if k < 0.5 { self } else { measured };
        Said {
            ln: self.ln + k * d,
            variance: blend(self.variance, k, theirs),
            ..heavier
        }
    }

    /// The same of another program that has the same command name.
    fn of_kin(self) -> Said {
        Said {
            variance: self.variance + KIN * KIN,
            ..self
        }
    }

    fn estimate(self) -> Option<Estimate> {
        let value = self.ln.exp();
        let uncertainty = value * self.variance.sqrt();
        (value.is_finite() && uncertainty.is_finite()).then(|| Estimate {
            value,
            uncertainty: Some(uncertainty),
            age: self.age,
            quality: if self.age > STALE && self.quality < Quality::Partial {
                Quality::Stale
            } else {
                self.quality
            },
        })
    }
}

/// By which part of `d`, its distance from a measurement of variance `theirs`, a prior of variance
/// `own` is put right: not at all as long as the measurement's own uncertainty explains the distance
/// and the prior is no less sure than that, nearly all of it where they are far apart.
///
/// Means by inverse variances would take in every measurement, and two programs of like factors
/// would change places with each.
fn correction(own: f64, d: f64, theirs: f64) -> f64 {
    let excess = (own - theirs).max(d * d - theirs).max(0.0);
    excess / (excess + theirs)
}

/// The variance of a prior that was put right by the part `k`.
fn blend(own: f64, k: f64, theirs: f64) -> f64 {
    let agreed = own * theirs / (own + theirs);
    (1.0 - k) * agreed + k * theirs
}

/// What the model said last from one core type.
#[derive(Clone, Copy, Debug)]
struct Told {
    on: usize,
    ln: f64,
    variance: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    program: ProgramName,
    sides: Sides,
    /// By core type of the factor: from where the model was heard last, and before that from
    /// another core type.
    told: [[Option<Told>; 2]; MAX_CORE_TYPES],
    /// Its last move, until the model has been heard from where it went, for so many windows.
    unheard: Option<(Move, u32)>,
    ran: bool,
}

/// The provider.
pub struct Fused {
    name: String,
    model: Model,
    core_types: usize,
    /// Whether the core type has counters.
    counted: [bool; MAX_CORE_TYPES],
    threads: Threads<Thread>,
    programs: Programs<Program>,
    neighbours: Neighbours,
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
        Fused {
            name: format!("fused({})", model.name()),
            model,
            core_types: 0,
            counted: [false; MAX_CORE_TYPES],
            threads: Threads::default(),
            programs: Programs::default(),
            neighbours: Neighbours::default(),
            now: Nanos::ZERO,
        }
    }

    fn slowest(&self) -> usize {
        self.core_types.saturating_sub(1)
    }

    /// A window: every event set begins with instructions.
    fn take_in(&mut self, r: &Reading, interval: Nanos) {
        let t = r.core_type.index();
        let (Some(thread), [instructions, ..]) = (self.threads.get_mut(r.thread), r.deltas())
        else {
            return;
        };
        let least = LEAST_TIME.0.max((interval.0 as f64 * LEAST_PART) as u64);
        if t >= self.core_types || *instructions == 0 || r.counted.0 < least {
            return;
        }
        let (instructions, time) = (*instructions as f64, r.counted.0 as f64);
        let whole = time >= interval.0 as f64 * WHOLE;
        thread.ran = true;
        // as if alone: neighbours come and go, and are accounted for by themselves
        let ln = (instructions / time).ln() + self.neighbours.paid(&thread.program, r.core_type);
        thread.sides.take_in(t, ln, whole, self.now);
        let program = self.programs.meet(thread.program, self.now);
        program.window(t, instructions, time, self.now);
    }

    /// Notes what the model says of a thread that ran, compares, and learns.
    fn learn(&mut self, key: ThreadKey) {
        let (slowest, now) = (self.slowest(), self.now);
        let Some(thread) = self.threads.get_mut(key).filter(|t| t.ran) else {
            return;
        };
        let Some(program) = self.programs.get_mut(&thread.program) else {
            return;
        };
        let mut moved = thread.sides.take_move();
        if let Some(m) = &mut moved {
            let doubt = m.between().map(|t| self.neighbours.doubt(key, t));
            m.doubt = doubt[0] + doubt[1];
        }
        if let Some(m) = moved {
            program.compare(&m, slowest, now);
            thread.unheard = Some((m, HEARD));
        }
        let gone = thread.unheard.take();
        for c in 0..slowest {
            let of = MetricId::SpeedupFactor(CoreTypeId(c as u8));
            let said = self
                .model
                .heard(key, of)
                .filter(|(_, e)| e.value > 0.0 && e.quality < Quality::Partial);
            if let Some((on, e)) = said {
                let relative = e.uncertainty.unwrap_or(0.0) / e.value;
                let new = Told {
                    on: on.index(),
                    ln: e.value.ln(),
                    variance: (relative * relative).max(1e-6),
                };
                let [last, other] = &mut thread.told[c];
                if last.is_some_and(|l| l.on != new.on) {
                    *other = *last;
                }
                *last = Some(new);
            }
            let known = gone.and_then(|(m, left)| Some((m, left, m.ratio(c, slowest)?)));
            let Some((m, left, (ratio, variance))) = known else {
                continue;
            };
            let [from, to] = m.between();
            let [last, other] = thread.told[c];
            let there = last.filter(|l| l.on == to);
            // before the move it was heard from there; what it said from there earlier was of
            // another phase
            let here = if there.is_some() { other } else { last };
            if let Some(h) = here.filter(|h| h.on == from && moved.is_some()) {
                program.off((c, from), ratio - h.ln, variance, now);
            }
            match there {
                Some(t) => program.off((c, to), ratio - t.ln, variance, now),
                None if left > 0 && thread.sides.last == Some(to) => {
                    thread.unheard = Some((m, left - 1));
                }
                None => {}
            }
        }
        let mut known = false;
        for which in 0..2 {
            for c in 0..slowest {
                if let Some(ln) = self.present(key, which, c).map(|s| s.ln) {
                    if let Some(p) = self.name(key).and_then(|n| self.programs.get_mut(&n)) {
                        p.remember(which, c, ln, now);
                        known = true;
                    }
                }
            }
        }
        if let Some(name) = self.name(key).filter(|_| known) {
            self.programs.is_latest(name);
        }
    }

    /// Learns what neighbours cost. What was measured of a program before is forgotten once that is
    /// known: it was measured beside them.
    fn learn_costs(&mut self, snapshot: &Snapshot, interval: Nanos) {
        for name in self.neighbours.observe(snapshot, interval) {
            if let Some(p) = self.programs.get_mut(&name) {
                p.unlearn();
            }
        }
    }

    fn name(&self, key: ThreadKey) -> Option<ProgramName> {
        self.threads.get(key).map(|t| t.program)
    }

    /// What the model says, with the program's bias; and whether that is known.
    fn prior(&self, key: ThreadKey, thread: &Thread, p: Option<&Program>, c: usize) -> Prior {
        let [last, other] = *thread.told.get(c)?;
        let last = last?;
        let of = MetricId::SpeedupFactor(CoreTypeId(c as u8));
        let (age, quality) = match self.model.heard(key, of) {
            Some((_, e)) => (e.age, e.quality),
            None => (Nanos::ZERO, Quality::Stale),
        };
        let apart = other.map_or(0.0, |o| (o.ln - last.ln).powi(2) / 2.0);
        let own = last.variance.max(apart);
        let mut said = Said {
            ln: last.ln,
            variance: own,
            age,
            quality,
        };
        let bias = p.and_then(|p| p.bias((c, last.on)));
        if let Some((bias, variance)) = bias {
            let theirs = variance + ASIDE * ASIDE;
            let k = correction(own, bias, theirs);
            said.ln += k * bias;
            said.variance = blend(own, k, theirs) + REST * REST;
        }
        Some((said, bias.is_some()))
    }

    /// What is known of a thread that was counted: the logarithm of its speedup (0) or efficiency
    /// factor (1).
    fn present(&self, key: ThreadKey, which: usize, c: usize) -> Option<Said> {
        let thread = self.threads.get(key)?;
        let program = self.programs.get(&thread.program);
        let prior = self.prior(key, thread, program, c);
        let measured = program
            .filter(|_| thread.sides.here().is_some())
            .and_then(|p| p.measured(&thread.sides, c, self.slowest(), self.now));
        let speedup = match (prior, measured) {
            (Some((p, _)), Some(m)) => p.and(m),
            (Some((p, _)), None) => p,
            (None, m) => m?,
        };
        if which == 0 {
            return Some(speedup);
        }
        // EF = SF over a ratio of energies: what is wrong with the model's SF is in its EF
        let of = MetricId::EfficiencyFactor(CoreTypeId(c as u8));
        let (_, e) = self.model.heard(key, of)?;
        let told = thread.told.get(c)?[0]?;
        let relative = e.uncertainty.unwrap_or(0.0) / e.value;
        (e.value > 0.0).then(|| Said {
            ln: e.value.ln() + speedup.ln - told.ln,
            variance: (relative * relative).max(speedup.variance),
            age: e.age,
            quality: e.quality,
        })
    }
}

/// What the model says, and whether its bias is known.
type Prior = Option<(Said, bool)>;

impl Provider for Fused {
    fn name(&self) -> &str {
        &self.name
    }

    /// Those of the model; none on a core type without a PMU as long as another has one.
    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        self.core_types = pmus.core_types().count().min(MAX_CORE_TYPES);
        let mut sets = EventSets::default();
        let mut without = None;
        for t in pmus.core_types().take(MAX_CORE_TYPES) {
            match self.model.sets_of(pmus, t) {
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
            Some(e) if sets.is_empty() => Err(e),
            _ => Ok(sets),
        }
    }

    fn active_set(&self, t: CoreTypeId) -> usize {
        self.model.active_set(t)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        let interval = snapshot.now.saturating_sub(self.now);
        self.now = snapshot.now;
        self.model.observe(snapshot);
        self.threads.keep(snapshot, Thread::default);
        for t in &snapshot.threads {
            let Some(thread) = self.threads.get_mut(t.key) else {
                continue;
            };
            thread.ran = false;
            // an exec makes it another program
            if thread.program != t.program() {
                *thread = Thread {
                    program: t.program(),
                    ..Thread::default()
                };
                thread.sides.since = snapshot.now;
            }
        }
        self.learn_costs(snapshot, interval);
        for r in &snapshot.readings {
            self.take_in(r, interval);
        }
        for t in &snapshot.threads {
            self.learn(t.key);
        }
        self.programs.make_room();
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let (which, c) = match metric {
            MetricId::SpeedupFactor(c) => (0, c.index()),
            MetricId::EfficiencyFactor(c) => (1, c.index()),
            MetricId::Ipc(_) => return self.model.estimate(thread, metric),
        };
        if c >= self.slowest() {
            return None;
        }
        let recalled = || {
            let name = self.name(thread)?;
            let recall = |p: &Program| p.recall(which, c, self.now);
            // one of the same name, until it has been counted
            let own = self.programs.get(&name).and_then(recall);
            own.or_else(|| recall(self.programs.kin(&name)?).map(Said::of_kin))
        };
        self.present(thread, which, c).or_else(recalled)?.estimate()
    }

    fn phase(&self, thread: ThreadKey) -> Option<Phase> {
        self.model.phase(thread)
    }

    fn unsettled(&self) -> bool {
        self.model.unsettled()
    }

    fn costs(&self) -> &[Cost] {
        self.neighbours.costs()
    }

    fn program(&self, thread: ThreadKey) -> Option<ProgramId> {
        self.neighbours.program(&self.name(thread)?)
    }

    fn program_name(&self, program: ProgramId) -> Option<[u8; 16]> {
        self.neighbours.name(program).map(|n| n.comm)
    }

    fn suspects(&self, thread: ThreadKey) -> bool {
        self.neighbours.suspects(thread)
    }

    fn slowed(&self, thread: ThreadKey) -> f64 {
        let on = self
            .threads
            .get(thread)
            .and_then(|t| Some((t.program, t.sides.last?)));
        let paid = on.map_or(0.0, |(name, t)| {
            self.neighbours.paid(&name, CoreTypeId(t as u8)) // below MAX_CORE_TYPES
        });
        (-paid).exp()
    }

    fn caveats(&self, thread: ThreadKey) -> Caveats {
        self.model.caveats(thread)
    }

    /// The slowest core type for a thread on another one, the fastest for one on the slowest, as
    /// long as its program's factor was never compared in this phase and the model is not known to
    /// be right about the program, as long as all that is known comes from a few moves, or when its
    /// neighbours may be better off without it.
    fn wanted_on(&self, key: ThreadKey) -> Option<CoreTypeId> {
        let t = self.threads.get(key)?;
        let (here, _) = t.sides.here().filter(|(_, r)| r.weight >= ENOUGH)?;
        let slowest = self.slowest();
        let (c, want) = match here == slowest {
            true => (0, 0),
            false => (here, slowest),
        };
        if c == slowest || !self.counted[want] {
            return None;
        }
        let program = self.programs.get(&t.program)?;
        let measured = program.measured(&t.sides, c, slowest, self.now);
        let sure = |s: Said| s.variance <= SURE * SURE;
        let corrected = self
            .prior(key, t, Some(program), c)
            .filter(|(_, known)| *known);
        let fused = corrected.map(|(p, _)| measured.map_or(p, |m| p.and(m)));
        let known = measured.is_some_and(sure) || fused.is_some_and(sure);
        let few = (1..ENOUGH_MOVES).contains(&program.moves(c));
        (!known || few || self.neighbours.suspects(key)).then_some(CoreTypeId(want as u8))
    }
}
