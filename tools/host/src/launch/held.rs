//! A program that is started, but held before its first instruction.

use super::options::{there, Launch};
use super::process::Process;
use super::{refused, LaunchError};
use crate::clock;
use rustix::fd::AsRawFd;
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::Pid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Child;
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
        let ours = go.as_raw_fd();
        let setup = self.setup;
        // SAFETY: between fork and exec the closure only makes system calls, which is
        // async-signal-safe; it allocates nothing and takes no lock. `ours` is open in the child,
        // which has a copy of all our descriptors, and nothing else there uses it: our `go` is the
        // parent's.
        unsafe {
            self.command.pre_exec(move || {
                setup.apply()?;
                // else the child would wait for itself should we die
                rustix::io::close(ours);
                let pid = rustix::process::getpid().as_raw_nonzero().get();
                rustix::io::write(&ready, &pid.to_ne_bytes())?;
                match rustix::io::read(&wait_end, &mut [0u8; 1])? {
                    1 => Ok(()),
                    _ => Err(rustix::io::Errno::CANCELED.into()),
                }
            });
        }
        let mut command = self.command;
        // `spawn` returns only when the program runs, so that another thread must wait for it. It
        // inherits our CPUs.
        let starter = there(self.cpus.as_deref(), || {
            std::thread::spawn(move || command.spawn())
        })?;
        let mut pid = [0; 4];
        if File::from(ready_end).read_exact(&mut pid).is_err() {
            return Err(LaunchError::Program {
                source: match join(starter) {
                    Ok(_) => io::Error::other("it did not start"),
                    Err(e) => e,
                },
                program: self.program,
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
            program: self.program,
            label: self.label,
            own_group: self.own_group,
            errors: self.errors,
        })
    }
}

/// A process that waits just before its program.
pub struct Held {
    pid: Pid,
    go: File,
    starter: JoinHandle<io::Result<Child>>,
    program: String,
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
        match join(self.starter) {
            Ok(child) => Process::watch(child, self.own_group, self.errors, self.label, started),
            Err(source) => Err(LaunchError::Program {
                program: self.program,
                source,
            }),
        }
    }
}

fn join(starter: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    starter
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the starting thread failed")))
}
