//! A client of Debian's archive for machines without apt and dpkg.
//!
//! ```text
//! InRelease ─ gpgv ─► sizes and hashes of Packages ─► sizes and hashes of .deb files
//! ```
//!
//! Verified lists lie in the cache folder, as apt keeps them. Of other machines' package managers
//! nothing is known: to this client nothing is installed.

use super::index::{Index, List, Record};
use super::resolve::{self, Refusal};
use super::transport::{self, hex, is_full, is_whole, Known, Wanted};
use super::{deb, deb_name, keyring, release, DebFile, Host, Offer};
use crate::cache::Cache;
use crate::error::{BoardError, FetchFailure};
use crate::event::{progress, Sink};
use crate::sources::Suite;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// Most bytes of a list; those of Debian's suites have 50 to 70 MB.
const MOST_LIST: u64 = 512 << 20;
/// Most bytes of a package.
const MOST_PACKAGE: u64 = 4 << 30;

/// The client: one architecture, a list of suites.
#[derive(Debug)]
pub struct Plain<'a> {
    cache: &'a Cache,
    host: Host,
    /// Its folder, relative to the cache's root.
    place: PathBuf,
    dir: PathBuf,
    arch: &'static str,
    suites: Vec<Suite>,
}

/// What is known of a list in the cache.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    suite: String,
    uri: String,
    priority: i32,
    sha256: String,
}

