//! Who has had how much time on fast cores.

use amp_metrics::MAX_CORE_TYPES;
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Rounds after which an absent holder is forgotten.
const FORGET_AFTER: u64 = 100;

/// Accounts of fast-core time, one per holder (an application or a thread) and per level; level `k`
/// is the time on core types up to and including `k`, in seconds, divided by relative weight.
///
/// Only differences matter. Holders join at the mean of those present, so that a restarted
/// application neither claims back time it was not there for nor starts in debt; one that comes
/// back from a rest is raised to the mean. A lead or a lag is remembered up to a bound: a holder
/// that cannot use its share (one thread can hold one core) would otherwise pile up a claim against
/// those who come later.
#[derive(Debug)]
pub struct Ledger<K> {
    /// A fast hash, the same in every run: sums over it must not depend on a random order.
    accounts: FxHashMap<K, Account>,
    round: u64,
}

#[derive(Debug)]
struct Account {
    used: [f64; MAX_CORE_TYPES],
    charge: [f64; MAX_CORE_TYPES],
    seen: u64,
    joins: bool,
}

impl<K> Default for Ledger<K> {
    fn default() -> Self {
        Ledger {
            accounts: FxHashMap::default(),
            round: 0,
        }
    }
}

impl<K: Copy + Eq + Hash> Ledger<K> {
    /// Begins a round.
    pub fn begin(&mut self) {
        self.round += 1;
    }

    /// Charges `holder` with `used` more per level. May be called several times in a round.
    pub fn charge(&mut self, holder: K, used: &[f64; MAX_CORE_TYPES]) {
        let round = self.round;
        let account = self.accounts.entry(holder).or_insert_with(|| Account {
            used: [0.0; MAX_CORE_TYPES],
            charge: [0.0; MAX_CORE_TYPES],
            seen: 0,
            joins: true,
        });
        // Absent for a round or more: it joins anew, but never below what it has used.
        account.joins |= account.seen + 1 < round;
        account.seen = round;
        for (sum, u) in account.charge.iter_mut().zip(used) {
            *sum += u;
        }
    }

    /// Ends the round: books the charges, lets newcomers in, and forgets leads and lags beyond
    /// `bound` seconds.
    pub fn settle(&mut self, bound: f64) {
        let round = self.round;
        let mut sum = [0.0; MAX_CORE_TYPES];
        let mut n = 0u32;
        for a in self
            .accounts
            .values_mut()
            .filter(|a| a.seen == round && !a.joins)
        {
            n += 1;
            for ((s, used), charge) in sum.iter_mut().zip(&mut a.used).zip(&mut a.charge) {
                *used += std::mem::take(charge);
                *s += *used;
            }
        }
        let mean = sum.map(|s| if n > 0 { s / f64::from(n) } else { 0.0 });
        for a in self.accounts.values_mut().filter(|a| a.seen == round) {
            for ((used, charge), mean) in a.used.iter_mut().zip(&mut a.charge).zip(mean) {
                if a.joins {
                    *used = used.max(mean) + std::mem::take(charge);
                }
                *used = used.clamp(mean - bound, mean + bound);
            }
            a.joins = false;
        }
        self.accounts.retain(|_, a| a.seen + FORGET_AFTER > round);
    }

    /// What `holder` has used at `level`, in seconds; 0 for a stranger.
    pub fn used(&self, holder: K, level: usize) -> f64 {
        self.accounts
            .get(&holder)
            .and_then(|a| a.used.get(level))
            .copied()
            .unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(l: &mut Ledger<u8>, charges: &[(u8, f64)]) {
        l.begin();
        for (k, s) in charges {
            l.charge(*k, &[*s; MAX_CORE_TYPES]);
        }
        l.settle(10.0);
    }

    #[test]
    fn newcomers_join_at_the_mean() {
        let mut l = Ledger::default();
        round(&mut l, &[(1, 2.0), (2, 4.0)]);
        round(&mut l, &[(1, 0.0), (2, 0.0), (3, 1.0)]);
        assert_eq!([l.used(1, 0), l.used(2, 0), l.used(3, 0)], [2.0, 4.0, 4.0]);
        assert_eq!(l.used(9, 0), 0.0);
    }

    #[test]
    fn a_rest_earns_no_claim() {
        let mut l = Ledger::default();
        round(&mut l, &[(1, 1.0), (2, 1.0)]);
        for _ in 0..5 {
            round(&mut l, &[(1, 1.0)]);
        }
        round(&mut l, &[(1, 0.0), (2, 0.0)]);
        assert_eq!((l.used(1, 0), l.used(2, 0)), (6.0, 6.0));
    }

    #[test]
    fn leads_and_lags_are_bounded() {
        let mut l = Ledger::default();
        for _ in 0..100 {
            round(&mut l, &[(1, 0.0), (2, 1.0)]);
        }
        assert!(l.used(2, 0) - l.used(1, 0) <= 20.0 + 1e-9);
    }

    #[test]
    fn the_departed_are_forgotten() {
        let mut l = Ledger::default();
        round(&mut l, &[(1, 1.0), (2, 1.0)]);
        for _ in 0..200 {
            round(&mut l, &[(1, 1.0)]);
        }
        assert_eq!(l.accounts.len(), 1);
    }
}
