//! The platform models that come with the project.

/// Name and text of each, the file's name without `.toml`.
pub const SHIPPED_MODELS: &[(&str, &str)] = &[
    ("juno", include_str!("../../../models/platforms/juno.toml")),
    (
        "quickia",
        include_str!("../../../models/platforms/quickia.toml"),
    ),
];
