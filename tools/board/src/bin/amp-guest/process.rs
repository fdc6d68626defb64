//! Running the script as PID 1, and ending the guest.

use rustix::process::{Pid, WaitOptions};
use rustix::termios;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Bytes go out as they are written: no newline translation.
pub fn plain_console() {
    let out = std::io::stdout();
    if let Ok(mut t) = termios::tcgetattr(&out) {
        t.output_modes.remove(termios::OutputModes::OPOST);
        // A console without the setting only adds carriage returns.
        let _ = termios::tcsetattr(&out, termios::OptionalActions::Now, &t);
    }
}

fn base(program: &str) -> Command {
    let mut c = Command::new(program);
    c.env_clear()
        .env("PATH", amp_board::job::SEARCH_PATH)
        .env("HOME", "/root")
        // nobody looks on while a script runs: no bars that move
        .env("TERM", "dumb")
        .env("LANG", "C.UTF-8")
        .current_dir("/root");
    c
}

/// Runs the script to its end, reaping orphans meanwhile; 128+n when signal n ended it.
pub fn script(path: &str) -> Result<i32, String> {
    let child = base("/bin/sh")
        .arg(path)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("/bin/sh: {e}"))?;
    wait_for(child.id())
}

/// A shell that owns the console.
pub fn shell() -> Result<i32, String> {
    let mut c = base("/bin/sh");
    c.arg("-i")
        .env("PS1", "board# ")
        .env("ENV", "/etc/profile")
        .env("TERM", "vt100");
    // SAFETY: two system calls, both async-signal-safe, on the standard input that the child has
    // anyway.
    unsafe {
        c.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(std::io::stdin())?;
            Ok(())
        });
    }
    let child = c.spawn().map_err(|e| format!("/bin/sh: {e}"))?;
    wait_for(child.id())
}

fn wait_for(id: u32) -> Result<i32, String> {
    let wanted = i32::try_from(id).ok().and_then(Pid::from_raw);
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == wanted => {
                let signal = status.terminating_signal().map(|s| 128 + s);
                return Ok(status.exit_status().or(signal).unwrap_or(255));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("wait: {e}")),
        }
    }
}

/// Ends what the script left running, so that collected files no longer change.
pub fn kill_everything() {
    // SAFETY: kill(2) with -1 reaches every process but PID 1, which is this one.
    unsafe {
        libc::kill(-1, libc::SIGKILL);
    }
    // Reap until there is no child left.
    while let Ok(Some(_)) | Err(rustix::io::Errno::INTR) =
        rustix::process::wait(WaitOptions::empty())
    {}
}

/// Writes everything out and powers off.
pub fn power_off() -> ! {
    rustix::fs::sync();
    let self_is_init = rustix::process::getpid().is_init();
    if self_is_init {
        // When it fails PID 1 ends below and the kernel panics, which the host notices.
        let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    }
    std::process::exit(1)
}
