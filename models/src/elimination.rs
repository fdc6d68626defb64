//! Backward elimination: which events are worth a round of their own.
//!
//! Events are counted in sets, and a round takes one sample of each set, so what costs is the
//! number of sets and not that of events. The event without which the cross-validated error is
//! least is dropped, again and again. Each time the rest fits into one set less, that is a rung of
//! the ladder; the model takes the lowest rung that is accurate enough.

use crate::accuracy::Accuracy;
use crate::sample::{Metric, Source, Table};
use crate::training::{cross_validate, Options};

/// A number of event sets, and what models with it are worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// Event sets.
    pub sets: usize,
    /// Events that are kept, ascending.
    pub events: Vec<usize>,
    /// Events dropped since the rung above (or from the beginning), in the order in which they
    /// went.
    pub dropped: Vec<usize>,
    /// Mean over the factors of the mean squared error, in units of the factor's variance.
    pub error: f64,
    /// Accuracy per factor, in the order of the tables; by groups of programs, for comparing rungs.
    pub accuracy: Vec<Accuracy>,
    /// Whether this is the rung that was chosen.
    pub chosen: bool,
}

fn event_of(s: Source) -> Option<usize> {
    match s {
        Source::Event(e) => Some(e),
        Source::Instructions | Source::Cycles => None,
    }
}

fn needs(m: &Metric) -> impl Iterator<Item = usize> {
    [m.count, m.per].into_iter().filter_map(event_of)
}

/// The events that metrics need, ascending.
pub fn events_of<'a>(metrics: impl Iterator<Item = &'a Metric>) -> Vec<usize> {
    let mut events: Vec<usize> = metrics.flat_map(needs).collect();
    events.sort_unstable();
    events.dedup();
    events
}

/// Indices of the metrics that these events give.
pub fn metrics_of(metrics: &[Metric], events: &[usize]) -> Vec<usize> {
    let possible = |m: &Metric| needs(m).all(|e| events.contains(&e));
    (0..metrics.len())
        .filter(|m| possible(&metrics[*m]))
        .collect()
}

/// The table with these columns only.
pub fn with_metrics(table: &Table, metrics: &[usize]) -> Table {
    Table {
        x: metrics
            .iter()
            .filter_map(|m| table.x.get(*m).cloned())
            .collect(),
        ..table.clone()
    }
}

/// Event sets that so many events need; instructions and cycles are counted in any case.
fn sets(events: usize, per_set: usize) -> usize {
    events.div_ceil(per_set.max(1)).max(1)
}

/// Error and accuracies of models that may use these events.
struct Worth {
    error: f64,
    accuracy: Vec<Accuracy>,
}

fn worth(tables: &[&Table], metrics: &[Metric], events: &[usize], options: &Options) -> Worth {
    let usable = metrics_of(metrics, events);
    let mut errors = Vec::new();
    let mut accuracy = Vec::new();
    for table in tables {
        let predicted = cross_validate(
            &with_metrics(table, &usable),
            &options.learner,
            Some(options.groups),
        );
        let (weights, y) = (table.weights(), &table.y);
        let mean: f64 = y.iter().zip(&weights).map(|(y, w)| y * w).sum();
        let variance: f64 = y
            .iter()
            .zip(&weights)
            .map(|(y, w)| w * (y - mean).powi(2))
            .sum();
        if let Some(a) = Accuracy::of(&predicted) {
            // a factor that hardly varies is not to decide about events
            errors.push(a.rmse.powi(2) / variance.max(1e-6 * mean * mean).max(f64::MIN_POSITIVE));
            accuracy.push(a);
        }
    }
    Worth {
        error: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
        accuracy,
    }
}

