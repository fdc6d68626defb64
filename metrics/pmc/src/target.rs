//! Whom `pmc stat` and `record` watch: a command that it starts, a process that is there already,
//! or the machine.

use amp_host::launch::{wait_any, Held, Launch, LaunchError, Process};
use amp_host::{bad_input, user};
use anyhow::{bail, Result};
use clap::Args;
use rustix::fd::OwnedFd;
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often whoever reads as it goes does so where nothing else says when.
pub const LOOK: Duration = Duration::from_millis(100);
/// Longest time in one wait: then whoever asked looks whether it is to stop. A signal ends a wait
/// at once, so this is for one that came between two. Each look runs on some CPU, and what it
/// leaves in the caches there a program on the same one must fetch anew.
const LONGEST: Duration = Duration::from_secs(1);
/// How long a command may take to end when its time is up.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same when we are interrupted, who must end within a second.
const HASTE: Duration = Duration::from_millis(700);
/// The nice value of who counts.
const FIRST: i32 = -20;

/// Starts `command` up to its program, as the invoking user when run through sudo. Its standard
/// output is our standard error with `quiet`.
///
/// # Errors
/// [`amp_host::BadInput`] when there is no command or sudo's variables are odd; others when no
/// process can be made.
pub fn hold(command: &[String], quiet: bool) -> Result<Held> {
    if command.is_empty() {
        return Err(bad_input("no command behind `--`"));
    }
    let mut launch = Launch::new(command)?.as_user(user::behind_sudo()?);
    if quiet {
        launch = launch.output_to_stderr()?;
    }
    // from another group it could not read the terminal
    if !std::io::stdin().is_terminal() {
        launch = launch.in_own_group();
    }
    Ok(launch.hold()?)
}

/// Lets a command run.
///
/// # Errors
/// [`amp_host::BadInput`] when there is no such program.
pub fn release(held: Held) -> Result<Process> {
    held.release().map_err(|e| match e {
        LaunchError::Program { ref source, .. } => bad_input(format!("{e}: {source}")),
        e => e.into(),
    })
}

/// Target whose end is waited for.
pub enum Target {
    /// A command of ours.
    Command(Process),
    /// Somebody's process.
    Process(OwnedFd),
    /// The whole machine, which does not end.
    Machine,
}

impl Target {
    /// Waits until `until` at most, or for a while; whether the target has ended.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait(&self, until: Option<Instant>) -> Result<bool> {
        let left = until.map_or(LONGEST, |t| t.saturating_duration_since(Instant::now()));
        let left = left.min(LONGEST);
        let ended = match self {
            Target::Command(p) => wait_any(std::iter::once(p), left),
            Target::Process(fd) => wait_any(std::iter::once(fd), left),
            Target::Machine => wait_any(std::iter::empty::<&OwnedFd>(), left),
        };
        Ok(ended?)
    }
}

/// A process by its number.
///
/// # Errors
/// [`amp_host::BadInput`] when there is none.
pub fn process(pid: i32) -> Result<OwnedFd> {
    let id = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
    let id = id.ok_or_else(|| bad_input(format!("-p {pid}: not the number of a process")))?;
    pidfd_open(id, PidfdFlags::empty()).map_err(|e| match e {
        rustix::io::Errno::SRCH => bad_input(format!("-p {pid}: there is no such process")),
        rustix::io::Errno::INVAL | rustix::io::Errno::NOENT => {
            bad_input(format!("-p {pid}: that is a thread; give its process"))
        }
        e => anyhow::Error::from(e).context(format!("-p {pid}")),
    })
}

/// Threads of a process now; none when it is gone.
///
/// # Errors
/// When no file may be opened to look.
pub fn task(pid: i32) -> std::io::Result<Vec<i32>> {
    let full = |e: &std::io::Error| {
        let errno = e.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
        matches!(
            errno,
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
        )
    };
    let dir = match std::fs::read_dir(format!("/proc/{pid}/task")) {
        Err(e) if full(&e) => return Err(e),
        dir => dir,
    };
    let names = dir.into_iter().flatten().flatten();
    Ok(names
        .filter_map(|e| e.file_name().to_string_lossy().parse().ok())
        .collect())
}

