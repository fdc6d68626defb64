//! Additive regression of stumps: stochastic gradient boosting with trees of depth 1 and squared
//! loss.
//!
//! F₀ is the mean; in each round a stump is fitted by least squares to the residuals y − F of a
//! random part of the windows and added, times the shrinkage
//! [PMCTrack §4.1.2; Friedman 2002, "Stochastic gradient boosting"]. How many rounds is decided on
//! programs that were held back.

use crate::sample::Table;
use chacha20::ChaCha8Rng;
use rand::seq::index;
use rand::SeedableRng;

/// How boosting goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Most rounds, and so stumps: each one costs a comparison per prediction.
    pub rounds: usize,
    /// Factor on every stump, above 0, at most 1.
    pub shrinkage: f64,
    /// Share of the windows drawn (without replacement) in each round, above 0, at most 1; at 1,
    /// nothing is random.
    pub subsample: f64,
    /// Fewest drawn windows on either side of a threshold, at least 1.
    pub min_leaf: usize,
    /// Share of the programs held back to decide on the number of rounds, below 1; 0: all rounds
    /// are made.
    pub validation: f64,
    /// How many times other programs are held back; the errors of all are averaged.
    pub splits: usize,
    /// Rounds without a better error on the programs held back after which no more are tried.
    pub patience: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            rounds: 200,
            shrinkage: 0.1,
            subsample: 0.5,
            min_leaf: 5,
            validation: 0.25,
            splits: 4,
            patience: 60,
        }
    }
}

/// One stump: a value on either side of a threshold of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stump {
    /// Index of the metric.
    pub metric: usize,
    /// Threshold that the metric is compared with.
    pub threshold: f64,
    /// Added where the metric is at most the threshold.
    pub at_most: f64,
    /// Added where it is above.
    pub above: f64,
}

impl Stump {
    /// The stump's contribution at a metric's value.
    pub fn at(&self, value: f64) -> f64 {
        if value <= self.threshold {
            self.at_most
        } else {
            self.above
        }
    }
}

/// A sum of stumps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stumps {
    /// The constant part.
    pub base: f64,
    /// The stumps.
    pub stumps: Vec<Stump>,
}

impl Stumps {
    /// The prediction for a window with these metrics.
    pub fn predict(&self, x: &[f64]) -> f64 {
        let at = |s: &Stump| s.at(x.get(s.metric).copied().unwrap_or(0.0));
        self.stumps.iter().fold(self.base, |sum, s| sum + at(s))
    }

    /// Whether a stump looks at metric `m`.
    pub fn uses(&self, m: usize) -> bool {
        self.stumps.iter().any(|s| s.metric == m)
    }

    /// The same sum when only these metrics, which it must not exceed, are left.
    pub fn keep(&mut self, used: &[usize]) {
        for s in &mut self.stumps {
            s.metric = used.iter().position(|u| *u == s.metric).unwrap_or(0);
        }
    }

    /// The same sum with one stump per metric and threshold, ordered by them: boosting comes back
    /// to a good threshold many times.
    #[must_use]
    pub fn merged(mut self) -> Stumps {
        self.stumps.sort_by(|a, b| {
            let by_threshold = a.threshold.total_cmp(&b.threshold);
            a.metric.cmp(&b.metric).then(by_threshold)
        });
        self.stumps.dedup_by(|next, kept| {
            let same = next.metric == kept.metric && next.threshold == kept.threshold;
            if same {
                kept.at_most += next.at_most;
                kept.above += next.above;
            }
            same
        });
        self
    }

    /// How much each of `metrics` metrics moves the prediction: Σ w·(stumps' values − their mean)²
    /// of the stumps on it, on the table's windows; 0 for one that no stump uses.
    pub fn importance(&self, table: &Table) -> Vec<f64> {
        let weights = table.weights();
        let one = |m: usize, column: &[f64]| {
            let mine: Vec<&Stump> = self.stumps.iter().filter(|s| s.metric == m).collect();
            if mine.is_empty() {
                return 0.0;
            }
            let sums: Vec<f64> = column
                .iter()
                .map(|v| mine.iter().map(|s| s.at(*v)).sum())
                .collect();
            let mean: f64 = sums.iter().zip(&weights).map(|(s, w)| s * w).sum();
            sums.iter()
                .zip(&weights)
                .map(|(s, w)| w * (s - mean).powi(2))
                .sum()
        };
        table.x.iter().enumerate().map(|(m, c)| one(m, c)).collect()
    }
}

