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
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Pearson's correlation of prediction and truth; u by the jackknife over programs. `None` when
    /// either does not vary.
    pub correlation: Option<Measured>,
    /// Half-width of the interval around a prediction that holds [`COVERAGE`] of these truths: that
    /// quantile of |error|.
    pub interval: f64,
    /// Half-width of the interval that holds the truth of a window of another program with a
    /// probability of [`COVERAGE`]. The errors must be those of programs that their predictions
    /// have not seen.
    ///
    /// The quantile of |error| where the program to come weighs as much as each of those that are
    /// known, at an error beyond all of theirs: a conformal prediction interval for data in groups
    /// [Dunn, Wasserman, Ramdas 2022, "Distribution-free prediction sets for two-layer hierarchical models"],
    /// on cross-validated errors [Barber et al. 2021, "Predictive inference with the jackknife+"].
    /// Nothing is assumed of their distribution but that programs are drawn alike. With fewer than
    /// 21 programs there is no such interval, and this is the largest error.
    pub prediction: f64,
    /// What part of a program's windows is within the prediction interval of the others' errors:
    /// the mean over the programs, with its uncertainty. `None` with a single program.
    pub coverage: Option<Measured>,
}

/// Coverage of [`Accuracy::interval`] and [`Accuracy::prediction`]: that of k = 2 under a normal
/// distribution \[MET\].
pub const COVERAGE: f64 = 0.954;
/// The coverage factor that goes with it: a standard uncertainty is the half-width of the interval
/// over it.
pub const COVERAGE_FACTOR: f64 = 2.0;

/// The mean over programs of their mean of `f`.
fn by_program(all: &[Predicted], mut f: impl FnMut(&Predicted) -> f64) -> Option<Measured> {
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

/// The correlation and its uncertainty: u² = (G − 1)/G · Σ (r₋g − r̄)², r₋g being the one without
/// program g.
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
            interval: quantile(&sorted(all), |_| true, COVERAGE),
            prediction: prediction(&sorted(all), None),
            coverage: coverage(all),
        })
    }

    /// What part of these truths is within the coverage factor times a standard uncertainty of the
    /// prediction: the mean over the programs. To check an uncertainty that others' errors gave.
    pub fn within(all: &[Predicted], uncertainty: &[f64]) -> Option<Measured> {
        let mut each = uncertainty.iter();
        by_program(all, |p| {
            let half = each.next().map_or(0.0, |u| COVERAGE_FACTOR * u);
            f64::from(u8::from(p.residual().abs() <= half))
        })
    }

    /// The standard uncertainty of a prediction: its prediction interval over [`COVERAGE_FACTOR`].
    pub fn uncertainty(&self) -> f64 {
        self.prediction / COVERAGE_FACTOR
    }
}

/// |error|, weight and program of each window, the least error first; the weights of a program add up to 1.
fn sorted(all: &[Predicted]) -> Vec<(f64, f64, usize)> {
    let mut windows: BTreeMap<usize, f64> = BTreeMap::new();
    for p in all {
        *windows.entry(p.program).or_default() += 1.0;
    }
    let one = |p: &Predicted| {
        let n = windows.get(&p.program).copied().unwrap_or(1.0);
        (p.residual().abs(), 1.0 / n, p.program)
    };
    let mut errors: Vec<_> = all.iter().map(one).collect();
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    errors
}

/// The smallest d with which |error| ≤ d holds for this share of the weight of the programs that
/// are kept; the largest error when the share is above 1.
fn quantile(errors: &[(f64, f64, usize)], keep: impl Fn(usize) -> bool, share: f64) -> f64 {
    let kept = || errors.iter().filter(|(_, _, p)| keep(*p));
    let total: f64 = kept().map(|(_, w, _)| w).sum();
    let mut sum = 0.0;
    let mut largest = 0.0;
    for (e, w, _) in kept() {
        sum += w;
        largest = *e;
        // sums of weights are rounded
        if sum >= share * total * (1.0 - 1e-12) {
            break;
        }
    }
    largest
}

