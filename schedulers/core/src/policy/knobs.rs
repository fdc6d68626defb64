//! Parameters of a policy that can be turned while it runs.

use std::fmt;
use thiserror::Error;

/// What values a parameter may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KnobKind {
    /// A number in a unit.
    Number {
        /// Unit, empty for a ratio.
        unit: &'static str,
        /// Value at the start.
        default: f64,
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// One word of a list; the first is the default.
    Choice(&'static [&'static str]),
    /// A number in a unit, or `auto`: the policy chooses. The default is `auto`.
    Auto {
        /// Unit, empty for a ratio.
        unit: &'static str,
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
}

/// Describes a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knob {
    /// Name, as in `ctl set KEY=VALUE`.
    pub key: &'static str,
    /// Values.
    pub kind: KnobKind,
    /// What it does, in one line.
    pub help: &'static str,
}

/// Parameters that several policies have, each with its own default and meaning.
impl Knob {
    /// How an application of many threads is rated ([`crate::policy::speedups::rule`]).
    pub const UTILITY: Knob = Knob {
        key: "utility",
        kind: KnobKind::Choice(&["auto", "speedup", "camp", "barrier"]),
        help: "how the gain of an application with many threads is rated; auto: by how much they wait on fast cores",
    };

    /// A turn, round or threshold, from a millisecond to a minute.
    pub const fn milliseconds(key: &'static str, default: f64, help: &'static str) -> Knob {
        let kind = KnobKind::Number {
            unit: "ms",
            default,
            min: 1.0,
            max: 60_000.0,
        };
        Knob { key, kind, help }
    }

    /// A ratio of up to 100 %.
    pub const fn percent(key: &'static str, default: f64, help: &'static str) -> Knob {
        let kind = KnobKind::Number {
            unit: "%",
            default,
            min: 0.0,
            max: 100.0,
        };
        Knob { key, kind, help }
    }

    /// The length of a running mean ([`crate::policy::smooth`]).
    pub const fn smoothing(default: f64, help: &'static str) -> Knob {
        let kind = KnobKind::Number {
            unit: "intervals",
            default,
            min: 1.0,
            max: 1000.0,
        };
        Knob {
            key: "smoothing",
            kind,
            help,
        }
    }
}

/// Why a parameter cannot be turned.
#[derive(Debug, Error, PartialEq)]
pub enum KnobError {
    /// The policy has no such parameter.
    #[error("policy `{policy}` has no parameter `{key}`: it has {known}")]
    Unknown {
        /// The policy.
        policy: &'static str,
        /// The key that was asked for.
        key: String,
        /// What there is instead.
        known: String,
    },
    /// The value is not a number, or outside the range.
    #[error("{key}={value}: a number from {min} to {max} {unit} is needed (default {default})")]
    Number {
        /// The parameter.
        key: &'static str,
        /// The value that was given.
        value: String,
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
        /// Unit.
        unit: &'static str,
        /// Default.
        default: f64,
    },
    /// Neither `auto` nor a number in the range.
    #[error("{key}={value}: `auto` or a number from {min} to {max} {unit} is needed")]
    Auto {
        /// The parameter.
        key: &'static str,
        /// The value that was given.
        value: String,
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
        /// Unit.
        unit: &'static str,
    },
    /// The value is not one of the words.
    #[error("{key}={value}: one of {options} is needed")]
    Choice {
        /// The parameter.
        key: &'static str,
        /// The value that was given.
        value: String,
        /// What is allowed.
        options: String,
    },
}

/// The parameters of one policy with their present values.
#[derive(Clone, Debug)]
pub struct Knobs {
    policy: &'static str,
    knobs: &'static [Knob],
    /// The number, or the index of the choice; NaN for `auto`.
    values: Vec<f64>,
}

impl Knobs {
    /// The parameters of `policy` at their defaults.
    pub fn new(policy: &'static str, knobs: &'static [Knob]) -> Knobs {
        let default = |k: &Knob| match k.kind {
            KnobKind::Number { default, .. } => default,
            KnobKind::Choice(_) => 0.0,
            KnobKind::Auto { .. } => f64::NAN,
        };
        Knobs {
            policy,
            knobs,
            values: knobs.iter().map(default).collect(),
        }
    }

    /// The policy whose parameters they are.
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// The descriptions.
    pub fn iter(&self) -> impl Iterator<Item = &'static Knob> + '_ {
        self.knobs.iter()
    }

