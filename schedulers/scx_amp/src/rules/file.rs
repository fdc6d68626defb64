//! The file of rules: patterns, and what holds for the threads that fit.

use amp_machine::{BadFile, Locator};
use amp_sched::{Prefer, Rule};
use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use toml::Spanned;

/// Weights that the kernel knows.
const WEIGHTS: RangeInclusive<u32> = 1..=10_000;
/// Bounds on a slowdown. Who may be no slower than alone on a fast core is best kept there: `prefer = "fast"`.
const SLOWDOWNS: RangeInclusive<f64> = 1.01..=100.0;

/// What a rule looks at.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    /// Command name of the thread.
    pub comm: Option<GlobMatcher>,
    /// Path of the program.
    pub exe: Option<GlobMatcher>,
    /// Control group, from the root of the hierarchy: `/user.slice/…`.
    pub cgroup: Option<GlobMatcher>,
}

/// The rules of a file, in its order.
#[derive(Clone, Debug, Default)]
pub struct RuleFile {
    rules: Vec<(Patterns, Rule)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    comm: Option<Spanned<String>>,
    exe: Option<Spanned<String>>,
    cgroup: Option<Spanned<String>>,
    prefer: Option<Spanned<String>>,
    never: Option<Spanned<String>>,
    weight: Option<Spanned<u32>>,
    slowdown: Option<Spanned<f64>>,
    place: Option<Spanned<bool>>,
}

/// Where a value stands that is not within `range`, and what would be right.
fn outside<T: PartialOrd + Display>(
    value: &Option<Spanned<T>>,
    range: &RangeInclusive<T>,
) -> Option<(usize, String)> {
    let value = value.as_ref().filter(|v| !range.contains(v.get_ref()))?;
    let why = format!("want {} to {}", range.start(), range.end());
    Some((value.span().start, why))
}

impl RuleFile {
    /// The rules in the file at `path`.
    ///
    /// # Errors
    /// Naming file, line and key at fault, and what would be right.
    pub fn load(path: &Path) -> Result<RuleFile, BadFile> {
        RuleFile::parse(path, &BadFile::read(path)?)
    }

