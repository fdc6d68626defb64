//! Mean, standard uncertainty and its propagation \[MET\].
//!
//! A quantity is a [`Measured`]: a value with its *standard uncertainty* u = σ/√R, R being the
//! number of observations and σ their sample standard deviation. Arithmetic propagates it by u_y² =
//! Σ (∂f/∂x_r)²·u_r² [MET eq. 7], which holds for *independent* inputs: write a formula so that
//! each measured input occurs in it once.
//!
//! An unknown uncertainty (`None`: a single observation) stays unknown through every operation. It
//! is never taken for zero; a constant of nature or of the set-up is [`Measured::exact`].

use crate::distributions::{normal_within, student_quantile};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Div, Mul, Sub};

/// A value with its standard uncertainty. Serialises as `{"value": 3.87, "u": 0.02}`, an unknown
/// `u` as `null`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The estimate, in the quantity's unit.
    pub value: f64,
    /// Standard uncertainty in the same unit, ≥ 0; `None` when there is no basis for one.
    pub u: Option<f64>,
}

impl Measured {
    /// `value` with standard uncertainty `u`.
    pub fn new(value: f64, u: f64) -> Measured {
        Measured {
            value,
            u: Some(u.abs()),
        }
    }

    /// A value known without error, for example a count of cores.
    pub fn exact(value: f64) -> Measured {
        Measured {
            value,
            u: Some(0.0),
        }
    }

    /// A value of unknown uncertainty, for example from a single run.
    pub fn single(value: f64) -> Measured {
        Measured { value, u: None }
    }

    /// Sample mean of independent observations with u = σ/√R, σ over R − 1 [MET eq. 1-3]. `None`
    /// when there are none; one observation has an unknown uncertainty.
    pub fn mean(observations: &[f64]) -> Option<Measured> {
        match observations {
            [] => None,
            [only] => Some(Measured::single(*only)),
            many => {
                let r = many.len() as f64;
                let mean = many.iter().sum::<f64>() / r;
                let squares: f64 = many.iter().map(|x| (x - mean).powi(2)).sum();
                Some(Measured::new(mean, (squares / (r - 1.0) / r).sqrt()))
            }
        }
    }

    /// Geometric mean of independent positive observations: exp of the mean of their logarithms,
    /// with that mean's uncertainty propagated through exp (u = G·u_log). `None` when there are
    /// none or one is not positive and finite.
    pub fn geometric_mean(observations: &[f64]) -> Option<Measured> {
        Measured::geometric_mean_of_runs(std::slice::from_ref(&observations))
    }

    /// Geometric mean over every observation of several independent runs.
    ///
    /// Observations of one run share that run's luck (who started where), so they are not
    /// independent: with two or more runs the uncertainty comes from the scatter *between* runs
    /// (each run is a cluster; u_log² = R/(R−1)·Σ_r(Σ_c(l_rc − m))²/n², which is σ²/R of the run
    /// means when runs are equally long). With one run it comes from that run's own observations.
    /// `None` as for [`Measured::geometric_mean`].
    pub fn geometric_mean_of_runs<S: AsRef<[f64]>>(runs: &[S]) -> Option<Measured> {
        let all = || runs.iter().flat_map(|r| r.as_ref().iter().copied());
        let n = all().count();
        if n == 0 || all().any(|x| !(x.is_finite() && x > 0.0)) {
            return None;
        }
        let mean = all().map(f64::ln).sum::<f64>() / n as f64;
        let value = mean.exp();
        let clusters = runs.iter().filter(|r| !r.as_ref().is_empty()).count();
        let u_log = if clusters >= 2 {
            let r = clusters as f64;
            let scatter: f64 = runs
                .iter()
                .map(|run| {
                    run.as_ref()
                        .iter()
                        .map(|x| x.ln() - mean)
                        .sum::<f64>()
                        .powi(2)
                })
                .sum();
            Some((r / (r - 1.0) * scatter).sqrt() / n as f64)
        } else if n >= 2 {
            let scatter: f64 = all().map(|x| (x.ln() - mean).powi(2)).sum();
            Some((scatter / (n as f64 - 1.0) / n as f64).sqrt())
        } else {
            None
        };
        Some(Measured {
            value,
            u: u_log.map(|u| u * value),
        })
    }

