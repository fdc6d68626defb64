//! A platform model: factors from metrics measured on the core type the thread is on.
//!
//! The model is data: a TOML file (see `models/README.md`) with, per core type, the event sets, the
//! metrics made of their counts, and for each factor an additive regression of stumps or a linear
//! formula [PMCTrack §4.1.2].

mod check;
mod file;
mod formula;
mod platform;

pub use platform::PlatformModel;

use super::threads::Threads;
use crate::estimate::{Estimate, Quality};
use crate::event::{EventError, EventSet, EventSets, EventSpec, MAX_EVENTS};
use crate::ids::{CoreTypeId, CoreTypeSet, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::multiplex::{self, Observation, Rounds, Step, Strategy};
use crate::pmu::Pmus;
use crate::provider::{Caveats, MetricId, Phase, Provider};
use crate::sample::{Reading, Snapshot};
use formula::{Prediction, Predictions, Target};

/// Most metrics of one core type: their values are computed in place, on the stack.
pub const MAX_METRICS: usize = 32;
/// Most stumps in a sum, of a factor or of its variance: a prediction looks at each of them.
pub const MAX_STUMPS: usize = 1024;

/// How much more depends on a sample of a thread of which nothing is known.
const UNKNOWN: u32 = 16;

#[derive(Clone, Copy, Debug)]
struct Known {
    /// Core type that it was measured on.
    on: CoreTypeId,
    prediction: Prediction,
    oldest: Nanos,
    coverage: f64,
    multiplexed: bool,
}

#[derive(Clone, Debug)]
struct Thread {
    rounds: Vec<Rounds>,
    speedup: [Option<Known>; MAX_CORE_TYPES],
    efficiency: [Option<Known>; MAX_CORE_TYPES],
    last_type: CoreTypeId,
    /// When it was last read, or first seen.
    read: Nanos,
    /// Core types on which it has a round that is open since then, and whether the model keeps the thread among those with one.
    open: CoreTypeSet,
    listed: bool,
    /// Phase changes of core types before the last one, so that numbers only grow.
    phases_before: u32,
}

/// The provider that runs a [`PlatformModel`].
pub struct Model {
    model: PlatformModel,
    strategies: Vec<Box<dyn Strategy>>,
    active: [usize; MAX_CORE_TYPES],
    /// Since when the active set is on.
    since: [Nanos; MAX_CORE_TYPES],
    /// Threads that have a round open. Not every one of them is read before the next look.
    open: Vec<ThreadKey>,
    /// By core type and set: how much depends on a sample of the set, for those of them who lack one there. All 0 where nobody
    /// waits.
    lacking: Vec<Vec<u32>>,
    /// By core type and set: changes of sets that have passed the set over.
    passed: Vec<Vec<u32>>,
    threads: Threads<Thread>,
    last: Nanos,
    now: Nanos,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.model.name)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// The provider for this model.
    pub fn new(model: PlatformModel) -> Model {
        let mut strategies: Vec<Box<dyn Strategy>> = model
            .core_types
            .iter()
            .map(|t| {
                // checked when the file was read; round-robin would do otherwise
                multiplex::by_name(&model.strategy, t.sets.len())
                    .or_else(|_| multiplex::by_name("round-robin", t.sets.len()))
            })
            .filter_map(Result::ok)
            .collect();
        let mut active = [0; MAX_CORE_TYPES];
        for (active, s) in active.iter_mut().zip(&mut strategies) {
            *active = s.next(0.0);
        }
        Model {
            model,
            strategies,
            active,
            since: [Nanos::ZERO; MAX_CORE_TYPES],
            open: Vec::new(),
            lacking: vec![Vec::new(); MAX_CORE_TYPES],
            passed: vec![Vec::new(); MAX_CORE_TYPES],
            threads: Threads::default(),
            last: Nanos::ZERO,
            now: Nanos::ZERO,
        }
    }

    fn take_in(&mut self, r: &Reading) {
        let (t, set) = (r.core_type.index(), r.set as usize);
        let (Some(model), Some(thread)) =
            (self.model.core_types.get(t), self.threads.get_mut(r.thread))
        else {
            return;
        };
        let [instructions, cycles, ..] = *r.deltas() else {
            return;
        };
        let enough =
            r.ran.0 as f64 >= self.model.shortest_ns && r.coverage() >= self.model.least_coverage;
        if r.counted.0 == 0 || cycles == 0 || instructions == 0 || !enough {
            return;
        }
        let ipc = instructions as f64 / cycles as f64;
        if let Some(strategy) = self.strategies.get_mut(t) {
            let mut counts = [0.0; MAX_EVENTS];
            let own = r.deltas().get(2..).unwrap_or_default();
            for (to, from) in counts.iter_mut().zip(own) {
                *to = *from as f64;
            }
            strategy.observe(&Observation {
                subject: u64::from(r.thread.slot) << 32 | u64::from(r.thread.generation),
                set,
                from: self.last.0 as f64,
                to: self.now.0 as f64,
                counts: &counts[..own.len()],
                ipc,
            });
        }
        if thread.last_type != r.core_type {
            let number = |t: CoreTypeId| thread.rounds.get(t.index()).map_or(0, |r| r.phase().0);
            thread.phases_before = thread
                .phases_before
                .wrapping_add(number(thread.last_type))
                .wrapping_sub(number(r.core_type));
            thread.last_type = r.core_type;
        }
        let Some(rounds) = thread.rounds.get_mut(t) else {
            return;
        };
        let step = rounds.add(
            set,
            r.deltas(),
            ipc,
            self.now,
            r.coverage(),
            &self.model.rule,
        );
        if thread.read != self.now {
            (thread.read, thread.open) = (self.now, CoreTypeSet::EMPTY);
        }
        if !rounds.settled() {
            thread.open = thread.open.with(r.core_type);
            if !std::mem::replace(&mut thread.listed, true) {
                self.open.push(r.thread);
            }
        }
        if step != Step::Complete {
            return;
        }
        let Some(complete) = rounds.last() else {
            return;
        };
        let mut values = [0.0; MAX_METRICS];
        for (v, m) in values.iter_mut().zip(&model.metrics) {
            let Some(deltas) = rounds.deltas(m.set) else {
                return;
            };
            let (Some(count), Some(per)) = (deltas.get(m.count), deltas.get(m.per)) else {
                return;
            };
            if *per == 0 {
                return;
            }
            *v = m.scale * *count as f64 / *per as f64;
        }
        let (factors, metrics) = (&model.factors, &model.metrics);
        let predictions = Predictions::of(factors, metrics, &values);
        let predictions = predictions.with_doubts(factors, metrics, &values, &model.doubts);
        for (target, prediction) in predictions.each(&model.factors) {
            let place = match target {
                Target::Speedup(of) => thread.speedup.get_mut(of),
                Target::Efficiency(of) => thread.efficiency.get_mut(of),
            };
            if let (Some(place), true) = (place, prediction.value.is_finite()) {
                *place = Some(Known {
                    on: r.core_type,
                    prediction,
                    oldest: complete.oldest,
                    coverage: complete.coverage,
                    multiplexed: model.sets.len() > 1,
                });
            }
        }
    }

    /// Works out where somebody waits for a sample of which set: whoever was read lately, and what it was read for is not
    /// complete.
    fn wait(&mut self) {
        for (lacking, t) in self.lacking.iter_mut().zip(&self.model.core_types) {
            lacking.clear();
            lacking.resize(t.sets.len(), 0);
        }
        let (threads, lacking) = (&mut self.threads, &mut self.lacking);
        let (now, settled) = (self.now, self.model.settled);
        self.open.retain(|key| {
            let Some(thread) = threads.get_mut(*key) else {
                return false;
            };
            let lately = now.saturating_sub(thread.read) < settled;
            thread.listed = lately && thread.open != CoreTypeSet::EMPTY;
            if !thread.listed {
                return false;
            }
            let known = |k: &Known| k.coverage >= PARTIAL;
            let weight = match thread.speedup.iter().flatten().any(known) {
                true => 1,
                false => UNKNOWN,
            };
            for (t, (lacking, rounds)) in lacking.iter_mut().zip(&thread.rounds).enumerate() {
                if thread.open.contains(CoreTypeId(t as u8)) {
                    for (set, depends) in lacking.iter_mut().enumerate() {
                        *depends += weight * u32::from(rounds.lacks(set));
                    }
                }
            }
            true
        });
    }

    /// Whether somebody waits for a sample on a core type.
    fn is_waited_for(&self, t: usize) -> bool {
        let lacking = self.lacking.get(t);
        lacking.is_some_and(|l| l.iter().any(|depends| *depends > 0))
    }

    /// The set to be counted next on a core type where the strategy would have `preferred`: one that somebody waits for, as long
    /// as anybody does. A strategy keeps the error of what is reconstructed small, over all threads, and may prefer one set for
    /// long; a factor needs a sample of each. Who gets no sample while his set is on does not keep it on for ever.
    fn next_set(&mut self, t: usize, preferred: usize) -> usize {
        let (Some(lacking), Some(passed)) = (self.lacking.get(t), self.passed.get_mut(t)) else {
            return preferred;
        };
        passed.resize(lacking.len(), 0);
        let mut best = (0, preferred);
        for (set, (depends, passed)) in lacking.iter().zip(passed.iter()).enumerate() {
            let asked = u64::from(*depends) * (1 + u64::from(*passed));
            if asked > best.0 || asked == best.0 && set == preferred {
                best = (asked, set);
            }
        }
        for (set, passed) in passed.iter_mut().enumerate() {
            *passed = match set == best.1 {
                true => 0,
                false => passed.saturating_add(1),
            };
        }
        best.1
    }

    /// The present estimate of a factor, with the core type that it was measured on.
    pub(super) fn heard(
        &self,
        thread: ThreadKey,
        metric: MetricId,
    ) -> Option<(CoreTypeId, Estimate)> {
        let on = self.known(thread, metric)?.on;
        Some((on, self.estimate(thread, metric)?))
    }

    /// The event sets of core type `t`, resolved.
    pub(super) fn sets_of(&self, pmus: &Pmus, t: CoreTypeId) -> Result<Vec<EventSet>, EventError> {
        let model = self.model.core_types.get(t.index());
        let resolve = |set: &Vec<(String, EventSpec)>| {
            let events = set
                .iter()
                .map(|(name, spec)| Ok(pmus.resolve(t, spec)?.named(name)));
            Ok(EventSet {
                events: events.collect::<Result<_, EventError>>()?,
            })
        };
        model
            .map_or(&[][..], |m| &m.sets)
            .iter()
            .map(resolve)
            .collect()
    }

    fn known(&self, thread: ThreadKey, metric: MetricId) -> Option<&Known> {
        let t = self.threads.get(thread)?;
        match metric {
            MetricId::SpeedupFactor(c) => t.speedup.get(c.index())?.as_ref(),
            MetricId::EfficiencyFactor(c) => t.efficiency.get(c.index())?.as_ref(),
            MetricId::Ipc(_) => None,
        }
    }
}

