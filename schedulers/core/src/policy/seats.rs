//! From "who deserves a fast core most" to a placement.
//!
//! A policy states per core type how strong each thread's claim to it is; [`Seats`] hands out the
//! types from the fastest to the slowest, strongest claims first, under these rules, which hold for
//! any number of core types:
//!
//! - **Affinity** is never broken. A thread that no slower type admits is seated first.
//! - **No more threads than CPUs:** each CPU gets at most one thread, faster types first. Where a
//!   core has several CPUs (SMT), each core gets one thread before any gets a second
//!   ([`View::nr_seats`]; CPUs below are those that are seats).
//! - **More threads than CPUs:** every CPU gets at least one thread, and a type's queue gets the
//!   share of the total weight that its CPUs are of all CPUs, to the nearest thread. Fast cores are
//!   never left idle, and no thread waits much longer for a core on one type than on another.
//! - **Hysteresis:** a thread that holds the type (or a faster one) already adds its bonus to its
//!   claim.
//! - **Work conservation:** where affinity left a CPU idle while threads queue elsewhere, threads
//!   with the weakest claims move over, through other types if need be.

mod pick;

use crate::machine::Placement;
use crate::policy::ledger::Ledger;
use crate::view::View;
use amp_metrics::{CoreTypeId, CoreTypeSet, ThreadKey, MAX_CORE_TYPES};
use pick::{pick, Candidate, Room};
use std::cmp::Ordering;

/// How strong a thread's claim to a core type is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Larger goes first. Any unit, the same for all threads.
    pub strength: f64,
    /// What is added while the thread holds the type or a faster one; ≥ 0.
    pub bonus: f64,
}

impl Claim {
    fn in_favour(self, holds: bool) -> f64 {
        self.strength + if holds { self.bonus } else { 0.0 }
    }
}

/// Hands out core types. Keeps its buffers from decision to decision.
#[derive(Debug, Default)]
pub struct Seats {
    /// Per thread of the view: the type it got.
    to: Vec<Option<CoreTypeId>>,
    candidates: Vec<Candidate>,
    rotate_out: Vec<(f64, usize)>,
    rotate_in: Vec<(f64, usize)>,
}

impl Seats {
    /// Assigns every thread of `view` that is allowed anywhere.
    pub fn assign(&mut self, view: &View<'_>, claim: &mut dyn FnMut(usize, CoreTypeId) -> Claim) {
        self.to.clear();
        self.to.resize(view.threads.len(), None);
        let mut counts = [0usize; MAX_CORE_TYPES];
        let mut cpus_left: usize = view.core_types().map(|t| view.nr_seats(t)).sum();
        for t in view.core_types() {
            counts[t.index()] = self.fill(view, t, cpus_left, claim);
            cpus_left -= view.nr_seats(t);
        }
        self.use_idle_cpus(view, &mut counts, claim);
    }

    /// Seats the strongest claims on `t`; returns how many threads it got.
    fn fill(
        &mut self,
        view: &View<'_>,
        t: CoreTypeId,
        cpus_left: usize,
        claim: &mut dyn FnMut(usize, CoreTypeId) -> Claim,
    ) -> usize {
        self.candidates.clear();
        let cpus = view.nr_seats(t);
        let mut room = Room {
            cpus,
            elsewhere: cpus_left - cpus,
            waiting: 0,
            quota: 0.0,
            seated: 0,
            weight: 0.0,
        };
        let slower =
            (view.core_types().skip(t.index() + 1)).fold(CoreTypeSet::EMPTY, |all, s| all.with(s));
        let mut weight = 0u64;
        for (i, th) in view.threads.iter().enumerate() {
            if self.to[i].is_some() {
                continue;
            }
            room.waiting += 1;
            weight += u64::from(th.weight);
            if !th.allowed.contains(t) {
                continue;
            }
            if th.allowed.intersection(slower) == CoreTypeSet::EMPTY {
                self.to[i] = Some(t);
                room.take(th.weight);
                continue;
            }
            let holds = th.holds(t);
            let strength = claim(i, t).in_favour(holds);
            self.candidates
                .push(Candidate::new(i, strength, holds, th.weight));
        }
        room.quota = weight as f64 * cpus as f64 / cpus_left.max(1) as f64;
        let to = &mut self.to;
        pick(&mut self.candidates, &mut room, |c| {
            to[c.thread()] = Some(t);
        });
        room.seated
    }

    /// While one type has an idle CPU and another more threads than CPUs, moves threads along the
    /// shortest chain of types from the one to the other. Affinity alone makes this necessary.
    fn use_idle_cpus(
        &mut self,
        view: &View<'_>,
        counts: &mut [usize; MAX_CORE_TYPES],
        claim: &mut dyn FnMut(usize, CoreTypeId) -> Claim,
    ) {
        let types = view.topology.core_types().len();
        let cpus = |t: usize| view.nr_seats(CoreTypeId(t as u8));
        // Each chain ends at an idle CPU and fills it.
        let idle: usize = (0..types).map(|t| cpus(t).saturating_sub(counts[t])).sum();
        for _ in 0..idle {
            let Some((before, mut to)) = (0..types)
                .filter(|&t| counts[t] > cpus(t))
                .find_map(|from| self.chain(view, from, &|t| counts[t] < cpus(t), types))
            else {
                return;
            };
            // Backwards along the chain: each thread moves into the place that the last one left.
            while before[to] != to {
                let from = before[to];
                if let Some(i) = self.weakest(view, from, to, claim) {
                    self.to[i] = Some(CoreTypeId(to as u8));
                    counts[from] -= 1;
                    counts[to] += 1;
                }
                to = from;
            }
        }
    }

