//! What neighbours cost: learned from what a thread's rate does when they change.
//!
//! A thread that stays where it is while others come and go does the same before and after, but for
//! what they take from it: its share of a cache, or of the way to memory. So of two windows of a
//! thread on one core type, next to each other,
//!
//! ```text
//! ln rate(after) - ln rate(before) = - Σ cost(j, t) · (presence of j on t after - before) + noise
//! ```
//!
//! over programs j and core types t, *presence* being the threads of j that run there (for half of an interval or more).
//! Each row (a program on a core type) has its costs by a Kalman filter without correlations. They are
//! not negative: when one neighbour leaves as another arrives and the rate grows, the first one was
//! the cause. Neighbours on other core types share no cache, only memory, and are suspected last. A
//! program whose rate wavers by itself teaches little: what it does while nobody changes is its noise.
//!
//! How much is expected of a neighbour before anything is seen depends on how slow it is for its core type:
//! what waits for memory is slow, and what does not hardly costs anybody anything.
//! What a program does as it begins teaches nothing: it loads what it works on first.
//! Programs of several threads teach nothing and are taught nothing: their threads wait for each other, and a
//! rate that changes by that is nobody's fault.
//! A program may come to do something else just as somebody comes or leaves, and a policy moves others because it has: so what is found
//! in a single event is not believed before another one has borne it out, and a program that was seen to change while nobody came or left
//! is taught nothing from then on. It may still cost others something.
//! A cost counts once it is larger than twice its own uncertainty. Threads are told apart by program, so that
//! the next run of a program is known from its beginning.

mod fastest;
mod presence;
mod row;
mod thread;

use crate::contention::{Cost, ProgramId, Seat};
use crate::ids::{AppId, CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::multiplex::PHASE_STEP;
use crate::sample::{ProgramName, Snapshot};
use crate::thread_map::ThreadMap;
use fastest::Fastest;
use presence::{changes_between, there, Presence};
use row::{expected, Row, EXPECTED};
use rustc_hash::{FxHashMap, FxHashSet};
use thread::{Around, Showed, Thread, WHOLE};

/// The most that one window says of that noise.
const WILD: f64 = 0.5;
/// Windows that the noise of a program goes back.
const WAVERS: f64 = 16.0;
/// Programs that are remembered.
const MOST_PROGRAMS: usize = 256;
/// Slow threads that are looked at.
const MOST_SUSPECTS: usize = 16;
/// The program of a thread that has not run since it was first seen.
const NOBODY: ProgramId = ProgramId(u32::MAX);
/// Threads that run at a time beyond which nothing is learned: it would cost too much.
const MOST_THREADS: usize = 256;

/// A program, and when it was met last.
type Met = (ProgramId, Nanos);

/// Learns costs.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    programs: FxHashMap<ProgramName, Met>,
    next: u32,
    threads: ThreadMap<Thread>,
    /// Threads that ran in this interval, and how many of each process did.
    ran: Vec<ThreadKey>,
    processes: FxHashMap<AppId, u32>,
    /// Programs of which one process ran several threads in this interval.
    parallel: FxHashSet<ProgramId>,
    /// The same of the interval before.
    parallel_before: FxHashSet<ProgramId>,
    round: u64,
    /// When the last interval ended.
    learned: Nanos,
    /// Presence in this interval, and in the one before.
    presence: [Presence; 2],
    rows: FxHashMap<Seat, Row>,
    /// Programs of several phases: they have come to do something else while nobody came or left.
    phased: FxHashSet<ProgramId>,
    known: Vec<Cost>,
    fastest: [Fastest; MAX_CORE_TYPES],
    /// Threads that may cost each other something, which nobody has seen yet.
    suspects: Vec<ThreadKey>,
}

