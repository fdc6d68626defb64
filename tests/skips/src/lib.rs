//! Tests that could not be made on this machine. A test that passes shows nothing of what it
//! prints, so that each skip is a line in the file that [`FILE`] names, which `./test` shows.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// The variable with the path of the file; without it a skip is only printed.
pub const FILE: &str = "AMP_SKIPPED_TESTS";

/// Writes down that the calling test, or a part of it, is skipped: `test: reason`.
///
/// # Panics
/// When that cannot be written: a skip that nobody sees is a failure.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    println!("skipped: {reason}");
    if let Some(file) = std::env::var_os(FILE) {
        write(Path::new(&file), test, reason);
    }
}

fn write(file: &Path, test: &str, reason: &str) {
    let open = OpenOptions::new().create(true).append(true).open(file);
    // one write: tests of several programs append at a time
    let line = format!("{test}: {reason}\n");
    let written = open.and_then(|mut f| f.write_all(line.as_bytes()));
    written.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_skip_is_a_line() {
        let name = format!("amp-skips-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&file);
        write(&file, "a", "no PMU");
        write(&file, "b", "not root");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(text, "a: no PMU\nb: not root\n");
    }
}
