//! The platform file (`models/README.md`): written after training, read again to be evaluated.
//!
//! What is written is checked by the provider's own loader before anybody gets to see it, and
//! reading goes through it as well, so that the two cannot drift apart.

use crate::accuracy::{Accuracy, Predicted};
use crate::data::{CoreType, Dataset};
use crate::matching::{Matched, MatchedData};
use crate::sample::{Metric, Quantity, Source, Target};
use crate::training::{Formula, Method, Options, Trained, TrainedCoreType};
use amp_metrics::providers::{PlatformModel, ProviderFileError, MAX_METRICS};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use thiserror::Error;

/// Why no platform file can be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The provider computes metrics in place and takes no more.
    #[error("core type `{core_type}`: {have} metrics, the provider takes at most {MAX_METRICS}: collect fewer events")]
    TooManyMetrics {
        /// The core type.
        core_type: String,
        /// Metrics.
        have: usize,
    },
    /// The provider would refuse it.
    #[error("the model is not one that the provider takes: {0}")]
    Refused(#[from] ProviderFileError),
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<String> = items.map(quoted).collect();
    format!("[{}]", all.join(", "))
}

/// A float that is read back bit by bit: Rust's shortest representation is also TOML.
fn float(x: f64) -> String {
    format!("{x:?}")
}

/// Four digits are enough for a summary.
fn rounded(x: f64) -> String {
    format!("{:?}", format!("{x:.4}").parse::<f64>().unwrap_or(x))
}

/// `range = …`, where it is one.
fn range(out: &mut String, (low, high): (f64, f64)) {
    if low < high {
        // writing to a String cannot fail; here and below
        let _ = writeln!(out, "range = [{}, {}]", float(low), float(high));
    }
}

fn accuracy(out: &mut String, a: &Accuracy) {
    let _ = writeln!(out, "programs = {}\nwindows = {}", a.programs, a.windows);
    for (name, m) in [
        ("mean_absolute_error", Some(a.mae)),
        ("relative_error", Some(a.relative)),
        ("correlation", a.correlation),
    ] {
        if let Some(m) = m {
            let u =
                m.u.map_or(String::new(), |u| format!(", u = {}", rounded(u)));
            let _ = writeln!(out, "{name} = {{ value = {}{u} }}", rounded(m.value));
        }
    }
    let _ = writeln!(out, "prediction_interval = {}", rounded(a.prediction));
    if let Some(c) = a.coverage {
        let u =
            c.u.map_or(String::new(), |u| format!(", u = {}", rounded(u)));
        let _ = writeln!(out, "coverage = {{ value = {}{u} }}", rounded(c.value));
    }
}

