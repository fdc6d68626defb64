//! Fair sharing of every core type for threads that nobody can say anything about.

use crate::policy::seats::Claim;
use crate::policy::threads::{PerThread, Presence};
use crate::view::View;
use amp_metrics::{CoreTypeId, MAX_CORE_TYPES};

/// Puts threads in their turn before, and out of it behind, all that claim by an estimate. Claims
/// by estimate must stay far below it.
pub const CLASS: f64 = 1e6;

/// Entitlements are remembered up to so many turns.
const MEMORY: f64 = 8.0;

const KNOWN: u32 = u32::MAX;

/// Per level (a core type and all faster ones).
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Entitlement minus use, in turns.
    credit: f64,
    /// Whether its turn is on.
    on: bool,
    /// Whether its turn being on takes a seat before all who claim by an estimate.
    first: bool,
}

#[derive(Clone, Copy, Debug)]
struct Unknown {
    thread: usize,
    turns: [Turn; MAX_CORE_TYPES],
}

/// Threads without the estimates that a policy needs take turns: each gets its weight's share of
/// every core type's time, and no estimate is made up for it. Who was not seen yet on a core type that an
/// estimate needs has its turn there in advance, and lets another go there once it was.
#[derive(Debug, Default)]
pub struct Turns {
    states: PerThread<[Turn; MAX_CORE_TYPES]>,
    /// Per thread of the view: its place in `unknown`.
    index: Vec<u32>,
    unknown: Vec<Unknown>,
    waiting: Vec<(f64, usize)>,
    owed: [f64; MAX_CORE_TYPES],
}

impl Turns {
    /// Takes in the interval. `known` says of each thread of the view whether the policy can rate
    /// it itself; a turn lasts about `turn` seconds.
    pub fn update(&mut self, view: &View<'_>, turn: f64, known: &dyn Fn(usize) -> bool) {
        self.states.begin();
        self.index.clear();
        self.unknown.clear();
        self.owed = [0.0; MAX_CORE_TYPES];
        for i in 0..view.threads.len() {
            let place = if known(i) {
                KNOWN
            } else {
                self.unknown.push(Unknown {
                    thread: i,
                    turns: [Turn::default(); MAX_CORE_TYPES],
                });
                (self.unknown.len() - 1) as u32 // a slot number is 32 bits wide: fewer threads than that
            };
            self.index.push(place);
        }
        if self.unknown.is_empty() {
            return;
        }
        let weight: f64 = view.threads.iter().map(|t| f64::from(t.weight)).sum();
        let interval = view.interval.as_secs_f64();
        for u in &mut self.unknown {
            let th = &view.threads[u.thread];
            let (presence, turns) = self.states.enter(th.key, th.succeeds, Default::default);
            if presence == Presence::Back {
                *turns = Default::default();
            }
            let wanted = view.wanted_on(th);
            let mut cpus = 0;
            for t in view.core_types() {
                let k = t.index();
                cpus += view.nr_seats(t);
                let share = (cpus as f64 * f64::from(th.weight) / weight).min(1.0);
                self.owed[k] += share;
                let due = (interval * share - th.ran_up_to(t)) / turn;
                let s = &mut turns[k];
                s.credit = (s.credit + due).clamp(-MEMORY, MEMORY);
                let stays = match wanted {
                    None => s.on,
                    // its turn begins before it is due, or ends, so that it is known the sooner
                    Some(on) => on <= t,
                };
                s.on = s.credit >= 0.5 || (stays && s.credit > -0.5);
            }
            u.turns = *turns;
        }
        self.let_go_first(view);
        for u in &self.unknown {
            if let Some(turns) = self.states.get_mut(view.threads[u.thread].key) {
                *turns = u.turns;
            }
        }
    }

