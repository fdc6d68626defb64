//! Metrics of a window, and tables of windows to learn from.

use crate::data::CoreType;
use crate::matching::{Matched, MatchedData, OnCoreType};

/// Something that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Instructions retired.
    Instructions,
    /// Core cycles.
    Cycles,
    /// An event: its index in [`CoreType::events`].
    Event(usize),
}

/// A metric: `scale · count / per`.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name in the platform file.
    pub name: String,
    /// What is counted.
    pub count: Source,
    /// What the count is divided by.
    pub per: Source,
    /// Factor, such as 1000 for "per kilo-instruction".
    pub scale: f64,
}

impl Metric {
    /// Its value in a window with `instructions` instructions; NaN when an event is not known.
    pub fn value(&self, instructions: f64, on: &OnCoreType) -> f64 {
        let of = |s: Source| match s {
            Source::Instructions => instructions,
            Source::Cycles => on.cycles,
            Source::Event(e) => on.counts.get(e).copied().unwrap_or(f64::NAN),
        };
        // as the provider computes it, so that the same counts give the same bits
        self.scale * of(self.count) / of(self.per)
    }
}

/// The metrics that a core type's events give: IPC, and every event per kilo-cycle.
///
/// Per cycle and not per instruction (`ALGORITHMS.md`, "Metrics used") because of what a speedup
/// factor is: the time of an instruction on the other core type, which is about linear in events
/// per instruction, over its time on this one. That quotient is linear in events per cycle of this
/// one.
pub fn metrics(core_type: &CoreType) -> Vec<Metric> {
    let ipc = Metric {
        name: "ipc".to_owned(),
        count: Source::Instructions,
        per: Source::Cycles,
        scale: 1.0,
    };
    let of_events = core_type.events().enumerate().map(|(i, e)| Metric {
        name: format!("{e}_per_kilo_cycle"),
        count: Source::Event(i),
        per: Source::Cycles,
        scale: 1e3,
    });
    std::iter::once(ipc).chain(of_events).collect()
}

/// What is predicted, relative to the slowest core type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// The speedup factor.
    Speedup,
    /// The efficiency factor.
    Efficiency,
}

impl Quantity {
    /// As the platform file calls it.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Speedup => "speedup",
            Quantity::Efficiency => "efficiency",
        }
    }
}

/// A factor of one core type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// Which.
    pub quantity: Quantity,
    /// Of which core type, by its index; never the slowest.
    pub of: usize,
}

impl Target {
    /// Its true value in a window.
    pub fn truth(self, w: &Matched) -> Option<f64> {
        match self.quantity {
            Quantity::Speedup => w.speedup(self.of),
            Quantity::Efficiency => w.efficiency(self.of),
        }
    }

    /// The factors that data of `core_types` core types can have.
    pub fn all(core_types: usize) -> impl Iterator<Item = Target> {
        (0..core_types.saturating_sub(1)).flat_map(|of| {
            [Quantity::Speedup, Quantity::Efficiency].map(|quantity| Target { quantity, of })
        })
    }
}

/// Windows to learn from, by columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Names of the programs.
    pub programs: Vec<String>,
    /// Per metric, its value in each window; all finite.
    pub x: Vec<Vec<f64>>,
    /// The true factor of each window; finite.
    pub y: Vec<f64>,
    /// The program of each window, by its index.
    pub program: Vec<usize>,
    /// For efficiency factors, the true speedup factor of each window: EF = SF · ratio of energies,
    /// and both are predicted apart. Empty for targets that are predicted as they are.
    pub times: Vec<f64>,
}

impl Table {
    /// The windows in which the target is known and every metric is finite, with metrics from core
    /// type `on`.
    pub fn new(data: &MatchedData, on: usize, metrics: &[Metric], target: Target) -> Table {
        let mut table = Table {
            programs: data.programs.iter().map(|p| p.name.clone()).collect(),
            x: vec![Vec::new(); metrics.len()],
            ..Table::default()
        };
        for (p, program) in data.programs.iter().enumerate() {
            for w in &program.windows {
                let (Some(y), Some(here)) = (target.truth(w), w.on.get(on)) else {
                    continue;
                };
                let values: Vec<f64> = metrics
                    .iter()
                    .map(|m| m.value(w.instructions, here))
                    .collect();
                let speedup = match target.quantity {
                    Quantity::Speedup => None,
                    Quantity::Efficiency => w.speedup(target.of),
                };
                if values.iter().all(|v| v.is_finite()) {
                    table.push(p, &values, y);
                    table.times.extend(speedup);
                }
            }
        }
        table
    }

