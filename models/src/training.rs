//! Training a platform: one formula per core type and factor, cross-validated by program.

use crate::accuracy::{Accuracy, Predicted};
use crate::data::{CoreType, Dataset};
use crate::elimination::{self, Rung};
use crate::linear::{self, Linear};
use crate::matching::{matched, MatchedData};
use crate::phases::phases;
use crate::sample::{metrics, Metric, Quantity, Table, Target};
use crate::stumps::{self, generator, Settings, Stumps};
use crate::variance;
use rand::seq::SliceRandom;
use thiserror::Error;

/// Fewest programs that can be trained on: with each left out in turn, two remain.
pub const FEWEST_PROGRAMS: usize = 3;

/// What is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Additive regression of stumps.
    Stumps,
    /// Linear regression.
    Linear,
    /// Linear regression, and stumps on what it leaves: the linear part carries on where there were
    /// no windows, the stumps bend it where there were.
    Both,
}

/// A fitted formula.
#[derive(Clone, Debug, PartialEq)]
pub enum Formula {
    /// Base and stumps.
    Stumps(Stumps),
    /// Base and coefficients.
    Linear(Linear),
    /// The sum of both.
    Both(Linear, Stumps),
    /// A ratio of energies, times the speedup factor: an efficiency factor.
    Product(Box<Formula>, Box<Formula>),
}

impl Formula {
    /// The prediction for a window with these metrics.
    pub fn predict(&self, x: &[f64]) -> f64 {
        match self {
            Formula::Stumps(s) => s.predict(x),
            Formula::Linear(l) => l.predict(x),
            Formula::Both(l, s) => l.predict(x) + s.predict(x),
            Formula::Product(a, b) => a.predict(x) * b.predict(x),
        }
    }

    /// Whether the formula looks at metric `m`.
    pub fn uses(&self, m: usize) -> bool {
        match self {
            Formula::Stumps(s) => s.uses(m),
            Formula::Linear(l) => l.uses(m),
            Formula::Both(l, s) => l.uses(m) || s.uses(m),
            Formula::Product(a, b) => a.uses(m) || b.uses(m),
        }
    }

    /// The same formula when only these metrics, which it must not exceed, are left.
    fn keep(&mut self, used: &[usize]) {
        let linear = |l: &mut Linear| {
            let old = |m: &usize| l.coefficients.get(*m).copied().unwrap_or(0.0);
            l.coefficients = used.iter().map(old).collect();
        };
        match self {
            Formula::Stumps(s) => s.keep(used),
            Formula::Linear(l) => linear(l),
            Formula::Both(l, s) => {
                linear(l);
                s.keep(used);
            }
            Formula::Product(a, b) => {
                a.keep(used);
                b.keep(used);
            }
        }
    }

    /// How much each metric moves the prediction: the variance, on the table's windows, of its part
    /// of the sum. In a product, that of either factor with the other one at its mean.
    pub fn importance(&self, table: &Table) -> Vec<f64> {
        match self {
            Formula::Stumps(s) => s.importance(table),
            Formula::Linear(l) => l.importance(table),
            Formula::Both(l, s) => {
                let both = l.importance(table).into_iter().zip(s.importance(table));
                both.map(|(a, b)| a + b).collect()
            }
            Formula::Product(a, b) => {
                let weights = table.weights();
                let at_mean = |f: &Formula, other: &Formula| -> Vec<f64> {
                    let value = |(r, w): (usize, &f64)| {
                        w * other.predict(&table.row(r).collect::<Vec<f64>>())
                    };
                    let mean: f64 = weights.iter().enumerate().map(value).sum();
                    let own = f.importance(table).into_iter();
                    own.map(|v| mean * mean * v).collect()
                };
                let both = at_mean(a, b).into_iter().zip(at_mean(b, a));
                both.map(|(a, b)| a + b).collect()
            }
        }
    }
}

/// How a formula is fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learner {
    /// Which kind.
    pub method: Method,
    /// For stumps.
    pub boosting: Settings,
    /// Equal seeds give equal formulas.
    pub seed: u64,
}

