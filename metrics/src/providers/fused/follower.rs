//! One thread, window by window.

use super::filter::{Factor, Filter, TRIALS};
use super::noise::{FAR, UNIT_NS};
use super::program::{Program, Trying, POPULATION};
use super::PHASE;
use crate::ids::{Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::multiplex::PHASE_STEP;

/// A departure of the logarithm of the rate by [`PHASE_STEP`] makes another phase when it lasts for two portions. It must be
/// unlikely, too: this many standard deviations.
const UNLIKELY: f64 = 3.0;
/// Standard deviations within which a program did what was expected of it at a move.
const STEADY: f64 = 2.0;
/// Standard deviation of the logarithm of the factor between two phases, for one by which the rate's differs: what does so much
/// less or more of its work is hardly the same work. Of [`PHASE`] alone, a hash table that was followed by a list of pointers had the
/// factor of the one for as long as it did the other.
const SHIFT: f64 = 0.5;
/// By how much the level of another phase may differ.
const OTHER: f64 = 0.5;
/// Time that is put together before it is worth a look, in units: of a program that does two things by turns, a quarter of an
/// interval shows one of them.
const PORTION: f64 = 0.5;
/// Time until what was put together is too old, in units.
const OLD: f64 = 10.0;
/// What coming to another core type costs until the caches are warm, in units, and its standard deviation.
const COLD: (f64, f64) = (0.015, 0.02);
/// A first window shorter than this shows how a program is loaded.
const START: f64 = 0.5;
/// Standard deviation of what else may come together with a move.
const ASIDE: f64 = 0.07;
/// Units of time from which on a portion shows how much rates vary.
const WHOLE: f64 = 0.75;

/// Moves in a phase of which not all can have come together with a change of what the program does.
const TO_AND_FRO: u32 = 2;
/// Units of time after which a program has begun: it loads what it works on first.
const BEGUN: f64 = 10.0;
/// Units of time after which a move may show something, where nothing better is known: most have loaded by then.
pub const EARLY: f64 = 4.0;

/// What is put together on a core type until it is a portion.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Instructions, as if alone.
    work: f64,
    /// Units of time.
    units: f64,
    /// Times that the thread came from elsewhere meanwhile.
    arrivals: f64,
    /// Squared standard uncertainty of what neighbours may have cost, times units.
    doubt: f64,
    at: Nanos,
}

/// What was seen on a core type since the thread came to it.
#[derive(Clone, Debug, Default)]
struct Stay {
    on: Option<usize>,
    /// Units of time that were counted.
    units: f64,
}

/// What is known of a thread.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    filter: Filter,
    stay: Stay,
    parts: [Part; MAX_CORE_TYPES],
    /// Core type of the last portion, and the logarithms of the last whole ones there in this phase, the latest last.
    last: Option<usize>,
    rates: Vec<f64>,
    /// Core types that were met in the present phase.
    met: [bool; MAX_CORE_TYPES],
    /// The phase, as the program remembers it.
    known_as: Option<u32>,
    /// A portion that departed, by so much: the next one shows whether it was an outlier.
    held: Option<f64>,
    /// When the filter was brought to, and whether a window was seen.
    at: Nanos,
    started: bool,
    /// Squared standard uncertainty of what neighbours may have cost, by core type.
    doubt: [f64; MAX_CORE_TYPES],
    /// Number of the phase, and when it began.
    pub phase: (u32, Nanos),
    /// Units of time that were counted in all.
    pub units: f64,
    /// Moves in this phase, those left out by which a program got its first seats.
    moves: u32,
    /// The same with those after [`EARLY`].
    early_moves: u32,
}

/// A window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Core type.
    pub on: usize,
    /// Logarithm of the rate: instructions per nanosecond of CPU time, as if alone.
    pub ln: f64,
    /// CPU time that was counted, in ns.
    pub time: f64,
    /// Squared standard uncertainty of what neighbours may have cost.
    pub doubt: f64,
    /// When it ended.
    pub at: Nanos,
}

