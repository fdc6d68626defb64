//! HSP: fast cores to those who gain most from them.

use crate::machine::Placement;
use crate::policy::knobs::{Knob, KnobKind, Knobs};
use crate::policy::ledger::Ledger;
use crate::policy::seats::{Claim, Seats};
use crate::policy::Policy;
use crate::utility::Utility;
use crate::view::View;
use amp_metrics::{CoreTypeId, ThreadKey, MAX_CORE_TYPES};
use std::collections::HashMap;

/// A page about the policy.
pub const HELP: &str = "\
hsp: high speedup first.

Gives fast cores to the threads with the highest application-wide speedup SP = (min(NB,N)/N)(SF-1)+1, N being the
runnable threads of the application now [TR5028 s. 4]; `utility=camp` ranks by the utility factor of CAMP instead. This is the
throughput-optimal placement, and an unfair one: low-speedup applications stay on slow cores.
With several core types each is filled in turn, fastest first, by speedup on that type.

It needs speedup factors. A running mean smooths them, and starts afresh when a value departs from it as at a change of
phase; a thread gives up its seat only to one that is better by more than the hysteresis, so that equals do not change
places. Threads of one application with equal speedups take turns. A thread without a speedup factor is
fair-shared: it gets its weight's share of every core type's time, and no factor is made up for it.
";

const HYSTERESIS: usize = 0;
const SMOOTHING: usize = 1;
const TURN: usize = 2;
const UTILITY: usize = 3;

const KNOBS: &[Knob] = &[
    Knob {
        key: "hysteresis",
        kind: KnobKind::Number {
            unit: "%",
            default: 4.0,
            min: 0.0,
            max: 100.0,
        },
        help: "how much better a speedup must be to take a seat from its holder",
    },
    Knob {
        key: "smoothing",
        kind: KnobKind::Number {
            unit: "intervals",
            default: 16.0,
            min: 1.0,
            max: 1000.0,
        },
        help: "length of the running mean of speedup factors",
    },
    Knob {
        key: "turn",
        kind: KnobKind::Number {
            unit: "ms",
            default: 250.0,
            min: 1.0,
            max: 60_000.0,
        },
        help: "difference in fast-core time at which fair-shared threads change places",
    },
    Knob {
        key: "utility",
        kind: KnobKind::Choice(&["speedup", "camp"]),
        help: "how the gain of an application with many threads is rated",
    },
];

/// A value beyond this ratio to the mean of itself and the running mean is a change of phase [PMCTrack fig. 7].
const PHASE_CHANGE: f64 = 1.12;

/// Fair-share entitlements are remembered up to so many turns.
const MEMORY: f64 = 8.0;

/// Puts threads without a speedup factor before or behind all that have one; logarithms of speedups are far
/// smaller.
const CLASS: f64 = 1e6;

#[derive(Clone, Copy, Debug)]
struct Smoothed {
    mean: f64,
    n: u32,
}

impl Smoothed {
    fn update(&mut self, value: f64, window: f64) {
        let departs = self.mean.max(value) > PHASE_CHANGE * (self.mean + value) / 2.0;
        if self.n == 0 || departs {
            *self = Smoothed { mean: value, n: 1 };
        } else {
            self.n = self.n.saturating_add(1);
            self.mean += (value - self.mean) / f64::from(self.n).min(window);
        }
    }
}

/// What is kept of a thread between decisions.
#[derive(Debug)]
struct State {
    seen: u64,
    /// Speedup factor per core type; none when there has been no honest estimate in this interval.
    sf: [Option<Smoothed>; MAX_CORE_TYPES],
    /// Entitlement minus use per level, in turns; only while there is no speedup factor.
    credit: [f64; MAX_CORE_TYPES],
    /// Whether its turn is on, per level.
    on: [bool; MAX_CORE_TYPES],
    /// Whether its turn being on takes a seat before all who have a factor.
    first: [bool; MAX_CORE_TYPES],
}

impl State {
    /// The smoothed factor on `t`, or that on the fastest type with one: all that ranks it for the types between,
    /// when a source knows the fastest only.
    fn factor(&self, t: CoreTypeId) -> Option<f64> {
        let at = |i: usize| self.sf.get(i).copied().flatten().map(|s| s.mean);
        at(t.index()).or_else(|| (0..t.index()).find_map(at))
    }
}

/// High speedup first [PMCTrack §4.1, TR5028 §4].
#[derive(Debug)]
pub struct Hsp {
    knobs: Knobs,
    states: HashMap<ThreadKey, State>,
    round: u64,
    turns: Ledger<ThreadKey>,
    seats: Seats,
    claims: Vec<[Claim; MAX_CORE_TYPES]>,
    waiting: Vec<(f64, usize)>,
}

