//! Who takes part and who rests, so that a tick looks closely only at threads that did something.

use super::{ended_of, sample_of};
use amp_bpf::{Ended, Glance, Scheduler, Thread};
use amp_metrics::{Reading, Snapshot, ThreadKey, RESTING_AFTER};

/// A table of threads by slot; the first slot is 1.
pub trait Slots {
    /// Slots below this one have been used.
    fn used(&self) -> u32;
    /// A glance at a slot's thread, if there is one.
    fn glance(&self, slot: u32) -> Option<Glance>;
    /// A slot's thread, if there is one.
    fn read(&self, slot: u32) -> Option<Thread>;
}

impl Slots for Scheduler {
    fn used(&self) -> u32 {
        self.slots()
    }
    fn glance(&self, slot: u32) -> Option<Glance> {
        Scheduler::glance(self, slot)
    }
    fn read(&self, slot: u32) -> Option<Thread> {
        self.thread(slot)
    }
}

/// The thread of a slot, as it was at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    glance: Glance,
    /// Looks in a row without a sign of life.
    quiet: u8,
    /// Its place among those that rest.
    rests: Option<usize>,
    /// One of our own.
    ours: bool,
}

/// What is known of the threads of a table.
#[derive(Debug)]
pub struct Roster {
    /// Our own process, which takes no part: our threads are woken on any idle CPU, and are no
    /// competitors for fast cores.
    own: i32,
    /// By slot.
    known: Vec<Option<Known>>,
    /// Who ended after the last look, which still saw them.
    early: Vec<Ended>,
}

impl Roster {
    /// Nobody, for the process `own`.
    pub fn new(own: i32) -> Roster {
        Roster {
            own,
            known: Vec::new(),
            early: Vec::new(),
        }
    }

    /// Brings the threads of `snapshot`, which is the one of the last look, up to date. `read`
    /// adds the readings of a thread that does not rest.
    pub fn look(
        &mut self,
        slots: &impl Slots,
        snapshot: &mut Snapshot,
        mut read: impl FnMut(&Thread, &mut Vec<Reading>),
    ) {
        snapshot.threads.clear();
        snapshot.gone.clear();
        snapshot.readings.clear();
        let used = slots.used();
        self.known.resize(used.max(1) as usize, None);
        for slot in 1..used {
            let Some(glance) = slots.glance(slot) else {
                self.leave(slot, snapshot);
                continue;
            };
            let known = &mut self.known[slot as usize];
            match known
                .as_mut()
                .filter(|k| k.glance.generation == glance.generation)
            {
                Some(k) if k.ours => continue,
                Some(k) if k.glance == glance && !glance.busy && !glance.placed => {
                    if k.rests.is_some() {
                        continue;
                    }
                    k.quiet = k.quiet.saturating_add(1);
                }
                Some(k) => (k.glance, k.quiet) = (glance, 0),
                None => {
                    self.leave(slot, snapshot);
                    self.known[slot as usize] = Some(Known {
                        glance,
                        ..Known::default()
                    });
                }
            }
            // it may end, and another one have the slot, at any time
            let thread = slots.read(slot);
            let Some(thread) = thread.filter(|t| t.generation == glance.generation) else {
                self.leave(slot, snapshot);
                continue;
            };
            let Some(k) = &mut self.known[slot as usize] else {
                continue;
            };
            k.ours = thread.tgid == self.own;
            if k.ours {
                continue;
            }
            if k.quiet >= RESTING_AFTER {
                k.rests = Some(snapshot.resting.len());
                snapshot.resting.push(sample_of(&thread));
                continue;
            }
            if let Some(at) = k.rests.take() {
                self.wake(at, snapshot);
            }
            snapshot.threads.push(sample_of(&thread));
            read(&thread, &mut snapshot.readings);
        }
    }

    /// Adds to `snapshot`, right after the look that made it, who has `ended` by now.
    pub fn bury(&mut self, ended: impl Iterator<Item = Ended>, snapshot: &mut Snapshot) {
        snapshot.ended.clear();
        let known = &self.known;
        let (own, look) = (self.own, |e: &Ended| {
            let known = known.get(e.slot as usize).and_then(Option::as_ref);
            known.is_some_and(|k| k.glance.generation == e.generation)
        });
        let mut all = std::mem::take(&mut self.early);
        all.extend(ended.filter(|e| e.tgid != own));
        for e in all {
            match look(&e) {
                true => self.early.push(e),
                false => snapshot.ended.push(ended_of(&e)),
            }
        }
    }

    /// The thread of `slot`, if one was known, is gone.
    fn leave(&mut self, slot: u32, snapshot: &mut Snapshot) {
        let known = self.known.get_mut(slot as usize).and_then(Option::take);
        let Some(known) = known.filter(|k| !k.ours) else {
            return;
        };
        snapshot.gone.push(ThreadKey {
            slot,
            generation: known.glance.generation,
        });
        if let Some(at) = known.rests {
            self.wake(at, snapshot);
        }
    }

