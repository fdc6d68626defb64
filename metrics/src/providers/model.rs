//! A platform model: factors from metrics measured on the core type the thread is on.
//!
//! The model is data: a TOML file (see `models/README.md`) with, per core type, the event sets, the metrics made of their
//! counts, and for each factor an additive regression of stumps or a linear formula [PMCTrack §4.1.2].

use super::file::{at_line, ProviderFileError};
use super::threads::Threads;
use crate::estimate::{Estimate, Quality};
use crate::event::{EventError, EventSet, EventSets, EventSpec, MAX_EVENTS};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::multiplex::{self, Observation, PhaseRule, Rounds, Step, Strategy};
use crate::pmu::Pmus;
use crate::provider::{Caveats, MetricId, Phase, Provider};
use crate::sample::{Reading, Snapshot};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use toml::Spanned;

/// Most metrics of one core type: their values are computed in place, on the stack.
pub const MAX_METRICS: usize = 32;
/// Most stumps in a factor: a prediction looks at each of them.
pub const MAX_STUMPS: usize = 1024;

// ---- the file ------------------------------------------------------------------------------------------------------

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    #[allow(dead_code)] // read by whoever dispatches on it
    kind: String,
    name: Option<String>,
    /// Documentation of where the model comes from.
    #[allow(dead_code)]
    source: Option<String>,
    /// What was trained on and how accurate it is; of `model show`, any table will do.
    #[allow(dead_code)]
    summary: Option<toml::Table>,
    /// Names of the machines it is for; any will do.
    #[serde(default)]
    machine: Vec<String>,
    #[serde(default)]
    settings: Settings,
    core_type: Vec<CoreTypeFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    strategy: Spanned<String>,
    phase_ratio: Spanned<f64>,
    phase_confirm: Spanned<u32>,
    least_coverage: Spanned<f64>,
    shortest_ms: Spanned<f64>,
    stale_after_ms: Spanned<f64>,
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
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoreTypeFile {
    name: String,
    /// The PMU that must count there.
    pmu: Option<Spanned<String>>,
    event_set: Vec<BTreeMap<String, Spanned<String>>>,
    #[serde(default)]
    metric: Vec<MetricFile>,
    #[serde(default)]
    factor: Vec<FactorFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricFile {
    name: Spanned<String>,
    count: Spanned<String>,
    per: Spanned<String>,
    #[serde(default = "one")]
    scale: Spanned<f64>,
    range: Option<Spanned<[f64; 2]>>,
}

fn one() -> Spanned<f64> {
    Spanned::new(0..0, 1.0)
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FactorFile {
    predicts: Spanned<String>,
    of: Option<Spanned<String>>,
    base: Spanned<f64>,
    error: Spanned<f64>,
    range: Option<Spanned<[f64; 2]>>,
    #[serde(default)]
    stump: Vec<StumpFile>,
    #[serde(default)]
    linear: BTreeMap<String, Spanned<f64>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StumpFile {
    metric: Spanned<String>,
    threshold: Spanned<f64>,
    at_most: Spanned<f64>,
    above: Spanned<f64>,
}

// ---- what is made of it --------------------------------------------------------------------------------------------

/// A metric: `scale · count / per`, both counted in the same set.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Metric {
    set: usize,
    count: usize,
    per: usize,
    scale: f64,
    /// Range of the metric in the data the model was made from.
    range: (f64, f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Stump {
    metric: usize,
    threshold: f64,
    at_most: f64,
    above: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Speedup(usize),
    Efficiency(usize),
}

/// One factor: base + Σ stumps + Σ coefficient · metric.
#[derive(Clone, Debug, PartialEq)]
struct Factor {
    target: Target,
    base: f64,
    /// Standard deviation of the model's residuals.
    error: f64,
    range: (f64, f64),
    stumps: Vec<Stump>,
    linear: Vec<(usize, f64)>,
}

#[derive(Clone, Debug, PartialEq)]
struct CoreTypeModel {
    name: String,
    pmu: Option<String>,
    /// Name and event, per set.
    sets: Vec<Vec<(String, EventSpec)>>,
    metrics: Vec<Metric>,
    factors: Vec<Factor>,
}

/// What a factor's formula gives.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Prediction {
    value: f64,
    uncertainty: f64,
    extrapolated: bool,
}

/// A model of one platform, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct PlatformModel {
    /// Its name, for messages.
    pub name: String,
    machine: Vec<String>,
    core_types: Vec<CoreTypeModel>,
    strategy: String,
    rule: PhaseRule,
    least_coverage: f64,
    shortest_ns: f64,
    stale_after_ns: f64,
}

impl PlatformModel {
    /// Reads a model file.
    ///
    /// # Errors
    /// [`ProviderFileError`], naming file, line and key.
    pub fn load(path: &Path) -> Result<PlatformModel, ProviderFileError> {
        PlatformModel::parse(path, &super::file::read(path)?)
    }

    /// As [`PlatformModel::load`], from text; `path` is for messages.
    ///
    /// # Errors
    /// [`ProviderFileError::Bad`].
    pub fn parse(path: &Path, text: &str) -> Result<PlatformModel, ProviderFileError> {
        let bad = |message: String| ProviderFileError::Bad {
            path: path.to_owned(),
            message,
        };
        let file: ModelFile = toml::from_str(text).map_err(|e| bad(e.to_string()))?;
        check(file, path).map_err(|(offset, message)| bad(at_line(text, offset, &message)))
    }

    /// PMUs that the file names, fastest core type first; `None` where it names none.
    pub fn pmus(&self) -> impl Iterator<Item = Option<&str>> {
        self.core_types.iter().map(|t| t.pmu.as_deref())
    }

    /// Largest standard error of its speedup factors, as the file states it; 0 when it predicts none.
    pub fn error(&self) -> f64 {
        let factors = self.core_types.iter().flat_map(|t| &t.factors);
        let speedups = factors.filter(|f| matches!(f.target, Target::Speedup(_)));
        speedups.map(|f| f.error).fold(0.0, f64::max)
    }

    /// Whether this machine is one of those that the model names, if it names any ([`Pmus::machine`]).
    ///
    /// # Errors
    /// Which machine it is for, and which this is.
    pub fn is_for(&self, pmus: &Pmus) -> Result<(), String> {
        let known = |name: &String| pmus.machine().contains(name);
        if !self.machine.is_empty() && !self.machine.iter().any(known) {
            let wanted = self.machine.join("` or `");
            return Err(match pmus.machine() {
                [] => format!("it is for machine `{wanted}`, this one does not say what it is"),
                names => format!(
                    "it is for machine `{wanted}`, this one is `{}`",
                    names.join("`, `")
                ),
            });
        }
        Ok(())
    }

    /// Whether this machine is the platform the model was made for: a machine it is for
    /// ([`PlatformModel::is_for`]), with as many core types, on the PMUs it names.
    ///
    /// # Errors
    /// The first thing that differs.
    pub fn fits(&self, pmus: &Pmus) -> Result<(), String> {
        self.is_for(pmus)?;
        let here = pmus.core_types().count();
        if here != self.core_types.len() {
            let n = self.core_types.len();
            return Err(format!("it is for {n} core types, this machine has {here}"));
        }
        for (t, model) in pmus.core_types().zip(&self.core_types) {
            let found = pmus.of_core_type(t).map_or("none", |p| p.name.as_str());
            if let Some(want) = model.pmu.as_deref().filter(|w| *w != found) {
                return Err(format!(
                    "its core type `{}` is on PMU `{want}`, here it is `{found}`",
                    model.name
                ));
            }
        }
        Ok(())
    }
}

type At<T> = Result<T, (usize, String)>;

fn finite(key: &str, v: &Spanned<f64>) -> At<f64> {
    if v.get_ref().is_finite() {
        Ok(*v.get_ref())
    } else {
        let message = format!("key `{key}`: {} is not a finite number", v.get_ref());
        Err((v.span().start, message))
    }
}

fn within(key: &str, v: &Spanned<f64>, min: f64, max: f64) -> At<f64> {
    let x = finite(key, v)?;
    if x < min || x > max {
        return Err((
            v.span().start,
            format!("key `{key}`: {x} is not within {min} to {max}"),
        ));
    }
    Ok(x)
}

fn ascending(key: &str, v: Option<&Spanned<[f64; 2]>>) -> At<(f64, f64)> {
    let Some(v) = v else {
        return Ok((f64::NEG_INFINITY, f64::INFINITY));
    };
    let [a, b] = *v.get_ref();
    if a.is_finite() && b.is_finite() && a < b {
        Ok((a, b))
    } else {
        let message =
            format!("key `{key}`: [{a}, {b}] is not two finite numbers, the smaller first");
        Err((v.span().start, message))
    }
}

fn check(file: ModelFile, path: &Path) -> At<PlatformModel> {
    let s = &file.settings;
    let strategy = s.strategy.get_ref().clone();
    multiplex::by_name(&strategy, 1)
        .map_err(|e| (s.strategy.span().start, format!("key `strategy`: {e}")))?;
    let confirm = *s.phase_confirm.get_ref();
    if !(1..=100).contains(&confirm) {
        let message = format!("key `phase_confirm`: {confirm} is not within 1 to 100");
        return Err((s.phase_confirm.span().start, message));
    }
    let rule = PhaseRule {
        ratio: within("phase_ratio", &s.phase_ratio, 1.001, 1.999)?,
        confirm,
        ..PhaseRule::default()
    };
    let n = file.core_type.len();
    if n == 0 || n > MAX_CORE_TYPES {
        let message = format!(
            "{n} core types: one [[core_type]] for each, fastest first, at most {MAX_CORE_TYPES}"
        );
        return Err((0, message));
    }
    let names: Vec<String> = file.core_type.iter().map(|t| t.name.clone()).collect();
    let model = PlatformModel {
        name: file
            .name
            .clone()
            .unwrap_or_else(|| path.display().to_string()),
        machine: file.machine.clone(),
        least_coverage: within("least_coverage", &s.least_coverage, 0.0, 1.0)?,
        shortest_ns: within("shortest_ms", &s.shortest_ms, 0.0, 1e6)? * 1e6,
        stale_after_ns: within("stale_after_ms", &s.stale_after_ms, 0.0, 1e9)? * 1e6,
        core_types: file
            .core_type
            .into_iter()
            .map(|t| check_core_type(t, &names))
            .collect::<At<_>>()?,
        strategy,
        rule,
    };
    Ok(model)
}

fn check_core_type(file: CoreTypeFile, names: &[String]) -> At<CoreTypeModel> {
    let mut sets = Vec::new();
    for (i, set) in file.event_set.iter().enumerate() {
        let first = set.values().next().map_or(0, |v| v.span().start);
        let mut events = Vec::new();
        // instructions and cycles first: every set is followed by its IPC
        for key in ["instructions", "cycles"] {
            let text = set.get(key).map_or(key, |v| v.get_ref().as_str());
            let start = set.get(key).map_or(first, |v| v.span().start);
            let spec = text
                .parse()
                .map_err(|e: EventError| (start, e.to_string()))?;
            events.push((key.to_owned(), spec));
        }
        for (name, text) in set {
            if name != "instructions" && name != "cycles" {
                let spec = text.get_ref().parse();
                let spec = spec.map_err(|e: EventError| (text.span().start, e.to_string()))?;
                events.push((name.clone(), spec));
            }
        }
        if events.len() > MAX_EVENTS {
            let message = format!(
                "core type `{}`, event set {}: {} events with instructions and cycles, at most {MAX_EVENTS}",
                file.name,
                i + 1,
                events.len()
            );
            return Err((first, message));
        }
        sets.push(events);
    }
    if sets.is_empty() {
        let message = format!(
            "core type `{}`: no event set; `[[core_type.event_set]]` with at least instructions is needed",
            file.name
        );
        return Err((0, message));
    }
    if file.metric.len() > MAX_METRICS {
        let start = file.metric[MAX_METRICS].name.span().start;
        return Err((
            start,
            format!("at most {MAX_METRICS} metrics per core type"),
        ));
    }
    let mut metrics: Vec<Metric> = Vec::new();
    let mut metric_names: Vec<&str> = Vec::new();
    for m in &file.metric {
        let name = m.name.get_ref().as_str();
        if metric_names.contains(&name) {
            let message = format!("key `name`: metric `{name}` is there twice");
            return Err((m.name.span().start, message));
        }
        metric_names.push(name);
        let (count, per) = (m.count.get_ref(), m.per.get_ref());
        let place = |set: &Vec<(String, EventSpec)>, e: &str| set.iter().position(|(n, _)| n == e);
        let known = |e: &str| sets.iter().any(|s| place(s, e).is_some());
        for (key, v) in [("count", &m.count), ("per", &m.per)] {
            if !known(v.get_ref()) {
                let message = format!(
                    "key `{key}`: no event set of core type `{}` counts `{}`",
                    file.name,
                    v.get_ref()
                );
                return Err((v.span().start, message));
            }
        }
        let found = sets
            .iter()
            .enumerate()
            .find_map(|(i, s)| Some((i, place(s, count)?, place(s, per)?)));
        let (set, count, per) = found.ok_or_else(|| {
            let message =
                format!("key `per`: `{count}` and `{per}` are never counted in the same event set");
            (m.per.span().start, message)
        })?;
        metrics.push(Metric {
            set,
            count,
            per,
            scale: finite("scale", &m.scale)?,
            range: ascending("range", m.range.as_ref())?,
        });
    }
    let metric = |name: &str, start: usize| {
        metric_names.iter().position(|n| *n == name).ok_or_else(|| {
            let have = metric_names.join("`, `");
            (
                start,
                format!(
                    "no metric `{name}` on core type `{}`; there are `{have}`",
                    file.name
                ),
            )
        })
    };
    let mut factors: Vec<Factor> = Vec::new();
    for f in &file.factor {
        let of = match &f.of {
            None => 0,
            Some(of) => names
                .iter()
                .position(|n| n == of.get_ref())
                .ok_or_else(|| {
                    let message = format!(
                        "key `of`: no core type `{}`; there are `{}`",
                        of.get_ref(),
                        names.join("`, `")
                    );
                    (of.span().start, message)
                })?,
        };
        let start = f.predicts.span().start;
        let target = match f.predicts.get_ref().as_str() {
            "speedup" => Target::Speedup(of),
            "efficiency" => Target::Efficiency(of),
            other => {
                let message =
                    format!("key `predicts`: `{other}` is neither `speedup` nor `efficiency`");
                return Err((start, message));
            }
        };
        if of + 1 == names.len() {
            let message = "key `of`: factors are relative to the slowest core type, whose own is 1"
                .to_owned();
            return Err((f.of.as_ref().map_or(start, |o| o.span().start), message));
        }
        if factors.iter().any(|x| x.target == target) {
            return Err((
                start,
                "key `predicts`: the same factor is predicted twice".into(),
            ));
        }
        if let Some(s) = f.stump.get(MAX_STUMPS) {
            let message = format!("key `stump`: at most {MAX_STUMPS} per factor");
            return Err((s.metric.span().start, message));
        }
        let mut stumps = Vec::new();
        for s in &f.stump {
            stumps.push(Stump {
                metric: metric(s.metric.get_ref(), s.metric.span().start)?,
                threshold: finite("threshold", &s.threshold)?,
                at_most: finite("at_most", &s.at_most)?,
                above: finite("above", &s.above)?,
            });
        }
        let mut linear = Vec::new();
        for (name, c) in &f.linear {
            linear.push((metric(name, c.span().start)?, finite(name, c)?));
        }
        factors.push(Factor {
            target,
            base: finite("base", &f.base)?,
            error: within("error", &f.error, 0.0, f64::MAX)?,
            range: ascending("range", f.range.as_ref())?,
            stumps,
            linear,
        });
    }
    Ok(CoreTypeModel {
        pmu: file.pmu.map(Spanned::into_inner),
        name: file.name,
        sets,
        metrics,
        factors,
    })
}

impl Factor {
    /// The formula, with the standard uncertainty of the model. For inputs outside of the range the model was made
    /// from, that grows with the distance, in widths of the range: the model knows nothing there.
    fn predict(&self, metrics: &[Metric], values: &[f64; MAX_METRICS]) -> Prediction {
        let value = |m: usize| values.get(m).copied().unwrap_or(0.0);
        let mut sum = self.base;
        let mut outside = 0.0f64;
        let mut see = |m: usize| {
            if let Some(metric) = metrics.get(m) {
                let (min, max) = metric.range;
                let (v, width) = (value(m), max - min);
                let beyond = (min - v).max(v - max).max(0.0);
                if beyond > 0.0 {
                    outside = outside.max(beyond / width);
                }
            }
        };
        for s in &self.stumps {
            see(s.metric);
            sum += if value(s.metric) <= s.threshold {
                s.at_most
            } else {
                s.above
            };
        }
        for (m, c) in &self.linear {
            see(*m);
            sum += c * value(*m);
        }
        let clamped = sum.clamp(self.range.0, self.range.1);
        Prediction {
            value: clamped,
            uncertainty: self.error * (1.0 + outside) + (sum - clamped).abs() / 2.0,
            extrapolated: outside > 0.0,
        }
    }
}

// ---- the provider --------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug)]
struct Known {
    prediction: Prediction,
    oldest: Nanos,
    coverage: f64,
    multiplexed: bool,
}

#[derive(Clone, Debug)]
struct Thread {
    rounds: Vec<Rounds>,
    speedup: [Option<Known>; MAX_CORE_TYPES],
    efficiency: [Option<Known>; MAX_CORE_TYPES],
    last_type: CoreTypeId,
    /// Phase changes of core types before the last one, so that numbers only grow.
    phases_before: u32,
}

/// The provider that runs a [`PlatformModel`].
pub struct Model {
    model: PlatformModel,
    strategies: Vec<Box<dyn Strategy>>,
    active: [usize; MAX_CORE_TYPES],
    threads: Threads<Thread>,
    last: Nanos,
    now: Nanos,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.model.name)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// The provider for this model.
    pub fn new(model: PlatformModel) -> Model {
        let strategies = model
            .core_types
            .iter()
            .map(|t| {
                // checked when the file was read; round-robin would do otherwise
                multiplex::by_name(&model.strategy, t.sets.len())
                    .or_else(|_| multiplex::by_name("round-robin", t.sets.len()))
            })
            .filter_map(Result::ok)
            .collect();
        Model {
            model,
            strategies,
            active: [0; MAX_CORE_TYPES],
            threads: Threads::default(),
            last: Nanos::ZERO,
            now: Nanos::ZERO,
        }
    }

    fn take_in(&mut self, r: &Reading) {
        let (t, set) = (r.core_type.index(), r.set as usize);
        let (Some(model), Some(thread)) =
            (self.model.core_types.get(t), self.threads.get_mut(r.thread))
        else {
            return;
        };
        let [instructions, cycles, ..] = *r.deltas() else {
            return;
        };
        let enough =
            r.ran.0 as f64 >= self.model.shortest_ns && r.coverage() >= self.model.least_coverage;
        if r.counted.0 == 0 || cycles == 0 || instructions == 0 || !enough {
            return;
        }
        let ipc = instructions as f64 / cycles as f64;
        if let Some(strategy) = self.strategies.get_mut(t) {
            let mut counts = [0.0; MAX_EVENTS];
            let own = r.deltas().get(2..).unwrap_or_default();
            for (to, from) in counts.iter_mut().zip(own) {
                *to = *from as f64;
            }
            strategy.observe(&Observation {
                subject: u64::from(r.thread.slot) << 32 | u64::from(r.thread.generation),
                set,
                from: self.last.0 as f64,
                to: self.now.0 as f64,
                counts: &counts[..own.len()],
                ipc,
            });
        }
        if thread.last_type != r.core_type {
            let number = |t: CoreTypeId| thread.rounds.get(t.index()).map_or(0, |r| r.phase().0);
            thread.phases_before = thread
                .phases_before
                .wrapping_add(number(thread.last_type))
                .wrapping_sub(number(r.core_type));
            thread.last_type = r.core_type;
        }
        let Some(rounds) = thread.rounds.get_mut(t) else {
            return;
        };
        let step = rounds.add(
            set,
            r.deltas(),
            ipc,
            self.now,
            r.coverage(),
            &self.model.rule,
        );
        if step != Step::Complete {
            return;
        }
        let Some(complete) = rounds.last() else {
            return;
        };
        let mut values = [0.0; MAX_METRICS];
        for (v, m) in values.iter_mut().zip(&model.metrics) {
            let Some(deltas) = rounds.deltas(m.set) else {
                return;
            };
            let (Some(count), Some(per)) = (deltas.get(m.count), deltas.get(m.per)) else {
                return;
            };
            if *per == 0 {
                return;
            }
            *v = m.scale * *count as f64 / *per as f64;
        }
        for f in &model.factors {
            let known = Known {
                prediction: f.predict(&model.metrics, &values),
                oldest: complete.oldest,
                coverage: complete.coverage,
                multiplexed: model.sets.len() > 1,
            };
            let place = match f.target {
                Target::Speedup(of) => thread.speedup.get_mut(of),
                Target::Efficiency(of) => thread.efficiency.get_mut(of),
            };
            if let (Some(place), true) = (place, known.prediction.value.is_finite()) {
                *place = Some(known);
            }
        }
    }

    fn known(&self, thread: ThreadKey, metric: MetricId) -> Option<&Known> {
        let t = self.threads.get(thread)?;
        match metric {
            MetricId::SpeedupFactor(c) => t.speedup.get(c.index())?.as_ref(),
            MetricId::EfficiencyFactor(c) => t.efficiency.get(c.index())?.as_ref(),
            MetricId::Ipc(_) => None,
        }
    }
}

/// Below this coverage a sample counts as partial; above, but below 0.95, as multiplexed with others.
const PARTIAL: f64 = 0.5;

impl Provider for Model {
    fn name(&self) -> &str {
        &self.model.name
    }

    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        let mut sets = EventSets::default();
        for (t, model) in pmus.core_types().zip(&self.model.core_types) {
            for set in &model.sets {
                let events = set
                    .iter()
                    .map(|(name, spec)| Ok(pmus.resolve(t, spec)?.named(name)));
                sets.push(
                    t,
                    EventSet {
                        events: events.collect::<Result<_, EventError>>()?,
                    },
                );
            }
        }
        Ok(sets)
    }

    fn active_set(&self, t: CoreTypeId) -> usize {
        self.active.get(t.index()).copied().unwrap_or(0)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.last = self.now;
        self.now = snapshot.now;
        let types = &self.model.core_types;
        self.threads.keep(snapshot, || Thread {
            rounds: types.iter().map(|t| Rounds::new(t.sets.len())).collect(),
            speedup: [None; MAX_CORE_TYPES],
            efficiency: [None; MAX_CORE_TYPES],
            last_type: CoreTypeId::FASTEST,
            phases_before: 0,
        });
        for r in &snapshot.readings {
            self.take_in(r);
        }
        let threads = &self.threads;
        for (active, s) in self.active.iter_mut().zip(&mut self.strategies) {
            s.retain(&|subject| {
                let key = ThreadKey {
                    slot: (subject >> 32) as u32,
                    generation: subject as u32,
                };
                threads.get(key).is_some()
            });
            *active = s.next(self.now.0 as f64);
        }
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        if let MetricId::Ipc(c) = metric {
            let t = self.threads.get(thread)?;
            let rounds = t.rounds.get(c.index())?;
            return Some(Estimate {
                value: rounds.ipc()?,
                uncertainty: None,
                age: self.now.saturating_sub(rounds.last()?.oldest),
                quality: Quality::Exact,
            });
        }
        let k = self.known(thread, metric)?;
        let age = self.now.saturating_sub(k.oldest);
        let quality = if age.0 as f64 > self.model.stale_after_ns {
            Quality::Stale
        } else if k.coverage < PARTIAL {
            Quality::Partial
        } else if k.multiplexed || k.coverage < 0.95 {
            Quality::Multiplexed
        } else {
            Quality::Exact
        };
        Some(Estimate {
            value: k.prediction.value,
            uncertainty: Some(k.prediction.uncertainty),
            age,
            quality,
        })
    }

    fn phase(&self, thread: ThreadKey) -> Option<Phase> {
        let t = self.threads.get(thread)?;
        let (number, since) = t.rounds.get(t.last_type.index())?.phase();
        Some(Phase {
            number: t.phases_before.wrapping_add(number),
            age: self.now.saturating_sub(since),
        })
    }

    fn caveats(&self, thread: ThreadKey) -> Caveats {
        let any = |t: &Thread| {
            let all = t.speedup.iter().chain(&t.efficiency).flatten();
            all.into_iter().any(|k| k.prediction.extrapolated)
        };
        Caveats {
            extrapolated: self.threads.get(thread).is_some_and(any),
            ..Caveats::default()
        }
    }
}
