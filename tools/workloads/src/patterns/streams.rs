//! Arrays walked in order by each thread.

use super::{on_threads, Work};

/// What is done with each element of 8 bytes. [`Kind::lines_per_line`] says what memory has to do
/// with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The sum of `a`.
    Load,
    /// `a[i] = s`.
    Store,
    /// `a[i] = b[i]`.
    Copy,
    /// `a[i] = b[i] + s·c[i]`.
    Triad,
    /// `a[i] = b[i] + c[i]·d[i]`.
    VectorTriad,
    /// The sum of `a[i]·b[i]`.
    Dot,
}

impl Kind {
    /// Arrays, and how many of them are written.
    pub fn arrays(self) -> (usize, usize) {
        match self {
            Kind::Load => (1, 0),
            Kind::Store => (1, 1),
            Kind::Copy => (2, 1),
            Kind::Triad => (3, 1),
            Kind::VectorTriad => (4, 1),
            Kind::Dot => (2, 0),
        }
    }

    /// Lines that go to or come from memory per line of each array: every line is read, also one
    /// that is only written to (write-allocate), and what was written goes back.
    pub fn lines_per_line(self) -> usize {
        let (arrays, written) = self.arrays();
        arrays + written
    }
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([f64; 8]);

pub(super) fn run(kind: Kind, threads: usize, work: &Work, begin: &(impl Fn(usize) + Sync)) -> u64 {
    let (arrays, _) = kind.arrays();
    let lines = (work.size as usize / 64 / arrays).max(1);
    on_threads(threads, |t| {
        begin(t);
        // arrays that a kind does without are empty
        let array = |n: usize, v: f64| vec![Line([v; 8]); if n < arrays { lines } else { 0 }];
        let mut a = array(0, 1.0);
        let b = array(1, 0.5 + t as f64);
        let c = array(2, 0.25);
        let d = array(3, 2.0);
        let mut sum = 0.0;
        for round in 0..work.rounds {
            let s = 1.0 + (round % 3) as f64;
            sum += pass(kind, &mut a, [&b, &c, &d], s);
        }
        (sum + a[lines / 2].0[0]).to_bits()
    })
}

#[inline(never)]
fn pass(kind: Kind, a: &mut [Line], [b, c, d]: [&[Line]; 3], s: f64) -> f64 {
    let mut sums = [0.0; 8];
    match kind {
        Kind::Load => {
            for a in a.iter() {
                (0..8).for_each(|i| sums[i] += a.0[i]);
            }
        }
        Kind::Store => a.iter_mut().for_each(|a| a.0 = [s; 8]),
        Kind::Copy => {
            for (a, b) in a.iter_mut().zip(b) {
                (0..8).for_each(|i| a.0[i] = b.0[i]);
            }
        }
        Kind::Triad => {
            for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                (0..8).for_each(|i| a.0[i] = b.0[i] + s * c.0[i]);
            }
        }
        Kind::VectorTriad => {
            for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                (0..8).for_each(|i| a.0[i] = b.0[i] + c.0[i] * d.0[i]);
            }
        }
        Kind::Dot => {
            for (a, b) in a.iter().zip(b) {
                (0..8).for_each(|i| sums[i] += a.0[i] * b.0[i]);
            }
        }
    }
    std::hint::black_box(&*a);
    sums.iter().sum()
}
