//! Counters for programs that measure themselves.
//!
//! ```no_run
//! use amp_measure::Region;
//!
//! # fn work() {}
//! let mut region = Region::open("instructions:u,cycles:u")?;
//! region.start()?;
//! work();
//! region.stop()?;
//! let counts = region.read()?;
//! for c in &counts.events {
//!     println!("{} on {}: {}", c.event, c.pmu, c.count);
//! }
//! println!("instructions: {:?}", counts.total("instructions:u"));
//! # Ok::<(), amp_measure::Error>(())
//! ```
//!
//! A region counts what the calling thread does between `start` and `stop`, as often as it likes,
//! and adds it up. On a machine with several core types each event is counted by the PMU of each of
//! them, and the counts are given per PMU. The events of a region are counted at the same time
//! or not at all, and nothing is extrapolated, unless sets of them may take turns:
//! [`Options::turns`]. What `start` and `stop` do themselves is counted too: [`Region::overhead`]
//! says how much that is.
//!
//! Where the kernel lets programs read counters by themselves, a start and a stop need no system
//! call: [`Options::direct`].
//!
//! Energy is the machine's, whoever runs on it: [`Options::energy`].
//!
//! From C: `include/amp_measure.h`, with `libamp_measure.a` or `libamp_measure.so`; see [`c`].

pub mod c;
mod direct;
mod error;
mod page;
mod region;
mod turns;

pub use error::Error;
pub use region::{Counts, EventCount, Options, Region};
