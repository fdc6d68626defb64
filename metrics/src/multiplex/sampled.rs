//! Totals of a set that was counted part of the time, with their uncertainty.
//!
//! The windows in which the set was on are a sample of the whole run. A total is estimated by its ratio to time
//! (Σx / Σt · T) and its variance by the residuals of that ratio with the finite population correction, the textbook
//! ratio estimator of survey sampling [Cochran, Sampling Techniques, ch. 6]. Sets by turns are a systematic sample:
//! for programs that repeat themselves in step with the turns the interval is too narrow.

use crate::uncertainty::Measured;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// What the windows of one set have counted. Keeps sums, not windows: a run may be as long as it likes.
#[derive(Clone, Debug)]
pub struct Sampled {
    windows: u64,
    counts: Vec<u64>,
    time: f64,
    /// Means over windows of every count, and of the time in the last place.
    mean: Vec<f64>,
    /// Sums of products of deviations from the means, row by row.
    products: Vec<f64>,
}

impl Sampled {
    /// Nothing counted yet of a set of `events`.
    pub fn new(events: usize) -> Sampled {
        let n = events + 1;
        Sampled {
            windows: 0,
            counts: vec![0; events],
            time: 0.0,
            mean: vec![0.0; n],
            products: vec![0.0; n * n],
        }
    }

    /// Adds a window of `seconds` on the hardware. One without any time tells nothing of rates, but what it counted counts.
    /// Missing counts are taken as 0, surplus ones ignored.
    pub fn add(&mut self, seconds: f64, counts: &[u64]) {
        for (sum, c) in self.counts.iter_mut().zip(counts) {
            *sum = sum.saturating_add(*c);
        }
        if !(seconds.is_finite() && seconds > 0.0) {
            return;
        }
        self.windows += 1;
        self.time += seconds;
        let n = self.mean.len();
        let value = |i: usize| match counts.get(i) {
            _ if i + 1 == n => seconds,
            Some(c) => *c as f64,
            None => 0.0,
        };
        // one pass, without the cancellation of sums of squares [Welford 1962]
        let before: Vec<f64> = (0..n).map(|i| value(i) - self.mean[i]).collect();
        for (m, d) in self.mean.iter_mut().zip(&before) {
            *m += d / self.windows as f64;
        }
        for (i, d) in before.iter().enumerate() {
            for j in 0..n {
                self.products[i * n + j] += d * (value(j) - self.mean[j]);
            }
        }
    }

    /// Windows with time on the hardware.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Seconds on the hardware.
    pub fn seconds(&self) -> f64 {
        self.time
    }

    /// What event `i` has really counted.
    pub fn counted(&self, i: usize) -> u64 {
        self.counts.get(i).copied().unwrap_or(0)
    }

    /// Part of `whole` seconds that the set was on the hardware, 0..=1; `None` when there was no time at all.
    pub fn coverage(&self, whole: f64) -> Option<f64> {
        (whole > 0.0).then(|| (self.time / whole).clamp(0.0, 1.0))
    }

    /// Total of event `i` over `whole` seconds. What was counted all the time is exact; with a single window of a part of
    /// it the uncertainty is unknown. `None` when nothing was counted of a whole that is not empty.
    pub fn total(&self, i: usize, whole: f64) -> Option<Measured> {
        let counted = self.counted(i) as f64;
        let Some(coverage) = self.coverage(whole) else {
            return Some(Measured::exact(counted));
        };
        if self.windows == 0 {
            return None;
        }
        let mut gradient = vec![0.0; self.counts.len()];
        if let Some(g) = gradient.get_mut(i) {
            *g = 1.0;
        }
        Some(Measured {
            value: counted / coverage,
            u: self.variance(&gradient, whole).map(f64::sqrt),
        })
    }

