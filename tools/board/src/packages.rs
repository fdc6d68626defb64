//! Programs from Debian packages, with everything they need, as initramfs archives.

use crate::arch::Arch;
use crate::archive::{mirror, with_lists, Archive, DebFile, Host, Installed};
use crate::cache::Cache;
use crate::cpio::{Kind, Writer};
use crate::error::BoardError;
use crate::event::{progress, Event, Sink};
use crate::seal::{self, Care, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What every guest has: busybox for the small tools, and bash as `/bin/sh`.
///
/// Debian's busybox shell runs its own applets in place of programs of the same name, whatever the
/// search path says: a script's `bzip2` would not be the package's. (Its applets that start
/// programs, such as `taskset` and `timeout`, do so too; with a path, `taskset 1 /usr/bin/bzip2`,
/// they start what was meant.)
pub const BASE: [&str; 2] = ["bash-static", "busybox-static"];

/// A set of packages in the cache, dependencies included, ready to be unpacked in a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageSet {
    /// Packages asked for, sorted.
    pub requested: Vec<String>,
    /// All packages in it, with versions.
    pub contents: Vec<String>,
    /// Archive, relative to the cache's root.
    archive: String,
}

impl PackageSet {
    /// The cpio archive (not compressed).
    pub fn archive(&self, cache: &Cache) -> PathBuf {
        cache.path(&self.archive)
    }

    /// What is wrong with its archive; `None` when it is as it was made. One from before there
    /// were seals counts as whole when its end is there, and is sealed.
    fn damage(&self, cache: &Cache, care: Care) -> Result<Option<String>, BoardError> {
        let archive = self.archive(cache);
        match seal::look(&archive, care)? {
            State::Whole => Ok(None),
            State::Damaged(why) => Ok(Some(why)),
            State::Unsealed if crate::cpio::has_end(&archive) => seal::put(&archive).map(|()| None),
            State::Unsealed => Ok(Some("it has no end".into())),
        }
    }
}

/// Package sets in the cache.
pub fn cached(cache: &Cache, arch: Arch) -> Vec<PackageSet> {
    let dir = cache.path(format!("packages/{arch}"));
    let mut all: Vec<PackageSet> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| e.path().extension().is_some_and(|x| x == "json"))
        .filter_map(|e| cache.read_record(e.path()))
        .collect();
    all.sort_by(|a, b| a.requested.cmp(&b.requested));
    all
}

/// Names of Debian packages: letters, digits, `+-.`.
fn check_names(names: &[String], arch: Arch) -> Result<(), BoardError> {
    let ok = |n: &str| {
        n.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && n.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c))
    };
    match names.iter().find(|n| !ok(n)) {
        Some(bad) => Err(BoardError::NoSuchPackage {
            package: format!("`{bad}` (not a package name)"),
            arch: arch.debian(),
            suites: "any suite".into(),
        }),
        None => Ok(()),
    }
}

