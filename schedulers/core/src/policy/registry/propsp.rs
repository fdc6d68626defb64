//! Prop-SP: fast cores in proportion to what they are worth to an application.

use crate::machine::Placement;
use crate::policy::contract::{Entry, Policy};
use crate::policy::knobs::{Knob, Knobs};
use crate::policy::level::Demands;
use crate::policy::room::Reach;
use crate::policy::sharing::Sharing;
use crate::policy::speedups;
use crate::view::{ThreadView, View};
use amp_metrics::{CoreTypeId, MAX_CORE_TYPES};

/// How the policy is registered.
pub const ENTRY: Entry = Entry {
    name: "propsp",
    summary: "time on fast cores in proportion to weight and gain",
    needs: "SF",
    help: HELP,
    max_core_types: MAX_CORE_TYPES,
    uses_metrics: true,
    takes_turns: true,
    make: |_| Box::new(PropSp::new()),
};

/// A page about the policy.
const HELP: &str = "\
propsp: proportional to speedup.

Shares fast cores among applications in proportion to weight and benefit [PropSP]:

    credits of an application per interval ~ weight (SP - 1), split evenly among its threads

SP is the application-wide speedup. Time on a fast core is paid for with credits; the threads with
most credit left go there first. What a thread cannot use (it runs on one core at a time) goes to
the others in the same proportion. When nobody gains from fast cores they are shared by weight. A
priority thus buys big-core time where it helps.

The paper has two core types. With more, the time on each type but the slowest is shared so, fastest
first, by SP on that type; who has time on a faster type needs the less on the next one.

It needs speedup factors on every core type but the slowest. A thread without them is fair-shared: it
gets its weight's share of every core type's time, and no factor is made up for it. Use it for more
throughput than rr and acfs with some regard for everyone, and where priorities are to count; use
pareto to bound the unfairness.
";

const TURN: usize = 0;
const UTILITY: usize = 1;

const KNOBS: &[Knob] = &[
    Knob::milliseconds(
        "turn",
        250.0,
        "difference in credit at which two threads change places",
    ),
    Knob::UTILITY,
];

/// Benefit that is assumed of everybody, so that what nobody gains from is shared by weight.
const LEAST: f64 = 1e-6;

/// Proportional to speedup \[PropSP\].
#[derive(Debug)]
pub struct PropSp {
    knobs: Knobs,
    sharing: Sharing,
    demands: Demands,
    /// Per core type: where the search for a level begins.
    last: [f64; MAX_CORE_TYPES],
    /// Per core type but the slowest and thread of the view: weighted benefit; none without speedup factors.
    benefit: Vec<Vec<Option<f64>>>,
    /// Per thread of the view: its share of time on faster core types than that which is shared.
    faster: Vec<f64>,
}

impl PropSp {
    /// The policy with default parameters.
    pub fn new() -> PropSp {
        PropSp {
            knobs: Knobs::new(ENTRY.name, KNOBS),
            sharing: Sharing::default(),
            demands: Demands::default(),
            last: [0.0; MAX_CORE_TYPES],
            benefit: Vec::new(),
            faster: Vec::new(),
        }
    }

    /// Weight × (SP − 1) / threads [PropSP], per thread and core type.
    fn rate(&mut self, view: &View<'_>) {
        let rule = speedups::rule(self.knobs.choice(UTILITY));
        let levels = view.fast_types();
        self.benefit.resize_with(levels.len(), Vec::new);
        for benefit in &mut self.benefit {
            benefit.clear();
        }
        if let [benefit] = &mut self.benefit[..] {
            // two core types take the short way: this is done for every thread
            let t = CoreTypeId::FASTEST;
            let alike = view.topology.core_types().len() < 2;
            benefit.extend(view.threads.iter().map(|th| {
                let sf = speedups::fastest(view, th).filter(|_| !alike)?;
                let sp = view.utility(th, t, sf, rule);
                Some(worth(view, th, sp))
            }));
            return;
        }
        for th in view.threads {
            let sp = speedups::of(view, th, rule);
            for (benefit, t) in self.benefit.iter_mut().zip(view.fast_types()) {
                benefit.push(sp.map(|sp| worth(view, th, sp[t.index()])));
            }
        }
    }

    /// Gives away the cores of type `t`, after those of all faster types.
    fn share(&mut self, view: &View<'_>, t: CoreTypeId, turn: f64) {
        let benefit = &self.benefit[t.index()];
        let (faster, demands) = (&mut self.faster, &mut self.demands);
        let mut left = self.sharing.fast(t, &|i| benefit[i].is_some());
        let room = self.sharing.room(t);
        demands.clear();
        for (i, (b, th)) in benefit.iter().zip(view.threads).enumerate() {
            let free = room.reach(i) == Reach::Both;
            match b {
                Some(b) if free => {
                    let most = room.fast_share(i);
                    faster[i] = faster[i].min(most);
                    left -= faster[i];
                    let here = th.allowed.contains(t);
                    demands.push(if here { *b } else { 0.0 }, 0.0, most - faster[i]);
                }
                _ => demands.push(0.0, 0.0, 0.0),
            }
        }
        let last = &mut self.last[t.index()];
        *last = demands.level(left.max(0.0), *last);
        let (level, faster, demands) = (*last, &self.faster, &self.demands);
        let share = |i: usize, _| benefit[i].map(|_| faster[i] + demands.at(i, level));
        self.sharing.share(view, t, turn, &share);
        if Some(t) != view.fast_types().last() {
            for (i, share) in self.faster.iter_mut().enumerate() {
                *share += self.demands.at(i, level);
            }
        }
    }
}

/// What an application-wide speedup of `sp` is worth to `th`.
fn worth(view: &View<'_>, th: &ThreadView, sp: f64) -> f64 {
    let n = view.apps.get(th.app).map_or(1, |a| a.threads.len().max(1));
    f64::from(th.weight) * (sp - 1.0).max(LEAST) / n as f64
}

impl Default for PropSp {
    fn default() -> Self {
        PropSp::new()
    }
}

impl Policy for PropSp {
    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        let turn = self.knobs.number(TURN) / 1e3;
        self.rate(view);
        let benefit = &self.benefit[0];
        self.sharing.begin(view, turn, &|i| benefit[i].is_some());
        self.faster.clear();
        self.faster.resize(view.threads.len(), 0.0);
        for t in view.fast_types() {
            self.share(view, t, turn);
        }
        self.sharing.seat(view, turn, out);
    }

    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }
}
