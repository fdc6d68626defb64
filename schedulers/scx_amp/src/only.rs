//! `run --only-cgroup`: the threads of one control group are scheduled, all others are left to the
//! kernel.
//!
//! The mechanism is loaded for threads of scheduling class `SCHED_EXT` only; whoever is in the
//! group, or in one below it, is put into that class, and put back when it leaves or the scheduler
//! ends. Threads inherit the class from who creates them.
//!
//! The kernel ranks `SCHED_EXT` below its fair class: a thread of the group runs where no other
//! thread wants to, and gets 5 % of a CPU that others keep busy. Kernels before 7.0 give it nothing
//! there, and end the scheduler after some seconds; they are refused.

use amp_host::bad_input;
use anyhow::Result;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Number of the class; the C library has no name for it yet.
const SCHED_EXT: i32 = 7;

/// Where control groups are mounted, for a path that is not absolute.
const ROOT: &str = "/sys/fs/cgroup";

/// The first kernel that keeps a share of each CPU for `SCHED_EXT`.
const KEEPS_A_SHARE: (u32, u32) = (7, 0);

/// What the user should know before the group is put into `SCHED_EXT`.
pub const BELOW_OTHERS: &str =
    "--only-cgroup: the kernel runs threads of other groups first; the group gets what they leave, \
     and 5 % of a CPU that they keep busy";

/// Checks that the kernel named `release` (as `uname -r` says) lets threads of `SCHED_EXT` run
/// beside busy threads of the fair class.
///
/// # Errors
/// [`amp_host::BadInput`] when it does not.
fn check_kernel(release: &str) -> Result<()> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|n| n.parse::<u32>().ok());
    match (number(), number()) {
        (Some(major), Some(minor)) if (major, minor) < KEEPS_A_SHARE => Err(bad_input(format!(
            "--only-cgroup: on Linux {} a busy thread outside of the group would keep the group's threads from its \
             CPU for good, and the kernel would end the scheduler: use Linux {}.{} or newer, or schedule all threads",
            release.trim(),
            KEEPS_A_SHARE.0,
            KEEPS_A_SHARE.1
        ))),
        // what cannot be read is left to the kernel
        _ => Ok(()),
    }
}

/// The folder of the control group at `path`, absolute or below `/sys/fs/cgroup`, that `option`
/// asks for.
///
/// # Errors
/// [`amp_host::BadInput`] when it is not a control group.
fn group(option: &str, path: &Path) -> Result<PathBuf> {
    let dir = Path::new(ROOT).join(path);
    if dir.join("cgroup.procs").is_file() {
        return Ok(dir);
    }
    Err(bad_input(format!(
        "{option} {}: no control group ({} has no `cgroup.procs`): give its path, absolute or below {ROOT}",
        path.display(),
        dir.display()
    )))
}

/// The name of the control group at `path` as `/proc/PID/cgroup` shows it, that `option` asks for.
///
/// # Errors
/// [`amp_host::BadInput`] when it is not a control group.
pub fn name(option: &str, path: &Path) -> Result<String> {
    let dir = group(option, path)?;
    let below = dir.strip_prefix(ROOT).ok().and_then(Path::to_str);
    let below = below.map(|p| format!("/{}", p.trim_matches('/')));
    below.ok_or_else(|| {
        bad_input(format!(
            "{option} {}: want a control group below {ROOT}",
            path.display()
        ))
    })
}

/// The threads of a control group, kept in class `SCHED_EXT` until this is dropped.
#[derive(Debug)]
pub struct OnlyCgroup {
    dir: PathBuf,
    taken: HashSet<i32>,
    /// Why nobody can be seen in the group, told once.
    gone: Option<std::io::ErrorKind>,
}

impl OnlyCgroup {
    /// The group at `path`, absolute or below `/sys/fs/cgroup`. Takes nobody yet.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when it is not a control group, or the kernel is too old for this.
    pub fn new(path: &Path) -> Result<OnlyCgroup> {
        let dir = group("--only-cgroup", path)?;
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        check_kernel(&release.unwrap_or_default())?;
        Ok(OnlyCgroup {
            dir,
            taken: HashSet::new(),
            gone: None,
        })
    }

    /// Takes in whoever has come since, and puts back who has left. A group that is removed is
    /// empty until it is made again.
    pub fn refresh(&mut self) {
        let mut there = HashSet::new();
        let gone = members(&self.dir, &mut there).err();
        if let Some(e) = gone.as_ref().filter(|e| Some(e.kind()) != self.gone) {
            let dir = self.dir.display();
            log::warn!("control group {dir}: {e}: nobody is scheduled until it is there again");
        }
        self.gone = gone.map(|e| e.kind());
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
    fn kernels_that_starve_the_group_are_refused() {
        for old in ["6.18.15+deb13-cloud-amd64\n", "6.19.0"] {
            let e = check_kernel(old).unwrap_err();
            assert!(e.is::<amp_host::BadInput>());
            assert!(e.to_string().contains("7.0 or newer"), "{e}");
        }
        for new in ["7.0.13+deb13-cloud-amd64\n", "7.3.4", "10.1-rc1", "", "x"] {
            assert!(check_kernel(new).is_ok(), "{new}");
        }
    }

    /// Bug 20 of the review: it ended the scheduler.
    #[test]
    fn a_group_that_is_removed_is_empty_until_it_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("group");
        let nobody = 999_999_999;
        let mut only = OnlyCgroup {
            dir: group.clone(),
            taken: HashSet::from([nobody]),
            gone: None,
        };
        only.refresh();
        assert!(only.taken.is_empty());
        assert_eq!(only.gone, Some(std::io::ErrorKind::NotFound));
        std::fs::create_dir(&group).unwrap();
        std::fs::write(group.join("cgroup.procs"), "").unwrap();
        only.refresh();
        assert_eq!(only.gone, None);
    }

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
