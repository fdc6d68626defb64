//! Events as people write them.

use super::{EventError, Generic};
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// The parts of a comma-separated list of events, whose `pmu/…/` hold commas of their own. Braces
/// around it, as perf has them for groups, mean nothing here: a list is a group.
pub fn split_list(text: &str) -> Vec<&str> {
    let text = text.trim();
    let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
    let mut inside = false;
    inner
        .unwrap_or(text)
        .split(|c: char| {
            inside ^= c == '/';
            c == ',' && !inside
        })
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .collect()
}

/// One part of `pmu/…,…/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// `umask=0x41`
    Field {
        /// Name of the field, as the PMU's `format/` lists it, or `config`, `config1`, `config2`.
        name: String,
        /// Its value.
        value: u64,
    },
    /// `l1d_cache_refill`: an event of the PMU, or a one-bit field that is to be 1.
    Name(String),
}

/// What stands behind an event: which modes are counted (`:u` user only, `:k` kernel only), and how
/// precise its samples are to be (`:p`, `:pp`, `:ppp`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modifiers {
    /// Leave out user mode.
    pub exclude_user: bool,
    /// Leave out kernel mode.
    pub exclude_kernel: bool,
    /// `precise_ip` of `perf_event_attr`: from 0 (a sample may come late by any number of
    /// instructions) to 3 (it must not).
    pub precise: u8,
}

/// The most that `precise_ip` can be.
const MOST_PRECISE: u8 = 3;

/// What kind of name it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SpecKind {
    /// A generic event.
    Generic(Generic),
    /// A name to be looked up on the PMU of the core type.
    Name(String),
    /// The bits themselves, `r412e`.
    Raw(u64),
    /// `pmu/…/`.
    Terms {
        /// The PMU's name. `cpu` also means the PMU of the core type on a hybrid, as there is no
        /// `cpu` there.
        pmu: String,
        /// The parts; none for the event of a PMU that has only one (`ibs_op//`).
        terms: Vec<Term>,
    },
}

/// An event as written, in the syntax of `perf`.
///
/// `cpu_core/event=0x2e,umask=0x41/`, `armv8_cortex_a57/l1d_cache_refill/u`, `branch-misses:u`,
/// `r412e`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct EventSpec {
    text: String,
    /// What it names.
    pub kind: SpecKind,
    /// Modes.
    pub modifiers: Modifiers,
}

impl EventSpec {
    /// The same event of another PMU, where it names one (`pmu/…/`); else itself.
    #[must_use]
    pub fn of_pmu(&self, name: &str) -> EventSpec {
        let mut out = self.clone();
        if let SpecKind::Terms { pmu, .. } = &mut out.kind {
            name.clone_into(pmu);
        }
        out
    }

    /// The text it was parsed from.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it has a value for this field.
    pub(crate) fn gives(&self, field: &str) -> bool {
        let SpecKind::Terms { terms, .. } = &self.kind else {
            return false;
        };
        let is = |t: &Term| matches!(t, Term::Field { name, .. } if name == field);
        terms.iter().any(is)
    }
}

impl fmt::Display for EventSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for EventSpec {
    type Error = EventError;
    fn try_from(s: String) -> Result<EventSpec, EventError> {
        s.parse()
    }
}

/// A number as perf reads them: `0x2e`, `46`.
pub(crate) fn number(s: &str) -> Option<u64> {
    match s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => s.parse().ok(),
    }
}

/// The parts between the slashes.
pub(crate) fn terms(s: &str) -> Result<Vec<Term>, String> {
    s.split(',')
        .map(str::trim)
        .filter(|t| !t.is_empty())
        .map(|t| match t.split_once('=') {
            None => Ok(Term::Name(t.to_owned())),
            Some((name, value)) => {
                let (name, value) = (name.trim(), value.trim());
                match number(value) {
                    Some(value) if !name.is_empty() => Ok(Term::Field {
                        name: name.to_owned(),
                        value,
                    }),
                    _ => Err(format!("`{t}` is not a field with a number")),
                }
            }
        })
        .collect()
}

fn modifiers(s: &str) -> Result<Modifiers, String> {
    let (mut user, mut kernel, mut precise) = (false, false, 0);
    for c in s.chars() {
        match c {
            'u' => user = true,
            'k' => kernel = true,
            'p' if precise < MOST_PRECISE => precise += 1,
            'p' => return Err("modifier `p` stands there more than three times".into()),
            _ => {
                return Err(format!(
                    "modifier `{c}` is not `u` (user mode), `k` (kernel mode) or `p` (precise)"
                ))
            }
        }
    }
    // none or both: everything is counted
    Ok(Modifiers {
        exclude_user: kernel && !user,
        exclude_kernel: user && !kernel,
        precise,
    })
}

impl FromStr for EventSpec {
    type Err = EventError;

