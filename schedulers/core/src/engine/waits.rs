//! How much of its time on fast cores an application of many threads uses: how it shares work is found
//! out, not configured.
//!
//! Threads that do equal parts of the work and wait for each other at barriers are done early on fast
//! cores, and sleep there until those on slow cores are done, too. Threads that take work from a
//! common heap never wait. So of one application, with threads on both core types at the same time,
//!
//! ```text
//! busy_t = CPU time per thread that is placed on t / CPU time per thread that is placed on the slowest type
//! ```
//!
//! is one over the speedup factor in the first case, and one in the second. Times the speedup factor
//! it is what a thread gets done on a fast core over what its siblings get done on slow ones: the factor
//! that the application as a whole has ([`Utility::Auto`](crate::utility::Utility::Auto)).
//!
//! It is kept by the name of the program, so that its next run is known from its beginning, and fades:
//! a program that shares its work in another way now is tried again.

use amp_metrics::{Nanos, ProgramName, MAX_CORE_TYPES};
use rustc_hash::FxHashMap;

/// Part of its CPU time that a thread had on the core type it is placed on, at least, to be a measure.
const STAYED: f64 = 0.9;
/// CPU time per thread on the slowest core type below which an interval says nothing: they wait for
/// something else. A part of the interval.
const BUSY: f64 = 0.3;
/// CPU time of the idlest thread on the slowest core type over that of the busiest, below which the
/// interval says nothing: one works, and others wait for it.
const ALIKE: f64 = 0.5;
/// Intervals before anything is said.
const ENOUGH: u32 = 3;
/// Intervals that the running mean goes back.
const MEMORY: f64 = 16.0;
/// Time in which half of what was seen is forgotten.
const HALF_LIFE: f64 = 30.0;
/// Programs that are remembered.
const MOST: usize = 256;

/// What the threads of one application did in one interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    /// Threads that were placed on a core type and ran nowhere else.
    held: [u32; MAX_CORE_TYPES],
    /// Their CPU time there.
    ran: [Nanos; MAX_CORE_TYPES],
    /// That of the idlest and of the busiest one of them.
    range: [Option<(Nanos, Nanos)>; MAX_CORE_TYPES],
}

impl Used {
    /// Takes in a thread that is placed on core type `t`.
    pub fn take_in(&mut self, t: usize, ran: &[Nanos; MAX_CORE_TYPES]) {
        let all: Nanos = ran.iter().copied().sum();
        let here = ran.get(t).copied().unwrap_or(Nanos::ZERO);
        if (here.0 as f64) < STAYED * all.0 as f64 {
            return;
        }
        if t >= MAX_CORE_TYPES {
            return;
        }
        self.held[t] += 1;
        self.ran[t] += here;
        let (least, most) = self.range[t].unwrap_or((here, here));
        self.range[t] = Some((least.min(here), most.max(here)));
    }

    /// Whether all threads on core type `t` were about as busy.
    fn alike(&self, t: usize) -> bool {
        let range = self.range.get(t).copied().flatten();
        range.is_some_and(|(least, most)| least.0 as f64 >= ALIKE * most.0 as f64)
    }

    /// CPU time per thread on core type `t`, as a part of the interval.
    fn part(&self, t: usize, interval: Nanos) -> Option<f64> {
        let held = self.held.get(t).filter(|n| **n > 0)?;
        Some(self.ran.get(t)?.0 as f64 / f64::from(*held) / interval.0 as f64)
    }
}

#[derive(Clone, Copy, Debug)]
struct Program {
    busy: [f64; MAX_CORE_TYPES],
    seen: [u32; MAX_CORE_TYPES],
    at: Nanos,
}

/// What is known of programs by their names.
#[derive(Debug, Default)]
pub(super) struct Waits {
    programs: FxHashMap<ProgramName, Program>,
}

impl Waits {
    /// Takes in an interval of an application with more than one runnable thread, and says how busy
    /// its threads are on each core type relative to the slowest, `slowest`: 1 where nothing is known.
    pub fn update(
        &mut self,
        name: ProgramName,
        used: &Used,
        slowest: usize,
        (interval, now): (Nanos, Nanos),
    ) -> [f64; MAX_CORE_TYPES] {
        let mut busy = [1.0; MAX_CORE_TYPES];
        let there = used.part(slowest, interval);
        let there = there.filter(|p| *p >= BUSY && used.alike(slowest));
        let seen = |t: usize| Some((used.part(t, interval)? / there?).min(1.0));
        let any = interval > Nanos::ZERO && (0..slowest).any(|t| seen(t).is_some());
        if any && !self.programs.contains_key(&name) {
            self.make_room();
            let fresh = Program {
                busy,
                seen: [0; MAX_CORE_TYPES],
                at: now,
            };
            self.programs.insert(name, fresh);
        }
        let Some(p) = self.programs.get_mut(&name) else {
            return busy;
        };
        let away = now.saturating_sub(p.at).as_secs_f64();
        p.at = now;
        let left = 0.5f64.powf(away / HALF_LIFE);
        for (t, busy) in busy.iter_mut().enumerate().take(slowest) {
            p.busy[t] = 1.0 - left * (1.0 - p.busy[t]);
            if let Some(ratio) = any.then(|| seen(t)).flatten() {
                p.seen[t] = p.seen[t].saturating_add(1);
                let k = (1.0 / f64::from(p.seen[t])).max(1.0 / MEMORY);
                p.busy[t] += k * (ratio - p.busy[t]);
            }
            if p.seen[t] >= ENOUGH {
                *busy = p.busy[t];
            }
        }
        busy
    }

