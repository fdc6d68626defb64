//! How a program is to be started, and its start.

use super::process::Process;
use super::spawn::{Setup, Start};
use super::{refused, LaunchError};
use crate::{affinity, clock};
use rustix::fd::OwnedFd;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program, and how it is to be started.
#[derive(Debug)]
#[must_use = "nothing is started before `start` or `hold`"]
pub struct Launch {
    command: Vec<String>,
    pub(super) label: String,
    pub(super) cpus: Option<Vec<u32>>,
    pub(super) errors: Option<File>,
    pub(super) setup: Setup,
    dir: Option<PathBuf>,
    /// Whether it has our environment, to which `variables` are added.
    our_environment: bool,
    variables: Vec<(OsString, OsString)>,
    streams: [Option<OwnedFd>; 3],
}

impl Launch {
    /// The program of `command`: executable and arguments. It shares our standard streams, folder,
    /// environment, user and process group unless it is told otherwise.
    ///
    /// # Errors
    /// [`LaunchError::Empty`].
    pub fn new(command: &[String]) -> Result<Launch, LaunchError> {
        let exe = command.first().ok_or(LaunchError::Empty)?;
        Ok(Launch {
            label: format!("`{exe}`"),
            command: command.to_vec(),
            cpus: None,
            errors: None,
            setup: Setup::default(),
            dir: None,
            our_environment: true,
            variables: Vec::new(),
            streams: [None, None, None],
        })
    }

    /// What errors call the program: its executable unless said.
    pub fn called(mut self, label: impl Into<String>) -> Launch {
        self.label = label.into();
        self
    }

    /// In the folder `dir`.
    pub fn in_dir(mut self, dir: &Path) -> Launch {
        self.dir = Some(dir.to_owned());
        self
    }

    /// As another user and group, where given.
    pub fn as_user(mut self, user: Option<(u32, u32)>) -> Launch {
        self.setup.user = user;
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
        let nothing = || null().map(OwnedFd::from);
        self.streams = [Some(nothing()?), Some(nothing()?), Some(copy.into())];
        self.errors = Some(errors);
        self.setup.own_group = true;
        // no terminal interrupts it: only we do
        self.setup.interruptible = true;
        Ok(self)
    }

    /// In a process group of its own, which ends with the [`Process`]. A terminal interrupts it no
    /// more, and does not let it read.
    pub fn in_own_group(mut self) -> Launch {
        self.setup.own_group = true;
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
        launch.streams[1] = kept.map(OwnedFd::from);
        Ok(launch)
    }

    /// Its standard output is our standard error: ours is for results.
    ///
    /// # Errors
    /// When we have none.
    pub fn output_to_stderr(mut self) -> Result<Launch, LaunchError> {
        let ours = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3);
        let ours = ours.map_err(|e| refused("standard error")(e.into()))?;
        self.streams[1] = Some(ours);
        Ok(self)
    }

    /// With a variable in its environment.
    pub fn env(mut self, name: &str, value: &str) -> Launch {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// With an environment that is short and the same on every machine. It is copied to the stack,
    /// whose layout counts.
    pub fn clean_environment(mut self) -> Launch {
        self.our_environment = false;
        self.variables.clear();
        for name in ["PATH", "HOME"] {
            let value = std::env::var_os(name).unwrap_or_default();
            self.variables.push((name.into(), value));
        }
        self.env("LC_ALL", "C")
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

    /// All that the new process needs to know.
    pub(super) fn ready(&mut self) -> Result<Start, LaunchError> {
        let label = self.label.clone();
        // a string with a zero in it cannot be handed to a program
        let text = |bytes: Vec<u8>| {
            CString::new(bytes).map_err(|e| refused(format!("{label}: its command"))(e.into()))
        };
        let variables = self.environment().into_iter();
        let argv = self.command.iter().map(|a| text(a.clone().into_bytes()));
        let variable = |(name, value): (OsString, OsString)| {
            text([name.as_bytes(), b"=", value.as_bytes()].concat())
        };
        let dir = self.dir.take().map(|d| text(d.into_os_string().into_vec()));
        Ok(Start {
            argv: argv.collect::<Result<_, _>>()?,
            environment: variables.map(variable).collect::<Result<_, _>>()?,
            dir: dir.transpose()?,
            streams: std::mem::take(&mut self.streams),
            setup: self.setup,
            gate: None,
            label: self.label.clone(),
        })
    }

    fn environment(&mut self) -> Vec<(OsString, OsString)> {
        let mut all: Vec<(OsString, OsString)> = match self.our_environment {
            true => std::env::vars_os().collect(),
            false => Vec::new(),
        };
        for (name, value) in std::mem::take(&mut self.variables) {
            all.retain(|(n, _)| *n != name);
            all.push((name, value));
        }
        all
    }

    /// Starts the program. It dies with us, even when we are killed outright.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut self) -> Result<Process, LaunchError> {
        self.setup.dies_with_us = true;
        let start = self.ready()?;
        let started = clock::now();
        let pid = there(self.cpus.as_deref(), || start.spawn())??;
        Process::watch(pid, self.setup.own_group, self.errors, self.label, started)
    }
}

fn null() -> Result<File, LaunchError> {
    let file = File::options().read(true).write(true).open("/dev/null");
    file.map_err(refused("/dev/null"))
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
