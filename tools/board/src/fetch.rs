//! Fetching up front all that a run will need.

use crate::apt::Host;
use crate::arch::Arch;
use crate::cache::Cache;
use crate::error::BoardError;
use crate::event::Sink;
use crate::kernel::{self, KernelChoice};
use crate::{packages, qemu};
use std::sync::atomic::AtomicBool;

/// What is wanted beside QEMU, shell and small tools, and the newest kernel of both architectures.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// More kernels, for both architectures.
    pub kernels: Vec<KernelChoice>,
    /// Packages for the arm64 guest.
    pub packages: Vec<String>,
    /// Ask the archive again for what is in the cache.
    pub refresh: bool,
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
    let again = wanted.refresh;
    let q = qemu::obtain(cache, host, again, cancel, sink)?;
    lines.push(format!("qemu {}", q.version));
    for arch in [Arch::Arm64, Arch::Amd64] {
        for choice in std::iter::once(&KernelChoice::Newest).chain(&wanted.kernels) {
            let k = kernel::obtain(cache, host, arch, choice, again, cancel, sink)?;
            kernel::config::obtain(cache, host, arch, &k, cancel, sink)?;
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
