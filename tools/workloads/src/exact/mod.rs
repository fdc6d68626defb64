//! Kernels whose counts are known exactly: what hardware counters are held against \[VAL\].
//!
//! The loops are assembly, so that every instruction is known; counts are those of user mode inside
//! [`Kernel::run`]. A call costs a handful of instructions on top.
//!
//! Data is walked in order, again and again, over a footprint that fits a cache or does not. Out of
//! a cache that is four times smaller every line is refilled in each pass, whether lines are
//! replaced by age or by lot (what is left of a line after eight times the cache has gone by is
//! e⁻⁸). Stores allocate their line, so each line of every array is refilled, the hidden traffic of
//! a write included. Prefetchers and write streaming of real cores make refills differ from this;
//! then the verdict on the event is what it deserves.
//!
//! Some kernels take a second thread ([`Kernel::triangle`], [`Kernel::handoff`]); what is known is
//! what the thread does that calls [`Kernel::run`].

mod counts;
mod partner;
mod plain;
mod streams;
mod triangle;

use crate::rng::Rng;
use partner::{Partner, Shared};
use plain::UNROLLED_WORDS;
use std::ops::Range;
use std::sync::Arc;
pub use streams::Traffic;
use triangle::Triangle;

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// What one array's beginning is shifted by against the one before it, in lines: not to fall into
/// the same sets.
const SHIFT: usize = 21;
/// Times the size of a cache that go through it until hardly a line is left of what was there, were
/// it replaced by lot (e⁻⁶: one of 400).
const GONE: usize = 6;

/// What a counter may count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Instructions retired.
    Instructions,
    /// Loads retired.
    Loads,
    /// Stores retired.
    Stores,
    /// Loads and stores.
    Accesses,
    /// Lines brought into the L1 data cache.
    L1Refills,
    /// Accesses to L2 for data.
    L2Accesses,
    /// Lines brought into L2.
    L2Refills,
    /// Changed lines that leave L2 for what comes after it.
    L2WriteBacks,
    /// Branches retired.
    Branches,
    /// Branches mispredicted.
    Mispredicts,
}

impl Quantity {
    /// All quantities.
    pub const ALL: [Quantity; 10] = [
        Quantity::Instructions,
        Quantity::Loads,
        Quantity::Stores,
        Quantity::Accesses,
        Quantity::L1Refills,
        Quantity::L2Accesses,
        Quantity::L2Refills,
        Quantity::L2WriteBacks,
        Quantity::Branches,
        Quantity::Mispredicts,
    ];

    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Instructions => "instructions",
            Quantity::Loads => "loads",
            Quantity::Stores => "stores",
            Quantity::Accesses => "accesses",
            Quantity::L1Refills => "l1-refills",
            Quantity::L2Accesses => "l2-accesses",
            Quantity::L2Refills => "l2-refills",
            Quantity::L2WriteBacks => "l2-write-backs",
            Quantity::Branches => "branches",
            Quantity::Mispredicts => "mispredicts",
        }
    }

    /// The quantity called `name`.
    pub fn by_name(name: &str) -> Option<Quantity> {
        Quantity::ALL.into_iter().find(|q| q.name() == name)
    }
}

/// How much of a quantity a run of a kernel makes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Amount.
    pub count: f64,
    /// How far the true count may be from that.
    pub tolerance: f64,
    /// What a count where none is expected is measured against: how often it could have happened.
    pub chances: f64,
}

/// Where a kernel's data is when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// In the L1 data cache.
    L1,
    /// In L2 and not in L1.
    L2,
    /// In no cache.
    Memory,
}

impl Level {
    /// All levels, the fastest first.
    pub const ALL: [Level; 3] = [Level::L1, Level::L2, Level::Memory];

    /// Its name in texts and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Level::L1 => "L1",
            Level::L2 => "L2",
            Level::Memory => "memory",
        }
    }
}

/// Sizes of the caches that a core uses, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// L1 data cache.
    pub l1: usize,
    /// L2, or what comes after L1.
    pub l2: usize,
    /// The last level.
    pub last: usize,
}

impl Caches {
    /// Largest footprint that is ever used, whatever the size of the last cache.
    const MOST: usize = 256 << 20;

    /// Bytes that all arrays of a kernel have together.
    pub fn footprint(&self, level: Level) -> usize {
        match level {
            Level::L1 => self.l1 / 2,
            Level::L2 => (self.l2 / 4).clamp(4 * self.l1, (self.l2 / 2).max(4 * self.l1)),
            Level::Memory => (8 * self.last.max(self.l2)).min(Caches::MOST),
        }
    }
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u64; LINE / 8]); // assembly reads and writes it

enum Work {
    Nops {
        rounds: u64,
    },
    Random {
        words: Vec<u64>,
        rng: Rng,
    },
    Stream {
        traffic: Traffic,
        level: Level,
        /// All arrays, each shifted.
        data: Vec<Line>,
        /// Lines of an array.
        lines: usize,
        passes: u64,
    },
    Triangle {
        data: Arc<Triangle>,
        /// Whether it is the first half that counts.
        half: bool,
        blocks: Range<usize>,
        level: Level,
        /// Whether none of it is left in L1 after a pass.
        gone: bool,
        passes: u64,
        partner: Partner,
    },
    Handoff {
        lines: Arc<Vec<Shared>>,
        traffic: Traffic,
        partner: Partner,
    },
}

/// A kernel with its data in place.
pub struct Kernel {
    /// What it is called.
    pub name: String,
    work: Work,
}

