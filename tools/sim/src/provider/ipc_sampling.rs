//! IPC sampling: a thread's speedup factor from what it did on each core type.

use crate::truth::{ThreadTruth, TruthHandle};
use amp_metrics::{
    CoreTypeId, Estimate, MetricId, Nanos, Provider, Quality, Snapshot, ThreadKey, MAX_CORE_TYPES,
};
use std::collections::HashMap;

/// Weight of a new sample in the running average; the old value has the rest [PMCTrack].
const NEW: f64 = 0.65;
/// Range of the factor [PMCTrack].
const RANGE: (f64, f64) = (1.0, 7.0);
/// The factor until there are enough samples [PMCTrack].
const WARM_UP_VALUE: f64 = 2.5;
/// Samples on each core type that are enough [PMCTrack].
const WARM_UP_SAMPLES: u32 = 5;
/// A shorter run within an interval is no sample.
const SHORTEST: Nanos = Nanos::from_millis(1);

/// The estimator that EQP uses on real machines [PMCTrack §4.1, EQP].
///
/// In every interval in which a thread ran on a core type, its speed there (instructions retired by CPU time: the IPC
/// times the frequency) enters a running average, new = 0.35·old + 0.65·sample. The factor is the ratio of the averages
/// of a core type and the slowest one, within 1 to 7. Before 5 samples on both types are in, it is 2.5 (quality
/// [`Quality::Stale`]: it rests on nothing measured, but the published algorithm wants it); while the slow core's
/// IPC is 0 it keeps its last value. The averages may belong to different phases of the program, which is the
/// method's known weakness.
///
/// It tells no efficiency factors: energy registers do not tell threads apart.
#[derive(Debug)]
pub struct IpcSampling {
    truth: TruthHandle,
    slowest: CoreTypeId,
    threads: HashMap<ThreadKey, Averages>,
    buffer: Vec<ThreadTruth>,
    now: Nanos,
    round: u64,
}

#[derive(Clone, Copy, Debug)]
struct Averages {
    round: u64,
    runtime: [Nanos; MAX_CORE_TYPES],
    instructions: [f64; MAX_CORE_TYPES],
    speed: [f64; MAX_CORE_TYPES],
    samples: [u32; MAX_CORE_TYPES],
    factor: [f64; MAX_CORE_TYPES],
    measured: Nanos,
}

impl IpcSampling {
    /// The provider, fed with the instruction counts of the machine behind `truth`.
    pub fn new(truth: TruthHandle) -> IpcSampling {
        IpcSampling {
            slowest: truth.slowest(),
            truth,
            threads: HashMap::new(),
            buffer: Vec::new(),
            now: Nanos::ZERO,
            round: 0,
        }
    }
}

impl Averages {
    fn new(now: Nanos) -> Averages {
        Averages {
            round: 0,
            runtime: [Nanos::ZERO; MAX_CORE_TYPES],
            instructions: [0.0; MAX_CORE_TYPES],
            speed: [0.0; MAX_CORE_TYPES],
            samples: [0; MAX_CORE_TYPES],
            factor: [WARM_UP_VALUE; MAX_CORE_TYPES],
            measured: now,
        }
    }

    fn take_in(
        &mut self,
        runtime: &[Nanos; MAX_CORE_TYPES],
        instructions: &[f64; MAX_CORE_TYPES],
        slowest: usize,
        now: Nanos,
    ) {
        for t in 0..=slowest {
            let ran = runtime[t].saturating_sub(self.runtime[t]);
            if ran < SHORTEST {
                continue;
            }
            let sample = (instructions[t] - self.instructions[t]) / ran.as_secs_f64();
            self.runtime[t] = runtime[t];
            self.instructions[t] = instructions[t];
            self.speed[t] = match self.samples[t] {
                0 => sample,
                _ => (1.0 - NEW) * self.speed[t] + NEW * sample,
            };
            self.samples[t] = self.samples[t].saturating_add(1);
        }
        for t in 0..slowest {
            if self.warm(t, slowest) && self.speed[slowest] > 0.0 {
                self.factor[t] = (self.speed[t] / self.speed[slowest]).clamp(RANGE.0, RANGE.1);
                self.measured = now;
            }
        }
    }

