//! IPC sampling: speedup factors from running on each core type by turns [PMCTrack §4.1, EQP].

use super::threads::Threads;
use crate::estimate::{Estimate, Quality};
use crate::event::{Event, EventError, EventSet, EventSets, EventSpec};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::multiplex::{PhaseDetector, PhaseRule, DEFAULT_PHASE_CONFIRM, DEFAULT_PHASE_RATIO};
use crate::pmu::Pmus;
use crate::provider::{Caveats, MetricId, Phase, Provider};
use crate::sample::{Reading, Snapshot};
use serde::Deserialize;

/// Settings, all with the paper's constants as defaults where it gives any.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IpcSamplingSettings {
    /// Weight of a new sample in the running average, above 0 to 1; the old value has the rest
    /// [PMCTrack: 0.65].
    pub new_weight: f64,
    /// Least factor [PMCTrack: 1].
    pub min: f64,
    /// Largest factor [PMCTrack: 7].
    pub max: f64,
    /// Factor before there are enough samples [PMCTrack: 2.5]. It rests on nothing measured, so its
    /// quality is [`Quality::Partial`] and policies of this project do not use it.
    pub warm_up_value: f64,
    /// Samples on each core type that are enough [PMCTrack: 5].
    pub warm_up_samples: u32,
    /// CPU time below which a stay on a core type within one interval is no sample, milliseconds.
    pub shortest_ms: f64,
    /// Part of that time in which the counters must have counted, 0 to 1.
    pub least_coverage: f64,
    /// Largest quotient of a sample and the mean of it and the running average within one phase
    /// [PMCTrack: 1.12].
    pub phase_ratio: f64,
    /// Departing samples in a row that make a new phase [PMCTrack: 1]; see [`PhaseRule::confirm`].
    pub phase_confirm: u32,
    /// Begin the running average afresh with a new phase, instead of letting the old one fade.
    pub restart_on_phase: bool,
    /// Age beyond which a factor is stale, milliseconds.
    pub stale_after_ms: f64,
}

impl Default for IpcSamplingSettings {
    fn default() -> IpcSamplingSettings {
        IpcSamplingSettings {
            new_weight: 0.65,
            min: 1.0,
            max: 7.0,
            warm_up_value: 2.5,
            warm_up_samples: 5,
            shortest_ms: 1.0,
            least_coverage: 0.05,
            phase_ratio: DEFAULT_PHASE_RATIO,
            phase_confirm: DEFAULT_PHASE_CONFIRM,
            restart_on_phase: true,
            stale_after_ms: 5000.0,
        }
    }
}

impl IpcSamplingSettings {
    /// Checks every setting.
    ///
    /// # Errors
    /// Names the first key that is out of range, and the range.
    pub fn check(&self) -> Result<(), String> {
        let within = |key: &str, v: f64, min: f64, max: f64| {
            if v.is_finite() && v >= min && v <= max {
                Ok(())
            } else {
                Err(format!("key `{key}`: {v} is not within {min} to {max}"))
            }
        };
        within("new_weight", self.new_weight, 0.01, 1.0)?;
        within("min", self.min, 0.01, 100.0)?;
        within("max", self.max, self.min, 1000.0)?;
        within("warm_up_value", self.warm_up_value, self.min, self.max)?;
        within("warm_up_samples", f64::from(self.warm_up_samples), 1.0, 1e6)?;
        within("shortest_ms", self.shortest_ms, 0.0, 1e6)?;
        within("least_coverage", self.least_coverage, 0.0, 1.0)?;
        within("phase_ratio", self.phase_ratio, 1.001, 1.999)?;
        within("phase_confirm", f64::from(self.phase_confirm), 1.0, 100.0)?;
        within("stale_after_ms", self.stale_after_ms, 0.0, 1e9)
    }

    fn rule(&self) -> PhaseRule {
        PhaseRule {
            ratio: self.phase_ratio,
            new: self.new_weight,
            confirm: self.phase_confirm,
        }
    }
}

/// Speed on one core type.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// Running average of instructions per nanosecond of CPU time, and of the squared departures
    /// from it.
    speed: f64,
    variance: f64,
    ipc: f64,
    samples: u32,
    measured: Nanos,
    detector: PhaseDetector,
    /// The thread's phase when the last sample was taken.
    phase: u32,
    /// Speed and IPC of a sample that departs from the phase: the next one shows whether it was an
    /// outlier.
    held: Option<(f64, f64)>,
}

