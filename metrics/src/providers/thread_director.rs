//! Speedup factors as the hardware rates its core types.

use crate::estimate::{Estimate, Quality};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::provider::{Health, MetricId, Provider};
use crate::sample::{Snapshot, Subject, VirtualCounter};

/// The same speedup factor for every thread: how fast the hardware says that a core type is now, over what it says of the
/// slowest one ([`crate::virtual_counters::ThreadDirector`]). Thread Director knows classes of threads, too, but
/// kernels do not pass on which class a thread is of.
///
/// So it ranks no threads. It is for policies that share: they weigh time on a fast core by what it is worth
/// at present, and need no counters for that.
#[derive(Debug, Default)]
pub struct ThreadDirectorFactors {
    performance: [Option<f64>; MAX_CORE_TYPES],
    slowest: Option<CoreTypeId>,
}

impl ThreadDirectorFactors {
    /// For a machine of so many core types.
    pub fn new(core_types: usize) -> ThreadDirectorFactors {
        let slowest = core_types.checked_sub(1).map(|t| CoreTypeId(t as u8));
        ThreadDirectorFactors {
            slowest,
            ..ThreadDirectorFactors::default()
        }
    }

    /// How fast core type `t` is; `None` when that is not known, or its cores are not to be used.
    fn performance(&self, t: CoreTypeId) -> Option<f64> {
        let level = self.performance.get(t.index()).copied().flatten();
        level.filter(|p| *p > 0.0)
    }
}

impl Provider for ThreadDirectorFactors {
    fn name(&self) -> &str {
        "thread-director"
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        for r in &snapshot.virtual_counters {
            if let (VirtualCounter::Performance, Subject::CoreType(t)) = (r.counter, r.of) {
                if let Some(level) = self.performance.get_mut(t.index()) {
                    *level = Some(r.value);
                }
            }
        }
    }

    fn estimate(&self, _thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let MetricId::SpeedupFactor(t) = metric else {
            return None;
        };
        Some(Estimate {
            value: self.performance(t)? / self.performance(self.slowest?)?,
            // the hardware states none
            uncertainty: None,
            age: Nanos::ZERO,
            quality: Quality::Exact,
        })
    }

    fn health(&self) -> Health {
        let known = |t: CoreTypeId| self.performance(t).is_some();
        match self.slowest.is_some_and(known) && known(CoreTypeId::FASTEST) {
            true => Health::Working,
            false => Health::Failed(
                "the hardware has not said yet how fast its core types are: it does when that changes".into(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::VirtualReading;

    fn said(levels: &[(u8, f64)]) -> Snapshot {
        let reading = |(t, value): &(u8, f64)| VirtualReading {
            counter: VirtualCounter::Performance,
            of: Subject::CoreType(CoreTypeId(*t)),
            value: *value,
            over: Nanos::ZERO,
        };
        Snapshot {
            virtual_counters: levels.iter().map(reading).collect(),
            ..Snapshot::default()
        }
    }

    const ANYBODY: ThreadKey = ThreadKey {
        slot: 7,
        generation: 1,
    };

    fn factor(p: &ThreadDirectorFactors, t: u8) -> Option<f64> {
        let e = p.estimate(ANYBODY, MetricId::SpeedupFactor(CoreTypeId(t)))?;
        assert_eq!(e.uncertainty, None);
        Some(e.value)
    }

    #[test]
    fn factors_follow_what_the_hardware_says() {
        let mut p = ThreadDirectorFactors::new(3);
        assert_eq!(factor(&p, 0), None);
        assert!(matches!(p.health(), Health::Failed(_)));
        p.observe(&said(&[(0, 0.8), (1, 0.6), (2, 0.2)]));
        assert_eq!(p.health(), Health::Working);
        for (t, expected) in [(0, 4.0), (1, 3.0), (2, 1.0)] {
            assert!((factor(&p, t).unwrap() - expected).abs() < 1e-9);
        }
        // throttled; what is not said again holds
        p.observe(&said(&[(0, 0.4)]));
        assert!((factor(&p, 0).unwrap() - 2.0).abs() < 1e-9);
        let ipc = MetricId::Ipc(CoreTypeId::FASTEST);
        assert_eq!(p.estimate(ANYBODY, ipc), None);
    }

    #[test]
    fn cores_that_are_not_to_be_used_have_no_factor() {
        let mut p = ThreadDirectorFactors::new(2);
        p.observe(&said(&[(0, 0.0), (1, 0.2), (200, 0.3)]));
        assert_eq!(factor(&p, 0), None);
        p.observe(&said(&[(0, 0.5), (1, 0.0)]));
        assert_eq!((factor(&p, 0), factor(&p, 1)), (None, None));
        assert!(matches!(p.health(), Health::Failed(_)));
    }
}
