//! Distributions of errors: the normal one and Student's t, of standard scale.
//!
//! Their integrals are the incomplete beta function and the error function, by `special`.

use special::{Beta, Error};
use std::f64::consts::SQRT_2;

/// Degrees of freedom above which Student's t is taken as normal: a quantile differs by 1e-5 of itself,
/// and the functions behind it want finite ones.
const MANY: f64 = 1e5;

/// Probability that a normally distributed value is within ± `k` standard deviations.
pub fn normal_within(k: f64) -> f64 {
    (k / SQRT_2).error()
}

/// The value that a normally distributed one stays below with probability `p`, 0 < `p` < 1.
pub fn normal_quantile(p: f64) -> f64 {
    SQRT_2 * (2.0 * p - 1.0).inv_error()
}

/// Probability that Student's t of `freedom` degrees of freedom, > 0, is above `t`.
pub fn student_above(t: f64, freedom: f64) -> f64 {
    if freedom > MANY {
        return 0.5 * (t / SQRT_2).compl_error();
    }
    let (a, b) = (freedom / 2.0, 0.5);
    let x = freedom / (freedom + t * t);
    let tail = 0.5 * x.inc_beta(a, b, a.ln_beta(b));
    if t < 0.0 {
        1.0 - tail
    } else {
        tail
    }
}

/// The value that Student's t of `freedom` degrees of freedom, > 0, stays below with probability
/// `p`, 0 < `p` < 1.
pub fn student_quantile(p: f64, freedom: f64) -> f64 {
    if p < 0.5 {
        return -student_quantile(1.0 - p, freedom);
    }
    if freedom > MANY {
        return normal_quantile(p);
    }
    let (a, b) = (freedom / 2.0, 0.5);
    let x = (2.0 * (1.0 - p)).inv_inc_beta(a, b, a.ln_beta(b));
    (freedom * (1.0 - x) / x).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_from_tables() {
        for (got, table) in [
            (normal_within(1.0), 0.682_689_5),
            (normal_within(2.0), 0.954_499_7),
            (normal_quantile(0.975), 1.959_964),
            (normal_quantile(0.5), 0.0),
            (student_quantile(0.975, 1.0), 12.706_205),
            (student_quantile(0.975, 9.0), 2.262_157),
            (student_quantile(0.995, 4.0), 4.604_095),
            (student_quantile(0.5, 7.0), 0.0),
            (student_above(2.262_157, 9.0), 0.025),
            (student_above(-1.0, 1.0), 0.75),
            (student_above(1.959_964, f64::INFINITY), 0.025),
            (student_quantile(0.975, f64::INFINITY), 1.959_964),
            (student_above(-1.959_964, f64::INFINITY), 0.975),
        ] {
            assert!((got - table).abs() < 2e-6, "{got} {table}");
        }
    }

    proptest! {
        #[test]
        fn quantiles_lead_back(p in 0.001f64..0.999, freedom in 1.0f64..200.0) {
            let t = student_quantile(p, freedom);
            prop_assert!((1.0 - student_above(t, freedom) - p).abs() < 1e-6, "{} {}", t, freedom);
            let z = normal_quantile(p);
            let below = 0.5 * (1.0 + normal_within(z.abs()).copysign(z));
            prop_assert!((below - p).abs() < 1e-9, "{}", z);
        }
    }
}
