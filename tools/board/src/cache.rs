//! The cache folder: where everything fetched or built for the board lives.
//!
//! A thing is built in a staging folder on the same file system and renamed into place, so that
//! what is there is whole. One lock keeps two fetches apart; running guests need no lock.

use crate::child::POLL;
use crate::error::BoardError;
use crate::event::{Event, Sink};
use serde::{de::DeserializeOwned, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The cache folder.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// Holds the fetch lock of a cache until dropped.
#[derive(Debug)]
pub struct FetchLock {
    _file: Locked,
}

/// A file that is locked until dropped.
///
/// It is unlocked by name: closing it is not enough, because a child that another thread is just
/// starting has a copy of the descriptor until its exec, and would hold the lock that long.
#[derive(Debug)]
struct Locked(File);

impl Locked {
    /// Locks the file, or says at once that somebody else has it.
    fn try_new(file: File) -> Result<Locked, TryLockError> {
        file.try_lock().map(|()| Locked(file))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // What cannot be unlocked is unlocked when its last copy is closed.
        let _ = self.0.unlock();
    }
}

impl Cache {
    /// Opens `SCX_AMP_CACHE`, or `~/.cache/scx_amp`, creating it (mode 0700) when absent.
    ///
    /// # Errors
    /// When no folder is known or it cannot be created or written.
    pub fn open() -> Result<Cache, BoardError> {
        let set = |k| {
            std::env::var_os(k)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let root = set("SCX_AMP_CACHE")
            .or_else(|| set("HOME").map(|h| h.join(".cache/scx_amp")))
            .ok_or(BoardError::NoCacheFolder)?;
        Cache::at(&root)
    }

    /// Opens a folder, creating it when absent.
    ///
    /// # Errors
    /// When it cannot be created or written.
    pub fn at(root: &Path) -> Result<Cache, BoardError> {
        let root = std::path::absolute(root).map_err(BoardError::cache("use", root))?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            .map_err(BoardError::cache("create", &root))?;
        let cache = Cache { root };
        cache.dir("tmp")?;
        cache.sweep();
        Ok(cache)
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A folder below the root, created when absent.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn dir(&self, relative: impl AsRef<Path>) -> Result<PathBuf, BoardError> {
        let path = self.root.join(relative);
        fs::create_dir_all(&path).map_err(BoardError::cache("create", &path))?;
        Ok(path)
    }

    /// A path below the root, whether it exists or not.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Takes the fetch lock, waiting for another process that holds it.
    ///
    /// # Errors
    /// When the lock file cannot be made, or `cancel` became true.
    pub fn lock(&self, cancel: &AtomicBool, sink: &mut Sink<'_>) -> Result<FetchLock, BoardError> {
        let path = self.root.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(BoardError::cache("open", &path))?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => {
                    return Ok(FetchLock {
                        _file: Locked(file),
                    })
                }
                Err(TryLockError::WouldBlock) => {
                    if !told {
                        told = true;
                        sink(Event::Progress {
                            what: format!(
                                "waiting: another process fetches into {}",
                                self.root.display()
                            ),
                            percent: None,
                        });
                    }
                    if cancel.load(Ordering::Relaxed) {
                        return Err(BoardError::Cancelled);
                    }
                    std::thread::sleep(POLL);
                }
                Err(TryLockError::Error(e)) => return Err(BoardError::cache("lock", &path)(e)),
            }
        }
    }

    /// A folder for something in the making; gone with the value unless [`Cache::publish`] moved
    /// it.
    ///
    /// The process holds a lock inside, so that another one can tell a live folder from one left by
    /// a killed process.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn staging(&self) -> Result<Staging, BoardError> {
        let tmp = self.dir("tmp")?;
        // The mark gets its name after its lock: a sweep never sees one that is not yet locked.
        let (file, unnamed) = tempfile::Builder::new()
            .prefix("s-")
            .tempfile_in(&tmp)
            .map_err(BoardError::cache("create a file in", &tmp))?
            .into_parts();
        let lock =
            Locked::try_new(file).map_err(|e| BoardError::cache("lock", &unnamed)(e.into()))?;
        let mark = tmp.join(format!("{}.{MARK}", name_of(&unnamed)));
        unnamed
            .persist(&mark)
            .map_err(|e| BoardError::cache("create", &mark)(e.error))?;
        let dir = mark.with_extension(FOLDER);
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(BoardError::cache("create", &dir))?;
        Ok(Staging {
            dir,
            mark,
            _lock: lock,
        })
    }

    /// Moves a staged file or folder to its place, replacing what is there.
    ///
    /// # Errors
    /// When the rename fails.
    pub fn publish(
        &self,
        staged: &Path,
        relative: impl AsRef<Path>,
    ) -> Result<PathBuf, BoardError> {
        let target = self.root.join(relative);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(BoardError::cache("create", parent))?;
        }
        if target.is_dir() {
            // A folder cannot be renamed over a full one: move the old one aside first.
            let aside = self.staging()?;
            let old = aside.path().join("old");
            fs::rename(&target, &old).map_err(BoardError::cache("replace", &target))?;
        }
        fs::rename(staged, &target).map_err(BoardError::cache("create", &target))?;
        Ok(target)
    }

    /// Writes a record as JSON, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_record<T: Serialize>(
        &self,
        relative: impl AsRef<Path>,
        record: &T,
    ) -> Result<(), BoardError> {
        let target = self.root.join(relative.as_ref());
        let staging = self.staging()?;
        let staged = staging.path().join("record");
        let text = serde_json::to_vec_pretty(record)
            .map_err(|e| BoardError::cache("write", &target)(e.into()))?;
        let mut file = File::create(&staged).map_err(BoardError::cache("write", &target))?;
        file.write_all(&text)
            .and_then(|()| file.sync_all())
            .map_err(BoardError::cache("write", &target))?;
        self.publish(&staged, relative)?;
        Ok(())
    }

    /// Reads a record; absent or unreadable (an older layout) is `None`.
    pub fn read_record<T: DeserializeOwned>(&self, relative: impl AsRef<Path>) -> Option<T> {
        let text = fs::read(self.root.join(relative)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Removes staging folders whose process is gone.
    fn sweep(&self) {
        let tmp = self.root.join("tmp");
        let Ok(entries) = fs::read_dir(&tmp) else {
            return;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|e| e != MARK) {
                continue;
            }
            let Ok(file) = File::open(&path) else {
                continue;
            };
            if let Ok(_locked) = Locked::try_new(file) {
                // Failing to remove leaves litter for the next sweep, nothing worse.
                let _ = fs::remove_dir_all(path.with_extension(FOLDER));
                let _ = fs::remove_file(&path);
            }
        }
    }
}

