//! Threads that slow each other down are put apart where that pays.
//!
//! A policy seats threads by what each of them gains, as if it were alone. Where costs of neighbours are
//! known ([`View::costs`]), [`Contention::rearrange`] looks for threads that had better change places:
//! the sum over all threads of
//!
//! ```text
//! value of the thread on its core type · exp(-Σ costs of its neighbours where they are)
//! ```
//!
//! is to grow. So a thread counts with what it takes from others, which no factor of its own says.
//! Only swaps are tried that concern somebody who pays or costs; one at a time, the best first, until
//! none is worth it. Then what was found is compared with where the threads are now, and they stay unless
//! it is better by more than the bonus of those who would have to leave. Without known costs nothing changes and nothing is computed.

use crate::policy::seats::Seats;
use crate::view::View;
use amp_metrics::{CoreTypeId, ProgramId, MAX_CORE_TYPES};

/// Threads in a view beyond which nothing is rearranged: it would take too long.
const MOST_THREADS: usize = 256;
/// Threads that pay or cost that are looked at.
const MOST_CONCERNED: usize = 32;
/// Swaps in one decision.
const MOST_SWAPS: usize = 8;
/// Improvement of the sum, in speeds of the slowest core type, below which no swap is worth it.
const LEAST: f64 = 0.01;

/// What thread `other` on `there` costs thread `of` on `on`.
#[derive(Clone, Copy, Debug)]
struct Pair {
    of: usize,
    on: CoreTypeId,
    other: usize,
    there: CoreTypeId,
    ln: f64,
}

/// The costs between the threads of a view. Keeps its buffers from decision to decision.
#[derive(Debug, Default)]
pub struct Contention {
    programs: Vec<(ProgramId, usize)>,
    pairs: Vec<Pair>,
    concerned: Vec<usize>,
    /// Where each thread is to be.
    to: Vec<Option<CoreTypeId>>,
    /// Part of the time that a thread seated on a core type runs.
    share: [f64; MAX_CORE_TYPES],
}

impl Contention {
    /// Changes `seats` so that threads that slow each other down are apart where that pays. `value`
    /// is the speed of a thread (index in the view) on a core type without neighbours, over that of
    /// the slowest type; `bonus` what must be gained beyond it before a thread is sent to a slower
    /// type than it is on.
    pub fn rearrange(
        &mut self,
        view: &View<'_>,
        seats: &mut Seats,
        value: &dyn Fn(usize, CoreTypeId) -> f64,
        bonus: &dyn Fn(usize, CoreTypeId) -> f64,
    ) {
        if view.costs().is_empty() || view.threads.len() > MOST_THREADS {
            return;
        }
        self.gather(view);
        if self.pairs.is_empty() {
            return;
        }
        self.to.clear();
        self.to.extend((0..view.threads.len()).map(|i| seats.of(i)));
        self.share = [1.0; MAX_CORE_TYPES];
        for t in view.core_types() {
            let seated = self.to.iter().filter(|to| **to == Some(t)).count();
            self.share[t.index()] = (view.nr_seats(t) as f64 / seated as f64).min(1.0);
        }
        for _ in 0..MOST_SWAPS {
            let Some((a, b)) = self.best_swap(view, value) else {
                break;
            };
            self.to.swap(a, b);
        }
        if self.stays(view, value, bonus) {
            self.to.clear();
            self.to.extend(view.threads.iter().map(|th| th.placed));
        }
        for (i, to) in self.to.iter().enumerate() {
            seats.put(i, *to);
        }
    }

    /// Which thread costs which other one.
    fn gather(&mut self, view: &View<'_>) {
        self.programs.clear();
        let all = view.threads.iter().enumerate();
        let known = all.filter_map(|(i, th)| Some((view.program(th)?, i)));
        self.programs.extend(known);
        self.programs.sort_unstable();
        self.pairs.clear();
        for c in view.costs() {
            for (_, of) in threads_of(&self.programs, c.of.program) {
                let others = threads_of(&self.programs, c.beside.program);
                let pairs = others.iter().filter(|(_, other)| other != of);
                self.pairs.extend(pairs.map(|(_, other)| Pair {
                    of: *of,
                    on: c.of.on,
                    other: *other,
                    there: c.beside.on,
                    ln: c.ln,
                }));
            }
        }
        self.concerned.clear();
        let both = self.pairs.iter().flat_map(|p| [p.of, p.other]);
        self.concerned.extend(both);
        self.concerned.sort_unstable();
        self.concerned.dedup();
        self.concerned.truncate(MOST_CONCERNED);
    }

