//! `amp-guest`: the agent in the guest of the virtual board.
//!
//! PID 1 after `/init`. Runs the script with its output on the console, hands exit code and
//! collected files to the host through the mailbox, and powers the guest off.

mod collect;
mod modules;
mod outbox;
mod process;

use amp_board::job::{self, Job, BEGIN, END, MARK};
use amp_board::mailbox::{DONE, FAILED};
use amp_machine::page::publish_hint;
use std::io::Write;

fn main() {
    let outcome = std::panic::catch_unwind(work).unwrap_or_else(|_| Err("it panicked".into()));
    let delivered = match outcome {
        Ok((code, archive)) => outbox::deliver(DONE, code, &archive),
        Err(message) => outbox::deliver(FAILED, 0, message.as_bytes()),
    };
    if let Err(e) = delivered {
        say(&format!("amp-guest: {e}\n"));
    }
    process::power_off();
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody is left to tell when the console itself fails.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn work() -> Result<(i32, Vec<u8>), String> {
    let text = std::fs::read(job::PATH).map_err(|e| format!("{}: {e}", job::PATH))?;
    let job: Job = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", job::PATH))?;
    modules::load(job::MODULES)?;
    // from here on the board's caches are looked at
    publish_hint();
    if job.interactive {
        let code = process::shell()?;
        return Ok((code, collect::archive(&job.collect)?));
    }
    process::plain_console();
    say(&format!("{MARK}{BEGIN}\n"));
    let code = process::script(job::SCRIPT)?;
    say(&format!("{MARK}{END} {code}\n"));
    process::kill_everything();
    Ok((code, collect::archive(&job.collect)?))
}
