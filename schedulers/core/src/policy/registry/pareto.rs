//! pareto: the most throughput that a bound on unfairness allows. Our own.

pub mod solve;

use crate::machine::Placement;
use crate::policy::apps::PerApp;
use crate::policy::contract::{Entry, Policy};
use crate::policy::hindsight::Hindsight;
use crate::policy::knobs::{Knob, KnobKind, Knobs};
use crate::policy::room::Reach;
use crate::policy::sharing::Sharing;
use crate::policy::smooth::Smoothed;
use crate::policy::speedups::{self, Speedups};
use crate::policy::threads::PerThread;
use crate::utility::Utility;
use crate::view::{AppView, ThreadView, View};
use amp_metrics::{AppId, CoreTypeId, Nanos, MAX_CORE_TYPES};
use solve::{Problem, Share};

/// How the policy is registered.
pub const ENTRY: Entry = Entry {
    name: "pareto",
    summary: "most throughput under a bound on unfairness",
    needs: "SF",
    help: HELP,
    max_core_types: MAX_CORE_TYPES,
    uses_metrics: true,
    takes_turns: true,
    make: |_| Box::new(Pareto::new()),
};

/// A page about the policy.
const HELP: &str = "\
pareto: most throughput under a bound on unfairness (our own).

You state the unfairness that you accept; every interval the shares of fast-core time are chosen
that maximise the predicted aggregate speedup (ASP) among all that keep the predicted unfairness
under the bound. Relative to slow cores only, an application whose N threads get G fast cores
between them runs at speed 1 + (G/N)(SF-1); alone it would run at its application-wide speedup SP.
Hence, per application and linear in G,

    x = 1/slowdown = (1 + (G/N)(SF-1)) / SP          ASP = sum of (G/N)(SF-1)
    maximise ASP   subject to   sum of G = NB,  0 <= G <= min(N, NB),  max x <= unfairness * min x

The last condition says that all x lie in [m, unfairness*m] for some m: for a given m a knapsack
that goes by (SF-1)/N, and concave in m, so that the exact optimum is found by a one-dimensional
search. With `utility=camp` an application gains (SP-1)/min(N, NB) per fast core, SP being the
utility factor of CAMP, instead of (SF-1)/N; with `utility=barrier` nothing unless all its threads
have one. The default, `auto`, measures how much of its time on fast cores a thread waits for its
siblings on slow ones, and takes that off what a core adds. Weights scale x; with more threads than CPUs it is scaled by each one's share of CPU time.
Progress made so far counts with the length of time it took: what one phase of a program lost
another may make up for within a quarter of that time, `horizon` at least. Where a factor turns out to
have been wrong, progress that was counted by it in the same phase is put right. Threads are then steered
to their shares by crediting and charging time. When the bound cannot be kept (who gains nothing
from fast cores cannot be slowed down to the others), the shares are the fairest there are.

At 1 it is the fairness optimum, at inf the throughput optimum (hsp); in between no shares give more
throughput for the same predicted unfairness. It needs speedup factors, smoothed by a running mean
that starts afresh at a change of phase; a thread without one is fair-shared: it gets its weight's
share of every core type's time, and no factor is made up for it.

With more than two core types all but the slowest are fast cores: SF is the mean over them, and time on each
of them is shared as time on all of them is. SP is still that of the fastest, as the slowdown is against it.

Use it when you can say how much fairness is needed.
";

const UNFAIRNESS: usize = 0;
const TURN: usize = 1;
const SMOOTHING: usize = 2;
const HORIZON: usize = 3;
const MEMORY: usize = 4;
const UTILITY: usize = 5;

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
            default: 500.0,
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
    Knob::UTILITY,
];

/// Past unfairness is made up for within this part of the time that it took to come about. Shorter,
/// and the shares would swing from end to end: at a horizon of h a deviation of x after a time T
/// moves them by T/h as much, and a single turn moves x.
const PATIENCE: f64 = 0.25;

/// Progress of an application, over all runs of it in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// The run that it was last, and when that was.
    run: Option<(AppId, Nanos)>,
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
    /// One over the CPU time of its threads with a choice together.
    part: f64,
}

