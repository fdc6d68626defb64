//! Speedup factors from instruction rates alone: no model, no training.
//!
//! ```text
//! windows (instructions, CPU time) ─► as if alone (`neighbours`) ─► a Kalman filter per thread ─► SF ± u
//!                                                                     ▲          │
//!                                   noise, phases and their factors ──┴─ program ◄
//! ```
//!
//! A thread's factor shows when it comes to another core type: by how much its rate changes. But rates change by
//! themselves, too. So what a program did just before and just after a move is weighed against its means over longer
//! stays, by how much its rates were seen to vary from window to window, and how long such departures last
//! ([`filter`], [`noise`]). A rate that leaves for good is another phase. Of each program (command name and arguments) there
//! are the factors of up to eight phases, told apart by their rates ([`program`]): a thread that shows one of these
//! rates has that phase's factor.
//!
//! **Uncertainty** is the filter's own. Each move has the variance of what may change together with it, so that one
//! alone is worth about 10 %.
//!
//! What an earlier run of the scheduler remembers is what a program is expected to be like until then.
//!
//! **What is not known.** There is no factor until a program was on two core types. A phase that has the same rate as
//! another one on one core type, but not on the other, is taken for it. A change of phase together with a move is taken for
//! the move's, until the next moves contradict it. What is expected from a memory is told like what was measured as soon as
//! the thread was counted, so a memory hears its own word again; and forgetting it does not take it back here.

mod filter;
mod follower;
mod noise;
mod program;
#[cfg(test)]
mod tests;

use super::ipc_sampling::instructions_and_cycles;
use super::neighbours::Neighbours;
use super::programs::Programs;
use super::threads::Threads;
use crate::contention::{Cost, ProgramId};
use crate::estimate::{Estimate, Quality};
use crate::event::{EventError, EventSets};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::pmu::Pmus;
use crate::provider::{MetricId, Phase, Provider};
use crate::sample::{ProgramName, Reading, Snapshot};
use filter::Factor;
use follower::{Follower, Window};
use program::Program;

/// Standard deviation of the logarithm of a program's factor between its phases.
const PHASE: f64 = 0.1;
/// Standard deviation of the logarithm of the factors of programs that have the same command name and other
/// arguments.
const KIN: f64 = 0.3;
/// Standard deviation up to which there is an estimate: less than that of programs in general.
const KNOWN: f64 = 0.4;
/// Relative uncertainty at which a program counts as known: nobody need look at it again.
const SURE: f64 = 0.1;
/// Moves from which on that is believed: one or two may have fallen together with a change of phase.
const ENOUGH_MOVES: u32 = 3;
/// Units of time (100 ms) on a core type after which a look at another one is worth it.
const ENOUGH: f64 = 0.6;
/// Least CPU time of a window.
const LEAST_TIME: Nanos = Nanos::from_millis(1);
/// Age beyond which an estimate is stale.
const STALE: Nanos = Nanos::from_millis(5000);

#[derive(Clone, Debug, Default)]
struct Thread {
    program: ProgramName,
    /// When it began the program.
    since: Nanos,
    /// From its first window on.
    follower: Option<Box<Follower>>,
    ran: bool,
}

/// The provider.
pub struct Measured {
    name: String,
    core_types: usize,
    threads: Threads<Thread>,
    programs: Programs<Program>,
    neighbours: Neighbours,
    /// Whether a thread of a program that was not on two core types yet needs another window where it is.
    arriving: bool,
    now: Nanos,
}

impl std::fmt::Debug for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Measured")
            .field("programs", &self.programs.len())
            .finish_non_exhaustive()
    }
}

impl Measured {
    /// The provider, under this name.
    pub fn new(name: &str) -> Measured {
        Measured {
            name: name.to_owned(),
            core_types: 0,
            threads: Threads::default(),
            programs: Programs::default(),
            neighbours: Neighbours::default(),
            arriving: false,
            now: Nanos::ZERO,
        }
    }

    fn slowest(&self) -> usize {
        self.core_types.saturating_sub(1)
    }

    /// A window: every event set begins with instructions.
    fn take_in(&mut self, r: &Reading) {
        let (on, slowest, at) = (r.core_type.index(), self.slowest(), self.now);
        let (Some(thread), [instructions, ..]) = (self.threads.get_mut(r.thread), r.deltas())
        else {
            return;
        };
        if on > slowest || *instructions == 0 || r.counted < LEAST_TIME {
            return;
        }
        let (instructions, time) = (*instructions as f64, r.counted.0 as f64);
        thread.ran = true;
        let w = Window {
            on,
            // neighbours come and go, and are accounted for by themselves
            ln: (instructions / time).ln() + self.neighbours.paid(&thread.program, r.core_type),
            time,
            doubt: self.neighbours.doubt(r.thread, on),
            at,
        };
        let program = self.programs.meet(thread.program, at);
        let since = thread.since;
        let new = || Box::new(Follower::new(program, slowest, since));
        let follower = thread.follower.get_or_insert_with(new);
        follower.take_in(&w, r.thread, program);
        if (0..slowest).any(|c| follower.factor(c, slowest).is_some_and(known)) {
            self.programs.is_latest(thread.program);
        }
    }

