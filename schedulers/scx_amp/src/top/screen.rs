//! The loop: inputs to the model, the model to the screen, requests to the link.

use super::link;
use super::model::{Effect, Input, Model};
use super::source::Source;
use super::view::{self, Theme};
use amp_host::on_signal;
use anyhow::{Context, Result};
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, Event};
use ratatui::crossterm::execute;
use std::io::stdout;
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Longest time between two screens, so that it shows how old what it shows is.
const REDRAW: Duration = Duration::from_secs(1);

/// What wakes the loop.
enum Wake {
    /// The model has to know.
    Input(Input),
    /// The window has another size.
    Redraw,
    /// The user, or whoever sends signals, wants to stop.
    Stop,
}

/// Gives the terminal back when it is dropped.
struct Terminal;

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    // a terminal that has gone needs nothing
    let _ = execute!(stdout(), DisableBracketedPaste, Show);
    let _ = ratatui::try_restore();
}

/// Shows it until the user ends it; with `panic_at`, a test aid, until that screen.
///
/// # Errors
/// When no scheduler is running at the start, the caller may not ask it, or the terminal fails.
pub fn show(source: &Source, every: Duration, panic_at: Option<u64>) -> Result<()> {
    // before the screen is cleared, so that what is wrong can be read
    let mut model = Model::new(source.host(), source.ask()?);
    let theme = Theme::of_environment();
    let (wakes, woken) = channel();
    let stop = wakes.clone();
    on_signal(move || {
        // the loop has ended already
        let _ = stop.send(Wake::Stop);
    })?;
    let told = wakes.clone();
    let requests = link::start(source.clone(), every, move |i| {
        told.send(Wake::Input(i)).is_ok()
    });
    // ratatui's own hook, which it puts before this one, leaves the screen
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        before(panic);
    }));
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let given_back = Terminal;
    execute!(stdout(), EnableBracketedPaste)?;
    std::thread::spawn(move || keys(&wakes));
    let began = Instant::now();
    let mut screens = 0;
    loop {
        model.input(Input::Clock(began.elapsed()));
        terminal.draw(|frame| view::draw(frame, &model, &theme))?;
        screens += 1;
        if panic_at.is_some_and(|n| screens >= n) {
            panic!("asked for with --panic-at");
        }
        let mut wake = woken.recv_timeout(REDRAW);
        loop {
            let effect = match wake {
                Ok(Wake::Input(input)) => model.input(input),
                Ok(Wake::Redraw) | Err(RecvTimeoutError::Timeout) => Effect::None,
                Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => Effect::Quit,
            };
            match effect {
                Effect::None => {}
                Effect::Ask(request) => {
                    // a link that has ended is told as lost
                    if requests.send(request).is_err() {
                        model.input(Input::Lost("the link has ended".into()));
                    }
                }
                Effect::Quit => {
                    source.end();
                    drop(given_back);
                    return Ok(());
                }
            }
            // one screen for all that came meanwhile
            match woken.try_recv() {
                Ok(next) => wake = Ok(next),
                Err(_) => break,
            }
        }
    }
}

/// Hands on what the terminal says, until it or the loop is gone.
fn keys(wakes: &Sender<Wake>) {
    loop {
        let wake = match event::read() {
            Ok(Event::Key(key)) => Wake::Input(Input::Key(key)),
            Ok(Event::Paste(text)) => Wake::Input(Input::Paste(text)),
            Ok(_) => Wake::Redraw,
            Err(_) => Wake::Stop,
        };
        let last = matches!(wake, Wake::Stop);
        if wakes.send(wake).is_err() || last {
            return;
        }
    }
}
