//! Taking in a snapshot: what each thread has done since the last one, whom the policy is offered, and
//! who has ended.

use super::activity::{self, Activity, Entry};
use super::rules::{self, Rule};
use super::succession::{Name, Succession, Untold};
use super::{AppTick, Engine};
use crate::done::{Done, Unrated};
use crate::view::ThreadView;
use amp_metrics::{AppId, CoreTypeId, CoreTypeSet, Nanos, Snapshot, ThreadKey, MAX_CORE_TYPES};
use rustc_hash::FxHashMap;

/// No CPU time on any core type.
const NOTHING: [Nanos; MAX_CORE_TYPES] = [Nanos::ZERO; MAX_CORE_TYPES];

/// What the engine keeps of a thread.
pub(super) struct ThreadState {
    pub app: AppId,
    pub seen: u64,
    pub decided: u64,
    pub runtime: [Nanos; MAX_CORE_TYPES],
    pub activity: Activity,
    pub placed: Option<CoreTypeId>,
    pub allowed: CoreTypeSet,
    pub done: Done,
    /// What it has done lately; only where a rule bounds its slowdown.
    pub lately: Done,
    pub unrated: Unrated,
    pub rule: Option<Rule>,
    /// Placed by its rule although it rests.
    pub kept: bool,
    /// What it was called when it was offered last; none before.
    pub name: Option<Name>,
    /// The thread in whose place it goes on.
    pub succeeds: Option<ThreadKey>,
}

impl ThreadState {
    /// Whether a thread that sleeps and has run for `runtime` by now need not be looked at: it has
    /// not run since the last tick, is no longer busy to anybody, and no rule holds for it.
    fn rests(&self, runtime: &[Nanos; MAX_CORE_TYPES]) -> bool {
        self.activity.rests()
            && self.placed.is_none()
            && self.rule.is_none()
            && !self.kept
            && self.runtime == *runtime
    }

    /// The thread has ended, and `ran` since the last decision. Its seat is kept if its program has been
    /// run again before.
    fn ends(
        &mut self,
        key: ThreadKey,
        ran: [Nanos; MAX_CORE_TYPES],
        succession: &mut Succession,
        now: Nanos,
    ) {
        if let Some(name) = self.name {
            let seat = self.succeeds.and(self.placed);
            let unrated = self.unrated.told();
            let who = (key, self.app);
            succession.leaves(name, who, seat, Untold { ran, unrated }, now);
        }
    }
}

/// Adds what a thread did in the interval to its application; `index` says which of `all` that is.
fn add_to_app(
    (all, index): (&mut Vec<AppTick>, &mut FxHashMap<AppId, usize>),
    app: AppId,
    runnable: u32,
    ran: &[Nanos; MAX_CORE_TYPES],
) {
    let next = all.len();
    let i = *index.entry(app).or_insert(next);
    if i == next {
        all.push(AppTick {
            app,
            runnable: 0,
            ran: NOTHING,
        });
    }
    let tick = &mut all[i];
    tick.runnable += runnable;
    for (sum, r) in tick.ran.iter_mut().zip(ran) {
        *sum += *r;
    }
}

