//! Branches that no predictor can learn.

use super::{keep, Kernel};
use crate::rng::Rng;

/// Two data-dependent branches per unit, each taken with a given probability: mispredicted at a
/// rate of about min(p, 1 − p).
pub(super) struct Branchy {
    r: u64,
    sum: u64,
    threshold: u64,
}

impl Branchy {
    /// `probability` in 0..=1 that each of the two branches goes the one way.
    pub(super) fn new(probability: f64, seed: u64) -> Branchy {
        let threshold = (probability.clamp(0.0, 1.0) * 65536.0) as u64;
        // xorshift must not start from zero
        Branchy {
            r: Rng::new(seed).next() | 1,
            sum: 0,
            threshold,
        }
    }
}

impl Kernel for Branchy {
    fn run(&mut self, units: u64) {
        let Branchy {
            mut r,
            mut sum,
            threshold,
        } = *self;
        for _ in 0..units {
            // xorshift64 [Marsaglia 2003]
            r ^= r << 13;
            r ^= r >> 7;
            r ^= r << 17;
            // `keep` in both arms: otherwise the compiler selects instead of branching
            if (r >> 8) & 0xffff < threshold {
                sum = keep(sum.wrapping_add(r));
            } else {
                sum = keep(sum ^ r);
            }
            if (r >> 40) & 0xffff < threshold {
                sum = keep(sum.wrapping_add(3));
            } else {
                sum = keep(sum.rotate_left(1));
            }
        }
        *self = Branchy { r, sum, threshold };
    }

    fn checksum(&self) -> u64 {
        self.sum ^ self.r.rotate_left(32)
    }
}
