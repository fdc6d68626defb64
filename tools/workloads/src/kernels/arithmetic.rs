//! Kernels that stay in registers.

use super::{keep, Kernel};
use crate::rng::Rng;

/// Integer additions, rotations and exclusive ors; four chains that meet once per unit.
pub(super) struct Alu {
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    i: u64,
}

impl Alu {
    pub(super) fn new(seed: u64) -> Alu {
        let mut r = Rng::new(seed);
        Alu {
            a: r.next(),
            b: r.next(),
            c: r.next(),
            d: r.next(),
            i: 0,
        }
    }
}

impl Kernel for Alu {
    fn run(&mut self, units: u64) {
        let Alu {
            mut a,
            mut b,
            mut c,
            mut d,
            mut i,
        } = *self;
        for _ in 0..units {
            a = a.wrapping_add(b ^ i);
            b = keep(b.rotate_left(3));
            c = c.wrapping_add(i);
            d ^= c;
            a ^= d;
            i = i.wrapping_add(1);
        }
        *self = Alu { a, b, c, d, i };
    }

    fn checksum(&self) -> u64 {
        self.a ^ self.b.rotate_left(16) ^ self.c.rotate_left(32) ^ self.d.rotate_left(48)
    }
}

/// A chain of dependent 64-bit multiplications: the multiplier's latency.
pub(super) struct Mul {
    x: u64,
}

impl Mul {
    pub(super) fn new(seed: u64) -> Mul {
        Mul {
            x: Rng::new(seed).next(),
        }
    }
}

impl Kernel for Mul {
    fn run(&mut self, units: u64) {
        let mut x = self.x;
        for _ in 0..units {
            // multiplier and increment of a full-period generator, so that the chain never dies out
            x = keep(x.wrapping_mul(6_364_136_223_846_793_005)) ^ 0x5851;
            x = keep(x.wrapping_mul(3_935_559_000_370_003_845)).wrapping_add(1);
            x = keep(x.wrapping_mul(2_862_933_555_777_941_757)) ^ 0x2545;
            x = keep(x.wrapping_mul(3_202_034_522_624_059_733)).wrapping_add(1);
        }
        self.x = x;
    }

    fn checksum(&self) -> u64 {
        self.x
    }
}

/// Scalar double-precision multiplications and additions. Logistic maps that feed each other:
/// chaotic, so nothing settles or goes subnormal; bounded, so nothing overflows; and so uneven that
/// vectors gain nothing.
pub(super) struct Fp {
    x: f64,
    y: f64,
    z: f64,
    w: f64,
}

impl Fp {
    pub(super) fn new(seed: u64) -> Fp {
        let mut r = Rng::new(seed);
        let mut unit = || 0.1 + 0.8 * (r.next() >> 11) as f64 / (1u64 << 53) as f64;
        Fp {
            x: unit(),
            y: unit(),
            z: unit(),
            w: unit(),
        }
    }
}

impl Kernel for Fp {
    fn run(&mut self, units: u64) {
        let Fp {
            mut x,
            mut y,
            mut z,
            mut w,
        } = *self;
        for _ in 0..units {
            x = 3.93 * x * (1.0 - x);
            y = 0.5 * (3.81 * y * (1.0 - y) + x);
            z = 0.5 * (z * z + y);
            w = w * 0.75 + x * z * 0.25;
        }
        *self = Fp { x, y, z, w };
    }

    fn checksum(&self) -> u64 {
        // IEEE 754 arithmetic without contraction is the same everywhere, to the last bit
        self.x.to_bits()
            ^ self.y.to_bits().rotate_left(16)
            ^ self.z.to_bits().rotate_left(32)
            ^ self.w.to_bits().rotate_left(48)
    }
}
