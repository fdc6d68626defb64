//! Programs that take each other's cache on the slow cores, and a policy that sends whoever gains most to the fast ones.

use super::tests::{key, SF};
use super::*;
use crate::ids::Nanos;
use crate::providers::testing::{readings, snapshot};

/// What another thread on a fast core gains, which has a seat unless two others gain more.
const ANOTHER: f64 = 2.4;

/// Two hungry threads: alone on the slow cores each is as fast there as 1, and 1.6 times that on a fast core; together there they have
/// 0.43 each. The model, which sees the misses, says 1.2 then and knows that it cannot know.
#[derive(Debug, Default)]
struct Misses {
    together: bool,
}

impl Provider for Misses {
    fn name(&self) -> &str {
        "misses"
    }

    fn event_sets(&mut self, _: &Pmus) -> Result<EventSets, EventError> {
        Ok(EventSets::default())
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        let slow = |r: &&crate::sample::Reading| r.core_type == CoreTypeId(1);
        self.together = snapshot.readings.iter().filter(slow).count() > 1;
    }

    fn heard_on(&self, _: ThreadKey) -> Option<CoreTypeId> {
        Some(CoreTypeId(1))
    }

    fn estimate(&self, _: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let (value, relative) = if self.together {
            (1.2, 0.6)
        } else {
            (1.6, 0.05)
        };
        (metric == SF).then_some(Estimate {
            value,
            uncertainty: Some(value * relative),
            age: Nanos::ZERO,
            quality: Quality::Exact,
        })
    }
}

/// The machine, and the two in their slots.
struct Machine {
    p: Checked,
    now: u64,
    slots: [u32; 2],
    names: [u8; 2],
}

impl Machine {
    fn new(names: [u8; 2]) -> Machine {
        let pmus = Pmus::generic(&[vec![0, 1], vec![2, 3]], 4);
        Machine {
            p: Checked::new(Box::new(Misses::default()), &pmus),
            now: 0,
            slots: [1, 2],
            names,
        }
    }

    /// 100 ms, the two on these core types.
    fn goes(&mut self, on: [u8; 2]) {
        let rate = |t: u8| match (t, on) {
            (0, _) => 1.6,
            (_, [1, 1]) => 0.43,
            _ => 1.0,
        };
        self.at(on, on.map(rate));
    }

    /// 100 ms, the two on these core types at these rates.
    fn at(&mut self, on: [u8; 2], rates: [f64; 2]) {
        let counted = [0, 1].map(|i| {
            let counted = [(rates[i] * 1e8) as u64, 100_000_000];
            readings(self.slots[i], on[i], 0, 100, &counted)
        });
        let mut s = snapshot(self.now, &self.slots, counted.to_vec());
        for (t, name) in s.threads.iter_mut().zip(self.names) {
            t.comm[0] = name;
        }
        self.p.observe(&s);
        self.now += 100;
    }

    /// Where the policy sends them.
    fn policy(&self) -> [u8; 2] {
        self.slots.map(|slot| {
            let sf = self.p.estimate(key(slot), SF).unwrap().value;
            u8::from(sf < ANOTHER)
        })
    }

    /// So many intervals under the policy, and how often each number of them had a fast core.
    fn follows(&mut self, mut on: [u8; 2], intervals: usize) -> ([u8; 2], [usize; 3]) {
        let mut counts = [0; 3];
        for _ in 0..intervals {
            self.goes(on);
            on = self.policy();
            counts[on.iter().filter(|t| **t == 0).count()] += 1;
        }
        (on, counts)
    }
}

#[test]
fn of_two_that_slow_each_other_down_one_leaves() {
    for names in [*b"aa", *b"ab"] {
        let mut m = Machine::new(names);
        for _ in 0..5 {
            m.goes([1, 1]);
        }
        assert_eq!(m.policy(), [1, 1]);
        // both are tried; of two programs each is
        for on in [[0, 1], [1, 1], [1, 0], [1, 1]] {
            m.goes(on);
        }
        let (on, counts) = m.follows([1, 1], 20);
        assert_eq!(counts[2], 0, "{names:?}: {counts:?}");
        assert!(counts[1] >= 18, "{names:?}: {counts:?}");
        // the one that left runs again, in its seat, and then the other one, of which it has to be seen that it gains less
        for i in [0, 1] {
            m.slots[i] += 10;
            let (then, counts) = m.follows(on, 20);
            assert_eq!(then, on, "{names:?}: {i}");
            assert!(counts[2] <= 1, "{names:?}: {i}: {counts:?}");
        }
    }
}

