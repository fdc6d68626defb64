//! What a thread's instruction rates say of its factors: a Kalman filter on logarithms.
//!
//! ```text
//! ln rate on core type t       =  level + departure + ln factor of t (0 on the slowest)  +  noise
//! ln factor of c by a model    =  ln factor of c + bias of the model on c, heard from t  +  noise
//! ```
//!
//! The *level* is what the thread does in its present phase. The *departure* from it dies out (a first-order
//! autoregressive process): a compressor's input, a garbage collection. The factors change slowly, of a program that was steady hardly. So two windows
//! next to each other on two core types are compared as they are, where departures are large, and means over long stays
//! where there is nothing but noise; how large either is, each program shows ([`Noise`]).
//! A model is off by its *bias*, which is constant for a program: so its first word is worth what it states, the next
//! ones say no more than that the program still does the same, and a move, which shows the factor, shows the bias.
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
/// Place of the level and of the departure in the state; the factors follow, and the biases of each factor, by core type.
const LEVEL: usize = 0;
const DEPARTURE: usize = 1;
const FACTORS: usize = 2;
/// Part of the variance that a model states which each window has anew; the rest is its bias.
const WORD: f64 = 0.5;
/// Moves that try a model.
pub(super) const TRIALS: u32 = 2;
/// Part of a surprise that is a model's when there was one before.
const AGAIN: f64 = 0.9;
/// Standard deviations beyond which a model contradicts what was expected of it.
const UNLIKELY: f64 = 3.0;
/// Part of a bias's first variance by which it differs between phases of a program, and between threads of its name.
const BIAS_OF_OTHERS: f64 = 0.5;

/// The logarithm of a factor, and the square of its standard uncertainty.
pub(super) type Factor = (f64, f64);

/// The biases of a model, factor by factor and of each by the core type that it was heard from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Biases(Vec<Bias>);

/// One of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bias {
    ln: f64,
    variance: f64,
    /// The largest variance that the model stated, without the noise; 0 while it was not heard.
    stated: f64,
}

impl Biases {
    /// Of a model that was not heard yet, with so many factors.
    pub fn unheard(factors: usize) -> Biases {
        Biases(vec![Bias::default(); factors * (factors + 1)])
    }

    /// The sum of their variances, of those that were heard, and how many those are.
    pub fn doubt(&self) -> (usize, f64) {
        let heard = self.0.iter().filter(|b| b.stated > 0.0);
        (heard.clone().count(), heard.map(|b| b.variance).sum())
    }
}

/// What is known of one thread: the state's mean and covariance.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    mean: Vec<f64>,
    /// Row by row, symmetric.
    covariance: Vec<f64>,
    /// How many factors there are.
    factors: usize,
    /// By bias, the largest variance that the model stated, without the noise.
    stated: Vec<f64>,
    /// Covariances of what is taken in, kept for their room.
    with: Vec<f64>,
}

impl Filter {
    /// Of a thread of which nothing is known but what its factors may be, by core type but for the slowest.
    /// `biases` are a model's, if there is one.
    pub fn new(factors: &[Factor], noise: &Noise, biases: Option<&Biases>) -> Filter {
        let many = factors.len().min(MAX_CORE_TYPES);
        let biases = biases.map_or(&[][..], |b| &b.0);
        let n = FACTORS + many + biases.len();
        let mut f = Filter {
            mean: vec![0.0; n],
            covariance: vec![0.0; n * n],
            factors: many,
            stated: biases.iter().map(|b| b.stated).collect(),
            with: vec![0.0; n],
        };
        for (i, b) in (FACTORS + many..).zip(biases.iter()) {
            f.mean[i] = b.ln;
            *f.at(i, i) = match b.stated > 0.0 {
                true => b.variance + BIAS_OF_OTHERS * b.stated,
                false => 0.0,
            };
        }
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
        for c in self.places() {
            *self.at(c, c) += FACTOR_DRIFT * units / (1.0 + f64::from(steady) / 2.0).powi(2);
        }
    }

    /// The places of the factors in the state.
    fn places(&self) -> std::ops::Range<usize> {
        FACTORS..FACTORS + self.factors
    }

    /// The place of the factor of core type `c`, unless that is the slowest.
    fn place(&self, c: usize) -> Option<usize> {
        (c < self.factors).then_some(FACTORS + c)
    }

    /// The places of the biases of the factor of core type `c`.
    fn biases(&self, c: usize) -> std::ops::Range<usize> {
        let (first, types) = (FACTORS + self.factors, self.factors + 1);
        match self.stated.is_empty() {
            true => first..first,
            false => first + c * types..first + (c + 1) * types,
        }
    }

    /// Whether the bias in this place was heard.
    fn was_heard(&self, place: usize) -> bool {
        let stated = self.stated.get(place - FACTORS - self.factors);
        stated.is_some_and(|s| *s > 0.0)
    }

    /// The places of the state whose sum is the logarithm of the rate on core type `t`.
    fn seen(&self, t: usize) -> [Option<usize>; 3] {
        [Some(LEVEL), Some(DEPARTURE), self.place(t)]
    }