impl Neighbours {
    /// Takes in an interval in which every event set began with instructions. The programs of which a cost counts now that
    /// did not, or no longer.
    pub fn observe(&mut self, snapshot: &Snapshot, interval: Nanos) -> Vec<ProgramName> {
        for t in &snapshot.threads {
            self.ran((t.key, t.program(), t.app), &t.runtime, snapshot.now);
        }
        for r in &snapshot.readings {
            let [instructions, ..] = r.deltas() else {
                continue;
            };
            if r.counted > Nanos::ZERO {
                let counted = (*instructions as f64, r.counted.0 as f64);
                self.take_in(r.thread, r.core_type, counted);
            }
        }
        self.learn(interval, snapshot.now)
    }

    /// Takes in where a thread of the program `name` has run since it was first seen: `runtime` is its CPU time by
    /// core type.
    fn ran(
        &mut self,
        (key, name, app): (ThreadKey, ProgramName, AppId),
        runtime: &[Nanos; MAX_CORE_TYPES],
        now: Nanos,
    ) {
        let total: Nanos = runtime.iter().copied().sum();
        let since = now.saturating_sub(self.learned);
        let (was, before) = match self.threads.get(key) {
            Some(t) => (t.program, t.runtime),
            // it has begun in this interval, or almost
            None if total <= since && there(total.0 as f64 / since.0 as f64) > 0.0 => {
                (NOBODY, [Nanos::ZERO; MAX_CORE_TYPES])
            }
            // when it ran is not known
            None => (NOBODY, *runtime),
        };
        if self.threads.get(key).is_none() {
            self.threads.insert(key, Thread::new(NOBODY, app, before));
        }
        if before == *runtime {
            return;
        }
        let program = self.meet(name, now);
        if was != program {
            self.threads.insert(key, Thread::new(program, app, before));
        }
        let Some(thread) = self.threads.get_mut(key) else {
            return;
        };
        let all = thread.ran.iter_mut().zip(&mut thread.runtime).zip(runtime);
        for ((ran, before), now) in all {
            *ran = now.saturating_sub(*before).0 as f64;
            *before = *now;
        }
        if thread.round != self.round {
            thread.round = self.round;
            self.ran.push(key);
            *self.processes.entry(app).or_default() += 1;
        }
    }

    /// Takes in a part of what was counted of a thread in this interval: instructions, and the nanoseconds of
    /// CPU time in which they were counted. Nothing is counted for who has not run ([`Neighbours::ran`]).
    fn take_in(&mut self, key: ThreadKey, t: CoreTypeId, (instructions, time): (f64, f64)) {
        let round = self.round;
        let thread = self.threads.get_mut(key).filter(|t| t.round == round);
        if let Some(sum) = thread.and_then(|th| th.sums.get_mut(t.index())) {
            sum.0 += instructions;
            sum.1 += time;
        }
    }

    /// The number of the program of this name. The one that was met longest ago makes room.
    fn meet(&mut self, name: ProgramName, now: Nanos) -> ProgramId {
        if let Some((id, at)) = self.programs.get_mut(&name) {
            *at = now;
            return *id;
        }
        if self.programs.len() >= MOST_PROGRAMS {
            let oldest = self.programs.iter().min_by_key(|(n, (_, at))| (*at, **n));
            if let Some((name, id)) = oldest.map(|(n, (id, _))| (*n, *id)) {
                self.programs.remove(&name);
                self.forget(id);
            }
        }
        let id = ProgramId(self.next);
        self.next = self.next.wrapping_add(1);
        self.programs.insert(name, (id, now));
        id
    }

    fn forget(&mut self, id: ProgramId) {
        self.phased.remove(&id);
        self.rows.retain(|seat, _| seat.program != id);
        for row in self.rows.values_mut() {
            row.costs.retain(|(seat, _)| seat.program != id);
        }
        self.list();
    }

