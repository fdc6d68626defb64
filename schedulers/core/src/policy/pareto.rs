//! pareto: the most throughput that a bound on unfairness allows. Our own.

pub mod solve;

use crate::machine::Placement;
use crate::policy::apps::PerApp;
use crate::policy::knobs::{Knob, KnobKind, Knobs};
use crate::policy::room::{Reach, Room};
use crate::policy::seats::Seats;
use crate::policy::smooth::Smoothed;
use crate::policy::speedups;
use crate::policy::steering::Steering;
use crate::policy::threads::PerThread;
use crate::policy::turns::Turns;
use crate::policy::Policy;
use crate::view::{AppView, View};
use amp_metrics::{CoreTypeId, Nanos, MAX_CORE_TYPES};
use solve::{Problem, Share};

/// A page about the policy.
pub const HELP: &str = "\
pareto: most throughput under a bound on unfairness (our own).

You state the unfairness that you accept; every interval the shares of fast-core time are chosen that maximise the predicted
aggregate speedup (ASP) among all that keep the predicted unfairness under the bound. Relative to slow cores only, an
application whose N threads get G fast cores between them runs at speed 1 + (G/N)(SF-1); alone it would run at its
application-wide speedup SP. Hence, per application and linear in G,

    x = 1/slowdown = (1 + (G/N)(SF-1)) / SP          ASP = sum of (G/N)(SF-1)
    maximise ASP   subject to   sum of G = NB,  0 <= G <= min(N, NB),  max x <= unfairness * min x

The last condition says that all x lie in [m, unfairness*m] for some m: for a given m a knapsack that goes by (SF-1)/N, and
concave in m, so that the exact optimum is found by a one-dimensional search. Weights scale x; with more threads than CPUs it is
scaled by each one's share of CPU time. Progress made so far counts with the length of time it took: what one phase of a
program lost another may make up for within a quarter of that time, `horizon` at least. Threads are then steered to their shares by crediting and charging
time. When the bound cannot be kept (who gains nothing from fast cores cannot be slowed down to the others), the shares
are the fairest there are.

At 1 it is the fairness optimum, at inf the throughput optimum (hsp); in between no shares give more throughput for the same
predicted unfairness. It needs speedup factors, smoothed by a running mean that starts afresh at a change of phase; a
thread without one is fair-shared: it gets its weight's share of every core type's time, and no factor is made up for it. For machines of
two core types. Use it when you can say how much fairness is needed.
";

const UNFAIRNESS: usize = 0;
const TURN: usize = 1;
const SMOOTHING: usize = 2;
const HORIZON: usize = 3;
const MEMORY: usize = 4;

const KNOBS: &[Knob] = &[
    Knob {
        key: "unfairness",
        kind: KnobKind::Number {
            unit: "",
            default: 1.2,
            min: 1.0,
            max: f64::INFINITY,
        },
        help: "largest over smallest slowdown that is accepted; inf is any",
    },
    Knob::milliseconds(
        "turn",
        250.0,
        "difference in credit at which two threads change places",
    ),
    Knob::smoothing(16.0, "length of the running mean of speedup factors"),
    Knob {
        key: "horizon",
        kind: KnobKind::Number {
            unit: "ms",
            default: 2000.0,
            min: 10.0,
            max: 3_600_000.0,
        },
        help: "least time in which past unfairness is to be made up for",
    },
    Knob {
        key: "memory",
        kind: KnobKind::Number {
            unit: "ms",
            default: 60_000.0,
            min: 0.0,
            max: 3_600_000.0,
        },
        help: "how far back progress counts; 0 looks at the present only",
    },
];

/// Past unfairness is made up for within this part of the time that it took to come about. Shorter, and the shares would
/// swing from end to end: at a horizon of h a deviation of x after a time T moves them by T/h as much, and a
/// single turn moves x.
const PATIENCE: f64 = 0.25;

/// Progress of an application.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// Time it has been there, in seconds.
    time: f64,
    /// ∫ x dt over that time.
    progress: f64,
}

/// An application of the view, as the problem sees it.
#[derive(Clone, Copy, Debug, Default)]
struct App {
    /// Its place in the problem; none when there is nothing to decide.
    place: Option<usize>,
    /// Its threads with a choice: their CPU time together.
    free: f64,
}

/// Most throughput under a bound on unfairness.
#[derive(Debug)]
pub struct Pareto {
    knobs: Knobs,
    past: PerApp<Past>,
    smoothed: PerThread<Smoothed>,
    turns: Turns,
    room: Room,
    problem: Problem,
    steering: Steering,
    seats: Seats,
    /// Per thread of the view: speedup factor, smoothed.
    sf: Vec<Option<f64>>,
    /// Per application of the view.
    apps: Vec<App>,
    /// Per thread of the view: share of fast-core time and the most it can use.
    shares: Vec<Option<(f64, f64)>>,
}

/// What an application's threads with a speedup factor have in common.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    n: f64,
    sf: f64,
    weight: f64,
    /// CPU time, as shares of the interval: of all, and by reach.
    cpu: f64,
    pinned: f64,
    free: f64,
    /// Seconds of work done in this interval, in units of slow-core speed.
    done: f64,
    /// CPU time before this interval, and what it would have been alone.
    rated_before: f64,
    alone_before: f64,
}