    /// The sum of the state in these places, and its variance.
    fn sum(&self, places: [Option<usize>; 3]) -> (f64, f64) {
        let n = self.mean.len();
        let each = || places.into_iter().flatten();
        let rows = each().map(|i| each().map(|j| self.covariance[i * n + j]).sum::<f64>());
        (each().map(|i| self.mean[i]).sum(), rows.sum())
    }

    /// The logarithm of the rate that is expected on core type `t`, and its variance.
    pub fn expected(&self, t: usize) -> (f64, f64) {
        self.sum(self.seen(t))
    }

    /// Takes in the logarithm of a rate on `t`, measured with this variance.
    pub fn take_in(&mut self, t: usize, ln: f64, variance: f64) {
        self.learn(self.seen(t), ln, variance);
    }

    /// Takes in the sum of the state in these places.
    fn learn(&mut self, places: [Option<usize>; 3], sum: f64, variance: f64) {
        let (expected, own) = self.sum(places);
        let all = own + variance;
        let n = self.mean.len();
        let each = || places.into_iter().flatten();
        let mut with = std::mem::take(&mut self.with);
        for (i, w) in with.iter_mut().enumerate() {
            *w = each().map(|j| self.covariance[i * n + j]).sum();
        }
        for i in 0..n {
            self.mean[i] += with[i] / all * (sum - expected);
            for j in 0..n {
                self.covariance[i * n + j] -= with[i] * with[j] / all;
            }
        }
        self.with = with;
        for i in 0..n {
            // rounding; a bias that was not heard is none
            let least = if i < FACTORS + self.factors {
                1e-9
            } else {
                0.0
            };
            let own = self.at(i, i);
            *own = own.max(least);
        }
    }

    /// Takes in what a model says of the factor of core type `c`, heard from core type `on`; `stated` is the variance that
    /// it states itself. `compared`: whether what is known of the factor does not rest on the model alone.
    pub fn hear(&mut self, c: usize, on: usize, (ln, stated): Factor, compared: bool) {
        let (Some(factor), Some(bias)) = (self.place(c), self.biases(c).nth(on)) else {
            return;
        };
        let noise = WORD * stated;
        let largest = &mut self.stated[bias - FACTORS - self.factors];
        let first = *largest == 0.0;
        let more = (stated - noise - *largest).max(0.0);
        *largest += more;
        let other = self.biases(c).find(|b| *b != bias && self.was_heard(*b));
        if let Some(other) = other.filter(|_| first) {
            // who is wrong on one core type is so on another one, too
            self.mean[bias] = self.mean[other];
            for i in 0..self.mean.len() {
                *self.at(bias, i) = *self.at(other, i);
                *self.at(i, bias) = *self.at(i, other);
            }
            *self.at(bias, bias) = *self.at(other, other);
        }
        *self.at(bias, bias) += more;
        let places = [Some(factor), Some(bias), None];
        let (expected, own) = self.sum(places);
        let d = ln - expected;
        let excess = (d * d - own - noise).max(0.0);
        let unlikely = d * d > UNLIKELY * UNLIKELY * (own + noise);
        // against what was measured a model has no say before it was tried
        if unlikely || first && compared {
            // the model is wrong here, or it was where the factor comes from
            let (f, b) = (*self.at(factor, factor), *self.at(bias, bias));
            let part = if compared { 0.0 } else { f / (f + b) };
            *self.at(bias, bias) += excess * (1.0 - part);
            self.doubt_factor(c, excess * part, Some(bias), false);
        }
        self.learn(places, ln, noise);
    }

    /// The factor of core type `c` is less certain by this variance; what a model said of it remains what it said, but
    /// for the bias in the place `but`, and if it was `seen` there, so does the rate on `c`.
    fn doubt_factor(&mut self, c: usize, variance: f64, but: Option<usize>, seen: bool) {
        let Some(factor) = self.place(c) else {
            return;
        };
        let heard = |b: &usize| self.was_heard(*b) && Some(*b) != but;
        let against = self.biases(c).filter(heard).chain(seen.then_some(LEVEL));
        let together: Vec<(usize, f64)> =
            against.map(|i| (i, -1.0)).chain([(factor, 1.0)]).collect();
        for (i, a) in &together {
            for (j, b) in &together {
                *self.at(*i, *j) += a * b * variance;
            }
        }
    }

    /// What the thread does may be another thing from now on, by this variance.
    pub fn doubt_level(&mut self, variance: f64) {
        *self.at(LEVEL, LEVEL) += variance;
    }

    /// What was seen on `t`, after `from`, is off by so much more than expected, in squares: the factor is less certain by that,
    /// or the level, of which no more than the variance `level` was doubtful; each by its part. Where a factor rests on a model
    /// alone and that is `unlikely`, a thread that has not `moved` before does something else: programs begin by loading what they
    /// work on. When that happens again the model is wrong.
    pub fn doubt(
        &mut self,
        (from, t): (usize, usize),
        (excess, unlikely): (f64, bool),
        level: f64,
        moved: u32,
    ) {
        // the factors are over the rate on the slowest
        let c = if t < self.factors { t } else { from };
        let own = self.factor(c).map_or(0.0, |(_, variance)| variance);
        let (part, seen) = match moved {
            // not taken for the factor, only uncertain: programs begin by loading what they work on
            _ if moved > TRIALS || !self.was_told(c) => (own / (own + level), false),
            0 if unlikely => (0.0, false),
            0 => (0.5, c != t),
            _ => (AGAIN, c != t),
        };
        self.doubt_factor(c, excess * part, None, seen);
        self.doubt_level(excess * (1.0 - part));
    }