    /// Variance of Σ `gradient`[i] · total(i): what events counted in the same windows have in common is accounted for.
    /// `None` when it is unknown.
    pub fn variance(&self, gradient: &[f64], whole: f64) -> Option<f64> {
        let Some(f) = self.coverage(whole) else {
            return Some(0.0);
        };
        // a difference in the last digits of two clocks is no missing part
        if f > 1.0 - 1e-9 {
            return Some(0.0);
        }
        if self.windows < 2 {
            return None;
        }
        let (n, count) = (self.mean.len(), self.windows as f64);
        let sum: f64 = gradient
            .iter()
            .enumerate()
            .map(|(i, g)| g * self.counted(i) as f64)
            .sum();
        // the residual of a window is its weighted counts less rate × time
        let weight = |i: usize| match gradient.get(i) {
            _ if i + 1 == n => -sum / self.time,
            Some(g) => *g,
            None => 0.0,
        };
        let mut squares = 0.0;
        for i in 0..n {
            for j in 0..n {
                squares += weight(i) * weight(j) * self.products[i * n + j];
            }
        }
        let s2 = squares.max(0.0) / (count - 1.0);
        Some(count * (1.0 - f) * s2 / (f * f))
    }

    /// By what the standard uncertainty is to be multiplied for an interval that holds the truth in `level` (0..1) of all
    /// cases: Student's t, as few windows know their own scatter badly. `None` with fewer than two windows.
    pub fn factor(&self, level: f64) -> Option<f64> {
        let freedom = self.windows.checked_sub(1).filter(|f| *f > 0)? as f64;
        let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
        (0.0..1.0)
            .contains(&level)
            .then(|| t.inverse_cdf(0.5 + level / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    #[test]
    fn counted_all_the_time_is_exact() {
        let mut s = Sampled::new(2);
        s.add(1.0, &[10, 3]);
        s.add(0.0, &[1, 0]);
        assert_eq!(s.total(0, 1.0), Some(Measured::exact(11.0)));
        assert_eq!(s.total(1, 0.0), Some(Measured::exact(3.0)));
        assert_eq!(Sampled::new(1).total(0, 1.0), None);
        assert_eq!(Sampled::new(1).total(0, 0.0), Some(Measured::exact(0.0)));
    }

    #[test]
    fn one_window_of_a_part_has_no_known_uncertainty() {
        let mut s = Sampled::new(1);
        s.add(0.5, &[10]);
        assert_eq!(s.total(0, 1.0), Some(Measured::single(20.0)));
        assert_eq!(s.factor(0.95), None);
        s.add(0.25, &[5]);
        // the same rate in both: no scatter
        let t = s.total(0, 1.5).unwrap();
        assert!((t.value - 30.0).abs() < 1e-9 && t.u.unwrap() < 1e-6);
        assert!((s.factor(0.95).unwrap() - 12.706).abs() < 1e-2);
    }

    #[test]
    fn events_that_go_together_have_a_certain_ratio() {
        let mut s = Sampled::new(2);
        for x in [10, 50, 20, 90] {
            s.add(1.0, &[x, 2 * x]);
        }
        let total = s.total(0, 8.0).unwrap();
        assert!(total.u.unwrap() > 10.0);
        // gradient of x1/x2 at the totals
        let (a, b) = (total.value, s.total(1, 8.0).unwrap().value);
        let v = s.variance(&[1.0 / b, -a / (b * b)], 8.0).unwrap();
        assert!(v < 1e-15, "{v}");
    }

    /// The interval holds the truth about as often as it says, for counts with noise and slow drift.
    #[test]
    fn the_interval_covers() {
        let mut rng = rand::rngs::SmallRng::seed_from_u64(7);
        let (mut inside, trials) = (0, 2000);
        for _ in 0..trials {
            let drift: f64 = rng.random_range(-0.5..0.5);
            let all: Vec<u64> = (0..60)
                .map(|i| {
                    let level = 1000.0 * (1.0 + drift * i as f64 / 60.0);
                    (level * rng.random_range(0.5..1.5)) as u64
                })
                .collect();
            let mut s = Sampled::new(1);
            all.iter().step_by(3).for_each(|c| s.add(0.01, &[*c]));
            let t = s.total(0, 0.6).unwrap();
            let half = s.factor(0.95).unwrap() * t.u.unwrap();
            let truth = all.iter().sum::<u64>() as f64;
            inside += u32::from((t.value - truth).abs() <= half);
        }
        let share = f64::from(inside) / f64::from(trials);
        assert!((0.92..=0.99).contains(&share), "{share}");
    }
}