/// The text of the platform file: what the provider needs, with the standard uncertainty (`error`)
/// from the prediction interval of leave-one-program-out cross-validation, and a summary of data,
/// accuracy and elimination in `[summary]`.
///
/// # Errors
/// [`WriteError`]; what is returned, the provider takes.
pub fn write(data: &Dataset, trained: &Trained, options: &Options) -> Result<String, WriteError> {
    let h = &data.header;
    let mut out = String::from(
        "# Written by `scx_amp model train`; models/README.md says what the keys mean.\n",
    );
    let method = match options.learner.method {
        Method::Stumps => "additive regression of stumps",
        Method::Linear => "linear regression",
        Method::Both => "linear regression, and additive regression of stumps on what it leaves",
    };
    let _ = writeln!(out, "kind = \"model\"\nname = {}", quoted(&h.platform));
    let source = format!(
        "{method} on {} windows of {} programs",
        trained.windows,
        trained.programs.len()
    );
    let _ = writeln!(out, "source = {}", quoted(&source));
    if let Some(machine) = &h.machine {
        let _ = writeln!(out, "machine = [{}]", quoted(machine));
    }
    let _ = writeln!(out, "\n[summary]");
    for (key, value) in [("date", &h.date), ("kernel", &h.kernel)] {
        if let Some(value) = value {
            let _ = writeln!(out, "{key} = {}", quoted(value));
        }
    }
    let _ = writeln!(out, "windows = {}", trained.windows);
    // TOML's integers are signed
    let _ = writeln!(out, "seed = {}", quoted(&options.learner.seed.to_string()));
    let _ = writeln!(
        out,
        "programs = {}",
        list(trained.programs.iter().map(String::as_str))
    );
    let counts = trained.programs.iter().zip(&trained.phases);
    let counts: Vec<String> = counts
        .map(|(p, n)| format!("{} = {n}", quoted(p)))
        .collect();
    let _ = writeln!(out, "phases = {{ {} }}", counts.join(", "));
    for t in &trained.core_types {
        let name = |t: usize| h.core_types.get(t).map_or("?", |t| t.name.as_str());
        for f in &t.factors {
            for (what, a) in [
                (method, Some(&f.accuracy)),
                ("linear regression, for comparison", f.baseline.as_ref()),
            ] {
                let Some(a) = a else { continue };
                let _ = writeln!(
                    out,
                    "\n[[summary.accuracy]]\ncore_type = {}",
                    quoted(name(t.on))
                );
                let (predicts, of) = (quoted(f.target.quantity.name()), quoted(name(f.target.of)));
                let _ = writeln!(
                    out,
                    "predicts = {predicts}\nof = {of}\nmethod = {}",
                    quoted(what)
                );
                accuracy(&mut out, a);
            }
        }
        let Some(info) = h.core_types.get(t.on) else {
            continue;
        };
        let events: Vec<&str> = info.events().collect();
        let names = |of: &[usize]| list(of.iter().filter_map(|e| events.get(*e).copied()));
        for r in &t.ladder {
            let _ = writeln!(
                out,
                "\n[[summary.elimination]]\ncore_type = {}",
                quoted(&info.name)
            );
            let _ = writeln!(out, "event_sets = {}\nchosen = {}", r.sets, r.chosen);
            let _ = writeln!(
                out,
                "dropped = {}\nrelative_squared_error = {}",
                names(&r.dropped),
                rounded(r.error)
            );
        }
    }
    for t in &trained.core_types {
        let Some(info) = h.core_types.get(t.on) else {
            continue;
        };
        core_type(
            &mut out,
            info,
            t,
            h.core_types.iter().map(|t| t.name.as_str()),
        )?;
    }
    // the provider is the judge of what it takes
    PlatformModel::parse(Path::new(&h.platform), &out)?;
    Ok(out)
}

fn core_type<'a>(
    out: &mut String,
    info: &CoreType,
    t: &TrainedCoreType,
    core_types: impl Iterator<Item = &'a str>,
) -> Result<(), WriteError> {
    if t.metrics.len() > MAX_METRICS {
        return Err(WriteError::TooManyMetrics {
            core_type: info.name.clone(),
            have: t.metrics.len(),
        });
    }
    let core_types: Vec<&str> = core_types.collect();
    let events: Vec<&str> = info.events().collect();
    let _ = writeln!(out, "\n[[core_type]]\nname = {}", quoted(&info.name));
    if let Some(pmu) = &info.pmu {
        let _ = writeln!(out, "pmu = {}", quoted(pmu));
    }
    let instructions = info.instructions.as_deref().unwrap_or("instructions");
    let cycles = info.cycles.as_deref().unwrap_or("cycles");
    for set in &t.sets {
        let _ = writeln!(
            out,
            "\n[[core_type.event_set]]\ninstructions = {}",
            quoted(instructions)
        );
        let _ = writeln!(out, "cycles = {}", quoted(cycles));
        for e in set.iter().filter_map(|e| events.get(*e)) {
            let _ = writeln!(out, "{} = {}", quoted(&key(e)), quoted(e));
        }
    }
    let source = |s: Source| match s {
        Source::Instructions => quoted("instructions"),
        Source::Cycles => quoted("cycles"),
        Source::Event(e) => quoted(&key(events.get(e).copied().unwrap_or("?"))),
    };
    for (m, r) in t.metrics.iter().zip(&t.ranges) {
        let _ = writeln!(out, "\n[[core_type.metric]]\nname = {}", quoted(&m.name));
        let _ = writeln!(out, "count = {}\nper = {}", source(m.count), source(m.per));
        let _ = writeln!(out, "scale = {}", float(m.scale));
        range(out, *r);
    }
    for f in &t.factors {
        let _ = writeln!(
            out,
            "\n[[core_type.factor]]\npredicts = {}",
            quoted(f.target.quantity.name())
        );
        let of = core_types.get(f.target.of).copied().unwrap_or("?");
        let _ = writeln!(
            out,
            "of = {}\nerror = {}",
            quoted(of),
            float(f.accuracy.uncertainty())
        );
        range(out, f.range);
        let name = |m: usize| quoted(t.metrics.get(m).map_or("?", |m| &m.name));
        let sum = match &f.formula {
            Formula::Product(ratio, _) => {
                out.push_str("times = \"speedup\"\n");
                ratio
            }
            sum => sum,
        };
        let (line, stumps) = match sum {
            Formula::Stumps(s) => (None, Some(s)),
            Formula::Linear(l) => (Some(l), None),
            Formula::Both(l, s) => (Some(l), Some(s)),
            // its parts are sums
            Formula::Product(..) => (None, None),
        };
        let base = line.map_or(0.0, |l| l.base) + stumps.map_or(0.0, |s| s.base);
        let _ = writeln!(out, "base = {}", float(base));
        if let Some(l) = line {
            let terms: Vec<String> = (0..)
                .zip(&l.coefficients)
                .filter(|(_, c)| **c != 0.0)
                .map(|(m, c)| format!("{} = {}", name(m), float(*c)))
                .collect();
            let _ = writeln!(out, "linear = {{ {} }}", terms.join(", "));
        }
        if let Some(s) = stumps {
            out.push_str("stump = [\n");
            for s in &s.stumps {
                let (a, b, c) = (float(s.threshold), float(s.at_most), float(s.above));
                let metric = name(s.metric);
                let _ = writeln!(
                    out,
                    "    {{ metric = {metric}, threshold = {a}, at_most = {b}, above = {c} }},"
                );
            }
            out.push_str("]\n");
        }
    }
    Ok(())
}

