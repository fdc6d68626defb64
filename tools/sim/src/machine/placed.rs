//! The discipline of scx_amp's BPF side: one queue per core type, work-conserving.
//!
//! - A thread that wakes up gets an idle CPU of the type it is placed on, else of a faster type; of
//!   any type, fastest first, when it is unplaced; of a slower type too when it runs only for
//!   moments. Else it waits in the queue of its type, an unplaced one in the shortest queue for the
//!   capacity behind it.
//! - A CPU takes from its own type's queue, then from slower types' queues, then from faster types'
//!   queues what is unplaced or has waited longer than
//!   [`MachineOptions::steal_after`](super::MachineOptions).
//! - A thread on a CPU of another type than its placement gives way to whoever belongs there.
//! - A faster CPU that has been idle for a slice is lent to a thread that runs where it is placed, at the
//!   end of that thread's slice, where the policy lends.
//! - A change of placement takes effect at once.

use super::state::State;
use super::SimMachine;
use crate::event::Event;
use amp_metrics::Nanos;
use amp_sched::Placement;

impl SimMachine {
    /// The core type a thread belongs on: where it is placed, as far as its affinity admits it.
    fn want(&self, slot: u32) -> Option<usize> {
        let t = &self.threads[slot as usize];
        t.placed
            .filter(|p| self.apps[t.app].types.contains(*p))
            .map(|p| p.index())
    }

    /// Whether `cpu` runs a thread that belongs on another core type.
    fn foreign(&self, cpu: usize) -> bool {
        let c = &self.cpus[cpu];
        c.running
            .and_then(|slot| self.want(slot))
            .is_some_and(|want| want != c.ty)
    }

    /// Whether an unplaced thread on `cpu` could have an idle CPU of a faster type.
    fn better_idle(&self, cpu: usize, slot: u32) -> bool {
        let ty = self.cpus[cpu].ty;
        self.want(slot).is_none() && (0..ty).any(|t| self.idle_cpu_of(slot, t).is_some())
    }

    /// The faster CPU that has been idle for `least` and may be lent to the thread of `slot`, which runs
    /// on `cpu`, where it is placed.
    fn lent_cpu(&self, cpu: usize, slot: u32, least: Nanos) -> Option<usize> {
        let ty = self.cpus[cpu].ty;
        if !self.lending || self.want(slot) != Some(ty) {
            return None;
        }
        (0..self.by_type[ty].start).find(|&faster| {
            let c = &self.cpus[faster];
            let idle = self.now.saturating_sub(c.left);
            c.running.is_none() && idle >= least && self.may_use(slot, faster)
        })
    }

    /// Whether `cpu` is lent to the thread of `slot`, which runs there, and nobody waits for it.
    fn on_loan(&self, cpu: usize, slot: u32) -> bool {
        let ty = self.cpus[cpu].ty;
        let slower = self.want(slot).is_some_and(|want| want > ty);
        self.lending && slower && self.first_for(ty, cpu, |_| true).is_none()
    }

    /// Whether the end of a slice can change anything on `cpu`.
    pub(super) fn placed_needs_slice(&self, cpu: usize) -> bool {
        let c = &self.cpus[cpu];
        let Some(slot) = c.running else { return false };
        !self.queues[c.ty].is_empty()
            || self.foreign(cpu)
            || self.better_idle(cpu, slot)
            || self.lent_cpu(cpu, slot, Nanos::ZERO).is_some()
    }

    fn pick_idle(&self, slot: u32, short_run: bool) -> Option<usize> {
        let want = self.want(slot);
        let own = want.and_then(|t| self.idle_cpu_of(slot, t));
        own.or_else(|| {
            let last = match want {
                Some(t) if !short_run => t,
                _ => self.by_type.len(),
            };
            (0..last).find_map(|t| self.idle_cpu_of(slot, t))
        })
    }

