//! QEMU of the series the model plugin knows, run from the cache.

use crate::apt::{with_lists, Apt, Host, Installed};
use crate::arch::Arch;
use crate::cache::Cache;
use crate::child;
use crate::error::BoardError;
use crate::event::{progress, Event, Sink};
use crate::seal::{self, Care, State};
use crate::version;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The series whose internals the plugin knows.
pub const SERIES: &str = "10.0";
const PACKAGES: [&str; 2] = ["qemu-system-arm", "qemu-system-x86"];
const RECORD: &str = "qemu/qemu.json";

/// A QEMU in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qemu {
    /// Debian version of its packages.
    pub version: String,
    /// Folder below the cache's root that holds its files.
    folder: String,
    /// Packages unpacked there, with versions.
    pub packages: Vec<String>,
}

/// The QEMU in the cache, if there is one.
pub fn cached(cache: &Cache) -> Option<Qemu> {
    let qemu: Qemu = cache.read_record(RECORD)?;
    cache.path(&qemu.folder).is_dir().then_some(qemu)
}

/// The cached QEMU, or a newly fetched one.
///
/// # Errors
/// When the archive has none of the series, or it cannot be fetched, unpacked or started.
pub fn obtain(
    cache: &Cache,
    host: &Host,
    care: Care,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Qemu, BoardError> {
    let have = cached(cache);
    let damage = match &have {
        Some(q) => q.damage(cache, care, cancel)?,
        None => None,
    };
    if let (Some(q), Some(why)) = (&have, &damage) {
        sink(Event::Warning(format!(
            "QEMU {} in the cache is damaged ({why}): it is fetched again",
            q.version
        )));
    }
    let have = have.filter(|_| damage.is_none());
    if let Some(q) = have.clone().filter(|_| !care.refreshes()) {
        return Ok(q);
    }
    let found = with_lists(care.refreshes(), |age| {
        from_archive(cache, host, age, cancel, sink)
    });
    match found {
        Err(e @ BoardError::Fetch { .. }) => match (have, damage) {
            (Some(q), _) => Ok(q),
            (None, Some(why)) => Err(BoardError::Damaged {
                what: "QEMU".into(),
                why,
                source: Box::new(e),
            }),
            (None, None) => Err(e),
        },
        other => other,
    }
}

fn from_archive(
    cache: &Cache,
    host: &Host,
    lists_age: Duration,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Qemu, BoardError> {
    let _lock = cache.lock(cancel, sink)?;
    let sources = Apt::sources(host)?;
    let backports = format!("{}-backports", sources.codename);
    let mut suites = sources.suites.clone();
    if !suites.iter().any(|s| s.name == backports) {
        suites.push(sources.on_mirror(&backports));
    }
    // Libraries the machine has are used from there; its own QEMU is not, whatever its version.
    let arch = Arch::host().debian();
    let apt = Apt::new(
        cache,
        host,
        "qemu",
        arch,
        suites,
        Installed::HostExcept("qemu-system"),
    )?;
    apt.update(lists_age, cancel, sink)?;
    let offers = apt.offers(&[PACKAGES[0].to_string()], cancel)?;
    let Some(offer) = offers.iter().find(|o| in_series(&o.version)) else {
        return Err(BoardError::QemuVersion {
            found: match offers.is_empty() {
                true => "none".into(),
                false => offers
                    .iter()
                    .map(|o| o.version.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            },
            wanted: SERIES,
        });
    };
    let wanted: Vec<String> = PACKAGES
        .iter()
        .map(|p| format!("{p}={}", offer.version))
        .collect();
    let set = apt.resolve(&wanted, Some(&offer.suite), cancel)?;
    let folder = format!("qemu/{}", offer.version.replace([':', '/'], "_"));
    let qemu = Qemu {
        version: offer.version.clone(),
        folder,
        packages: set
            .iter()
            .map(|d| format!("{} {}", d.package, d.version))
            .collect(),
    };
    let same = cached(cache).is_some_and(|q| q == qemu);
    if same && qemu.damage(cache, Care::Check, cancel)?.is_none() {
        return Ok(qemu);
    }
    let files = apt.fetch_set(&wanted, Some(&offer.suite), &set, cancel, sink)?;
    let staging = cache.staging()?;
    let root = staging.path().join("root");
    for (i, deb) in files.iter().enumerate() {
        progress(sink, "unpacking QEMU", Some((i * 100 / files.len()) as u8));
        apt.unpack(deb, &root, cancel)?;
    }
    keep_what_runs(&root);
    seal::put(&root)?;
    cache.publish(&root, &qemu.folder)?;
    for a in [Arch::Arm64, Arch::Amd64] {
        qemu.check(cache, a, cancel)?;
    }
    cache.write_record(RECORD, &qemu)?;
    apt.forget_archives(&files);
    Ok(qemu)
}

/// 10.0.x, with or without an epoch.
fn in_series(debian: &str) -> bool {
    let upstream = debian.split_once(':').map_or(debian, |(_, v)| v);
    upstream
        .strip_prefix(SERIES)
        .is_some_and(|r| r.starts_with(['.', '+', '-']))
        && version::compare(upstream, SERIES).is_gt()
}

/// Drops emulators nobody starts and documentation: half of the size.
fn keep_what_runs(root: &Path) {
    for extra in [
        "usr/bin/qemu-system-arm",
        "usr/bin/qemu-system-i386",
        "usr/bin/qemu-system-x86_64-microvm",
        "usr/share/doc",
        "usr/share/man",
    ] {
        let path = root.join(extra);
        // What stays costs space only.
        let _ = if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
    }
}

impl Qemu {
    /// Where its files are.
    pub fn root(&self, cache: &Cache) -> PathBuf {
        cache.path(&self.folder)
    }

    /// A command for the emulator of an architecture, with its libraries, modules and firmware
    /// found in the cache.
    pub fn command(&self, cache: &Cache, arch: Arch) -> Command {
        let root = self.root(cache);
        let triplet = match Arch::host() {
            Arch::Arm64 => "aarch64-linux-gnu",
            Arch::Amd64 => "x86_64-linux-gnu",
        };
        let lib = root.join("usr/lib").join(triplet);
        let mut path = vec![lib.clone(), root.join("lib").join(triplet)];
        // Libraries with a folder of their own, named in ld.so.conf.d by packages whose scripts do
        // not run here.
        let inner = fs::read_dir(&lib)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path());
        path.extend(inner.filter(|p| p.is_dir() && !p.ends_with("qemu")));
        let outer = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        // An empty entry would mean the current folder.
        path.extend(std::env::split_paths(&outer).filter(|p| !p.as_os_str().is_empty()));
        let path: Vec<OsString> = path.into_iter().map(PathBuf::into_os_string).collect();
        let path = path.join(OsStr::new(":"));
        let mut c = Command::new(root.join("usr/bin").join(arch.qemu()));
        c.env("LD_LIBRARY_PATH", path)
            .env("QEMU_MODULE_DIR", lib.join("qemu"));
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            c.arg("-L").arg(root.join(firmware));
        }
        c
    }

    /// What is wrong with its files; `None` when they are as they were unpacked. One from before
    /// there were seals is judged by whether it starts, and sealed.
    fn damage(
        &self,
        cache: &Cache,
        care: Care,
        cancel: &AtomicBool,
    ) -> Result<Option<String>, BoardError> {
        let root = self.root(cache);
        match seal::look(&root, care)? {
            State::Whole => Ok(None),
            State::Damaged(why) => Ok(Some(why)),
            State::Unsealed => {
                for arch in [Arch::Arm64, Arch::Amd64] {
                    match self.check(cache, arch, cancel) {
                        Ok(()) => {}
                        Err(BoardError::Cancelled) => return Err(BoardError::Cancelled),
                        Err(e) => return Ok(Some(e.to_string())),
                    }
                }
                seal::put(&root).map(|()| None)
            }
        }
    }

    fn check(&self, cache: &Cache, arch: Arch, cancel: &AtomicBool) -> Result<(), BoardError> {
        let done = child::run(
            self.command(cache, arch).arg("--version"),
            cancel,
            &mut |_| (),
        )?;
        if done.status.success() && done.stdout.contains(&format!("version {SERIES}.")) {
            return Ok(());
        }
        Err(BoardError::QemuDied {
            status: done.status.to_string(),
            stderr: format!("{}{}", done.stdout, done.stderr),
            console: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_series_the_plugin_knows() {
        assert!(in_series("1:10.0.2+ds-2+deb13u1~bpo12+1"));
        assert!(in_series("10.0.13+ds-1"));
        assert!(!in_series("1:10.1.0-1"));
        assert!(!in_series("1:7.2+dfsg-7+deb12u16"));
        assert!(!in_series("1:110.0.2"));
    }
}
