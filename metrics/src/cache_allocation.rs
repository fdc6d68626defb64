//! Giving a program part of a cache, to see how it does with less: the kernel's resctrl (Intel's
//! and AMD's cache allocation, Arm's MPAM), or the virtual board's L2.
//!
//! Who is confined may *fill* some ways of the cache; what it finds in the others it still uses,
//! there as here. So a program that is to have less keeps what it has until somebody else fills
//! those ways: that is what [`CacheAllocation::oppose`] is for.

mod board;
mod resctrl;

pub use board::BoardAllocation;
pub use resctrl::ResctrlAllocation;

use crate::resctrl_fs::SysResctrl;
use crate::virtual_counters::Roots;
use amp_machine::page::PageError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a cache cannot be divided.
#[derive(Debug, Error)]
pub enum AllocationError {
    /// This machine divides no cache.
    #[error("no cache can be divided here: {reason}")]
    None {
        /// What was looked for.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}{status}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
        /// What the kernel says of it, with brackets around it; or nothing.
        status: String,
    },
    /// A file does not hold what it must.
    #[error("{path}: `{text}` is not {want}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// Content of the file.
        text: String,
        /// What the text should be.
        want: &'static str,
    },
    /// Somebody has given the program a part of the cache already.
    #[error("thread {tid} is in the resctrl group `{group}` already: only what is in the default group can be confined, for it goes back there")]
    InGroup {
        /// The thread.
        tid: i32,
        /// Its group.
        group: String,
    },
    /// The board confines CPUs, and the program may use all of those that share the cache, or more.
    #[error("the board gives ways to CPUs, not to programs: let it use some CPUs of one core type and leave one of them to others (`taskset`); now it may use {cpus:?}")]
    NoneLeft {
        /// CPUs that the program may use.
        cpus: Vec<u32>,
    },
    /// The board's page cannot be used.
    #[error(transparent)]
    Board(#[from] PageError),
}

/// A cache of which a program can be given a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DividedCache {
    /// 2 or 3.
    pub level: u32,
    /// Ways of all of it.
    pub ways: u32,
    /// Bytes of a way.
    pub way_bytes: u64,
    /// Fewest ways that somebody can have.
    pub least: u32,
    /// For each of the caches of that level which the confined threads use: CPUs on which others
    /// can be told to fill it, those first on which none of the confined runs.
    pub others_on: Vec<Vec<u32>>,
}

impl DividedCache {
    /// The numbers of ways that can be given while others have the rest, and all of them.
    pub fn sizes(&self) -> Vec<u32> {
        let parts = self.least..=self.ways.saturating_sub(self.least);
        let parts = parts.filter(|n| (1..self.ways).contains(n));
        parts.chain([self.ways]).collect()
    }
}

/// Gives threads a part of a cache. Dropping it takes every limit away.
pub trait CacheAllocation: Send {
    /// Confines these threads, and what they start from then on, and says to what; at first they
    /// have all of it.
    ///
    /// # Errors
    /// When they cannot be confined.
    fn confine(&mut self, tids: &[i32]) -> Result<DividedCache, AllocationError>;

    /// Takes in a thread of ours that is to fill the ways which the confined ones may not. It runs
    /// on one of the CPUs of [`DividedCache::others_on`].
    ///
    /// # Errors
    /// When it cannot be taken in.
    fn oppose(&mut self, tid: i32) -> Result<(), AllocationError>;

    /// Lets the confined threads fill so many ways, one of [`DividedCache::sizes`], and the others
    /// the rest.
    ///
    /// # Errors
    /// When the system refuses.
    fn allot(&mut self, ways: u32) -> Result<(), AllocationError>;
}

/// What divides a cache on this machine.
///
/// # Errors
/// [`AllocationError::None`], saying what was looked for.
pub fn detect(roots: &Roots) -> Result<Box<dyn CacheAllocation>, AllocationError> {
    match BoardAllocation::open(&roots.sysfs) {
        Err(AllocationError::Board(PageError::NoBoard { .. })) => {}
        board => return Ok(Box::new(board?)),
    }
    let fs = Box::new(SysResctrl::new(&roots.resctrl));
    let proc = Path::new("/proc");
    Ok(Box::new(ResctrlAllocation::open(fs, &roots.sysfs, proc)?))
}

/// Bits of the `n` lowest ways.
fn lowest(n: u32) -> u64 {
    match n {
        0 => 0,
        n => u64::MAX >> 64_u32.saturating_sub(n),
    }
}

/// CPUs that any of these threads may use; ones that have ended use none.
fn used_by(tids: &[i32]) -> BTreeSet<u32> {
    let mut out = BTreeSet::new();
    for tid in tids
        .iter()
        .filter(|t| **t > 0)
        .filter_map(|t| rustix::process::Pid::from_raw(*t))
    {
        if let Ok(set) = rustix::thread::sched_getaffinity(Some(tid)) {
            let cpus = 0..rustix::thread::CpuSet::MAX_CPU;
            out.extend(cpus.filter(|c| set.is_set(*c)).map(|c| c as u32));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_leave_others_what_they_must_have() {
        let cache = |ways, least| DividedCache {
            level: 3,
            ways,
            way_bytes: 1 << 20,
            least,
            others_on: Vec::new(),
        };
        assert_eq!(cache(4, 1).sizes(), [1, 2, 3, 4]);
        assert_eq!(cache(8, 2).sizes(), [2, 3, 4, 5, 6, 8]);
        assert_eq!(cache(1, 1).sizes(), [1]);
        assert_eq!(cache(2, 0).sizes(), [1, 2]);
        assert_eq!([0, 1, 64, 65].map(lowest), [0, 1, u64::MAX, u64::MAX]);
    }

    #[test]
    fn our_cpus_are_known() {
        let us = used_by(&[std::process::id() as i32]);
        assert!(!us.is_empty());
        assert!(used_by(&[i32::MAX, -1, 0]).is_empty());
    }
}
