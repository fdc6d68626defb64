//! Metrics derived from counts: `ipc=instructions/cycles`.
//!
//! Event names hold `-`, `/` and `,` themselves, which no expression library lets names do: a name
//! in a formula is the longest one that is being counted. Everything else is as in perf's metrics
//! ([`Expression`]).

use amp_pmu_events::expression::{Expression, ExpressionError};
use thiserror::Error;

/// Longest formula, in characters.
const LONGEST: usize = 4096;
/// Seconds for which a core type was counted on, as a name in formulas.
pub const SECONDS: &str = "seconds";

/// Why a formula is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FormulaError {
    /// Something is not a number, a name that is counted, or an operator.
    #[error("metric `{metric}`: `{at}` is neither a number nor an event that is counted; there are {have}")]
    Unknown {
        /// The metric.
        metric: String,
        /// The text that is not understood.
        at: String,
        /// The names.
        have: String,
    },
    /// The text is not a formula.
    #[error("metric `{metric}`: {reason}; write NAME=FORMULA with + - * / ( ) min max if else, numbers and event names, such as `ipc=instructions/cycles`")]
    Syntax {
        /// The metric.
        metric: String,
        /// The reason.
        reason: String,
    },
}

/// A formula, ready to be worked out.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    /// Name of the result.
    pub name: String,
    /// The formula as it was written.
    pub text: String,
    /// The names in it, each once.
    pub names: Vec<String>,
    /// Unit of the result, where it is known.
    pub unit: Option<String>,
    /// The PMU that it is of; `None` of every one that counts all of its events.
    pub pmu: Option<String>,
    /// When the result is worth a look.
    pub threshold: Option<Threshold>,
    expression: Expression<String>,
}

/// When a result is worth a look.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// As it was written.
    pub text: String,
    /// Not 0 then.
    pub over_events: Expression<String>,
}

/// Name and formula of `NAME=FORMULA`; a formula alone is its own name.
fn split(text: &str) -> (&str, &str) {
    match text.split_once('=') {
        Some((name, rest))
            if !name.trim().is_empty()
                && name
                    .trim()
                    .chars()
                    .all(|c| c.is_alphanumeric() || "_-.".contains(c)) =>
        {
            (name.trim(), rest.trim())
        }
        _ => (text.trim(), text.trim()),
    }
}

impl Formula {
    /// Reads a metric over `known` names and [`SECONDS`].
    ///
    /// # Errors
    /// [`FormulaError`], naming the metric and what is wrong with it.
    #[cfg(test)]
    pub fn parse(text: &str, known: &[String]) -> Result<Formula, FormulaError> {
        Formula::parse_with(text, known, &[])
    }

