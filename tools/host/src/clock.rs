//! The machine's monotonic clock; virtual time on the board.

use amp_metrics::Nanos;
use rustix::time::{clock_gettime, ClockId};

/// Monotonic time now.
pub fn now() -> Nanos {
    let t = clock_gettime(ClockId::Monotonic);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
