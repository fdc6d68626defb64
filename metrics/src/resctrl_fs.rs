//! The kernel's resctrl file system, which monitors and divides caches.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What is needed of the resctrl file system. All paths are relative to its root.
pub trait ResctrlFs: Send {
    /// Makes a group.
    ///
    /// # Errors
    /// `ENOSPC` (28) when every RMID is in use.
    fn make(&mut self, group: &str) -> io::Result<()>;
    /// Removes a group; its tasks go back to the default one.
    ///
    /// # Errors
    /// As the system says.
    fn remove(&mut self, group: &str) -> io::Result<()>;
    /// Names in a folder.
    ///
    /// # Errors
    /// As the system says.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;
    /// The text of a file.
    ///
    /// # Errors
    /// As the system says.
    fn read(&self, file: &str) -> io::Result<String>;
    /// Writes a text to a file.
    ///
    /// # Errors
    /// As the system says.
    fn write(&mut self, file: &str, text: &str) -> io::Result<()>;
    /// Its root, for messages.
    fn root(&self) -> &Path;
}

/// The mounted file system.
#[derive(Debug)]
pub struct SysResctrl {
    root: PathBuf,
}

impl SysResctrl {
    /// The tree at `root` (`/sys/fs/resctrl`).
    pub fn new(root: &Path) -> SysResctrl {
        SysResctrl {
            root: root.to_owned(),
        }
    }
}

impl ResctrlFs for SysResctrl {
    fn make(&mut self, group: &str) -> io::Result<()> {
        std::fs::create_dir(self.root.join(group))
    }

    fn remove(&mut self, group: &str) -> io::Result<()> {
        std::fs::remove_dir(self.root.join(group))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.root.join(folder))?.flatten();
        Ok(entries
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect())
    }

    fn read(&self, file: &str) -> io::Result<String> {
        std::fs::read_to_string(self.root.join(file))
    }

    fn write(&mut self, file: &str, text: &str) -> io::Result<()> {
        // the files are the kernel's: none is ever made
        let mut file = OpenOptions::new().write(true).open(self.root.join(file))?;
        file.write_all(text.as_bytes())
    }

    fn root(&self) -> &Path {
        &self.root
    }
}