impl Kernel {
    /// `rounds` (at least 1) of a loop of 64 instructions that touch no memory and branch as they
    /// always do.
    pub fn nops(rounds: u64) -> Kernel {
        Kernel {
            name: "nops".into(),
            work: Work::Nops {
                rounds: rounds.max(1),
            },
        }
    }

    /// `branches` (rounded up to 1024) that go by random bits, so that whatever predicts them is
    /// wrong half the time.
    pub fn random_branches(branches: u64, seed: u64) -> Kernel {
        let words = branches.div_ceil(64 * UNROLLED_WORDS).max(1) * UNROLLED_WORDS;
        let mut rng = Rng::new(seed);
        Kernel {
            name: "random branches".into(),
            work: Work::Random {
                words: (0..words).map(|_| rng.next()).collect(),
                rng,
            },
        }
    }

    /// Walks arrays whose data is at `level`, as often as it takes for about `accesses` loads and
    /// stores, at least once.
    pub fn stream(traffic: Traffic, level: Level, caches: &Caches, accesses: u64) -> Kernel {
        let (arrays, loads, stores, ..) = traffic.facts();
        let lines = (caches.footprint(level) / LINE / arrays as usize).max(1);
        let per_pass = 8 * (loads + stores) * lines as u64;
        Kernel {
            name: format!("{} {}", traffic.name(), level.name()),
            work: Work::Stream {
                traffic,
                level,
                // not zero: untouched pages of zeros would all be one page
                data: vec![Line([1; LINE / 8]); (lines + SHIFT) * arrays as usize],
                lines,
                passes: accesses.div_ceil(per_pass).max(1),
            },
        }
    }

    /// One half of a triangular matrix times a vector, while another thread does the other half:
    /// the `first` has three times the work of the second (load imbalance). Data is in L1 or L2,
    /// `accesses` as for streams. The other thread calls `begin` first, to go to its CPU; `None`
    /// for data in memory, for then the vector would not stay in L1.
    pub fn triangle(
        first: bool,
        level: Level,
        caches: &Caches,
        accesses: u64,
        begin: impl FnOnce() + Send + 'static,
    ) -> Option<Kernel> {
        let data = match level {
            Level::L1 => Triangle::new(caches.l1 / 2),
            // of which it keeps half
            Level::L2 => Triangle::new(caches.l2 / 2),
            Level::Memory => return None,
        };
        let blocks = data.half(first);
        let lines = data.lines_in(&blocks);
        Some(Kernel {
            name: format!(
                "triangle {} {}",
                if first { "most" } else { "least" },
                level.name()
            ),
            work: Work::Triangle {
                data: Arc::new(data),
                half: first,
                blocks,
                level,
                gone: lines as usize * LINE >= GONE * caches.l1,
                passes: accesses.div_ceil(16 * lines).max(1),
                partner: Partner::start(begin),
            },
        })
    }

    /// Loads, or stores to, lines of L2's size that another thread has stored to just before: a
    /// consumer, or a producer who takes back what it passed on. The other thread calls `begin`
    /// first, to go to its CPU.
    pub fn handoff(
        consumer: bool,
        caches: &Caches,
        begin: impl FnOnce() + Send + 'static,
    ) -> Kernel {
        let lines = (caches.footprint(Level::L2) / LINE).max(1);
        Kernel {
            name: if consumer { "consumer" } else { "producer" }.into(),
            work: Work::Handoff {
                lines: Arc::new(Shared::lines(lines, 1.0)),
                traffic: if consumer {
                    Traffic::Load
                } else {
                    Traffic::Store
                },
                partner: Partner::start(begin),
            },
        }
    }

    /// Prepares a run: other random bits for the one, data in its place for the other. Not to be
    /// counted.
    pub fn prepare(&mut self) {
        match &mut self.work {
            Work::Nops { .. } => {}
            Work::Random { words, rng } => words.iter_mut().for_each(|w| *w = rng.next()),
            Work::Stream {
                traffic,
                data,
                lines,
                ..
            } => streams::walk(*traffic, data, *lines, 1),
            Work::Triangle {
                data,
                half,
                blocks,
                passes,
                partner,
                ..
            } => {
                let (others, theirs, passes) = (data.clone(), data.half(!*half), *passes);
                // each thread brings its half near: what the other loads later passes through the
                // cache that both share
                let (near, part) = (others.clone(), theirs.clone());
                partner.prepare(
                    move || near.multiply(&part, 1),
                    move || others.multiply(&theirs, passes),
                );
                data.multiply(blocks, 1);
            }
            Work::Handoff { lines, partner, .. } => {
                let others = lines.clone();
                partner.prepare(|| {}, move || streams::store_to(&others));
                partner.wait();
            }
        }
    }

    /// The work.
    #[inline(never)]
    pub fn run(&mut self) {
        match &mut self.work {
            Work::Nops { rounds } => plain::nops(*rounds),
            Work::Random { words, .. } => plain::random(words),
            Work::Stream {
                traffic,
                data,
                lines,
                passes,
                ..
            } => streams::walk(*traffic, data, *lines, *passes),
            Work::Triangle {
                data,
                blocks,
                passes,
                partner,
                ..
            } => {
                partner.go();
                data.multiply(blocks, *passes);
            }
            Work::Handoff { lines, traffic, .. } => match traffic {
                Traffic::Load => streams::load_from(lines),
                _ => streams::store_to(lines),
            },
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
