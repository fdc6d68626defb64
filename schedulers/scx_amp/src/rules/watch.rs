//! The thread that looks whether the file of rules has changed, and reads it again.

use super::file::RuleFile;
use amp_machine::BadFile;
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime};

/// Time between two looks.
pub const LOOK: Duration = Duration::from_millis(500);

/// What of a file changes when somebody writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    modified: SystemTime,
    length: u64,
}

/// The stamp of the file at `path`, where there is one.
pub fn stamp(path: &Path) -> Option<Stamp> {
    let meta = std::fs::metadata(path).ok()?;
    Some(Stamp {
        modified: meta.modified().ok()?,
        length: meta.len(),
    })
}

type Read = Result<RuleFile, BadFile>;

/// A file that is looked after until this is dropped.
#[derive(Debug)]
pub struct Watch {
    changed: Receiver<Read>,
    /// The thread ends when this does.
    _open: Sender<()>,
}

impl Watch {
    /// Looks after the file at `path`, whose stamp was `read` when it was read last.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn begin(path: &Path, mut read: Option<Stamp>, every: Duration) -> Result<Watch> {
        let path = path.to_owned();
        let (open, over) = channel::<()>();
        let (tell, changed) = channel();
        let look = move || {
            while over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let now = stamp(&path);
                if now == read {
                    continue;
                }
                read = now;
                if tell.send(RuleFile::load(&path)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("rules".into())
            .spawn(look)
            .context("no thread to look after the rules")?;
        Ok(Watch {
            changed,
            _open: open,
        })
    }

    /// What the file has been read as since the last time, if it has changed.
    pub fn changed(&self) -> Option<Read> {
        self.changed.try_iter().last()
    }
}
