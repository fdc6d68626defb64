//! A platform model, checked.

use super::check::check;
use super::file::ModelFile;
use super::formula::{Doubt, Factor, Metric, Side, Target};
use crate::event::{Event, EventSpec};
use crate::ids::{CoreTypeId, Nanos};
use crate::multiplex::PhaseRule;
use crate::pmu::Pmus;
use crate::provider::MetricId;
use crate::providers::file::{read, ProviderFileError};
use crate::trust::{TrustFile, Verdict};
use amp_machine::Locator;
use std::path::Path;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CoreTypeModel {
    pub(super) name: String,
    pub(super) pmu: Option<String>,
    /// Name and event, per set.
    pub(super) sets: Vec<Vec<(String, EventSpec)>>,
    pub(super) metrics: Vec<Metric>,
    pub(super) factors: Vec<Factor>,
    /// Events of it that are off by themselves on this machine.
    pub(super) doubts: Vec<Doubt>,
}

impl CoreTypeModel {
    /// Which of its events `trust` calls less than exact, and which metrics are made of them.
    fn doubts(&self, t: CoreTypeId, pmus: &Pmus, trust: &TrustFile) -> Vec<Doubt> {
        let mut known: Vec<(Event, Doubt)> = Vec::new();
        for (m, metric) in self.metrics.iter().enumerate() {
            for (place, side) in [(metric.count, Side::Count), (metric.per, Side::Per)] {
                let set = self.sets.get(metric.set);
                let Some((_, spec)) = set.and_then(|s| s.get(place)) else {
                    continue;
                };
                let Ok(event) = pmus.resolve(t, spec) else {
                    continue;
                };
                if let Some((_, doubt)) = known.iter_mut().find(|(e, _)| pmus.same(e, &event)) {
                    doubt.metrics.push((m, side));
                    continue;
                }
                let entry = trust.of(pmus, t, &event);
                let error = entry.filter(|e| e.verdict != Verdict::Exact);
                if let Some(error) = error.and_then(|e| e.error()) {
                    let (least, most) = error.factors();
                    let metrics = vec![(m, side)];
                    let factors = [least, most];
                    known.push((event, Doubt { factors, metrics }));
                }
            }
        }
        known.into_iter().map(|(_, doubt)| doubt).collect()
    }
}

/// A model of one platform, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct PlatformModel {
    /// Its name, for messages.
    pub name: String,
    pub(super) machine: Vec<String>,
    pub(super) core_types: Vec<CoreTypeModel>,
    pub(super) strategy: String,
    pub(super) rule: PhaseRule,
    pub(super) least_coverage: f64,
    pub(super) shortest_ns: f64,
    pub(super) stale_after_ns: f64,
    /// How long a set stays on while nobody waits for another.
    pub(super) settled: Nanos,
}

impl PlatformModel {
    /// Reads a model file.
    ///
    /// # Errors
    /// [`ProviderFileError`], naming file, line and key.
    pub fn load(path: &Path) -> Result<PlatformModel, ProviderFileError> {
        PlatformModel::parse(path, &read(path)?)
    }

    /// As [`PlatformModel::load`], from text; `path` is for messages.
    ///
    /// # Errors
    /// [`ProviderFileError::Bad`].
    pub fn parse(path: &Path, text: &str) -> Result<PlatformModel, ProviderFileError> {
        let locator = Locator::new(path, text);
        let file: ModelFile = toml::from_str(text).map_err(|e| locator.toml(&e))?;
        check(file, path).map_err(|(offset, message)| locator.at(offset, message).into())
    }

    /// With what the machine's trust file says of the events that it counts: where they are off by
    /// themselves, its factors are less certain.
    #[must_use]
    pub fn trusting(mut self, pmus: &Pmus, trust: Option<&TrustFile>) -> PlatformModel {
        for (t, model) in self.core_types.iter_mut().enumerate() {
            let of = |trust| model.doubts(CoreTypeId(t as u8), pmus, trust);
            model.doubts = trust.map(of).unwrap_or_default();
        }
        self
    }

    /// PMUs that the file names, fastest core type first; `None` where it names none.
    pub fn pmus(&self) -> impl Iterator<Item = Option<&str>> {
        self.core_types.iter().map(|t| t.pmu.as_deref())
    }

    /// Largest standard error of its speedup factors, as the file states it; 0 when it predicts
    /// none.
    pub fn error(&self) -> f64 {
        let factors = self.core_types.iter().flat_map(|t| &t.factors);
        let speedups = factors.filter(|f| matches!(f.target, Target::Speedup(_)));
        speedups.map(|f| f.error).fold(0.0, f64::max)
    }

