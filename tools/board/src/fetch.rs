//! Fetching up front all that a run will need.

use crate::arch::Arch;
use crate::archive::{mirror, Host};
use crate::cache::Cache;
use crate::error::BoardError;
use crate::event::{progress, Sink};
use crate::kernel::{self, KernelChoice};
use crate::seal::Care;
use crate::{packages, peers, qemu};
use std::sync::atomic::AtomicBool;

/// What is wanted beside QEMU, shell and small tools, and the newest kernel of both architectures.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// More kernels, for both architectures.
    pub kernels: Vec<KernelChoice>,
    /// Packages for the arm64 guest.
    pub packages: Vec<String>,
    /// How far what is in the cache is believed.
    pub care: Care,
}

/// Fetches it all; returns a line on each thing.
///
/// # Errors
/// At the first thing that cannot be had.
pub fn everything(
    cache: &Cache,
    host: &Host,
    wanted: &Wanted,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Vec<String>, BoardError> {
    let mut lines = Vec::new();
    let again = wanted.care;
    if host.mirror.is_some() {
        // It is to be known to later commands, too, even where nothing is left to fetch.
        if let Some(chosen) = mirror::choose(cache, host, cancel, sink)? {
            lines.push(format!("mirror {} ({})", chosen.mirror, chosen.codename));
        }
    }
    let q = qemu::obtain(cache, host, again, cancel, sink)?;
    lines.push(format!("qemu {}", q.version));
    for arch in [Arch::Arm64, Arch::Amd64] {
        for choice in std::iter::once(&KernelChoice::Newest).chain(&wanted.kernels) {
            let k = kernel::obtain(cache, host, arch, choice, again, cancel, sink)?;
            kernel::config::obtain(cache, host, arch, &k, again, cancel, sink)?;
            lines.push(format!(
                "kernel {} ({arch}, {}) for {choice}",
                k.release, k.suite
            ));
        }
        let b = packages::obtain_base(cache, host, arch, again, cancel, sink)?;
        lines.push(format!("packages {} ({arch})", b.contents.join(", ")));
    }
    if !wanted.packages.is_empty() {
        let p = packages::obtain(
            cache,
            host,
            Arch::Arm64,
            &wanted.packages,
            again,
            cancel,
            sink,
        )?;
        lines.push(format!("packages {} (arm64)", p.contents.join(", ")));
    }
    Ok(lines)
}

/// What a look at everything in the cache found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// A line on each thing that is whole, or is so again.
    pub whole: Vec<String>,
    /// A line on each thing that is damaged and could not be mended.
    pub damaged: Vec<String>,
}

/// Reads everything that the cache keeps, and fetches again what is damaged. Peers are built again
/// by [`peers::build`] only, which takes minutes.
///
/// # Errors
/// When the cache cannot be written, or `cancel` became true.
pub fn check(
    cache: &Cache,
    host: &Host,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Checked, BoardError> {
    let mut done = Checked::default();
    let mut note = |name: String, result: Result<(), BoardError>| match result {
        Ok(()) => {
            done.whole.push(name);
            Ok(())
        }
        Err(e @ (BoardError::Cancelled | BoardError::Cache { .. })) => Err(e),
        Err(e) => {
            done.damaged.push(format!("{name}: {e}"));
            Ok(())
        }
    };
    let care = Care::Check;
    if let Some(q) = qemu::cached(cache) {
        let name = format!("qemu {}", q.version);
        progress(sink, format!("checking {name}"), None);
        note(
            name,
            qemu::obtain(cache, host, care, cancel, sink).map(drop),
        )?;
    }
    for arch in [Arch::Arm64, Arch::Amd64] {
        // one that was refused is only kept so that it is not fetched again
        let kernels = kernel::cached(cache, arch).into_iter();
        for k in kernels.filter(|k| k.refused.is_none()) {
            let name = format!("kernel {} ({arch})", k.release);
            progress(sink, format!("checking {name}"), None);
            let kept = kernel::check(cache, host, arch, &k, cancel, sink);
            note(name, kept)?;
        }
        for set in packages::cached(cache, arch) {
            let name = format!("packages {} ({arch})", set.requested.join(" "));
            progress(sink, format!("checking {name}"), None);
            let wanted = &set.requested;
            let kept = packages::obtain(cache, host, arch, wanted, care, cancel, sink);
            note(name, kept.map(drop))?;
        }
    }
    for peer in peers::kept(cache) {
        let (name, version) = (peer.crate_name(), &peer.version);
        let kept = match peer.damage(cache, care)? {
            None => Ok(()),
            Some(why) => Err(BoardError::Peers {
                why: format!("{why}: build it again with `scx_amp board fetch --peers={}@{version} --refresh`", peer.name),
            }),
        };
        note(format!("peer {name} {version}"), kept)?;
    }
    Ok(done)
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
