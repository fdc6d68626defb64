//! Where a kernel's data is.

/// Times the size of a cache that go through it until hardly a line is left of what was there, were
/// it replaced by lot (e⁻⁶: one of 400).
pub(super) const GONE: usize = 6;

/// Where a kernel's data is when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// In the L1 data cache.
    L1,
    /// In L2 and not in L1.
    L2,
    /// In L3 and not in L2.
    L3,
    /// In no cache.
    Memory,
}

impl Level {
    /// All levels, the fastest first.
    pub const ALL: [Level; 4] = [Level::L1, Level::L2, Level::L3, Level::Memory];

    /// Its name in texts and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Level::L1 => "L1",
            Level::L2 => "L2",
            Level::L3 => "L3",
            Level::Memory => "memory",
        }
    }
}

/// Sizes of the caches that a core uses, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// L1 data cache.
    pub l1: usize,
    /// L2, or what comes after L1.
    pub l2: usize,
    /// L3, where there is one.
    pub l3: Option<usize>,
    /// The last level.
    pub last: usize,
}

impl Caches {
    /// Largest footprint that is ever used, whatever the size of the last cache.
    pub(super) const MOST: usize = 256 << 20;

    /// Bytes that all arrays of a kernel have together; `None` for L3 where there is none, or
    /// where it is not eight times the size of L2: data that fits half of it would then not be
    /// four times what L2 holds.
    pub fn footprint(&self, level: Level) -> Option<usize> {
        Some(match level {
            Level::L1 => self.l1 / 2,
            Level::L2 => (self.l2 / 4).clamp(4 * self.l1, (self.l2 / 2).max(4 * self.l1)),
            Level::L3 => {
                let l3 = self.l3.filter(|l3| *l3 / 2 >= 4 * self.l2)?;
                (l3 / 4).max(4 * self.l2).min(Caches::MOST)
            }
            Level::Memory => (8 * self.last.max(self.l2)).min(Caches::MOST),
        })
    }

    /// The levels at which data can be put.
    pub fn levels(&self) -> impl Iterator<Item = Level> + '_ {
        let levels = Level::ALL.into_iter();
        levels.filter(|l| self.footprint(*l).is_some())
    }

    /// Whether nothing is left in a cache of `size` bytes of data that fits no cache.
    pub(super) fn gone_from(&self, size: usize) -> bool {
        let there = self.footprint(Level::Memory);
        there.is_some_and(|there| there >= GONE.saturating_mul(size))
    }
}
