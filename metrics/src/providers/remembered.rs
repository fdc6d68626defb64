//! What programs of the same name were like: for threads of which another provider knows nothing
//! yet. Those of the same arguments go first.
//!
//! Counters need time: five samples on each core type, or the first rounds of a model. A compiler,
//! a shell pipeline's parts, the programs of a benchmark are over by then, and the next of the same
//! name begins anew. Of each command name this remembers the factors that threads were last found
//! to have, and how much they differed.

use super::threads::Threads;
use crate::estimate::{Estimate, Quality};
use crate::event::{EventError, EventSets};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::pmu::Pmus;
use crate::provider::{Health, MetricId, Provider};
use crate::sample::{ProgramName, Snapshot};
use rustc_hash::FxHashMap;

/// Names that are remembered; the one that was met longest ago makes room.
const MOST_NAMES: usize = 1024;
/// Least weight of a thread's factor in the running average of its name, for each interval in which
/// the thread ran; the n-th weighs 1/n until then. Small, so that the average is over the phases of
/// a program.
const NEW: f64 = 0.05;

/// A factor over threads of one name.
#[derive(Clone, Copy, Debug)]
struct Known {
    mean: f64,
    /// Running mean of the squared departures from it.
    variance: f64,
    /// Values in it.
    n: u32,
    at: Nanos,
}

impl Known {
    fn take_in(known: &mut Option<Known>, value: f64, now: Nanos) {
        let k = known.get_or_insert(Known {
            mean: value,
            variance: 0.0,
            n: 0,
            at: now,
        });
        k.n = k.n.saturating_add(1);
        let weight = (1.0 / f64::from(k.n)).max(NEW);
        let d = value - k.mean;
        k.mean += weight * d;
        k.variance = (1.0 - weight) * (k.variance + weight * d * d);
        k.at = now;
    }
}

/// What is known of the threads of one name.
#[derive(Clone, Copy, Debug, Default)]
struct Program {
    /// Speedup and efficiency factor per core type.
    factors: [[Option<Known>; MAX_CORE_TYPES]; 2],
    met: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    name: ProgramName,
    runtime: [Nanos; MAX_CORE_TYPES],
}

/// The memory behind `inner`, whose own answers go first unless they rest on too little
/// ([`Quality::Partial`]).
///
/// What is remembered comes with the quality [`Quality::Stale`], the age of the last contribution,
/// and the scatter of what was found as its uncertainty. A name is not a program: `python3` may be
/// anything, and its uncertainty says so.
pub struct Remembered {
    name: String,
    inner: Box<dyn Provider>,
    programs: FxHashMap<ProgramName, Program>,
    threads: Threads<Thread>,
    core_types: usize,
    now: Nanos,
}

impl std::fmt::Debug for Remembered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remembered")
            .field("name", &self.name)
            .field("programs", &self.programs.len())
            .finish_non_exhaustive()
    }
}

/// The metric that factor `which` of a program is on core type `c`.
fn metric(which: usize, c: usize) -> MetricId {
    let c = CoreTypeId(c as u8);
    match which {
        0 => MetricId::SpeedupFactor(c),
        _ => MetricId::EfficiencyFactor(c),
    }
}

impl Remembered {
    /// A memory behind `inner`.
    pub fn new(inner: Box<dyn Provider>) -> Remembered {
        Remembered {
            name: format!("remembered({})", inner.name()),
            inner,
            programs: FxHashMap::default(),
            threads: Threads::default(),
            core_types: 0,
            now: Nanos::ZERO,
        }
    }

    /// The same under another name.
    #[must_use]
    pub fn called(mut self, name: &str) -> Remembered {
        name.clone_into(&mut self.name);
        self
    }

