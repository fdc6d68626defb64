//! HSP: fast cores to those who gain most from them.

use crate::machine::Placement;
use crate::policy::contention::Contention;
use crate::policy::contract::{Entry, Policy};
use crate::policy::exchange::Exchange;
use crate::policy::knobs::{Knob, KnobKind, Knobs};
use crate::policy::ledger::Ledger;
use crate::policy::seats::{Claim, Seats};
use crate::policy::smooth::Smoothed;
use crate::policy::speedups;
use crate::policy::threads::PerThread;
use crate::policy::turns::Turns;
use crate::view::View;
use amp_metrics::{CoreTypeId, ThreadKey, MAX_CORE_TYPES};

/// How the policy is registered.
pub const ENTRY: Entry = Entry {
    name: "hsp",
    summary: "throughput: fast cores to the highest speedup factors",
    needs: "SF",
    help: HELP,
    max_core_types: MAX_CORE_TYPES,
    uses_metrics: true,
    takes_turns: false,
    make: |_| Box::new(Hsp::new()),
};

/// A page about the policy.
const HELP: &str = "\
hsp: high speedup first.

Gives fast cores to the threads for which a fast core adds most: (SP-1)/min(NB,N), SP =
(min(NB,N)/N)(SF-1)+1 being the application-wide speedup and N its runnable threads now [TR5028
s. 4]. For an application of one thread that is SF-1. `utility=camp` ranks by the utility factor of
CAMP instead, `utility=barrier` takes it that threads wait for the slowest (SP = 1 unless N <= NB). The default,
`auto`, measures how much of its time on fast cores a thread waits for its siblings on slow ones, and
takes that off SF.
This is the throughput-optimal placement where threads of one application do not wait for each
other, and an unfair one: low-speedup applications stay on slow cores. With several core types each
is filled in turn, fastest first, by speedup on that type; then threads change places round the types
as long as the sum of their speedups grows by more than the hysteresis. So a thread that does nearly
as well on the next type leaves the fastest one to a thread that does not. Only threads with a
speedup factor on every type but the slowest take part.

Where the provider knows what programs cost each other (`fused` learns it), threads that slow each
other down are put apart when that makes the sum of speeds grow by more than the hysteresis. This is
our own; no published policy has it.

It needs speedup factors. A running mean smooths them, and starts afresh when a value departs from
it as at a change of phase; a thread gives up its seat only to one that is better by more than the
hysteresis, so that equals do not change places. With `caution` it must be better by so many standard
uncertainties of the difference, too. That is 0 unless you say otherwise: of two that are hard to tell
apart the one with the higher estimate is the right one more often than not, and whoever sat first is
as likely wrong as right. Threads of one application with equal speedups take turns. A thread
without a speedup factor is fair-shared: it gets its weight's share of every core type's time, and no
factor is made up for it.
";

const HYSTERESIS: usize = 0;
const SMOOTHING: usize = 1;
const TURN: usize = 2;
const UTILITY: usize = 3;
const CAUTION: usize = 4;

const KNOBS: &[Knob] = &[
    Knob::percent(
        "hysteresis",
        4.0,
        "how much better a speedup must be to take a seat from its holder",
    ),
    Knob::smoothing(16.0, "length of the running mean of speedup factors"),
    Knob::milliseconds(
        "turn",
        250.0,
        "difference in fast-core time at which fair-shared threads change places",
    ),
    Knob::UTILITY,
    Knob {
        key: "caution",
        kind: KnobKind::Number {
            unit: "",
            default: 0.0,
            min: 0.0,
            max: 10.0,
        },
        help: "standard uncertainties by which a speedup must be better to take a seat from its holder",
    },
];

/// Leads of threads of one application are remembered up to so many turns.
const MEMORY: f64 = 8.0;

/// High speedup first [PMCTrack §4.1, TR5028 §4].
#[derive(Debug)]
pub struct Hsp {
    knobs: Knobs,
    smoothed: PerThread<[Smoothed; MAX_CORE_TYPES]>,
    siblings: Ledger<ThreadKey>,
    turns: Turns,
    seats: Seats,
    exchange: Exchange,
    contention: Contention,
    /// Per thread of the view: whether there is a speedup factor for every core type.
    whole: Vec<bool>,
    /// Per thread of the view: what a core of each type adds while it runs the thread, on top of 1;
    /// none without a speedup factor.
    gains: Vec<Option<[f64; MAX_CORE_TYPES]>>,
    /// Per thread of the view: the uncertainty of that on the fastest type.
    doubts: Vec<f64>,
    /// Per thread of the view: whether its gain may be above or below that of a thread which has
    /// got a better or a worse place.
    contested: Vec<bool>,
}

impl Hsp {
    /// The policy with default parameters.
    pub fn new() -> Hsp {
        Hsp {
            knobs: Knobs::new(ENTRY.name, KNOBS),
            smoothed: PerThread::default(),
            siblings: Ledger::default(),
            turns: Turns::default(),
            seats: Seats::default(),
            exchange: Exchange::default(),
            contention: Contention::default(),
            whole: Vec::new(),
            gains: Vec::new(),
            doubts: Vec::new(),
            contested: Vec::new(),
        }
    }

