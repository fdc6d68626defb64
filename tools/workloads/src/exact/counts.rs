//! The models: how much of what a run of each kernel makes.

use super::additions::{AdditionCost, ADDITIONS};
use super::float::{Arithmetic, ARITHMETIC};
use super::plain::{NOPS, PER_RANDOM, UNROLLED_WORDS};
use super::{additions, float, pages, triangle};
use super::{Caches, Expected, Kernel, Level, Quantity, Reach, Traffic, Work};

/// Standard deviations of a random count that are allowed for.
const SIGMAS: f64 = 4.0;
/// Lines of whoever starts, stops and reads the counters that work pushes out of L1 and that come
/// back while they count, at most: up to 8 in 40 runs of each kernel on the board, 10 in another.
const COME_BACK: u64 = 16;
/// Cycles that a round of a loop of additions may take beside these: those of its subtraction and
/// its branch, on a core that does nothing beside them.
const CYCLES_OF_LOOP: u64 = 2;
/// Cycles at the end of such a loop, at most: the branch that ends it is not foreseen.
const CYCLES_AT_END: u64 = 64;
/// Branches of the call and of whoever starts and stops the counters, at most: 6 to 8 on the board, and
/// another machine's may be others. They show beside a loop with few branches of its own.
const BRANCHES_AROUND: u64 = 16;
/// Lines of data for each line of page tables: entries of 8 bytes, pages of 64 lines at least. Where
/// page tables are read from what comes after L2 they are in some counts.
const LINES_PER_TABLE: u64 = 512;
/// Loads that a core begins after the last branch before it finds out that there is no more.
const BEGUN: u64 = 64;

/// Exactly so many, out of so many that it could have been.
fn exact(count: u64, chances: u64) -> Option<Expected> {
    within(count, 0, chances)
}

/// So many or up to `tolerance` more or fewer.
fn within(count: u64, tolerance: u64, chances: u64) -> Option<Expected> {
    Some(Expected {
        count: count as f64,
        tolerance: tolerance as f64,
        chances: chances as f64,
    })
}

impl Kernel {
    /// What a run counts, after [`Kernel::prepare`]; `None` where no machine-independent answer is
    /// known.
    pub fn expected(&self, q: Quantity) -> Option<Expected> {
        match &self.work {
            Work::Nops { rounds } => nops(*rounds, q),
            Work::Random { words, .. } => random(words, q),
            Work::Additions {
                rounds,
                abreast,
                cost,
            } => chain(*rounds, *abreast, *cost, q),
            Work::Float { kind, rounds } => arithmetic(*kind, *rounds, q),
            Work::Pages { reach, loads, .. } => one_per_page(*reach, *loads, q),
            Work::Stream {
                traffic,
                level,
                caches,
                lines,
                passes,
                ..
            } => stream(*traffic, *level, caches, *lines as u64, *passes, q),
            Work::Triangle {
                data,
                half,
                level,
                gone,
                passes,
                ..
            } => {
                let blocks = data.half(*half);
                let part = Part {
                    lines: data.lines_in(&blocks),
                    blocks: blocks.len() as u64,
                    rows: data.block() * blocks.len() as u64,
                    vector: data.vector(),
                    gone: *gone,
                };
                part.counts(*level, *passes, q)
            }
            Work::Handoff { lines, traffic, .. } => handoff(*traffic, lines.len() as u64, q),
        }
    }
}

fn nops(rounds: u64, q: Quantity) -> Option<Expected> {
    let all = rounds * (NOPS + 2);
    match q {
        Quantity::Instructions => exact(all, all),
        Quantity::Branches => exact(rounds, rounds),
        Quantity::Mispredicts => exact(0, rounds),
        // how many are begun per cycle differs from core to core
        Quantity::Cycles => None,
        _ => exact(0, all),
    }
}

fn chain(rounds: u64, abreast: bool, cost: Option<AdditionCost>, q: Quantity) -> Option<Expected> {
    let all = rounds * (ADDITIONS + additions::PER_ROUND);
    match q {
        Quantity::Instructions => exact(all, all),
        Quantity::Branches => within(rounds, BRANCHES_AROUND, rounds),
        // the end of the loop is learned by some predictors and not by others
        Quantity::Mispredicts => None,
        Quantity::Cycles => {
            let cost = cost?;
            let per_round = match abreast {
                true => cost.of_pair * ADDITIONS as f64 / 2.0,
                false => cost.in_chain * ADDITIONS as f64,
            };
            Some(Expected {
                count: per_round * rounds as f64,
                tolerance: (CYCLES_OF_LOOP * rounds + CYCLES_AT_END) as f64,
                chances: all as f64,
            })
        }
        _ => exact(0, all),
    }
}

