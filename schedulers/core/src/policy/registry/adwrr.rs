//! A-DWRR: equal scaled CPU time for all threads.

use crate::machine::{Placement, Topology};
use crate::policy::contract::{Entry, Policy};
use crate::policy::knobs::{Knob, KnobKind, Knobs};
use crate::policy::progress::{Join, Past, Progress};
use crate::policy::seats::{Claim, Seats};
use crate::view::View;
use amp_metrics::{Nanos, MAX_CORE_TYPES};

/// How the policy is registered.
pub const ENTRY: Entry = Entry {
    name: "adwrr",
    summary: "equal scaled CPU time for every thread, by weight",
    needs: "-",
    help: HELP,
    max_core_types: MAX_CORE_TYPES,
    uses_metrics: false,
    takes_turns: true,
    make: |_| Box::new(Adwrr::new()),
};

/// A page about the policy.
const HELP: &str = "\
adwrr: asymmetry-aware distributed weighted round-robin.

Evens out the scaled CPU time of threads, by weight [ADWRR]: a second on core type t is worth
rating_t seconds on the slowest one, whatever the thread makes of it. A round is `round` ms of
scaled time for weight 100; a thread leaves a fast core when one on a slower core is a whole round
behind it, so that nobody gets further ahead (the paper bounds CPUs rather than threads by one
round; that could not be checked against it).

    scaled time += (100/weight) rating_t          per second on core type t
    rating_t = capacity_t / capacity_slowest      unless the knob sets that of the fastest type, types between scaled alike

The rating is a property of the machine, so that no metrics are needed. Each thread counts, however
many its application has. New threads join the round in progress; a rest neither earns nor costs
anything. Works with any number of core types. Use it where time, not progress, is to be shared by
priority; like rr it ignores that programs differ in speedup.
";

const ROUND: usize = 0;
const RATING: usize = 1;

const KNOBS: &[Knob] = &[
    Knob::milliseconds("round", 250.0, "scaled CPU time of a round for weight 100"),
    Knob {
        key: "rating",
        kind: KnobKind::Auto {
            unit: "",
            min: 1.0,
            max: 100.0,
        },
        help: "worth of a second on the fastest cores over one on the slowest; auto: from the capacities",
    },
];

/// Leads and lags are remembered up to so many rounds.
const MEMORY: f64 = 16.0;

/// Asymmetry-aware distributed weighted round-robin \[ADWRR\].
#[derive(Debug)]
pub struct Adwrr {
    knobs: Knobs,
    scaled: Progress,
    seats: Seats,
}

impl Adwrr {
    /// The policy with default parameters.
    pub fn new() -> Adwrr {
        Adwrr {
            knobs: Knobs::new(ENTRY.name, KNOBS),
            scaled: Progress::default(),
            seats: Seats::default(),
        }
    }
}

/// Worth of a second per core type; 1 on the slowest. `fastest` overrides that of the fastest type.
fn ratings(topology: &Topology, fastest: Option<f64>) -> [f64; MAX_CORE_TYPES] {
    let mut r = [1.0; MAX_CORE_TYPES];
    let types = topology.core_types();
    let capacity = |i: usize| types.get(i).map_or(1.0, |t| f64::from(t.capacity.max(1)));
    let slowest = capacity(types.len().saturating_sub(1));
    for (i, r) in r.iter_mut().enumerate().take(types.len()) {
        *r = (capacity(i) / slowest).max(1.0);
    }
    if let Some(f) = fastest.filter(|_| types.len() > 1) {
        let natural = r[0];
        for (i, r) in r.iter_mut().enumerate().take(types.len()) {
            // capacities may be flat, as on SMT hybrids: then by position
            let position = 1.0 - i as f64 / (types.len() - 1) as f64;
            let height = if natural > 1.0 {
                (*r - 1.0) / (natural - 1.0)
            } else {
                position
            };
            *r = 1.0 + (f - 1.0) * height;
        }
    }
    r
}

impl Default for Adwrr {
    fn default() -> Self {
        Adwrr::new()
    }
}

impl Policy for Adwrr {
    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        let round = self.knobs.number(ROUND) / 1e3;
        let ratings = ratings(view.topology, self.knobs.chosen(RATING));
        let scaled = |time: &[Nanos; MAX_CORE_TYPES], weight: u32| -> f64 {
            let worth: f64 = time
                .iter()
                .zip(ratings)
                .map(|(t, r)| t.as_secs_f64() * r)
                .sum();
            worth * 100.0 / f64::from(weight)
        };
        self.scaled.begin();
        for th in view.threads {
            self.scaled.charge(th, scaled(&th.ran, th.weight), || {
                let ran = th.runtime.iter().copied().sum::<Nanos>().as_secs_f64();
                Past {
                    ran,
                    v: scaled(&th.runtime, th.weight),
                }
            });
        }
        self.scaled.settle(view, Join::Front, MEMORY * round);
        let accounts = &self.scaled;
        self.seats.assign(view, &mut |i, _| Claim {
            strength: -accounts.ahead(i).unwrap_or(0.0),
            bonus: round,
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
    use crate::testing::topology;

    #[test]
    fn ratings_follow_capacities_or_the_knob() {
        let t = topology(&[2, 2, 4]); // capacities 1024, 512, 256
        assert_eq!(ratings(&t, None)[..3], [4.0, 2.0, 1.0]);
        let r = ratings(&t, Some(2.5));
        assert_eq!((r[0], r[1], r[2]), (2.5, 1.5, 1.0));
        let mut flat = t.core_types().to_vec();
        flat.iter_mut().for_each(|t| t.capacity = 1024);
        let flat = Topology::new(flat).unwrap();
        assert_eq!(ratings(&flat, None)[..3], [1.0; 3]);
        assert_eq!(ratings(&flat, Some(3.0))[..3], [3.0, 2.0, 1.0]);
        assert_eq!(ratings(&topology(&[3]), Some(3.0))[0], 1.0);
    }
}