impl Engine {
    /// Updates per-thread state, sums up applications, collects the threads to offer, releases idle
    /// ones.
    pub(super) fn take_in(&mut self, snapshot: &Snapshot, interval: Nanos) {
        let tick = self.totals.ticks;
        let over = self.over(interval);
        let first = self.last.is_none();
        let all =
            CoreTypeSet::from_bits(u8::MAX >> (MAX_CORE_TYPES - self.topology.core_types().len()));
        self.offered.clear();
        self.entering.clear();
        self.apps_entering.clear();
        self.app_ticks.clear();
        self.app_index.clear();
        if let Some(book) = &mut self.rulebook {
            book.begin(snapshot.now);
        }
        self.bury(snapshot);
        // what ran before the engine was there belongs to no interval of its
        for (app, ran) in self.buried.drain(..).filter(|_| !first) {
            add_to_app((&mut self.app_ticks, &mut self.app_index), app, 0, &ran);
        }
        // a rule may be for a thread that rests
        let resting = match first || self.rulebook.is_some() {
            true => &snapshot.resting[..],
            false => &[],
        };
        for t in snapshot.threads.iter().chain(resting) {
            // most threads of a machine sleep, and nothing about them changes
            if self.rulebook.is_none() && !t.runnable && t.placed.is_none() {
                if let Some(state) = self.states.get_mut(t.key).filter(|s| s.rests(&t.runtime)) {
                    state.seen = tick;
                    continue;
                }
            }
            let rule = self.rulebook.as_mut().and_then(|b| b.rule(t));
            let own = t.allowed.intersection(all);
            let allowed = rule.map_or(own, |r| rules::allowed(&r, own));
            let new = !first && self.states.get(t.key).is_none();
            if first || new {
                let fresh = ThreadState {
                    app: t.app,
                    seen: tick,
                    decided: 0,
                    // What ran before the engine was there belongs to no interval of its.
                    runtime: if first {
                        t.runtime
                    } else {
                        [Nanos::ZERO; MAX_CORE_TYPES]
                    },
                    activity: Activity::default(),
                    placed: None,
                    allowed,
                    done: Done::default(),
                    lately: Done::default(),
                    unrated: Unrated::default(),
                    rule,
                    kept: false,
                    name: None,
                    succeeds: None,
                };
                if let Some((key, mut before)) = self.states.insert(t.key, fresh) {
                    before.ends(key, NOTHING, &mut self.succession, snapshot.now);
                }
            }
            let Some(state) = self.states.get_mut(t.key) else {
                continue;
            };
            let mut ran = [Nanos::ZERO; MAX_CORE_TYPES];
            for ((r, total), before) in ran.iter_mut().zip(t.runtime).zip(state.runtime) {
                *r = total.saturating_sub(before).min(interval);
            }
            state.seen = tick;
            state.runtime = t.runtime;
            state.placed = t.placed;
            state.allowed = allowed;
            state.rule = rule;
            let name = Name::of(t.program(), t.tid, t.app);
            let entry = match new {
                true if t.placed.is_some() => Entry::Expected,
                true if self.succession.expects(name, snapshot.now) => Entry::Expected,
                true => Entry::Now,
                false => Entry::Before,
            };
            let load = self
                .rule
                .load(ran.iter().copied().sum(), over, t.runnable, entry);
            let step = state.activity.step(load, &self.rule);

            let runnable = u32::from(load != activity::Load::Idle);
            let apps = (&mut self.app_ticks, &mut self.app_index);
            add_to_app(apps, t.app, runnable, &ran);

            let step = match rule {
                Some(r) if !r.place => activity::Step::Release,
                _ => step,
            };
            // a thread that rests is kept off the cores that a rule forbids
            let kept = (allowed != own).then(|| rules::fastest(allowed)).flatten();
            let was_kept = std::mem::replace(&mut state.kept, kept.is_some());
            let step = match step {
                activity::Step::Keep if was_kept && kept.is_none() => activity::Step::Release,
                step => step,
            };
            match step {
                activity::Step::Offer if allowed != CoreTypeSet::EMPTY => {
                    if state.name.replace(name).is_none() {
                        self.entering.push(self.offered.len());
                    }
                    self.offered.push(ThreadView {
                        key: t.key,
                        tid: t.tid,
                        app_id: t.app,
                        app: 0,
                        weight: rule.and_then(|r| r.weight).unwrap_or(t.weight).max(1),
                        allowed,
                        placed: t.placed,
                        core_type: t.core_type,
                        runtime: t.runtime,
                        ran,
                        done: state.done,
                        unrated: Unrated::default(),
                        succeeds: state.succeeds,
                    });
                }
                _ if kept.is_some() => {
                    if let Some(to) =
                        kept.filter(|_| !t.placed.is_some_and(|p| allowed.contains(p)))
                    {
                        self.changed.place(t.key, to);
                    }
                }
                activity::Step::Release if t.placed.is_some() => self.changed.release(t.key),
                _ => {}
            }
        }
        let now = snapshot.now;
        // never where the machine tells who is gone
        if self.states.len() > snapshot.population() {
            let succession = &mut self.succession;
            self.states.retain(|key, s| {
                if s.seen != tick {
                    s.ends(key, NOTHING, succession, now);
                }
                s.seen == tick
            });
        }
        // who has ended in this interval is known now
        for i in &self.entering {
            let Some(th) = self.offered.get_mut(*i) else {
                continue;
            };
            if let Some(s) = self.states.get_mut(th.key) {
                let Some(place) = s.name.and_then(|n| self.succession.take(n, now)) else {
                    continue;
                };
                (s.succeeds, s.unrated) = (Some(place.key), place.untold.unrated);
                th.succeeds = s.succeeds;
                for (ran, more) in th.ran.iter_mut().zip(place.untold.ran) {
                    *ran += more;
                }
                self.apps_entering.push((th.app_id, place.app));
            }
        }
    }

    /// Takes leave of threads that have ended, and keeps what they leave to the next run of their
    /// programs.
    pub(super) fn bury(&mut self, snapshot: &Snapshot) {
        let now = snapshot.now;
        for e in &snapshot.ended {
            let state = self.states.remove(e.key);
            let mut ran = e.runtime;
            if let Some(s) = &state {
                for (ran, before) in ran.iter_mut().zip(s.runtime) {
                    *ran = ran.saturating_sub(before);
                }
            }
            self.buried.push((e.app, ran));
            match state.filter(|s| s.name.is_some()) {
                Some(mut state) => state.ends(e.key, ran, &mut self.succession, now),
                None => {
                    let name = Name::of(e.program(), e.tid, e.app);
                    self.succession.passes(name, &ran, now);
                }
            }
        }
        // those of whom a machine cannot tell more
        for key in &snapshot.gone {
            if let Some(mut state) = self.states.remove(*key) {
                state.ends(*key, NOTHING, &mut self.succession, now);
            }
        }
    }
}