fn arithmetic(kind: Arithmetic, rounds: u64, q: Quantity) -> Option<Expected> {
    let all = rounds * (ARITHMETIC + float::PER_ROUND);
    let of_kind = rounds * ARITHMETIC;
    let is_vector = kind == Arithmetic::Vector;
    match q {
        Quantity::Instructions => exact(all, all),
        Quantity::Branches => within(rounds, BRANCHES_AROUND, rounds),
        // some cores count instructions on vectors with the others
        Quantity::FloatingPoint if is_vector => None,
        Quantity::ScalarFlops if is_vector => exact(0, all),
        Quantity::VectorFloatingPoint if !is_vector => exact(0, all),
        Quantity::FloatingPoint | Quantity::VectorFloatingPoint => exact(of_kind, all),
        Quantity::ScalarFlops | Quantity::Flops => exact(of_kind * kind.operations(), all),
        Quantity::Mispredicts | Quantity::Cycles => None,
        _ => exact(0, all),
    }
}

fn one_per_page(reach: Reach, loads: u64, q: Quantity) -> Option<Expected> {
    let rounds = loads / pages::UNROLLED;
    let all = loads * pages::PER_LOAD + rounds * pages::PER_ROUND;
    match q {
        Quantity::Instructions => exact(all, all),
        Quantity::Loads | Quantity::Accesses => exact(loads, all),
        Quantity::Stores => exact(0, all),
        Quantity::Branches => exact(rounds, all),
        Quantity::DtlbMisses | Quantity::DtlbRefills | Quantity::DtlbWalks => {
            let (part, off) = reach.lacked(q)?;
            Some(Expected {
                count: part * loads as f64,
                tolerance: off * loads as f64 + part * BEGUN as f64,
                chances: loads as f64,
            })
        }
        q if Quantity::FLOATING_POINT.contains(&q) => exact(0, all),
        // The data is one line, but cores that look for it by its virtual address do not find it;
        // page tables come from any cache.
        _ => None,
    }
}

fn random(words: &[u64], q: Quantity) -> Option<Expected> {
    let n = words.len() as u64;
    let ones: u64 = words.iter().map(|w| u64::from(w.count_ones())).sum();
    let rounds = n / UNROLLED_WORDS;
    let (per_word, per_branch) = PER_RANDOM;
    let all = n * (per_word + 64 * per_branch) + ones + 2 * rounds;
    let branches = 64 * n + rounds;
    match q {
        Quantity::Instructions => exact(all, all),
        Quantity::Loads | Quantity::Accesses => exact(n, all),
        Quantity::Stores => exact(0, all),
        Quantity::Branches => exact(branches, branches),
        Quantity::Mispredicts => {
            let flips = 64.0 * n as f64;
            Some(Expected {
                count: flips / 2.0,
                // the loop's own branch shares the predictor's memory with them
                tolerance: SIGMAS * flips.sqrt() / 2.0 + rounds as f64,
                chances: branches as f64,
            })
        }
        q if Quantity::FLOATING_POINT.contains(&q) => exact(0, all),
        _ => None,
    }
}

