//! `.deb` files (deb(5)): an `ar` archive with a `tar` archive of the files, compressed.
//!
//! The few fields of `ar` are read here: the crate for them trusts the sizes that a file states.

use super::transport::is_full;
use crate::error::{BoardError, FetchFailure};
use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tar::EntryType;

/// Most bytes that a package may unpack to.
const MOST_UNPACKED: u64 = 4 << 30;
/// Most bytes of one file that is taken out by itself.
const MOST_EXTRACTED: u64 = 512 << 20;
/// Largest dictionary of xz: that of its highest level.
const DICTIONARY: usize = 64 << 20;

/// Unpacks a package's files into a folder, which is created when absent.
///
/// # Errors
/// When the file is no package or is damaged, something in it would land outside of the folder or
/// is neither file, folder nor link, the disk is full, or `cancel` became true.
pub(super) fn unpack(deb: &Path, into: &Path, cancel: &AtomicBool) -> Result<(), BoardError> {
    fs::create_dir_all(into).map_err(BoardError::cache("create", into))?;
    let file = open(deb)?;
    let done = files(file, cancel, MOST_UNPACKED).and_then(|tar| unpack_tar(tar, into));
    done.map_err(|e| failed(deb, into, cancel, e))
}

/// Takes one file out of a package, the first that has one of the `wanted` paths; `None` when it
/// has none.
///
/// # Errors
/// As [`unpack`].
pub(super) fn extract(
    deb: &Path,
    wanted: &[String],
    cancel: &AtomicBool,
) -> Result<Option<Vec<u8>>, BoardError> {
    let file = open(deb)?;
    let found = files(file, cancel, MOST_UNPACKED).and_then(|tar| first(tar, wanted));
    found.map_err(|e| failed(deb, deb, cancel, e))
}

/// The first file of a `tar` archive that has one of the `wanted` paths.
pub(super) fn first(tar: impl Read, wanted: &[String]) -> io::Result<Option<Vec<u8>>> {
    for entry in tar::Archive::new(tar).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let path = path.strip_prefix(".").unwrap_or(&path);
        if wanted.iter().any(|w| path == Path::new(w)) {
            if entry.size() > MOST_EXTRACTED {
                return Err(bad(format!("{} is too large", path.display())));
            }
            let mut data = Vec::new();
            entry.read_to_end(&mut data)?;
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn open(deb: &Path) -> Result<BufReader<File>, BoardError> {
    let file = File::open(deb).map_err(BoardError::cache("read", deb))?;
    Ok(BufReader::new(file))
}

fn failed(deb: &Path, folder: &Path, cancel: &AtomicBool, e: io::Error) -> BoardError {
    if cancel.load(Ordering::Relaxed) {
        return BoardError::Cancelled;
    }
    let name = deb.file_name().unwrap_or_default();
    // tar's errors have their cause inside
    let mut causes = vec![e.to_string()];
    let mut inner = e.get_ref().and_then(|i| i.source());
    while let Some(cause) = inner {
        causes.push(cause.to_string());
        inner = cause.source();
    }
    causes.dedup();
    BoardError::Fetch {
        package: name.to_string_lossy().into_owned(),
        folder: folder.into(),
        failure: match is_full(&e) {
            true => FetchFailure::DiskFull,
            false => FetchFailure::Damaged,
        },
        detail: causes.join(": "),
    }
}

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// What is read while `cancel` is false, and no more of it than `left` bytes.
pub(super) struct Watched<'a, R> {
    inner: R,
    left: u64,
    cancel: &'a AtomicBool,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(io::Error::other("cancelled"));
        }
        let n = self.inner.read(to)?;
        self.left = (self.left.checked_sub(n as u64))
            .ok_or_else(|| bad("it unpacks to more than a package may have"))?;
        Ok(n)
    }
}

