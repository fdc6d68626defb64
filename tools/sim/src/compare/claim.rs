//! Published figures, as claims that hold or do not.

use amp_eval::evaluation::PolicyResult;
use amp_metrics::uncertainty::Measured;
use serde::Deserialize;
use std::fmt;

/// A figure of a mix under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Figure {
    /// Aggregate speedup; more is better.
    Asp,
    /// Unfairness; less is better.
    Unfairness,
    /// Energy-delay product; less is better.
    Edp,
}

impl Figure {
    /// Its value; NaN where it is not known.
    pub fn of(self, r: &PolicyResult) -> f64 {
        self.measured(r).map_or(f64::NAN, |m| m.value)
    }

    /// Its value with its standard uncertainty over the runs, where it is known.
    pub fn measured(self, r: &PolicyResult) -> Option<Measured> {
        match self {
            Figure::Asp => Some(r.asp),
            Figure::Unfairness => Some(r.unfairness),
            Figure::Edp => r.edp,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Figure::Asp => "ASP",
            Figure::Unfairness => "unfairness",
            Figure::Edp => "EDP",
        })
    }
}

/// Mixes that a claim is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The claim is about the mean over the mixes.
    #[default]
    Mean,
    /// The claim is about each mix.
    Every,
    /// The claim is about at least one mix.
    Some,
}

/// What was published.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Claim {
    /// `best` has the best mean over the mixes.
    Best {
        /// Which figure.
        figure: Figure,
        /// Label of the best column.
        best: String,
        /// Labels of those that it is compared with; all when absent.
        #[serde(default)]
        of: Vec<String>,
    },
    /// The figure is lower under `column` than under `than`, by so many per cent.
    Lower {
        /// Which figure.
        figure: Figure,
        /// Label of the column.
        column: String,
        /// Label of what it is compared with.
        than: String,
        /// At least so many per cent.
        #[serde(default)]
        at_least: Option<f64>,
        /// At most so many per cent.
        #[serde(default)]
        at_most: Option<f64>,
        /// In which mixes.
        #[serde(default)]
        scope: Scope,
    },
}

/// Outcome of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Whether it holds.
    pub holds: bool,
    /// Our figure, in words.
    pub here: String,
}

impl Claim {
    /// The columns it names.
    pub fn labels(&self) -> Vec<&str> {
        match self {
            Claim::Best { best, of, .. } => std::iter::once(best)
                .chain(of)
                .map(String::as_str)
                .collect(),
            Claim::Lower { column, than, .. } => vec![column, than],
        }
    }

