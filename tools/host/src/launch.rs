//! Programs that a command starts: how they are started, and how they end.
//!
//! A program is started directly, never through a shell. [`Launch`] says how; [`Launch::start`]
//! lets the program run at once, [`Launch::hold`] stops it before its first instruction, so that
//! counters can be opened on it:
//!
//! ```text
//! Launch ──start──────────────────► Process ──ended, status──► exit status
//!    └─────hold──► Held ──release──────┘
//! ```

mod held;
mod options;
mod process;
mod spawn;
#[cfg(test)]
mod tests;

pub use held::Held;
pub use options::Launch;
pub use process::Process;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::AsFd;
use std::io;
use std::time::Duration;
use thiserror::Error;

/// How long a signal's handler may take to say what is to be done.
const HANDLER: Duration = Duration::from_millis(10);

/// Why a program did not run, or not to its end.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// There is no executable to start.
    #[error("an empty command")]
    Empty,
    /// The executable cannot be run: the program's own fault, or its folder's.
    #[error("cannot run `{program}`")]
    Program {
        /// The executable as it was named.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The program ended with another status than 0.
    #[error("{label} {how}{words}")]
    Failed {
        /// Which program.
        label: String,
        /// Its status, or the signal that ended it.
        how: String,
        /// The end of what it wrote to standard error, where that is kept.
        words: String,
    },
    /// The system refused something.
    #[error("{what}")]
    System {
        /// The step that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

fn refused(what: impl Into<String>) -> impl FnOnce(io::Error) -> LaunchError {
    let what = what.into();
    move |source| LaunchError::System { what, source }
}

/// Waits until one of these processes (or pidfds) has ended, or `timeout` has passed; whether one
/// has. A signal ends the wait early, when its handler has had time to run.
///
/// # Errors
/// When the kernel refuses to wait.
pub fn wait_any<'a, F: AsFd + 'a>(
    watched: impl Iterator<Item = &'a F>,
    timeout: Duration,
) -> Result<bool, LaunchError> {
    let mut fds: Vec<PollFd<'_>> = watched.map(|f| PollFd::new(f, PollFlags::IN)).collect();
    let time = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    match poll(&mut fds, Some(&time)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => {
            std::thread::sleep(HANDLER.min(timeout));
            Ok(false)
        }
        Err(e) => Err(refused("cannot wait for a process")(e.into())),
    }
}