    /// The rules in this text.
    ///
    /// # Errors
    /// As [`RuleFile::load`].
    pub fn parse(path: &Path, text: &str) -> Result<RuleFile, BadFile> {
        let locator = Locator::new(path, text);
        let file: File = toml::from_str(text).map_err(|e| locator.toml(&e))?;
        let mut rules = Vec::new();
        for (i, entry) in file.rule.into_iter().enumerate() {
            let at = entry.span().start;
            let bad = |at: usize, key: &str, why: String| {
                let key = if key.is_empty() {
                    String::new()
                } else {
                    format!(".{key}")
                };
                locator.value(at, format!("rule[{i}]{key}"), why)
            };
            let e = entry.into_inner();
            let glob = |key: &str, text: &Option<Spanned<String>>| {
                let Some(text) = text else { return Ok(None) };
                let pattern = text.get_ref();
                // in a path `*` stays within a folder, `**` does not
                let built = GlobBuilder::new(pattern)
                    .literal_separator(key != "comm")
                    .build();
                let why = |e: globset::Error| bad(text.span().start, key, e.kind().to_string());
                let whole = |what: &str| {
                    let why = format!("`{pattern}`: want {what}");
                    Err(bad(text.span().start, key, why))
                };
                match key {
                    "comm" if pattern.is_empty() => whole("the name of a command"),
                    "exe" | "cgroup" if !pattern.starts_with(['/', '*']) => {
                        whole("a path from the root, such as /usr/bin/* or /user.slice/**")
                    }
                    _ => built.map(|g| Some(g.compile_matcher())).map_err(why),
                }
            };
            let patterns = Patterns {
                comm: glob("comm", &e.comm)?,
                exe: glob("exe", &e.exe)?,
                cgroup: glob("cgroup", &e.cgroup)?,
            };
            let rule = Rule {
                number: u32::try_from(i + 1).unwrap_or(u32::MAX),
                prefer: match e.prefer.as_ref().map(|p| p.get_ref().as_str()) {
                    None => Prefer::Any,
                    Some("fast") => Prefer::Fast,
                    Some("slow") => Prefer::Slow,
                    Some(_) => {
                        let at = e.prefer.as_ref().map_or(at, |p| p.span().start);
                        return Err(bad(at, "prefer", "want \"fast\" or \"slow\"".into()));
                    }
                },
                never_fast: match e.never.as_ref().map(|n| n.get_ref().as_str()) {
                    None => false,
                    Some("fast") => true,
                    Some(_) => {
                        let at = e.never.as_ref().map_or(at, |n| n.span().start);
                        return Err(bad(at, "never", "want \"fast\"".into()));
                    }
                },
                weight: e.weight.as_ref().map(|w| *w.get_ref()),
                slowdown: e.slowdown.as_ref().map(|s| *s.get_ref()),
                place: e.place.as_ref().is_none_or(|p| *p.get_ref()),
            };
            if let Some((at, why)) = outside(&e.weight, &WEIGHTS) {
                return Err(bad(at, "weight", why));
            }
            if let Some((at, why)) = outside(&e.slowdown, &SLOWDOWNS) {
                return Err(bad(at, "slowdown", why));
            }
            if e.comm.is_none() && e.exe.is_none() && e.cgroup.is_none() {
                let why = "want at least one of comm, exe and cgroup: which threads?";
                return Err(bad(at, "", why.into()));
            }
            let nothing = Rule {
                number: rule.number,
                ..Rule::default()
            };
            if rule == nothing && e.place.is_none() {
                let why =
                    "want at least one of prefer, never, weight, slowdown and place: what holds for them?";
                return Err(bad(at, "", why.into()));
            }
            if rule.never_fast && rule.prefer == Prefer::Fast {
                let why = "cannot be \"fast\" for a thread that is never to be on a fast core";
                let at = e.prefer.as_ref().map_or(at, |p| p.span().start);
                return Err(bad(at, "prefer", why.into()));
            }
            if let (true, Some(s)) = (rule.never_fast, &e.slowdown) {
                let why = "cannot be bounded for a thread that is never to be on a fast core";
                return Err(bad(s.span().start, "slowdown", why.into()));
            }
            if rule != nothing && !rule.place {
                let others = Rule {
                    place: true,
                    ..rule
                };
                if others != nothing {
                    let why = "cannot be false beside prefer, never, weight or slowdown: who is not placed has no place to prefer";
                    let at = e.place.as_ref().map_or(at, |p| p.span().start);
                    return Err(bad(at, "place", why.into()));
                }
            }
            rules.push((patterns, rule));
        }
        Ok(RuleFile { rules })
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// The first rule that fits a thread called `comm`; `exe` and `cgroup` are asked for only where
    /// a rule wants to know.
    pub fn first<'a>(
        &self,
        comm: &str,
        mut exe: impl FnMut() -> Option<&'a str>,
        mut cgroup: impl FnMut() -> Option<&'a str>,
    ) -> Option<Rule> {
        let mut fits = |p: &Patterns| {
            let is = |g: &Option<GlobMatcher>, of: &mut dyn FnMut() -> Option<&'a str>| {
                g.as_ref()
                    .is_none_or(|g| of().is_some_and(|t| g.is_match(t)))
            };
            p.comm.as_ref().is_none_or(|g| g.is_match(comm))
                && is(&p.exe, &mut exe)
                && is(&p.cgroup, &mut cgroup)
        };
        self.rules.iter().find(|(p, _)| fits(p)).map(|(_, r)| *r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<RuleFile, BadFile> {
        RuleFile::parse(Path::new("r.toml"), text)
    }

    #[test]
    fn the_first_rule_that_fits_holds() {
        let file = parse(
            r#"
[[rule]]
comm = "cc1*"
cgroup = "/user.slice/**"
prefer = "slow"
[[rule]]
exe = "/usr/bin/*"
never = "fast"
weight = 50
[[rule]]
comm = "cc1*"
place = false
"#,
        )
        .unwrap();
        let rule = |comm, exe, cgroup| {
            let found = file.first(comm, || exe, || cgroup);
            found.map(|r| r.to_string())
        };
        let (bin, deep) = (Some("/usr/bin/x"), Some("/usr/bin/deep/x"));
        assert_eq!(
            rule("cc1plus", bin, Some("/user.slice/a/b")).unwrap(),
            "1: prefer slow"
        );
        assert_eq!(
            rule("cc1", bin, Some("/system.slice")).unwrap(),
            "2: never fast weight 50"
        );
        assert_eq!(rule("cc1", deep, Some("/")).unwrap(), "3: not placed");
        assert_eq!(rule("ld", deep, None), None);
        assert_eq!(rule("ld", None, None), None);
        assert!(parse("").unwrap().first("x", || None, || None).is_none());
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_key() {
        for (text, wants) in [
            (
                "comm = \"x\"",
                "line 2: key `rule[0]`: want at least one of prefer",
            ),
            (
                "prefer = \"fast\"",
                "line 2: key `rule[0]`: want at least one of comm",
            ),
            (
                "comm = \"x\"\nprefer = \"fsat\"",
                "line 4: key `rule[0].prefer`: want \"fast\" or \"slow\"",
            ),
            (
                "comm = \"x\"\nnever = \"slow\"",
                "line 4: key `rule[0].never`: want \"fast\"",
            ),
            (
                "comm = \"x\"\nweight = 0",
                "line 4: key `rule[0].weight`: want 1 to 10000",
            ),
            ("comm = \"x\"\nweight = -1", "line 4: key `rule[0].weight`"),
            (
                "comm = \"x\"\nslowdown = 0.5",
                "line 4: key `rule[0].slowdown`: want 1.01 to 100",
            ),
            (
                "comm = \"x\"\nslowdown = nan",
                "line 4: key `rule[0].slowdown`: want 1.01 to 100",
            ),
            (
                "comm = \"x\"\nnever = \"fast\"\nslowdown = 1.5",
                "line 5: key `rule[0].slowdown`: cannot be bounded",
            ),
            (
                "comm = \"x\"\nslowdown = 1.5\nplace = false",
                "line 5: key `rule[0].place`: cannot be false beside",
            ),
            ("comm = \"[\"\nweight = 1", "line 3: key `rule[0].comm`"),
            (
                "exe = \"gcc\"\nweight = 1",
                "line 3: key `rule[0].exe`: `gcc`: want a path",
            ),
            ("comm = \"x\"\nwieght = 1", "line 4: key `rule[0].wieght`"),
            (
                "comm = \"x\"\nnever = \"fast\"\nprefer = \"fast\"",
                "line 5: key `rule[0].prefer`: cannot",
            ),
            ("place = 1", "key `rule[0].place`"),
            (
                "comm = \"x\"\nnever = \"fast\"\nplace = false",
                "line 5: key `rule[0].place`: cannot be false beside",
            ),
        ] {
            let e = parse(&format!("\n[[rule]]\n{text}\n"))
                .unwrap_err()
                .to_string();
            assert!(
                e.starts_with("r.toml: ") && e.contains(wants),
                "{text}\n{e}"
            );
        }
        let e = parse("[[rules]]").unwrap_err().to_string();
        assert!(e.contains("line 1: key `rules`"), "{e}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(
            key in "(comm|exe|cgroup|prefer|never|weight|slowdown|place)",
            value in "[\"\\[\\]{}*/a-z0-9.=,!-]{0,20}"
        ) {
            if let Ok(file) = parse(&format!("[[rule]]\nweight = 1\n{key} = {value}\n")) {
                file.first("x", || Some("/x"), || Some("/y"));
            }
        }
    }
}
