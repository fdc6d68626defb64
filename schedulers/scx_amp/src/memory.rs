//! `run --memory FILE`: what programs were like, from one run of the scheduler to the next.
//!
//! ```text
//! scheduling thread: Lasting ◄──► SharedMemory ◄── keeper thread ──► FILE (every few minutes, at the end)
//!                       │ ▲
//!                       ▼ │ executables
//!                    look thread (/proc)
//! ```
//!
//! The scheduling thread touches neither the file nor `/proc`. A file that cannot be used is kept
//! aside, and memory begins anew; no file ever keeps the scheduler from scheduling.

mod file;
mod list;
mod look;

pub use list::{table, Pattern, ProgramLine};

use amp_host::bad_input;
use amp_metrics::memory::{self, Memory};
use amp_metrics::providers::{wall_clock, Lasting, Prepared, SharedMemory};
use amp_sched::Topology;
use anyhow::{Context, Result};
use look::Look;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where memory is kept unless the user says otherwise.
pub const PATH: &str = "/var/lib/scx_amp/memory.json";
/// What the user says who wants none.
pub const NONE: &str = "none";

/// Time between two looks whether there is something new to write.
const EVERY: Duration = Duration::from_secs(180);
/// How long the end waits for what was learned last to be written.
const LAST: Duration = Duration::from_secs(5);

/// The file of `--memory`, an absolute path, so that no later change of folder matters; nothing for
/// `none`.
pub fn path(asked: Option<&Path>) -> Option<PathBuf> {
    match asked {
        None => Some(PATH.into()),
        Some(none) if none == Path::new(NONE) => None,
        Some(path) => Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned())),
    }
}

/// A memory at work, and where it is kept.
pub struct Remembering {
    shared: SharedMemory,
    keeper: Option<Keeper>,
    path: PathBuf,
    /// Why nothing is written to the file.
    failed: Arc<Mutex<Option<String>>>,
    /// Executables that we may not look at.
    denied: Arc<AtomicU64>,
}

impl Remembering {
    /// The memory that `--memory` asks for, as far as it is there; none for `none`.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when the folder of a file that the user has named cannot be used. What is
    /// wrong with the file itself, or with the usual folder, is told and no error.
    pub fn begin(asked: Option<&Path>) -> Result<Option<Remembering>> {
        let Some(path) = path(asked) else {
            return Ok(None);
        };
        let folder = match asked {
            Some(_) => file::check_folder(&path)
                .map_err(|e| bad_input(format!("--memory {}: {e}", path.display())))
                .map(Ok)?,
            None => file::make_folder(&path),
        };
        Ok(Some(Remembering::with(path, folder.err())))
    }

    fn with(path: PathBuf, folder: Option<String>) -> Remembering {
        let read = match folder {
            None => read(&path),
            Some(why) => Err(why),
        };
        let (memory, failed) = match read {
            Ok(memory) => (memory, None),
            Err(why) => {
                log::warn!("memory: {why}: nothing is kept beyond this run");
                (Memory::default(), Some(why))
            }
        };
        let shared = SharedMemory::new(memory);
        let kept = failed.is_none();
        let failed = Arc::new(Mutex::new(failed));
        let keeper = kept.then(|| Keeper::start(path.clone(), shared.clone(), failed.clone()));
        let keeper = keeper.transpose().unwrap_or_else(|e| {
            *lock(&failed) = Some(format!("{e:#}"));
            None
        });
        Remembering {
            shared,
            keeper,
            path,
            failed,
            denied: Arc::default(),
        }
    }

    /// The provider with the memory around it. One that measures nothing stays alone: who asks for
    /// declared factors, or for none, does not mean remembered ones.
    pub fn around(&self, prepared: Prepared, topology: &Topology) -> Prepared {
        if prepared.sets.is_empty() {
            return prepared;
        }
        let look = match Look::start(Path::new("/proc"), self.denied.clone()) {
            Ok(look) => look,
            Err(e) => {
                log::warn!("memory: {e:#}: programs are not remembered");
                return prepared;
            }
        };
        let provider = Lasting::new(
            prepared.provider,
            self.shared.clone(),
            Box::new(look),
            &word(topology),
            wall_clock,
        );
        Prepared {
            provider: Box::new(provider),
            ..prepared
        }
    }

