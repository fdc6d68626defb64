//! The shares problem of `pareto`: most throughput with bounded unfairness.
//!
//! Application a runs, when its threads get G_a cores' worth of fast-core time between them, at the normalised speed
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
//! The ratio bound holds iff there is a level m with m ≤ x_a ≤ U·m for all a. For a fixed m this is one interval per
//! application, lo_a(m) ≤ G_a ≤ hi_a(m), where with g_a(y) = clamp((y − α_a)/β_a, 0, cap_a) lo_a(m) = g_a(m) and
//! hi_a(m) = g_a(U·m): a continuous knapsack, solved by giving everybody lo and the rest to the highest d first.
//!
//! In (G, m) together the problem is a linear program, so that its value V(m) for fixed m is concave and piecewise linear. Its
//! slope comes with the greedy solution: raising m by δ costs lo'·δ of every application at its lower end and
//! hands hi'·δ to every one at its upper end, the marginal one making up the difference. The maximum is found exactly by
//! intersecting the tangents at both ends of the bracket: either the intersection is on V, and optimal, or it cuts off at least
//! one piece.
//!
//! Two things can make U unreachable: x_a ≥ α_a (who is fast without a fast core cannot be slowed down), which
//! wants m ≥ max α/U, and Σ lo(m) ≤ B, which wants m at most the fairness level m* with Σ g(m*) = B. When they contradict each
//! other m = m* is taken: the max-min fair shares, which are as near to the bound as any.

use crate::policy::level::Demands;

/// Above this bound fairness plays no part.
const NO_BOUND: f64 = 1e6;

/// Gains of normalised speed below this, per core, are none.
const FLAT: f64 = 1e-9;

/// Evaluations of V after which the search stops at the best found. A dozen were the most ever needed.
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

/// The problem and its solution. Keeps buffers and the levels found, from which the next search starts.
#[derive(Debug, Default)]
pub struct Problem {
    shares: Vec<Share>,
    /// By falling density, those that gain nothing last.
    order: Vec<(f64, u32)>,
    /// In that order; slope 0 for those that gain nothing.
    demands: Demands,
    density: Vec<f64>,
    /// In that order: what they get.
    given: Vec<f64>,
    /// By application: what they get.
    solution: Vec<f64>,
    flat: f64,
    supply: f64,
    bound: f64,
    fair_level: f64,
    low_level: f64,
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
        for ((_, i), g) in self.order.iter().zip(&self.given) {
            self.solution[*i as usize] = *g;
        }
        &self.solution
    }

    /// Sorts the applications and sets up their demands.
    fn prepare(&mut self) {
        self.order.clear();
        for (i, s) in self.shares.iter().enumerate() {
            let key = if s.beta > FLAT {
                s.density
            } else {
                f64::NEG_INFINITY
            };
            self.order.push((key, i as u32));
        }
        self.order
            .sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        self.demands.clear();
        self.density.clear();
        self.flat = 0.0;
        for (_, i) in &self.order {
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
        let (mut a, mut b) = (self.evaluate(from), self.evaluate(to));
        if a.slope <= 0.0 {
            return from;
        }
        if b.slope >= 0.0 {
            return to;
        }
        let mut best = if a.value >= b.value { a } else { b };
        for step in 0..STEPS {
            let cross = (b.value - a.value + a.slope * a.m - b.slope * b.m) / (a.slope - b.slope);
            let ceiling = a.value + a.slope * (cross - a.m);
            // every fourth step halves the bracket, whatever the shape of V
            let m = if step % 4 == 3 {
                (a.m + b.m) / 2.0
            } else {
                cross
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
        best.m
    }

    /// V(m) and its slope, by the greedy solution.
    fn evaluate(&self, m: f64) -> Point {
        let y = self.bound * m;
        let (mut value, mut rest, mut moved, mut slope) = (0.0, self.supply, 0.0, 0.0);
        for (i, d) in self.density.iter().enumerate() {
            let (lo, growth) = (self.demands.at(i, m), self.demands.growth(i, m));
            value += d * lo;
            rest -= lo;
            moved += growth;
            slope += d * growth;
        }
        for (i, d) in self.density.iter().enumerate() {
            let more = self.demands.at(i, y) - self.demands.at(i, m);
            let lo_growth = self.demands.growth(i, m);
            if more >= rest {
                // the marginal one: takes what is left, and pays for all growth
                value += d * rest;
                slope -= d * moved;
                return Point { m, value, slope };
            }
            value += d * more;
            rest -= more;
            let hi_growth = self.bound * self.demands.growth(i, y);
            moved += hi_growth - lo_growth;
            slope += d * (hi_growth - lo_growth);
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
            let s = self.shares[self.order[i].1 as usize];
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
            for ((_, i), g) in self.order.iter().zip(&mut self.given) {
                let s = self.shares[*i as usize];
                if s.beta <= FLAT {
                    *g = part * s.cap;
                    rest -= *g;
                }
            }
        }
        for ((_, i), g) in self.order.iter().zip(&mut self.given) {
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

    /// V by brute force: the greedy solution on a grid of levels.
    fn brute(sf: &[f64], nb: f64, u: f64) -> Option<f64> {
        let g = |s: f64, y: f64| ((y * s - 1.0) / (s - 1.0)).clamp(0.0, 1.0);
        let mut sorted = sf.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let alpha = sf.iter().map(|s| 1.0 / s).fold(0.0, f64::max);
        let mut best = None::<f64>;
        for k in 0..=4000 {
            let m = f64::from(k) / 4000.0;
            let lo: f64 = sorted.iter().map(|s| g(*s, m)).sum();
            let hi: f64 = sorted.iter().map(|s| g(*s, u * m)).sum();
            if lo > nb || hi < nb || alpha > u * m {
                continue;
            }
            let mut rest = nb - lo;
            let mut v = 0.0;
            for s in &sorted {
                let more = (g(*s, u * m) - g(*s, m)).min(rest);
                rest -= more;
                v += (s - 1.0) * (g(*s, m) + more);
            }
            best = Some(best.map_or(v, |b| b.max(v)));
        }
        best
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn the_solution_is_feasible_and_optimal(
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
            if let Some(best) = brute(&sf, nb, u) {
                // the grid is never better, and not much worse
                prop_assert!(asp >= best - 1e-7, "{} for {}", asp, best);
                if u > fairest * 1.01 {
                    prop_assert!(asp <= best + 0.02 * sf.len() as f64, "{} for {}", asp, best);
                }
            }
            // a looser bound is never worse
            let (_, looser, _) = solve(&sf, nb, u * 1.1);
            prop_assert!(looser >= asp - 1e-7);
            let (_, free, _) = solve(&sf, nb, f64::INFINITY);
            prop_assert!(free >= looser - 1e-7);
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