impl Pareto {
    /// The policy with default parameters.
    pub fn new() -> Pareto {
        Pareto {
            knobs: Knobs::new("pareto", KNOBS),
            past: PerApp::default(),
            smoothed: PerThread::default(),
            turns: Turns::default(),
            room: Room::default(),
            problem: Problem::default(),
            steering: Steering::default(),
            seats: Seats::default(),
            sf: Vec::new(),
            apps: Vec::new(),
            shares: Vec::new(),
        }
    }

    /// Looks up the speedup factors.
    fn rate(&mut self, view: &View<'_>) {
        let window = self.knobs.number(SMOOTHING);
        let two = view.topology.core_types().len() == 2;
        self.smoothed.begin();
        self.sf.clear();
        for th in view.threads {
            let sf = speedups::fastest(view, th).filter(|_| two).map(|sf| {
                let (_, s) = self.smoothed.enter(th.key, Smoothed::default);
                s.update(sf, window)
            });
            self.sf.push(sf);
        }
    }

    fn sum(&self, view: &View<'_>, app: &AppView) -> Sum {
        let mut s = Sum::default();
        for i in app.threads.clone() {
            let (Some(th), Some(sf)) = (view.threads.get(i), self.sf[i]) else {
                continue;
            };
            let cpu = self.room.cpu(i);
            let done = |t: &[Nanos; MAX_CORE_TYPES]| t[0].as_secs_f64() * sf + t[1].as_secs_f64();
            s.n += 1.0;
            s.sf += sf;
            s.weight += f64::from(th.weight) / 100.0;
            s.cpu += cpu;
            match Reach::of(view, th.allowed) {
                Reach::Fast => s.pinned += cpu,
                Reach::Both => s.free += cpu,
                Reach::Slow => {}
            }
            s.done += done(&th.ran);
            s.rated_before += th.done.rated;
            s.alone_before += th.done.alone;
        }
        s
    }

    /// Takes in the interval and states the problem.
    fn state(&mut self, view: &View<'_>) {
        let interval = view.interval.as_secs_f64();
        let horizon = self.knobs.number(HORIZON) / 1e3;
        let memory = self.knobs.number(MEMORY) / 1e3;
        let fast = view.topology.nr_cpus(CoreTypeId::FASTEST) as f64;
        let first = self.past.update(view.apps);
        self.problem.clear();
        self.apps.clear();
        let mut places = 0;
        for (i, app) in view.apps.iter().enumerate() {
            let s = self.sum(view, app);
            if s.n == 0.0 {
                self.apps.push(App::default());
                continue;
            }
            let (sf, weight) = (s.sf / s.n, s.weight / s.n);
            let rule = crate::utility::Utility::Speedup;
            let fast_cpus = view.topology.nr_cpus(CoreTypeId::FASTEST);
            let sp = rule.of(sf, app.runnable, fast_cpus);
            // x per unit of speed of one thread on a slow core
            let unit = 1.0 / (sp * weight);
            let mut past = Past::default();
            if let Some(p) = self.past.get_mut(i) {
                if first {
                    // taken over from another policy
                    p.time = s.rated_before / s.n;
                    p.progress = s.alone_before / s.n / weight;
                }
                p.time += interval;
                p.progress += s.done / s.n * unit;
                if p.time > memory {
                    p.progress *= memory / p.time;
                    p.time = memory;
                }
                past = *p;
            }
            let cap = s.free.min((fast - s.pinned).max(0.0));
            let place = (cap > 0.0).then(|| {
                let gain = (sf - 1.0) / s.n;
                let alpha = (s.cpu / s.n + s.pinned * gain) * unit;
                let horizon = horizon.max(PATIENCE * past.time);
                let span = past.time + horizon;
                self.problem.push(Share {
                    alpha: (past.progress + horizon * alpha.max(1e-9)) / span,
                    beta: (horizon * gain * unit / span).max(0.0),
                    cap,
                    density: gain,
                });
                places += 1;
                places - 1
            });
            let free = s.free;
            self.apps.push(App { place, free });
        }
    }

    /// Solves it and splits the shares among threads.
    fn share(&mut self, view: &View<'_>) {
        let owed = self.turns.owed(CoreTypeId::FASTEST);
        let sf = &self.sf;
        let fast = self.room.fast(view, owed, &|i| sf[i].is_some());
        let given = self.problem.solve(fast, self.knobs.number(UNFAIRNESS));
        self.shares.clear();
        for (i, th) in view.threads.iter().enumerate() {
            let app = self.apps.get(th.app).copied().unwrap_or_default();
            let most = self.room.cpu(i);
            let share = match Reach::of(view, th.allowed) {
                Reach::Fast => (most, most),
                Reach::Slow => (0.0, 0.0),
                Reach::Both => match app.place.and_then(|p| given.get(p)) {
                    Some(g) => (g / app.free * most, most),
                    None => (0.0, most),
                },
            };
            self.shares.push(self.sf[i].map(|_| share));
        }
    }
}

impl Default for Pareto {
    fn default() -> Self {
        Pareto::new()
    }
}

impl Policy for Pareto {
    fn name(&self) -> &'static str {
        "pareto"
    }

    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        let turn = self.knobs.number(TURN) / 1e3;
        self.rate(view);
        let sf = &self.sf;
        self.turns.update(view, turn, &|i| sf[i].is_some());
        self.room.update(view);
        self.state(view);
        self.share(view);
        let shares = &self.shares;
        self.steering.update(view, turn, &|i| shares[i]);
        let (turns, steering) = (&self.turns, &self.steering);
        self.seats.assign(view, &mut |i, t| {
            turns.claim(i, t).unwrap_or_else(|| steering.claim(i, turn))
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
