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

/// The thread that had best go from one type to another, and what that adds to the sum.
type Move = Option<(f64, usize)>;
/// [`Move`]s by type and target.
type Moves = [[Move; MAX_CORE_TYPES]; MAX_CORE_TYPES];

/// Looks for changes of places. Keeps its buffers from decision to decision.
#[derive(Debug, Default)]
pub struct Exchange {
    weights: Vec<u32>,
}

impl Exchange {
    /// Changes `seats` to a placement with as many threads on each type and the largest sum of
    /// `value`: the speed of a thread (index in the view) on a core type. `None` leaves the thread
    /// where it is. Where threads share CPUs, only those of equal weight change places.
    pub fn improve(
        &mut self,
        view: &View<'_>,
        seats: &mut Seats,
        value: &dyn Fn(usize, CoreTypeId) -> Option<f64>,
    ) {
        let types = view.topology.core_types().len();
        if types < 3 || view.threads.len() > MOST_THREADS {
            return;
        }
        let cpus: usize = view.core_types().map(|t| view.nr_seats(t)).sum();
        self.weights.clear();
        if view.threads.len() > cpus {
            self.weights.extend(view.threads.iter().map(|th| th.weight));
            self.weights.sort_unstable();
            self.weights.dedup();
            for &weight in &self.weights {
                let alike = |i: usize| view.threads[i].weight == weight;
                cancel(view, seats, types, &alike, value);
            }
        } else {
            cancel(view, seats, types, &|_| true, value);
        }
    }
}

/// Moves those that `counts` names round cycles until none adds to the sum.
fn cancel(
    view: &View<'_>,
    seats: &mut Seats,
    types: usize,
    counts: &dyn Fn(usize) -> bool,
    value: &dyn Fn(usize, CoreTypeId) -> Option<f64>,
) {
    // each cycle adds to the sum; rounding must not make an endless loop of that
    for _ in 0..view.threads.len() {
        let moves = moves(view, seats, types, counts, value);
        let Some(cycle) = cycle(&moves, types) else {
            return;
        };
        for (to, thread) in cycle.into_iter().flatten() {
            seats.put(thread, Some(to));
        }
    }
}

/// The best move from each type to each other one.
fn moves(
    view: &View<'_>,
    seats: &Seats,
    types: usize,
    counts: &dyn Fn(usize) -> bool,
    value: &dyn Fn(usize, CoreTypeId) -> Option<f64>,
) -> Moves {
    let mut moves: Moves = Default::default();
    for (i, th) in view.threads.iter().enumerate() {
        let Some((from, here)) = seats.of(i).and_then(|t| Some((t, value(i, t)?))) else {
            continue;
        };
        if !counts(i) {
            continue;
        }
        for to in view.core_types().take(types) {
            if to == from || !th.allowed.contains(to) {
                continue;
            }
            let Some(there) = value(i, to) else { continue };
            let best = &mut moves[from.index()][to.index()];
            if best.is_none_or(|(most, _)| there - here > most) {
                *best = Some((there - here, i));
            }
        }
    }
    moves
}

/// For each type the move from it, if there is a cycle that adds to the sum: where to, and who.
fn cycle(moves: &Moves, types: usize) -> Option<[Option<(CoreTypeId, usize)>; MAX_CORE_TYPES]> {
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
