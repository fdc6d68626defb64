//! Data files of a crate, found in their folder when the crate is built: nobody keeps a list of
//! them.
//!
//! The crate's build script names the folder:
//!
//! ```no_run
//! fn main() -> std::io::Result<()> {
//!     amp_shipped::toml_files("machines")
//! }
//! ```
//!
//! and the crate includes name and text of each file, sorted by name:
//!
//! ```text
//! const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/machines.rs"));
//! ```
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// Writes `$OUT_DIR/FOLDER.rs`: an array of name (without `.toml`) and text of every TOML file in
/// `folder`, which lies in the crate that is built. A file that is added or removed has the crate
/// built again.
///
/// # Errors
/// When the folder cannot be read or has no such file, or outside a build script.
pub fn toml_files(folder: &str) -> Result<()> {
    write_listing(folder, "toml", "include_str")
}

/// As [`toml_files`], of the files whose names end in `.EXTENSION`: name (without that) and bytes.
///
/// # Errors
/// As [`toml_files`].
pub fn binary_files(folder: &str, extension: &str) -> Result<()> {
    write_listing(folder, extension, "include_bytes")
}

fn write_listing(folder: &str, extension: &str, include: &str) -> Result<()> {
    let variable = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.ok_or_else(|| Error::other(format!("{name} is not set: this is for build scripts")))
    };
    println!("cargo::rerun-if-changed={folder}");
    let krate = variable("CARGO_MANIFEST_DIR")?;
    let text = listing(&krate, folder, extension, include)?;
    std::fs::write(variable("OUT_DIR")?.join(format!("{folder}.rs")), text)
}

/// The expression for the files of `krate/folder`. The content is included from where the crate
/// lies at the time, so that no path is in it.
fn listing(krate: &Path, folder: &str, extension: &str, include: &str) -> Result<String> {
    let path = krate.join(folder);
    let suffix = format!(".{extension}");
    let at = |e: Error| Error::new(e.kind(), format!("{}: {e}", path.display()));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(at)? {
        let file = entry.map_err(at)?.file_name();
        let file = file.to_str().ok_or_else(|| {
            at(Error::other(format!(
                "{}: not a name in UTF-8",
                file.display()
            )))
        })?;
        if let Some(name) = file.strip_suffix(&suffix) {
            names.push(name.to_owned());
        }
    }
    if names.is_empty() {
        return Err(at(Error::other(format!("there is no {suffix} file"))));
    }
    names.sort_unstable();
    let mut out = String::from("&[\n");
    for name in names {
        let file = format!("/{folder}/{name}{suffix}");
        // writing to a String cannot fail
        let _ = writeln!(
            out,
            "    ({name:?}, {include}!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {file:?}))),"
        );
    }
    out.push_str("]\n");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_toml_file_is_listed_by_name_and_nothing_else() {
        let krate = tempfile::tempdir().unwrap();
        let folder = krate.path().join("data");
        std::fs::create_dir(&folder).unwrap();
        let none = listing(krate.path(), "data", "toml", "include_str")
            .unwrap_err()
            .to_string();
        assert!(none.contains("data: there is no .toml file"), "{none}");
        for file in ["b.toml", "a.toml", "README.md"] {
            std::fs::write(folder.join(file), "x = 1\n").unwrap();
        }
        let text = listing(krate.path(), "data", "toml", "include_str").unwrap();
        let files: Vec<&str> = text.lines().filter(|l| l.contains("include_str")).collect();
        assert_eq!(files.len(), 2, "{text}");
        assert!(
            files[0].contains("(\"a\", ") && files[0].contains("\"/data/a.toml\""),
            "{text}"
        );
        assert!(files[1].contains("(\"b\", "), "{text}");
        std::fs::write(folder.join("c.gz"), [0]).unwrap();
        let bytes = listing(krate.path(), "data", "gz", "include_bytes").unwrap();
        assert!(bytes.contains("(\"c\", include_bytes!(") && !bytes.contains("toml"));
        let krate = krate.path().display().to_string();
        assert!(!text.contains(&krate), "a path of the machine: {text}");
        assert!(
            listing(Path::new("/nonexistent"), "data", "toml", "include_str")
                .unwrap_err()
                .to_string()
                .contains("data")
        );
    }
}
