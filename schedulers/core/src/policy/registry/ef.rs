//! EF-driven: fast cores to those who use energy best there.

mod spare;

use crate::machine::Placement;
use crate::policy::contract::{Entry, Policy};
use crate::policy::knobs::{Knob, KnobKind, Knobs};
use crate::policy::ledger::Ledger;
use crate::policy::room::Reach;
use crate::policy::seats::{Claim, Seats};
use crate::policy::smooth::Smoothed;
use crate::policy::threads::PerThread;
use crate::policy::turns::Turns;
use crate::utility::Utility;
use crate::view::View;
use amp_metrics::{CoreTypeId, MetricId, Nanos, ThreadKey, MAX_CORE_TYPES};
use spare::Spare;

/// How the policy is registered.
pub const ENTRY: Entry = Entry {
    name: "ef",
    summary: "energy-delay: fast cores to the highest efficiency factors",
    needs: "EF, SF",
    help: HELP,
    max_core_types: MAX_CORE_TYPES,
    uses_metrics: true,
    takes_turns: false,
    make: |_| Box::new(EfDriven::new()),
};

/// A page about the policy.
const HELP: &str = "\
ef: efficiency-factor driven.

Gives fast cores to the threads with the highest efficiency factor [PMCTrack s. 4.2.2, eq. 3-7]

    EF = EDP_small / EDP_big = SF / (energy_big / energy_small)

the EF following the phases of the program (the paper evaluated fixed placements). EFs that cannot
be distinguished decide nothing: threads in a fast core whose EF is within the noise of the best one
outside, and threads outside whose EF is within the noise of the worst one inside, are ranked by
application-wide speedup instead. Noise is

    |EF_a - EF_b| / min(EF_a, EF_b) <= margin + coverage sqrt(u_a^2 + u_b^2),   u the relative standard uncertainties

A running mean smooths EF and SF, and starts afresh when a value departs from it as at a change of
phase; a thread keeps its place for a turn at least. A thread with a speedup factor but no EF is
ranked by speedup, as though its EF were all noise; one with neither is fair-shared: it gets its
weight's share of every core type's time. With spare=on, which the papers do not have, a thread whose
EF is below 1, or not known, is on a slow core as long as slow cores have room for it by their load:
fast cores are idle then; that is for machines of two core types.

The papers have two core types. With more, each but the slowest has its own EF, over the slowest, and threads
are ranked for it against those on slower types. Use it to save energy at little cost in throughput; it is
an unfair policy like hsp.
";

const COVERAGE: usize = 0;
const MARGIN: usize = 1;
const HYSTERESIS: usize = 2;
const SMOOTHING: usize = 3;
const TURN: usize = 4;
const SPARE: usize = 5;

const KNOBS: &[Knob] = &[
    Knob {
        key: "coverage",
        kind: KnobKind::Number {
            unit: "standard uncertainties",
            default: 1.0,
            min: 0.0,
            max: 10.0,
        },
        help: "how far apart two EFs must be to count as different",
    },
    Knob::percent("margin", 3.0, "difference between two EFs that never counts"),
    Knob::percent(
        "hysteresis",
        4.0,
        "how much better a thread must be to take a seat from its holder",
    ),
    Knob::smoothing(16.0, "length of the running means of EF and SF"),
    Knob::milliseconds(
        "turn",
        250.0,
        "how long a thread keeps its place at least, and the turn of equal threads of an application",
    ),
    Knob {
        key: "spare",
        kind: KnobKind::Choice(&["off", "on"]),
        help: "whether fast cores are left idle where slow ones have room and less energy-delay",
    },
];

/// Distance between the classes.
const CLASS: f64 = 1e4;
/// Factors count up to this one, far below the distance between classes.
const MOST: f64 = 1e3;
/// Bonus of a thread whose turn is not over: above any class.
const KEEP: f64 = 1e5;
/// An EF below this is worth no fast core that could be idle; a thread on a slow core stays there up to
/// the second one.
const WORTH: [f64; 2] = [1.0, 1.05];
/// Leads of threads of one application are remembered up to so many turns.
const MEMORY: f64 = 8.0;

#[derive(Clone, Copy, Debug, Default)]
struct State {
    ef: Smoothed,
    sf: Smoothed,
    placed: Option<CoreTypeId>,
    since: Nanos,
}

/// What is known of a thread now.
#[derive(Clone, Copy, Debug)]
struct Rating {
    /// EF and its relative standard uncertainty.
    ef: Option<(f64, f64)>,
    /// Application-wide speedup.
    sp: Option<f64>,
    turn_is_on: bool,
}

/// EF-driven [PMCTrack §4.2.2], dynamic.
#[derive(Debug)]
pub struct EfDriven {
    knobs: Knobs,
    /// Per core type but the slowest.
    levels: Vec<Level>,
    siblings: Ledger<ThreadKey>,
    turns: Turns,
    seats: Seats,
    spare: Spare,
}

