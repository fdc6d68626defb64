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
    /// nothing there.
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
            sum += if value(s.metric) <= s.threshold {
                s.at_most
            } else {
                s.above
            };
        }
        for (m, c) in &self.linear {
            see(*m);
            sum += c * value(*m);
        }
        let result = sum * times.map_or(1.0, |t| t.value);
        let clamped = result.clamp(self.range.0, self.range.1);
        Prediction {
            value: clamped,
            uncertainty: self.error * (1.0 + outside) + (result - clamped).abs() / 2.0,
            outside,
        }
    }
}
