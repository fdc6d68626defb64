//! The platform file as it is laid out: what training writes and evaluation reads.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, Value};

/// The file, with a summary of type `S`: [`Summary`] when it is written, any table when it is read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct File<S> {
    pub(super) kind: String,
    pub(super) name: Option<String>,
    pub(super) source: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) machine: Vec<String>,
    pub(super) summary: Option<S>,
    pub(super) core_type: Vec<CoreTypeFile>,
}

/// What a model was trained on and how good it is.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) date: Option<String>,
    pub(super) kernel: Option<String>,
    pub(super) windows: usize,
    /// As text: TOML's integers are signed.
    pub(super) seed: String,
    pub(super) programs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) outliers: Vec<String>,
    pub(super) phases: BTreeMap<String, usize>,
    pub(super) accuracy: Vec<AccuracyFile>,
    pub(super) elimination: Vec<EliminationFile>,
}

#[derive(Debug, Serialize)]
pub(super) struct AccuracyFile {
    pub(super) core_type: String,
    pub(super) predicts: &'static str,
    pub(super) of: String,
    pub(super) method: &'static str,
    pub(super) programs: usize,
    pub(super) windows: usize,
    pub(super) mean_absolute_error: MeasuredFile,
    pub(super) relative_error: MeasuredFile,
    pub(super) correlation: Option<MeasuredFile>,
    pub(super) prediction_interval: f64,
    pub(super) coverage: Option<MeasuredFile>,
}

#[derive(Debug, Serialize)]
pub(super) struct MeasuredFile {
    pub(super) value: f64,
    pub(super) u: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct EliminationFile {
    pub(super) core_type: String,
    pub(super) event_sets: usize,
    pub(super) chosen: bool,
    pub(super) dropped: Vec<String>,
    pub(super) relative_squared_error: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CoreTypeFile {
    pub(super) name: String,
    pub(super) pmu: Option<String>,
    pub(super) event_set: Vec<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) metric: Vec<MetricFile>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) factor: Vec<FactorFile>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MetricFile {
    pub(super) name: String,
    pub(super) count: String,
    pub(super) per: String,
    #[serde(default = "one")]
    pub(super) scale: f64,
    pub(super) range: Option<[f64; 2]>,
}

fn one() -> f64 {
    1.0
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FactorFile {
    pub(super) predicts: String,
    pub(super) of: Option<String>,
    pub(super) error: f64,
    pub(super) range: Option<[f64; 2]>,
    pub(super) times: Option<String>,
    pub(super) base: f64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) linear: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) stump: Vec<StumpFile>,
    pub(super) variance: Option<VarianceFile>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct VarianceFile {
    pub(super) base: f64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) stump: Vec<StumpFile>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StumpFile {
    pub(super) metric: String,
    pub(super) threshold: f64,
    pub(super) at_most: f64,
    pub(super) above: f64,
}

/// Keys whose values are tables with a header of their own. All others stay within a line, and
/// stumps within a line each.
const HEADED: [&str; 8] = [
    "summary",
    "accuracy",
    "elimination",
    "core_type",
    "event_set",
    "metric",
    "factor",
    "variance",
];

impl<S: Serialize> File<S> {
    /// The text of the file.
    pub(super) fn text(&self) -> Result<String, toml_edit::ser::Error> {
        let mut document: DocumentMut = toml_edit::ser::to_document(self)?;
        lay_out(document.as_table_mut());
        Ok(document.to_string())
    }
}

fn lay_out(table: &mut Table) {
    for (key, item) in table.iter_mut() {
        let key = key.get();
        if HEADED.contains(&key) {
            *item = headed(std::mem::take(item));
        } else if let ("stump", Some(stumps)) = (key, item.as_array_mut()) {
            for stump in stumps.iter_mut() {
                stump.decor_mut().set_prefix("\n    ");
            }
            stumps.set_trailing("\n");
            stumps.set_trailing_comma(true);
        }
    }
}

/// A table, or an array of tables, out of the value that serde made of it.
fn headed(item: Item) -> Item {
    let open = |mut table: Table| {
        lay_out(&mut table);
        table
    };
    match item {
        Item::Value(Value::InlineTable(t)) => Item::Table(open(t.into_table())),
        Item::Value(Value::Array(all)) => {
            let tables = all.into_iter().filter_map(|v| match v {
                Value::InlineTable(t) => Some(open(t.into_table())),
                _ => None,
            });
            Item::ArrayOfTables(tables.collect::<ArrayOfTables>())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::providers::{PlatformModel, SHIPPED_MODELS};
    use std::path::Path;

    #[test]
    fn shipped_files_written_again_are_the_same_models() {
        assert!(!SHIPPED_MODELS.is_empty());
        for (name, text) in SHIPPED_MODELS {
            let file: File<toml::Table> = toml::from_str(text).unwrap();
            let again = file.text().unwrap();
            let model = |text: &str| PlatformModel::parse(Path::new(name), text).unwrap();
            assert!(model(&again) == model(text), "{name}: {again}");
            let values = |text: &str| {
                let file: File<toml::Table> = toml::from_str(text).unwrap();
                toml::Value::try_from(file).unwrap()
            };
            assert!(values(&again) == values(text), "{name}: {again}");
            // one line per stump, no table of its own
            let stumps = |text: &str| text.matches("{ metric = ").count();
            assert_eq!(stumps(&again), stumps(text), "{name}");
            assert_eq!(again.matches("stump]]").count(), 0, "{name}");
        }
    }
}
