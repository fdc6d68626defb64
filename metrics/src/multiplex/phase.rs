//! Phase changes, seen in the IPC.

/// Threshold of PMCTrack's test: a change when max(old, new) > 1.12 · mean(old, new)
/// [PMCTrack §4.1.2].
pub const DEFAULT_PHASE_RATIO: f64 = 1.12;

/// The same as a difference of the logarithms of two rates, rounded: a ratio of 1.27.
pub(crate) const PHASE_STEP: f64 = 0.24;

/// Departing samples that make a change; the paper has 1. See [`PhaseRule::confirm`] and
/// docs/evidence/multiplexing.md.
pub const DEFAULT_PHASE_CONFIRM: u32 = 2;

/// How a phase change is distinguished from noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseRule {
    /// A sample departs when the larger of it and the running average exceeds this many times their
    /// mean (above 1, below 2).
    pub ratio: f64,
    /// Weight of a new sample in the running average (0 to 1); the old value has the rest.
    pub new: f64,
    /// Samples in a row that depart to the same side and so make a change. 1 is the paper's rule;
    /// with 2 a single outlier is none, and a change is seen once: the interval in which it happens
    /// is a bit of both phases, departs from the old one, and the new one departs from it again.
    pub confirm: u32,
}

impl Default for PhaseRule {
    fn default() -> PhaseRule {
        PhaseRule {
            ratio: DEFAULT_PHASE_RATIO,
            new: 0.65,
            confirm: DEFAULT_PHASE_CONFIRM,
        }
    }
}

impl PhaseRule {
    /// Whether two values belong to different phases. Zero against anything else does.
    pub fn departs(&self, old: f64, new: f64) -> bool {
        old.max(new) > self.ratio * (old + new) / 2.0
    }
}

/// Follows the phases of one thread on one core type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseDetector {
    average: Option<f64>,
    /// Samples in a row that departed to the same side, and to which.
    departing: u32,
    upwards: bool,
}

impl PhaseDetector {
    /// Takes in the IPC of a sample; true when it begins a new phase. A sample that is not a finite
    /// number above 0 is left out: nothing ran.
    pub fn step(&mut self, ipc: f64, rule: &PhaseRule) -> bool {
        if !(ipc.is_finite() && ipc > 0.0) {
            return false;
        }
        let Some(average) = self.average else {
            self.average = Some(ipc);
            return false;
        };
        if !rule.departs(average, ipc) {
            self.departing = 0;
            self.average = Some((1.0 - rule.new) * average + rule.new * ipc);
            return false;
        }
        // samples that depart in different directions are noise, not a new phase
        let upwards = ipc > average;
        if upwards != self.upwards {
            self.departing = 0;
        }
        self.upwards = upwards;
        self.departing += 1;
        if self.departing < rule.confirm {
            return false;
        }
        // the last one: an earlier one may be of both phases
        self.average = Some(ipc);
        self.departing = 0;
        true
    }

    /// Whether the last sample departed without making a change, yet: it is an outlier, or the next
    /// one will tell.
    pub fn is_departing(&self) -> bool {
        self.departing > 0
    }

    /// Running average of the present phase.
    pub fn average(&self) -> Option<f64> {
        self.average
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_change_is_found_at_once_and_small_steps_are_none() {
        let rule = PhaseRule {
            confirm: 1,
            ..PhaseRule::default()
        };
        let mut d = PhaseDetector::default();
        assert!([1.0, 1.1, 1.05, 1.2].iter().all(|s| !d.step(*s, &rule)));
        assert!(d.step(2.0, &rule), "up");
        assert!(!d.step(2.1, &rule));
        assert!(d.step(0.9, &rule), "down");
        assert!((d.average().unwrap() - 0.9).abs() < 1e-12);
        // 1.12 of the mean is a quotient of 1.12 / 0.88
        let edge = 1.12 / 0.88;
        assert!(!rule.departs(1.0, edge - 1e-9) && rule.departs(1.0, edge + 1e-9));
    }

    #[test]
    fn a_single_outlier_is_ignored_when_changes_are_confirmed() {
        let rule = PhaseRule {
            confirm: 2,
            ..PhaseRule::default()
        };
        let mut d = PhaseDetector::default();
        let steps = [1.0, 3.0, 1.0, 3.0, 3.1];
        let found: Vec<bool> = steps.iter().map(|s| d.step(*s, &rule)).collect();
        assert_eq!(found, [false, false, false, false, true]);
    }

    #[test]
    fn an_interval_of_both_phases_makes_no_second_change() {
        // up from 1 to 3, down to 1 and further to 0.2, with an interval of both between them
        let steps = [1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 1.5, 1.0, 1.0, 0.5, 0.2, 0.2];
        let found = |confirm| -> Vec<usize> {
            let mut d = PhaseDetector::default();
            let rule = PhaseRule {
                confirm,
                ..PhaseRule::default()
            };
            (0..steps.len())
                .filter(|i| d.step(steps[*i], &rule))
                .collect()
        };
        assert_eq!(found(1), [2, 3, 6, 7, 9, 10]);
        assert_eq!(found(2), [3, 7, 10]);
    }

    proptest! {
        #[test]
        fn any_samples_do(samples in proptest::collection::vec(proptest::num::f64::ANY, 0..50)) {
            let mut d = PhaseDetector::default();
            for s in samples {
                d.step(s, &PhaseRule::default());
                prop_assert!(d.average().is_none_or(|a| a > 0.0));
            }
        }

        #[test]
        fn noise_within_ten_percent_is_never_a_change(noise in proptest::collection::vec(0.9f64..1.1, 1..200)) {
            let mut d = PhaseDetector::default();
            for n in noise {
                prop_assert!(!d.step(2.0 * n, &PhaseRule::default()));
            }
        }
    }
}
