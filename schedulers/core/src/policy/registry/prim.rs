//! PRIM: random pairs, swapped where the rules see a gain.

pub mod rules;

pub use rules::{Rules, RulesError};

use crate::machine::Placement;
use crate::policy::contract::{Entry, Policy};
use crate::policy::knobs::{Knob, KnobKind, Knobs};
use crate::policy::seats::{Claim, Seats};
use crate::policy::smooth::Smoothed;
use crate::policy::threads::PerThread;
use crate::policy::turns::Turns;
use crate::view::{ThreadView, View};
use amp_metrics::{CoreTypeId, MetricId, MAX_CORE_TYPES};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rules::Pair;

/// How the policy is registered.
pub const ENTRY: Entry = Entry {
    name: "prim",
    summary: "energy or throughput, by rules on random pairs of threads",
    needs: "EF or SF",
    help: HELP,
    max_core_types: MAX_CORE_TYPES,
    uses_metrics: true,
    takes_turns: false,
    make: |seed| Box::new(Prim::new(seed)),
};

/// A page about the policy.
const HELP: &str = "\
prim: rule-guided random pairs.

A new thread starts on a core type chosen at random, load kept balanced. Every interval so many
random pairs of a thread on a faster and one on a slower core type are looked at, and swapped when a
platform's rules over their metrics say that it pays [PRIM]. The rules are data (`prim/*.toml`): any
rule, all of its conditions, on ef_big, ef_small, ef_gain, sf_big, sf_small, sf_gain. The rules of
the original are not available; `energy` states what they approximate on efficiency factors,
`throughput` does the same on speedup factors.

As the rules see no more than a pair, and pairs are random, the best placement is found slowly or
not at all: a baseline for ef. The same seed gives the same pairs. A running mean smooths the
factors. A thread without those that the rules need is fair-shared: it gets its weight's share of
every core type's time. With several core types a pair is of any two of them; the factors are those
of the faster over the slower.
";

const PAIRS: usize = 0;
const RULES: usize = 1;
const SMOOTHING: usize = 2;

const KNOBS: &[Knob] = &[
    Knob {
        key: "pairs",
        kind: KnobKind::Auto {
            unit: "per interval",
            min: 0.0,
            max: 10_000.0,
        },
        help: "pairs that are looked at; auto: one per fast CPU",
    },
    Knob {
        key: "rules",
        kind: KnobKind::Choice(&["energy", "throughput"]),
        help: "the rule set",
    },
    Knob::smoothing(16.0, "length of the running mean of factors"),
];

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Its lot, drawn when it came: decides who is seated first.
    lot: f64,
    ef: [Smoothed; MAX_CORE_TYPES],
    sf: [Smoothed; MAX_CORE_TYPES],
}

/// What is known of a thread of the view now.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Per core type over the slowest.
    ef: Option<[f64; MAX_CORE_TYPES]>,
    sf: Option<[f64; MAX_CORE_TYPES]>,
}

/// Rule-guided random pairs \[PRIM\].
#[derive(Debug)]
pub struct Prim {
    knobs: Knobs,
    /// Rule sets by the index of the `rules` knob; a single one when the user brought it.
    rules: Vec<Rules>,
    random: SmallRng,
    states: PerThread<State>,
    turns: Turns,
    seats: Seats,
    /// Per thread of the view.
    known: Vec<Option<Known>>,
    lots: Vec<f64>,
    /// Where each is once the swaps are done.
    placed: Vec<Option<CoreTypeId>>,
    /// Threads that may be paired.
    candidates: Vec<usize>,
}

impl Prim {
    /// The policy with default parameters.
    pub fn new(seed: u64) -> Prim {
        // Both texts are part of the program and parsed by a test; without rules nothing would be
        // swapped.
        let rules = [
            include_str!("prim/energy.toml"),
            include_str!("prim/throughput.toml"),
        ];
        let rules = rules.map(|text| Rules::parse(text).unwrap_or_default());
        Prim::of(rules.into(), seed)
    }

    /// The policy with a platform's own rules; the knob `rules` has no effect.
    pub fn with_rules(rules: Rules, seed: u64) -> Prim {
        Prim::of(vec![rules], seed)
    }