impl Follower {
    /// A thread of `program` that is about to be seen for the first time; `since` is when the program began.
    /// `modelled`: whether there is a model to be heard.
    pub fn new(program: &Program, slowest: usize, modelled: bool, since: Nanos) -> Follower {
        Follower {
            filter: program.filter(slowest, modelled),
            stay: Stay::default(),
            parts: Default::default(),
            last: None,
            rates: Vec::with_capacity(FAR),
            met: [false; MAX_CORE_TYPES],
            known_as: None,
            held: None,
            at: since,
            started: false,
            doubt: [0.0; MAX_CORE_TYPES],
            phase: (0, since),
            units: 0.0,
            moves: 0,
            early_moves: 0,
        }
    }

    /// Takes in a window.
    pub fn take_in(&mut self, w: &Window, key: ThreadKey, program: &mut Program) {
        let units = w.time / UNIT_NS;
        let arrived = self.stay.on != Some(w.on);
        if arrived {
            self.stay = Stay {
                on: Some(w.on),
                units: 0.0,
            };
        }
        self.stay.units += units;
        self.units += units;
        let first = !std::mem::replace(&mut self.started, true);
        let Some(part) = self.parts.get_mut(w.on) else {
            return;
        };
        if first && units < START {
            return;
        }
        if w.at.saturating_sub(part.at).0 as f64 > OLD * UNIT_NS {
            *part = Part::default();
        }
        part.work += w.ln.exp() * w.time;
        part.units += units;
        part.arrivals += f64::from(u8::from(arrived));
        part.doubt += w.doubt * units;
        part.at = w.at;
        if part.units < PORTION {
            return;
        }
        let whole = std::mem::replace(
            part,
            Part {
                at: w.at,
                ..Part::default()
            },
        );
        self.portion(w.on, &whole, key, program);
    }

    /// Takes in a portion.
    fn portion(&mut self, on: usize, p: &Part, key: ThreadKey, program: &mut Program) {
        let noise = program.noise;
        let (lost, spread) = (COLD.0 * p.arrivals, COLD.1 * p.arrivals / p.units);
        let ln = (p.work / ((p.units - lost).max(p.units / 2.0) * UNIT_NS)).ln();
        if let (None, Some(known)) = (self.last, program.like(on, ln)) {
            self.filter = Filter::new(&known, &noise, self.filter.known_biases().as_ref());
        }
        let passed = p.at.saturating_sub(self.at).0 as f64 / UNIT_NS;
        self.at = p.at;
        self.filter
            .pass(passed.max(p.units), &noise, program.steady);
        let variance = noise.white() / p.units.min(1.0) + spread * spread;
        let from = self.last.filter(|from| *from != on);
        let moved = from.is_some();
        if let Some(from) = from {
            let neighbours = match self.was_told() {
                true => self.doubt[from] + p.doubt / p.units,
                false => 0.0,
            };
            self.filter.doubt_level(ASIDE * ASIDE + neighbours);
            self.rates.clear();
        }
        let (expected, own) = self.filter.expected(on);
        let d = ln - expected;
        let unlikely = d * d > UNLIKELY * UNLIKELY * (own + variance);
        if moved {
            let as_expected = d * d <= STEADY * STEADY * (own + variance);
            program.steady = match as_expected && (program.moves > 0 || self.was_told()) {
                true => program.steady.saturating_add(1),
                false => 0,
            };
        }
        let untried = self.was_told() && program.moves <= TRIALS;
        if let Some(from) = from.filter(|_| unlikely || untried) {
            // another factor, or something else came together with the move: nobody knows which. A model that nobody has tried
            // may be wrong, whatever it states
            let excess = (d * d - own - variance).max(0.0);
            let moved = program.moves;
            self.filter
                .doubt((from, on), (excess, unlikely), ASIDE * ASIDE, moved);
        }
        if self.last == Some(on) && d.abs() > PHASE_STEP && unlikely {
            if !self.held.is_some_and(|held| held * d > 0.0) {
                self.held = Some(d);
                return;
            }
            self.another_phase(on, (ln, d), p.at, program);
        }
        self.held = None;
        self.last = Some(on);
        self.filter.take_in(on, ln, variance);
        self.doubt[on] = p.doubt / p.units;
        self.met[on] = true;
        program.portion(on, ln, p.at);
        if p.units >= WHOLE {
            self.compare(ln, program);
        }
        if self.was_compared() {
            program.moves = program.moves.saturating_add(u32::from(moved));
            if moved && self.units >= EARLY {
                let begun = self.units >= BEGUN;
                self.early_moves = self.early_moves.saturating_add(1);
                self.moves = self.moves.saturating_add(u32::from(begun));
                program.trying = Some(Trying {
                    by: key,
                    at: p.at,
                    begun,
                });
            }
            program.tried |= self.moves >= TO_AND_FRO;
            program.tried_early |= self.early_moves >= TO_AND_FRO;
            let factors = (0..).map_while(|c| self.filter.factor(c)).collect();
            let what = (self.filter.level(), factors);
            self.known_as = Some(program.learn((key, self.known_as), what, p.units, p.at));
            program.is_off(key, self.filter.known_biases());
        }
    }