/// [`Accuracy::prediction`], of the errors of all programs but `without`.
fn prediction(errors: &[(f64, f64, usize)], without: Option<usize>) -> f64 {
    let keep = |p: usize| Some(p) != without;
    let kept = errors.iter().filter(|(_, _, p)| keep(*p));
    let programs: f64 = kept.map(|(_, w, _)| w).sum::<f64>().round();
    quantile(
        errors,
        keep,
        COVERAGE * (programs + 1.0) / programs.max(1.0),
    )
}

/// [`Accuracy::coverage`].
fn coverage(all: &[Predicted]) -> Option<Measured> {
    let errors = sorted(all);
    let mut programs: Vec<usize> = all.iter().map(|p| p.program).collect();
    programs.sort_unstable();
    programs.dedup();
    if programs.len() < 2 {
        return None;
    }
    let inside = |program: &usize| -> f64 {
        let d = prediction(&errors, Some(*program));
        let own = errors.iter().filter(|(e, _, p)| p == program && *e <= d);
        own.map(|(_, w, _)| w).sum()
    };
    let each: Vec<f64> = programs.iter().map(inside).collect();
    Measured::mean(&each)
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
        // too few programs for an interval: the largest error; that of program 1 does not hold
        // program 0's, but the other way round
        assert!((a.prediction - 0.3).abs() < 1e-12 && (a.uncertainty() - 0.15).abs() < 1e-12);
        assert!((a.coverage.unwrap().value - 0.5).abs() < 1e-12);
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

    #[test]
    fn a_prediction_interval_by_hand() {
        // 39 programs with errors 1 to 39, one window each: 0.954 · 40 = 38.16, so the 39th; of
        // these, 0.954 · 39 = 37.2: the 38th
        let all: Vec<Predicted> = (0..39).map(|i| p(i, 1.0, 2.0 + i as f64)).collect();
        let a = Accuracy::of(&all).unwrap();
        assert_eq!((a.prediction, a.interval), (39.0, 38.0));
        // without the program of the largest error, it is 38, and that program is not covered; all
        // others are
        let c = a.coverage.unwrap();
        assert!((c.value - 38.0 / 39.0).abs() < 1e-12, "{c:?}");
    }

    /// Programs of their own bias and scatter, as heavy-tailed as they come: windows of a program
    /// that was not among them are within the interval at least as often as is said, and not much
    /// more often.
    #[test]
    fn a_program_to_come_is_covered() {
        use crate::stumps::generator;
        use rand::RngExt;
        let mut rng = generator(7, 0);
        let mut program = |number: usize, windows: usize| -> Vec<Predicted> {
            let heavy: f64 = rng.random_range(0.01f64..1.0);
            let bias = rng.random_range(-1.0..1.0) / heavy.sqrt();
            let scatter = rng.random_range(0.0..0.5);
            let error = |_| {
                p(
                    number,
                    9.0,
                    9.0 + bias + scatter * rng.random_range(-1.0..1.0),
                )
            };
            (0..windows).map(error).collect()
        };
        for programs in [25, 45] {
            let (mut inside, mut simple) = (0.0, 0.0);
            let times = 4000;
            for _ in 0..times {
                let known: Vec<Predicted> =
                    (0..programs).flat_map(|n| program(n, 1 + n % 7)).collect();
                let a = Accuracy::of(&known).unwrap();
                let new = program(programs, 5);
                let part =
                    |d: f64| new.iter().filter(|p| p.residual().abs() <= d).count() as f64 / 5.0;
                inside += part(a.prediction) / f64::from(times);
                simple += part(a.interval) / f64::from(times);
            }
            // twice its standard uncertainty, √(0.046 · 0.954 / 4000)
            let u = 2.0 * 0.0033;
            assert!(
                inside > COVERAGE - u && inside < 1.0,
                "{programs}: {inside}"
            );
            // where the plain quantile holds too little
            assert!(simple < inside - u, "{programs}: {simple}");
        }
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
