//! Coherence of the cores' L1 data caches: who holds a line, and what it costs when another core
//! stores to it.
//!
//! A directory remembers for each line (by the tag that L1 knows it by: threads of a process have
//! the same tags, the kernel's lines are everybody's) which cores took it and who stored last. It
//! is a hash table without chains: a collision costs a line, never correctness. So does a race for
//! a contended line; who owns a line is settled under its lock.
//!
//! ```text
//! load that misses    another core's L1 has the line dirty → it comes from there, and both have it
//! store               the others lose the line; if one had it dirty and this core did not have it, it comes from there
//! ```
//!
//! vCPUs run up to a quantum apart in virtual time, and on a busy host one after the other: a line
//! that two cores use at the same virtual time would change hands once per quantum, or with each
//! access, as the host pleases. So a line that changes hands three times within
//! [`Directory::window`] becomes *contended*: it lives in no L1, each access to it comes here, and
//! what decides whether this core still has it is how often the others store to it in virtual time
//! ([`contended`]): it loses the line when another one has wanted it again and waited for it. A
//! core that stores in one go is taken to have gone on at its pace up to where its vCPU is, or,
//! while it is behind, beyond.
//!
//! Memory that processes share under different addresses is not seen to be shared.

mod contended;

use contended::Contended;
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
    /// The line is contended: no L1 may keep it. Unless `from` says otherwise the core still had
    /// it.
    pub contended: bool,
}

/// [`Entry::owner`] of a contended line.
const CONTENDED: u32 = u32::MAX;
/// Binary logarithm of the unit of [`Entry::changed`], in picoseconds: a microsecond.
const TICK: u32 = 20;

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
    /// Waits until nobody else changes the entry, which takes less than a microsecond unless the
    /// host runs others meanwhile.
    fn lock(&self) {
        let mut tries = 0u32;
        while self
            .locked
            .compare_exchange_weak(0, 1, Acquire, Relaxed)
            .is_err()
        {
            tries += 1;
            if tries.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

fn hash(tag: u64) -> usize {
    (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

/// The directory.
#[derive(Debug)]
pub struct Directory {
    entries: Box<[Entry]>,
    contended: Contended,
    /// Three changes of hands within this time make a line contended.
    window: u64,
}

impl Directory {
    /// An empty directory for caches of `lines` lines altogether. `quantum` is how far vCPUs may be
    /// apart, `transfer` how long a core may wait for another one's line.
    pub fn new(lines: usize, cpus: usize, quantum: u64, transfer: u64) -> Directory {
        let window = 4 * quantum;
        let n = (2 * lines).next_power_of_two();
        Directory {
            entries: (0..n).map(|_| Entry::default()).collect(),
            contended: Contended::new(cpus, window, quantum / 1024 + transfer),
            window,
        }
    }

    /// An access that missed, or a store to a line that the core does not know to be its own.
    #[inline]
    pub fn access(&self, peers: &impl Peers, a: Access) -> Effect {
        let Some(e) = self.entries.get(hash(a.tag) & (self.entries.len() - 1)) else {
            return Effect::default();
        };
        let mine = a.cpu as u32 + 1;
        let known = |owner: u32| owner == mine && e.tag.load(Relaxed) == a.tag;
        if !a.missed {
            // the core has said that it takes the line for its own; whoever takes it now sees that,
            // or says so here first
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
        let at = hash(tag) & (self.entries.len() - 1);
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
            match self.contended.access(peers, a) {
                Some(effect) => {
                    if !effect.contended {
                        e.changed.iter().for_each(|c| c.store(0, Relaxed));
                        e.holders.store(mine, Relaxed);
                        let owner = if a.store { a.cpu as u32 + 1 } else { 0 };
                        e.owner.store(owner, Relaxed);
                    }
                    return effect;
                }
                None => owner = 0,
            }
        }
        let mut effect = Effect {
            dirtied: a.store,
            ..Effect::default()
        };
        let holders = e.holders.load(Relaxed);
        // before anybody is asked to give the line up: who then thinks that it is still theirs
        // finds out here
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
            // cores' clocks may be far apart on an overloaded host: of two that take the line in
            // turn, the time before the last is this core's own
            let now = ((a.now >> TICK) as u32).max(1);
            let [last, before] = &e.changed;
            let last = last.swap(now, Relaxed);
            let before = before.swap(last, Relaxed);
            let window = (self.window >> TICK) as u32;
            let soon = |t: u32| t != 0 && now.wrapping_sub(t).min(t.wrapping_sub(now)) < window;
            if soon(before) && self.contended.begin(peers, a, holders) {
                effect.contended = true;
                e.owner.store(CONTENDED, Relaxed);
                for cpu in (0..64).filter(|cpu| (holders & !mine) >> cpu & 1 == 1) {
                    peers.take(cpu, a.tag, a.level);
                }
            }
        }
        effect
    }

    /// A contended line that another core had has arrived at `cpu`: nobody could take it away again
    /// before `now`.
    pub fn arrived(&self, cpu: usize, tag: u64, now: u64) {
        self.contended.arrived(cpu, tag, now);
    }
}

#[cfg(test)]
#[path = "coherence_tests.rs"]
mod tests;
