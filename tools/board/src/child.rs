//! Child processes that end when asked to, and with their parent.

use crate::error::BoardError;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// How often the cancel flag is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// What a finished child left.
#[derive(Debug)]
pub struct Finished {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Makes the child die with the thread that starts it.
pub(crate) fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: the closure makes only two system calls, both async-signal-safe, and touches no
    // memory of the parent.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The parent may have died between fork and prctl.
            if rustix::process::getppid() != Some(parent) {
                return Err(std::io::Error::other("the parent is gone"));
            }
            Ok(())
        });
    }
}

/// A child that is killed and reaped when dropped.
pub(crate) struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // Both fail only when the child is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

enum Line {
    Out(String),
    Err(String),
}

fn pump(from: impl Read + Send + 'static, to: mpsc::Sender<Line>, wrap: fn(String) -> Line) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut buf = Vec::new();
        while matches!(reader.read_until(b'\n', &mut buf), Ok(n) if n > 0) {
            let line = String::from_utf8_lossy(&buf).into_owned();
            buf.clear();
            if to.send(wrap(line)).is_err() {
                return;
            }
        }
    });
}

/// Runs a command to its end, in the C locale, telling `on_line` each line of its standard output.
///
/// # Errors
/// When it cannot be started, or `cancel` became true (the child is killed then).
pub fn run(
    command: &mut Command,
    cancel: &AtomicBool,
    on_line: &mut dyn FnMut(&str),
) -> Result<Finished, BoardError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let spawn_error = |source| BoardError::Spawn {
        program: program.clone(),
        source,
    };
    command
        .env("LC_ALL", "C")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    die_with_parent(command);
    let mut child = Guard(command.spawn().map_err(spawn_error)?);
    let (tx, rx) = mpsc::channel();
    if let Some(out) = child.0.stdout.take() {
        pump(out, tx.clone(), Line::Out);
    }
    if let Some(err) = child.0.stderr.take() {
        pump(err, tx.clone(), Line::Err);
    }
    drop(tx);
    let (mut stdout, mut stderr) = (String::new(), String::new());
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(BoardError::Cancelled);
        }
        match rx.recv_timeout(POLL) {
            Ok(Line::Out(l)) => {
                on_line(l.trim_end());
                stdout.push_str(&l);
            }
            Ok(Line::Err(l)) => stderr.push_str(&l),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.0.wait().map_err(spawn_error)?;
    Ok(Finished {
        status,
        stdout,
        stderr,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_come_back() {
        let mut seen = Vec::new();
        let done = run(
            Command::new("sh").args(["-c", "echo a; echo b >&2; exit 3"]),
            &AtomicBool::new(false),
            &mut |l| seen.push(l.to_string()),
        )
        .unwrap();
        assert_eq!(
            (
                done.status.code(),
                done.stdout.as_str(),
                done.stderr.as_str()
            ),
            (Some(3), "a\n", "b\n")
        );
        assert_eq!(seen, ["a"]);
    }

    #[test]
    fn cancel_kills() {
        let r = run(
            Command::new("sleep").arg("1000"),
            &AtomicBool::new(true),
            &mut |_| (),
        );
        assert!(matches!(r, Err(BoardError::Cancelled)));
    }

    #[test]
    fn a_missing_program_is_named() {
        let r = run(
            &mut Command::new("no-such-program"),
            &AtomicBool::new(false),
            &mut |_| (),
        );
        assert!(r.unwrap_err().to_string().contains("no-such-program"));
    }
}
