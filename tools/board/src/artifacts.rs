//! Where our own binaries are: the plugin for QEMU and the programs for the guest.

use crate::arch::Arch;
use crate::cache::Cache;
use crate::error::BoardError;
use std::path::{Path, PathBuf};

/// File name of the plugin.
pub const PLUGIN: &str = "libamp_board_plugin.so";
/// The guest's agent.
pub const AGENT: &str = "amp-guest";
/// Command that builds everything.
pub const BUILD: &str = "tools/setup/build.sh";

/// Looks in `SCX_AMP_GUEST_DIR` (folders named after the architecture, or flat), then in the build
/// folder of the running program, then in the cache.
fn places(cache: &Cache, arch: Arch, plugin: bool) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if let Some(dir) = std::env::var_os("SCX_AMP_GUEST_DIR").map(PathBuf::from) {
        dirs.push(dir.join(arch.debian()));
        dirs.push(dir);
    }
    for target in target_folders() {
        if plugin {
            dirs.push(target.join("release"));
            dirs.push(target.join("release/deps"));
        } else {
            dirs.push(target.join(arch.triple()).join("release"));
        }
    }
    dirs.push(cache.path("guest").join(arch.debian()));
    if plugin {
        dirs.push(cache.path("guest"));
    }
    dirs
}

/// Cargo's target folders above the running program: `T/release/x`, `T/TRIPLE/release/x`,
/// `T/release/deps/x`.
fn target_folders() -> Vec<PathBuf> {
    let exe = std::env::current_exe().and_then(|p| p.canonicalize());
    let Ok(exe) = exe else { return Vec::new() };
    exe.ancestors()
        .skip(1)
        .take(5)
        .filter(|d| d.join("CACHEDIR.TAG").is_file() || d.join("release").is_dir())
        .map(Path::to_path_buf)
        .collect()
}

fn find(dirs: Vec<PathBuf>, name: &str) -> Result<PathBuf, BoardError> {
    match dirs.iter().map(|d| d.join(name)).find(|p| p.is_file()) {
        Some(p) => Ok(p),
        None => Err(BoardError::Artifact {
            name: name.into(),
            looked: dirs,
            command: BUILD.into(),
        }),
    }
}

/// The model plugin for QEMU on this machine.
///
/// # Errors
/// When it has not been built; the error names the places searched and the command.
pub fn plugin(cache: &Cache) -> Result<PathBuf, BoardError> {
    find(places(cache, Arch::host(), true), PLUGIN)
}

/// A program for the guest: `amp-guest`, `scx_amp`, `amp-workload`, `place` (for tests).
///
/// # Errors
/// When it has not been built; the error names the places searched and the command.
pub fn guest_binary(cache: &Cache, arch: Arch, name: &str) -> Result<PathBuf, BoardError> {
    find(places(cache, arch, false), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_command() {
        let t = tempfile::tempdir().unwrap();
        let cache = Cache::at(t.path()).unwrap();
        let e = guest_binary(&cache, Arch::Arm64, "no-such-binary")
            .unwrap_err()
            .to_string();
        assert!(e.contains("no-such-binary") && e.contains(BUILD), "{e}");
        let dir = cache.dir("guest/arm64").unwrap();
        std::fs::write(dir.join("no-such-binary"), "x").unwrap();
        let found = guest_binary(&cache, Arch::Arm64, "no-such-binary").unwrap();
        assert_eq!(found, dir.join("no-such-binary"));
    }
}
