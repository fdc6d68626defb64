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
//! over programs j and core types t, *presence* being the threads of j that run there on average.
//! Each row (a program on a core type) has its costs by a Kalman filter without correlations. They are
//! not negative: when one neighbour leaves as another arrives and the rate grows, the first one was
//! the cause. Neighbours on other core types share no cache, only memory, and are suspected last. A
//! program whose rate wavers by itself teaches little: what it does while nobody changes is its noise.
//!
//! A cost counts once it is larger than twice its own uncertainty. Threads are told apart by program, so that
//! the next run of a program is known from its beginning.

use crate::contention::{Cost, ProgramId, Seat};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::thread_map::ThreadMap;
use rustc_hash::FxHashMap;

/// Standard deviation that costs are expected to have before anything is seen: of neighbours on the
/// same core type, and on another one.
const EXPECTED: [f64; 2] = [0.35, 0.12];
/// Standard deviation below which no cost is taken to be known: programs change.
const FLOOR: f64 = 0.1;
/// Part of the expected variance that comes back in a second.
const DRIFT: f64 = 0.002;
/// Standard deviation of the logarithm of the ratio of two windows, at least.
const NOISE: f64 = 0.08;
/// The most that one window says of that noise.
const WILD: f64 = 0.5;
/// Costs below are of no account, and those above are not believed.
const ACCOUNT: std::ops::RangeInclusive<f64> = 0.1..=3.0;
/// Standard uncertainties that a cost must be larger than: a phase that begins as a neighbour arrives
/// looks like one, and programs have many.
const SURELY: f64 = 2.0;
/// Change of presence that is an event.
const EVENT: f64 = 0.25;
/// Neighbours that may change at once; of more nobody can tell who it was.
const MOST_CHANGES: usize = 8;
/// Standard deviation of what a thread's rate may have changed by while it was elsewhere, and the
/// longest such time.
const STAY: f64 = 0.15;
const LONG_AGO: Nanos = Nanos::from_millis(5000);
/// Windows that what was before an event goes back.
const BEFORE: f64 = 3.0;
/// Windows that the noise of a program goes back.
const WAVERS: f64 = 16.0;
/// Part of an interval that a window covers to be compared with.
const WHOLE: f64 = 0.5;
/// Programs, and neighbours of each of them, that are remembered.
const MOST_PROGRAMS: usize = 256;
const MOST_NEIGHBOURS: usize = 32;
/// Part of the fastest rate on a core type below which a thread is slow there, and what is left of that
/// rate after an interval.
const SLOW: f64 = 0.5;
const FADES: f64 = 0.999;
/// Slow threads that are looked at.
const MOST_SUSPECTS: usize = 16;
/// Threads that run at a time beyond which nothing is learned: it would cost too much.
const MOST_THREADS: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Learned {
    ln: f64,
    variance: f64,
    at: Nanos,
    /// Whether it was large enough to count.
    known: bool,
}

impl Learned {
    fn counts(&self) -> bool {
        let doubt = SURELY * self.variance.sqrt();
        let least = if self.known { doubt / 2.0 } else { doubt };
        self.ln - least > *ACCOUNT.start()
    }
}

/// Costs of a program on one core type.
#[derive(Clone, Debug, Default)]
struct Row {
    costs: Vec<(Seat, Learned)>,
    /// Running mean of what the rate does by itself, squared.
    wavers: f64,
}

impl Row {
    fn cost(&mut self, beside: Seat, expected: f64, now: Nanos) -> usize {
        if let Some(i) = self.costs.iter().position(|(s, _)| *s == beside) {
            return i;
        }
        if self.costs.len() >= MOST_NEIGHBOURS {
            let oldest = (0..self.costs.len()).min_by_key(|i| self.costs[*i].1.at);
            self.costs.swap_remove(oldest.unwrap_or(0));
        }
        let fresh = Learned {
            ln: 0.0,
            variance: expected * expected,
            at: now,
            known: false,
        };
        self.costs.push((beside, fresh));
        self.costs.len() - 1
    }