    /// The same; `aliases` are names, too, of which nobody need be told.
    ///
    /// # Errors
    /// As [`Formula::parse`].
    pub fn parse_with(
        text: &str,
        known: &[String],
        aliases: &[String],
    ) -> Result<Formula, FormulaError> {
        let (name, body) = split(text);
        let syntax = |reason: String| FormulaError::Syntax {
            metric: name.to_owned(),
            reason,
        };
        if body.is_empty() {
            return Err(syntax("there is no formula".into()));
        }
        if body.len() > LONGEST {
            return Err(syntax(format!("it is longer than {LONGEST} characters")));
        }
        let seconds = SECONDS.to_owned();
        let mut longest = |rest: &str| {
            let ends = |n: &str| {
                let after = rest[n.len()..].chars().next();
                !after.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | ':'))
            };
            let names = known.iter().chain(aliases).chain([&seconds]);
            let there = |n: &&String| !n.is_empty() && rest.starts_with(n.as_str()) && ends(n);
            let found = names.filter(there).max_by_key(|n| n.len())?;
            Some((found.clone(), found.len()))
        };
        match Expression::parse(body, &mut longest) {
            Ok(expression) => Ok(Formula::of(name, body, expression)),
            Err(ExpressionError::Syntax(reason)) => Err(syntax(reason)),
            Err(ExpressionError::NoValue(at)) => {
                let have = known.iter().chain([&seconds]);
                let have: Vec<String> = have.map(|n| format!("`{n}`")).collect();
                Err(FormulaError::Unknown {
                    metric: name.to_owned(),
                    at,
                    have: have.join(", "),
                })
            }
        }
    }

    /// A formula that was read by somebody else.
    pub fn of(name: &str, text: &str, expression: Expression<String>) -> Formula {
        Formula {
            name: name.to_owned(),
            text: text.to_owned(),
            names: expression.leaves().to_vec(),
            unit: None,
            pmu: None,
            threshold: None,
            expression,
        }
    }

    /// The result for `values` of [`Formula::names`], and its derivative by each of them. `None`
    /// when it is not a finite number (a division by zero).
    pub fn evaluate(&self, values: &[f64]) -> Option<(f64, Vec<f64>)> {
        self.expression.evaluate(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known() -> Vec<String> {
        [
            "instructions",
            "cycles",
            "branch-misses",
            "branch",
            "cpu/event=0x11/",
            "a:u",
        ]
        .map(String::from)
        .into()
    }

    fn value(text: &str, of: &[(&str, f64)]) -> Option<f64> {
        let f = Formula::parse(text, &known()).unwrap();
        let values: Vec<f64> = f
            .names
            .iter()
            .map(|n| {
                of.iter()
                    .find(|(m, _)| m == n)
                    .map_or(f64::NAN, |(_, v)| *v)
            })
            .collect();
        f.evaluate(&values).map(|(v, _)| v)
    }

    #[test]
    fn arithmetic() {
        for (text, right) in [
            ("1+2*3", 7.0),
            ("(1+2)*3", 9.0),
            ("2-3-4", -5.0),
            ("8/4/2", 1.0),
            ("-2*-3", 6.0),
            ("-(1+1)-1", -3.0),
            ("1e3*2.5e-1", 250.0),
            ("m = 2 * 3", 6.0),
        ] {
            assert_eq!(value(text, &[]), Some(right), "{text}");
        }
        assert_eq!(value("1/0", &[]), None);
    }

    #[test]
    fn names_are_the_longest_that_are_counted() {
        let of = [
            ("instructions", 30.0),
            ("cycles", 10.0),
            ("branch-misses", 4.0),
            ("branch", 7.0),
            ("cpu/event=0x11/", 5.0),
            ("a:u", 2.0),
            (SECONDS, 8.0),
        ];
        for (text, right) in [
            ("ipc=instructions/cycles", 3.0),
            ("branch-misses", 4.0),
            ("branch - branch-misses", 3.0),
            ("instructions/cpu/event=0x11//2", 3.0),
            ("x=1e3*a:u/seconds", 250.0),
        ] {
            assert_eq!(value(text, &of), Some(right), "{text}");
        }
        assert_eq!(Formula::parse("ipc=1", &[]).unwrap().name, "ipc");
        assert_eq!(
            Formula::parse("cpu/event=0x11/ * 2", &known())
                .unwrap()
                .name,
            "cpu/event=0x11/ * 2"
        );
    }

    #[test]
    fn errors_name_the_metric_and_the_place() {
        let e = |t: &str| Formula::parse(t, &known()).unwrap_err().to_string();
        let unknown = e("ipc=instruction/cycles");
        assert!(
            unknown.contains("`ipc`") && unknown.contains("`instructions`"),
            "{unknown}"
        );
        assert!(e("x=").contains("no formula"));
        assert!(e("x=(1").contains("without `)`"));
        assert!(e("x=1)").contains("without `(`"));
        assert!(e("x=1+").contains("value must come"));
        assert!(e("x=1 2").contains("operator"));
        assert!(e(&"(".repeat(5000)).contains("longer"));
    }

    proptest! {
        /// Any text is a formula or an error, never the end of the program.
        #[test]
        fn no_text_is_too_odd(s in "[-+*/()=. a-z0-9é:]{0,60}") {
            if let Ok(f) = Formula::parse(&s, &known()) {
                let values = vec![1.0; f.names.len()];
                let _ = f.evaluate(&values);
            }
        }

        /// Derivatives are those of small differences.
        #[test]
        fn derivatives(a in 1.0f64..10.0, b in 1.0f64..10.0) {
            let f = Formula::parse("(instructions - 2*cycles)/(cycles*cycles+1)", &known()).unwrap();
            let (_, d) = f.evaluate(&[a, b]).unwrap();
            let h = 1e-5;
            let at = |a, b| f.evaluate(&[a, b]).unwrap().0;
            prop_assert!((d[0] - (at(a + h, b) - at(a - h, b)) / (2.0 * h)).abs() < 1e-5);
            prop_assert!((d[1] - (at(a, b + h) - at(a, b - h)) / (2.0 * h)).abs() < 1e-5);
        }
    }
}
