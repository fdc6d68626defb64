//! The engine: one decision per interval.
//!
//! ```text
//! sample ─► provider.observe ─► View of the busy threads ─► policy.place ─► rules ─► probes ─► what changed ─► machine.apply
//! ```
//!
//! The engine has no clock and does no I/O of its own: whoever owns the [`Machine`] calls
//! [`Engine::call`] when [`Engine::due`] says so, which is once per interval, and a few times in
//! between while a provider is finding something out ([`Engine::glance`]). All buffers are reused, so that
//! a steady state allocates nothing, and a tick costs O(n log n) in the number of threads.
//!
//! Policy, parameters and provider change while it runs ([`Changes`], where it says what each of
//! them keeps).

mod activity;
pub mod change;
mod done;
mod intake;
mod pace;
pub mod probes;
mod rest;
pub mod rules;
mod succession;
mod waits;

pub use crate::done::{Done, Unrated};
pub use change::Changes;
pub use rules::{Prefer, Rule, Rulebook};

use crate::machine::{Machine, MachineError, Placement, Topology};
use crate::policy::contract::Policy;
use crate::policy::knobs::Knobs;
use crate::policy::registry;
use crate::view::{AppView, ThreadView, View};
use activity::ActivityRule;
use amp_metrics::{AppId, Nanos, Provider, Snapshot, ThreadKey, ThreadMap, MAX_CORE_TYPES};
use intake::ThreadState;
use pace::Pace;
use rustc_hash::FxHashMap;
use succession::Succession;
use waits::{Used, Waits};

/// What one application did in one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppTick {
    /// The application.
    pub app: AppId,
    /// Threads of it that were busy.
    pub runnable: u32,
    /// CPU time of its threads per core type, of those too that ended within the interval, where the
    /// machine tells of them.
    pub ran: [Nanos; MAX_CORE_TYPES],
}

/// What one tick saw and did.
#[derive(Clone, Copy, Debug)]
pub struct Tick<'a> {
    /// When the snapshot was taken.
    pub now: Nanos,
    /// Time since the previous snapshot; zero at the first tick.
    pub interval: Nanos,
    /// Every application with a thread that does not rest, or has ended, ascending by id.
    pub apps: &'a [AppTick],
    /// Threads that were offered to the policy.
    pub offered: usize,
    /// Placements that changed.
    pub changes: usize,
    /// Pairs of threads that changed places: one to a faster core type, one to a slower.
    pub swaps: usize,
}

/// Counts since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Ticks.
    pub ticks: u64,
    /// Looks at the machine between two ticks.
    pub glances: u64,
    /// Placements that changed.
    pub changes: u64,
    /// Pairs of threads that changed places.
    pub swaps: u64,
    /// Probes: pairs of threads that changed places to be measured ([`probes`]).
    pub probes: u64,
    /// Decisions of the policy that were not carried out: an unknown thread, a thread that was
    /// decided on twice, a core type outside the thread's affinity. A correct policy has none.
    pub refused: u64,
}

/// Drives a [`Policy`] with metrics from a [`Provider`] over a [`Machine`].
pub struct Engine {
    topology: Topology,
    policy: Box<dyn Policy>,
    provider: Box<dyn Provider>,
    rule: ActivityRule,
    states: ThreadMap<ThreadState>,
    last: Option<Nanos>,
    /// Time between two decisions as whoever calls wants it; none where that is not known.
    period: Option<Nanos>,
    totals: Totals,
    knobs: Knobs,
    probes: probes::Probes,
    rulebook: Option<Box<dyn Rulebook>>,
    preferences: rules::Preferences,
    /// Whether the policy places threads by metrics.
    by_metrics: bool,
    succession: Succession,
    waits: Waits,
    pace: Pace,
    // reused from tick to tick
    offered: Vec<ThreadView>,
    app_views: Vec<AppView>,
    app_ticks: Vec<AppTick>,
    app_index: FxHashMap<AppId, usize>,
    /// Of threads that have ended since the last decision: what they ran in that time.
    buried: Vec<(AppId, [Nanos; MAX_CORE_TYPES])>,
    decided: Placement,
    changed: Placement,
    prefer: Vec<Prefer>,
    /// Those of `offered` that are offered for the first time.
    entering: Vec<usize>,
    /// Their applications, and those in whose place these go on.
    apps_entering: Vec<(AppId, AppId)>,
    /// The speedup factor by which each of `offered` was placed.
    placed_by: Vec<Option<f64>>,
}