    /// Learns from one event: neighbours changed by `changes`, the logarithm of the rate by `rose`,
    /// of which `aside` is the variance for other reasons. Whether a cost counts now that did not, or no
    /// longer.
    fn learn(
        &mut self,
        on: CoreTypeId,
        changes: &[(Seat, f64)],
        (rose, aside): (f64, f64),
        now: Nanos,
    ) -> bool {
        for (beside, _) in changes {
            let expected = EXPECTED[usize::from(beside.on != on)];
            let i = self.cost(*beside, expected, now);
            let c = &mut self.costs[i].1;
            let away = now.saturating_sub(c.at).as_secs_f64();
            let most = expected * expected;
            c.variance = (c.variance + DRIFT * away * most).min(most.max(FLOOR * FLOOR));
            c.at = now;
        }
        let place = |costs: &[(Seat, Learned)], s: Seat| costs.iter().position(|(t, _)| *t == s);
        let mut active: Vec<(usize, f64)> = changes
            .iter()
            .filter_map(|(s, d)| Some((place(&self.costs, *s)?, *d)))
            .collect();
        let noise = NOISE * NOISE + self.wavers + aside;
        // who would have to help by being there did not: it was the others
        while !active.is_empty() {
            let expected: f64 = active.iter().map(|(i, d)| -self.costs[*i].1.ln * d).sum();
            let spread: f64 = active
                .iter()
                .map(|(i, d)| self.costs[*i].1.variance * d * d)
                .sum();
            let k = (rose - expected) / (spread + noise);
            let new = |c: &Learned, d: f64| c.ln - c.variance * d * k;
            let below = active
                .iter()
                .position(|(i, d)| new(&self.costs[*i].1, *d) < 0.0);
            if let Some(at) = below {
                let (i, d) = active.swap_remove(at);
                let c = &mut self.costs[i].1;
                let gain = c.variance * d * d / (spread + noise);
                c.ln = 0.0;
                c.variance = (c.variance * (1.0 - gain)).max(FLOOR * FLOOR);
                continue;
            }
            for (i, d) in &active {
                let c = &mut self.costs[*i].1;
                let gain = c.variance * d * d / (spread + noise);
                c.ln = new(c, *d).min(*ACCOUNT.end());
                c.variance = (c.variance * (1.0 - gain)).max(FLOOR * FLOOR);
            }
            break;
        }
        let mut turned = false;
        for (_, c) in &mut self.costs {
            let counts = c.counts();
            turned |= counts != c.known;
            c.known = counts;
        }
        turned
    }
}

/// A thread's windows.
#[derive(Clone, Debug, Default)]
struct Thread {
    program: ProgramId,
    /// Instructions and nanoseconds of this interval, by core type.
    sums: [(f64, f64); MAX_CORE_TYPES],
    /// Where it ran for most of the last interval, if anywhere, and for which part of it.
    was: Option<(CoreTypeId, f64)>,
    /// Mean logarithm of its rate there since the last event.
    rate: f64,
    /// Windows in it; none yet after a move, whose first window has cold caches.
    windows: f64,
    /// The interval in which it ran last.
    round: u64,
    /// What it did where it was before, and who was there.
    stays: Vec<Stay>,
}

/// The end of a thread's stay on a core type.
#[derive(Clone, Debug)]
struct Stay {
    on: CoreTypeId,
    /// Part of the last interval in which it ran there.
    part: f64,
    rate: f64,
    presence: FxHashMap<Seat, f64>,
    at: Nanos,
}

/// Who is around in this interval and was in the one before.
struct Around<'a> {
    before: &'a FxHashMap<Seat, f64>,
    here: &'a FxHashMap<Seat, f64>,
    changes: Vec<(Seat, f64)>,
    now: Nanos,
}

