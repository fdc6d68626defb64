//! How much the rates of a program vary from window to window.

/// Unit of time: rates are compared one such unit apart, and four.
pub(super) const UNIT_NS: f64 = 100e6;
/// Part of a departure that is left after a unit of time.
pub(super) const PERSISTENCE: f64 = 0.8;
/// Standard deviation of noise, and of departures, of a program that nobody has seen yet.
const PRIOR: (f64, f64) = (0.05, 0.08);
/// The least of either.
const LEAST: f64 = 0.02;
/// Differences that the prior counts for, and that are remembered.
const PRIOR_WEIGHT: f64 = 4.0;
const MOST_WEIGHT: f64 = 64.0;
/// The most that a difference counts for: larger ones are changes of phase.
const MOST: f64 = 0.35;
/// The longer of the two distances.
pub(super) const FAR: usize = 4;

/// A running mean of squares.
#[derive(Clone, Copy, Debug)]
struct Squares {
    mean: f64,
    weight: f64,
}

impl Squares {
    fn take_in(&mut self, d: f64) {
        let d = d.abs().min(MOST);
        self.mean += (d * d - self.mean) / (self.weight + 1.0);
        self.weight = (self.weight + 1.0).min(MOST_WEIGHT);
    }
}

/// The variances of noise, which each window has anew, and of departures, which last: by how much rates differ that
/// are one unit of time apart, and four. Of noise r and departures s of which the part φ is left after a unit, rates k units
/// apart differ by a variance of 2r + 2s(1 − φᵏ).
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise {
    near: Squares,
    far: Squares,
}

impl Default for Noise {
    fn default() -> Noise {
        let (r, s) = (PRIOR.0 * PRIOR.0, PRIOR.1 * PRIOR.1);
        let apart = |k: i32| Squares {
            mean: 2.0 * r + 2.0 * s * (1.0 - PERSISTENCE.powi(k)),
            weight: PRIOR_WEIGHT,
        };
        Noise {
            near: apart(1),
            far: apart(FAR as i32),
        }
    }
}

impl Noise {
    /// Takes in by how much the logarithms of two rates on one core type differ, one unit of time apart.
    pub fn near(&mut self, d: f64) {
        self.near.take_in(d);
    }

    /// The same, [`FAR`] apart.
    pub fn far(&mut self, d: f64) {
        self.far.take_in(d);
    }

    fn split(&self) -> (f64, f64) {
        let [near, far] = [1, FAR as i32].map(|k| 1.0 - PERSISTENCE.powi(k));
        let least = LEAST * LEAST;
        let (d1, d4) = (self.near.mean, self.far.mean.max(self.near.mean));
        let s = (d4 - d1) / (2.0 * (far - near));
        let r = d1 / 2.0 - s * near;
        if r < least {
            return (least, ((d1 / 2.0 - least) / near).max(least));
        }
        (r, s.max(least))
    }

    /// Variance of a window of one unit of time around what the thread does then.
    pub fn white(&self) -> f64 {
        self.split().0
    }

    /// Variance of departures.
    pub fn wander(&self) -> f64 {
        self.split().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn noise_and_departures_are_told_apart() {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut normal = move || (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        for (white, wander) in [(0.1f64, 0.02f64), (0.02, 0.15), (0.08, 0.1)] {
            let mut noise = Noise::default();
            let mut departure = 0.0;
            let course: Vec<f64> = (0..20_000)
                .map(|_| {
                    let kept = 1.0 - PERSISTENCE * PERSISTENCE;
                    departure = PERSISTENCE * departure + wander * kept.sqrt() * normal();
                    departure + white * normal()
                })
                .collect();
            let (mut r, mut s) = (0.0, 0.0);
            for (i, w) in course.windows(FAR + 1).enumerate() {
                noise.near(w[FAR] - w[FAR - 1]);
                noise.far(w[FAR] - w[0]);
                if i >= 1000 {
                    r += noise.white();
                    s += noise.wander();
                }
            }
            let n = (course.len() - FAR - 1000) as f64;
            let (r, s) = ((r / n).sqrt(), (s / n).sqrt());
            assert!((r - white).abs() < 0.3 * white + 0.01, "white {white}: {r}");
            assert!(
                (s - wander).abs() < 0.3 * wander + 0.02,
                "wander {wander}: {s}"
            );
        }
    }
}
