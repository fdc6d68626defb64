//! Phase changes, seen in the IPC.

/// Threshold of PMCTrack's test: a change when max(old, new) > 1.12 · mean(old, new) [PMCTrack §4.1.2].
pub const DEFAULT_PHASE_RATIO: f64 = 1.12;

/// How a phase change is told from noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseRule {
    /// A sample departs when the larger of it and the running average exceeds this many times their mean (above 1,
    /// below 2).
    pub ratio: f64,
    /// Weight of a new sample in the running average (0 to 1); the old value has the rest.
    pub new: f64,
    /// Departing samples in a row that make a change. 1 is the paper's rule; 2 ignores single outliers and finds a
    /// change one sample later.
    pub confirm: u32,
}

impl Default for PhaseRule {
    fn default() -> PhaseRule {
        PhaseRule {
            ratio: DEFAULT_PHASE_RATIO,
            new: 0.65,
            confirm: 1,
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
    /// Departing samples in a row, and their running average.
    departing: u32,
    candidate: f64,
}

impl PhaseDetector {
    /// Takes in the IPC of a sample; true when it begins a new phase. A sample that is not a finite number above 0 is
    /// left out: nothing ran.
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
        self.candidate = if self.departing > 0 && !rule.departs(self.candidate, ipc) {
            self.departing += 1;
            (self.candidate + ipc) / 2.0
        } else {
            self.departing = 1;
            ipc
        };
        if self.departing < rule.confirm {
            return false;
        }
        self.average = Some(self.candidate);
        self.departing = 0;
        true
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
        let rule = PhaseRule::default();
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
