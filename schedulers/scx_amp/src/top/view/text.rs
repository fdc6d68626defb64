//! Lines of text that fit.

use super::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

/// Cells between two items.
const GAP: usize = 2;

/// Cells that the text takes.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The beginning of the text, in so many cells; with a sign where something was left out.
pub fn cut(text: &str, cells: usize, theme: &Theme) -> String {
    if width(text) <= cells {
        return text.to_owned();
    }
    if cells == 0 {
        return String::new();
    }
    let mut out = String::new();
    for c in text.chars() {
        out.push(c);
        if width(&out) >= cells {
            out.pop();
            break;
        }
    }
    out + theme.more()
}

/// The end of the text, in so many cells.
pub fn tail(text: &str, cells: usize) -> String {
    let mut from = text.char_indices().map(|(i, _)| i);
    let mut at = from.next().unwrap_or(0);
    while width(&text[at..]) > cells {
        at = from.next().unwrap_or(text.len());
    }
    text[at..].to_owned()
}

/// The text in exactly so many cells.
pub fn fit(text: &str, cells: usize, right: bool, theme: &Theme) -> String {
    let text = cut(text, cells, theme);
    let blank = " ".repeat(cells.saturating_sub(width(&text)));
    if right {
        blank + &text
    } else {
        text + &blank
    }
}

/// Lines of words, for text that has to be read as a whole.
pub fn wrap(text: &str, cells: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for mut word in text.split_whitespace() {
        loop {
            let last = lines.last_mut().expect("there is one from the start");
            let used = width(last);
            let gap = usize::from(used > 0);
            if used + gap + width(word) <= cells {
                last.push_str(&" ".repeat(gap));
                last.push_str(word);
                break;
            }
            if used > 0 {
                lines.push(String::new());
                continue;
            }
            // longer than a line
            let mut end = 0;
            for (i, c) in word.char_indices() {
                let next = i + c.len_utf8();
                if end > 0 && width(&word[..next]) > cells {
                    break;
                }
                end = next;
            }
            last.push_str(&word[..end]);
            word = &word[end..];
            if word.is_empty() {
                break;
            }
            lines.push(String::new());
        }
    }
    lines
}

/// Items one after the other, in at most so many lines; how many items were left out.
pub fn flow<'a>(items: Vec<Vec<Span<'a>>>, cells: usize, most: usize) -> (Vec<Line<'a>>, usize) {
    let mut lines: Vec<Line<'a>> = Vec::new();
    let mut used = 0;
    let all = items.len();
    for (n, item) in items.into_iter().enumerate() {
        let wide: usize = item.iter().map(Span::width).sum();
        let full = lines.len() == most;
        match lines.last_mut() {
            Some(line) if used + GAP + wide <= cells => {
                line.push_span(Span::raw(" ".repeat(GAP)));
                line.spans.extend(item);
                used += GAP + wide;
            }
            _ if full => return (lines, all - n),
            _ => {
                lines.push(Line::from(item));
                used = wide;
            }
        }
    }
    (lines, 0)
}

/// Writes lines into an area, as far as they fit.
pub fn put(buffer: &mut Buffer, area: Rect, lines: &[Line<'_>]) {
    for (line, row) in lines.iter().zip(area.rows()) {
        line.render(row, buffer);
    }
}
