//! The event loop's inner side: what a CPU's thread has done since the last event, and when it must
//! be looked at next.

use super::state::State;
use super::{Discipline, SimMachine};
use crate::event::Event;
use amp_metrics::Nanos;

impl SimMachine {
    /// Accounts what `cpu` has done up to now.
    pub(super) fn settle(&mut self, cpu: usize) {
        let c = &mut self.cpus[cpu];
        let dt = self.now.saturating_sub(c.settled);
        if dt == Nanos::ZERO {
            return;
        }
        c.settled = self.now;
        let (ty, seconds, slowdown) = (c.ty, dt.as_secs_f64(), c.slowdown);
        let Some(slot) = c.running else {
            self.totals.idle[ty] += dt;
            self.totals.idle_energy_j += self.idle_watts[ty] * seconds;
            self.joules[ty] += self.idle_watts[ty] * seconds;
            return;
        };
        self.totals.busy[ty] += dt;
        let t = &mut self.threads[slot as usize];
        let app = &mut self.apps[t.app];
        t.runtime[ty] += dt;
        t.burst += dt;
        t.vtime += dt.0 * 100 / u64::from(app.spec.weight);
        app.stats.runtime[ty] += dt;
        let paid = t.debt.min(dt);
        t.debt = t.debt - paid;
        self.totals.migration_time += paid;
        // Every phase index comes from the length of the phase list.
        let rates = &app.rates[t.phase];
        let ips = rates.ips[ty] / slowdown;
        let done = ((dt - paid).as_secs_f64() * ips).min(t.left);
        // Event times are rounded up to the nanosecond: what is less than one nanosecond's work is
        // done.
        let rest = t.left - done;
        let done = if rest < ips * 1e-9 && t.debt == Nanos::ZERO {
            std::mem::take(&mut t.left)
        } else {
            t.left = rest;
            done
        };
        t.instructions[ty] += done;
        app.stats.instructions[ty] += done;
        app.stats.energy_j = app
            .stats
            .energy_j
            .zip(rates.power)
            .map(|(e, p)| e + p[ty] * seconds);
        self.joules[ty] += rates.power.map_or(0.0, |p| p[ty] * seconds);
        let (clock, vtime) = (t.clock, t.vtime);
        self.clocks[clock] = self.clocks[clock].max(vtime);
    }

    /// Accounts what all CPUs have done up to now.
    pub(super) fn settle_all(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.settle(cpu);
        }
    }

    /// When the thread on `cpu` ends its share of the phase, if nothing comes between.
    fn due(&self, cpu: usize) -> Option<Nanos> {
        let c = &self.cpus[cpu];
        let t = &self.threads[c.running? as usize];
        let ips = self.apps[t.app].rates[t.phase].ips[c.ty];
        let seconds = t.left / ips * c.slowdown;
        // A phase of centuries does not end within the simulation.
        let work = (seconds * 1e9).ceil().min(1e18) as u64;
        Some(c.settled + t.debt + Nanos(work))
    }

    /// Schedules the next event of `cpu` and voids the one before. Its time must have been settled.
    pub(super) fn arm(&mut self, cpu: usize) {
        self.cpus[cpu].stamp += 1;
        let Some(mut at) = self.due(cpu) else { return };
        let slices = match self.options.discipline {
            Discipline::Placed => self.placed_needs_slice(cpu),
            Discipline::Fair => !self.queues[cpu].is_empty(),
        };
        if slices {
            let (slice, c) = (self.options.slice.0, &self.cpus[cpu]);
            let elapsed = self.now.saturating_sub(c.started).0;
            at = at.min(c.started + Nanos((elapsed / slice + 1) * slice));
        }
        let stamp = self.cpus[cpu].stamp;
        self.events.schedule(at, Event::Cpu { cpu, stamp });
        if self.events.len() > 1024 + 8 * (self.cpus.len() + self.threads.len()) {
            let cpus = &self.cpus;
            self.events
                .retain(|e| !matches!(e, Event::Cpu { cpu, stamp } if cpus[*cpu].stamp != *stamp));
        }
    }

    /// Settles and re-arms `cpu` because what may follow its thread has changed.
    pub(super) fn rearm(&mut self, cpu: usize) {
        if self.cpus[cpu].running.is_some() {
            self.settle(cpu);
            self.arm(cpu);
        }
    }

    pub(super) fn cpu_event(&mut self, cpu: usize, stamp: u64) {
        if self.cpus[cpu].stamp != stamp {
            return;
        }
        self.totals.events += 1;
        self.settle(cpu);
        let Some(slot) = self.cpus[cpu].running else {
            return;
        };
        let t = &self.threads[slot as usize];
        if t.left <= 0.0 && t.debt == Nanos::ZERO {
            self.share_done(slot);
        } else {
            match self.options.discipline {
                Discipline::Placed => self.placed_slice_over(cpu, slot),
                Discipline::Fair => self.fair_slice_over(cpu, slot),
            }
        }
    }

    /// Puts a thread that is in no queue on an idle CPU.
    pub(super) fn start(&mut self, slot: u32, cpu: usize) {
        self.settle(cpu);
        let ty = self.cpus[cpu].ty;
        let core_type = self.cpus[cpu].core_type_id();
        let clock = self.queue_of_cpu(cpu);
        self.set_clock(slot, clock);
        let t = &mut self.threads[slot as usize];
        self.totals.switches += 1;
        match t.last_cpu {
            Some(last) if last != cpu => {
                self.totals.migrations += 1;
                self.totals.type_changes += u64::from(t.core_type != core_type);
                t.debt += self.migration_cost;
            }
            _ => {}
        }
        t.last_cpu = Some(cpu);
        t.core_type = core_type;
        t.state = State::Running(cpu);
        let c = &mut self.cpus[cpu];
        c.running = Some(slot);
        c.started = self.now;
        c.slowdown = 1.0;
        self.idle[ty] -= 1;
        self.arm(cpu);
        self.share_cache(ty);
    }

    /// Takes the thread off `cpu`; it is then neither running nor in a queue, and the caller says
    /// what becomes of both.
    pub(super) fn stop(&mut self, cpu: usize) -> Option<u32> {
        self.settle(cpu);
        let slot = self.cpus[cpu].running.take()?;
        self.cpus[cpu].stamp += 1;
        self.cpus[cpu].left = self.now;
        let ty = self.cpus[cpu].ty;
        self.idle[ty] += 1;
        self.threads[slot as usize].state = State::Asleep;
        self.share_cache(ty);
        Some(slot)
    }
}