/// Below this coverage a sample counts as partial; above, but below 0.95, as multiplexed with
/// others.
const PARTIAL: f64 = 0.5;

impl Provider for Model {
    fn name(&self) -> &str {
        &self.model.name
    }

    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        let mut sets = EventSets::default();
        for t in pmus.core_types() {
            for set in self.sets_of(pmus, t)? {
                sets.push(t, set);
            }
        }
        Ok(sets)
    }

    fn active_set(&self, t: CoreTypeId) -> usize {
        self.active.get(t.index()).copied().unwrap_or(0)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.last = self.now;
        self.now = snapshot.now;
        let (types, now) = (&self.model.core_types, snapshot.now);
        let (open, shortest) = (&mut self.open, self.model.shortest_ns);
        self.threads.keep(snapshot, |t| {
            // its counters may be read for the first time after this; one that has hardly run is soon gone
            let begun = t.runtime.iter().copied().sum::<Nanos>().0 as f64 >= shortest;
            if begun {
                open.push(t.key);
            }
            Thread {
                rounds: types
                    .iter()
                    .map(|t| Rounds::new(t.sets.len(), now).with_good(PARTIAL))
                    .collect(),
                speedup: [None; MAX_CORE_TYPES],
                efficiency: [None; MAX_CORE_TYPES],
                last_type: CoreTypeId::FASTEST,
                read: now,
                open: match begun {
                    true => CoreTypeSet::EMPTY.with(t.core_type),
                    false => CoreTypeSet::EMPTY,
                },
                listed: begun,
                phases_before: 0,
            }
        });
        for r in &snapshot.readings {
            self.take_in(r);
        }
        self.wait();
        for t in 0..self.strategies.len() {
            let threads = &self.threads;
            self.strategies[t].retain(&|subject| {
                let key = ThreadKey {
                    slot: (subject >> 32) as u32,
                    generation: subject as u32,
                };
                threads.get(key).is_some()
            });
            // a change of sets interrupts every CPU of the type: not for nothing
            let long = self.now.saturating_sub(self.since[t]) >= self.model.settled;
            if long || self.is_waited_for(t) {
                let preferred = self.strategies[t].next(self.now.0 as f64);
                let next = self.next_set(t, preferred);
                if std::mem::replace(&mut self.active[t], next) != next {
                    self.since[t] = self.now;
                }
            }
        }
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        if let MetricId::Ipc(c) = metric {
            let t = self.threads.get(thread)?;
            let rounds = t.rounds.get(c.index())?;
            return Some(Estimate {
                value: rounds.ipc()?,
                uncertainty: None,
                age: self.now.saturating_sub(rounds.last()?.oldest),
                quality: Quality::Exact,
            });
        }
        let k = self.known(thread, metric)?;
        let age = self.now.saturating_sub(k.oldest);
        let quality = if age.0 as f64 > self.model.stale_after_ns {
            Quality::Stale
        } else if k.coverage < PARTIAL {
            Quality::Partial
        } else if k.multiplexed || k.coverage < 0.95 {
            Quality::Multiplexed
        } else {
            Quality::Exact
        };
        Some(Estimate {
            value: k.prediction.value,
            uncertainty: Some(k.prediction.uncertainty),
            age,
            quality,
        })
    }

    fn heard_on(&self, thread: ThreadKey) -> Option<CoreTypeId> {
        let known = self.known(thread, MetricId::SpeedupFactor(CoreTypeId::FASTEST))?;
        Some(known.on)
    }

    fn phase(&self, thread: ThreadKey) -> Option<Phase> {
        let t = self.threads.get(thread)?;
        let (number, since) = t.rounds.get(t.last_type.index())?.phase();
        Some(Phase {
            number: t.phases_before.wrapping_add(number),
            age: self.now.saturating_sub(since),
        })
    }

    fn unsettled(&self) -> bool {
        (0..self.lacking.len()).any(|t| self.is_waited_for(t))
    }

    fn caveats(&self, thread: ThreadKey) -> Caveats {
        let any = |t: &Thread| {
            let all = t.speedup.iter().chain(&t.efficiency).flatten();
            all.into_iter().any(|k| k.prediction.outside > 0.0)
        };
        Caveats {
            extrapolated: self.threads.get(thread).is_some_and(any),
            ..Caveats::default()
        }
    }
}
