//! What a check has found, as a line and as JSON.

use serde::Serialize;
use std::fmt::Write;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// `run` works, but not as well as it could.
    Warning,
    /// `run` does not work.
    Problem,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Problem => "problem",
        }
    }
}

/// One check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How the check ended.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(rename = "do")]
    pub advice: Option<String>,
}

impl Check {
    /// Nothing is wrong.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check {
            name,
            verdict: Verdict::Ok,
            found: found.into(),
            advice: None,
        }
    }

    /// Something is less than it could be; `advice` says what to do.
    pub fn warning(
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        Check {
            verdict: Verdict::Warning,
            advice: Some(advice.into()),
            ..Check::ok(name, found)
        }
    }

    /// Something keeps `run` from working; `advice` says what to do.
    pub fn problem(
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        Check {
            verdict: Verdict::Problem,
            ..Check::warning(name, found, advice)
        }
    }
}

/// All checks of a machine.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether `run` would work.
    pub run_would_work: bool,
    /// In the order in which they are shown.
    pub checks: Vec<Check>,
}

impl Report {
    /// The report of these checks.
    pub fn of(checks: Vec<Check>) -> Report {
        Report {
            run_would_work: checks.iter().all(|c| c.verdict != Verdict::Problem),
            checks,
        }
    }

    /// A line per check, and one on the outcome.
    pub fn text(&self) -> String {
        let width = self.checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
        let mut out = String::new();
        for c in &self.checks {
            let advice = c.advice.iter().map(|a| format!(". {a}"));
            let advice: String = advice.collect();
            let found = one_line(&format!("{}{advice}", c.found));
            // writing to a String cannot fail
            let _ = writeln!(out, "{:<8} {:<width$}  {found}", c.verdict.word(), c.name);
        }
        out += match self.run_would_work {
            true => "`scx_amp run` would work.\n",
            false => "`scx_amp run` would not work: see the problems above.\n",
        };
        out
    }
}

/// A text without line breaks and other control characters: parts of it come from files.
fn one_line(text: &str) -> String {
    let plain = text.replace(|c: char| c.is_control(), " ");
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_that_run_would_not_work() {
        let mut checks = vec![
            Check::ok("kernel", "7.2.13 has sched_ext"),
            Check::warning("core types", "one\x1b[31m\nonly", "Name the fast ones"),
        ];
        let report = Report::of(checks.clone());
        assert!(report.run_would_work);
        assert_eq!(
            report.text(),
            "ok       kernel      7.2.13 has sched_ext\n\
             warning  core types  one [31m only. Name the fast ones\n\
             `scx_amp run` would work.\n"
        );
        checks.push(Check::problem("BTF", "none", "Boot another kernel"));
        let report = Report::of(checks);
        assert!(!report.run_would_work && report.text().ends_with("problems above.\n"));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["run_would_work"], false);
        assert_eq!(json["checks"][0]["do"], serde_json::Value::Null);
        assert_eq!(json["checks"][2]["verdict"], "problem");
        assert_eq!(json["checks"][2]["do"], "Boot another kernel");
    }
}
