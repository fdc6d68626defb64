//! How fast a thread runs on each core type, within one phase.

use crate::ids::{Nanos, MAX_CORE_TYPES};

/// Scatter of the logarithm of the rate from window to window that is assumed at least.
const NOISE: f64 = 0.05;
/// Windows that a running mean reaches back.
const MEMORY: f64 = 8.0;
/// Weight of the first window after a change of core type: it begins with cold caches.
const COLD: f64 = 0.25;
/// Factors beyond these belong to two phases, not to two core types.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 0.4..=16.0;
/// Departure of the logarithm of the rate that makes another phase when it lasts for two windows:
/// PMCTrack's 1.12 [PMCTrack §4.1.2], which is a ratio of 1.27.
const STEP: f64 = 0.24;

/// Running mean of the logarithm of a rate (instructions per nanosecond of CPU time).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    /// The mean.
    pub ln: f64,
    /// Sum of the weights of the windows in it, up to [`MEMORY`]; 0 when there is none.
    pub weight: f64,
    variance: f64,
    /// When the last window ended.
    pub at: Nanos,
}

impl Rate {
    /// Takes in a window of this weight.
    pub fn take_in(&mut self, ln: f64, weight: f64, now: Nanos) {
        let k = weight / (self.weight + weight);
        let d = ln - self.ln;
        self.ln += k * d;
        self.variance = (1.0 - k) * (self.variance + k * d * d);
        self.weight = (self.weight + weight).min(MEMORY);
        self.at = now;
    }

    /// Squared standard uncertainty of the mean; none without a window.
    pub fn variance(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.variance.max(NOISE * NOISE) / self.weight)
    }
}

/// What a move to another core type showed: the rates just before it and just after.
///
/// Of two means over a whole phase it is not known whether the thread did the same in both. Windows
/// next to each other are of one phase unless it changed with the move; so one move may be off by
/// anything, and the middle one of several is not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Move {
    rates: [(usize, Rate); 2],
    /// Squared scatter of the logarithms of windows before it: of a program that wavers, what is
    /// next to each other differs as well.
    scatter: f64,
    /// Squared standard uncertainty of the logarithm of their ratio for what neighbours may have cost.
    pub doubt: f64,
}

impl Move {
    /// The rate on core type `t`, if it is one of the two.
    pub fn on(&self, t: usize) -> Option<&Rate> {
        let side = self.rates.iter().find(|(of, _)| *of == t);
        side.map(|(_, rate)| rate)
    }

    /// Where the thread came from, and where it went.
    pub fn between(&self) -> [usize; 2] {
        self.rates.map(|(t, _)| t)
    }

    /// The square of the uncertainty of either rate as one of the phase that the two have in
    /// common.
    pub fn variance(&self) -> f64 {
        self.scatter.max(NOISE * NOISE) + self.doubt / 2.0
    }

    /// The logarithm of the rate on core type `c` over that on `slowest`, and the square of its
    /// uncertainty.
    pub fn ratio(&self, c: usize, slowest: usize) -> Option<(f64, f64)> {
        let ln = self.on(c)?.ln - self.on(slowest)?.ln;
        let plausible = PLAUSIBLE.contains(&ln.exp());
        plausible.then_some((ln, 2.0 * self.variance()))
    }
}

/// The rates of one thread in its present phase.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sides {
    rates: [Rate; MAX_CORE_TYPES],
    /// Core type of the last window.
    pub last: Option<usize>,
    /// The core type before this one, and the rate at the end there.
    before: Option<(usize, Rate)>,
    /// The last two whole windows here and their weights, the later one last.
    recent: [Option<(f64, f64)>; 2],
    /// Windows here.
    windows: u32,
    moved: Option<Move>,
    /// A window that departed: the next one shows whether it was an outlier.
    held: Option<f64>,
    /// Number of the phase.
    pub phase: u32,
    /// When it began.
    pub since: Nanos,
}

