//! A thread that is not held up by what it measures or schedules.

use anyhow::{Context, Result};
use rustix::process::{getpriority_process, setpriority_process};

/// Makes the calling thread real-time (`SCHED_FIFO`, lowest priority), and what it starts ordinary
/// again.
///
/// The bench times completions and ticks the engine from one thread. As an ordinary thread it would
/// wait for a CPU behind the programs it times, for longer under one policy than under another.
///
/// # Errors
/// When the caller lacks `CAP_SYS_NICE`.
pub fn become_real_time() -> Result<()> {
    set_class(libc::SCHED_FIFO, 1).context("cannot become a real-time thread")
}

/// Gives the calling thread the greatest weight that an ordinary thread can have (nice -20), and what it starts the usual
/// one. A thread that its user has already given another class or nice value keeps that.
///
/// A scheduler in user space is scheduled by itself. Among three hundred busy threads, whoever needs some slices for a
/// decision waits for a turn of all others after each.
///
/// # Errors
/// When the caller lacks `CAP_SYS_NICE`.
pub fn become_heavy() -> Result<()> {
    // SAFETY: a plain call without pointers; 0 names the calling thread.
    let class = unsafe { libc::sched_getscheduler(0) };
    if class != libc::SCHED_OTHER || getpriority_process(None).is_ok_and(|nice| nice != 0) {
        return Ok(());
    }
    set_class(libc::SCHED_OTHER, 0).context("cannot have threads that are started be ordinary")?;
    // Linux takes this for the thread
    setpriority_process(None, -20).context("cannot have a nice value of -20")
}

/// The class of the calling thread; what it starts is ordinary.
fn set_class(class: i32, priority: i32) -> std::io::Result<()> {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    let policy = class | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `param` outlives the call, which only reads it; 0 names the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &param) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heavy_thread_starts_ordinary_ones() {
        let nice = || getpriority_process(None).unwrap();
        let seen = std::thread::spawn(move || {
            let raised = become_heavy();
            let started = std::thread::spawn(nice).join().unwrap();
            (raised, nice(), started)
        });
        match seen.join().unwrap() {
            (Ok(()), own, started) => assert_eq!((own, started), (-20, 0)),
            (Err(e), own, started) => {
                // without the right to
                println!("{e:#}");
                assert_eq!((own, started), (0, 0));
            }
        }
        assert_eq!(nice(), 0);
    }

    #[test]
    fn who_was_made_nice_stays_so() {
        let seen = std::thread::spawn(|| {
            setpriority_process(None, 5).unwrap();
            become_heavy().unwrap();
            getpriority_process(None).unwrap()
        });
        assert_eq!(seen.join().unwrap(), 5);
    }
}