impl Side {
    /// Lets a sample enter the averages.
    fn average(&mut self, speed: f64, ipc: f64, weight: f64) {
        let d = speed - self.speed;
        self.speed += weight * d;
        self.variance = (1.0 - weight) * (self.variance + weight * d * d);
        self.ipc += weight * (ipc - self.ipc);
    }

    /// Begins them afresh.
    fn begin(&mut self, speed: f64, ipc: f64) {
        (self.speed, self.variance, self.ipc) = (speed, 0.0, ipc);
    }

    /// Relative standard uncertainty of the average: σ·√(w/(2−w)) for weight w; unknown with one
    /// sample.
    fn relative_uncertainty(&self, weight: f64) -> Option<f64> {
        (self.samples > 1 && self.speed > 0.0)
            .then(|| (self.variance * weight / (2.0 - weight)).sqrt() / self.speed)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    sides: [Side; MAX_CORE_TYPES],
    /// Last factor per core type; kept while the small core's speed is 0 [PMCTrack].
    factor: [Option<f64>; MAX_CORE_TYPES],
    phase: u32,
    phase_since: Nanos,
}

impl Thread {
    /// One that was met at `now`: ages count from then.
    fn met(now: Nanos) -> Thread {
        let mut t = Thread {
            phase_since: now,
            ..Thread::default()
        };
        for side in &mut t.sides {
            side.measured = now;
        }
        t
    }
}

/// The estimator that EQP uses on real machines.
///
/// In every interval in which a thread ran long enough on a core type, its speed there
/// (instructions by CPU time, which is the IPC times the frequency it really ran at) enters a
/// running average, new = 0.35·old + 0.65·sample. The factor is the ratio of the averages of a core
/// type and the slowest one, within 1 to 7. A jump of the IPC that lasts (two samples; the paper
/// has one) begins a new phase: the average of that core type starts afresh, and the factor counts
/// as stale, with the caveat that the other side is of another phase, until a sample from there is
/// in. That the two sides are never measured at the same time is the method's known weakness.
///
/// It has no efficiency factors.
#[derive(Debug, Default)]
pub struct IpcSampling {
    name: String,
    settings: IpcSamplingSettings,
    core_types: usize,
    threads: Threads<Thread>,
    now: Nanos,
}

impl IpcSampling {
    /// The provider with these settings.
    ///
    /// # Errors
    /// [`IpcSamplingSettings::check`].
    pub fn new(name: &str, settings: IpcSamplingSettings) -> Result<IpcSampling, String> {
        settings.check()?;
        Ok(IpcSampling {
            name: name.to_owned(),
            settings,
            ..IpcSampling::default()
        })
    }

    fn slowest(&self) -> usize {
        self.core_types.saturating_sub(1)
    }

