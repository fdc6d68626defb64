//! Events that may be worth counting on a PMU: the data files in `models/events/`.
//!
//! ```toml
//! [[pmu]]
//! names = ["armv8_cortex_a57", "armv8_pmuv3*"]     # as sysfs has them; `*` at the end: any that begins so
//! events = ["l1d_cache_refill", "stall_backend"]   # as perf writes them, beside instructions and cycles
//! ```
//!
//! What an event is related to (instructions or cycles) follows from its name, see
//! [`crate::sample::metrics`].

use amp_machine::{BadFile, Locator};
use amp_metrics::EventSpec;
use serde::Deserialize;
use std::path::Path;

/// Events for some PMUs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pmu {
    names: Vec<String>,
    events: Vec<String>,
}

/// Events by PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidates {
    #[serde(default)]
    pmu: Vec<Pmu>,
}

/// Name and text of each file of `events/`, sorted by name; the name is the file's without `.toml`.
pub const SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/events.rs"));

impl Candidates {
    /// Parses a file; `path` is for messages.
    ///
    /// # Errors
    /// What is wrong, with the line or the PMU.
    pub fn parse(path: &Path, text: &str) -> Result<Candidates, BadFile> {
        let bad = |message: String| BadFile::whole(path, message);
        let all: Candidates =
            toml::from_str(text).map_err(|e| Locator::new(path, text).toml(&e))?;
        for p in &all.pmu {
            let name = p
                .names
                .first()
                .ok_or_else(|| bad("a `[[pmu]]` without `names`".into()))?;
            for (i, e) in p.events.iter().enumerate() {
                e.parse::<EventSpec>()
                    .map_err(|e| bad(format!("pmu `{name}`: {e}")))?;
                if p.events[..i].contains(e) {
                    return Err(bad(format!("pmu `{name}`: event `{e}` stands there twice")));
                }
            }
        }
        Ok(all)
    }

    /// The shipped ones.
    ///
    /// # Errors
    /// None in a released version: a unit test parses them.
    pub fn shipped() -> Result<Candidates, BadFile> {
        let mut all = Candidates::default();
        for (name, text) in SHIPPED {
            let path = Path::new(name).with_extension("toml");
            all.pmu.extend(Candidates::parse(&path, text)?.pmu);
        }
        Ok(all)
    }

    /// The events for the PMU of this name, of the first entry that fits; `None` when none does.
    pub fn of(&self, pmu: &str) -> Option<&[String]> {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(begin) => pmu.starts_with(begin),
            None => pattern == pmu,
        };
        let found = self.pmu.iter().find(|p| p.names.iter().any(fits));
        found.map(|p| p.events.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_that_fits() {
        let text = "[[pmu]]\nnames = ['a', 'ab*']\nevents = ['x']\n[[pmu]]\nnames = ['abc', 'z']\nevents = ['y']\n";
        let c = Candidates::parse(Path::new("e.toml"), text).unwrap();
        let of = |name: &str| c.of(name).map(<[String]>::concat);
        assert_eq!(of("a").as_deref(), Some("x"));
        assert_eq!(of("abc").as_deref(), Some("x"));
        assert_eq!(of("z").as_deref(), Some("y"));
        assert_eq!(of("b"), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, want) in [
            ("[[pmu]]\nnames = []\nevents = []\n", "without `names`"),
            (
                "[[pmu]]\nnames = ['a']\nevents = ['x', 'x']\n",
                "pmu `a`: event `x` stands there twice",
            ),
            (
                "[[pmu]]\nnames = ['a']\nevents = ['x/']\n",
                "pmu `a`: event `x/`",
            ),
            ("[[pmu]]\nname = ['a']\nevents = []\n", "line 2"),
        ] {
            let e = Candidates::parse(Path::new("e.toml"), text)
                .unwrap_err()
                .to_string();
            assert!(e.starts_with("e.toml: ") && e.contains(want), "{text}: {e}");
        }
    }

    #[test]
    fn the_shipped_files_are_right() {
        let c = Candidates::shipped().unwrap();
        for pmu in [
            "armv8_cortex_a57",
            "armv8_cortex_a53",
            "cpu_core",
            "cpu_atom",
            "cpu",
            "apple_avalanche_pmu",
        ] {
            assert!(c.of(pmu).is_some_and(|e| e.len() >= 4), "{pmu}");
        }
    }
}
