//! How good predictions are, with uncertainties that know that windows of one program are alike.

use crate::sample::weights;
use amp_metrics::uncertainty::Measured;
use std::collections::BTreeMap;

/// A predicted window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Index of its program.
    pub program: usize,
    /// The true factor.
    pub truth: f64,
    /// What the model said.
    pub predicted: f64,
}

impl Predicted {
    /// Prediction minus truth.
    pub fn residual(&self) -> f64 {
        self.predicted - self.truth
    }
}

/// Accuracy over programs, each counting the same however many windows it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Accuracy {
    /// Programs.
    pub programs: usize,
    /// Windows.
    pub windows: usize,
    /// Mean absolute error: the mean of the programs' own, with u = σ/√(programs) [MET eq. 1-3].
    pub mae: Measured,
    /// The same of |error| / truth.
    pub relative: Measured,
    /// Root of the mean squared error, the standard uncertainty of a prediction.
    pub rmse: f64,
    /// Pearson's correlation of prediction and truth; u by the jackknife over programs. `None` when either does not vary.
    pub correlation: Option<Measured>,
    /// Half-width of the interval around a prediction that holds [`COVERAGE`] of the truths: that quantile of |error|.
    pub interval: f64,
}

/// Coverage of [`Accuracy::interval`]: that of k = 2 under a normal distribution [MET].
pub const COVERAGE: f64 = 0.954;

/// The mean over programs of their mean of `f`.
fn by_program(all: &[Predicted], f: impl Fn(&Predicted) -> f64) -> Option<Measured> {
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for p in all {
        let (sum, n) = sums.entry(p.program).or_default();
        *sum += f(p);
        *n += 1.0;
    }
    let means: Vec<f64> = sums.values().map(|(sum, n)| sum / n).collect();
    Measured::mean(&means)
}

/// Pearson's correlation with these weights.
fn correlation<'a>(all: impl Iterator<Item = (&'a Predicted, f64)> + Clone) -> Option<f64> {
    let total: f64 = all.clone().map(|(_, w)| w).sum();
    let mean = |f: fn(&Predicted) -> f64| all.clone().map(|(p, w)| w * f(p)).sum::<f64>() / total;
    let (x, y) = (mean(|p| p.truth), mean(|p| p.predicted));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (p, w) in all.clone() {
        let (dx, dy) = (p.truth - x, p.predicted - y);
        xx += w * dx * dx;
        yy += w * dy * dy;
        xy += w * dx * dy;
    }
    // what is left of a constant is rounding
    let varies = |v: f64, m: f64| v / total > (1e-12 * m).powi(2);
    let r = xy / (xx.sqrt() * yy.sqrt());
    (varies(xx, x) && varies(yy, y) && r.is_finite()).then_some(r.clamp(-1.0, 1.0))
}

/// The correlation and its uncertainty: u² = (G − 1)/G · Σ (r₋g − r̄)², r₋g being the one without program g.
fn correlation_by_program(all: &[Predicted], weights: &[f64]) -> Option<Measured> {
    let weighted = || all.iter().zip(weights.iter().copied());
    let value = correlation(weighted())?;
    let mut programs: Vec<usize> = all.iter().map(|p| p.program).collect();
    programs.sort_unstable();
    programs.dedup();
    let without = |g: &usize| correlation(weighted().filter(|(p, _)| p.program != *g));
    let Some(r) = programs.iter().map(without).collect::<Option<Vec<f64>>>() else {
        return Some(Measured::single(value));
    };
    let g = r.len() as f64;
    if r.len() < 2 {
        return Some(Measured::single(value));
    }
    let mean = r.iter().sum::<f64>() / g;
    let squares: f64 = r.iter().map(|x| (x - mean).powi(2)).sum();
    Some(Measured::new(value, ((g - 1.0) / g * squares).sqrt()))
}

