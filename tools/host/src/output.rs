//! Where a command's results go.

use crate::bad_input;
use anyhow::{anyhow, Context, Result};
use std::fs::Permissions;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Writes to a file, or to standard output for `-`. A file is there as a whole or not at all: it is
/// written aside and takes the place of the one before.
///
/// # Errors
/// When it cannot be written, naming it. A reader of standard output that has gone is none.
pub fn write_out(path: &Path, text: &str) -> Result<()> {
    if path.as_os_str() == "-" {
        return to_stdout(text);
    }
    replace(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Checks that [`write_out`] could write there, before the work is done.
///
/// # Errors
/// [`crate::BadInput`] when there is no such folder, or it is one.
pub fn check_out(path: &Path) -> Result<()> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let folder = folder_of(path);
    if !folder.is_dir() {
        return Err(bad_input(format!("{}: no such folder", folder.display())));
    }
    if path.is_dir() {
        return Err(bad_input(format!("{}: is a folder", path.display())));
    }
    Ok(())
}

/// Prints text for people. On a terminal, characters that would control it are shown as `�`.
///
/// # Errors
/// As [`write_out`].
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().is_terminal() {
        true => to_stdout(&printable(text)),
        false => to_stdout(text),
    }
}

/// Says something on standard error, as [`print()`] does. If nobody can hear it, nothing is said.
pub fn tell(text: &str) {
    let mut err = std::io::stderr().lock();
    let text = match err.is_terminal() {
        true => printable(text),
        false => text.to_owned(),
    };
    let _ = writeln!(err, "{text}");
}

/// The errors of several outputs as one: each is tried, whatever becomes of the others.
///
/// # Errors
/// When one of them failed.
pub fn all(outputs: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let errors = outputs.into_iter().filter_map(Result::err);
    let errors: Vec<String> = errors.map(|e| format!("{e:#}")).collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(anyhow!(errors.join("; "))),
    }
}

/// The text with `�` for everything that would control a terminal.
pub fn printable(text: &str) -> String {
    let controls = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.replace(controls, "\u{fffd}")
}

fn to_stdout(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // whoever read it has had enough of it
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.context("cannot write to standard output"),
    }
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|d| !d.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    // what a link leads to is replaced, not the link
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
    let before = std::fs::metadata(path).ok();
    if before.as_ref().is_some_and(|m| !m.is_file()) {
        // a device or a pipe stays what it is
        return std::fs::write(path, text);
    }
    let mode = before.map_or(0o666, |m| m.permissions().mode() & 0o777);
    let aside = tempfile::Builder::new()
        .prefix(".scx_amp-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder_of(path));
    let mut aside = match aside {
        // a file of ours in a folder that is not
        Err(e) if e.kind() == ErrorKind::PermissionDenied => return std::fs::write(path, text),
        aside => aside?,
    };
    aside.write_all(text.as_bytes())?;
    aside.persist(path)?;
    Ok(())
}

/// Columns of the terminal that standard output is; none where it is something else, such as a
/// pipe.
pub fn terminal_width() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let columns = rustix::termios::tcgetwinsize(&out).ok()?.ws_col;
    // a terminal that does not know says 0
    (columns > 0).then_some(usize::from(columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let d = tempfile::tempdir().unwrap();
        let path = d.path().join("out.json");
        write_out(&path, "{}\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
        for wrong in [path.join("x"), "/dev/full".into()] {
            let e = format!("{:#}", write_out(&wrong, "x").unwrap_err());
            assert!(e.contains(wrong.to_str().unwrap()), "{e}");
        }
        check_out(&path).unwrap();
        check_out(Path::new("-")).unwrap();
        for wrong in [path.join("x"), d.path().to_owned()] {
            assert!(check_out(&wrong).unwrap_err().is::<crate::BadInput>());
        }
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_mode_and_links() {
        let d = tempfile::tempdir().unwrap();
        let (file, link) = (d.path().join("file"), d.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let before = std::fs::File::open(&file).unwrap();
        write_out(&link, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        // whoever has the old one open reads the old one to its end
        assert_eq!(std::io::read_to_string(before).unwrap(), "old");
        assert!(link.is_symlink());
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(d.path()).unwrap().count(), 2);
    }

    #[test]
    fn every_failure_is_told() {
        all([Ok(()), Ok(())]).unwrap();
        let e = all([Err(anyhow!("one")), Ok(()), Err(anyhow!("two"))]).unwrap_err();
        assert_eq!(e.to_string(), "one; two");
    }

    #[test]
    fn no_name_controls_a_terminal() {
        let name = "a\x1b[2Jb\u{9b}c\td\r\n";
        assert_eq!(printable(name), "a\u{fffd}[2Jb\u{fffd}c\td\u{fffd}\n");
    }
}
