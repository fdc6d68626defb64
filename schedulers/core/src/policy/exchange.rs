//! Threads change places where that makes the sum of their speeds grow, on three core types and
//! more.
//!
//! [`Seats`] hands out the fastest type first, to those who gain most on it. On two core types that
//! is the placement of the largest sum. On more it need not be: who gains most on the fastest type
//! may do nearly as well on the next one, and another thread may not. [`Exchange::improve`] starts
//! from what [`Seats`] found and moves threads round cycles of types, one thread from each type to
//! the next, as long as a cycle adds to the sum. Without such a cycle no placement with as many
//! threads on each type has a larger sum (cycle cancelling for minimum-cost flows).

use crate::policy::seats::Seats;
use crate::view::View;
use amp_metrics::{CoreTypeId, MAX_CORE_TYPES};

/// Threads in a view beyond which nobody is moved: it would take too long.
const MOST_THREADS: usize = 256;
/// What a cycle must add to the sum, in speeds of the slowest core type.
const LEAST: f64 = 1e-6;

/// The speed of a thread on a core type; `None` where it is not known, or may not run.
type Value<'a> = dyn Fn(usize, CoreTypeId) -> Option<f64> + 'a;
/// By type and target: what the best move adds to the sum, and whose it is.
type Moves = [[Option<(f64, usize)>; MAX_CORE_TYPES]; MAX_CORE_TYPES];
/// By type: where the thread goes that leaves it, and which one.
type Cycle = [Option<(CoreTypeId, usize)>; MAX_CORE_TYPES];

/// Looks for changes of places. Keeps its buffers from decision to decision.
#[derive(Debug, Default)]
pub struct Exchange {
    to: Vec<Option<CoreTypeId>>,
    weights: Vec<u32>,
}

impl Exchange {
    /// Changes `seats` to a placement with as many threads on each type and the largest sum of
    /// `value`, by the thread's index in the view; a thread without a value stays where it is. Where
    /// threads share CPUs, only those of equal weight change places.
    pub fn improve(&mut self, view: &View<'_>, seats: &mut Seats, value: &Value<'_>) {
        let types = view.topology.core_types().len();
        if types < 3 || view.threads.len() > MOST_THREADS {
            return;
        }
        self.to.clear();
        self.to.extend((0..view.threads.len()).map(|i| seats.of(i)));
        let may = |i: usize, t: CoreTypeId| view.threads[i].allowed.contains(t);
        let cpus: usize = view.core_types().map(|t| view.nr_seats(t)).sum();
        if view.threads.len() <= cpus {
            let value = |i: usize, t: CoreTypeId| value(i, t).filter(|_| may(i, t));
            improve(&mut self.to, types, &value);
        } else {
            self.weights.clear();
            self.weights.extend(view.threads.iter().map(|th| th.weight));
            self.weights.sort_unstable();
            self.weights.dedup();
            for &weight in &self.weights {
                let alike = |i: usize| view.threads[i].weight == weight;
                let value = |i: usize, t: CoreTypeId| {
                    let here = alike(i) && may(i, t);
                    value(i, t).filter(|_| here)
                };
                improve(&mut self.to, types, &value);
            }
        }
        for (i, to) in self.to.iter().enumerate() {
            seats.put(i, *to);
        }
    }
}

/// Changes the core types `to` of threads so that the sum of `value` is the largest of all
/// placements on `types` core types with as many threads on each.
pub fn improve(to: &mut [Option<CoreTypeId>], types: usize, value: &Value<'_>) {
    // each cycle adds to the sum; rounding must not make an endless loop of that
    for _ in 0..to.len() {
        let Some(cycle) = cycle(&moves(to, types, value), types) else {
            return;
        };
        for (target, thread) in cycle.into_iter().flatten() {
            to[thread] = Some(target);
        }
    }
}

/// The best move from each type to each other one.
fn moves(to: &[Option<CoreTypeId>], types: usize, value: &Value<'_>) -> Moves {
    let mut moves: Moves = Default::default();
    for (i, from) in to.iter().enumerate() {
        let Some((from, here)) = from.and_then(|t| Some((t, value(i, t)?))) else {
            continue;
        };
        // at most MAX_CORE_TYPES
        for target in (0..types as u8).map(CoreTypeId).filter(|t| *t != from) {
            let Some(there) = value(i, target) else {
                continue;
            };
            let best = &mut moves[from.index()][target.index()];
            if best.is_none_or(|(most, _)| there - here > most) {
                *best = Some((there - here, i));
            }
        }
    }
    moves
}

/// The moves of a cycle that adds to the sum, if there is one.
fn cycle(moves: &Moves, types: usize) -> Option<Cycle> {
    // Bellman and Ford, for the longest way: what is still found after as many rounds as there are
    // types goes round a cycle.
    let mut gain = [0.0; MAX_CORE_TYPES];
    let mut before = [None; MAX_CORE_TYPES];
    let mut last = None;
    for _ in 0..types {
        last = None;
        for from in 0..types {
            for to in 0..types {
                let Some((more, _)) = moves[from][to] else {
                    continue;
                };
                if gain[from] + more > gain[to] + LEAST {
                    gain[to] = gain[from] + more;
                    before[to] = Some(from);
                    last = Some(to);
                }
            }
        }
    }
    let mut at = last?;
    for _ in 0..types {
        at = before[at]?;
    }
    let (first, mut out) = (at, [None; MAX_CORE_TYPES]);
    loop {
        let from = before[at]?;
        let (_, thread) = moves[from][at]?;
        // at most MAX_CORE_TYPES
        out[from] = Some((CoreTypeId(at as u8), thread));
        at = from;
        if at == first {
            return Some(out);
        }
    }
}
