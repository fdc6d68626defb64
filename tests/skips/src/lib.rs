//! What tests have to tell although they pass: that they could not be made on this machine, that a
//! guest's kernel died and was booted again, how long a guest ran. A test that passes shows nothing
//! of what it prints, so that each is a line in a file that a variable names; `./test` shows them.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// The variable with the path of the file of skips; without it a skip is only printed.
pub const FILE: &str = "AMP_SKIPPED_TESTS";
/// The variable with the path of the file of guests: how long each ran, which were booted again.
/// Without it that is only printed.
pub const GUESTS: &str = "AMP_TEST_GUESTS";

/// Writes down that the calling test, or a part of it, is skipped: `test: reason`.
///
/// # Panics
/// When that cannot be written: a skip that nobody sees is a failure.
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
    if let Some(file) = std::env::var_os(FILE) {
        write(Path::new(&file), &format!("{}: {reason}", test()));
    }
}

/// Writes down that a guest of the calling test ran for `seconds` of this machine's time.
///
/// # Panics
/// When that cannot be written.
pub fn guest_ran(seconds: f64) {
    println!("guest ran {seconds:.0} s");
    if let Some(file) = std::env::var_os(GUESTS) {
        write(Path::new(&file), &format!("{seconds:4.0} s  {}", test()));
    }
}

/// Writes down that a guest of the calling test is booted again, and why.
///
/// # Panics
/// When that cannot be written: a guest that dies and nobody sees it is a failure.
pub fn booted_again(why: &str) {
    println!("booted again: {why}");
    if let Some(file) = std::env::var_os(GUESTS) {
        write(Path::new(&file), &format!("again   {}: {why}", test()));
    }
}

fn test() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("a test").to_owned()
}

fn write(file: &Path, line: &str) {
    let open = OpenOptions::new().create(true).append(true).open(file);
    // one write: tests of several programs append at a time
    let line = format!("{line}\n");
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
        write(&file, "a: no PMU");
        write(&file, "b: not root");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(text, "a: no PMU\nb: not root\n");
    }
}
