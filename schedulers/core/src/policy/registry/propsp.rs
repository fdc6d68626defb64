//! Prop-SP: fast cores in proportion to what they are worth to an application.

use crate::machine::Placement;
use crate::policy::contract::{Entry, Policy};
use crate::policy::knobs::{Knob, Knobs};
use crate::policy::level::Demands;
use crate::policy::room::Reach;
use crate::policy::sharing::Sharing;
use crate::policy::speedups;
use crate::view::View;
use amp_metrics::CoreTypeId;

/// How the policy is registered.
pub const ENTRY: Entry = Entry {
    name: "propsp",
    summary: "time on fast cores in proportion to weight and gain",
    needs: "SF",
    help: HELP,
    max_core_types: 2,
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

It needs speedup factors. A thread without one is fair-shared: it gets its weight's share of every
core type's time, and no factor is made up for it. For machines of two core types. Use it for more
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
    level: f64,
    /// Per thread of the view: weighted benefit; none without a speedup factor.
    benefit: Vec<Option<f64>>,
}

impl PropSp {
    /// The policy with default parameters.
    pub fn new() -> PropSp {
        PropSp {
            knobs: Knobs::new(ENTRY.name, KNOBS),
            sharing: Sharing::default(),
            demands: Demands::default(),
            level: 0.0,
            benefit: Vec::new(),
        }
    }

    /// Weight × (SP − 1) / threads [PropSP], per thread.
    fn rate(&mut self, view: &View<'_>) {
        let rule = speedups::rule(self.knobs.choice(UTILITY));
        let two = view.topology.core_types().len() == 2;
        self.benefit.clear();
        self.benefit.extend(view.threads.iter().map(|th| {
            let sf = speedups::fastest(view, th).filter(|_| two)?;
            let sp = view.utility(th, CoreTypeId::FASTEST, sf, rule);
            let n = view.apps.get(th.app).map_or(1, |a| a.threads.len().max(1));
            Some(f64::from(th.weight) * (sp - 1.0).max(LEAST) / n as f64)
        }));
    }

    /// Gives away the fast cores.
    fn share(&mut self, view: &View<'_>) {
        let benefit = &self.benefit;
        let fast = self.sharing.fast(view, &|i| benefit[i].is_some());
        let room = self.sharing.room();
        self.demands.clear();
        for (i, b) in benefit.iter().enumerate() {
            let free = room.reach(i) == Reach::Both;
            match b {
                Some(b) if free => self.demands.push(*b, 0.0, room.fast_share(i)),
                _ => self.demands.push(0.0, 0.0, 0.0),
            }
        }
        self.level = self.demands.level(fast, self.level);
    }
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
        let benefit = &self.benefit;
        self.sharing.begin(view, turn, &|i| benefit[i].is_some());
        self.share(view);
        let (benefit, demands, level) = (&self.benefit, &self.demands, self.level);
        let share = |i: usize, _| benefit[i].map(|_| demands.at(i, level));
        self.sharing.seat(view, turn, &share, out);
    }

    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }
}
