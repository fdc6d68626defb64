//! RR: equal time on fast cores for all.

use crate::machine::Placement;
use crate::policy::contract::{Entry, Policy};
use crate::policy::knobs::{Knob, KnobKind, Knobs};
use crate::policy::ledger::Ledger;
use crate::policy::seats::{Claim, Seats};
use crate::view::View;
use amp_metrics::{AppId, CoreTypeId, ThreadKey, MAX_CORE_TYPES};

/// How the policy is registered.
pub const ENTRY: Entry = Entry {
    name: "rr",
    summary: "equal time on fast cores for every application",
    needs: "-",
    help: HELP,
    max_core_types: MAX_CORE_TYPES,
    uses_metrics: false,
    takes_turns: true,
    make: |_| Box::new(RoundRobin::new()),
};

/// A page about the policy.
const HELP: &str = "\
rr: asymmetry-aware round-robin.

Fair-shares the fast cores among applications [PMCTrack], however many threads each has;
`share=thread` shares them among threads instead [TD]. The application that has had most time on
fast cores gives up its seat to the one that has had least, once the difference exceeds the
threshold. Shares are in proportion to weight. Inside an application the threads take turns. With
more than two core types the time on the fastest, on the fastest two, and so on is shared alike.

It needs no metrics. Use it where repeatable completion times matter more than throughput, and as
the baseline for fairness. It ignores that some applications gain more from fast cores than others:
both throughput and fairness suffer when speedup factors differ much.
";

const THRESHOLD: usize = 0;
const SHARE: usize = 1;

const KNOBS: &[Knob] = &[
    Knob::milliseconds(
        "threshold",
        100.0,
        "difference in fast-core time at which two threads change places",
    ),
    Knob {
        key: "share",
        kind: KnobKind::Choice(&["app", "thread"]),
        help: "among whom fast-core time is shared",
    },
];

/// Leads and lags are remembered up to so many thresholds.
const MEMORY: f64 = 8.0;

/// Asymmetry-aware round-robin [PMCTrack §4.1; threads variant TD].
#[derive(Debug)]
pub struct RoundRobin {
    knobs: Knobs,
    apps: Ledger<AppId>,
    threads: Ledger<ThreadKey>,
    seats: Seats,
    /// Per thread of the view: its rank in its application, at the level being filled.
    rank: Vec<u32>,
}

impl RoundRobin {
    /// The policy with default parameters.
    pub fn new() -> RoundRobin {
        RoundRobin {
            knobs: Knobs::new(ENTRY.name, KNOBS),
            apps: Ledger::default(),
            threads: Ledger::default(),
            seats: Seats::default(),
            rank: Vec::new(),
        }
    }

    fn book(&mut self, view: &View<'_>, memory: f64) {
        self.apps.begin();
        self.threads.begin();
        for th in view.threads {
            let mut used = [0.0; MAX_CORE_TYPES];
            for t in view.core_types() {
                used[t.index()] = th.ran_up_to(t) * 100.0 / f64::from(th.weight);
            }
            self.apps.charge(th.app_id, &used);
            self.threads.charge(th.key, &used);
        }
        self.apps.settle(memory);
        self.threads.settle(memory);
    }
}

impl Default for RoundRobin {
    fn default() -> Self {
        RoundRobin::new()
    }
}

impl Policy for RoundRobin {
    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        let threshold = self.knobs.number(THRESHOLD) / 1e3;
        let by_app = self.knobs.choice(SHARE) == "app";
        self.book(view, MEMORY * threshold);

        // An application's second thread claims as though the first one's turn had been had
        // already, so that seats go round the applications before one gets two.
        self.rank.clear();
        self.rank.resize(view.threads.len() * MAX_CORE_TYPES, 0);
        if by_app {
            for app in view.apps {
                for t in view.core_types() {
                    let mut next = 0;
                    for holders in [true, false] {
                        for i in app
                            .threads
                            .clone()
                            .filter(|&i| view.threads[i].holds(t) == holders)
                        {
                            self.rank[i * MAX_CORE_TYPES + t.index()] = next;
                            next += 1;
                        }
                    }
                }
            }
        }
        let (apps, threads, rank) = (&self.apps, &self.threads, &self.rank);
        let mut claim = |i: usize, t: CoreTypeId| {
            let th = &view.threads[i];
            let used = if by_app {
                let turns = f64::from(rank[i * MAX_CORE_TYPES + t.index()]);
                apps.used(th.app_id, t.index()) + turns * threshold
            } else {
                threads.used(th.key, t.index())
            };
            Claim {
                strength: -used,
                bonus: threshold,
            }
        };
        self.seats.assign(view, &mut claim);
        if by_app {
            self.seats
                .take_turns(view, &self.threads, threshold, &|_, _| true);
        }
        self.seats.write(view, out);
    }

    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }
}
