//! Boxes over the table.

use super::header::duration;
use super::text::{cut, fit, tail, width as cells, wrap};
use super::Theme;
use crate::top::model::dialog::{Choose, Confirm, Field, What};
use crate::top::model::{Dialog, Model, Row, HELP};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Widget};

/// Signs of a frame for terminals without others.
const ASCII: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Most cells that a box is wide.
const WIDEST: u16 = 76;

/// Draws what is open.
pub fn draw(buffer: &mut Buffer, area: Rect, model: &Model, theme: &Theme) {
    let inner = usize::from(area.width.min(WIDEST).saturating_sub(4));
    let room = usize::from(area.height.saturating_sub(2));
    let (title, lines) = match &model.dialog {
        Dialog::Closed | Dialog::Filter(_) => return,
        Dialog::Help(from) => (" keys and columns ", help(*from, inner, room, theme)),
        Dialog::Details(tid) => {
            let Some(row) = model.threads.rows().find(|r| r.thread.tid == *tid) else {
                return;
            };
            (" thread ", details(row, inner, theme))
        }
        Dialog::Choose(list) => (title_of(list.what), choose(list, inner, room, theme)),
        Dialog::Type(field) => (title_of(field.what), type_in(field, inner, theme)),
        Dialog::Confirm(c) => (" sure? ", confirm(c, inner, theme)),
    };
    let wide = lines.iter().map(Line::width).max().unwrap_or(0);
    let wide = wide.max(title.len()).min(inner) as u16 + 4;
    let high = (lines.len().min(room) as u16) + 2;
    let place = Rect {
        x: area.x + area.width.saturating_sub(wide) / 2,
        y: area.y + area.height.saturating_sub(high) / 2,
        width: wide.min(area.width),
        height: high.min(area.height),
    };
    Clear.render(place, buffer);
    let set = if theme.unicode { border::PLAIN } else { ASCII };
    let block = Block::bordered().border_set(set).title(title);
    let inside = block.inner(place);
    block.render(place, buffer);
    let inside = Rect {
        x: (inside.x + 1).min(inside.right()),
        width: inside.width.saturating_sub(2),
        ..inside
    };
    super::text::put(buffer, inside, &lines);
}

fn title_of(what: What) -> &'static str {
    match what {
        What::Policy => " policy ",
        What::Profile => " profile ",
        What::Provider => " provider of metrics ",
        What::Knob => " knobs ",
    }
}

fn help(from: usize, width: usize, room: usize, theme: &Theme) -> Vec<Line<'static>> {
    let keys = HELP.iter().map(|(k, _)| k.len()).max().unwrap_or(0);
    let from = from.min(HELP.len().saturating_sub(room));
    let shown = HELP.iter().skip(from).take(room);
    shown
        .map(|(key, what)| {
            let key = Span::styled(fit(key, keys + 2, false, theme), theme.strong());
            let what = cut(what, width.saturating_sub(keys + 2), theme);
            Line::from(vec![key, Span::raw(what)])
        })
        .collect()
}

fn details(row: &Row, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let t = &row.thread;
    let placed = match t.placed.as_str() {
        "" => "not placed".to_owned(),
        name => format!("placed on {name}"),
    };
    let mut facts = vec![
        (
            "thread".to_owned(),
            format!("{} {} of process {}", t.tid, t.comm, t.app),
        ),
        ("on".into(), format!("{}, {placed}", t.core_type)),
        (
            "cpu".into(),
            format!(
                "{:.2} s, {:.1} % of it on the fastest core type, weight {}",
                t.cpu_s,
                t.big_time_share * 100.0,
                t.weight
            ),
        ),
    ];
    if let Some(slowdown) = row.slowdown() {
        let work = format!(
            "{:.2} s of work in {:.2} s: slowdown {slowdown:.3}",
            t.alone_s, t.rated_s
        );
        facts.push(("progress".into(), work));
    }
    if let Some(number) = t.phase.get("number") {
        let age = t.phase.get("age_s").copied().unwrap_or(0.0);
        facts.push((
            "phase".into(),
            format!("{number:.0}, for {}", duration(age)),
        ));
    }
    for (name, m) in &t.metrics {
        let about = if m.uncertainty > 0.0 {
            format!(" {} {:.4}", theme.plus_minus(), m.uncertainty)
        } else {
            String::new()
        };
        let text = format!("{:.4}{about}  {}, {:.1} s old", m.value, m.quality, m.age_s);
        facts.push((name.clone(), text));
    }
    for (name, value) in &t.virtual_counters {
        facts.push((name.clone(), format!("{value:.4}")));
    }
    if !t.rule.is_empty() {
        facts.push(("rule".into(), t.rule.clone()));
    }
    let names = facts.iter().map(|(n, _)| cells(n)).max().unwrap_or(0);
    let names = names.min(width / 2);
    let mut lines = Vec::new();
    for (name, text) in facts {
        let wrapped = wrap(&text, width.saturating_sub(names + 2).max(1));
        for (i, text) in wrapped.into_iter().enumerate() {
            let name = if i == 0 { name.as_str() } else { "" };
            let name = fit(name, names, false, theme) + "  ";
            let name = Span::styled(name, theme.faint());
            lines.push(Line::from(vec![name, Span::raw(text)]));
        }
    }
    lines
}

fn choose(list: &Choose, width: usize, room: usize, theme: &Theme) -> Vec<Line<'static>> {
    let names = list.all.iter().map(|c| cells(&c.name)).max().unwrap_or(0);
    let values = list.all.iter().map(|c| cells(&c.value)).max().unwrap_or(0);
    let values = if values > 0 { values + 2 } else { 0 };
    // what the marked one is stands below the list
    let about = list.all.get(list.at).map_or("", |c| &c.about);
    let about = wrap(about, width.max(1));
    let about = &about[..about.len().min(3)];
    let page = room.saturating_sub(about.len() + 1).max(1);
    let from = list.at / page * page;
    let mut lines = Vec::new();
    for (at, choice) in list.all.iter().enumerate().skip(from).take(page) {
        let marked = at == list.at;
        let mark = if marked { "> " } else { "  " };
        let name = fit(&choice.name, names + 2, false, theme);
        let value = fit(&choice.value, values, false, theme);
        let text = cut(&format!("{mark}{name}{value}"), width, theme);
        let text = fit(&text, width, false, theme);
        let style = if marked { theme.marked() } else { Style::new() };
        lines.push(Line::styled(text, style));
    }
    lines.push(Line::default());
    lines.extend(about.iter().map(|l| Line::styled(l.clone(), theme.faint())));
    lines
}

fn type_in(field: &Field, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let before = match field.what {
        What::Knob => format!("{} (now {}) = ", field.name, field.now),
        _ => "file: ".to_owned(),
    };
    let text = tail(&format!("{before}{}_", field.text), width);
    vec![
        Line::styled(fit(&text, width, false, theme), theme.strong()),
        Line::styled("Enter: go on   Esc: leave it", theme.faint()),
    ]
}

fn confirm(c: &Confirm, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let question = wrap(&c.question, width.max(1)).into_iter();
    question
        .map(|l| Line::styled(l, theme.strong()))
        .chain([Line::styled("y: yes   any other key: no", theme.faint())])
        .collect()
}
