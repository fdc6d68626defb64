//! A map from threads to whatever is kept for each of them.

use crate::ids::ThreadKey;
use rustc_hash::FxHashMap;

/// Slots below this have their place in a vector: machines count slots from zero, and what is
/// looked up for every thread at every tick must not cost a hash. Others go into a hash map, so
/// that no key can make the vector long.
const DENSE: u32 = 1 << 16;

/// The thread that has a slot, and what is kept for it.
type Owned<T> = (u32, T);

/// A map from [`ThreadKey`] to `T` in which a slot has one owner: a thread of another generation
/// drives out the one before.
#[derive(Clone, Debug)]
pub struct ThreadMap<T> {
    dense: Vec<Option<Owned<T>>>,
    sparse: FxHashMap<u32, Owned<T>>,
    len: usize,
}

impl<T> Default for ThreadMap<T> {
    fn default() -> ThreadMap<T> {
        ThreadMap {
            dense: Vec::new(),
            sparse: FxHashMap::default(),
            len: 0,
        }
    }
}

impl<T> ThreadMap<T> {
    /// Number of threads.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no thread.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What is kept for `key`.
    #[inline]
    pub fn get(&self, key: ThreadKey) -> Option<&T> {
        let owned = match key.slot < DENSE {
            true => self.dense.get(key.slot as usize)?.as_ref()?,
            false => self.sparse.get(&key.slot)?,
        };
        (owned.0 == key.generation).then_some(&owned.1)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: ThreadKey) -> Option<&mut T> {
        let owned = match key.slot < DENSE {
            true => self.dense.get_mut(key.slot as usize)?.as_mut()?,
            false => self.sparse.get_mut(&key.slot)?,
        };
        (owned.0 == key.generation).then_some(&mut owned.1)
    }

    /// Keeps `value` for `key`; returns whom it drove out of the slot, or what was kept for `key`
    /// before.
    pub fn insert(&mut self, key: ThreadKey, value: T) -> Option<(ThreadKey, T)> {
        let owned = (key.generation, value);
        let before = if key.slot < DENSE {
            let at = key.slot as usize;
            if self.dense.len() <= at {
                self.dense.resize_with(at + 1, || None);
            }
            self.dense[at].replace(owned)
        } else {
            self.sparse.insert(key.slot, owned)
        };
        self.len += usize::from(before.is_none());
        before.map(|(generation, value)| (ThreadKey { generation, ..key }, value))
    }

    /// Drops `key`; returns what was kept for it.
    pub fn remove(&mut self, key: ThreadKey) -> Option<T> {
        self.get(key)?;
        let owned = match key.slot < DENSE {
            true => self.dense.get_mut(key.slot as usize)?.take(),
            false => self.sparse.remove(&key.slot),
        };
        self.len -= 1;
        owned.map(|(_, value)| value)
    }

    /// Drops the threads for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(ThreadKey, &mut T) -> bool) {
        let mut dropped = 0;
        for (slot, owned) in self.dense.iter_mut().enumerate() {
            let Some((generation, value)) = owned else {
                continue;
            };
            let key = ThreadKey {
                slot: slot as u32,
                generation: *generation,
            };
            if !keep(key, value) {
                *owned = None;
                dropped += 1;
            }
        }
        self.sparse.retain(|slot, (generation, value)| {
            let key = ThreadKey {
                slot: *slot,
                generation: *generation,
            };
            let stays = keep(key, value);
            dropped += usize::from(!stays);
            stays
        });
        self.len -= dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The same as a map by slot, on both sides of the bound.
        #[test]
        fn a_slot_has_one_owner(
            steps in proptest::collection::vec((0u32..6, 1u32..4, 0u8..8), 0..60),
        ) {
            let mut map = ThreadMap::default();
            let mut model: BTreeMap<u32, (u32, usize)> = BTreeMap::new();
            for (n, (slot, generation, what)) in steps.into_iter().enumerate() {
                let slot = if slot < 3 { slot } else { u32::MAX - slot };
                let key = ThreadKey { slot, generation };
                match what {
                    0 => {
                        map.retain(|k, _| k.generation != generation);
                        model.retain(|_, (g, _)| *g != generation);
                    }
                    1 => {
                        if let Some(v) = map.get_mut(key) {
                            *v += 1;
                            model.get_mut(&slot).unwrap().1 += 1;
                        }
                    }
                    2 => {
                        let of_model = model.get(&slot).filter(|(g, _)| *g == generation).copied();
                        if of_model.is_some() {
                            model.remove(&slot);
                        }
                        prop_assert_eq!(map.remove(key), of_model.map(|(_, v)| v));
                    }
                    _ => {
                        let before = map.insert(key, n);
                        let was = model.insert(slot, (generation, n));
                        let was = was.map(|(generation, v)| (ThreadKey { slot, generation }, v));
                        prop_assert_eq!(before, was);
                    }
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.is_empty(), model.is_empty());
                for slot in (0..3).chain(u32::MAX - 5..=u32::MAX - 3) {
                    for generation in 1..4 {
                        let of_model = model.get(&slot).filter(|(g, _)| *g == generation);
                        let key = ThreadKey { slot, generation };
                        prop_assert_eq!(map.get(key), of_model.map(|(_, v)| v));
                    }
                }
            }
        }
    }
}