/// Calls `found` for each thread of a process, until no new ones turn up: those that are there when
/// it is called are told of, those that they start later inherit.
///
/// # Errors
/// When the process is gone, or that of `found`.
pub fn threads(pid: i32, mut found: impl FnMut(i32) -> Result<()>) -> Result<()> {
    let mut known = BTreeSet::new();
    loop {
        let dir = std::fs::read_dir(format!("/proc/{pid}/task"));
        let dir = dir.map_err(|_| bad_input(format!("-p {pid}: there is no such process")))?;
        let all = dir
            .flatten()
            .filter_map(|e| e.file_name().to_string_lossy().parse::<i32>().ok());
        let new: Vec<i32> = all.filter(|t| known.insert(*t)).collect();
        if new.is_empty() {
            break;
        }
        for tid in new {
            found(tid)?;
        }
    }
    if known.is_empty() {
        bail!("process {pid} has no threads any more");
    }
    Ok(())
}

/// Seconds for which a thread has run since it began; 0 for one that is gone.
pub fn ran(tid: i32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) as f64 * 1e-9
}

/// Options that choose what is watched.
#[derive(Args, Debug)]
pub struct TargetArgs {
    /// Everything that runs on any CPU, while the command runs, or until interrupted
    #[arg(short = 'a', long, conflicts_with = "pid")]
    pub all_cpus: bool,
    /// A process with its threads and what they start, until it ends or this is interrupted
    #[arg(
        short = 'p',
        long,
        value_name = "PID",
        conflicts_with = "command",
        allow_hyphen_values = true
    )]
    pub pid: Option<i32>,
    /// Stop after so many milliseconds; a command is ended
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl TargetArgs {
    /// That there is something to watch; `done` says what is to be done with it.
    ///
    /// # Errors
    /// [`amp_host::BadInput`].
    pub fn check(&self, done: &str) -> Result<()> {
        if self.all_cpus || self.pid.is_some() || !self.command.is_empty() {
            return Ok(());
        }
        Err(bad_input(format!(
            "what should be {done}? Give a command, -p PID, or -a for the whole machine"
        )))
    }

    /// The command for a report.
    pub fn command(&self) -> Option<Vec<String>> {
        (!self.command.is_empty()).then(|| self.command.clone())
    }

    /// Finds the process, or starts the command up to its program, whose standard output is our
    /// standard error with `quiet`; and lets us open many files, and go before others where that is
    /// allowed.
    ///
    /// # Errors
    /// As [`process`] and [`threads`]; when the command cannot be started.
    pub fn choose(&self, quiet: bool) -> Result<PreparedTarget> {
        let held = match self.command.is_empty() {
            true => None,
            false => Some(hold(&self.command, quiet)?),
        };
        let mut chosen = PreparedTarget {
            watched: self.pid.map(process).transpose()?,
            tids: held.iter().map(Held::pid).collect(),
            pid: self.pid.or(held.as_ref().map(Held::pid)),
            held,
            everywhere: self.all_cpus,
            timeout: self.timeout.map(Duration::from_millis),
        };
        amp_host::limits::open_many_files();
        // Among hundreds of busy threads we would get our turns late. Without the right to it we
        // are one of them.
        let _ = rustix::process::setpriority_process(None, FIRST);
        if let Some(pid) = self.pid {
            threads(pid, |t| {
                chosen.tids.push(t);
                Ok(())
            })?;
        }
        Ok(chosen)
    }
}

/// Who is to be watched, not yet running where it is a command.
pub struct PreparedTarget {
    held: Option<Held>,
    watched: Option<OwnedFd>,
    /// Threads that are there; a command's only one.
    pub tids: Vec<i32>,
    /// The process, where it is one.
    pub pid: Option<i32>,
    everywhere: bool,
    timeout: Option<Duration>,
}

impl PreparedTarget {
    /// Whether counting begins with the command's program.
    pub fn on_exec(&self) -> bool {
        self.held.is_some() && !self.everywhere
    }

    /// Lets the command run, where it is one.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when there is no such program.
    pub fn release(self, stop: &AtomicBool) -> Result<RunningTarget<'_>> {
        let begin = Instant::now();
        Ok(RunningTarget {
            begin,
            end: self.timeout.and_then(|t| begin.checked_add(t)),
            target: match (self.held, self.watched) {
                (Some(h), _) => Target::Command(release(h)?),
                (None, Some(fd)) => Target::Process(fd),
                (None, None) => Target::Machine,
            },
            ending: Ending::default(),
            stop,
        })
    }
}

