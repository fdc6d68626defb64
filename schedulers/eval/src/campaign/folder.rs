//! The folder of a campaign: what is done, what failed, and who is at what.
//!
//! ```text
//! DIR/campaign.json          the campaign that it is of
//! DIR/jobs/JOB.json          the result of a job, as `bench --json` writes it
//! DIR/jobs/JOB.failed.json   why there is none
//! DIR/locks/JOB              locked (flock) by the process that is at it
//! ```
//!
//! Every file is written aside and renamed, so one is there as a whole or not at all. A lock ends
//! with its process, however that ends; the files in `locks` mean nothing by themselves.

use super::file::Campaign;
use super::job::Job;
use crate::evaluation::BenchReport;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, Permissions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use thiserror::Error;

/// Name of the file that says which campaign a folder is of.
const MANIFEST: &str = "campaign.json";
/// How the names of files begin that are being written.
const ASIDE: &str = ".scx_amp-";
/// What a result has in its `environment` beside what `bench` writes there.
const STAMP: &str = "campaign";
/// Times that a lock is tried: somebody who only looks has it for a moment.
const TRIES: u32 = 5;

/// What made a result: another command, or another kernel, would have made another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeBy {
    /// Version and commit of the command.
    pub command: String,
    /// Release of the kernel, where that is known before anything runs (host).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

impl MadeBy {
    fn words(&self) -> String {
        match &self.kernel {
            Some(kernel) => format!("{} on kernel {kernel}", self.command),
            None => self.command.clone(),
        }
    }
}

/// Why a job has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The job's digest.
    pub job: String,
    /// What failed.
    pub made_by: MadeBy,
    /// Exit status that a bench of its own would have had: 2 for bad input, 1 otherwise.
    pub status: u8,
    /// The reason.
    pub message: String,
}

/// How far a job is.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Nobody has run it. `stale` says why what is there does not count.
    ToDo {
        /// What is wrong with the result that is there.
        stale: Option<String>,
    },
    /// A process is at it.
    Running,
    /// It failed when it was last tried.
    Failed {
        /// Why.
        failure: Failure,
        /// When.
        at: SystemTime,
    },
    /// Its result.
    Done(Box<BenchReport>),
}

/// A folder cannot be used for a campaign. The text says what would be right.
#[derive(Debug, Error)]
#[error("{}: {message}", path.display())]
pub struct FolderError {
    /// The folder, or a file in it.
    pub path: PathBuf,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl FolderError {
    fn new(path: &Path, message: impl Into<String>) -> FolderError {
        FolderError {
            path: path.into(),
            message: message.into(),
        }
    }
}

/// The folder of a campaign.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    /// Version of the layout.
    scx_amp_campaign: u32,
    /// The campaign file's text.
    file: String,
}

#[derive(Serialize, Deserialize)]
struct Stamp {
    job: String,
    made_by: MadeBy,
}

impl Folder {
    /// The folder at `path` to run jobs of `campaign` in. Made where there is none.
    ///
    /// # Errors
    /// When it is of another campaign, of nothing of ours, or cannot be written.
    pub fn begin(path: &Path, campaign: &Campaign) -> Result<Folder, FolderError> {
        let folder = Folder { path: path.into() };
        let cannot = |e: std::io::Error| {
            FolderError::new(
                path,
                format!("cannot be written ({e}): name another folder with --dir"),
            )
        };
        if path.exists() && !path.is_dir() {
            return Err(FolderError::new(
                path,
                "not a folder: --dir wants one, or a new name",
            ));
        }
        std::fs::create_dir_all(path).map_err(cannot)?;
        let manifest = Manifest {
            scx_amp_campaign: 1,
            file: campaign.text.clone(),
        };
        let file = path.join(MANIFEST);
        if !file.exists() {
            // somebody may have begun it between the two looks
            let others = folder.refuse_others().map_err(cannot)?;
            others.or_else(|e| match file.exists() {
                true => Ok(()),
                false => Err(e),
            })?;
            // who comes first writes it; everybody reads what is there then
            match aside(path, &json(&manifest))
                .map_err(cannot)?
                .persist_noclobber(&file)
            {
                Ok(_) => {}
                Err(e) if e.error.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(cannot(e.error)),
            }
        }
        folder.check(campaign)?;
        for part in [folder.jobs(), folder.locks()] {
            std::fs::create_dir_all(&part).map_err(cannot)?;
            // said before hours of work
            aside(&part, "").map_err(cannot)?;
        }
        Ok(folder)
    }