    /// The sum of the speeds of those of `threads` and of everybody whom they slow down.
    fn sum(
        &self,
        to: &[Option<CoreTypeId>],
        value: &dyn Fn(usize, CoreTypeId) -> f64,
        counts: &dyn Fn(usize) -> bool,
    ) -> f64 {
        let speed = |i: usize| {
            let Some(t) = to[i] else { return 0.0 };
            let paid: f64 = self
                .pairs
                .iter()
                .filter(|p| p.of == i && p.on == t && to[p.other] == Some(p.there))
                .map(|p| p.ln * self.share[p.there.index()])
                .sum();
            value(i, t) * self.share[t.index()] * (-paid).exp()
        };
        (0..to.len()).filter(|i| counts(*i)).map(speed).sum()
    }

    /// The two threads that had best change places, if that is worth it.
    fn best_swap(
        &mut self,
        view: &View<'_>,
        value: &dyn Fn(usize, CoreTypeId) -> f64,
    ) -> Option<(usize, usize)> {
        let mut to = std::mem::take(&mut self.to);
        let mut best: Option<(f64, usize, usize)> = None;
        for &a in &self.concerned {
            for b in 0..to.len() {
                let (Some(on_a), Some(on_b)) = (to[a], to[b]) else {
                    continue;
                };
                let may = view.threads[a].allowed.contains(on_b)
                    && view.threads[b].allowed.contains(on_a)
                    && view.threads[a].weight == view.threads[b].weight;
                if on_a == on_b || !may {
                    continue;
                }
                let counts = |i: usize| i == b || self.concerned.binary_search(&i).is_ok();
                let before = self.sum(&to, value, &counts);
                to.swap(a, b);
                let gain = self.sum(&to, value, &counts) - before;
                to.swap(a, b);
                if gain > best.map_or(LEAST, |(g, ..)| g) {
                    best = Some((gain, a, b));
                }
            }
        }
        self.to = to;
        best.map(|(_, a, b)| (a, b))
    }

    /// Whether everybody had better stay where they are now: as many are on each core type, and the
    /// change is not worth it.
    fn stays(
        &self,
        view: &View<'_>,
        value: &dyn Fn(usize, CoreTypeId) -> f64,
        bonus: &dyn Fn(usize, CoreTypeId) -> f64,
    ) -> bool {
        let now: Vec<Option<CoreTypeId>> = view.threads.iter().map(|th| th.placed).collect();
        let seated = |to: &[Option<CoreTypeId>], t| to.iter().filter(|s| **s == Some(t)).count();
        let alike = view
            .core_types()
            .all(|t| seated(&now, t) == seated(&self.to, t));
        let may = view
            .threads
            .iter()
            .zip(&self.to)
            .all(|(th, to)| match th.placed {
                Some(t) => th.allowed.contains(t),
                None => to.is_none(),
            });
        if !alike || !may {
            return false;
        }
        let all = |_: usize| true;
        let (old, new) = (self.sum(&now, value, &all), self.sum(&self.to, value, &all));
        let sent = |i: &usize| now[*i] < self.to[*i];
        let hold: f64 = (0..now.len())
            .filter(sent)
            .filter_map(|i| Some(bonus(i, now[i]?)))
            .sum();
        new - old <= hold
    }
}

/// The threads of a program, in a list sorted by program.
fn threads_of(programs: &[(ProgramId, usize)], id: ProgramId) -> &[(ProgramId, usize)] {
    let from = programs.partition_point(|(p, _)| *p < id);
    let to = programs.partition_point(|(p, _)| *p <= id);
    &programs[from..to]
}

#[cfg(test)]
mod tests;
