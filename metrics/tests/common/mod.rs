//! Fixture trees.

use std::path::Path;
use tempfile::TempDir;

/// The tree of `fixtures/NAME.sysfs`, unpacked.
pub fn sysfs(name: &str) -> TempDir {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.sysfs"));
    let text = std::fs::read_to_string(&file).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for line in text.lines() {
        let (path, content) = line.split_once(" = ").unwrap();
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{content}\n")).unwrap();
    }
    dir
}