    pub(super) fn judge(
        &self,
        labels: &[String],
        mixes: &[(String, Vec<PolicyResult>)],
    ) -> Verdict {
        let values = |figure: Figure, label: &str| -> Vec<f64> {
            let i = labels.iter().position(|l| l == label);
            let result = |(_, r): &(String, Vec<PolicyResult>)| r.get(i?).map(|r| figure.of(r));
            mixes
                .iter()
                .map(|m| result(m).unwrap_or(f64::NAN))
                .collect()
        };
        match self {
            Claim::Best { figure, best, of } => {
                let mut means: Vec<(f64, &str)> = labels
                    .iter()
                    .filter(|l| of.is_empty() || *l == best || of.contains(l))
                    .map(|l| (mean(&values(*figure, l)), l.as_str()))
                    .collect();
                means.sort_by(|a, b| a.0.total_cmp(&b.0));
                if *figure == Figure::Asp {
                    means.reverse();
                }
                let text = means.iter().map(|(v, l)| match figure {
                    Figure::Edp => format!("{l} {v:.3e}"),
                    _ => format!("{l} {v:.3}"),
                });
                Verdict {
                    holds: means.first().is_some_and(|m| m.1 == best),
                    here: text.collect::<Vec<_>>().join(", "),
                }
            }
            Claim::Lower {
                figure,
                column,
                than,
                at_least,
                at_most,
                scope,
            } => {
                let (ours, theirs) = (values(*figure, column), values(*figure, than));
                let lower = |a: f64, b: f64| 100.0 * (1.0 - a / b);
                let right = |x: &f64| {
                    at_least.is_none_or(|least| *x >= least)
                        && at_most.is_none_or(|most| *x <= most)
                };
                let each: Vec<f64> = ours
                    .iter()
                    .zip(&theirs)
                    .map(|(a, b)| lower(*a, *b))
                    .collect();
                let all = lower(mean(&ours), mean(&theirs));
                let ends = each
                    .iter()
                    .fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), x| {
                        (lo.min(*x), hi.max(*x))
                    });
                let range = format!("{:.1} to {:.1} %", ends.0, ends.1);
                match scope {
                    Scope::Mean => Verdict {
                        holds: right(&all),
                        here: format!("{all:.1} %"),
                    },
                    Scope::Every => Verdict {
                        holds: each.iter().all(right),
                        here: range,
                    },
                    Scope::Some => {
                        let n = each.iter().filter(|x| right(x)).count();
                        Verdict {
                            holds: n > 0,
                            here: format!("in {n} of {}; {range}", each.len()),
                        }
                    }
                }
            }
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::Best { figure, best, .. } => write!(f, "best mean {figure}: {best}"),
            Claim::Lower {
                figure,
                column,
                than,
                at_least,
                at_most,
                scope,
            } => {
                write!(f, "{figure} of {column} below {than}: ")?;
                match (at_least, at_most) {
                    (Some(a), Some(b)) => write!(f, "{a} to {b} %")?,
                    (Some(a), None) => write!(f, "{a} % or more")?,
                    (None, Some(b)) => write!(f, "{b} % or less")?,
                    (None, None) => write!(f, "by anything")?,
                }
                f.write_str(match scope {
                    Scope::Mean => " on average",
                    Scope::Every => " in every mix",
                    Scope::Some => " in some mixes",
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::uncertainty::Measured;

    fn result(asp: f64, unfairness: f64) -> PolicyResult {
        let text = r#"{"policy":"p","asp":{"value":1,"u":null},"unfairness":{"value":1,"u":null},
            "edp":null,"swaps_per_s":null,"apps":[]}"#;
        let mut r: PolicyResult = serde_json::from_str(text).unwrap();
        (r.asp, r.unfairness) = (Measured::exact(asp), Measured::exact(unfairness));
        r
    }

    fn judge(claim: &str) -> Verdict {
        let claim: Claim = toml::from_str(claim).unwrap();
        let mixes = vec![
            ("m".to_owned(), vec![result(3.0, 2.0), result(2.0, 1.0)]),
            ("n".to_owned(), vec![result(3.0, 2.0), result(2.0, 1.5)]),
        ];
        claim.judge(&["a".into(), "b".into()], &mixes)
    }

    #[test]
    fn the_best_is_most_asp_and_least_unfairness() {
        assert!(judge("figure = 'asp'\nbest = 'a'").holds);
        assert!(!judge("figure = 'asp'\nbest = 'b'").holds);
        let v = judge("figure = 'unfairness'\nbest = 'b'");
        assert_eq!((v.holds, v.here.as_str()), (true, "b 1.250, a 2.000"));
    }

    #[test]
    fn lower_is_by_the_means_or_by_mix() {
        let lower = |rest: &str| {
            let claim = "figure = 'unfairness'\ncolumn = 'b'\nthan = 'a'\n";
            judge(&format!("{claim}{rest}"))
        };
        let v = lower("at_least = 37.0");
        assert_eq!((v.holds, v.here.as_str()), (true, "37.5 %"));
        assert!(!lower("at_least = 38.0").holds);
        assert!(!lower("at_least = 30.0\nscope = 'every'").holds);
        assert!(lower("at_least = 25.0\nat_most = 50.0\nscope = 'every'").holds);
        let v = lower("at_least = 40.0\nscope = 'some'");
        assert_eq!(
            (v.holds, v.here.as_str()),
            (true, "in 1 of 2; 25.0 to 50.0 %")
        );
    }

    #[test]
    fn a_word_too_many_is_an_error() {
        for bad in [
            "figure = 'asp'",
            "figure = 'asp'\nbest = 'a'\nworst = 'b'",
            "figure = 'ipc'\nbest = 'a'",
        ] {
            assert!(toml::from_str::<Claim>(bad).is_err(), "{bad}");
        }
    }
}
