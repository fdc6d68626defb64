//! One QEMU process from start to end.

use crate::child::{die_with_parent, Guard, POLL};
use crate::console::Console;
use crate::error::BoardError;
use crate::event::{Event, Sink};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a guest may take, in host time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From start to power-off; `None` is no limit.
    pub total: Option<Duration>,
    /// Without a byte on the console; `None` is no limit.
    pub silence: Option<Duration>,
}

impl Default for Limits {
    /// Half an hour in total, ten minutes of silence.
    fn default() -> Limits {
        Limits {
            total: Some(Duration::from_secs(1800)),
            silence: Some(Duration::from_secs(600)),
        }
    }
}

/// A guest that has panicked and said nothing for this long has told all about it.
const AFTER_PANIC: Duration = Duration::from_secs(1);

enum Input {
    Console(Vec<u8>),
    Error(Vec<u8>),
}

fn pump(mut from: impl Read + Send + 'static, to: mpsc::Sender<Input>, wrap: fn(Vec<u8>) -> Input) {
    std::thread::spawn(move || {
        let mut buf = [0; 8192];
        while let Ok(n) = from.read(&mut buf) {
            if n == 0 || to.send(wrap(buf[..n].to_vec())).is_err() {
                return;
            }
        }
    });
}

/// What is left when QEMU has ended.
struct Ended {
    status: ExitStatus,
    stderr: String,
    console: Console,
}

/// Runs QEMU with the console followed; returns the script's output.
pub fn follow(
    command: &mut Command,
    plugin: Option<&Path>,
    limits: &Limits,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Console, BoardError> {
    let ended = watch(command, limits, cancel, sink)?;
    let console = ended.console.tail();
    if let Some(message) = ended.console.panic() {
        return Err(BoardError::GuestPanic {
            message: message.into(),
            console,
        });
    }
    if ended.status.success() {
        return Ok(ended.console);
    }
    // Before the first console byte a failing start is the plugin's when QEMU or the plugin says
    // so.
    match plugin {
        Some(plugin) if console.is_empty() && blames_plugin(&ended.stderr, plugin) => {
            Err(BoardError::PluginRefused {
                plugin: plugin.into(),
                message: ended.stderr.trim().to_string(),
            })
        }
        _ => Err(BoardError::QemuDied {
            status: ended.status.to_string(),
            stderr: last_lines(&ended.stderr),
            console,
        }),
    }
}

fn blames_plugin(stderr: &str, plugin: &Path) -> bool {
    let name = plugin
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    stderr.contains("plugin") || (!name.is_empty() && stderr.contains(&name))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

fn watch(
    command: &mut Command,
    limits: &Limits,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Ended, BoardError> {
    // In a group of its own, so that Ctrl-C on the terminal reaches this program only, which then
    // ends QEMU in order.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = spawn(command)?;
    let (tx, rx) = mpsc::channel();
    if let Some(out) = child.0.stdout.take() {
        pump(out, tx.clone(), Input::Console);
    }
    if let Some(err) = child.0.stderr.take() {
        pump(err, tx.clone(), Input::Error);
    }
    drop(tx);
    let mut console = Console::default();
    let mut stderr = Vec::new();
    let start = Instant::now();
    let mut heard = start;
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(BoardError::Cancelled);
        }
        let mut tell = |line, from| sink(Event::Console { line, from });
        match rx.recv_timeout(POLL) {
            Ok(Input::Console(bytes)) => {
                heard = Instant::now();
                console.feed(&bytes, &mut tell);
            }
            Ok(Input::Error(bytes)) => stderr.extend(bytes),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                // A guest that may restart itself would boot again, without end.
                let said_all = heard.elapsed() > AFTER_PANIC;
                if let Some(message) = console.panic().filter(|_| said_all) {
                    return Err(BoardError::GuestPanic {
                        message: message.into(),
                        console: console.tail(),
                    });
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                console.end(&mut tell);
                break;
            }
        }
        let over = |limit: Option<Duration>, since: Instant| {
            limit.filter(|l| since.elapsed() > *l).map(|l| l.as_secs())
        };
        let hung =
            over(limits.total, start)
                .map(|s| ("in total", s))
                .or(over(limits.silence, heard).map(|s| ("without console output", s)));
        if let Some((what, seconds)) = hung {
            console.end(&mut tell);
            return Err(BoardError::GuestHung {
                what,
                seconds,
                console: console.tail(),
            });
        }
    }
    let status = child
        .0
        .wait()
        .map_err(|source| spawn_error(command, source))?;
    Ok(Ended {
        status,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        console,
    })
}

fn spawn_error(command: &Command, source: std::io::Error) -> BoardError {
    BoardError::Spawn {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    }
}

fn spawn(command: &mut Command) -> Result<Guard, BoardError> {
    die_with_parent(command);
    command
        .spawn()
        .map(Guard)
        .map_err(|e| spawn_error(command, e))
}

/// Puts the terminal back as it was, however QEMU ended.
struct Terminal(Option<rustix::termios::Termios>);

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(t) = &self.0 {
            let now = rustix::termios::OptionalActions::Now;
            // Nothing can be done when the terminal is gone.
            let _ = rustix::termios::tcsetattr(std::io::stdin(), now, t);
        }
    }
}

