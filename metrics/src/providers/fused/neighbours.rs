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
//! How much is expected of a neighbour before anything is seen depends on how slow it is for its core type:
//! what waits for memory is slow, and what does not hardly costs anybody anything.
//! A cost counts once it is larger than twice its own uncertainty. Threads are told apart by program, so that
//! the next run of a program is known from its beginning.

use crate::contention::{Cost, ProgramId, Seat};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::thread_map::ThreadMap;
use rustc_hash::FxHashMap;

/// Standard deviation that costs are expected to have before anything is seen: of neighbours on the
/// same core type, and on another one, that are as slow there as what waits for memory.
const EXPECTED: [f64; 2] = [0.35, 0.12];
/// That of neighbours that are as fast as anything there: they hardly use what is shared.
const HARMLESS: f64 = 0.06;
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
    /// What the variance is before anything is seen.
    most: f64,
    at: Nanos,
    /// Whether it was large enough to count.
    known: bool,
}

impl Learned {
    /// Takes in an event that takes away the part `gain` of its variance.
    fn narrow(&mut self, gain: f64) {
        self.variance = (self.variance * (1.0 - gain)).max(self.most.min(FLOOR * FLOOR));
    }

    fn counts(&self) -> bool {
        let doubt = SURELY * self.variance.sqrt();
        let least = if self.known { doubt / 2.0 } else { doubt };
        self.ln - least > *ACCOUNT.start()
    }
}

/// Standard deviation that the cost of `beside` to a thread on `on` is expected to have, by how slow it is
/// where it is (0 to 1).
fn expected(on: CoreTypeId, beside: Seat, slow: f64) -> f64 {
    let most = EXPECTED[usize::from(beside.on != on)];
    let least = HARMLESS * most / EXPECTED[0];
    least + slow * (most - least)
}

/// How much of a program ran on a core type.
#[derive(Clone, Copy, Debug, Default)]
struct Present {
    /// Threads, on average over the interval.
    threads: f64,
    /// From 0, as fast as anything there, to 1, as slow as what waits for memory.
    slow: f64,
}

/// Who ran where in an interval.
type Presence = FxHashMap<Seat, Present>;

