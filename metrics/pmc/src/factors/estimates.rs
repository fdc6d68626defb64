//! What a model says of one run, from windows of counts.

use super::{Factor, Factors};
use crate::counting::{Known, Row, Window, WindowCount};
use crate::virtuals::VirtualCount;
use amp_metrics::providers::{Model, PlatformModel};
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, Estimate, Nanos, Provider, Reading, Snapshot, ThreadKey,
    ThreadSample, MAX_CORE_TYPES,
};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// What a factor is of, and what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FactorCount {
    /// The thread, where each is counted for itself.
    #[serde(flatten)]
    pub row: Row,
    /// The core type that is compared with the slowest one.
    pub core_type: String,
    /// The core type from whose counters it is estimated; `None` when nothing ran.
    pub on: Option<String>,
    /// Estimates in it.
    pub estimates: u64,
    /// How many of them were made of metrics outside of the range that the model was made from.
    pub extrapolated: u64,
    /// Part of the counted CPU time on `on` that the estimates are of; `None` for a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage: Option<f64>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What some work takes on a core type.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Seconds.
    time: f64,
    /// In seconds of the power that the core type draws on which the work was done: nobody measures
    /// how much that is, and it is taken to be the same all the time.
    energy: f64,
}

impl Work {
    fn add(&mut self, other: Work) {
        self.time += other.time;
        self.energy += other.energy;
    }
}

/// Factors of one core type over the slowest one; 1 where the model has none.
#[derive(Clone, Copy, Debug)]
struct Both {
    speedup: f64,
    efficiency: f64,
}

impl Both {
    const OF_SLOWEST: Both = Both {
        speedup: 1.0,
        efficiency: 1.0,
    };

    /// What work takes there that takes `slowest` on the slowest core type [PMCTrack eq. 3-7].
    fn of(self, slowest: Work) -> Work {
        Work {
            time: slowest.time / self.speedup,
            energy: slowest.energy * self.speedup / self.efficiency,
        }
    }
}

/// The estimates of a factor of a subject so far. Each is of the CPU time since the one before.
#[derive(Clone, Debug, Default)]
struct Mean {
    estimates: u64,
    extrapolated: u64,
    /// When the data of the last one were taken.
    taken: Option<Nanos>,
    /// CPU time that they are of, seconds.
    seconds: f64,
    /// The same work on the slowest core type, and on that of the factor.
    slowest: Work,
    there: Work,
    /// Sum of relative uncertainty × time; `None` once one is unknown.
    relative: Option<f64>,
}

impl Mean {
    /// Adds an estimate that is of `seconds` on a core type whose own factors are `here`, while those
    /// of the core type that it compares are `there`.
    fn add(&mut self, e: &Estimate, seconds: f64, [here, there]: [Both; 2], extrapolated: bool) {
        let before = match self.estimates {
            0 => Some(0.0),
            _ => self.relative,
        };
        self.relative = before
            .zip(e.uncertainty)
            .map(|(sum, u)| sum + u / e.value * seconds);
        self.estimates += 1;
        self.extrapolated += u64::from(extrapolated);
        self.seconds += seconds;
        let slowest = Work {
            time: seconds * here.speedup,
            energy: seconds * here.efficiency / here.speedup,
        };
        self.slowest.add(slowest);
        self.there.add(there.of(slowest));
    }

    /// The factor over all of the time, and its standard uncertainty.
    fn value(&self, factor: Factor) -> Option<(f64, Option<f64>)> {
        if self.there.time <= 0.0 || self.there.energy <= 0.0 || self.seconds <= 0.0 {
            return None;
        }
        // times and energies add up, and not their ratios
        let speedup = self.slowest.time / self.there.time;
        let value = match factor {
            Factor::Speedup => speedup,
            Factor::Efficiency => speedup * self.slowest.energy / self.there.energy,
        };
        // a model that is off for a program is off each time: the mean of many is no better
        let u = self.relative.map(|r| r / self.seconds * value);
        Some((value, u))
    }
}

/// A thread, or the whole program, on one core type: of what its threads do on another at the same
/// time nothing goes into its estimates.
struct Subject {
    row: Row,
    on: CoreTypeId,
    /// Counted CPU time on the core type, seconds; and since the last estimate.
    ran: f64,
    since: f64,
    means: BTreeMap<(Factor, CoreTypeId), Mean>,
}

/// The estimates of one run.
pub struct Estimates {
    provider: Model,
    model: PlatformModel,
    wanted: Vec<Factor>,
    /// Sets that are not the model's, which come before its own.
    others: usize,
    /// Number of the model's sets, by core type.
    by_type: Vec<usize>,
    core_types: Vec<String>,
    subjects: Vec<Subject>,
    places: HashMap<(Option<i32>, CoreTypeId), usize>,
}

