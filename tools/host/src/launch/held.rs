//! A program that is started, but held before its first instruction.

use super::options::{there, Launch};
use super::process::Process;
use super::spawn::Gate;
use super::{refused, LaunchError};
use crate::clock;
use rustix::fd::AsRawFd;
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::Pid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::thread::JoinHandle;

impl Launch {
    /// Starts the process, but holds it before the program's first instruction. The process is a
    /// child of a thread that ends when it is released. So it does not die with us as after
    /// [`start`](Self::start): a parent-death signal would come at once.
    ///
    /// # Errors
    /// When no process can be made, or it cannot become what was asked for. Whether the program
    /// exists shows at the [release](Held::release).
    pub fn hold(mut self) -> Result<Held, LaunchError> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let no_pipe = |e: rustix::io::Errno| refused("cannot make a pipe")(e.into());
        let (ready_end, ready) = pipe().map_err(no_pipe)?;
        let (wait_end, go) = pipe().map_err(no_pipe)?;
        let mut start = self.ready()?;
        let program = start.program();
        start.gate = Some(Gate {
            ready,
            wait: wait_end,
            ours: go.as_raw_fd(),
        });
        // `spawn` returns only when the program runs, so that another thread must wait for it. It
        // inherits our CPUs.
        let starter = there(self.cpus.as_deref(), || {
            std::thread::spawn(move || start.spawn())
        })?;
        let mut pid = [0; 4];
        if File::from(ready_end).read_exact(&mut pid).is_err() {
            let source = io::Error::other("it did not start");
            return Err(match join(starter) {
                Ok(_) => LaunchError::Program { program, source },
                Err(e) => e,
            });
        }
        let Some(pid) = Pid::from_raw(i32::from_ne_bytes(pid)) else {
            return Err(refused("a process without a number")(
                io::ErrorKind::InvalidData.into(),
            ));
        };
        Ok(Held {
            pid,
            go: File::from(go),
            starter,
            label: self.label,
            own_group: self.setup.own_group,
            errors: self.errors,
        })
    }
}

/// A process that waits just before its program.
pub struct Held {
    pid: Pid,
    go: File,
    starter: JoinHandle<Result<Pid, LaunchError>>,
    label: String,
    own_group: bool,
    errors: Option<File>,
}

impl Held {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Lets the program run.
    ///
    /// # Errors
    /// [`LaunchError::Program`] when there is no such program.
    pub fn release(mut self) -> Result<Process, LaunchError> {
        let started = clock::now();
        self.go
            .write_all(&[1])
            .map_err(refused("cannot start the command"))?;
        let pid = join(self.starter)?;
        Process::watch(pid, self.own_group, self.errors, self.label, started)
    }
}

fn join(starter: JoinHandle<Result<Pid, LaunchError>>) -> Result<Pid, LaunchError> {
    starter.join().unwrap_or_else(|_| {
        let source = io::Error::other("its thread failed");
        Err(refused("cannot start the command")(source))
    })
}
