//! A measuring thread that is not held up by what it measures.

use anyhow::{Context, Result};

/// Makes the calling thread real-time (`SCHED_FIFO`, lowest priority), and what it starts ordinary
/// again.
///
/// The bench times completions and ticks the engine from one thread. As an ordinary thread it would
/// wait for a CPU behind the programs it times, for longer under one policy than under another.
///
/// # Errors
/// When the caller lacks `CAP_SYS_NICE`.
pub fn become_real_time() -> Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `param` outlives the call, which only reads it; 0 names the calling thread.
    let r = unsafe { libc::sched_setscheduler(0, policy, &param) };
    if r != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot become a real-time thread");
    }
    Ok(())
}
