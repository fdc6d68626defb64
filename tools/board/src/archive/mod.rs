//! Debian's archive: packages of one architecture out of a list of suites.
//!
//! [`Archive`] is apt where the machine has it ([`apt`]), and a client of our own elsewhere
//! ([`plain`]); who fetches does not know which.
//!
//! ```text
//! mirror ─► Archive ─┬─ apt    apt-get, apt-cache, dpkg-deb
//!                    └─ plain  release (gpgv) ─► index ─► resolve ─► transport (curl) ─► deb
//! ```

pub mod apt;
mod control;
mod deb;
mod index;
pub mod mirror;
pub mod parsers;
pub mod plain;
mod relation;
mod release;
mod resolve;
mod transport;

use crate::cache::Cache;
use crate::error::{BoardError, FetchFailure};
use crate::event::Sink;
use crate::sources::Suite;
use apt::Apt;
pub(crate) use control::{paragraphs, Paragraph};
use mirror::Mirror;
use plain::Plain;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const KEYRINGS: [&str; 2] = [
    "usr/share/keyrings/debian-archive-keyring.gpg",
    "usr/share/keyrings/debian-archive-keyring.pgp",
];

/// Host programs and files, replaceable in tests, and the mirror that was named.
#[derive(Clone, Debug)]
pub struct Host {
    /// Root of the file system with `etc/apt`, the keyring and dpkg's status.
    pub root: PathBuf,
    /// Folder with the programs, such as `apt-get` or `curl`; `None` is the search path.
    pub programs: Option<PathBuf>,
    /// Mirror that was named.
    pub mirror: Option<Mirror>,
}

impl Default for Host {
    /// This machine, with the mirror that the environment names.
    fn default() -> Host {
        Host {
            root: "/".into(),
            programs: None,
            mirror: Mirror::of_environment(),
        }
    }
}

impl Host {
    pub(crate) fn command(&self, name: &str) -> Command {
        match &self.programs {
            Some(dir) => Command::new(dir.join(name)),
            None => Command::new(name),
        }
    }

    fn has(&self, program: &str) -> bool {
        match &self.programs {
            Some(dir) => dir.join(program).is_file(),
            None => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
            }
        }
    }

    /// Whether apt does the work here.
    fn has_apt(&self) -> bool {
        self.has("apt-get") && self.has("dpkg-deb")
    }
}

/// Debian's keyring.
fn keyring(host: &Host) -> Result<PathBuf, BoardError> {
    let mut places = KEYRINGS.iter().map(|k| host.root.join(k));
    places
        .find(|k| k.is_file())
        .ok_or_else(|| BoardError::NoTool {
            what: format!("/{}", KEYRINGS[0]),
            package: "debian-archive-keyring (on Fedora debian-keyring)",
        })
}

/// How old package lists may be before they are fetched anew.
const LISTS_AGE: Duration = Duration::from_secs(24 * 3600);

/// Does something with lists of at most a day, and once more with new ones when the archive no
/// longer has what they name: versions rotate out of it.
pub(crate) fn with_lists<T>(
    refresh: bool,
    mut work: impl FnMut(Duration) -> Result<T, BoardError>,
) -> Result<T, BoardError> {
    if !refresh {
        match work(LISTS_AGE) {
            Err(BoardError::Fetch {
                failure: FetchFailure::NotThere,
                ..
            }) => {}
            done => return done,
        }
    }
    work(Duration::ZERO)
}

/// What counts as installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// What the machine has, except packages whose name starts with this. Without dpkg nothing is
    /// known of it.
    HostExcept(&'static str),
    /// Nothing.
    Nothing,
}

/// A package version that a suite offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Package name.
    pub package: String,
    /// Debian version.
    pub version: String,
    /// Suite.
    pub suite: String,
}

/// A package file of a resolved set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebFile {
    /// Package name.
    pub package: String,
    /// Debian version.
    pub version: String,
    /// File name in the archives folder.
    pub file: String,
}

fn deb_name(package: &str, version: &str, arch: &str) -> String {
    format!("{package}_{}_{arch}.deb", version.replace(':', "%3a"))
}