/// How threads rank for a core type, against those on slower ones.
#[derive(Debug, Default)]
struct Level {
    states: PerThread<State>,
    /// Per thread of the view.
    ratings: Vec<Option<Rating>>,
    rank: Vec<Rank>,
    order: Vec<(f64, usize)>,
    /// Whether each is contested, in that order.
    contested: Vec<bool>,
}

/// Rank of a thread.
#[derive(Clone, Copy, Debug)]
struct Rank {
    class: f64,
    /// EF or application-wide speedup.
    factor: f64,
}

impl Level {
    /// Takes in the interval. `t` is the core type.
    fn rate(&mut self, view: &View<'_>, t: CoreTypeId, window: f64, turn: f64) {
        let alike = view.topology.core_types().len() < 2;
        self.states.begin();
        self.ratings.clear();
        for th in view.threads {
            let ef = view.estimate(th, MetricId::EfficiencyFactor(t));
            let sf = view.speedup_factor(th, t);
            if alike || (ef.is_none() && sf.is_none()) {
                self.ratings.push(None);
                continue;
            }
            let (_, s) = self.states.enter(th.key, th.succeeds, State::default);
            let ef = ef.map(|e| {
                let mean = s.ef.update(e.value, window);
                (
                    mean.min(MOST),
                    e.uncertainty.map_or(0.0, |u| u.abs() / e.value),
                )
            });
            let sp = sf.map(|sf| {
                let sf = s.sf.update(sf, window);
                view.utility(th, t, sf, Utility::Speedup).min(MOST)
            });
            if s.placed != th.placed {
                (s.placed, s.since) = (th.placed, view.now);
            }
            // half an interval's grace: a turn of n intervals is n intervals
            let held = view.now.saturating_sub(s.since) + Nanos(view.interval.0 / 2);
            self.ratings.push(Some(Rating {
                ef,
                sp,
                turn_is_on: held.as_secs_f64() < turn,
            }));
        }
    }

    /// Ranks by EF and finds who is contested: indistinguishable from the other side of the cut. `owed` of the cores of
    /// type `t` and faster ones go to others.
    fn sort_out(&mut self, view: &View<'_>, t: CoreTypeId, owed: f64, knobs: &Knobs) {
        let margin = knobs.number(MARGIN) / 100.0;
        let coverage = knobs.number(COVERAGE);
        let (mut pinned, mut unranked) = (0usize, 0usize);
        self.order.clear();
        for (i, (th, r)) in view.threads.iter().zip(&self.ratings).enumerate() {
            let Some(r) = r else { continue };
            match (Reach::of(view, th.allowed, t), r.ef) {
                (Reach::Fast, _) => pinned += 1,
                (Reach::Both, Some((ef, _))) => self.order.push((ef, i)),
                (Reach::Both, None) => unranked += 1,
                (Reach::Slow, _) => {}
            }
        }
        // seats for the ranked ones, in the proportion in which seats are handed out
        let cpus = view.seats_up_to(view.topology.slowest());
        let per_cpu = (view.threads.len() as f64 / cpus.max(1) as f64).max(1.0);
        let inside = ((view.seats_up_to(t) as f64 - owed) * per_cpu - pinned as f64)
            .round()
            .max(0.0) as usize;
        // the cut: better ones before it, in no order, the best of the others just behind
        let better = |a: &(f64, usize), b: &(f64, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if inside < self.order.len() {
            self.order.select_nth_unstable_by(inside, better);
        }
        let best_outside = self.order.get(inside).copied();
        let worst_inside = self.order.iter().take(inside).copied().max_by(better);
        let spread = |i: usize| self.ratings[i].and_then(|r| r.ef).map_or(0.0, |e| e.1);
        let across = [best_outside, worst_inside].map(|x| x.map(|(ef, i)| (ef, spread(i))));
        // Speedups compare only where all who are contested have one.
        let mut comparable = true;
        self.contested.clear();
        for (rank, (ef, i)) in self.order.iter().enumerate() {
            let contested = match across[usize::from(rank >= inside)] {
                Some((other, u)) => {
                    let noise = margin + coverage * (u * u + spread(*i).powi(2)).sqrt();
                    (ef - other).abs() <= noise * ef.min(other)
                }
                // nobody with an EF on the other side, but there are those without
                None => unranked > 0,
            };
            let sp = self.ratings[*i].and_then(|r| r.sp);
            comparable &= !contested || sp.is_some();
            self.contested.push(contested);
        }
        self.rank.clear();
        self.rank.extend(self.ratings.iter().map(|r| {
            // without an EF: contested
            let factor = r.and_then(|r| r.sp).unwrap_or(0.0);
            Rank { class: 0.0, factor }
        }));
        for (rank, ((ef, i), contested)) in self.order.iter().zip(&self.contested).enumerate() {
            let class = match contested {
                true => 0.0,
                false if rank < inside => CLASS,
                false => -CLASS,
            };
            let sp = self.ratings[*i].and_then(|r| r.sp);
            let factor = sp.filter(|_| *contested && comparable).unwrap_or(*ef);
            self.rank[*i] = Rank { class, factor };
        }
    }

    /// The claim of thread `i` of the view to the core type.
    fn claim(&self, i: usize, hysteresis: f64) -> Claim {
        let rank = self.rank[i];
        Claim {
            strength: rank.class + rank.factor,
            bonus: match self.ratings[i] {
                Some(r) if r.turn_is_on => KEEP,
                _ => rank.factor * hysteresis,
            },
        }
    }

    /// Whether nothing tells threads `a` and `b` of the view apart.
    fn alike(&self, a: usize, b: usize, hysteresis: f64) -> bool {
        let (known, other) = (self.ratings[a].is_some(), self.ratings[b].is_some());
        let (a, b) = (self.rank[a], self.rank[b]);
        let near = (a.factor - b.factor).abs() <= hysteresis * a.factor.min(b.factor);
        known && other && a.class == b.class && near
    }
}

impl EfDriven {
    /// The policy with default parameters.
    pub fn new() -> EfDriven {
        EfDriven {
            knobs: Knobs::new(ENTRY.name, KNOBS),
            levels: Vec::new(),
            siblings: Ledger::default(),
            turns: Turns::default(),
            seats: Seats::default(),
            spare: Spare::default(),
        }
    }

