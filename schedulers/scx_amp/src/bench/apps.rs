//! Starting the programs of a workload, and knowing when they end.
//!
//! A program is started directly, never through a shell; in a process group of its own, so that what it starts ends
//! with it; as the invoking user when the bench itself runs under `sudo`; and it dies with the bench even when the
//! bench is killed outright.

use crate::clock;
use amp_metrics::Nanos;
use anyhow::{bail, Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{kill_process_group, pidfd_open, Pid, PidfdFlags, Signal};
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// A program to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its label in the workload.
    pub name: String,
    /// Executable and arguments.
    pub command: Vec<String>,
    /// Scheduling weight, 100 = nice 0.
    pub weight: u32,
}

/// How programs are started.
#[derive(Debug)]
pub struct Launcher {
    /// Their working directory.
    pub workdir: PathBuf,
    /// User and group they run as; the bench's own when `None`.
    pub user: Option<(u32, u32)>,
    /// The CPUs a program may use unless it is told otherwise.
    pub cpus: Vec<u32>,
}

/// A started program. Dropping it kills its process group and reaps it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pidfd: OwnedFd,
    errors: File,
    /// When it was started.
    pub started: Nanos,
}

/// The nice value whose weight is nearest to `weight` percent of the default: each step is a factor of 1.25.
pub fn nice_of(weight: u32) -> i32 {
    let steps = (f64::from(weight.max(1)) / 100.0).ln() / 1.25_f64.ln();
    (-steps.round()).clamp(-20.0, 19.0) as i32
}

impl Launcher {
    /// Starts `program`, on `cpus` only when given.
    ///
    /// # Errors
    /// When it cannot be started; the error names the program and its executable.
    pub fn start(&self, program: &Program, cpus: Option<&[u32]>) -> Result<Running> {
        let Some((exe, args)) = program.command.split_first() else {
            bail!("app `{}`: `command` is empty", program.name);
        };
        let errors = tempfile::tempfile().context("cannot create a temporary file")?;
        let mut cmd = Command::new(exe);
        cmd.args(args).current_dir(&self.workdir).process_group(0);
        cmd.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors.try_clone()?);
        if let Some((uid, gid)) = self.user {
            cmd.uid(uid).gid(gid);
        }
        let parent = rustix::process::getpid();
        // SAFETY: between fork and exec the closure only makes two system calls, which is async-signal-safe; it
        // allocates nothing and takes no lock.
        unsafe {
            cmd.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                match rustix::process::getppid() {
                    Some(p) if p == parent => Ok(()),
                    _ => Err(rustix::io::Errno::SRCH.into()), // the bench died in between
                }
            });
        }
        let started = clock::now();
        let spawned = on_cpus(cpus.unwrap_or(&self.cpus), || cmd.spawn())?;
        let child = spawned.with_context(|| {
            format!(
                "app `{}`: cannot start `{exe}` in {}",
                program.name,
                self.workdir.display()
            )
        })?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty())
            .with_context(|| format!("app `{}`: cannot watch process {pid}", program.name))?;
        let running = Running {
            child,
            pidfd,
            errors,
            started,
        };
        let nice = nice_of(program.weight);
        if nice != 0 {
            rustix::process::setpriority_process(Some(pid), nice).with_context(|| {
                format!(
                    "app `{}`: weight {} needs nice {nice}",
                    program.name, program.weight
                )
            })?;
        }
        Ok(running)
    }
}

/// Restricts the calling thread to `cpus`.
///
/// # Errors
/// When none of them is online.
pub fn stay_on(cpus: &[u32]) -> Result<()> {
    let mut set = CpuSet::new();
    for c in cpus
        .iter()
        .map(|c| *c as usize)
        .filter(|c| *c < CpuSet::MAX_CPU)
    {
        set.set(c);
    }
    sched_setaffinity(None, &set).with_context(|| format!("cannot use CPUs {cpus:?}"))
}