    /// The present value of each parameter as text, by key.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.knobs.iter().enumerate().map(|(i, k)| match k.kind {
            KnobKind::Number { .. } => (k.key, self.number(i).to_string()),
            KnobKind::Choice(_) => (k.key, self.choice(i).to_owned()),
            KnobKind::Auto { .. } => {
                let shown = self.chosen(i).map(|v| v.to_string());
                (k.key, shown.unwrap_or_else(|| "auto".to_owned()))
            }
        })
    }

    /// The value of parameter number `i`; 0 when there is none.
    pub fn number(&self, i: usize) -> f64 {
        self.values.get(i).copied().unwrap_or(0.0)
    }

    /// The value of parameter number `i`; `None` while it is `auto`.
    pub fn chosen(&self, i: usize) -> Option<f64> {
        Some(self.number(i)).filter(|v| !v.is_nan())
    }

    /// The word chosen for parameter number `i`; empty when it is not a choice.
    pub fn choice(&self, i: usize) -> &'static str {
        match self.knobs.get(i).map(|k| k.kind) {
            Some(KnobKind::Choice(words)) => {
                words.get(self.number(i) as usize).copied().unwrap_or("")
            }
            _ => "",
        }
    }

    /// Turns the parameter `key` to `value`.
    ///
    /// # Errors
    /// When there is no such parameter or the value is not allowed; the error says what is.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), KnobError> {
        let Some(i) = self.knobs.iter().position(|k| k.key == key) else {
            let known: Vec<&str> = self.knobs.iter().map(|k| k.key).collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            return Err(KnobError::Unknown {
                policy: self.policy,
                key: key.to_owned(),
                known,
            });
        };
        let key = self.knobs[i].key;
        self.values[i] = match self.knobs[i].kind {
            KnobKind::Number {
                unit,
                default,
                min,
                max,
            } => value
                .trim()
                .parse()
                .ok()
                .filter(|v: &f64| (min..=max).contains(v))
                .ok_or_else(|| KnobError::Number {
                    key,
                    value: value.to_owned(),
                    min,
                    max,
                    unit,
                    default,
                })?,
            KnobKind::Choice(words) => {
                let i = words
                    .iter()
                    .position(|w| *w == value.trim())
                    .ok_or_else(|| KnobError::Choice {
                        key,
                        value: value.to_owned(),
                        options: words.join(", "),
                    })?;
                i as f64
            }
            KnobKind::Auto { .. } if value.trim() == "auto" => f64::NAN,
            KnobKind::Auto { unit, min, max } => value
                .trim()
                .parse()
                .ok()
                .filter(|v: &f64| (min..=max).contains(v))
                .ok_or_else(|| KnobError::Auto {
                    key,
                    value: value.to_owned(),
                    min,
                    max,
                    unit,
                })?,
        };
        Ok(())
    }
}

impl fmt::Display for Knobs {
    /// One line per parameter: key, present value, range, what it does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, (_, value)) in self.knobs.iter().zip(self.values()) {
            match k.kind {
                KnobKind::Number { unit, min, max, .. } => {
                    let space = if unit.is_empty() { "" } else { " " };
                    writeln!(
                        f,
                        "  {} = {value}{space}{unit} ({min} to {max}): {}",
                        k.key, k.help
                    )?;
                }
                KnobKind::Auto { unit, min, max } => {
                    let space = if unit.is_empty() { "" } else { " " };
                    writeln!(
                        f,
                        "  {} = {value} (auto, or {min} to {max}{space}{unit}): {}",
                        k.key, k.help
                    )?;
                }
                KnobKind::Choice(words) => {
                    writeln!(
                        f,
                        "  {} = {value} ({}): {}",
                        k.key,
                        words.join(" | "),
                        k.help
                    )?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &[Knob] = &[
        Knob {
            key: "threshold",
            kind: KnobKind::Number {
                unit: "ms",
                default: 250.0,
                min: 1.0,
                max: 60e3,
            },
            help: "how far",
        },
        Knob {
            key: "share",
            kind: KnobKind::Choice(&["app", "thread"]),
            help: "among whom",
        },
        Knob {
            key: "rating",
            kind: KnobKind::Auto {
                unit: "",
                min: 1.0,
                max: 100.0,
            },
            help: "how much",
        },
    ];

    #[test]
    fn values_are_set_and_shown() {
        let mut k = Knobs::new("x", SPEC);
        assert_eq!((k.number(0), k.choice(1)), (250.0, "app"));
        k.set("threshold", " 12.5 ").unwrap();
        k.set("share", "thread").unwrap();
        assert_eq!((k.number(0), k.choice(1)), (12.5, "thread"));
        let shown: Vec<_> = k.values().collect();
        assert_eq!(
            shown,
            [
                ("threshold", "12.5".to_owned()),
                ("share", "thread".to_owned()),
                ("rating", "auto".to_owned())
            ]
        );
        assert!(k.to_string().contains("1 to 60000"));
        assert_eq!(k.chosen(2), None);
        k.set("rating", "2.5").unwrap();
        assert_eq!(k.chosen(2), Some(2.5));
        k.set("rating", "auto").unwrap();
        assert_eq!(k.chosen(2), None);
    }

    #[test]
    fn errors_say_what_is_right_and_change_nothing() {
        let mut k = Knobs::new("x", SPEC);
        for (key, value, wants) in [
            ("threshold", "0", "from 1 to 60000 ms"),
            ("threshold", "NaN", "from 1 to 60000 ms"),
            ("threshold", "inf", "threshold=inf"),
            ("threshold", "fast", "default 250"),
            ("share", "core", "one of app, thread"),
            ("rating", "NaN", "`auto` or a number from 1 to 100"),
            ("rating", "-1", "rating=-1"),
            (
                "thr",
                "1",
                "policy `x` has no parameter `thr`: it has threshold, share, rating",
            ),
        ] {
            let e = k.set(key, value).unwrap_err().to_string();
            assert!(e.contains(wants), "{e}");
        }
        assert_eq!((k.number(0), k.choice(1)), (250.0, "app"));
    }
}
