//! `scx_amp top` in a real terminal (a pty), against a scheduler behind a made-up `ssh`.

use rustix::process::{kill_process, Pid, Signal};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcgetattr, tcsetwinsize, LocalModes, Termios, Winsize};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Until something that has to happen is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a terminal is told when the command in it has ended.
const END: &str = "that was all";

/// Size of the terminal.
const ROWS: NonZero<u16> = NonZero::new(24).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(80).unwrap();

/// A status as an older version says it, with a thread that would clear the screen.
const STATUS: &str = r#"{"policy":"hsp","knobs":{"threshold":"5"},"provider":"none","provider_failed":"",
"virtual_counters":{},"uptime_s":12.5,"ticks":125,"changes":0,"threads":9,"active":1,"swaps":3,
"swap_latency_p50_us":40.0,"placements":3,"fallbacks":0,"untracked":0,"unread":0,"core_types":["big","little"],
"per_thread":[{"tid":812,"app":812,"comm":"ha\u001b[2Jsh","weight":100,"core_type":"big","placed":"big",
"cpu_s":3.0,"big_time_share":0.5,"phase":{},"virtual_counters":{},"metrics":{}}]}"#;

/// A folder with an `ssh` that writes down its words and answers as `scx_amp ctl` would. One call
/// writes all its words at once: `top` kills an ssh that it waits for when it ends.
fn made_up_ssh(script: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("status.json"), STATUS).unwrap();
    let here = dir.path().display();
    let text = format!(
        "#!/bin/sh\nwords=; for word in \"$@\"; do words=\"$words$word|\"; done; echo \"$words\" >> {here}/words\n\
         status={here}/status.json\n{script}\n"
    );
    executable(&dir.path().join("ssh"), &text);
    dir
}

/// Makes an executable file. Another process writes it: a child of another test's thread, between
/// fork and exec, would have a copy of our descriptor, and no file is run that is open for writing.
fn executable(path: &Path, text: &str) {
    let plain = path.with_extension("text");
    std::fs::write(&plain, text).unwrap();
    let mut install = Command::new("install");
    let made = install.args(["-m", "755"]).args([&plain, path]).status();
    assert!(made.unwrap().success());
}

const ANSWERS: &str = r#"case "$*" in
*" ctl status "*) cat "$status";;
*" ctl policy acfs") echo "acfs (), provider none";;
*) echo "not this" >&2; exit 2;;
esac"#;

fn top(ssh: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scx_amp"));
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .arg("top")
        .args(args)
        .env("PATH", format!("{}:{path}", ssh.display()))
        .env("TERM", "xterm-256color")
        .env("LC_ALL", "C.UTF-8")
        // a long one would move a message off the screen
        .env("RUST_BACKTRACE", "0")
        .env_remove("NO_COLOR");
    command
}

fn piped(ssh: &Path, args: &[&str]) -> Output {
    top(ssh, args).stdin(Stdio::null()).output().unwrap()
}

