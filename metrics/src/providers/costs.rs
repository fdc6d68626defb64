//! What neighbours cost, learned beside a provider that knows nothing of it.

use super::neighbours::Neighbours;
use super::threads::Threads;
use crate::contention::{Cost, ProgramId};
use crate::estimate::Estimate;
use crate::event::{EventError, EventSets};
use crate::ids::{CoreTypeId, Nanos, ThreadKey};
use crate::pmu::Pmus;
use crate::provider::{MetricId, Provider};
use crate::sample::{ProgramName, Snapshot};

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    program: ProgramName,
    /// Where it ran last.
    on: Option<CoreTypeId>,
    /// Whether that was in the last interval.
    ran: bool,
}

/// A provider around `inner` whose estimates are those of `inner`, and which learns what programs
/// cost each other from what their instruction rates do when neighbours come and go.
///
/// Each of the inner provider's event sets must begin with instructions.
pub struct WithCosts {
    inner: Box<dyn Provider>,
    neighbours: Neighbours,
    threads: Threads<Thread>,
    slowest: CoreTypeId,
    now: Nanos,
}

impl std::fmt::Debug for WithCosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WithCosts")
            .field("inner", &self.inner.name())
            .finish_non_exhaustive()
    }
}

impl WithCosts {
    /// Learns beside `inner`, which is for a machine of so many core types.
    pub fn new(inner: Box<dyn Provider>, core_types: usize) -> WithCosts {
        WithCosts {
            inner,
            neighbours: Neighbours::default(),
            threads: Threads::default(),
            slowest: CoreTypeId(core_types.saturating_sub(1) as u8), // at most MAX_CORE_TYPES
            now: Nanos::ZERO,
        }
    }
}

impl Provider for WithCosts {
    /// That of the inner provider: what the estimates rest on.
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(&*self.inner)
    }

    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        self.inner.event_sets(pmus)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.inner.observe(snapshot);
        let interval = snapshot.now.saturating_sub(self.now);
        self.now = snapshot.now;
        self.threads.keep(snapshot, Thread::default);
        for t in &snapshot.threads {
            if let Some(thread) = self.threads.get_mut(t.key) {
                thread.program = t.program();
                thread.ran = false;
                let of = (t.key, thread.program);
                self.neighbours.ran(of, &t.runtime, self.now);
            }
        }
        for r in &snapshot.readings {
            let (Some(thread), [instructions, ..]) = (self.threads.get_mut(r.thread), r.deltas())
            else {
                continue;
            };
            if r.counted > Nanos::ZERO {
                (thread.on, thread.ran) = (Some(r.core_type), true);
                let counted = (*instructions as f64, r.counted.0 as f64);
                self.neighbours.take_in(r.thread, r.core_type, counted);
            }
        }
        self.neighbours.learn(interval, self.now);
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        self.inner.estimate(thread, metric)
    }

    /// Where the inner provider wants it; on another core type when its neighbours may be better off
    /// without it.
    fn wanted_on(&self, key: ThreadKey) -> Option<CoreTypeId> {
        if let Some(wanted) = self.inner.wanted_on(key) {
            return Some(wanted);
        }
        let here = self.threads.get(key).filter(|t| t.ran)?.on?;
        let elsewhere = match here == self.slowest {
            true => CoreTypeId::FASTEST,
            false => self.slowest,
        };
        (self.neighbours.suspects(key) && here != elsewhere).then_some(elsewhere)
    }

    fn costs(&self) -> &[Cost] {
        self.neighbours.costs()
    }

    fn program(&self, thread: ThreadKey) -> Option<ProgramId> {
        self.neighbours.program(&self.threads.get(thread)?.program)
    }

    fn program_name(&self, program: ProgramId) -> Option<[u8; 16]> {
        self.neighbours.name(program).map(|n| n.comm)
    }

    fn suspects(&self, thread: ThreadKey) -> bool {
        self.neighbours.suspects(thread)
    }

    fn slowed(&self, thread: ThreadKey) -> f64 {
        let at = self
            .threads
            .get(thread)
            .and_then(|t| Some((t.program, t.on?)));
        at.map_or(1.0, |(program, on)| {
            (-self.neighbours.paid(&program, on)).exp()
        })
    }
}