    /// Takes in what the inner provider says of a thread that ran.
    fn learn(&mut self, thread: ThreadKey, name: ProgramName) {
        let names = [Some(name), (!name.is_any()).then(|| name.kin())];
        for which in 0..2 {
            for c in 0..self.core_types.saturating_sub(1) {
                let said = self.inner.estimate(thread, metric(which, c));
                let Some(e) = said.filter(|e| e.quality < Quality::Partial && e.value.is_finite())
                else {
                    continue;
                };
                for name in names.iter().flatten() {
                    let program = self.programs.entry(*name).or_default();
                    program.met = self.now;
                    Known::take_in(&mut program.factors[which][c], e.value, self.now);
                }
            }
        }
    }

    fn make_room(&mut self) {
        while self.programs.len() > MOST_NAMES {
            let oldest = self.programs.iter().min_by_key(|(name, p)| (p.met, **name));
            let Some(name) = oldest.map(|(name, _)| *name) else {
                return;
            };
            self.programs.remove(&name);
        }
    }

    fn recall(&self, thread: ThreadKey, of: MetricId) -> Option<Estimate> {
        let (which, c) = match of {
            MetricId::SpeedupFactor(c) => (0, c),
            MetricId::EfficiencyFactor(c) => (1, c),
            MetricId::Ipc(_) => return None,
        };
        let name = self.threads.get(thread)?.name;
        let of = |name| {
            self.programs.get(&name)?.factors[which]
                .get(c.index())?
                .as_ref()
        };
        let known = of(name).or_else(|| of(name.kin()))?;
        Some(Estimate {
            value: known.mean,
            uncertainty: Some(known.variance.sqrt()),
            age: self.now.saturating_sub(known.at),
            quality: Quality::Stale,
        })
    }
}

