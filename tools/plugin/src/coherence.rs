//! Coherence of the cores' L1 data caches: who holds a line, and what it costs when another core stores to it.
//!
//! A directory remembers for each line (by the tag that L1 knows it by: threads of a process have the same tags, the kernel's
//! lines are everybody's) which cores took it and who stored last. It is a hash table without chains: a collision costs a
//! line, never correctness. So does a race for a contended line; who owns a line is settled under its lock.
//!
//! ```text
//! load that misses    another core's L1 has the line dirty → it comes from there, and both have it
//! store               the others lose the line; if one had it dirty and this core did not have it, it comes from there
//! ```
//!
//! vCPUs run up to a quantum apart in virtual time, and on a busy host one after the other: a line that two cores use at the
//! same virtual time would change hands once per quantum, or with each access, as the host pleases. So a line that changes
//! hands three times within [`Directory::window`] becomes *contended*: it lives in no L1, each access to it comes here,
//! and what decides whether this core still has it is how often the others store to it in virtual time ([`Run`]): it loses the
//! line when another one has wanted it again and waited for it. A core that stores in one go is taken to have gone on at its
//! pace up to where its vCPU is, or, while it is behind, beyond.
//!
//! Memory that processes share under different addresses is not seen to be shared.

use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering::*};

/// What the directory asks of the other cores.
pub trait Peers {
    /// Whether the core has the line; it may no longer store to it without asking.
    fn share(&self, cpu: usize, tag: u64) -> bool;
    /// Takes the line from the core; whether it had it. `level` is that of the address.
    fn take(&self, cpu: usize, tag: u64, level: usize) -> bool;
    /// Virtual time that the core has reached.
    fn time(&self, cpu: usize) -> u64;
}

/// An access that L1 could not answer by itself.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub cpu: usize,
    pub level: usize,
    pub tag: u64,
    pub store: bool,
    /// Not in this core's L1.
    pub missed: bool,
    /// The core's virtual time.
    pub now: u64,
}

/// What comes of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// The core from whose L1 the line comes.
    pub from: Option<usize>,
    /// Others had a copy and lost it, while this core had one too.
    pub upgrade: bool,
    /// The first store to a line that was clean.
    pub dirtied: bool,
    /// The line is contended: no L1 may keep it. Unless `from` says otherwise the core still had it.
    pub contended: bool,
}

/// [`Entry::owner`] of a contended line.
const CONTENDED: u32 = u32::MAX;
/// Lines that can be contended at a time.
const NR_CONTENDED: usize = 256;
/// Binary logarithm of the unit of [`Entry::changed`], in picoseconds: a microsecond.
const TICK: u32 = 20;
/// Stores in a row before their pace is believed: more than it takes to fill a line once.
const BELIEVED: u32 = 12;
/// A remote store, in the unit of [`Core::debt`].
const ONE: u64 = 1024;

/// A line.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Entry {
    tag: AtomicU64,
    /// Cores that have taken it, one bit each.
    holders: AtomicU64,
    /// When it last changed hands, and when before that, in [`TICK`]s.
    changed: [AtomicU32; 2],
    /// The core that stored last, plus one; 0 while it is clean.
    owner: AtomicU32,
    /// 1 while a core changes the rest: two that both think the line theirs would never find out.
    locked: AtomicU32,
}

