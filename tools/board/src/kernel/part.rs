//! A file that comes with a kernel, in a package of its own or in that of the image.

use super::{archive, extract, Kernel};
use crate::arch::Arch;
use crate::archive::{Host, Offer};
use crate::cache::Cache;
use crate::error::BoardError;
use crate::event::{Event, Sink};
use crate::seal::{self, Care, State};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A file that comes with a kernel.
pub(super) struct Part {
    /// What it is called in the cache, beside the image.
    pub name: &'static str,
    /// The package that has it; else that of the image has.
    pub package: String,
    /// Where it may be there.
    pub paths: Vec<String>,
}

impl Part {
    /// Where it is in the cache, if it is there.
    pub fn path(&self, cache: &Cache, arch: Arch, kernel: &Kernel) -> PathBuf {
        cache.path(kernel.folder(arch)).join(self.name)
    }

    /// The file in the cache, if it is there and as it was fetched; damage is told. One from before
    /// there were seals is sealed as it is.
    ///
    /// # Errors
    /// When the cache cannot be read or written.
    pub fn kept(
        &self,
        cache: &Cache,
        arch: Arch,
        kernel: &Kernel,
        care: Care,
        sink: &mut Sink<'_>,
    ) -> Result<Option<PathBuf>, BoardError> {
        let file = self.path(cache, arch, kernel);
        if !file.is_file() {
            return Ok(None);
        }
        match seal::look(&file, care)? {
            State::Whole => Ok(Some(file)),
            State::Unsealed => seal::put(&file).map(|()| Some(file)),
            State::Damaged(why) => {
                sink(Event::Warning(format!(
                    "`{}` of kernel {} in the cache is damaged ({why}): it is fetched again",
                    self.name, kernel.release
                )));
                Ok(None)
            }
        }
    }

    /// Takes it out of its package, into the cache, with a seal.
    ///
    /// # Errors
    /// When the archive has no such package of this kernel's version, or the package no such file;
    /// when it cannot be fetched, or the cache cannot be written.
    #[allow(clippy::too_many_arguments)] // as its neighbours, and the age of the lists
    pub fn fetch(
        &self,
        cache: &Cache,
        host: &Host,
        arch: Arch,
        kernel: &Kernel,
        lists_age: Duration,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<(), BoardError> {
        let _lock = cache.lock(cancel, sink)?;
        let apt = archive(cache, host, arch, cancel, sink)?;
        apt.update(lists_age, cancel, sink)?;
        let offers = apt.offers(&[self.package.clone(), kernel.package.clone()], cancel)?;
        let of_this = offers.into_iter().filter(|o| o.version == kernel.version);
        let mut of_this: Vec<Offer> = of_this.collect();
        of_this.sort_by_key(|o| o.package != self.package);
        let offer = of_this.first().ok_or_else(|| BoardError::NoSuchPackage {
            package: format!("{} ({})", self.package, kernel.version),
            arch: arch.debian(),
            suites: super::SUITES.join(", "),
        })?;
        let deb = apt.fetch_one(offer, cancel, sink)?;
        let staging = cache.staging()?;
        let staged = staging.path().join(self.name);
        extract(&apt, &deb, &self.paths, &offer.package, &staged, cancel)?;
        seal::put(&staged)?;
        let to = format!("{}/{}", kernel.folder(arch), self.name);
        cache.publish(&seal::place(&staged), format!("{to}.seal"))?;
        cache.publish(&staged, &to)?;
        apt.forget_archives(&[deb]);
        Ok(())
    }
}
