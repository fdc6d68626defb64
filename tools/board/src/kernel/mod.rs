//! Kernels from Debian that can load sched_ext schedulers.

pub mod btf;
mod choice;
pub mod config;
pub mod driver;
pub mod image;
mod part;

use crate::arch::Arch;
use crate::archive::{mirror, with_lists, Archive, Host, Installed, Offer};
use crate::cache::Cache;
use crate::error::BoardError;
use crate::event::{progress, Event, Sink};
use crate::seal::{self, Care, State};
use crate::sources::Suite;
use crate::version;
use btf::Verdict;
use choice::OLDEST;
pub use choice::{Flavour, KernelChoice};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Suites that carry kernels from 6.18 on, or may come to.
const SUITES: [&str; 4] = ["bookworm-backports", "trixie-backports", "forky", "sid"];

/// A kernel in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Release, as `uname -r` gives it.
    pub release: String,
    /// Debian package.
    pub package: String,
    /// Version of the package.
    pub version: String,
    /// Suite it came from.
    pub suite: String,
    /// Why it cannot load sched_ext schedulers; `None` when it can.
    pub refused: Option<String>,
}

impl Kernel {
    fn folder(&self, arch: Arch) -> String {
        format!("kernels/{arch}/{}", self.release)
    }

    /// Where its image is.
    pub fn image(&self, cache: &Cache, arch: Arch) -> PathBuf {
        cache.path(self.folder(arch)).join("vmlinuz")
    }

    /// What is wrong with its image; `None` when it is as it was fetched. One from before there
    /// were seals is judged by whether it can be unpacked, and sealed.
    fn damage(&self, cache: &Cache, arch: Arch, care: Care) -> Result<Option<String>, BoardError> {
        let image = self.image(cache, arch);
        match seal::look(&image, care)? {
            State::Whole => Ok(None),
            State::Damaged(why) => Ok(Some(why)),
            State::Unsealed => {
                let unpacked = fs::read(&image).map_err(|e| e.to_string());
                match unpacked.and_then(image::uncompressed) {
                    Ok(_) => seal::put(&image).map(|()| None),
                    Err(why) => Ok(Some(format!("vmlinuz: {why}"))),
                }
            }
        }
    }

    /// The request that only this kernel answers.
    fn exactly(&self) -> KernelChoice {
        match Flavour::of(&self.release) {
            Flavour::Cloud => KernelChoice::Version(self.release.clone()),
            Flavour::Generic => KernelChoice::Generic(self.release.clone()),
        }
    }
}

/// The remembered answer to `newest`.
#[derive(Debug, Serialize, Deserialize)]
struct Newest {
    release: String,
}

/// Kernels in the cache, newest first.
pub fn cached(cache: &Cache, arch: Arch) -> Vec<Kernel> {
    let base = format!("kernels/{arch}");
    let Ok(entries) = fs::read_dir(cache.path(&base)) else {
        return Vec::new();
    };
    let mut all: Vec<Kernel> = entries
        .flatten()
        .filter_map(|e| {
            let record = e.path().join("kernel.json");
            cache.read_record(record)
        })
        .collect();
    all.sort_by(|a, b| newest_first(&a.release, &a.version, &b.release, &b.version));
    all
}

fn newest_first(ra: &str, va: &str, rb: &str, vb: &str) -> std::cmp::Ordering {
    version::compare(rb, ra).then_with(|| version::compare(vb, va))
}

