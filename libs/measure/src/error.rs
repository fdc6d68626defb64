//! Why there are no counts.

use amp_metrics::event::EventError;
use amp_metrics::group::GroupError;
use amp_metrics::pmu::PmuError;
use thiserror::Error;

/// Why there are no counts. The text says what to do.
#[derive(Debug, Error)]
pub enum Error {
    /// A list of events is empty, or an argument is not what it must be.
    #[error("{0}")]
    Input(String),
    /// Nothing on this machine counts what cores do.
    #[error("this machine has no PMU that counts what cores do (a virtual machine without one, or a kernel without a driver for it); software events such as `task-clock` can be counted")]
    NoPmu,
    /// There is no such event; with the closest names.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The machine's PMUs cannot be listed.
    #[error(transparent)]
    Pmus(#[from] PmuError),
    /// The kernel refuses, or has taken the counters away.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// Nothing measures the energy of this machine, or no longer; with what was looked for.
    #[error("nothing measures the energy of this machine: {0}")]
    Energy(String),
}

impl Error {
    /// The error as a number of `errno.h`: `EINVAL` bad input, `ENOENT` no such event, `ENODEV` no
    /// PMU or no sensor, `EACCES` no permission, `ENOSPC` the events do not fit the counters,
    /// `EMFILE` too many open files, `EBUSY` the counters were taken by another user, `ENOTSUP` the
    /// PMU does not count the event, else `EIO`.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Input(_) => libc::EINVAL,
            Error::NoPmu | Error::Energy(_) => libc::ENODEV,
            Error::Event(_) => libc::ENOENT,
            Error::Pmus(_) => libc::EIO,
            Error::Group(g) => match g {
                GroupError::Denied { .. } => libc::EACCES,
                GroupError::Unsupported { .. } | GroupError::NoInterrupt { .. } => libc::ENOTSUP,
                GroupError::Refused { .. } => libc::ENOSPC,
                GroupError::Files { .. } => libc::EMFILE,
                GroupError::Taken { .. } => libc::EBUSY,
                GroupError::Gone { .. } => libc::ESRCH,
                GroupError::Buffer { .. } => libc::ENOMEM,
                GroupError::Io { .. } => libc::EIO,
            },
        }
    }
}
