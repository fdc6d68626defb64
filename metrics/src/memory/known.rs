//! One factor of one program: its mean, its scatter, what stands behind it, and what age takes.

use crate::estimate::{Estimate, Quality};
use crate::ids::Nanos;

/// Most intervals that a mean rests on: beyond, each weighs as much as the one before, and what was
/// long ago fades.
const MOST_WEIGHT: f64 = 200.0;
/// Days in which what stands behind a factor comes to count half.
const HALF_LIFE_DAYS: f64 = 30.0;
/// Relative standard uncertainty that a factor gains in a day; in n days, √n times as much.
const AGEING: f64 = 0.02;
/// Relative standard uncertainty for what the next run may do otherwise (another input) after a
/// single run; after n runs, divided by √n.
const NEXT_RUN: f64 = 0.1;
/// Largest factor that is taken in.
const LARGEST: f64 = 1e6;
const DAY: f64 = 86_400.0;

/// A factor over the runs of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Mean; the n-th value weighs 1/n, 1/200 at least.
    pub(super) mean: f64,
    /// Running mean of the squared departures from it.
    pub(super) scatter: f64,
    /// Running mean of the squared uncertainties that were stated.
    pub(super) own: f64,
    /// Values that stand behind it.
    pub(super) weight: f64,
    /// When the last one came, seconds since 1970.
    pub(super) at: u64,
}

fn days(since: u64, now: u64) -> f64 {
    now.saturating_sub(since) as f64 / DAY
}

impl Known {
    /// Takes in a value with its standard uncertainty; false when it is none.
    pub(super) fn take_in(known: &mut Option<Known>, (value, u): (f64, f64), now: u64) -> bool {
        let sound = |x: f64| x.is_finite() && x <= LARGEST;
        if !(sound(value) && value > 0.0 && sound(u) && u >= 0.0) {
            return false;
        }
        let k = known.get_or_insert(Known {
            mean: value,
            scatter: 0.0,
            own: u * u,
            weight: 0.0,
            at: now,
        });
        k.weight = (k.weight(now) + 1.0).min(MOST_WEIGHT);
        let new = 1.0 / k.weight;
        let d = value - k.mean;
        k.mean += new * d;
        k.scatter = (1.0 - new) * (k.scatter + new * d * d);
        k.own += new * (u * u - k.own);
        k.at = k.at.max(now);
        true
    }

    /// What stands behind it at `now`.
    pub(super) fn weight(&self, now: u64) -> f64 {
        self.weight * (-days(self.at, now) / HALF_LIFE_DAYS).exp2()
    }

    /// What is expected of the next run, after so many.
    pub(super) fn recall(&self, runs: u32, now: u64) -> Estimate {
        let days = days(self.at, now);
        let relative = AGEING * AGEING * days + NEXT_RUN * NEXT_RUN / f64::from(runs.max(1));
        let variance = self.scatter + self.own + self.mean * self.mean * relative;
        Estimate {
            value: self.mean,
            uncertainty: Some(variance.sqrt()),
            age: Nanos::from_secs(now.saturating_sub(self.at)),
            quality: Quality::Stale,
        }
    }

    /// Whether every number in it can be one that was kept.
    pub(super) fn sound(&self) -> bool {
        let number = |x: f64, most: f64| x.is_finite() && (0.0..=most).contains(&x);
        number(self.mean, LARGEST)
            && self.mean > 0.0
            && number(self.scatter, LARGEST * LARGEST)
            && number(self.own, LARGEST * LARGEST)
            && number(self.weight, MOST_WEIGHT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000;

    fn of(values: &[f64]) -> Known {
        let mut k = None;
        for v in values {
            assert!(Known::take_in(&mut k, (*v, 0.1), NOW));
        }
        k.unwrap()
    }

    #[test]
    fn the_first_values_weigh_alike_and_a_long_past_fades() {
        let k = of(&[1.0, 2.0, 3.0, 4.0]);
        assert!((k.mean - 2.5).abs() < 1e-12);
        assert!((k.scatter - 1.25).abs() < 1e-12, "{k:?}");
        assert!((k.own - 0.01).abs() < 1e-12);
        let mut long = [1.0; 200].to_vec();
        long.extend([3.0; 2000]);
        assert!((of(&long).mean - 3.0).abs() < 0.01);
    }

    #[test]
    fn age_takes_weight_and_adds_uncertainty() {
        let k = of(&[2.0; 100]);
        let u = |days: u64| k.recall(1, NOW + days * 86_400).uncertainty.unwrap();
        // 0.1 that was stated, 0.2 for another run
        assert!((u(0) - 0.05f64.sqrt()).abs() < 1e-9);
        assert!(u(1) > u(0) && u(100) > 0.4 && u(100) < 0.5, "{}", u(100));
        assert!((k.weight(NOW + 30 * 86_400) - 50.0).abs() < 1e-9);
        let old = |days: u64| {
            let mut k = Some(k);
            Known::take_in(&mut k, (4.0, 0.1), NOW + days * 86_400);
            k.unwrap().mean
        };
        assert!(old(0) < 2.03 && old(365) > 3.0, "{} {}", old(0), old(365));
        assert!(k.recall(100, NOW).uncertainty < k.recall(1, NOW).uncertainty);
        // a clock that was put back makes nothing older, and nothing newer
        assert_eq!(k.recall(1, NOW - 1_000), k.recall(1, NOW));
    }

    #[test]
    fn what_is_no_number_is_not_taken_in() {
        for bad in [
            (f64::NAN, 0.1),
            (f64::INFINITY, 0.1),
            (0.0, 0.1),
            (-1.0, 0.1),
            (1e7, 0.1),
            (1.0, f64::NAN),
            (1.0, -0.1),
            (1.0, f64::INFINITY),
        ] {
            let mut k = None;
            assert!(!Known::take_in(&mut k, bad, NOW) && k.is_none(), "{bad:?}");
        }
    }

    proptest! {
        /// It is never surer than what it was told, nor than the scatter of it.
        #[test]
        fn uncertainty_covers_what_was_said(
            values in prop::collection::vec((0.5f64..10.0, 0.0f64..1.0), 1..300),
            runs in 1u32..100, later in 0u64..100_000_000,
        ) {
            let mut k = None;
            for v in &values {
                Known::take_in(&mut k, *v, NOW);
            }
            let k = k.unwrap();
            prop_assert!(k.sound());
            let e = k.recall(runs, NOW + later);
            let least = values.iter().map(|v| v.1).fold(f64::INFINITY, f64::min);
            let u = e.uncertainty.unwrap();
            prop_assert!(u >= least - 1e-9 && u * u >= k.scatter);
            prop_assert!(u > 0.0 && e.value >= 0.5 && e.value <= 10.0);
        }
    }
}
