//! How much CPU time each thread has, and how much time on fast cores there is to give away.
//!
//! Which cores are fast is a level: those of a core type and of all faster ones. On two core types there is one level.

use crate::policy::level::Demands;
use crate::view::View;
use amp_metrics::{CoreTypeId, CoreTypeSet};

/// What affinity leaves of the fast cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Fast cores only.
    Fast,
    /// The thread can run on both.
    Both,
    /// Slow cores only.
    Slow,
}

impl Reach {
    /// The reach of a thread of this affinity, cores of type `level` and of faster ones being fast. Where there is one
    /// core type, it is both.
    pub fn of(view: &View<'_>, allowed: CoreTypeSet, level: CoreTypeId) -> Reach {
        let slowest = view.topology.slowest();
        let mut fast = view.core_types().take_while(|t| *t <= level);
        let mut slow = (view.core_types()).skip_while(|t| *t <= level && *t != slowest);
        match (
            fast.any(|t| allowed.contains(t)),
            slow.any(|t| allowed.contains(t)),
        ) {
            (true, true) => Reach::Both,
            (true, false) => Reach::Fast,
            _ => Reach::Slow,
        }
    }
}

/// What a thread has on fast and on slow cores over its share of all, when `threads` of equal weight are
/// seated on `fast` of the `cpus`.
fn sides(threads: usize, fast: usize, cpus: usize) -> [f64; 2] {
    if threads <= cpus || fast >= cpus {
        return [1.0; 2];
    }
    let share = cpus as f64 / threads as f64;
    let seats = threads * fast / cpus;
    let each = |cpus: usize, threads: usize| (cpus as f64 / threads.max(1) as f64).min(1.0) / share;
    [each(fast, seats), each(cpus - fast, threads - seats)]
}

/// CPU time of every thread, as a share of the interval: 1 unless there are more threads than CPUs,
/// else in proportion to weight, and 1 at most.
#[derive(Debug, Default)]
pub struct Room {
    demands: Demands,
    cpu: Vec<f64>,
    reach: Vec<Reach>,
    last: f64,
    /// Fast cores.
    fast: usize,
    /// CPU time of a thread while it is on fast and on slow cores, over its share.
    sides: [f64; 2],
}

impl Room {
    /// Works out the shares for `view`, cores of type `level` and of faster ones being fast.
    pub fn update(&mut self, view: &View<'_>, level: CoreTypeId) {
        self.fast = view.seats_up_to(level);
        let cpus: usize = view.core_types().map(|t| view.nr_seats(t)).sum();
        self.reach.clear();
        self.reach.extend(
            view.threads
                .iter()
                .map(|th| Reach::of(view, th.allowed, level)),
        );
        self.cpu.clear();
        self.sides = sides(view.threads.len(), self.fast, cpus);
        if view.threads.len() <= cpus {
            self.cpu.resize(view.threads.len(), 1.0);
            return;
        }
        self.demands.clear();
        for th in view.threads {
            self.demands.push(f64::from(th.weight), 0.0, 1.0);
        }
        self.last = self.demands.level(cpus as f64, self.last);
        let (demands, level) = (&self.demands, self.last);
        self.cpu
            .extend((0..view.threads.len()).map(|i| demands.at(i, level)));
    }

    /// The share of thread `i`, 0 to 1.
    pub fn cpu(&self, i: usize) -> f64 {
        self.cpu.get(i).copied().unwrap_or(0.0)
    }

    /// The share of thread `i` while it has a fast core, 0 to 1. Seats are whole threads: of seven threads
    /// on two fast and four slow cores, two have a core each, and five share four.
    pub fn fast_share(&self, i: usize) -> f64 {
        (self.cpu(i) * self.sides[0]).min(1.0)
    }

    /// The share of thread `i` while it is on slow cores, 0 to 1.
    pub fn slow_share(&self, i: usize) -> f64 {
        (self.cpu(i) * self.sides[1]).min(1.0)
    }

    /// Where thread `i` may run.
    pub fn reach(&self, i: usize) -> Reach {
        self.reach.get(i).copied().unwrap_or(Reach::Slow)
    }

    /// Fast cores that are left when `owed` are taken by others and threads that may run nowhere
    /// else have theirs. `counts` says which threads of the view share in what is left.
    pub fn fast(&self, owed: f64, counts: &dyn Fn(usize) -> bool) -> f64 {
        let pinned: f64 = (self.reach.iter().zip(&self.cpu).enumerate())
            .filter(|(i, (reach, _))| **reach == Reach::Fast && counts(*i))
            .map(|(_, (_, cpu))| cpu)
            .sum();
        (self.fast as f64 - owed - pinned).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_threads_are_seated() {
        assert_eq!(sides(6, 2, 6), [1.0; 2]);
        let near = |a: [f64; 2], b: [f64; 2]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        // two have a core each, five share four
        assert!(near(sides(7, 2, 6), [7.0 / 6.0, 0.8 * 7.0 / 6.0]));
        // three share two, six share four
        assert!(near(sides(9, 2, 6), [1.0; 2]));
        // no slow core
        assert_eq!(sides(9, 6, 6), [1.0; 2]);
    }
}