    /// Learns what neighbours cost. What was measured of a program before is forgotten once that is
    /// known: it was measured beside them.
    fn learn_costs(&mut self, snapshot: &Snapshot, interval: Nanos) {
        let slowest = self.slowest();
        let turned = self.neighbours.observe(snapshot, interval);
        for name in turned {
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

    fn thread(&self, key: ThreadKey) -> Option<(&Thread, Option<&Program>)> {
        let thread = self.threads.get(key)?;
        Some((thread, self.programs.get(&thread.program)))
    }

    /// The factor of core type `c`, and whether the thread was counted; otherwise it is what others of its name had.
    fn factor(&self, key: ThreadKey, c: usize) -> Option<(Factor, bool, Nanos)> {
        let (thread, program) = self.thread(key)?;
        let present = thread
            .follower
            .as_ref()
            .and_then(|f| f.factor(c, self.slowest()));
        if let (Some(factor), Some(program)) = (present.filter(|f| known(*f)), program) {
            return Some((factor, true, program.measured_at()));
        }
        let of = |p: &Program, more: f64| {
            let (ln, variance) = p.filter(self.slowest()).factor(c)?;
            let factor = (ln, variance + more);
            known(factor).then_some((factor, false, p.measured_at()))
        };
        let kin = || of(self.programs.kin(&thread.program)?, KIN * KIN);
        program.and_then(|p| of(p, 0.0)).or_else(kin)
    }

    /// Whether a thread needs another window where it is before it can be compared, and its program was
    /// not yet.
    fn arrives(&self, key: ThreadKey) -> bool {
        let Some((thread, Some(program))) = self.thread(key) else {
            return false;
        };
        let here = thread.follower.as_ref().and_then(|f| f.here());
        thread.ran && program.moves == 0 && here.is_some_and(|(_, units)| units < ENOUGH)
    }
}

/// Whether a factor is worth being told.
fn known((_, variance): Factor) -> bool {
    variance <= KNOWN * KNOWN
}

impl Provider for Measured {
    fn name(&self) -> &str {
        &self.name
    }

    /// Instructions and cycles. A ratio needs two core types: it is an error if one has no PMU.
    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        self.core_types = pmus.core_types().count().min(MAX_CORE_TYPES);
        let mut sets = EventSets::default();
        for t in pmus.core_types().take(MAX_CORE_TYPES) {
            sets.push(t, instructions_and_cycles(pmus, t)?);
        }
        Ok(sets)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        let interval = snapshot.now.saturating_sub(self.now);
        self.now = snapshot.now;
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
                    since: snapshot.now,
                    ..Thread::default()
                };
            }
        }
        self.learn_costs(snapshot, interval);
        for r in &snapshot.readings {
            self.take_in(r);
        }
        self.arriving = snapshot.threads.iter().any(|t| self.arrives(t.key));
        self.programs.make_room();
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let MetricId::SpeedupFactor(c) = metric else {
            return None;
        };
        let c = c.index();
        if c >= self.slowest() {
            return None;
        }
        let ((ln, variance), measured, at) = self.factor(thread, c)?;
        let age = self.now.saturating_sub(at);
        let (value, uncertainty) = (ln.exp(), ln.exp() * variance.sqrt());
        (value.is_finite() && uncertainty.is_finite()).then_some(Estimate {
            value,
            uncertainty: Some(uncertainty),
            age,
            quality: match measured && age <= STALE {
                true => Quality::Multiplexed,
                false => Quality::Stale,
            },
        })
    }

    fn expect(&mut self, thread: ThreadKey, metric: MetricId, remembered: Estimate) {
        let (slowest, now) = (self.slowest(), self.now);
        let MetricId::SpeedupFactor(c) = metric else {
            return;
        };
        let Some(thread) = self.threads.get_mut(thread).filter(|_| c.index() < slowest) else {
            return;
        };
        let program = self.programs.meet(thread.program, now);
        if program.expect(c.index(), &remembered) {
            if let Some(follower) = thread.follower.as_mut().filter(|f| !f.was_compared()) {
                follower.unlearn(program, slowest);
            }
        }
    }

    fn phase(&self, thread: ThreadKey) -> Option<Phase> {
        let thread = self.threads.get(thread)?;
        let first = (0, thread.since);
        let (number, since) = thread.follower.as_ref().map_or(first, |f| f.phase);
        Some(Phase {
            number,
            age: self.now.saturating_sub(since),
        })
    }

    /// While a thread of a program that was not on two core types yet has not run long enough where it is.
    fn unsettled(&self) -> bool {
        self.arriving
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
        let (_, variance) = follower.factor(c, slowest)?;
        let few = program.is_none_or(|p| p.moves < ENOUGH_MOVES && !p.is_expected(c));
        (few || variance > SURE * SURE || self.neighbours.suspects(key))
            .then_some(CoreTypeId(want as u8))
    }
}