impl Entry {
    /// Waits until nobody else changes the entry, which takes less than a microsecond unless the host runs others meanwhile.
    fn lock(&self) {
        let mut tries = 0u32;
        while self
            .locked
            .compare_exchange_weak(0, 1, Acquire, Relaxed)
            .is_err()
        {
            tries += 1;
            if tries % 64 == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// A core's stores to a contended line that follow each other without a pause.
#[derive(Debug, Default)]
struct Run {
    first: AtomicU64,
    last: AtomicU64,
    /// Mean time between two of them, lately, without what the core waited for the line.
    interval: AtomicU64,
    /// How long it waited for the line when it last had to; 0 when it never had.
    wait: AtomicU64,
    n: AtomicU32,
}

impl Run {
    fn store(&self, now: u64, window: u64, slack: u64) {
        let (last, interval) = (self.last.load(Relaxed), self.interval.load(Relaxed));
        let pause = match interval {
            0 => window,
            i => 8 * i + slack,
        };
        let between = now.saturating_sub(last);
        if last == 0 || now > last.saturating_add(pause) {
            if last != 0 && self.n.load(Relaxed) == 1 && between < window {
                // after each of two stores: that is the pace by now, slowed down by other lines that bounce
                self.interval.store(between, Relaxed);
                self.n.store(2, Relaxed);
            } else {
                self.first.store(now, Relaxed);
                self.n.store(1, Relaxed);
            }
        } else {
            let mean = match interval {
                0 => between,
                i => (15 * i + between) / 16,
            };
            self.interval.store(mean.max(1), Relaxed);
            self.n
                .store(self.n.load(Relaxed).saturating_add(1), Relaxed);
        }
        self.last.store(now, Relaxed);
    }

    /// How often this core takes the line away from one that had it in `(from, to]`, as far as a pace is known; `None` when
    /// there is none. It asks for the line again when it wants to store next, and has to wait for it.
    fn expected(&self, from: u64, to: u64, reached: u64, slack: u64) -> Option<u64> {
        let (last, interval) = (self.last.load(Relaxed), self.interval.load(Relaxed));
        let goes_on = reached <= last.saturating_add(4 * interval + slack);
        if self.n.load(Relaxed) < BELIEVED || interval == 0 || !(goes_on || to <= last) {
            return None;
        }
        let to = if goes_on { to } else { to.min(last) };
        let time = to.saturating_sub(from.max(self.first.load(Relaxed)));
        let each = interval + self.wait.load(Relaxed);
        Some(time.min(1 << 40).saturating_mul(ONE) / each)
    }

    /// The core waited so long for the line.
    fn waited(&self, wait: u64) {
        self.wait.store(wait, Relaxed);
        let last = self.last.load(Relaxed);
        if last != 0 {
            self.last.store(last + wait, Relaxed);
        }
    }
}

/// What a core did with a contended line.
#[derive(Debug, Default)]
struct Core {
    /// Its last access, or when the line came if it had to be fetched; 0 for none.
    seen: AtomicU64,
    /// [`Shared::version`] then.
    known: AtomicU32,
    /// Remote stores since it last got the line, in [`ONE`]s.
    debt: AtomicU64,
    stores: Run,
}

/// A contended line.
#[derive(Debug)]
struct Shared {
    tag: AtomicU64,
    /// Goes up with each store.
    version: AtomicU32,
    writer: AtomicU32,
    cores: Box<[Core]>,
}

/// The directory.
#[derive(Debug)]
pub struct Directory {
    entries: Box<[Entry]>,
    shared: Box<[Shared]>,
    /// Three changes of hands within this time make a line contended; without the others for as long it is no more.
    window: u64,
    /// What a core may do between two stores of a run beside, such as fetching the line.
    slack: u64,
}

impl Directory {
    /// An empty directory for caches of `lines` lines altogether. `quantum` is how far vCPUs may be apart, `transfer` how long
    /// a core may wait for another one's line.
    pub fn new(lines: usize, cpus: usize, quantum: u64, transfer: u64) -> Directory {
        let line = || Shared {
            tag: AtomicU64::new(0),
            version: AtomicU32::new(0),
            writer: AtomicU32::new(0),
            cores: (0..cpus).map(|_| Core::default()).collect(),
        };
        let n = (2 * lines).next_power_of_two();
        Directory {
            entries: (0..n).map(|_| Entry::default()).collect(),
            shared: (0..NR_CONTENDED).map(|_| line()).collect(),
            window: 4 * quantum,
            slack: quantum / 1024 + transfer,
        }
    }

    fn hash(tag: u64) -> usize {
        (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
    }

    /// An access that missed, or a store to a line that the core does not know to be its own.
    #[inline]
    pub fn access(&self, peers: &impl Peers, a: Access) -> Effect {
        let Some(e) = self
            .entries
            .get(Self::hash(a.tag) & (self.entries.len() - 1))
        else {
            return Effect::default();
        };
        let mine = a.cpu as u32 + 1;
        let known = |owner: u32| owner == mine && e.tag.load(Relaxed) == a.tag;
        if !a.missed {
            // the core has said that it takes the line for its own; whoever takes it now sees that, or says so here first
            fence(SeqCst);
            if known(e.owner.load(Relaxed)) {
                return Effect::default();
            }
        }
        e.lock();
        let effect = self.change(peers, a, e, mine);
        e.locked.store(0, Release);
        effect
    }

    /// Whether `cpu` may have the line, and may store to it; both of a line that is not known.
    pub fn allows(&self, cpu: usize, tag: u64) -> (bool, bool) {
        let at = Self::hash(tag) & (self.entries.len() - 1);
        match self.entries.get(at) {
            Some(e) if e.tag.load(Relaxed) == tag => match e.owner.load(Relaxed) {
                CONTENDED => (false, false),
                owner => (
                    e.holders.load(Relaxed) >> cpu & 1 == 1,
                    owner == cpu as u32 + 1,
                ),
            },
            _ => (true, true),
        }
    }

    fn change(&self, peers: &impl Peers, a: Access, e: &Entry, mine: u32) -> Effect {
        if e.tag.load(Relaxed) == a.tag {
            let owner = e.owner.load(Relaxed);
            if owner != mine {
                return self.others(peers, a, e, owner);
            }
        } else {
            e.tag.store(a.tag, Relaxed);
            e.changed.iter().for_each(|c| c.store(0, Relaxed));
        }
        e.holders.store(1 << a.cpu, Relaxed);
        e.owner.store(if a.store { mine } else { 0 }, Relaxed);
        Effect {
            dirtied: a.store,
            ..Effect::default()
        }
    }

    #[inline(never)]
    fn others(&self, peers: &impl Peers, a: Access, e: &Entry, owner: u32) -> Effect {
        let mine = 1u64 << a.cpu;
        let mut owner = owner;
        if owner == CONTENDED {
            match self.contended(a.tag) {
                Some(s) => return self.contest(peers, a, e, s),
                None => owner = 0,
            }
        }
        let mut effect = Effect {
            dirtied: a.store,
            ..Effect::default()
        };
        let holders = e.holders.load(Relaxed);
        // before anybody is asked to give the line up: who then thinks that it is still theirs finds out here
        let next = if a.store { a.cpu as u32 + 1 } else { 0 };
        e.owner.store(next, Relaxed);
        fence(SeqCst);
        if a.store {
            let mut others = holders & !mine;
            while others != 0 {
                let cpu = others.trailing_zeros() as usize;
                others &= others - 1;
                if peers.take(cpu, a.tag, a.level) {
                    let dirty = a.missed && owner == cpu as u32 + 1;
                    effect.from = if dirty { Some(cpu) } else { effect.from };
                    effect.upgrade |= !a.missed;
                }
            }
            e.holders.store(mine, Relaxed);
        } else {
            if owner != 0 && peers.share(owner as usize - 1, a.tag) {
                effect.from = Some(owner as usize - 1);
            }
            e.holders.store(holders | mine, Relaxed);
        }
        if effect.from.is_some() || effect.upgrade {
            // cores' clocks may be far apart on an overloaded host: of two that take the line in turn, the time before the last
            // is this core's own
            let now = ((a.now >> TICK) as u32).max(1);
            let [last, before] = &e.changed;
            let last = last.swap(now, Relaxed);
            let before = before.swap(last, Relaxed);
            let window = (self.window >> TICK) as u32;
            let soon = |t: u32| t != 0 && now.wrapping_sub(t).min(t.wrapping_sub(now)) < window;
            if soon(before) {
                effect.contended = self.contend(peers, a, e, holders);
            }
        }
        effect
    }

    fn slot(&self, tag: u64) -> Option<&Shared> {
        self.shared.get(Self::hash(tag) >> 7 & (NR_CONTENDED - 1))
    }

    fn contended(&self, tag: u64) -> Option<&Shared> {
        self.slot(tag).filter(|s| s.tag.load(Relaxed) == tag)
    }

    /// Makes the line contended; `false` while another one has its place.
    fn contend(&self, peers: &impl Peers, a: Access, e: &Entry, holders: u64) -> bool {
        let Some(s) = self.slot(a.tag) else {
            return false;
        };
        let (tag, now) = (s.tag.load(Relaxed), a.now);
        if tag != 0
            && tag != a.tag
            && s.cores
                .iter()
                .enumerate()
                .any(|(cpu, c)| self.recent(c, now.min(peers.time(cpu))))
        {
            return false;
        }
        for (cpu, c) in s.cores.iter().enumerate() {
            // whoever has it now has just used it
            let seen = if holders >> cpu & 1 == 1 { now } else { 0 };
            c.seen.store(seen, Relaxed);
            c.known.store(0, Relaxed);
            c.debt.store(0, Relaxed);
            c.stores.last.store(0, Relaxed);
            c.stores.interval.store(0, Relaxed);
            c.stores.wait.store(0, Relaxed);
            c.stores.n.store(0, Relaxed);
        }
        s.version.store(0, Relaxed);
        s.tag.store(a.tag, Relaxed);
        e.owner.store(CONTENDED, Relaxed);
        let mut others = holders & !(1 << a.cpu);
        while others != 0 {
            peers.take(others.trailing_zeros() as usize, a.tag, a.level);
            others &= others - 1;
        }
        self.note(s, a);
        true
    }

    /// A contended line that another core had has arrived at `cpu`: nobody could take it away again before `now`.
    pub fn arrived(&self, cpu: usize, tag: u64, now: u64) {
        if let Some(me) = self.contended(tag).and_then(|s| s.cores.get(cpu)) {
            let asked = me.seen.swap(now, Relaxed);
            me.stores.waited(now.saturating_sub(asked));
        }
    }

    fn recent(&self, c: &Core, now: u64) -> bool {
        let seen = c.seen.load(Relaxed);
        seen != 0 && seen.saturating_add(self.window) > now
    }

    /// Writes an access down.
    fn note(&self, s: &Shared, a: Access) {
        let Some(me) = s.cores.get(a.cpu) else { return };
        me.seen.store(a.now, Relaxed);
        if a.store {
            me.stores.store(a.now, self.window, self.slack);
            s.writer.store(a.cpu as u32, Relaxed);
            s.version.fetch_add(1, Relaxed);
        }
        me.known.store(s.version.load(Relaxed), Relaxed);
    }

    /// An access to a contended line.
    fn contest(&self, peers: &impl Peers, a: Access, e: &Entry, s: &Shared) -> Effect {
        let Some(me) = s.cores.get(a.cpu) else {
            return Effect::default();
        };
        let seen = me.seen.load(Relaxed);
        let mut debt = me.debt.load(Relaxed);
        let writer = s.writer.load(Relaxed) as usize;
        let changed = me.known.load(Relaxed) != s.version.load(Relaxed) && writer != a.cpu;
        let (mut from, mut lost, mut recent) = (None, false, false);
        for (cpu, c) in s.cores.iter().enumerate() {
            if cpu == a.cpu || c.seen.load(Relaxed) == 0 {
                continue;
            }
            // by whichever clock is behind
            recent |= self.recent(c, a.now.min(peers.time(cpu)));
            match c.stores.expected(seen, a.now, peers.time(cpu), self.slack) {
                Some(n) => {
                    debt = debt.saturating_add(n);
                    from = from.or(Some(cpu));
                }
                None if changed && writer == cpu => (lost, from) = (true, Some(cpu)),
                None => {}
            }
        }
        // a core that comes to the line gets it from whoever has it
        lost |= seen == 0 || debt >= ONE;
        // several stores by others cost one refill: what is left is how far the next one has come
        me.debt.store(debt % ONE, Relaxed);
        self.note(s, a);
        if !recent {
            s.tag.store(0, Relaxed);
            e.changed.iter().for_each(|c| c.store(0, Relaxed));
            e.holders.store(1 << a.cpu, Relaxed);
            let owner = if a.store { a.cpu as u32 + 1 } else { 0 };
            e.owner.store(owner, Relaxed);
        }
        let writer = (writer != a.cpu).then_some(writer);
        Effect {
            from: lost.then_some(from.or(writer)).flatten(),
            contended: recent,
            dirtied: !recent && a.store,
            ..Effect::default()
        }
    }
}

#[cfg(test)]
#[path = "coherence_tests.rs"]
mod tests;
