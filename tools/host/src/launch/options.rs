//! How a program is to be started, and its start.

use super::process::Process;
use super::{refused, LaunchError};
use crate::{affinity, clock};
use rustix::process::{Resource, Signal};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A program, and how it is to be started.
#[derive(Debug)]
#[must_use = "nothing is started before `start` or `hold`"]
pub struct Launch {
    pub(super) command: Command,
    pub(super) program: String,
    pub(super) label: String,
    pub(super) cpus: Option<Vec<u32>>,
    pub(super) own_group: bool,
    pub(super) errors: Option<File>,
    pub(super) setup: Setup,
}

/// What the new process does before it becomes the program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup {
    fixed_addresses: bool,
    cpu_seconds: Option<u64>,
    /// SIGINT ends it, although a shell that put us into the background has had us ignore it.
    interruptible: bool,
}

impl Setup {
    /// Only system calls, for it runs between fork and exec.
    pub(super) fn apply(self) -> io::Result<()> {
        if self.fixed_addresses {
            // SAFETY: the call takes a number and touches no memory of ours.
            unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        }
        if self.interruptible {
            // SAFETY: the call takes two numbers; there is no handler of ours for it to keep.
            unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        }
        if let Some(seconds) = self.cpu_seconds {
            let mut limit = rustix::process::getrlimit(Resource::Cpu);
            limit.current = Some(limit.maximum.map_or(seconds, |m| m.min(seconds)));
            rustix::process::setrlimit(Resource::Cpu, limit)?;
        }
        Ok(())
    }
}

impl Launch {
    /// The program of `command`: executable and arguments. It shares our standard streams, folder,
    /// environment, user and process group unless it is told otherwise.
    ///
    /// # Errors
    /// [`LaunchError::Empty`].
    pub fn new(command: &[String]) -> Result<Launch, LaunchError> {
        let (exe, args) = command.split_first().ok_or(LaunchError::Empty)?;
        let mut cmd = Command::new(exe);
        cmd.args(args);
        Ok(Launch {
            command: cmd,
            program: exe.clone(),
            label: format!("`{exe}`"),
            cpus: None,
            own_group: false,
            errors: None,
            setup: Setup::default(),
        })
    }

    /// What errors call the program: its executable unless said.
    pub fn called(mut self, label: impl Into<String>) -> Launch {
        self.label = label.into();
        self
    }

    /// In the folder `dir`.
    pub fn in_dir(mut self, dir: &Path) -> Launch {
        self.command.current_dir(dir);
        self
    }

    /// As another user and group, where given.
    pub fn as_user(mut self, user: Option<(u32, u32)>) -> Launch {
        if let Some((uid, gid)) = user {
            self.command.uid(uid).gid(gid);
        }
        self
    }

    /// On these CPUs only, from the first instruction on.
    pub fn on_cpus(mut self, cpus: &[u32]) -> Launch {
        self.cpus = Some(cpus.to_vec());
        self
    }

    /// Silent and apart: reads and writes nothing of ours, standard error is kept for
    /// [`Process::last_words`]; in a process group of its own, which is killed with the
    /// [`Process`], so that what the program starts ends with it.
    ///
    /// # Errors
    /// When there can be no temporary file.
    pub fn apart(mut self) -> Result<Launch, LaunchError> {
        let no_file = || refused("cannot create a temporary file");
        let errors = tempfile::tempfile().map_err(no_file())?;
        let copy = errors.try_clone().map_err(no_file())?;
        self.command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(copy);
        self.errors = Some(errors);
        self.own_group = true;
        // no terminal interrupts it: only we do
        self.setup.interruptible = true;
        Ok(self)
    }

    /// In a process group of its own, which ends with the [`Process`]. A terminal interrupts it no
    /// more, and does not let it read.
    pub fn in_own_group(mut self) -> Launch {
        self.command.process_group(0);
        self.own_group = true;
        self.setup.interruptible = true;
        self
    }

    /// As [`apart`](Self::apart), and standard output is kept with standard error.
    ///
    /// # Errors
    /// When there can be no temporary file.
    pub fn apart_with_output(self) -> Result<Launch, LaunchError> {
        let mut launch = self.apart()?;
        let kept = launch.errors.as_ref().map(File::try_clone).transpose();
        let kept = kept.map_err(refused("cannot share a temporary file"))?;
        launch
            .command
            .stdout(kept.map_or_else(Stdio::null, Stdio::from));
        Ok(launch)
    }

    /// Its standard output is our standard error: ours is for results.
    ///
    /// # Errors
    /// When we have none.
    pub fn output_to_stderr(mut self) -> Result<Launch, LaunchError> {
        let ours = rustix::io::dup(rustix::stdio::stderr());
        let ours = ours.map_err(|e| refused("standard error")(e.into()))?;
        self.command.stdout(Stdio::from(ours));
        Ok(self)
    }

    /// With a variable in its environment.
    pub fn env(mut self, name: &str, value: &str) -> Launch {
        self.command.env(name, value);
        self
    }

    /// With an environment that is short and the same on every machine. It is copied to the stack,
    /// whose layout counts.
    pub fn clean_environment(mut self) -> Launch {
        self.command.env_clear();
        for name in ["PATH", "HOME"] {
            self.command
                .env(name, std::env::var_os(name).unwrap_or_default());
        }
        self.command.env("LC_ALL", "C");
        self
    }

    /// With the same addresses in every run: cache conflicts and collisions in the branch predictor
    /// go with them. A kernel without it, or one that does not let us, gives runs that differ more.
    pub fn fixed_addresses(mut self) -> Launch {
        self.setup.fixed_addresses = true;
        self
    }

    /// Ended by the kernel after so much CPU time, in whole seconds, even when we are gone.
    pub fn cpu_time_limit(mut self, limit: Duration) -> Launch {
        self.setup.cpu_seconds = Some(limit.as_secs());
        self
    }

    /// Starts the program. It dies with us, even when we are killed outright.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut self) -> Result<Process, LaunchError> {
        let parent = rustix::process::getpid();
        let setup = self.setup;
        // SAFETY: between fork and exec the closure only makes system calls, which is
        // async-signal-safe; it allocates nothing and takes no lock.
        unsafe {
            self.command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                match rustix::process::getppid() {
                    Some(p) if p == parent => setup.apply(),
                    _ => Err(rustix::io::Errno::SRCH.into()), // we died in between
                }
            });
        }
        let started = clock::now();
        let cpus = self.cpus.take();
        let spawned = there(cpus.as_deref(), || self.command.spawn())?;
        match spawned {
            Ok(child) => Process::watch(child, self.own_group, self.errors, self.label, started),
            Err(source) => Err(LaunchError::Program {
                program: self.program,
                source,
            }),
        }
    }
}

/// Runs `f` on `cpus`, where given.
pub(super) fn there<T>(cpus: Option<&[u32]>, f: impl FnOnce() -> T) -> Result<T, LaunchError> {
    match cpus {
        None => Ok(f()),
        Some(cpus) => affinity::on_cpus(cpus, f).map_err(|e| LaunchError::System {
            what: format!("{e:#}"),
            source: io::ErrorKind::InvalidInput.into(),
        }),
    }
}
