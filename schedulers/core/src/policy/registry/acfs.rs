//! ACFS: equal slowdowns for all applications.

use crate::machine::Placement;
use crate::policy::contract::{Entry, Policy};
use crate::policy::hindsight::Hindsight;
use crate::policy::knobs::{Knob, KnobKind, Knobs};
use crate::policy::progress::{Join, Past, Progress};
use crate::policy::seats::{Claim, Seats};
use crate::policy::speedups::{self, Speedups};
use crate::policy::turns::Turns;
use crate::view::{ThreadView, View};
use amp_metrics::MAX_CORE_TYPES;

/// How the policy is registered.
pub const ENTRY: Entry = Entry {
    name: "acfs",
    summary: "fairness by progress, with weights and a throughput knob",
    needs: "SF",
    help: HELP,
    max_core_types: MAX_CORE_TYPES,
    uses_metrics: true,
    takes_turns: true,
    make: |_| Box::new(Acfs::new()),
};

/// A page about the policy.
const HELP: &str = "\
acfs: asymmetry-aware completely fair scheduler.

Evens out the progress that threads make, in the past and present phases of their applications,
relative to running on the fastest cores [ACFS s. 3]. Each thread has a virtual time; per second it
ran

    amp_vruntime += (100/weight) / S / U
    S = 1 on the fastest cores; SP_fastest/SP_t on core type t, SP being the application-wide speedup
    U = 1 + (uf-1)(SP-SP_min)/(SP_max-SP_min), 1 when all speedups are equal

That is the paper's S (`progress=paper`). It counts what a thread of an application with more threads
than fast cores does there as no more than its part of what the application would do alone, though
it does SF/SP times as much. The default, `progress=exact`, counts that too: S = SP_fastest/SF_t on
core type t, and with several core types SP_fastest is what the application gains alone on all of
them. Both are the same for applications of one thread.

Threads that are behind go to fast cores. A thread T_B on a fast core and a thread T_S on a slow one
change places when

    amp_vruntime(T_B) - amp_vruntime(T_S) >= t_swap (1 - 1/SP_avg)

(the paper counts ticks of 100 units; here the unit is the second). With several core types the
threshold between neighbours is t_swap (SP_t - SP_t+1)/SP_fastest, averages all. A new thread starts
at the maximum of its peers; peers that lead by more than the threshold whatever they are given do
not count. A program that is run again within a second goes on where its last run ended. A rest
neither earns nor costs anything. Where a factor turns out to have been wrong, what was charged by it
in the last seconds of the same phase is put right. With uf above 1, applications of high speedup
may fall behind by that factor: more throughput, unfairness up to uf times the best. The paper's
t_swap is 850 ms; the default here follows the interval, so that shares settle within seconds.

SP is that of `utility`: `auto` measures how much of their time on fast cores the threads of an
application wait for those on slow ones, and takes that off SF; `speedup` takes it that they never
wait, as the paper does.

It needs speedup factors on every core type but the slowest. A thread without them is fair-shared:
it gets its weight's share of every core type's time, and no factor is made up for it. What it did in
the two seconds before it had one counts once it has. Use it where
equal programs should suffer equally from sharing the machine. On the published mixes it is the
fairest policy; of five mixes on the virtual board eqp, given the true factors, was fairer on three.
";

const T_SWAP: usize = 0;
const UF: usize = 1;
const MEMORY: usize = 2;
const UTILITY: usize = 3;
const PROGRESS: usize = 4;

const KNOBS: &[Knob] = &[
    Knob {
        key: "t_swap",
        kind: KnobKind::Auto {
            unit: "ms",
            min: 1.0,
            max: 60_000.0,
        },
        help: "how long two threads that differ by the average speedup keep their places; auto: 1.2 intervals",
    },
    Knob {
        key: "uf",
        kind: KnobKind::Number {
            unit: "",
            default: 1.0,
            min: 1.0,
            max: 100.0,
        },
        help: "unfairness that is accepted for throughput; 1 is none",
    },
    Knob {
        key: "memory",
        kind: KnobKind::Number {
            unit: "ms",
            default: 60_000.0,
            min: 100.0,
            max: 3_600_000.0,
        },
        help: "leads and lags beyond it are forgotten",
    },
    Knob::UTILITY,
    Knob {
        key: "progress",
        kind: KnobKind::Choice(&["exact", "paper"]),
        help: "what a thread on a fast core is credited with: SF/SP, or 1",
    },
];

/// Intervals that the automatic t_swap lasts.
const AUTOMATIC: f64 = 1.2;

/// The least difference between neighbouring core types that the threshold assumes, relative to the
/// fastest: equal core types must not swap for nothing.
const LEAST: f64 = 0.02;

/// Asymmetry-aware completely fair scheduler [ACFS §3].
#[derive(Debug)]
pub struct Acfs {
    knobs: Knobs,
    progress: Progress,
    hindsight: Hindsight,
    turns: Turns,
    seats: Seats,
    /// Per thread of the view.
    speedups: Vec<Option<Speedups>>,
}

