//! What is known of the programs of one name.

use super::rates::{Rate, Sides};
use super::{Said, PHASE};
use crate::estimate::Quality;
use crate::ids::{Nanos, MAX_CORE_TYPES};

/// Phases of a program whose rates are remembered.
const MOST_PHASES: usize = 8;
/// Difference of the logarithms of two rates up to which they are of the same phase.
const SAME: f64 = 0.12;
/// Least weight of a new value in a running mean.
const LEAST: f64 = 0.05;
/// Time in which what was compared comes to be as uncertain as another phase.
const DRIFT: f64 = 60.0;
/// Windows after which totals begin to fade.
const WINDOWS: f64 = 64.0;
/// Least standard uncertainty of a bias.
const SUREST: f64 = 0.03;
/// Successive comparisons share most of their windows: so many count as one.
const SHARED: f64 = 4.0;

/// A running mean that begins as an ordinary one: a first value weighs 1, the n-th 1/n, at least
/// [`LEAST`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    value: f64,
    variance: f64,
    n: u32,
    at: Nanos,
}

impl Mean {
    pub fn take_in(&mut self, value: f64, now: Nanos) {
        self.n = self.n.saturating_add(1);
        let k = (1.0 / f64::from(self.n)).max(LEAST);
        let d = value - self.value;
        self.value += k * d;
        self.variance = (1.0 - k) * (self.variance + k * d * d);
        self.at = now;
    }
}

/// Rates in one phase, on the core types where it was met.
#[derive(Clone, Copy, Debug)]
struct Compared {
    rates: [Mean; MAX_CORE_TYPES],
    /// Running means of the squared uncertainties of what entered them.
    noise: [f64; MAX_CORE_TYPES],
    at: Nanos,
}

impl Compared {
    fn ratio(&self, c: usize, slowest: usize) -> Option<(f64, f64)> {
        let side = |t: usize| self.rates.get(t).filter(|r| r.n > 0);
        let (a, b) = (side(c)?, side(slowest)?);
        let variance = a.variance + b.variance + self.noise[c] + self.noise[slowest];
        Some((a.value - b.value, variance))
    }
}

/// The mean of factors, its variance with what they differ by, and when the last was measured.
fn mean(all: impl Iterator<Item = ((f64, f64), Nanos)>) -> Option<(f64, f64, Nanos)> {
    let (mut n, mut sum, mut squares, mut variance) = (0.0, 0.0, 0.0, 0.0);
    let mut last = None;
    for ((ln, v), at) in all {
        n += 1.0;
        sum += ln;
        squares += ln * ln;
        variance += v;
        last = last.max(Some(at));
    }
    let spread = (squares / n - (sum / n) * (sum / n)).max(0.0);
    Some((sum / n, spread + variance / n, last?))
}

/// What programs of the name did on one core type in all.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    instructions: f64,
    time: f64,
    ln: Rate,
    windows: f64,
    at: Nanos,
}

/// How far the model is off for this program: the logarithm of the measured factor over the
/// model's.
#[derive(Clone, Copy, Debug)]
struct Bias {
    /// Core type of the factor, and where the model had measured.
    of: (usize, usize),
    value: f64,
    variance: f64,
}

/// The programs of one name.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    compared: Vec<Compared>,
    biases: Vec<Bias>,
    totals: [Total; MAX_CORE_TYPES],
    /// Logarithms of the speedup and efficiency factors, by core type, over all phases.
    factors: [[Mean; MAX_CORE_TYPES]; 2],
    /// When it was last met.
    pub met: Nanos,
}

impl Program {
    /// Takes in a window on core type `t`.
    pub fn window(&mut self, t: usize, instructions: f64, time: f64, now: Nanos) {
        let Some(total) = self.totals.get_mut(t) else {
            return;
        };
        if total.windows >= WINDOWS {
            total.instructions /= 2.0;
            total.time /= 2.0;
            total.windows /= 2.0;
        }
        total.instructions += instructions;
        total.time += time;
        total.windows += 1.0;
        total.ln.take_in((instructions / time).ln(), 1.0, now);
        total.at = now;
    }

    /// Takes in the rates of a thread that was on several core types in its present phase.
    pub fn compare(&mut self, sides: &Sides, now: Nanos) {
        let measured = || (0..MAX_CORE_TYPES).filter_map(|t| Some((t, sides.on(t)?)));
        if measured().count() < 2 || measured().any(|(_, r)| r.weight < 1.0) {
            return;
        }
        let place = self.same(sides).unwrap_or_else(|| {
            if self.compared.len() >= MOST_PHASES {
                let oldest = (0..self.compared.len()).min_by_key(|i| self.compared[*i].at);
                self.compared.swap_remove(oldest.unwrap_or(0));
            }
            self.compared.push(Compared {
                rates: Default::default(),
                noise: [0.0; MAX_CORE_TYPES],
                at: now,
            });
            self.compared.len() - 1
        });
        let c = &mut self.compared[place];
        c.at = now;
        for (t, r) in measured() {
            c.rates[t].take_in(r.ln, now);
            let k = (1.0 / f64::from(c.rates[t].n)).max(LEAST);
            c.noise[t] += k * (r.variance().unwrap_or(0.0) - c.noise[t]);
        }
    }

