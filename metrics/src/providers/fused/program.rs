//! What is known of the programs of one name.

use super::filter::{Biases, Factor, Filter};
use super::noise::Noise;
use super::PHASE;
use crate::estimate::Estimate;
use crate::ids::{Nanos, ThreadKey, MAX_CORE_TYPES};

/// Phases of a program that are remembered.
const MOST_PHASES: usize = 8;
/// Difference of the logarithms of two rates up to which they are of the same phase.
const SAME: f64 = 0.12;
/// Mean and standard deviation of the logarithms of the factors of programs: what is assumed of one that
/// nobody has seen on two core types. It is no estimate.
pub(super) const POPULATION: (f64, f64) = (1.0, 0.5);
/// Portions after which means begin to fade.
const PORTIONS: f64 = 64.0;
/// Portions from which on a mean is worth something.
const ENOUGH: f64 = 2.0;
/// Standard deviation of what a thread does around what others of its name did, beside the scatter of that.
const OTHERS: f64 = 0.2;

/// A phase in which the program was seen on more than one core type.
#[derive(Clone, Debug)]
struct Known {
    id: u32,
    /// Logarithm of the rate on the slowest core type.
    level: f64,
    factors: Vec<Factor>,
    /// Time spent in it, in units.
    units: f64,
    /// Who knows it best.
    by: ThreadKey,
    at: Nanos,
}

/// The logarithms of the rates of all threads of the name on one core type.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    ln: f64,
    variance: f64,
    portions: f64,
}

/// A thread that has moved once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trying {
    /// The thread.
    pub by: ThreadKey,
    /// When that was seen.
    pub at: Nanos,
    /// Whether its program had begun by then: before, it may load what it works on.
    pub begun: bool,
}

/// The programs of one name.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    /// How their rates vary.
    pub noise: Noise,
    /// Moves within a phase.
    pub moves: u32,
    /// Moves in a row at which it did what was expected.
    pub steady: u32,
    /// Whether a thread of it moved to and fro in a phase after it had begun.
    pub tried: bool,
    /// Whether one did sooner than that, when most programs have loaded what they work on.
    pub tried_early: bool,
    /// Who is being tried.
    pub trying: Option<Trying>,
    /// Whether an earlier run of the scheduler, which is remembered, has tried it on a core type.
    pub tried_before: [bool; MAX_CORE_TYPES],
    phases: Vec<Known>,
    /// What an earlier run of the scheduler remembers, by core type.
    expected: [Option<Factor>; MAX_CORE_TYPES],
    /// What a model is off by, and who knows that best.
    biases: Option<(ThreadKey, Biases)>,
    /// The speedup and efficiency factors, by core type, as the last of its threads had them by a model.
    pub told: [[Option<Factor>; MAX_CORE_TYPES]; 2],
    next: u32,
    totals: [Total; MAX_CORE_TYPES],
    /// When one of its threads was counted last.
    at: Nanos,
}

/// The mean of factors with the variance of what they differ by, each of so much weight.
fn mean<'a>(all: impl Iterator<Item = (&'a Vec<Factor>, f64)> + Clone) -> Option<Vec<Factor>> {
    let types = all.clone().next()?.0.len();
    let of = |c: usize| {
        let (mut n, mut sum, mut squares, mut variance) = (0.0, 0.0, 0.0, 0.0);
        for (factors, weight) in all.clone() {
            let (ln, v) = factors.get(c)?;
            n += weight;
            sum += weight * ln;
            squares += weight * ln * ln;
            variance += weight * v;
        }
        let spread = (squares / n - (sum / n) * (sum / n)).max(0.0);
        Some((sum / n, spread + variance / n))
    };
    (0..types).map(of).collect()
}

impl Program {
    /// Takes in the logarithm of a rate on core type `t`.
    pub fn portion(&mut self, t: usize, ln: f64, now: Nanos) {
        let Some(total) = self.totals.get_mut(t) else {
            return;
        };
        total.portions = (total.portions + 1.0).min(PORTIONS);
        let (k, d) = (1.0 / total.portions, ln - total.ln);
        total.ln += k * d;
        total.variance = (1.0 - k) * (total.variance + k * d * d);
        self.at = now;
    }

    /// What is expected of a thread of the program that nobody has seen yet: factors as others of its name had them, and
    /// rates somewhat like theirs. So programs that were on one core type each are compared, too.
    /// `modelled`: whether there is a model to be heard.
    pub fn filter(&self, slowest: usize, modelled: bool) -> Filter {
        let unheard = modelled.then(|| Biases::unheard(slowest));
        let biases = self.biases.as_ref().map(|(_, b)| b).or(unheard.as_ref());
        let mut filter = Filter::new(&self.prior(slowest), &self.noise, biases);
        for (t, total) in self.totals.iter().enumerate().take(slowest + 1) {
            if total.portions >= ENOUGH {
                filter.take_in(t, total.ln, total.variance + OTHERS * OTHERS);
            }
        }
        filter
    }