impl Learner {
    /// Fits to every window of the table; where the target is a product, its parts apart
    /// ([`Table::parts`]).
    pub fn fit(&self, table: &Table) -> Formula {
        if let Some((ratio, speedup)) = table.parts() {
            return Formula::Product(self.fit(&ratio).into(), self.fit(&speedup).into());
        }
        match self.method {
            Method::Stumps => Formula::Stumps(stumps::train(table, &self.boosting, self.seed)),
            Method::Linear => Formula::Linear(linear::train(table)),
            Method::Both => {
                let line = linear::train(table);
                let mut rest = table.clone();
                for r in 0..table.len() {
                    let x: Vec<f64> = table.row(r).collect();
                    rest.y[r] -= line.predict(&x);
                }
                Formula::Both(line, stumps::train(&rest, &self.boosting, self.seed))
            }
        }
    }
}

/// Groups of programs, each to be left out once: one program each, or `groups` shuffled groups of
/// about equal size when that is less.
pub fn folds(programs: &[usize], groups: Option<usize>, seed: u64) -> Vec<Vec<usize>> {
    match groups.map(|g| g.max(2)).filter(|g| *g < programs.len()) {
        None => programs.iter().map(|p| vec![*p]).collect(),
        Some(groups) => {
            let mut shuffled = programs.to_vec();
            shuffled.shuffle(&mut generator(seed, u64::MAX));
            let mut out = vec![Vec::new(); groups];
            for (i, p) in shuffled.into_iter().enumerate() {
                out[i % groups].push(p);
            }
            out
        }
    }
}

/// Cross-validation by program: every window is predicted by a formula that was fitted without any
/// window of its program. `groups`: as for [`folds`].
pub fn cross_validate(table: &Table, learner: &Learner, groups: Option<usize>) -> Vec<Predicted> {
    let folds = left_out(table, learner, groups);
    folds.flat_map(|(_, predicted)| predicted).collect()
}

/// The windows of programs that are left out together, and what is predicted of each.
fn left_out<'a>(
    table: &'a Table,
    learner: &'a Learner,
    groups: Option<usize>,
) -> impl Iterator<Item = (Table, Vec<Predicted>)> + 'a {
    let folds = folds(&table.present(), groups, learner.seed).into_iter();
    folds.map(|left_out| {
        let formula = learner.fit(&table.of_programs(|p| !left_out.contains(&p)));
        let others = table.of_programs(|p| left_out.contains(&p));
        let predicted = predictions(&formula, &others);
        (others, predicted)
    })
}

/// The formula's prediction for every window of a table.
pub fn predictions(formula: &Formula, table: &Table) -> Vec<Predicted> {
    let one = |r: usize| {
        let x: Vec<f64> = table.row(r).collect();
        Predicted {
            program: table.program[r],
            truth: table.y[r],
            predicted: formula.predict(&x),
        }
    };
    (0..table.len()).map(one).collect()
}

/// How a platform is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How formulas are fitted.
    pub learner: Learner,
    /// Relative growth of the cross-validated error that saving event sets may cost in all.
    pub tolerance: f64,
    /// Groups of programs in the cross-validation that elimination is decided by; the stated
    /// accuracy always leaves out one program at a time.
    pub groups: usize,
    /// How many of the events that matter least are tried in each step of elimination.
    pub candidates: usize,
}

impl Options {
    /// The defaults with this seed.
    pub fn seeded(seed: u64) -> Options {
        Options {
            learner: Learner {
                method: Method::Stumps,
                boosting: Settings::default(),
                seed,
            },
            tolerance: 0.02,
            groups: 5,
            candidates: 4,
        }
    }
}

/// A factor of a core type, as trained.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainedFactor {
    /// What it predicts.
    pub target: Target,
    /// The formula, on the metrics of its [`TrainedCoreType`].
    pub formula: Formula,
    /// Accuracy by leave-one-program-out cross-validation.
    pub accuracy: Accuracy,
    /// That of linear regression on the same metrics.
    pub baseline: Option<Accuracy>,
    /// Range of the true factor in the data.
    pub range: (f64, f64),
    /// The variance of the logarithm of truth over prediction, where outliers show what it depends on.
    pub variance: Option<Stumps>,
}