impl<'a> Plain<'a> {
    /// Sets up `plain/NAME` in the cache. The caller holds the cache's lock.
    ///
    /// # Errors
    /// When the folder cannot be written, or Debian's keyring is missing.
    pub fn new(
        cache: &'a Cache,
        host: &Host,
        name: &str,
        arch: &'static str,
        suites: Vec<Suite>,
    ) -> Result<Plain<'a>, BoardError> {
        let place = Path::new("plain").join(name);
        let dir = cache.dir(&place)?;
        for sub in ["lists", "archives"] {
            cache.dir(place.join(sub))?;
        }
        keyring(host)?;
        let plain = Plain {
            cache,
            host: host.clone(),
            place,
            dir,
            arch,
            suites,
        };
        plain.drop_partial()?;
        Ok(plain)
    }

    /// Temporary files are here; what a killed process left is of no use.
    fn partial(&self) -> PathBuf {
        self.dir.join("partial")
    }

    fn drop_partial(&self) -> Result<(), BoardError> {
        let partial = self.partial();
        match fs::remove_dir_all(&partial) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(BoardError::cache("remove", &partial)(e))
            }
            _ => {}
        }
        fs::create_dir(&partial).map_err(BoardError::cache("create", &partial))
    }

    /// Where the list of a suite is, and what is known of it, relative to the cache's root. Mirrors
    /// are told apart: their lists may differ.
    fn list_places(&self, suite: &Suite) -> [PathBuf; 2] {
        let uri = hex(&Sha256::digest(suite.uri.as_bytes())[..4]);
        let stem = format!("{}-{uri}", suite.name.replace('/', "_"));
        let lists = self.place.join("lists");
        [".Packages", ".json"].map(|end| lists.join(format!("{stem}{end}")))
    }

    fn kept(&self, suite: &Suite) -> Option<Kept> {
        let [list, record] = self.list_places(suite);
        let kept = self.cache.read_record(record)?;
        self.cache.path(list).is_file().then_some(kept)
    }

    fn fresh(&self, suite: &Suite, max_age: Duration) -> bool {
        let [_, record] = self.list_places(suite);
        let meta = fs::metadata(self.cache.path(record)).ok();
        let time = meta.and_then(|m| m.modified().ok());
        let age = time.and_then(|t| SystemTime::now().duration_since(t).ok());
        age.is_some_and(|a| a <= max_age) && self.kept(suite).is_some()
    }

    /// Brings the package lists up to date, except those younger than `max_age`.
    ///
    /// A suite that cannot be had is left out as long as one can.
    ///
    /// # Errors
    /// When none can be had and none was before, a program is missing, or the disk is full.
    pub fn update(
        &self,
        max_age: Duration,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<(), BoardError> {
        let mut first_error = None;
        for suite in self.suites.iter().filter(|s| !self.fresh(s, max_age)) {
            match self.update_one(suite, cancel, sink) {
                Ok(()) => {}
                Err(
                    e @ BoardError::Fetch {
                        failure: FetchFailure::DiskFull,
                        ..
                    },
                ) => return Err(e),
                Err(e @ BoardError::Fetch { .. }) => _ = first_error.get_or_insert(e),
                Err(e) => return Err(e),
            }
        }
        // A list fetched earlier still serves when the mirror is away.
        match first_error {
            Some(e) if self.suites.iter().all(|s| self.kept(s).is_none()) => Err(e),
            _ => Ok(()),
        }
    }

    fn update_one(
        &self,
        suite: &Suite,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<(), BoardError> {
        let what = format!("index of {} ({})", suite.name, self.arch);
        progress(sink, &what, None);
        let partial = self.partial();
        let release = release::fetch(&self.host, suite, &what, &partial, cancel)?;
        let name = format!("main/binary-{}/Packages", self.arch);
        let not_there = |why: String| BoardError::Fetch {
            package: what.clone(),
            folder: self.dir.join("lists"),
            failure: FetchFailure::NotThere,
            detail: format!("{}/dists/{}/InRelease: {why}", suite.uri, suite.name),
        };
        let (size, sha256) = release
            .files
            .get(&name)
            .ok_or_else(|| not_there(format!("it names no {name}")))?;
        let whole = Known {
            size: *size,
            sha256,
        };
        let [list, record] = self.list_places(suite);
        if self.kept(suite).is_none_or(|k| k.sha256 != *sha256) {
            let mut kinds = ["xz", "gz"].into_iter();
            let found = kinds.find_map(|k| Some((k, release.files.get(&format!("{name}.{k}"))?)));
            let (kind, (size, packed)) = found
                .filter(|(_, (size, _))| size.max(&whole.size) <= &MOST_LIST)
                .ok_or_else(|| not_there(format!("it names no {name}.xz that can be used")))?;
            let below = match release.by_hash {
                true => format!("main/binary-{}/by-hash/SHA256/{packed}", self.arch),
                false => format!("{name}.{kind}"),
            };
            let scratch = tempfile::tempdir_in(&partial)
                .map_err(BoardError::cache("create a folder in", &partial))?;
            let file = scratch.path().join("list");
            let wanted = Wanted {
                what: &what,
                url: &format!("{}/dists/{}/{below}", suite.uri, suite.name),
                to: &file,
                known: Some(Known {
                    size: *size,
                    sha256: packed,
                }),
                limit: MOST_LIST,
            };
            transport::fetch(&self.host, &wanted, cancel, &mut |n| {
                progress(sink, &what, Some(percent(n, *size)));
            })?;
            let list = self.cache.path(list);
            self.write_list(&file, kind, whole, &list, &what, cancel)?;
        }
        let kept = Kept {
            suite: suite.name.clone(),
            uri: suite.uri.clone(),
            priority: release.priority(),
            sha256: sha256.clone(),
        };
        self.cache.write_record(record, &kept)
    }

    /// Unpacks a list and puts it in its place if it is the one that the index means.
    fn write_list(
        &self,
        packed: &Path,
        kind: &str,
        known: Known<'_>,
        list: &Path,
        what: &str,
        cancel: &AtomicBool,
    ) -> Result<(), BoardError> {
        let failed = |failure, detail: String| BoardError::Fetch {
            package: what.into(),
            folder: self.dir.join("lists"),
            failure,
            detail,
        };
        let wrong = |why: String| failed(FetchFailure::Damaged, format!("Packages.{kind}: {why}"));
        let read = |e: io::Error| wrong(e.to_string());
        let file = File::open(packed).map_err(BoardError::cache("read", packed))?;
        let mut from = deb::decoder(kind, BufReader::new(file)).map_err(read)?;
        let unpacked = packed.with_extension("unpacked");
        let mut to = File::create(&unpacked).map_err(BoardError::cache("create", &unpacked))?;
        let (mut bytes, mut hash) = (0, Sha256::new());
        let mut buffer = vec![0; 256 * 1024];
        loop {
            if cancel.load(Ordering::Relaxed) {
                return Err(BoardError::Cancelled);
            }
            let part = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => &buffer[..n],
                Err(e) => return Err(read(e)),
            };
            bytes += part.len() as u64;
            if bytes > known.size {
                return Err(wrong(format!("more than the {} bytes stated", known.size)));
            }
            hash.update(part);
            to.write_all(part).map_err(|e| match is_full(&e) {
                true => failed(FetchFailure::DiskFull, e.to_string()),
                false => BoardError::cache("write", &unpacked)(e),
            })?;
        }
        if bytes != known.size || !hex(&hash.finalize()).eq_ignore_ascii_case(known.sha256) {
            return Err(wrong("not what the index states once unpacked".into()));
        }
        fs::rename(&unpacked, list).map_err(BoardError::cache("create", list))
    }

    /// The lists that are there.
    fn lists(&self) -> Result<Vec<List>, BoardError> {
        let mut lists = Vec::new();
        for suite in &self.suites {
            let Some(kept) = self.kept(suite) else {
                continue;
            };
            let path = self.cache.path(&self.list_places(suite)[0]);
            let mut data = Vec::new();
            let read = File::open(&path).and_then(|f| f.take(MOST_LIST).read_to_end(&mut data));
            read.map_err(BoardError::cache("read", &path))?;
            lists.push(List {
                suite: kept.suite,
                uri: kept.uri,
                priority: kept.priority,
                text: String::from_utf8(data)
                    .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
            });
        }
        Ok(lists)
    }

    fn suite_names(&self) -> String {
        let names: Vec<&str> = self.suites.iter().map(|s| s.name.as_str()).collect();
        names.join(", ")
    }

    /// Names of packages that match a regular expression.
    ///
    /// # Errors
    /// When a list cannot be read, or the expression is none.
    pub fn names(&self, pattern: &str) -> Result<Vec<String>, BoardError> {
        let pattern = regex::Regex::new(pattern).map_err(|e| BoardError::Fetch {
            package: pattern.into(),
            folder: self.dir.clone(),
            failure: FetchFailure::Other,
            detail: e.to_string(),
        })?;
        let lists = self.lists()?;
        let index = Index::new(&lists);
        let names = index.names().into_iter();
        Ok(names
            .filter(|n| pattern.is_match(n))
            .map(String::from)
            .collect())
    }

    /// Versions of the named packages, newest first.
    ///
    /// # Errors
    /// When a list cannot be read.
    pub fn offers(&self, names: &[String]) -> Result<Vec<Offer>, BoardError> {
        Ok(Index::new(&self.lists()?).offers(names))
    }

    /// Fetches exactly one package, without what it depends on, and returns its file.
    ///
    /// # Errors
    /// When it cannot be fetched or is not what the index says.
    pub fn fetch_one(
        &self,
        offer: &Offer,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<PathBuf, BoardError> {
        let what = format!("{} {}", offer.package, offer.version);
        progress(sink, &what, None);
        let lists = self.lists()?;
        let index = Index::new(&lists);
        let record = self.exactly(&index, &offer.package, &offer.version)?;
        self.fetch(record, cancel, &mut |n| {
            progress(sink, &what, Some(percent(n, record.size)));
        })
    }

    fn exactly<'i, 't>(
        &self,
        index: &'i Index<'t>,
        package: &str,
        version: &str,
    ) -> Result<&'i Record<'t>, BoardError> {
        let found = index.exactly(package, version);
        found.ok_or_else(|| BoardError::NoSuchPackage {
            package: format!("{package} {version}"),
            arch: self.arch,
            suites: self.suite_names(),
        })
    }

    /// Fetches a package, unless it is there.
    fn fetch(
        &self,
        record: &Record<'_>,
        cancel: &AtomicBool,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, BoardError> {
        let name = deb_name(record.name, record.version, record.arch);
        let place = self.dir.join("archives").join(&name);
        let known = Known {
            size: record.size,
            sha256: record.sha256,
        };
        if is_whole(&place, known) {
            return Ok(place);
        }
        let partial = self.partial().join("package");
        let wanted = Wanted {
            what: &format!("{} {}", record.name, record.version),
            url: &record.url(),
            to: &partial,
            known: Some(known),
            limit: MOST_PACKAGE,
        };
        transport::fetch(&self.host, &wanted, cancel, on_bytes)?;
        fs::rename(&partial, &place).map_err(BoardError::cache("create", &place))?;
        Ok(place)
    }

    /// The packages that these need, themselves included.
    ///
    /// # Errors
    /// When a package does not exist or its dependencies cannot be met.
    pub fn resolve(
        &self,
        packages: &[String],
        target_suite: Option<&str>,
    ) -> Result<Vec<DebFile>, BoardError> {
        let lists = self.lists()?;
        let index = Index::new(&lists);
        let set = resolve::closure(&index, packages, target_suite, self.arch);
        let set = set.map_err(|refusal| match refusal {
            Refusal::NoSuchPackage(package) => BoardError::NoSuchPackage {
                package,
                arch: self.arch,
                suites: self.suite_names(),
            },
            Refusal::Unmet(why) => BoardError::Fetch {
                package: packages.join(" "),
                folder: self.dir.clone(),
                failure: FetchFailure::Other,
                detail: format!("{why} ({})", self.suite_names()),
            },
        })?;
        let file = |i| {
            let r = index.record(i);
            DebFile {
                package: r.name.into(),
                version: r.version.into(),
                file: deb_name(r.name, r.version, r.arch),
            }
        };
        Ok(set.into_iter().map(file).collect())
    }

    /// Fetches the set found by [`Plain::resolve`] and returns its files in that order. Those that
    /// an interrupted fetch left are not fetched again.
    ///
    /// # Errors
    /// When something cannot be fetched or is not what the index says.
    pub fn fetch_set(
        &self,
        packages: &[String],
        set: &[DebFile],
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<Vec<PathBuf>, BoardError> {
        let what = format!("{} ({} packages)", packages.join(" "), set.len());
        progress(sink, &what, None);
        let lists = self.lists()?;
        let index = Index::new(&lists);
        let records = set
            .iter()
            .map(|d| self.exactly(&index, &d.package, &d.version));
        let records = records.collect::<Result<Vec<_>, _>>()?;
        let total = records.iter().map(|r| r.size).fold(0, u64::saturating_add);
        let (mut before, mut files) = (0, Vec::new());
        for record in records {
            files.push(self.fetch(record, cancel, &mut |n| {
                progress(sink, &what, Some(percent(before + n, total)));
            })?);
            before += record.size;
        }
        Ok(files)
    }

    /// The cache this works in.
    pub fn cache(&self) -> &'a Cache {
        self.cache
    }
}

fn percent(part: u64, whole: u64) -> u8 {
    (part.saturating_mul(100) / whole.max(1)).min(100) as u8
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod tests;