    fn from_str(text: &str) -> Result<EventSpec, EventError> {
        let bad = |reason: String| EventError::Syntax {
            spec: text.to_owned(),
            reason,
        };
        let s = text.trim();
        if s.is_empty() {
            return Err(bad("it is empty".into()));
        }
        let (kind, rest) = if let Some((pmu, rest)) = s.split_once('/') {
            let (inner, rest) = rest
                .rsplit_once('/')
                .ok_or_else(|| bad("the closing `/` is missing".into()))?;
            if pmu.is_empty() {
                return Err(bad("no PMU before the first `/`".into()));
            }
            let terms = terms(inner).map_err(bad)?;
            let kind = SpecKind::Terms {
                pmu: pmu.to_owned(),
                terms,
            };
            (kind, rest.strip_prefix(':').unwrap_or(rest))
        } else {
            let (name, rest) = s.split_once(':').unwrap_or((s, ""));
            if name.is_empty() || name.contains(['=', ',']) || name.contains(char::is_whitespace) {
                return Err(bad(format!("`{name}` is not a name")));
            }
            let raw = name
                .strip_prefix('r')
                .filter(|hex| !hex.is_empty() && hex.len() <= 16)
                .and_then(|hex| u64::from_str_radix(hex, 16).ok());
            let kind = match (Generic::by_name(name), raw) {
                (Some(g), _) => SpecKind::Generic(g),
                (None, Some(raw)) => SpecKind::Raw(raw),
                (None, None) => SpecKind::Name(name.to_owned()),
            };
            (kind, rest)
        };
        Ok(EventSpec {
            text: s.to_owned(),
            kind,
            modifiers: modifiers(rest).map_err(bad)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind(s: &str) -> SpecKind {
        s.parse::<EventSpec>().unwrap().kind
    }

    #[test]
    fn commas_in_slashes_separate_nothing() {
        assert_eq!(
            split_list("{a57/event=1,config1=2/u, cycles ,}"),
            ["a57/event=1,config1=2/u", "cycles"]
        );
        assert_eq!(split_list(" , "), [""; 0]);
    }

    #[test]
    fn what_perf_takes() {
        assert_eq!(
            kind("cpu_core/event=0x2e,umask=65/"),
            SpecKind::Terms {
                pmu: "cpu_core".into(),
                terms: vec![
                    Term::Field {
                        name: "event".into(),
                        value: 0x2e
                    },
                    Term::Field {
                        name: "umask".into(),
                        value: 0x41
                    },
                ],
            }
        );
        assert_eq!(
            kind("armv8_cortex_a57/l1d_cache_refill/"),
            SpecKind::Terms {
                pmu: "armv8_cortex_a57".into(),
                terms: vec![Term::Name("l1d_cache_refill".into())],
            }
        );
        assert_eq!(
            kind("ibs_op//"),
            SpecKind::Terms {
                pmu: "ibs_op".into(),
                terms: vec![],
            }
        );
        assert_eq!(kind("r412e"), SpecKind::Raw(0x412e));
        assert_eq!(
            kind("ret_instructions"),
            SpecKind::Name("ret_instructions".into())
        );
        assert!(matches!(kind("branch-misses"), SpecKind::Generic(_)));
        let user = Modifiers {
            exclude_kernel: true,
            ..Modifiers::default()
        };
        for s in ["cycles:u", "cpu/cycles/u", "cpu/cycles/:u"] {
            assert_eq!(s.parse::<EventSpec>().unwrap().modifiers, user, "{s}");
        }
        assert_eq!(
            "cycles:uk".parse::<EventSpec>().unwrap().modifiers,
            Modifiers::default()
        );
        for (s, precise) in [("cycles:p", 1), ("cpu/cycles/pp", 2), ("cycles:ppp", 3)] {
            let spec: EventSpec = s.parse().unwrap();
            let (kernel, user) = (spec.modifiers.exclude_user, spec.modifiers.exclude_kernel);
            assert_eq!(
                (spec.modifiers.precise, kernel, user),
                (precise, false, false),
                "{s}"
            );
        }
        let both = "cycles:upp".parse::<EventSpec>().unwrap().modifiers;
        assert_eq!(both, Modifiers { precise: 2, ..user });
    }

    #[test]
    fn what_it_refuses_says_why() {
        for (s, why) in [
            ("", "empty"),
            ("cpu/event=0x2e", "closing"),
            ("/event=1/", "no PMU"),
            ("cpu/event=/", "`event=`"),
            ("cpu/event=0xfg/", "`event=0xfg`"),
            ("cycles:x", "`x`"),
            ("cycles:pppp", "three times"),
            ("a b", "not a name"),
        ] {
            let e = s.parse::<EventSpec>().unwrap_err().to_string();
            assert!(e.contains(why) && e.contains("write"), "{s}: {e}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(s in "\\PC{0,40}") {
            let _ = s.parse::<EventSpec>();
        }

        #[test]
        fn its_text_parses_to_itself(pmu in "[a-z_0-9]{1,12}", e in 0u64..0xffff, u in 0u64..0xff) {
            let s = format!("{pmu}/event={e:#x},umask={u}/");
            let spec: EventSpec = s.parse().unwrap();
            prop_assert_eq!(spec.to_string().parse::<EventSpec>().unwrap(), spec);
        }
    }
}