fn stream(
    traffic: Traffic,
    level: Level,
    caches: &Caches,
    lines: u64,
    passes: u64,
    q: Quantity,
) -> Option<Expected> {
    let (arrays, loads, stores, per_line, per_pass) = traffic.facts();
    let all = passes * (per_pass + per_line * lines);
    let elements = 8 * lines * passes;
    let accesses = elements * (loads + stores);
    // lines that are only written to are brought in like the others (write-allocate)
    let refilled = arrays * lines * passes;
    // each pass changes the array that is stored to, and what is changed must leave for others to
    // come
    let changed = stores * lines * passes;
    let tables = refilled.div_ceil(LINES_PER_TABLE);
    match q {
        Quantity::Instructions => exact(all, all),
        Quantity::Loads => exact(elements * loads, accesses),
        Quantity::Stores => exact(elements * stores, accesses),
        Quantity::Accesses => exact(accesses, accesses),
        Quantity::Branches => exact(passes * (lines + 1), all),
        Quantity::L1Refills if level == Level::L1 => exact(0, accesses),
        Quantity::L1Refills => within(refilled, COME_BACK, accesses),
        // write-backs of changed lines come on top, on cores that count them
        Quantity::L2Accesses if stores > 0 => None,
        Quantity::L2Accesses if level == Level::L1 => exact(0, accesses),
        Quantity::L2Accesses => within(refilled, COME_BACK, accesses),
        Quantity::L2Refills if is_beyond_l2(level) => exact(refilled, accesses),
        Quantity::L2Refills => exact(0, accesses),
        Quantity::L2WriteBacks if is_beyond_l2(level) => exact(changed, accesses),
        Quantity::L2WriteBacks => exact(0, accesses),
        Quantity::L3Accesses | Quantity::L3LoadRefills if stores > 0 => None,
        Quantity::L3Accesses | Quantity::L3Refills | Quantity::L3LoadRefills
            if caches.l3.is_none() =>
        {
            None
        }
        Quantity::L3Accesses if is_beyond_l2(level) => within(refilled, tables, accesses),
        Quantity::L3Accesses => exact(0, accesses),
        Quantity::L3Refills | Quantity::L3LoadRefills if level == Level::Memory => {
            let gone = caches.l3.is_some_and(|l3| caches.gone_from(l3));
            within(refilled, tables, accesses).filter(|_| gone)
        }
        Quantity::L3Refills | Quantity::L3LoadRefills => exact(0, accesses),
        Quantity::MemoryReads | Quantity::MemoryWrites if level == Level::Memory => {
            let count = match q {
                Quantity::MemoryReads => within(refilled, tables, accesses),
                _ => exact(changed, accesses),
            };
            count.filter(|_| caches.gone_from(caches.last.max(caches.l2)))
        }
        Quantity::MemoryReads | Quantity::MemoryWrites => exact(0, accesses),
        Quantity::FloatingPoint => {
            // x86 multiplies and adds, arm64 does both in one instruction
            let each = if cfg!(target_arch = "x86_64") { 2 } else { 1 };
            exact(each * elements * traffic.calculates(), all)
        }
        Quantity::ScalarFlops | Quantity::Flops => exact(2 * elements * traffic.calculates(), all),
        Quantity::VectorFloatingPoint => exact(0, all),
        // the ends of loops are learned by some predictors and not by others
        Quantity::Mispredicts => None,
        // huge pages may be behind the arrays or not
        Quantity::DtlbMisses | Quantity::DtlbRefills | Quantity::DtlbWalks => None,
        Quantity::Cycles => None,
    }
}

fn is_beyond_l2(level: Level) -> bool {
    matches!(level, Level::L3 | Level::Memory)
}

/// What one of two threads has of a triangular matrix.
struct Part {
    /// Lines of the matrix.
    lines: u64,
    rows: u64,
    blocks: u64,
    /// Lines of the vector, all of it.
    vector: u64,
    /// Whether none of the matrix is left in L1 after a pass.
    gone: bool,
}

impl Part {
    fn counts(&self, level: Level, passes: u64, q: Quantity) -> Option<Expected> {
        let [per_line, per_row, per_block, per_pass] = triangle::PER;
        let instructions =
            per_line * self.lines + per_row * self.rows + per_block * self.blocks + per_pass;
        let all = passes * instructions;
        let loads = passes * 16 * self.lines;
        let stores = passes * self.rows;
        match q {
            Quantity::Instructions => exact(all, all),
            Quantity::Loads => exact(loads, all),
            Quantity::Stores => exact(stores, all),
            Quantity::Accesses => exact(loads + stores, all),
            Quantity::Branches => exact(passes * (self.lines + self.rows + self.blocks + 1), all),
            Quantity::L1Refills if level == Level::L1 => exact(0, loads + stores),
            Quantity::L1Refills if !self.gone => None,
            // The product's lines come in to be written to. The vector is as good as always used
            // last, and stays; how much of it goes with the end of a pass, and how often a line of
            // the product goes before its eighth row is done, depends on where they are.
            Quantity::L1Refills => within(
                passes * (self.lines + self.blocks),
                passes * (self.vector + self.blocks),
                loads + stores,
            ),
            Quantity::L2Refills => exact(0, loads + stores),
            Quantity::L2Accesses if level == Level::L1 => exact(0, loads + stores),
            // each of a line's eight elements is multiplied and added
            Quantity::ScalarFlops | Quantity::Flops => exact(passes * 16 * self.lines, all),
            Quantity::VectorFloatingPoint => exact(0, all),
            // sums are set to zero by an instruction that some cores count
            Quantity::FloatingPoint => None,
            _ => None,
        }
    }
}

/// Lines that another core has stored to last: whether that had them in its L1 or its L2, they are
/// not in this one's.
fn handoff(traffic: Traffic, lines: u64, q: Quantity) -> Option<Expected> {
    match q {
        // with caches of their own for each core, lines come from there
        Quantity::L2Refills | Quantity::L2WriteBacks => None,
        q if Quantity::BEYOND_L2.contains(&q) => None,
        _ => {
            // no cache beyond L2 is asked about
            let caches = Caches {
                l1: 0,
                l2: 0,
                l3: None,
                last: 0,
            };
            stream(traffic, Level::L2, &caches, lines, 1, q)
        }
    }
}