    fn warm(&self, t: usize, slowest: usize) -> bool {
        self.samples[t].min(self.samples[slowest]) >= WARM_UP_SAMPLES
    }
}

impl Provider for IpcSampling {
    fn name(&self) -> &str {
        "ipc-sampling"
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.now = snapshot.now;
        self.round += 1;
        self.truth.read(&mut self.buffer);
        let counts: HashMap<ThreadKey, &[f64; MAX_CORE_TYPES]> = self
            .buffer
            .iter()
            .map(|t| (t.key, &t.instructions))
            .collect();
        for t in &snapshot.threads {
            let Some(instructions) = counts.get(&t.key) else {
                continue;
            };
            let a = self
                .threads
                .entry(t.key)
                .or_insert_with(|| Averages::new(snapshot.now));
            a.round = self.round;
            a.take_in(&t.runtime, instructions, self.slowest.index(), snapshot.now);
        }
        let round = self.round;
        self.threads.retain(|_, a| a.round == round);
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let MetricId::SpeedupFactor(t) = metric else {
            return None;
        };
        let (t, slowest) = (t.index(), self.slowest.index());
        let a = self.threads.get(&thread).filter(|_| t < slowest)?;
        let quality = if a.warm(t, slowest) {
            Quality::Multiplexed
        } else {
            Quality::Stale
        };
        Some(Estimate {
            value: a.factor[t],
            uncertainty: None,
            age: self.now.saturating_sub(a.measured),
            quality,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(big: f64, small: f64) -> [f64; MAX_CORE_TYPES] {
        let mut a = [0.0; MAX_CORE_TYPES];
        (a[0], a[1]) = (big, small);
        a
    }

    /// `n` intervals of 100 ms on each type, at these speeds.
    fn feed(a: &mut Averages, n: u32, big: f64, small: f64) {
        for _ in 0..n {
            let mut runtime = a.runtime;
            runtime[0] += Nanos::from_millis(100);
            runtime[1] += Nanos::from_millis(100);
            let (i, j) = (
                a.instructions[0] + big * 0.1,
                a.instructions[1] + small * 0.1,
            );
            a.take_in(&runtime, &totals(i, j), 1, Nanos(1));
        }
    }

    #[test]
    fn warm_up_then_the_ratio_of_the_averages() {
        let mut a = Averages::new(Nanos::ZERO);
        feed(&mut a, 4, 3e9, 1e9);
        assert_eq!((a.factor[0], a.warm(0, 1)), (2.5, false));
        feed(&mut a, 1, 3e9, 1e9);
        assert!((a.factor[0] - 3.0).abs() < 1e-6 && a.warm(0, 1));
        // one sample at another speed counts 0.65
        feed(&mut a, 1, 2e9, 1e9);
        assert!(
            (a.factor[0] - (0.35 * 3.0 + 0.65 * 2.0)).abs() < 1e-6,
            "{}",
            a.factor[0]
        );
    }

    #[test]
    fn the_factor_is_clamped_and_a_stalled_small_core_changes_nothing() {
        let mut a = Averages::new(Nanos::ZERO);
        feed(&mut a, 9, 9e9, 1e9);
        assert_eq!(a.factor[0], 7.0);
        feed(&mut a, 20, 0.5e9, 1e9);
        assert_eq!(a.factor[0], 1.0);
        let mut a = Averages::new(Nanos::ZERO);
        feed(&mut a, 5, 1e9, 0.0);
        assert_eq!(a.factor[0], 2.5);
    }

    #[test]
    fn moments_are_no_samples() {
        let mut a = Averages::new(Nanos::ZERO);
        let mut runtime = [Nanos::ZERO; MAX_CORE_TYPES];
        runtime[0] = Nanos(1000);
        a.take_in(&runtime, &totals(1.0, 0.0), 1, Nanos(1));
        assert_eq!(a.samples[0], 0);
        // but what they did belongs to the next sample
        runtime[0] = Nanos::from_millis(100);
        a.take_in(&runtime, &totals(1e8, 0.0), 1, Nanos(2));
        assert!((a.speed[0] - 1e9).abs() < 1.0);
    }
}