/// The end of a command: it is asked first, and killed when it takes too long.
#[derive(Default)]
pub struct Ending {
    kill_at: Option<Instant>,
}

impl Ending {
    /// Asks the command to end now, or within the time that is left to it.
    pub fn hurry(&mut self, command: &mut Process, interrupted: bool) {
        let now = Instant::now();
        let latest = now + if interrupted { HASTE } else { PATIENCE };
        match self.kill_at {
            None => {
                command.end();
                self.kill_at = Some(latest);
            }
            Some(at) if now >= at => command.kill(),
            Some(at) => self.kill_at = Some(at.min(latest)),
        }
    }

    /// When to [hurry](Self::hurry) it again, once it was asked.
    pub fn when(&self) -> Option<Instant> {
        self.kill_at
    }
}

/// Who is watched, until it ends, its time is up, or we are interrupted.
pub struct RunningTarget<'a> {
    /// Time of the beginning.
    pub begin: Instant,
    target: Target,
    end: Option<Instant>,
    ending: Ending,
    stop: &'a AtomicBool,
}

impl RunningTarget<'_> {
    /// Waits until `until` at most, or for a while; whether this is the end. A command is asked to
    /// end when its time is up, and killed when it does not: what it does then counts, too.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait(&mut self, until: Option<Instant>) -> Result<bool> {
        // a command that was asked to end has some time for it
        let end = self.ending.when().or(self.end);
        let gone = self.target.wait([until, end].into_iter().flatten().min())?;
        let interrupted = self.stop.load(Ordering::Relaxed);
        let over = interrupted || self.end.is_some_and(|e| Instant::now() >= e);
        if gone || !over {
            return Ok(gone);
        }
        let Target::Command(p) = &mut self.target else {
            return Ok(true);
        };
        self.ending.hurry(p, interrupted);
        Ok(false)
    }

    /// There is no more to watch: a command is asked to end. Then [wait](Self::wait) for that.
    pub fn enough(&mut self) {
        self.end = Some(Instant::now());
    }

    /// The exit status: a command's own, else success.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn status(self) -> Result<ExitCode> {
        Ok(match self.target {
            Target::Command(mut p) => ExitCode::from(p.status()?),
            _ => ExitCode::SUCCESS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(command: &[&str]) -> Result<Held> {
        let command: Vec<String> = command.iter().map(|s| (*s).to_owned()).collect();
        hold(&command, false)
    }

    #[test]
    fn a_command_waits_for_leave() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ran");
        let script = format!("echo > {}; exit 7", mark.display());
        let held = held(&["sh", "-c", &script]).unwrap();
        assert!(std::path::Path::new(&format!("/proc/{}", held.pid())).exists());
        assert!(!mark.exists());
        let target = Target::Command(release(held).unwrap());
        while !target.wait(None).unwrap() {}
        assert!(mark.exists());
        let Target::Command(mut p) = target else {
            return;
        };
        assert_eq!(p.status().unwrap(), 7);
    }

    #[test]
    fn what_does_not_exist_is_bad_input() {
        let e = release(held(&["/no/such/program"]).unwrap()).unwrap_err();
        assert!(
            e.is::<amp_host::BadInput>() && e.to_string().contains("/no/such"),
            "{e}"
        );
        assert!(held(&[]).is_err());
        for pid in [0, -1, i32::MAX] {
            let e = process(pid).unwrap_err();
            assert!(
                e.is::<amp_host::BadInput>() && e.to_string().contains("-p"),
                "{e}"
            );
        }
    }

    #[test]
    fn every_thread_of_a_process_is_found() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let others: Vec<_> = (0..3)
            .map(|_| {
                let wait = wait.clone();
                std::thread::spawn(move || drop(wait.lock().map(|w| w.recv())))
            })
            .collect();
        let mut tids = Vec::new();
        let us = std::process::id() as i32;
        threads(us, |t| {
            tids.push(t);
            Ok(())
        })
        .unwrap();
        drop(stop);
        others.into_iter().for_each(|t| t.join().unwrap());
        assert!(tids.len() >= 4 && tids.contains(&us), "{tids:?}");
    }
}
