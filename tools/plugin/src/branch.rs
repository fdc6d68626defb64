//! Branch prediction: direction by two-bit counters, target of indirect branches by their last one.

use crate::model::TypeModel;

/// The predictor of one core.
#[derive(Debug)]
pub struct Predictor {
    counters: Box<[u8]>,
    targets: Box<[u64]>,
    /// Low bits of a hash that choose a counter, before [`fold`].
    counter_mask: usize,
    history: u32,
    history_mask: u32,
}

/// The entry of a table of `entries` for `hash`, which is less than the next power of two: tables
/// that are smaller wrap around.
#[inline]
fn fold(hash: usize, entries: usize) -> usize {
    if hash < entries {
        hash
    } else {
        hash - entries
    }
}

impl Predictor {
    /// An untrained predictor: weakly not taken.
    pub fn new(t: &TypeModel) -> Predictor {
        let bits = if t.gshare { t.history_bits } else { 0 };
        Predictor {
            counters: vec![1; t.predictor_entries].into(),
            counter_mask: t.predictor_entries.next_power_of_two() - 1,
            targets: vec![0; t.target_entries.next_power_of_two()].into(),
            history: 0,
            history_mask: (1 << bits) - 1,
        }
    }

    /// Learns the direction of the conditional branch at `pc`; whether it was mispredicted.
    #[inline]
    pub fn direction(&mut self, pc: u64, taken: bool) -> bool {
        let hash = ((pc >> 2) as usize ^ self.history as usize) & self.counter_mask;
        let index = fold(hash, self.counters.len());
        let Some(counter) = self.counters.get_mut(index) else {
            return false;
        };
        let old = *counter;
        let predicted = old >= 2;
        *counter = if taken {
            (old + 1).min(3)
        } else {
            old.saturating_sub(1)
        };
        self.history = (self.history << 1 | u32::from(taken)) & self.history_mask;
        predicted != taken
    }

    /// Learns the target of the indirect branch at `pc`; whether it was mispredicted.
    #[inline]
    pub fn target(&mut self, pc: u64, target: u64) -> bool {
        let index = ((pc >> 2) as usize ^ self.history as usize) & (self.targets.len() - 1);
        self.targets
            .get_mut(index)
            .is_some_and(|t| std::mem::replace(t, target) != target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::juno;

    fn misses(p: &mut Predictor, n: usize, mut outcome: impl FnMut(usize) -> bool) -> usize {
        (0..n)
            .filter(|i| p.direction(0x40_0000, outcome(*i)))
            .count()
    }

    #[test]
    fn a_loop_misses_once_per_exit() {
        let mut p = Predictor::new(&juno()[1]);
        let exits = |i: usize| i % 100 != 99;
        // what follows an exit is learned too: the history is another one
        misses(&mut p, 200, exits);
        assert_eq!(misses(&mut p, 1000, exits), 10);
    }

    #[test]
    fn history_learns_an_alternation_that_counters_cannot() {
        let alternate = |i: usize| i.is_multiple_of(2);
        for t in juno() {
            let mut gshare = Predictor::new(&t);
            misses(&mut gshare, 1000, alternate);
            assert_eq!(misses(&mut gshare, 1000, alternate), 0);
            let mut bimodal = Predictor::new(&crate::model::TypeModel { gshare: false, ..t });
            misses(&mut bimodal, 1000, alternate);
            assert!(misses(&mut bimodal, 1000, alternate) >= 500);
        }
    }

    #[test]
    fn every_counter_of_a_table_that_is_no_power_of_two_is_used() {
        let mut t = juno()[1].clone();
        (t.gshare, t.predictor_entries) = (false, 3072);
        let mut p = Predictor::new(&t);
        for branch in 0..4096u64 {
            p.direction(branch << 2, true);
        }
        // the last quarter shares the first 1024 counters
        assert!(p.counters[..1024].iter().all(|c| *c == 3));
        assert!(p.counters[1024..].iter().all(|c| *c == 2));
        // weakly not taken at first, so that only the first pass over a counter mispredicts
        assert!(!p.direction(1023 << 2, true) && !p.direction(4095 << 2, true));
    }

    #[test]
    fn random_directions_miss_half_the_time() {
        for t in juno() {
            let mut p = Predictor::new(&t);
            let mut x = 88_172_645_463_325_252u64;
            let n = misses(&mut p, 20_000, |_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x & 1 == 1
            });
            assert!((9_000..11_000).contains(&n), "{n}");
        }
    }

    #[test]
    fn a_steady_target_is_learned() {
        let mut p = Predictor::new(&juno()[1]);
        assert!(p.target(0x1000, 0x2000));
        assert!(!p.target(0x1000, 0x2000));
        assert!(p.target(0x1000, 0x3000));
    }
}