    fn take_in(&mut self, r: &Reading) {
        let s = &self.settings;
        let t = r.core_type.index();
        let (Some(thread), [instructions, cycles, ..]) =
            (self.threads.get_mut(r.thread), r.deltas())
        else {
            return;
        };
        let long_enough = r.ran.0 as f64 >= s.shortest_ms * 1e6 && r.counted.0 > 0;
        if t >= self.core_types || !long_enough || r.coverage() < s.least_coverage {
            return;
        }
        let speed = *instructions as f64 / r.counted.0 as f64;
        let ipc = if *cycles > 0 {
            *instructions as f64 / *cycles as f64
        } else {
            0.0
        };
        let Some(side) = thread.sides.get_mut(t) else {
            return;
        };
        let changed = side.detector.step(ipc, &s.rule());
        if changed {
            thread.phase = thread.phase.wrapping_add(1);
            thread.phase_since = self.now;
        }
        let outlier = if side.detector.is_departing() {
            side.held.replace((speed, ipc))
        } else {
            side.held.take().filter(|_| !changed)
        };
        if let Some((speed, ipc)) = outlier {
            side.average(speed, ipc, s.new_weight);
        }
        if side.detector.is_departing() {
            return;
        }
        if side.samples == 0 || changed && s.restart_on_phase {
            side.begin(speed, ipc);
        } else {
            side.average(speed, ipc, s.new_weight);
        }
        side.samples = side.samples.saturating_add(1);
        side.measured = self.now;
        side.phase = thread.phase;
        let slowest = self.core_types - 1;
        let small = thread.sides[slowest];
        for (f, big) in thread.factor.iter_mut().zip(thread.sides).take(slowest) {
            let enough = big.samples.min(small.samples) >= s.warm_up_samples;
            if enough && small.speed > 0.0 {
                *f = Some((big.speed / small.speed).clamp(s.min, s.max));
            }
        }
    }
}

/// Instructions and cycles on every core type: what a provider that follows the IPC needs.
pub(crate) fn instructions_and_cycles(pmus: &Pmus, t: CoreTypeId) -> Result<EventSet, EventError> {
    let resolve = |name: &str| -> Result<Event, EventError> {
        Ok(pmus.resolve(t, &name.parse::<EventSpec>()?)?.named(name))
    };
    Ok(EventSet {
        events: vec![resolve("instructions")?, resolve("cycles")?],
    })
}

impl Provider for IpcSampling {
    fn name(&self) -> &str {
        &self.name
    }

    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        let mut sets = EventSets::default();
        for t in pmus.core_types() {
            sets.push(t, instructions_and_cycles(pmus, t)?);
        }
        self.core_types = pmus.core_types().count().min(MAX_CORE_TYPES);
        Ok(sets)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.now = snapshot.now;
        let met = Thread::met(snapshot.now);
        self.threads.keep(snapshot, |_| met);
        for r in &snapshot.readings {
            self.take_in(r);
        }
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let s = &self.settings;
        let t = self.threads.get(thread)?;
        let age = |n: Nanos| self.now.saturating_sub(n);
        let stale = |n: Nanos| age(n).0 as f64 > s.stale_after_ms * 1e6;
        match metric {
            MetricId::Ipc(c) => {
                let side = t.sides.get(c.index()).filter(|x| x.samples > 0)?;
                Some(Estimate {
                    value: side.ipc,
                    uncertainty: side
                        .relative_uncertainty(s.new_weight)
                        .map(|u| u * side.ipc),
                    age: age(side.measured),
                    quality: if stale(side.measured) {
                        Quality::Stale
                    } else {
                        Quality::Exact
                    },
                })
            }
            MetricId::SpeedupFactor(c) if c.index() < self.slowest() => {
                let (big, small) = (t.sides.get(c.index())?, t.sides.get(self.slowest())?);
                let oldest = big.measured.min(small.measured);
                let Some(value) = t.factor[c.index()] else {
                    return Some(Estimate {
                        value: s.warm_up_value,
                        uncertainty: None,
                        age: age(oldest),
                        quality: Quality::Partial,
                    });
                };
                let u = big
                    .relative_uncertainty(s.new_weight)
                    .zip(small.relative_uncertainty(s.new_weight))
                    .map(|(a, b)| value * a.hypot(b));
                let quality = if stale(oldest) || big.phase != small.phase {
                    Quality::Stale
                } else {
                    Quality::Multiplexed
                };
                Some(Estimate {
                    value,
                    uncertainty: u,
                    age: age(oldest),
                    quality,
                })
            }
            _ => None,
        }
    }

    fn phase(&self, thread: ThreadKey) -> Option<Phase> {
        let t = self.threads.get(thread)?;
        Some(Phase {
            number: t.phase,
            age: self.now.saturating_sub(t.phase_since),
        })
    }

    fn caveats(&self, thread: ThreadKey) -> Caveats {
        let sides = |t: &Thread| {
            t.sides[..self.core_types]
                .iter()
                .any(|s| s.samples > 0 && s.phase != t.phase)
        };
        Caveats {
            other_phase: self.threads.get(thread).is_some_and(sides),
            ..Caveats::default()
        }
    }