/// How the name of a staging folder ends.
const FOLDER: &str = "d";
/// How the name of the locked file beside it ends.
const MARK: &str = "lock";

fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// A folder for something in the making.
#[derive(Debug)]
pub struct Staging {
    dir: PathBuf,
    mark: PathBuf,
    _lock: Locked,
}

impl Staging {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // dpkg may have unpacked folders without the write bit; the sweep of a later run gets what
        // is left.
        let _ = fs::remove_dir_all(&self.dir);
        let _ = fs::remove_file(&self.mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_and_bad_ones_are_absent() {
        let t = tempfile::tempdir().unwrap();
        let c = Cache::at(&t.path().join("a/b")).unwrap();
        c.write_record("x/y.json", &vec![1, 2]).unwrap();
        c.write_record("x/y.json", &vec![3]).unwrap();
        assert_eq!(c.read_record::<Vec<i32>>("x/y.json"), Some(vec![3]));
        fs::write(c.path("x/y.json"), "[1,").unwrap();
        assert_eq!(c.read_record::<Vec<i32>>("x/y.json"), None);
    }

    #[test]
    fn staging_is_swept_only_when_its_owner_is_gone() {
        let t = tempfile::tempdir().unwrap();
        let c = Cache::at(t.path()).unwrap();
        let live = c.staging().unwrap();
        let dead = c.path("tmp/s-dead.d");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("half"), "x").unwrap();
        fs::write(c.path("tmp/s-dead.lock"), "").unwrap();
        Cache::at(t.path()).unwrap();
        assert!(live.path().exists());
        assert!(!dead.exists());
        let path = live.path().to_path_buf();
        drop(live);
        assert!(!path.exists());
    }

    /// Bug 14 of the review: a sweep that came between a mark and its lock took a live folder.
    #[test]
    fn sweeps_of_others_never_take_a_live_folder() {
        let t = tempfile::tempdir().unwrap();
        let c = Cache::at(t.path()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        c.sweep();
                    }
                });
            }
            let failed = (0..2000)
                .filter(|_| {
                    c.staging().map_or(true, |made| {
                        fs::write(made.path().join("record"), "1").is_err()
                    })
                })
                .count();
            over.store(true, Ordering::Relaxed);
            assert_eq!(failed, 0);
        });
        assert_eq!(fs::read_dir(c.path("tmp")).unwrap().count(), 0);
    }

    /// A child between fork and exec has a copy of every descriptor.
    #[test]
    fn a_lock_that_is_given_back_is_free_although_a_copy_is_open() {
        let t = tempfile::tempdir().unwrap();
        let c = Cache::at(t.path()).unwrap();
        let held = c.lock(&AtomicBool::new(false), &mut |_| ()).unwrap();
        let copy = held._file.0.try_clone().unwrap();
        drop(held);
        c.lock(&AtomicBool::new(true), &mut |_| ()).unwrap();
        drop(copy);
    }

    #[test]
    fn publish_replaces_a_full_folder() {
        let t = tempfile::tempdir().unwrap();
        let c = Cache::at(t.path()).unwrap();
        for body in ["one", "two"] {
            let s = c.staging().unwrap();
            fs::create_dir(s.path().join("d")).unwrap();
            fs::write(s.path().join("d/f"), body).unwrap();
            c.publish(&s.path().join("d"), "k/d").unwrap();
        }
        assert_eq!(fs::read_to_string(c.path("k/d/f")).unwrap(), "two");
    }

    #[test]
    fn the_lock_keeps_two_apart_and_cancel_ends_the_wait() {
        let t = tempfile::tempdir().unwrap();
        let c = Cache::at(t.path()).unwrap();
        let held = c.lock(&AtomicBool::new(false), &mut |_| ()).unwrap();
        let mut events = Vec::new();
        let r = c.lock(&AtomicBool::new(true), &mut |e| events.push(e));
        assert!(matches!(r, Err(BoardError::Cancelled)));
        assert_eq!(events.len(), 1);
        drop(held);
        c.lock(&AtomicBool::new(true), &mut |_| ()).unwrap();
    }
}
