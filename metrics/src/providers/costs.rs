//! What neighbours cost, learned beside a provider that knows nothing of it.

use super::neighbours::Neighbours;
use super::threads::Threads;
use crate::estimate::Estimate;
use crate::event::{EventError, EventSets};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::pmu::Pmus;
use crate::provider::{MetricId, Provider};
use crate::sample::{ProgramName, Snapshot};

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    program: ProgramName,
    /// Where it ran for most of the last interval in which it ran.
    on: Option<CoreTypeId>,
    runtime: [Nanos; MAX_CORE_TYPES],
}

impl Thread {
    fn look(&mut self, runtime: &[Nanos; MAX_CORE_TYPES]) {
        let ran = |t: usize| runtime[t].saturating_sub(self.runtime[t]);
        let most = (0..MAX_CORE_TYPES).max_by_key(|t| ran(*t));
        if let Some(t) = most.filter(|t| ran(*t) > Nanos::ZERO) {
            self.on = Some(CoreTypeId(t as u8)); // below MAX_CORE_TYPES
        }
        self.runtime = *runtime;
    }
}

/// A provider around `inner` whose estimates are those of `inner`, and which learns what programs
/// cost each other from what their instruction rates do when neighbours come and go.
///
/// It learns from what happens anyhow, and has nobody moved to learn more, neither to look nor for good: it tells by
/// how much a thread is slowed down ([`Provider::slowed`]), which policies that are to be fair count, and not
/// [`Provider::costs`], by which they would be put apart. Both were tried on the board
/// (docs/evidence/models.md): they brought `hsp` something where two programs evict each other, and cost it
/// more elsewhere. A policy that has threads take turns shows enough.
///
/// Each of the inner provider's event sets must begin with instructions.
pub struct WithCosts {
    inner: Box<dyn Provider>,
    neighbours: Neighbours,
    threads: Threads<Thread>,
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
    /// Learns beside `inner`.
    pub fn new(inner: Box<dyn Provider>) -> WithCosts {
        WithCosts {
            inner,
            neighbours: Neighbours::default(),
            threads: Threads::default(),
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
                thread.look(&t.runtime);
            }
        }
        self.neighbours.observe(snapshot, interval);
    }

    fn expect(&mut self, thread: ThreadKey, metric: MetricId, remembered: Option<Estimate>) {
        self.inner.expect(thread, metric, remembered);
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        self.inner.estimate(thread, metric)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AppId;
    use crate::providers::testing::{key, readings, snapshot};
    use crate::{Declarations, Declared, Speedups};

    /// Two programs that slow each other down to 0.43 on the slow core type, and take turns on the fast one.
    #[test]
    fn costs_are_learned_and_estimates_are_those_of_the_inner_provider() {
        let sf = MetricId::SpeedupFactor(CoreTypeId(0));
        let declared = Declarations::default();
        declared.declare(AppId(1), Speedups::fastest(1.6).unwrap());
        let mut p = WithCosts::new(Box::new(Declared::new(declared)));
        let mut runtime = [[Nanos::ZERO; 8]; 3];
        let mut interval = |p: &mut WithCosts, i: u64, away: u64| {
            let rate = |slot: u64| match (away == slot, away == 0) {
                (true, _) => (0, 1.6),
                (false, true) => (1, 0.43),
                (false, false) => (1, 1.0),
            };
            let counted = [1, 2].map(|slot| {
                let (t, rate) = rate(slot);
                readings(slot as u32, t, 0, 100, &[(rate * 1e8) as u64])
            });
            let mut s = snapshot(100 * i, &[1, 2], counted.to_vec());
            for t in &mut s.threads {
                let slot = t.key.slot as usize;
                t.comm[0] = b'a' + slot as u8;
                runtime[slot][usize::from(rate(slot as u64).0)].0 += 100_000_000;
                t.runtime = runtime[slot];
            }
            p.observe(&s);
        };
        for i in 0..60 {
            interval(&mut p, i, (i / 10) % 3);
        }
        assert_eq!(p.estimate(key(1), sf).map(|e| e.value), Some(1.6));
        assert_eq!(p.estimate(key(2), sf), None);
        // the last ten intervals had `b` on the fast core type, alone
        assert!(
            (p.slowed(key(2)) - 1.0).abs() < 1e-9,
            "{}",
            p.slowed(key(2))
        );
        assert!(
            (p.slowed(key(1)) - 1.0).abs() < 1e-9,
            "{}",
            p.slowed(key(1))
        );
        interval(&mut p, 60, 0);
        for slot in [1, 2] {
            assert!(
                (p.slowed(key(slot)) - 0.43).abs() < 0.08,
                "{}",
                p.slowed(key(slot))
            );
        }
        assert!(p.costs().is_empty(), "nobody is put apart for it");
        assert_eq!(p.wanted_on(key(1)), None);
    }
}