/// What a thread's window showed of its program there.
enum Showed {
    /// The logarithm of its rate changed by so much although nobody came or left.
    Wavering(f64),
    /// These came and left, and the logarithm of its rate changed by so much; the variance that this
    /// has for other reasons.
    Event(Vec<(Seat, f64)>, (f64, f64)),
}

/// A core type, the part of an interval that a thread ran there, and the logarithm of its rate.
type Whole = (CoreTypeId, f64, f64);

impl Thread {
    /// Ends the interval: where it ran for most of it, if anywhere.
    fn window(&mut self, interval: Nanos) -> Option<Whole> {
        let sums = std::mem::take(&mut self.sums);
        let mut types = (0..MAX_CORE_TYPES as u8).map(CoreTypeId);
        types.find_map(|t| {
            let (instructions, time) = sums[t.index()];
            let part = time / interval.0 as f64;
            let whole = part >= WHOLE && instructions > 0.0;
            whole.then(|| (t, part, (instructions / time).ln()))
        })
    }

    /// Takes in what it did in this interval.
    fn step(&mut self, whole: Option<Whole>, around: &Around<'_>) -> Option<(Seat, Showed)> {
        let was = std::mem::replace(&mut self.was, whole.map(|(t, part, _)| (t, part)));
        let left = was.filter(|(on, _)| whole.is_none_or(|(t, ..)| t != *on));
        if let Some((on, part)) = left.filter(|_| self.windows > 0.0) {
            self.leave(on, part, around);
        }
        let stayed = whole.zip(was).filter(|((t, ..), (on, _))| t == on);
        let Some(((on, part, ln), (_, had))) = stayed else {
            // what it does next is compared with its second window here
            self.windows = 0.0;
            return None;
        };
        let program = self.program;
        let seat = Seat { program, on };
        let rate = std::mem::replace(&mut self.rate, ln);
        if self.windows == 0.0 {
            self.windows = 1.0;
            let stay = self.stays.iter().position(|s| s.on == on)?;
            let stay = self.stays.swap_remove(stay);
            let mut changes = changes_between(&stay.presence, around.here);
            own_part(&mut changes, seat, part - stay.part);
            let recent = around.now.saturating_sub(stay.at) <= LONG_AGO;
            return (recent && is_event(&changes)).then(|| {
                let by = (ln - stay.rate, STAY * STAY);
                (seat, Showed::Event(changes, by))
            });
        }
        let mut changes = around.changes.clone();
        own_part(&mut changes, seat, part - had);
        if is_event(&changes) {
            self.windows = 1.0;
            return Some((seat, Showed::Event(changes, (ln - rate, 0.0))));
        }
        if changes.len() > MOST_CHANGES {
            self.windows = 1.0;
            return None;
        }
        self.windows = (self.windows + 1.0).min(BEFORE);
        self.rate = rate + (ln - rate) / self.windows;
        Some((seat, Showed::Wavering(ln - rate)))
    }

    /// Keeps what it did on a core type that it has left.
    fn leave(&mut self, on: CoreTypeId, part: f64, around: &Around<'_>) {
        self.stays.retain(|s| s.on != on);
        if around.before.len() <= MOST_NEIGHBOURS {
            self.stays.push(Stay {
                on,
                part,
                rate: self.rate,
                presence: around.before.clone(),
                at: around.now,
            });
        }
    }
}

/// Whose presence changed from one interval to another, and by how much.
fn changes_between(
    before: &FxHashMap<Seat, f64>,
    after: &FxHashMap<Seat, f64>,
) -> Vec<(Seat, f64)> {
    let came = after
        .iter()
        .map(|(s, p)| (*s, p - before.get(s).unwrap_or(&0.0)));
    let left = before.iter().filter(|(s, _)| !after.contains_key(s));
    let mut changes: Vec<(Seat, f64)> = came.chain(left.map(|(s, p)| (*s, -p))).collect();
    changes.retain(|(_, d)| d.abs() >= EVENT / 2.0);
    changes.sort_unstable_by_key(|(s, _)| *s);
    changes
}

