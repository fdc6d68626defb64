//! The driver by which a guest sets the board's clocks: a module of the generic flavour.

use super::part::Part;
use super::{Flavour, Kernel};
use crate::arch::Arch;
use crate::archive::{with_lists, Host};
use crate::cache::Cache;
use crate::error::BoardError;
use crate::event::Sink;
use crate::seal::Care;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The module, as it lies in its package: compressed, which the kernel undoes.
const MODULE: &str = "qcom-cpufreq-hw.ko.xz";

/// The driver of `kernel`, from the cache, else from the archive.
///
/// # Errors
/// When the kernel is of a flavour without frequency scaling, or the driver cannot be had.
pub fn obtain(
    cache: &Cache,
    host: &Host,
    arch: Arch,
    kernel: &Kernel,
    care: Care,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<PathBuf, BoardError> {
    if Flavour::of(&kernel.release) != Flavour::Generic {
        return Err(BoardError::NoFrequencyScaling {
            kernel: kernel.release.clone(),
        });
    }
    let part = part(kernel);
    if let Some(file) = part.kept(cache, arch, kernel, care, sink)? {
        return Ok(file);
    }
    with_lists(false, |lists_age| {
        part.fetch(cache, host, arch, kernel, lists_age, cancel, sink)
    })?;
    Ok(part.path(cache, arch, kernel))
}

fn part(kernel: &Kernel) -> Part {
    let release = &kernel.release;
    let below = format!("lib/modules/{release}/kernel/drivers/cpufreq/{MODULE}");
    Part {
        name: MODULE,
        package: format!("linux-modules-{release}"),
        paths: vec![format!("usr/{below}"), below],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_frequency_scaling_is_refused_by_name() {
        let t = tempfile::tempdir().unwrap();
        let cache = Cache::at(&t.path().join("cache")).unwrap();
        let host = Host {
            root: t.path().join("none"),
            programs: Some(t.path().join("none")),
            mirror: None,
        };
        let kernel = Kernel {
            release: "7.3.4+deb13-cloud-arm64".into(),
            package: "linux-binary-7.3.4+deb13-cloud-arm64".into(),
            version: "7.3.4-1".into(),
            suite: "sid".into(),
            refused: None,
        };
        let never = AtomicBool::new(false);
        let (arch, care) = (Arch::Arm64, Care::Usual);
        let e = obtain(&cache, &host, arch, &kernel, care, &never, &mut |_| ()).unwrap_err();
        let e = e.to_string();
        assert!(
            e.contains("7.3.4+deb13-cloud-arm64") && e.contains("generic"),
            "{e}"
        );
    }
}
