//! The truth, as blurred and as late as one wants it.

use crate::error::SimError;
use crate::truth::{ThreadTruth, TruthHandle};
use amp_metrics::{Estimate, MetricId, Nanos, Provider, Quality, Snapshot, ThreadKey};
use chacha20::ChaCha8Rng;
use rand::SeedableRng;
use rand_distr::{Distribution, Normal};
use std::collections::{HashMap, VecDeque};

/// Gives each thread's speedup and efficiency factors of the phase it was in `latency` intervals
/// ago, each sample times 1 + N(0, sigma), never below a tenth of the truth. The same error blurs
/// both factors of a thread in one interval. A thread that is younger than the latency has no
/// estimate.
#[derive(Debug)]
pub struct Exact {
    truth: TruthHandle,
    noise: Normal<f64>,
    sigma: f64,
    latency: usize,
    average: bool,
    rng: ChaCha8Rng,
    /// What was true at the last snapshots, newest at the back.
    past: VecDeque<(Nanos, Vec<ThreadTruth>)>,
    now: Nanos,
    told: HashMap<ThreadKey, (ThreadTruth, f64)>,
}

impl Exact {
    /// The provider; `sigma` is relative, `latency` in intervals.
    ///
    /// # Errors
    /// When `sigma` is not a number from 0 up to, but not including, 1.
    pub fn new(truth: TruthHandle, sigma: f64, latency: u32, seed: u64) -> Result<Exact, SimError> {
        let bad = || {
            SimError::Parameter(format!(
                "noise {sigma}: a number from 0 up to, but not including, 1 is needed"
            ))
        };
        if !(0.0..1.0).contains(&sigma) {
            return Err(bad());
        }
        Ok(Exact {
            truth,
            noise: Normal::new(0.0, sigma).map_err(|_| bad())?,
            sigma,
            latency: latency as usize,
            average: false,
            rng: ChaCha8Rng::seed_from_u64(seed),
            past: VecDeque::new(),
            now: Nanos::ZERO,
            told: HashMap::new(),
        })
    }

    /// A provider that gives each program's factors over its whole length, without noise: what a
    /// static assignment rests on.
    ///
    /// # Errors
    /// None in practice; as [`Exact::new`].
    pub fn average(truth: TruthHandle) -> Result<Exact, SimError> {
        Ok(Exact {
            average: true,
            ..Exact::new(truth, 0.0, 0, 0)?
        })
    }
}

impl Provider for Exact {
    fn name(&self) -> &str {
        if self.average {
            "average"
        } else {
            "true"
        }
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.now = snapshot.now;
        let mut truth = match self.past.len() > self.latency {
            true => self.past.pop_front().map(|(_, t)| t).unwrap_or_default(),
            false => Vec::new(),
        };
        let at = self.truth.read(&mut truth);
        self.past.push_back((at, truth));
        self.told.clear();
        if self.past.len() <= self.latency {
            return;
        }
        // In the order of the slot table, so that the same seed gives the same noise.
        for t in self.past.front().into_iter().flat_map(|(_, t)| t) {
            let error = if self.sigma > 0.0 {
                self.noise.sample(&mut self.rng)
            } else {
                0.0
            };
            self.told.insert(t.key, (*t, (1.0 + error).max(0.1)));
        }
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let (t, factor) = self.told.get(&thread)?;
        let value = if let MetricId::SpeedupFactor(ty) = metric {
            let by_type = if self.average {
                &t.mean_speedup
            } else {
                &t.speedup
            };
            by_type.get(ty.index())? * factor
        } else if let MetricId::EfficiencyFactor(ty) = metric {
            let by_type = if self.average {
                &t.mean_efficiency
            } else {
                &t.efficiency
            };
            by_type.as_ref()?.get(ty.index())? * factor
        } else {
            return None;
        };
        let at = self.past.front().map_or(self.now, |(at, _)| *at);
        Some(Estimate {
            value,
            uncertainty: (self.sigma > 0.0).then_some(self.sigma * value),
            age: self.now.saturating_sub(at),
            quality: Quality::Exact,
        })
    }
}
