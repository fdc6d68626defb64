//! The machine's monotonic clock (virtual time on the board), and how long a thread has run.

use amp_metrics::Nanos;
use rustix::time::{clock_gettime, ClockId};

/// Monotonic time now.
pub fn now() -> Nanos {
    read(ClockId::Monotonic)
}

/// CPU time that the calling thread has had.
pub fn cpu_time() -> Nanos {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Nanos {
    let t = clock_gettime(clock);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