/// The `tar` archive with the files of a package.
pub(super) fn files(
    mut deb: impl Read + 'static,
    cancel: &AtomicBool,
    most: u64,
) -> io::Result<Watched<'_, Box<dyn Read>>> {
    let mut magic = [0; 8];
    deb.read_exact(&mut magic)?;
    if &magic != b"!<arch>\n" {
        return Err(bad("it is no Debian package"));
    }
    loop {
        let mut header = [0; 60];
        deb.read_exact(&mut header)?;
        let text = |range| std::str::from_utf8(&header[range]).map(str::trim_end);
        let (Ok(name), Ok(size), b"`\n") = (text(0..16), text(48..58), &header[58..]) else {
            return Err(bad("a member has a damaged header"));
        };
        let size: u64 = size.parse().map_err(|_| bad("a member has no size"))?;
        if let Some(kind) = name.trim_end_matches('/').strip_prefix("data.tar") {
            let inner = decoder(kind.trim_start_matches('.'), deb.take(size))?;
            return Ok(Watched {
                inner,
                left: most,
                cancel,
            });
        }
        // members begin at even places
        let skip = size.saturating_add(size % 2);
        if io::copy(&mut deb.by_ref().take(skip), &mut io::sink())? < skip {
            return Err(bad("it is cut short"));
        }
    }
}

/// Reads what is compressed, by the ending of its name.
///
/// # Errors
/// When the ending is not known.
pub(super) fn decoder(ending: &str, from: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    Ok(match ending {
        "" => Box::new(from),
        "gz" => Box::new(flate2::read::MultiGzDecoder::new(from)),
        "xz" => {
            let first = 1 << 20;
            let dictionary = xz4rust::XzDecoder::in_heap_with_alloc_dict_size(first, DICTIONARY);
            let buffer = std::num::NonZeroUsize::MIN.saturating_add(64 * 1024);
            Box::new(xz4rust::XzReader::new_with_buffer_size_and_decoder(
                from, buffer, dictionary,
            ))
        }
        "zst" => {
            Box::new(ruzstd::decoding::StreamingDecoder::new(from).map_err(|e| bad(e.to_string()))?)
        }
        other => return Err(bad(format!("its compression `{other}` is not known"))),
    })
}

fn unpack_tar(from: impl Read, into: &Path) -> io::Result<()> {
    let mut tar = tar::Archive::new(from);
    tar.set_preserve_permissions(true);
    tar.set_overwrite(true);
    let mut folders: Vec<(PathBuf, u32)> = Vec::new();
    for entry in tar.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        let known = [
            EntryType::Regular,
            EntryType::Continuous,
            EntryType::GNUSparse,
            EntryType::Link,
            EntryType::Symlink,
            EntryType::Directory,
        ];
        if !known.contains(&kind) {
            let path = path.display();
            return Err(bad(format!("{path}: neither file, folder nor link")));
        }
        let place = into.join(path.strip_prefix("/").unwrap_or(&path));
        if kind == EntryType::Directory
            && fs::symlink_metadata(&place).is_ok_and(|m| m.is_symlink())
        {
            // A package from before /usr was merged: what follows goes through the link, if it
            // stays in the folder.
            continue;
        }
        if !entry.unpack_in(into)? {
            return Err(bad(format!(
                "{}: it leads out of the folder",
                path.display()
            )));
        }
        if kind == EntryType::Directory {
            let mode = entry.header().mode()? & 0o7777;
            // What is inside has to be written first.
            fs::set_permissions(&place, Permissions::from_mode(mode | 0o700))?;
            folders.push((place, mode));
        }
    }
    // What stands behind the last file: the checksum of the compression is checked at its end.
    io::copy(&mut tar.into_inner(), &mut io::sink())?;
    for (place, mode) in folders.into_iter().rev() {
        if fs::symlink_metadata(&place).is_ok_and(|m| m.is_dir()) {
            fs::set_permissions(&place, Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "deb_tests.rs"]
mod tests;