/// A client of Debian's archive: one architecture, a list of suites, a view of what is installed.
#[derive(Debug)]
pub enum Archive<'a> {
    /// Through the machine's apt and dpkg.
    Apt(Apt<'a>),
    /// Without them.
    Plain(Plain<'a>),
}

impl<'a> Archive<'a> {
    /// Sets up a client's folder in the cache: apt's where the machine has `apt-get` and
    /// `dpkg-deb`. The caller holds the cache's lock.
    ///
    /// # Errors
    /// When the folder cannot be written, or Debian's keyring is missing.
    pub fn new(
        cache: &'a Cache,
        host: &Host,
        name: &str,
        arch: &'static str,
        suites: Vec<Suite>,
        installed: Installed,
    ) -> Result<Archive<'a>, BoardError> {
        Ok(match host.has_apt() {
            true => Archive::Apt(Apt::new(cache, host, name, arch, suites, installed)?),
            false => Archive::Plain(Plain::new(cache, host, name, arch, suites)?),
        })
    }

    /// Brings the package lists up to date, except those younger than `max_age`.
    ///
    /// A suite that cannot be reached is left out as long as one can.
    ///
    /// # Errors
    /// When none can be reached and none was before.
    pub fn update(
        &self,
        max_age: Duration,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<(), BoardError> {
        match self {
            Archive::Apt(a) => a.update(max_age, cancel, sink),
            Archive::Plain(p) => p.update(max_age, cancel, sink),
        }
    }

    /// Names of packages that match a POSIX extended regular expression.
    ///
    /// # Errors
    /// When the lists cannot be read.
    pub fn names(&self, pattern: &str, cancel: &AtomicBool) -> Result<Vec<String>, BoardError> {
        match self {
            Archive::Apt(a) => a.names(pattern, cancel),
            Archive::Plain(p) => p.names(pattern),
        }
    }

    /// Versions of the named packages, newest first.
    ///
    /// # Errors
    /// When the lists cannot be read.
    pub fn offers(&self, names: &[String], cancel: &AtomicBool) -> Result<Vec<Offer>, BoardError> {
        match self {
            Archive::Apt(a) => a.offers(names, cancel),
            Archive::Plain(p) => p.offers(names),
        }
    }

    /// Fetches exactly one package, without what it depends on, and returns its file.
    ///
    /// # Errors
    /// When it cannot be fetched or verified.
    pub fn fetch_one(
        &self,
        offer: &Offer,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<PathBuf, BoardError> {
        match self {
            Archive::Apt(a) => a.fetch_one(offer, cancel, sink),
            Archive::Plain(p) => p.fetch_one(offer, cancel, sink),
        }
    }

    /// The set of packages that installing these would add: names with versions, and their files
    /// once fetched. A package is `NAME` or `NAME=VERSION`; what `target_suite` has is preferred.
    ///
    /// # Errors
    /// When a package does not exist or its dependencies cannot be met.
    pub fn resolve(
        &self,
        packages: &[String],
        target_suite: Option<&str>,
        cancel: &AtomicBool,
    ) -> Result<Vec<DebFile>, BoardError> {
        match self {
            Archive::Apt(a) => a.resolve(packages, target_suite, cancel),
            Archive::Plain(p) => p.resolve(packages, target_suite),
        }
    }

    /// Fetches the set found by [`Archive::resolve`] and returns its files in that order.
    ///
    /// # Errors
    /// When something cannot be fetched or verified.
    pub fn fetch_set(
        &self,
        packages: &[String],
        target_suite: Option<&str>,
        set: &[DebFile],
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<Vec<PathBuf>, BoardError> {
        match self {
            Archive::Apt(a) => a.fetch_set(packages, target_suite, set, cancel, sink),
            Archive::Plain(p) => p.fetch_set(packages, set, cancel, sink),
        }
    }

    /// Unpacks a package's files into a folder.
    ///
    /// # Errors
    /// When that fails, for example on a full disk.
    pub fn unpack(&self, deb: &Path, into: &Path, cancel: &AtomicBool) -> Result<(), BoardError> {
        match self {
            Archive::Apt(a) => a.unpack(deb, into, cancel),
            Archive::Plain(_) => deb::unpack(deb, into, cancel),
        }
    }

    /// The first file in a package that has one of the `wanted` paths; `None` when it has none.
    ///
    /// # Errors
    /// When the package cannot be read.
    pub fn extract(
        &self,
        deb: &Path,
        wanted: &[String],
        cancel: &AtomicBool,
    ) -> Result<Option<Vec<u8>>, BoardError> {
        match self {
            Archive::Apt(a) => a.extract(deb, wanted),
            Archive::Plain(_) => deb::extract(deb, wanted, cancel),
        }
    }

    /// Removes fetched archives: what was made of them is in the cache.
    pub fn forget_archives(&self, files: &[PathBuf]) {
        for f in files {
            // One left behind costs space only.
            let _ = fs::remove_file(f);
        }
    }

    /// The cache this works in.
    pub fn cache(&self) -> &'a Cache {
        match self {
            Archive::Apt(a) => a.cache(),
            Archive::Plain(p) => p.cache(),
        }
    }
}
