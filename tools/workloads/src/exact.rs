//! Kernels whose counts are known exactly: what hardware counters are held against [VAL].
//!
//! The loops are assembly, so that every instruction is known; counts are those of user mode inside [`Kernel::run`]. A call
//! costs a handful of instructions on top.
//!
//! Data is walked in order, again and again, over a footprint that fits a cache or does not. Out of a cache that is four
//! times smaller every line is refilled in each pass, whether lines are replaced by age or by lot (what is left of a line
//! after eight times the cache has gone by is e⁻⁸). Stores allocate their line, so each line of every array is refilled,
//! the hidden traffic of a write included. Prefetchers and write streaming of real cores make refills differ from this;
//! then the verdict on the event is what it deserves.

use crate::rng::Rng;

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// What one array's beginning is shifted by against the one before it, in lines: not to fall into the same sets.
const SHIFT: usize = 21;
/// Random branches for each branch of the loop around them.
const UNROLLED_WORDS: u64 = 16;
/// `nop`s in each round of the loop.
const NOPS: u64 = 62;
/// Standard deviations of a random count that are allowed for.
const SIGMAS: f64 = 4.0;

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
    /// Branches retired.
    Branches,
    /// Branches mispredicted.
    Mispredicts,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Quantity; 9] = [
        Quantity::Instructions,
        Quantity::Loads,
        Quantity::Stores,
        Quantity::Accesses,
        Quantity::L1Refills,
        Quantity::L2Accesses,
        Quantity::L2Refills,
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
    /// How much.
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

/// What is done with the arrays, element by element of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Loads of one array.
    Load,
    /// Stores to one.
    Store,
    /// `a[i] = b[i]`.
    Copy,
    /// `a[i] = b[i] + s·c[i]`, in double precision.
    Triad,
    /// `a[i] = b[i] + c[i]·d[i]`, in double precision.
    VectorTriad,
    /// The sum of `a[i]·b[i]`, in double precision.
    Dot,
}

impl Traffic {
    /// All of them.
    pub const ALL: [Traffic; 6] = [
        Traffic::Load,
        Traffic::Store,
        Traffic::Copy,
        Traffic::Triad,
        Traffic::VectorTriad,
        Traffic::Dot,
    ];

