//! The models: how much of what a run of each kernel makes.

use super::plain::{NOPS, PER_RANDOM, UNROLLED_WORDS};
use super::{triangle, Expected, Kernel, Level, Quantity, Traffic, Work};

/// Standard deviations of a random count that are allowed for.
const SIGMAS: f64 = 4.0;
/// Lines of whoever starts, stops and reads the counters that work pushes out of L1 and that come
/// back while they count, at most: up to 8 in 40 runs of each kernel on the board, 10 in another.
const COME_BACK: u64 = 16;

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
            Work::Stream {
                traffic,
                level,
                lines,
                passes,
                ..
            } => stream(*traffic, *level, *lines as u64, *passes, q),
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

    /// Floating-point instructions of a run; `None` for the triangle, whose halves are not counted
    /// that way. Not a [`Quantity`]: few PMUs count them.
    pub fn floating_point(&self) -> Option<u64> {
        let Work::Stream {
            traffic,
            lines,
            passes,
            ..
        } = &self.work
        else {
            return (!matches!(self.work, Work::Triangle { .. })).then_some(0);
        };
        let per_element = match traffic {
            Traffic::Load | Traffic::Store | Traffic::Copy => 0,
            // x86 multiplies and adds, arm64 does both in one instruction
            _ if cfg!(target_arch = "x86_64") => 2,
            _ => 1,
        };
        Some(per_element * 8 * *lines as u64 * passes)
    }
}

fn nops(rounds: u64, q: Quantity) -> Option<Expected> {
    let all = rounds * (NOPS + 2);
    match q {
        Quantity::Instructions => exact(all, all),
        Quantity::Branches => exact(rounds, rounds),
        Quantity::Mispredicts => exact(0, rounds),
        _ => exact(0, all),
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
        _ => None,
    }
}

fn stream(
    traffic: Traffic,
    level: Level,
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
        Quantity::L2Refills if level == Level::Memory => exact(refilled, accesses),
        Quantity::L2Refills => exact(0, accesses),
        // each pass changes the array that is stored to, and what is changed must leave for others
        // to come
        Quantity::L2WriteBacks if level == Level::Memory => {
            exact(stores * lines * passes, accesses)
        }
        Quantity::L2WriteBacks => exact(0, accesses),
        // the ends of loops are learned by some predictors and not by others
        Quantity::Mispredicts => None,
    }
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
            Quantity::L2Accesses | Quantity::L2WriteBacks | Quantity::Mispredicts => None,
        }
    }
}

/// Lines that another core has stored to last: whether that had them in its L1 or its L2, they are
/// not in this one's.
fn handoff(traffic: Traffic, lines: u64, q: Quantity) -> Option<Expected> {
    match q {
        // with caches of their own for each core, lines come from there
        Quantity::L2Refills | Quantity::L2WriteBacks => None,
        _ => stream(traffic, Level::L2, lines, 1, q),
    }
}
