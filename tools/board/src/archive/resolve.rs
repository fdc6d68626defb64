//! The closure of a request over `Depends` and `Pre-Depends`.
//!
//! Choices are apt's: the preferred version of each package, the first alternative that can be
//! met, of packages that stand for another the one that a system needs most. What only `Conflicts`
//! or `Breaks` say is not looked at: the packages are unpacked side by side and never installed.

use super::index::Index;
use super::relation::{self, Group, Relation};
use std::collections::HashMap;

/// Packages tried before a request counts as one that cannot be met.
const STEPS: usize = 100_000;
/// Longest chain of packages that need each other.
const DEPTH: usize = 500;

/// Why a request cannot be met.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No suite has a package of this name, or of this version.
    NoSuchPackage(String),
    /// A package needs something that there is not.
    Unmet(String),
}

/// The packages that the wanted ones need, themselves included, each after what it needs. A wanted
/// one is `NAME` or `NAME=VERSION`.
pub(super) fn closure(
    index: &Index<'_>,
    wanted: &[String],
    target: Option<&str>,
    arch: &str,
) -> Result<Vec<usize>, Refusal> {
    let mut work = Work {
        index,
        target,
        arch,
        chosen: HashMap::new(),
        order: Vec::new(),
        done: Vec::new(),
        steps: 0,
    };
    let mut first = Vec::new();
    for w in wanted {
        let i = work.wanted(w).ok_or(Refusal::NoSuchPackage(w.clone()))?;
        // What is asked for answers alternatives wherever they come up.
        work.choose(i);
        first.push(i);
    }
    for i in first {
        work.needs(i, 0).map_err(Refusal::Unmet)?;
    }
    Ok(work.done)
}

struct Work<'i, 't> {
    index: &'i Index<'t>,
    target: Option<&'i str>,
    arch: &'i str,
    /// One version of each package.
    chosen: HashMap<&'t str, usize>,
    /// What was chosen, in the order in which it was, to go back.
    order: Vec<&'t str>,
    /// What was chosen and has all that it needs.
    done: Vec<usize>,
    steps: usize,
}

