//! The file of a platform model (`models/README.md`), as it is written.

use crate::multiplex;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelFile {
    #[allow(dead_code)] // read by whoever dispatches on it
    pub(super) kind: String,
    pub(super) name: Option<String>,
    /// Documentation of where the model comes from.
    #[allow(dead_code)]
    pub(super) source: Option<String>,
    /// What was trained on and how accurate it is; of `model show`, any table will do.
    #[allow(dead_code)]
    pub(super) summary: Option<toml::Table>,
    /// Names of the machines it is for; any will do.
    #[serde(default)]
    pub(super) machine: Vec<String>,
    #[serde(default)]
    pub(super) settings: Settings,
    pub(super) core_type: Vec<CoreTypeFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    pub(super) strategy: Spanned<String>,
    pub(super) phase_ratio: Spanned<f64>,
    pub(super) phase_confirm: Spanned<u32>,
    pub(super) least_coverage: Spanned<f64>,
    pub(super) shortest_ms: Spanned<f64>,
    pub(super) stale_after_ms: Spanned<f64>,
    pub(super) settled_ms: Spanned<f64>,
}

impl Default for Settings {
    fn default() -> Settings {
        fn at<T>(value: T) -> Spanned<T> {
            Spanned::new(0..0, value)
        }
        Settings {
            strategy: at("relative-error".to_owned()),
            phase_ratio: at(multiplex::DEFAULT_PHASE_RATIO),
            phase_confirm: at(multiplex::DEFAULT_PHASE_CONFIRM),
            least_coverage: at(0.05),
            shortest_ms: at(1.0),
            stale_after_ms: at(5000.0),
            settled_ms: at(400.0),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CoreTypeFile {
    pub(super) name: String,
    /// The PMU that must count there.
    pub(super) pmu: Option<Spanned<String>>,
    pub(super) event_set: Vec<BTreeMap<String, Spanned<String>>>,
    #[serde(default)]
    pub(super) metric: Vec<MetricFile>,
    #[serde(default)]
    pub(super) factor: Vec<FactorFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MetricFile {
    pub(super) name: Spanned<String>,
    pub(super) count: Spanned<String>,
    pub(super) per: Spanned<String>,
    #[serde(default = "one")]
    pub(super) scale: Spanned<f64>,
    pub(super) range: Option<Spanned<[f64; 2]>>,
}

pub(super) fn one() -> Spanned<f64> {
    Spanned::new(0..0, 1.0)
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FactorFile {
    pub(super) predicts: Spanned<String>,
    pub(super) of: Option<Spanned<String>>,
    /// What the sum is multiplied by: `speedup` or nothing.
    pub(super) times: Option<Spanned<String>>,
    pub(super) base: Spanned<f64>,
    pub(super) error: Spanned<f64>,
    pub(super) range: Option<Spanned<[f64; 2]>>,
    #[serde(default)]
    pub(super) stump: Vec<StumpFile>,
    #[serde(default)]
    pub(super) linear: BTreeMap<String, Spanned<f64>>,
    pub(super) variance: Option<VarianceFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VarianceFile {
    pub(super) base: Spanned<f64>,
    #[serde(default)]
    pub(super) stump: Vec<StumpFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StumpFile {
    pub(super) metric: Spanned<String>,
    pub(super) threshold: Spanned<f64>,
    pub(super) at_most: Spanned<f64>,
    pub(super) above: Spanned<f64>,
}