    /// The program that was met longest ago makes room.
    fn make_room(&mut self) {
        if self.programs.len() >= MOST {
            let oldest = self.programs.iter().min_by_key(|(name, p)| (p.at, **name));
            if let Some(name) = oldest.map(|(name, _)| *name) {
                self.programs.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const INTERVAL: Nanos = Nanos(100 * MS);

    fn ran(t: usize, ms: u64) -> [Nanos; MAX_CORE_TYPES] {
        let mut ran = [Nanos::ZERO; MAX_CORE_TYPES];
        ran[t] = Nanos(ms * MS);
        ran
    }

    /// What is said after `n` intervals in which threads ran for so long on (type).
    fn after(w: &mut Waits, comm: u8, n: u64, from: u64, threads: &[(usize, u64)]) -> f64 {
        let mut busy = 1.0;
        for i in 0..n {
            let mut used = Used::default();
            for (t, ms) in threads {
                used.take_in(*t, &ran(*t, *ms));
            }
            let now = Nanos((from + i) * INTERVAL.0);
            busy = w.update(ProgramName::any([comm; 16]), &used, 1, (INTERVAL, now))[0];
        }
        busy
    }

    #[test]
    fn who_waits_on_fast_cores_is_found_out_and_who_does_not_is_not() {
        let mut w = Waits::default();
        let barrier = [(0, 40), (0, 42), (1, 99), (1, 98)];
        assert_eq!(after(&mut w, 1, 2, 0, &barrier), 1.0, "too early");
        let busy = after(&mut w, 1, 3, 2, &barrier);
        assert!((busy - 41.0 / 98.5).abs() < 0.01, "{busy}");
        assert_eq!(after(&mut w, 2, 5, 0, &[(0, 100), (1, 99)]), 1.0);
        // queues before slow cores are no reason to call fast ones busy
        let busy = after(&mut w, 3, 5, 0, &[(0, 33), (1, 80)]);
        assert!((busy - 33.0 / 80.0).abs() < 0.01, "{busy}");
        // the slow ones wait as well, for something else
        assert_eq!(after(&mut w, 4, 5, 0, &[(0, 5), (1, 10)]), 1.0);
        // a serial phase on a slow core, while the others wait for it
        assert_eq!(after(&mut w, 6, 5, 0, &[(0, 0), (1, 99), (1, 20)]), 1.0);
        // nobody to compare with
        assert_eq!(after(&mut w, 5, 5, 0, &[(0, 40), (0, 40)]), 1.0);
    }

    #[test]
    fn the_next_run_is_known_and_a_program_that_changed_is_tried_again() {
        let mut w = Waits::default();
        after(&mut w, 1, 10, 0, &[(0, 40), (1, 100)]);
        assert!(after(&mut w, 1, 1, 20, &[(1, 100), (1, 100)]) < 0.45);
        // nothing is seen for two minutes
        assert!(after(&mut w, 1, 1, 1220, &[(1, 100)]) > 0.9);
        let busy = after(&mut w, 1, 40, 1221, &[(0, 100), (1, 100)]);
        assert!(busy > 0.95, "{busy}");
    }

    #[test]
    fn who_was_moved_within_the_interval_is_no_measure() {
        let mut used = Used::default();
        let mut both = ran(0, 40);
        both[1] = Nanos(40 * MS);
        used.take_in(0, &both);
        assert_eq!(used.part(0, INTERVAL), None);
    }

    proptest! {
        #[test]
        fn anything_goes(
            what in prop::collection::vec((any::<u8>(), 0usize..10, 0u64..1000, 0usize..8, 0u64..1000), 0..600),
        ) {
            let mut w = Waits::default();
            for (comm, t, ms, slowest, now) in what {
                let mut used = Used::default();
                used.take_in(t, &ran(t % MAX_CORE_TYPES, ms));
                used.take_in(slowest, &ran(slowest, 50));
                for interval in [INTERVAL, Nanos::ZERO] {
                    let at = Nanos(now * MS);
                    for b in w.update(ProgramName::any([comm; 16]), &used, slowest, (interval, at)) {
                        prop_assert!((0.0..=1.0).contains(&b), "{b}");
                    }
                }
            }
            prop_assert!(w.programs.len() <= MOST);
        }
    }
}
