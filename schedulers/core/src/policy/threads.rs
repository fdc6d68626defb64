//! What a policy remembers of each thread.

use amp_metrics::ThreadKey;
use std::collections::{HashMap, VecDeque};

/// Slots up to this one are kept in a plain table. No slot table in use comes near it.
const DENSE: usize = 1 << 20;

/// States that are kept after their thread's slot was given to another.
const LEFT: usize = 64;

/// Whether a thread was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Seen for the first time.
    New,
    /// Seen before, but not in the previous round.
    Back,
    /// Seen in the previous round.
    Here,
}

/// One state per thread, found by slot without hashing, so that a decision on ten thousand threads
/// stays cheap. A state lives until its slot is given to another thread, and a little longer: the
/// table hardly grows beyond the slot table.
#[derive(Debug)]
pub struct PerThread<S> {
    dense: Vec<Option<Entry<S>>>,
    /// Slots beyond the plain table.
    sparse: HashMap<u32, Option<Entry<S>>>,
    /// States of threads whose slot was given to another, the oldest first.
    left: VecDeque<(u32, Entry<S>)>,
    round: u64,
}

#[derive(Debug)]
struct Entry<S> {
    generation: u32,
    seen: u64,
    state: S,
}

impl<S> Default for PerThread<S> {
    fn default() -> Self {
        PerThread {
            dense: Vec::new(),
            sparse: HashMap::new(),
            left: VecDeque::new(),
            round: 0,
        }
    }
}

impl<S> PerThread<S> {
    /// Begins a round.
    pub fn begin(&mut self) {
        self.round += 1;
    }

    /// Whether this is the first round.
    pub fn is_first_round(&self) -> bool {
        self.round <= 1
    }

    /// The state of `key`; when there is none, that of the thread it `succeeds`, which has ended;
    /// or one made by `fresh`. Notes that the thread is there in this round.
    pub fn enter(
        &mut self,
        key: ThreadKey,
        succeeds: Option<ThreadKey>,
        fresh: impl FnOnce() -> S,
    ) -> (Presence, &mut S) {
        let round = self.round;
        let inherited = self.inherit(key, succeeds);
        let entry = self.cell(key.slot).get_or_insert_with(|| {
            let (seen, state) = inherited.map_or_else(|| (0, fresh()), |e| (e.seen, e.state));
            Entry {
                generation: key.generation,
                seen,
                state,
            }
        });
        let presence = match entry.seen {
            0 => Presence::New,
            s if s + 1 < round => Presence::Back,
            _ => Presence::Here,
        };
        entry.seen = round;
        (presence, &mut entry.state)
    }

    /// Gives `key` the state of the thread it `succeeds`, which has ended, and leaves it open when the
    /// thread was there: for one that takes no part now and may do so later.
    pub fn pass_on(&mut self, key: ThreadKey, succeeds: Option<ThreadKey>) {
        if let Some(e) = succeeds.and_then(|_| self.inherit(key, succeeds)) {
            let generation = key.generation;
            *self.cell(key.slot) = Some(Entry { generation, ..e });
        }
    }

    /// Clears the place of `key` of another's state; what `key` inherits, if it has no state yet.
    fn inherit(&mut self, key: ThreadKey, succeeds: Option<ThreadKey>) -> Option<Entry<S>> {
        if self.get_mut(key).is_some() {
            return None;
        }
        // most often its slot was its predecessor's
        if let Some(entry) = self.cell(key.slot).take() {
            self.leave(key.slot, entry);
        }
        self.take(succeeds?)
    }

    /// Where the state of the thread in `slot` is.
    fn cell(&mut self, slot: u32) -> &mut Option<Entry<S>> {
        let place = slot as usize;
        if place >= DENSE {
            return self.sparse.entry(slot).or_default();
        }
        if place >= self.dense.len() {
            self.dense.resize_with(place + 1, || None);
        }
        &mut self.dense[place]
    }

