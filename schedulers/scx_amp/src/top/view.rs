//! The screen: a state becomes cells.
//!
//! Pure: what it draws depends on the model, the theme and the size alone. It fits any size; where
//! there is little room, what matters least is left out.

mod cpus;
mod dialogs;
mod header;
mod table;
mod text;
mod theme;

pub use theme::Theme;

use super::model::{Dialog, Model};
use ratatui::layout::{Constraint, Layout};
use ratatui::text::{Line, Span};
use ratatui::Frame;

/// Lines that the table should have before anything else gets a second one.
const TABLE: u16 = 8;

/// Draws the state.
pub fn draw(frame: &mut Frame, model: &Model, theme: &Theme) {
    let area = frame.area();
    let width = usize::from(area.width);
    let room = usize::from(area.height.saturating_sub(TABLE + 1));
    let header = header::lines(model, theme, width, (room * 2 / 3).max(1));
    let left = room.saturating_sub(header.len());
    let cpus = cpus::lines(&model.status, theme, width, left);
    let [top, middle, below, foot] = Layout::vertical([
        Constraint::Length(header.len() as u16),
        Constraint::Length(cpus.len() as u16),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    let buffer = frame.buffer_mut();
    text::put(buffer, top, &header);
    text::put(buffer, middle, &cpus);
    table::draw(buffer, below, model, theme);
    text::put(buffer, foot, &[footer(model, theme, width)]);
    dialogs::draw(buffer, area, model, theme);
}

fn footer<'a>(model: &'a Model, theme: &Theme, width: usize) -> Line<'a> {
    if let Dialog::Filter(_) = model.dialog {
        let typed = format!("show only: {}_", model.threads.filter());
        let end = text::tail(&typed, width);
        return Line::styled(end, theme.strong());
    }
    if model.waiting {
        return Line::styled("waiting for the scheduler ...", theme.strong());
    }
    if let Some((said, done)) = &model.message {
        let style = if *done { theme.strong() } else { theme.bad() };
        return Line::styled(text::cut(said, width, theme), style);
    }
    let keys = [
        ("?", "help"),
        ("q", "end"),
        ("/", "filter"),
        ("s r", "sort"),
        ("p", "policy"),
        ("P", "profile"),
        ("m", "metrics"),
        ("o", "knobs"),
    ];
    let mut spans = Vec::new();
    let mut used = 0;
    for (key, what) in keys {
        let item = key.len() + 1 + what.len() + 2;
        // the last one needs no gap behind it
        if used + item - 2 > width {
            break;
        }
        used += item;
        spans.push(Span::styled(key, theme.strong()));
        spans.push(Span::styled(format!(" {what}  "), theme.faint()));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests;