impl<'t> Work<'_, 't> {
    fn wanted(&self, wanted: &str) -> Option<usize> {
        let (name, version) = match wanted.split_once('=') {
            Some((name, version)) => (name, Some(version)),
            None => (wanted, None),
        };
        let mut versions = self.index.versions(name, self.target).into_iter();
        if let Some(v) = version {
            return versions.find(|i| self.index.record(*i).version == v);
        }
        versions.next().or_else(|| {
            // a name that only one package stands for means that package
            let mut all = self.index.providers(name).iter().map(|(i, _)| *i);
            let one = all.next()?;
            let name = self.index.record(one).name;
            all.all(|i| self.index.record(i).name == name)
                .then(|| self.index.versions(name, self.target)[0])
        })
    }

    fn choose(&mut self, i: usize) {
        let name = self.index.record(i).name;
        if self.chosen.insert(name, i).is_none() {
            self.order.push(name);
        }
    }

    /// Chooses what a package needs that is chosen itself.
    fn needs(&mut self, i: usize, depth: usize) -> Result<(), String> {
        let r = *self.index.record(i);
        self.steps += 1;
        if self.steps > STEPS || depth > DEPTH {
            return Err(format!(
                "{} {}: too many packages to try",
                r.name, r.version
            ));
        }
        for field in [r.pre_depends, r.depends] {
            let groups = relation::parse(field).map_err(|part| {
                format!(
                    "{} {}: its dependency `{part}` cannot be read",
                    r.name, r.version
                )
            })?;
            for group in groups {
                if !group.iter().any(|a| self.met(a)) {
                    self.meet(&group, depth)
                        .map_err(|why| format!("{} {} needs {why}", r.name, r.version))?;
                }
            }
        }
        self.done.push(i);
        Ok(())
    }

    /// Whether what is chosen answers.
    fn met(&self, wanted: &Relation<'_>) -> bool {
        if !self.is_own(wanted) {
            return false;
        }
        let chosen = |i: usize| self.chosen.get(self.index.record(i).name) == Some(&i);
        let named = self.chosen.get(wanted.name);
        named.is_some_and(|i| wanted.takes(self.index.record(*i).version))
            || self
                .index
                .providers(wanted.name)
                .iter()
                .any(|(i, p)| chosen(*i) && wanted.takes_provided(p))
    }

    fn is_own(&self, wanted: &Relation<'_>) -> bool {
        wanted.arch.is_none_or(|a| a == self.arch)
    }

    /// Chooses the first alternative that can be met, with all that it needs.
    fn meet(&mut self, group: &Group<'_>, depth: usize) -> Result<(), String> {
        let mut why = None;
        for wanted in group {
            for i in self.options(wanted) {
                let (chosen, done) = (self.order.len(), self.done.len());
                self.choose(i);
                match self.needs(i, depth + 1) {
                    Ok(()) => return Ok(()),
                    Err(e) => {
                        why.get_or_insert(e);
                        for name in self.order.drain(chosen..) {
                            self.chosen.remove(name);
                        }
                        self.done.truncate(done);
                    }
                }
            }
        }
        Err(why.unwrap_or_else(|| {
            let names = group.iter().map(|a| match a.version {
                Some((_, v)) => format!("{} (of another version than there is: {v})", a.name),
                None => a.name.to_string(),
            });
            format!(
                "{}, which no suite has",
                names.collect::<Vec<_>>().join(" or ")
            )
        }))
    }

    /// Packages that answer, the preferred one first. Other versions of it come last: apt looks at
    /// the preferred one alone.
    fn options(&self, wanted: &Relation<'_>) -> Vec<usize> {
        if !self.is_own(wanted) {
            return Vec::new();
        }
        let free = |i: &usize| !self.chosen.contains_key(self.index.record(*i).name);
        let versions = self.index.versions(wanted.name, self.target);
        let takes = |i: &usize| wanted.takes(self.index.record(*i).version);
        let named: Vec<usize> = versions.iter().copied().filter(takes).collect();
        let preferred = named.first().filter(|i| versions.first() == Some(i));
        let mut providers: Vec<usize> = Vec::new();
        for (i, provided) in self.index.providers(wanted.name) {
            let name = self.index.record(*i).name;
            let first = self.index.versions(name, self.target).first() == Some(i);
            if first && wanted.takes_provided(provided) && !providers.contains(i) {
                providers.push(*i);
            }
        }
        providers.sort_by_key(|i| self.index.record(*i).rank);
        let mut all: Vec<usize> = preferred.copied().into_iter().chain(providers).collect();
        for i in named {
            if !all.contains(&i) {
                all.push(i);
            }
        }
        all.retain(free);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::tests::list;
    use super::*;

    fn ask(packages: &[&str], wanted: &[&str]) -> Result<String, Refusal> {
        let lists = [
            list("s", 500, packages),
            list(
                "b",
                100,
                &["a\nVersion: 9\nDepends: libb (>= 9)", "libb\nVersion: 9"],
            ),
        ];
        let index = Index::new(&lists);
        let target = wanted.contains(&"a=9").then_some("b");
        let wanted: Vec<String> = wanted.iter().map(|w| w.to_string()).collect();
        let set = closure(&index, &wanted, target, "arm64")?;
        let name = |i| format!("{} {}", index.record(i).name, index.record(i).version);
        Ok(set.into_iter().map(name).collect::<Vec<_>>().join(", "))
    }

    const A: [&str; 3] = [
        "a\nVersion: 1\nDepends: libb (>= 1), c | d\nPre-Depends: e",
        "libb\nVersion: 1",
        "e\nVersion: 5",
    ];

    fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
        A.iter().chain(more).copied().collect()
    }

    #[test]
    fn what_is_needed_comes_first_and_once() {
        let packages = with(&["c\nVersion: 1\nDepends: a, libb"]);
        assert_eq!(ask(&packages, &["a"]).unwrap(), "e 5, libb 1, c 1, a 1");
    }

    #[test]
    fn the_first_alternative_that_can_be_met_is_taken() {
        let d = "d\nVersion: 1";
        let c = "c\nVersion: 1\nDepends: e, nowhere";
        assert_eq!(
            ask(&with(&[c, d]), &["a"]).unwrap(),
            "e 5, libb 1, d 1, a 1"
        );
        // one that is asked for answers before the first
        let c = "c\nVersion: 1";
        assert_eq!(
            ask(&with(&[c, d]), &["a", "d"]).unwrap(),
            "e 5, libb 1, a 1, d 1"
        );
    }

    #[test]
    fn packages_stand_for_others() {
        let p = "p\nVersion: 7\nProvides: x, c (= 2)\nPriority: optional";
        let q = "q\nVersion: 1\nProvides: c\nPriority: important";
        assert_eq!(
            ask(&with(&[p, q]), &["a"]).unwrap(),
            "e 5, libb 1, q 1, a 1"
        );
        let a = "a2\nVersion: 1\nDepends: c (>= 2)";
        assert_eq!(ask(&[a, p, q], &["a2"]).unwrap(), "p 7, a2 1");
        assert_eq!(ask(&[p], &["x"]).unwrap(), "p 7");
        assert_eq!(
            ask(&[p, q], &["c"]),
            Err(Refusal::NoSuchPackage("c".into()))
        );
    }

    #[test]
    fn the_suite_asked_for_is_preferred_for_what_is_needed_too() {
        assert_eq!(
            ask(&with(&["c\nVersion: 1"]), &["a=9"]).unwrap(),
            "libb 9, a 9"
        );
        // an older suite has too old a version: another one does
        let z = "z\nVersion: 1\nDepends: libb (>= 9)";
        assert_eq!(ask(&with(&[z]), &["z"]).unwrap(), "libb 9, z 1");
    }

    #[test]
    fn what_cannot_be_met_is_named_with_who_needs_it() {
        let said = ask(&A, &["a"]).unwrap_err();
        assert_eq!(
            said,
            Refusal::Unmet("a 1 needs c or d, which no suite has".into())
        );
        for none in ["none", "a=2"] {
            assert_eq!(ask(&A, &[none]), Err(Refusal::NoSuchPackage(none.into())));
        }
        let other = "x\nVersion: 1\nDepends: e:amd64";
        assert!(matches!(
            ask(&with(&[other]), &["x"]),
            Err(Refusal::Unmet(_))
        ));
    }

    #[test]
    fn alternatives_without_end_are_given_up() {
        // each of thirty levels has two ways, and the last has none
        let mut packages = Vec::new();
        for i in 0..30 {
            for side in ["l", "r"] {
                let next = i + 1;
                packages.push(format!("{side}{i}\nVersion: 1\nDepends: l{next} | r{next}"));
            }
        }
        let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
        assert!(matches!(ask(&packages, &["l0"]), Err(Refusal::Unmet(_))));
    }
}
