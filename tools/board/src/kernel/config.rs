//! The configuration that a kernel was built with.
//!
//! Programs that load BPF look for it at `/boot/config-RELEASE`: some schedulers cannot be loaded
//! without. It is in a package of its own since 7.2, in that of the image before.

use super::part::Part;
use super::Kernel;
use crate::arch::Arch;
use crate::archive::{with_lists, Host};
use crate::cache::Cache;
use crate::error::BoardError;
use crate::event::{Event, Sink};
use crate::seal::Care;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

/// How long the archive is not asked again for what it did not have.
const ASK_AGAIN: Duration = Duration::from_secs(24 * 3600);

/// The configuration of `kernel`, from the cache, else from the archive. `None` where it cannot be
/// had: a guest boots without, and most schedulers load. That is told once a day.
///
/// # Errors
/// When `cancel` became true, or the cache cannot be written.
pub fn obtain(
    cache: &Cache,
    host: &Host,
    arch: Arch,
    kernel: &Kernel,
    care: Care,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Option<PathBuf>, BoardError> {
    let part = part(kernel);
    if let Some(file) = part.kept(cache, arch, kernel, care, sink)? {
        return Ok(Some(file));
    }
    let file = part.path(cache, arch, kernel);
    let asked = file.with_extension("missing");
    let age = |m: fs::Metadata| SystemTime::now().duration_since(m.modified().ok()?).ok();
    let age = fs::metadata(&asked).ok().and_then(age);
    if age.is_some_and(|a| a < ASK_AGAIN) {
        return Ok(None);
    }
    let found = with_lists(false, |lists_age| {
        part.fetch(cache, host, arch, kernel, lists_age, cancel, sink)
    });
    match found {
        Ok(()) => Ok(Some(file)),
        Err(BoardError::Cancelled) => Err(BoardError::Cancelled),
        Err(e) => {
            sink(Event::Note(format!(
                "the configuration of kernel {} is not to be had, and some schedulers want it: {e}",
                kernel.release
            )));
            fs::write(&asked, "").map_err(BoardError::cache("write", &asked))?;
            Ok(None)
        }
    }
}

/// The configuration as a part of a kernel.
fn part(kernel: &Kernel) -> Part {
    let release = &kernel.release;
    Part {
        name: "config",
        package: format!("linux-base-{release}"),
        paths: vec![
            format!("boot/config-{release}"),
            format!("usr/lib/modules/{release}/config"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        Kernel {
            release: "7.3.4+deb13-arm64".into(),
            package: "linux-binary-7.3.4+deb13-arm64".into(),
            version: "7.3.4-1".into(),
            suite: "sid".into(),
            refused: None,
        }
    }

    fn ask(cache: &Cache, host: &Host, notes: &mut Vec<String>) -> Option<PathBuf> {
        let never = AtomicBool::new(false);
        let mut sink = |e| {
            if let Event::Note(n) = e {
                notes.push(n);
            }
        };
        obtain(
            cache,
            host,
            Arch::Arm64,
            &kernel(),
            Care::Usual,
            &never,
            &mut sink,
        )
        .unwrap()
    }

    #[test]
    fn what_is_cached_is_used_and_what_is_missing_is_told_once() {
        let t = tempfile::tempdir().unwrap();
        let cache = Cache::at(&t.path().join("cache")).unwrap();
        // neither sources nor programs: asking the archive fails
        let host = Host {
            root: t.path().join("none"),
            programs: Some(t.path().join("none")),
            mirror: None,
        };
        let dir = cache.dir(kernel().folder(Arch::Arm64)).unwrap();
        let mut notes = Vec::new();
        assert_eq!(ask(&cache, &host, &mut notes), None);
        assert_eq!(ask(&cache, &host, &mut notes), None);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("7.3.4+deb13-arm64"), "{notes:?}");
        fs::write(dir.join("config"), "CONFIG_X=y\n").unwrap();
        assert_eq!(ask(&cache, &host, &mut notes), Some(dir.join("config")));
    }
}
