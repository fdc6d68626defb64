//! Text of a file that a person named, whatever lies at that path.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Longest file that is read as text, bytes. What people write has some thousands of them, and
/// what `bench --json` writes some hundred thousand.
pub const LONGEST_TEXT: u64 = 64 << 20;

/// Opens the regular file at `path`. Opening a FIFO or a device would wait, or have side effects.
///
/// # Errors
/// The system's; [`ErrorKind::InvalidInput`] when there is something else than a regular file.
pub fn open_regular(path: &Path) -> Result<(File, Metadata)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !about.is_file() {
        let why = "not a regular file (a pipe, a socket or a device)";
        return Err(Error::new(ErrorKind::InvalidInput, why));
    }
    Ok((file, about))
}

/// The text of the regular file at `path`, and what the system knows of that very file.
///
/// # Errors
/// As [`open_regular`]; [`ErrorKind::FileTooLarge`] above [`LONGEST_TEXT`];
/// [`ErrorKind::InvalidData`] when it is not UTF-8.
pub fn read_text(path: &Path) -> Result<(String, Metadata)> {
    let (bytes, about) = read_bytes(path, LONGEST_TEXT)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok((text, about)),
        Err(e) => {
            let why = format!("not UTF-8 text (at byte {})", e.utf8_error().valid_up_to());
            Err(Error::new(ErrorKind::InvalidData, why))
        }
    }
}

/// The content of the regular file at `path`, of at most `longest` bytes, and what the system knows
/// of that very file.
///
/// # Errors
/// As [`open_regular`]; [`ErrorKind::FileTooLarge`] above `longest`.
pub fn read_bytes(path: &Path, longest: u64) -> Result<(Vec<u8>, Metadata)> {
    let (file, about) = open_regular(path)?;
    let too_long = || {
        let why = format!("longer than {} MiB", longest >> 20);
        Err(Error::new(ErrorKind::FileTooLarge, why))
    };
    if about.len() > longest {
        return too_long();
    }
    let mut bytes = Vec::new();
    // one that grows meanwhile is cut here, too
    let read = file
        .take(longest.saturating_add(1))
        .read_to_end(&mut bytes)? as u64;
    match read > longest {
        true => too_long(),
        false => Ok((bytes, about)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn only_regular_files_of_some_length_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("good"), "x = 1\n").unwrap();
        assert_eq!(read_text(&at("good")).unwrap().0, "x = 1\n");

        let fifo = CString::new(at("fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a string that ends with a zero and lives as long as the call.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let long = File::create(at("long")).unwrap();
        long.set_len(LONGEST_TEXT + 1).unwrap();
        std::fs::write(at("bytes"), [0xff, 0xfe]).unwrap();
        let kind = |path: &Path| read_text(path).unwrap_err().kind();
        for (path, wants) in [
            (at("fifo"), ErrorKind::InvalidInput),
            ("/dev/zero".into(), ErrorKind::InvalidInput),
            (at("long"), ErrorKind::FileTooLarge),
            (at("bytes"), ErrorKind::InvalidData),
            (at("none"), ErrorKind::NotFound),
            (at("."), ErrorKind::IsADirectory),
        ] {
            assert_eq!(kind(&path), wants, "{}", path.display());
        }
    }
}