    /// Geometric mean of independent measured quantities: u = G/n·√Σ(u_i/x_i)². `None` when there
    /// are none or one is not positive.
    pub fn geometric_mean_of(quantities: &[Measured]) -> Option<Measured> {
        if quantities.is_empty()
            || quantities
                .iter()
                .any(|q| !(q.value.is_finite() && q.value > 0.0))
        {
            return None;
        }
        let n = quantities.len() as f64;
        let value = (quantities.iter().map(|q| q.value.ln()).sum::<f64>() / n).exp();
        let u = root_sum_square(quantities.iter().map(|q| q.u.map(|u| u / q.value)));
        Some(Measured {
            value,
            u: u.map(|u| u * value / n),
        })
    }

    /// The quantity times a constant: u scales with |a| [MET table 1].
    #[must_use]
    pub fn scale(self, a: f64) -> Measured {
        Measured {
            value: a * self.value,
            u: self.u.map(|u| a.abs() * u),
        }
    }

    /// The quantity to a constant power: u = |p·x^(p−1)|·u.
    #[must_use]
    pub fn powf(self, p: f64) -> Measured {
        let slope = p * self.value.powf(p - 1.0);
        Measured {
            value: self.value.powf(p),
            u: self.u.map(|u| slope.abs() * u),
        }
    }

    /// The largest over the smallest of some positive quantities, as in unfairness
    /// [PMCTrack eq. 2]. The smallest and the largest are taken to stay who they are. One quantity
    /// alone gives exactly 1; `None` when there are none or one is not positive.
    pub fn max_over_min(quantities: &[Measured]) -> Option<Measured> {
        if quantities
            .iter()
            .any(|q| !(q.value.is_finite() && q.value > 0.0))
        {
            return None;
        }
        let by_value = |a: &&Measured, b: &&Measured| a.value.total_cmp(&b.value);
        let max = quantities.iter().max_by(by_value)?;
        let min = quantities.iter().min_by(by_value)?;
        if quantities.len() == 1 {
            return Some(Measured::exact(1.0));
        }
        Some(*max / *min)
    }

    /// Combines a further, independent source of uncertainty into this one: √(u² + v²).
    #[must_use]
    pub fn with_further(self, v: Option<f64>) -> Measured {
        Measured {
            value: self.value,
            u: root_sum_square([self.u, v].into_iter()),
        }
    }

    /// Uncertainty relative to the value, u/|x|; `None` when unknown or the value is zero.
    pub fn relative(self) -> Option<f64> {
        self.u
            .filter(|_| self.value != 0.0)
            .map(|u| u / self.value.abs())
    }

    /// The interval x ± k·u; `None` when the uncertainty is unknown.
    pub fn interval(self, k: f64) -> Option<(f64, f64)> {
        self.u.map(|u| (self.value - k * u, self.value + k * u))
    }

    /// Whether the two intervals x ± k·u overlap: measures taken under the same conditions have
    /// overlapping ones \[MET\]. `None` when either uncertainty is unknown.
    pub fn agrees_with(self, other: Measured, k: f64) -> Option<bool> {
        let (a0, a1) = self.interval(k)?;
        let (b0, b1) = other.interval(k)?;
        Some(a0 <= b1 && b0 <= a1)
    }
}

/// The confidence level of x ± k·u for normally distributed errors: 0.683, 0.954, 0.997 for k = 1,
/// 2, 3 \[MET\].
pub fn confidence(k: f64) -> f64 {
    normal_within(k)
}

/// Student's t: by how much to multiply a standard uncertainty of so many degrees of freedom (of a
/// mean of n observations: n − 1) so that the interval holds the truth with probability `level`.
/// `None` where that makes no sense (no freedom, a level outside 0 to 1).
pub fn coverage_factor(level: f64, degrees_of_freedom: f64) -> Option<f64> {
    let sound = degrees_of_freedom > 0.0 && (0.0..1.0).contains(&level);
    sound.then(|| student_quantile(0.5 + level / 2.0, degrees_of_freedom))
}

/// √Σu², or `None` as soon as one of them is unknown.
fn root_sum_square(us: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    us.map(|u| u.map(|u| u * u))
        .sum::<Option<f64>>()
        .map(f64::sqrt)
}

