//! Indices of packages (`Packages`) of several suites, as one.

use super::control::{paragraphs, Paragraph};
use super::relation::{self, Relation};
use super::Offer;
use crate::version;
use std::collections::HashMap;

/// The index of one suite.
#[derive(Debug)]
pub(super) struct List {
    /// Suite, as it is named on the mirror.
    pub suite: String,
    /// Address of its archive.
    pub uri: String,
    /// How much it is preferred, see [`super::release::Release::priority`].
    pub priority: i32,
    /// The text.
    pub text: String,
}

/// Priority of the suite that is asked for by name, as apt has it.
const TARGET: i32 = 990;

/// A package of one version in one suite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'t> {
    pub name: &'t str,
    pub version: &'t str,
    pub arch: &'t str,
    pub list: &'t List,
    pub depends: &'t str,
    pub pre_depends: &'t str,
    pub provides: &'t str,
    /// How much of a system needs it; less is more.
    pub rank: u8,
    /// Path below the address of the archive.
    pub filename: &'t str,
    pub size: u64,
    pub sha256: &'t str,
}

impl<'t> Record<'t> {
    /// `None` where something is missing or is no name of a file: such a package cannot be fetched.
    fn read(paragraph: Paragraph<'t>, list: &'t List) -> Option<Record<'t>> {
        let mut r = Record {
            name: "",
            version: "",
            arch: "",
            list,
            depends: "",
            pre_depends: "",
            provides: "",
            rank: 4,
            filename: "",
            size: 0,
            sha256: "",
        };
        for (field, value) in paragraph.fields() {
            match field {
                "Package" => r.name = value,
                "Version" => r.version = value,
                "Architecture" => r.arch = value,
                "Depends" => r.depends = value,
                "Pre-Depends" => r.pre_depends = value,
                "Provides" => r.provides = value,
                "Priority" => {
                    let ranks = ["required", "important", "standard", "optional"];
                    r.rank = ranks.iter().position(|p| *p == value).unwrap_or(4) as u8;
                }
                "Filename" => r.filename = value,
                "Size" => r.size = value.parse().ok()?,
                "SHA256" => r.sha256 = value,
                _ => {}
            }
        }
        // these three make up the name of a file in the cache
        let plain = |s: &str| {
            s.starts_with(|c: char| c.is_ascii_alphanumeric())
                && s.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.~:".contains(c))
        };
        let whole = plain(r.name) && plain(r.version) && plain(r.arch);
        (whole && !r.filename.is_empty() && r.sha256.len() == 64).then_some(r)
    }

    /// Address of the file.
    pub(super) fn url(&self) -> String {
        format!("{}/{}", self.list.uri, self.filename)
    }

    fn priority(&self, target: Option<&str>) -> i32 {
        match target {
            Some(suite) if suite == self.list.suite => TARGET,
            _ => self.list.priority,
        }
    }
}

/// All packages of all suites.
#[derive(Debug, Default)]
pub(super) struct Index<'t> {
    records: Vec<Record<'t>>,
    named: HashMap<&'t str, Vec<usize>>,
    provided: HashMap<&'t str, Vec<(usize, Relation<'t>)>>,
}

impl<'t> Index<'t> {
    pub(super) fn new(lists: &'t [List]) -> Index<'t> {
        let mut index = Index::default();
        for list in lists {
            let all = paragraphs(&list.text).filter_map(|p| Record::read(p, list));
            for r in all {
                let i = index.records.len();
                index.named.entry(r.name).or_default().push(i);
                // what cannot be read stands for nothing
                let provided = relation::parse(r.provides).unwrap_or_default();
                for p in provided.into_iter().flatten() {
                    index.provided.entry(p.name).or_default().push((i, p));
                }
                index.records.push(r);
            }
        }
        index
    }

    /// Names of all packages, sorted.
    pub(super) fn names(&self) -> Vec<&'t str> {
        let mut names: Vec<&str> = self.named.keys().copied().collect();
        names.sort_unstable();
        names
    }

    pub(super) fn record(&self, i: usize) -> &Record<'t> {
        &self.records[i]
    }

    /// The versions of a package, the preferred one first: by the priority of the suite, then the
    /// newest.
    pub(super) fn versions(&self, name: &str, target: Option<&str>) -> Vec<usize> {
        let mut all = self.named.get(name).cloned().unwrap_or_default();
        all.sort_by(|a, b| {
            let (a, b) = (self.record(*a), self.record(*b));
            let priority = b.priority(target).cmp(&a.priority(target));
            priority.then_with(|| version::compare(b.version, a.version))
        });
        all
    }

    /// Packages that stand for another, with what they say of it.
    pub(super) fn providers(&self, name: &str) -> &[(usize, Relation<'t>)] {
        self.provided.get(name).map_or(&[], Vec::as_slice)
    }

    /// A package of exactly this version.
    pub(super) fn exactly(&self, name: &str, version: &str) -> Option<&Record<'t>> {
        let mut all = self.named.get(name)?.iter().map(|i| self.record(*i));
        all.find(|r| r.version == version)
    }

    /// Versions of the named packages, newest first, each once.
    pub(super) fn offers(&self, names: &[String]) -> Vec<Offer> {
        let of = |name: &String| self.named.get(name.as_str()).into_iter().flatten();
        let records = names.iter().flat_map(of).map(|i| self.record(*i));
        let mut offers: Vec<Offer> = records
            .map(|r| Offer {
                package: r.name.into(),
                version: r.version.into(),
                suite: r.list.suite.clone(),
            })
            .collect();
        offers.sort_by(|a, b| version::compare(&b.version, &a.version));
        offers.dedup_by(|a, b| (&a.package, &a.version) == (&b.package, &b.version));
        offers
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A list of paragraphs without the fields that every one has.
    pub(in super::super) fn list(suite: &str, priority: i32, packages: &[&str]) -> List {
        let text = packages.iter().map(|p| {
            let sha = "0".repeat(64);
            format!("Package: {p}\nArchitecture: arm64\nFilename: pool/x.deb\nSize: 1\nSHA256: {sha}\n\n")
        });
        List {
            suite: suite.into(),
            uri: "http://m/debian".into(),
            priority,
            text: text.collect(),
        }
    }

    #[test]
    fn backports_are_there_and_not_preferred() {
        let lists = [
            list("s", 500, &["a\nVersion: 1", "a\nVersion: 1.1"]),
            list("s-backports", 100, &["a\nVersion: 2"]),
        ];
        let index = Index::new(&lists);
        let best = |target| index.record(index.versions("a", target)[0]).version;
        assert_eq!((best(None), best(Some("s-backports"))), ("1.1", "2"));
        let offers = index.offers(&["a".into(), "none".into()]);
        let versions: Vec<&str> = offers.iter().map(|o| o.version.as_str()).collect();
        assert_eq!(versions, ["2", "1.1", "1"]);
        assert_eq!(offers[0].suite, "s-backports");
        assert_eq!(index.names(), ["a"]);
    }

    #[test]
    fn names_that_would_leave_the_folder_are_no_packages() {
        let lists = [list(
            "s",
            500,
            &["../a\nVersion: 1", "b\nVersion: /1", "c\nVersion: 1"],
        )];
        assert_eq!(Index::new(&lists).names(), ["c"]);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(Package: a|Version: [0-9:]{0,3}|Size: .{0,4}|Provides: .{0,5}|[ \n].{0,5}){0,12}") {
            let lists = [List { suite: "s".into(), uri: "u".into(), priority: 500, text }];
            let index = Index::new(&lists);
            let _ = index.offers(&["a".to_string()]);
        }
    }
}