    /// The interval has ended: learns from who changed. The programs of which a cost counts now that did
    /// not, or no longer.
    fn learn(&mut self, interval: Nanos, now: Nanos) -> Vec<ProgramName> {
        let mut turned: Vec<ProgramId> = Vec::new();
        self.note_presence(interval);
        self.note_parallel();
        let [here, before] = &self.presence;
        let few = self.ran.len() <= MOST_THREADS;
        let around = Around {
            before,
            here,
            changes: if few {
                changes_between(before, here)
            } else {
                Vec::new()
            },
            parallel: [&self.parallel, &self.parallel_before],
            now,
        };
        let mut list = false;
        let mut phased: Vec<ProgramId> = Vec::new();
        for key in &self.ran {
            let Some(thread) = self.threads.get_mut(*key) else {
                continue;
            };
            let whole = thread.window(interval);
            let Some((seat, showed)) = thread.step(whole, &around) else {
                continue;
            };
            let row = self.rows.entry(seat).or_default();
            match showed {
                Showed::Wavering(by) => {
                    if by.abs() > PHASE_STEP && self.phased.insert(seat.program) {
                        phased.push(seat.program);
                    }
                    row.wavers += (by.powi(2).min(WILD * WILD) - row.wavers) / WAVERS;
                }
                // it is as likely another phase
                Showed::Event(..) if self.phased.contains(&seat.program) => {}
                Showed::Event(changes, by) => {
                    if row.learn(seat.on, &changes, by, now) {
                        turned.push(seat.program);
                        list = true;
                    }
                    list |= row.costs.iter().any(|(_, c)| c.known);
                }
            }
        }
        for program in phased {
            if self.known.iter().any(|c| c.of.program == program) {
                turned.push(program);
                list = true;
            }
            self.rows.retain(|of, _| of.program != program);
        }
        self.suspect();
        if self.threads.len() > 2 * self.ran.len() + 64 {
            let round = self.round;
            self.threads.retain(|_, t| t.round == round);
        }
        self.ran.clear();
        self.processes.clear();
        self.round += 1;
        self.learned = now;
        if list {
            self.list();
        }
        turned.iter().filter_map(|id| self.name(*id)).collect()
    }

    /// Finds threads that run side by side, are slow for their core type, as what waits for memory is,
    /// and have not been seen one without the other.
    fn suspect(&mut self) {
        let mut slow: Vec<(Seat, ThreadKey)> = Vec::new();
        for key in &self.ran {
            let Some(thread) = self.threads.get_mut(*key) else {
                continue;
            };
            let Some((on, _)) = thread.was.filter(|_| thread.windows > 0.0) else {
                continue;
            };
            thread.doubt[on.index()] = 0.0;
            let rate = thread.rate.exp();
            let program = thread.program;
            let alone = !self.parallel.contains(&program);
            if alone && self.fastest[on.index()].is_slow(rate) && slow.len() < MOST_SUSPECTS {
                slow.push((Seat { program, on }, *key));
            }
        }
        self.suspects.clear();
        for (a, key) in &slow {
            let others = slow
                .iter()
                .filter(|(b, other)| other != key && b.on == a.on);
            let mut doubt = 0.0;
            let mut suspected = false;
            for (b, _) in others {
                doubt += self.doubt_of(*a, *b);
                // it is by leaving that a thread shows what it costs
                suspected |= self.doubt_of(*b, *a) > EXPECTED[0] * EXPECTED[0] / 2.0;
            }
            if suspected {
                self.suspects.push(*key);
            }
            if let Some(thread) = self.threads.get_mut(*key) {
                thread.doubt[a.on.index()] = doubt;
            }
        }
    }

    /// Squared standard uncertainty of what `beside`, a slow one, costs `of`.
    fn doubt_of(&self, of: Seat, beside: Seat) -> f64 {
        if self.phased.contains(&of.program) {
            return 0.0; // no move will tell
        }
        let most = expected(of.on, beside, 1.0).powi(2);
        let row = self.rows.get(&of);
        let cost = row.and_then(|r| r.costs.iter().find(|(s, _)| *s == beside));
        cost.map_or(most, |(_, c)| c.variance + (most - c.most).max(0.0))
    }