/// A core type, as trained.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainedCoreType {
    /// Index of the core type.
    pub on: usize,
    /// Events that are kept, by their index in [`CoreType::events`], set by set.
    pub sets: Vec<Vec<usize>>,
    /// Metrics that a formula uses.
    pub metrics: Vec<Metric>,
    /// Smallest and largest value of each metric in the data.
    pub ranges: Vec<(f64, f64)>,
    /// The factors.
    pub factors: Vec<TrainedFactor>,
    /// What each number of event sets costs, most sets first.
    pub ladder: Vec<Rung>,
}

/// A trained platform.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// Fastest first; a core type for which no factor is known is there without factors.
    pub core_types: Vec<TrainedCoreType>,
    /// Programs trained on.
    pub programs: Vec<String>,
    /// Phases of each of them, by the factors of the fastest core type ([`phases`]).
    pub phases: Vec<usize>,
    /// Windows trained on.
    pub windows: usize,
    /// Programs that only the variance was learned from.
    pub outliers: Vec<String>,
}

/// Why there is no model.
#[derive(Debug, Error, PartialEq)]
pub enum TrainingError {
    /// Cross-validation by program needs several.
    #[error(
        "{have} programs have windows on every core type, {FEWEST_PROGRAMS} are needed{left_out}"
    )]
    TooFewPrograms {
        /// Number of programs there are.
        have: usize,
        /// Those that were left out and why, or nothing.
        left_out: String,
    },
    /// No formula came out finite.
    #[error("core type `{core_type}`: no {quantity} model can be fitted: its data are not finite or do not vary")]
    NoFormula {
        /// The core type.
        core_type: String,
        /// The factor.
        quantity: &'static str,
    },
}

/// What training is about to do, for a progress bar.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// Decides which events a core type needs.
    Eliminating {
        /// Its name.
        core_type: &'a str,
        /// Events that are left.
        events: usize,
    },
    /// Cross-validates a factor.
    Validating {
        /// The core type's name.
        core_type: &'a str,
        /// What is predicted.
        quantity: &'static str,
    },
}