impl Acfs {
    /// The policy with default parameters.
    pub fn new() -> Acfs {
        Acfs {
            knobs: Knobs::new(ENTRY.name, KNOBS),
            progress: Progress::default(),
            hindsight: Hindsight::default(),
            turns: Turns::default(),
            seats: Seats::default(),
            speedups: Vec::new(),
        }
    }

    /// Seconds of t_swap.
    fn t_swap(&self, view: &View<'_>) -> f64 {
        match self.knobs.chosen(T_SWAP) {
            Some(ms) => ms / 1e3,
            None => AUTOMATIC * view.period.as_secs_f64().max(1e-3),
        }
    }

    /// Looks up every speedup; returns their range on the fastest type and the swap threshold per
    /// level, in seconds.
    fn rate(&mut self, view: &View<'_>, t_swap: f64) -> (f64, f64, [f64; MAX_CORE_TYPES]) {
        let rule = speedups::rule(self.knobs.choice(UTILITY));
        self.speedups.clear();
        self.speedups
            .extend(view.threads.iter().map(|th| speedups::of(view, th, rule)));
        let (mut min, mut max) = (f64::INFINITY, 0.0f64);
        let mut sum = [0.0; MAX_CORE_TYPES];
        for s in self.speedups.iter().flatten() {
            min = min.min(s[0]);
            max = max.max(s[0]);
            for (sum, s) in sum.iter_mut().zip(s) {
                *sum += s;
            }
        }
        let mut threshold = [LEAST * t_swap; MAX_CORE_TYPES];
        if sum[0] > 0.0 {
            for t in view.core_types() {
                let k = t.index();
                let slower = sum.get(k + 1).copied().unwrap_or(0.0);
                threshold[k] = t_swap * ((sum[k] - slower) / sum[0]).max(LEAST);
            }
        }
        (min, max, threshold)
    }
}

/// Virtual time per second on each core type of a thread of this weight, U being the accepted
/// unfairness [ACFS §3]. `speed` is the speed that is counted per core type over the slowest one,
/// `alone` the application-wide speedup on the fastest.
fn pace(speed: &Speedups, alone: f64, weight: u32, u: f64) -> Speedups {
    speed.map(|s_t| 100.0 / f64::from(weight) * s_t / alone / u)
}

/// What an application of speedup `s` is accepted to fall behind.
fn accepted(uf: f64, s: f64, min: f64, max: f64) -> f64 {
    if max > min {
        1.0 + (uf - 1.0) * (s - min) / (max - min)
    } else {
        1.0
    }
}

/// Virtual time for what the thread did under other policies: its progress then, at the pace of its
/// weight now.
fn past(th: &ThreadView, u: f64) -> Past {
    Past {
        ran: th.done.rated,
        v: 100.0 / f64::from(th.weight) * th.done.alone / u,
    }
}

impl Default for Acfs {
    fn default() -> Self {
        Acfs::new()
    }
}

impl Policy for Acfs {
    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        let t_swap = self.t_swap(view);
        let uf = self.knobs.number(UF);
        let (min, max, threshold) = self.rate(view, t_swap);
        let exact = self.knobs.choice(PROGRESS) == "exact";
        let rule = speedups::rule(self.knobs.choice(UTILITY));
        // on two core types that is what the fastest type is worth
        let several = view.topology.core_types().len() > 2;
        self.progress.begin();
        self.hindsight.begin(view);
        for (th, s) in view.threads.iter().zip(&self.speedups) {
            let Some(s) = s else {
                self.progress.skip(th);
                continue;
            };
            let own = exact.then(|| speedups::factors(view, th)).flatten();
            let u = accepted(uf, s[0], min, max);
            let alone = own
                .filter(|_| several)
                .map_or(s[0], |own| view.utility_alone(th, &own, rule));
            let pace = pace(&own.unwrap_or(*s), alone, th.weight, u);
            let slowed = view.slowed(th);
            let ran = th.rated_now().map(|ran| slowed * ran);
            let before = own.map_or(0.0, |own| self.hindsight.charge(view, th, &ran, &own));
            let now: f64 = ran.iter().zip(&pace).map(|(ran, pace)| ran * pace).sum();
            let dv = now + before * pace[0];
            self.progress.charge(th, dv, || past(th, u));
        }
        let memory = self.knobs.number(MEMORY) / 1e3;
        self.progress
            .settle(view, Join::Maximum(threshold[0]), memory);
        let known = &self.speedups;
        self.turns.update(view, t_swap, &|i| known[i].is_some());

        let (progress, turns) = (&self.progress, &self.turns);
        self.seats.assign(view, &mut |i, t| {
            turns.claim(i, t).unwrap_or_else(|| Claim {
                strength: -progress.ahead(i).unwrap_or(0.0),
                bonus: threshold[t.index()],
            })
        });
        self.seats.write(view, out);
    }

    /// Its turns show everybody on every core type.
    fn contested(&self, _i: usize) -> bool {
        false
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
