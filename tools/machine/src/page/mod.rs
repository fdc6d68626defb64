//! The state page: time, per-CPU totals and energy of the virtual board, as the guest may read
//! them.
//!
//! The board's QEMU plugin writes a file of [`PAGE_BYTES`] bytes which QEMU also shows to the guest
//! as BAR 2 of an `ivshmem-plain` PCI device. In the guest, [`Page::open`] finds the device (there
//! may be others of its kind: only the page's BAR begins with [`MAGIC`]) and maps it read-only; the
//! layout is [`Layout`].
//!
//! ```text
//! offset 0      Header       magic, version, CPUs, global virtual time, host time, core types
//! offset 512    CpuRecord 0  sequence lock, core type, state, own time, totals [user, kernel]
//! offset 1024   CpuRecord 1  ...
//! offset 33280  CacheAllocation  ways of each L2, and which of them each CPU may fill
//! ```
//!
//! The guest writes the last one alone, through [`CacheDivider`].
//!
//! # How fresh a record is
//! A CPU publishes when it goes idle, when it wakes, after every quarter of the board's quantum of
//! its own time, and when it executes [`publish_hint`]. So a thread that executes the hint and then
//! reads the record of its own CPU sees its totals to the basic block; the records of other running
//! CPUs lack at most a quarter quantum, or half a millisecond of one that lets time pass
//! ([`pass_hint`]). [`Page::snapshot`] and [`Page::cpu`] execute the hint themselves.
mod divide;
mod energy;
mod layout;
mod read;
#[cfg(test)]
mod tests;

pub use divide::{CacheDivider, L2};
pub use energy::{energy_uj, StaticPower};
pub use layout::*;
pub use read::{pass_hint, publish_hint, CpuTotals, Page, PageError, Snapshot, Split};
