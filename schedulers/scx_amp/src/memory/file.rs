//! The file that a memory is kept in: root's alone, of bounded size, replaced as a whole.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a file that are read. A full memory has some 4 MiB.
const LONGEST: u64 = 8 << 20;

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Whether it is ours, and nobody else may change it.
fn ours(about: &Metadata, what: &str) -> Result<(), String> {
    let us = rustix::process::geteuid().as_raw();
    if about.uid() != us {
        return Err(format!(
            "{what} belongs to user {}, not to user {us} who schedules",
            about.uid()
        ));
    }
    if about.mode() & 0o022 != 0 {
        return Err(format!(
            "others may change {what} (mode {:04o})",
            about.mode() & 0o7777
        ));
    }
    Ok(())
}

/// Checks that a file can be kept in the folder of `path`.
///
/// # Errors
/// What is wrong with the folder.
pub fn check_folder(path: &Path) -> Result<(), String> {
    let folder = match path.parent() {
        Some(folder) if path.file_name().is_some() => folder,
        _ => return Err("want the path of a file, or none".to_owned()),
    };
    let about = std::fs::metadata(folder).map_err(|e| format!("its folder: {e}"))?;
    if !about.is_dir() {
        return Err("its folder: not a directory".to_owned());
    }
    ours(&about, "its folder")
}

/// The same for the usual folder, which is made if it is not there, for us alone.
///
/// # Errors
/// Why there is none.
pub fn make_folder(path: &Path) -> Result<(), String> {
    let told = |e: String| format!("{}: {e}", path.display());
    if let Some(folder) = path.parent().filter(|f| !f.exists()) {
        let above = folder.parent().map_or(Ok(()), std::fs::create_dir_all);
        let made = above.and_then(|()| DirBuilder::new().mode(0o700).create(folder));
        made.map_err(|e| told(format!("its folder: {e}")))?;
    }
    check_folder(path).map_err(told)
}

/// The text of the file; nothing where there is none.
///
/// # Errors
/// Why it cannot be used.
pub fn read(path: &Path) -> Result<Option<String>, String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
            return Err("a symbolic link, not a regular file".to_owned())
        }
        Err(e) => return Err(e.to_string()),
    };
    let about = file.metadata().map_err(|e| e.to_string())?;
    if !about.is_file() {
        return Err("not a regular file".to_owned());
    }
    ours(&about, "it")?;
    let mut text = String::new();
    let read = file.take(LONGEST + 1).read_to_string(&mut text);
    if read.map_err(|e| e.to_string())? as u64 > LONGEST {
        return Err(format!("longer than {} MiB", LONGEST >> 20));
    }
    Ok(Some(text))
}

/// Gives the file another name, so that it is neither lost nor in the way; where it is then. Who was
/// put aside before is replaced.
///
/// # Errors
/// When that cannot be done.
pub fn put_aside(path: &Path) -> IoResult<PathBuf> {
    let aside = beside(path, ".refused");
    std::fs::rename(path, &aside)?;
    Ok(aside)
}

/// Replaces the file by one with this text, as a whole.
///
/// # Errors
/// When that cannot be done; the file before is there then.
pub fn write(path: &Path, text: &str) -> IoResult<()> {
    let new = beside(path, ".new");
    // left there by somebody who was killed
    match std::fs::remove_file(&new) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&new)?;
    let done = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&new, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&new);
    } else if let Some(folder) = path.parent() {
        // the name, too; a file system that cannot is none the worse
        let _ = File::open(folder).and_then(|f| f.sync_all());
    }
    done
}