    /// The folder at `path`, in which jobs of `campaign` have been run, to look at.
    ///
    /// # Errors
    /// When there is none, or it is of another campaign.
    pub fn existing(path: &Path, campaign: &Campaign) -> Result<Folder, FolderError> {
        let folder = Folder { path: path.into() };
        if !path.is_dir() {
            let message = "no such folder: --dir wants the folder that the campaign was run in";
            return Err(FolderError::new(path, message));
        }
        if !path.join(MANIFEST).exists() {
            let message = format!(
                "not the folder of a campaign (it has no {MANIFEST}): --dir wants the one that the campaign was run in"
            );
            return Err(FolderError::new(path, message));
        }
        folder.check(campaign)?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The result file of a job.
    pub fn result_file(&self, job: &Job) -> PathBuf {
        self.jobs().join(format!("{}.json", job.id))
    }

    fn failure_file(&self, job: &Job) -> PathBuf {
        self.jobs().join(format!("{}.failed.json", job.id))
    }

    fn jobs(&self) -> PathBuf {
        self.path.join("jobs")
    }

    fn locks(&self) -> PathBuf {
        self.path.join("locks")
    }

    /// A folder without a manifest has to be empty, but for what is being written.
    fn refuse_others(&self) -> std::io::Result<Result<(), FolderError>> {
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with(ASIDE) && name != MANIFEST {
                let message = format!(
                    "not the folder of a campaign: it has no {MANIFEST}, and other files such as `{name}`; name an empty or a new folder with --dir"
                );
                return Ok(Err(FolderError::new(&self.path, message)));
            }
        }
        Ok(Ok(()))
    }

    /// Refuses a folder of another campaign, or of this one as it was before it was changed.
    fn check(&self, campaign: &Campaign) -> Result<(), FolderError> {
        let file = self.path.join(MANIFEST);
        let unreadable = |e: &dyn std::fmt::Display| {
            let message = format!("cannot be read ({e}): name another folder with --dir");
            FolderError::new(&file, message)
        };
        let (text, _) = amp_machine::read_text(&file).map_err(|e| unreadable(&e))?;
        let manifest: Manifest = serde_json::from_str(&text).map_err(|e| unreadable(&e))?;
        let before: toml::Table = toml::from_str(&manifest.file).map_err(|e| unreadable(&e))?;
        let now: toml::Table = toml::from_str(&campaign.text).map_err(|e| unreadable(&e))?;
        let told = campaign.path.display();
        let name = before.get("name").and_then(toml::Value::as_str);
        if name != Some(&campaign.name) {
            let message = format!(
                "it is of the campaign `{}`, and {told} is `{}`: name another folder with --dir",
                name.unwrap_or_default(),
                campaign.name
            );
            return Err(FolderError::new(&self.path, message));
        }
        let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let shown = |v: Option<&toml::Value>| v.map_or("not there".to_owned(), ToString::to_string);
        let changed: Vec<String> = keys
            .into_iter()
            .filter(|key| before.get(*key) != now.get(*key))
            .map(|key| {
                let (was, is) = (shown(before.get(key)), shown(now.get(key)));
                format!("key `{key}` was {was} and is {is}")
            })
            .collect();
        if changed.is_empty() {
            return Ok(());
        }
        let message = format!(
            "{told} has changed since this folder was begun: {}; put it back, or name another folder with --dir",
            changed.join(", ")
        );
        Err(FolderError::new(&self.path, message))
    }

