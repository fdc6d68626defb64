//! The state of the screen: what it is told becomes a new state, and perhaps a request.
//!
//! Pure: no clock, no terminal, no socket.

pub mod choices;
pub mod dialog;
mod keys;
pub mod threads;

pub use dialog::Dialog;
pub use keys::HELP;
pub use threads::{Row, Sort, Threads};

use crate::control::Request;
use crate::status::Status;
use ratatui::crossterm::event::KeyEvent;
use std::time::Duration;

/// What the screen is told.
#[derive(Debug)]
pub enum Input {
    /// A key.
    Key(KeyEvent),
    /// Text that was pasted.
    Paste(String),
    /// Time since the screen began.
    Clock(Duration),
    /// What the scheduler is doing.
    Status(Box<Status>),
    /// Why the scheduler did not say what it is doing.
    Lost(String),
    /// What came of a request: what is different now, or why nothing is.
    Answer(Result<String, String>),
}

/// What is to be done about an input, beside drawing the new state.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Ask the scheduler for a change.
    Ask(Request),
    /// End.
    Quit,
}

/// The state.
pub struct Model {
    /// The other machine, where it is another.
    pub host: Option<String>,
    /// The last status.
    pub status: Status,
    /// Its threads, with what only a row of statuses can show.
    pub threads: Threads,
    /// Threads that changed core types each second, between the last two statuses.
    pub swaps_per_s: Option<f64>,
    /// Why nothing newer is known; none while all is well.
    pub lost: Option<String>,
    /// What is open over the table.
    pub dialog: Dialog,
    /// What came of the last request, until the next key: text, and whether it was done.
    pub message: Option<(String, bool)>,
    /// A request that was not answered yet.
    pub waiting: bool,
    clock: Duration,
    heard: Duration,
}

impl Model {
    /// The state at the beginning.
    pub fn new(host: Option<&str>, status: Status) -> Model {
        let mut threads = Threads::default();
        threads.take_in(&status);
        Model {
            host: host.map(str::to_owned),
            status,
            threads,
            swaps_per_s: None,
            lost: None,
            dialog: Dialog::Closed,
            message: None,
            waiting: false,
            clock: Duration::ZERO,
            heard: Duration::ZERO,
        }
    }

    /// Takes in an input; what is to be done about it.
    pub fn input(&mut self, input: Input) -> Effect {
        match input {
            Input::Key(key) => return keys::key(self, key),
            Input::Paste(text) => keys::paste(self, &text),
            Input::Clock(now) => self.clock = now,
            Input::Status(status) => self.hear(*status),
            Input::Lost(why) => self.lost = Some(why),
            Input::Answer(answer) => {
                self.waiting = false;
                self.message = Some(match answer {
                    Ok(done) => (done, true),
                    Err(why) => (why, false),
                });
            }
        }
        Effect::None
    }

    /// Time since the scheduler last said what it is doing.
    pub fn silence(&self) -> Duration {
        self.clock.saturating_sub(self.heard)
    }

    fn hear(&mut self, status: Status) {
        let passed = status.uptime_s - self.status.uptime_s;
        // less than before: another scheduler
        let swaps = status.swaps.checked_sub(self.status.swaps);
        self.swaps_per_s = swaps.filter(|_| passed > 0.0).map(|n| n as f64 / passed);
        self.threads.take_in(&status);
        self.status = status;
        self.lost = None;
        self.heard = self.clock;
        // a thread that has gone has no details
        if let Dialog::Details(tid) = self.dialog {
            if !self.threads.rows().any(|r| r.thread.tid == tid) {
                self.dialog = Dialog::Closed;
            }
        }
    }
}

#[cfg(test)]
pub mod samples;
#[cfg(test)]
mod tests;
