//! Lines that several cores use at the same time: which of them has one follows from how often each
//! of them stores to it in virtual time ([`Run`]), whatever the host runs first.

use super::{Access, Effect, Peers};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Lines that can be contended at a time.
const NR_CONTENDED: usize = 256;
/// Stores in a row before their pace is believed: more than it takes to fill a line once.
const BELIEVED: u32 = 12;
/// A remote store, in the unit of [`Core::debt`].
const ONE: u64 = 1024;

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
                // after each of two stores: that is the pace by now, slowed down by other lines
                // that bounce
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

    /// How often this core takes the line away from one that had it in `(from, to]`, as far as a
    /// pace is known; `None` when there is none. It asks for the line again when it wants to store
    /// next, and has to wait for it.
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

/// All contended lines.
#[derive(Debug)]
pub struct Contended {
    lines: Box<[Shared]>,
    /// A line that only one core used for as long is not contended any more.
    window: u64,
    /// What a core may do between two stores of a run beside, such as fetching the line.
    slack: u64,
}

impl Contended {
    /// No contended lines.
    pub fn new(cpus: usize, window: u64, slack: u64) -> Contended {
        let line = || Shared {
            tag: AtomicU64::new(0),
            version: AtomicU32::new(0),
            writer: AtomicU32::new(0),
            cores: (0..cpus).map(|_| Core::default()).collect(),
        };
        Contended {
            lines: (0..NR_CONTENDED).map(|_| line()).collect(),
            window,
            slack,
        }
    }

    fn slot(&self, tag: u64) -> Option<&Shared> {
        self.lines.get(super::hash(tag) >> 7 & (NR_CONTENDED - 1))
    }

    fn find(&self, tag: u64) -> Option<&Shared> {
        self.slot(tag).filter(|s| s.tag.load(Relaxed) == tag)
    }

    /// Makes the line contended, of which the cores in `holders` have a copy; `false` while another
    /// one has its place.
    pub fn begin(&self, peers: &impl Peers, a: Access, holders: u64) -> bool {
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
        self.note(s, a);
        true
    }

    /// A contended line that another core had has arrived at `cpu`: nobody could take it away again
    /// before `now`.
    pub fn arrived(&self, cpu: usize, tag: u64, now: u64) {
        if let Some(me) = self.find(tag).and_then(|s| s.cores.get(cpu)) {
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

    /// An access to a contended line; `None` when it is none any more.
    pub fn access(&self, peers: &impl Peers, a: Access) -> Option<Effect> {
        let s = self.find(a.tag)?;
        let me = s.cores.get(a.cpu)?;
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
        }
        let writer = (writer != a.cpu).then_some(writer);
        Some(Effect {
            from: lost.then_some(from.or(writer)).flatten(),
            contended: recent,
            dirtied: !recent && a.store,
            ..Effect::default()
        })
    }
}
