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
use std::path::{Path, PathBuf};
use thiserror::Error;

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
    /// Instructions of one completion, where the machine counts them for us.
    pub instructions: Option<f64>,
    /// Its course alone on slow cores, where its own instructions were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
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
        let text = path.and_then(|p| std::fs::read_to_string(p).ok());
        let mut cache: SoloCache = text
            .and_then(|t| serde_json::from_str(&t).ok())
            .unwrap_or_default();
        cache.path = path.map(Into::into);
        cache
    }

    /// The entry under `key`.
    pub fn get(&self, key: &str) -> Option<&SoloTimes> {
        self.entries.get(key)
    }

    /// Adds an entry and, when there is a file, writes the whole to it in one step.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put(&mut self, key: String, times: SoloTimes) -> Result<(), KeepError> {
        self.entries.insert(key, times);
        self.save()
    }

    /// Takes in the entries of another cache.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn merge(&mut self, other: SoloCache) -> Result<(), KeepError> {
        self.entries.extend(other.entries);
        self.save()
    }

    fn save(&self) -> Result<(), KeepError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        self.write(path).map_err(|source| KeepError {
            path: path.clone(),
            source,
        })
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        let dir = path
            .parent()
            .filter(|d| !d.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        std::fs::create_dir_all(dir)?;
        let file = tempfile::NamedTempFile::new_in(dir)?;
        serde_json::to_writer_pretty(&file, self)?;
        file.persist(path)?;
        Ok(())
    }
}

/// The key of a program: a digest of `circumstances` (machine, model version, kernel), its
/// arguments, and the contents of its executable and of every argument that names a file in
/// `workdir`.
pub fn key(circumstances: &[&str], command: &[String], workdir: &Path) -> String {
    let mut h = Sha256::new();
    let mut add = |bytes: &[u8]| {
        h.update((bytes.len() as u64).to_le_bytes());
        h.update(bytes);
    };
    for part in circumstances {
        add(part.as_bytes());
    }
    for (i, arg) in command.iter().enumerate() {
        add(arg.as_bytes());
        let file = if i == 0 {
            find_executable(arg)
        } else {
            Some(workdir.join(arg))
        };
        if let Some(content) = file.and_then(|f| std::fs::read(f).ok()) {
            add(&content);
        }
    }
    h.finalize().iter().map(|b| format!("{b:02x}")).collect()
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
}
