//! The baseline: a fair scheduler that does not know core types, after the kernel's own (EEVDF).
//!
//! A model of what matters here, not of its code:
//! - one queue per CPU, ordered by weighted virtual time; slices as in the other discipline;
//! - a new thread goes to a random idle CPU (seeded), a waking one to the CPU it ran on last if
//!   that is idle, else to a random idle one; where none is idle, to the least loaded, its last one
//!   of equals;
//! - a CPU that runs dry takes a waiting thread from the most loaded queue;
//! - about every [`MachineOptions::balance`](super::MachineOptions) waiting threads move from the
//!   most to the least loaded CPU, also when that only moves the surplus on, so that nobody is on
//!   the crowded CPU for good;
//! - a running thread is never moved, so which applications get the fast cores is a matter of luck.
//!   Newer kernels with capacity-aware placement do better on machines that declare their
//!   capacities.

use super::SimMachine;
use crate::event::Event;
use amp_metrics::Nanos;
use rand::RngExt;

impl SimMachine {
    /// Weight of all that runs or waits on `cpu`.
    fn load(&self, cpu: usize) -> u64 {
        let weight = |slot: u32| u64::from(self.apps[self.threads[slot as usize].app].spec.weight);
        let waiting: u64 = self.queues[cpu].iter().map(|(_, slot)| weight(*slot)).sum();
        waiting + self.cpus[cpu].running.map_or(0, weight)
    }

    fn choose_cpu(&mut self, slot: u32) -> usize {
        let last = self.threads[slot as usize].last_cpu;
        let idle: Vec<usize> = (0..self.cpus.len())
            .filter(|c| self.cpus[*c].running.is_none() && self.may_use(slot, *c))
            .collect();
        if let Some(cpu) = last.filter(|c| idle.contains(c)) {
            return cpu;
        }
        if !idle.is_empty() {
            return idle[self.rng.random_range(0..idle.len())];
        }
        let allowed = (0..self.cpus.len()).filter(|c| self.may_use(slot, *c));
        let least = allowed.min_by_key(|c| (self.load(*c), Some(*c) != last, *c));
        least.unwrap_or(0) // an affinity admits at least one CPU
    }

    /// A thread that is neither running nor queued wants a CPU.
    pub(super) fn fair_enqueue(&mut self, slot: u32) {
        let cpu = self.choose_cpu(slot);
        if self.cpus[cpu].running.is_none() {
            self.start(slot, cpu);
            return;
        }
        self.wait_at(slot, cpu);
    }

    fn wait_at(&mut self, slot: u32, cpu: usize) {
        if self.insert(slot, cpu) {
            self.rearm(cpu);
        }
        self.schedule_balance();
    }

    /// The intervals vary by a quarter, lest the same thread of a crowded CPU be the one that waits
    /// every time.
    fn schedule_balance(&mut self) {
        if !self.balancing {
            self.balancing = true;
            let interval = self.options.balance.0 as f64 * self.rng.random_range(0.75..1.25);
            self.events
                .schedule(self.now + Nanos(interval.ceil() as u64), Event::Balance);
        }
    }

    /// The thread that an idle CPU takes next: of its own queue, else of the most loaded one.
    pub(super) fn fair_next(&self, cpu: usize) -> Option<u32> {
        self.first_for(cpu, cpu, |_| true).or_else(|| {
            let from = |q: &usize| self.first_for(*q, cpu, |_| true).is_some();
            let busiest = (0..self.queues.len())
                .filter(|q| *q != cpu && from(q))
                .max_by_key(|q| (self.load(*q), std::cmp::Reverse(*q)));
            busiest.and_then(|q| self.first_for(q, cpu, |_| true))
        })
    }

    pub(super) fn fair_slice_over(&mut self, cpu: usize, slot: u32) {
        let vtime = self.threads[slot as usize].vtime;
        match self.queues[cpu].first().copied() {
            Some((first, next)) if first < vtime => {
                self.stop(cpu);
                self.remove(next);
                self.start(next, cpu);
                // An idle CPU may be open to it that was not to the one that waited.
                let idle = (0..self.cpus.len())
                    .find(|c| self.cpus[*c].running.is_none() && self.may_use(slot, *c));
                match idle {
                    Some(idle) => self.start(slot, idle),
                    None => self.wait_at(slot, cpu),
                }
            }
            _ => self.arm(cpu),
        }
    }

    /// Evens out the loads of the CPUs, then passes one surplus thread on.
    pub(super) fn balance(&mut self) {
        self.totals.events += 1;
        self.balancing = false;
        self.settle_all();
        // Each move lowers the difference of a pair; the bound guards against weights that never
        // settle.
        for _ in 0..self.cpus.len() {
            if !self.pull_one(false) {
                break;
            }
        }
        self.pull_one(true);
        if self.queues.iter().any(|q| !q.is_empty()) {
            self.schedule_balance();
        }
    }

    /// Moves a waiting thread from the most loaded CPU to the least loaded one it may use, when
    /// that brings their loads closer, or (`pass_on`) merely swaps them.
    fn pull_one(&mut self, pass_on: bool) -> bool {
        // Equals in random order: in a kernel it depends on which CPU comes to balance first.
        let mut order: Vec<(u64, u32, usize)> = (0..self.cpus.len())
            .map(|c| (self.load(c), self.rng.random(), c))
            .collect();
        order.sort_unstable();
        for &(most, _, from) in order.iter().rev() {
            for &(least, _, to) in &order {
                if least >= most {
                    break;
                }
                let gap = most - least;
                let fits = |slot: u32| {
                    let w = u64::from(self.apps[self.threads[slot as usize].app].spec.weight);
                    if pass_on {
                        w <= gap
                    } else {
                        w < gap
                    }
                };
                if let Some(slot) = self.first_for(from, to, fits) {
                    self.remove(slot);
                    self.rearm(from);
                    if self.cpus[to].running.is_none() {
                        self.start(slot, to);
                    } else {
                        self.wait_at(slot, to);
                    }
                    return true;
                }
            }
        }
        false
    }
}