    /// What factors a thread of the program may have, of which nothing is known: by core type but for the
    /// slowest.
    fn prior(&self, slowest: usize) -> Vec<Factor> {
        let nobody = (POPULATION.0, POPULATION.1 * POPULATION.1);
        let expected = self.expected.iter().take(slowest);
        self.overall().map_or_else(
            || expected.map(|e| e.unwrap_or(nobody)).collect(),
            |mut all| {
                all.iter_mut().for_each(|(_, v)| *v += PHASE * PHASE);
                all
            },
        )
    }

    /// Takes in what an earlier run remembers of the factor of core type `c`, or that it is forgotten; whether that changes
    /// anything.
    pub fn expect(&mut self, c: usize, remembered: Option<Estimate>) -> bool {
        let factor = remembered.and_then(|e| {
            let relative = e.uncertainty? / e.value;
            let factor = (e.value.ln(), relative * relative);
            let sound = factor.0.is_finite() && factor.1.is_finite() && factor.1 > 0.0;
            sound.then_some(factor)
        });
        let place = self.expected.get_mut(c);
        place.is_some_and(|place| std::mem::replace(place, factor) != factor)
    }

    /// Whether an earlier run remembers the factor of core type `c`.
    pub fn is_expected(&self, c: usize) -> bool {
        self.expected.get(c).is_some_and(Option::is_some)
    }

    /// Its factors over all phases, with the variance of what those differ by.
    fn overall(&self) -> Option<Vec<Factor>> {
        mean(self.phases.iter().map(|p| (&p.factors, p.units)))
    }

    /// Whether it was counted on two core types.
    pub fn is_measured(&self) -> bool {
        let counted = self.totals.iter().filter(|t| t.portions >= ENOUGH);
        self.moves > 0 || counted.count() > 1
    }

    /// When one of its threads was counted last: no comparison need have been made then.
    pub fn measured_at(&self) -> Nanos {
        self.at
    }

    /// The factors in the phases that have about this rate on core type `t`.
    pub fn like(&self, t: usize, ln: f64) -> Option<Vec<Factor>> {
        let near = |p: &&Known| {
            let there = p.level + p.factors.get(t).map_or(0.0, |(f, _)| *f);
            (there - ln).abs() <= SAME
        };
        mean(self.phases.iter().filter(near).map(|p| (&p.factors, 1.0)))
    }

    /// Takes in what `by` knows of the phase that it is in: the `phase` that was answered before, or another one with
    /// this level and these factors, or a new one. The phase.
    pub fn learn(
        &mut self,
        (by, phase): (ThreadKey, Option<u32>),
        (level, factors): (f64, Vec<Factor>),
        units: f64,
        now: Nanos,
    ) -> u32 {
        let own = |p: &Known| Some(p.id) == phase;
        let alike = |p: &Known| {
            (p.level - level).abs() <= SAME
                && p.factors
                    .iter()
                    .zip(&factors)
                    .all(|((a, va), (b, vb))| (a - b).powi(2) <= SAME * SAME + 4.0 * (va + vb))
        };
        let place =
            (self.phases.iter().position(own)).or_else(|| self.phases.iter().position(alike));
        if let Some(p) = place.and_then(|i| self.phases.get_mut(i)) {
            p.units += units;
            let surer = |a: &[Factor], b: &[Factor]| {
                a.iter().map(|(_, v)| v).sum::<f64>() <= b.iter().map(|(_, v)| v).sum()
            };
            if p.by == by || surer(&factors, &p.factors) {
                (p.by, p.level, p.factors, p.at) = (by, level, factors, now);
            }
            return p.id;
        }
        if self.phases.len() >= MOST_PHASES {
            let oldest = (0..self.phases.len()).min_by_key(|i| self.phases[*i].at);
            self.phases.swap_remove(oldest.unwrap_or(0));
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.phases.push(Known {
            id,
            level,
            factors,
            units,
            by,
            at: now,
        });
        id
    }

    /// Takes in what `by` knows of the model's biases.
    pub fn is_off(&mut self, by: ThreadKey, biases: Option<Biases>) {
        let Some(biases) = biases else {
            return;
        };
        let (heard, doubt) = biases.doubt();
        let surer = self.biases.as_ref().is_none_or(|(known, b)| {
            let (before, doubted) = b.doubt();
            *known == by || heard > before || heard == before && doubt <= doubted
        });
        if surer {
            self.biases = Some((by, biases));
        }
    }

    /// Forgets what was measured.
    pub fn unlearn(&mut self) {
        self.phases.clear();
        self.biases = None;
        self.totals = Default::default();
        self.moves = 0;
        self.steady = 0;
        (self.tried, self.tried_early) = (false, false);
        self.trying = None;
    }
}
