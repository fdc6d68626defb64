//! Other sched_ext schedulers: programs that load themselves into the kernel for as long as they
//! run.
//!
//! ```text
//! Peer::find (PATH) ──start──► state `enabled` ──check, at every interval──► end ──► state `disabled`
//! ```
//!
//! One that cannot be loaded, ends, or is ended by the kernel is a [`PeerFailed`]: a result of the
//! bench and no failure of the bench.

use crate::bench::Interrupted;
use amp_eval::contender::Scx;
use amp_eval::evaluation::SchedulerFacts;
use amp_host::bad_input;
use amp_host::launch::{wait_any, Launch, Process};
use amp_metrics::Nanos;
use amp_sched::{closest, did_you_mean};
use anyhow::{bail, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thiserror::Error;

/// Where the kernel tells about sched_ext.
const KERNEL: &str = "/sys/kernel/sched_ext";
/// Time between two looks at the kernel.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of a scheduler's output that an error shows.
const LAST_WORDS: u64 = 1500;

/// How long things may take, in the machine's own time.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From the start of the program to the state `enabled`. On the board, whose clock is slow, the
    /// kernel verifies some schedulers for two minutes.
    pub load: Duration,
    /// From SIGINT to the end of the program, and from there to the state `disabled`.
    pub end: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            load: Duration::from_secs(300),
            end: Duration::from_secs(10),
        }
    }
}

/// A scheduler failed, not the bench.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct PeerFailed(pub String);

/// An scx scheduler whose program was found.
#[derive(Clone, Debug)]
pub struct Installed {
    scx: Scx,
    program: PathBuf,
    version: Option<String>,
}

/// Programs called `scx_*` in the folders of PATH, without `scx_`, in order of the folders.
fn programs(path: &str) -> Vec<(String, PathBuf)> {
    use std::os::unix::fs::PermissionsExt;
    let mut out = Vec::new();
    for entry in std::env::split_paths(path).filter_map(|d| d.read_dir().ok()) {
        for file in entry.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let Some(name) = name.strip_prefix("scx_") else {
                continue;
            };
            let usable = file.path().metadata().is_ok_and(|m| {
                let executable = m.permissions().mode() & 0o111 != 0;
                m.is_file() && executable
            });
            if usable {
                out.push((name.to_owned(), file.path()));
            }
        }
    }
    out
}

impl Installed {
    /// The program of `scx` in PATH.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when there is none; the text names those with a name near to it.
    pub fn find(scx: &Scx) -> Result<Installed> {
        Installed::find_in(scx, &std::env::var("PATH").unwrap_or_default())
    }

    fn find_in(scx: &Scx, path: &str) -> Result<Installed> {
        let there = programs(path);
        match there.iter().find(|(name, _)| name == scx.name()) {
            Some((_, program)) => Ok(Installed {
                scx: scx.clone(),
                program: program.clone(),
                version: None,
            }),
            None => {
                let names = || there.iter().map(|(name, _)| name.as_str());
                let near: Vec<String> = closest(scx.name(), names())
                    .into_iter()
                    .map(|n| format!("scx:{n}"))
                    .collect();
                let mut all: Vec<&str> = names().collect();
                all.sort_unstable();
                all.dedup();
                let all = match &all[..] {
                    [] => "no program scx_* is in PATH".to_owned(),
                    all => format!("in PATH are: {}", all.join(", ")),
                };
                Err(bad_input(format!(
                    "--policies: `{scx}`: no program `{}` in PATH ({all}){}",
                    scx.program(),
                    did_you_mean(&near)
                )))
            }
        }
    }

    /// Asks the program for its version.
    pub fn ask_version(&mut self) {
        let command = [self.program.display().to_string(), "--version".to_owned()];
        let answer = || -> Result<Option<String>> {
            let launch = Launch::new(&command)?.apart_with_output()?;
            let mut process = launch.start()?;
            let ended = wait_any(std::iter::once(&process), Duration::from_secs(10))?;
            let well = ended && process.ended()?;
            let said = process.last_words(LAST_WORDS);
            let line = said.lines().map(str::trim).find(|l| !l.is_empty());
            Ok(line.filter(|_| well).map(str::to_owned))
        };
        // a scheduler without such an option has no version, and may be a good one
        self.version = answer().ok().flatten();
    }

    /// Whether this is the program of `scx`.
    pub fn is(&self, scx: &Scx) -> bool {
        self.scx == *scx
    }

    /// What one must know of it to repeat a bench.
    pub fn facts(&self, kernel: Option<String>) -> SchedulerFacts {
        SchedulerFacts {
            program: self.scx.program(),
            version: self.version.clone(),
            arguments: self.scx.arguments().to_vec(),
            kernel,
        }
    }
}

/// What the kernel tells about the loaded scheduler.
#[derive(Debug)]
struct Kernel {
    folder: PathBuf,
}

impl Kernel {
    fn word(&self, file: &str) -> String {
        let text = std::fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.trim().to_owned()
    }

    fn state(&self) -> String {
        self.word("state")
    }

