//! Dividing the board's L2 caches, from the guest.

use super::layout::CacheAllocation;
use super::read::{Access, Page, PageError};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

/// An L2 cache, which the cores of a type share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2 {
    /// Index of the core type.
    pub core_type: u32,
    /// Ways, 1 to 64.
    pub ways: u32,
    /// Bytes of a way.
    pub way_bytes: u32,
}

/// Says which ways of its L2 each CPU may fill. What a CPU finds in other ways it still uses, as
/// with Intel's Cache Allocation Technology; a CPU takes a change over within a quarter of the
/// board's quantum. Dropping it gives all ways back to each CPU that it restricted.
#[derive(Debug)]
pub struct CacheDivider {
    page: Page,
    restricted: BTreeSet<u32>,
}

impl CacheDivider {
    /// That of the board this guest runs on, whose sysfs tree is at `sysfs`.
    ///
    /// # Errors
    /// As [`Page::open`]; it needs to write.
    pub fn open_under(sysfs: &Path) -> Result<CacheDivider, PageError> {
        Ok(CacheDivider::of(Page::find(sysfs, Access::Write)?))
    }

    /// Of the page in a file, on the host.
    ///
    /// # Errors
    /// As [`Page::open_file`]; it needs to write.
    pub fn open_file(path: &Path) -> Result<CacheDivider, PageError> {
        Ok(CacheDivider::of(Page::map(path, Access::Write)?))
    }

    fn of(page: Page) -> CacheDivider {
        CacheDivider {
            page,
            restricted: BTreeSet::new(),
        }
    }

    fn allocation(&self) -> &CacheAllocation {
        &self.page.layout().allocation
    }

    /// The L2 of `cpu`; `None` when there is no such CPU, or the board is of a build that cannot
    /// divide its caches.
    pub fn l2(&self, cpu: u32) -> Option<L2> {
        let core_type = self.page.cpu(cpu).ok()?.core_type;
        let record = self.allocation().l2.get(core_type as usize)?;
        let of = L2 {
            core_type,
            ways: record.ways.load(Ordering::Relaxed),
            way_bytes: record.way_bytes.load(Ordering::Relaxed),
        };
        (1..=64).contains(&of.ways).then_some(of)
    }

    /// The CPUs that share an L2.
    pub fn cpus(&self, l2: L2) -> Vec<u32> {
        let all = 0..self.page.nr_cpus();
        all.filter(|c| self.l2(*c) == Some(l2)).collect()
    }

    /// Lets `cpu` fill the ways whose bits are set in `ways` from now on; with none, all of them.
    /// Nothing happens where there is no such CPU.
    pub fn fill(&mut self, cpu: u32, ways: u64) {
        if let Some(word) = self.allocation().fills.get(cpu as usize) {
            word.store(ways, Ordering::Release);
            self.restricted.insert(cpu);
        }
    }
}

impl Drop for CacheDivider {
    fn drop(&mut self) {
        for cpu in std::mem::take(&mut self.restricted) {
            self.fill(cpu, 0);
        }
    }
}
