//! The program itself, its pipes, and the two threads that talk to it.
//!
//! The thread that reads also starts the program, ends it and reaps it: whoever schedules never
//! waits for a file system, nor for a process that is slow to die.

use super::protocol::Answer;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{kill_process_group, set_parent_process_death_signal, Pid, Signal};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TryRecvError, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};

/// Longest line that is read, bytes.
const LONGEST_LINE: u64 = 4 << 20;
/// Lines that may wait to be written or to be taken in.
pub(super) const QUEUE: usize = 4;

/// What the reading thread passes on: an answer, or why there are no more.
type Said = Result<Answer, String>;

/// A program that runs; its process group is killed when this is dropped.
pub(super) struct Running {
    lines: SyncSender<String>,
    answers: Receiver<Said>,
    group: Group,
    /// Both threads notice when this end is closed.
    _open: OwnedFd,
}

/// The process group while it is the program's: nobody, before the start and after the end.
#[derive(Clone, Default)]
struct Group(Arc<Mutex<Option<Pid>>>);

impl Group {
    fn set(&self, leader: Option<Pid>) -> Option<Pid> {
        let mut group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *group, leader)
    }

    fn kill(&self) {
        let group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The leader is reaped after it is unset, so that the number is nobody else's.
        if let Some(leader) = *group {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// One end of a pipe, until `closed` is.
struct End {
    pipe: OwnedFd,
    closed: Arc<OwnedFd>,
}

impl End {
    /// Waits until the pipe is ready for `what`.
    fn ready(&self, what: PollFlags) -> io::Result<()> {
        let mut fds = [
            PollFd::new(&self.pipe, what),
            PollFd::new(&*self.closed, PollFlags::empty()),
        ];
        loop {
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
                Ok(_) if !fds[1].revents().is_empty() => {
                    return Err(io::Error::other("nobody listens"))
                }
                Ok(_) => return Ok(()),
            }
        }
    }
}

impl Read for End {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.ready(PollFlags::IN)?;
        Ok(rustix::io::read(&self.pipe, into)?)
    }
}