impl Engine {
    /// An engine for a machine of this topology.
    pub fn new(topology: Topology, policy: Box<dyn Policy>, provider: Box<dyn Provider>) -> Engine {
        Engine {
            by_metrics: registry::uses_metrics(policy.name()),
            knobs: probes::knobs(),
            probes: probes::Probes::default(),
            rulebook: None,
            preferences: rules::Preferences::default(),
            topology,
            policy,
            provider,
            rule: ActivityRule::default(),
            states: ThreadMap::default(),
            last: None,
            period: None,
            totals: Totals::default(),
            offered: Vec::new(),
            app_views: Vec::new(),
            app_ticks: Vec::new(),
            app_index: FxHashMap::default(),
            buried: Vec::new(),
            decided: Placement::default(),
            changed: Placement::default(),
            prefer: Vec::new(),
            succession: Succession::default(),
            waits: Waits::default(),
            entering: Vec::new(),
            apps_entering: Vec::new(),
            placed_by: Vec::new(),
            pace: Pace::default(),
        }
    }

    /// The policy in use.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// The policy in use, to turn its knobs.
    pub fn policy_mut(&mut self) -> &mut dyn Policy {
        &mut *self.policy
    }

    /// Puts another policy in place; threads keep their state, and their placement until it
    /// decides.
    pub fn set_policy(&mut self, policy: Box<dyn Policy>) {
        self.by_metrics = registry::uses_metrics(policy.name());
        self.policy = policy;
    }

    /// The engine's own parameters.
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Sets the engine's own parameters; takes effect with the next decision.
    pub fn set_knobs(&mut self, knobs: Knobs) {
        self.knobs = knobs;
    }

    /// The source of metrics in use.
    pub fn provider(&self) -> &dyn Provider {
        &*self.provider
    }

    /// Puts another source of metrics in place; threads and policy keep their state.
    pub fn set_provider(&mut self, provider: Box<dyn Provider>) {
        self.provider = provider;
    }

    /// Has the rules of this book hold from the next tick on, instead of those before; none without
    /// a book.
    pub fn set_rules(&mut self, book: Option<Box<dyn Rulebook>>) {
        self.rulebook = book;
    }

    /// The rule that held for `thread` at the last tick.
    pub fn rule(&self, thread: ThreadKey) -> Option<Rule> {
        self.states.get(thread)?.rule
    }

    /// What `thread` has done so far, the last interval included; `None` for a stranger.
    pub fn done(&self, thread: ThreadKey) -> Option<Done> {
        self.states.get(thread).map(|s| s.done)
    }

    /// The threads that were offered to the policy at the last tick.
    pub fn offered(&self) -> &[ThreadView] {
        &self.offered
    }