impl Sides {
    /// Takes in a window on core type `t`; one that is `whole` covers most of its interval there.
    pub fn take_in(&mut self, t: usize, ln: f64, whole: bool, now: Nanos) {
        if t >= MAX_CORE_TYPES {
            return;
        }
        let last = self.last.replace(t);
        if let Some(left) = last.filter(|l| *l != t) {
            self.before = self.recent(now).map(|r| (left, r));
            self.recent = [None; 2];
            self.windows = 0;
        }
        if whole {
            self.windows = self.windows.saturating_add(1);
            let weight = if self.windows == 1 { COLD } else { 1.0 };
            self.recent = [self.recent[1], Some((ln, weight))];
        }
        self.follow(t, ln, last != Some(t), now);
        if whole && self.windows == 2 {
            let here = self.recent(now).map(|r| (t, r));
            let both = self.before.take().zip(here);
            self.moved = both.map(|(before, here)| Move {
                rates: [before, here],
                scatter: self.rates[before.0].variance,
                doubt: 0.0,
            });
        }
    }

    /// The rate over the last two whole windows here, if one of them was not cold.
    fn recent(&self, now: Nanos) -> Option<Rate> {
        let mut rate = Rate::default();
        for (ln, weight) in self.recent.iter().flatten() {
            rate.take_in(*ln, *weight, now);
        }
        (rate.weight >= 1.0).then_some(rate)
    }

    /// Follows the phase by a window on core type `t`, the first one there if it has just
    /// `arrived`.
    fn follow(&mut self, t: usize, ln: f64, arrived: bool, now: Nanos) {
        let rate = &mut self.rates[t];
        if arrived {
            self.held = None;
        }
        let d = ln - rate.ln;
        if rate.weight < 1.0 && !arrived {
            // nothing but a cold window so far: no measure of anything
            if d.abs() > STEP {
                *rate = Rate::default();
            }
            rate.take_in(ln, 1.0, now);
            return;
        }
        if rate.weight > 0.0 && d.abs() > STEP {
            match self.held.replace(ln) {
                Some(h) if (h > rate.ln) == (d > 0.0) => {
                    self.rates = Default::default();
                    self.before = None;
                    self.held = None;
                    self.phase = self.phase.wrapping_add(1);
                    self.since = now;
                    self.rates[t].take_in(ln, 1.0, now);
                }
                _ => {}
            }
            return;
        }
        self.held = None;
        rate.take_in(ln, if arrived { COLD } else { 1.0 }, now);
    }

    /// The move that brought the thread here, once: after its second whole window here.
    pub fn take_move(&mut self) -> Option<Move> {
        self.moved.take()
    }

    /// The rate on core type `t` in this phase, if it was measured there.
    pub fn on(&self, t: usize) -> Option<&Rate> {
        self.rates.get(t).filter(|r| r.weight > 0.0)
    }

    /// The rate where the thread ran last.
    pub fn here(&self) -> Option<(usize, &Rate)> {
        let t = self.last?;
        Some((t, self.on(t)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(s: &mut Sides, from: u64, t: usize, rates: &[f64]) {
        for (i, r) in rates.iter().enumerate() {
            s.take_in(t, r.ln(), true, Nanos::from_millis(100 * (from + i as u64)));
        }
    }

    #[test]
    fn a_mean_per_core_type_and_a_cold_window_weighs_little() {
        let mut s = Sides::default();
        feed(&mut s, 0, 0, &[2.0, 2.0, 2.0]);
        feed(&mut s, 3, 1, &[0.8, 1.0, 1.0, 1.0]);
        assert!((s.on(0).unwrap().ln.exp() - 2.0).abs() < 1e-9);
        let small = s.on(1).unwrap();
        assert!((small.ln.exp() - 1.0).abs() < 0.02, "{small:?}");
        assert_eq!((s.phase, s.last), (0, Some(1)));
        assert!(s.on(0).unwrap().variance() < s.on(0).map(|_| 0.05 * 0.05));
        assert_eq!(s.on(2), None);
    }

    #[test]
    fn a_change_that_lasts_forgets_the_other_side_and_an_outlier_does_not() {
        let mut s = Sides::default();
        feed(&mut s, 0, 1, &[1.0, 1.0]);
        feed(&mut s, 2, 0, &[2.0, 2.0, 1.0, 2.0]);
        assert_eq!((s.phase, s.on(1).is_some()), (0, true));
        assert!((s.on(0).unwrap().ln.exp() - 2.0).abs() < 1e-9);
        feed(&mut s, 6, 0, &[1.0, 1.1]);
        assert_eq!((s.phase, s.on(1).is_some()), (1, false));
        assert_eq!(s.since, Nanos::from_millis(700));
        // up and down is noise
        feed(&mut s, 8, 0, &[3.0, 0.4, 3.0, 0.4]);
        assert_eq!(s.phase, 1);
    }
}