/// What boosting gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Boosted {
    /// The sum, in the order of the rounds. A round in whose draw nothing could be split has no
    /// stump.
    pub model: Stumps,
    /// Weighted mean squared error on all windows trained on, after 0, 1, 2 … rounds.
    pub training: Vec<f64>,
    /// The same on the windows held back; empty without.
    pub validation: Vec<f64>,
}

/// Predictions that grow with every round, and their error.
struct Running<'a> {
    table: &'a Table,
    weights: Vec<f64>,
    prediction: Vec<f64>,
}

impl<'a> Running<'a> {
    fn new(table: &'a Table, weights: Vec<f64>, base: f64) -> Running<'a> {
        Running {
            table,
            prediction: vec![base; table.len()],
            weights,
        }
    }

    fn add(&mut self, s: &Stump) {
        if let Some(column) = self.table.x.get(s.metric) {
            for (p, v) in self.prediction.iter_mut().zip(column) {
                *p += s.at(*v);
            }
        }
    }

    fn error(&self) -> f64 {
        let total: f64 = self.weights.iter().sum();
        let all = self.prediction.iter().zip(&self.table.y).zip(&self.weights);
        all.map(|((p, y), w)| w * (y - p).powi(2)).sum::<f64>() / total
    }
}

/// Values with their rows, ascending, per column.
fn sorted(table: &Table) -> Vec<Vec<(f64, usize)>> {
    let order = |column: &Vec<f64>| {
        let mut rows: Vec<(f64, usize)> = column.iter().copied().zip(0..).collect();
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        rows
    };
    table.x.iter().map(order).collect()
}

/// The stump with the least squared error on the residuals of the drawn windows: of equals, that of
/// the first metric and the lowest threshold. `None` when nothing can be split. Thresholds are
/// half-way between two values.
///
/// `weighted` has per window its weight and that times its residual. `room` is for the drawn
/// windows of one metric after the other: nearly all time of a training goes by in here, and half
/// of the branches on `drawn` would be mispredicted.
fn best_stump(
    order: &[Vec<(f64, usize)>],
    weighted: &[(f64, f64)],
    drawn: &[bool],
    min_leaf: usize,
    room: &mut [(f64, usize)],
) -> Option<Stump> {
    let (mut all_w, mut all_wr) = (0.0, 0.0);
    for ((w, wr), _) in weighted.iter().zip(drawn).filter(|(_, d)| **d) {
        all_w += w;
        all_wr += wr;
    }
    let mean = all_wr / all_w;
    let mut best: Option<(f64, Stump)> = None;
    for (metric, rows) in order.iter().enumerate() {
        let mut n = 0;
        for &(v, r) in rows {
            room[n] = (v, r);
            n += usize::from(drawn[r]);
            // the last ones may find it full
            if n == room.len() {
                break;
            }
        }
        let (mut w, mut wr) = (0.0, 0.0);
        let mut last = f64::NEG_INFINITY;
        for (left, &(v, r)) in room[..n].iter().enumerate() {
            if v > last && left >= min_leaf && n - left >= min_leaf {
                // by how much two means have less squared error than one: (Σwr − mean·w)²·W / (w·(W
                // − w))
                let off = wr - mean * w;
                let gain = off * off * all_w / (w * (all_w - w));
                if gain > best.as_ref().map_or(0.0, |b| b.0) {
                    // between neighbours, half-way can be the upper one
                    let middle = last + (v - last) / 2.0;
                    let threshold = if middle < v { middle } else { last };
                    let stump = Stump {
                        metric,
                        threshold,
                        at_most: wr / w,
                        above: (all_wr - wr) / (all_w - w),
                    };
                    best = Some((gain, stump));
                }
            }
            let (a, b) = weighted[r];
            w += a;
            wr += b;
            last = v;
        }
    }
    best.map(|b| b.1)
        .filter(|s| s.at_most.is_finite() && s.above.is_finite())
}

/// Adds nothing.
const NO_STUMP: Stump = Stump {
    metric: 0,
    threshold: 0.0,
    at_most: 0.0,
    above: 0.0,
};

/// Boosts for `rounds` rounds (fewer when no stump improves anything, or with `held_back` when the
/// error there has not improved for [`Settings::patience`] rounds). The windows have the given
/// weights.
pub fn boost(
    table: &Table,
    weights: &[f64],
    held_back: Option<&Table>,
    settings: &Settings,
    rounds: usize,
    rng: &mut ChaCha8Rng,
) -> Boosted {
    let n = table.len();
    let total: f64 = weights.iter().sum();
    if n == 0 || weights.len() != n || total.is_nan() || total <= 0.0 {
        return Boosted::default();
    }
    let base = table.y.iter().zip(weights).map(|(y, w)| y * w).sum::<f64>() / total;
    let order = sorted(table);
    let mut here = Running::new(table, weights.to_vec(), base);
    let mut there = held_back.map(|t| Running::new(t, t.weights(), base));
    let mut out = Boosted {
        model: Stumps {
            base,
            stumps: Vec::new(),
        },
        training: vec![here.error()],
        validation: there.iter().map(Running::error).collect(),
    };
    let draw = ((settings.subsample * n as f64).round() as usize).clamp(1, n);
    let mut drawn = vec![true; n];
    let mut weighted = vec![(0.0, 0.0); n];
    let mut room = vec![(0.0, 0); draw];
    let mut best = (out.validation.first().copied().unwrap_or(0.0), 0);
    for round in 1..=rounds {
        if draw < n {
            drawn.fill(false);
            index::sample(rng, n, draw)
                .iter()
                .for_each(|r| drawn[r] = true);
        }
        let residuals = table.y.iter().zip(&here.prediction).map(|(y, p)| y - p);
        for ((to, w), r) in weighted.iter_mut().zip(weights).zip(residuals) {
            *to = (*w, w * r);
        }
        let min_leaf = settings.min_leaf.max(1);
        let found = best_stump(&order, &weighted, &drawn, min_leaf, &mut room);
        // another draw may have something to split, the same one has not
        let Some(mut s) = found.or((draw < n).then_some(NO_STUMP)) else {
            break;
        };
        s.at_most *= settings.shrinkage;
        s.above *= settings.shrinkage;
        here.add(&s);
        out.training.push(here.error());
        if s.at_most != 0.0 || s.above != 0.0 {
            out.model.stumps.push(s);
        }
        if let Some(there) = &mut there {
            there.add(&s);
            let error = there.error();
            out.validation.push(error);
            if error < best.0 {
                best = (error, round);
            } else if round - best.1 >= settings.patience {
                break;
            }
        }
    }
    out
}

/// A generator for part number `stream` of a training with this seed.
pub fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

/// Number of rounds with the least mean error over the validation curves. A curve that ended early
/// keeps its last value, which is not its least.
fn best_rounds(curves: &[Vec<f64>]) -> usize {
    let longest = curves.iter().map(Vec::len).max().unwrap_or(0);
    let at = |i: usize| -> f64 { curves.iter().filter_map(|c| c.get(i).or(c.last())).sum() };
    let mut best = (f64::INFINITY, 0);
    for i in 0..longest {
        let error = at(i);
        if error < best.0 {
            best = (error, i);
        }
    }
    best.1
}

/// Trains on a table: programs are held back (by turns, [`Settings::splits`] times) to find the
/// number of rounds, then all windows are trained on for as many. Every program weighs the same.
/// Equal seeds give equal models.
///
/// With fewer than four programs none can be spared, and all rounds are made.
pub fn train(table: &Table, settings: &Settings, seed: u64) -> Stumps {
    let programs = table.present();
    let hold = (settings.validation * programs.len() as f64).round() as usize;
    let hold = hold.min(programs.len().saturating_sub(2));
    let mut rounds = settings.rounds;
    if settings.validation > 0.0 && programs.len() >= 4 && settings.splits > 0 {
        let curves: Vec<Vec<f64>> = (0..settings.splits)
            .map(|split| {
                let mut rng = generator(seed, 1 + split as u64);
                let picked = index::sample(&mut rng, programs.len(), hold.max(1));
                let held: Vec<usize> = picked.iter().map(|i| programs[i]).collect();
                let (there, here) = (
                    table.of_programs(|p| held.contains(&p)),
                    table.of_programs(|p| !held.contains(&p)),
                );
                boost(
                    &here,
                    &here.weights(),
                    Some(&there),
                    settings,
                    rounds,
                    &mut rng,
                )
                .validation
            })
            .collect();
        rounds = best_rounds(&curves);
    }
    let mut rng = generator(seed, 0);
    boost(table, &table.weights(), None, settings, rounds, &mut rng)
        .model
        .merged()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::RngExt;
    use rand_distr::{Distribution, Normal};

    /// Windows of 12 programs with three metrics, the last of no influence.
    fn synthetic(seed: u64, rows: usize, noise: f64, f: impl Fn(&[f64]) -> f64) -> Table {
        let mut rng = generator(seed, 0);
        let normal = Normal::new(0.0, noise).unwrap();
        let mut t = Table {
            programs: (0..12).map(|p| format!("p{p}")).collect(),
            x: vec![Vec::new(); 3],
            ..Table::default()
        };
        for r in 0..rows {
            let x: Vec<f64> = (0..3).map(|_| rng.random_range(0.0..10.0)).collect();
            let y = f(&x) + normal.sample(&mut rng);
            t.push(r % 12, &x, y);
        }
        t
    }

    fn of_stumps(x: &[f64]) -> f64 {
        let step = |v: f64, t: f64, a: f64, b: f64| if v <= t { a } else { b };
        2.0 + step(x[0], 3.0, -0.5, 0.4) + step(x[0], 7.0, 0.0, 0.6) + step(x[1], 5.0, 0.3, -0.3)
    }

    fn rms(model: &Stumps, t: &Table, f: impl Fn(&[f64]) -> f64) -> f64 {
        let squares = (0..t.len()).map(|r| {
            let x: Vec<f64> = t.row(r).collect();
            (model.predict(&x) - f(&x)).powi(2)
        });
        (squares.sum::<f64>() / t.len() as f64).sqrt()
    }

    #[test]
    fn a_sum_of_stumps_is_recovered_within_the_noise() {
        let noise = 0.1;
        let model = train(
            &synthetic(1, 1200, noise, of_stumps),
            &Settings::default(),
            5,
        );
        // windows it has never seen, against the function without noise
        let error = rms(&model, &synthetic(2, 2000, 0.0, of_stumps), of_stumps);
        assert!(error < 0.5 * noise, "{error}");
        let importance = model.importance(&synthetic(1, 1200, noise, of_stumps));
        assert!(importance[2] < 0.01 * importance[1], "{importance:?}");
    }

    #[test]
    fn noise_alone_is_hardly_learnt() {
        let t = synthetic(3, 600, 1.0, |_| 2.0);
        let model = train(&t, &Settings::default(), 1);
        let error = rms(&model, &t, |_| 2.0);
        assert!(error < 0.25, "{error} with {} stumps", model.stumps.len());
    }

    #[test]
    fn one_step_by_hand() {
        let mut t = Table {
            programs: vec!["p".into()],
            x: vec![vec![]],
            ..Table::default()
        };
        for (x, y) in [(1.0, 0.0), (2.0, 0.0), (3.0, 4.0), (4.0, 4.0)] {
            t.push(0, &[x], y);
        }
        let settings = Settings {
            shrinkage: 0.5,
            subsample: 1.0,
            min_leaf: 1,
            ..Settings::default()
        };
        let b = boost(&t, &t.weights(), None, &settings, 2, &mut generator(0, 0));
        // mean 2, residuals −2 −2 2 2; then −1 −1 1 1
        let stump = |v: f64| Stump {
            metric: 0,
            threshold: 2.5,
            at_most: -v,
            above: v,
        };
        assert_eq!(
            (b.model.base, &b.model.stumps[..]),
            (2.0, &[stump(1.0), stump(0.5)][..])
        );
        assert_eq!(b.training, [4.0, 1.0, 0.25]);
        assert_eq!(b.model.clone().merged().stumps, [stump(1.5)]);
        assert_eq!(b.model.predict(&[2.5]), 0.5);
    }

    #[test]
    fn weights_are_those_of_repeated_windows() {
        let settings = Settings {
            subsample: 1.0,
            min_leaf: 1,
            ..Settings::default()
        };
        let t = synthetic(4, 40, 0.2, of_stumps);
        let mut twice = t.clone();
        for r in 0..10 {
            let x: Vec<f64> = t.row(r).collect();
            twice.push(t.program[r], &x, t.y[r]);
        }
        let weights: Vec<f64> = (0..40).map(|r| if r < 10 { 2.0 } else { 1.0 }).collect();
        let a = boost(&t, &weights, None, &settings, 30, &mut generator(0, 0));
        let b = boost(
            &twice,
            &[1.0; 50],
            None,
            &settings,
            30,
            &mut generator(0, 0),
        );
        for r in 0..40 {
            let x: Vec<f64> = t.row(r).collect();
            assert!((a.model.predict(&x) - b.model.predict(&x)).abs() < 1e-9);
        }
    }

    #[test]
    fn nothing_to_split_is_a_constant() {
        let mut t = Table {
            programs: vec!["p".into()],
            x: vec![vec![]],
            ..Table::default()
        };
        assert_eq!(train(&t, &Settings::default(), 0), Stumps::default());
        (0..20).for_each(|i| t.push(0, &[1.0], f64::from(i)));
        let model = train(&t, &Settings::default(), 0);
        assert!(model.stumps.is_empty() && (model.base - 9.5).abs() < 1e-12);
        // neighbouring numbers: the threshold must separate them
        let (a, b) = (1.0f64, f64::from_bits(1.0f64.to_bits() + 1));
        let mut t = Table {
            programs: vec!["p".into()],
            x: vec![vec![]],
            ..Table::default()
        };
        (0..20).for_each(|i| t.push(0, &[if i < 10 { a } else { b }], f64::from(i / 10)));
        let s = boost(
            &t,
            &t.weights(),
            None,
            &Settings::default(),
            20,
            &mut generator(1, 0),
        )
        .model
        .stumps[0];
        assert!(s.threshold >= a && s.threshold < b);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn equal_seeds_equal_models(seed in any::<u64>()) {
            let t = synthetic(9, 150, 0.3, of_stumps);
            let settings = Settings { rounds: 60, ..Settings::default() };
            let a = train(&t, &settings, seed);
            prop_assert_eq!(&a, &train(&t, &settings, seed));
            prop_assert!(a != train(&t, &settings, seed ^ 1));
        }

        /// Without subsampling the error on what was trained on never grows; predictions stay
        /// finite and, as every stump is a mean of residuals, near the range of the data.
        #[test]
        fn boosting_goes_downhill(
            rows in proptest::collection::vec((0usize..5, -1e3f64..1e3, -1e3f64..1e3, 0.1f64..10.0), 1..60),
            shrinkage in 0.01f64..1.0, min_leaf in 0usize..4,
        ) {
            let mut t = Table { programs: vec![String::new(); 5], x: vec![vec![]; 2], ..Table::default() };
            for (p, a, b, y) in rows {
                t.push(p, &[a, b], y);
            }
            let settings = Settings { shrinkage, min_leaf, subsample: 1.0, ..Settings::default() };
            let b = boost(&t, &t.weights(), None, &settings, 50, &mut generator(0, 0));
            prop_assert!(b.training.windows(2).all(|e| e[1] <= e[0] * (1.0 + 1e-9) + 1e-12));
            let merged = b.model.clone().merged();
            for r in 0..t.len() {
                let x: Vec<f64> = t.row(r).collect();
                let (p, q) = (b.model.predict(&x), merged.predict(&x));
                prop_assert!((-10.0..20.0).contains(&p) && (p - q).abs() < 1e-9, "{} {}", p, q);
            }
        }
    }
}
