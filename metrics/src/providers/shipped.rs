//! The platform models that come with the project: the files of `platforms/`.

use super::model::PlatformModel;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Name and text of each, sorted by name; the name is the file's without `.toml`.
pub const SHIPPED_MODELS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/platforms.rs"));

/// A shipped model, or what is wrong with its file.
pub(super) type ShippedModel = Result<PlatformModel, String>;

/// Each model of [`SHIPPED_MODELS`] with its name. They are parsed at the first call; that takes
/// 0.1 s on a slow core, which a thread that schedules does not have.
pub(super) fn shipped_models() -> &'static [(&'static str, ShippedModel)] {
    static PARSED: OnceLock<Vec<(&str, ShippedModel)>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let parse = |(name, text): &(&'static str, &str)| {
            let path = PathBuf::from(format!("metrics/platforms/{name}.toml"));
            (
                *name,
                PlatformModel::parse(&path, text).map_err(|e| e.to_string()),
            )
        };
        SHIPPED_MODELS.iter().map(parse).collect()
    })
}