    /// The name of the scheduler that is loaded.
    fn loaded(&self) -> Option<String> {
        let name = self.word("root/ops");
        (self.state() == "enabled" && !name.is_empty()).then_some(name)
    }

    fn free(&self) -> bool {
        matches!(self.state().as_str(), "" | "disabled")
    }
}

/// A scheduler at work. It is ended, and the kernel's own scheduler is back, when this is dropped.
#[derive(Debug)]
pub struct Peer {
    process: Process,
    kernel: Kernel,
    patience: Patience,
    ended: bool,
}

impl Peer {
    /// Starts the program of `installed`, which may use `cpus`, and waits until its scheduler is
    /// enabled.
    ///
    /// # Errors
    /// [`PeerFailed`] when it does not come to that, [`Interrupted`] when `cancel` is set meanwhile,
    /// others when another scheduler is loaded or the system refuses something.
    pub fn start(installed: &Installed, cpus: &[u32], cancel: &AtomicBool) -> Result<Peer> {
        let kernel = Path::new(KERNEL);
        Peer::start_with(installed, cpus, cancel, kernel, Patience::default())
    }

    fn start_with(
        installed: &Installed,
        cpus: &[u32],
        cancel: &AtomicBool,
        kernel: &Path,
        patience: Patience,
    ) -> Result<Peer> {
        let kernel = Kernel {
            folder: kernel.to_owned(),
        };
        if !kernel.folder.is_dir() {
            return Err(PeerFailed("this kernel has no sched_ext".to_owned()).into());
        }
        if !kernel.free() {
            bail!(
                "the sched_ext scheduler `{}` is loaded already and only one can be: stop it first",
                kernel.word("root/ops")
            );
        }
        let mut command = vec![installed.program.display().to_string()];
        command.extend_from_slice(installed.scx.arguments());
        let launch = Launch::new(&command)?
            .called(installed.scx.program())
            .env("NO_COLOR", "1")
            .apart_with_output()?;
        let mut peer = Peer {
            process: launch.on_cpus(cpus).start().map_err(|e| {
                let e = anyhow::Error::from(e);
                PeerFailed(format!("it cannot be started: {e:#}"))
            })?,
            kernel,
            patience,
            ended: false,
        };
        let began = amp_host::clock::now();
        loop {
            if cancel.load(Ordering::Relaxed) {
                return Err(Interrupted.into());
            }
            if let Some(why) = peer.gone() {
                return Err(PeerFailed(format!("it was not loaded: {why}")).into());
            }
            if peer.kernel.loaded().is_some() {
                return Ok(peer);
            }
            if amp_host::clock::now().saturating_sub(began) > nanos(patience.load) {
                let words = peer.words();
                return Err(PeerFailed(format!(
                    "it was not loaded after {} s (sched_ext is `{}`){words}",
                    patience.load.as_secs_f64(),
                    peer.kernel.state()
                ))
                .into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether it is still at work.
    ///
    /// # Errors
    /// [`PeerFailed`] when the program has ended, or the kernel has ended its scheduler.
    pub fn check(&mut self) -> Result<()> {
        if let Some(why) = self.gone() {
            return Err(PeerFailed(format!("it ended in mid-run: {why}")).into());
        }
        if self.kernel.loaded().is_none() {
            // it tells why when it has noticed
            let _ = wait_any(std::iter::once(&self.process), Duration::from_secs(2));
            let words = self.words();
            return Err(PeerFailed(format!(
                "the kernel ended it in mid-run (sched_ext is `{}`){words}",
                self.kernel.state()
            ))
            .into());
        }
        Ok(())
    }

    /// Ends it and waits until the kernel's own scheduler is back.
    ///
    /// # Errors
    /// When that does not happen.
    pub fn end(mut self) -> Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        self.process.interrupt();
        // an error is another status than 0, with which a program that is interrupted may well end
        let ended = |p: &mut Process| p.ended().unwrap_or(true);
        if !within(self.patience.end, || ended(&mut self.process)) {
            log::warn!(
                "{} did not end when asked to: killed",
                self.kernel.word("root/ops")
            );
        }
        // also what it started, and what ignored the request
        self.process.kill();
        if !within(self.patience.end, || self.kernel.free()) {
            bail!(
                "the sched_ext scheduler `{}` stays loaded though its program is gone",
                self.kernel.word("root/ops")
            );
        }
        Ok(())
    }

    /// How the program ended, if it has.
    fn gone(&mut self) -> Option<String> {
        match self.process.ended() {
            Ok(false) => None,
            Ok(true) => Some(format!("it ended with status 0{}", self.words())),
            Err(e) => Some(e.to_string()),
        }
    }

    /// What it said last, as the end of a sentence.
    fn words(&mut self) -> String {
        match self.process.last_words(LAST_WORDS) {
            words if words.is_empty() => words,
            words => format!(":\n{words}"),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Err(e) = self.stop() {
            log::warn!("{e:#}");
        }
    }
}

fn nanos(d: Duration) -> Nanos {
    Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// Whether `done` holds before `limit` is over.
fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let began = amp_host::clock::now();
    loop {
        if done() {
            return true;
        }
        if amp_host::clock::now().saturating_sub(began) > nanos(limit) {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests;