    /// Adds a window of program number `program`; left out unless it has a value for each metric.
    pub fn push(&mut self, program: usize, values: &[f64], y: f64) {
        if values.len() == self.x.len() {
            for (column, v) in self.x.iter_mut().zip(values) {
                column.push(*v);
            }
            self.y.push(y);
            self.program.push(program);
        }
    }

    /// Windows.
    pub fn len(&self) -> usize {
        self.y.len()
    }

    /// Whether there is no window.
    pub fn is_empty(&self) -> bool {
        self.y.is_empty()
    }

    /// The programs that have windows, ascending.
    pub fn present(&self) -> Vec<usize> {
        let mut all = self.program.clone();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The windows of the programs for which `keep` says so.
    #[must_use]
    pub fn of_programs(&self, keep: impl Fn(usize) -> bool) -> Table {
        let rows: Vec<usize> = (0..self.len()).filter(|r| keep(self.program[*r])).collect();
        let pick = |column: &[f64]| rows.iter().map(|r| column[*r]).collect();
        Table {
            programs: self.programs.clone(),
            x: self.x.iter().map(|c| pick(c)).collect(),
            y: pick(&self.y),
            program: rows.iter().map(|r| self.program[*r]).collect(),
            times: match self.times.is_empty() {
                true => Vec::new(),
                false => pick(&self.times),
            },
        }
    }

    /// The tables of what the target is a product of, the speedup factor last; `None` where it is
    /// predicted as it is.
    pub fn parts(&self) -> Option<(Table, Table)> {
        if self.times.len() != self.len() || self.is_empty() {
            return None;
        }
        let part = |y: Vec<f64>| Table {
            y,
            times: Vec::new(),
            ..self.clone()
        };
        let ratio = self.y.iter().zip(&self.times).map(|(y, t)| y / t).collect();
        Some((part(ratio), part(self.times.clone())))
    }

    /// The metrics of a window.
    pub fn row(&self, r: usize) -> impl Iterator<Item = f64> + '_ {
        self.x
            .iter()
            .map(move |c| c.get(r).copied().unwrap_or(f64::NAN))
    }

    /// A weight per window with which every program counts the same, however long it ran; their sum
    /// is 1.
    pub fn weights(&self) -> Vec<f64> {
        weights(&self.program)
    }
}

/// As [`Table::weights`], from the program of each window.
pub fn weights(program: &[usize]) -> Vec<f64> {
    let mut windows = std::collections::BTreeMap::new();
    for p in program {
        *windows.entry(*p).or_insert(0.0) += 1.0;
    }
    let programs = windows.len() as f64;
    let of = |p: &usize| windows.get(p).map_or(0.0, |n: &f64| 1.0 / (n * programs));
    program.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_rates_of_the_right_unit() {
        let t = CoreType {
            name: "big".into(),
            pmu: None,
            instructions: None,
            cycles: None,
            events_per_set: 4,
            sets: vec![
                vec!["l2d_cache".into(), "L1D_TLB_refill".into()],
                vec!["stall_backend".into()],
            ],
        };
        let on = OnCoreType {
            cycles: 500.0,
            time_s: 1.0,
            energy_j: None,
            counts: vec![20.0, 5.0, 50.0],
        };
        let m = metrics(&t);
        let values: Vec<(&str, f64)> = m
            .iter()
            .map(|m| (m.name.as_str(), m.value(1000.0, &on)))
            .collect();
        assert_eq!(
            values,
            [
                ("ipc", 2.0),
                ("l2d_cache_per_kilo_cycle", 40.0),
                ("L1D_TLB_refill_per_kilo_cycle", 10.0),
                ("stall_backend_per_kilo_cycle", 100.0),
            ]
        );
        let unknown = Metric {
            count: Source::Event(9),
            ..m[0].clone()
        };
        assert!(unknown.value(1000.0, &on).is_nan());
    }

    #[test]
    fn every_program_weighs_the_same() {
        let w = weights(&[0, 0, 0, 5, 7, 7]);
        assert_eq!(
            w,
            [
                1.0 / 9.0,
                1.0 / 9.0,
                1.0 / 9.0,
                1.0 / 3.0,
                1.0 / 6.0,
                1.0 / 6.0
            ]
        );
        assert!(weights(&[]).is_empty());
    }
}
