//! What a model file must hold, or where it does not.

use super::file::{CoreTypeFile, FactorFile, MetricFile, ModelFile, StumpFile};
use super::formula::{Factor, Metric, Stump, Target, Variance};
use super::platform::{CoreTypeModel, PlatformModel};
use super::{MAX_METRICS, MAX_STUMPS};
use crate::event::{EventError, EventSpec, MAX_EVENTS};
use crate::ids::{Nanos, MAX_CORE_TYPES};
use crate::multiplex::{self, PhaseRule};
use std::path::Path;
use toml::Spanned;

/// What a check gives, or where in the file something is not right, and what.
pub(super) type At<T> = Result<T, (usize, String)>;

pub(super) fn finite(key: &str, v: &Spanned<f64>) -> At<f64> {
    if v.get_ref().is_finite() {
        Ok(*v.get_ref())
    } else {
        let message = format!("key `{key}`: {} is not a finite number", v.get_ref());
        Err((v.span().start, message))
    }
}

pub(super) fn within(key: &str, v: &Spanned<f64>, min: f64, max: f64) -> At<f64> {
    let x = finite(key, v)?;
    if x < min || x > max {
        return Err((
            v.span().start,
            format!("key `{key}`: {x} is not within {min} to {max}"),
        ));
    }
    Ok(x)
}

pub(super) fn ascending(key: &str, v: Option<&Spanned<[f64; 2]>>) -> At<(f64, f64)> {
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

pub(super) fn check(file: ModelFile, path: &Path) -> At<PlatformModel> {
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
        settled: Nanos((within("settled_ms", &s.settled_ms, 0.0, 1e6)? * 1e6) as u64),
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

pub(super) fn check_core_type(file: CoreTypeFile, names: &[String]) -> At<CoreTypeModel> {
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
    let metrics = check_metrics(&file.metric, &file.name, &sets)?;
    let mut factors = Vec::new();
    for f in &file.factor {
        let factor = check_factor(f, &file, names, &factors)?;
        factors.push(factor);
    }
    Ok(CoreTypeModel {
        doubts: Vec::new(),
        pmu: file.pmu.map(Spanned::into_inner),
        name: file.name,
        sets,
        metrics,
        factors,
    })
}

fn check_metrics(
    all: &[MetricFile],
    core_type: &str,
    sets: &[Vec<(String, EventSpec)>],
) -> At<Vec<Metric>> {
    if let Some(m) = all.get(MAX_METRICS) {
        let message = format!("at most {MAX_METRICS} metrics per core type");
        return Err((m.name.span().start, message));
    }
    let place = |set: &[(String, EventSpec)], e: &str| set.iter().position(|(n, _)| n == e);
    let mut metrics: Vec<Metric> = Vec::new();
    for (i, m) in all.iter().enumerate() {
        let name = m.name.get_ref();
        if all.iter().take(i).any(|x| x.name.get_ref() == name) {
            let message = format!("key `name`: metric `{name}` is there twice");
            return Err((m.name.span().start, message));
        }
        let (count, per) = (m.count.get_ref(), m.per.get_ref());
        for (key, v) in [("count", &m.count), ("per", &m.per)] {
            if !sets.iter().any(|s| place(s, v.get_ref()).is_some()) {
                let message = format!(
                    "key `{key}`: no event set of core type `{core_type}` counts `{}`",
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
    Ok(metrics)
}

/// Checks a factor of core type `on`; `before` are the factors before it.
fn check_factor(
    f: &FactorFile,
    on: &CoreTypeFile,
    names: &[String],
    before: &[Factor],
) -> At<Factor> {
    let metric = |name: &str, start: usize| {
        let place = on.metric.iter().position(|m| m.name.get_ref() == name);
        place.ok_or_else(|| {
            let have: Vec<&str> = on
                .metric
                .iter()
                .map(|m| m.name.get_ref().as_str())
                .collect();
            let have = have.join("`, `");
            let message = format!(
                "no metric `{name}` on core type `{}`; there are `{have}`",
                on.name
            );
            (start, message)
        })
    };
    let of = match &f.of {
        None => 0,
        Some(of) => {
            let place = names.iter().position(|n| n == of.get_ref());
            place.ok_or_else(|| {
                let message = format!(
                    "key `of`: no core type `{}`; there are `{}`",
                    of.get_ref(),
                    names.join("`, `")
                );
                (of.span().start, message)
            })?
        }
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
        let message =
            "key `of`: factors are relative to the slowest core type, whose own is 1".to_owned();
        return Err((f.of.as_ref().map_or(start, |o| o.span().start), message));
    }
    if before.iter().any(|x| x.target == target) {
        return Err((
            start,
            "key `predicts`: the same factor is predicted twice".into(),
        ));
    }
    let stump = |s: &StumpFile| {
        Ok(Stump {
            metric: metric(s.metric.get_ref(), s.metric.span().start)?,
            threshold: finite("threshold", &s.threshold)?,
            at_most: finite("at_most", &s.at_most)?,
            above: finite("above", &s.above)?,
        })
    };
    let stumps = |all: &[StumpFile]| {
        if let Some(s) = all.get(MAX_STUMPS) {
            let message = format!("key `stump`: at most {MAX_STUMPS} in a sum");
            return Err((s.metric.span().start, message));
        }
        all.iter().map(stump).collect::<At<Vec<Stump>>>()
    };
    let variance = f.variance.as_ref().map(|v| {
        Ok(Variance {
            base: finite("base", &v.base)?,
            stumps: stumps(&v.stump)?,
        })
    });
    let mut linear = Vec::new();
    for (name, c) in &f.linear {
        linear.push((metric(name, c.span().start)?, finite(name, c)?));
    }
    Ok(Factor {
        target,
        times: times(f, target, before)?,
        base: finite("base", &f.base)?,
        error: within("error", &f.error, 0.0, f64::MAX)?,
        range: ascending("range", f.range.as_ref())?,
        stumps: stumps(&f.stump)?,
        linear,
        variance: variance.transpose()?,
    })
}

/// The factor that another one is to be multiplied by.
fn times(f: &FactorFile, target: Target, before: &[Factor]) -> At<Option<usize>> {
    let Some(times) = &f.times else {
        return Ok(None);
    };
    let bad = |message: &str| Err((times.span().start, format!("key `times`: {message}")));
    if times.get_ref() != "speedup" {
        return bad(&format!("`{}` is not `speedup`", times.get_ref()));
    }
    let Target::Efficiency(of) = target else {
        return bad("only efficiency factors are multiplied by the speedup factor");
    };
    match before.iter().position(|x| x.target == Target::Speedup(of)) {
        None => bad("no speedup factor of the same core type comes before it"),
        place => Ok(place),
    }
}
