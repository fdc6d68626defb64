//! The platform file (`models/README.md`): written after training, read again to be evaluated.
//!
//! What is written is checked by the provider's own loader before anybody gets to see it, and
//! reading goes through it as well, so that the two cannot drift apart.

mod file;
mod writing;

pub use writing::{write, WriteError};

use crate::accuracy::{Accuracy, Predicted};
use crate::data::{CoreType, Dataset};
use crate::matching::{Matched, MatchedData};
use crate::sample::{Metric, Quantity, Source, Target};
use amp_machine::Locator;
use amp_metrics::providers::{PlatformModel, ProviderFileError};
use file::{CoreTypeFile, FactorFile, File, MetricFile, StumpFile};
use std::path::Path;
use thiserror::Error;

/// A platform file, for evaluation and for people.
#[derive(Debug)]
pub struct Platform {
    file: File<toml::Table>,
}

/// A factor of a platform file, in short.
#[derive(Clone, Debug, PartialEq)]
pub struct FactorInfo {
    /// The core type it is measured on.
    pub on: String,
    /// `speedup` or `efficiency`.
    pub predicts: String,
    /// Core type that the factor is of.
    pub of: String,
    /// Standard error, as the file states it.
    pub error: f64,
    /// Stumps.
    pub stumps: usize,
    /// Linear terms.
    pub linear: usize,
}

/// Why a platform file cannot be evaluated on a data set.
#[derive(Debug, Error, PartialEq)]
pub enum EvaluationError {
    /// The core types differ.
    #[error("the model is for core types {model}, the data are of {data}")]
    CoreTypes {
        /// Core types of the model.
        model: String,
        /// Core types of the data.
        data: String,
    },
    /// An event was not counted.
    #[error(
        "the model needs event `{event}` on core type `{core_type}`, which the data do not have"
    )]
    NoEvent {
        /// The event.
        event: String,
        /// The core type.
        core_type: String,
    },
}

/// A factor's predictions for the windows of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluated {
    /// The core type it is measured on, by its index.
    pub on: usize,
    /// What is predicted.
    pub target: Target,
    /// Every window in which the truth is known; programs by their index in the matched data.
    pub predicted: Vec<Predicted>,
    /// Standard uncertainty that the file states of each of them, within the ranges of its metrics.
    pub uncertainty: Vec<f64>,
    /// Index of each of them among the windows of its program.
    pub windows: Vec<usize>,
    /// Accuracy over all of them.
    pub accuracy: Option<Accuracy>,
    /// The standard error that the file states of the factor: the least of these uncertainties.
    pub stated: f64,
}

impl Platform {
    /// Reads a platform file that the provider takes; `path` is for messages.
    ///
    /// # Errors
    /// As [`PlatformModel::parse`].
    pub fn parse(path: &Path, text: &str) -> Result<Platform, ProviderFileError> {
        PlatformModel::parse(path, text)?;
        let file = toml::from_str(text).map_err(|e| Locator::new(path, text).toml(&e))?;
        Ok(Platform { file })
    }

    /// Its name.
    pub fn name(&self) -> Option<&str> {
        self.file.name.as_deref()
    }

    /// Where it comes from.
    pub fn source(&self) -> Option<&str> {
        self.file.source.as_deref()
    }

    /// What it says of its data and accuracy.
    pub fn summary(&self) -> Option<&toml::Table> {
        self.file.summary.as_ref()
    }

    /// Name, PMU and event sets (without instructions and cycles) of each core type.
    pub fn core_types(&self) -> impl Iterator<Item = (&str, Option<&str>, Vec<Vec<&str>>)> {
        self.file.core_type.iter().map(|t| {
            let sets = t.event_set.iter().map(|s| {
                let own = s
                    .iter()
                    .filter(|(k, _)| *k != "instructions" && *k != "cycles");
                own.map(|(_, e)| e.as_str()).collect()
            });
            (t.name.as_str(), t.pmu.as_deref(), sets.collect())
        })
    }

