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

mod additions;
mod caches;
mod counts;
mod float;
mod pages;
mod partner;
mod plain;
mod quantity;
mod streams;
mod sysfs;
mod triangle;

use crate::rng::Rng;
pub use additions::AdditionCost;
use additions::ADDITIONS;
use caches::GONE;
pub use caches::{Caches, Level};
pub use float::Arithmetic;
use float::ARITHMETIC;
pub use pages::Reach;
use pages::{Pages, UNROLLED};
use partner::{Partner, Shared};
use plain::UNROLLED_WORDS;
pub use quantity::{Expected, Quantity};
use std::ops::Range;
use std::sync::Arc;
pub use streams::Traffic;
pub use sysfs::{largest_of_cpu, of_cpu};
use triangle::Triangle;

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// What one array's beginning is shifted by against the one before it, in lines: not to fall into
/// the same sets.
const SHIFT: usize = 21;

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
    Additions {
        rounds: u64,
        /// Whether there are two chains.
        abreast: bool,
        /// What they cost here, where that is known.
        cost: Option<AdditionCost>,
    },
    Float {
        kind: Arithmetic,
        rounds: u64,
    },
    Pages {
        reach: Reach,
        data: Pages,
        loads: u64,
    },
    Stream {
        traffic: Traffic,
        level: Level,
        caches: Caches,
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

    /// `additions` (rounded up to 1024) of which each waits for the one before it, or, `abreast`,
    /// for the one before that: two chains. `None` for a `cost` that is not known: nothing is said
    /// of cycles then.
    pub fn additions(additions: u64, abreast: bool, cost: Option<AdditionCost>) -> Kernel {
        Kernel {
            name: if abreast {
                "two chains of additions"
            } else {
                "chain of additions"
            }
            .into(),
            work: Work::Additions {
                rounds: additions.div_ceil(ADDITIONS).max(1),
                abreast,
                cost,
            },
        }
    }

    /// `instructions` (rounded up to 64) of floating-point arithmetic on registers; `None` where
    /// this processor has none of the kind.
    pub fn float(kind: Arithmetic, instructions: u64) -> Option<Kernel> {
        kind.is_there().then(|| Kernel {
            name: format!("{} arithmetic", kind.name()),
            work: Work::Float {
                kind,
                rounds: instructions.div_ceil(ARITHMETIC).max(1),
            },
        })
    }

    /// About so many `loads`, each of another page than those before it until all pages have had
    /// their turn; rounded up to whole turns. `None` when the pages cannot be had, or huge
    /// ones cannot be excluded.
    pub fn pages(reach: Reach, loads: u64) -> Option<Kernel> {
        Some(Kernel {
            name: reach.name().into(),
            work: Work::Pages {
                reach,
                data: Pages::new(reach.pages())?,
                loads: loads
                    .max(1)
                    .next_multiple_of((reach.pages() as u64).max(UNROLLED)),
            },
        })
    }

    /// Addresses of the pages of a kernel that is about pages.
    pub fn addresses(&self) -> Option<Range<usize>> {
        match &self.work {
            Work::Pages { data, .. } => Some(data.addresses()),
            _ => None,
        }
    }

    /// Walks arrays whose data is at `level`, as often as it takes for about `accesses` loads and
    /// stores, at least once; `None` for an L3 where there is none (see [`Caches::footprint`]).
    pub fn stream(
        traffic: Traffic,
        level: Level,
        caches: &Caches,
        accesses: u64,
    ) -> Option<Kernel> {
        let (arrays, loads, stores, ..) = traffic.facts();
        let lines = (caches.footprint(level)? / LINE / arrays as usize).max(1);
        let per_pass = 8 * (loads + stores) * lines as u64;
        Some(Kernel {
            name: format!("{} {}", traffic.name(), level.name()),
            work: Work::Stream {
                traffic,
                level,
                caches: *caches,
                // not zero: untouched pages of zeros would all be one page
                data: vec![Line([1; LINE / 8]); (lines + SHIFT) * arrays as usize],
                lines,
                passes: accesses.div_ceil(per_pass).max(1),
            },
        })
    }

    /// One half of a triangular matrix times a vector, while another thread does the other half:
    /// the `first` has three times the work of the second (load imbalance). Data is in L1 or L2,
    /// `accesses` as for streams. The other thread calls `begin` first, to go to its CPU; `None`
    /// for data beyond L2, for then the vector would not stay in L1.
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
            Level::L3 | Level::Memory => return None,
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
        let lines = (caches.footprint(Level::L2).unwrap_or(caches.l2) / LINE).max(1);
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
            // the code is in its cache then
            Work::Additions { abreast, .. } => additions::add(1, *abreast),
            Work::Float { kind, .. } => {
                std::hint::black_box(float::calculate(*kind, 1));
            }
            Work::Pages { data, .. } => data.walk((data.number() as u64).max(UNROLLED)),
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
            Work::Additions {
                rounds, abreast, ..
            } => additions::add(*rounds, *abreast),
            Work::Float { kind, rounds } => {
                std::hint::black_box(float::calculate(*kind, *rounds));
            }
            Work::Pages { data, loads, .. } => data.walk(*loads),
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