/// Most throughput under a bound on unfairness.
#[derive(Debug)]
pub struct Pareto {
    knobs: Knobs,
    past: PerApp<Past>,
    smoothed: PerThread<Smoothed>,
    sharing: Sharing,
    problem: Problem,
    hindsight: Hindsight,
    /// Per thread of the view: speedup factor, smoothed; on more than two core types the mean over all but the slowest.
    sf: Vec<Option<f64>>,
    /// Per thread of the view, on more than two core types only: speedup factors, smoothed likewise.
    factors: Vec<Speedups>,
    /// Per thread of the view: progress of earlier intervals that is known only now, in seconds on fast cores.
    late: Vec<f64>,
    /// Per application of the view.
    apps: Vec<App>,
    /// Per thread of the view, on more than two core types only: its share of time on all fast cores.
    whole: Vec<Option<f64>>,
}

/// What an application's threads with a speedup factor have in common.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    n: f64,
    sf: f64,
    weight: f64,
    /// CPU time without a fast core for those that have a choice, that of threads that may run on
    /// fast cores only, and the most that those with a choice have there, as shares of the interval.
    cpu: f64,
    pinned: f64,
    free: f64,
    /// CPU time of those with a choice while they are on slow cores.
    slow: f64,
    /// Seconds of CPU time in this interval, and what the part of it on fast cores was worth on top
    /// at each thread's factor.
    ran: f64,
    gained: f64,
    /// The same of the time before its threads were known, and the longest such time.
    ran_unrated: f64,
    gained_unrated: f64,
    unrated: f64,
    /// Progress of earlier intervals that is known only now, in seconds on fast cores.
    late: f64,
    /// CPU time before this interval, and what it would have been alone.
    rated_before: f64,
    alone_before: f64,
}

impl Pareto {
    /// The policy with default parameters.
    pub fn new() -> Pareto {
        Pareto {
            knobs: Knobs::new(ENTRY.name, KNOBS),
            past: PerApp::default(),
            smoothed: PerThread::default(),
            sharing: Sharing::default(),
            problem: Problem::default(),
            hindsight: Hindsight::default(),
            sf: Vec::new(),
            factors: Vec::new(),
            late: Vec::new(),
            apps: Vec::new(),
            whole: Vec::new(),
        }
    }

    /// Looks up the speedup factors.
    fn rate(&mut self, view: &View<'_>) {
        let window = self.knobs.number(SMOOTHING);
        let types = view.topology.core_types().len();
        self.smoothed.begin();
        self.hindsight.begin(view);
        self.sf.clear();
        self.factors.clear();
        self.late.clear();
        for th in view.threads {
            // two core types take the short way: this is done for every thread
            let sf = match types {
                2 => self.rate_fastest(view, th, window),
                3.. => self.rate_all(view, th, window),
                _ => None,
            };
            if sf.is_none() {
                self.late.push(0.0);
                if types > 2 {
                    self.factors.push([1.0; MAX_CORE_TYPES]);
                }
            }
            self.sf.push(sf);
        }
    }

    /// The factor of `th` on two core types; takes in what it is to be charged late.
    fn rate_fastest(&mut self, view: &View<'_>, th: &ThreadView, window: f64) -> Option<f64> {
        let sf = speedups::fastest(view, th)?;
        let (_, s) = self.smoothed.enter(th.key, th.succeeds, Smoothed::default);
        let sf = s.update(sf, window);
        let mut factors = [1.0; MAX_CORE_TYPES];
        factors[0] = sf;
        let late = (self.hindsight).charge(view, th, &th.rated_now(), &factors);
        self.late.push(late);
        Some(sf)
    }

    /// The same on more core types; takes in the factors on each, too.
    fn rate_all(&mut self, view: &View<'_>, th: &ThreadView, window: f64) -> Option<f64> {
        let mut factors = speedups::factors(view, th)?;
        let mean = fast_mean(view, &factors);
        let (_, s) = self.smoothed.enter(th.key, th.succeeds, Smoothed::default);
        let smooth = s.update(mean, window);
        for t in view.fast_types() {
            factors[t.index()] *= smooth / mean;
        }
        let late = (self.hindsight).charge(view, th, &th.rated_now(), &factors);
        self.late.push(late);
        self.factors.push(factors);
        Some(smooth)
    }