/// Finds a kernel for a request: in the cache if it answers the request, else in Debian's archive.
///
/// With [`Care::Refresh`], `newest` asks the archive even when an answer is remembered; without a
/// network the cache answers. A kernel in the cache that is damaged is fetched again; where the
/// archive has dropped it, another answers the request if one can.
///
/// # Errors
/// When none fits, the one that fits cannot load sched_ext schedulers, or it cannot be fetched.
pub fn obtain(
    cache: &Cache,
    host: &Host,
    arch: Arch,
    choice: &KernelChoice,
    care: Care,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Kernel, BoardError> {
    let have = cached(cache, arch);
    let usable = |k: &&Kernel| k.refused.is_none() && choice.fits(&k.release);
    let remembered = match choice.version() {
        None => {
            let n: Option<Newest> = cache.read_record(newest_record(arch, choice.flavour()));
            n.and_then(|n| have.iter().filter(usable).find(|k| k.release == n.release))
        }
        Some(_) => have.iter().find(usable),
    };
    if let Some(k) = remembered.filter(|_| !care.refreshes()) {
        let Some(why) = k.damage(cache, arch, care)? else {
            return Ok(k.clone());
        };
        match again(cache, host, arch, k, why, cancel, sink)? {
            Some(healed) => return Ok(healed),
            None => sink(Event::Warning(format!(
                "kernel {} in the cache is damaged, and the archive has it no more",
                k.release
            ))),
        }
    }
    if let (Some(v), Some(k)) = (
        choice.version(),
        have.iter().find(|k| choice.fits(&k.release)),
    ) {
        if k.release == v && k.refused.is_some() && !care.refreshes() {
            return Err(refusal(k, have.iter().find(|k| k.refused.is_none())));
        }
    }
    let found = with_lists(care.refreshes(), |age| {
        from_archive(cache, host, arch, choice, age, cancel, sink)
    });
    match found {
        Err(e @ BoardError::Fetch { .. }) => {
            match whole(cache, arch, have.iter().filter(usable))? {
                Some(k) => {
                    sink(Event::Note(format!(
                        "using kernel {} from the cache: {e}",
                        k.release
                    )));
                    Ok(k.clone())
                }
                None => Err(e),
            }
        }
        other => other,
    }
}

/// Reads a kernel of the cache and its configuration, and fetches again what is damaged.
///
/// # Errors
/// When that fails.
pub fn check(
    cache: &Cache,
    host: &Host,
    arch: Arch,
    kernel: &Kernel,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<(), BoardError> {
    let care = Care::Check;
    let kernel = match kernel.damage(cache, arch, care)? {
        None => kernel.clone(),
        Some(why) => {
            let healed = again(cache, host, arch, kernel, why.clone(), cancel, sink)?;
            healed.ok_or_else(|| BoardError::KernelImage {
                path: kernel.image(cache, arch),
                why: format!("{why}, and the archive has it no more"),
            })?
        }
    };
    config::obtain(cache, host, arch, &kernel, care, cancel, sink)?;
    Ok(())
}

/// The first that is not damaged.
fn whole<'a>(
    cache: &Cache,
    arch: Arch,
    kernels: impl Iterator<Item = &'a Kernel>,
) -> Result<Option<&'a Kernel>, BoardError> {
    for k in kernels {
        if k.damage(cache, arch, Care::Usual)?.is_none() {
            return Ok(Some(k));
        }
    }
    Ok(None)
}

