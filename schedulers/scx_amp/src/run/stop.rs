//! SIGINT, SIGTERM and SIGHUP end the scheduler, also one whose deciding thread does not hear of them.

use super::Event;
use amp_host::on_signal;
use anyhow::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::Duration;

/// How long the deciding thread may take to hear of a signal. To load the programs again, after CPUs came or went, takes a slow
/// machine some seconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the deciding thread is told, [`Event::Stop`] by signals among it.
pub struct Signals {
    /// For whoever else has something to say.
    pub sender: Sender<Event>,
    events: Receiver<Event>,
    heard: Arc<AtomicBool>,
}

impl Signals {
    /// Starts a thread that waits for signals. A second one ends the process at once if the first was not heard; so does time.
    ///
    /// # Errors
    /// When the process has a handler already.
    pub fn new() -> Result<Signals> {
        let (sender, events) = channel();
        let heard = Arc::new(AtomicBool::new(false));
        let (stop, hears) = (sender.clone(), heard.clone());
        let mut asked = false;
        on_signal(move || {
            // nobody listens any more: the command is ending already
            let _ = stop.send(Event::Stop);
            if std::mem::replace(&mut asked, true) {
                leave_unless(&hears, "it was asked to end twice");
                return;
            }
            let hears = hears.clone();
            std::thread::spawn(move || {
                std::thread::sleep(PATIENCE);
                leave_unless(&hears, "it has not heard that it is to end");
            });
        })?;
        Ok(Signals {
            sender,
            events,
            heard,
        })
    }

    /// The next event, if there is one `within` that time. Once [`Event::Stop`] was taken, ending may take as long as it takes.
    pub fn next(&self, within: Duration) -> Result<Event, RecvTimeoutError> {
        let event = self.events.recv_timeout(within);
        if let Ok(Event::Stop) = event {
            self.heard.store(true, Ordering::Relaxed);
        }
        event
    }
}

/// Ends the process unless it was heard that it is to end. The kernel takes the scheduler away with it.
fn leave_unless(heard: &AtomicBool, why: &str) {
    if !heard.load(Ordering::Relaxed) {
        log::error!("{why}, so it ends at once; a scheduler that it has loaded ends with it");
        std::process::exit(1);
    }
}
