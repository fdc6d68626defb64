//! What a thread's instruction rates say of its factors: a Kalman filter on logarithms.
//!
//! ```text
//! ln rate on core type t  =  level + departure + ln factor of t (0 on the slowest)  +  noise
//! ```
//!
//! The *level* is what the thread does in its present phase. The *departure* from it dies out (a first-order
//! autoregressive process): a compressor's input, a garbage collection. The factors change slowly, of a program that was steady hardly. So two windows
//! next to each other on two core types are compared as they are, where departures are large, and means over long stays
//! where there is nothing but noise; how large either is, each program shows ([`Noise`](super::noise::Noise)).
//! This is the local level model with an intervention [Harvey, Forecasting, structural time series models and the
//! Kalman filter, 1989, §2.3 and §7.6].

use super::noise::{Noise, PERSISTENCE};
use crate::ids::MAX_CORE_TYPES;

/// Variance of a level of which nothing is known.
const DIFFUSE: f64 = 100.0;
/// Variance by which the level wanders in a unit of time.
const LEVEL_DRIFT: f64 = 0.02 * 0.02;
/// Variance by which a factor wanders in a unit of time: 0.07 in a second. The more often a program has come to another core
/// type and done what was expected, the less it is: what never changes need not be looked at every few seconds.
const FACTOR_DRIFT: f64 = 0.07 * 0.07 / 10.0;
/// Place of the level and of the departure in the state; the factors follow.
const LEVEL: usize = 0;
const DEPARTURE: usize = 1;
const FACTORS: usize = 2;

/// The logarithm of a factor, and the square of its standard uncertainty.
pub(super) type Factor = (f64, f64);

/// What is known of one thread: the state's mean and covariance.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    mean: Vec<f64>,
    /// Row by row, symmetric.
    covariance: Vec<f64>,
}

impl Filter {
    /// Of a thread of which nothing is known but what its factors may be, by core type but for the slowest.
    pub fn new(factors: &[Factor], noise: &Noise) -> Filter {
        let n = FACTORS + factors.len().min(MAX_CORE_TYPES);
        let mut f = Filter {
            mean: vec![0.0; n],
            covariance: vec![0.0; n * n],
        };
        *f.at(LEVEL, LEVEL) = DIFFUSE;
        *f.at(DEPARTURE, DEPARTURE) = noise.wander();
        for (c, factor) in factors.iter().enumerate() {
            f.set_factor(c, *factor);
        }
        f
    }

    fn at(&mut self, i: usize, j: usize) -> &mut f64 {
        let n = self.mean.len();
        &mut self.covariance[i * n + j]
    }

    /// So many units of time go by, for a program that was `steady` at so many moves in a row.
    pub fn pass(&mut self, units: f64, noise: &Noise, steady: u32) {
        let kept = PERSISTENCE.powf(units);
        self.mean[DEPARTURE] *= kept;
        for i in 0..self.mean.len() {
            *self.at(DEPARTURE, i) *= kept;
            *self.at(i, DEPARTURE) *= kept;
        }
        *self.at(DEPARTURE, DEPARTURE) += noise.wander() * (1.0 - kept * kept);
        *self.at(LEVEL, LEVEL) += LEVEL_DRIFT * units;
        for c in FACTORS..self.mean.len() {
            *self.at(c, c) += FACTOR_DRIFT * units / (1.0 + f64::from(steady) / 2.0).powi(2);
        }
    }

    /// The places of the state whose sum is the logarithm of the rate on core type `t`.
    fn seen(&self, t: usize) -> impl Iterator<Item = usize> {
        let factor = Some(FACTORS + t).filter(|i| *i < self.mean.len());
        [LEVEL, DEPARTURE].into_iter().chain(factor)
    }

    /// The covariance of the state with the logarithm of the rate on `t`, and that one's variance.
    fn gain(&self, t: usize) -> (Vec<f64>, f64) {
        let n = self.mean.len();
        let row = |i: usize| self.seen(t).map(|j| self.covariance[i * n + j]).sum();
        let with: Vec<f64> = (0..n).map(row).collect();
        let variance = self.seen(t).map(|i| with[i]).sum();
        (with, variance)
    }

    /// The logarithm of the rate that is expected on core type `t`, and its variance.
    pub fn expected(&self, t: usize) -> (f64, f64) {
        let (_, variance) = self.gain(t);
        (self.seen(t).map(|i| self.mean[i]).sum(), variance)
    }

    /// Takes in the logarithm of a rate on `t`, measured with this variance.
    pub fn take_in(&mut self, t: usize, ln: f64, variance: f64) {
        let (expected, _) = self.expected(t);
        let (with, own) = self.gain(t);
        let all = own + variance;
        let n = self.mean.len();
        for i in 0..n {
            self.mean[i] += with[i] / all * (ln - expected);
            for j in 0..n {
                self.covariance[i * n + j] -= with[i] * with[j] / all;
            }
        }
        for i in 0..n {
            // rounding
            let own = self.at(i, i);
            *own = own.max(1e-9);
        }
    }

    /// What the thread does may be another thing from now on, by this variance.
    pub fn doubt_level(&mut self, variance: f64) {
        *self.at(LEVEL, LEVEL) += variance;
    }

    /// What was seen on `t` is off by so much more than expected, in squares: the factor is less certain by that, or the
    /// level, of which no more than the variance `level` was doubtful; each by its part.
    pub fn doubt(&mut self, t: usize, excess: f64, level: f64) {
        let place = FACTORS + t;
        let own = match place < self.mean.len() {
            true => *self.at(place, place),
            // the factors are over the rate on the slowest
            false => (FACTORS..self.mean.len())
                .map(|c| *self.at(c, c))
                .fold(0.0, f64::max),
        };
        let part = own / (own + level);
        match place < self.mean.len() {
            true => *self.at(place, place) += excess * part,
            false => self.doubt_factors(excess * part),
        }
        self.doubt_level(excess * (1.0 - part));
    }

    /// So may its factors.
    pub fn doubt_factors(&mut self, variance: f64) {
        for c in FACTORS..self.mean.len() {
            *self.at(c, c) += variance;
        }
    }

    /// The factor of core type `c` is known from elsewhere.
    pub fn set_factor(&mut self, c: usize, (ln, variance): Factor) {
        let place = FACTORS + c;
        for i in 0..self.mean.len() {
            *self.at(place, i) = 0.0;
            *self.at(i, place) = 0.0;
        }
        self.mean[place] = ln;
        *self.at(place, place) = variance;
    }

    /// The factor of core type `c`, if there is such a type beside the slowest.
    pub fn factor(&self, c: usize) -> Option<Factor> {
        let place = FACTORS + c;
        let n = self.mean.len();
        Some((
            *self.mean.get(place)?,
            *self.covariance.get(place * n + place)?,
        ))
    }

    /// The logarithm of the rate on the slowest core type.
    pub fn level(&self) -> f64 {
        self.mean[LEVEL] + self.mean[DEPARTURE]
    }
}
