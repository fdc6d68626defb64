//! The L2 caches of the virtual board.

use super::{lowest, used_by, AllocationError, CacheAllocation, DividedCache};
use amp_machine::page::{CacheDivider, L2};
use std::collections::BTreeSet;
use std::path::Path;

/// The L2 of a core type of the virtual board. Its ways are given to CPUs, as with resctrl's
/// `cpus`, because the kernel in the guest knows nothing of them: the confined threads have to
/// leave a CPU that shares the cache.
#[derive(Debug)]
pub struct BoardAllocation {
    divider: CacheDivider,
    confined: Option<Confined>,
}

#[derive(Debug)]
struct Confined {
    cpus: Vec<u32>,
    others: Vec<u32>,
    ways: u32,
}

impl BoardAllocation {
    /// That of the board this guest runs on.
    ///
    /// # Errors
    /// [`AllocationError::Board`] when this is no guest of the board, or its page cannot be written;
    /// [`AllocationError::None`] when the board is of a build that cannot divide its caches.
    pub fn open(sysfs: &Path) -> Result<BoardAllocation, AllocationError> {
        BoardAllocation::with(CacheDivider::open_under(sysfs)?)
    }

    fn with(divider: CacheDivider) -> Result<BoardAllocation, AllocationError> {
        if divider.l2(0).is_none() {
            return Err(AllocationError::None {
                reason: "this board's plugin is of a build that cannot".to_owned(),
            });
        }
        Ok(BoardAllocation {
            divider,
            confined: None,
        })
    }

    /// Confines whoever runs on `cpus`.
    fn confine_on(&mut self, cpus: &BTreeSet<u32>) -> Result<DividedCache, AllocationError> {
        let none_left = || AllocationError::NoneLeft {
            cpus: cpus.iter().copied().collect(),
        };
        let l2s: Vec<L2> = cpus.iter().filter_map(|c| self.divider.l2(*c)).collect();
        let (first, rest) = l2s.split_first().ok_or_else(none_left)?;
        let (cpus, others): (Vec<u32>, Vec<u32>) = self
            .divider
            .cpus(*first)
            .into_iter()
            .partition(|c| cpus.contains(c));
        if others.is_empty() || rest.iter().any(|l2| l2 != first) {
            return Err(none_left());
        }
        self.confined = Some(Confined {
            cpus,
            others: others.clone(),
            ways: first.ways,
        });
        self.allot(first.ways)?;
        Ok(DividedCache {
            level: 2,
            ways: first.ways,
            way_bytes: first.way_bytes.into(),
            least: 1,
            others_on: vec![others],
        })
    }
}

impl CacheAllocation for BoardAllocation {
    fn confine(&mut self, tids: &[i32]) -> Result<DividedCache, AllocationError> {
        self.confine_on(&used_by(tids))
    }

    fn oppose(&mut self, _: i32) -> Result<(), AllocationError> {
        // its CPU is
        Ok(())
    }

    fn allot(&mut self, ways: u32) -> Result<(), AllocationError> {
        if let Some(c) = &self.confined {
            let theirs = lowest(ways);
            for cpu in &c.cpus {
                self.divider.fill(*cpu, theirs);
            }
            for cpu in &c.others {
                // none left is all of them: who has all has nobody beside it to fill any
                self.divider.fill(*cpu, lowest(c.ways) & !theirs);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_machine::page::{Layout, MAGIC, PAGE_BYTES, VERSION};
    use std::mem::offset_of;
    use std::path::PathBuf;

    /// A page of two CPUs of one type and two of another, whose L2 have 16 and 8 ways.
    fn page(dir: &Path, ways: [u32; 2]) -> PathBuf {
        let mut b = vec![0u8; PAGE_BYTES];
        let mut put = |at: usize, word: u32| b[at..at + 4].copy_from_slice(&word.to_le_bytes());
        put(0, MAGIC as u32);
        put(4, (MAGIC >> 32) as u32);
        put(8, VERSION);
        put(12, 4);
        for (cpu, core_type) in [(2, 1), (3, 1)] {
            put(512 * (1 + cpu) + 8, core_type);
        }
        let allocation = offset_of!(Layout, allocation);
        for (i, ways) in ways.into_iter().enumerate() {
            put(allocation + 8 * i, ways);
            put(allocation + 8 * i + 4, 128 << 10);
        }
        let path = dir.join("page");
        std::fs::write(&path, b).unwrap();
        path
    }

    fn fills(path: &Path) -> Vec<u64> {
        let b = std::fs::read(path).unwrap();
        let at = offset_of!(Layout, allocation) + 64;
        let words = b[at..at + 32].chunks(8);
        words
            .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn others_on_the_same_cache_have_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = page(dir.path(), [16, 8]);
        let open = || BoardAllocation::with(CacheDivider::open_file(&path).unwrap()).unwrap();
        let mut a = open();
        let cache = a.confine_on(&[2].into()).unwrap();
        assert_eq!(
            (cache.level, cache.ways, cache.way_bytes),
            (2, 8, 128 << 10)
        );
        assert_eq!(cache.others_on, [[3]]);
        assert_eq!(fills(&path), [0, 0, 0xff, 0]);
        a.allot(3).unwrap();
        assert_eq!(fills(&path), [0, 0, 0b111, 0b1111_1000]);
        drop(a);
        assert_eq!(fills(&path), [0; 4]);
        // all of a cache, both caches, none
        for cpus in [&[0, 1][..], &[0, 2], &[9]] {
            let e = open()
                .confine_on(&cpus.iter().copied().collect())
                .unwrap_err();
            assert!(e.to_string().contains("taskset"), "{e}");
        }
        let old = page(dir.path(), [0, 0]);
        let e = BoardAllocation::with(CacheDivider::open_file(&old).unwrap()).unwrap_err();
        assert!(e.to_string().contains("build"), "{e}");
    }
}
