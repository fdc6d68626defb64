//! Probes: for an interval, a thread runs on a core type where the provider would like to see it.
//!
//! A policy places a thread by its factors, and so keeps it from where those could be measured. A
//! probe is laid over the policy's decision: a thread that the provider wants to see on another core
//! type ([`Provider::wanted_on`]) changes places for an interval with one that the policy has placed
//! there. Decisions that are made early do not shorten that. So
//!
//! - as many threads are on each core type as the policy has decided;
//! - affinity holds for both;
//! - no thread is away from its place for more than its share of the time that it wanted a core
//!   (`engine.probes`), one probe in advance; the next run of a program has the account of the one
//!   before. Two threads whose factors are near each other lose little in each other's places, and are charged for less
//!   than the time (`cost`);
//! - one whose place does not depend on what a probe would show ([`Policy::contested`]) is
//!   probed with [`LOOKS`] of that share, and not in advance: what is told of it might be wrong all the
//!   same;
//! - a probe ends when the policy decides otherwise on either of the two, or one of them rests;
//! - there is none where the provider wants nothing, and none under a policy that places threads
//!   without metrics.
//!
//! The policy does not see it: to the policy both threads hold their places. What they did, and
//! where, is in the view as it really was, so that accounts are right.

use crate::machine::{Placement, Topology};
#[cfg(doc)]
use crate::policy::contract::Policy;
use crate::policy::knobs::{Knob, Knobs};
use crate::view::ThreadView;
use amp_metrics::{CoreTypeId, MetricId, Nanos, Provider, ThreadKey};
use rustc_hash::FxHashMap;

/// Under what name the engine's parameters are set.
pub const ENGINE: &str = "engine";

/// Parameters of the engine.
const KNOBS: &[Knob] = &[Knob::percent(
    "probes",
    5.0,
    "share of its time that a thread may be kept from its place so that it is measured elsewhere; 0: never",
)];

/// The parameters of the engine at their defaults.
pub fn knobs() -> Knobs {
    Knobs::new(ENGINE, KNOBS)
}

/// Part of an interval that may be missing from a probe: decisions come when they do.
const SHORT: f64 = 0.3;
/// Part of its share that a thread is away of which enough is known for its place.
const LOOKS: f64 = 0.4;
/// The least part of the time of a probe that is charged: threads come to cold caches, twice.
const LEAST_COST: f64 = 0.25;
/// Ratio of two factors from which on all of it is.
const DEAR: f64 = 2.0;
/// Threads that are asked about in one tick, by turns.
const ASKED: usize = 256;

/// Two threads that have changed places.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// Each with the place that the policy has decided on.
    pair: [(ThreadKey, CoreTypeId); 2],
    /// Seconds that are left.
    left: f64,
    /// Part of the time that is charged.
    cost: f64,
}

/// Seconds that a thread wanted a core, and was away from its place.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    offered: f64,
    away: f64,
    seen: u64,
}

/// The probes that are under way.
#[derive(Debug, Default)]
pub(super) struct Probes {
    running: Vec<Probe>,
    accounts: FxHashMap<ThreadKey, Account>,
    round: u64,
    next: usize,
    // reused from tick to tick
    index: FxHashMap<ThreadKey, usize>,
    to: Vec<Option<CoreTypeId>>,
    busy: Vec<bool>,
}

/// What a tick has come to.
#[derive(Clone, Copy)]
pub(super) struct Situation<'a> {
    pub interval: Nanos,
    /// That between two decisions neither of which is early.
    pub period: Nanos,
    pub topology: &'a Topology,
    pub offered: &'a [ThreadView],
    pub provider: &'a dyn Provider,
    /// Whether the place of a thread, by its index in `offered`, depends on what a probe would show.
    pub contested: &'a dyn Fn(usize) -> bool,
}

/// What there is to be learned of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worth {
    /// Nothing is known of it.
    Unknown,
    /// Its place depends on it, or that of its neighbours.
    Contested,
    /// Its place does not.
    Look,
}

