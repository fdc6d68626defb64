//! Sums of stumps, as step functions of the metrics.

/// One value up to a threshold of a metric, another above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stump {
    pub(super) metric: usize,
    pub(super) threshold: f64,
    pub(super) at_most: f64,
    pub(super) above: f64,
}

/// A base and stumps, added up: the stumps of each metric are one step function of it, so that a prediction looks once for its
/// place among the thresholds of a metric, however many stumps there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Steps {
    base: f64,
    of_metrics: Vec<OfMetric>,
}

/// The stumps of one metric.
#[derive(Clone, Debug, PartialEq)]
struct OfMetric {
    metric: usize,
    /// In ascending order.
    thresholds: Vec<f64>,
    /// The sum where the metric is above none of the thresholds, above one, and so on: one more than thresholds.
    sums: Vec<f64>,
}

impl Steps {
    pub(super) fn new(base: f64, mut stumps: Vec<Stump>) -> Steps {
        stumps.sort_by(|a, b| (a.metric.cmp(&b.metric)).then(a.threshold.total_cmp(&b.threshold)));
        let of_metrics = stumps.chunk_by(|a, b| a.metric == b.metric);
        Steps {
            base,
            of_metrics: of_metrics.map(OfMetric::new).collect(),
        }
    }

    /// The sum where metric `m` has `value(m)`.
    pub(super) fn at(&self, value: impl Fn(usize) -> f64) -> f64 {
        let parts = self.of_metrics.iter().map(|s| s.at(value(s.metric)));
        self.base + parts.sum::<f64>()
    }

    /// The metrics that it depends on, each once.
    pub(super) fn metrics(&self) -> impl Iterator<Item = usize> + '_ {
        self.of_metrics.iter().map(|s| s.metric)
    }
}

impl OfMetric {
    /// Of stumps of one metric, by ascending threshold.
    fn new(stumps: &[Stump]) -> OfMetric {
        let sum = |above: usize| {
            let (passed, ahead) = stumps.split_at(above);
            let passed: f64 = passed.iter().map(|s| s.above).sum();
            passed + ahead.iter().map(|s| s.at_most).sum::<f64>()
        };
        OfMetric {
            metric: stumps.first().map_or(0, |s| s.metric),
            thresholds: stumps.iter().map(|s| s.threshold).collect(),
            sums: (0..=stumps.len()).map(sum).collect(),
        }
    }

    fn at(&self, value: f64) -> f64 {
        let above = self.thresholds.partition_point(|t| value > *t);
        self.sums.get(above).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A step function is what its stumps are one by one, at every threshold, beside it and between two.
        #[test]
        fn steps_are_the_stumps_added_up(
            base in -5.0..5.0,
            stumps in proptest::collection::vec((0..3usize, -4..4i32, -1.0..1.0, -1.0..1.0), 0..40),
            quarters in proptest::array::uniform3(-20..20i32),
        ) {
            let stumps: Vec<Stump> = stumps
                .into_iter()
                .map(|(metric, threshold, at_most, above)| Stump {
                    metric,
                    threshold: threshold.into(),
                    at_most,
                    above,
                })
                .collect();
            let value = |m: usize| f64::from(quarters[m]) / 4.0;
            let one_by_one = stumps.iter().map(|s| match value(s.metric) <= s.threshold {
                true => s.at_most,
                false => s.above,
            });
            let expected = base + one_by_one.sum::<f64>();
            let steps = Steps::new(base, stumps);
            prop_assert!((steps.at(value) - expected).abs() < 1e-9);
        }
    }
}
