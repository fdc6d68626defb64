//! What a policy remembers of each thread.

use amp_metrics::ThreadKey;
use std::collections::HashMap;

/// Slots up to this one are kept in a plain table. No slot table in use comes near it.
const DENSE: usize = 1 << 20;

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
/// stays cheap. A state lives until its slot is given to another thread: the table never grows
/// beyond the slot table.
#[derive(Debug)]
pub struct PerThread<S> {
    dense: Vec<Option<Entry<S>>>,
    /// Slots beyond the plain table.
    sparse: HashMap<u32, Entry<S>>,
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

    /// The state of `key`, made by `fresh` when there is none; notes that the thread is there in
    /// this round.
    pub fn enter(&mut self, key: ThreadKey, fresh: impl FnOnce() -> S) -> (Presence, &mut S) {
        let round = self.round;
        let slot = key.slot as usize;
        let make = |state: S| Entry {
            generation: key.generation,
            seen: 0,
            state,
        };
        let entry = if slot < DENSE {
            if slot >= self.dense.len() {
                self.dense.resize_with(slot + 1, || None);
            }
            let e = &mut self.dense[slot];
            if e.as_ref().is_some_and(|e| e.generation != key.generation) {
                *e = None;
            }
            e.get_or_insert_with(|| make(fresh()))
        } else {
            use std::collections::hash_map::Entry as Cell;
            match self.sparse.entry(key.slot) {
                Cell::Occupied(mut o) => {
                    if o.get().generation != key.generation {
                        o.insert(make(fresh()));
                    }
                    o.into_mut()
                }
                Cell::Vacant(v) => v.insert(make(fresh())),
            }
        };
        let presence = match entry.seen {
            0 => Presence::New,
            s if s + 1 < round => Presence::Back,
            _ => Presence::Here,
        };
        entry.seen = round;
        (presence, &mut entry.state)
    }

    /// The state of `key`, if it was seen before.
    pub fn get_mut(&mut self, key: ThreadKey) -> Option<&mut S> {
        let entry = match self.dense.get_mut(key.slot as usize) {
            Some(e) => e.as_mut(),
            None => self.sparse.get_mut(&key.slot),
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
            assert_eq!(t.enter(key(slot, 1), || 7), (Presence::New, &mut 7));
            t.begin();
            *t.enter(key(slot, 1), || 0).1 += 1;
            assert_eq!(t.enter(key(slot, 1), || 0), (Presence::Here, &mut 8));
            t.begin();
            t.begin();
            assert_eq!(t.enter(key(slot, 1), || 0), (Presence::Back, &mut 8));
            assert_eq!(t.get_mut(key(slot, 1)), Some(&mut 8));
            assert_eq!(t.get_mut(key(slot, 2)), None);
            assert_eq!(t.enter(key(slot, 2), || 5), (Presence::New, &mut 5));
            assert_eq!(t.get_mut(key(slot, 1)), None);
            assert_eq!(t.get_mut(key(slot - 1, 1)), None);
        }
    }
}