/// What an event is called in its set: itself, unless that name is taken.
fn key(event: &str) -> String {
    match event {
        "instructions" | "cycles" => format!("{event}_again"),
        _ => event.to_owned(),
    }
}

// ---- reading
// -------------------------------------------------------------------------------------------------------

#[derive(Debug, Deserialize)]
struct File {
    name: Option<String>,
    source: Option<String>,
    summary: Option<toml::Table>,
    core_type: Vec<CoreTypeFile>,
}

#[derive(Debug, Deserialize)]
struct CoreTypeFile {
    name: String,
    pmu: Option<String>,
    event_set: Vec<BTreeMap<String, String>>,
    #[serde(default)]
    metric: Vec<MetricFile>,
    #[serde(default)]
    factor: Vec<FactorFile>,
}

#[derive(Debug, Deserialize)]
struct MetricFile {
    name: String,
    count: String,
    per: String,
    #[serde(default = "one")]
    scale: f64,
}

fn one() -> f64 {
    1.0
}

#[derive(Debug, Deserialize)]
struct FactorFile {
    predicts: String,
    of: Option<String>,
    times: Option<String>,
    base: f64,
    error: f64,
    range: Option<[f64; 2]>,
    #[serde(default)]
    stump: Vec<StumpFile>,
    #[serde(default)]
    linear: BTreeMap<String, f64>,
}

#[derive(Debug, Deserialize)]
struct StumpFile {
    metric: String,
    threshold: f64,
    at_most: f64,
    above: f64,
}

/// A platform file, for evaluation and for people.
#[derive(Debug)]
pub struct Platform {
    file: File,
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
    /// Index of each of them among the windows of its program.
    pub windows: Vec<usize>,
    /// Accuracy over all of them.
    pub accuracy: Option<Accuracy>,
    /// The standard error that the file states.
    pub stated: f64,
}

impl Platform {
    /// Reads a platform file that the provider takes; `path` is for messages.
    ///
    /// # Errors
    /// As [`PlatformModel::parse`].
    pub fn parse(path: &Path, text: &str) -> Result<Platform, ProviderFileError> {
        PlatformModel::parse(path, text)?;
        let file = toml::from_str(text).map_err(|e| ProviderFileError::Bad {
            path: path.to_owned(),
            message: e.to_string(),
        })?;
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
                for (p, program) in matched.programs.iter().enumerate() {
                    for (i, w) in program.windows.iter().enumerate() {
                        let said = t.predict(f, fastest, &metrics, w, on);
                        if let (Some(truth), Some(said)) = (target.truth(w), said) {
                            windows.push(i);
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
        let here = w.on.get(on)?;
        let value = |name: &str| {
            let m = metrics.iter().find(|m| m.name == name)?;
            Some(m.value(w.instructions, here)).filter(|v| v.is_finite())
        };
        let mut sum = self.base;
        for s in &self.stump {
            sum += if value(&s.metric)? <= s.threshold {
                s.at_most
            } else {
                s.above
            };
        }
        for (name, c) in &self.linear {
            sum += c * value(name)?;
        }
        Some(sum)
    }

    /// Kept within the factor's range.
    fn within(&self, x: f64) -> f64 {
        match self.range {
            Some([low, high]) => x.clamp(low, high),
            None => x,
        }
    }
}