    /// The shortest chain of types from `from` to one that satisfies `goal`, each step being open
    /// to some thread: that type, and for each type on the chain the one before it (`from` comes
    /// before itself).
    fn chain(
        &self,
        view: &View<'_>,
        from: usize,
        goal: &dyn Fn(usize) -> bool,
        types: usize,
    ) -> Option<([usize; MAX_CORE_TYPES], usize)> {
        let mut before = [usize::MAX; MAX_CORE_TYPES];
        let mut queue = [0usize; MAX_CORE_TYPES];
        let (mut head, mut tail) = (0, 1);
        queue[0] = from;
        before[from] = from;
        while head < tail {
            let a = queue[head];
            head += 1;
            if goal(a) {
                return Some((before, a));
            }
            let mut reach = [false; MAX_CORE_TYPES];
            for (th, to) in view.threads.iter().zip(&self.to) {
                if *to == Some(CoreTypeId(a as u8)) {
                    for (b, r) in reach.iter_mut().enumerate().take(types) {
                        *r |= th.allowed.contains(CoreTypeId(b as u8));
                    }
                }
            }
            for b in 0..types {
                if reach[b] && before[b] == usize::MAX {
                    before[b] = a;
                    queue[tail] = b;
                    tail += 1;
                }
            }
        }
        None
    }

    /// The thread on `from` with the weakest claim to it that may go to `to`.
    fn weakest(
        &self,
        view: &View<'_>,
        from: usize,
        to: usize,
        claim: &mut dyn FnMut(usize, CoreTypeId) -> Claim,
    ) -> Option<usize> {
        let (from, to) = (CoreTypeId(from as u8), CoreTypeId(to as u8));
        let mut best: Option<(f64, usize)> = None;
        for (i, th) in view.threads.iter().enumerate() {
            if self.to[i] != Some(from) || !th.allowed.contains(to) {
                continue;
            }
            let c = claim(i, from);
            let strength = c.strength - if th.placed == Some(to) { c.bonus } else { 0.0 };
            if best.is_none_or(|(b, _)| strength.total_cmp(&b) == Ordering::Less) {
                best = Some((strength, i));
            }
        }
        best.map(|(_, i)| i)
    }

    /// Lets the threads of each application take turns on the seats that the application has got:
    /// where a seated thread is more than `threshold` seconds ahead in the ledger of one that was
    /// seated on a slower type, they change places. `alike` says whether two threads (indices in
    /// the view) are interchangeable.
    pub fn take_turns(
        &mut self,
        view: &View<'_>,
        ledger: &Ledger<ThreadKey>,
        threshold: f64,
        alike: &dyn Fn(usize, usize) -> bool,
    ) {
        for app in view.apps.iter().filter(|a| a.threads.len() > 1) {
            for level in view.core_types().take(view.topology.core_types().len() - 1) {
                self.rotate_out.clear();
                self.rotate_in.clear();
                for i in app.threads.clone() {
                    let used = ledger.used(view.threads[i].key, level.index());
                    match self.to[i] {
                        Some(t) if t == level => self.rotate_out.push((used, i)),
                        Some(t) if t > level => self.rotate_in.push((used, i)),
                        _ => {}
                    }
                }
                self.rotate_out
                    .sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                self.rotate_in
                    .sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                for (&(most, out), &(least, into)) in self.rotate_out.iter().zip(&self.rotate_in) {
                    if most - least <= threshold {
                        break;
                    }
                    let free = |i: usize, t: Option<CoreTypeId>| {
                        t.is_some_and(|t| view.threads[i].allowed.contains(t))
                    };
                    if alike(out, into) && free(out, self.to[into]) && free(into, self.to[out]) {
                        self.to.swap(out, into);
                    }
                }
            }
        }
    }

    /// The type that thread `i` of the view got.
    pub fn of(&self, i: usize) -> Option<CoreTypeId> {
        self.to.get(i).copied().flatten()
    }

    /// Seats thread `i` of the view on `t` instead; the caller answers for its affinity.
    pub(super) fn put(&mut self, i: usize, t: Option<CoreTypeId>) {
        if let Some(to) = self.to.get_mut(i) {
            *to = t;
        }
    }

    /// Writes the decisions down. A thread that is allowed nowhere is released.
    pub fn write(&self, view: &View<'_>, out: &mut Placement) {
        for (th, to) in view.threads.iter().zip(&self.to) {
            match to {
                Some(t) => out.place(th.key, *t),
                None => out.release(th.key),
            }
        }
    }
}