    /// Whether it has a formula for the factor `metric` of threads that are on core type `on`. It has
    /// none for rates of instructions.
    pub fn predicts(&self, on: CoreTypeId, metric: MetricId) -> bool {
        let target = match metric {
            MetricId::SpeedupFactor(of) => Target::Speedup(of.index()),
            MetricId::EfficiencyFactor(of) => Target::Efficiency(of.index()),
            MetricId::Ipc(_) => return false,
        };
        let factors = self.core_types.get(on.index()).map(|t| &t.factors);
        factors.is_some_and(|all| all.iter().any(|f| f.target == target))
    }

    /// CPU time on a core type below which what was counted there is no sample.
    pub fn shortest(&self) -> Nanos {
        Nanos(self.shortest_ns as u64)
    }

    /// Whether this machine is one of those that the model names, if it names any
    /// ([`Pmus::machine`]).
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
        self.fits_where(pmus, |_| true)
    }

    /// The same, but that core types without a PMU do not count as long as another has one.
    ///
    /// # Errors
    /// The first thing that differs.
    pub fn fits_in_part(&self, pmus: &Pmus) -> Result<(), String> {
        let any = pmus.core_types().any(|t| pmus.of_core_type(t).is_some());
        self.fits_where(pmus, |t| !any || pmus.of_core_type(t).is_some())
    }

    fn fits_where(&self, pmus: &Pmus, counts: impl Fn(CoreTypeId) -> bool) -> Result<(), String> {
        self.is_for(pmus)?;
        let here = pmus.core_types().count();
        if here != self.core_types.len() {
            let n = self.core_types.len();
            return Err(format!("it is for {n} core types, this machine has {here}"));
        }
        let both = pmus.core_types().zip(&self.core_types);
        for (t, model) in both.filter(|(t, _)| counts(*t)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::{CoreTypeTrust, EventTrust, Trust, FORMAT};

    const MODEL: &str = r#"
kind = "model"
[[core_type]]
name = "big"
[[core_type.event_set]]
branches = "branches"
[[core_type.event_set]]
misses = "branch-misses"
[[core_type.metric]]
name = "branches per instruction"
count = "branches"
per = "instructions"
[[core_type.metric]]
name = "misses per instruction"
count = "misses"
per = "instructions"
[[core_type]]
name = "little"
[[core_type.event_set]]
"#;

    #[test]
    fn events_that_are_off_are_found_in_all_metrics_and_by_core_type() {
        let entry = |event: &str, verdict, error_min, error_max| EventTrust {
            event: event.into(),
            quantity: "q".into(),
            verdict,
            error_min,
            error_mean: 0.0,
            error_max,
            worst_kernel: "k".into(),
            comparisons: 1,
        };
        let trust = TrustFile {
            path: "t.toml".into(),
            trust: Trust {
                format: FORMAT,
                kernel: "7".into(),
                repetitions: 1,
                core_types: vec![CoreTypeTrust {
                    name: "big".into(),
                    pmu: "core_type_0".into(),
                    processor: String::new(),
                    cpu: 0,
                    events: vec![
                        entry("instructions", Verdict::Usable, -0.2, 0.25),
                        entry("branches", Verdict::Exact, -0.001, 0.0),
                        entry("branch-misses", Verdict::Qualitative, 0.0, 0.6),
                    ],
                }],
            },
        };
        let model = PlatformModel::parse(Path::new("m.toml"), MODEL).unwrap();
        let pmus = Pmus::generic(&[vec![0], vec![1]], 4);
        let trusting = model.clone().trusting(&pmus, Some(&trust));
        let doubts = &trusting.core_types[0].doubts;
        // the misses of the second metric, and the instructions of both
        assert_eq!(doubts.len(), 2, "{doubts:?}");
        let of = |side| doubts.iter().find(|d| d.metrics[0].1 == side).unwrap();
        let (instructions, misses) = (of(Side::Per), of(Side::Count));
        assert_eq!(instructions.metrics, [(0, Side::Per), (1, Side::Per)]);
        assert_eq!(instructions.factors, [0.8, 1.25]);
        assert_eq!((misses.metrics.len(), misses.metrics[0].0), (1, 1));
        assert!((misses.factors[0] - 0.625).abs() < 1e-12);
        assert!(trusting.core_types[1].doubts.is_empty());
        assert!(model.trusting(&pmus, None).core_types[0].doubts.is_empty());
    }
}