    /// What thread `i` of the view, of factor `sf`, did on fast cores on top of what it would have done on slow ones in the
    /// times `ran`, and the sum of these, in seconds.
    fn gained(&self, i: usize, sf: f64, ran: &[Nanos; MAX_CORE_TYPES]) -> (f64, f64) {
        match self.factors.get(i) {
            None => {
                let [fast, slow, ..] = ran;
                (
                    fast.as_secs_f64() * (sf - 1.0),
                    (*fast + *slow).as_secs_f64(),
                )
            }
            Some(all) => (ran.iter().zip(all)).fold((0.0, 0.0), |(gained, sum), (ran, sf)| {
                let ran = ran.as_secs_f64();
                (gained + ran * (sf - 1.0), sum + ran)
            }),
        }
    }

    fn sum(&self, view: &View<'_>, app: &AppView) -> Sum {
        let (mut s, room) = (Sum::default(), self.sharing.room(slowest_fast(view)));
        for i in app.threads.clone() {
            let (Some(th), Some(sf)) = (view.threads.get(i), self.sf[i]) else {
                continue;
            };
            let cpu = room.cpu(i);
            s.n += 1.0;
            s.sf += sf;
            s.weight += f64::from(th.weight);
            match room.reach(i) {
                Reach::Fast => {
                    s.cpu += cpu;
                    s.pinned += cpu;
                }
                Reach::Both => {
                    s.cpu += room.slow_share(i);
                    s.slow += room.slow_share(i);
                    s.free += room.fast_share(i);
                }
                Reach::Slow => s.cpu += room.slow_share(i),
            }
            let (gained, ran) = self.gained(i, sf, &th.ran);
            s.ran += ran;
            s.gained += gained;
            s.late += self.late[i];
            let (gained, ran) = self.gained(i, sf, &th.unrated.ran);
            s.ran_unrated += ran;
            s.gained_unrated += gained;
            s.unrated = s.unrated.max(th.unrated.time.as_secs_f64());
            s.rated_before += th.done.rated;
            s.alone_before += th.done.alone;
        }
        s
    }

    /// How many fast cores an application has alone, and what it gains then: on more than two core types by the factors of the
    /// first of its threads that has them, else by `arriving`, what is on the fastest cores with it.
    fn alone(&self, view: &View<'_>, app: &AppView, arriving: f64, rule: Utility) -> (usize, f64) {
        let fastest = view.cores_alone(CoreTypeId::FASTEST, app.runnable);
        let on_fastest = || rule.of(arriving, app.runnable, fastest);
        if self.factors.is_empty() {
            return (fastest, on_fastest());
        }
        let fast = (view.fast_types())
            .map(|t| view.cores_alone(t, app.runnable))
            .sum();
        let first = app.threads.clone().find(|i| self.sf[*i].is_some());
        let known = first.and_then(|i| Some((view.threads.get(i)?, self.factors.get(i)?)));
        let alone = known.map(|(th, factors)| view.utility_alone(th, factors, rule));
        (fast, alone.unwrap_or_else(on_fastest))
    }

