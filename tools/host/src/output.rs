//! Where a command's results go.

use anyhow::{Context, Result};
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Writes to a file, or to standard output for `-`.
///
/// # Errors
/// When the file cannot be written, naming it.
pub fn write_out(path: &Path, text: &str) -> Result<()> {
    if path.as_os_str() == "-" {
        // whoever read it may have had enough of it
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
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
        let e = write_out(&path.join("x"), "").unwrap_err().to_string();
        assert!(e.contains("out.json/x"), "{e}");
    }
}