/// A terminal with the command in it.
struct Pty {
    child: Child,
    keyboard: File,
    /// Kept open, so that its modes can be read when the command has ended.
    inside: File,
    before: Termios,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Pty {
    fn start(mut command: Command) -> Pty {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let name = ptsname(&outside, Vec::new()).unwrap();
        let name = name.into_string().unwrap();
        // whoever opens a terminal without NOCTTY may become its owner
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let inside = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
        let inside = File::from(inside);
        let size = Winsize {
            ws_row: ROWS.get(),
            ws_col: COLUMNS.get(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&outside, size).unwrap();
        let before = tcgetattr(&inside).unwrap();
        let child = command
            .stdin(inside.try_clone().unwrap())
            .stdout(inside.try_clone().unwrap())
            .stderr(inside.try_clone().unwrap())
            .spawn()
            .unwrap();
        let outside = File::from(outside);
        let keyboard = outside.try_clone().unwrap();
        let (tell, output) = channel();
        std::thread::spawn(move || {
            let mut outside = outside;
            let mut bytes = [0; 4096];
            loop {
                match outside.read(&mut bytes) {
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    // nobody has it open any more
                    Ok(0) | Err(_) => return,
                    Ok(n) => {
                        if tell.send(bytes[..n].to_vec()).is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Pty {
            child,
            keyboard,
            inside,
            before,
            output,
            screen: vt100::Parser::new(ROWS, COLUMNS, 0),
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen is as wanted.
    fn wait_for(&mut self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) {
        let begin = Instant::now();
        while !wanted(self.screen.screen()) {
            assert!(
                begin.elapsed() < PATIENCE,
                "no {what}:\n{}",
                self.screen.screen().contents()
            );
            match self.output.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("the terminal is gone"),
            }
        }
    }

    fn wait_for_text(&mut self, text: &str) {
        self.wait_for(text, |s| s.contents().contains(text));
    }

    /// Its exit status, once it has ended; the terminal must be as it was before.
    fn ends(&mut self) -> Option<i32> {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        // behind all that it has written: what it left is judged when all of it has been read
        self.inside.write_all(END.as_bytes()).unwrap();
        self.wait_for_text(END);
        self.wait_for("screen of before", |s| !s.alternate_screen());
        self.wait_for("cursor", |s| !s.hide_cursor());
        assert!(!self.screen.screen().bracketed_paste());
        let after = tcgetattr(&self.inside).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        status.code()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // it has ended unless a test has failed
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_policy_is_changed_in_a_terminal() {
    let ssh = made_up_ssh(ANSWERS);
    let mut t = Pty::start(top(ssh.path(), &["--ssh", "far", "--every", "0.1"]));
    t.wait_for_text("scx_amp on far  policy hsp  provider none");
    t.wait_for_text("812 ha?[2Jsh");
    assert!(t.screen.screen().alternate_screen());
    let now = tcgetattr(&t.inside).unwrap();
    assert!(!now.local_modes.contains(LocalModes::ECHO));
    t.press("?");
    t.wait_for_text("keys and columns");
    t.press("q/zzz\r");
    t.wait_for_text("no thread has \"zzz\" in it");
    t.press("\x1b");
    t.wait_for_text("812 ha?[2Jsh");
    t.press("p");
    t.wait_for_text("> hsp");
    t.press("jjj\x1b[B\r");
    t.wait_for_text("Put policy acfs to work instead of hsp?");
    t.press("y");
    t.wait_for_text("acfs (), provider none");
    // what is refused says why
    t.press("o\r9\r");
    t.wait_for_text("Set threshold to 9 instead of 5?");
    t.press("y");
    t.wait_for_text("--ssh far: not this");
    t.press("q");
    assert_eq!(t.ends(), Some(0));
    let words = std::fs::read_to_string(ssh.path().join("words")).unwrap();
    let asked =
        "-T|-o|BatchMode=yes|-o|ConnectTimeout=10|-o|ServerAliveInterval=5|--|far|scx_amp|ctl|";
    let said: Vec<&str> = words
        .lines()
        .map(|l| l.strip_prefix(asked).unwrap())
        .collect();
    assert_eq!(said[0], "status|--json|-|");
    assert!(said.contains(&"policy|acfs|"), "{said:?}");
    assert!(said.contains(&"set|threshold=9|"), "{said:?}");
}

#[test]
fn the_terminal_is_given_back_whatever_ends_it() {
    let ssh = made_up_ssh(ANSWERS);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut t = Pty::start(top(ssh.path(), &["--ssh", "far"]));
        t.wait_for_text("policy hsp");
        let pid = Pid::from_raw(t.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(t.ends(), Some(0), "{signal:?}");
    }
    let mut t = Pty::start(top(ssh.path(), &["--ssh", "far"]));
    t.wait_for_text("policy hsp");
    t.press("\x03");
    assert_eq!(t.ends(), Some(0));
    let mut t = Pty::start(top(ssh.path(), &["--ssh", "far", "--panic-at", "2"]));
    assert_eq!(t.ends(), Some(101));
    t.wait_for_text("asked for with --panic-at");
}

#[test]
fn a_machine_that_does_not_answer_stops_neither_screen_nor_end() {
    // the first look is answered, no other
    let ssh = made_up_ssh(
        "[ -e \"$status\".asked ] && exec sleep 600\n: > \"$status\".asked\ncat \"$status\"",
    );
    let mut t = Pty::start(top(ssh.path(), &["--ssh", "far", "--every", "0.1"]));
    t.wait_for_text("policy hsp");
    t.wait_for_text("no answer for ");
    t.press("?");
    t.wait_for_text("keys and columns");
    t.press("qq");
    assert_eq!(t.ends(), Some(0));
}

#[test]
fn a_lost_machine_is_said_and_comes_back() {
    let ssh = made_up_ssh(
        "[ -e \"$status\" ] || { echo 'no route to far' >&2; exit 255; }\ncat \"$status\"",
    );
    let mut t = Pty::start(top(ssh.path(), &["--ssh", "far", "--every", "0.1"]));
    t.wait_for_text("policy hsp");
    std::fs::rename(ssh.path().join("status.json"), ssh.path().join("away")).unwrap();
    t.wait_for_text("--ssh far: no route to far");
    std::fs::rename(ssh.path().join("away"), ssh.path().join("status.json")).unwrap();
    t.wait_for("line less", |s| !s.contents().contains("no route"));
    t.press("q");
    assert_eq!(t.ends(), Some(0));
}

#[test]
fn no_color_has_no_colours() {
    let ssh = made_up_ssh(ANSWERS);
    let mut command = top(ssh.path(), &["--ssh", "far"]);
    command.env("NO_COLOR", "1");
    let mut t = Pty::start(command);
    t.wait_for_text("812 ha?[2Jsh");
    let screen = t.screen.screen();
    for (row, column) in (0..24).flat_map(|r| (0..80).map(move |c| (r, c))) {
        let cell = screen.cell(row, column).unwrap();
        assert_eq!(cell.fgcolor(), vt100::Color::Default, "{row} {column}");
        assert_eq!(cell.bgcolor(), vt100::Color::Default, "{row} {column}");
    }
    t.press("q");
    assert_eq!(t.ends(), Some(0));
}

#[test]
fn a_pipe_gets_the_table() {
    let ssh = made_up_ssh(ANSWERS);
    let out = piped(ssh.path(), &["--once", "--ssh", "far"]);
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(
        text.starts_with("policy hsp (threshold=5)  provider none"),
        "{text}"
    );
    assert!(
        text.contains("ha?[2Jsh") && !text.contains('\x1b'),
        "{text}"
    );
    // a terminal that can do nothing gets it, too
    let mut command = top(ssh.path(), &["--ssh", "far", "--every", "0.1"]);
    command.env("TERM", "dumb");
    let mut t = Pty::start(command);
    t.wait_for_text("policy hsp (threshold=5)");
    assert!(!t.screen.screen().alternate_screen());
}

#[test]
fn what_cannot_be_asked_is_said_before_the_screen_is_cleared() {
    let ssh = made_up_ssh("echo 'far: no such \x1b[2Jhost' >&2; exit 255");
    let out = piped(ssh.path(), &["--ssh", "far"]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.contains("--ssh far: far: no such ?[2Jhost"),
        "{said:?}"
    );
    let mut t = Pty::start(top(ssh.path(), &["--ssh", "far"]));
    t.wait_for_text("--ssh far: far: no such");
    assert_eq!(t.ends(), Some(1));
    // ssh never sees what it would take for an option
    for host in ["--ssh=-oProxyCommand=true", "--ssh="] {
        let out = piped(ssh.path(), &[host]);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains("--ssh"), "{said}");
    }
    let words = std::fs::read_to_string(ssh.path().join("words")).unwrap();
    assert!(!words.contains("ProxyCommand"), "{words}");
}
