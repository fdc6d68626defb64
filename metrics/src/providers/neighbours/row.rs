//! What neighbours cost one program on one core type, by a Kalman filter.

use super::presence::Change;
use crate::contention::Seat;
use crate::ids::{CoreTypeId, Nanos};

/// Standard deviation that costs are expected to have before anything is seen: of neighbours on the
/// same core type, and on another one, that are as slow there as what waits for memory.
pub(super) const EXPECTED: [f64; 2] = [0.35, 0.12];
/// That of neighbours that are as fast as anything there: they hardly use what is shared.
const HARMLESS: f64 = 0.06;
/// Standard deviation below which no cost is taken to be known: programs change.
const FLOOR: f64 = 0.1;
/// Part of the expected variance that comes back in a second.
const DRIFT: f64 = 0.002;
/// Standard deviation of the logarithm of the ratio of two windows, at least.
const NOISE: f64 = 0.08;
/// Costs below are of no account, and those above are not believed.
pub(super) const ACCOUNT: std::ops::RangeInclusive<f64> = 0.1..=3.0;
/// Standard uncertainties that a cost must be larger than: a phase that begins as a neighbour arrives
/// looks like one, and programs have many.
const SURELY: f64 = 2.0;
/// Neighbours of a program that are remembered.
pub(super) const MOST_NEIGHBOURS: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(super) struct Learned {
    pub ln: f64,
    pub variance: f64,
    /// What the variance is before anything is seen.
    pub most: f64,
    pub at: Nanos,
    /// Whether it was found in an event.
    pub found: bool,
    /// Whether it was large enough to count.
    pub known: bool,
}

impl Learned {
    /// Takes in an event that takes away the part `gain` of its variance.
    pub fn narrow(&mut self, gain: f64) {
        self.variance = (self.variance * (1.0 - gain)).max(self.most.min(FLOOR * FLOOR));
    }

    pub fn counts(&self) -> bool {
        let doubt = SURELY * self.variance.sqrt();
        let least = if self.known { doubt / 2.0 } else { doubt };
        self.ln - least > *ACCOUNT.start()
    }
}

/// Standard deviation that the cost of `beside` to a thread on `on` is expected to have, by how slow it is
/// where it is (0 to 1).
pub(super) fn expected(on: CoreTypeId, beside: Seat, slow: f64) -> f64 {
    let most = EXPECTED[usize::from(beside.on != on)];
    let least = HARMLESS * most / EXPECTED[0];
    least + slow * (most - least)
}

/// Costs of a program on one core type.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub costs: Vec<(Seat, Learned)>,
    /// Running mean of what the rate does by itself, squared.
    pub wavers: f64,
}

impl Row {
    pub fn cost(&mut self, beside: Seat, expected: f64, now: Nanos) -> usize {
        if let Some(i) = self.costs.iter().position(|(s, _)| *s == beside) {
            return i;
        }
        if self.costs.len() >= MOST_NEIGHBOURS {
            let oldest = (0..self.costs.len()).min_by_key(|i| self.costs[*i].1.at);
            self.costs.swap_remove(oldest.unwrap_or(0));
        }
        let fresh = Learned {
            ln: 0.0,
            variance: expected * expected,
            most: expected * expected,
            at: now,
            found: false,
            known: false,
        };
        self.costs.push((beside, fresh));
        self.costs.len() - 1
    }

    /// Learns from one event: neighbours changed as `changes` says, the logarithm of the rate by `rose`,
    /// of which `aside` is the variance for other reasons. Whether a cost counts now that did not, or no
    /// longer.
    pub fn learn(
        &mut self,
        on: CoreTypeId,
        changes: &[Change],
        (rose, aside): (f64, f64),
        now: Nanos,
    ) -> bool {
        for change in changes {
            let expected = expected(on, change.beside, change.slow);
            let i = self.cost(change.beside, expected, now);
            let c = &mut self.costs[i].1;
            let away = now.saturating_sub(c.at).as_secs_f64();
            let most = expected * expected;
            // once it is seen to be slow, more is expected of it
            let more = (most - c.most).max(0.0);
            c.most += more;
            c.variance = (c.variance + more + DRIFT * away * c.most).min(c.most);
            c.at = now;
        }
        let place = |costs: &[(Seat, Learned)], s: Seat| costs.iter().position(|(t, _)| *t == s);
        let mut active: Vec<(usize, f64)> = changes
            .iter()
            .filter_map(|c| Some((place(&self.costs, c.beside)?, c.by)))
            .collect();
        let noise = NOISE * NOISE + self.wavers + aside;
        // who would have to help by being there did not: it was the others
        while !active.is_empty() {
            let expected: f64 = active.iter().map(|(i, d)| -self.costs[*i].1.ln * d).sum();
            let spread: f64 = active
                .iter()
                .map(|(i, d)| self.costs[*i].1.variance * d * d)
                .sum();
            let k = (rose - expected) / (spread + noise);
            let new = |c: &Learned, d: f64| c.ln - c.variance * d * k;
            let below = active
                .iter()
                .position(|(i, d)| new(&self.costs[*i].1, *d) < 0.0);
            if let Some(at) = below {
                let (i, d) = active.swap_remove(at);
                let c = &mut self.costs[i].1;
                let gain = c.variance * d * d / (spread + noise);
                c.ln = 0.0;
                c.narrow(gain);
                continue;
            }
            for (i, d) in &active {
                let c = &mut self.costs[*i].1;
                let gain = c.variance * d * d / (spread + noise);
                c.ln = new(c, *d).min(*ACCOUNT.end());
                c.narrow(gain);
                if !std::mem::replace(&mut c.found, true) {
                    // the thread may have come to do something else just then: another event tells
                    c.variance = c.variance.max((c.ln / SURELY).powi(2));
                }
            }
            break;
        }
        let mut turned = false;
        for (_, c) in &mut self.costs {
            let counts = c.counts();
            turned |= counts != c.known;
            c.known = counts;
        }
        turned
    }
}
