//! Completion times of programs that ran alone, kept from one bench to the next.
//!
//! An entry is found again only under the same machine, model version, kernel, executable and
//! input: the key is a digest of all of them, so a stale entry cannot be used, it is merely never
//! asked for again.

use crate::evaluation::{Progress, Solo};
use amp_metrics::uncertainty::Measured;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Longest file whose contents are part of a [`key`], bytes.
pub const WHOLE: u64 = 1 << 30;

/// Longest wait for somebody else who writes the cache.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Completion times of one program alone, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SoloTimes {
    /// The program's label when it was measured; for people who read the file.
    pub name: String,
    /// The command that was measured, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// On the slowest core type only.
    pub slow_s: Vec<f64>,
    /// With the fastest core type available.
    pub fast_s: Vec<f64>,
    /// On each core type between them, fastest first; none where there are two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub between_s: Vec<Vec<f64>>,
    /// Instructions of one completion, where the machine counts them for us.
    pub instructions: Option<f64>,
    /// Its course alone on slow cores, where its own instructions were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Energy of each run on the slowest core type, in joules; empty where nobody tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_j: Vec<f64>,
    /// Energy of each run with the fastest core type, in joules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fast_j: Vec<f64>,
    /// Energy of each run on each core type between them, in joules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub between_j: Vec<Vec<f64>>,
}

impl SoloTimes {
    /// The times as the evaluation takes them.
    pub fn times(&self) -> Solo {
        Solo {
            slow_s: self.slow_s.clone(),
            fast_s: self.fast_s.clone(),
        }
    }

    /// Speedup factor of the whole program: time on slow cores over time with fast ones, by
    /// geometric means. None without times.
    pub fn speedup(&self) -> Option<f64> {
        Some(typical(&self.slow_s)? / typical(&self.fast_s)?)
    }

    /// Speedup factor of the whole program on each core type but the slowest, fastest first. None
    /// without times of one of them.
    pub fn speedups(&self) -> Option<Vec<f64>> {
        let slow = typical(&self.slow_s)?;
        let faster = std::iter::once(&self.fast_s).chain(&self.between_s);
        faster.map(|s| Some(slow / typical(s)?)).collect()
    }

    /// Efficiency factor of the whole program: energy times delay on slow cores over that with fast
    /// ones, EF = EDP_small / EDP_big = SF / ER [PMCTrack eq. 3-7]. `None` without times and
    /// energies above 0.
    pub fn efficiency(&self) -> Option<f64> {
        self.efficiency_of(&self.fast_s, &self.fast_j)
    }

    /// Efficiency factor of the whole program on each core type but the slowest, fastest first.
    /// None where one is not known.
    pub fn efficiencies(&self) -> Option<Vec<f64>> {
        let between = (0..self.between_s.len()).map(|k| {
            let joules = self.between_j.get(k)?;
            self.efficiency_of(&self.between_s[k], joules)
        });
        std::iter::once(self.efficiency()).chain(between).collect()
    }

    fn efficiency_of(&self, times: &[f64], joules: &[f64]) -> Option<f64> {
        let edp = |s: &[f64], j: &[f64]| Some(typical(s)? * typical(j)?);
        let factor = edp(&self.slow_s, &self.slow_j)? / edp(times, joules)?;
        (factor.is_finite() && factor > 0.0).then_some(factor)
    }
}

/// Geometric mean of `times`. Equal times are their own mean, to the last bit: exp(ln x) is not
/// always x.
fn typical(times: &[f64]) -> Option<f64> {
    match times {
        [first, rest @ ..] if rest.iter().all(|t| t == first) => Some(*first),
        _ => Measured::geometric_mean(times).map(|m| m.value),
    }
}

/// The file of kept times cannot be written.
#[derive(Debug, Error)]
#[error("cannot write the solo cache {path}: {source}")]
pub struct KeepError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: std::io::Error,
}

/// What is known from earlier benches.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SoloCache {
    entries: BTreeMap<String, SoloTimes>,
    #[serde(skip)]
    path: Option<PathBuf>,
}

impl SoloCache {
    /// Reads `path`; a file that is not there, or is not ours, is an empty cache.
    pub fn open(path: Option<&Path>) -> SoloCache {
        SoloCache {
            entries: path.map(entries_in).unwrap_or_default(),
            path: path.map(Into::into),
        }
    }

    /// The entry under `key`.
    pub fn get(&self, key: &str) -> Option<&SoloTimes> {
        self.entries.get(key)
    }

    /// Adds an entry and, when there is a file, adds it there. What others have added to the file
    /// since it was read stays.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put(&mut self, key: String, times: SoloTimes) -> Result<(), KeepError> {
        self.add(BTreeMap::from([(key, times)]))
    }

    /// Takes in the entries of another cache.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn merge(&mut self, other: SoloCache) -> Result<(), KeepError> {
        self.add(other.entries)
    }

    fn add(&mut self, new: BTreeMap<String, SoloTimes>) -> Result<(), KeepError> {
        self.entries.extend(new.clone());
        let Some(path) = &self.path else {
            return Ok(());
        };
        self.write(path, new).map_err(|source| KeepError {
            path: path.clone(),
            source,
        })
    }

    fn write(&self, path: &Path, new: BTreeMap<String, SoloTimes>) -> std::io::Result<()> {
        let dir = path
            .parent()
            .filter(|d| !d.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        std::fs::create_dir_all(dir)?;
        let _lock = Locked::wait(&path.with_extension("lock"))?;
        let mut entries = entries_in(path);
        for (key, times) in &self.entries {
            entries.entry(key.clone()).or_insert_with(|| times.clone());
        }
        entries.extend(new);
        let file = tempfile::NamedTempFile::new_in(dir)?;
        let whole = SoloCache {
            entries,
            path: None,
        };
        serde_json::to_writer_pretty(&file, &whole)?;
        file.persist(path)?;
        Ok(())
    }
}

