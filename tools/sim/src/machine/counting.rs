//! Hardware counters: what a provider wants counted, and what that came to for each thread since
//! the last look.
//!
//! The simulated PMUs count two events, instructions and cycles. They count without a gap: where
//! the kernel charges nobody for the first moments of a stretch on each CPU, here every stretch
//! begins at once.

use super::state::{State, Thread};
use super::SimMachine;
use crate::error::SimError;
use amp_metrics::event::{Event, Generic};
use amp_metrics::{CoreTypeId, EventSets, Nanos, Pmus, Reading, MAX_CORE_TYPES, MAX_EVENTS};

/// Events that a simulated PMU counts at once, as many as an ordinary core does.
const COUNTERS: usize = 6;

/// What a simulated PMU can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    Instructions,
    Cycles,
    /// An event of the kernel's side, where a simulated program never is.
    Nothing,
}

impl Counter {
    /// The counter that counts `event`.
    fn of(event: &Event) -> Result<Counter, SimError> {
        let is = |name| {
            Generic::by_name(name).is_some_and(|g| {
                // the upper half is the PMU's number
                (g.type_, g.config) == (event.attr.type_, event.attr.config & u64::from(u32::MAX))
            })
        };
        match (is("instructions"), is("cycles")) {
            (false, false) => Err(SimError::Uncounted {
                event: event.name.clone(),
            }),
            _ if event.attr.exclude_user => Ok(Counter::Nothing),
            (true, _) => Ok(Counter::Instructions),
            (_, true) => Ok(Counter::Cycles),
        }
    }
}

/// A core type that counts.
#[derive(Debug)]
struct Side {
    /// Its event sets, in the provider's order.
    sets: Vec<Vec<Counter>>,
    /// Which one counts.
    active: usize,
    /// Number of the present stretch.
    generation: u32,
}

/// What a thread had done on one core type at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Generation of the slot.
    owner: u32,
    /// CPU time at the last snapshot.
    runtime: Nanos,
    /// CPU time and instructions up to which events are charged.
    counted: Nanos,
    instructions: f64,
}

/// What is counted now.
#[derive(Debug, Default)]
pub(super) struct Counting {
    /// By core type; none while nothing is counted.
    sides: Vec<Side>,
    generation: u32,
    /// Cycles in a microsecond, by core type.
    mhz: [u32; MAX_CORE_TYPES],
    /// Last readings by slot.
    seen: Vec<[Seen; MAX_CORE_TYPES]>,
}

impl Counting {
    /// Nothing, on core types of these frequencies.
    pub fn new(mhz: impl IntoIterator<Item = u32>) -> Counting {
        let mut counting = Counting::default();
        for (to, mhz) in counting.mhz.iter_mut().zip(mhz) {
            *to = mhz;
        }
        counting
    }

    fn change(&mut self, sets: &EventSets, types: usize) -> Result<(), SimError> {
        let of_set = |s: &amp_metrics::EventSet| s.events.iter().map(Counter::of).collect();
        let of_type = |t: usize| {
            Ok(Side {
                sets: sets
                    .of(CoreTypeId(t as u8))
                    .iter()
                    .map(of_set)
                    .collect::<Result<_, SimError>>()?,
                active: 0,
                generation: self.generation + 1,
            })
        };
        self.sides = match sets.is_empty() {
            true => Vec::new(),
            false => (0..types).map(of_type).collect::<Result<_, SimError>>()?,
        };
        self.generation += 1;
        Ok(())
    }

    fn rotate(&mut self, active: &dyn Fn(CoreTypeId) -> usize) {
        for (t, side) in self.sides.iter_mut().enumerate() {
            let wanted = active(CoreTypeId(t as u8));
            if wanted != side.active && wanted < side.sets.len() {
                self.generation += 1;
                (side.active, side.generation) = (wanted, self.generation);
            }
        }
    }

