//! Run queues ordered by weighted virtual time.

use super::state::State;
use super::{Discipline, SimMachine};
use amp_metrics::Nanos;

/// A thread never owes more than this many slices when it joins a queue.
const MAX_LEAD_SLICES: u64 = 200;

impl SimMachine {
    /// The queue that `cpu` serves first.
    pub(super) fn queue_of_cpu(&self, cpu: usize) -> usize {
        match self.options.discipline {
            Discipline::Placed => self.cpus[cpu].ty,
            Discipline::Fair => cpu,
        }
    }

    /// Lets a thread live on the clock of queue `to`, keeping its lead or lag within bounds: at
    /// most one slice of lag, so that a long sleep earns no more than that.
    pub(super) fn set_clock(&mut self, slot: u32, to: usize) {
        let slice = self.options.slice.0;
        let now = self.clocks[to];
        let t = &mut self.threads[slot as usize];
        let from = self.clocks[t.clock];
        t.vtime = if t.vtime >= from {
            now + (t.vtime - from).min(MAX_LEAD_SLICES * slice)
        } else {
            now.saturating_sub((from - t.vtime).min(slice))
        };
        t.clock = to;
    }

    /// Puts a thread that is neither running nor queued into queue `q`; true when the queue was
    /// empty.
    pub(super) fn insert(&mut self, slot: u32, q: usize) -> bool {
        self.set_clock(slot, q);
        let t = &mut self.threads[slot as usize];
        t.state = State::Queued(q);
        t.queued_at = self.now;
        let was_empty = self.queues[q].is_empty();
        self.queues[q].insert((t.vtime, slot));
        was_empty
    }

    /// Takes a thread out of its queue.
    pub(super) fn remove(&mut self, slot: u32) {
        let t = &mut self.threads[slot as usize];
        if let State::Queued(q) = t.state {
            self.queues[q].remove(&(t.vtime, slot));
            t.state = State::Asleep;
        }
    }

    /// Whether a thread's affinity admits `cpu`.
    pub(super) fn may_use(&self, slot: u32, cpu: usize) -> bool {
        self.apps[self.threads[slot as usize].app].may_use(cpu)
    }

    /// The first thread of queue `q` that may use `cpu` and that `fits`.
    pub(super) fn first_for(
        &self,
        q: usize,
        cpu: usize,
        fits: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut waiting = self.queues[q].iter().map(|(_, slot)| *slot);
        waiting.find(|slot| self.may_use(*slot, cpu) && fits(*slot))
    }

    /// An idle CPU of core type `ty` that a thread may use: the one it ran on last, else the first
    /// one.
    pub(super) fn idle_cpu_of(&self, slot: u32, ty: usize) -> Option<usize> {
        if self.idle[ty] == 0 {
            return None;
        }
        let free = |cpu: usize| self.cpus[cpu].running.is_none() && self.may_use(slot, cpu);
        let last = self.threads[slot as usize].last_cpu;
        last.filter(|cpu| self.cpus[*cpu].ty == ty && free(*cpu))
            .or_else(|| self.by_type[ty].clone().find(|cpu| free(*cpu)))
    }

    /// A thread becomes runnable.
    pub(super) fn wake(&mut self, slot: u32) {
        let short = self.threads[slot as usize].burst < self.options.short_run;
        self.threads[slot as usize].burst = Nanos::ZERO;
        match self.options.discipline {
            Discipline::Placed => self.placed_enqueue(slot, short),
            Discipline::Fair => self.fair_enqueue(slot),
        }
    }

    /// `cpu` has no thread any more: gives it one that waits.
    pub(super) fn dispatch(&mut self, cpu: usize) {
        if self.cpus[cpu].running.is_some() {
            return;
        }
        let next = match self.options.discipline {
            Discipline::Placed => self.placed_next(cpu),
            Discipline::Fair => self.fair_next(cpu),
        };
        match next {
            Some(slot) => {
                self.remove(slot);
                self.start(slot, cpu);
            }
            None if self.options.discipline == Discipline::Placed => self.went_idle(cpu),
            None => {}
        }
    }
}
