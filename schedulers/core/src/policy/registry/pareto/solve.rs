//! The shares problem of `pareto`: most throughput with bounded unfairness.
//!
//! Application a runs, when its threads get G_a cores' worth of fast-core time between them, at the
//! normalised speed
//!
//! ```text
//! x_a = α_a + β_a·G_a,  0 ≤ G_a ≤ cap_a        (the inverse of its slowdown)
//! ```
//!
//! and adds d_a·G_a to the aggregate speedup: both are linear in G_a. The problem is
//!
//! ```text
//! maximise Σ d_a·G_a   subject to   Σ G_a = B   and   max x / min x ≤ U
//! ```
//!
//! The ratio bound holds iff there is a level m with m ≤ x_a ≤ U·m for all a. For a fixed m this is
//! one interval per application, lo_a(m) ≤ G_a ≤ hi_a(m), where with g_a(y) = clamp((y − α_a)/β_a,
//! 0, cap_a) lo_a(m) = g_a(m) and hi_a(m) = g_a(U·m): a continuous knapsack, solved by giving
//! everybody lo and the rest to the highest d first.
//!
//! In (G, m) together the problem is a linear program, so that its value V(m) for fixed m is
//! concave and piecewise linear. Its slope comes with the greedy solution: raising m by δ costs
//! lo'·δ of every application at its lower end and hands hi'·δ to every one at its upper end, the
//! marginal one making up the difference. The maximum is found exactly by intersecting the tangents
//! at both ends of the bracket: either the intersection is on V, and optimal, or it cuts off at
//! least one piece.
//!
//! Two things can make U unreachable: x_a ≥ α_a (who is fast without a fast core cannot be slowed
//! down), which wants m ≥ max α/U, and Σ lo(m) ≤ B, which wants m at most the fairness level m*
//! with Σ g(m*) = B. When they contradict each other m = m* is taken: the max-min fair shares,
//! which are as near to the bound as any.

use crate::policy::level::Demands;

/// Above this bound fairness plays no part.
const NO_BOUND: f64 = 1e6;

/// Gains of normalised speed below this, per core, are none.
const FLAT: f64 = 1e-9;

/// Evaluations of V after which the search stops at the best found. A dozen were the most ever
/// needed.
const STEPS: usize = 60;

/// One application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Normalised speed without fast cores; > 0.
    pub alpha: f64,
    /// Gain of normalised speed per fast core; ≥ 0.
    pub beta: f64,
    /// Fast cores that it can use; ≥ 0.
    pub cap: f64,
    /// Gain of aggregate speedup per fast core; any sign.
    pub density: f64,
}

/// The problem and its solution. Keeps buffers and the levels found, from which the next search
/// starts.
#[derive(Debug, Default)]
pub struct Problem {
    shares: Vec<Share>,
    /// Indices by falling density, those that gain nothing last.
    order: Vec<u32>,
    keys: Vec<u64>,
    /// In that order; slope 0 for those that gain nothing.
    demands: Demands,
    density: Vec<f64>,
    /// Share of each, in that order.
    given: Vec<f64>,
    /// Share of each application.
    solution: Vec<f64>,
    flat: f64,
    supply: f64,
    bound: f64,
    fair_level: f64,
    low_level: f64,
    best_level: f64,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    m: f64,
    value: f64,
    slope: f64,
}

impl Problem {
    /// Forgets the applications.
    pub fn clear(&mut self) {
        self.shares.clear();
    }

    /// Adds an application.
    pub fn push(&mut self, share: Share) {
        self.shares.push(share);
    }

    /// Shares out `supply` fast cores under the bound `unfairness` ≥ 1.
    pub fn solve(&mut self, supply: f64, unfairness: f64) -> &[f64] {
        self.prepare();
        let room: f64 = self.shares.iter().map(|s| s.cap).sum();
        self.supply = supply.clamp(0.0, room);
        self.bound = unfairness.max(1.0);
        let m = if self.bound >= NO_BOUND {
            None
        } else {
            Some(self.best_level())
        };
        self.give(m);
        self.solution.clear();
        self.solution.resize(self.shares.len(), 0.0);
        for (i, g) in self.order.iter().zip(&self.given) {
            self.solution[*i as usize] = *g;
        }
        &self.solution
    }