impl Provider for Remembered {
    fn name(&self) -> &str {
        &self.name
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(&*self.inner)
    }

    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        self.core_types = pmus.core_types().count().min(MAX_CORE_TYPES);
        self.inner.event_sets(pmus)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.now = snapshot.now;
        self.inner.observe(snapshot);
        self.threads.keep(snapshot, |_| Thread::default());
        for t in &snapshot.threads {
            let Some(known) = self.threads.get_mut(t.key) else {
                continue;
            };
            // an exec makes it another program
            known.name = t.program();
            if known.runtime != t.runtime {
                known.runtime = t.runtime;
                self.learn(t.key, t.program());
            }
        }
        self.make_room();
    }

    fn expect(&mut self, thread: ThreadKey, metric: MetricId, remembered: Option<Estimate>) {
        self.inner.expect(thread, metric, remembered);
    }

    fn expect_shown(&mut self, thread: ThreadKey, of: CoreTypeId, remembered: Option<Estimate>) {
        self.inner.expect_shown(thread, of, remembered);
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let said = self.inner.estimate(thread, metric);
        match said {
            Some(e) if e.quality != Quality::Partial => said,
            _ if self.inner.health() != Health::Working => said,
            _ => self.recall(thread, metric).or(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AppId;
    use crate::providers::testing::{key, snapshot};
    use crate::{Declarations, Declared, Speedups};

    const SF: MetricId = MetricId::SpeedupFactor(CoreTypeId(0));

    fn comm(name: &str) -> [u8; 16] {
        let mut c = [0; 16];
        c[..name.len()].copy_from_slice(name.as_bytes());
        c
    }

    /// Declarations stand in for what was measured: application `n` is slot `n`.
    struct Lab {
        declared: Declarations,
        provider: Remembered,
        ms: u64,
    }

    impl Lab {
        fn new() -> Lab {
            let declared = Declarations::default();
            let mut provider = Remembered::new(Box::new(Declared::new(declared.clone())));
            provider.core_types = 2;
            Lab {
                declared,
                provider,
                ms: 0,
            }
        }

        fn knows(&self, slot: u32, sf: f64) {
            let sf = Speedups::fastest(sf).unwrap();
            self.declared.declare(AppId(u64::from(slot)), sf);
        }

        /// An interval in which threads of these names ran.
        fn run(&mut self, threads: &[(u32, &str)]) {
            self.ms += 100;
            let slots: Vec<u32> = threads.iter().map(|(slot, _)| *slot).collect();
            let mut s = snapshot(self.ms, &slots, Vec::new());
            for (t, (_, name)) in s.threads.iter_mut().zip(threads) {
                t.comm = comm(name);
                t.runtime[0] = Nanos::from_millis(self.ms);
            }
            self.provider.observe(&s);
        }

        fn says(&self, slot: u32) -> Option<(f64, Quality)> {
            let e = self.provider.estimate(key(slot), SF)?;
            Some((e.value, e.quality))
        }
    }

    #[test]
    fn the_next_of_the_same_name_is_expected_to_be_like_the_last() {
        let mut lab = Lab::new();
        lab.knows(1, 3.0);
        lab.run(&[(1, "cc1"), (2, "ld")]);
        assert_eq!(lab.says(1), Some((3.0, Quality::Exact)));
        assert_eq!(lab.says(2), None, "nothing is known of that name");
        lab.run(&[(3, "cc1"), (2, "ld")]);
        assert_eq!(lab.says(3), Some((3.0, Quality::Stale)));
        assert_eq!(lab.says(2), None);
        // measured by now: the memory has nothing to say any more
        lab.knows(3, 2.0);
        lab.run(&[(3, "cc1")]);
        assert_eq!(lab.says(3), Some((2.0, Quality::Exact)));
        // a name between the two, with the scatter as uncertainty
        lab.run(&[(4, "cc1")]);
        let e = lab.provider.estimate(key(4), SF).unwrap();
        assert!(e.value < 3.0 && e.value > 2.0, "{e:?}");
        assert!(e.uncertainty.unwrap() > 0.1, "{e:?}");
        assert_eq!(e.age, Nanos::from_millis(100));
    }

    #[test]
    fn the_first_factors_weigh_alike_and_a_long_past_fades() {
        let mut lab = Lab::new();
        for (slot, sf) in [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)] {
            lab.knows(slot, sf);
            lab.run(&[(slot, "sh")]);
        }
        lab.run(&[(5, "sh")]);
        let (value, _) = lab.says(5).unwrap();
        assert!((value - 2.5).abs() < 1e-9, "{value}");
        lab.knows(6, 1.0);
        for _ in 0..200 {
            lab.run(&[(6, "sh")]);
        }
        lab.run(&[(7, "sh")]);
        let (value, _) = lab.says(7).unwrap();
        assert!((value - 1.0).abs() < 0.01, "{value}");
    }

    #[test]
    fn an_exec_makes_it_another_program() {
        let mut lab = Lab::new();
        lab.knows(1, 3.0);
        lab.run(&[(1, "cc1")]);
        lab.run(&[(2, "cc1")]);
        assert!(lab.says(2).is_some());
        lab.run(&[(2, "sh")]);
        assert_eq!(lab.says(2), None);
    }

    #[test]
    fn who_does_not_run_does_not_count() {
        let mut lab = Lab::new();
        lab.knows(1, 3.0);
        lab.run(&[(1, "a")]);
        let before = lab.provider.programs[&ProgramName::any(comm("a"))].met;
        lab.ms += 100;
        let mut s = snapshot(lab.ms, &[1], Vec::new());
        s.threads[0].comm = comm("a");
        s.threads[0].runtime[0] = Nanos::from_millis(100);
        lab.provider.observe(&s);
        assert_eq!(
            lab.provider.programs[&ProgramName::any(comm("a"))].met,
            before
        );
    }

    #[test]
    fn memory_is_bounded_and_forgets_the_oldest() {
        let mut lab = Lab::new();
        for n in 0..MOST_NAMES as u32 + 10 {
            lab.knows(n, 2.0);
            lab.run(&[(n, &format!("p{n}"))]);
        }
        assert_eq!(lab.provider.programs.len(), MOST_NAMES);
        assert!(!lab
            .provider
            .programs
            .contains_key(&ProgramName::any(comm("p9"))));
        assert!(lab
            .provider
            .programs
            .contains_key(&ProgramName::any(comm("p10"))));
    }
}