    /// Keeps the state of a thread that has ended, for its successor may come after whoever took
    /// its slot.
    fn leave(&mut self, slot: u32, entry: Entry<S>) {
        if self.left.len() >= LEFT {
            self.left.pop_front();
        }
        self.left.push_back((slot, entry));
    }

    /// Takes the state of a thread that has ended.
    fn take(&mut self, key: ThreadKey) -> Option<Entry<S>> {
        if self.get_mut(key).is_some() {
            return self.cell(key.slot).take();
        }
        let is_it =
            |(slot, e): &(u32, Entry<S>)| *slot == key.slot && e.generation == key.generation;
        let place = self.left.iter().position(is_it)?;
        self.left.remove(place).map(|(_, entry)| entry)
    }

    /// The state of `key`, if it was seen before.
    pub fn get_mut(&mut self, key: ThreadKey) -> Option<&mut S> {
        let entry = match self.dense.get_mut(key.slot as usize) {
            Some(e) => e.as_mut(),
            None => self.sparse.get_mut(&key.slot).and_then(Option::as_mut),
        };
        entry
            .filter(|e| e.generation == key.generation)
            .map(|e| &mut e.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: u32, generation: u32) -> ThreadKey {
        ThreadKey { slot, generation }
    }

    #[test]
    fn states_survive_a_rest_but_not_their_thread() {
        for slot in [3, u32::MAX] {
            let mut t = PerThread::default();
            t.begin();
            assert_eq!(t.enter(key(slot, 1), None, || 7), (Presence::New, &mut 7));
            t.begin();
            *t.enter(key(slot, 1), None, || 0).1 += 1;
            assert_eq!(t.enter(key(slot, 1), None, || 0), (Presence::Here, &mut 8));
            t.begin();
            t.begin();
            assert_eq!(t.enter(key(slot, 1), None, || 0), (Presence::Back, &mut 8));
            assert_eq!(t.get_mut(key(slot, 1)), Some(&mut 8));
            assert_eq!(t.get_mut(key(slot, 2)), None);
            assert_eq!(t.enter(key(slot, 2), None, || 5), (Presence::New, &mut 5));
            assert_eq!(t.get_mut(key(slot, 1)), None);
            assert_eq!(t.get_mut(key(slot - 1, 1)), None);
        }
    }

    #[test]
    fn a_program_that_is_run_again_goes_on_where_it_was() {
        for slot in [3, u32::MAX - 3] {
            let mut t = PerThread::default();
            t.begin();
            for n in 0..3 {
                t.enter(key(slot + n, 1), None, || 10 + n);
            }
            t.begin();
            // in each other's slots, and one in a slot of its own
            let came = [(1, 0), (0, 1), (3, 2)];
            for (n, old) in came {
                let now = key(slot + n, if n < 3 { 2 } else { 1 });
                let before = key(slot + old, 1);
                let entered = t.enter(now, Some(before), || 99);
                assert_eq!(entered, (Presence::Here, &mut (10 + old)));
                assert_eq!(t.get_mut(before), None);
                // what was given once is not there a second time
                let again = key(slot - 1, n + 5);
                assert_eq!(
                    t.enter(again, Some(before), || 99),
                    (Presence::New, &mut 99)
                );
            }
        }
    }

    #[test]
    fn few_states_are_kept_beyond_their_slot() {
        let mut t = PerThread::default();
        for generation in 0..1000 {
            t.begin();
            t.enter(key(1, generation), None, || generation);
        }
        assert_eq!(t.left.len(), LEFT);
        let known = t.enter(key(2, 0), Some(key(1, 950)), || 0);
        assert_eq!(known, (Presence::Back, &mut 950));
        let forgotten = t.enter(key(3, 0), Some(key(1, 10)), || 0);
        assert_eq!(forgotten, (Presence::New, &mut 0));
    }
}
