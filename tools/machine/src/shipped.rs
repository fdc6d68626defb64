//! The machines that come with the project: the files of `machines/`.

use std::path::Path;

/// Name and text of each, sorted by name.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/machines.rs"));

/// Names of the shipped machines, sorted.
pub const SHIPPED: &[&str] = &{
    let mut names = [""; FILES.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = FILES[i].0;
        i += 1;
    }
    names
};

/// The file of the shipped machine `name`.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    let file = FILES.iter().find(|(n, _)| *n == name);
    file.map(|(_, text)| *text)
}

/// Whether somebody who wrote `path` probably meant the name of a shipped machine.
pub(crate) fn looks_like_name(path: &Path) -> bool {
    path.extension().is_none() && path.components().count() == 1
}
