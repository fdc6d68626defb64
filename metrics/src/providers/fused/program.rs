//! What is known of the programs of one name.

use super::rates::{Move, Rate, Sides};
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
/// Moves of which a bias is the median.
const MOVES: usize = 15;
/// The most that one of them adds to the squared scatter: three times that of phases.
const WILD: f64 = 9.0 * PHASE * PHASE;

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
    /// Running mean of the squared uncertainties of what entered them.
    noise: f64,
    at: Nanos,
}

impl Compared {
    /// The logarithm of the factor, the square of its uncertainty, the moves behind it, and when
    /// the last was.
    fn ratio(&self, c: usize, slowest: usize) -> Option<(f64, f64, f64, Nanos)> {
        let side = |t: usize| self.rates.get(t).filter(|r| r.n > 0);
        let (a, b) = (side(c)?, side(slowest)?);
        let moves = f64::from(a.n.min(b.n)).min(1.0 / LEAST);
        let variance = a.variance + b.variance + 2.0 * self.noise;
        Some((a.value - b.value, variance / moves, moves, self.at))
    }
}

/// The mean of factors, each of so many moves, its variance with what they differ by, and when the
/// last was measured.
fn mean(all: impl Iterator<Item = (f64, f64, f64, Nanos)>) -> Option<(f64, f64, Nanos)> {
    let (mut n, mut sum, mut squares, mut variance) = (0.0, 0.0, 0.0, 0.0);
    let mut last = None;
    for (ln, v, moves, at) in all {
        n += moves;
        sum += moves * ln;
        squares += moves * ln * ln;
        variance += moves * v;
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

/// What the last moves showed, on logarithms.
#[derive(Clone, Debug)]
struct Moves {
    /// Of what: the core type of a factor, and the one where the model had measured, if this is the
    /// measured factor over the model's.
    of: (usize, Option<usize>),
    /// Each with the square of its uncertainty.
    by: Vec<(f64, f64)>,
    /// Where the next one goes.
    next: usize,
    at: Nanos,
}

impl Moves {
    fn take_in(&mut self, by: (f64, f64)) {
        match self.by.get_mut(self.next) {
            Some(oldest) => *oldest = by,
            None => self.by.push(by),
        }
        self.next = (self.next + 1) % MOVES;
    }

    /// The median, which a move that fell together with a change of phase does not sway, and the
    /// square of its standard uncertainty. The scatter is that which was seen and, as if of two
    /// moves more, that which each was thought to have.
    fn median(&self) -> Option<(f64, f64)> {
        let mut sorted: Vec<f64> = self.by.iter().map(|(by, _)| *by).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let (a, b) = (sorted.get(n.checked_sub(1)? / 2)?, sorted.get(n / 2)?);
        let median = (a + b) / 2.0;
        let squares: f64 = sorted.iter().map(|v| (v - median).powi(2).min(WILD)).sum();
        let thought = self.by.iter().map(|(_, v)| v).sum::<f64>() / n as f64;
        let scatter = (squares + 2.0 * thought) / (n as f64 + 2.0);
        // few that agree may have done so by chance
        let scatter = if n > 4 { scatter } else { scatter.max(thought) };
        // of a median of normal values: π/2 times the variance of a mean, from three on
        let spread = if n > 2 {
            std::f64::consts::FRAC_PI_2
        } else {
            1.0
        };
        Some((median, spread * scatter / n as f64))
    }
}

/// The programs of one name.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    compared: Vec<Compared>,
    moves: Vec<Moves>,
    totals: [Total; MAX_CORE_TYPES],
    /// Logarithms of the speedup and efficiency factors, by core type, over all phases.
    factors: [[Mean; MAX_CORE_TYPES]; 2],
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

    /// Takes in what a move of one of its threads showed.
    pub fn compare(&mut self, m: &Move, slowest: usize, now: Nanos) {
        for c in 0..slowest {
            if let Some((by, variance)) = m.ratio(c, slowest) {
                self.showed((c, None), by, variance, now);
            }
        }
        let place = self.same(m).unwrap_or_else(|| {
            if self.compared.len() >= MOST_PHASES {
                let oldest = (0..self.compared.len()).min_by_key(|i| self.compared[*i].at);
                self.compared.swap_remove(oldest.unwrap_or(0));
            }
            self.compared.push(Compared {
                rates: Default::default(),
                noise: 0.0,
                at: now,
            });
            self.compared.len() - 1
        });
        let c = &mut self.compared[place];
        c.at = now;
        let measured = (0..MAX_CORE_TYPES).filter_map(|t| Some((t, m.on(t)?)));
        for (t, r) in measured {
            c.rates[t].take_in(r.ln, now);
            let k = (1.0 / f64::from(c.rates[t].n)).max(LEAST);
            c.noise += k * (m.variance() - c.noise);
        }
    }

    /// The phase with about these rates, wherever both were measured.
    fn same(&self, m: &Move) -> Option<usize> {
        let distance = |c: &Compared| {
            let known = c.rates.iter().enumerate().filter(|(_, r)| r.n > 0);
            let both = known.filter_map(|(t, r)| Some((r.value - m.on(t)?.ln).abs()));
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
        mean(found.filter_map(|p| p.ratio(c, slowest)))
    }

    /// The factor of core type `c` as measured, for a thread with these rates: of the phases with the
    /// same rate, of all phases, of all that was ever run, whichever there is first.
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
        let near = sides
            .here()
            .and_then(|(t, r)| self.with_rate(t, r.ln, c, slowest));
        if let Some((ln, variance, at)) = near {
            return said(ln, variance, at);
        }
        if let Some((ln, variance, at)) = self.middle((c, None)) {
            return said(ln, variance + PHASE * PHASE, at);
        }
        let (a, b) = (self.totals.get(c)?, self.totals.get(slowest)?);
        // one window may have begun with cold caches
        let rate = |t: &Total| (t.windows > 1.0).then(|| (t.instructions / t.time).ln());
        let variance = a.ln.variance()? + b.ln.variance()? + PHASE * PHASE;
        said(rate(a)? - rate(b)?, variance, a.at.min(b.at))
    }

    /// Forgets what was measured, but not what its threads had on average.
    pub fn unlearn(&mut self) {
        self.compared.clear();
        self.moves.clear();
        self.totals = Default::default();
    }

    /// Takes in that the model's factor of core type `of.0`, measured on `of.1`, was off by `by`,
    /// with this square of its uncertainty, at a move.
    pub fn off(&mut self, of: (usize, usize), by: f64, variance: f64, now: Nanos) {
        self.showed((of.0, Some(of.1)), by, variance, now);
    }

    /// How far the model's factor `of` is off, and the square of the uncertainty of that.
    pub fn bias(&self, of: (usize, usize)) -> Option<(f64, f64)> {
        self.middle((of.0, Some(of.1))).map(|(by, v, _)| (by, v))
    }

    fn showed(&mut self, of: (usize, Option<usize>), by: f64, variance: f64, now: Nanos) {
        match self.moves.iter_mut().find(|m| m.of == of) {
            Some(m) => {
                m.take_in((by, variance));
                m.at = now;
            }
            None => self.moves.push(Moves {
                of,
                by: vec![(by, variance)],
                next: 1,
                at: now,
            }),
        }
    }

    /// Moves that showed the factor of core type `c`, as far as they are remembered.
    pub fn moves(&self, c: usize) -> usize {
        let m = self.moves.iter().find(|m| m.of == (c, None));
        m.map_or(0, |m| m.by.len())
    }

    fn middle(&self, of: (usize, Option<usize>)) -> Option<(f64, f64, Nanos)> {
        let m = self.moves.iter().find(|m| m.of == of)?;
        let (by, variance) = m.median()?;
        Some((by, variance, m.at))
    }

    /// Takes in the logarithm of a factor (0: speedup, 1: efficiency) of a thread that ran.
    pub fn remember(&mut self, which: usize, c: usize, ln: f64, now: Nanos) {
        if let Some(m) = self.factors.get_mut(which).and_then(|f| f.get_mut(c)) {
            m.take_in(ln, now);
        }
    }

    /// What its threads were like: at their moves, where there were some; on average.
    pub fn recall(&self, which: usize, c: usize, now: Nanos) -> Option<Said> {
        let moves = self.middle((c, None)).filter(|_| which == 0);
        if let Some((ln, variance, at)) = moves.filter(|(_, v, _)| *v < PHASE * PHASE) {
            return Some(Said {
                ln,
                variance: variance + PHASE * PHASE,
                age: now.saturating_sub(at),
                quality: Quality::Stale,
            });
        }
        let m = self.factors.get(which)?.get(c).filter(|m| m.n > 0)?;
        Some(Said {
            ln: m.value,
            variance: m.variance + PHASE * PHASE,
            age: now.saturating_sub(m.at),
            quality: Quality::Stale,
        })
    }
}
