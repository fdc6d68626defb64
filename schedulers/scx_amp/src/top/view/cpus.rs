//! CPUs by core type, with who sits there.

use super::text::{fit, width as cells};
use super::Theme;
use crate::status::{CpuStatus, Status};
use ratatui::text::{Line, Span};

/// Cells of a command name.
const NAME: usize = 10;

/// A line or more for each core type, `most` at most in all; the fastest comes first.
pub fn lines(status: &Status, theme: &Theme, width: usize, most: usize) -> Vec<Line<'static>> {
    let types = &status.core_types;
    if status.cpus.is_empty() || types.is_empty() || most == 0 {
        return Vec::new();
    }
    let label = types
        .iter()
        .map(|t| cells(t))
        .max()
        .unwrap_or(0)
        .min(width / 4);
    let number = status.cpus.iter().map(|c| c.cpu.to_string().len()).max();
    let number = number.unwrap_or(1);
    let cell = number + 1 + NAME + 2;
    let per_line = (width.saturating_sub(label + 2) / cell).max(1);
    // each type has its first line before any has its second
    let wants = |name: &String| of(status, name).count().div_ceil(per_line);
    let mut given = vec![0; types.len()];
    let mut left = most;
    let mut again = true;
    while again && left > 0 {
        again = false;
        for (given, name) in given.iter_mut().zip(types) {
            if left > 0 && *given < wants(name) {
                *given += 1;
                left -= 1;
                again = true;
            }
        }
    }
    let mut lines = Vec::new();
    for (i, (name, given)) in types.iter().zip(given).enumerate() {
        let style = theme.core_type(i, types.len());
        let all: Vec<&CpuStatus> = of(status, name).collect();
        let room = given * per_line;
        let shown = if all.len() > room && room > 0 {
            room - 1
        } else {
            all.len().min(room)
        };
        let mut items: Vec<Vec<Span>> = all[..shown]
            .iter()
            .map(|c| seat(c, number, style, theme))
            .collect();
        if shown < all.len() && room > 0 {
            let busy = all[shown..].iter().filter(|c| c.tid != 0).count();
            let rest = all.len() - shown;
            let text = fit(&format!("{busy}/{rest} busy"), cell - 2, false, theme);
            items.push(vec![Span::styled(text, theme.faint())]);
        }
        for (n, line) in items.chunks(per_line).enumerate() {
            let head = if n == 0 { name.as_str() } else { "" };
            let mut spans = vec![Span::styled(fit(head, label, false, theme), style)];
            for item in line {
                spans.push(Span::raw("  "));
                spans.extend(item.iter().cloned());
            }
            lines.push(Line::from(spans));
        }
    }
    lines
}

fn of<'a>(status: &'a Status, name: &'a str) -> impl Iterator<Item = &'a CpuStatus> {
    status.cpus.iter().filter(move |c| c.core_type == name)
}

fn seat(
    cpu: &CpuStatus,
    number: usize,
    style: ratatui::style::Style,
    theme: &Theme,
) -> Vec<Span<'static>> {
    let name = if cpu.tid == 0 { "-" } else { &cpu.comm };
    let style = if cpu.tid == 0 { theme.faint() } else { style };
    vec![
        Span::styled(format!("{:>number$} ", cpu.cpu), theme.faint()),
        Span::styled(fit(name, NAME, false, theme), style),
    ]
}
