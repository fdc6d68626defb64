//! Water-filling: the common level at which clamped linear demands use up a supply.

/// Demands x_i(m) = clamp(slope_i·m − offset_i, 0, cap_i) that grow with a common level m ≥ 0.
///
/// Columns rather than rows, so that summing them up is a stream of plain arithmetic.
#[derive(Debug)]
pub struct Demands {
    slope: Vec<f64>,
    offset: Vec<f64>,
    cap: Vec<f64>,
    /// The level at which demand begins, and the one at which all of it is satisfied; low above
    /// high without demand.
    low: f64,
    high: f64,
}

/// Sums over all demands at one level, the second two weighted by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sums {
    /// Σ x.
    pub total: f64,
    /// Σ x′.
    pub growth: f64,
    /// Σ d·x.
    pub value: f64,
    /// Σ d·x′.
    pub value_growth: f64,
}

/// Steps after which the search for a level stops at what it has. Newton steps on a piecewise
/// linear function hit the root exactly once they are on its piece; twenty were never needed.
const STEPS: usize = 100;

/// Sums are kept in so many independent lanes, which lets the compiler use vector arithmetic.
const LANES: usize = 4;

impl Default for Demands {
    fn default() -> Self {
        Demands {
            slope: Vec::new(),
            offset: Vec::new(),
            cap: Vec::new(),
            low: f64::INFINITY,
            high: 0.0,
        }
    }
}

impl Demands {
    /// Forgets all demands.
    pub fn clear(&mut self) {
        self.slope.clear();
        self.offset.clear();
        self.cap.clear();
        (self.low, self.high) = (f64::INFINITY, 0.0);
    }

    /// Adds a demand; all numbers finite and ≥ 0. With a slope of 0 nothing is ever demanded.
    pub fn push(&mut self, slope: f64, offset: f64, cap: f64) {
        if slope > 0.0 && cap > 0.0 {
            self.low = self.low.min(offset / slope);
            self.high = self.high.max((offset + cap) / slope);
        }
        self.slope.push(slope);
        self.offset.push(offset);
        self.cap.push(cap);
    }

    /// How many demands there are.
    pub fn len(&self) -> usize {
        self.slope.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slope.is_empty()
    }

    /// Demand `i` at level `m`.
    pub fn at(&self, i: usize, m: f64) -> f64 {
        (self.slope[i] * m - self.offset[i])
            .max(0.0)
            .min(self.cap[i])
    }

    /// The sum of all demands at level `m`, and its growth.
    pub fn sum(&self, m: f64) -> (f64, f64) {
        let (mut total, mut growth) = ([0.0; LANES], [0.0; LANES]);
        let chunks = self
            .slope
            .chunks(LANES)
            .zip(self.offset.chunks(LANES))
            .zip(self.cap.chunks(LANES));
        for ((slope, offset), cap) in chunks {
            for (lane, ((q, a), c)) in slope.iter().zip(offset).zip(cap).enumerate() {
                let x = q * m - a;
                total[lane] += x.max(0.0).min(*c);
                growth[lane] += if x > 0.0 && x < *c { *q } else { 0.0 };
            }
        }
        (total.iter().sum(), growth.iter().sum())
    }

    /// The sums at level `m`, `values` being the value of a unit of each demand.
    pub fn sums(&self, m: f64, values: &[f64]) -> Sums {
        let mut lanes = [[0.0; LANES]; 4];
        let chunks = (self.slope.chunks(LANES))
            .zip(self.offset.chunks(LANES))
            .zip(self.cap.chunks(LANES))
            .zip(values.chunks(LANES));
        for (((slope, offset), cap), values) in chunks {
            let rows = slope.iter().zip(offset).zip(cap).zip(values);
            for (lane, (((q, a), c), d)) in rows.enumerate() {
                let x = q * m - a;
                let growth = if x > 0.0 && x < *c { *q } else { 0.0 };
                let x = x.max(0.0).min(*c);
                lanes[0][lane] += x;
                lanes[1][lane] += growth;
                lanes[2][lane] += d * x;
                lanes[3][lane] += d * growth;
            }
        }
        let [total, growth, value, value_growth] = lanes.map(|l| l.iter().sum());
        Sums {
            total,
            growth,
            value,
            value_growth,
        }
    }

    /// For each demand in order, slope, offset and cap.
    pub fn iter(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        self.slope
            .iter()
            .zip(&self.offset)
            .zip(&self.cap)
            .map(|((q, a), c)| (*q, *a, *c))
    }

    /// The level at which the demands sum up to `supply`: the largest one when there is a range of
    /// them and supply is short, the least that satisfies all demands when there is plenty. The
    /// search begins at `start`, for instance the level of the last time.
    pub fn level(&self, supply: f64, start: f64) -> f64 {
        let (mut low, mut high) = (self.low, self.high);
        if low > high || self.sum(high).0 <= supply {
            return high;
        }
        if supply <= 0.0 {
            return low;
        }
        let accuracy = 1e-12 * supply;
        let mut m = if start > low && start < high {
            start
        } else {
            (low + high) / 2.0
        };
        let mut worst = f64::INFINITY;
        for _ in 0..STEPS {
            let (x, growth) = self.sum(m);
            let miss = supply - x;
            if miss.abs() <= accuracy {
                break;
            }
            if miss > 0.0 {
                low = m;
            } else {
                high = m;
            }
            let newton = m + miss / growth;
            // a step that gains little may be one of a cycle
            let gains = miss.abs() < worst / 2.0;
            worst = miss.abs();
            m = if newton > low && newton < high && gains {
                newton
            } else {
                (low + high) / 2.0
            };
            if high - low <= 1e-15 * high {
                break;
            }
        }
        m
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_in_proportion_with_a_cap() {
        let mut d = Demands::default();
        for w in [4.0, 1.0, 1.0] {
            d.push(w, 0.0, 1.0);
        }
        let m = d.level(2.0, 0.0);
        let x: Vec<f64> = (0..3).map(|i| d.at(i, m)).collect();
        assert!(
            (x[0] - 1.0).abs() < 1e-12 && (x[1] - 0.5).abs() < 1e-12,
            "{x:?}"
        );
        assert_eq!(d.sum(d.level(9.0, 0.0)).0, 3.0);
        assert_eq!(d.sum(d.level(0.0, 5.0)).0, 0.0);
        d.clear();
        assert_eq!((d.level(1.0, 1.0), d.is_empty()), (0.0, true));
    }

    proptest! {
        #[test]
        fn the_level_uses_up_the_supply(
            demands in prop::collection::vec((0.0f64..50.0, 0.0f64..50.0, 0.0f64..2.0), 1..40),
            share in 0.0f64..1.2,
            start in 0.0f64..10.0,
        ) {
            let mut d = Demands::default();
            for (q, a, c) in &demands {
                d.push(*q, *a, *c);
            }
            let all: f64 = demands.iter().filter(|x| x.0 > 0.0).map(|x| x.2).sum();
            let supply = share * all;
            let m = d.level(supply, start);
            let (x, _) = d.sum(m);
            prop_assert!((x - supply.min(all)).abs() <= 1e-6 * (1.0 + all), "{} for {}", x, supply);
            let each: f64 = (0..d.len()).map(|i| d.at(i, m)).sum();
            prop_assert!((x - each).abs() < 1e-9);
        }
    }
}