/// A program whose presence changed.
#[derive(Clone, Copy, Debug)]
struct Change {
    beside: Seat,
    /// Threads more.
    by: f64,
    /// As in [`Present`], the greater one of before and after.
    slow: f64,
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
            most: expected * expected,
            at: now,
            known: false,
        };
        self.costs.push((beside, fresh));
        self.costs.len() - 1
    }

    /// Learns from one event: neighbours changed as `changes` says, the logarithm of the rate by `rose`,
    /// of which `aside` is the variance for other reasons. Whether a cost counts now that did not, or no
    /// longer.
    fn learn(
        &mut self,
        on: CoreTypeId,
        changes: &[Change],
        (rose, aside): (f64, f64),
        now: Nanos,
    ) -> bool {
        for change in changes {
            let expected = expected(on, change.beside, change.slow);
            let i = self.cost(change.beside, expected, now);
            let c = &mut self.costs[i].1;
            let away = now.saturating_sub(c.at).as_secs_f64();
            let most = expected * expected;
            // once it is seen to be slow, more is expected of it
            let more = (most - c.most).max(0.0);
            c.most += more;
            c.variance = (c.variance + more + DRIFT * away * c.most).min(c.most);
            c.at = now;
        }
        let place = |costs: &[(Seat, Learned)], s: Seat| costs.iter().position(|(t, _)| *t == s);
        let mut active: Vec<(usize, f64)> = changes
            .iter()
            .filter_map(|c| Some((place(&self.costs, c.beside)?, c.by)))
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
                c.narrow(gain);
                continue;
            }
            for (i, d) in &active {
                let c = &mut self.costs[*i].1;
                let gain = c.variance * d * d / (spread + noise);
                c.ln = new(c, *d).min(*ACCOUNT.end());
                c.narrow(gain);
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

/// The two fastest programs on a core type, by instructions per nanosecond of CPU time, the faster one first.
/// What they did fades.
#[derive(Clone, Copy, Debug, Default)]
struct Fastest([Option<(ProgramId, f64)>; 2]);

impl Fastest {
    fn take_in(&mut self, program: ProgramId, rate: f64) {
        let [first, second] = &mut self.0;
        if first.is_none_or(|(p, _)| p == program) {
            *first = Some((program, first.map_or(rate, |(_, r)| r.max(rate))));
        } else if second.is_none_or(|(p, r)| p == program || r < rate) {
            *second = Some((
                program,
                rate.max(second.filter(|(p, _)| *p == program).map_or(0.0, |s| s.1)),
            ));
        }
        if let (Some(a), Some(b)) = (*first, *second) {
            if b.1 > a.1 {
                self.0 = [Some(b), Some(a)];
            }
        }
    }

    fn fade(&mut self) {
        for (_, rate) in self.0.iter_mut().flatten() {
            *rate *= FADES;
        }
    }

    /// Whether this rate is that of a slow program.
    fn is_slow(&self, rate: f64) -> bool {
        self.0[0].is_some_and(|(_, fastest)| rate < SLOW * fastest)
    }

    /// How slow `program` is at this rate, 0 to 1, beside the fastest other one. Of whom there is nobody to
    /// compare with the worst is assumed.
    fn how_slow(&self, program: ProgramId, rate: f64) -> f64 {
        let other = self.0.iter().flatten().find(|(p, _)| *p != program);
        let slow = other.map_or(1.0, |(_, fastest)| (1.0 - rate / fastest) / (1.0 - SLOW));
        if slow.is_nan() {
            1.0
        } else {
            slow.clamp(0.0, 1.0)
        }
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
    /// See [`Neighbours::doubt`].
    doubt: [f64; MAX_CORE_TYPES],
}

/// The end of a thread's stay on a core type.
#[derive(Clone, Debug)]
struct Stay {
    on: CoreTypeId,
    /// Part of the last interval in which it ran there.
    part: f64,
    rate: f64,
    presence: Presence,
    at: Nanos,
}

/// Who is around in this interval and was in the one before.
struct Around<'a> {
    before: &'a Presence,
    here: &'a Presence,
    changes: Vec<Change>,
    now: Nanos,
}

/// What a thread's window showed of its program there.
enum Showed {
    /// The logarithm of its rate changed by so much although nobody came or left.
    Wavering(f64),
    /// These came and left, and the logarithm of its rate changed by so much; the variance that this
    /// has for other reasons.
    Event(Vec<Change>, (f64, f64)),
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
fn changes_between(before: &Presence, after: &Presence) -> Vec<Change> {
    let change = |beside: Seat, was: Present, is: Present| Change {
        beside,
        by: is.threads - was.threads,
        slow: was.slow.max(is.slow),
    };
    let came = after
        .iter()
        .map(|(s, p)| change(*s, before.get(s).copied().unwrap_or_default(), *p));
    let left = before.iter().filter(|(s, _)| !after.contains_key(s));
    let left = left.map(|(s, p)| change(*s, *p, Present::default()));
    let mut changes: Vec<Change> = came.chain(left).collect();
    changes.retain(Change::is_one);
    changes.sort_unstable_by_key(|c| c.beside);
    changes
}

impl Change {
    fn is_one(&self) -> bool {
        self.by.abs() >= EVENT / 2.0
    }
}

/// Takes out of `changes` what a thread of `seat` contributed itself: it is no neighbour of its own.
fn own_part(changes: &mut Vec<Change>, seat: Seat, by: f64) {
    for c in changes.iter_mut().filter(|c| c.beside == seat) {
        c.by -= by;
    }
    changes.retain(Change::is_one);
}

/// Whether something can be learned from these changes.
fn is_event(changes: &[Change]) -> bool {
    changes.len() <= MOST_CHANGES && changes.iter().any(|c| c.by.abs() >= EVENT)
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
    presence: [Presence; 2],
    rows: FxHashMap<Seat, Row>,
    known: Vec<Cost>,
    fastest: [Fastest; MAX_CORE_TYPES],
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
            let Some(thread) = self.threads.get_mut(*key) else {
                continue;
            };
            let Some((on, _)) = thread.was.filter(|_| thread.windows > 0.0) else {
                continue;
            };
            thread.doubt[on.index()] = 0.0;
            let rate = thread.rate.exp();
            if self.fastest[on.index()].is_slow(rate) && slow.len() < MOST_SUSPECTS {
                let program = thread.program;
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

    /// Sums up who was where, and how slow.
    fn note_presence(&mut self, interval: Nanos) {
        self.presence.swap(0, 1);
        self.fastest.iter_mut().for_each(Fastest::fade);
        let here = &mut self.presence[0];
        here.clear();
        for thread in self.ran.iter().filter_map(|k| self.threads.get(*k)) {
            for (t, (instructions, time)) in thread.sums.iter().enumerate() {
                let seat = Seat {
                    program: thread.program,
                    on: CoreTypeId(t as u8), // below MAX_CORE_TYPES
                };
                if *time > 0.0 && interval > Nanos::ZERO {
                    let part = (time / interval.0 as f64).min(1.0);
                    let rate = instructions / time;
                    if part >= WHOLE {
                        self.fastest[t].take_in(seat.program, rate);
                    }
                    let slow = self.fastest[t].how_slow(seat.program, rate);
                    let present = here.entry(seat).or_default();
                    present.threads += part;
                    present.slow = present.slow.max(slow);
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
