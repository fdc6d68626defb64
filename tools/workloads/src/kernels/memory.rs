//! Kernels that live on the memory hierarchy.

use super::Kernel;
use crate::rng::Rng;

/// Line length that the kernels assume. A machine with longer lines merely gets some hits more.
pub(super) const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; LINE / 8]);

/// Walks an array line after line, again and again: four loads and a store to each line.
/// Prefetchers help.
pub(super) struct Stream {
    lines: Vec<Line>,
    at: usize,
    sum: u64,
}

impl Stream {
    /// `bytes` is the size of the array, rounded up to a line.
    pub(super) fn new(bytes: u64, seed: u64) -> Stream {
        let mut r = Rng::new(seed);
        let n = (bytes as usize).div_ceil(LINE).max(1);
        let lines = (0..n).map(|_| Line([r.next(); LINE / 8])).collect();
        Stream {
            lines,
            at: 0,
            sum: 0,
        }
    }
}

impl Kernel for Stream {
    fn run(&mut self, mut units: u64) {
        let mut s = self.sum;
        while units > 0 {
            let left = self.lines.len() - self.at;
            let n = left.min(usize::try_from(units).unwrap_or(usize::MAX));
            for Line(w) in &mut self.lines[self.at..self.at + n] {
                // the chain through `s` keeps it scalar
                s = (s ^ w[0]).rotate_left(1);
                s = s.wrapping_add(w[2]);
                s ^= w[4];
                s = s.wrapping_add(w[6]);
                w[7] = s;
            }
            self.at = (self.at + n) % self.lines.len();
            units -= n as u64;
        }
        self.sum = s;
    }

    fn checksum(&self) -> u64 {
        self.sum ^ self.at as u64
    }
}

/// Follows pointers along one random cycle through every line of an array: each load waits for the
/// one before it.
pub(super) struct Chase {
    // `at` is an address inside `lines`, whose heap block never moves while this lives
    lines: Vec<Line>,
    at: usize,
}

impl Chase {
    /// `bytes` is the size of the array, rounded up to a line.
    pub(super) fn new(bytes: u64, seed: u64) -> Chase {
        let mut r = Rng::new(seed);
        let n = (bytes as usize).div_ceil(LINE).max(1);
        // Sattolo's shuffle gives a permutation that is a single cycle
        let mut next: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            next.swap(i, r.below(i as u64) as usize);
        }
        let mut lines = vec![Line([0; LINE / 8]); n];
        let base = lines.as_ptr() as usize;
        for (line, to) in lines.iter_mut().zip(next) {
            line.0[0] = (base + to as usize * LINE) as u64;
        }
        Chase { at: base, lines }
    }
}

impl Kernel for Chase {
    fn run(&mut self, units: u64) {
        let mut p = self.at;
        for _ in 0..units {
            // SAFETY: `p` is the address of a line of `self.lines`: it starts as one, and the first
            // word of each line, written in `new` and never again, holds the address of another. A
            // line is aligned for u64.
            p = unsafe { (p as *const u64).read() } as usize;
        }
        self.at = p;
    }

    fn checksum(&self) -> u64 {
        ((self.at - self.lines.as_ptr() as usize) / LINE) as u64
    }
}

/// Updates words of a table at random places that do not depend on each other: a core that looks
/// ahead overlaps the misses.
pub(super) struct Hash {
    table: Vec<u64>,
    r: u64,
}

impl Hash {
    /// `bytes` is the size of the table, rounded up to a power of two.
    pub(super) fn new(bytes: u64, seed: u64) -> Hash {
        let n = (bytes as usize).div_ceil(8).next_power_of_two();
        let mut r = Rng::new(seed);
        Hash {
            table: (0..n).map(|_| r.next()).collect(),
            r: r.next(),
        }
    }
}

impl Kernel for Hash {
    fn run(&mut self, units: u64) {
        let mask = self.table.len() - 1;
        let mut r = self.r;
        for _ in 0..units {
            // the generator of the C library's drand48 family widened: one multiplication and one
            // addition
            r = r
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let i = (r >> 24) as usize & mask;
            // SAFETY: `mask` is the length, a power of two, less one.
            let w = unsafe { self.table.get_unchecked_mut(i) };
            *w = w.wrapping_add(r);
        }
        self.r = r;
    }

    fn checksum(&self) -> u64 {
        self.table.iter().fold(self.r, |s, w| s.rotate_left(5) ^ w)
    }
}
