//! State per thread that lives as long as the thread is seen.

use crate::ids::ThreadKey;
use crate::sample::{Snapshot, ThreadSample};
use crate::thread_map::ThreadMap;

/// A map from threads to `T` that forgets threads that are gone.
#[derive(Clone, Debug)]
pub(crate) struct Threads<T> {
    map: ThreadMap<(u64, T)>,
    round: u64,
}

impl<T> Default for Threads<T> {
    fn default() -> Threads<T> {
        Threads {
            map: ThreadMap::default(),
            round: 0,
        }
    }
}

impl<T> Threads<T> {
    /// Begins an interval: every thread of the snapshot that does not rest is there (made by `new`
    /// if need be), and nobody who has ended. Allocates only for new threads.
    pub fn keep(&mut self, snapshot: &Snapshot, mut new: impl FnMut(&ThreadSample) -> T) {
        self.round += 1;
        let round = self.round;
        for t in &snapshot.threads {
            match self.map.get_mut(t.key) {
                Some((seen, _)) => *seen = round,
                None => drop(self.map.insert(t.key, (round, new(t)))),
            }
        }
        for key in &snapshot.gone {
            self.map.remove(*key);
        }
        // never where the machine tells who is gone
        if self.map.len() > snapshot.population() {
            self.map.retain(|_, (seen, _)| *seen == round);
        }
    }

    pub fn get(&self, key: ThreadKey) -> Option<&T> {
        self.map.get(key).map(|(_, t)| t)
    }

    pub fn get_mut(&mut self, key: ThreadKey) -> Option<&mut T> {
        self.map.get_mut(key).map(|(_, t)| t)
    }
}
