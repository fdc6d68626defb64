//! A program that was started, until its end.

use super::{refused, LaunchError};
use amp_metrics::Nanos;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{kill_process, kill_process_group, pidfd_open, pidfd_send_signal, waitpid};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Bytes of a program's standard error that an error shows.
const LAST_WORDS: u64 = 2000;

/// A child, whose process group is killed with it where it has one of its own.
#[derive(Debug)]
struct Owned {
    pid: Pid,
    own_group: bool,
    /// How it ended; its number is no longer ours then.
    status: Option<ExitStatus>,
}

impl Owned {
    /// Reaps it when it has ended, or waits for that, as `options` say.
    fn reap(&mut self, options: WaitOptions) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let ended = rustix::io::retry_on_intr(|| waitpid(Some(self.pid), options))?;
            self.status = ended.map(|(_, s)| ExitStatus::from_raw(s.as_raw()));
        }
        Ok(self.status)
    }

    /// Kills it, and its process group where it has one of its own, and reaps it.
    fn kill(&mut self) {
        if self.own_group {
            // The group: a program may have started others. Nobody else can have taken the number,
            // because the leader is reaped only here or by its `Process`, after which the group may
            // only hold what it left behind.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        if self.status.is_none() {
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = self.reap(WaitOptions::empty());
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.own_group {
            self.kill();
        }
    }
}

/// A program that was started. Dropping one that was started [apart](super::Launch::apart) kills its
/// process group and reaps it.
#[derive(Debug)]
pub struct Process {
    owned: Owned,
    pidfd: OwnedFd,
    errors: Option<File>,
    label: String,
    /// Time of the start.
    pub started: Nanos,
}

impl Process {
    pub(super) fn watch(
        pid: Pid,
        own_group: bool,
        errors: Option<File>,
        label: String,
        started: Nanos,
    ) -> Result<Process, LaunchError> {
        let owned = Owned {
            pid,
            own_group,
            status: None,
        };
        let pidfd = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|e| refused(format!("{label}: cannot watch process {pid}"))(e.into()))?;
        Ok(Process {
            owned,
            pidfd,
            errors,
            label,
            started,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.owned.pid.as_raw_nonzero().get()
    }

    /// Asks it, and its process group where it has one of its own, to end (SIGTERM).
    pub fn end(&self) {
        // one that is gone needs no asking
        let _ = match self.owned.own_group {
            true => kill_process_group(self.owned.pid, Signal::TERM),
            false => pidfd_send_signal(&self.pidfd, Signal::TERM),
        };
    }

    /// Asks it to end as a terminal does (SIGINT).
    pub fn interrupt(&self) {
        // one that is gone needs no asking
        let _ = pidfd_send_signal(&self.pidfd, Signal::INT);
    }

    /// Kills it, and its process group where it has one of its own, and reaps it.
    pub fn kill(&mut self) {
        self.owned.kill();
    }

    /// Whether it has ended well: reaps it when it has ended.
    ///
    /// # Errors
    /// [`LaunchError::Failed`] when its status is another than 0.
    pub fn ended(&mut self) -> Result<bool, LaunchError> {
        let status = self.owned.reap(WaitOptions::NOHANG);
        match status.map_err(|e| refused(self.label.clone())(e))? {
            None => Ok(false),
            Some(s) if s.success() => Ok(true),
            Some(s) => {
                let words = self.last_words(LAST_WORDS);
                Err(LaunchError::Failed {
                    label: self.label.clone(),
                    how: how(s),
                    words: match words.is_empty() {
                        true => words,
                        false => format!(":\n{words}"),
                    },
                })
            }
        }
    }

    /// Waits for its end and gives the exit status as a shell does: 128 + signal when a signal
    /// ended it.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn status(&mut self) -> Result<u8, LaunchError> {
        let status = self.owned.reap(WaitOptions::empty());
        let status = status.map_err(refused("cannot wait for the command"))?;
        let code = status
            .and_then(|s| s.code().or_else(|| s.signal().map(|s| 128 + s)))
            .unwrap_or(1);
        Ok(u8::try_from(code).unwrap_or(1))
    }

    /// The end of what it wrote to standard error (and output, where that is kept), `most` bytes;
    /// empty where nothing is kept.
    pub fn last_words(&mut self, most: u64) -> String {
        let mut text = Vec::new();
        let Some(errors) = &mut self.errors else {
            return String::new();
        };
        let length = errors.metadata().map_or(0, |m| m.len());
        let read = errors
            .seek(SeekFrom::Start(length.saturating_sub(most)))
            .and_then(|_| errors.take(most).read_to_end(&mut text));
        match read {
            Ok(_) => String::from_utf8_lossy(&text).trim_end().to_owned(),
            Err(_) => String::new(),
        }
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn how(s: ExitStatus) -> String {
    match (s.code(), s.signal()) {
        (Some(c), _) => format!("ended with status {c}"),
        (None, Some(n)) => format!("was killed by signal {n}"),
        (None, None) => "failed".into(),
    }
}
