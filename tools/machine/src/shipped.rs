//! The machines that come with the project.

use std::path::Path;

/// Names of the shipped machines.
pub const SHIPPED: &[&str] = &["juno", "quickia", "opteron", "alderlake"];

/// The file of the shipped machine `name`.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    Some(match name {
        "juno" => include_str!("../../machines/juno.toml"),
        "quickia" => include_str!("../../machines/quickia.toml"),
        "opteron" => include_str!("../../machines/opteron.toml"),
        "alderlake" => include_str!("../../machines/alderlake.toml"),
        _ => return None,
    })
}

/// Whether somebody who wrote `path` probably meant the name of a shipped machine.
pub(crate) fn looks_like_name(path: &Path) -> bool {
    path.extension().is_none() && path.components().count() == 1
}