/// A thread that the provider would like to see on a core type.
#[derive(Clone, Copy, Debug)]
struct Wish {
    thread: usize,
    on: CoreTypeId,
    worth: Worth,
}

/// The part of a probe's time that is charged to two threads that change places: none is lost between two of the same
/// factor.
fn cost(provider: &dyn Provider, pair: &[(ThreadKey, CoreTypeId); 2]) -> f64 {
    let factor = |(key, on): (ThreadKey, CoreTypeId), other: CoreTypeId| {
        let faster = MetricId::SpeedupFactor(on.min(other));
        Some(provider.estimate(key, faster)?.value)
    };
    let [a, b] = *pair;
    match (factor(a, b.1), factor(b, a.1)) {
        (Some(a), Some(b)) if a > 0.0 && b > 0.0 => {
            ((a / b).ln().abs() / DEAR.ln()).clamp(LEAST_COST, 1.0)
        }
        _ => 1.0,
    }
}

impl Probes {
    /// Shows threads under a probe in the places that the policy gave them.
    pub fn hide(&self, offered: &mut [ThreadView]) {
        if self.running.is_empty() {
            return;
        }
        for th in offered {
            let all = self.running.iter().flat_map(|p| p.pair);
            for (_, home) in all.filter(|(key, _)| *key == th.key) {
                th.placed = Some(home);
            }
        }
    }

    /// Lays probes over the policy's decision; how many begin. `share` is the part of its time, 0
    /// to 1, that a thread may be away.
    pub fn lay_over(&mut self, share: f64, now: &Situation<'_>, decided: &mut Placement) -> u64 {
        let Situation {
            interval, offered, ..
        } = *now;
        let (seconds, period) = (interval.as_secs_f64(), now.period.as_secs_f64());
        self.charge(offered, seconds);
        let types = now.topology.core_types().len();
        let anew = share > 0.0 && types > 1 && interval > Nanos::ZERO;
        let wanted = if anew { self.wanted(now) } else { Vec::new() };
        if self.running.is_empty() && wanted.is_empty() {
            return 0;
        }
        self.targets(offered, decided);
        let running = std::mem::take(&mut self.running);
        for mut p in running {
            p.left -= seconds;
            let goes_on = share > 0.0 && p.left > SHORT * period;
            if goes_on && self.goes_on(&p, offered) {
                self.swap(&p, decided);
                self.running.push(p);
            } else {
                // a thread on which the policy decides nothing goes back all the same
                for (key, home) in p.pair {
                    if self.undecided(key, decided) && self.index.contains_key(&key) {
                        decided.place(key, home);
                    }
                }
            }
        }
        let most = (now.topology.nr_cores(CoreTypeId::FASTEST) / 2).max(1);
        let mut begun = 0;
        for wish in &wanted {
            if self.running.len() >= most {
                break;
            }
            if let Some(mut p) = self.pair(*wish, share, period, offered, &wanted) {
                p.cost = cost(now.provider, &p.pair);
                self.swap(&p, decided);
                self.running.push(p);
                begun += 1;
            }
        }
        begun
    }

    /// Time goes by, for threads that want a core; others are forgotten.
    fn charge(&mut self, offered: &[ThreadView], seconds: f64) {
        self.round += 1;
        for th in offered {
            let before = || th.succeeds.and_then(|k| self.accounts.get(&k).copied());
            let fresh = match self.accounts.contains_key(&th.key) {
                true => None,
                false => before(),
            };
            let a = self
                .accounts
                .entry(th.key)
                .or_insert_with(|| fresh.unwrap_or_default());
            a.offered += seconds;
            a.seen = self.round;
        }
        for p in &self.running {
            for (key, _) in p.pair {
                if let Some(a) = self.accounts.get_mut(&key) {
                    a.away += seconds * p.cost;
                }
            }
        }
        if self.accounts.len() > 2 * offered.len() + 64 {
            let round = self.round;
            self.accounts.retain(|_, a| a.seen == round);
        }
    }