/// What the file at `path` has; nothing when it is not there, or not ours.
fn entries_in(path: &Path) -> BTreeMap<String, SoloTimes> {
    let text = amp_machine::read_text(path).ok();
    let cache = text.and_then(|(t, _)| serde_json::from_str::<SoloCache>(&t).ok());
    cache.unwrap_or_default().entries
}

/// A file that is locked until this is dropped: between reading the cache and writing it nobody
/// else writes.
struct Locked(File);

impl Locked {
    fn wait(path: &Path) -> std::io::Result<Locked> {
        let file = File::create(path)?;
        let begin = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Locked(file)),
                // whoever has it is stopped: it takes milliseconds
                Err(TryLockError::WouldBlock) if begin.elapsed() > LONGEST_WAIT => {
                    return Err(std::io::ErrorKind::TimedOut.into())
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
                Err(TryLockError::Error(e)) => return Err(e),
            }
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // By name: a child that is just being started has a copy of the descriptor. What cannot be
        // unlocked is unlocked when the last copy is closed.
        let _ = self.0.unlock();
    }
}

/// The key of a program: a digest of `circumstances` (machine, model version, kernel), its
/// arguments, and the contents of its executable and of every argument that names a regular file in
/// `workdir`. Of a file above [`WHOLE`] bytes, length and time of the last change stand for the
/// contents.
pub fn key(circumstances: &[&str], command: &[String], workdir: &Path) -> String {
    let mut h = Sha256::new();
    let add = |bytes: &[u8], h: &mut Sha256| {
        h.update((bytes.len() as u64).to_le_bytes());
        h.update(bytes);
    };
    for part in circumstances {
        add(part.as_bytes(), &mut h);
    }
    for (i, arg) in command.iter().enumerate() {
        add(arg.as_bytes(), &mut h);
        let file = if i == 0 {
            find_executable(arg)
        } else {
            Some(workdir.join(arg))
        };
        if let Some(file) = file {
            // one that cannot be read is known by its name alone
            let _ = add_contents(&file, &mut h);
        }
    }
    h.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// Adds length and contents of a regular file.
fn add_contents(path: &Path, h: &mut Sha256) -> std::io::Result<()> {
    let (file, about) = amp_machine::open_regular(path)?;
    h.update(about.len().to_le_bytes());
    if about.len() > WHOLE {
        h.update(about.mtime().to_le_bytes());
        h.update(about.mtime_nsec().to_le_bytes());
        return Ok(());
    }
    let mut file = file.take(WHOLE);
    let mut part = vec![0; 1 << 16];
    loop {
        match file.read(&mut part)? {
            0 => return Ok(()),
            n => h.update(&part[..n]),
        }
    }
}

fn find_executable(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|d| d.join(name))
        .find(|f| f.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| (*w).into()).collect()
    }

    #[test]
    fn entries_survive_and_a_broken_file_is_an_empty_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/solo.json");
        let times = SoloTimes {
            name: "a".into(),
            slow_s: vec![2.0],
            ..SoloTimes::default()
        };
        SoloCache::open(Some(&path))
            .put("k".into(), times.clone())
            .unwrap();
        assert_eq!(SoloCache::open(Some(&path)).get("k"), Some(&times));
        std::fs::write(&path, "{ half").unwrap();
        assert_eq!(SoloCache::open(Some(&path)).get("k"), None);
    }

    #[test]
    fn the_key_depends_on_circumstances_arguments_and_input() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("in"), "one").unwrap();
        let k = |c: &[&str], a: &[&str]| key(c, &argv(a), dir.path());
        let base = k(&["m", "1"], &["true", "in"]);
        assert_eq!(base, k(&["m", "1"], &["true", "in"]));
        assert_ne!(base, k(&["m1", ""], &["true", "in"]));
        assert_ne!(base, k(&["m", "1"], &["true", "other"]));
        std::fs::write(dir.path().join("in"), "two").unwrap();
        assert_ne!(base, k(&["m", "1"], &["true", "in"]));
    }

    /// Bug 10 of the review: a FIFO was waited for, and an endless device filled the memory.
    #[test]
    fn only_regular_files_are_read_for_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let k = |arg: &str| key(&[], &argv(&["true", arg]), dir.path());
        assert_ne!(k("fifo"), k("/dev/zero"));
        // neither is part of it
        let before = k("fifo");
        std::fs::remove_file(fifo).unwrap();
        assert_eq!(before, k("fifo"));
        File::create(dir.path().join("long"))
            .unwrap()
            .set_len(WHOLE + 1)
            .unwrap();
        assert_eq!(k("long"), k("long"));
    }

    /// Bug 15 of the review: six benches at once kept 2 of 12 entries.
    #[test]
    fn benches_at_once_keep_what_each_has_measured() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("solo.json");
        std::thread::scope(|s| {
            for n in 0..6 {
                let mut cache = SoloCache::open(Some(&path));
                s.spawn(move || {
                    for entry in 0..4 {
                        cache
                            .put(format!("{n}-{entry}"), SoloTimes::default())
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(SoloCache::open(Some(&path)).entries.len(), 24);
    }
}
