//! State per thread that lives as long as the thread is seen.

use crate::ids::ThreadKey;
use crate::sample::Snapshot;
use rustc_hash::FxHashMap;

/// A map from threads to `T` that forgets threads that are gone.
#[derive(Clone, Debug)]
pub(crate) struct Threads<T> {
    map: FxHashMap<ThreadKey, (u64, T)>,
    round: u64,
}

impl<T> Default for Threads<T> {
    fn default() -> Threads<T> {
        Threads {
            map: FxHashMap::default(),
            round: 0,
        }
    }
}

impl<T> Threads<T> {
    /// Begins an interval: every thread of the snapshot is there (made by `new` if need be), no
    /// other. Allocates only for new threads.
    pub fn keep(&mut self, snapshot: &Snapshot, mut new: impl FnMut() -> T) {
        self.round += 1;
        let round = self.round;
        for t in &snapshot.threads {
            self.map.entry(t.key).or_insert_with(|| (0, new())).0 = round;
        }
        if self.map.len() > snapshot.threads.len() {
            self.map.retain(|_, (seen, _)| *seen == round);
        }
    }

    pub fn get(&self, key: ThreadKey) -> Option<&T> {
        self.map.get(&key).map(|(_, t)| t)
    }

    pub fn get_mut(&mut self, key: ThreadKey) -> Option<&mut T> {
        self.map.get_mut(&key).map(|(_, t)| t)
    }
}