    /// Takes the one at place `at` from those that rest; the last of them moves there.
    fn wake(&mut self, at: usize, snapshot: &mut Snapshot) {
        if at < snapshot.resting.len() {
            snapshot.resting.swap_remove(at);
        }
        let moved = snapshot.resting.get(at).map(|t| t.key.slot as usize);
        let moved = moved.and_then(|slot| self.known.get_mut(slot)?.as_mut());
        if let Some(moved) = moved {
            moved.rests = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_bpf::State;
    use amp_metrics::Nanos;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const OWN: i32 = 7;

    /// A table in which threads come, go and do things.
    #[derive(Default)]
    struct Made(BTreeMap<u32, Thread>);

    impl Made {
        fn begin(&mut self, slot: u32, generation: u32, tgid: i32) {
            let thread = Thread {
                slot,
                generation,
                pid: slot as i32,
                tgid,
                comm: [0; 16],
                arguments: 0,
                own_weight: 100,
                weight: 100,
                group: 1,
                allowed: 3,
                state: State::Sleeping,
                cpu: 0,
                core_type: 0,
                placement: None,
                runtime: [0; 8],
                stolen: 0,
                swaps: 0,
            };
            self.0.insert(slot, thread);
        }
    }

    impl Slots for Made {
        fn used(&self) -> u32 {
            20
        }
        fn glance(&self, slot: u32) -> Option<Glance> {
            let t = self.0.get(&slot)?;
            Some(Glance {
                generation: t.generation,
                accounted: t.runtime.iter().sum(),
                own_weight: t.own_weight,
                allowed: t.allowed,
                core_type: t.core_type,
                placed: t.placement.is_some(),
                busy: t.state != State::Sleeping,
            })
        }
        fn read(&self, slot: u32) -> Option<Thread> {
            self.0.get(&slot).copied()
        }
    }

    fn ended(slot: u32, generation: u32, tgid: i32) -> Ended {
        Ended {
            slot,
            generation,
            pid: slot as i32,
            tgid,
            comm: [0; 16],
            arguments: 0,
            runtime: [5; 8],
        }
    }

    /// Who is still in a snapshot is not buried with it, or he would be taken for a newcomer.
    #[test]
    fn who_ends_after_a_look_is_buried_at_the_next_one() {
        let (mut table, mut roster) = (Made::default(), Roster::new(OWN));
        let mut snapshot = Snapshot::default();
        table.begin(1, 3, 100);
        table.begin(2, 5, 100);
        roster.look(&table, &mut snapshot, |_, _| ());
        // 1 ended after the look; 4 came and went unseen, and one of our own did
        let messages = [ended(1, 3, 100), ended(4, 9, 100), ended(6, 1, OWN)];
        roster.bury(messages.into_iter(), &mut snapshot);
        let buried = |s: &Snapshot| -> Vec<u32> { s.ended.iter().map(|e| e.key.slot).collect() };
        assert_eq!(buried(&snapshot), [4]);
        table.begin(1, 7, 100);
        roster.look(&table, &mut snapshot, |_, _| ());
        roster.bury([ended(2, 3, 100)].into_iter(), &mut snapshot);
        assert_eq!(
            buried(&snapshot),
            [1, 2],
            "2's slot had another owner before"
        );
        assert_eq!(snapshot.ended[0].key.generation, 3);
        assert_eq!(snapshot.ended[0].runtime, [Nanos(5); 8]);
        roster.bury([].into_iter(), &mut snapshot);
        assert_eq!(buried(&snapshot), [0u32; 0]);
    }

    proptest! {
        /// Everybody is there as he is, nobody twice; who does something takes part, who does
        /// nothing for long rests; who ends is told, once.
        #[test]
        fn everybody_is_accounted_for(
            looks in proptest::collection::vec(proptest::collection::vec((1u32..20, 0u8..8), 0..5), 1..120),
        ) {
            let mut table = Made::default();
            let mut roster = Roster::new(OWN);
            let mut snapshot = Snapshot::default();
            let mut quiet: BTreeMap<ThreadKey, u32> = BTreeMap::new();
            let mut generation = 1;
            for events in looks {
                let before: BTreeSet<ThreadKey> = quiet.keys().copied().collect();
                let last = table.0.clone();
                for (slot, what) in events {
                    let Some(t) = table.0.get_mut(&slot) else {
                        generation += 2;
                        table.begin(slot, generation, if what == 0 { OWN } else { 100 });
                        continue;
                    };
                    match what {
                        0 => drop(table.0.remove(&slot)),
                        // ends, and another one begins in its slot
                        1 => {
                            generation += 2;
                            table.begin(slot, generation, 100);
                        }
                        2 => t.state = State::Running,
                        3 => t.state = State::Sleeping,
                        4 => t.placement = Some(1),
                        5 => t.placement = None,
                        6 => t.own_weight += 1,
                        _ => t.runtime[1] += 1,
                    }
                }
                let mut read = Vec::new();
                roster.look(&table, &mut snapshot, |t, _| read.push(t.slot));
                let others = table.0.values().filter(|t| t.tgid != OWN);
                let all: BTreeMap<ThreadKey, amp_metrics::ThreadSample> =
                    others.map(sample_of).map(|s| (s.key, s)).collect();
                let seen: BTreeMap<_, _> = snapshot.everybody().map(|s| (s.key, *s)).collect();
                prop_assert_eq!(seen.len(), snapshot.population());
                prop_assert_eq!(&seen, &all);
                let active: Vec<u32> = snapshot.threads.iter().map(|t| t.key.slot).collect();
                prop_assert_eq!(&read, &active);
                let gone: BTreeSet<_> = snapshot.gone.iter().copied().collect();
                prop_assert_eq!(gone.len(), snapshot.gone.len());
                let ended: BTreeSet<_> = before.into_iter().filter(|k| !all.contains_key(k)).collect();
                prop_assert_eq!(gone, ended);
                quiet.retain(|k, _| all.contains_key(k));
                for (key, s) in &all {
                    let n = quiet.entry(*key).or_insert(0);
                    let stirred = table.0.get(&key.slot) != last.get(&key.slot);
                    let restless = stirred || s.runnable || s.placed.is_some();
                    *n = if restless { 0 } else { *n + 1 };
                    if *n == 0 {
                        prop_assert!(active.contains(&key.slot));
                    }
                    if *n > u32::from(RESTING_AFTER) + 1 {
                        prop_assert!(!active.contains(&key.slot));
                    }
                }
            }
        }
    }
}
