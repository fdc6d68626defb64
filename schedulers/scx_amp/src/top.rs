//! `scx_amp top`: the running scheduler's threads, what is known of them, and where they are.
//!
//! ```text
//! socket or ssh ──► link (a thread) ──Input──► model ──► view ──► terminal
//!                        ▲                       │
//! keys (a thread) ───────┼───────Input───────────┤
//!                        └────────Request────────┘
//! ```
//!
//! The model ([`model`]) and the view ([`view`]) are pure: an input makes a new state and perhaps
//! a request, and a state makes a screen. Whatever may wait (the socket, ssh, the keyboard) has a
//! thread of its own ([`screen`]). On anything that is no terminal there is a table ([`plain`]).

#[cfg(feature = "screen")]
mod link;
#[cfg(feature = "screen")]
mod model;
mod plain;
#[cfg(feature = "screen")]
mod screen;
mod source;
pub use source::clean;
#[cfg(feature = "screen")]
mod view;

use anyhow::Result;
use clap::Args;
use source::Source;
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// Options of `scx_amp top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Print one table and end
    #[arg(long)]
    pub once: bool,
    /// The scheduler of another machine: runs `scx_amp ctl` there through ssh
    #[arg(long, value_name = "HOST")]
    pub ssh: Option<String>,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0, value_name = "SECS", value_parser = interval)]
    pub every: f64,
    /// Test aid: panic at this screen
    #[arg(long, hide = true)]
    pub panic_at: Option<u64>,
}

fn interval(text: &str) -> Result<f64, String> {
    let secs = text.parse().ok().filter(|s| (0.1..=3600.0).contains(s));
    secs.ok_or_else(|| "a number of seconds from 0.1 to 3600 is needed".into())
}

/// Shows it once, or over and over until the user ends it.
///
/// # Errors
/// [`amp_host::BadInput`] for a host that ssh would take for an option; when no scheduler is
/// running, or the caller may not ask it.
pub fn main(args: &TopArgs) -> Result<()> {
    let source = Source::new(args.ssh.as_deref())?;
    let every = Duration::from_secs_f64(args.every);
    #[cfg(feature = "screen")]
    if !args.once && is_a_screen() {
        return screen::show(&source, every, args.panic_at);
    }
    let mut out = std::io::stdout().lock();
    loop {
        let text = plain::table(&source.ask()?);
        let end = if args.once { "" } else { "\n" };
        match write!(out, "{text}{end}").and_then(|()| out.flush()) {
            // whoever read it has had enough
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
        if args.once {
            return Ok(());
        }
        std::thread::sleep(every);
    }
}

/// Whether keys come in, and whatever goes out can be drawn over.
#[cfg(feature = "screen")]
fn is_a_screen() -> bool {
    use std::io::IsTerminal;
    let dumb = std::env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb");
    !dumb && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}
