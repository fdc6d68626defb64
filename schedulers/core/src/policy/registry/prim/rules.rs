//! The rules of PRIM: data, not code.

use serde::Deserialize;
use thiserror::Error;

/// What a rule may look at: a thread on a faster core type (big) and one on a slower (small), their
/// factors being those of the faster type over the slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Efficiency factor of the thread on the big core.
    EfBig,
    /// Efficiency factor of the thread on the small core.
    EfSmall,
    /// `ef_small / ef_big`: above 1 when a swap promises a better energy-delay product.
    EfGain,
    /// Speedup factor of the thread on the big core.
    SfBig,
    /// Speedup factor of the thread on the small core.
    SfSmall,
    /// `sf_small / sf_big`: above 1 when a swap promises throughput.
    SfGain,
}

impl Metric {
    /// Whether it needs efficiency factors (otherwise it needs speedup factors).
    pub fn needs_ef(self) -> bool {
        matches!(self, Metric::EfBig | Metric::EfSmall | Metric::EfGain)
    }
}

/// A condition: the metric lies within these bounds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Metric of the condition.
    pub metric: Metric,
    /// The least value.
    #[serde(default)]
    pub min: Option<f64>,
    /// The largest value.
    #[serde(default)]
    pub max: Option<f64>,
}

/// A rule: swap when all conditions hold.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Description of the rule, for people.
    pub name: String,
    /// Its conditions.
    pub all: Vec<Condition>,
}

/// A platform's rules: swap when any of them says so.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    #[serde(default, rename = "rule")]
    rules: Vec<Rule>,
}

/// Why a text is no rule set.
#[derive(Debug, Error)]
pub enum RulesError {
    /// Not TOML, or not of this shape; the text names line and key.
    #[error("{0}")]
    Toml(Box<toml::de::Error>),
    /// No rule at all.
    #[error("no `[[rule]]`: at least one is needed")]
    None,
    /// A rule without conditions would swap everything.
    #[error("rule `{0}`: `all` is empty, at least one condition is needed")]
    Unconditional(String),
    /// A condition that is none.
    #[error("rule `{0}`: a condition needs `min` or `max`, finite and > 0, `min` not above `max`")]
    Bounds(String),
}

/// The factors of two threads, where known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// EF of the thread on the big and on the small core.
    pub ef: Option<(f64, f64)>,
    /// SF of the thread on the big and on the small core.
    pub sf: Option<(f64, f64)>,
}

impl Pair {
    fn value(&self, metric: Metric) -> Option<f64> {
        let (big, small) = if metric.needs_ef() { self.ef } else { self.sf }?;
        Some(match metric {
            Metric::EfBig | Metric::SfBig => big,
            Metric::EfSmall | Metric::SfSmall => small,
            Metric::EfGain | Metric::SfGain => small / big,
        })
    }
}

impl Rules {
    /// Reads rules.
    ///
    /// # Errors
    /// When the text is no rule set; the error names the line and key, or the rule.
    pub fn parse(text: &str) -> Result<Rules, RulesError> {
        let rules: Rules = toml::from_str(text).map_err(|e| RulesError::Toml(Box::new(e)))?;
        if rules.rules.is_empty() {
            return Err(RulesError::None);
        }
        for r in &rules.rules {
            if r.all.is_empty() {
                return Err(RulesError::Unconditional(r.name.clone()));
            }
            let sound = |c: &Condition| {
                let good = |v: Option<f64>| v.is_none_or(|v| v.is_finite() && v > 0.0);
                let some = c.min.is_some() || c.max.is_some();
                let ordered = c.min.zip(c.max).is_none_or(|(a, b)| a <= b);
                some && ordered && good(c.min) && good(c.max)
            };
            if !r.all.iter().all(sound) {
                return Err(RulesError::Bounds(r.name.clone()));
            }
        }
        Ok(rules)
    }

    /// Whether the pair is to be swapped. A condition on a metric that is not known does not hold.
    pub fn swap(&self, pair: &Pair) -> bool {
        self.rules.iter().any(|r| {
            r.all.iter().all(|c| {
                pair.value(c.metric).is_some_and(|v| {
                    c.min.is_none_or(|min| v >= min) && c.max.is_none_or(|max| v <= max)
                })
            })
        })
    }

    /// Whether any rule looks at efficiency factors, and whether any looks at speedup factors.
    pub fn needs(&self) -> (bool, bool) {
        let conditions = || self.rules.iter().flat_map(|r| &r.all);
        (
            conditions().any(|c| c.metric.needs_ef()),
            conditions().any(|c| !c.metric.needs_ef()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_checked() {
        for (text, wants) in [
            ("", "no `[[rule]]`"),
            ("[[rule]]\nname='a'\nall=[]", "rule `a`: `all` is empty"),
            (
                "[[rule]]\nname='a'\nall=[{metric='ef_gain'}]",
                "needs `min` or `max`",
            ),
            (
                "[[rule]]\nname='a'\nall=[{metric='ef_gain',min=nan}]",
                "finite",
            ),
            (
                "[[rule]]\nname='a'\nall=[{metric='ef_gain',min=2,max=1}]",
                "not above",
            ),
            ("[[rule]]\nname='a'\nall=[{metric='ipc',min=2}]", "ef_gain"),
            ("[[rule]]\nname='a'\nif=1\nall=[]", "line 3"),
        ] {
            let e = Rules::parse(text).unwrap_err().to_string();
            assert!(e.contains(wants), "{e}");
        }
    }

    #[test]
    fn all_conditions_of_any_rule() {
        let r = Rules::parse(
            "[[rule]]\nname='both'\nall=[{metric='ef_gain',min=1.1},{metric='sf_small',max=2.0}]\n\
             [[rule]]\nname='slow'\nall=[{metric='sf_gain',min=3.0}]",
        )
        .unwrap();
        let pair = |ef: f64, sf: (f64, f64)| Pair {
            ef: Some((1.0, ef)),
            sf: Some(sf),
        };
        assert!(r.swap(&pair(1.2, (1.0, 1.5))));
        assert!(!r.swap(&pair(1.0, (1.0, 1.5))));
        assert!(!r.swap(&pair(1.2, (1.0, 2.5))));
        assert!(r.swap(&pair(1.0, (1.0, 3.5))));
        let unknown = Pair {
            ef: None,
            sf: Some((1.0, 1.5)),
        };
        assert!(!r.swap(&unknown));
        assert_eq!(r.needs(), (true, true));
    }
}
