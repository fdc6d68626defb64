//! From a trained platform to its file.

use super::file::{
    AccuracyFile, CoreTypeFile, EliminationFile, FactorFile, File, MeasuredFile, MetricFile,
    StumpFile, Summary, VarianceFile,
};
use crate::accuracy::Accuracy;
use crate::data::{CoreType, Dataset, Header};
use crate::sample::Source;
use crate::stumps::Stump;
use crate::training::{Formula, Method, Options, Trained, TrainedCoreType, TrainedFactor};
use amp_metrics::providers::{PlatformModel, ProviderFileError, MAX_METRICS};
use amp_metrics::uncertainty::Measured;
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
    /// It is no TOML.
    #[error("the model cannot be written as TOML: {0}")]
    Toml(#[from] toml_edit::ser::Error),
}

/// The text of the platform file: what the provider needs, with the standard uncertainty (`error`)
/// from the prediction interval of leave-one-program-out cross-validation, and a summary of data,
/// accuracy and elimination in `[summary]`.
///
/// # Errors
/// [`WriteError`]; what is returned, the provider takes.
pub fn write(data: &Dataset, trained: &Trained, options: &Options) -> Result<String, WriteError> {
    let h = &data.header;
    let method = match options.learner.method {
        Method::Stumps => "additive regression of stumps",
        Method::Linear => "linear regression",
        Method::Both => "linear regression, and additive regression of stumps on what it leaves",
    };
    let (windows, programs) = (trained.windows, trained.programs.len());
    let core_types = trained.core_types.iter();
    let file = File {
        kind: "model".to_owned(),
        name: Some(h.platform.clone()),
        source: Some(match trained.outliers.len() {
            0 => format!("{method} on {windows} windows of {programs} programs"),
            n => format!("{method} on {windows} windows of {programs} programs; unsure where {n} others showed it"),
        }),
        machine: h.machine.iter().cloned().collect(),
        summary: Some(summary(h, trained, options, method)),
        core_type: core_types
            .filter_map(|t| Some(core_type(h, h.core_types.get(t.on)?, t)))
            .collect::<Result<_, _>>()?,
    };
    let text = format!(
        "# Written by `scx_amp model train`; models/README.md says what the keys mean.\n{}",
        file.text()?
    );
    // the provider is the judge of what it takes
    PlatformModel::parse(Path::new(&h.platform), &text)?;
    Ok(text)
}

fn summary(h: &Header, trained: &Trained, options: &Options, method: &'static str) -> Summary {
    let phases = trained.programs.iter().cloned().zip(trained.phases.clone());
    let mut summary = Summary {
        date: h.date.clone(),
        kernel: h.kernel.clone(),
        windows: trained.windows,
        seed: options.learner.seed.to_string(),
        programs: trained.programs.clone(),
        outliers: trained.outliers.clone(),
        phases: phases.collect(),
        accuracy: Vec::new(),
        elimination: Vec::new(),
    };
    for t in &trained.core_types {
        for f in &t.factors {
            let baseline = f.baseline.as_ref();
            let baseline = baseline.map(|a| ("linear regression, for comparison", a));
            let all = std::iter::once((method, &f.accuracy)).chain(baseline);
            let of = |(method, a)| accuracy(name(h, t.on), f, name(h, f.target.of), method, a);
            summary.accuracy.extend(all.map(of));
        }
        let Some(info) = h.core_types.get(t.on) else {
            continue;
        };
        summary
            .elimination
            .extend(t.ladder.iter().map(|r| EliminationFile {
                core_type: info.name.clone(),
                event_sets: r.sets,
                chosen: r.chosen,
                dropped: r.dropped.iter().filter_map(|e| event(info, *e)).collect(),
                relative_squared_error: rounded(r.error),
            }));
    }
    summary
}

fn accuracy(
    core_type: String,
    f: &TrainedFactor,
    of: String,
    method: &'static str,
    a: &Accuracy,
) -> AccuracyFile {
    let measured = |m: Measured| MeasuredFile {
        value: rounded(m.value),
        u: m.u.map(rounded),
    };
    AccuracyFile {
        core_type,
        predicts: f.target.quantity.name(),
        of,
        method,
        programs: a.programs,
        windows: a.windows,
        mean_absolute_error: measured(a.mae),
        relative_error: measured(a.relative),
        correlation: a.correlation.map(measured),
        prediction_interval: rounded(a.prediction),
        coverage: a.coverage.map(measured),
    }
}