/// How much each event matters to models fitted on all windows: the share of the predictions'
/// variance, summed over the tables.
fn importance(
    tables: &[&Table],
    metrics: &[Metric],
    events: &[usize],
    options: &Options,
) -> Vec<f64> {
    let usable = metrics_of(metrics, events);
    let mut out = vec![0.0; events.len()];
    for table in tables {
        let table = with_metrics(table, &usable);
        let each = options.learner.fit(&table).importance(&table);
        let all: f64 = each.iter().sum();
        for (m, v) in usable.iter().zip(each) {
            for e in needs(&metrics[*m]) {
                if let Some(i) = events.iter().position(|x| *x == e) {
                    out[i] += if all > 0.0 { v / all } else { 0.0 };
                }
            }
        }
    }
    out
}

/// Eliminates events of one core type whose factors have these tables (with a column per metric).
/// Gives the events to keep and the ladder, most sets first.
///
/// Events that no model uses go first and cost nothing. The chosen rung is the one of fewest sets
/// whose error is within [`Options::tolerance`] of the least error of all.
pub fn eliminate(
    tables: &[&Table],
    metrics: &[Metric],
    per_set: usize,
    options: &Options,
    progress: &mut dyn FnMut(usize),
) -> (Vec<usize>, Vec<Rung>) {
    let mut events = events_of(metrics.iter());
    if tables.is_empty() {
        return (Vec::new(), Vec::new());
    }
    progress(events.len());
    let all = worth(tables, metrics, &events, options);
    let mut ladder = vec![Rung {
        sets: sets(events.len(), per_set),
        events: events.clone(),
        dropped: Vec::new(),
        error: all.error,
        accuracy: all.accuracy,
        chosen: false,
    }];
    let mut dropped = Vec::new();
    while sets(events.len(), per_set) > 1 {
        progress(events.len());
        let matter = importance(tables, metrics, &events, options);
        let mut order: Vec<usize> = (0..events.len()).collect();
        order.sort_by(|a, b| matter[*a].total_cmp(&matter[*b]));
        let without = |i: usize| -> Vec<usize> {
            events.iter().copied().filter(|e| *e != events[i]).collect()
        };
        let unused = order.first().copied().filter(|i| matter[*i] == 0.0);
        let out = unused.or_else(|| {
            let tried = order.iter().take(options.candidates.max(1));
            let errors = tried.map(|i| (*i, worth(tables, metrics, &without(*i), options).error));
            errors.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
        });
        let Some(out) = out else { break };
        dropped.push(events[out]);
        let before = sets(events.len(), per_set);
        events = without(out);
        let now = sets(events.len(), per_set);
        if now < before {
            let w = worth(tables, metrics, &events, options);
            ladder.push(Rung {
                sets: now,
                events: events.clone(),
                dropped: std::mem::take(&mut dropped),
                error: w.error,
                accuracy: w.accuracy,
                chosen: false,
            });
        }
    }
    let best = ladder.iter().map(|r| r.error).fold(f64::INFINITY, f64::min);
    let enough = |r: &Rung| r.error <= best * (1.0 + options.tolerance.max(0.0));
    // the best one is always accurate enough, unless errors are no numbers
    let chosen = ladder.iter().rposition(enough).unwrap_or(0);
    ladder[chosen].chosen = true;
    (ladder[chosen].events.clone(), ladder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::metrics;
    use crate::stumps::{generator, Settings};
    use crate::training::{Learner, Method};
    use proptest::prelude::*;
    use rand::RngExt;

    fn metrics_for(events: usize) -> Vec<Metric> {
        metrics(&crate::data::CoreType {
            name: "big".into(),
            pmu: None,
            instructions: None,
            cycles: None,
            events_per_set: 2,
            sets: vec![(0..events).map(|e| format!("e{e}")).collect()],
        })
    }

    /// Ten programs; the truth depends on the given events only (metric e + 1 is that of event e).
    fn table(events: usize, seed: u64, on: &[(usize, f64)]) -> Table {
        let mut rng = generator(seed, 0);
        let mut t = Table {
            programs: vec![String::new(); 10],
            x: vec![vec![]; events + 1],
            ..Table::default()
        };
        for r in 0..200 {
            let x: Vec<f64> = (0..=events).map(|_| rng.random_range(0.0..1.0)).collect();
            let y = 2.0 + on.iter().map(|(e, c)| c * x[e + 1]).sum::<f64>();
            t.push(r % 10, &x, y + rng.random_range(-0.05..0.05));
        }
        t
    }

    fn options(method: Method) -> Options {
        let o = Options::seeded(3);
        Options {
            learner: Learner {
                method,
                boosting: Settings {
                    rounds: 150,
                    splits: 1,
                    ..Settings::default()
                },
                ..o.learner
            },
            ..o
        }
    }

    #[test]
    fn events_that_matter_are_kept_and_what_the_others_cost_is_told() {
        let (m, t) = (metrics_for(6), table(6, 1, &[(1, 1.0), (4, -1.0)]));
        for method in [Method::Stumps, Method::Linear] {
            let (kept, ladder) = eliminate(&[&t], &m, 2, &options(method), &mut |_| {});
            assert_eq!(kept, [1, 4], "{method:?}");
            assert_eq!(ladder.iter().map(|r| r.sets).collect::<Vec<_>>(), [3, 2, 1]);
            assert!(ladder[2].chosen && ladder[0].dropped.is_empty());
            assert_eq!(ladder[1].dropped.len() + ladder[2].dropped.len(), 4);
        }
        // all six matter: one set less costs accuracy, and nothing is dropped
        let all = table(
            6,
            1,
            &[(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 1.0)],
        );
        let (kept, ladder) = eliminate(&[&all], &m, 2, &options(Method::Linear), &mut |_| {});
        assert_eq!(kept, [0, 1, 2, 3, 4, 5]);
        assert!(
            ladder[0].chosen && ladder[2].error > 2.0 * ladder[0].error,
            "{ladder:?}"
        );
        assert!(ladder[2].accuracy[0].mae.value > ladder[0].accuracy[0].mae.value);
    }

    #[test]
    fn two_factors_decide_together() {
        let m = metrics_for(4);
        let (a, b) = (table(4, 1, &[(0, 1.0)]), table(4, 2, &[(3, 1.0)]));
        let (kept, _) = eliminate(&[&a, &b], &m, 2, &options(Method::Linear), &mut |_| {});
        assert_eq!(kept, [0, 3]);
    }

    #[test]
    fn without_data_or_events() {
        let o = options(Method::Linear);
        assert_eq!(
            eliminate(&[], &metrics_for(3), 2, &o, &mut |_| {}),
            (vec![], vec![])
        );
        let (kept, ladder) = eliminate(&[&table(0, 1, &[])], &metrics_for(0), 2, &o, &mut |_| {});
        assert_eq!((kept, ladder.len(), ladder[0].sets), (vec![], 1, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// No set is kept that was not needed: with any fewer, the error is beyond the tolerance.
        #[test]
        fn no_set_without_need(
            on in proptest::collection::vec((0usize..6, -1.0f64..1.0), 0..4),
            per_set in 1usize..4, tolerance in 0.0f64..0.5, seed in any::<u64>(),
        ) {
            let (m, t) = (metrics_for(6), table(6, seed, &on));
            let o = Options { tolerance, ..options(Method::Linear) };
            let (kept, ladder) = eliminate(&[&t], &m, per_set, &o, &mut |_| {});
            let chosen: Vec<&Rung> = ladder.iter().filter(|r| r.chosen).collect();
            prop_assert_eq!(chosen.len(), 1);
            prop_assert_eq!(&kept, &chosen[0].events);
            prop_assert_eq!(sets(kept.len(), per_set), chosen[0].sets);
            let best = ladder.iter().map(|r| r.error).fold(f64::INFINITY, f64::min);
            prop_assert!(chosen[0].error <= best * (1.0 + tolerance));
            for r in ladder.iter().filter(|r| r.sets < chosen[0].sets) {
                prop_assert!(r.error > best * (1.0 + tolerance), "{:?}", r);
            }
            // and each rung is one set less
            prop_assert!(ladder.windows(2).all(|w| w[1].sets + 1 == w[0].sets));
        }
    }
}
