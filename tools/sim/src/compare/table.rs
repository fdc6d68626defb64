//! A comparison as text.

use super::{Figure, Outcome};
use std::fmt;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        for figure in [Figure::Asp, Figure::Unfairness, Figure::Edp] {
            let mut results = self.mixes.iter().flat_map(|m| &m.1);
            if results.any(|r| figure.of(r).is_nan()) {
                continue;
            }
            write!(f, "\n{:<16}", figure.to_string())?;
            for label in &self.labels {
                write!(f, " {label:>12}")?;
            }
            let mut sums = vec![0.0; self.labels.len()];
            let mut variances = vec![Some(0.0); self.labels.len()];
            for (mix, results) in &self.mixes {
                write!(f, "\n{mix:<16}")?;
                for ((r, sum), variance) in results.iter().zip(&mut sums).zip(&mut variances) {
                    *sum += figure.of(r);
                    let u = figure.measured(r).and_then(|m| m.u);
                    *variance = variance.zip(u).map(|(v, u)| v + u * u);
                    cell(f, figure, figure.of(r))?;
                }
            }
            write!(f, "\n{:<16}", "mean")?;
            for sum in sums {
                cell(f, figure, sum / self.mixes.len() as f64)?;
            }
            write!(f, "\n{:<16}", "± (mean)")?;
            for variance in variances {
                match variance {
                    Some(v) => cell(f, figure, f64::sqrt(v) / self.mixes.len() as f64)?,
                    None => write!(f, " {:>12}", "-")?,
                }
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "\n± is the standard uncertainty of the mean over the runs (start order, sampling); - with one run"
        )?;
        if !self.claims.is_empty() {
            writeln!(f, "\n{:<62} here", "published")?;
        }
        for (claim, verdict) in &self.claims {
            let mark = if verdict.holds { "" } else { "   NOT MET" };
            writeln!(f, "{:<62} {}{mark}", claim.to_string(), verdict.here)?;
        }
        Ok(())
    }
}

fn cell(f: &mut fmt::Formatter<'_>, figure: Figure, x: f64) -> fmt::Result {
    match figure {
        Figure::Edp => write!(f, " {x:>12.3e}"),
        _ => write!(f, " {x:>12.3}"),
    }
}