/// Two that gain 3.7 by themselves, which nobody takes anything from.
#[test]
fn of_two_that_gain_much_one_comes_a_moment_after_the_other() {
    let mut m = Machine::new(*b"aa");
    let pairs = |m: &mut Machine, on: [u8; 2]| {
        m.p.inner = Box::new(Misses { together: true });
        m.at(on, on.map(|t| if t == 0 { 3.7 } else { 1.0 }));
    };
    for on in [[1, 1]; 5].into_iter().chain([[0, 1], [1, 1]]) {
        pairs(&mut m, on);
    }
    let mut on = m.policy();
    assert_eq!(on.iter().filter(|t| **t == 0).count(), 1);
    for i in 1..10 {
        pairs(&mut m, on);
        on = m.policy();
        let both = on == [0, 0];
        assert_eq!(both, i >= 4, "{i}");
    }
}

/// Both load first, one of them on a fast core. The one that is tried is not compared with that.
#[test]
fn what_a_program_does_as_it_begins_is_forgotten_before_a_trial() {
    for (on, rates) in [
        ([0, 1], [3.0, 2.1]),
        ([1, 0], [3.0, 2.1]),
        ([1, 0], [0.3, 0.4]),
    ] {
        let mut m = Machine::new(*b"aa");
        m.at(on, rates);
        for on in [[1, 1]; 5].into_iter().chain([[0, 1], [1, 1]]) {
            m.goes(on);
        }
        let says = m.p.estimate(key(1), SF).unwrap().value;
        assert!((says - 3.7).abs() < 0.4, "{on:?} {rates:?}: {says}");
    }
}

/// Who is believed, interval by interval.
struct Queue {
    turns: Turns,
    now: u64,
}

impl Queue {
    fn new() -> Queue {
        Queue {
            turns: Turns::default(),
            now: 0,
        }
    }

    /// 100 ms, in which these ran: slot, CPU time since it came to a fast core, what it gains beyond the model's word, its CPU time.
    fn goes(&mut self, all: &[(u32, Option<f64>, Option<f64>, f64)]) {
        let slots: Vec<u32> = all.iter().map(|a| a.0).collect();
        self.turns.keep(&snapshot(self.now, &slots, Vec::new()));
        for (slot, fast, more, units) in all {
            self.turns.claim(key(*slot), *fast, *more, *units);
        }
        self.turns.next();
        self.now += 100;
    }

    fn believes(&self, slot: u32) -> bool {
        self.turns.is_believed(key(slot))
    }
}

/// A model that is right of a thread on a fast core and wrong on a slow one: turns of 100 ms do not end its turn.
#[test]
fn a_turn_outlasts_a_stay_where_the_model_is_right() {
    let mut q = Queue::new();
    q.goes(&[(1, None, Some(1.1), 5.0)]);
    assert!(q.believes(1));
    for i in 0..10 {
        q.goes(&[(1, Some(1.0), None, 6.0)]);
        assert!(q.believes(1), "{i}");
        q.goes(&[(1, None, Some(1.1), 6.0)]);
        assert!(q.believes(1), "{i}");
    }
    for _ in 0..21 {
        q.goes(&[(1, Some(9.0), None, 9.0)]);
    }
    assert!(!q.believes(1), "the model is right by now");
}

/// Beside one that has its seat on a fast core, a process of a tenth of a second is believed now and then; beside one that gains less than
/// the model says, every one is.
#[test]
fn short_processes_are_believed_beside_a_long_one() {
    for (more, least) in [(1.0, 3), (-1.0, 40)] {
        let mut q = Queue::new();
        let mut believed = 0;
        for i in 0..40 {
            let long = (1, Some(50.0), Some(more), 50.0);
            q.goes(&[long, (2 + i, None, Some(1.2), 1.0)]);
            // it has not been counted yet
            let new = 2 + i + 1;
            believed += usize::from(q.believes(if more < 0.0 { new } else { 2 + i }));
        }
        assert!(believed >= least, "{more}: {believed}");
    }
}