    /// It does something else: the factors may be others by this variance, and a model's bias may be, too.
    pub fn doubt_factors(&mut self, variance: f64) {
        for c in self.places() {
            *self.at(c, c) += variance;
        }
        self.doubt_biases();
    }

    /// A model's bias may be another one.
    pub fn doubt_biases(&mut self) {
        for i in 0..self.stated.len() {
            let place = FACTORS + self.factors + i;
            *self.at(place, place) += BIAS_OF_OTHERS * self.stated[i];
        }
    }

    /// The factor of core type `c` is known from elsewhere.
    pub fn set_factor(&mut self, c: usize, (ln, variance): Factor) {
        let Some(place) = self.place(c) else {
            return;
        };
        for i in 0..self.mean.len() {
            *self.at(place, i) = 0.0;
            *self.at(i, place) = 0.0;
        }
        self.mean[place] = ln;
        *self.at(place, place) = variance;
    }

    /// The factor of core type `c`, if there is such a type beside the slowest.
    pub fn factor(&self, c: usize) -> Option<Factor> {
        let (place, n) = (self.place(c)?, self.mean.len());
        Some((self.mean[place], self.covariance[place * n + place]))
    }

    /// What is known of the model's biases; `None` without a model.
    pub fn known_biases(&self) -> Option<Biases> {
        let (first, n) = (FACTORS + self.factors, self.mean.len());
        let all = (first..).zip(&self.stated).map(|(i, stated)| Bias {
            ln: self.mean[i],
            variance: self.covariance[i * n + i],
            stated: *stated,
        });
        (!self.stated.is_empty()).then(|| Biases(all.collect()))
    }

    /// Whether a model was heard on the factor of core type `c`.
    pub fn was_told(&self, c: usize) -> bool {
        c < self.factors && self.biases(c).any(|b| self.was_heard(b))
    }

    /// The logarithm of the rate on the slowest core type.
    pub fn level(&self) -> f64 {
        self.mean[LEVEL] + self.mean[DEPARTURE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Rate(usize, f64),
        Word(usize, usize, f64, bool),
        Surprise(usize, usize, f64, u32),
        Phase,
        Known(usize, f64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let ln = -3.0..3.0f64;
        prop_oneof![
            (0..3usize, ln.clone()).prop_map(|(t, ln)| Step::Rate(t, ln)),
            (0..2usize, 0..3usize, ln.clone(), any::<bool>())
                .prop_map(|(c, on, ln, compared)| Step::Word(c, on, ln, compared)),
            (0..3usize, 0..3usize, 0.0..4.0, 0..5u32)
                .prop_map(|(from, t, e, moved)| Step::Surprise(from, t, e, moved)),
            Just(Step::Phase),
            (0..2usize, ln).prop_map(|(c, ln)| Step::Known(c, ln)),
        ]
    }

    proptest! {
        /// Of three core types, with a model: whatever comes, the covariance is one, up to rounding, and what
        /// is known of a factor is finite.
        #[test]
        fn a_covariance_stays_one(
            steps in prop::collection::vec(step(), 0..200),
            direction in prop::collection::vec(-1.0..1.0f64, 10),
        ) {
            let noise = Noise::default();
            let mut f = Filter::new(&[(1.0, 0.25); 2], &noise, Some(&Biases::unheard(2)));
            for s in steps {
                f.pass(1.0, &noise, 0);
                match s {
                    Step::Rate(t, ln) => f.take_in(t, ln, noise.white()),
                    Step::Word(c, on, ln, compared) => f.hear(c, on, (ln, 0.01), compared),
                    Step::Surprise(from, t, e, moved) => {
                        f.doubt((from, t), (e, e > 1.0), 0.005, moved);
                    }
                    Step::Phase => f.doubt_factors(0.01),
                    Step::Known(c, ln) => f.set_factor(c, (ln, 0.02)),
                }
                let n = f.mean.len();
                prop_assert_eq!(n, direction.len());
                let mut along = 0.0;
                for i in 0..n {
                    for j in 0..n {
                        let (a, b) = (f.covariance[i * n + j], f.covariance[j * n + i]);
                        prop_assert!((a - b).abs() < 1e-6, "{i} {j}: {a} {b}");
                        along += direction[i] * a * direction[j];
                    }
                }
                prop_assert!(along > -1e-6, "{along}");
                for c in 0..2 {
                    let (ln, variance) = f.factor(c).unwrap();
                    prop_assert!(ln.is_finite() && variance.is_finite() && variance > 0.0);
                }
            }
        }
    }
}