    /// Where an unplaced thread waits least: the shortest queue for the capacity behind it.
    fn shortest_queue(&self, slot: u32) -> usize {
        let types = self.apps[self.threads[slot as usize].app].types;
        let load = |t: usize| {
            let capacity = f64::from(self.topology.core_types()[t].capacity.max(1));
            (self.queues[t].len() + 1) as f64 / (self.by_type[t].len() as f64 * capacity)
        };
        (0..self.by_type.len())
            .filter(|t| types.contains(amp_metrics::CoreTypeId(*t as u8)))
            .min_by(|a, b| load(*a).total_cmp(&load(*b)))
            .unwrap_or(0) // an affinity admits at least one CPU
    }

    /// A thread that is neither running nor queued wants a CPU.
    pub(super) fn placed_enqueue(&mut self, slot: u32, short_run: bool) {
        if let Some(cpu) = self.pick_idle(slot, short_run) {
            self.start(slot, cpu);
            return;
        }
        let ty = self.enqueue_to_wait(slot);
        self.reclaim(ty);
    }

    /// Puts a thread into the queue where it belongs and returns which that is.
    fn enqueue_to_wait(&mut self, slot: u32) -> usize {
        let want = self.want(slot);
        let ty = want.unwrap_or_else(|| self.shortest_queue(slot));
        if self.insert(slot, ty) {
            for cpu in self.by_type[ty].clone() {
                self.rearm(cpu);
            }
        }
        if want.is_some() && ty + 1 < self.by_type.len() {
            let at = self.now + self.options.steal_after;
            self.events.schedule(
                at,
                Event::Relief {
                    slot,
                    queued_at: self.now,
                },
            );
        }
        ty
    }

    /// Whether the thread on `cpu` is about to leave it by itself, having no share of the phase
    /// that it opens.
    fn leaves(&self, cpu: usize) -> bool {
        let leaving = self.cpus[cpu].running.filter(|s| self.leaving == Some(*s));
        leaving.is_some_and(|slot| self.threads[slot as usize].left <= 0.0)
    }

    /// CPUs of core type `ty` that run what belongs elsewhere are given back while somebody waits
    /// for the type.
    ///
    /// A CPU that is about to be free needs no eviction: its thread would be moved, and charged for
    /// it, only to sleep.
    fn reclaim(&mut self, ty: usize) {
        while let Some(cpu) = self.by_type[ty].clone().find(|&cpu| {
            let wrong = self.foreign(cpu) && !self.leaves(cpu);
            wrong && self.first_for(ty, cpu, |_| true).is_some()
        }) {
            let Some(evicted) = self.stop(cpu) else {
                return;
            };
            self.dispatch(cpu);
            self.placed_enqueue(evicted, false);
        }
    }

    /// A thread has waited for its type for the bound: an idle CPU of a slower type may take it.
    pub(super) fn relieve(&mut self, slot: u32, queued_at: Nanos) {
        let t = &self.threads[slot as usize];
        let State::Queued(ty) = t.state else { return };
        if t.queued_at != queued_at {
            return;
        }
        let slower = ty + 1..self.by_type.len();
        if let Some(cpu) = slower.into_iter().find_map(|s| self.idle_cpu_of(slot, s)) {
            self.remove(slot);
            self.start(slot, cpu);
        }
    }

    /// The thread that an idle CPU takes next.
    pub(super) fn placed_next(&self, cpu: usize) -> Option<u32> {
        let ty = self.cpus[cpu].ty;
        let own_and_slower =
            (ty..self.by_type.len()).find_map(|q| self.first_for(q, cpu, |_| true));
        own_and_slower.or_else(|| {
            let long = |slot: u32| {
                let waited = self
                    .now
                    .saturating_sub(self.threads[slot as usize].queued_at);
                self.want(slot).is_none() || waited >= self.options.steal_after
            };
            (0..ty).find_map(|q| self.first_for(q, cpu, long))
        })
    }

    /// `cpu` has found nothing to run: threads on slower CPUs that are not placed, or may borrow it,
    /// will notice at the end of their slice.
    pub(super) fn went_idle(&mut self, cpu: usize) {
        let ty = self.cpus[cpu].ty;
        for slower in self.by_type[ty].end..self.cpus.len() {
            if self.cpus[slower]
                .running
                .is_some_and(|slot| self.lending || self.want(slot).is_none())
            {
                self.rearm(slower);
            }
        }
    }