impl Write for End {
    /// The pipe must not block.
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.ready(PollFlags::OUT)?;
        match rustix::io::write(&self.pipe, from) {
            Err(rustix::io::Errno::AGAIN) => Err(io::ErrorKind::Interrupted.into()),
            written => Ok(written?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is to be started.
struct Start {
    command: Vec<String>,
    user: Option<(u32, u32)>,
}

impl Start {
    /// Starts it in a process group of its own, confined; it does not outlive this thread.
    #[allow(unsafe_code)]
    fn start(&self) -> Result<Child, String> {
        let [program, args @ ..] = &*self.command else {
            return Err("no program".to_owned());
        };
        let path = super::trusted::found(program)?;
        if rustix::process::geteuid().is_root() && self.user.is_none_or(|(uid, _)| uid == 0) {
            super::trusted::check(program, &path, 0)?;
        }
        let mut spawn = Command::new(path);
        spawn
            .arg0(program)
            .args(args)
            .env_clear()
            .envs(super::confined::ENVIRONMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        if let Some((uid, gid)) = self.user {
            // the standard library drops root's other groups with the user
            spawn.uid(uid).gid(gid);
        }
        let us = rustix::process::getpid();
        // SAFETY: between fork and exec the closure only makes system calls, which is
        // async-signal-safe; it allocates nothing and takes no lock. The user is changed before,
        // which needs capabilities and would undo the signal.
        unsafe {
            spawn.pre_exec(move || {
                super::confined::confine()?;
                set_parent_process_death_signal(Some(Signal::KILL))?;
                match rustix::process::getppid() {
                    Some(parent) if parent == us => Ok(()),
                    _ => Err(rustix::io::Errno::CANCELED.into()),
                }
            });
        }
        spawn
            .spawn()
            .map_err(|e| format!("`{program}` cannot be started: {e}"))
    }
}

impl Running {
    /// Has `command` started, as `user` (user and group) if given and this process may. What keeps
    /// it from running is [said](Self::said).
    ///
    /// # Errors
    /// When there can be no thread or pipe for it.
    pub fn start(command: &[String], user: Option<(u32, u32)>) -> Result<Running, String> {
        let start = Start {
            command: command.to_vec(),
            user,
        };
        let (closed, open) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| format!("no pipe: {e}"))?;
        let closed = Arc::new(closed);
        let (lines, to_write) = sync_channel::<String>(QUEUE);
        let (to_us, answers) = sync_channel::<Said>(QUEUE);
        let group = Group::default();
        let its = group.clone();
        let talk = move || {
            let mut child = match start.start() {
                Ok(child) => child,
                Err(why) => {
                    let _ = to_us.send(Err(why));
                    return;
                }
            };
            its.set(Some(Pid::from_child(&child)));
            if let Err(why) = read(&mut child, &closed, to_write, &to_us) {
                // nobody listens any more: it is over anyway
                let _ = to_us.send(Err(why));
            }
            wait_for(&closed);
            its.kill();
            its.set(None);
            let _ = child.wait();
        };
        std::thread::Builder::new()
            .name("exec-read".into())
            .spawn(talk)
            .map_err(|e| format!("no thread to talk to the program: {e}"))?;
        Ok(Running {
            lines,
            answers,
            group,
            _open: open,
        })
    }

    /// Passes a line on, unless the program has not read the last ones yet: a line that is left out
    /// is not missed, and the time it takes counts as silence.
    pub fn tell(&self, line: String) {
        match self.lines.try_send(line) {
            // that it has ended is said by the thread that reads
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// The next answer it has given, if any.
    ///
    /// # Errors
    /// Why there will be none.
    pub fn said(&self) -> Result<Option<Answer>, String> {
        match self.answers.try_recv() {
            Ok(said) => said.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err("it ended".to_owned()),
        }
    }

    /// Its process id; none before the start and after the end.
    #[cfg(test)]
    pub fn id(&self) -> Option<i32> {
        let group = self.group.0.lock().unwrap();
        group.map(|p| p.as_raw_nonzero().get())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.group.kill();
    }
}

/// Waits until the other end of `closed` is closed.
fn wait_for(closed: &OwnedFd) {
    let mut fds = [PollFd::new(closed, PollFlags::empty())];
    while matches!(poll(&mut fds, None), Err(rustix::io::Errno::INTR)) {}
}

/// Reads answers, and has lines written, until there are no more.
///
/// # Errors
/// Why there are no more.
fn read(
    child: &mut Child,
    closed: &Arc<OwnedFd>,
    to_write: Receiver<String>,
    to_us: &SyncSender<Said>,
) -> Result<(), String> {
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("it has no standard input or output".to_owned());
    };
    // whoever has inherited the other end may never read
    rustix::io::ioctl_fionbio(stdin.as_fd(), true).map_err(|e| format!("its input: {e}"))?;
    let mut input = End {
        pipe: stdin.into(),
        closed: closed.clone(),
    };
    let write = move || {
        while let Ok(line) = to_write.recv() {
            if input.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("exec-write".into())
        .spawn(write)
        .map_err(|e| format!("no thread to talk to it: {e}"))?;
    let mut out = BufReader::new(End {
        pipe: stdout.into(),
        closed: closed.clone(),
    });
    loop {
        let mut line = Vec::new();
        let read = out.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
        match read {
            Ok(0) => return Err("it ended".to_owned()),
            Ok(_) if line.last() != Some(&b'\n') => {
                return Err("it ended within a line, or the line is too long".to_owned())
            }
            Ok(_) => {}
            Err(e) => return Err(format!("its output cannot be read: {e}")),
        }
        let line = std::str::from_utf8(&line).map_err(|_| "it said what is not UTF-8")?;
        if to_us.send(Ok(Answer::parse(line)?)).is_err() {
            return Ok(());
        }
    }
}
