//! Processes: arrival, phases with barriers, completion, restart, departure.

use super::state::{Process, State, Thread};
use super::SimMachine;
use crate::event::Event;
use amp_eval::workload::Schedule;
use amp_metrics::{AppId, CoreTypeId, EndedThread, Nanos, MAX_CORE_TYPES};
use rand::seq::SliceRandom;

impl SimMachine {
    /// Schedules arrivals, in random order where they coincide, and departures.
    pub(super) fn schedule_arrivals(&mut self) {
        let mut order: Vec<usize> = (0..self.apps.len()).collect();
        order.shuffle(&mut self.rng);
        for app in order {
            self.events
                .schedule(self.apps[app].spec.arrival, Event::Arrive { app });
            if let Some(at) = self.apps[app].spec.departure {
                self.events.schedule(at, Event::Depart { app });
            }
        }
    }

    /// Starts a process of the application.
    pub(super) fn arrive(&mut self, app: usize) {
        self.totals.events += 1;
        if self.apps[app].gone {
            return;
        }
        let pid = self.next_id;
        let id = AppId(pid as u64);
        let spec = &self.apps[app].spec;
        let (count, instructions) = (spec.threads, spec.instructions);
        let mut threads = Vec::with_capacity(count as usize);
        for _ in 0..count {
            threads.push(self.new_thread(app, id));
        }
        self.apps[app].process = Some(Process {
            id,
            started: self.now,
            threads,
            phases: 0,
            left: instructions,
            loops: 0,
            loop_length: 0.0,
            sleep: Nanos::ZERO,
            pool: 0.0,
            piece: 0.0,
            at_work: 0,
        });
        self.begin_phase(app);
    }

    fn new_thread(&mut self, app: usize, process: AppId) -> u32 {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.threads.push(Thread::free());
            (self.threads.len() - 1) as u32
        });
        let tid = self.next_id;
        self.next_id = self.next_id.checked_add(1).unwrap_or(1000);
        let (clock, vtime) = (0, self.clocks[0]);
        let t = &mut self.threads[slot as usize];
        *t = Thread {
            generation: t.generation + 1,
            tid,
            app,
            process,
            state: State::Asleep,
            core_type: CoreTypeId::FASTEST,
            clock,
            vtime,
            runtime: [Nanos::ZERO; MAX_CORE_TYPES],
            ..Thread::free()
        };
        slot
    }

    /// Hands out the next loop, or phase, and wakes who takes part in it; false when there is none
    /// left.
    fn begin_phase(&mut self, app: usize) -> bool {
        let a = &mut self.apps[app];
        let Some(p) = &mut a.process else {
            return false;
        };
        if p.loops == 0 {
            if p.left <= 0.0 {
                return false;
            }
            let phase = a.spec.phases[p.phases % a.spec.phases.len()];
            p.phases += 1;
            let instructions = phase.instructions.min(p.left);
            p.left -= instructions;
            p.loops = if phase.parallel { phase.loops } else { 1 };
            p.loop_length = instructions / f64::from(p.loops);
            // a phase that the end of the program cuts short sleeps as much less
            let share = instructions / phase.instructions;
            p.sleep = Nanos((phase.sleep * share * 1e9).min(1e18) as u64);
        }
        p.loops -= 1;
        let index = (p.phases - 1) % a.spec.phases.len();
        let phase = a.spec.phases[index];
        let workers = if phase.parallel { p.threads.len() } else { 1 };
        p.set_out(p.loop_length, workers, phase.schedule == Schedule::Dynamic);
        let to_wake: Vec<u32> = p.threads[..workers].to_vec();
        for slot in &to_wake {
            let t = &mut self.threads[*slot as usize];
            t.phase = index;
            t.left = p.take();
        }
        for slot in to_wake {
            match self.threads[slot as usize].state {
                State::Asleep => self.wake(slot),
                State::Running(cpu) => {
                    self.arm(cpu);
                    self.share_cache(self.cpus[cpu].ty);
                }
                _ => {}
            }
        }
        true
    }

    /// A running thread has done its piece of the loop: it takes another, waits for the others, or
    /// the next loop begins.
    pub(super) fn share_done(&mut self, slot: u32) {
        let app = self.threads[slot as usize].app;
        let Some(p) = &mut self.apps[app].process else {
            return;
        };
        let t = &mut self.threads[slot as usize];
        t.left = p.take();
        if t.left > 0.0 {
            if let State::Running(cpu) = t.state {
                self.arm(cpu);
            }
            return;
        }
        p.at_work = p.at_work.saturating_sub(1);
        let barrier_open = p.at_work == 0;
        // As with a futex: who arrives last wakes the others before it sleeps itself.
        self.leaving = Some(slot);
        let goes_on = !barrier_open || self.sleeps(app) || self.begin_phase(app);
        self.leaving = None;
        if !goes_on {
            self.complete(app);
            return;
        }
        let t = &self.threads[slot as usize];
        if let State::Running(cpu) = t.state {
            if t.left <= 0.0 {
                self.stop(cpu);
                self.dispatch(cpu);
            }
        }
    }

    /// Whether all threads sleep now that a loop is over; if so, it is known until when.
    fn sleeps(&mut self, app: usize) -> bool {
        let asleep = self.apps[app].process.as_ref();
        let Some(p) = asleep.filter(|p| p.sleep > Nanos::ZERO) else {
            return false;
        };
        let (until, process) = (self.now + p.sleep, p.id.0);
        self.events.schedule(until, Event::Awake { app, process });
        true
    }

    /// The threads of the process have slept for long enough.
    pub(super) fn awake(&mut self, app: usize, process: u64) {
        self.totals.events += 1;
        let there = self.apps[app].process.as_ref();
        if there.is_some_and(|p| p.id.0 == process) && !self.begin_phase(app) {
            self.complete(app);
        }
    }

    /// The process has done all its instructions.
    fn complete(&mut self, app: usize) {
        let now = self.now;
        let a = &mut self.apps[app];
        if let Some(p) = &a.process {
            a.stats.completions.push(now.saturating_sub(p.started));
        }
        let again = a.spec.restart;
        self.end_process(app);
        self.apps[app].gone = !again;
        if again && !self.is_over() {
            self.arrive(app);
        }
    }

    /// The application is killed.
    pub(super) fn depart(&mut self, app: usize) {
        self.totals.events += 1;
        self.apps[app].gone = true;
        self.end_process(app);
    }

    /// Frees the threads of the process and gives their CPUs to others.
    fn end_process(&mut self, app: usize) {
        let Some(p) = self.apps[app].process.take() else {
            return;
        };
        let mut freed = Vec::new();
        for slot in p.threads.into_iter().rev() {
            match self.threads[slot as usize].state {
                State::Running(cpu) => {
                    self.stop(cpu);
                    freed.push(cpu);
                }
                State::Queued(_) => self.remove(slot),
                _ => {}
            }
            let t = &mut self.threads[slot as usize];
            t.state = State::Free;
            self.ended.push(EndedThread {
                key: t.key(slot),
                tid: t.tid,
                app: t.process,
                comm: self.apps[app].comm,
                arguments: 0,
                runtime: t.runtime,
            });
            self.free_slots.push(slot);
        }
        freed.sort_unstable();
        for cpu in freed {
            self.dispatch(cpu);
        }
    }
}
