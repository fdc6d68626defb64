//! What a factor is computed with.

use super::MAX_METRICS;
use crate::ids::MAX_CORE_TYPES;

/// A metric: `scale · count / per`, both counted in the same set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Metric {
    pub(super) set: usize,
    pub(super) count: usize,
    pub(super) per: usize,
    pub(super) scale: f64,
    /// Range of the metric in the data the model was made from.
    pub(super) range: (f64, f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stump {
    pub(super) metric: usize,
    pub(super) threshold: f64,
    pub(super) at_most: f64,
    pub(super) above: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Speedup(usize),
    Efficiency(usize),
}

/// One factor: base + Σ stumps + Σ coefficient · metric, perhaps times another one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Factor {
    pub(super) target: Target,
    /// The factor that the sum is multiplied by: one before it in
    /// [`CoreTypeModel::factors`](super::platform::CoreTypeModel).
    pub(super) times: Option<usize>,
    pub(super) base: f64,
    /// Standard uncertainty of a prediction within the range of the metrics.
    pub(super) error: f64,
    pub(super) range: (f64, f64),
    pub(super) stumps: Vec<Stump>,
    pub(super) linear: Vec<(usize, f64)>,
    /// How sure a prediction is where that depends on the metrics.
    pub(super) variance: Option<Variance>,
}

/// The variance of the logarithm of a factor over its prediction, by the metrics: base + Σ stumps, at least 0. Programs that look
/// the same to the counters of one core type may gain differently from another, and this says where.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Variance {
    pub(super) base: f64,
    pub(super) stumps: Vec<Stump>,
}

impl Variance {
    /// Standard deviation where metric `m` has `value(m)`.
    fn deviation(&self, value: impl Fn(usize) -> f64) -> f64 {
        let mut sum = self.base;
        for s in &self.stumps {
            sum += s.at(value(s.metric));
        }
        sum.max(0.0).sqrt()
    }
}

impl Stump {
    /// Its part of the sum where its metric has this value.
    fn at(&self, value: f64) -> f64 {
        match value <= self.threshold {
            true => self.at_most,
            false => self.above,
        }
    }
}

/// What a factor's formula gives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Prediction {
    pub(super) value: f64,
    /// Standard uncertainty.
    pub(super) uncertainty: f64,
    /// How far the inputs are outside of the range the model was made from, in widths of the range;
    /// 0 within.
    pub(super) outside: f64,
}

/// An event whose counts are off by themselves, by what the machine's trust file says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Doubt {
    /// What a count may have to be multiplied by: the least and the most.
    pub(super) factors: [f64; 2],
    /// Metrics that are made of it, and whether it stands above or below the line.
    pub(super) metrics: Vec<(usize, Side)>,
}

/// Where an event stands in a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// It is counted.
    Count,
    /// The count is divided by it.
    Per,
}

impl Doubt {
    /// The metrics, were its counts to be multiplied by `factor`.
    fn apply(&self, values: &[f64; MAX_METRICS], factor: f64) -> [f64; MAX_METRICS] {
        let mut out = *values;
        for (m, side) in &self.metrics {
            if let Some(v) = out.get_mut(*m) {
                match side {
                    Side::Count => *v *= factor,
                    Side::Per => *v /= factor,
                }
            }
        }
        out
    }
}

/// Most factors of a core type: two of each core type but the slowest.
const MAX_FACTORS: usize = 2 * MAX_CORE_TYPES;

/// The predictions of a core type's factors, in place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Predictions {
    all: [Prediction; MAX_FACTORS],
}

impl Predictions {
    /// Of all these factors, in their order.
    pub(super) fn of(
        factors: &[Factor],
        metrics: &[Metric],
        values: &[f64; MAX_METRICS],
    ) -> Predictions {
        let mut out = Predictions::default();
        for (i, f) in factors.iter().enumerate().take(MAX_FACTORS) {
            // those before it are there already
            let times = f.times.and_then(|t| out.all.get(t)).copied();
            out.all[i] = f.predict(metrics, values, times);
        }
        out
    }

    /// The same with what comes of events that are off by themselves: for each event the larger of
    /// the changes that its errors make, any up to it equally likely, independent of other events.
    /// What the model learned of them with its own training data is in the model's error as well, so
    /// this errs on the side of too much.
    pub(super) fn with_doubts(
        mut self,
        factors: &[Factor],
        metrics: &[Metric],
        values: &[f64; MAX_METRICS],
        doubts: &[Doubt],
    ) -> Predictions {
        if doubts.is_empty() {
            return self;
        }
        let mut variance = [0.0; MAX_FACTORS];
        for d in doubts {
            let mut most = [0.0f64; MAX_FACTORS];
            for end in d.factors {
                let other = Predictions::of(factors, metrics, &d.apply(values, end));
                let both = other.all.iter().zip(&self.all);
                for (most, (other, own)) in most.iter_mut().zip(both) {
                    *most = most.max((other.value - own.value).abs());
                }
            }
            for (variance, most) in variance.iter_mut().zip(most) {
                *variance += most.powi(2) / 3.0;
            }
        }
        for (p, variance) in self.all.iter_mut().zip(variance) {
            p.uncertainty = p.uncertainty.hypot(variance.sqrt());
        }
        self
    }

    /// With the factors they are of.
    pub(super) fn each<'a>(
        &'a self,
        factors: &'a [Factor],
    ) -> impl Iterator<Item = (Target, Prediction)> + 'a {
        let all = self.all.iter().copied();
        factors.iter().map(|f| f.target).zip(all)
    }
}