    /// Squared standard uncertainty of the logarithm of the rate that `thread` had on `t` when it ran
    /// there last, for what neighbours cost it that nobody has seen without them.
    pub fn doubt(&self, thread: ThreadKey, t: usize) -> f64 {
        let doubt = self.threads.get(thread).and_then(|th| th.doubt.get(t));
        doubt.copied().unwrap_or(0.0)
    }

    /// Whether `thread` may cost a neighbour something that nobody has seen yet.
    pub fn suspects(&self, thread: ThreadKey) -> bool {
        self.suspects.contains(&thread)
    }

    fn note_parallel(&mut self) {
        std::mem::swap(&mut self.parallel, &mut self.parallel_before);
        self.parallel.clear();
        let threads = self.ran.iter().filter_map(|k| self.threads.get(*k));
        let of_several = threads.filter(|t| {
            t.app
                .and_then(|a| self.processes.get(&a))
                .is_some_and(|n| *n > 1)
        });
        self.parallel.extend(of_several.map(|t| t.program));
    }

    /// Sums up who was where, and how slow.
    fn note_presence(&mut self, interval: Nanos) {
        self.presence.swap(0, 1);
        self.fastest.iter_mut().for_each(Fastest::fade);
        let here = &mut self.presence[0];
        here.clear();
        for thread in self.ran.iter().filter_map(|k| self.threads.get(*k)) {
            for (t, ran) in thread.ran.iter().enumerate() {
                let (instructions, time) = thread.sums[t];
                let seat = Seat {
                    program: thread.program,
                    on: CoreTypeId(t as u8), // below MAX_CORE_TYPES
                };
                if *ran > 0.0 && interval > Nanos::ZERO {
                    let part = ran / interval.0 as f64;
                    let present = here.entry(seat).or_default();
                    present.threads += there(part);
                    if time > 0.0 {
                        let rate = instructions / time;
                        if part >= WHOLE {
                            self.fastest[t].take_in(seat.program, rate);
                        }
                        let slow = self.fastest[t].how_slow(seat.program, rate);
                        present.slow = present.slow.max(slow);
                    }
                }
            }
        }
    }

    fn list(&mut self) {
        self.known.clear();
        for (of, row) in &self.rows {
            let counts = row.costs.iter().filter(|(_, c)| c.known);
            self.known.extend(counts.map(|(beside, c)| Cost {
                of: *of,
                beside: *beside,
                ln: c.ln,
            }));
        }
        self.known.sort_unstable_by_key(|c| (c.of, c.beside));
    }

    /// Costs that count, in the order of who pays.
    pub fn costs(&self) -> &[Cost] {
        &self.known
    }

    /// The program of this name, if it was met.
    pub fn program(&self, name: &ProgramName) -> Option<ProgramId> {
        self.programs.get(name).map(|(id, _)| *id)
    }

    /// The name of a program.
    pub fn name(&self, program: ProgramId) -> Option<ProgramName> {
        let mut all = self.programs.iter();
        all.find(|(_, (id, _))| *id == program)
            .map(|(name, _)| *name)
    }

    /// What a thread of the program `name` that ran on `t` in the last interval paid for its
    /// neighbours: the logarithm of the ratio of its rates without them and with them.
    pub fn paid(&self, name: &ProgramName, t: CoreTypeId) -> f64 {
        if self.known.is_empty() {
            return 0.0;
        }
        let Some(program) = self.program(name) else {
            return 0.0;
        };
        let of = Seat { program, on: t };
        let from = self.known.partition_point(|c| c.of < of);
        let costs = self.known[from..].iter().take_while(|c| c.of == of);
        costs
            .map(|c| {
                let present = self.presence[0].get(&c.beside).map_or(0.0, |p| p.threads);
                // about the thread's own part of its program
                let own = if c.beside == of { 1.0 } else { 0.0 };
                c.ln * (present - own).max(0.0)
            })
            .sum()
    }
}

#[cfg(test)]
mod tests;
