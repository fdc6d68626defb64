//! Coarse phases of a program: stretches of windows whose true factors stay about the same
//! [PMCTrack §4.1.2].
//!
//! Changes of the mean of log SF and log EF together are found by optimal partitioning: of all ways
//! to cut the course into stretches, the one with the least Σ (x − mean of its stretch)² / σ², and
//! a penalty per cut; pruned as in PELT
//! [Killick, Fearnhead, Eckley 2012, "Optimal detection of changepoints with a linear computational cost"].
//! The penalty is that of the modified BIC [Zhang, Siegmund 2007], (d + 2) · ln n for d series of n
//! windows; σ comes from the differences of neighbours (their median, so that cuts do not count),
//! at least [`RESOLUTION`]. Before that, each window is replaced by the median of itself and its
//! neighbours, the ends by Tukey's rule: one that sticks out (an interrupt, a page from disk) is no
//! phase.
//!
//! Own code: the crates there are (`changepoint`, and `augurs-changepoint` on top of it) do
//! Bayesian detection online, with a rate of changes and priors to be chosen, and bring a library
//! of distributions along.

use crate::matching::Program;
use amp_metrics::uncertainty::Measured;
use std::ops::Range;

/// Least σ of the logarithm of a factor. Phases are to be coarse: what is less than about that is
/// within the error of models, and no scheduler would act on it.
pub const RESOLUTION: f64 = 0.05;
/// Fewest windows of a phase.
pub const SHORTEST: usize = 3;

/// A phase of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its windows, by their index in [`Program::windows`].
    pub windows: Range<usize>,
    /// Mean speedup factor and its uncertainty, from the scatter of the windows.
    pub speedup: Measured,
    /// The same of the efficiency factor; `None` where energy is not known.
    pub efficiency: Option<Measured>,
}

/// The phases of a program by the factors of core type `of`, in order: one at least, and together
/// all of its windows. None when a window's speedup factor is not known (or there is no window).
/// The efficiency factor counts where every window has one.
pub fn phases(program: &Program, of: usize) -> Vec<Phase> {
    let windows = &program.windows;
    let speedup: Option<Vec<f64>> = windows.iter().map(|w| w.speedup(of)).collect();
    let efficiency: Option<Vec<f64>> = windows.iter().map(|w| w.efficiency(of)).collect();
    let Some(speedup) = speedup else {
        return Vec::new();
    };
    let log = |x: &Vec<f64>| x.iter().map(|x| x.ln()).collect::<Vec<f64>>();
    let mut series = vec![log(&speedup)];
    series.extend(efficiency.as_ref().map(log));
    let one = |windows: Range<usize>| {
        let mean = |x: &Vec<f64>| x.get(windows.clone()).and_then(Measured::mean);
        Some(Phase {
            speedup: mean(&speedup)?,
            efficiency: efficiency.as_ref().and_then(mean),
            windows,
        })
    };
    stretches(&series).into_iter().filter_map(one).collect()
}

/// Sums of a series up to each place, in units of σ.
struct Sums {
    values: Vec<f64>,
    squares: Vec<f64>,
}

impl Sums {
    fn new(raw: &[f64]) -> Sums {
        let (sigma, series) = (sigma(raw), smooth(raw));
        // about its mean, which costs change nothing, for the squares to stay small
        let mean = series.iter().sum::<f64>() / series.len().max(1) as f64;
        let (mut values, mut squares) = (vec![0.0], vec![0.0]);
        let (mut value, mut square) = (0.0, 0.0);
        for x in &series {
            let x = (x - mean) / sigma;
            value += x;
            square += x * x;
            values.push(value);
            squares.push(square);
        }
        Sums { values, squares }
    }

    /// Σ (x − mean)² / σ² from `a` to before `b`.
    fn cost(&self, a: usize, b: usize) -> f64 {
        let sum = self.values[b] - self.values[a];
        let squares = self.squares[b] - self.squares[a];
        (squares - sum * sum / (b - a) as f64).max(0.0)
    }
}

/// Standard deviation of a series whose mean changes now and then: from the median difference of
/// neighbours.
fn sigma(series: &[f64]) -> f64 {
    let mut steps: Vec<f64> = series.windows(2).map(|w| (w[1] - w[0]).abs()).collect();
    steps.sort_by(f64::total_cmp);
    // 1.4826: the median of |x| of a normal distribution to its σ; √2: a difference has two errors
    let median = steps.get(steps.len() / 2).copied().unwrap_or(0.0);
    (1.4826 * median / std::f64::consts::SQRT_2).max(RESOLUTION)
}

