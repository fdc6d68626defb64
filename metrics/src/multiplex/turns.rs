//! How long each turn of a set lasts.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// Length of the first round's turns: a program's beginning is unlike the rest, and every set is to
/// see some of it.
const FIRST: Duration = Duration::from_millis(1);
/// Turns differ from the nominal length by up to this part.
const SPREAD: f64 = 0.25;

/// Lengths of turns: short at first, doubled with every round up to the nominal length, and never
/// quite the same, so that they do not fall into step with a program that repeats itself.
#[derive(Clone, Debug)]
pub struct Turns {
    nominal: Duration,
    next: Duration,
    sets: usize,
    left: usize,
    rng: SmallRng,
}

impl Turns {
    /// Turns of `nominal` length for `sets` sets; the same `seed` gives the same lengths.
    pub fn new(nominal: Duration, sets: usize, seed: u64) -> Turns {
        Turns {
            nominal,
            next: FIRST.min(nominal),
            sets: sets.max(1),
            left: sets.max(1),
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// Part by which turns differ from their nominal length at most.
    pub fn spread() -> f64 {
        SPREAD
    }

    /// The length of the next turn.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Duration {
        let length = self.next;
        self.left -= 1;
        if self.left == 0 {
            self.left = self.sets;
            self.next = (self.next * 2).min(self.nominal);
        }
        length.mul_f64(self.rng.random_range(1.0 - SPREAD..=1.0 + SPREAD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_grow_up_to_the_nominal_length_and_scatter() {
        let mut t = Turns::new(Duration::from_millis(10), 3, 1);
        let lengths: Vec<f64> = (0..60).map(|_| t.next().as_secs_f64() * 1e3).collect();
        for (i, l) in lengths.iter().enumerate() {
            let nominal = f64::min(10.0, f64::from(1 << (i / 3)));
            assert!((l / nominal - 1.0).abs() <= SPREAD + 1e-9, "{i}: {l}");
        }
        let late = &lengths[30..];
        assert!(late.iter().any(|l| *l < 9.0) && late.iter().any(|l| *l > 11.0));
        // shorter than the first turn there is none
        let mut t = Turns::new(Duration::from_micros(100), 0, 1);
        assert!(t.next() <= Duration::from_micros(125));
    }
}