    /// Takes in the interval and states the problem.
    fn state(&mut self, view: &View<'_>) {
        let interval = view.interval.as_secs_f64();
        let horizon = self.knobs.number(HORIZON) / 1e3;
        let memory = self.knobs.number(MEMORY) / 1e3;
        let rule = speedups::rule(self.knobs.choice(UTILITY));
        let fast = view.seats_up_to(slowest_fast(view)) as f64;
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
            // divisions are what this loop costs
            let each = 1.0 / s.n;
            let (sf, weight) = (s.sf * each, s.weight * each / 100.0);
            let arriving = view.arriving(i, CoreTypeId::FASTEST, sf, rule);
            let (fast_alone, sp) = self.alone(view, app, arriving, rule);
            // what a fast core adds for a thread, as the application as a whole has it, per SF-1
            let runnable = app.runnable.max(1) as f64;
            let mut worth = (rule.of(2.0, app.runnable, fast_alone) - 1.0) * runnable
                / (fast_alone as f64).min(runnable);
            // threads that wait on fast cores have done their work there all the same
            let credited = worth;
            if sf > 1.0 {
                worth *= (arriving - 1.0) / (sf - 1.0);
            }
            // x per unit of speed of one thread on a slow core
            let unit = 1.0 / (sp * weight);
            let mut past = Past::default();
            if let Some(p) = self.past.get_mut(i) {
                let last = p.run.replace((app.id, view.now));
                let mut passed = interval;
                if last.is_none_or(|(run, _)| run != app.id) {
                    // what it did before it was known is known now
                    p.time += s.unrated;
                    p.progress += (s.ran_unrated + credited * s.gained_unrated) * each * unit;
                    // of the time between two runs, as much as it ran for: it may have rested
                    let since =
                        last.map_or(0.0, |(_, at)| view.now.saturating_sub(at).as_secs_f64());
                    passed = passed.max(since.min(s.ran * each));
                }
                if first {
                    // taken over from another policy
                    p.time = s.rated_before * each;
                    p.progress = s.alone_before * each / weight;
                }
                p.time += passed;
                p.progress += (s.ran + credited * s.gained + s.late * sf) * each * unit;
                p.progress = p.progress.max(0.0);
                if p.time > memory {
                    p.progress *= memory / p.time;
                    p.time = memory;
                }
                past = *p;
            }
            let cap = s.free.min((fast - s.pinned).max(0.0));
            let place = (cap > 0.0).then(|| {
                // a fast core has room for its thread alone, slow ones may be shared by more
                let gain = worth * (sf - s.slow / s.free) * each;
                let alpha = (s.cpu * each + s.pinned * worth * (sf - 1.0) * each) * unit;
                let horizon = horizon.max(PATIENCE * past.time);
                let part = 1.0 / (past.time + horizon);
                self.problem.push(Share {
                    alpha: (past.progress + horizon * alpha.max(1e-9)) * part,
                    beta: (horizon * gain * unit * part).max(0.0),
                    cap,
                    density: gain,
                });
                places += 1;
                places - 1
            });
            let part = if s.free > 0.0 { 1.0 / s.free } else { 0.0 };
            self.apps.push(App { place, part });
        }
    }
}

/// The slowest core type that counts as fast.
fn slowest_fast(view: &View<'_>) -> CoreTypeId {
    view.fast_types().last().unwrap_or(CoreTypeId::FASTEST)
}

/// The mean of speedup factors over fast cores.
fn fast_mean(view: &View<'_>, factors: &Speedups) -> f64 {
    let (n, sum) = view.fast_types().fold((0, 0.0), |(n, sum), t| {
        let cores = view.nr_seats(t);
        (n + cores, sum + cores as f64 * factors[t.index()])
    });
    if n > 0 {
        sum / n as f64
    } else {
        factors[0]
    }
}

impl Default for Pareto {
    fn default() -> Self {
        Pareto::new()
    }
}

impl Policy for Pareto {
    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        let turn = self.knobs.number(TURN) / 1e3;
        self.rate(view);
        let sf = &self.sf;
        let known = |i: usize| sf[i].is_some();
        self.sharing.begin(view, turn, &known);
        self.state(view);
        let sf = &self.sf;
        let known = |i: usize| sf[i].is_some();
        let class = slowest_fast(view);
        let fast = self.sharing.fast(class, &known);
        let apps = &self.apps;
        let given = self.problem.solve(fast, self.knobs.number(UNFAIRNESS));
        // an application's share, split among its threads
        let share = |i: usize, most: f64| {
            sf[i]?;
            let app = apps.get(view.threads[i].app).copied().unwrap_or_default();
            let given = app.place.and_then(|p| given.get(p));
            Some(given.map_or(0.0, |g| g * app.part * most))
        };
        self.whole.clear();
        if class != CoreTypeId::FASTEST {
            let room = self.sharing.room(class);
            self.whole
                .extend((0..view.threads.len()).map(|i| match room.reach(i) {
                    Reach::Fast => sf[i].map(|_| room.cpu(i)),
                    _ => share(i, room.fast_share(i)),
                }));
        }
        for level in view.fast_types().filter(|l| *l < class) {
            // of time on all fast cores as much as there is of these cores
            let part = (self.sharing.fast(level, &known) / fast.max(1e-9)).min(1.0);
            let whole = &self.whole;
            let share = |i: usize, most: f64| Some((whole[i]? * part).min(most));
            (self.sharing).share(view, level, turn, &share);
        }
        (self.sharing).share(view, class, turn, &share);
        self.sharing.seat(view, turn, out);
    }

    /// A thread that is behind holds its place on a fast core while it sleeps.
    fn lends(&self) -> bool {
        true
    }

    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }
}
