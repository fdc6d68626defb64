//! Seals: what a kept file was when it was made, so that damage is noticed before it is used.
//!
//! ```text
//! vmlinuz ──► vmlinuz.seal   size, time of change, SHA-256
//! folder/ ──► folder/.seal   the same of every file in it
//! ```
//!
//! Size and time of change are looked at before every use. Where only the time differs, the
//! content is read and counts.

use crate::error::BoardError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How far what the cache keeps is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Care {
    /// By size and time of change; by content where only the time differs.
    #[default]
    Usual,
    /// By content.
    Check,
    /// By content, and the archive is asked whether it has something newer.
    Refresh,
}

impl Care {
    /// Whether content is read in any case.
    fn reads(self) -> bool {
        self != Care::Usual
    }

    /// Whether the archive is asked again.
    pub(crate) fn refreshes(self) -> bool {
        self == Care::Refresh
    }
}

/// What a look at something kept finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is as it was made.
    Whole,
    /// Nothing is known of how it was made: an older version kept it.
    Unsealed,
    /// It is not as it was made; the reason names the file.
    Damaged(String),
}

/// What is known of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sealed {
    bytes: u64,
    /// Time of the last change, ns since 1970.
    changed: i64,
    sha256: String,
}

/// Files by their path below the sealed folder; a sealed file has its own name.
type Seal = BTreeMap<String, Sealed>;

/// Where the seal of a kept file or folder is.
pub(crate) fn place(kept: &Path) -> PathBuf {
    match kept.is_dir() {
        true => kept.join(".seal"),
        false => {
            let mut name = kept.as_os_str().to_owned();
            name.push(".seal");
            name.into()
        }
    }
}

/// Seals a file, or a folder with all in it, as it is now. Both can be renamed with their seal.
///
/// # Errors
/// When something in it cannot be read, or the seal cannot be written.
pub(crate) fn put(kept: &Path) -> Result<(), BoardError> {
    let seal = of(kept).map_err(BoardError::cache("read", kept))?;
    write(kept, &seal)
}

fn write(kept: &Path, seal: &Seal) -> Result<(), BoardError> {
    let to = place(kept);
    let write = || {
        let folder = to.parent().unwrap_or(Path::new("."));
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&mut new, seal)?;
        new.as_file().sync_all()?;
        new.persist(&to)?;
        Ok(())
    };
    write().map_err(BoardError::cache("write", &to))
}

fn of(kept: &Path) -> io::Result<Seal> {
    let mut seal = Seal::new();
    if kept.is_dir() {
        add(kept, Path::new(""), &mut seal)?;
    } else {
        seal.insert(name(kept), sealed(kept)?);
    }
    Ok(seal)
}

fn add(root: &Path, below: &Path, seal: &mut Seal) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let relative = below.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            add(root, &relative, seal)?;
        } else if kind.is_file() && relative != Path::new(".seal") {
            // Debian's names of files are UTF-8; one that is not is not looked at.
            if let Some(path) = relative.to_str() {
                seal.insert(path.to_owned(), sealed(&entry.path())?);
            }
        }
    }
    Ok(())
}

fn sealed(path: &Path) -> io::Result<Sealed> {
    let (mut file, about) = amp_machine::open_regular(path)?;
    Ok(Sealed {
        bytes: about.len(),
        changed: changed(&about),
        sha256: hash(&mut file)?,
    })
}

fn hash(file: &mut File) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            n => hash.update(&piece[..n]),
        }
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

fn changed(about: &Metadata) -> i64 {
    let ns = about.mtime().saturating_mul(1_000_000_000);
    ns.saturating_add(about.mtime_nsec())
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Looks whether a kept file or folder is as it was sealed.
///
/// # Errors
/// When the seal was to be written again, and could not be.
pub(crate) fn look(kept: &Path, care: Care) -> Result<State, BoardError> {
    let text = match fs::read(place(kept)) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(State::Unsealed),
        Err(e) => return Ok(State::Damaged(format!("its seal cannot be read: {e}"))),
    };
    let Ok(mut seal) = serde_json::from_slice::<Seal>(&text) else {
        return Ok(State::Damaged("its seal is damaged".into()));
    };
    let mut touched = false;
    for (name, was) in &mut seal {
        let path = match kept.is_dir() {
            true => kept.join(name),
            false => kept.to_path_buf(),
        };
        match differs(&path, was, care) {
            Ok(None) => {}
            Ok(Some(time)) => {
                was.changed = time;
                touched = true;
            }
            Err(why) => return Ok(State::Damaged(format!("{name} {why}"))),
        }
    }
    if touched {
        write(kept, &seal)?;
    }
    Ok(State::Whole)
}