    /// No more of them go first at a time than they are owed seats together, so that they do not
    /// all push out the strongest claims at once.
    fn let_go_first(&mut self, view: &View<'_>) {
        for t in view.core_types() {
            let k = t.index();
            self.waiting.clear();
            for (n, u) in self.unknown.iter_mut().enumerate() {
                let s = &mut u.turns[k];
                let held = std::mem::take(&mut s.first) && view.threads[u.thread].holds(t);
                if s.on {
                    let bonus = if held { 1.0 } else { 0.0 };
                    self.waiting.push((s.credit + bonus, n));
                }
            }
            self.waiting
                .sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            // A sum of shares that is whole up to rounding is that whole number.
            let seats = (self.owed[k] - 1e-9).ceil().max(0.0) as usize;
            for (_, n) in self.waiting.iter().take(seats) {
                self.unknown[*n].turns[k].first = true;
            }
        }
    }

    /// The claim of thread `i` of the view to `t`; `None` when the policy is to rate it itself.
    pub fn claim(&self, i: usize, t: CoreTypeId) -> Option<Claim> {
        let u = self.unknown.get(*self.index.get(i)? as usize)?;
        let s = u.turns[t.index()];
        Some(Claim {
            strength: if s.first { CLASS } else { -CLASS } + s.credit,
            bonus: 1.0,
        })
    }

    /// Cores of types up to and including `t` that go to threads without estimates, on average.
    pub fn owed(&self, t: CoreTypeId) -> f64 {
        self.owed[t.index()]
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::Engine;
    use crate::machine::Machine;
    use crate::policy::by_name;
    use crate::testing::Fake;
    use amp_metrics::{
        CoreTypeId, Estimate, MetricId, Nanos, Provider, Quality, Snapshot, ThreadKey,
        MAX_CORE_TYPES,
    };
    use std::collections::HashMap;

    /// A provider that knows a thread once it has run on both core types.
    #[derive(Default)]
    struct Sampler(HashMap<ThreadKey, [Nanos; MAX_CORE_TYPES]>);

    impl Provider for Sampler {
        fn name(&self) -> &str {
            "sampler"
        }
        fn observe(&mut self, s: &Snapshot) {
            self.0.extend(s.threads.iter().map(|t| (t.key, t.runtime)));
        }
        fn estimate(&self, t: ThreadKey, _: MetricId) -> Option<Estimate> {
            let ran = self.0.get(&t)?[..2].iter().all(|r| *r > Nanos::ZERO);
            ran.then_some(Estimate {
                value: 2.0,
                uncertainty: None,
                age: Nanos::ZERO,
                quality: Quality::Exact,
            })
        }
        fn wanted_on(&self, t: ThreadKey) -> Option<CoreTypeId> {
            let ran = self.0.get(&t)?;
            let unseen = (0..2).find(|t| ran[*t] == Nanos::ZERO)?;
            Some(CoreTypeId(unseen as u8))
        }
    }

    /// One that is known makes room for the next at once: a turn is 250 ms, an interval 100.
    #[test]
    fn who_was_not_seen_on_a_core_type_yet_is_there_before_its_turn_is_due() {
        let mut fake = Fake::new(&[1, 5]);
        let keys: Vec<ThreadKey> = (1..=6).map(|app| fake.spawn(app)).collect();
        let provider = Box::new(Sampler::default());
        let policy = by_name("hsp", 1).unwrap();
        let mut engine = Engine::new(fake.topology().clone(), policy, provider);
        // probes would show them, too, but not as soon
        let mut knobs = engine.knobs().clone();
        knobs.set("probes", "0").unwrap();
        engine.set_knobs(knobs);
        let mut ticks = 0;
        let fastest = MetricId::SpeedupFactor(CoreTypeId::FASTEST);
        let known = |e: &Engine, k: &ThreadKey| e.provider().estimate(*k, fastest).is_some();
        while !keys.iter().all(|k| known(&engine, k)) {
            engine.tick(&mut fake).unwrap();
            ticks += 1;
            assert!(ticks < 40, "somebody was never seen");
        }
        assert!(ticks <= 8, "{ticks}");
    }
}