/// Trains every core type of a data set for every factor that the data have.
///
/// The programs of the set whose names are among `outliers` are not trained on: no formula can predict them from what is counted on
/// one core type. They show where its predictions are not to be trusted ([`TrainedFactor::variance`]).
///
/// # Errors
/// [`TrainingError`].
pub fn train(
    data: &Dataset,
    outliers: &[String],
    options: &Options,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Trained, TrainingError> {
    let mut all = matched(data);
    let (others, programs) = std::mem::take(&mut all.programs)
        .into_iter()
        .partition(|p| outliers.contains(&p.name));
    all.programs = programs;
    let outliers = MatchedData {
        programs: others,
        ..MatchedData::default()
    };
    if all.programs.len() < FEWEST_PROGRAMS {
        let why: Vec<String> = all
            .left_out
            .iter()
            .map(|(p, w)| format!("`{p}`: {w}"))
            .collect();
        return Err(TrainingError::TooFewPrograms {
            have: all.programs.len(),
            left_out: match why.is_empty() {
                true => String::new(),
                false => format!("; left out: {}", why.join("; ")),
            },
        });
    }
    let types = &data.header.core_types;
    let core_types = types
        .iter()
        .enumerate()
        .map(|(on, t)| core_type(&all, &outliers, types.len(), on, t, options, progress))
        .collect::<Result<_, _>>()?;
    Ok(Trained {
        core_types,
        programs: all.programs.iter().map(|p| p.name.clone()).collect(),
        phases: all.programs.iter().map(|p| phases(p, 0).len()).collect(),
        windows: all.programs.iter().map(|p| p.windows.len()).sum(),
        outliers: outliers.programs.into_iter().map(|p| p.name).collect(),
    })
}

fn core_type(
    all: &MatchedData,
    outliers: &MatchedData,
    core_types: usize,
    on: usize,
    t: &CoreType,
    options: &Options,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<TrainedCoreType, TrainingError> {
    let metrics = metrics(t);
    // EF only where enough programs have energy
    let tables: Vec<(Target, Table)> = Target::all(core_types)
        .map(|target| (target, Table::new(all, on, &metrics, target)))
        .filter(|(_, table)| table.present().len() >= FEWEST_PROGRAMS)
        .collect();
    let only: Vec<&Table> = tables.iter().map(|(_, table)| table).collect();
    let (kept, ladder) =
        elimination::eliminate(&only, &metrics, t.events_per_set, options, &mut |events| {
            progress(Step::Eliminating {
                core_type: &t.name,
                events,
            });
        });
    let usable: Vec<usize> = elimination::metrics_of(&metrics, &kept);
    let mut factors: Vec<TrainedFactor> = Vec::new();
    for (target, table) in &tables {
        progress(Step::Validating {
            core_type: &t.name,
            quantity: target.quantity.name(),
        });
        let table = elimination::with_metrics(table, &usable);
        let none = || TrainingError::NoFormula {
            core_type: t.name.clone(),
            quantity: target.quantity.name(),
        };
        let linear = Learner {
            method: Method::Linear,
            ..options.learner
        };
        let unseen: Vec<_> = left_out(&table, &options.learner, None).collect();
        let accuracy = |all: Vec<Predicted>| Accuracy::of(&all).ok_or_else(none);
        let mut formula = options.learner.fit(&table);
        if let Formula::Product(_, speedup) = &mut formula {
            // the file has that one once; here, windows without energy could make another one of it
            let same = |f: &&TrainedFactor| {
                f.target.quantity == Quantity::Speedup && f.target.of == target.of
            };
            if let Some(f) = factors.iter().find(same) {
                **speedup = f.formula.clone();
            }
        }
        let range = extremes(&table.y).ok_or_else(none)?;
        let mut others = Table::new(outliers, on, &metrics, *target);
        // numbers of their own, beside those of the programs that are trained on
        others
            .program
            .iter_mut()
            .for_each(|p| *p += all.programs.len());
        let others = elimination::with_metrics(&others, &usable);
        let predicted = predictions(&formula, &others);
        let both = unseen
            .iter()
            .map(|(t, p)| (t, &p[..]))
            .chain([(&others, &predicted[..])]);
        factors.push(TrainedFactor {
            target: *target,
            accuracy: accuracy(unseen.iter().flat_map(|(_, p)| p.clone()).collect())?,
            baseline: accuracy(cross_validate(&table, &linear, None)).ok(),
            variance: match others.is_empty() {
                true => None,
                false => variance::fit(both, range, &options.learner),
            },
            formula,
            range,
        });
    }
    let mut out = TrainedCoreType {
        on,
        sets: Vec::new(),
        metrics: usable.iter().map(|m| metrics[*m].clone()).collect(),
        ranges: Vec::new(),
        factors,
        ladder,
    };
    let columns = tables
        .first()
        .map(|(_, table)| elimination::with_metrics(table, &usable));
    out.ranges = (0..usable.len())
        .map(|m| {
            columns
                .as_ref()
                .and_then(|c| extremes(&c.x[m]))
                .unwrap_or((0.0, 0.0))
        })
        .collect();
    out.drop_unused(t.events_per_set);
    Ok(out)
}

fn extremes(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low.is_finite() && high.is_finite()).then_some((low, high))
}

impl TrainedCoreType {
    /// Leaves out the metrics that no formula uses and the events that no metric needs, and packs
    /// the events into sets.
    fn drop_unused(&mut self, per_set: usize) {
        let used: Vec<usize> = (0..self.metrics.len())
            .filter(|m| {
                let by_variance =
                    |f: &TrainedFactor| f.variance.as_ref().is_some_and(|v| v.uses(*m));
                let mut all = self.factors.iter();
                all.any(|f| f.formula.uses(*m) || by_variance(f))
            })
            .collect();
        for f in &mut self.factors {
            f.formula.keep(&used);
            if let Some(v) = &mut f.variance {
                v.keep(&used);
            }
        }
        self.ranges = used.iter().map(|m| self.ranges[*m]).collect();
        self.metrics = used.iter().map(|m| self.metrics[*m].clone()).collect();
        let events = elimination::events_of(self.metrics.iter());
        self.sets = events
            .chunks(per_set.max(1))
            .map(<[usize]>::to_vec)
            .collect();
        if self.sets.is_empty() {
            // instructions and cycles are still counted
            self.sets.push(Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table whose only metric identifies the program, and whose truth is the program's number.
    fn telltale(programs: usize, windows: usize) -> Table {
        let mut t = Table {
            programs: (0..programs).map(|p| format!("p{p}")).collect(),
            x: vec![vec![]],
            ..Table::default()
        };
        for r in 0..programs * windows {
            let p = r % programs;
            t.push(p, &[p as f64], 1.0 + p as f64);
        }
        t
    }

    fn learner(method: Method) -> Learner {
        Learner {
            method,
            boosting: Settings {
                min_leaf: 1,
                ..Settings::default()
            },
            seed: 1,
        }
    }

    #[test]
    fn the_program_is_really_left_out() {
        // Each program is a level of its own. Trained on all, stumps know it; the highest one, left
        // out, cannot be predicted above what the others have.
        let t = telltale(6, 30);
        let stumps = learner(Method::Stumps);
        let seen = predictions(&stumps.fit(&t), &t);
        assert!(seen.iter().all(|p| p.residual().abs() < 0.2));
        let unseen = cross_validate(&t, &stumps, None);
        assert_eq!(unseen.len(), t.len());
        for p in &unseen {
            match p.program {
                5 => assert!(p.truth == 6.0 && p.predicted < 5.2, "{p:?}"),
                0 => assert!(p.truth == 1.0 && p.predicted > 1.8, "{p:?}"),
                _ => {}
            }
        }
        // while the leak would be there to see: the baseline can extrapolate, as the truth is
        // linear
        let linear = cross_validate(&t, &learner(Method::Linear), None);
        assert!(linear.iter().all(|p| p.residual().abs() < 1e-9));
    }

    /// A product of two lines is none: predicted apart, both are found.
    #[test]
    fn products_are_fitted_apart() {
        let mut t = Table {
            x: vec![Vec::new(); 2],
            programs: (0..6).map(|p| p.to_string()).collect(),
            ..Table::default()
        };
        for r in 0..60 {
            let (a, b) = (f64::from(r % 7), f64::from(r % 11));
            let (speedup, ratio) = (1.0 + a, 0.5 + 0.1 * b);
            t.push(r as usize % 6, &[a, b], speedup * ratio);
            t.times.push(speedup);
        }
        let linear = learner(Method::Linear);
        let apart = cross_validate(&t, &linear, None);
        assert!(apart.iter().all(|p| p.residual().abs() < 1e-9));
        let formula = linear.fit(&t);
        assert!(formula.uses(0) && formula.uses(1));
        assert!(formula.importance(&t).iter().all(|v| *v > 0.1));
        // metrics are renumbered in both parts
        let mut only = linear.fit(&crate::elimination::with_metrics(&t, &[0, 1]));
        only.keep(&[1]);
        assert!(!only.uses(1) && only.uses(0));
        t.times.clear();
        let together = cross_validate(&t, &linear, None);
        assert!(together.iter().any(|p| p.residual().abs() > 0.1));
    }

    proptest! {
        #[test]
        fn folds_leave_each_program_out_once(n in 0usize..30, groups in proptest::option::of(0usize..12), seed in any::<u64>()) {
            let programs: Vec<usize> = (0..n).map(|p| 3 * p).collect();
            let folds = folds(&programs, groups, seed);
            let mut all = folds.concat();
            all.sort_unstable();
            prop_assert_eq!(all, programs);
            prop_assert!(folds.iter().all(|f| !f.is_empty() && (f.len() < n || n == 1)));
            if groups.is_none() {
                prop_assert!(folds.iter().all(|f| f.len() == 1));
            }
        }
    }
}
