//! What of an archive is read that somebody else wrote, before or after its signature is checked: for `amp-fuzz`, which
//! looks whether any of it panics or hangs.

use super::index::{Index, List};
use super::release::Release;
use super::{deb, resolve};
use std::io::Cursor;
use std::sync::atomic::AtomicBool;

/// Most bytes that a mutant may unpack to.
const MOST: u64 = 64 << 20;

/// Whether a text is the description of a release.
pub fn release(text: &str) -> bool {
    Release::read(text).is_some()
}

/// Whether a text is a list of packages of arm64, each of which can be had with all that it needs.
pub fn packages(text: &str) -> bool {
    let lists = [List {
        suite: "stable".into(),
        uri: "mirror".into(),
        priority: 500,
        text: text.into(),
    }];
    let index = Index::new(&lists);
    let names: Vec<String> = index.names().iter().map(|n| (*n).into()).collect();
    !names.is_empty() && resolve::closure(&index, &names, None, "arm64").is_ok()
}

/// Whether these bytes are a package that can be unpacked.
pub fn package(bytes: &[u8]) -> bool {
    let go_on = AtomicBool::new(false);
    let tar = deb::files(Cursor::new(bytes.to_vec()), &go_on, MOST);
    // no file has no name: all of them are gone through
    tar.and_then(|tar| deb::first(tar, &[])).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_understood_and_nothing_else() {
        let hash = "6b".repeat(32);
        let list = format!(
            "Package: a\nVersion: 1\nArchitecture: arm64\nDepends: b\nFilename: a.deb\nSize: 1\nSHA256: {hash}\n"
        );
        assert!(!packages(&list), "it needs what there is not");
        let both = format!(
            "{list}\n{}",
            list.replace(": a\n", ": b\n").replace("Depends: b\n", "")
        );
        assert!(packages(&both));
        assert!(!packages(""));
        assert!(release(
            "Suite: stable\nSHA256:\n 00 1 main/binary-arm64/Packages\n"
        ));
        assert!(!release("Suite: stable\n"));
        let deb = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("testdata/archive/pool/hello_2.0-1_arm64.deb");
        let deb = std::fs::read(deb).unwrap();
        assert!(package(&deb));
        assert!(!package(&deb[..deb.len() / 2]));
    }
}