/// Takes out of `changes` what a thread of `seat` contributed itself: it is no neighbour of its own.
fn own_part(changes: &mut Vec<(Seat, f64)>, seat: Seat, by: f64) {
    for (_, d) in changes.iter_mut().filter(|(s, _)| *s == seat) {
        *d -= by;
    }
    changes.retain(|(_, d)| d.abs() >= EVENT / 2.0);
}

/// Whether something can be learned from these changes.
fn is_event(changes: &[(Seat, f64)]) -> bool {
    changes.len() <= MOST_CHANGES && changes.iter().any(|(_, d)| d.abs() >= EVENT)
}

/// A program, and when it was met last.
type Met = (ProgramId, Nanos);

/// Learns costs.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    programs: FxHashMap<[u8; 16], Met>,
    next: u32,
    threads: ThreadMap<Thread>,
    /// Threads that ran in this interval.
    ran: Vec<ThreadKey>,
    round: u64,
    /// Presence in this interval, and in the one before.
    presence: [FxHashMap<Seat, f64>; 2],
    rows: FxHashMap<Seat, Row>,
    known: Vec<Cost>,
    /// The fastest rate on each core type; it fades.
    best: [f64; MAX_CORE_TYPES],
    /// Threads that may cost each other something, which nobody has seen yet.
    suspects: Vec<ThreadKey>,
}

impl Neighbours {
    /// Takes in a part of what a thread of the program `comm` did in this interval.
    pub fn take_in(
        &mut self,
        (key, comm): (ThreadKey, [u8; 16]),
        t: CoreTypeId,
        (instructions, time): (f64, f64),
        now: Nanos,
    ) {
        let program = self.meet(comm, now);
        let fresh = Thread {
            program,
            round: u64::MAX,
            ..Thread::default()
        };
        if self.threads.get(key).is_none_or(|t| t.program != program) {
            self.threads.insert(key, fresh);
        }
        let Some(thread) = self.threads.get_mut(key) else {
            return;
        };
        if thread.round != self.round {
            thread.round = self.round;
            self.ran.push(key);
        }
        if let Some(sum) = thread.sums.get_mut(t.index()) {
            sum.0 += instructions;
            sum.1 += time;
        }
    }

    /// The number of the program of this name. The one that was met longest ago makes room.
    fn meet(&mut self, comm: [u8; 16], now: Nanos) -> ProgramId {
        if let Some((id, at)) = self.programs.get_mut(&comm) {
            *at = now;
            return *id;
        }
        if self.programs.len() >= MOST_PROGRAMS {
            let oldest = self.programs.iter().min_by_key(|(c, (_, at))| (*at, **c));
            if let Some((comm, id)) = oldest.map(|(c, (id, _))| (*c, *id)) {
                self.programs.remove(&comm);
                self.forget(id);
            }
        }
        let id = ProgramId(self.next);
        self.next = self.next.wrapping_add(1);
        self.programs.insert(comm, (id, now));
        id
    }

    fn forget(&mut self, id: ProgramId) {
        self.rows.retain(|seat, _| seat.program != id);
        for row in self.rows.values_mut() {
            row.costs.retain(|(seat, _)| seat.program != id);
        }
        self.list();
    }