impl Estimates {
    pub(super) fn new(of: &Factors, others: usize) -> Estimates {
        Estimates {
            provider: Model::new(of.model.clone()),
            model: of.model.clone(),
            wanted: of.wanted.clone(),
            others,
            by_type: of.by_type.clone(),
            core_types: of.core_types.clone(),
            subjects: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// Takes in a window: the estimates that are complete with it. What was counted for the model
    /// is taken out of it.
    pub fn take(&mut self, window: &mut Window) -> Vec<VirtualCount> {
        // sets of windows have numbers from 1
        let own = window.set.checked_sub(1 + self.others);
        let mut readings = Vec::new();
        let mut rest = &window.counts[..];
        while let Some(first) = rest.first() {
            // counts of a unit stand side by side, in the order of its events
            let same = |c: &&WindowCount| {
                (&c.core_type, &c.pmu) == (&first.core_type, &first.pmu) && c.row.same(&first.row)
            };
            let (of, others) = rest.split_at(rest.iter().take_while(same).count().max(1));
            rest = others;
            let named = |name: &String| self.core_types.iter().position(|n| n == name);
            let Some(t) = first.core_type.as_ref().and_then(named) else {
                continue;
            };
            // most threads of a program sleep
            if first.seconds <= 0.0 {
                continue;
            }
            let i = self.place(&first.row, CoreTypeId(t as u8));
            let Some(subject) = self.subjects.get_mut(i) else {
                continue;
            };
            subject.ran += first.seconds;
            subject.since += first.seconds;
            let sets = self.by_type.get(t).copied().unwrap_or(0);
            if let (Some(own), true) = (own, sets > 0) {
                let deltas: Vec<u64> = of.iter().filter_map(|c| c.count).collect();
                // a set that has its turn is on all the time: what ran was counted
                let ran = Nanos((first.seconds * 1e9).round() as u64);
                let set = (own % sets) as u32;
                let r = Reading::new(key(i), subject.on, set, 1, &deltas).over(ran, ran);
                readings.push((i, r));
            }
        }
        if own.is_none() {
            return Vec::new();
        }
        window.counts.retain(|c| c.core_type.is_none());
        self.observe(window.at_s, readings)
    }

    fn place(&mut self, row: &Row, on: CoreTypeId) -> usize {
        let subjects = &mut self.subjects;
        let place = *self.places.entry((row.tid, on)).or_insert_with(|| {
            subjects.push(Subject {
                row: row.clone(),
                on,
                ran: 0.0,
                since: 0.0,
                means: BTreeMap::new(),
            });
            subjects.len() - 1
        });
        if let Some(s) = subjects.get_mut(place) {
            // it may have another name now
            s.row.clone_from(row);
        }
        place
    }

    fn observe(&mut self, at_s: f64, readings: Vec<(usize, Reading)>) -> Vec<VirtualCount> {
        // 0 is no time
        let now = Nanos((at_s.max(0.0) * 1e9) as u64 + 1);
        let subjects = self.subjects.iter().enumerate();
        self.provider.observe(&Snapshot {
            now,
            threads: subjects.map(|(i, s)| sample(i, s)).collect(),
            readings: readings.iter().map(|(_, r)| *r).collect(),
            ..Snapshot::default()
        });
        let mut out = Vec::new();
        for (i, _) in readings {
            self.hear(i, now, &mut out);
        }
        out
    }

    /// Notes the estimates of a subject that are new at `now`.
    fn hear(&mut self, i: usize, now: Nanos, out: &mut Vec<VirtualCount>) {
        let Some(s) = self.subjects.get_mut(i) else {
            return;
        };
        let extrapolated = self.provider.caveats(key(i)).extrapolated;
        let slowest = self.core_types.len().saturating_sub(1);
        let provider = &self.provider;
        let both = |of: CoreTypeId| {
            let value = |factor: Factor| {
                let e = provider.estimate(key(i), factor.of(of));
                e.map(|e| e.value).filter(|v| *v > 0.0).unwrap_or(1.0)
            };
            match of.index() == slowest {
                true => Both::OF_SLOWEST,
                false => Both {
                    speedup: value(Factor::Speedup),
                    efficiency: value(Factor::Efficiency),
                },
            }
        };
        let mut any = false;
        for factor in &self.wanted {
            for of in types(&self.core_types) {
                let e = self.provider.estimate(key(i), factor.of(of));
                let Some(e) = e.filter(|e| e.value > 0.0) else {
                    continue;
                };
                let mean = s.means.entry((*factor, of)).or_default();
                let taken = now.saturating_sub(e.age);
                if mean.taken == Some(taken) {
                    continue;
                }
                mean.taken = Some(taken);
                mean.add(&e, s.since, [both(s.on), both(of)], extrapolated);
                any = true;
                let count = FactorCount {
                    estimates: 1,
                    extrapolated: extrapolated.into(),
                    ..count(&self.core_types, s, of)
                };
                let value = Some((e.value, e.uncertainty));
                out.push(told(&self.model, *factor, value, count));
            }
        }
        if any {
            s.since = 0.0;
        }
    }

    /// The factors of the whole run: of each thread, or of the program, on each core type on which
    /// it ran; with a reason where there is none.
    ///
    /// A speedup factor is the time that the same work takes on the slowest core type over that on
    /// the other one. An efficiency factor is the same of energy × time, if the core that it ran on
    /// drew the same power all the time.
    pub fn totals(&self) -> Vec<VirtualCount> {
        let mut out = Vec::new();
        for s in &self.subjects {
            for factor in &self.wanted {
                let has = |of: &CoreTypeId| self.model.predicts(s.on, factor.of(*of));
                let predicted: Vec<CoreTypeId> = types(&self.core_types).filter(has).collect();
                if predicted.is_empty() {
                    let on = self.core_types.get(s.on.index());
                    let why = format!(
                        "the model has no {} of threads on {}",
                        factor.long_name(),
                        on.map_or("?", String::as_str)
                    );
                    let count = FactorCount {
                        why: Some(why),
                        ..count(&self.core_types, s, CoreTypeId::FASTEST)
                    };
                    out.push(told(&self.model, *factor, None, count));
                }
                for of in predicted {
                    out.push(self.total(s, *factor, of));
                }
            }
        }
        if out.is_empty() {
            let nobody = Subject {
                row: Row::default(),
                on: CoreTypeId::FASTEST,
                ran: 0.0,
                since: 0.0,
                means: BTreeMap::new(),
            };
            out.extend(self.wanted.iter().map(|factor| {
                let count = FactorCount {
                    on: None,
                    why: Some("nothing ran while events of cores were counted".to_owned()),
                    ..count(&self.core_types, &nobody, CoreTypeId::FASTEST)
                };
                told(&self.model, *factor, None, count)
            }));
        }
        out
    }

    fn total(&self, s: &Subject, factor: Factor, of: CoreTypeId) -> VirtualCount {
        let mean = s.means.get(&(factor, of)).cloned().unwrap_or_default();
        let value = mean.value(factor);
        let count = FactorCount {
            estimates: mean.estimates,
            extrapolated: mean.extrapolated,
            coverage: Some(mean.seconds / s.ran),
            why: value.is_none().then(|| self.why_not(s)),
            ..count(&self.core_types, s, of)
        };
        told(&self.model, factor, value, count)
    }

    fn why_not(&self, s: &Subject) -> String {
        let sets = self.by_type.get(s.on.index()).copied().unwrap_or(0);
        format!(
            "no estimate: in {:.1} ms there, not each of the model's {sets} event sets was counted for {} ms or more of the same phase",
            s.ran * 1e3,
            self.model.shortest().0 as f64 * 1e-6,
        )
    }

    /// The factors of the fastest core type as values for formulas, on the core type from whose
    /// counters they are.
    pub fn known(&self) -> Vec<Known> {
        let mut out = Vec::new();
        for s in &self.subjects {
            for factor in &self.wanted {
                let mean = s.means.get(&(*factor, CoreTypeId::FASTEST));
                if let Some((value, _)) = mean.and_then(|m| m.value(*factor)) {
                    out.push(Known {
                        name: factor.name().to_owned(),
                        core_type: self.core_types.get(s.on.index()).cloned(),
                        tid: s.row.tid,
                        value,
                        exact: false,
                    });
                }
            }
        }
        out
    }
}

fn types(names: &[String]) -> impl Iterator<Item = CoreTypeId> {
    (0..names.len().min(MAX_CORE_TYPES)).map(|t| CoreTypeId(t as u8))
}

/// A subject's name for the model.
fn key(i: usize) -> ThreadKey {
    ThreadKey {
        slot: i as u32,
        generation: 0,
    }
}

fn sample(i: usize, s: &Subject) -> ThreadSample {
    ThreadSample {
        key: key(i),
        tid: s.row.tid.unwrap_or(0),
        app: AppId(0),
        comm: [0; 16],
        arguments: 0,
        weight: 100,
        allowed: CoreTypeSet::ALL,
        runnable: true,
        core_type: s.on,
        placed: None,
        runtime: [Nanos::ZERO; MAX_CORE_TYPES],
    }
}

/// Of the factor of core type `of`, without an estimate yet.
fn count(core_types: &[String], s: &Subject, of: CoreTypeId) -> FactorCount {
    FactorCount {
        row: s.row.clone(),
        core_type: core_types.get(of.index()).cloned().unwrap_or_default(),
        on: core_types.get(s.on.index()).cloned(),
        estimates: 0,
        extrapolated: 0,
        coverage: None,
        why: None,
    }
}

fn told(
    model: &PlatformModel,
    factor: Factor,
    value: Option<(f64, Option<f64>)>,
    count: FactorCount,
) -> VirtualCount {
    VirtualCount {
        counter: factor.name(),
        of: count.row.thread.clone().unwrap_or_else(|| "program".into()),
        value: value.map(|v| v.0),
        unit: "ratio",
        source: format!("model {}", model.name),
        readings: None,
        u: value.and_then(|v| v.1),
        factor: Some(count),
    }
}

#[cfg(test)]
mod tests;
