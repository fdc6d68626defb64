//! What programs cost each other that run side by side.

use crate::ids::CoreTypeId;

/// A program, as far as a provider tells programs apart. The numbers are the provider's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(pub u32);

/// A program on a core type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat {
    /// The program.
    pub program: ProgramId,
    /// Where it runs.
    pub on: CoreTypeId,
}

/// What a thread of one program loses while a thread of another one, or another thread of its own,
/// runs elsewhere all the time: they share a cache or the way to memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Who is slowed down.
    pub of: Seat,
    /// Who slows it down.
    pub beside: Seat,
    /// Natural logarithm of the ratio of its instruction rates without and with the other; > 0.
    /// Costs of several neighbours add up.
    pub ln: f64,
}
