//! `run --only-cgroup`: the threads of one control group are scheduled, all others are left to the
//! kernel.
//!
//! The mechanism is loaded for threads of scheduling class `SCHED_EXT` only; whoever is in the
//! group, or in one below it, is put into that class, and put back when it leaves or the scheduler
//! ends. Threads inherit the class from who creates them.

use amp_host::bad_input;
use anyhow::{Context, Result};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Number of the class; the C library has no name for it yet.
const SCHED_EXT: i32 = 7;

/// Where control groups are mounted, for a path that is not absolute.
const ROOT: &str = "/sys/fs/cgroup";

/// The threads of a control group, kept in class `SCHED_EXT` until this is dropped.
#[derive(Debug)]
pub struct OnlyCgroup {
    dir: PathBuf,
    taken: HashSet<i32>,
}

impl OnlyCgroup {
    /// The group at `path`, absolute or below `/sys/fs/cgroup`. Takes nobody yet.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when it is not a control group.
    pub fn new(path: &Path) -> Result<OnlyCgroup> {
        let dir = Path::new(ROOT).join(path);
        if !dir.join("cgroup.procs").is_file() {
            return Err(bad_input(format!(
                "--only-cgroup {}: no control group ({} has no `cgroup.procs`): give its path, absolute or below {ROOT}",
                path.display(),
                dir.display()
            )));
        }
        Ok(OnlyCgroup {
            dir,
            taken: HashSet::new(),
        })
    }

    /// Takes in whoever has come since, and puts back who has left.
    ///
    /// # Errors
    /// When the group is no longer there.
    pub fn refresh(&mut self) -> Result<()> {
        let mut there = HashSet::new();
        members(&self.dir, &mut there)
            .with_context(|| format!("control group {}", self.dir.display()))?;
        for tid in &there {
            // whoever chose a class of its own (real-time, batch) has its reasons
            if !self.taken.contains(tid) && class(*tid) == Some(libc::SCHED_OTHER) {
                set_class(*tid, SCHED_EXT);
            }
        }
        for tid in self.taken.difference(&there) {
            put_back(*tid);
        }
        self.taken = there;
        Ok(())
    }
}

impl Drop for OnlyCgroup {
    fn drop(&mut self) {
        // those born since the last look as well
        let _ = members(&self.dir, &mut self.taken);
        self.taken.iter().for_each(|tid| put_back(*tid));
    }
}

/// Adds the threads of the group at `dir` and of all below it.
fn members(dir: &Path, to: &mut HashSet<i32>) -> std::io::Result<()> {
    for pid in std::fs::read_to_string(dir.join("cgroup.procs"))?.lines() {
        // a process that has ended meanwhile has no threads
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        let tids = tasks.filter_map(|t| t.ok()?.file_name().to_str()?.parse::<i32>().ok());
        to.extend(tids);
    }
    for entry in std::fs::read_dir(dir)?.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            // a group may go at any time
            let _ = members(&entry.path(), to);
        }
    }
    Ok(())
}

fn put_back(tid: i32) {
    if class(tid) == Some(SCHED_EXT) {
        set_class(tid, libc::SCHED_OTHER);
    }
}

/// The thread's class; `None` when it has gone.
fn class(tid: i32) -> Option<i32> {
    // SAFETY: takes a number and touches no memory of ours.
    let class = unsafe { libc::sched_getscheduler(tid) };
    (class >= 0).then_some(class & !libc::SCHED_RESET_ON_FORK)
}

fn set_class(tid: i32, class: i32) {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` outlives the call, which only reads it.
    let r = unsafe { libc::sched_setscheduler(tid, class, &param) };
    if r != 0 {
        // the thread has gone, mostly
        log::debug!("thread {tid}: {}", std::io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_control_group_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let e = OnlyCgroup::new(dir.path()).unwrap_err();
        assert!(e.is::<amp_host::BadInput>());
        assert!(e.to_string().contains("cgroup.procs"), "{e}");
    }

    #[test]
    fn threads_of_all_groups_below_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        std::fs::write(dir.path().join("a/cgroup.procs"), "999999999\n").unwrap();
        let me = std::process::id();
        std::fs::write(below.join("cgroup.procs"), format!("{me}\n")).unwrap();
        let mut found = HashSet::new();
        members(dir.path(), &mut found).unwrap();
        assert!(found.contains(&(me as i32)));
        assert!(!found.contains(&999_999_999));
        assert_eq!(class(me as i32), Some(libc::SCHED_OTHER));
    }
}