    /// Leaves fast cores to nobody where that saves energy.
    fn leave(&mut self, view: &View<'_>) {
        if self.knobs.choice(SPARE) != "on" || view.topology.core_types().len() != 2 {
            return;
        }
        let Some(level) = self.levels.first() else {
            return;
        };
        let ratings = &level.ratings;
        let worth = |i: usize| {
            let th = &view.threads[i];
            let is_there = th.placed == Some(view.topology.slowest());
            let ef = ratings[i].and_then(|r| r.ef).map_or(0.0, |(ef, _)| ef);
            let free = Reach::of(view, th.allowed, CoreTypeId::FASTEST) == Reach::Both;
            (free && ef < WORTH[usize::from(is_there)]).then_some(ef)
        };
        let sf = |i: usize| {
            view.speedup_factor(&view.threads[i], CoreTypeId::FASTEST)
                .unwrap_or(1.0)
        };
        self.spare.leave(view, &mut self.seats, &worth, &sf);
    }

    /// Takes in the interval.
    fn rate(&mut self, view: &View<'_>, turn: f64) {
        let window = self.knobs.number(SMOOTHING);
        self.levels
            .resize_with(view.fast_types().len(), Level::default);
        for (level, t) in self.levels.iter_mut().zip(view.fast_types()) {
            level.rate(view, t, window, turn);
        }
        self.siblings.begin();
        for th in view.threads {
            if view.apps.get(th.app).is_some_and(|a| a.threads.len() > 1) {
                let mut used = [0.0; MAX_CORE_TYPES];
                for (used, t) in used.iter_mut().zip(view.fast_types()) {
                    *used = th.ran_up_to(t);
                }
                self.siblings.charge(th.key, &used);
            }
        }
        self.siblings.settle(MEMORY * turn);
    }
}

impl Default for EfDriven {
    fn default() -> Self {
        EfDriven::new()
    }
}

impl Policy for EfDriven {
    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        let turn = self.knobs.number(TURN) / 1e3;
        let hysteresis = self.knobs.number(HYSTERESIS) / 100.0;
        self.rate(view, turn);
        let levels = &self.levels;
        let known = |i: usize| levels.iter().all(|l| l.ratings[i].is_some());
        self.turns.update(view, turn, &known);
        for (level, t) in self.levels.iter_mut().zip(view.fast_types()) {
            level.sort_out(view, t, self.turns.owed(t), &self.knobs);
        }
        let (turns, levels) = (&self.turns, &self.levels);
        // who is on the slowest type is not chosen for it
        let level = |t: CoreTypeId| levels.get(t.index()).or(levels.last());
        let nobody = Claim {
            strength: 0.0,
            bonus: 0.0,
        };
        self.seats.assign(view, &mut |i, t| {
            let claim = || level(t).map_or(nobody, |l| l.claim(i, hysteresis));
            turns.claim(i, t).unwrap_or_else(claim)
        });
        self.seats.take_turns(view, &self.siblings, turn, &|a, b| {
            levels.iter().all(|l| l.alike(a, b, hysteresis))
        });
        self.leave(view);
        self.seats.write(view, out);
    }

    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }
}
