//! Running means that start afresh at a change of phase.

/// A value beyond this ratio to the mean of itself and the running mean is a change of phase
/// [PMCTrack fig. 7].
const PHASE_CHANGE: f64 = 1.12;

/// A running mean. Empty at first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Smoothed {
    mean: f64,
    n: u32,
}

impl Smoothed {
    /// Takes in `value`, the mean reaching back `window` values at most; returns the mean.
    pub fn update(&mut self, value: f64, window: f64) -> f64 {
        let departs = self.mean.max(value) > PHASE_CHANGE * (self.mean + value) / 2.0;
        if self.n == 0 || departs {
            *self = Smoothed { mean: value, n: 1 };
        } else {
            self.n = self.n.saturating_add(1);
            self.mean += (value - self.mean) / f64::from(self.n).min(window.max(1.0));
        }
        self.mean
    }

    /// How many values the mean stands for.
    pub fn len(&self, window: f64) -> f64 {
        f64::from(self.n).min(window.max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_averaged_and_a_step_is_followed_at_once() {
        let mut s = Smoothed::default();
        for v in [2.0, 2.1, 1.9, 2.0] {
            s.update(v, 16.0);
        }
        assert!((s.mean - 2.0).abs() < 1e-12);
        assert_eq!(s.len(16.0), 4.0);
        assert_eq!(s.update(3.0, 16.0), 3.0);
        assert_eq!(s.len(16.0), 1.0);
    }
}
