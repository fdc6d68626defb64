//! Metrics derived from counts: `ipc=instructions/cycles`.
//!
//! Event names hold `-`, `/` and `,` themselves, which no expression library lets names do: a name
//! in a formula is the longest one that is being counted. There is no recursion, so no formula is
//! too deep.

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
    #[error("metric `{metric}`: {reason}; write NAME=FORMULA with + - * / ( ), numbers and event names, such as `ipc=instructions/cycles`")]
    Syntax {
        /// The metric.
        metric: String,
        /// The reason.
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Number(f64),
    Name(usize),
    Negate,
    Operator(char),
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
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq)]
enum Waiting {
    Open,
    Negate,
    Operator(char),
}

fn rank(w: Waiting) -> u8 {
    match w {
        Waiting::Open => 0,
        Waiting::Operator('+' | '-') => 1,
        Waiting::Operator(_) => 2,
        Waiting::Negate => 3,
    }
}

fn step(w: Waiting) -> Step {
    match w {
        Waiting::Operator(c) => Step::Operator(c),
        Waiting::Negate | Waiting::Open => Step::Negate,
    }
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

/// Length of the number at the beginning of `s`.
fn number(s: &str) -> usize {
    let mut end = 0;
    let mut before = ' ';
    for (i, c) in s.char_indices() {
        let sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
        if !(c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E') || sign) {
            break;
        }
        (end, before) = (i + c.len_utf8(), c);
    }
    end
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
        let mut out = Formula {
            name: name.to_owned(),
            text: body.to_owned(),
            names: Vec::new(),
            steps: Vec::new(),
        };
        let mut waiting: Vec<Waiting> = Vec::new();
        // whether a value must come next, else an operator
        let mut value_next = true;
        let mut rest = body;
        while let Some(c) = rest.chars().next() {
            let mut used = c.len_utf8();
            match c {
                _ if c.is_whitespace() => {}
                '(' if value_next => waiting.push(Waiting::Open),
                '-' if value_next => waiting.push(Waiting::Negate),
                _ if value_next => {
                    used = out.value(rest, known, aliases)?;
                    value_next = false;
                }
                ')' => loop {
                    match waiting.pop() {
                        None => return Err(syntax("a `)` without `(`".into())),
                        Some(Waiting::Open) => break,
                        Some(w) => out.steps.push(step(w)),
                    }
                },
                '+' | '-' | '*' | '/' => {
                    let new = Waiting::Operator(c);
                    while let Some(w) = waiting.last().copied().filter(|w| rank(*w) >= rank(new)) {
                        waiting.pop();
                        out.steps.push(step(w));
                    }
                    waiting.push(new);
                    value_next = true;
                }
                _ => return Err(syntax(format!("an operator must stand before `{rest}`"))),
            }
            rest = &rest[used..];
        }
        if value_next {
            return Err(syntax("it ends where a value must come".into()));
        }
        while let Some(w) = waiting.pop() {
            if w == Waiting::Open {
                return Err(syntax("a `(` without `)`".into()));
            }
            out.steps.push(step(w));
        }
        Ok(out)
    }

    /// Takes the number or name at the beginning of `rest`; its length.
    fn value(
        &mut self,
        rest: &str,
        known: &[String],
        aliases: &[String],
    ) -> Result<usize, FormulaError> {
        let seconds = SECONDS.to_owned();
        let ends = |n: &str| {
            let after = rest[n.len()..].chars().next();
            !after.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | ':'))
        };
        let longest = known
            .iter()
            .chain(aliases)
            .chain([&seconds])
            .filter(|n| !n.is_empty() && rest.starts_with(n.as_str()) && ends(n))
            .max_by_key(|n| n.len());
        if let Some(found) = longest {
            let index = self.names.iter().position(|n| n == found);
            let index = index.unwrap_or_else(|| {
                self.names.push(found.clone());
                self.names.len() - 1
            });
            self.steps.push(Step::Name(index));
            return Ok(found.len());
        }
        let length = number(rest);
        match rest[..length].parse::<f64>() {
            Ok(n) if n.is_finite() => {
                self.steps.push(Step::Number(n));
                Ok(length)
            }
            _ => {
                let stop = |c: char| c.is_whitespace() || "+*()".contains(c);
                let at = rest.split(stop).find(|s| !s.is_empty());
                let have: Vec<String> = known
                    .iter()
                    .chain([&seconds])
                    .map(|n| format!("`{n}`"))
                    .collect();
                Err(FormulaError::Unknown {
                    metric: self.name.clone(),
                    at: at.unwrap_or(rest).to_owned(),
                    have: have.join(", "),
                })
            }
        }
    }

    /// The result for `values` of [`Formula::names`], and its derivative by each of them. `None`
    /// when it is not a finite number (a division by zero).
    pub fn evaluate(&self, values: &[f64]) -> Option<(f64, Vec<f64>)> {
        let n = self.names.len();
        let mut stack: Vec<(f64, Vec<f64>)> = Vec::new();
        for s in &self.steps {
            let next = match s {
                Step::Number(x) => (*x, vec![0.0; n]),
                Step::Name(i) => {
                    let mut d = vec![0.0; n];
                    *d.get_mut(*i)? = 1.0;
                    (*values.get(*i)?, d)
                }
                Step::Negate => {
                    let (x, d) = stack.pop()?;
                    (-x, d.iter().map(|d| -d).collect())
                }
                Step::Operator(c) => {
                    let ((b, db), (a, da)) = (stack.pop()?, stack.pop()?);
                    let (value, by_a, by_b) = match c {
                        '+' => (a + b, 1.0, 1.0),
                        '-' => (a - b, 1.0, -1.0),
                        '*' => (a * b, b, a),
                        _ => (a / b, 1.0 / b, -a / (b * b)),
                    };
                    let d = da.iter().zip(&db).map(|(x, y)| by_a * x + by_b * y);
                    (value, d.collect())
                }
            };
            stack.push(next);
        }
        let (value, d) = stack.pop()?;
        (value.is_finite() && d.iter().all(|d| d.is_finite())).then_some((value, d))
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
