//! Derived metrics of the vendors' tables: formulas over events and other metrics.

use crate::expression::{number, Expression, ExpressionError};
use std::collections::BTreeMap;
use std::str::FromStr;
use thiserror::Error;

/// A metric as a table describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PmuMetric {
    /// PMU whose events it is made of, as in [`PmuEvent::pmu`](crate::PmuEvent::pmu).
    pub pmu: String,
    /// Its name.
    pub name: String,
    /// The formula in perf's syntax: [`MetricExpression`].
    pub expression: String,
    /// Groups that it is in, separated by semicolons.
    pub groups: Option<String>,
    /// When its value is worth a look, as an expression over metrics.
    pub threshold: Option<String>,
    /// Factor and unit: `100%`, `1per_instr`.
    pub scale: Option<String>,
    /// The vendor's description.
    pub brief: Option<String>,
}

impl PmuMetric {
    /// The groups that it is in.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let groups = self.groups.as_deref().unwrap_or_default();
        groups.split(';').map(str::trim).filter(|g| !g.is_empty())
    }

    /// Factor by which its value is to be multiplied, and the unit that it has then.
    pub fn unit(&self) -> (f64, Option<&str>) {
        let scale = self.scale.as_deref().unwrap_or_default();
        let (factor, unit) = scale.split_at(number_of_scale(scale));
        let unit = unit.trim();
        (
            factor.parse().unwrap_or(1.0),
            (!unit.is_empty()).then_some(unit),
        )
    }
}

/// Length of the factor of a scale. The `e` of `1events` belongs to the unit.
fn number_of_scale(scale: &str) -> usize {
    let length = number(scale);
    let parses = |n: &usize| scale.get(..*n).is_some_and(|t| t.parse::<f64>().is_ok());
    (0..=length).rev().find(parses).unwrap_or(0)
}

/// What a metric is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Leaf {
    /// A metric, or the count of an event as perf's command line takes it:
    /// `cpu_core/uops_retired.ms,cmask=1/`.
    Value(String),
    /// What the machine is like, without its `#`, in lower case: `smt_on`, `num_packages`.
    Literal(String),
    /// Whether there is such an event.
    HasEvent(String),
    /// How many PMUs have counted such an event.
    Sources(String),
    /// Whether the processor is one of these.
    IsProcessor(String),
}

/// A function of an event or of a processor: its name, and what it makes.
type Function = (&'static str, fn(String) -> Leaf);

/// Every such function.
const FUNCTIONS: &[Function] = &[
    ("has_event", Leaf::HasEvent),
    ("source_count", Leaf::Sources),
    ("aggr_nr", Leaf::Sources),
    ("strcmp_cpuid_str", Leaf::IsProcessor),
];

/// A metric's formula, or its threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricExpression(pub Expression<Leaf>);

impl FromStr for MetricExpression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<MetricExpression, ExpressionError> {
        Expression::parse(text, &mut leaf).map(MetricExpression)
    }
}

/// Length of the name at the beginning of `s`: letters, digits, `_ . : @ ?`, and whatever stands
/// behind a backslash. The fields of an event between two `@` have an `=` with or without one.
fn symbol(s: &str) -> usize {
    let (mut escaped, mut inside) = (false, false);
    for (i, c) in s.char_indices() {
        let own = c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '@' | '?' | '\\');
        if !(own || escaped || inside && c == '=') {
            return i;
        }
        inside ^= c == '@' && !escaped;
        escaped = c == '\\' && !escaped;
    }
    s.len()
}

/// The name without backslashes, with slashes in place of `@`.
fn plain(symbol: &str) -> String {
    let mut out = String::with_capacity(symbol.len());
    let mut escaped = false;
    for c in symbol.chars() {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            '@' if !escaped => out.push('/'),
            c => out.push(c),
        }
        escaped = false;
    }
    out
}

/// What the text begins with, where that is neither a number nor a function of numbers.
fn leaf(s: &str) -> Option<(Leaf, usize)> {
    if let Some(rest) = s.strip_prefix('#') {
        let own = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let length = rest.find(|c: char| !own(c)).unwrap_or(rest.len());
        let name = rest.get(..length)?.to_lowercase();
        return (length > 0).then_some((Leaf::Literal(name), length + 1));
    }
    let length = symbol(s);
    let name = s.get(..length)?;
    let after = s.get(length..)?;
    if name.is_empty() || number(s) == length {
        return None;
    }
    if !after.trim_start().starts_with('(') {
        return Some((Leaf::Value(plain(name)), length));
    }
    // of a function, the one argument, which is a name
    let (_, function) = FUNCTIONS.iter().find(|(n, _)| *n == name)?;
    let open = length + after.find('(')? + 1;
    let inner = s.get(open..)?;
    let argument = inner.trim_start();
    let of = argument.get(..symbol(argument))?;
    let end = argument.get(of.len()..)?.trim_start().strip_prefix(')')?;
    (!of.is_empty()).then(|| (function(plain(of)), s.len() - end.len()))
}