    fn of(rules: Vec<Rules>, seed: u64) -> Prim {
        Prim {
            knobs: Knobs::new(ENTRY.name, KNOBS),
            rules,
            random: SmallRng::seed_from_u64(seed),
            states: PerThread::default(),
            turns: Turns::default(),
            seats: Seats::default(),
            known: Vec::new(),
            lots: Vec::new(),
            placed: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// The rule set in force.
    fn in_force(&self) -> usize {
        (self.knobs.number(RULES) as usize).min(self.rules.len().saturating_sub(1))
    }

    /// Takes in the interval.
    fn rate(&mut self, view: &View<'_>) {
        let window = self.knobs.number(SMOOTHING);
        let needs = match self.rules.get(self.in_force()) {
            Some(r) => r.needs(),
            None => (false, false),
        };
        self.states.begin();
        self.known.clear();
        self.lots.clear();
        self.placed.clear();
        for th in view.threads {
            let random = &mut self.random;
            let (_, s) = self.states.enter(th.key, th.succeeds, || State {
                lot: random.random(),
                ..State::default()
            });
            let ef = needs
                .0
                .then(|| smoothed(view, th, &mut s.ef, window, Factor::Efficiency));
            let sf = needs
                .1
                .then(|| smoothed(view, th, &mut s.sf, window, Factor::Speedup));
            let missing = matches!(ef, Some(None)) || matches!(sf, Some(None));
            self.known.push((!missing).then_some(Known {
                ef: ef.flatten(),
                sf: sf.flatten(),
            }));
            self.lots.push(s.lot);
            self.placed.push(th.placed);
        }
    }

    /// Looks at random pairs.
    fn pair_up(&mut self, view: &View<'_>) {
        let slowest = view.topology.slowest();
        // Those on the slowest type last: the first of a pair is drawn from the others.
        self.candidates.clear();
        let mut faster = 0;
        for last in [false, true] {
            for (i, th) in view.threads.iter().enumerate() {
                let here = th
                    .placed
                    .is_some_and(|p| p <= slowest && (p == slowest) == last);
                if here && self.known[i].is_some() {
                    self.candidates.push(i);
                }
            }
            if !last {
                faster = self.candidates.len();
            }
        }
        let n = self.candidates.len();
        let fast: usize = view
            .core_types()
            .filter(|t| *t != slowest)
            .map(|t| view.nr_seats(t))
            .sum();
        let pairs = self.knobs.chosen(PAIRS).unwrap_or(fast as f64) as usize;
        if faster == 0 {
            return;
        }
        for _ in 0..pairs {
            let a = self.candidates[self.random.random_range(0..faster)];
            let b = self.candidates[self.random.random_range(0..n)];
            let (Some(ta), Some(tb)) = (self.placed[a], self.placed[b]) else {
                continue;
            };
            let ((big, fast), (small, slow)) = match ta.cmp(&tb) {
                std::cmp::Ordering::Less => ((a, ta), (b, tb)),
                std::cmp::Ordering::Greater => ((b, tb), (a, ta)),
                std::cmp::Ordering::Equal => continue,
            };
            let free = view.threads[big].allowed.contains(slow)
                && view.threads[small].allowed.contains(fast);
            let (Some(k_big), Some(k_small)) = (self.known[big], self.known[small]) else {
                continue;
            };
            let between = |b: Option<[f64; MAX_CORE_TYPES]>, s: Option<[f64; MAX_CORE_TYPES]>| {
                let over = |f: [f64; MAX_CORE_TYPES]| f[fast.index()] / f[slow.index()];
                Some((over(b?), over(s?)))
            };
            let pair = Pair {
                ef: between(k_big.ef, k_small.ef),
                sf: between(k_big.sf, k_small.sf),
            };
            let rules = self.rules.get(self.in_force());
            if free && rules.is_some_and(|r| r.swap(&pair)) {
                self.placed.swap(big, small);
                // the lots change hands with the seats
                self.lots.swap(big, small);
                for i in [big, small] {
                    if let Some(s) = self.states.get_mut(view.threads[i].key) {
                        s.lot = self.lots[i];
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Factor {
    Efficiency,
    Speedup,
}

/// The factors per core type over the slowest; `None` unless there is one for every type but that.
fn smoothed(
    view: &View<'_>,
    th: &ThreadView,
    means: &mut [Smoothed; MAX_CORE_TYPES],
    window: f64,
    factor: Factor,
) -> Option<[f64; MAX_CORE_TYPES]> {
    let mut all = [1.0; MAX_CORE_TYPES];
    let slowest = view.topology.slowest();
    for t in view.core_types().filter(|t| *t != slowest) {
        let value = match factor {
            Factor::Efficiency => view.estimate(th, MetricId::EfficiencyFactor(t))?.value,
            Factor::Speedup => view.speedup_factor(th, t)?,
        };
        all[t.index()] = means[t.index()].update(value, window);
    }
    Some(all)
}

impl Policy for Prim {
    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        const TURN: f64 = 0.25; // seconds, of threads that are fair-shared
        self.rate(view);
        let known = &self.known;
        self.turns.update(view, TURN, &|i| known[i].is_some());
        self.pair_up(view);
        let (turns, placed, lots) = (&self.turns, &self.placed, &self.lots);
        self.seats.assign(view, &mut |i, t| {
            turns.claim(i, t).unwrap_or_else(|| {
                // who has a seat keeps it, swaps included; free ones go by lot
                let holds = placed[i].is_some_and(|p| p <= t);
                Claim {
                    strength: lots[i] + if holds { 2.0 } else { 0.0 },
                    bonus: 0.0,
                }
            })
        });
        self.seats.write(view, out);
    }

    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_that_come_along_are_sound() {
        let p = Prim::new(1);
        assert_eq!(p.rules.len(), 2);
        assert_eq!(p.rules[0].needs(), (true, false));
        assert_eq!(p.rules[1].needs(), (false, true));
    }
}
