//! The platform models that come with the project: the files of `platforms/`.

/// Name and text of each, sorted by name; the name is the file's without `.toml`.
pub const SHIPPED_MODELS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/platforms.rs"));
