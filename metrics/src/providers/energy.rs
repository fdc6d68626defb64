//! Efficiency factors from speedup factors and energy readings [PMCTrack eq. 3-7].

use super::threads::Threads;
use crate::estimate::{Estimate, Quality};
use crate::event::{EventError, EventSets};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::pmu::Pmus;
use crate::provider::{MetricId, Provider};
use crate::sample::{Snapshot, Subject, VirtualCounter};

/// Part of what an interval's energy departs from expectation that is put down to the powers being
/// wrong.
const NEW: f64 = 0.5;
/// Least power of a thread, in parts of the mean.
const LEAST: f64 = 0.05;
/// Power of an idle core in parts of the mean, until more is known.
const IDLE: f64 = 0.1;
/// How readily the power of idle cores takes the blame, a thread's being 1: it is small and hardly
/// changes.
const IDLE_WEIGHT: f64 = 0.01;
/// Intervals on a core type before its power counts.
const ENOUGH: u32 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Power {
    /// Running mean, watts, and of its squared departures.
    watts: f64,
    variance: f64,
    samples: u32,
    at: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    power: [Power; MAX_CORE_TYPES],
    runtime: [Nanos; MAX_CORE_TYPES],
    seen: bool,
}

impl Thread {
    /// Seconds on core type `c` since the last sample.
    fn ran(&self, c: usize, now: &[Nanos; MAX_CORE_TYPES]) -> f64 {
        let ran = |n: &Nanos, before: &Nanos| n.saturating_sub(*before).as_secs_f64();
        let both = now.get(c).zip(self.runtime.get(c));
        both.map_or(0.0, |(n, before)| ran(n, before))
    }
}

/// What the threads of a core type did in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    /// Sums of CPU time, of its squares (weighted), of that of threads without a power yet, and
    /// energy by the powers of the others.
    time: f64,
    squares: f64,
    unknown: f64,
    joules: f64,
}

impl Shared {
    fn add(&mut self, ran: f64, power: &Power) {
        self.time += ran;
        self.squares += ran * ran;
        if power.samples == 0 {
            self.unknown += ran;
        } else {
            self.joules += ran * power.watts;
        }
    }

    /// Cores of `power` were idle for so long, in all.
    fn add_idle(&mut self, seconds: f64, power: &Power) {
        self.squares += IDLE_WEIGHT * seconds * seconds;
        if power.samples == 0 {
            self.time += IDLE * seconds;
            self.unknown += IDLE * seconds;
        } else {
            self.joules += seconds * power.watts;
        }
    }

    /// Energy as it should have been, `mean` being the power of those of which nothing is known
    /// yet.
    fn expected(&self, mean: f64) -> f64 {
        self.joules + self.unknown * mean
    }
}

/// Adds efficiency factors to another provider's speedup factors.
///
/// EF = EDP_small / EDP_big = SF / ER with ER the energy on the big core over that on the small one
/// for the same instructions. With the power P of a thread on each core type and time inversely
/// proportional to speed, ER = (P_big / P_small) / SF, so that EF = SF² · P_small / P_big.
///
/// Sensors measure core types, not threads. What the cores of a type drew in an interval is the
/// sum over the threads that ran there of power × CPU time: one equation per interval, with other
/// threads in it whenever threads change places. The powers are estimated from those by Kaczmarz's
/// method with relaxation: what an interval drew more than expected is spread over its threads by
/// their CPU time. A thread begins with the mean of those it shares the cores with; threads that
/// never part share their mean. Idle cores are one more that draws, first taken for a
/// tenth of one that runs. The quality is therefore never better than [`Quality::Multiplexed`]. An
/// efficiency factor of the inner provider goes first.
pub struct WithEnergy {
    name: String,
    inner: Box<dyn Provider>,
    core_types: usize,
    /// CPUs of each core type.
    cpus: [usize; MAX_CORE_TYPES],
    /// A core of the type that does nothing.
    idle: [Power; MAX_CORE_TYPES],
    threads: Threads<Thread>,
    /// Places in the snapshot of the threads that ran in the interval; reused from one to the next.
    ran: Vec<usize>,
    now: Nanos,
}

impl std::fmt::Debug for WithEnergy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WithEnergy")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl WithEnergy {
    /// In front of `inner`, whose name it keeps, on a machine with core types of so many CPUs.
    pub fn new(inner: Box<dyn Provider>, cpus: impl IntoIterator<Item = usize>) -> WithEnergy {
        let (mut per_type, mut core_types) = ([0; MAX_CORE_TYPES], 0);
        for (to, n) in per_type.iter_mut().zip(cpus) {
            *to = n;
            core_types += 1;
        }
        WithEnergy {
            name: inner.name().to_owned(),
            inner,
            core_types,
            cpus: per_type,
            idle: Default::default(),
            threads: Threads::default(),
            ran: Vec::new(),
            now: Nanos::ZERO,
        }
    }
}

