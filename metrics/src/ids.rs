//! Identities and units that observation and decision share.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

/// Most core types a machine may have. Fixed because per-type totals are stored inline, per thread.
pub const MAX_CORE_TYPES: usize = 8;

/// A span or a point of time in nanoseconds (monotonic; virtual time on the board and in the
/// simulator).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Zero.
    pub const ZERO: Nanos = Nanos(0);

    /// `s` seconds, or the longest span there is.
    #[inline]
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s.saturating_mul(1_000_000_000))
    }

    /// `ms` milliseconds, or the longest span there is.
    #[inline]
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// The span in whole milliseconds.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The span in seconds.
    #[inline]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// `self - other`, or zero when `other` is later.
    #[inline]
    pub fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    #[inline]
    fn add(self, o: Nanos) -> Nanos {
        // what users give may be as long as they like
        Nanos(self.0.saturating_add(o.0))
    }
}

impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, o: Nanos) {
        *self = *self + o;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    #[inline]
    fn sub(self, o: Nanos) -> Nanos {
        Nanos(self.0 - o.0)
    }
}

impl Sum for Nanos {
    #[inline]
    fn sum<I: Iterator<Item = Nanos>>(iter: I) -> Nanos {
        iter.fold(Nanos::ZERO, Add::add)
    }
}

/// Index of a core type in the machine's topology: 0 is the fastest, the last is the slowest.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct CoreTypeId(pub u8);

impl CoreTypeId {
    /// The fastest core type of every machine.
    pub const FASTEST: CoreTypeId = CoreTypeId(0);

    /// The id as an index.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for CoreTypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "core type {}", self.0)
    }
}

/// A set of core types, for example those that a thread's affinity admits. Empty by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoreTypeSet(u8);

impl CoreTypeSet {
    /// Every core type.
    pub const ALL: CoreTypeSet = CoreTypeSet(u8::MAX);
    /// No core type.
    pub const EMPTY: CoreTypeSet = CoreTypeSet(0);

    /// The set whose bit `i` stands for core type `i`.
    #[inline]
    pub const fn from_bits(bits: u8) -> CoreTypeSet {
        CoreTypeSet(bits)
    }

    /// This set and `t`.
    #[must_use]
    #[inline]
    pub fn with(self, t: CoreTypeId) -> CoreTypeSet {
        CoreTypeSet(self.0 | 1 << t.0)
    }

    /// The core types that are in both sets.
    #[must_use]
    #[inline]
    pub const fn intersection(self, other: CoreTypeSet) -> CoreTypeSet {
        CoreTypeSet(self.0 & other.0)
    }

    /// Whether `t` is in the set.
    #[inline]
    pub fn contains(self, t: CoreTypeId) -> bool {
        self.0 >> t.0 & 1 == 1
    }
}

/// Names one thread for as long as it lives: its slot in the shared table and the slot's
/// generation, which changes every time the slot is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadKey {
    /// Index in the slot table.
    pub slot: u32,
    /// Use count of that slot.
    pub generation: u32,
}

/// Names an application: the process id (tgid) that its threads share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug 18 of the review: `--timeout 18446744074` was over at once.
    #[test]
    fn spans_do_not_wrap() {
        let longest = Nanos(u64::MAX);
        assert_eq!(Nanos::from_secs(18_446_744_074), longest);
        assert_eq!(Nanos::from_millis(u64::MAX), longest);
        assert_eq!(Nanos(1) + longest, longest);
        assert_eq!([longest, longest].into_iter().sum::<Nanos>(), longest);
    }
}