    /// Arrays, loads and stores per element, instructions per line, instructions per pass beside those.
    fn facts(self) -> (u64, u64, u64, u64, u64) {
        match self {
            Traffic::Load => (1, 1, 0, 11, 4),
            Traffic::Store => (1, 0, 1, 11, 4),
            Traffic::Copy => (2, 1, 1, 20, 5),
            Traffic::Triad => (3, 2, 1, 37, 6),
            // x86 multiplies and adds out of memory, in one instruction each
            Traffic::VectorTriad if cfg!(target_arch = "x86_64") => (4, 3, 1, 38, 7),
            Traffic::VectorTriad => (4, 3, 1, 46, 7),
            Traffic::Dot => (2, 2, 0, 28, 5),
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
}

/// A kernel with its data in place.
pub struct Kernel {
    /// What it is called.
    pub name: String,
    work: Work,
}

impl Kernel {
    /// `rounds` (at least 1) of a loop of 64 instructions that touch no memory and branch as they always do.
    pub fn nops(rounds: u64) -> Kernel {
        Kernel {
            name: "nops".into(),
            work: Work::Nops {
                rounds: rounds.max(1),
            },
        }
    }

    /// `branches` (rounded up to 1024) that go by random bits, so that whatever predicts them is wrong half the time.
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

    /// Walks arrays whose data is at `level`, as often as it takes for about `accesses` loads and stores, at least once.
    pub fn stream(traffic: Traffic, level: Level, caches: &Caches, accesses: u64) -> Kernel {
        let (arrays, loads, stores, ..) = traffic.facts();
        let lines = (caches.footprint(level) / LINE / arrays as usize).max(1);
        let per_pass = 8 * (loads + stores) * lines as u64;
        let (what, at) = (
            match traffic {
                Traffic::Load => "load",
                Traffic::Store => "store",
                Traffic::Copy => "copy",
                Traffic::Triad => "triad",
                Traffic::VectorTriad => "vector triad",
                Traffic::Dot => "dot product",
            },
            match level {
                Level::L1 => "L1",
                Level::L2 => "L2",
                Level::Memory => "memory",
            },
        );
        Kernel {
            name: format!("{what} {at}"),
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

    /// Prepares a run: other random bits for the one, data in its place for the other. Not to be counted.
    pub fn prepare(&mut self) {
        match &mut self.work {
            Work::Nops { .. } => {}
            Work::Random { words, rng } => words.iter_mut().for_each(|w| *w = rng.next()),
            Work::Stream {
                traffic,
                data,
                lines,
                ..
            } => stream(*traffic, data, *lines, 1),
        }
    }

    /// The work.
    #[inline(never)]
    pub fn run(&mut self) {
        match &mut self.work {
            Work::Nops { rounds } => nops(*rounds),
            Work::Random { words, .. } => random(words),
            Work::Stream {
                traffic,
                data,
                lines,
                passes,
                ..
            } => stream(*traffic, data, *lines, *passes),
        }
    }

    /// What a run counts, after [`Kernel::prepare`]; `None` where no machine-independent answer is known.
    pub fn expected(&self, q: Quantity) -> Option<Expected> {
        let exact = |count: u64, chances: u64| {
            Some(Expected {
                count: count as f64,
                tolerance: 0.0,
                chances: chances as f64,
            })
        };
        match &self.work {
            Work::Nops { rounds } => {
                let all = rounds * (NOPS + 2);
                match q {
                    Quantity::Instructions => exact(all, all),
                    Quantity::Branches => exact(*rounds, *rounds),
                    Quantity::Mispredicts => exact(0, *rounds),
                    _ => exact(0, all),
                }
            }
            Work::Random { words, .. } => {
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
            Work::Stream {
                traffic,
                level,
                lines,
                passes,
                ..
            } => {
                let (arrays, loads, stores, per_line, per_pass) = traffic.facts();
                let lines = *lines as u64;
                let all = passes * (per_pass + per_line * lines);
                let elements = 8 * lines * passes;
                let accesses = elements * (loads + stores);
                let refilled = arrays * lines * passes;
                match q {
                    Quantity::Instructions => exact(all, all),
                    Quantity::Loads => exact(elements * loads, accesses),
                    Quantity::Stores => exact(elements * stores, accesses),
                    Quantity::Accesses => exact(accesses, accesses),
                    Quantity::Branches => exact(passes * (lines + 1), all),
                    Quantity::L1Refills if *level == Level::L1 => exact(0, accesses),
                    Quantity::L1Refills => exact(refilled, accesses),
                    // write-backs of changed lines come on top, on cores that count them
                    Quantity::L2Accesses if stores > 0 => None,
                    Quantity::L2Accesses if *level == Level::L1 => exact(0, accesses),
                    Quantity::L2Accesses => exact(refilled, accesses),
                    Quantity::L2Refills if *level == Level::Memory => exact(refilled, accesses),
                    Quantity::L2Refills => exact(0, accesses),
                    // the ends of loops are learned by some predictors and not by others
                    Quantity::Mispredicts => None,
                }
            }
        }
    }
}

/// Instructions of the kernel of random branches per word, and per branch of those.
#[cfg(target_arch = "aarch64")]
const PER_RANDOM: (u64, u64) = (1, 1);
/// Instructions of the kernel of random branches per word, and per branch of those.
#[cfg(target_arch = "x86_64")]
const PER_RANDOM: (u64, u64) = (2, 2);

fn nops(rounds: u64) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: counts a register down, at least from 1; touches nothing else but the flags.
    unsafe {
        std::arch::asm!(
            "2:", ".rept 62", "nop", ".endr",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: counts a register down, at least from 1; touches nothing else but the flags.
    unsafe {
        std::arch::asm!(
            "2:", ".rept 62", "nop", ".endr",
            "dec {n}",
            "jnz 2b",
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
}

/// All bit numbers of a word, for the assembler's `.irp`.
macro_rules! bits {
    () => {
        ".irp k,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63"
    };
}

/// A branch per bit, over a `nop` when the bit is 0.
fn random(words: &[u64]) {
    let rounds = words.len() as u64 / UNROLLED_WORDS;
    if rounds == 0 {
        return;
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads `rounds` times 16 words, which is at most the slice's length; writes nothing but its registers.
    unsafe {
        std::arch::asm!(
            "2:",
            ".rept 16",
            "ldr {w}, [{p}], #8",
            bits!(),
            "tbz {w}, #\\k, 3f",
            "nop",
            "3:",
            ".endr",
            ".endr",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            w = out(reg) _,
            p = inout(reg) words.as_ptr() => _,
            n = inout(reg) rounds => _,
            options(readonly, nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads `rounds` times 16 words, which is at most the slice's length; writes nothing but its registers.
    unsafe {
        std::arch::asm!(
            "2:",
            ".rept 16",
            "mov {w}, qword ptr [{p}]",
            "add {p}, 8",
            bits!(),
            "bt {w}, \\k",
            "jnc 3f",
            "nop",
            "3:",
            ".endr",
            ".endr",
            "dec {n}",
            "jnz 2b",
            w = out(reg) _,
            p = inout(reg) words.as_ptr() => _,
            n = inout(reg) rounds => _,
            options(readonly, nostack),
        );
    }
}

fn stream(traffic: Traffic, data: &mut [Line], lines: usize, passes: u64) {
    let arrays = traffic.facts().0 as usize;
    let needed = (lines + SHIFT) * arrays - SHIFT;
    if lines == 0 || passes == 0 || data.len() < needed {
        return;
    }
    let base = data.as_mut_ptr();
    // the last may be one past the end for a kernel that does not use it
    let at = |i: usize| base.wrapping_add(i * (lines + SHIFT));
    let (a, b, c, d) = (at(0), at(1), at(2), at(3));
    match traffic {
        // SAFETY: `a` has `lines` lines of 64 bytes, as was checked.
        Traffic::Load => unsafe { load(a.cast(), lines, passes) },
        // SAFETY: as above, borrowed for writing; every bit pattern is a `u64`.
        Traffic::Store => unsafe { store(a.cast(), lines, passes) },
        // SAFETY: `a` and `b` have `lines` lines each, as was checked, without overlap.
        Traffic::Copy => unsafe { copy(a.cast(), b.cast(), lines, passes) },
        // SAFETY: the same of `a`, `b` and `c`.
        Traffic::Triad => unsafe { triad(a.cast(), b.cast(), c.cast(), lines, passes) },
        // SAFETY: the same of all four.
        Traffic::VectorTriad => unsafe {
            vector_triad([a, b, c, d].map(<*mut Line>::cast), lines, passes);
        },
        // SAFETY: `a` and `b` have `lines` lines each, as was checked.
        Traffic::Dot => unsafe { dot(a.cast(), b.cast(), lines, passes) },
    }
}

/// The offsets of the eight words of a line, for the assembler's `.irp`.
macro_rules! words {
    () => {
        ".irp o,0,8,16,24,32,40,48,56"
    };
}

/// # Safety
/// `a` can be read for `lines` (at least 1) times 64 bytes; `passes` is at least 1.
unsafe fn load(a: *const u8, lines: usize, passes: u64) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {n}, {lines}",
            "3:", words!(), "ldr {t}, [{p}, #\\o]", ".endr",
            "add {p}, {p}, #64", "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, n = out(reg) _, t = out(reg) _,
            options(readonly, nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {n}, {lines}",
            "3:", words!(), "mov {t}, qword ptr [{p} + \\o]", ".endr",
            "add {p}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, n = out(reg) _, t = out(reg) _,
            options(readonly, nostack),
        );
    }
}

/// # Safety
/// `a` can be written for `lines` (at least 1) times 64 bytes; `passes` is at least 1.
unsafe fn store(a: *mut u8, lines: usize, passes: u64) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {n}, {lines}",
            "3:", words!(), "str {n}, [{p}, #\\o]", ".endr",
            "add {p}, {p}, #64", "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, n = out(reg) _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {n}, {lines}",
            "3:", words!(), "mov qword ptr [{p} + \\o], {n}", ".endr",
            "add {p}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, n = out(reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// `a` can be written and `b` read for `lines` (at least 1) times 64 bytes; `passes` is at least 1.
unsafe fn copy(a: *mut u8, b: *const u8, lines: usize, passes: u64) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {n}, {lines}",
            "3:", words!(), "ldr {t}, [{q}, #\\o]", "str {t}, [{p}, #\\o]", ".endr",
            "add {p}, {p}, #64", "add {q}, {q}, #64", "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, b = in(reg) b, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, n = out(reg) _, t = out(reg) _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {n}, {lines}",
            "3:", words!(), "mov {t}, qword ptr [{q} + \\o]", "mov qword ptr [{p} + \\o], {t}", ".endr",
            "add {p}, 64", "add {q}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, b = in(reg) b, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, n = out(reg) _, t = out(reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// `a` can be written, `b` and `c` read for `lines` (at least 1) times 64 bytes; `passes` is at least 1.
unsafe fn triad(a: *mut u8, b: *const u8, c: *const u8, lines: usize, passes: u64) {
    let s = 0.5f64;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {r}, {c}", "mov {n}, {lines}",
            "3:", words!(),
            "ldr {x:d}, [{q}, #\\o]", "ldr {y:d}, [{r}, #\\o]",
            "fmadd {x:d}, {y:d}, {s:d}, {x:d}", "str {x:d}, [{p}, #\\o]",
            ".endr",
            "add {p}, {p}, #64", "add {q}, {q}, #64", "add {r}, {r}, #64", "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, b = in(reg) b, c = in(reg) c, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, r = out(reg) _, n = out(reg) _,
            s = in(vreg) s, x = out(vreg) _, y = out(vreg) _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {r}, {c}", "mov {n}, {lines}",
            "3:", words!(),
            "movsd {x}, qword ptr [{r} + \\o]", "mulsd {x}, {s}",
            "addsd {x}, qword ptr [{q} + \\o]", "movsd qword ptr [{p} + \\o], {x}",
            ".endr",
            "add {p}, 64", "add {q}, 64", "add {r}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, b = in(reg) b, c = in(reg) c, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, r = out(reg) _, n = out(reg) _,
            s = in(xmm_reg) s, x = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// The first array can be written, the others read for `lines` (at least 1) times 64 bytes; `passes` is at least 1.
unsafe fn vector_triad([a, b, c, d]: [*mut u8; 4], lines: usize, passes: u64) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {r}, {c}", "mov {s}, {d}", "mov {n}, {lines}",
            "3:", words!(),
            "ldr {x:d}, [{q}, #\\o]", "ldr {y:d}, [{r}, #\\o]", "ldr {z:d}, [{s}, #\\o]",
            "fmadd {x:d}, {y:d}, {z:d}, {x:d}", "str {x:d}, [{p}, #\\o]",
            ".endr",
            "add {p}, {p}, #64", "add {q}, {q}, #64", "add {r}, {r}, #64", "add {s}, {s}, #64",
            "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, b = in(reg) b, c = in(reg) c, d = in(reg) d, lines = in(reg) lines,
            passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, r = out(reg) _, s = out(reg) _, n = out(reg) _,
            x = out(vreg) _, y = out(vreg) _, z = out(vreg) _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {r}, {c}", "mov {s}, {d}", "mov {n}, {lines}",
            "3:", words!(),
            "movsd {x}, qword ptr [{r} + \\o]", "mulsd {x}, qword ptr [{s} + \\o]",
            "addsd {x}, qword ptr [{q} + \\o]", "movsd qword ptr [{p} + \\o], {x}",
            ".endr",
            "add {p}, 64", "add {q}, 64", "add {r}, 64", "add {s}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, b = in(reg) b, c = in(reg) c, d = in(reg) d, lines = in(reg) lines,
            passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, r = out(reg) _, s = out(reg) _, n = out(reg) _,
            x = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// `a` and `b` can be read for `lines` (at least 1) times 64 bytes; `passes` is at least 1.
unsafe fn dot(a: *const u8, b: *const u8, lines: usize, passes: u64) {
    let mut sum = 0.0f64;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {n}, {lines}",
            "3:", words!(),
            "ldr {x:d}, [{p}, #\\o]", "ldr {y:d}, [{q}, #\\o]", "fmadd {sum:d}, {x:d}, {y:d}, {sum:d}",
            ".endr",
            "add {p}, {p}, #64", "add {q}, {q}, #64", "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, b = in(reg) b, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, n = out(reg) _,
            sum = inout(vreg) sum, x = out(vreg) _, y = out(vreg) _,
            options(readonly, nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {n}, {lines}",
            "3:", words!(),
            "movsd {x}, qword ptr [{p} + \\o]", "mulsd {x}, qword ptr [{q} + \\o]", "addsd {sum}, {x}",
            ".endr",
            "add {p}, 64", "add {q}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, b = in(reg) b, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, n = out(reg) _,
            sum = inout(xmm_reg) sum, x = out(xmm_reg) _,
            options(readonly, nostack),
        );
    }
    // else nothing would need the sum, or the loop
    std::hint::black_box(sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHES: Caches = Caches {
        l1: 32 << 10,
        l2: 1 << 20,
        last: 2 << 20,
    };

    fn count(k: &Kernel, q: Quantity) -> f64 {
        k.expected(q).unwrap().count
    }

    #[test]
    fn footprints_fit_what_they_are_named_after() {
        assert_eq!(CACHES.footprint(Level::L1), 16 << 10);
        assert_eq!(CACHES.footprint(Level::L2), 256 << 10);
        assert_eq!(CACHES.footprint(Level::Memory), 16 << 20);
        let small = Caches {
            l2: 64 << 10,
            last: 1 << 30,
            ..CACHES
        };
        assert_eq!(small.footprint(Level::L2), 128 << 10);
        assert_eq!(small.footprint(Level::Memory), Caches::MOST);
    }

    #[test]
    fn stores_copies_and_triads_write_what_they_should() {
        let lines = 5;
        let mut data = vec![Line([7; 8]); 4 * (lines + SHIFT)];
        let at = |i: usize| i * (lines + SHIFT);
        stream(Traffic::Store, &mut data, lines, 2);
        // a store writes the lines that are left
        assert_eq!(
            (data[0].0[0], data[lines - 1].0[7], data[lines].0[0]),
            (5, 1, 7)
        );
        for i in 0..lines {
            data[at(1) + i].0 = [2.0f64.to_bits() + i as u64; 8];
            data[at(2) + i].0 = [6.0f64.to_bits(); 8];
        }
        stream(Traffic::Copy, &mut data, lines, 1);
        assert_eq!(data[4].0[7], 2.0f64.to_bits() + 4);
        stream(Traffic::Triad, &mut data, lines, 3);
        assert_eq!(f64::from_bits(data[0].0[0]), 5.0);
        assert_eq!((data[lines].0[7], data[at(1) - 1].0[0]), (7, 7));
        for i in 0..lines {
            data[at(1) + i].0 = [2.0f64.to_bits(); 8];
            data[at(3) + i].0 = [0.25f64.to_bits(); 8];
        }
        stream(Traffic::VectorTriad, &mut data, lines, 2);
        let all = data[..lines].iter().flat_map(|l| l.0);
        assert!(all.map(f64::from_bits).all(|v| v == 3.5));
        assert_eq!((data[lines].0[7], data[at(1) - 1].0[0]), (7, 7));
        stream(Traffic::Dot, &mut data, lines, 2);
        assert_eq!(
            f64::from_bits(data[0].0[0]),
            3.5,
            "a dot product writes nothing"
        );
        data[0].0[0] = 5.0f64.to_bits();
        // too little memory is not touched
        stream(Traffic::Store, &mut data[..lines - 1], lines, 1);
        assert_eq!(f64::from_bits(data[0].0[0]), 5.0);
    }

    #[test]
    fn expectations_by_hand() {
        let k = Kernel::stream(Traffic::Triad, Level::Memory, &CACHES, 1);
        let lines = ((16 << 20) / 64 / 3) as f64;
        assert_eq!(count(&k, Quantity::Loads), 16.0 * lines);
        assert_eq!(count(&k, Quantity::Stores), 8.0 * lines);
        assert_eq!(count(&k, Quantity::L2Refills), 3.0 * lines);
        assert_eq!(count(&k, Quantity::Instructions), 37.0 * lines + 6.0);
        assert_eq!(k.expected(Quantity::L2Accesses), None);
        let k = Kernel::stream(Traffic::Load, Level::L1, &CACHES, 20_000);
        // 256 lines of 8 loads, ten passes
        assert_eq!(count(&k, Quantity::Accesses), 20_480.0);
        assert_eq!(count(&k, Quantity::Branches), 2570.0);
        assert_eq!(count(&k, Quantity::L1Refills), 0.0);
        let k = Kernel::nops(10);
        assert_eq!(count(&k, Quantity::Instructions), 640.0);
        let k = Kernel::random_branches(1000, 1);
        assert_eq!(count(&k, Quantity::Branches), 1025.0);
        assert_eq!(count(&k, Quantity::Mispredicts), 512.0);
    }

    #[test]
    fn every_kernel_runs() {
        let tiny = Caches {
            l1: 1 << 10,
            l2: 8 << 10,
            last: 8 << 10,
        };
        let mut all = vec![Kernel::nops(0), Kernel::random_branches(0, 1)];
        for t in Traffic::ALL {
            for l in [Level::L1, Level::L2, Level::Memory] {
                all.push(Kernel::stream(t, l, &tiny, 100_000));
            }
        }
        for k in &mut all {
            k.prepare();
            k.run();
            assert!(count(k, Quantity::Instructions) >= 64.0, "{}", k.name);
        }
        for q in Quantity::ALL {
            assert_eq!(Quantity::by_name(q.name()), Some(q));
            assert!(all
                .iter()
                .any(|k| k.expected(q).is_some_and(|e| e.count > 0.0)));
        }
    }
}