    /// The phase with about these rates, wherever both were measured.
    fn same(&self, sides: &Sides) -> Option<usize> {
        let distance = |c: &Compared| {
            let known = c.rates.iter().enumerate().filter(|(_, r)| r.n > 0);
            let both = known.filter_map(|(t, r)| Some((r.value - sides.on(t)?.ln).abs()));
            both.reduce(f64::max).filter(|d| *d <= SAME)
        };
        let all = self.compared.iter().enumerate();
        all.filter_map(|(i, c)| Some((i, distance(c)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(i, _)| i)
    }

    /// The factor of core type `c` in the phases with about this rate on core type `t`: its
    /// logarithm, the square of its uncertainty, and when it was measured.
    fn with_rate(&self, t: usize, ln: f64, c: usize, slowest: usize) -> Option<(f64, f64, Nanos)> {
        let near = |p: &&Compared| {
            let r = p.rates.get(t).filter(|r| r.n > 0);
            r.is_some_and(|r| (r.value - ln).abs() <= SAME)
        };
        let found = self.compared.iter().filter(near);
        mean(found.filter_map(|p| Some((p.ratio(c, slowest)?, p.at))))
    }

    /// The factor of core type `c` as measured, for a thread with these rates: of its own phase, of
    /// one with the same rate, of all phases, of all that was ever run, whichever there is first.
    pub fn measured(&self, sides: &Sides, c: usize, slowest: usize, now: Nanos) -> Option<Said> {
        let said = |ln: f64, variance: f64, at: Nanos| {
            let age = now.saturating_sub(at);
            let drift = PHASE * PHASE * age.as_secs_f64() / DRIFT;
            Some(Said {
                ln,
                variance: variance + drift,
                age,
                quality: Quality::Multiplexed,
            })
        };
        if let (Some(a), Some(b)) = (sides.on(c), sides.on(slowest)) {
            return said(a.ln - b.ln, a.variance()? + b.variance()?, a.at.min(b.at));
        }
        let near = sides
            .here()
            .and_then(|(t, r)| self.with_rate(t, r.ln, c, slowest));
        if let Some((ln, variance, at)) = near {
            return said(ln, variance, at);
        }
        let all = self.compared.iter();
        if let Some((ln, variance, at)) =
            mean(all.filter_map(|p| Some((p.ratio(c, slowest)?, p.at))))
        {
            return said(ln, variance + PHASE * PHASE, at);
        }
        let (a, b) = (self.totals.get(c)?, self.totals.get(slowest)?);
        let rate = |t: &Total| (t.windows > 0.0).then(|| (t.instructions / t.time).ln());
        let variance = a.ln.variance()? + b.ln.variance()? + PHASE * PHASE;
        said(rate(a)? - rate(b)?, variance, a.at.min(b.at))
    }

    /// Takes in that the model's factor `of` (of a core type, measured on a core type) is off by
    /// `by`.
    pub fn off(&mut self, of: (usize, usize), by: f64, variance: f64) {
        let v = variance * SHARED;
        let Some(b) = self.biases.iter_mut().find(|b| b.of == of) else {
            self.biases.push(Bias {
                of,
                value: by,
                variance,
            });
            return;
        };
        let d = by - b.value;
        if d * d > 9.0 * (b.variance + v) {
            // not the same any more
            b.variance += d * d;
        }
        let k = b.variance / (b.variance + v);
        b.value += k * d;
        b.variance = ((1.0 - k) * b.variance).max(SUREST * SUREST);
    }

    /// How far the model's factor `of` is off, and the square of the uncertainty of that.
    pub fn bias(&self, of: (usize, usize)) -> Option<(f64, f64)> {
        let b = self.biases.iter().find(|b| b.of == of)?;
        Some((b.value, b.variance))
    }

    /// Takes in the logarithm of a factor (0: speedup, 1: efficiency) of a thread that ran.
    pub fn remember(&mut self, which: usize, c: usize, ln: f64, now: Nanos) {
        if let Some(m) = self.factors.get_mut(which).and_then(|f| f.get_mut(c)) {
            m.take_in(ln, now);
        }
    }

    /// What its threads were like on average.
    pub fn recall(&self, which: usize, c: usize, now: Nanos) -> Option<Said> {
        let m = self.factors.get(which)?.get(c).filter(|m| m.n > 0)?;
        Some(Said {
            ln: m.value,
            variance: m.variance + PHASE * PHASE,
            age: now.saturating_sub(m.at),
            quality: Quality::Stale,
        })
    }
}
