//! What must hold at any moment, for tests.

use super::state::State;
use super::{Discipline, SimMachine};

impl SimMachine {
    /// Checks the machine's invariants: books that agree with each other, no thread where its
    /// affinity does not admit it, and work conservation: no CPU idle while a thread waits that may
    /// use it (a thread that is placed on a faster type than the idle CPU may wait up to
    /// [`super::MachineOptions::steal_after`]).
    ///
    /// # Errors
    /// The text names the first thing that does not hold.
    pub fn audit(&self) -> Result<(), String> {
        for (i, c) in self.cpus.iter().enumerate() {
            let Some(slot) = c.running else { continue };
            if self.threads[slot as usize].state != State::Running(i) {
                return Err(format!(
                    "CPU {} runs slot {slot}, which does not know it",
                    c.id
                ));
            }
            if !self.may_use(slot, i) {
                return Err(format!(
                    "slot {slot} runs on CPU {} against its affinity",
                    c.id
                ));
            }
        }
        for (ty, range) in self.by_type.iter().enumerate() {
            let idle = range
                .clone()
                .filter(|c| self.cpus[*c].running.is_none())
                .count();
            if idle != self.idle[ty] {
                return Err(format!(
                    "core type {ty}: {idle} idle CPUs, booked {}",
                    self.idle[ty]
                ));
            }
        }
        for (slot, t) in self.threads.iter().enumerate() {
            let slot = slot as u32;
            match t.state {
                State::Running(cpu) if self.cpus[cpu].running != Some(slot) => {
                    return Err(format!(
                        "slot {slot} believes to run on CPU {}",
                        self.cpus[cpu].id
                    ));
                }
                State::Queued(q) => {
                    if !self.queues[q].contains(&(t.vtime, slot)) {
                        return Err(format!("slot {slot} believes to be in queue {q}"));
                    }
                    if let Some(cpu) = self.kept_idle_from(slot) {
                        let id = self.cpus[cpu].id;
                        return Err(format!("CPU {id} is idle while slot {slot} waits for one"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// An idle CPU that should have taken the waiting thread.
    fn kept_idle_from(&self, slot: u32) -> Option<usize> {
        let t = &self.threads[slot as usize];
        let waited = self.now.saturating_sub(t.queued_at);
        let slower_may = self.options.discipline == Discipline::Fair
            || t.placed.is_none()
            || waited > self.options.steal_after;
        (0..self.cpus.len()).find(|cpu| {
            let c = &self.cpus[*cpu];
            let may = slower_may || t.placed.is_none_or(|p| c.ty <= p.index());
            c.running.is_none() && may && self.may_use(slot, *cpu)
        })
    }
}
