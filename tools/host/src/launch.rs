//! Programs that a command starts: how they are started, and how they end.
//!
//! A program is started directly, never through a shell. [`Launch`] says how; [`Launch::start`]
//! lets the program run at once, [`Launch::hold`] stops it before its first instruction, so that
//! counters can be opened on it:
//!
//! ```text
//! Launch ──start──────────────────► Process ──ended, status──► exit status
//!    └─────hold──► Held ──release──────┘
//! ```

use crate::{affinity, clock};
use amp_metrics::Nanos;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{
    kill_process, kill_process_group, pidfd_open, Pid, PidfdFlags, Resource, Signal,
};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// How long a signal's handler may take to say what is to be done.
const HANDLER: Duration = Duration::from_millis(10);
/// Bytes of a program's standard error that an error shows.
const LAST_WORDS: u64 = 2000;

/// Why a program did not run, or not to its end.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// There is no executable to start.
    #[error("an empty command")]
    Empty,
    /// The executable cannot be run: the program's own fault, or its folder's.
    #[error("cannot run `{program}`")]
    Program {
        /// The executable as it was named.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The program ended with another status than 0.
    #[error("{label} {how}{words}")]
    Failed {
        /// Which program.
        label: String,
        /// Its status, or the signal that ended it.
        how: String,
        /// The end of what it wrote to standard error, where that is kept.
        words: String,
    },
    /// The system refused something.
    #[error("{what}")]
    System {
        /// The step that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

fn refused(what: impl Into<String>) -> impl FnOnce(io::Error) -> LaunchError {
    let what = what.into();
    move |source| LaunchError::System { what, source }
}

/// A program, and how it is to be started.
#[derive(Debug)]
#[must_use = "nothing is started before `start` or `hold`"]
pub struct Launch {
    command: Command,
    program: String,
    label: String,
    cpus: Option<Vec<u32>>,
    own_group: bool,
    errors: Option<File>,
    setup: Setup,
}

/// What the new process does before it becomes the program.
#[derive(Clone, Copy, Debug, Default)]
struct Setup {
    fixed_addresses: bool,
    cpu_seconds: Option<u64>,
}

impl Setup {
    /// Only system calls, for it runs between fork and exec.
    fn apply(self) -> io::Result<()> {
        if self.fixed_addresses {
            // SAFETY: the call takes a number and touches no memory of ours.
            unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
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
        Ok(self)
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

/// Runs `f` on `cpus`, where given.
fn there<T>(cpus: Option<&[u32]>, f: impl FnOnce() -> T) -> Result<T, LaunchError> {
    match cpus {
        None => Ok(f()),
        Some(cpus) => affinity::on_cpus(cpus, f).map_err(|e| LaunchError::System {
            what: format!("{e:#}"),
            source: io::ErrorKind::InvalidInput.into(),
        }),
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

/// A child, whose process group is killed with it where it has one of its own.
#[derive(Debug)]
struct Owned {
    child: Child,
    own_group: bool,
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.own_group {
            // The group: a program may have started others. Nobody else can have taken the number,
            // because the leader is reaped only here or by its `Process`, after which the group may
            // only hold what it left behind.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// A program that was started. Dropping one that was started [apart](Launch::apart) kills its
/// process group and reaps it.
#[derive(Debug)]
pub struct Process {
    owned: Owned,
    pidfd: OwnedFd,
    errors: Option<File>,
    label: String,
    /// Time of the start.
    pub started: Nanos,
}

impl Process {
    fn watch(
        child: Child,
        own_group: bool,
        errors: Option<File>,
        label: String,
        started: Nanos,
    ) -> Result<Process, LaunchError> {
        let owned = Owned { child, own_group };
        let pid = Pid::from_child(&owned.child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|e| refused(format!("{label}: cannot watch process {pid}"))(e.into()))?;
        Ok(Process {
            owned,
            pidfd,
            errors,
            label,
            started,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        Pid::from_child(&self.owned.child).as_raw_nonzero().get()
    }

    /// Asks it to end (SIGTERM).
    pub fn end(&self) {
        // one that is gone needs no asking
        let _ = kill_process(Pid::from_child(&self.owned.child), Signal::TERM);
    }

    /// Asks it to end as a terminal does (SIGINT).
    pub fn interrupt(&self) {
        // one that is gone needs no asking
        let _ = kill_process(Pid::from_child(&self.owned.child), Signal::INT);
    }

    /// Kills it, and its process group where it has one of its own, and reaps it.
    pub fn kill(&mut self) {
        if self.owned.own_group {
            // as when it is dropped: the number is ours until the leader is reaped
            let _ = kill_process_group(Pid::from_child(&self.owned.child), Signal::KILL);
        }
        let _ = self.owned.child.kill();
        let _ = self.owned.child.wait();
    }

    /// Whether it has ended well: reaps it when it has ended.
    ///
    /// # Errors
    /// [`LaunchError::Failed`] when its status is another than 0.
    pub fn ended(&mut self) -> Result<bool, LaunchError> {
        let status = self.owned.child.try_wait();
        match status.map_err(|e| refused(self.label.clone())(e))? {
            None => Ok(false),
            Some(s) if s.success() => Ok(true),
            Some(s) => {
                let words = self.last_words(LAST_WORDS);
                Err(LaunchError::Failed {
                    label: self.label.clone(),
                    how: how(s),
                    words: match words.is_empty() {
                        true => words,
                        false => format!(":\n{words}"),
                    },
                })
            }
        }
    }

    /// Waits for its end and gives the exit status as a shell does: 128 + signal when a signal
    /// ended it.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn status(&mut self) -> Result<u8, LaunchError> {
        let status = self.owned.child.wait();
        let status = status.map_err(refused("cannot wait for the command"))?;
        let code = status
            .code()
            .or_else(|| status.signal().map(|s| 128 + s))
            .unwrap_or(1);
        Ok(u8::try_from(code).unwrap_or(1))
    }

    /// The end of what it wrote to standard error (and output, where that is kept), `most` bytes;
    /// empty where nothing is kept.
    pub fn last_words(&mut self, most: u64) -> String {
        let mut text = Vec::new();
        let Some(errors) = &mut self.errors else {
            return String::new();
        };
        let length = errors.metadata().map_or(0, |m| m.len());
        let read = errors
            .seek(SeekFrom::Start(length.saturating_sub(most)))
            .and_then(|_| errors.take(most).read_to_end(&mut text));
        match read {
            Ok(_) => String::from_utf8_lossy(&text).trim_end().to_owned(),
            Err(_) => String::new(),
        }
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn how(s: ExitStatus) -> String {
    match (s.code(), s.signal()) {
        (Some(c), _) => format!("ended with status {c}"),
        (None, Some(n)) => format!("was killed by signal {n}"),
        (None, None) => "failed".into(),
    }
}

/// Waits until one of these processes (or pidfds) has ended, or `timeout` has passed; whether one
/// has. A signal ends the wait early, when its handler has had time to run.
///
/// # Errors
/// When the kernel refuses to wait.
pub fn wait_any<'a, F: AsFd + 'a>(
    watched: impl Iterator<Item = &'a F>,
    timeout: Duration,
) -> Result<bool, LaunchError> {
    let mut fds: Vec<PollFd<'_>> = watched.map(|f| PollFd::new(f, PollFlags::IN)).collect();
    let time = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    match poll(&mut fds, Some(&time)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => {
            std::thread::sleep(HANDLER.min(timeout));
            Ok(false)
        }
        Err(e) => Err(refused("cannot wait for a process")(e.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(command: &[&str]) -> Launch {
        let command: Vec<String> = command.iter().map(|s| (*s).into()).collect();
        Launch::new(&command).unwrap().called("app `p`")
    }

    fn apart(command: &[&str]) -> Launch {
        launch(command).apart().unwrap()
    }

    fn run_to_end(p: &mut Process) -> Result<(), LaunchError> {
        while !p.ended()? {
            wait_any(std::iter::once(&*p), Duration::from_secs(10))?;
        }
        Ok(())
    }

    #[test]
    fn a_program_runs_to_its_end() {
        let mut p = apart(&["true"]).on_cpus(&[0]).start().unwrap();
        run_to_end(&mut p).unwrap();
    }

    #[test]
    fn failure_is_told_with_the_programs_own_words() {
        let mut p = apart(&["ls", "/nonexistent-dir"]).start().unwrap();
        let e = run_to_end(&mut p).unwrap_err().to_string();
        assert!(
            e.contains("app `p` ended with status") && e.contains("nonexistent-dir"),
            "{e}"
        );
        assert!(p.last_words(5).len() <= 5);
    }

    #[test]
    fn output_is_kept_with_errors() {
        let script = "echo out; echo err >&2; trap 'echo asked; exit 3' INT; kill -INT $$";
        let p = launch(&["sh", "-c", script]).apart_with_output().unwrap();
        let mut p = p.start().unwrap();
        assert!(run_to_end(&mut p).is_err());
        assert_eq!(p.last_words(100), "out\nerr\nasked");
        let p = launch(&["sleep", "1000"]).apart_with_output().unwrap();
        let mut p = p.start().unwrap();
        p.interrupt();
        assert_eq!(p.status().unwrap(), 128 + 2);
    }

    #[test]
    fn a_missing_program_is_named() {
        let e = apart(&["no-such-program"]).start().unwrap_err().to_string();
        assert!(e.contains("no-such-program"), "{e}");
        let e = launch(&["/no/such/program"]).hold().unwrap();
        let e = e.release().unwrap_err();
        assert!(
            matches!(&e, LaunchError::Program { program, .. } if program == "/no/such/program")
        );
        assert!(matches!(Launch::new(&[]), Err(LaunchError::Empty)));
    }

    #[test]
    fn dropping_kills_the_whole_group() {
        let p = apart(&["sh", "-c", "sleep 1000 & sleep 1000"]).start();
        let p = p.unwrap();
        let pid = Pid::from_raw(p.pid()).unwrap();
        drop(p);
        // the group is gone as soon as its last member has been reaped, which init does for the
        // orphan
        for _ in 0..500 {
            if rustix::process::test_kill_process_group(pid).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the process group is still there");
    }

    #[test]
    fn a_held_program_waits_for_its_release() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ran");
        let script = format!("echo > {}; exit 7", mark.display());
        let held = launch(&["sh", "-c", &script]).hold().unwrap();
        assert!(Path::new(&format!("/proc/{}", held.pid())).exists());
        assert!(!mark.exists());
        let mut p = held.release().unwrap();
        while !wait_any(std::iter::once(&p), Duration::from_secs(10)).unwrap() {}
        assert!(mark.exists());
        assert_eq!(p.status().unwrap(), 7);
    }

    #[test]
    fn a_held_program_that_is_dropped_never_runs() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ran");
        let held = launch(&["touch", &mark.display().to_string()]).hold();
        let held = held.unwrap();
        let process = format!("/proc/{}", held.pid());
        drop(held);
        for _ in 0..500 {
            if !Path::new(&process).exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!Path::new(&process).exists() && !mark.exists());
    }

    #[test]
    fn a_signal_is_told_as_shells_do() {
        let held = launch(&["sleep", "1000"]).hold().unwrap();
        let mut p = held.release().unwrap();
        p.end();
        assert_eq!(p.status().unwrap(), 128 + 15);
    }

    #[test]
    fn a_program_gets_what_was_asked_for() {
        let script = "pwd; env | cut -d= -f1; ulimit -t; cat /proc/self/personality; \
             grep Cpus_allowed_list /proc/self/status";
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let out = dir.join("out");
        let held = launch(&["sh", "-c", &format!("({script}) > {}", out.display())])
            .in_dir(&dir)
            .clean_environment()
            .cpu_time_limit(Duration::from_secs(77))
            .fixed_addresses()
            .on_cpus(&[0])
            .hold()
            .unwrap();
        assert_eq!(held.release().unwrap().status().unwrap(), 0);
        let said = std::fs::read_to_string(&out).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.first(), Some(&dir.to_str().unwrap()), "{said}");
        let names = ["PATH", "HOME", "LC_ALL", "77"];
        assert!(names.iter().all(|n| lines.contains(n)), "{said}");
        assert!(!lines.contains(&"CARGO_MANIFEST_DIR"), "{said}");
        assert!(said.contains("Cpus_allowed_list:\t0\n"), "{said}");
        // a container may forbid it
        let fixed = lines.contains(&"00040000");
        let allowed = launch(&["setarch", "-R", "true"]).hold().unwrap();
        let allowed = allowed
            .release()
            .is_ok_and(|mut p| p.status().is_ok_and(|s| s == 0));
        assert!(fixed || !allowed, "{said}");
    }
}