/// Runs `f` with this thread on `cpus`: what it starts inherits them, with no moment elsewhere.
///
/// # Errors
/// When none of them is online.
pub(crate) fn on_cpus<T>(cpus: &[u32], f: impl FnOnce() -> T) -> Result<T> {
    let before = sched_getaffinity(None).context("sched_getaffinity")?;
    stay_on(cpus)?;
    let out = f();
    sched_setaffinity(None, &before).context("sched_setaffinity")?;
    Ok(out)
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_nonzero().get()
    }

    /// Whether it has ended: reaps it when it has.
    ///
    /// # Errors
    /// When it failed; the error shows the end of what it wrote to standard error.
    pub fn ended(&mut self, name: &str) -> Result<bool> {
        match self
            .child
            .try_wait()
            .with_context(|| format!("app `{name}`"))?
        {
            None => Ok(false),
            Some(s) if s.success() => Ok(true),
            Some(s) => bail!("app `{name}` {}{}", told(s), self.last_words()),
        }
    }

    fn last_words(&mut self) -> String {
        let mut text = Vec::new();
        let from = self
            .errors
            .metadata()
            .map_or(0, |m| m.len().saturating_sub(2000));
        let read = self
            .errors
            .seek(SeekFrom::Start(from))
            .and_then(|_| self.errors.by_ref().take(2000).read_to_end(&mut text));
        match read {
            Ok(n) if n > 0 => format!(":\n{}", String::from_utf8_lossy(&text).trim_end()),
            _ => String::new(),
        }
    }
}

fn told(s: ExitStatus) -> String {
    match (s.code(), s.signal()) {
        (Some(c), _) => format!("ended with status {c}"),
        (None, Some(n)) => format!("was killed by signal {n}"),
        (None, None) => "failed".into(),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The group: a program may have started others. Nobody else can have taken the number, because the leader
        // is reaped only here or in `ended`, after which the group may only hold what it left behind.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Waits until one of `running` may have ended, or `timeout` has passed. A signal ends the wait early.
///
/// # Errors
/// When the kernel refuses to wait.
pub fn wait_any<'a>(running: impl Iterator<Item = &'a Running>, timeout: Duration) -> Result<()> {
    let mut fds: Vec<PollFd<'_>> = running
        .map(|r| PollFd::new(&r.pidfd, PollFlags::IN))
        .collect();
    let ts = Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    match poll(&mut fds, Some(&ts)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e).context("waiting for the programs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher() -> Launcher {
        Launcher {
            workdir: std::env::temp_dir(),
            user: None,
            cpus: vec![0],
        }
    }

    fn program(command: &[&str]) -> Program {
        let command = command.iter().map(|s| (*s).into()).collect();
        Program {
            name: "p".into(),
            command,
            weight: 100,
        }
    }

    fn run_to_end(r: &mut Running) -> Result<()> {
        while !r.ended("p")? {
            wait_any(std::iter::once(&*r), Duration::from_secs(10))?;
        }
        Ok(())
    }

    #[test]
    fn weights_become_the_nearest_nice_value() {
        assert_eq!(
            [100, 80, 125, 1024, 1, 10_000].map(nice_of),
            [0, 1, -1, -10, 19, -20]
        );
    }

    #[test]
    fn a_program_runs_to_its_end() {
        let mut r = launcher().start(&program(&["true"]), Some(&[0])).unwrap();
        run_to_end(&mut r).unwrap();
    }

    #[test]
    fn failure_is_told_with_the_programs_own_words() {
        let mut r = launcher()
            .start(&program(&["ls", "/nonexistent-dir"]), None)
            .unwrap();
        let e = run_to_end(&mut r).unwrap_err().to_string();
        assert!(
            e.contains("app `p` ended with status") && e.contains("nonexistent-dir"),
            "{e}"
        );
    }

    #[test]
    fn a_missing_program_is_named() {
        let e = launcher()
            .start(&program(&["no-such-program"]), None)
            .unwrap_err()
            .to_string();
        assert!(e.contains("no-such-program"), "{e}");
    }

    #[test]
    fn dropping_kills_the_whole_group() {
        let r = launcher()
            .start(&program(&["sh", "-c", "sleep 1000 & sleep 1000"]), None)
            .unwrap();
        let pid = Pid::from_raw(r.pid()).unwrap();
        drop(r);
        // the group is gone as soon as its last member has been reaped, which init does for the orphan
        for _ in 0..500 {
            if rustix::process::test_kill_process_group(pid).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the process group is still there");
    }
}