/// u times the sensitivity ∂f/∂x.
fn times(u: Option<f64>, slope: f64) -> Option<f64> {
    u.map(|u| u * slope.abs())
}

fn combine(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a?.hypot(b?))
}

impl Add for Measured {
    type Output = Measured;
    fn add(self, o: Measured) -> Measured {
        Measured {
            value: self.value + o.value,
            u: combine(self.u, o.u),
        }
    }
}

impl Sub for Measured {
    type Output = Measured;
    fn sub(self, o: Measured) -> Measured {
        Measured {
            value: self.value - o.value,
            u: combine(self.u, o.u),
        }
    }
}

impl Mul for Measured {
    type Output = Measured;
    fn mul(self, o: Measured) -> Measured {
        let u = combine(times(self.u, o.value), times(o.u, self.value));
        Measured {
            value: self.value * o.value,
            u,
        }
    }
}

impl Div for Measured {
    type Output = Measured;
    fn div(self, o: Measured) -> Measured {
        let value = self.value / o.value;
        let u = combine(times(self.u, o.value.recip()), times(o.u, value / o.value));
        Measured { value, u }
    }
}

impl Sum for Measured {
    fn sum<I: Iterator<Item = Measured>>(iter: I) -> Measured {
        iter.fold(Measured::exact(0.0), Add::add)
    }
}

impl fmt::Display for Measured {
    /// `3.870 ± 0.020`, to the formatter's precision (default 3); `3.870` when the uncertainty is
    /// unknown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = f.precision().unwrap_or(3);
        match self.u {
            Some(u) => write!(f, "{:.p$} ± {u:.p$}", self.value),
            None => write!(f, "{:.p$}", self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-12)
    }

    #[test]
    fn factors_of_students_t() {
        // from tables
        for (level, freedom, factor) in
            [(0.95, 1.0, 12.706), (0.95, 9.0, 2.262), (0.99, 4.0, 4.604)]
        {
            let got = coverage_factor(level, freedom).unwrap();
            assert!((got - factor).abs() < 1e-3, "{level} {freedom}: {got}");
        }
        assert_eq!(coverage_factor(0.95, 0.0), None);
        assert_eq!(coverage_factor(1.0, 5.0), None);
        assert_eq!(coverage_factor(f64::NAN, 5.0), None);
    }

    #[test]
    fn mean_and_uncertainty_of_a_known_sample() {
        // 2, 4, 6: mean 4, variance (4+0+4)/2 = 4, u = 2/√3
        let m = Measured::mean(&[2.0, 4.0, 6.0]).unwrap();
        assert!(close(m.value, 4.0) && close(m.u.unwrap(), 2.0 / 3f64.sqrt()));
        assert_eq!(Measured::mean(&[5.0]), Some(Measured::single(5.0)));
        assert_eq!(Measured::mean(&[]), None);
    }

    #[test]
    fn arithmetic_matches_the_closed_forms() {
        let (a, b) = (Measured::new(6.0, 0.3), Measured::new(2.0, 0.4));
        assert!(close((a + b).u.unwrap(), 0.5) && close((a - b).u.unwrap(), 0.5));
        // product: √((u1·x2)² + (u2·x1)²)
        assert!(close(
            (a * b).u.unwrap(),
            (0.6f64.powi(2) + 2.4f64.powi(2)).sqrt()
        ));
        // quotient [MET table 1]: (1/x2)·√(u1² + (x1/x2)²·u2²)
        assert!(close(
            (a / b).u.unwrap(),
            0.5 * (0.09f64 + 9.0 * 0.16).sqrt()
        ));
        assert_eq!(a.scale(-2.0), Measured::new(-12.0, 0.6));
        assert!(close(a.powf(2.0).value, 36.0) && close(a.powf(2.0).u.unwrap(), 3.6));
        let s: Measured = [a, b, b].into_iter().sum();
        assert!(close(s.value, 10.0) && close(s.u.unwrap(), (0.09f64 + 0.32).sqrt()));
    }

