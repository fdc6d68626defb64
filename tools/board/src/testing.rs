//! What this crate's tests share.

use std::path::Path;
use std::process::Command;

/// Makes an executable file. Another process writes it: a child of another test's thread, between
/// fork and exec, would have a copy of our descriptor, and no file is run that is open for writing.
pub(crate) fn executable(path: &Path, text: &str) {
    let plain = path.with_extension("text");
    std::fs::write(&plain, text).unwrap();
    let mut install = Command::new("install");
    let made = install.args(["-m", "755"]).args([&plain, path]).status();
    assert!(made.unwrap().success());
}