    pub(super) fn placed_slice_over(&mut self, cpu: usize, slot: u32) {
        let ty = self.cpus[cpu].ty;
        if self.on_loan(cpu, slot) {
            self.arm(cpu);
            return;
        }
        let lent = self.lent_cpu(cpu, slot, self.options.slice);
        if let Some(faster) = lent.filter(|_| self.first_for(ty, cpu, |_| true).is_none()) {
            self.stop(cpu);
            self.start(slot, faster);
            self.dispatch(cpu);
            return;
        }
        if !self.foreign(cpu) && !self.better_idle(cpu, slot) {
            let vtime = self.threads[slot as usize].vtime;
            let next = self.first_for(ty, cpu, |_| true);
            match next.filter(|n| self.threads[*n as usize].vtime < vtime) {
                Some(next) => self.switch(cpu, next),
                None => self.arm(cpu),
            }
            return;
        }
        if let Some(next) = self.first_for(ty, cpu, |_| true) {
            self.switch(cpu, next);
        } else if let Some(better) = self.pick_idle(slot, false).filter(|c| {
            // a faster idle CPU is no better for a thread that is not at home on either
            self.want(slot).is_none() || Some(self.cpus[*c].ty) == self.want(slot)
        }) {
            self.stop(cpu);
            self.start(slot, better);
            self.dispatch(cpu);
        } else if let Some(next) = self.placed_next(cpu) {
            self.switch(cpu, next);
        } else if self.lending && self.want(slot).is_some_and(|want| self.lent_out(want)) {
            self.stop(cpu);
            let own = self.enqueue_to_wait(slot);
            self.reclaim(own);
            self.dispatch(cpu);
        } else {
            self.arm(cpu);
        }
    }

    /// Whether a CPU of core type `ty` is lent to a thread that is placed on a slower one.
    fn lent_out(&self, ty: usize) -> bool {
        let running = self.by_type[ty]
            .clone()
            .filter_map(|c| self.cpus[c].running);
        let mut wanted = running.filter_map(|slot| self.want(slot));
        wanted.any(|want| want > ty)
    }

    /// `next`, which waits, takes `cpu` from its thread.
    fn switch(&mut self, cpu: usize, next: u32) {
        let previous = self.stop(cpu);
        self.remove(next);
        self.start(next, cpu);
        if let Some(slot) = previous {
            self.placed_enqueue(slot, false);
        }
    }

    /// Carries out a placement: whoever runs or waits in the wrong place moves at once, swaps in
    /// one step.
    pub(super) fn carry_out(&mut self, placement: &Placement) {
        self.settle_all();
        let mut moved = std::mem::take(&mut self.moved);
        moved.clear();
        for (key, to) in placement.iter() {
            let Some(t) = self.threads.get_mut(key.slot as usize) else {
                continue;
            };
            if t.generation != key.generation || t.state == State::Free || t.placed == to {
                continue;
            }
            t.placed = to;
            let state = t.state;
            match state {
                State::Running(cpu) if self.foreign(cpu) => {
                    self.stop(cpu);
                    moved.push(key.slot);
                }
                State::Running(cpu) => self.rearm(cpu),
                State::Queued(_) => {
                    self.remove(key.slot);
                    moved.push(key.slot);
                }
                _ => {}
            }
        }
        for slot in moved.drain(..) {
            self.enqueue_to_wait(slot);
        }
        self.moved = moved;
        // Own queues first, so that two threads that change places do.
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].running.is_none() {
                if let Some(next) = self.first_for(self.cpus[cpu].ty, cpu, |_| true) {
                    self.remove(next);
                    self.start(next, cpu);
                }
            }
        }
        for ty in 0..self.by_type.len() {
            self.reclaim(ty);
        }
        for cpu in 0..self.cpus.len() {
            self.dispatch(cpu);
        }
    }
}