impl Provider for WithEnergy {
    fn name(&self) -> &str {
        &self.name
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(&*self.inner)
    }

    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        self.inner.event_sets(pmus)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.now = snapshot.now;
        self.inner.observe(snapshot);
        let mut joules = [None; MAX_CORE_TYPES];
        let mut over = 0.0;
        for v in &snapshot.virtual_counters {
            if let (VirtualCounter::Energy, Subject::CoreType(t)) = (v.counter, v.of) {
                if let Some(j) = joules.get_mut(t.index()) {
                    *j = Some(v.value);
                    over = v.over.as_secs_f64();
                }
            }
        }
        if joules.iter().all(Option::is_none) {
            // nothing to share out; whoever is known would be charged the next interval's energy
            // for two
            self.threads = Threads::default();
            return;
        }
        self.threads.keep(snapshot, |_| Thread::default());
        self.ran.clear();
        let mut types = [Shared::default(); MAX_CORE_TYPES];
        for (i, t) in snapshot.threads.iter().enumerate() {
            let Some(known) = self.threads.get_mut(t.key) else {
                continue;
            };
            if !known.seen {
                known.runtime = t.runtime;
                known.seen = true;
            }
            // most threads of a machine sleep
            if known.runtime == t.runtime {
                continue;
            }
            self.ran.push(i);
            for (c, shared) in types.iter_mut().enumerate().take(self.core_types) {
                shared.add(known.ran(c, &t.runtime), &known.power[c]);
            }
        }
        for (c, shared) in types.iter_mut().enumerate().take(self.core_types) {
            let idle = (self.cpus[c] as f64 * over - shared.time).max(0.0);
            shared.add_idle(idle, &self.idle[c]);
            let Some(j) = joules[c].filter(|_| idle > 0.0) else {
                continue;
            };
            let p = &mut self.idle[c];
            let mean = j / shared.time;
            if !mean.is_finite() || mean < 0.0 {
                continue;
            }
            if p.samples == 0 {
                p.watts = IDLE * mean;
            } else {
                let d = (j - shared.expected(mean)) * IDLE_WEIGHT * idle / shared.squares;
                p.watts = (p.watts + NEW * d).max(0.0);
            }
            p.samples = p.samples.saturating_add(1);
        }
        for t in self.ran.iter().filter_map(|i| snapshot.threads.get(*i)) {
            let Some(known) = self.threads.get_mut(t.key) else {
                continue;
            };
            for (c, shared) in types.iter().enumerate().take(self.core_types) {
                let ran = known.ran(c, &t.runtime);
                let Some(j) = joules[c].filter(|_| ran > 0.0) else {
                    continue;
                };
                let mean = j / shared.time;
                if !mean.is_finite() || mean <= 0.0 {
                    continue;
                }
                let p = &mut known.power[c];
                if p.samples == 0 {
                    p.watts = mean;
                } else {
                    let d = (j - shared.expected(mean)) * ran / shared.squares;
                    // a core that runs draws something
                    p.watts = (p.watts + NEW * d).max(LEAST * mean);
                    p.variance = (1.0 - NEW) * (p.variance + NEW * d * d);
                }
                p.samples = p.samples.saturating_add(1);
                p.at = snapshot.now;
            }
            known.runtime = t.runtime;
        }
    }

    fn expect(&mut self, thread: ThreadKey, metric: MetricId, remembered: Option<Estimate>) {
        self.inner.expect(thread, metric, remembered);
    }

    fn expect_shown(&mut self, thread: ThreadKey, of: CoreTypeId, remembered: Option<Estimate>) {
        self.inner.expect_shown(thread, of, remembered);
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let said = self.inner.estimate(thread, metric);
        let MetricId::EfficiencyFactor(c) = metric else {
            return said;
        };
        let slowest = self.core_types.checked_sub(1)?;
        if said.is_some() || c.index() >= slowest {
            return said;
        }
        let sf = self.inner.estimate(thread, MetricId::SpeedupFactor(c))?;
        let t = self.threads.get(thread)?;
        let (big, small) = (t.power.get(c.index())?, t.power.get(slowest)?);
        if big.samples.min(small.samples) < ENOUGH {
            return None;
        }
        let value = sf.value * sf.value * small.watts / big.watts;
        let relative = |p: &Power| (p.variance * NEW / (2.0 - NEW)).sqrt() / p.watts;
        // SF enters squared
        let u = sf.uncertainty.filter(|_| sf.value > 0.0);
        let u = u.map(|u| value * (2.0 * u / sf.value).hypot(relative(big).hypot(relative(small))));
        Some(Estimate {
            value,
            uncertainty: u,
            age: sf.age.max(self.now.saturating_sub(big.at.min(small.at))),
            quality: sf.quality.max(Quality::Multiplexed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AppId;
    use crate::ids::CoreTypeId;
    use crate::providers::testing::{key, snapshot};
    use crate::sample::VirtualReading;
    use crate::{Declarations, Declared, Speedups};
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn threads_that_change_places_are_told_apart() {
        // two big cores, four little ones, six threads in other places every interval
        let big = [3.0, 2.0, 1.0, 4.0, 1.5, 2.5];
        let little = [0.5, 0.2, 0.3, 1.0, 0.25, 0.4];
        let mut p = WithEnergy::new(Box::new(Declared::new(Declarations::default())), [2, 4]);
        let mut runtime = [[Nanos::ZERO; MAX_CORE_TYPES]; 6];
        let mut rng = rand::rngs::SmallRng::seed_from_u64(1);
        let mut places = [0, 1, 2, 3, 4, 5];
        for i in 0..100usize {
            places.shuffle(&mut rng);
            let mut joules = [0.0, 0.0];
            let mut s = snapshot(i as u64 * 100, &[0, 1, 2, 3, 4, 5], Vec::new());
            for (n, t) in s.threads.iter_mut().enumerate() {
                let (c, watts) = if places[n] < 2 {
                    (0, big[n])
                } else {
                    (1, little[n])
                };
                // not all of them run all the time
                let ran = Nanos::from_millis(60 + 5 * ((n * 7 + i * 3) % 9) as u64);
                if i > 0 {
                    runtime[n][c] += ran;
                    joules[c] += watts * ran.as_secs_f64();
                }
                t.runtime = runtime[n];
            }
            s.virtual_counters = joules
                .into_iter()
                .enumerate()
                .map(|(c, value)| VirtualReading {
                    counter: VirtualCounter::Energy,
                    of: Subject::CoreType(CoreTypeId(c as u8)),
                    value,
                    over: Nanos::from_millis(100),
                })
                .collect();
            p.observe(&s);
        }
        for n in 0..6 {
            let power = p.threads.get(key(n as u32)).unwrap().power;
            for (c, truth) in [(0, big[n]), (1, little[n])] {
                let error = power[c].watts / truth - 1.0;
                assert!(error.abs() < 0.1, "thread {n} on {c}: {error:+.3}");
            }
        }
    }

    #[test]
    fn idle_cores_are_charged_to_nobody() {
        // one to three threads at 0.15 to 0.3 W among ten cores that draw 20 mW each
        let watts = [0.15, 0.3, 0.2];
        let mut p = WithEnergy::new(Box::new(Declared::new(Declarations::default())), [10]);
        let mut rng = rand::rngs::SmallRng::seed_from_u64(2);
        let mut runtime = [[Nanos::ZERO; MAX_CORE_TYPES]; 3];
        for i in 0..200u64 {
            let mut s = snapshot(i * 100, &[0, 1, 2], Vec::new());
            let (mut joules, mut idle) = (0.0, 1.0);
            for (n, t) in s.threads.iter_mut().enumerate() {
                if i > 0 && rng.random_bool(0.6) {
                    runtime[n][0] += Nanos::from_millis(100);
                    joules += 0.1 * watts[n];
                    idle -= 0.1;
                }
                t.runtime = runtime[n];
            }
            s.virtual_counters.push(VirtualReading {
                counter: VirtualCounter::Energy,
                of: Subject::CoreType(CoreTypeId(0)),
                value: joules + 0.02 * idle,
                over: Nanos::from_millis(100),
            });
            p.observe(&s);
        }
        for (n, truth) in watts.into_iter().enumerate() {
            let got = p.threads.get(key(n as u32)).unwrap().power[0].watts;
            assert!((got / truth - 1.0).abs() < 0.1, "thread {n}: {got}");
        }
        let idle = p.idle[0].watts;
        assert!((idle - 0.02).abs() < 0.004, "{idle}");
    }

    #[test]
    fn the_published_ratio() {
        let d = Declarations::default();
        d.declare(AppId(1), Speedups::fastest(2.0).unwrap());
        let mut p = WithEnergy::new(Box::new(Declared::new(d)), [1, 1]);
        let ef = MetricId::EfficiencyFactor(CoreTypeId(0));
        let mut runtime = [Nanos::ZERO; MAX_CORE_TYPES];
        for i in 0..8u64 {
            // by turns 100 ms on big at 3 W and on little at 1 W; the other cores idle
            let t = (i % 2) as usize;
            let mut s = snapshot(i * 100, &[1], Vec::new());
            if i > 0 {
                runtime[t] += Nanos::from_millis(100);
            }
            s.threads[0].runtime = runtime;
            s.virtual_counters = [0.3, 0.1]
                .into_iter()
                .enumerate()
                .map(|(c, j)| VirtualReading {
                    counter: VirtualCounter::Energy,
                    of: Subject::CoreType(CoreTypeId(c as u8)),
                    value: j,
                    over: Nanos::from_millis(100),
                })
                .collect();
            p.observe(&s);
            if i < 5 {
                assert_eq!(p.estimate(key(1), ef), None, "{i}");
            }
        }
        // SF² · P_small / P_big = 4 / 3; by its definition SF / ER with ER = (3 W · t) / (1 W · 2
        // t)
        let e = p.estimate(key(1), ef).unwrap();
        assert!((e.value - 2.0 / 1.5).abs() < 1e-9, "{e:?}");
        assert_eq!((e.quality, e.uncertainty), (Quality::Multiplexed, None));
        assert_eq!(
            p.estimate(key(1), MetricId::EfficiencyFactor(CoreTypeId(1))),
            None
        );
    }
}