    /// Its factors.
    pub fn factors(&self) -> impl Iterator<Item = FactorInfo> + '_ {
        let fastest = self.file.core_type.first().map_or("", |t| t.name.as_str());
        self.file.core_type.iter().flat_map(move |t| {
            t.factor.iter().map(move |f| FactorInfo {
                on: t.name.clone(),
                predicts: f.predicts.clone(),
                of: f.of.clone().unwrap_or_else(|| fastest.to_owned()),
                error: f.error,
                stumps: f.stump.len(),
                linear: f.linear.len(),
            })
        })
    }

    /// Predicts every matched window of a data set, with every factor the file has.
    ///
    /// # Errors
    /// [`EvaluationError`] when the data are of other core types or lack an event.
    pub fn evaluate(
        &self,
        data: &Dataset,
        matched: &MatchedData,
    ) -> Result<Vec<Evaluated>, EvaluationError> {
        let names = |it: &mut dyn Iterator<Item = &str>| {
            it.map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
        };
        let model: Vec<&str> = self
            .file
            .core_type
            .iter()
            .map(|t| t.name.as_str())
            .collect();
        let here: Vec<&str> = data
            .header
            .core_types
            .iter()
            .map(|t| t.name.as_str())
            .collect();
        if model != here {
            return Err(EvaluationError::CoreTypes {
                model: names(&mut model.into_iter()),
                data: names(&mut here.into_iter()),
            });
        }
        let mut out = Vec::new();
        for (on, (t, info)) in self
            .file
            .core_type
            .iter()
            .zip(&data.header.core_types)
            .enumerate()
        {
            let metrics = t.metrics(info)?;
            let fastest = here.first().copied().unwrap_or_default();
            for f in &t.factor {
                let of =
                    f.of.as_deref()
                        .and_then(|of| here.iter().position(|n| *n == of))
                        .unwrap_or(0);
                let quantity = match f.predicts.as_str() {
                    "efficiency" => Quantity::Efficiency,
                    _ => Quantity::Speedup,
                };
                let target = Target { quantity, of };
                let (mut predicted, mut windows) = (Vec::new(), Vec::new());
                let mut uncertainty = Vec::new();
                for (p, program) in matched.programs.iter().enumerate() {
                    for (i, w) in program.windows.iter().enumerate() {
                        let said = t.predict(f, fastest, &metrics, w, on);
                        if let (Some(truth), Some(said)) = (target.truth(w), said) {
                            windows.push(i);
                            let here = f.deviation(&metrics, w, on).unwrap_or(0.0);
                            uncertainty.push(f.error.max(said.abs() * here));
                            predicted.push(Predicted {
                                program: p,
                                truth,
                                predicted: said,
                            });
                        }
                    }
                }
                out.push(Evaluated {
                    on,
                    target,
                    accuracy: Accuracy::of(&predicted),
                    predicted,
                    uncertainty,
                    windows,
                    stated: f.error,
                });
            }
        }
        Ok(out)
    }
}

impl CoreTypeFile {
    /// The metrics, on the events of a data set's core type.
    fn metrics(&self, info: &CoreType) -> Result<Vec<Metric>, EvaluationError> {
        let source = |key: &str| {
            if key == "instructions" || key == "cycles" {
                return Ok(if key == "cycles" {
                    Source::Cycles
                } else {
                    Source::Instructions
                });
            }
            let event = self
                .event_set
                .iter()
                .find_map(|s| s.get(key))
                .map_or(key, String::as_str);
            let place = info.events().position(|e| e == event);
            place
                .map(Source::Event)
                .ok_or_else(|| EvaluationError::NoEvent {
                    event: event.to_owned(),
                    core_type: info.name.clone(),
                })
        };
        let one = |m: &MetricFile| {
            Ok(Metric {
                name: m.name.clone(),
                count: source(&m.count)?,
                per: source(&m.per)?,
                scale: m.scale,
            })
        };
        self.metric.iter().map(one).collect()
    }
}

impl CoreTypeFile {
    /// A factor of it, as the provider computes it, in the same order, so that the same counts give
    /// the same bits. `None` where a metric has no finite value.
    fn predict(
        &self,
        f: &FactorFile,
        fastest: &str,
        metrics: &[Metric],
        w: &Matched,
        on: usize,
    ) -> Option<f64> {
        let mut result = f.sum(metrics, w, on)?;
        if f.times.is_some() {
            let of = |f: &FactorFile| f.of.clone().unwrap_or_else(|| fastest.to_owned());
            let same = |x: &&FactorFile| x.predicts == "speedup" && of(x) == of(f);
            let speedup = self.factor.iter().find(same)?;
            result *= speedup.within(speedup.sum(metrics, w, on)?);
        }
        Some(f.within(result))
    }
}

impl FactorFile {
    /// Base, stumps and linear terms.
    fn sum(&self, metrics: &[Metric], w: &Matched, on: usize) -> Option<f64> {
        let mut sum = stumps(self.base, &self.stump, metrics, w, on)?;
        for (name, c) in &self.linear {
            sum += c * value(name, metrics, w, on)?;
        }
        Some(sum)
    }

    /// The standard deviation of the logarithm of truth over prediction; 0 where the file does not say.
    fn deviation(&self, metrics: &[Metric], w: &Matched, on: usize) -> Option<f64> {
        let Some(v) = &self.variance else {
            return Some(0.0);
        };
        Some(stumps(v.base, &v.stump, metrics, w, on)?.max(0.0).sqrt())
    }

    /// Kept within the factor's range.
    fn within(&self, x: f64) -> f64 {
        match self.range {
            Some([low, high]) => x.clamp(low, high),
            None => x,
        }
    }
}

/// Base and stumps in a window; `None` where a metric has no finite value.
fn stumps(base: f64, all: &[StumpFile], metrics: &[Metric], w: &Matched, on: usize) -> Option<f64> {
    let mut sum = base;
    for s in all {
        sum += match value(&s.metric, metrics, w, on)? <= s.threshold {
            true => s.at_most,
            false => s.above,
        };
    }
    Some(sum)
}

/// A metric in a window on core type `on`, where it has a finite value.
fn value(name: &str, metrics: &[Metric], w: &Matched, on: usize) -> Option<f64> {
    let m = metrics.iter().find(|m| m.name == name)?;
    Some(m.value(w.instructions, w.on.get(on)?)).filter(|v| v.is_finite())
}
