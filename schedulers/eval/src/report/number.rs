//! Numbers as people read them.

use amp_metrics::uncertainty::Measured;

/// Shown for a figure that is not known.
pub const UNKNOWN: &str = "–";

/// Decimals that show two significant digits of the uncertainty `u`, 0 to `most`.
fn decimals(u: Option<f64>, most: usize) -> usize {
    match u {
        Some(u) if u > 0.0 && u.is_finite() => {
            (1.0 - u.log10().floor()).clamp(0.0, most as f64) as usize
        }
        _ => most,
    }
}

/// A figure with its standard uncertainty, to the digits that mean something: `3.870 ± 0.020`. Very
/// large and very small ones with a power of ten: `(1.20 ± 0.10)e-9`.
pub fn measured(m: Measured) -> String {
    if !m.value.is_finite() {
        return UNKNOWN.to_owned();
    }
    let magnitude = m.value.abs();
    if magnitude != 0.0 && !(1e-3..1e6).contains(&magnitude) {
        let exponent = magnitude.log10().floor() as i32;
        let scaled = Measured {
            value: m.value / 10f64.powi(exponent),
            u: m.u.map(|u| u / 10f64.powi(exponent)),
        };
        let inner = match scaled.u {
            Some(0.0) => format!("{:.2} ± 0", scaled.value),
            _ => plain(scaled, 2),
        };
        return match m.u {
            Some(_) => format!("({inner})e{exponent}"),
            None => format!("{inner}e{exponent}"),
        };
    }
    plain(m, 3)
}

fn plain(m: Measured, most: usize) -> String {
    let p = decimals(m.u, most);
    let rounded = format!("{:.p$}", m.value);
    match m.u {
        // it may be exact and yet have more digits than are shown
        Some(0.0) if rounded.parse() == Ok(m.value) => format!("{} (exact)", m.value),
        Some(0.0) => format!("{rounded} ± 0"),
        Some(u) if u < 0.5 * 10f64.powi(-(p as i32)) => {
            format!("{rounded} ± <{:.p$}", 10f64.powi(-(p as i32)))
        }
        _ => format!("{m:.p$}"),
    }
}

/// A figure of no more than `p` decimals.
pub fn rounded(x: f64, p: usize) -> String {
    if x.is_finite() {
        format!("{x:.p$}")
    } else {
        UNKNOWN.to_owned()
    }
}

/// A share as a percentage.
pub fn percent(x: Option<f64>) -> String {
    x.filter(|x| x.is_finite())
        .map_or_else(|| UNKNOWN.to_owned(), |x| format!("{:.1} %", 100.0 * x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_follow_the_uncertainty() {
        for (m, want) in [
            (Measured::new(3.87123, 0.0213), "3.871 ± 0.021"),
            (Measured::new(3.87123, 0.213), "3.87 ± 0.21"),
            (Measured::new(123.456, 13.1), "123 ± 13"),
            (Measured::new(1.0, 0.0), "1 (exact)"),
            (Measured::new(1.25, 0.0), "1.25 (exact)"),
            (Measured::new(4.0 / 3.0, 0.0), "1.333 ± 0"),
            (Measured::new(1.0, 1e-5), "1.000 ± <0.001"),
            (Measured::new(1.25e-9, 0.0), "(1.25 ± 0)e-9"),
            (Measured::single(1.5), "1.500"),
            (Measured::new(1.23456e-9, 1.2e-11), "(1.23 ± 0.01)e-9"),
            (Measured::single(2.5e7), "2.50e7"),
            (Measured::single(f64::NAN), "–"),
            (Measured::new(2.0, f64::NAN), "2.000 ± NaN"),
        ] {
            assert_eq!(measured(m), want);
        }
        assert_eq!(
            (percent(Some(0.333)), percent(None)),
            ("33.3 %".into(), "–".into())
        );
        assert_eq!(rounded(f64::INFINITY, 2), "–");
    }
}