impl Hsp {
    /// The policy with default parameters.
    pub fn new() -> Hsp {
        Hsp {
            knobs: Knobs::new("hsp", KNOBS),
            states: HashMap::new(),
            round: 0,
            turns: Ledger::default(),
            seats: Seats::default(),
            claims: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Takes in the interval: factors, entitlements, time used.
    fn observe(&mut self, view: &View<'_>, turn: f64) {
        self.round += 1;
        self.turns.begin();
        let window = self.knobs.number(SMOOTHING);
        let weight: f64 = view.threads.iter().map(|t| f64::from(t.weight)).sum();
        let slowest = view.topology.slowest();
        for th in view.threads {
            let state = self.states.entry(th.key).or_insert_with(|| State {
                seen: 0,
                sf: [None; MAX_CORE_TYPES],
                credit: [0.0; MAX_CORE_TYPES],
                on: [false; MAX_CORE_TYPES],
                first: [false; MAX_CORE_TYPES],
            });
            state.seen = self.round;
            let mut used = [0.0; MAX_CORE_TYPES];
            let mut cpus = 0;
            for t in view.core_types() {
                let k = t.index();
                cpus += view.topology.nr_cpus(t);
                used[k] = th.ran_up_to(t);
                state.sf[k] = if t == slowest {
                    None
                } else {
                    view.speedup_factor(th, t).map(|sf| {
                        let mut s = state.sf[k].unwrap_or(Smoothed { mean: sf, n: 0 });
                        s.update(sf, window);
                        s
                    })
                };
                // Time on the k fastest types that is this thread's by weight.
                let share = (cpus as f64 * f64::from(th.weight) / weight).min(1.0);
                let due = view.interval.as_secs_f64() * share - used[k];
                state.credit[k] = (state.credit[k] + due / turn).clamp(-MEMORY, MEMORY);
                if state.credit[k] >= 0.5 {
                    state.on[k] = true;
                } else if state.credit[k] <= -0.5 {
                    state.on[k] = false;
                }
            }
            if state.factor(CoreTypeId(MAX_CORE_TYPES as u8 - 1)).is_some() {
                state.credit = [0.0; MAX_CORE_TYPES];
                state.on = [false; MAX_CORE_TYPES];
            }
            self.turns.charge(th.key, &used);
        }
        self.turns.settle(MEMORY * turn);
        if self.states.len() > view.threads.len() {
            let round = self.round;
            // A thread that rests keeps its state for a while.
            self.states.retain(|_, s| s.seen + 100 > round);
        }
    }

    /// Lets those without a factor whose turn is on go first, but no more of them at a time than they are owed seats
    /// together, so that they do not all push out the highest speedups at once.
    fn let_go_first(&mut self, view: &View<'_>) {
        let weight: f64 = view.threads.iter().map(|t| f64::from(t.weight)).sum();
        let mut cpus = 0;
        for t in view.core_types() {
            let k = t.index();
            cpus += view.topology.nr_cpus(t);
            let mut owed = 0.0;
            self.waiting.clear();
            for (i, th) in view.threads.iter().enumerate() {
                let Some(state) = self.states.get_mut(&th.key) else {
                    continue;
                };
                let held = std::mem::take(&mut state.first[k]) && th.holds(t);
                if state.factor(t).is_none() {
                    owed += (cpus as f64 * f64::from(th.weight) / weight).min(1.0);
                    if state.on[k] {
                        let bonus = if held { 1.0 } else { 0.0 };
                        self.waiting.push((state.credit[k] + bonus, i));
                    }
                }
            }
            self.waiting
                .sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            // A sum of shares that is whole up to rounding is that whole number.
            let seats = (owed - 1e-9).ceil().max(0.0) as usize;
            for (_, i) in self.waiting.iter().take(seats) {
                if let Some(state) = self.states.get_mut(&view.threads[*i].key) {
                    state.first[k] = true;
                }
            }
        }
    }

    /// The claims of every thread to every type.
    fn claim(&mut self, view: &View<'_>) {
        let rule = match self.knobs.choice(UTILITY) {
            "camp" => Utility::Camp,
            _ => Utility::Speedup,
        };
        let hysteresis = (1.0 + self.knobs.number(HYSTERESIS) / 100.0).ln();
        let states = &self.states;
        self.claims.clear();
        self.claims.extend(view.threads.iter().map(|th| {
            let mut claims = [Claim {
                strength: 0.0,
                bonus: 0.0,
            }; MAX_CORE_TYPES];
            let Some(state) = states.get(&th.key) else {
                return claims;
            };
            for t in view.core_types() {
                let k = t.index();
                claims[k] = match state.factor(t) {
                    Some(sf) => Claim {
                        strength: view.utility(th, t, sf, rule).max(f64::MIN_POSITIVE).ln(),
                        bonus: hysteresis,
                    },
                    None => {
                        let class = if state.first[k] { CLASS } else { -CLASS };
                        Claim {
                            strength: class + state.credit[k],
                            bonus: 1.0,
                        }
                    }
                };
            }
            claims
        }));
    }
}

impl Default for Hsp {
    fn default() -> Self {
        Hsp::new()
    }
}

impl Policy for Hsp {
    fn name(&self) -> &'static str {
        "hsp"
    }

    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        let turn = self.knobs.number(TURN) / 1e3;
        self.observe(view, turn);
        self.let_go_first(view);
        self.claim(view);
        let claims = &self.claims;
        self.seats.assign(view, &mut |i, t| claims[i][t.index()]);
        self.seats.take_turns(view, &self.turns, turn, &|a, b| {
            let (a, b) = (claims[a][0], claims[b][0]);
            (a.strength - b.strength).abs() <= a.bonus.min(b.bonus)
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