impl Accuracy {
    /// Of these predictions. `None` without any, or when one is not finite or a truth is 0.
    pub fn of(all: &[Predicted]) -> Option<Accuracy> {
        let fine = |p: &Predicted| p.truth.is_finite() && p.predicted.is_finite() && p.truth != 0.0;
        if all.is_empty() || !all.iter().all(fine) {
            return None;
        }
        let program: Vec<usize> = all.iter().map(|p| p.program).collect();
        let weights = weights(&program);
        let mut programs = program;
        programs.sort_unstable();
        programs.dedup();
        Some(Accuracy {
            programs: programs.len(),
            windows: all.len(),
            mae: by_program(all, |p| p.residual().abs())?,
            relative: by_program(all, |p| (p.residual() / p.truth).abs())?,
            rmse: by_program(all, |p| p.residual().powi(2))?.value.sqrt(),
            correlation: correlation_by_program(all, &weights),
            interval: interval(all, &weights),
        })
    }
}

/// The smallest d with which |error| ≤ d holds for windows of [`COVERAGE`] of the weight.
fn interval(all: &[Predicted], weights: &[f64]) -> f64 {
    let mut errors: Vec<(f64, f64)> = all
        .iter()
        .zip(weights)
        .map(|(p, w)| (p.residual().abs(), *w))
        .collect();
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sum = 0.0;
    for (e, w) in &errors {
        sum += w;
        if sum >= COVERAGE {
            return *e;
        }
    }
    errors.last().map_or(0.0, |e| e.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn p(program: usize, truth: f64, predicted: f64) -> Predicted {
        Predicted {
            program,
            truth,
            predicted,
        }
    }

    #[test]
    fn programs_count_the_same() {
        // program 0: errors 0.1, 0.1, 0.1, 0.1; program 1: 0.3
        let mut all = vec![p(0, 1.0, 1.1); 4];
        all.push(p(1, 2.0, 1.7));
        let a = Accuracy::of(&all).unwrap();
        assert_eq!((a.programs, a.windows), (2, 5));
        assert!((a.mae.value - 0.2).abs() < 1e-12 && (a.mae.u.unwrap() - 0.1).abs() < 1e-12);
        assert!((a.relative.value - (0.1 + 0.15) / 2.0).abs() < 1e-12);
        assert!((a.rmse - 0.05f64.sqrt()).abs() < 1e-12);
        assert!((a.interval - 0.3).abs() < 1e-12);
        // two points are on a line; without either program nothing varies
        assert_eq!(
            a.correlation.map(|c| (c.value > 0.999, c.u)),
            Some((true, None))
        );
    }

    #[test]
    fn correlation_by_hand() {
        // deviations −1 0 1 and −1 1 0: r = 1/2
        let all = [p(0, 1.0, 1.0), p(1, 2.0, 3.0), p(2, 3.0, 2.0)];
        let c = Accuracy::of(&all).unwrap().correlation.unwrap();
        assert!((c.value - 0.5).abs() < 1e-12, "{c:?}");
        // without 0: −1; without 1: 1; without 2: 1. mean 1/3, Σ = 24/9; u² = 2/3 · 24/9
        assert!(
            (c.u.unwrap() - (16.0f64 / 9.0).sqrt()).abs() < 1e-12,
            "{c:?}"
        );
        let flat = [p(0, 1.0, 2.0), p(1, 2.0, 2.0), p(2, 3.0, 2.0)];
        assert_eq!(Accuracy::of(&flat).unwrap().correlation, None);
    }

    #[test]
    fn nothing_to_say() {
        assert_eq!(Accuracy::of(&[]), None);
        assert_eq!(Accuracy::of(&[p(0, 0.0, 1.0)]), None);
        assert_eq!(Accuracy::of(&[p(0, 1.0, f64::NAN)]), None);
    }

    proptest! {
        #[test]
        fn the_interval_covers(errors in proptest::collection::vec((0usize..4, -1.0f64..1.0), 1..200)) {
            let all: Vec<Predicted> = errors.iter().map(|(g, e)| p(*g, 2.0, 2.0 + e)).collect();
            let a = Accuracy::of(&all).unwrap();
            let program: Vec<usize> = all.iter().map(|p| p.program).collect();
            let weights = weights(&program);
            let covered = |d: f64| -> f64 {
                let inside = all.iter().zip(&weights).filter(|(p, _)| p.residual().abs() <= d);
                inside.map(|(_, w)| w).sum()
            };
            prop_assert!(covered(a.interval) >= COVERAGE - 1e-9);
            prop_assert!(covered(a.interval - 1e-9) < COVERAGE + 1e-9);
            prop_assert!(a.mae.value <= a.rmse + 1e-12);
        }
    }
}