    /// Threads that the provider would like to see elsewhere, those first of which nothing is known.
    fn wanted(&mut self, now: &Situation<'_>) -> Vec<Wish> {
        let Situation {
            offered, provider, ..
        } = *now;
        let n = offered.len();
        let from = self.next.checked_rem(n).unwrap_or(0);
        self.next = from + ASKED.min(n);
        let asked = (from..n).chain(0..from).take(ASKED);
        let factor = MetricId::SpeedupFactor(CoreTypeId::FASTEST);
        let mut wishes: Vec<Wish> = asked
            .filter_map(|thread| {
                let key = offered[thread].key;
                let on = provider.wanted_on(key)?;
                let worth = match () {
                    () if provider.estimate(key, factor).is_none() => Worth::Unknown,
                    () if (now.contested)(thread) || provider.suspects(key) => Worth::Contested,
                    () => Worth::Look,
                };
                Some(Wish { thread, on, worth })
            })
            .collect();
        wishes.sort_by_key(|w| w.worth as u8);
        wishes
    }

    /// Works out where each thread is to be by the policy.
    fn targets(&mut self, offered: &[ThreadView], decided: &Placement) {
        self.index.clear();
        self.index
            .extend(offered.iter().enumerate().map(|(i, th)| (th.key, i)));
        self.to.clear();
        self.to.extend(offered.iter().map(|th| th.placed));
        for (key, to) in decided.iter() {
            if let Some(i) = self.index.get(&key) {
                self.to[*i] = to;
            }
        }
        self.busy.clear();
        self.busy.resize(offered.len(), false);
    }

    fn goes_on(&self, p: &Probe, offered: &[ThreadView]) -> bool {
        let [(_, a), (_, b)] = p.pair;
        let holds = |(key, home): (ThreadKey, CoreTypeId), away: CoreTypeId| {
            self.index
                .get(&key)
                .is_some_and(|i| self.to[*i] == Some(home) && offered[*i].allowed.contains(away))
        };
        holds(p.pair[0], b) && holds(p.pair[1], a)
    }

    fn undecided(&self, key: ThreadKey, decided: &Placement) -> bool {
        decided.iter().all(|(k, _)| k != key)
    }

    /// A probe of so many seconds as wished, if there is a thread to change places with. One that is wanted where the
    /// other one is goes first, then the one that was away least.
    fn pair(
        &self,
        wish: Wish,
        share: f64,
        probe: f64,
        offered: &[ThreadView],
        wanted: &[Wish],
    ) -> Option<Probe> {
        let Wish { thread: i, on, .. } = wish;
        let home = self.to.get(i).copied().flatten()?;
        let free = |j: usize, away: CoreTypeId| {
            let within = |a: &Account| match wish.worth {
                Worth::Look => a.away + probe <= LOOKS * share * a.offered,
                _ => a.away <= share * a.offered,
            };
            !self.busy[j]
                && offered[j].allowed.contains(away)
                && self.accounts.get(&offered[j].key).is_some_and(within)
        };
        if home == on || !free(i, on) {
            return None;
        }
        let away = |i: usize| self.accounts.get(&offered[i].key).map_or(0.0, |a| a.away);
        let with = (0..offered.len())
            .filter(|j| self.to[*j] == Some(on) && free(*j, home))
            .min_by(|a, b| {
                let unasked = |j: usize| !wanted.iter().any(|w| w.thread == j && w.on == home);
                let order = unasked(*a).cmp(&unasked(*b));
                order.then(away(*a).total_cmp(&away(*b)))
            })?;
        Some(Probe {
            pair: [(offered[i].key, home), (offered[with].key, on)],
            left: probe,
            cost: 1.0,
        })
    }

    fn swap(&mut self, p: &Probe, decided: &mut Placement) {
        let [(a, home_a), (b, home_b)] = p.pair;
        for (key, to) in [(a, home_b), (b, home_a)] {
            decided.change(key, to);
            if let Some(i) = self.index.get(&key) {
                self.busy[*i] = true;
            }
        }
    }
}

#[cfg(test)]
mod tests;