/// Nothing when a file is as it was; its time of change when that alone is new.
fn differs(path: &Path, was: &Sealed, care: Care) -> Result<Option<i64>, String> {
    let unreadable = |e: io::Error| match e.kind() {
        ErrorKind::NotFound => "is gone".to_owned(),
        _ => format!("cannot be read: {e}"),
    };
    let about = fs::metadata(path).map_err(unreadable)?;
    if about.len() != was.bytes || !about.is_file() {
        let (has, had) = (about.len(), was.bytes);
        return Err(format!("has {has} bytes in place of {had}"));
    }
    let time = changed(&about);
    if time == was.changed && !care.reads() {
        return Ok(None);
    }
    let now = sealed(path).map_err(unreadable)?;
    if now.sha256 != was.sha256 {
        return Err("has another content than when it was made".into());
    }
    Ok((time != was.changed).then_some(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn damage(kept: &Path, care: Care) -> String {
        match look(kept, care).unwrap() {
            State::Damaged(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_is_known_by_size_time_and_content() {
        let t = tempfile::tempdir().unwrap();
        let file = t.path().join("vmlinuz");
        fs::write(&file, "image").unwrap();
        assert_eq!(look(&file, Care::Usual).unwrap(), State::Unsealed);
        put(&file).unwrap();
        for care in [Care::Usual, Care::Check, Care::Refresh] {
            assert_eq!(look(&file, care).unwrap(), State::Whole);
        }

        // the time alone: content counts, and the seal learns the time
        let old = fs::metadata(&file).unwrap().modified().unwrap();
        let touch = |time: SystemTime| {
            let file = File::options().append(true).open(&file).unwrap();
            file.set_modified(time).unwrap();
        };
        touch(old + Duration::from_secs(1));
        assert_eq!(look(&file, Care::Usual).unwrap(), State::Whole);

        // another content under the old time is seen by those who read it
        fs::write(&file, "imagE").unwrap();
        touch(old + Duration::from_secs(1));
        assert_eq!(look(&file, Care::Usual).unwrap(), State::Whole);
        assert!(damage(&file, Care::Check).contains("vmlinuz has another content"));
        touch(old);
        assert!(damage(&file, Care::Usual).contains("another content"));

        fs::write(&file, "im").unwrap();
        assert_eq!(
            damage(&file, Care::Usual),
            "vmlinuz has 2 bytes in place of 5"
        );
        fs::remove_file(&file).unwrap();
        assert_eq!(damage(&file, Care::Usual), "vmlinuz is gone");
        fs::write(place(&file), "{").unwrap();
        assert_eq!(damage(&file, Care::Usual), "its seal is damaged");
    }

    #[test]
    fn a_folder_is_known_by_its_files_and_moves_with_its_seal() {
        let t = tempfile::tempdir().unwrap();
        let made = t.path().join("made");
        fs::create_dir_all(made.join("usr/bin")).unwrap();
        fs::write(made.join("usr/bin/qemu"), "program").unwrap();
        fs::write(made.join("conf"), "x").unwrap();
        put(&made).unwrap();
        let kept = t.path().join("kept");
        fs::rename(&made, &kept).unwrap();
        assert_eq!(look(&kept, Care::Check).unwrap(), State::Whole);
        fs::write(kept.join("usr/bin/qemu"), "prog").unwrap();
        assert_eq!(
            damage(&kept, Care::Usual),
            "usr/bin/qemu has 4 bytes in place of 7"
        );
    }
}