/// Four digits are enough for a summary.
fn rounded(x: f64) -> f64 {
    format!("{x:.4}").parse().unwrap_or(x)
}

/// Name of a core type.
fn name(h: &Header, core_type: usize) -> String {
    let t = h.core_types.get(core_type);
    t.map_or("?", |t| t.name.as_str()).to_owned()
}

/// Name of an event of a core type.
fn event(info: &CoreType, e: usize) -> Option<String> {
    info.events().nth(e).map(str::to_owned)
}

/// What an event is called in its set: itself, unless that name is taken.
fn key(event: &str) -> String {
    match event {
        "instructions" | "cycles" => format!("{event}_again"),
        _ => event.to_owned(),
    }
}

/// A range, where it is one.
fn range((low, high): (f64, f64)) -> Option<[f64; 2]> {
    (low < high).then_some([low, high])
}

fn core_type(h: &Header, info: &CoreType, t: &TrainedCoreType) -> Result<CoreTypeFile, WriteError> {
    if t.metrics.len() > MAX_METRICS {
        return Err(WriteError::TooManyMetrics {
            core_type: info.name.clone(),
            have: t.metrics.len(),
        });
    }
    let fixed = [
        ("instructions", &info.instructions),
        ("cycles", &info.cycles),
    ];
    let set = |events: &Vec<usize>| {
        let fixed = fixed.iter().map(|(key, event)| {
            let event = event.as_deref().unwrap_or(key);
            ((*key).to_owned(), event.to_owned())
        });
        let own = events.iter().filter_map(|e| event(info, *e));
        fixed.chain(own.map(|e| (key(&e), e))).collect()
    };
    let source = |s: Source| match s {
        Source::Instructions => "instructions".to_owned(),
        Source::Cycles => "cycles".to_owned(),
        Source::Event(e) => event(info, e).map_or("?".to_owned(), |e| key(&e)),
    };
    let metrics = t.metrics.iter().zip(&t.ranges);
    Ok(CoreTypeFile {
        name: info.name.clone(),
        pmu: info.pmu.clone(),
        event_set: t.sets.iter().map(set).collect(),
        metric: metrics
            .map(|(m, r)| MetricFile {
                name: m.name.clone(),
                count: source(m.count),
                per: source(m.per),
                scale: m.scale,
                range: range(*r),
            })
            .collect(),
        factor: t.factors.iter().map(|f| factor(h, t, f)).collect(),
    })
}

fn factor(h: &Header, t: &TrainedCoreType, f: &TrainedFactor) -> FactorFile {
    let metric = |m: usize| t.metrics.get(m).map_or("?", |m| &m.name).to_owned();
    let (times, sum) = match &f.formula {
        Formula::Product(ratio, _) => (Some("speedup".to_owned()), ratio.as_ref()),
        sum => (None, sum),
    };
    let (line, stumps) = match sum {
        Formula::Stumps(s) => (None, Some(s)),
        Formula::Linear(l) => (Some(l), None),
        Formula::Both(l, s) => (Some(l), Some(s)),
        // its parts are sums
        Formula::Product(..) => (None, None),
    };
    let coefficients = line.map_or(&[][..], |l| &l.coefficients);
    let stumps_of = |all: &[Stump]| -> Vec<StumpFile> {
        let one = |s: &Stump| StumpFile {
            metric: metric(s.metric),
            threshold: s.threshold,
            at_most: s.at_most,
            above: s.above,
        };
        all.iter().map(one).collect()
    };
    FactorFile {
        predicts: f.target.quantity.name().to_owned(),
        of: Some(name(h, f.target.of)),
        error: f.accuracy.uncertainty(),
        range: range(f.range),
        times,
        base: line.map_or(0.0, |l| l.base) + stumps.map_or(0.0, |s| s.base),
        linear: (0..)
            .zip(coefficients)
            .filter(|(_, c)| **c != 0.0)
            .map(|(m, c)| (metric(m), *c))
            .collect(),
        stump: stumps_of(stumps.map_or(&[][..], |s| &s.stumps)),
        variance: f.variance.as_ref().map(|v| VarianceFile {
            base: v.base,
            stump: stumps_of(&v.stumps),
        }),
    }
}