    #[test]
    fn geometric_means() {
        let g = Measured::geometric_mean(&[1.0, 4.0]).unwrap();
        // logs 0 and ln 4: σ = ln4/√2, u = ln4/2, times G = 2
        assert!(close(g.value, 2.0) && close(g.u.unwrap(), 4f64.ln()));
        assert_eq!(Measured::geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(Measured::geometric_mean(&[]), None);
        assert_eq!(Measured::geometric_mean(&[3.0]).unwrap().u, None);
        let q = Measured::geometric_mean_of(&[Measured::new(1.0, 0.1), Measured::new(4.0, 0.4)]);
        assert!(close(q.unwrap().u.unwrap(), 2.0 / 2.0 * 0.02f64.sqrt()));
    }

    #[test]
    fn runs_are_clusters() {
        // identical completions inside each run: only the scatter between runs counts
        let g = Measured::geometric_mean_of_runs(&[vec![2.0; 5], vec![8.0; 5]]).unwrap();
        let of_means = Measured::geometric_mean(&[2.0, 8.0]).unwrap();
        assert!(close(g.value, 4.0) && close(g.u.unwrap(), of_means.u.unwrap()));
        // ten completions taken for independent would claim far too much
        let naive = Measured::geometric_mean(&[2., 2., 2., 2., 2., 8., 8., 8., 8., 8.]).unwrap();
        assert!(naive.u.unwrap() < 0.5 * g.u.unwrap());
        let one = Measured::geometric_mean_of_runs(&[vec![1.0, 4.0], vec![]]).unwrap();
        assert_eq!(one, Measured::geometric_mean(&[1.0, 4.0]).unwrap());
    }

    #[test]
    fn max_over_min_picks_the_extremes() {
        let q = [
            Measured::new(2.0, 0.2),
            Measured::new(3.0, 9.0),
            Measured::new(4.0, 0.4),
        ];
        let r = Measured::max_over_min(&q).unwrap();
        assert!(close(r.value, 2.0) && close(r.u.unwrap(), 2.0 * 0.02f64.sqrt()));
        assert_eq!(Measured::max_over_min(&q[..1]), Some(Measured::exact(1.0)));
        assert_eq!(Measured::max_over_min(&[]), None);
        assert_eq!(Measured::max_over_min(&[Measured::exact(0.0)]), None);
    }

    #[test]
    fn unknown_stays_unknown() {
        let (a, b) = (Measured::single(2.0), Measured::new(3.0, 0.1));
        assert!([a + b, a - b, a * b, a / b, a.powf(2.0), a.scale(3.0)]
            .iter()
            .all(|m| m.u.is_none()));
        assert_eq!(a.agrees_with(b, 2.0), None);
        assert_eq!(
            serde_json::to_string(&a).unwrap(),
            r#"{"value":2.0,"u":null}"#
        );
        assert_eq!(
            serde_json::from_str::<Measured>(r#"{"value":2.0,"u":null}"#).unwrap(),
            a
        );
        assert_eq!(format!("{a:.1} {b}"), "2.0 3.000 ± 0.100");
    }

    #[test]
    fn coverage() {
        for (k, level) in [(1.0, 0.683), (2.0, 0.954), (3.0, 0.997)] {
            assert!((confidence(k) - level).abs() < 1e-3);
        }
        let (a, b) = (Measured::new(10.0, 1.0), Measured::new(13.5, 1.0));
        assert_eq!(
            (a.agrees_with(b, 1.0), a.agrees_with(b, 2.0)),
            (Some(false), Some(true))
        );
    }

    proptest! {
        /// The propagated u of a quotient is what numeric partial derivatives give.
        #[test]
        fn quotient_matches_numeric_derivatives(
            x in 0.1f64..1e3, y in 0.1f64..1e3, ux in 0.0f64..1.0, uy in 0.0f64..1.0,
        ) {
            let h = 1e-6;
            let dx = ((x + h) / y - (x - h) / y) / (2.0 * h);
            let dy = (x / (y + h) - x / (y - h)) / (2.0 * h);
            let expect = ((dx * ux).powi(2) + (dy * uy).powi(2)).sqrt();
            let got = (Measured::new(x, ux) / Measured::new(y, uy)).u.unwrap();
            prop_assert!((got - expect).abs() <= 1e-4 * expect.max(1e-6));
        }
    }
}
