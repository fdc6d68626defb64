//! The folder that programs run in, with the input files that the catalogue makes.

use amp_host::bad_input;
use amp_workloads::catalogue::{Catalogue, CatalogueError, Needs};
use amp_workloads::inputs;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// A folder for a bench; a temporary one is removed with it.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl WorkDir {
    /// `asked`, or a temporary folder, that `user` may enter and write to.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(asked: Option<&Path>, user: Option<(u32, u32)>) -> Result<WorkDir> {
        if let Some(path) = asked {
            if !path.is_dir() {
                return Err(bad_input(format!(
                    "--workdir {}: no such folder",
                    path.display()
                )));
            }
            return Ok(WorkDir {
                path: path.into(),
                _temporary: None,
            });
        }
        let dir = tempfile::Builder::new()
            .prefix("scx_amp-bench-")
            .tempdir()
            .context("cannot create a temporary folder")?;
        let path = dir.path().to_path_buf();
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&path, Some(uid), Some(gid))
                .with_context(|| path.display().to_string())?;
        }
        Ok(WorkDir {
            path,
            _temporary: Some(dir),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the inputs that these commands read. A program that the catalogue does not know brings
    /// its own.
    ///
    /// # Errors
    /// When a file cannot be made; the error names the Debian package that is missing.
    pub fn prepare<'a>(&self, commands: impl Iterator<Item = &'a [String]>) -> Result<()> {
        let catalogue = Catalogue::shipped()?;
        let mut all = Needs::default();
        for command in commands {
            match catalogue.needs([command]) {
                Ok(n) => all.inputs.extend(n.inputs),
                Err(CatalogueError::UnknownProgram { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        inputs::prepare(all.inputs.values(), Path::new("/"), &self.path)?;
        Ok(())
    }
}