    /// Sorts the applications and sets up their demands.
    fn prepare(&mut self) {
        // Density in single precision and index in one number: much faster to sort, and near
        // enough.
        self.keys.clear();
        for (i, s) in self.shares.iter().enumerate() {
            let density = if s.beta > FLAT {
                s.density as f32
            } else {
                f32::NEG_INFINITY
            };
            let bits = density.to_bits();
            let ascending = if bits >> 31 == 1 {
                !bits
            } else {
                bits | 1 << 31
            };
            self.keys.push(u64::from(!ascending) << 32 | i as u64);
        }
        self.keys.sort_unstable();
        self.order.clear();
        self.order.extend(self.keys.iter().map(|k| *k as u32));
        self.demands.clear();
        self.density.clear();
        self.flat = 0.0;
        for i in &self.order {
            let s = self.shares[*i as usize];
            if s.beta > FLAT {
                self.demands.push(1.0 / s.beta, s.alpha / s.beta, s.cap);
                self.density.push(s.density);
            } else {
                self.demands.push(0.0, 0.0, 0.0);
                self.density.push(0.0);
                self.flat += s.cap;
            }
        }
    }

    /// The level m of the best solution.
    fn best_level(&mut self) -> f64 {
        let u = self.bound;
        let fair = self.demands.level(self.supply, self.fair_level);
        self.fair_level = fair;
        let low = if self.supply > self.flat {
            let y = self.demands.level(self.supply - self.flat, self.low_level);
            self.low_level = y;
            y / u
        } else {
            0.0
        };
        let (mut most_alpha, mut least_top) = (0.0f64, f64::INFINITY);
        for s in &self.shares {
            most_alpha = most_alpha.max(s.alpha);
            least_top = least_top.min(s.alpha + s.beta * s.cap);
        }
        let from = low.max(most_alpha / u);
        let to = fair.min(least_top);
        if from >= to {
            return from.min(fair).max(low);
        }
        // Slopes are taken just inside the ends: at them, who is at a bound there exactly (the one
        // that sets it, for instance) would count as not moving.
        let inside = (to - from) * 1e-9;
        let (from, to) = (from + inside, to - inside);
        let (mut a, mut b) = (self.evaluate(from), self.evaluate(to));
        if a.slope <= 0.0 {
            return from;
        }
        if b.slope >= 0.0 {
            return to;
        }
        let mut best = if a.value >= b.value { a } else { b };
        // The best level of the last time is likely to be near.
        let mut guess = Some(self.best_level);
        for step in 0..STEPS {
            let cross = (b.value - a.value + a.slope * a.m - b.slope * b.m) / (a.slope - b.slope);
            let ceiling = a.value + a.slope * (cross - a.m);
            // every fourth step halves the bracket, whatever the shape of V
            let m = match guess.take() {
                Some(g) if g > a.m && g < b.m => g,
                _ if step % 4 == 3 => (a.m + b.m) / 2.0,
                _ => cross,
            };
            if !(m > a.m && m < b.m) || ceiling - best.value <= 1e-12 * ceiling.abs() {
                break;
            }
            let p = self.evaluate(m);
            if p.value > best.value {
                best = p;
            }
            if p.slope > 0.0 {
                a = p;
            } else {
                b = p;
            }
        }
        self.best_level = best.m;
        best.m
    }

    /// V(m) and its slope, by the greedy solution.
    fn evaluate(&self, m: f64) -> Point {
        let y = self.bound * m;
        let low = self.demands.sums(m, &self.density);
        let (mut value, mut rest) = (low.value, self.supply - low.total);
        let (mut moved, mut slope) = (low.growth, low.value_growth);
        for ((q, a, cap), d) in self.demands.iter().zip(&self.density) {
            let clamped = |x: f64| x.max(0.0).min(cap);
            let growth = |x: f64| if x > 0.0 && x < cap { q } else { 0.0 };
            let (lo, hi) = (q * m - a, q * y - a);
            let more = clamped(hi) - clamped(lo);
            if more >= rest {
                // the marginal one: takes what is left, and pays for all growth
                value += d * rest;
                slope -= d * moved;
                return Point { m, value, slope };
            }
            value += d * more;
            rest -= more;
            let growth = self.bound * growth(hi) - growth(lo);
            moved += growth;
            slope += d * growth;
        }
        // those that gain nothing take the rest, at no value
        Point { m, value, slope }
    }

