//! The guest's file system: bash, busybox, programs from packages, our binaries, the script.
//!
//! Several cpio archives one after the other, not compressed: the kernel copies them at memory
//! speed, while unpacking gzip under emulation takes longer than the rest of the boot.

use crate::cpio::{Kind, Writer};
use crate::error::BoardError;
use crate::job::{self, Job};
use crate::packages::merged;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file or folder put into the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// Absolute path in the guest.
    pub guest: String,
    /// What it holds.
    pub content: Content,
}

/// Where a guest file's content comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A file of the host with its permissions, or a folder with everything below it.
    Host(PathBuf),
    /// These bytes, with these permission bits.
    Bytes(Vec<u8>, u32),
}

impl GuestFile {
    /// A host file or folder at a guest path.
    pub fn host(from: impl Into<PathBuf>, guest: impl Into<String>) -> GuestFile {
        GuestFile {
            guest: guest.into(),
            content: Content::Host(from.into()),
        }
    }

    /// Bytes at a guest path, mode 0644.
    pub fn bytes(data: impl Into<Vec<u8>>, guest: impl Into<String>) -> GuestFile {
        GuestFile {
            guest: guest.into(),
            content: Content::Bytes(data.into(), 0o644),
        }
    }
}

/// Longest file that is put into a guest, bytes: it is in memory twice.
const LONGEST_FILE: u64 = 1 << 30;
const INIT: &str = include_str!("init.sh");
const FOLDERS: [&str; 16] = [
    "amp",
    "amp/bin",
    "boot",
    "dev",
    "etc",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr",
    "usr/bin",
    "usr/sbin",
    "usr/lib",
    "usr/local",
    "usr/local/bin",
];
const LINKS: [(&str, &str); 7] = [
    ("bin", "usr/bin"),
    ("sbin", "usr/sbin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("usr/bin/sh", "bash-static"),
    ("usr/bin/bash", "bash-static"),
    ("usr/bin/env", "busybox"),
];

/// Builds an initramfs.
#[derive(Debug)]
pub struct Builder {
    out: BufWriter<File>,
    path: PathBuf,
}

impl Builder {
    /// Starts with the folders, the links and `/init`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(path: &Path) -> Result<Builder, BoardError> {
        let file = File::create(path).map_err(BoardError::cache("create", path))?;
        let mut b = Builder {
            out: BufWriter::new(file),
            path: path.into(),
        };
        b.archive(|w| {
            for f in FOLDERS.into_iter().chain(["usr/lib64"]) {
                w.add(f, if f == "tmp" { 0o1777 } else { 0o755 }, Kind::Dir)?;
            }
            for (name, target) in LINKS {
                w.add(name, 0o777, Kind::Link(target))?;
            }
            w.add(
                "etc/passwd",
                0o644,
                Kind::File(b"root:x:0:0:root:/root:/bin/sh\n"),
            )?;
            w.add("etc/group", 0o644, Kind::File(b"root:x:0:\n"))?;
            w.add("init", 0o755, Kind::File(INIT.as_bytes()))
        })?;
        Ok(b)
    }

    fn archive(
        &mut self,
        fill: impl FnOnce(&mut Writer<&mut BufWriter<File>>) -> io::Result<()>,
    ) -> Result<(), BoardError> {
        let path = self.path.clone();
        let mut w = Writer::new(&mut self.out);
        fill(&mut w)
            .and_then(|()| w.finish().map(|_| ()))
            .map_err(BoardError::cache("write", &path))
    }

    /// Appends a ready archive.
    ///
    /// # Errors
    /// When it cannot be read or appended.
    pub fn append(&mut self, archive: &Path) -> Result<(), BoardError> {
        let mut from = File::open(archive).map_err(BoardError::cache("read", archive))?;
        io::copy(&mut from, &mut self.out).map_err(BoardError::cache("write", &self.path))?;
        Ok(())
    }

    /// Adds the agent's job and its script.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn job(&mut self, job: &Job, script: &str) -> Result<(), BoardError> {
        let text = serde_json::to_vec(job)
            .map_err(|e| BoardError::cache("write", &self.path)(e.into()))?;
        self.archive(|w| {
            w.add(job::PATH, 0o644, Kind::File(&text))?;
            w.add(job::SCRIPT, 0o755, Kind::File(script.as_bytes()))
        })
    }

    /// Adds files; folders above them are made.
    ///
    /// # Errors
    /// When a guest path is not usable or a host file cannot be read.
    pub fn files(&mut self, files: &[GuestFile]) -> Result<(), BoardError> {
        let mut made: BTreeSet<String> = BTreeSet::new();
        for file in files {
            let guest = guest_path(&file.guest)?;
            let mut entries = Vec::new();
            match &file.content {
                Content::Bytes(data, mode) => {
                    entries.push((guest, *mode, Read::File(data.clone())))
                }
                Content::Host(host) => walk(host, guest, &mut entries)?,
            }
            self.archive(|w| {
                for (name, mode, what) in &entries {
                    parents(w, name, &mut made)?;
                    match what {
                        Read::Dir => {
                            if made.insert(name.clone()) {
                                w.add(name, *mode, Kind::Dir)?;
                            }
                        }
                        Read::File(data) => w.add(name, *mode, Kind::File(data))?,
                        Read::Link(target) => w.add(name, *mode, Kind::Link(target))?,
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Writes everything out.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> Result<(), BoardError> {
        self.out
            .flush()
            .map_err(BoardError::cache("write", &self.path))
    }
}

enum Read {
    Dir,
    File(Vec<u8>),
    Link(String),
}

/// Absolute, without `..`, as the guest's merged tree names it, without the leading slash.
pub(crate) fn guest_path(path: &str) -> Result<String, BoardError> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|p| !p.is_empty() && *p != ".")
        .collect();
    if !path.starts_with('/') || parts.is_empty() || parts.contains(&"..") || path.contains('\0') {
        return Err(BoardError::GuestPath { path: path.into() });
    }
    Ok(merged(&parts.join("/")))
}

fn parents<W: Write>(w: &mut Writer<W>, name: &str, made: &mut BTreeSet<String>) -> io::Result<()> {
    for (i, _) in name.match_indices('/') {
        let dir = &name[..i];
        if !FOLDERS.contains(&dir) && made.insert(dir.into()) {
            w.add(dir, 0o755, Kind::Dir)?;
        }
    }
    Ok(())
}

/// The content of a regular file that fits into a guest.
fn content(host: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::{Error, ErrorKind, Read};
    let (file, _) = amp_machine::open_regular(host)?;
    let mut data = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut data)?;
    if data.len() as u64 > LONGEST_FILE {
        let why = format!("longer than {} MiB", LONGEST_FILE >> 20);
        return Err(Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(data)
}

fn walk(host: &Path, guest: String, out: &mut Vec<(String, u32, Read)>) -> Result<(), BoardError> {
    let bad = |source| BoardError::HostFile {
        path: host.into(),
        source,
    };
    let meta = fs::metadata(host).map_err(bad)?;
    let mode = meta.permissions().mode() & 0o7777;
    if !meta.is_dir() {
        out.push((guest, mode, Read::File(content(host).map_err(bad)?)));
        return Ok(());
    }
    out.push((guest.clone(), mode, Read::Dir));
    let mut inner: Vec<PathBuf> = fs::read_dir(host)
        .map_err(bad)?
        .flatten()
        .map(|e| e.path())
        .collect();
    inner.sort();
    for path in inner {
        let Some(name) = path.file_name().and_then(|n| n.to_str()) else {
            continue;
        };
        let guest = format!("{guest}/{name}");
        // A link inside a folder stays a link: following it could loop.
        match fs::read_link(&path) {
            Ok(t) => out.push((guest, 0o777, Read::Link(t.to_string_lossy().into_owned()))),
            Err(_) => walk(&path, guest, out)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_paths() {
        assert_eq!(guest_path("/data/./x//y").unwrap(), "data/x/y");
        assert_eq!(guest_path("/bin/x").unwrap(), "usr/bin/x");
        for bad in ["x", "", "/", "/a/../b"] {
            assert!(guest_path(bad).is_err(), "{bad}");
        }
    }

    /// Bug 11 of the review: the kernel's log was waited for, whatever the user did.
    #[test]
    fn what_is_no_file_with_an_end_is_refused() {
        let t = tempfile::tempdir().unwrap();
        let long = t.path().join("long");
        File::create(&long)
            .unwrap()
            .set_len(LONGEST_FILE + 1)
            .unwrap();
        let fifo = t.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        for host in [long.as_path(), &fifo, Path::new("/dev/zero")] {
            let e = content(host).unwrap_err().to_string();
            assert!(
                e.contains("longer") || e.contains("not a regular file"),
                "{e}"
            );
        }
        // whoever may read it gets what there is of it, or that there is no more for now
        let _ = content(Path::new("/proc/kmsg"));
    }

    #[test]
    fn host_files_keep_modes_and_missing_ones_are_named() {
        let t = tempfile::tempdir().unwrap();
        let tool = t.path().join("d/tool");
        fs::create_dir(t.path().join("d")).unwrap();
        fs::write(&tool, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o750)).unwrap();
        std::os::unix::fs::symlink("tool", t.path().join("d/link")).unwrap();
        let out = t.path().join("initrd");
        let mut b = Builder::create(&out).unwrap();
        b.files(&[
            GuestFile::host(t.path().join("d"), "/opt/d"),
            GuestFile::bytes("x", "/etc/x"),
        ])
        .unwrap();
        b.job(
            &Job {
                interactive: false,
                collect: vec![],
            },
            "true\n",
        )
        .unwrap();
        b.finish().unwrap();
        let text = String::from_utf8_lossy(&fs::read(&out).unwrap()).into_owned();
        for name in [
            "opt\0",
            "opt/d\0",
            "opt/d/tool\0",
            "opt/d/link\0",
            "etc/x\0",
            "amp/script\0",
        ] {
            assert!(text.contains(name), "{name}");
        }
        assert!(text.contains("000081e8"), "mode 0750 is kept");
        let mut b = Builder::create(&out).unwrap();
        let missing = t.path().join("nope");
        let e = b
            .files(&[GuestFile::host(&missing, "/x")])
            .unwrap_err()
            .to_string();
        assert!(e.contains("nope"), "{e}");
    }
}
