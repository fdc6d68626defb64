//! The sched_ext mechanism of scx_amp: BPF programs behind a small safe wrapper.
//!
//! Threads wait in one queue per core type (type 0 is the fastest). User space reads a table of
//! threads that BPF keeps in shared memory and writes into it the core type each thread belongs on;
//! one [`Scheduler::commit`] per round makes the placements take effect at once and tells BPF that
//! user space is alive. When no commit comes for [`Config::heartbeat_timeout`], BPF shares the
//! machine fairly by itself until the next one.
//!
//! ```text
//! Config ──► Scheduler::load ──► attach ──► loop { threads → place … → commit } ──► drop: detached
//! ```
//!
//! With [`Config::counters`], hardware counters are read at every context switch and charged to the
//! thread that ran: see [`Scheduler::set_counters`] and [`Scheduler::count`].
//!
//! Nothing here knows policies, models or events: plain numbers in, plain numbers out.

mod arrivals;
mod config;
mod counters;
mod ended;
mod error;
mod kernel;
mod scheduler;
mod shared;
mod stats;
mod threads;

pub use config::{Config, ConfigError, CoreType, MAX_CORE_TYPES};
pub use counters::{CounterError, Counts, CpuEvents, MAX_EVENTS, MAX_SETS};
pub use ended::Ended;
pub use error::LoadError;
pub use kernel::obstacles;
pub use scheduler::{ExitReason, Limit, Scheduler};
pub use stats::{Latency, Stats};
pub use threads::{Glance, State, Thread};