    /// The programs, the one that was met last first.
    pub fn list(&self) -> Vec<ProgramLine> {
        list::lines(&self.shared.lock(), wall_clock())
    }

    /// Forgets the programs that fit, or all; says how many those were.
    pub fn forget(&self, pattern: Option<&Pattern>) -> String {
        let gone = self
            .shared
            .lock()
            .forget(|p| pattern.is_none_or(|it| it.fits(p)));
        if let Some(keeper) = &self.keeper {
            keeper.write_soon();
        }
        format!("{} forgotten", programs(gone))
    }

    /// Where it is, and how many programs it knows.
    pub fn what(&self) -> String {
        let known = programs(self.shared.lock().len());
        let denied = match self.denied.load(Ordering::Relaxed) {
            0 => String::new(),
            n => format!("; {n} executables may not be looked at (CAP_SYS_PTRACE)"),
        };
        format!("{}: {known}{denied}", self.path.display())
    }

    /// Why it is not kept.
    pub fn failed(&self) -> Option<String> {
        lock(&self.failed).clone()
    }
}

/// Writes what another machine has learned to the file at `path`, as a whole.
///
/// # Errors
/// When that cannot be done; the file before is there then.
pub fn save(path: &Path, text: &str) -> std::io::Result<()> {
    file::write(path, text)
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn programs(n: usize) -> String {
    match n {
        1 => "1 program".to_owned(),
        n => format!("{n} programs"),
    }
}

/// The core types between which factors are, in a word.
fn word(topology: &Topology) -> String {
    let types = topology.core_types().iter();
    memory::core_types(types.map(|t| (t.name.as_str(), t.capacity)))
}

/// The memory in the file; a new one where there is none, or where it cannot be used.
fn read(path: &Path) -> Result<Memory, String> {
    let why = match file::read(path) {
        Ok(None) => return Ok(Memory::default()),
        Ok(Some(text)) => match memory::read(&text, wall_clock()) {
            Ok(memory) => return Ok(memory),
            Err(e) => e.to_string(),
        },
        Err(why) => why,
    };
    let aside = file::put_aside(path)
        .map_err(|e| format!("{}: {why}, and it cannot be put aside: {e}", path.display()))?;
    log::warn!(
        "memory: {}: {why}: kept as {}, memory begins anew",
        path.display(),
        aside.display()
    );
    Ok(Memory::default())
}

/// The thread that writes the file. Its end waits for the last words.
struct Keeper {
    /// Gone at the end.
    soon: Option<Sender<()>>,
    done: Receiver<()>,
}

impl Keeper {
    fn start(
        path: PathBuf,
        shared: SharedMemory,
        failed: Arc<Mutex<Option<String>>>,
    ) -> Result<Keeper> {
        let (soon, wake) = channel::<()>();
        let (tell, done) = channel::<()>();
        let mut written = shared.lock().changes();
        let mut write = move || {
            let now = shared.lock().clone();
            if now.changes() == written {
                return;
            }
            let done = memory::write(&now)
                .map_err(|e| e.to_string())
                .and_then(|text| file::write(&path, &text).map_err(|e| e.to_string()));
            let said = done
                .err()
                .map(|e| format!("{}: cannot be written: {e}", path.display()));
            let mut failed = lock(&failed);
            if let Some(why) = said.iter().find(|_| said != *failed) {
                log::warn!("memory: {why}");
            }
            *failed = said;
            if failed.is_none() {
                written = now.changes();
            }
        };
        let run = move || {
            let _tell = tell;
            while wake.recv_timeout(EVERY) != Err(RecvTimeoutError::Disconnected) {
                write();
            }
            write();
        };
        std::thread::Builder::new()
            .name("memory".into())
            .spawn(run)
            .context("no thread to write the memory")?;
        Ok(Keeper {
            soon: Some(soon),
            done,
        })
    }

    fn write_soon(&self) {
        // it writes at the end in any case
        let _ = self.soon.as_ref().map(|s| s.send(()));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.soon = None;
        if self.done.recv_timeout(LAST) == Err(RecvTimeoutError::Timeout) {
            log::warn!("memory: what was learned last is not written within {LAST:?}");
        }
    }
}

#[cfg(test)]
mod tests;
