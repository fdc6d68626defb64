//! A metric's value together with what it is worth.

use crate::ids::Nanos;

/// How an [`Estimate`] came about, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quality {
    /// Counted or declared over the whole interval.
    Exact,
    /// Counted by turns with other event sets and interpolated.
    Multiplexed,
    /// Counted over too small a part of the interval to be relied on.
    Partial,
    /// Not renewed for longer than the provider's bound.
    Stale,
}

/// One metric of one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value, in the metric's unit (speedup factor: a ratio).
    pub value: f64,
    /// Standard uncertainty in the same unit; `None` when the source states none (a declared
    /// value).
    pub uncertainty: Option<f64>,
    /// Time since the data behind it was taken.
    pub age: Nanos,
    /// Quality of the value.
    pub quality: Quality,
}