    /// Writes down the greedy solution at level `m`; without a level nobody is kept from anything.
    fn give(&mut self, m: Option<f64>) {
        self.given.clear();
        let mut rest = self.supply;
        for i in 0..self.density.len() {
            let lo = m.map_or(0.0, |m| self.demands.at(i, m)).min(rest);
            self.given.push(lo);
            rest -= lo;
        }
        for i in 0..self.density.len() {
            let s = self.shares[self.order[i] as usize];
            let flat = s.beta <= FLAT;
            let hi = match m {
                _ if flat => 0.0,
                Some(m) => self.demands.at(i, self.bound * m),
                None => s.cap,
            };
            let more = (hi - self.given[i]).max(0.0).min(rest);
            self.given[i] += more;
            rest -= more;
        }
        // Those that gain nothing share evenly; what even they have no room for goes to anybody.
        if rest > 0.0 && self.flat > 0.0 {
            let part = (rest / self.flat).min(1.0);
            for (i, g) in self.order.iter().zip(&mut self.given) {
                let s = self.shares[*i as usize];
                if s.beta <= FLAT {
                    *g = part * s.cap;
                    rest -= *g;
                }
            }
        }
        for (i, g) in self.order.iter().zip(&mut self.given) {
            let more = (self.shares[*i as usize].cap - *g)
                .max(0.0)
                .min(rest.max(0.0));
            *g += more;
            rest -= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A single-threaded application of this speedup factor.
    fn single(sf: f64) -> Share {
        Share {
            alpha: 1.0 / sf,
            beta: (sf - 1.0) / sf,
            cap: 1.0,
            density: sf - 1.0,
        }
    }

    fn solve(sf: &[f64], nb: f64, u: f64) -> (Vec<f64>, f64, f64) {
        let mut p = Problem::default();
        sf.iter().for_each(|s| p.push(single(*s)));
        let g = p.solve(nb, u).to_vec();
        let asp = sf.iter().zip(&g).map(|(s, g)| g * (s - 1.0)).sum();
        let x: Vec<f64> = sf
            .iter()
            .zip(&g)
            .map(|(s, g)| (1.0 + g * (s - 1.0)) / s)
            .collect();
        let max = x.iter().copied().fold(0.0, f64::max);
        let min = x.iter().copied().fold(f64::INFINITY, f64::min);
        (g, asp, max / min)
    }

    #[test]
    fn the_ends_are_fairness_and_throughput() {
        let sf = [3.0, 2.5, 1.5, 1.2];
        let (g, ..) = solve(&sf, 2.0, f64::INFINITY);
        assert_eq!(g, [1.0, 1.0, 0.0, 0.0]);
        // SF 1.2 gets nothing and is still the fastest
        let (g, _, u) = solve(&sf, 1.0, 1.0);
        assert!((g.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let x: Vec<f64> = sf
            .iter()
            .zip(&g)
            .map(|(s, g)| (1.0 + g * (s - 1.0)) / s)
            .collect();
        assert!(
            (x[0] - x[1]).abs() < 1e-9 && g[3] == 0.0 && u > 1.0,
            "{g:?} {x:?}"
        );
        let (_, _, u) = solve(&[2.0; 4], 2.0, 1.0);
        assert!((u - 1.0).abs() < 1e-9);
        let (g, ..) = solve(&[1.0; 4], 2.0, 1.2);
        assert_eq!(g, [0.5; 4]);
        let (g, ..) = solve(&[2.0, 0.9], 2.0, 1.2);
        assert_eq!(g, [1.0, 1.0]);
        let mut none = Problem::default();
        assert!(none.solve(2.0, 1.2).is_empty());
    }

    /// V by brute force: the greedy solution on a grid of levels; and how much the best may lie
    /// above it, V being concave.
    fn brute(apps: &[Share], supply: f64, u: f64) -> Option<(f64, f64)> {
        const STEPS: u32 = 4000;
        let g = |s: &Share, y: f64| ((y - s.alpha) / s.beta).clamp(0.0, s.cap);
        let mut sorted = apps.to_vec();
        sorted.sort_by(|a, b| b.density.total_cmp(&a.density));
        let from = apps.iter().map(|s| s.alpha).fold(0.0, f64::max) / u;
        let top = |s: &Share| s.alpha + s.beta * s.cap;
        let to = apps.iter().map(top).fold(f64::INFINITY, f64::min);
        let mut best = None::<f64>;
        for k in 0..=STEPS {
            let m = from + (to - from) * f64::from(k) / f64::from(STEPS);
            let lo: f64 = sorted.iter().map(|s| g(s, m)).sum();
            let hi: f64 = sorted.iter().map(|s| g(s, u * m)).sum();
            if to < from || lo > supply || hi < supply {
                continue;
            }
            let (mut rest, mut v) = (supply - lo, 0.0);
            for s in &sorted {
                let more = (g(s, u * m) - g(s, m)).min(rest);
                rest -= more;
                v += s.density * (g(s, m) + more);
            }
            best = Some(best.map_or(v, |b| b.max(v)));
        }
        // a step of the level moves no G by more than u/beta of it, each at a difference of
        // densities
        let step = 2.0 * (to - from) / f64::from(STEPS);
        let spread = sorted[0].density - sorted[sorted.len() - 1].density;
        let moved: f64 = apps.iter().map(|s| u / s.beta).sum();
        best.map(|b| (b, step * spread * moved + 1e-9))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn the_solution_is_feasible_and_a_looser_bound_no_worse(
            sf in prop::collection::vec(1.01f64..5.0, 2..14),
            part in 0.05f64..0.95,
            u in 1.0f64..3.0,
        ) {
            let nb = (part * sf.len() as f64).max(0.1);
            let (g, asp, ratio) = solve(&sf, nb, u);
            prop_assert!((g.iter().sum::<f64>() - nb).abs() < 1e-7);
            prop_assert!(g.iter().all(|g| (-1e-12..=1.0 + 1e-12).contains(g)));
            let (_, fair_asp, fairest) = solve(&sf, nb, 1.0);
            if u >= fairest {
                prop_assert!(ratio <= u * (1.0 + 1e-7), "{} for {}", ratio, u);
                prop_assert!(asp >= fair_asp - 1e-7);
            } else {
                prop_assert!(ratio <= fairest * (1.0 + 1e-7));
            }
            // a looser bound is never worse
            let (_, looser, _) = solve(&sf, nb, u * 1.1);
            prop_assert!(looser >= asp - 1e-7);
            let (_, free, _) = solve(&sf, nb, f64::INFINITY);
            prop_assert!(free >= looser - 1e-7);
        }

        /// With a past, who is fast without fast cores may be the one that gains most from them,
        /// and one that sets the lower end of the search may be the one that moves there.
        #[test]
        fn the_solution_is_optimal_for_any_coefficients(
            apps in prop::collection::vec(
                (0.05f64..1.5, 0.005f64..2.0, 0.1f64..3.0, -1.0f64..5.0)
                    .prop_map(|(alpha, beta, cap, density)| Share { alpha, beta, cap, density }),
                2..8,
            ),
            part in 0.02f64..0.98,
            u in 1.0f64..4.0,
        ) {
            let mut p = Problem::default();
            apps.iter().for_each(|a| p.push(*a));
            let supply = part * apps.iter().map(|a| a.cap).sum::<f64>();
            let g = p.solve(supply, u).to_vec();
            if let Some((best, steepest)) = brute(&apps, supply, u) {
                let value: f64 = apps.iter().zip(&g).map(|(a, g)| a.density * g).sum();
                let x: Vec<f64> = apps.iter().zip(&g).map(|(a, g)| a.alpha + a.beta * g).collect();
                let max = x.iter().copied().fold(0.0, f64::max);
                let min = x.iter().copied().fold(f64::INFINITY, f64::min);
                prop_assert!(value >= best - 1e-6, "{} for {}", value, best);
                prop_assert!(value <= best + steepest, "{} for {}", value, best);
                prop_assert!(max / min <= u * (1.0 + 1e-6), "{} for {}", max / min, u);
            }
        }

        /// Whatever the coefficients: shares add up and stay in range.
        #[test]
        fn any_problem_has_an_answer(
            apps in prop::collection::vec((0.01f64..2.0, 0.0f64..2.0, 0.0f64..4.0, -1.0f64..5.0), 0..20),
            supply in 0.0f64..20.0,
            u in prop::sample::select(vec![1.0, 1.2, 3.0, 1e5, f64::INFINITY]),
        ) {
            let mut p = Problem::default();
            for (alpha, beta, cap, density) in &apps {
                p.push(Share { alpha: *alpha, beta: *beta, cap: *cap, density: *density });
            }
            let room: f64 = apps.iter().map(|a| a.2).sum();
            let g = p.solve(supply, u);
            prop_assert!((g.iter().sum::<f64>() - supply.min(room)).abs() < 1e-6);
            for (g, a) in g.iter().zip(&apps) {
                prop_assert!((-1e-9..=a.2 + 1e-9).contains(g));
            }
        }
    }
}
