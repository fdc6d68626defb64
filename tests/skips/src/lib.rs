//! What tests have to tell at the end: that they could not be made on this machine, that a guest's
//! kernel died and was booted again, how long a guest ran, why a test failed. A test that passes shows
//! nothing of what it prints, and a failure's reason lies far above the end of a long log, so that each
//! is a line in a file that a variable names; `./test` shows them.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Once;

/// The variable with the path of the file of skips; without it a skip is only printed.
pub const FILE: &str = "AMP_SKIPPED_TESTS";
/// The variable with the path of the file of guests: how long each ran, which were booted again.
/// Without it that is only printed.
pub const GUESTS: &str = "AMP_TEST_GUESTS";
/// The variable with the path of the file of failures; without it they stand only where they happen.
pub const FAILURES: &str = "AMP_FAILED_TESTS";

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

/// From now on writes down why a test of this program fails. Calls after the first do nothing.
pub fn tell_failures() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            let Some(file) = std::env::var_os(FAILURES) else {
                return;
            };
            let message = info.payload_as_str().unwrap_or("no message");
            let place = info.location().map_or(String::new(), ToString::to_string);
            let line = format!("{}: {place}: {}", test(), excerpt(message));
            // a panic within a panic would end the program; the failure stands in the log anyway
            let _ = append(Path::new(&file), &line);
        }));
    });
}

/// The beginning and the end of a long message, on one line.
fn excerpt(message: &str) -> String {
    const SIDE: usize = 400;
    let all: Vec<char> = message.trim().chars().collect();
    let text: String = if all.len() > 2 * SIDE {
        let end = &all[all.len() - SIDE..];
        all[..SIDE].iter().chain(&['…']).chain(end).collect()
    } else {
        all.iter().collect()
    };
    text.lines().map(str::trim).collect::<Vec<_>>().join(" | ")
}

fn test() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("a test").to_owned()
}

fn write(file: &Path, line: &str) {
    append(file, line).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

fn append(file: &Path, line: &str) -> std::io::Result<()> {
    let mut open = OpenOptions::new().create(true).append(true).open(file)?;
    // one write: tests of several programs append at a time
    open.write_all(format!("{line}\n").as_bytes())
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

    #[test]
    fn a_long_message_keeps_its_ends() {
        let message = format!("{}\n  middle\n{}\n", "a".repeat(1000), "b".repeat(1000));
        let short = excerpt(&message);
        assert_eq!(short, format!("{}…{}", "a".repeat(400), "b".repeat(400)));
        assert_eq!(excerpt(" left: 1\n  right: 2\n"), "left: 1 | right: 2");
    }
}
