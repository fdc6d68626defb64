//! The control socket of a running scheduler: what it is doing now, for `scx_amp ctl status`.
//!
//! The socket lies in a directory that only root can enter.

use anyhow::{bail, Context, Result};
use scx_stats::prelude::*;
use scx_stats_derive::Stats;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Where the socket is.
const DIR: &str = "/run/scx_amp";

/// What the scheduler is doing.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(top)]
pub struct Status {
    /// Policy.
    #[stat(desc = "policy")]
    pub policy: String,
    /// Provider.
    #[stat(desc = "metric provider")]
    pub provider: String,
    /// Seconds since the start.
    #[stat(desc = "seconds since the scheduler was attached")]
    pub uptime_s: f64,
    /// Ticks.
    #[stat(desc = "engine ticks since the start")]
    pub ticks: u64,
    /// Threads.
    #[stat(desc = "threads seen at the last tick")]
    pub threads: u64,
    /// Active threads.
    #[stat(desc = "threads offered to the policy at the last tick")]
    pub active: u64,
    /// Swaps.
    #[stat(desc = "threads moved between core types by the policy since the start")]
    pub swaps: u64,
    /// Median swap latency.
    #[stat(
        desc = "median time from the decision to the thread running on its new core type, microseconds (0 = none yet)"
    )]
    pub swap_latency_p50_us: f64,
    /// Placements in effect.
    #[stat(desc = "placements that took effect since the start")]
    pub placements: u64,
    /// Fallbacks.
    #[stat(desc = "times BPF shared fairly by itself because no tick came")]
    pub fallbacks: u64,
    /// Untracked threads.
    #[stat(desc = "threads that found the slot table full since the start")]
    pub untracked: u64,
}

/// A served status. The socket goes when this is dropped.
pub struct Server {
    status: Arc<Mutex<Status>>,
    _server: StatsServer<(), ()>,
    path: PathBuf,
}

impl Server {
    /// Starts serving.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start() -> Result<Server> {
        let path = socket_path(Path::new(DIR))?;
        let status = Arc::new(Mutex::new(Status::default()));
        let shared = status.clone();
        let data = StatsServerData::<(), ()>::new()
            .add_meta(Status::meta())
            .add_stats("top", Box::new(move |_, _| lock(&shared).to_json()));
        let server = StatsServer::new(data)
            .set_path(&path)
            .launch()
            .with_context(|| format!("cannot serve the status on {}", path.display()))?;
        Ok(Server {
            status,
            _server: server,
            path,
        })
    }

    /// Shows `status` from now on.
    pub fn show(&self, status: Status) {
        *lock(&self.status) = status;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn lock(m: &Mutex<Status>) -> std::sync::MutexGuard<'_, Status> {
    // a status is replaced in one step, so one that a panic left behind is whole
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The socket's path, in a directory that is made, or must be, root's alone.
fn socket_path(dir: &Path) -> Result<PathBuf> {
    if !dir.exists() {
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let meta = std::fs::symlink_metadata(dir).with_context(|| dir.display().to_string())?;
    let open = meta.permissions().mode() & 0o077 != 0;
    if !meta.is_dir() || open || meta.uid() != rustix::process::geteuid().as_raw() {
        bail!(
            "{}: must be a directory that only root can enter (mode 0700)",
            dir.display()
        );
    }
    Ok(dir.join("status.sock"))
}

/// The status of the running scheduler.
///
/// # Errors
/// When none is running, or the caller may not ask it.
pub fn ask() -> Result<Status> {
    let path = Path::new(DIR).join("status.sock");
    let mut client = StatsClient::new()
        .set_path(&path)
        .connect(None)
        .with_context(|| {
            format!(
                "{}: no scx_amp is running, or you are not root",
                path.display()
            )
        })?;
    client
        .request("stats", Vec::new())
        .context("the running scheduler does not answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_only_made_where_nobody_else_can_go() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("run");
        assert_eq!(socket_path(&dir).unwrap(), dir.join("status.sock"));
        assert_eq!(
            std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777,
            0o700
        );
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        let e = socket_path(&dir).unwrap_err().to_string();
        assert!(e.contains("0700"), "{e}");
    }
}