    /// Takes in what a model says of the factor of core type `c`, heard from core type `on`.
    pub fn hear(&mut self, c: usize, on: usize, said: Factor, program: &Program) {
        // what it does now is perhaps another phase
        if self.held.is_none() {
            self.filter.hear(c, on, said, program.moves >= TRIALS);
        }
    }

    /// Whether a model was heard.
    pub fn was_told(&self) -> bool {
        (0..MAX_CORE_TYPES).any(|c| self.filter.was_told(c))
    }

    /// It does something else since the portion before this one: as known of phases with this rate, or nobody knows. `d` is
    /// by how much the rate's logarithm has changed.
    fn another_phase(&mut self, on: usize, (ln, d): (f64, f64), at: Nanos, program: &Program) {
        self.filter.doubt_level(OTHER * OTHER);
        match program.like(on, ln) {
            Some(known) => {
                for (c, factor) in known.into_iter().enumerate() {
                    self.filter.set_factor(c, factor);
                }
                self.filter.doubt_biases();
            }
            None => {
                let other = (SHIFT * d.abs()).min(POPULATION.1);
                self.filter.doubt_factors(PHASE * PHASE + other * other);
            }
        }
        self.phase = (self.phase.0.wrapping_add(1), at);
        self.known_as = None;
        self.met = [false; MAX_CORE_TYPES];
        (self.moves, self.early_moves) = (0, 0);
        self.rates.clear();
    }

    /// How much the rates of the program vary.
    fn compare(&mut self, ln: f64, program: &mut Program) {
        if let Some(last) = self.rates.last() {
            program.noise.near(ln - last);
        }
        if self.rates.len() == FAR {
            program.noise.far(ln - self.rates.remove(0));
        }
        self.rates.push(ln);
    }

    /// The factor of core type `c`.
    pub fn factor(&self, c: usize, slowest: usize) -> Option<Factor> {
        let (ln, variance) = self.filter.factor(c)?;
        if self.filter.was_told(c) {
            // a model's factor does not rest on rates, and what neighbours cost was part of what the filter compared
            return Some((ln, variance));
        }
        let doubt = |t: usize| self.doubt.get(t).copied().unwrap_or(0.0);
        Some((ln, variance + doubt(c) + doubt(slowest)))
    }

    /// Where it ran last, and for how many units of time since it came there.
    pub fn here(&self) -> Option<(usize, f64)> {
        Some((self.stay.on?, self.stay.units))
    }

    /// Whether it was on more than one core type in this phase.
    pub fn was_compared(&self) -> bool {
        self.met.iter().filter(|m| **m).count() > 1
    }

    /// What was measured was measured beside neighbours whose cost is known only now.
    pub fn unlearn(&mut self, program: &Program, slowest: usize) {
        self.filter = program.filter(slowest, self.filter.known_biases().is_some());
        self.parts = Default::default();
        self.known_as = None;
        self.held = None;
        self.met = [false; MAX_CORE_TYPES];
        (self.moves, self.early_moves) = (0, 0);
    }
}
