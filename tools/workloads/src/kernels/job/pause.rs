//! Pauses between two pieces of work.

use crate::rng::Rng;
use std::time::Duration;

/// Draws pauses evenly from half to one and a half times their mean.
pub(super) struct Pauses {
    rng: Rng,
    mean_us: u64,
}

impl Pauses {
    /// The pauses of thread `thread`: the same for the same seed.
    pub(super) fn new(seed: u64, thread: u64, mean_us: u64) -> Pauses {
        // the generator spreads neighbouring seeds; threads of neighbouring seeds are not to be alike
        let rng = Rng::new(Rng::new(seed).next() ^ thread);
        Pauses { rng, mean_us }
    }

    /// The next one.
    pub(super) fn draw(&mut self) -> Duration {
        Duration::from_micros(spread(&mut self.rng, self.mean_us))
    }
}

/// A number drawn evenly from half to one and a half times `mean`, both included.
pub(super) fn spread(rng: &mut Rng, mean: u64) -> u64 {
    mean / 2 + rng.below(mean.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, thread: u64) -> Vec<u128> {
        let mut p = Pauses::new(seed, thread, 1000);
        (0..2000).map(|_| p.draw().as_micros()).collect()
    }

    #[test]
    fn pauses_keep_their_mean_and_their_bounds() {
        let all = drawn(1, 0);
        assert!(all.iter().all(|us| (500..=1500).contains(us)));
        let mean = all.iter().sum::<u128>() as f64 / all.len() as f64;
        assert!((mean - 1000.0).abs() < 20.0, "{mean}");
        assert_eq!(Pauses::new(1, 0, 0).draw(), Duration::ZERO);
    }

    #[test]
    fn seed_and_thread_decide() {
        assert_eq!(drawn(1, 3), drawn(1, 3));
        assert_ne!(drawn(1, 3), drawn(1, 4));
        assert_ne!(drawn(1, 3), drawn(2, 3));
        // the next seed's thread before is another one
        assert_ne!(drawn(1, 3), drawn(2, 2));
    }
}
