//! The program itself, its pipes, and the two threads that talk to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TryRecvError, TrySendError};

/// Longest line that is read, bytes.
const LONGEST_LINE: u64 = 4 << 20;
/// Lines that may wait to be written or to be taken in.
const QUEUE: usize = 4;

/// What the reading thread passes on: a line, or why there are no more.
type Line = Result<String, String>;

/// A program that runs; ended when dropped.
pub(super) struct Running {
    child: Child,
    lines: SyncSender<String>,
    answers: Receiver<Line>,
}

impl Running {
    /// Starts `command`, as `user` (user and group) if given and this process may.
    ///
    /// # Errors
    /// Names the program and what keeps it from running.
    pub fn start(command: &[String], user: Option<(u32, u32)>) -> Result<Running, String> {
        let [program, args @ ..] = command else {
            return Err("no program".to_owned());
        };
        let mut spawn = Command::new(program);
        spawn
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some((uid, gid)) = user {
            // the standard library drops root's other groups with the user
            spawn.uid(uid).gid(gid);
        }
        let mut child = spawn
            .spawn()
            .map_err(|e| format!("`{program}` cannot be started: {e}"))?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("`{program}` has no standard input or output"));
        };
        let (lines, to_write) = sync_channel::<String>(QUEUE);
        let (to_us, answers) = sync_channel::<Line>(QUEUE);
        // Both threads end with the program: the writer when its queue is dropped or the pipe
        // breaks, the reader at the end of the output or when nobody listens any more.
        let writer = move || {
            while let Ok(line) = to_write.recv() {
                if stdin
                    .write_all(line.as_bytes())
                    .and_then(|()| stdin.flush())
                    .is_err()
                {
                    return;
                }
            }
        };
        let reader = move || {
            let mut out = BufReader::new(stdout);
            loop {
                let mut line = Vec::new();
                let line = match out.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
                    Ok(0) => Err("it ended".to_owned()),
                    Ok(_) if line.last() != Some(&b'\n') => {
                        Err("it ended within a line, or the line is too long".to_owned())
                    }
                    Ok(_) => {
                        String::from_utf8(line).map_err(|_| "it said what is not UTF-8".to_owned())
                    }
                    Err(e) => Err(format!("its output cannot be read: {e}")),
                };
                let last = line.is_err();
                if to_us.send(line).is_err() || last {
                    return;
                }
            }
        };
        let threads = std::thread::Builder::new()
            .name("exec-write".into())
            .spawn(writer);
        let threads = threads.and_then(|_| {
            std::thread::Builder::new()
                .name("exec-read".into())
                .spawn(reader)
        });
        if let Err(e) = threads {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("no thread to talk to `{program}`: {e}"));
        }
        Ok(Running {
            child,
            lines,
            answers,
        })
    }

    /// Passes a line on, unless the program has not read the last ones yet.
    ///
    /// # Errors
    /// When it has ended.
    pub fn tell(&self, line: String) -> Result<(), String> {
        match self.lines.try_send(line) {
            // a line that is left out is not missed, and the time it takes counts as silence
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
            Err(TrySendError::Disconnected(_)) => Err("it ended".to_owned()),
        }
    }

    /// The next line it has said, if any.
    ///
    /// # Errors
    /// Why there will be none.
    pub fn said(&self) -> Result<Option<String>, String> {
        match self.answers.try_recv() {
            Ok(line) => line.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err("it ended".to_owned()),
        }
    }

    /// Its process id.
    #[cfg(test)]
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // it may have ended by itself
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