    /// What the thread knows of itself at the last look, made if it is a stranger.
    fn seen(&mut self, slot: u32, generation: u32) -> &mut [Seen; MAX_CORE_TYPES] {
        let slot = slot as usize;
        if self.seen.len() <= slot {
            self.seen.resize(slot + 1, Default::default());
        }
        let seen = &mut self.seen[slot];
        if seen[0].owner != generation {
            *seen = [Seen {
                owner: generation,
                ..Seen::default()
            }; MAX_CORE_TYPES];
        }
        seen
    }

    /// Leaves out what `thread` has done up to now on core types whose stretch began after
    /// generation `before`.
    fn begin(&mut self, before: u32, slot: u32, thread: &Thread) {
        let mut seen = *self.seen(slot, thread.generation);
        for (t, side) in self.sides.iter().enumerate() {
            if side.generation > before {
                seen[t].counted = thread.runtime[t];
                seen[t].instructions = thread.instructions[t];
            }
        }
        *self.seen(slot, thread.generation) = seen;
    }

    /// What has been counted for `thread` since the last call for it: one reading per core type
    /// that it ran on.
    pub fn read(&mut self, slot: u32, thread: &Thread, out: &mut Vec<Reading>) {
        if self.sides.is_empty() {
            return;
        }
        let mhz = self.mhz;
        let mut seen = *self.seen(slot, thread.generation);
        let sides = self.sides.iter().zip(&mut seen).enumerate();
        for (t, (side, seen)) in sides {
            let (runtime, instructions) = (thread.runtime[t], thread.instructions[t]);
            let ran = runtime.saturating_sub(seen.runtime);
            let counted = runtime.saturating_sub(seen.counted);
            let set = side.sets.get(side.active);
            if let Some(set) = set.filter(|_| counted > Nanos::ZERO) {
                let cycles = |at: Nanos| (u128::from(at.0) * u128::from(mhz[t]) / 1000) as u64;
                let mut deltas = [0; MAX_EVENTS];
                for (delta, counter) in deltas.iter_mut().zip(set) {
                    // differences of whole totals: nothing is lost in sum
                    *delta = match counter {
                        Counter::Instructions => instructions as u64 - seen.instructions as u64,
                        Counter::Cycles => cycles(runtime) - cycles(seen.counted),
                        Counter::Nothing => 0,
                    };
                }
                let deltas = &deltas[..set.len().min(MAX_EVENTS)];
                let (set, of) = (side.active as u32, CoreTypeId(t as u8));
                let r = Reading::new(thread.key(slot), of, set, side.generation, deltas);
                out.push(r.over(ran, counted));
            }
            (seen.runtime, seen.counted, seen.instructions) = (runtime, runtime, instructions);
        }
        *self.seen(slot, thread.generation) = seen;
    }
}

impl SimMachine {
    /// The PMUs of this machine: one per core type, which counts instructions and cycles.
    pub fn pmus(&self) -> Pmus {
        let types = self.topology.core_types().iter();
        let cpus: Vec<Vec<u32>> = types.map(|t| t.cpus.clone()).collect();
        Pmus::generic(&cpus, COUNTERS)
    }

    /// Counts these events from now on, instead of those before.
    ///
    /// # Errors
    /// When one of them is neither instructions nor cycles; those before are counted on then.
    pub fn count_events(&mut self, sets: &EventSets) -> Result<(), SimError> {
        let before = self.counting.generation;
        self.counting
            .change(sets, self.topology.core_types().len())?;
        self.begin_stretch(before);
        Ok(())
    }

    /// Counts set `active(t)` of each core type `t` from now on.
    pub(super) fn turn(&mut self, active: &dyn Fn(CoreTypeId) -> usize) {
        let before = self.counting.generation;
        self.counting.rotate(active);
        if self.counting.generation != before {
            self.begin_stretch(before);
        }
    }

    fn begin_stretch(&mut self, before: u32) {
        self.settle_all();
        for (slot, t) in self.threads.iter().enumerate() {
            if t.state != State::Free {
                self.counting.begin(before, slot as u32, t);
            }
        }
    }
}
