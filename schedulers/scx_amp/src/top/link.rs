//! The thread that talks to the scheduler, so that a scheduler that does not answer never stops the
//! screen.

use super::model::Input;
use super::source::Source;
use crate::control::Request;
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Asks for a status every so often, and makes the requests that go into what it returns. What
/// comes of that goes through `tell`. It ends when either side is gone.
pub fn start(
    source: Source,
    every: Duration,
    tell: impl Fn(Input) -> bool + Send + 'static,
) -> Sender<Request> {
    let (requests, wanted) = channel::<Request>();
    std::thread::spawn(move || {
        let mut next = Instant::now() + every;
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            let heard = match wanted.recv_timeout(wait) {
                Ok(request) => {
                    // what has changed is shown at once
                    next = Instant::now();
                    let answer = source.change(&request);
                    Input::Answer(answer.map_err(|e| super::source::clean(&format!("{e:#}"))))
                }
                Err(RecvTimeoutError::Timeout) => {
                    let status = source.ask();
                    next = Instant::now() + every;
                    match status {
                        Ok(status) => Input::Status(Box::new(status)),
                        Err(e) => Input::Lost(super::source::clean(&format!("{e:#}"))),
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if !tell(heard) {
                return;
            }
        }
    });
    requests
}
