//! Branch prediction: direction by two-bit counters, target of indirect branches by their last one.

use crate::model::TypeModel;

/// The predictor of one core.
#[derive(Debug)]
pub struct Predictor {
    counters: Box<[u8]>,
    targets: Box<[u64]>,
    history: u32,
    history_mask: u32,
}

impl Predictor {
    /// An untrained predictor: weakly not taken.
    pub fn new(t: &TypeModel) -> Predictor {
        let bits = if t.gshare { t.history_bits } else { 0 };
        Predictor {
            counters: vec![1; t.predictor_entries.next_power_of_two()].into(),
            targets: vec![0; t.target_entries.next_power_of_two()].into(),
            history: 0,
            history_mask: (1 << bits) - 1,
        }
    }

    /// Learns the direction of the conditional branch at `pc`; whether it was mispredicted.
    #[inline]
    pub fn direction(&mut self, pc: u64, taken: bool) -> bool {
        let index = ((pc >> 2) as usize ^ self.history as usize) & (self.counters.len() - 1);
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
        misses(&mut p, 100, |_| true);
        assert_eq!(misses(&mut p, 1000, |i| i % 100 != 99), 10);
    }

    #[test]
    fn history_learns_an_alternation_that_counters_cannot() {
        let types = juno();
        let (mut gshare, mut bimodal) = (Predictor::new(&types[0]), Predictor::new(&types[1]));
        let alternate = |i: usize| i.is_multiple_of(2);
        misses(&mut gshare, 1000, alternate);
        assert_eq!(misses(&mut gshare, 1000, alternate), 0);
        assert!(misses(&mut bimodal, 1000, alternate) >= 500);
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