    /// Works out whose place depends on what is not known well enough.
    fn contest(&mut self, view: &View<'_>) {
        self.contested.clear();
        self.contested
            .extend(self.gains.iter().map(Option::is_none));
        // where a factor between is missing, only those over the slowest type compare
        let whole = (self.whole.iter().zip(&self.gains)).all(|(whole, g)| *whole || g.is_none());
        for slow in view.core_types().skip(1) {
            for fast in view.core_types().take(slow.index()) {
                let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
                let range = |i: usize| {
                    let gains = self.gains[i]?;
                    let over = if whole { gains[slow.index()] } else { 1.0 };
                    let gain = gains[fast.index()] - over;
                    Some((gain - self.doubts[i], gain + self.doubts[i]))
                };
                let on_fast = |i: usize| match self.seats.of(i)? {
                    t if t == fast => Some(true),
                    t if t == slow => Some(false),
                    _ => None,
                };
                for i in 0..view.threads.len() {
                    match (range(i), on_fast(i)) {
                        (Some((low, _)), Some(true)) => least = least.min(low),
                        (Some((_, high)), Some(false)) => most = most.max(high),
                        _ => {}
                    }
                }
                for i in 0..view.threads.len() {
                    self.contested[i] |= match (range(i), on_fast(i)) {
                        (Some((low, _)), Some(true)) => low < most,
                        (Some((_, high)), Some(false)) => high > least,
                        _ => false,
                    };
                }
            }
        }
    }

    /// Takes in the interval: factors, and the time that threads of one application used.
    fn observe(&mut self, view: &View<'_>, turn: f64) {
        let rule = speedups::rule(self.knobs.choice(UTILITY));
        let window = self.knobs.number(SMOOTHING);
        let slowest = view.topology.slowest();
        self.smoothed.begin();
        self.siblings.begin();
        self.gains.clear();
        self.doubts.clear();
        self.whole.clear();
        for th in view.threads {
            if view.apps.get(th.app).is_some_and(|a| a.threads.len() > 1) {
                let mut used = [0.0; MAX_CORE_TYPES];
                for t in view.core_types() {
                    used[t.index()] = th.ran_up_to(t);
                }
                self.siblings.charge(th.key, &used);
            }
            let Some((fastest, u)) = view.uncertain_factor(th, CoreTypeId::FASTEST) else {
                self.gains.push(None);
                self.doubts.push(0.0);
                self.whole.push(false);
                continue;
            };
            let (_, means) = self.smoothed.enter(th.key, th.succeeds, Default::default);
            let (mut gains, mut whole) = ([1.0; MAX_CORE_TYPES], true);
            for t in view.core_types().filter(|t| *t != slowest) {
                let k = t.index();
                // When a source knows the fastest type only, that is all that ranks threads for the
                // types between.
                let known = view.speedup_factor(th, t);
                whole &= known.is_some();
                let sf = known.unwrap_or(fastest);
                gains[k] = 1.0 + view.gain_per_core(th, t, means[k].update(sf, window), rule);
            }
            let gain = |sf: f64| view.gain_per_core(th, CoreTypeId::FASTEST, sf, rule);
            self.doubts.push((gain(fastest + u) - gain(fastest)).abs());
            self.gains.push(Some(gains));
            self.whole.push(whole);
        }
        self.siblings.settle(MEMORY * turn);
    }
}

impl Default for Hsp {
    fn default() -> Self {
        Hsp::new()
    }
}

impl Policy for Hsp {
    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        let turn = self.knobs.number(TURN) / 1e3;
        // a holder's gain counts for so much more
        let hysteresis = self.knobs.number(HYSTERESIS) / 100.0;
        self.observe(view, turn);
        let caution = self.knobs.number(CAUTION);
        let (gains, doubts) = (&self.gains, &self.doubts);
        self.turns.update(view, turn, &|i| gains[i].is_some());
        let turns = &self.turns;
        let gain = |i: usize, t: CoreTypeId| gains[i].map_or(0.0, |g| g[t.index()]);
        // as if who wants the seat were as uncertain as who holds it
        let bonus = |i: usize, t: CoreTypeId| {
            (gain(i, t) * hysteresis).max(caution * doubts[i] * std::f64::consts::SQRT_2)
        };
        self.seats.assign(view, &mut |i, t| {
            turns.claim(i, t).unwrap_or_else(|| Claim {
                strength: gain(i, t),
                bonus: bonus(i, t),
            })
        });
        // who is sent to a slower type than it has must be outdone by more than its bonus
        let whole = &self.whole;
        let value = |i: usize, t: CoreTypeId| {
            let held = view.threads[i].placed.filter(|held| *held < t);
            whole[i].then(|| gain(i, t) - held.map_or(0.0, |held| bonus(i, held)))
        };
        self.exchange.improve(view, &mut self.seats, &value);
        self.seats.take_turns(
            view,
            &self.siblings,
            turn,
            &|a, b| match (gains[a], gains[b]) {
                (Some(a), Some(b)) => (a[0] - b[0]).abs() <= hysteresis * a[0].min(b[0]),
                _ => false,
            },
        );
        let speed = |i: usize, t: CoreTypeId| gains[i].map_or(1.0, |g| g[t.index()]);
        self.contention
            .rearrange(view, &mut self.seats, &speed, &bonus);
        self.contest(view);
        self.seats.write(view, out);
    }

    fn contested(&self, i: usize) -> bool {
        self.contested.get(i).copied().unwrap_or(true)
    }

    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }
}
