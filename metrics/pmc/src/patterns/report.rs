//! The report on patterns.

use super::judge::{Figure, Finding, Thread, Verdict};
use serde::Serialize;
use std::fmt::Write;

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was run.
    pub command: Vec<String>,
    /// For how long.
    pub elapsed_s: f64,
    /// Findings by pattern.
    pub findings: Vec<Finding>,
    /// Names of the core types.
    pub core_types: Vec<String>,
    /// Every thread.
    pub threads: Vec<Thread>,
    /// How many intervals rates and uncertainties are from.
    pub intervals: usize,
    /// Per core type, whether its events were ever tried.
    pub tested: Vec<String>,
    /// Per event, the verdict of the trust file; empty without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted: Vec<String>,
}

fn figure(f: &Figure) -> String {
    let digits = |v: f64| {
        if v.abs() >= 1e5 {
            format!("{v:.3e}")
        } else {
            format!("{v:.3}")
        }
    };
    let u =
        f.u.map_or("uncertainty unknown".into(), |u| format!("± {}", digits(u)));
    let from = f
        .threshold
        .map_or(String::new(), |t| format!(" (from {t})"));
    format!("{}: {} {u}{from}", f.what, digits(f.value))
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for f in &self.findings {
            let verdict = match f.verdict {
                Verdict::Present => "present",
                Verdict::Absent => "absent",
                Verdict::Unknown => "unknown",
            };
            // writing to a string cannot fail
            let _ = writeln!(out, "{}: {verdict} ({})", f.pattern, f.because);
            for g in &f.figures {
                let _ = writeln!(out, "  {}", figure(g));
            }
            let _ = writeln!(out, "  reliability: {}", f.reliability);
        }
        let least = self.threads.iter().map(|t| t.coverage).fold(1.0, f64::min);
        let _ = writeln!(
            out,
            "{} threads, {:.1} % or more of each one's time counted, {} intervals in {:.2} s",
            self.threads.len(),
            100.0 * least,
            self.intervals,
            self.elapsed_s
        );
        for t in &self.tested {
            let _ = writeln!(out, "events on {t}");
        }
        for t in &self.trusted {
            let _ = writeln!(out, "trust: {t}");
        }
        out
    }
}