/// Fetches a damaged kernel again; `None` when the archive has it no more.
fn again(
    cache: &Cache,
    host: &Host,
    arch: Arch,
    damaged: &Kernel,
    why: String,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Option<Kernel>, BoardError> {
    let exactly = damaged.exactly();
    let found = with_lists(false, |age| {
        from_archive(cache, host, arch, &exactly, age, cancel, sink)
    });
    match found {
        Ok(k) => Ok(Some(k)),
        Err(BoardError::NoKernel { .. }) => Ok(None),
        Err(BoardError::Cancelled) => Err(BoardError::Cancelled),
        Err(e) => Err(BoardError::Damaged {
            what: format!("kernel {}", damaged.release),
            why,
            source: Box::new(e),
        }),
    }
}

fn newest_record(arch: Arch, flavour: Flavour) -> String {
    match flavour {
        Flavour::Cloud => format!("kernels/{arch}/newest.json"),
        Flavour::Generic => format!("kernels/{arch}/newest-generic.json"),
    }
}

fn refusal(kernel: &Kernel, works: Option<&Kernel>) -> BoardError {
    BoardError::KernelCannotLoad {
        kernel: kernel.release.clone(),
        package: kernel.package.clone(),
        why: kernel.refused.clone().unwrap_or_default(),
        works: works.map(|k| k.release.clone()),
    }
}

fn from_archive(
    cache: &Cache,
    host: &Host,
    arch: Arch,
    choice: &KernelChoice,
    lists_age: Duration,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Kernel, BoardError> {
    let lock = cache.lock(cancel, sink)?;
    let apt = archive(cache, host, arch, cancel, sink)?;
    apt.update(lists_age, cancel, sink)?;
    let offers = candidates(&apt, arch, choice.flavour(), cancel)?;
    let mut refused: Option<Kernel> = None;
    for (release, offer) in offers.iter().filter(|(r, _)| choice.fits(r)) {
        let kernel = fetch_and_judge(&apt, arch, release, offer, cancel, sink)?;
        if kernel.refused.is_none() {
            if choice.version().is_none() {
                cache.write_record(
                    newest_record(arch, choice.flavour()),
                    &Newest {
                        release: release.clone(),
                    },
                )?;
            }
            return Ok(kernel);
        }
        sink(Event::Note(format!(
            "kernel {release} passed over: {}",
            kernel.refused.as_deref().unwrap_or_default()
        )));
        refused.get_or_insert(kernel);
    }
    drop(lock);
    match (refused, choice.version()) {
        (Some(k), Some(_)) => {
            let newest = choice.newest();
            let works = match obtain(cache, host, arch, &newest, Care::Usual, cancel, sink) {
                Err(BoardError::Cancelled) => return Err(BoardError::Cancelled),
                // The refusal is what the caller must hear, with or without an alternative.
                other => other.ok(),
            };
            Err(refusal(&k, works.as_ref()))
        }
        (Some(k), None) => Err(refusal(&k, None)),
        (None, _) => Err(BoardError::NoKernel {
            request: choice.to_string(),
            flavour: choice.flavour(),
            arch: arch.debian(),
            known: match offers.is_empty() {
                true => format!("none in {}", SUITES.join(", ")),
                false => offers
                    .iter()
                    .map(|(r, _)| r.as_str())
                    .take(12)
                    .collect::<Vec<_>>()
                    .join(", "),
            },
        }),
    }
}

/// The suites that kernels come from.
fn archive<'a>(
    cache: &'a Cache,
    host: &Host,
    arch: Arch,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Archive<'a>, BoardError> {
    let sources = mirror::sources(cache, host, cancel, sink)?;
    let suites: Vec<Suite> = SUITES.iter().map(|s| sources.on_mirror(s)).collect();
    let name = format!("kernels-{arch}");
    let installed = Installed::Nothing;
    Archive::new(cache, host, &name, arch.debian(), suites, installed)
}

/// Releases with the package that has the image, newest first.
///
/// Up to 6.18 the image is in `linux-image-RELEASE`, later in `linux-binary-RELEASE` (and
/// `linux-image-RELEASE` only depends on it). `linux-binary-unsigned-…` is what Debian's signing
/// step works on, not a release.
fn candidates(
    apt: &Archive<'_>,
    arch: Arch,
    flavour: Flavour,
    cancel: &AtomicBool,
) -> Result<Vec<(String, Offer)>, BoardError> {
    let flavour = flavour.pattern();
    let pattern = format!("^linux-(binary|image)-[0-9][^-]*{flavour}{arch}$");
    let names = apt.names(&pattern, cancel)?;
    let mut found: Vec<(String, Offer)> = apt
        .offers(&names, cancel)?
        .into_iter()
        .filter_map(|o| {
            let release = release_of(&o.package)?.to_string();
            version::compare(&release, OLDEST)
                .is_ge()
                .then_some((release, o))
        })
        .collect();
    found.sort_by(|(ra, a), (rb, b)| {
        newest_first(ra, &a.version, rb, &b.version).then_with(|| {
            b.package
                .contains("-binary-")
                .cmp(&a.package.contains("-binary-"))
        })
    });
    found.dedup_by(|(a, _), (b, _)| a == b);
    Ok(found)
}

fn release_of(package: &str) -> Option<&str> {
    let rest = package
        .strip_prefix("linux-binary-")
        .or(package.strip_prefix("linux-image-"))?;
    rest.starts_with(|c: char| c.is_ascii_digit())
        .then_some(rest)
}

fn fetch_and_judge(
    apt: &Archive<'_>,
    arch: Arch,
    release: &str,
    offer: &Offer,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Kernel, BoardError> {
    let cache = apt.cache();
    if let Some(k) = cached(cache, arch)
        .into_iter()
        .find(|k| k.release == release && k.version == offer.version)
    {
        match k.damage(cache, arch, Care::Check)? {
            None => return Ok(k),
            Some(why) => sink(Event::Warning(format!(
                "kernel {release} in the cache is damaged ({why}): it is fetched again"
            ))),
        }
    }
    let deb = apt.fetch_one(offer, cancel, sink)?;
    progress(sink, format!("checking the BTF of {release}"), None);
    let staging = cache.staging()?;
    let folder = staging.path().join("kernel");
    fs::create_dir(&folder).map_err(BoardError::cache("create", &folder))?;
    let image = folder.join("vmlinuz");
    // `usr/lib/modules/V/vmlinuz` since 7.2, `boot/vmlinuz-V` before
    let wanted = [
        format!("boot/vmlinuz-{release}"),
        format!("usr/lib/modules/{release}/vmlinuz"),
    ];
    extract(apt, &deb, &wanted, &offer.package, &image, cancel)?;
    let data = fs::read(&image).map_err(BoardError::cache("read", &image))?;
    let unreadable = |why| BoardError::KernelImage {
        path: offer.package.clone().into(),
        why,
    };
    let verdict = image::uncompressed(data)
        .and_then(|k| btf::judge(&k))
        .map_err(unreadable)?;
    let kernel = Kernel {
        release: release.into(),
        package: offer.package.clone(),
        version: offer.version.clone(),
        suite: offer.suite.clone(),
        refused: explain(&verdict),
    };
    let record = folder.join("kernel.json");
    let text = serde_json::to_vec_pretty(&kernel)
        .map_err(|e| BoardError::cache("write", &record)(e.into()))?;
    fs::write(&record, text).map_err(BoardError::cache("write", &record))?;
    seal::put(&image)?;
    cache.publish(&folder, kernel.folder(arch))?;
    apt.forget_archives(&[deb]);
    Ok(kernel)
}

fn explain(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Loads => None,
        Verdict::NoSchedExt => Some("it is built without sched_ext".into()),
        Verdict::ImplicitArgument(names) => Some(format!(
            "its BTF shows the implicit argument `aux` of {} kfuncs ({}{}), so libbpf finds their prototypes incompatible",
            names.len(),
            names.iter().take(2).map(String::as_str).collect::<Vec<_>>().join(", "),
            if names.len() > 2 { ", …" } else { "" },
        )),
    }
}

/// Takes one file out of a package: the first that has one of the `wanted` paths.
fn extract(
    apt: &Archive<'_>,
    deb: &Path,
    wanted: &[String],
    package: &str,
    to: &Path,
    cancel: &AtomicBool,
) -> Result<(), BoardError> {
    let found = apt.extract(deb, wanted, cancel)?;
    let data = found.ok_or_else(|| BoardError::KernelImage {
        path: package.into(),
        why: format!("no {} in it", wanted.join(" or ")),
    })?;
    fs::write(to, data).map_err(BoardError::cache("write", to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_releases_are_candidates() {
        assert_eq!(
            release_of("linux-binary-7.2.13+deb14-cloud-arm64"),
            Some("7.2.13+deb14-cloud-arm64")
        );
        assert_eq!(
            release_of("linux-image-6.18.5+deb13-cloud-arm64"),
            Some("6.18.5+deb13-cloud-arm64")
        );
        assert_eq!(
            release_of("linux-binary-unsigned-7.3.4+deb13-cloud-arm64"),
            None
        );
    }

    fn put(cache: &Cache, release: &str, refused: Option<&str>) -> Kernel {
        let k = Kernel {
            release: release.into(),
            package: format!("linux-binary-{release}"),
            version: "1".into(),
            suite: "sid".into(),
            refused: refused.map(String::from),
        };
        cache
            .write_record(format!("{}/kernel.json", k.folder(Arch::Amd64)), &k)
            .unwrap();
        let image = k.image(cache, Arch::Amd64);
        fs::write(&image, "image").unwrap();
        seal::put(&image).unwrap();
        k
    }

    #[test]
    fn the_cache_answers_without_a_network() {
        let t = tempfile::tempdir().unwrap();
        let cache = Cache::at(t.path()).unwrap();
        // No sources and no programs here: touching the archive would fail.
        let host = Host {
            root: t.path().join("none"),
            programs: Some(t.path().join("none")),
            mirror: None,
        };
        let old = put(&cache, "7.0.13+deb13-cloud-amd64", None);
        let bad = put(&cache, "7.1.13+deb13-cloud-amd64", Some("BTF"));
        let ask = |c: KernelChoice| {
            obtain(
                &cache,
                &host,
                Arch::Amd64,
                &c,
                Care::Usual,
                &AtomicBool::new(false),
                &mut |_| (),
            )
        };
        assert_eq!(ask(KernelChoice::Version("7.0".into())).unwrap(), old);
        let e = ask(KernelChoice::Version(bad.release.clone()))
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("7.1.13") && e.contains("7.0.13+deb13-cloud-amd64 can"),
            "{e}"
        );
        // `newest` was never resolved: an older cached kernel must not pass for it.
        assert!(matches!(
            ask(KernelChoice::Newest),
            Err(BoardError::NoMirror)
        ));
        let record = Newest {
            release: old.release.clone(),
        };
        cache
            .write_record(newest_record(Arch::Amd64, Flavour::Cloud), &record)
            .unwrap();
        assert_eq!(ask(KernelChoice::Newest).unwrap(), old);

        // Bug 16 of the review: a kernel that was cut short booted, and the guest's agent failed.
        let image = old.image(&cache, Arch::Amd64);
        fs::write(&image, "im").unwrap();
        let said = |c| ask(c).unwrap_err().to_string();
        for choice in [KernelChoice::Newest, KernelChoice::Version("7.0".into())] {
            let said = said(choice);
            for w in [&old.release, "2 bytes in place of 5", "--mirror"] {
                assert!(said.contains(w), "no `{w}` in {said}");
            }
        }
        // one of before there were seals, and not even a kernel
        fs::remove_file(seal::place(&image)).unwrap();
        assert!(said(KernelChoice::Newest).contains("damaged (vmlinuz: "));
    }
}
