//! Metrics by how much of a cache a program had.

use crate::counting::{Window, WindowCount};
use crate::formula::{Formula, SECONDS};
use crate::sets::{Set, Unit};
use amp_metrics::uncertainty::Measured;
use serde::Serialize;
use std::collections::BTreeMap;

/// Part of an interval for which a program must have run on a core type at least: what it did in
/// less says little.
const LEAST: f64 = 0.1;

/// A metric at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// Name of the metric.
    pub metric: String,
    /// Mean over windows; `None` where it has no value (nothing happened that it divides by).
    pub value: Option<f64>,
    /// Standard uncertainty of the mean; `None` for a single window.
    pub u: Option<f64>,
}

/// What a program does with one size of the cache, on one core type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Ways that it could fill.
    pub ways: u32,
    /// Their size.
    pub bytes: u64,
    /// The core type.
    pub core_type: Option<String>,
    /// The PMU.
    pub pmu: String,
    /// How many windows the values are means of.
    pub windows: usize,
    /// Values in the order in which they were asked for.
    pub metrics: Vec<Value>,
}

/// Values of each metric, window by window.
type Values = Vec<Vec<f64>>;

/// Windows by size.
pub struct Curve<'a> {
    set: &'a Set,
    formulas: &'a [Formula],
    /// Seconds of a window.
    interval: f64,
    /// By size and unit of the set: how many windows, and their values.
    seen: BTreeMap<(u32, usize), (usize, Values)>,
    /// Names of the units' core types.
    names: BTreeMap<usize, String>,
}

impl<'a> Curve<'a> {
    /// Nothing yet of the windows, `interval` seconds long, in which `set` is counted.
    pub fn new(set: &'a Set, formulas: &'a [Formula], interval: f64) -> Curve<'a> {
        Curve {
            set,
            formulas,
            interval,
            seen: BTreeMap::new(),
            names: BTreeMap::new(),
        }
    }

    /// Takes in a window in which the program could fill `ways`.
    pub fn add(&mut self, ways: u32, window: &Window) {
        for (i, unit) in self.set.units.iter().enumerate() {
            let of = |c: &&WindowCount| c.pmu.as_deref() == Some(&unit.pmu);
            let counts: Vec<&WindowCount> = window.counts.iter().filter(of).collect();
            let seconds = counts.iter().map(|c| c.seconds).fold(0.0, f64::max);
            if unit.core_type.is_none() || seconds < LEAST * self.interval {
                continue;
            }
            if let Some(name) = counts.iter().find_map(|c| c.core_type.clone()) {
                self.names.insert(i, name);
            }
            let values = self.seen.entry((ways, i)).or_default();
            values.0 += 1;
            values.1.resize(self.formulas.len(), Vec::new());
            for (f, all) in self.formulas.iter().zip(&mut values.1) {
                all.extend(evaluate(f, unit, &counts, seconds));
            }
        }
    }

    /// What was seen, by core type and size; a way has `way_bytes`.
    pub fn points(&self, way_bytes: u64) -> Vec<Point> {
        let point = |((ways, i), (windows, values)): (&(u32, usize), &(usize, Values))| {
            let metrics = self.formulas.iter().zip(values).map(|(f, all)| {
                let mean = Measured::mean(all);
                Value {
                    metric: f.name.clone(),
                    value: mean.map(|m| m.value),
                    u: mean.and_then(|m| m.u),
                }
            });
            let unit = self.set.units.get(*i);
            Point {
                ways: *ways,
                bytes: u64::from(*ways) * way_bytes,
                core_type: self.names.get(i).cloned(),
                pmu: unit.map(|u| u.pmu.clone()).unwrap_or_default(),
                windows: *windows,
                metrics: metrics.collect(),
            }
        };
        let mut of: Vec<(usize, Point)> = self.seen.iter().map(|s| (s.0 .1, point(s))).collect();
        of.sort_by_key(|(unit, p)| (*unit, p.ways));
        of.into_iter().map(|(_, p)| p).collect()
    }
}

/// The metric by what one PMU counted in one window.
fn evaluate(f: &Formula, unit: &Unit, counts: &[&WindowCount], seconds: f64) -> Option<f64> {
    let value = |name: &String| {
        if name == SECONDS {
            return Some(seconds);
        }
        let event = unit.events.get(unit.find(name)?)?;
        let count = counts.iter().find(|c| c.event == event.name)?;
        Some(count.count? as f64)
    };
    let values: Option<Vec<f64>> = f.names.iter().map(value).collect();
    Some(f.evaluate(&values?)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting::Row;
    use crate::groups::tests::machine;

    fn window(counts: &[(&str, &str, &str, u64, f64)]) -> Window {
        let count =
            |&(event, pmu, core_type, count, seconds): &(&str, &str, &str, u64, f64)| WindowCount {
                event: event.into(),
                pmu: Some(pmu.into()),
                core_type: Some(core_type.into()),
                row: Row::default(),
                count: Some(count),
                seconds,
            };
        Window {
            at_s: 0.0,
            set: 1,
            counts: counts.iter().map(count).collect(),
            virtual_counters: Vec::new(),
        }
    }

    #[test]
    fn a_value_is_the_mean_over_windows_of_a_size_and_core_type() {
        let juno = machine("juno", "", &[&[1, 2], &[0, 3, 4, 5]]);
        let set = Set::parse(&juno, "inst_retired,l2d_cache_refill").unwrap();
        let known: Vec<String> = set.names().cloned().collect();
        let metric = |text| Formula::parse(text, &known).unwrap();
        let formulas = [
            metric("mpki=1000*l2d_cache_refill/inst_retired"),
            metric("rate=inst_retired/seconds"),
        ];
        let mut curve = Curve::new(&set, &formulas, 0.1);
        let (big, little) = (&set.units[0].pmu, &set.units[1].pmu);
        let of = |big_n, little_n, seconds| {
            window(&[
                ("inst_retired", big, "t0", 1_000_000, 0.1),
                ("l2d_cache_refill", big, "t0", big_n, 0.1),
                ("inst_retired", little, "t1", 1_000_000, seconds),
                ("l2d_cache_refill", little, "t1", little_n, seconds),
            ])
        };
        curve.add(4, &of(1_000, 9_000, 0.001));
        curve.add(4, &of(3_000, 7_000, 0.05));
        curve.add(1, &of(20_000, 0, 0.0));
        // nothing done: no value
        let idle = [
            ("inst_retired", big.as_str(), "t0", 0, 0.1),
            ("l2d_cache_refill", big, "t0", 0, 0.1),
        ];
        curve.add(1, &window(&idle));
        let points = curve.points(1 << 17);
        let got: Vec<_> = points
            .iter()
            .map(|p| {
                let mpki = &p.metrics[0];
                (
                    p.core_type.as_deref().unwrap(),
                    p.ways,
                    p.bytes >> 10,
                    p.windows,
                    mpki.value,
                    mpki.u,
                )
            })
            .collect();
        assert_eq!(
            got,
            [
                ("t0", 1, 128, 2, Some(20.0), None),
                ("t0", 4, 512, 2, Some(2.0), Some(1.0)),
                ("t1", 4, 512, 1, Some(7.0), None),
            ]
        );
        assert_eq!(points[2].metrics[1].value, Some(2e7));
    }
}
