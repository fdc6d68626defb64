//! SIGINT, SIGTERM and SIGHUP.

use anyhow::{Context, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Calls `then` on SIGINT, SIGTERM and SIGHUP, in a thread of its own.
///
/// # Errors
/// When there is a handler already: a process has one.
pub fn on_signal(then: impl FnMut() + Send + 'static) -> Result<()> {
    ctrlc::set_handler(then).context("cannot handle signals")
}

/// A flag that SIGINT, SIGTERM and SIGHUP set.
///
/// # Errors
/// As [`on_signal`].
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let shared = stop.clone();
    on_signal(move || shared.store(true, Ordering::Relaxed))?;
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getpid, kill_process, Signal};
    use std::time::{Duration, Instant};

    #[test]
    fn a_signal_sets_the_flag() {
        let stop = stop_flag().unwrap();
        assert!(!stop.load(Ordering::Relaxed));
        assert!(on_signal(|| ()).is_err(), "the process has its handler");
        kill_process(getpid(), Signal::HUP).unwrap();
        let begin = Instant::now();
        while !stop.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(stop.load(Ordering::Relaxed));
    }
}