impl Factor {
    /// The formula, with the standard uncertainty of the model. For inputs outside of the range the
    /// model was made from, that grows with the distance, in widths of the range: the model knows
    /// nothing there. It is never less than the variance says.
    fn predict(
        &self,
        metrics: &[Metric],
        values: &[f64; MAX_METRICS],
        times: Option<Prediction>,
    ) -> Prediction {
        let value = |m: usize| values.get(m).copied().unwrap_or(0.0);
        let mut sum = self.base;
        let mut outside = times.map_or(0.0, |t| t.outside);
        let mut see = |m: usize| {
            if let Some(metric) = metrics.get(m) {
                let (min, max) = metric.range;
                let (v, width) = (value(m), max - min);
                let beyond = (min - v).max(v - max).max(0.0);
                if beyond > 0.0 {
                    outside = outside.max(beyond / width);
                }
            }
        };
        for s in &self.stumps {
            see(s.metric);
            sum += s.at(value(s.metric));
        }
        for (m, c) in &self.linear {
            see(*m);
            sum += c * value(*m);
        }
        let result = sum * times.map_or(1.0, |t| t.value);
        let clamped = result.clamp(self.range.0, self.range.1);
        let everywhere = self.error * (1.0 + outside) + (result - clamped).abs() / 2.0;
        let here = self.variance.as_ref().map_or(0.0, |v| v.deviation(value));
        Prediction {
            value: clamped,
            uncertainty: everywhere.max(clamped.abs() * here),
            outside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_is_off_makes_a_factor_less_certain() {
        let metric = |count| Metric {
            set: 0,
            count,
            per: 0,
            scale: 1.0,
            range: (0.0, 10.0),
        };
        let metrics = [metric(2), metric(3)];
        let speedup = Factor {
            target: Target::Speedup(0),
            times: None,
            base: 1.0,
            error: 0.3,
            range: (0.0, 100.0),
            stumps: vec![],
            linear: vec![(0, 2.0), (1, -1.0)],
            variance: None,
        };
        let efficiency = Factor {
            target: Target::Efficiency(0),
            times: Some(0),
            base: 2.0,
            error: 0.0,
            linear: vec![],
            ..speedup.clone()
        };
        let factors = [speedup, efficiency];
        let mut values = [0.0; MAX_METRICS];
        (values[0], values[1]) = (4.0, 3.0);
        let doubt = |low, high, metrics: &[(usize, Side)]| Doubt {
            factors: [low, high],
            metrics: metrics.to_vec(),
        };
        let u = |doubts: &[Doubt]| {
            let p = Predictions::of(&factors, &metrics, &values);
            let p = p.with_doubts(&factors, &metrics, &values, doubts);
            assert_eq!((p.all[0].value, p.all[1].value), (6.0, 12.0));
            (p.all[0].uncertainty, p.all[1].uncertainty)
        };
        assert_eq!(u(&[]), (0.3, 0.0));
        // 2 · 4 · 10 % is 0.8, and twice that of the product
        let first = doubt(0.95, 1.1, &[(0, Side::Count)]);
        let (speedup, efficiency) = u(std::slice::from_ref(&first));
        let own = 0.8 / 3f64.sqrt();
        assert!((speedup - own.hypot(0.3)).abs() < 1e-12, "{speedup}");
        assert!((efficiency - 2.0 * own).abs() < 1e-12, "{efficiency}");
        // events by themselves add in squares; one event in two metrics acts on both at once
        let second = doubt(1.0, 1.1, &[(1, Side::Count)]);
        let (_, two) = u(&[first, second]);
        let both = (own.powi(2) + (0.3f64 / 3f64.sqrt()).powi(2)).sqrt();
        assert!((two - 2.0 * both).abs() < 1e-12, "{two}");
        let shared = doubt(0.8, 1.0, &[(0, Side::Per), (1, Side::Per)]);
        let (_, one) = u(&[shared]);
        assert!(
            (one - 2.0 * (0.25 * 8.0 - 0.25 * 3.0) / 3f64.sqrt()).abs() < 1e-12,
            "{one}"
        );
    }

    #[test]
    fn a_factor_is_as_sure_as_its_metrics_allow() {
        let metrics = [Metric {
            set: 0,
            count: 2,
            per: 0,
            scale: 1.0,
            range: (0.0, 10.0),
        }];
        let stump = |threshold, at_most, above| Stump {
            metric: 0,
            threshold,
            at_most,
            above,
        };
        let factor = Factor {
            target: Target::Speedup(0),
            times: None,
            base: 2.0,
            error: 0.1,
            range: (1.0, 4.0),
            stumps: vec![],
            linear: vec![],
            variance: Some(Variance {
                base: 0.04,
                stumps: vec![stump(2.0, -0.1, 0.0), stump(5.0, 0.0, 0.21)],
            }),
        };
        let u = |value: f64| {
            let mut values = [0.0; MAX_METRICS];
            values[0] = value;
            factor.predict(&metrics, &values, None).uncertainty
        };
        // a variance below 0 is none, and no variance makes it surer than the file says
        assert_eq!(u(1.0), 0.1);
        assert!((u(3.0) - 2.0 * 0.2).abs() < 1e-12);
        assert!((u(6.0) - 2.0 * 0.5).abs() < 1e-12);
    }
}
