//! A recording's file: of bounded size, root's alone, and written beside the scheduling thread.
//!
//! The scheduling thread hands whole lines to a thread that writes them, and never waits: when that
//! is behind, a line is refused, and what it would have said is in the next one. An error of the
//! disk ends the recording, not the scheduler.

use crate::recorder::Chunk;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use thiserror::Error;

/// Lines that may wait to be written.
const WAITING: usize = 64;
/// The first bytes of every recording.
const BEGINNING: &[u8] = b"{\"scx_amp_recording\":";

/// Why a file cannot be recorded to.
#[derive(Debug, Error)]
#[error("{}: {why}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The reason, and what would be right.
    pub why: String,
}

/// Whether a line was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It will be written.
    Taken,
    /// The disk is behind: try again with a line that says more.
    Behind,
    /// Nothing is written any more, for this reason.
    Ended(String),
}

/// Where chunks go.
trait Store: Send {
    fn put(&mut self, chunk: &Chunk) -> io::Result<()>;
}

/// What both threads see.
#[derive(Debug, Default)]
struct Shared {
    bytes: AtomicU64,
    ended: Mutex<Option<String>>,
}

/// A recording's file, written by a thread of its own.
#[derive(Debug)]
pub struct RecordingFile {
    path: PathBuf,
    sender: Option<SyncSender<Chunk>>,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl RecordingFile {
    /// Whether a recording can be made at `path`; nothing is changed there.
    ///
    /// # Errors
    /// As [`RecordingFile::create`].
    pub fn check(path: &Path) -> Result<(), FileError> {
        Place::check(path).map(drop)
    }

    /// Makes the file at `path`, for its owner's eyes only. A recording that is there already is
    /// replaced, with the older half of it, `path.1`.
    ///
    /// # Errors
    /// When there is something else at `path` or `path.1`, a symbolic link of somebody else on the
    /// way, or the system refuses.
    pub fn create(path: &Path) -> Result<RecordingFile, FileError> {
        let parts = Parts::create(path)?;
        let path = parts.place.path.clone();
        Ok(RecordingFile::writing(path, Box::new(parts)))
    }

    fn writing(path: PathBuf, store: Box<dyn Store>) -> RecordingFile {
        let (sender, chunks) = sync_channel(WAITING);
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let writer = std::thread::spawn(move || write(store, &chunks, &theirs));
        RecordingFile {
            path,
            sender: Some(sender),
            shared,
            writer: Some(writer),
        }
    }

    /// Hands over whole lines, without waiting for the disk.
    pub fn offer(&mut self, chunk: Chunk) -> Offer {
        let sent = self.sender.as_ref().map(|s| s.try_send(chunk));
        match sent {
            Some(Ok(())) => Offer::Taken,
            Some(Err(TrySendError::Full(_))) => Offer::Behind,
            Some(Err(TrySendError::Disconnected(_))) | None => {
                Offer::Ended(self.ended().unwrap_or_default())
            }
        }
    }

    /// Why nothing is written any more.
    pub fn ended(&self) -> Option<String> {
        let ended = self.shared.ended.lock();
        ended.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where it writes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written so far, those that were rotated away since included.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for RecordingFile {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            // it has nothing to say but what `ended` says
            let _ = writer.join();
        }
    }
}

fn write(mut store: Box<dyn Store>, chunks: &Receiver<Chunk>, shared: &Shared) {
    for chunk in chunks {
        if let Err(e) = store.put(&chunk) {
            *shared.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(e.to_string());
            return;
        }
        let more = chunk.bytes.len() as u64;
        shared.bytes.fetch_add(more, Ordering::Relaxed);
    }
}

/// The file and the one before it, by their folder, which is looked up once.
struct Parts {
    place: Place,
    file: File,
    part: u32,
}

/// A place where a recording may be made.
struct Place {
    path: PathBuf,
    folder: OwnedFd,
    name: OsString,
    older: OsString,
}

impl Place {
    fn check(path: &Path) -> Result<Place, FileError> {
        let bad = |why: String| FileError {
            path: path.to_owned(),
            why,
        };
        let system = |e: &dyn std::fmt::Display| bad(e.to_string());
        let path = std::path::absolute(path).map_err(|e| system(&e))?;
        let name = path
            .file_name()
            .ok_or_else(|| bad("it names no file".into()))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        links_are_ours(folder).map_err(bad)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::open(folder, flags, Mode::empty()).map_err(|e| system(&e))?;
        let mut older = name.to_owned();
        older.push(".1");
        for name in [name, &older] {
            may_be_replaced(&folder, name).map_err(|why| FileError {
                path: path.with_file_name(name),
                why,
            })?;
        }
        Ok(Place {
            name: name.to_owned(),
            path,
            folder,
            older,
        })
    }
}

impl Parts {
    fn create(path: &Path) -> Result<Parts, FileError> {
        let place = Place::check(path)?;
        let system = |e: io::Error| FileError {
            path: place.path.clone(),
            why: e.to_string(),
        };
        for name in [&place.name, &place.older] {
            match fs::unlinkat(&place.folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(system(e.into())),
            }
        }
        let file = new_file(&place.folder, &place.name).map_err(system)?;
        Ok(Parts {
            place,
            file,
            part: 0,
        })
    }
}

impl Store for Parts {
    fn put(&mut self, chunk: &Chunk) -> io::Result<()> {
        if chunk.part != self.part {
            let at = &self.place;
            fs::renameat(&at.folder, &at.name, &at.folder, &at.older)?;
            self.file = new_file(&at.folder, &at.name)?;
            self.part = chunk.part;
        }
        // one call for whole lines: whoever reads meanwhile sees half a line hardly ever
        self.file.write_all(&chunk.bytes)
    }
}

/// A file that was not there, for its owner alone.
fn new_file(folder: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(File::from(file))
}

/// Refuses a way on which a symbolic link belongs to anybody but root and us: whoever owns it may
/// turn it elsewhere.
fn links_are_ours(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let us = rustix::process::geteuid().as_raw();
    for step in folder.ancestors() {
        let meta = step.symlink_metadata();
        let meta = meta.map_err(|e| format!("{}: {e}", step.display()))?;
        if meta.is_symlink() && meta.uid() != 0 && meta.uid() != us {
            return Err(format!(
                "{} is a symbolic link of user {}: name a folder without it",
                step.display(),
                meta.uid()
            ));
        }
    }
    Ok(())
}

/// Refuses to replace anything but a recording of ours.
fn may_be_replaced(folder: &OwnedFd, name: &OsStr) -> Result<(), String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match fs::openat(folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::LOOP) => return Err("it is a symbolic link: name a file".into()),
        Err(e) => return Err(e.to_string()),
    };
    let stat = fs::fstat(&file).map_err(|e| e.to_string())?;
    if !fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err("it is no regular file".into());
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(format!(
            "it belongs to user {}: name another file",
            stat.st_uid
        ));
    }
    let mut beginning = Vec::new();
    let read = File::from(file)
        .take(BEGINNING.len() as u64)
        .read_to_end(&mut beginning);
    read.map_err(|e| e.to_string())?;
    if !beginning.is_empty() && beginning != BEGINNING {
        return Err("it is there already and is no recording: name another file".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{symlink, PermissionsExt};

    fn chunk(part: u32, text: &str) -> Chunk {
        Chunk {
            part,
            bytes: text.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_new_part_puts_the_old_one_aside_and_both_are_the_owners_alone() {
        let d = tempfile::tempdir().unwrap();
        let path = d.path().join("r");
        for _ in 0..2 {
            let mut file = RecordingFile::create(&path).unwrap();
            for c in [
                chunk(0, "{\"scx_amp_recording\":1,\"a\n"),
                chunk(0, "b\n"),
                chunk(1, "{\"scx_amp_recording\":1,\"c\n"),
            ] {
                assert_eq!(file.offer(c), Offer::Taken);
            }
            drop(file);
            let read = |p: &Path| std::fs::read_to_string(p).unwrap();
            let older = d.path().join("r.1");
            assert!(read(&older).ends_with("a\nb\n") && read(&path).ends_with("c\n"));
            for p in [&path, &older] {
                assert_eq!(p.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            }
        }
    }

    #[test]
    fn nothing_but_a_recording_is_replaced_and_no_link_is_followed() {
        let d = tempfile::tempdir().unwrap();
        let at = |n: &str| d.path().join(n);
        std::fs::write(at("letter"), "Dear").unwrap();
        symlink(at("letter"), at("link")).unwrap();
        std::fs::write(at("r.1"), "Sir").unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        for (name, says) in [
            ("letter", "no recording"),
            ("link", "symbolic link"),
            ("r", "r.1: it is there already"),
            ("folder", "no regular file"),
            ("nowhere/r", "nowhere"),
        ] {
            let e = RecordingFile::create(&at(name)).unwrap_err().to_string();
            assert!(e.contains(says) && e.contains(name), "{name}: {e}");
        }
        assert_eq!(std::fs::read_to_string(at("letter")).unwrap(), "Dear");
    }

    struct FullDisk(u32);

    impl Store for FullDisk {
        fn put(&mut self, _: &Chunk) -> io::Result<()> {
            self.0 += 1;
            match self.0 {
                1 => Ok(()),
                _ => Err(io::Error::from(io::ErrorKind::StorageFull)),
            }
        }
    }

    #[test]
    fn a_full_disk_ends_the_recording_with_the_reason() {
        let mut file = RecordingFile::writing("r".into(), Box::new(FullDisk(0)));
        let ended = loop {
            match file.offer(chunk(0, "x\n")) {
                Offer::Ended(why) => break why,
                Offer::Taken | Offer::Behind => std::thread::yield_now(),
            }
        };
        assert!(
            ended.contains("storage") || ended.contains("space"),
            "{ended}"
        );
        assert_eq!(file.bytes(), 2);
    }

    /// A disk that takes nothing until it is told to.
    struct Stalled(Arc<Mutex<()>>);

    impl Store for Stalled {
        fn put(&mut self, _: &Chunk) -> io::Result<()> {
            drop(self.0.lock());
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_stalls_refuses_lines_and_stops_nobody() {
        let gate = Arc::new(Mutex::new(()));
        let held = gate.lock().unwrap();
        let mut file = RecordingFile::writing("r".into(), Box::new(Stalled(gate.clone())));
        let offers = (0..2 * WAITING).map(|_| file.offer(chunk(0, "x\n")));
        assert!(offers.filter(|o| *o == Offer::Behind).count() >= WAITING - 1);
        drop(held);
    }
}
