//! EQP: equal progress for all threads.

use crate::machine::Placement;
use crate::policy::contract::{Entry, Policy};
use crate::policy::knobs::{Knob, Knobs};
use crate::policy::seats::{Claim, Seats};
use crate::policy::smooth::Smoothed;
use crate::policy::speedups::{self, Speedups};
use crate::policy::threads::PerThread;
use crate::policy::turns::Turns;
use crate::view::{ThreadView, View};
use amp_metrics::{CoreTypeId, Nanos, MAX_CORE_TYPES};

/// How the policy is registered.
pub const ENTRY: Entry = Entry {
    name: "eqp",
    summary: "equal progress for every thread",
    needs: "SF",
    help: HELP,
    max_core_types: MAX_CORE_TYPES,
    uses_metrics: true,
    takes_turns: true,
    make: |_| Box::new(EqualProgress::new()),
};

/// A page about the policy.
const HELP: &str = "\
eqp: equal progress.

Gives fast cores to the threads with the largest slowdown so far [EQP]:

    slowdown = (T_big + T_small) / (T_big + T_small/SF)

from the total CPU time on each core type and the present speedup factor SF; with several core types
the divisor is the sum of T_t SF_t/SF_fastest. It treats each thread by itself: neither past phases,
nor the number of threads of an application, nor priorities enter (weights still divide CPU time
when there are more threads than CPUs).

It needs speedup factors on every core type but the slowest; the paper takes them by running each
thread on both core types in turn (IPC sampling). A running mean smooths them, and starts afresh
when a value departs from it as at a change of phase. A thread keeps its place for a turn at least,
and gives it up when the slowdowns differ by what a turn changes. A thread without factors is
fair-shared: it gets its weight's share of every core type's time, and no factor is made up for it.
Use it as the published alternative to acfs; acfs is fairer to programs with phases or several
threads.
";

const TURN: usize = 0;
const SMOOTHING: usize = 1;

const KNOBS: &[Knob] = &[
    Knob::milliseconds("turn", 250.0, "how long a thread keeps its place at least"),
    Knob::smoothing(4.0, "length of the running mean of speedup factors"),
];

/// Bonus of a thread whose turn is not over: above any slowdown.
const KEEP: f64 = 1e3;

#[derive(Clone, Copy, Debug, Default)]
struct State {
    sf: [Smoothed; MAX_CORE_TYPES],
    placed: Option<CoreTypeId>,
    since: Nanos,
}

/// Equal progress \[EQP\].
#[derive(Debug)]
pub struct EqualProgress {
    knobs: Knobs,
    states: PerThread<State>,
    turns: Turns,
    seats: Seats,
    /// Per thread of the view; none without speedup factors.
    claims: Vec<Option<Claim>>,
}

impl EqualProgress {
    /// The policy with default parameters.
    pub fn new() -> EqualProgress {
        EqualProgress {
            knobs: Knobs::new(ENTRY.name, KNOBS),
            states: PerThread::default(),
            turns: Turns::default(),
            seats: Seats::default(),
            claims: Vec::new(),
        }
    }

    fn claim(&mut self, view: &View<'_>, turn: f64) {
        let window = self.knobs.number(SMOOTHING);
        self.states.begin();
        self.claims.clear();
        for th in view.threads {
            let Some(mut sf) = speedups::factors(view, th) else {
                self.claims.push(None);
                continue;
            };
            let (_, s) = self.states.enter(th.key, th.succeeds, State::default);
            for t in view.core_types() {
                let k = t.index();
                sf[k] = s.sf[k].update(sf[k], window);
            }
            if s.placed != th.placed {
                (s.placed, s.since) = (th.placed, view.now);
            }
            let (ran, done) = ran_and_done(view, th, &sf);
            // half an interval's grace: a turn of n intervals is n intervals
            let held = view.now.saturating_sub(s.since) + Nanos(view.interval.0 / 2);
            let bonus = if held.as_secs_f64() < turn {
                KEEP
            } else {
                what_a_turn_changes(ran, done, turn * (1.0 - 1.0 / sf[0].max(1.0)))
            };
            self.claims.push(Some(Claim {
                strength: slowdown(ran, done),
                bonus,
            }));
        }
    }
}

/// CPU time so far in seconds, and what it would have been had all of it been on the fastest cores.
fn ran_and_done(view: &View<'_>, th: &ThreadView, sf: &Speedups) -> (f64, f64) {
    view.core_types().fold((0.0, 0.0), |(ran, done), t| {
        let secs = th.runtime[t.index()].as_secs_f64();
        (ran + secs, done + secs * sf[t.index()] / sf[0])
    })
}

/// [EQP]; 1 for a thread that has not run.
fn slowdown(ran: f64, done: f64) -> f64 {
    if done > 0.0 {
        ran / done
    } else {
        1.0
    }
}

fn what_a_turn_changes(ran: f64, done: f64, gain: f64) -> f64 {
    slowdown(ran, done) - slowdown(ran, done + gain)
}

impl Default for EqualProgress {
    fn default() -> Self {
        EqualProgress::new()
    }
}

impl Policy for EqualProgress {
    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        let turn = self.knobs.number(TURN) / 1e3;
        self.claim(view, turn);
        let claims = &self.claims;
        self.turns.update(view, turn, &|i| claims[i].is_some());
        let turns = &self.turns;
        let none = Claim {
            strength: 0.0,
            bonus: 0.0,
        };
        self.seats.assign(view, &mut |i, t| {
            claims[i].or_else(|| turns.claim(i, t)).unwrap_or(none)
        });
        self.seats.write(view, out);
    }

    /// Its turns show everybody on every core type.
    fn contested(&self, _i: usize) -> bool {
        false
    }

    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }
}
