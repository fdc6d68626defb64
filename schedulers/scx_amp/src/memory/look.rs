//! The thread that finds out which executables threads run.

use amp_metrics::memory::{Comm, Executable, LONGEST_PATH};
use amp_metrics::providers::{Finding, Found, Identify};
use amp_metrics::ThreadSample;
use anyhow::{Context, Result};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel, Receiver, SyncSender};
use std::sync::Arc;

/// Threads that may wait to be looked at; others are asked for again at the next interval.
const MOST_WAITING: usize = 256;
/// What the kernel appends to the path of an executable that was replaced meanwhile.
const DELETED: &str = " (deleted)";

struct Asked {
    tid: i32,
    found: Found,
}

/// Looks into `/proc` on a thread of its own, which ends with this.
pub struct Look {
    asks: SyncSender<Asked>,
    answers: Receiver<Found>,
}

impl Look {
    /// Looks below `proc`, and counts in `denied` where it may not.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(proc: &Path, denied: Arc<AtomicU64>) -> Result<Look> {
        let (asks, asked) = sync_channel::<Asked>(MOST_WAITING);
        let (tell, answers) = channel();
        let proc = proc.to_owned();
        let run = move || {
            for Asked { tid, found } in asked {
                let what = look(&proc, tid, &found.comm, &denied);
                if tell.send(Found { what, ..found }).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("memory-look".into())
            .spawn(run)
            .context("no thread to look at executables")?;
        Ok(Look { asks, answers })
    }
}

impl Identify for Look {
    fn ask(&mut self, thread: &ThreadSample) -> bool {
        let found = Found {
            thread: thread.key,
            comm: thread.comm,
            app: thread.app,
            what: Finding::None,
        };
        let tid = thread.tid;
        self.asks.try_send(Asked { tid, found }).is_ok()
    }

    fn found(&mut self) -> Option<Found> {
        self.answers.try_recv().ok()
    }
}

/// The executable of thread `tid`, if it is still called `comm`. The name is read last: it changes
/// when the thread begins another program, mostly.
fn look(proc: &Path, tid: i32, comm: &Comm, denied: &AtomicU64) -> Finding {
    let dir: PathBuf = proc.join(tid.to_string());
    let exe = dir.join("exe");
    let both = std::fs::read_link(&exe).and_then(|path| Ok((path, std::fs::metadata(&exe)?)));
    let (path, about) = match both {
        Ok(both) => both,
        Err(e) => {
            if e.kind() == ErrorKind::PermissionDenied {
                denied.fetch_add(1, Ordering::Relaxed);
            }
            return Finding::None;
        }
    };
    let mut name = Vec::new();
    let read =
        std::fs::File::open(dir.join("comm")).and_then(|f| f.take(64).read_to_end(&mut name));
    if read.is_err() {
        return Finding::None;
    }
    let length = comm.iter().position(|b| *b == 0).unwrap_or(comm.len());
    if name.strip_suffix(b"\n").unwrap_or(&name) != &comm[..length] {
        return Finding::Changed;
    }
    let Some(path) = path.to_str().filter(|p| p.len() <= LONGEST_PATH) else {
        return Finding::None;
    };
    Finding::Executable(Executable {
        path: path.strip_suffix(DELETED).unwrap_or(path).to_owned(),
        size: about.size(),
        mtime_ns: about
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(about.mtime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comm(name: &str) -> Comm {
        let mut c = [0; 16];
        c[..name.len()].copy_from_slice(name.as_bytes());
        c
    }

    #[test]
    fn a_thread_is_found_by_number_and_name() {
        let proc = tempfile::tempdir().unwrap();
        let bin = proc.path().join("game");
        std::fs::write(&bin, "12345").unwrap();
        let dir = proc.path().join("7");
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink(&bin, dir.join("exe")).unwrap();
        std::fs::write(dir.join("comm"), "game\n").unwrap();
        let denied = AtomicU64::new(0);
        let found = |tid, name| look(proc.path(), tid, &comm(name), &denied);
        let Finding::Executable(e) = found(7, "game") else {
            panic!("not found");
        };
        assert_eq!((e.path.as_str(), e.size), (bin.to_str().unwrap(), 5));
        assert!(e.mtime_ns > 0);
        // it has begun another program since it was seen
        assert_eq!(found(7, "sh"), Finding::Changed);
        assert_eq!(found(8, "game"), Finding::None);
        // a kernel thread
        std::fs::remove_file(dir.join("exe")).unwrap();
        assert_eq!(found(7, "game"), Finding::None);
        assert_eq!(denied.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn this_very_program_is_found() {
        let own = std::process::id();
        let read = std::fs::read_to_string(format!("/proc/{own}/comm")).unwrap();
        let denied = AtomicU64::new(0);
        let tid = i32::try_from(own).unwrap();
        let found = look(Path::new("/proc"), tid, &comm(read.trim_end()), &denied);
        let Finding::Executable(e) = found else {
            panic!("{found:?}");
        };
        let exe = std::env::current_exe().unwrap();
        assert_eq!(Path::new(&e.path), exe);
        assert_eq!(e.size, exe.metadata().unwrap().len());
    }
}