/// Running median of three; the ends by Tukey's rule, the median of the value, its smoothed
/// neighbour, and what the line through the next two would have.
fn smooth(x: &[f64]) -> Vec<f64> {
    let median = |a: f64, b: f64, c: f64| a.min(b).max(a.max(b).min(c));
    let mut out = x.to_vec();
    for (y, w) in out.iter_mut().skip(1).zip(x.windows(3)) {
        *y = median(w[0], w[1], w[2]);
    }
    if let [first, second, third, ..] = out[..] {
        out[0] = median(first, second, 3.0 * second - 2.0 * third);
    }
    if let [.., third, second, last] = out[..] {
        let n = out.len() - 1;
        out[n] = median(last, second, 3.0 * second - 2.0 * third);
    }
    out
}

/// Cuts series of the same length, all finite, where their means change. In order and without gaps;
/// empty without values or when one is not finite.
pub fn stretches(series: &[Vec<f64>]) -> Vec<Range<usize>> {
    let n = series.iter().map(Vec::len).min().unwrap_or(0);
    if n == 0 || !series.iter().flatten().all(|x| x.is_finite()) {
        return Vec::new();
    }
    let sums: Vec<Sums> = series.iter().map(|s| Sums::new(&s[..n])).collect();
    let cost = |a: usize, b: usize| sums.iter().map(|s| s.cost(a, b)).sum::<f64>();
    let penalty = (series.len() + 2) as f64 * (n as f64).ln();
    // the least cost of everything before a place, and where its last stretch begins; the first one
    // is not charged
    let mut best = vec![(f64::INFINITY, 0); n + 1];
    best[0].0 = -penalty;
    // places where the last stretch may begin, and from when on they cannot any more
    let mut open: Vec<(usize, usize)> = Vec::new();
    for end in SHORTEST..=n {
        open.push((end - SHORTEST, usize::MAX));
        open.retain(|(_, until)| *until > end);
        for (begin, _) in &open {
            let sum = best[*begin].0 + cost(*begin, end) + penalty;
            if sum < best[end].0 {
                best[end] = (sum, *begin);
            }
        }
        let so_far = best[end].0;
        for (begin, until) in &mut open {
            // a stretch from here on is better with a cut at `end`, wherever it ends: once there is
            // room for one after it
            if *until == usize::MAX && best[*begin].0 + cost(*begin, end) >= so_far {
                *until = end + SHORTEST;
            }
        }
    }
    if n < SHORTEST {
        return std::iter::once(0..n).collect();
    }
    let mut out = Vec::new();
    let mut end = n;
    while end > 0 {
        let begin = best[end].1;
        out.push(begin..end);
        end = begin;
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::{Matched, OnCoreType};
    use crate::stumps::generator;
    use proptest::prelude::*;
    use rand::RngExt;

    /// About normal noise of standard deviation 1.
    fn noise(n: usize, seed: u64) -> Vec<f64> {
        let mut rng = generator(seed, 0);
        let mut one = || (0..12).map(|_| rng.random_range(-0.5..0.5)).sum::<f64>();
        (0..n).map(|_| one()).collect()
    }

    #[test]
    fn noise_has_one_phase_and_steps_are_found() {
        let phases = |series: Vec<f64>| stretches(&[series]);
        let mut false_alarms = 0;
        for seed in 0..200 {
            let quiet: Vec<f64> = noise(60, seed).iter().map(|x| 0.7 + 0.03 * x).collect();
            false_alarms += usize::from(phases(quiet.clone()).len() > 1);
            // 12 % up for a third of the course, and back
            let step = |(i, x): (usize, f64)| x + if (20..40).contains(&i) { 0.12 } else { 0.0 };
            let found = phases(quiet.into_iter().enumerate().map(step).collect());
            let near = |at: usize, to: usize| found.iter().any(|r| r.start.abs_diff(at) <= to);
            assert!(near(20, 2) && near(40, 2), "{seed}: {found:?}");
        }
        assert!(false_alarms <= 20, "{false_alarms} of 200");
    }

    #[test]
    fn two_series_are_cut_at_the_same_places() {
        // neither shows it alone
        let step =
            |size: f64| move |(i, x): (usize, f64)| 0.03 * x + if i < 30 { 0.0 } else { size };
        let of = |seed, size| -> Vec<f64> {
            noise(60, seed)
                .into_iter()
                .enumerate()
                .map(step(size))
                .collect()
        };
        let cuts = |s: &[Vec<f64>]| stretches(s).len() - 1;
        let (mut one, mut both) = (0, 0);
        for seed in 0..50 {
            let (a, b) = (of(seed, 0.045), of(seed + 1000, 0.045));
            one += cuts(std::slice::from_ref(&a)).min(1);
            both += cuts(&[a, b]).min(1);
        }
        assert!(both > one, "{one} and {both}");
    }

    #[test]
    fn a_program_with_two_phases() {
        let window = |i: usize, sf: f64| Matched {
            position: 100.0 * i as f64,
            instructions: 100.0,
            on: [1.0, sf]
                .map(|time_s| OnCoreType {
                    cycles: 1.0,
                    time_s,
                    energy_j: (i != 3).then_some(1.0),
                    counts: Vec::new(),
                })
                .to_vec(),
        };
        let mut program = Program {
            name: "x".into(),
            windows: (0..12)
                .map(|i| window(i, if i < 8 { 2.0 } else { 1.5 }))
                .collect(),
            unmatched: 0.0,
        };
        let found = phases(&program, 0);
        let windows: Vec<_> = found.iter().map(|p| p.windows.clone()).collect();
        assert_eq!(windows, [0..8, 8..12]);
        assert_eq!((found[0].speedup.value, found[1].speedup.value), (2.0, 1.5));
        // one window without energy: speedup alone
        assert_eq!(found[0].efficiency, None);
        program.windows[2].on[0].time_s = 0.0;
        assert_eq!(phases(&program, 0), []);
        program.windows.clear();
        assert_eq!(phases(&program, 0), []);
    }

    #[test]
    fn short_and_bad_series() {
        assert!(stretches(&[]).is_empty() && stretches(&[vec![]]).is_empty());
        assert_eq!(stretches(&[vec![1.0]]).len(), 1);
        // as short as can be
        let steps = [1.0, 1.0, 1.0, 9.0, 9.0, 9.0];
        assert_eq!(stretches(&[steps.to_vec()]), [0..3, 3..6]);
        assert_eq!(stretches(&[steps[..5].to_vec()]).len(), 1);
        // one window that sticks out is no phase, wherever it is
        for at in 0..8 {
            let mut x = vec![1.0; 8];
            x[at] = 9.0;
            assert_eq!(stretches(&[x]).len(), 1, "{at}");
        }
        assert!(stretches(&[vec![1.0, f64::NAN]]).is_empty());
    }

    /// The same by trying every way to cut.
    fn exhaustive(series: &[Vec<f64>]) -> f64 {
        let n = series[0].len();
        (0u32..1 << (n - 1))
            .filter_map(|cuts| {
                let mut ends: Vec<usize> = (1..n).filter(|i| cuts >> (i - 1) & 1 == 1).collect();
                ends.push(n);
                total(series, &ends)
            })
            .fold(f64::INFINITY, f64::min)
    }

    fn total(series: &[Vec<f64>], ends: &[usize]) -> Option<f64> {
        let sums: Vec<Sums> = series.iter().map(|s| Sums::new(s)).collect();
        let n = series[0].len();
        let mut begin = 0;
        let mut sum = (ends.len() - 1) as f64 * (series.len() + 2) as f64 * (n as f64).ln();
        for end in ends {
            if end - begin < SHORTEST {
                return None;
            }
            sum += sums.iter().map(|s| s.cost(begin, *end)).sum::<f64>();
            begin = *end;
        }
        Some(sum)
    }

    proptest! {
        /// Pruning loses nothing: no way to cut costs less.
        #[test]
        fn nothing_is_cheaper(
            a in proptest::collection::vec((-3i32..4, -3i32..4), SHORTEST..13), scale in 0.001f64..1.0,
        ) {
            let series: [Vec<f64>; 2] = [
                a.iter().map(|x| scale * f64::from(x.0)).collect(),
                a.iter().map(|x| scale * f64::from(x.1)).collect(),
            ];
            let ends: Vec<usize> = stretches(&series).iter().map(|r| r.end).collect();
            let (got, least) = (total(&series, &ends).unwrap(), exhaustive(&series));
            prop_assert!(got <= least + 1e-6 * least.abs().max(1.0), "{} > {}", got, least);
        }

        #[test]
        fn phases_cover_all_windows_once(x in proptest::collection::vec(any::<f64>(), 0..40)) {
            let found = stretches(std::slice::from_ref(&x));
            prop_assert_eq!(found.is_empty(), x.is_empty() || !x.iter().all(|v| v.is_finite()));
            for (r, next) in found.iter().zip(found.iter().skip(1)) {
                prop_assert_eq!(r.end, next.start);
            }
            if let (Some(first), Some(last)) = (found.first(), found.last()) {
                prop_assert_eq!((first.start, last.end), (0, x.len()));
            }
            prop_assert!(found.len() < 2 || found.iter().all(|r| r.len() >= SHORTEST));
        }
    }
}
