//! Windows of a fixed number of instructions in front of a provider that counts [PMCTrack §4.1.2].
//!
//! Readings come once per interval of time. Cut at every so many instructions, they speak of the
//! same amount of work whatever core type it was done on. Nothing changes for the hardware:
//! counters are read at switches and ticks as ever, and what lies between two readings is
//! interpolated.

use super::threads::Threads;
use crate::estimate::Estimate;
use crate::event::{EventError, EventSets, MAX_EVENTS};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::pmu::Pmus;
use crate::provider::{MetricId, Provider};
use crate::sample::{Reading, Snapshot};
use crate::windows::Cutter;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;

/// Instructions that a window may have. Shorter ones would be more than one per microsecond.
pub const WINDOW_SIZES: RangeInclusive<u64> = 100_000..=1_000_000_000_000;

/// Intervals that a set is kept on for a window to fill, before the next one gets its turn all the
/// same.
const PATIENCE: u32 = 20;

/// Counts since a beginning, and where they are cut.
#[derive(Clone, Debug)]
struct Running {
    cutter: Cutter,
    /// Set and generation.
    of: (u32, u32),
    instructions: u64,
    /// The set's events, then CPU time counted and CPU time, ns.
    counts: [u64; MAX_EVENTS + 2],
}

#[derive(Clone, Debug, Default)]
struct Thread {
    running: [Option<Running>; MAX_CORE_TYPES],
}

/// The cutter in front of `inner`, which gets a reading per complete window: none in an interval in
/// which none was completed, or several. A set stays on until it has completed a window on its core
/// type.
pub struct Windowed {
    name: String,
    inner: Box<dyn Provider>,
    size: NonZeroU64,
    /// Where instructions stand in each set of a core type.
    instructions: [Vec<Option<usize>>; MAX_CORE_TYPES],
    active: [usize; MAX_CORE_TYPES],
    waited: [u32; MAX_CORE_TYPES],
    threads: Threads<Thread>,
    /// What the inner provider sees.
    seen: Snapshot,
}

impl std::fmt::Debug for Windowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Windowed")
            .field("name", &self.name)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Windowed {
    /// Windows of `size` instructions in front of `inner`.
    ///
    /// # Errors
    /// When the size is not within [`WINDOW_SIZES`].
    pub fn new(inner: Box<dyn Provider>, size: u64) -> Result<Windowed, String> {
        let fits = NonZeroU64::new(size).filter(|s| WINDOW_SIZES.contains(&s.get()));
        let Some(size) = fits else {
            let (least, most) = (WINDOW_SIZES.start(), WINDOW_SIZES.end());
            return Err(format!(
                "key `instructions`: {size} is not within {least} to {most}"
            ));
        };
        Ok(Windowed {
            name: format!("windows({})", inner.name()),
            inner,
            size,
            instructions: Default::default(),
            active: [0; MAX_CORE_TYPES],
            waited: [0; MAX_CORE_TYPES],
            threads: Threads::default(),
            seen: Snapshot::default(),
        })
    }

    /// Cuts a reading; its windows go to `self.seen`.
    fn take_in(&mut self, r: &Reading) {
        let sets = self.instructions.get(r.core_type.index());
        let at = sets.and_then(|s| s.get(r.set as usize).copied().flatten());
        let (Some(at), Some(thread)) = (at, self.threads.get_mut(r.thread)) else {
            return;
        };
        let (Some(more), true) = (r.deltas().get(at).copied(), r.counted.0 > 0) else {
            return;
        };
        let Some(place) = thread.running.get_mut(r.core_type.index()) else {
            return;
        };
        let of = (r.set, r.generation);
        let n = r.deltas().len();
        let running = match place {
            Some(x) if x.of == of => x,
            _ => place.insert(Running {
                cutter: Cutter::new(self.size),
                of,
                instructions: 0,
                counts: [0; MAX_EVENTS + 2],
            }),
        };
        if running.instructions == 0 {
            let zero = [0; MAX_EVENTS + 2];
            running.cutter.read(0, 0, &zero[..n + 2], |_| ());
        }
        running.instructions = running.instructions.saturating_add(more);
        let added = r.deltas().iter().chain([&r.counted.0, &r.ran.0]);
        for (sum, d) in running.counts.iter_mut().zip(added) {
            *sum = sum.saturating_add(*d);
        }
        let (readings, counts) = (&mut self.seen.readings, &running.counts[..n + 2]);
        running.cutter.read(0, running.instructions, counts, |w| {
            let (events, times) = w.counts.split_at(n);
            let mut deltas = [0; MAX_EVENTS];
            deltas[..n].copy_from_slice(events);
            deltas[at] = w.instructions;
            let [counted, ran] = times else { return };
            let whole = Reading::new(r.thread, r.core_type, r.set, r.generation, &deltas[..n]);
            readings.push(whole.over(Nanos(*ran), Nanos(*counted)));
        });
    }
}