    /// Counts since the engine was made.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Looks at the machine, decides, and carries out what changed.
    ///
    /// # Errors
    /// When the machine can be scheduled no longer.
    pub fn tick(&mut self, machine: &mut dyn Machine) -> Result<Tick<'_>, MachineError> {
        let snapshot = machine.sample()?;
        self.provider.observe(snapshot);
        let (now, interval) = self.begin(snapshot);
        self.decide(machine, now, interval)
    }

    /// Takes in what the decision is about; returns its time and that since the last one.
    fn begin(&mut self, snapshot: &Snapshot) -> (Nanos, Nanos) {
        self.totals.ticks += 1;
        let now = snapshot.now;
        let interval = self
            .last
            .map_or(Nanos::ZERO, |last| now.saturating_sub(last));
        self.changed.clear();
        self.take_in(snapshot, interval);
        self.last = Some(now);
        (now, interval)
    }

    fn decide(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        interval: Nanos,
    ) -> Result<Tick<'_>, MachineError> {
        let provider = &*self.provider;
        machine.count(&|t| provider.active_set(t))?;
        self.group(interval, now);
        self.note_factors();
        self.tell_unrated(interval);
        self.note_rest(interval);
        self.set_pace(now);
        self.probes.hide(&mut self.offered);
        self.decided.clear();
        let mut view = View::new(
            &self.topology,
            now,
            interval,
            &self.offered,
            &self.app_views,
            &*self.provider,
        );
        let period = self.period.unwrap_or(interval);
        view.period = period;
        for th in view.threads {
            if let Some(more) = done::of(&view, th) {
                if let Some(s) = self.states.get_mut(th.key) {
                    s.done += more;
                    if s.rule.is_some_and(|r| r.slowdown.is_some()) {
                        s.lately
                            .fade(more.rated / rules::SLOWDOWN_OVER.as_secs_f64());
                        s.lately += more;
                    }
                }
            }
        }
        self.policy.place(&view, &mut self.decided);
        self.preferences.lay_over(
            &self.topology,
            &self.offered,
            &self.prefer,
            &mut self.decided,
        );
        let share = match self.by_metrics {
            true => self.knobs.number(0) / 100.0,
            false => 0.0,
        };
        let policy = &*self.policy;
        let situation = probes::Situation {
            interval,
            period,
            topology: &self.topology,
            offered: &self.offered,
            provider: &*self.provider,
            contested: &|i| policy.contested(i),
        };
        self.totals.probes += self.probes.lay_over(share, &situation, &mut self.decided);
        let states = &self.states;
        let placed = |key| states.get(key)?.placed;
        self.succession
            .hold((now, period), &placed, &mut self.decided);
        let swaps = self.keep_what_changes();
        machine.lend(self.policy.lends());
        if !self.changed.is_empty() {
            machine.apply(&self.changed)?;
        }
        let changes = self.changed.len();
        self.totals.changes += changes as u64;
        self.totals.swaps += swaps as u64;
        let offered = self.offered.len();
        Ok(Tick {
            now,
            interval,
            apps: &self.app_ticks,
            offered,
            changes,
            swaps,
        })
    }

    /// Sorts the offered threads by application and builds the applications' views.
    fn group(&mut self, interval: Nanos, now: Nanos) {
        self.offered.sort_unstable_by_key(|t| (t.app_id, t.key));
        self.app_views.clear();
        for i in 0..self.offered.len() {
            let id = self.offered[i].app_id;
            if self.app_views.last().is_none_or(|a| a.id != id) {
                let tick = self.app_index.get(&id).and_then(|&i| self.app_ticks.get(i));
                let runnable = tick.map_or(1, |t| t.runnable.max(1) as usize);
                let mut entering = self.apps_entering.iter();
                self.app_views.push(AppView {
                    id,
                    succeeds: entering.find(|(a, _)| *a == id).map(|(_, before)| *before),
                    threads: i..i,
                    runnable,
                    busy: [1.0; MAX_CORE_TYPES],
                });
            }
            let app = self.app_views.len() - 1;
            self.offered[i].app = app;
            self.app_views[app].threads.end = i + 1;
        }
        self.note_waits(interval, now);
        self.app_ticks.sort_unstable_by_key(|a| a.app);
        self.prefer.clear();
        let (states, offered) = (&self.states, &self.offered);
        let prefer = |t: &ThreadView| {
            let s = states.get(t.key)?;
            Some(s.rule?.prefers(&s.lately))
        };
        if self.rulebook.is_some() {
            let all = offered.iter().map(prefer);
            self.prefer.extend(all.map(Option::unwrap_or_default));
        }
    }

    /// Tells of threads whose factor is known first what they did before.
    fn tell_unrated(&mut self, interval: Nanos) {
        for (th, factor) in self.offered.iter_mut().zip(&self.placed_by) {
            let Some(s) = self.states.get_mut(th.key) else {
                continue;
            };
            match factor {
                Some(_) => th.unrated = s.unrated.told(),
                None => s.unrated.take_in(interval, &th.ran),
            }
        }
    }

    /// Finds out how busy applications of many threads are on fast cores.
    fn note_waits(&mut self, interval: Nanos, now: Nanos) {
        let slowest = self.topology.slowest().index();
        for app in self.app_views.iter_mut().filter(|a| a.runnable > 1) {
            let threads = &self.offered[app.threads.clone()];
            let mut used = Used::default();
            for th in threads {
                if let Some(on) = th.placed {
                    used.take_in(on.index(), &th.ran);
                }
            }
            // the same one in every run of a program
            let first = threads.iter().min_by_key(|t| t.tid);
            if let Some(name) = first.and_then(|t| self.states.get(t.key)?.name) {
                let when = (interval, now);
                app.busy = self.waits.update(name.program, &used, slowest, when);
            }
        }
    }

    /// Moves the decisions that change something to `changed`; returns how many pairs swapped.
    fn keep_what_changes(&mut self) -> usize {
        let (mut up, mut down) = (0, 0);
        for (key, to) in self.decided.iter() {
            let state = match self.states.get_mut(key) {
                Some(s) if s.decided != self.totals.ticks => s,
                _ => {
                    self.totals.refused += 1;
                    continue;
                }
            };
            if to.is_some_and(|t| !state.allowed.contains(t)) {
                self.totals.refused += 1;
                continue;
            }
            state.decided = self.totals.ticks;
            match (state.placed, to) {
                (old, new) if old == new => continue,
                (Some(old), Some(new)) if new < old => up += 1,
                (Some(_), Some(_)) => down += 1,
                _ => {}
            }
            // should it end before the next snapshot, this is where it was
            state.placed = to;
            match to {
                Some(t) => self.changed.place(key, t),
                None => self.changed.release(key),
            }
        }
        up.min(down)
    }
}

#[cfg(test)]
mod tests;