/// Runs QEMU with the guest's console on this terminal.
pub fn interact(command: &mut Command, cancel: &AtomicBool) -> Result<(), BoardError> {
    let _terminal = Terminal(rustix::termios::tcgetattr(std::io::stdin()).ok());
    let mut child = spawn(command)?;
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(BoardError::Cancelled);
        }
        match child.0.try_wait().map_err(|e| spawn_error(command, e))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                return Err(BoardError::QemuDied {
                    status: status.to_string(),
                    stderr: String::new(),
                    console: Vec::new(),
                })
            }
            None => std::thread::sleep(POLL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limits: &Limits) -> Result<Console, BoardError> {
        let plugin = Path::new("/x/libplug.so");
        let mut c = Command::new("sh");
        c.args(["-c", script]);
        follow(
            &mut c,
            Some(plugin),
            limits,
            &AtomicBool::new(false),
            &mut |_| (),
        )
    }

    #[test]
    fn each_end_has_its_error() {
        let none = Limits {
            total: None,
            silence: None,
        };
        let ok = sh("printf '\\036amp:begin\\nhi\\n\\036amp:end 0\\n'", &none).unwrap();
        assert_eq!(ok.into_script_output(), "hi\n");
        let panic = sh("echo 'x] Kernel panic - not syncing: boom'", &none);
        assert!(
            matches!(panic, Err(BoardError::GuestPanic { message, .. }) if message.contains("boom"))
        );
        let restarted = sh(
            "echo 'x] Kernel panic - not syncing: oh'; exec sleep 1000",
            &none,
        );
        assert!(
            matches!(restarted, Err(BoardError::GuestPanic { message, .. }) if message.contains("oh"))
        );
        let refused = sh("echo 'plugin: no symbol foo' >&2; exit 1", &none);
        assert!(
            matches!(refused, Err(BoardError::PluginRefused { message, .. }) if message.contains("foo"))
        );
        let died = sh("echo booting; echo bad >&2; kill -SEGV $$", &none);
        assert!(
            matches!(died, Err(BoardError::QemuDied { stderr, console, .. })
            if stderr == "bad" && console == ["booting"])
        );
        let silent = Limits {
            total: None,
            silence: Some(Duration::ZERO),
        };
        let hung = sh("echo alive; exec sleep 1000", &silent);
        assert!(matches!(
            hung,
            Err(BoardError::GuestHung {
                what: "without console output",
                ..
            })
        ));
        let short = Limits {
            total: Some(Duration::ZERO),
            silence: None,
        };
        let hung = sh("while :; do echo; done", &short);
        assert!(matches!(
            hung,
            Err(BoardError::GuestHung {
                what: "in total",
                ..
            })
        ));
    }

    #[test]
    fn cancel_ends_the_child() {
        let mut c = Command::new("sleep");
        c.arg("1000");
        let r = follow(
            &mut c,
            None,
            &Limits::default(),
            &AtomicBool::new(true),
            &mut |_| (),
        );
        assert!(matches!(r, Err(BoardError::Cancelled)));
    }
}
