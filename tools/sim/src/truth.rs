//! What only a simulator knows: how fast every thread would be on every core type.

use crate::rates::Rates;
use amp_metrics::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The truth about one thread at the moment of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadTruth {
    /// The thread.
    pub key: ThreadKey,
    /// Speedup factor of its present (or, asleep, its last) phase by core type, over the slowest
    /// one.
    pub speedup: [f64; MAX_CORE_TYPES],
    /// Efficiency factor by core type, EDP on the slowest over EDP on this one [PMCTrack eq. 3-7];
    /// `None` when the phase states no power, or a power of 0.
    pub efficiency: Option<[f64; MAX_CORE_TYPES]>,
    /// Speedup factor of its whole program: time on the slowest over time on this core type.
    pub mean_speedup: [f64; MAX_CORE_TYPES],
    /// Efficiency factor of its whole program.
    pub mean_efficiency: Option<[f64; MAX_CORE_TYPES]>,
}

/// The truth about all threads, renewed with every snapshot.
#[derive(Debug)]
pub(crate) struct Truth {
    pub now: Nanos,
    pub threads: Vec<ThreadTruth>,
    slowest: CoreTypeId,
}

/// Shared by the machine, which knows, and the providers, which tell.
#[derive(Clone, Debug)]
pub struct TruthHandle(Arc<Mutex<Truth>>);

impl TruthHandle {
    pub(crate) fn new(slowest: CoreTypeId) -> TruthHandle {
        let truth = Truth {
            now: Nanos::ZERO,
            threads: Vec::new(),
            slowest,
        };
        TruthHandle(Arc::new(Mutex::new(truth)))
    }

    /// The slowest core type, to which speedups refer.
    pub fn slowest(&self) -> CoreTypeId {
        self.lock().slowest
    }

    /// Copies what was true at the last snapshot to `out`.
    pub fn read(&self, out: &mut Vec<ThreadTruth>) -> Nanos {
        let truth = self.lock();
        out.clear();
        out.extend_from_slice(&truth.threads);
        truth.now
    }

    // A panic while it was held leaves a list behind that the next snapshot renews.
    fn lock(&self) -> MutexGuard<'_, Truth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The truth while it is being renewed.
pub(crate) struct Renewal<'a>(MutexGuard<'a, Truth>);

impl Truth {
    /// Begins to renew what `handle` shares.
    pub fn begin(handle: &TruthHandle, now: Nanos) -> Renewal<'_> {
        let mut truth = handle.lock();
        truth.now = now;
        truth.threads.clear();
        Renewal(truth)
    }
}

impl Renewal<'_> {
    /// Records one thread: its present rates and those of its whole program.
    pub fn record(&mut self, key: ThreadKey, now: Option<&Rates>, mean: &Rates) {
        let Some(now) = now else { return };
        let slowest = self.0.slowest.index();
        let (speedup, efficiency) = factors(now, slowest);
        let (mean_speedup, mean_efficiency) = factors(mean, slowest);
        self.0.threads.push(ThreadTruth {
            key,
            speedup,
            efficiency,
            mean_speedup,
            mean_efficiency,
        });
    }
}

/// Speedup and efficiency factors by core type.
fn factors(
    rates: &Rates,
    slowest: usize,
) -> ([f64; MAX_CORE_TYPES], Option<[f64; MAX_CORE_TYPES]>) {
    let base = rates.ips[slowest];
    let speedup = rates.ips.map(|ips| ips / base);
    let known = rates
        .power
        .filter(|p| p[..=slowest].iter().all(|w| *w > 0.0));
    let efficiency = known.map(|p| {
        let mut ef = [0.0; MAX_CORE_TYPES];
        for (t, ef) in ef.iter_mut().enumerate().take(slowest + 1) {
            *ef = efficiency_factor(speedup[t], p[t], p[slowest]);
        }
        ef
    });
    (speedup, efficiency)
}

/// EF = SF/ER [PMCTrack eq. 7], where ER = (P_fast/P_slow)/SF is the ratio of energies for the same
/// instructions.
pub fn efficiency_factor(speedup: f64, power_fast: f64, power_slow: f64) -> f64 {
    speedup * speedup * power_slow / power_fast
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efficiency_is_the_ratio_of_edp() {
        // per instruction: energy 2/3e9 against 0.5/1e9 J, delay 1/3e9 against 1/1e9 s
        let edp = |watts: f64, ips: f64| watts / ips / ips;
        let ef = edp(0.5, 1e9) / edp(2.0, 3e9);
        assert!((efficiency_factor(3.0, 2.0, 0.5) - ef).abs() < 1e-12);
    }
}