    /// How far a job is. A result counts when it is of this very job and, where `made_by` is given,
    /// was made by that.
    pub fn state(&self, job: &Job, made_by: Option<&MadeBy>) -> State {
        let result = read(&self.result_file(job), |report: &BenchReport| {
            let stamp = stamp(report).ok_or("no result of a campaign's job")?;
            whole(job, report)?;
            is_of(job, made_by, &stamp.job, &stamp.made_by)
        });
        let stale = match result {
            Ok(Some((report, _))) => return State::Done(Box::new(report)),
            Ok(None) => None,
            Err(why) => Some(why),
        };
        if self.is_running(job) {
            return State::Running;
        }
        let failure = read(&self.failure_file(job), |f: &Failure| {
            is_of(job, made_by, &f.job, &f.made_by)
        });
        match failure {
            Ok(Some((failure, at))) => State::Failed { failure, at },
            // a failure is tried again anyway
            _ => State::ToDo { stale },
        }
    }

    /// Whether some process is at the job.
    fn is_running(&self, job: &Job) -> bool {
        let Ok(lock) = File::open(self.locks().join(&job.id)) else {
            return false;
        };
        matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Takes a job, so that no other process does; `None` when one has it.
    ///
    /// # Errors
    /// When there can be no lock.
    pub fn claim(&self, job: &Job) -> std::io::Result<Option<Claim>> {
        let file = File::create(self.locks().join(&job.id))?;
        for _ in 0..TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Claim(file))),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
                Err(TryLockError::Error(e)) => return Err(e),
            }
        }
        Ok(None)
    }

    /// Keeps the result of a job.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(
        &self,
        job: &Job,
        made_by: &MadeBy,
        mut report: BenchReport,
    ) -> std::io::Result<()> {
        let stamp = Stamp {
            job: job.digest.clone(),
            made_by: made_by.clone(),
        };
        let stamp = serde_json::to_value(stamp)?;
        report.environment.more.insert(STAMP.into(), stamp);
        self.keep(&self.result_file(job), &json(&report))?;
        match std::fs::remove_file(self.failure_file(job)) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Keeps the reason why a job has no result.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn fail(&self, job: &Job, failure: &Failure) -> std::io::Result<()> {
        self.keep(&self.failure_file(job), &json(failure))
    }

    fn keep(&self, path: &Path, text: &str) -> std::io::Result<()> {
        let file = aside(&self.jobs(), text)?;
        // what is renamed must be on the disk first, or a crash leaves an empty file of that name
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }
}

/// A job that this process has taken; given back when it is dropped, or with the process.
#[derive(Debug)]
pub struct Claim(File);

impl Drop for Claim {
    fn drop(&mut self) {
        // by name: a child that is just being started has a copy of the descriptor
        let _ = self.0.unlock();
    }
}

fn json(value: &impl Serialize) -> String {
    // maps have texts as keys, and numbers that are not finite become null
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text + "\n"
}

fn aside(folder: &Path, text: &str) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix(ASIDE)
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// Reads a file of ours, and when it was written; nothing when it is not there.
fn read<T: DeserializeOwned>(
    path: &Path,
    check: impl Fn(&T) -> Result<(), String>,
) -> Result<Option<(T, SystemTime)>, String> {
    let told = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let (text, about) = match amp_machine::read_text(path) {
        Ok(read) => read,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(told(&e)),
    };
    let value: T = serde_json::from_str(&text).map_err(|e| told(&format!("damaged: {e}")))?;
    check(&value).map_err(|e| told(&e))?;
    let at = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Ok(Some((value, at)))
}

fn stamp(report: &BenchReport) -> Option<Stamp> {
    let stamp = report.environment.more.get(STAMP)?;
    serde_json::from_value(stamp.clone()).ok()
}

/// Whether `report` has the figures of the job's contender, and nothing else.
fn whole(job: &Job, report: &BenchReport) -> Result<(), String> {
    let wanted = job.contender.to_string();
    match &report.results[..] {
        [one] if one.policy == wanted => Ok(()),
        _ => Err(format!(
            "damaged: it has no figures of {wanted}, or others too"
        )),
    }
}

/// Whether what is there is of `job`, made by `made_by` where that is given.
fn is_of(
    job: &Job,
    made_by: Option<&MadeBy>,
    found: &str,
    found_by: &MadeBy,
) -> Result<(), String> {
    if found != job.digest {
        return Err("of another job".into());
    }
    match made_by {
        Some(by) if by != found_by => Err(format!(
            "made by {}, and this is {}",
            found_by.words(),
            by.words()
        )),
        _ => Ok(()),
    }
}