    /// The core type with the fewest samples until there are enough, then one that was not seen in
    /// this phase.
    fn wanted_on(&self, thread: ThreadKey) -> Option<CoreTypeId> {
        let t = self.threads.get(thread)?;
        let sides = t.sides.get(..self.core_types)?.iter().enumerate();
        sides
            .filter(|(_, s)| s.samples < self.settings.warm_up_samples || s.phase != t.phase)
            .min_by_key(|(_, s)| (s.samples.min(self.settings.warm_up_samples), s.measured))
            .map(|(i, _)| CoreTypeId(i as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::testing::{key, readings, snapshot};
    use proptest::prelude::*;

    const SF: MetricId = MetricId::SpeedupFactor(CoreTypeId(0));

    fn provider(settings: IpcSamplingSettings) -> IpcSampling {
        let mut p = IpcSampling::new("ipc-sampling", settings).unwrap();
        let pmus = Pmus::generic(&[vec![0, 1], vec![2, 3]], 2);
        let sets = p.event_sets(&pmus).unwrap();
        assert_eq!(sets.of(CoreTypeId(0))[0].position("cycles"), Some(1));
        p
    }

    /// One interval of 100 ms in which thread 1 ran on core type `t` with this IPC at `ghz`.
    fn step(p: &mut IpcSampling, at_ms: u64, t: u8, ipc: f64, ghz: f64) {
        let cycles = 1e8 * ghz;
        let r = readings(1, t, 0, 100, &[(cycles * ipc) as u64, cycles as u64]);
        p.observe(&snapshot(at_ms, &[1], vec![r]));
    }

    #[test]
    fn the_papers_warm_up_average_and_clamp() {
        let mut p = provider(IpcSamplingSettings::default());
        for i in 0..4 {
            step(&mut p, 200 * i, 0, 1.5, 2.0);
            step(&mut p, 200 * i + 100, 1, 1.0, 1.0);
        }
        let e = p.estimate(key(1), SF).unwrap();
        assert_eq!((e.value, e.quality), (2.5, Quality::Partial));
        assert_eq!(p.wanted_on(key(1)), Some(CoreTypeId(0)));
        step(&mut p, 900, 0, 1.5, 2.0);
        step(&mut p, 1000, 1, 1.0, 1.0);
        let e = p.estimate(key(1), SF).unwrap();
        assert!(
            (e.value - 3.0).abs() < 1e-6 && e.quality == Quality::Multiplexed,
            "{e:?}"
        );
        assert_eq!(e.age, Nanos::from_millis(100));
        assert_eq!(p.wanted_on(key(1)), None);
        // within the phase a sample counts 0.65
        step(&mut p, 1100, 0, 1.7, 2.0);
        let e = p.estimate(key(1), SF).unwrap();
        assert!((e.value - (0.35 * 3.0 + 0.65 * 3.4)).abs() < 1e-6, "{e:?}");
        assert!(e.uncertainty.unwrap() > 0.0);
        // clamped
        step(&mut p, 1200, 0, 9.0, 2.0);
        step(&mut p, 1300, 0, 9.0, 2.0);
        assert_eq!(p.estimate(key(1), SF).unwrap().value, 7.0);
        assert_eq!(
            p.estimate(key(1), MetricId::SpeedupFactor(CoreTypeId(1))),
            None
        );
        assert_eq!(p.estimate(key(2), SF), None);
    }

    #[test]
    fn ages_count_from_when_a_thread_was_met() {
        let mut p = provider(IpcSamplingSettings::default());
        step(&mut p, 60_000, 0, 1.0, 1.0);
        step(&mut p, 60_100, 0, 1.0, 1.0);
        let e = p.estimate(key(1), SF).unwrap();
        assert_eq!(
            (e.quality, e.age),
            (Quality::Partial, Nanos::from_millis(100))
        );
        assert_eq!(p.phase(key(1)).unwrap().age, Nanos::from_millis(100));
    }

    #[test]
    fn a_new_phase_is_stale_until_the_other_side_is_seen() {
        let mut p = provider(IpcSamplingSettings {
            phase_confirm: 1,
            ..IpcSamplingSettings::default()
        });
        for i in 0..5 {
            step(&mut p, 200 * i, 0, 1.5, 1.0);
            step(&mut p, 200 * i + 100, 1, 1.0, 1.0);
        }
        assert_eq!(p.phase(key(1)).unwrap().number, 0);
        step(&mut p, 1000, 0, 3.0, 1.0);
        let e = p.estimate(key(1), SF).unwrap();
        assert_eq!(
            (e.quality, p.phase(key(1)).unwrap().number),
            (Quality::Stale, 1)
        );
        assert!(p.caveats(key(1)).other_phase);
        assert_eq!(p.wanted_on(key(1)), Some(CoreTypeId(1)));
        // the small core's IPC barely changes: the sample is of the new phase all the same
        step(&mut p, 1100, 1, 1.05, 1.0);
        let e = p.estimate(key(1), SF).unwrap();
        assert_eq!(e.quality, Quality::Multiplexed);
        assert!(!p.caveats(key(1)).other_phase);
        assert!((e.value - 3.0 / (0.35 + 0.65 * 1.05)).abs() < 1e-6, "{e:?}");
    }

    #[test]
    fn an_outlier_enters_late_and_a_change_without_its_first_sample() {
        let mut p = provider(IpcSamplingSettings::default());
        let ipc = |p: &IpcSampling| {
            let e = p.estimate(key(1), MetricId::Ipc(CoreTypeId(0)));
            (e.unwrap().value * 1e6).round() / 1e6
        };
        let number = |p: &IpcSampling| p.phase(key(1)).unwrap().number;
        for (at, sample, average) in [(0, 1.0, 1.0), (1, 2.0, 1.0)] {
            step(&mut p, 100 * at, 0, sample, 1.0);
            assert_eq!((ipc(&p), number(&p)), (average, 0));
        }
        // 0.35 · 1 + 0.65 · 2, then 0.35 · 1.65 + 0.65 · 1
        step(&mut p, 200, 0, 1.0, 1.0);
        assert_eq!((ipc(&p), number(&p)), (1.2275, 0));
        // a change, of which the first sample is of both phases
        step(&mut p, 300, 0, 2.0, 1.0);
        step(&mut p, 400, 0, 3.0, 1.0);
        assert_eq!((ipc(&p), number(&p)), (3.0, 1));
    }

    #[test]
    fn a_stalled_small_core_changes_nothing_and_partial_samples_do_not_count() {
        let mut p = provider(IpcSamplingSettings {
            warm_up_samples: 1,
            ..IpcSamplingSettings::default()
        });
        step(&mut p, 0, 0, 2.0, 1.0);
        step(&mut p, 100, 1, 0.0, 1.0);
        assert_eq!(p.estimate(key(1), SF).unwrap().quality, Quality::Partial);
        let mut p = provider(IpcSamplingSettings {
            warm_up_samples: 1,
            ..IpcSamplingSettings::default()
        });
        let r =
            readings(1, 0, 0, 100, &[1000, 1000]).over(Nanos::from_millis(100), Nanos(1_000_000));
        p.observe(&snapshot(0, &[1], vec![r]));
        assert_eq!(p.estimate(key(1), MetricId::Ipc(CoreTypeId(0))), None);
    }

    #[test]
    fn settings_out_of_range_name_the_key() {
        for (s, key) in [
            ("new_weight = 0.0", "new_weight"),
            ("min = 8.0", "max"),
            ("phase_ratio = 2.5", "phase_ratio"),
            ("max = nan", "max"),
        ] {
            let settings: IpcSamplingSettings = toml::from_str(s).unwrap();
            let e = IpcSampling::new("x", settings).unwrap_err();
            assert!(e.contains(&format!("`{key}`")), "{s}: {e}");
        }
        assert!(toml::from_str::<IpcSamplingSettings>("weight = 1").is_err());
    }

    proptest! {
        /// Whatever is read, a factor is a number within the bounds.
        #[test]
        fn factors_stay_within_their_bounds(
            stream in proptest::collection::vec((0u8..4, 0u32..3, 0u64..200, any::<u64>(), any::<u64>()), 0..80),
        ) {
            let mut p = provider(IpcSamplingSettings::default());
            for (n, (t, thread, ms, a, b)) in stream.into_iter().enumerate() {
                p.observe(&snapshot(n as u64 * 100, &[0, 1, 2], vec![readings(thread, t, 0, ms, &[a, b])]));
                for thread in 0..3 {
                    if let Some(e) = p.estimate(key(thread), SF) {
                        prop_assert!(e.value >= 1.0 && e.value <= 7.0, "{:?}", e);
                        prop_assert!(e.uncertainty.is_none_or(|u| u >= 0.0), "{:?}", e);
                    }
                }
            }
        }
    }
}