impl Provider for Windowed {
    fn name(&self) -> &str {
        &self.name
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(&*self.inner)
    }

    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        let sets = self.inner.event_sets(pmus)?;
        for (t, places) in self.instructions.iter_mut().enumerate() {
            let of_type = sets.of(CoreTypeId(t as u8)).iter();
            *places = of_type.map(|s| s.position("instructions")).collect();
        }
        Ok(sets)
    }

    fn active_set(&self, t: CoreTypeId) -> usize {
        self.active.get(t.index()).copied().unwrap_or(0)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.threads.keep(snapshot, |_| Thread::default());
        self.seen.now = snapshot.now;
        self.seen.threads.clone_from(&snapshot.threads);
        self.seen.resting.clone_from(&snapshot.resting);
        self.seen.gone.clone_from(&snapshot.gone);
        self.seen
            .virtual_counters
            .clone_from(&snapshot.virtual_counters);
        self.seen.readings.clear();
        for r in &snapshot.readings {
            self.take_in(r);
        }
        self.inner.observe(&self.seen);
        let turns = self.active.iter_mut().zip(&mut self.waited).enumerate();
        for (t, (active, waited)) in turns {
            let wanted = self.inner.active_set(CoreTypeId(t as u8));
            let mut readings = self.seen.readings.iter();
            let complete = readings.any(|r| r.core_type.index() == t && r.set as usize == *active);
            if wanted == *active || complete || *waited >= PATIENCE {
                (*active, *waited) = (wanted, 0);
            } else {
                *waited += 1;
            }
        }
    }

    fn expect(&mut self, thread: ThreadKey, metric: MetricId, remembered: Option<Estimate>) {
        self.inner.expect(thread, metric, remembered);
    }

    fn expect_shown(&mut self, thread: ThreadKey, of: CoreTypeId, remembered: Option<Estimate>) {
        self.inner.expect_shown(thread, of, remembered);
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        self.inner.estimate(thread, metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventSet;
    use crate::providers::testing::{key, readings, snapshot};
    use proptest::prelude::*;
    use std::sync::{Arc, Mutex};

    const SIZE: u64 = 1_000_000;

    /// Keeps what it sees, and wants set 1 from its second to its fifth turn, else set 0.
    #[derive(Default)]
    struct Inner {
        seen: Arc<Mutex<Vec<Reading>>>,
        turn: usize,
    }

    impl Provider for Inner {
        fn name(&self) -> &str {
            "inner"
        }

        fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
            let mut sets = EventSets::default();
            for t in pmus.core_types() {
                for names in [["instructions", "cycles"], ["cycles", "instructions"]] {
                    let events = names.iter().map(|n| {
                        let spec = n.parse()?;
                        Ok(pmus.resolve(t, &spec)?.named(n))
                    });
                    let events = events.collect::<Result<_, EventError>>()?;
                    sets.push(t, EventSet { events });
                }
            }
            Ok(sets)
        }

        fn active_set(&self, _t: CoreTypeId) -> usize {
            usize::from((2..=5).contains(&self.turn))
        }

        fn observe(&mut self, snapshot: &Snapshot) {
            self.turn += 1;
            self.seen
                .lock()
                .unwrap()
                .extend_from_slice(&snapshot.readings);
        }

        fn estimate(&self, _thread: ThreadKey, _metric: MetricId) -> Option<Estimate> {
            None
        }
    }

    fn windowed() -> (Windowed, Arc<Mutex<Vec<Reading>>>) {
        let inner = Inner::default();
        let seen = inner.seen.clone();
        let mut w = Windowed::new(Box::new(inner), SIZE).unwrap();
        w.event_sets(&Pmus::generic(&[vec![0], vec![1]], 4))
            .unwrap();
        (w, seen)
    }

    fn of(seen: &Mutex<Vec<Reading>>) -> Vec<(Vec<u64>, u64)> {
        let mut seen = seen.lock().unwrap();
        let all = seen
            .iter()
            .map(|r| (r.deltas().to_vec(), r.counted.0))
            .collect();
        seen.clear();
        all
    }

    #[test]
    fn readings_become_windows() {
        let (mut w, seen) = windowed();
        // 10 ms each; less than a window, one and a half, three and a bit
        let mut give = |ms, deltas: &[u64]| {
            w.observe(&snapshot(ms, &[1], vec![readings(1, 0, 0, 10, deltas)]));
            of(&seen)
        };
        assert_eq!(give(10, &[500_000, 1_000_000]), []);
        let half = (vec![SIZE, 1_500_000], 15_000_000);
        assert_eq!(give(20, &[1_000_000, 1_000_000]), [half]);
        let three = give(30, &[3_000_000, 6_000_000]);
        assert_eq!(three.len(), 3);
        assert_eq!(three[2].0, [SIZE, 2_000_000]);
        // another core type, another generation: another beginning
        let r = readings(1, 1, 0, 10, &[900_000, 900_000]);
        w.observe(&snapshot(40, &[1], vec![r]));
        let r = Reading::new(key(1), CoreTypeId(0), 0, 2, &[900_000, 900_000])
            .over(Nanos(10), Nanos(10));
        w.observe(&snapshot(50, &[1], vec![r]));
        assert_eq!(of(&seen), []);
    }

    #[test]
    fn a_set_stays_on_until_a_window_is_complete() {
        let (mut w, _) = windowed();
        let t = CoreTypeId(0);
        for i in 0..5 {
            assert_eq!(w.active_set(t), 0, "{i}");
            let r = readings(1, 0, 0, 10, &[240_000, 1]);
            w.observe(&snapshot(i * 10, &[1], vec![r]));
        }
        // complete after the fifth, when the inner one wants set 1, of which instructions are the
        // second event
        assert_eq!(w.active_set(t), 1);
        w.observe(&snapshot(60, &[1], vec![readings(1, 0, 1, 10, &[7, 100])]));
        assert_eq!(w.active_set(t), 1);
        // nobody fills it: the next one's turn comes all the same
        let mut waited = 0;
        while w.active_set(t) == 1 {
            w.observe(&snapshot(70 + waited, &[1], Vec::new()));
            waited += 1;
            assert!(waited < 50);
        }
    }

    #[test]
    fn sizes_out_of_range_name_the_key() {
        for size in [0, 99_999, u64::MAX] {
            let e = Windowed::new(Box::new(Inner::default()), size).unwrap_err();
            assert!(e.contains("key `instructions`"), "{e}");
        }
    }

    proptest! {
        /// Nothing is counted twice: the windows hold what was read, but for the rest of less than
        /// one.
        #[test]
        fn totals_are_conserved(stream in proptest::collection::vec((0u64..5_000_000, 0u64..1 << 40), 1..30)) {
            let (mut w, seen) = windowed();
            let (mut sum, mut windows) = ((0, 0), Vec::new());
            for (i, (instructions, cycles)) in stream.into_iter().enumerate() {
                w.observe(&snapshot(i as u64 * 10, &[1], vec![readings(1, 0, 0, 10, &[instructions, cycles])]));
                sum = (sum.0 + instructions, sum.1 + cycles);
                windows.extend(of(&seen));
            }
            prop_assert_eq!(windows.len() as u64, sum.0 / SIZE);
            prop_assert!(windows.iter().map(|(d, _)| d[1]).sum::<u64>() <= sum.1);
        }
    }
}
