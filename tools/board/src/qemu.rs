//! QEMU of the series the model plugin knows, run from the cache.

use crate::arch::Arch;
use crate::archive::{mirror, with_lists, Archive, Host, Installed};
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
    let sources = mirror::sources(cache, host, cancel, sink)?;
    let backports = format!("{}-backports", sources.codename);
    let mut suites = sources.suites.clone();
    if !suites.iter().any(|s| s.name == backports) {
        suites.push(sources.on_mirror(&backports));
    }
    // Libraries that dpkg knows of are used from the machine; its own QEMU is not, whatever its
    // version. Without dpkg, the libraries come along, down to libc.
    let arch = Arch::host().debian();
    let apt = Archive::new(
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

/// The name of Debian's folder of libraries.
fn triplet(arch: Arch) -> &'static str {
    match arch {
        Arch::Arm64 => "aarch64-linux-gnu",
        Arch::Amd64 => "x86_64-linux-gnu",
    }
}

impl Qemu {
    /// Where its files are.
    pub fn root(&self, cache: &Cache) -> PathBuf {
        cache.path(&self.folder)
    }

    /// The loader of its own libc, where that was fetched with it. (`lib64` has an absolute link
    /// to it, which leads to the machine's.)
    fn loader(&self, cache: &Cache) -> Option<PathBuf> {
        let (arch, root) = (Arch::host(), self.root(cache));
        let mut places = ["usr/lib", "lib"].into_iter().map(|l| root.join(l));
        places.find_map(|l| {
            let loader = l.join(triplet(arch)).join(match arch {
                Arch::Arm64 => "ld-linux-aarch64.so.1",
                Arch::Amd64 => "ld-linux-x86-64.so.2",
            });
            loader.is_file().then_some(loader)
        })
    }

    /// A command for the emulator of an architecture, with its libraries, modules and firmware
    /// found in the cache.
    pub fn command(&self, cache: &Cache, arch: Arch) -> Command {
        let root = self.root(cache);
        let triplet = triplet(Arch::host());
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
        let loader = self.loader(cache);
        if loader.is_none() {
            let outer = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
            // An empty entry would mean the current folder.
            path.extend(std::env::split_paths(&outer).filter(|p| !p.as_os_str().is_empty()));
        }
        let path: Vec<OsString> = path.into_iter().map(PathBuf::into_os_string).collect();
        let path = path.join(OsStr::new(":"));
        let program = root.join("usr/bin").join(arch.qemu());
        let mut c = match loader {
            Some(loader) => {
                let mut c = Command::new(loader);
                c.arg("--library-path").arg(path).arg(program);
                // The machine's libraries belong to another libc.
                c.env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
                c
            }
            None => {
                let mut c = Command::new(program);
                c.env("LD_LIBRARY_PATH", path);
                c
            }
        };
        c.env("QEMU_MODULE_DIR", lib.join("qemu"));
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
    fn a_libc_that_came_along_is_the_one_that_is_used() {
        let t = tempfile::tempdir().unwrap();
        let cache = Cache::at(t.path()).unwrap();
        let qemu = Qemu {
            version: "10.0.2".into(),
            folder: "qemu/x".into(),
            packages: Vec::new(),
        };
        let program = |c: &Command| PathBuf::from(c.get_program());
        let plain = program(&qemu.command(&cache, Arch::Arm64));
        assert!(plain.ends_with("qemu/x/usr/bin/qemu-system-aarch64"));
        let lib = qemu.root(&cache).join("lib").join(triplet(Arch::host()));
        fs::create_dir_all(&lib).unwrap();
        for name in ["ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2"] {
            fs::write(lib.join(name), "").unwrap();
        }
        let command = qemu.command(&cache, Arch::Arm64);
        assert!(program(&command).starts_with(&lib));
        let args: Vec<&OsStr> = command.get_args().take(3).collect();
        assert_eq!(args[0], "--library-path");
        let path = args[1].to_string_lossy();
        assert!(path.contains(&*lib.to_string_lossy()), "{path}");
        assert_eq!(args[2], plain);
        let library_path = command.get_envs().find(|(k, _)| *k == "LD_LIBRARY_PATH");
        assert_eq!(library_path, Some((OsStr::new("LD_LIBRARY_PATH"), None)));
    }

    #[test]
    fn only_the_series_the_plugin_knows() {
        assert!(in_series("1:10.0.2+ds-2+deb13u1~bpo12+1"));
        assert!(in_series("10.0.13+ds-1"));
        assert!(!in_series("1:10.1.0-1"));
        assert!(!in_series("1:7.2+dfsg-7+deb12u16"));
        assert!(!in_series("1:110.0.2"));
    }
}