/// The set for these packages, from the cache or newly fetched from the release that the machine itself
/// runs, or that was named with a mirror.
///
/// # Errors
/// When a package does not exist for the architecture, or cannot be fetched or unpacked.
pub fn obtain(
    cache: &Cache,
    host: &Host,
    arch: Arch,
    names: &[String],
    care: Care,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<PackageSet, BoardError> {
    let mut requested = names.to_vec();
    requested.sort();
    requested.dedup();
    check_names(&requested, arch)?;
    let record = record_of(arch, &requested);
    let have: Option<PackageSet> = cache
        .read_record(&record)
        .filter(|s: &PackageSet| s.requested == requested);
    let damage = match &have {
        Some(set) => set.damage(cache, care)?,
        None => None,
    };
    if let Some(why) = &damage {
        sink(Event::Warning(format!(
            "packages {} ({arch}) in the cache are damaged ({why}): they are fetched again",
            requested.join(" ")
        )));
    }
    let have = have.filter(|_| damage.is_none());
    if let Some(set) = have.clone().filter(|_| !care.refreshes()) {
        return Ok(set);
    }
    let found = with_lists(care.refreshes(), |age| {
        from_archive(cache, host, arch, requested.clone(), age, cancel, sink)
    });
    match found {
        Err(e @ BoardError::Fetch { .. }) => match have {
            Some(set) => {
                sink(Event::Note(format!(
                    "using cached {}: {e}",
                    set.requested.join(" ")
                )));
                Ok(set)
            }
            None => Err(match damage {
                Some(why) => BoardError::Damaged {
                    what: format!("packages {} ({arch})", requested.join(" ")),
                    why,
                    source: Box::new(e),
                },
                None => e,
            }),
        },
        other => other,
    }
}

fn record_of(arch: Arch, requested: &[String]) -> String {
    format!("packages/{arch}/{}.json", set_name(requested))
}

fn set_name(requested: &[String]) -> String {
    let mut name = requested.join("_");
    if name.len() > 120 {
        let mut h = DefaultHasher::new();
        name.hash(&mut h);
        name = format!(
            "{}-{:016x}",
            name.chars().take(100).collect::<String>(),
            h.finish()
        );
    }
    name
}

fn from_archive(
    cache: &Cache,
    host: &Host,
    arch: Arch,
    requested: Vec<String>,
    lists_age: Duration,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<PackageSet, BoardError> {
    let _lock = cache.lock(cancel, sink)?;
    let sources = mirror::sources(cache, host, cancel, sink)?;
    let backports = format!("{}-backports", sources.codename);
    let mut suites = sources.suites;
    suites.retain(|s| s.name != backports);
    let name = format!("guest-{arch}");
    let apt = Archive::new(
        cache,
        host,
        &name,
        arch.debian(),
        suites,
        Installed::Nothing,
    )?;
    apt.update(lists_age, cancel, sink)?;
    let (set, files) = if requested == BASE {
        fetch_base(&apt, arch, cancel, sink)?
    } else {
        let set = apt.resolve(&requested, None, cancel)?;
        let files = apt.fetch_set(&requested, None, &set, cancel, sink)?;
        (set, files)
    };
    let staging = cache.staging()?;
    let archive = staging.path().join("root.cpio");
    let out = File::create(&archive).map_err(BoardError::cache("create", &archive))?;
    let mut cpio = Writer::new(BufWriter::new(out));
    let mut tree = Tree::default();
    for (i, (deb, file)) in set.iter().zip(&files).enumerate() {
        progress(
            sink,
            format!("unpacking {}", deb.package),
            Some((i * 100 / set.len()) as u8),
        );
        let root = staging.path().join(format!("p{i}"));
        apt.unpack(file, &root, cancel)?;
        let keep_docs = requested != BASE && requested.contains(&deb.package);
        tree.add(&root, Path::new(""), keep_docs)
            .map_err(BoardError::cache("read", &root))?;
    }
    tree.write(&mut cpio)
        .map_err(BoardError::cache("write", &archive))?;
    let mut out = cpio
        .finish()
        .map_err(BoardError::cache("write", &archive))?;
    out.flush().map_err(BoardError::cache("write", &archive))?;
    drop(out);
    let contents: Vec<String> = set
        .iter()
        .map(|d| format!("{} {}", d.package, d.version))
        .collect();
    let place = format!("packages/{arch}/{}.cpio", content_name(&requested, &set));
    seal::put(&archive)?;
    cache.publish(&seal::place(&archive), format!("{place}.seal"))?;
    cache.publish(&archive, &place)?;
    let record = record_of(arch, &requested);
    let result = PackageSet {
        requested,
        contents,
        archive: place,
    };
    cache.write_record(&record, &result)?;
    apt.forget_archives(&files);
    Ok(result)
}

/// The static programs of [`BASE`] alone: what their packages depend on serves a login system, not
/// the guest.
fn fetch_base(
    apt: &Archive<'_>,
    arch: Arch,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<(Vec<DebFile>, Vec<PathBuf>), BoardError> {
    let (mut set, mut files) = (Vec::new(), Vec::new());
    for name in BASE {
        let offers = apt.offers(&[name.to_string()], cancel)?;
        let Some(offer) = offers.first() else {
            return Err(BoardError::NoSuchPackage {
                package: name.into(),
                arch: arch.debian(),
                suites: "the release that is used".into(),
            });
        };
        let file = apt.fetch_one(offer, cancel, sink)?;
        set.push(DebFile {
            package: offer.package.clone(),
            version: offer.version.clone(),
            file: file.display().to_string(),
        });
        files.push(file);
    }
    Ok((set, files))
}

/// The [`BASE`] set.
///
/// # Errors
/// As [`obtain`].
pub fn obtain_base(
    cache: &Cache,
    host: &Host,
    arch: Arch,
    care: Care,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<PackageSet, BoardError> {
    obtain(
        cache,
        host,
        arch,
        &BASE.map(String::from),
        care,
        cancel,
        sink,
    )
}

fn content_name(requested: &[String], set: &[DebFile]) -> String {
    let mut h = DefaultHasher::new();
    for d in set {
        (&d.package, &d.version).hash(&mut h);
    }
    format!("{}-{:016x}", set_name(requested), h.finish())
}

/// Files of several packages under their merged-/usr names, in an order that puts folders first.
#[derive(Default)]
struct Tree {
    entries: BTreeMap<String, Entry>,
}

enum Entry {
    Dir(u32),
    File(PathBuf, u32),
    Link(String),
}

/// Documentation in other languages, manuals and packaging files: never read in a guest.
const DROPPED: [&str; 6] = [
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bug",
    "usr/share/doc-base",
];

/// `/bin`, `/lib` and the like are links into `/usr` in the guest.
pub(crate) fn merged(path: &str) -> String {
    let first = path.split('/').next().unwrap_or_default();
    match ["bin", "sbin", "lib", "lib32", "lib64", "libx32"].contains(&first) {
        true => format!("usr/{path}"),
        false => path.to_string(),
    }
}

impl Tree {
    fn add(&mut self, root: &Path, below: &Path, keep_docs: bool) -> std::io::Result<()> {
        for entry in fs::read_dir(root.join(below))? {
            let entry = entry?;
            let relative = below.join(entry.file_name());
            let Some(name) = relative.to_str() else {
                continue;
            };
            let name = merged(name);
            let docs = name == "usr/share/doc" && !keep_docs;
            if docs || DROPPED.contains(&name.as_str()) {
                continue;
            }
            let meta = entry.metadata()?;
            let mode = meta.permissions().mode() & 0o7777;
            if meta.is_dir() {
                self.entries.entry(name).or_insert(Entry::Dir(mode));
                self.add(root, &relative, keep_docs)?;
            } else if meta.is_symlink() {
                let target = fs::read_link(entry.path())?;
                self.entries
                    .insert(name, Entry::Link(target.to_string_lossy().into_owned()));
            } else if meta.is_file() {
                self.entries.insert(name, Entry::File(entry.path(), mode));
            }
        }
        Ok(())
    }

    fn write<W: Write>(&self, cpio: &mut Writer<W>) -> std::io::Result<()> {
        for (name, entry) in &self.entries {
            match entry {
                Entry::Dir(mode) => cpio.add(name, *mode, Kind::Dir)?,
                Entry::File(path, mode) => cpio.add(name, *mode, Kind::File(&fs::read(path)?))?,
                Entry::Link(target) => cpio.add(name, 0o777, Kind::Link(target))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_merged() {
        assert_eq!(merged("bin/bzip2"), "usr/bin/bzip2");
        assert_eq!(merged("lib64"), "usr/lib64");
        assert_eq!(merged("library/x"), "library/x");
        assert_eq!(merged("usr/bin/x"), "usr/bin/x");
    }

    #[test]
    fn names_that_are_no_packages_are_refused_before_apt_sees_them() {
        let bad = |n: &str| check_names(&[n.to_string()], Arch::Arm64).is_err();
        assert!(bad("-o=Dir") && bad("a b") && bad("") && bad("Foo") && bad("x=1"));
        assert!(!bad("libstdc++6") && !bad("g++-12") && !bad("0ad"));
    }

    #[test]
    fn a_tree_keeps_docs_of_what_was_asked_for_only() {
        let t = tempfile::tempdir().unwrap();
        for f in [
            "lib/x.so",
            "usr/share/doc/a/examples",
            "usr/share/man/man1/a.1",
            "usr/bin/a",
        ] {
            let p = t.path().join(f);
            fs::create_dir_all(p.parent().unwrap()).unwrap();
            fs::write(p, "x").unwrap();
        }
        let names = |keep| {
            let mut tree = Tree::default();
            tree.add(t.path(), Path::new(""), keep).unwrap();
            tree.entries.into_keys().collect::<Vec<_>>()
        };
        let all = names(true);
        assert!(all.contains(&"usr/lib/x.so".to_string()), "{all:?}");
        assert!(
            all.contains(&"usr/share/doc/a/examples".to_string()),
            "{all:?}"
        );
        assert!(
            !all.iter().any(|n| n.starts_with("usr/share/man")),
            "{all:?}"
        );
        assert!(!names(false).iter().any(|n| n.starts_with("usr/share/doc")));
    }
}