    /// The interval has ended: learns from who changed. The programs of which a cost counts now that did
    /// not, or no longer.
    pub fn learn(&mut self, interval: Nanos, now: Nanos) -> Vec<[u8; 16]> {
        let mut turned: Vec<ProgramId> = Vec::new();
        self.note_presence(interval);
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
            now,
        };
        let mut list = false;
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
                    row.wavers += (by.powi(2).min(WILD * WILD) - row.wavers) / WAVERS;
                }
                Showed::Event(changes, by) => {
                    if row.learn(seat.on, &changes, by, now) {
                        turned.push(seat.program);
                        list = true;
                    }
                    list |= row.costs.iter().any(|(_, c)| c.known);
                }
            }
        }
        self.suspect();
        if self.threads.len() > 2 * self.ran.len() + 64 {
            let round = self.round;
            self.threads.retain(|_, t| t.round == round);
        }
        self.ran.clear();
        self.round += 1;
        if list {
            self.list();
        }
        let known = |id: &ProgramId| self.programs.iter().find(|(_, (of, _))| of == id);
        turned
            .iter()
            .filter_map(|id| known(id).map(|(comm, _)| *comm))
            .collect()
    }

    /// Finds threads that run side by side, are slow for their core type, as what waits for memory is,
    /// and have not been seen one without the other.
    fn suspect(&mut self) {
        let mut slow: Vec<(Seat, ThreadKey)> = Vec::new();
        for key in &self.ran {
            let Some(thread) = self.threads.get(*key) else {
                continue;
            };
            let Some((on, _)) = thread.was.filter(|_| thread.windows > 0.0) else {
                continue;
            };
            let best = &mut self.best[on.index()];
            let rate = thread.rate.exp();
            *best = (*best * FADES).max(rate);
            if rate < SLOW * *best && slow.len() < MOST_SUSPECTS {
                let program = thread.program;
                slow.push((Seat { program, on }, *key));
            }
        }
        self.suspects.clear();
        let tested = |of: Seat, beside: Seat| {
            let row = self.rows.get(&of);
            let cost = row.and_then(|r| r.costs.iter().find(|(s, _)| *s == beside));
            cost.is_some_and(|(_, c)| c.variance < EXPECTED[0] * EXPECTED[0] / 2.0)
        };
        for (a, key) in &slow {
            let mut others = slow
                .iter()
                .filter(|(b, other)| other != key && b.on == a.on);
            // it is by leaving that a thread shows what it costs
            if others.any(|(b, _)| !tested(*b, *a)) {
                self.suspects.push(*key);
            }
        }
    }

    /// Whether `thread` may cost a neighbour something that nobody has seen yet.
    pub fn suspects(&self, thread: ThreadKey) -> bool {
        self.suspects.contains(&thread)
    }

    /// Sums up who was where.
    fn note_presence(&mut self, interval: Nanos) {
        self.presence.swap(0, 1);
        let here = &mut self.presence[0];
        here.clear();
        for thread in self.ran.iter().filter_map(|k| self.threads.get(*k)) {
            for (t, (_, time)) in thread.sums.iter().enumerate() {
                let seat = Seat {
                    program: thread.program,
                    on: CoreTypeId(t as u8), // below MAX_CORE_TYPES
                };
                if *time > 0.0 && interval > Nanos::ZERO {
                    *here.entry(seat).or_default() += (time / interval.0 as f64).min(1.0);
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
    pub fn program(&self, comm: &[u8; 16]) -> Option<ProgramId> {
        self.programs.get(comm).map(|(id, _)| *id)
    }

    /// What a thread of the program `comm` that ran on `t` in the last interval paid for its
    /// neighbours: the logarithm of the ratio of its rates without them and with them.
    pub fn paid(&self, comm: &[u8; 16], t: CoreTypeId) -> f64 {
        if self.known.is_empty() {
            return 0.0;
        }
        let Some(program) = self.program(comm) else {
            return 0.0;
        };
        let of = Seat { program, on: t };
        let from = self.known.partition_point(|c| c.of < of);
        let costs = self.known[from..].iter().take_while(|c| c.of == of);
        costs
            .map(|c| {
                let present = self.presence[0].get(&c.beside).copied().unwrap_or(0.0);
                // about the thread's own part of its program
                let own = if c.beside == of { 1.0 } else { 0.0 };
                c.ln * (present - own).max(0.0)
            })
            .sum()
    }
}

#[cfg(test)]
mod tests;