/// Why a metric cannot be worked out.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MetricError {
    /// Its formula is none.
    #[error("metric `{metric}`: {source}")]
    Bad {
        /// The metric.
        metric: String,
        /// The reason.
        source: ExpressionError,
    },
    /// It is made of itself.
    #[error("metric `{metric}` is made of itself")]
    Circle {
        /// The metric.
        metric: String,
    },
    /// It is made of metrics that are made of metrics, and so on.
    #[error("metric `{metric}`: more than {DEEPEST} metrics in metrics")]
    TooDeep {
        /// The metric.
        metric: String,
    },
}

/// Most metrics in metrics; the shipped tables have nine.
const DEEPEST: usize = 50;

/// Metrics of one PMU, which may be made of each other.
#[derive(Clone, Debug, Default)]
pub struct Metrics(BTreeMap<String, PmuMetric>);

impl Metrics {
    /// Of these metrics; the first of a name counts.
    pub fn new(all: impl IntoIterator<Item = PmuMetric>) -> Metrics {
        let mut out = BTreeMap::new();
        for m in all {
            out.entry(m.name.to_lowercase()).or_insert(m);
        }
        Metrics(out)
    }

    /// The metric called `name`, in upper or lower case.
    pub fn get(&self, name: &str) -> Option<&PmuMetric> {
        self.0.get(&name.to_lowercase())
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &PmuMetric> {
        self.0.values()
    }

    /// The formula of `metric` over events alone: with those of other metrics in their place.
    /// `known` tells what of it is known beforehand.
    ///
    /// # Errors
    /// [`MetricError`].
    pub fn formula(
        &self,
        metric: &PmuMetric,
        known: &dyn Fn(&Leaf) -> Option<f64>,
    ) -> Result<Expression<Leaf>, MetricError> {
        self.over_events(&metric.expression, metric, known, &mut Expanding::default())
    }

    /// When the value of `metric` is worth a look: an expression over events that is not 0 then;
    /// `None` where the table does not say.
    ///
    /// # Errors
    /// [`MetricError`].
    pub fn threshold(
        &self,
        metric: &PmuMetric,
        known: &dyn Fn(&Leaf) -> Option<f64>,
    ) -> Result<Option<Expression<Leaf>>, MetricError> {
        // a metric may stand in its own threshold
        let text = metric.threshold.as_deref();
        text.map(|text| {
            let of = PmuMetric {
                name: String::new(),
                ..metric.clone()
            };
            self.over_events(text, &of, known, &mut Expanding::default())
        })
        .transpose()
    }

    fn over_events(
        &self,
        text: &str,
        metric: &PmuMetric,
        known: &dyn Fn(&Leaf) -> Option<f64>,
        at: &mut Expanding,
    ) -> Result<Expression<Leaf>, MetricError> {
        let name = metric.name.to_lowercase();
        if let Some(done) = at.done.get(&name) {
            return Ok(done.clone());
        }
        let of = metric.name.clone();
        if at.within.contains(&name) {
            return Err(MetricError::Circle { metric: of });
        }
        if at.within.len() > DEEPEST {
            return Err(MetricError::TooDeep { metric: of });
        }
        let MetricExpression(own) = text
            .parse()
            .map_err(|source| MetricError::Bad { metric: of, source })?;
        at.within.push(name.clone());
        let mut refused = None;
        let out = own.with(&mut |l| {
            if let Some(x) = known(l) {
                return Some(Expression::constant(x));
            }
            let Leaf::Value(of) = l else {
                return None;
            };
            // an event may have the name of the metric that is made of it
            let other = self.get(of).filter(|_| of.to_lowercase() != name)?;
            match self.over_events(&other.expression, other, known, at) {
                Ok(e) => Some(e),
                Err(e) => {
                    refused.get_or_insert(e);
                    None
                }
            }
        });
        at.within.pop();
        if let Some(e) = refused {
            return Err(e);
        }
        at.done.insert(name, out.clone());
        Ok(out)
    }
}

/// How far a formula has been brought down to events.
#[derive(Default)]
struct Expanding {
    /// Metrics that are being worked on, each in the one before it.
    within: Vec<String>,
    /// Those that are done, by name in lower case.
    done: BTreeMap<String, Expression<Leaf>>,
}

#[cfg(test)]
#[path = "metric_tests.rs"]
mod tests;
