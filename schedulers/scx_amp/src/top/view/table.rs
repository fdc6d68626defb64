//! The table of threads: as many columns as fit, what matters most first.

use super::text::{cut, fit, width as cells};
use super::Theme;
use crate::status::Status;
use crate::top::model::threads::HISTORY;
use crate::top::model::{Model, Row, Sort};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Fewest cells of a history.
const LEAST_HISTORY: usize = 8;

/// What a column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Tid,
    App,
    Name,
    On,
    To,
    Cpu,
    Big,
    Speedup,
    Efficiency,
    Slowdown,
    Work,
    Phase,
    Weight,
    CpuSeconds,
    Quality,
    History,
    Rule,
}

/// Every column in the order of the table.
const ALL: [Column; 17] = [
    Column::Tid,
    Column::App,
    Column::Name,
    Column::Weight,
    Column::On,
    Column::To,
    Column::Cpu,
    Column::CpuSeconds,
    Column::Big,
    Column::Speedup,
    Column::Efficiency,
    Column::Quality,
    Column::Slowdown,
    Column::Work,
    Column::Phase,
    Column::History,
    Column::Rule,
];

/// Which columns go without which, where there is little room: the first stay longest.
const MATTERS: [Column; 17] = [
    Column::Name,
    Column::Cpu,
    Column::On,
    Column::Speedup,
    Column::Tid,
    Column::Slowdown,
    Column::History,
    Column::Efficiency,
    Column::To,
    Column::Phase,
    Column::Rule,
    Column::Work,
    Column::Big,
    Column::Quality,
    Column::Weight,
    Column::CpuSeconds,
    Column::App,
];

impl Column {
    fn title(self) -> &'static str {
        match self {
            Column::Tid => "tid",
            Column::App => "app",
            Column::Name => "comm",
            Column::On => "on",
            Column::To => "to",
            Column::Cpu => "cpu%",
            Column::Big => "big%",
            Column::Speedup => "SF",
            Column::Efficiency => "EF",
            Column::Slowdown => "slow",
            Column::Work => "work s",
            Column::Phase => "phase",
            Column::Weight => "weight",
            Column::CpuSeconds => "cpu s",
            Column::Quality => "quality",
            Column::History => "history",
            Column::Rule => "rule",
        }
    }

    fn sort(self) -> Option<Sort> {
        Some(match self {
            Column::Tid => Sort::Tid,
            Column::Name => Sort::Name,
            Column::Cpu => Sort::Cpu,
            Column::Big => Sort::Big,
            Column::Speedup => Sort::Speedup,
            Column::Efficiency => Sort::Efficiency,
            Column::Slowdown => Sort::Slowdown,
            _ => return None,
        })
    }

    /// Cells it needs.
    fn width(self, status: &Status) -> usize {
        match self {
            Column::Tid | Column::App => 7,
            Column::Name => 15,
            Column::On | Column::To => {
                let names = status.core_types.iter().map(|t| cells(t));
                names.max().unwrap_or(0).clamp(3, 10)
            }
            Column::Cpu | Column::Big | Column::Slowdown | Column::Phase => 5,
            Column::Speedup | Column::Efficiency => 10,
            Column::Work | Column::CpuSeconds => 8,
            Column::Weight => 6,
            Column::Quality => 11,
            Column::History => LEAST_HISTORY,
            Column::Rule => 20,
        }
    }

    fn right(self) -> bool {
        !matches!(
            self,
            Column::Name
                | Column::On
                | Column::To
                | Column::Quality
                | Column::History
                | Column::Rule
        )
    }

    /// Whether there is anything to show in it.
    fn useful(self, model: &Model) -> bool {
        let any = |has: &dyn Fn(&Row) -> bool| model.threads.rows().any(has);
        match self {
            Column::Efficiency => any(&|r| r.metric("ef").is_some()),
            Column::Quality => any(&|r| !r.thread.metrics.is_empty()),
            Column::Phase => any(&|r| !r.thread.phase.is_empty()),
            Column::Work | Column::Slowdown => any(&|r| r.slowdown().is_some()),
            Column::Rule => any(&|r| !r.thread.rule.is_empty()),
            _ => true,
        }
    }

    fn cell(self, row: &Row, cells: usize, theme: &Theme) -> String {
        let t = &row.thread;
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let percent = |share: f64| format!("{:.0}", share * 100.0);
        match self {
            Column::Tid => t.tid.to_string(),
            Column::App => t.app.to_string(),
            Column::Name => t.comm.clone(),
            Column::On => t.core_type.clone(),
            Column::To => or_dash((!t.placed.is_empty()).then(|| t.placed.clone())),
            Column::Cpu => or_dash(row.cpu.map(percent)),
            Column::Big => percent(t.big_time_share),
            Column::Speedup => estimate(row, "sf", theme),
            Column::Efficiency => estimate(row, "ef", theme),
            Column::Slowdown => or_dash(row.slowdown().map(|s| format!("{s:.2}"))),
            Column::Work => or_dash((t.rated_s > 0.0).then(|| format!("{:.1}", t.alone_s))),
            Column::Phase => or_dash(t.phase.get("number").map(|n| format!("{n:.0}"))),
            Column::Weight => t.weight.to_string(),
            Column::CpuSeconds => format!("{:.1}", t.cpu_s),
            Column::Quality => or_dash(quality(row)),
            Column::History => history(row, cells, theme),
            Column::Rule => t.rule.clone(),
        }
    }
}

/// A value with its standard uncertainty, where there is one.
pub fn estimate(row: &Row, name: &str, theme: &Theme) -> String {
    match row.metric(name) {
        None => "-".to_owned(),
        Some(m) if m.uncertainty > 0.0 => {
            format!("{:.2}{}{:.2}", m.value, theme.plus_minus(), m.uncertainty)
        }
        Some(m) => format!("{:.2}", m.value),
    }
}

/// That of the worst of its metrics.
fn quality(row: &Row) -> Option<String> {
    let order = ["exact", "multiplexed", "partial", "stale"];
    let rank = |q: &str| order.iter().position(|o| *o == q).unwrap_or(order.len());
    let all = row.thread.metrics.values();
    all.map(|m| &m.quality).max_by_key(|q| rank(q)).cloned()
}

/// Where it was in each of the last looks: high on the fastest core type, low elsewhere.
fn history(row: &Row, cells: usize, theme: &Theme) -> String {
    let from = row.history.len().saturating_sub(cells);
    let known = row.history.iter().skip(from);
    let signs: String = known
        .map(|share| share.map_or(' ', |s| theme.level(s)))
        .collect();
    fit(&signs, cells, true, theme)
}

/// Columns and their widths, for a table of so many cells.
fn columns(model: &Model, width: usize) -> Vec<(Column, usize)> {
    let mut left = width;
    let mut taken = Vec::new();
    for column in MATTERS {
        let needs = column.width(&model.status) + usize::from(!taken.is_empty());
        if column.useful(model) && needs <= left {
            left -= needs;
            taken.push(column);
        }
    }
    let all = ALL.iter().filter(|c| taken.contains(c));
    let widths = all.map(|c| {
        let more = match c {
            // the history has what is left
            Column::History => left.min(HISTORY - LEAST_HISTORY),
            _ => 0,
        };
        (*c, c.width(&model.status) + more)
    });
    widths.collect()
}

/// Draws it: titles, and the page with the thread that is marked.
pub fn draw(buffer: &mut Buffer, area: Rect, model: &Model, theme: &Theme) {
    if area.is_empty() {
        return;
    }
    let width = usize::from(area.width);
    let columns = columns(model, width);
    let mut lines = vec![titles(model, &columns, width, theme)];
    let page = usize::from(area.height) - 1;
    let marked = model.threads.at();
    // pages, so that lines do not run under the eye
    let from = marked.map_or(0, |at| at / page.max(1) * page);
    let types = &model.status.core_types;
    for (at, row) in model.threads.shown().enumerate().skip(from).take(page) {
        let mut spans = Vec::new();
        for (i, (column, cells)) in columns.iter().enumerate() {
            if i > 0 {
                spans.push(Span::raw(" "));
            }
            let text = column.cell(row, *cells, theme);
            let text = fit(&text, *cells, column.right(), theme);
            let style = match column {
                Column::On => types
                    .iter()
                    .position(|t| *t == row.thread.core_type)
                    .map_or(Style::new(), |t| theme.core_type(t, types.len())),
                Column::To if row.thread.placed != row.thread.core_type => theme.strong(),
                _ => Style::new(),
            };
            spans.push(Span::styled(text, style));
        }
        let style = if marked == Some(at) {
            theme.marked()
        } else {
            Style::new()
        };
        lines.push(Line::from(spans).style(style));
    }
    if model.threads.shown().len() == 0 && page > 0 {
        let why = match model.threads.filter() {
            "" => "no thread is placed at present".to_owned(),
            text => format!("no thread has {text:?} in it"),
        };
        lines.push(Line::styled(cut(&why, width, theme), theme.faint()));
    }
    super::text::put(buffer, area, &lines);
}

fn titles(
    model: &Model,
    columns: &[(Column, usize)],
    width: usize,
    theme: &Theme,
) -> Line<'static> {
    let sort = model.threads.sort;
    let mut spans = Vec::new();
    for (i, (column, cells)) in columns.iter().enumerate() {
        if i > 0 {
            spans.push(Span::raw(" "));
        }
        let sorted = column.sort() == Some(sort);
        let text = fit(column.title(), *cells, column.right(), theme);
        let style = if sorted { theme.strong() } else { Style::new() };
        spans.push(Span::styled(text, style));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    // what says by what, and how many there are, where there is room
    let shown = model.threads.shown().len();
    let all = model.threads.rows().count();
    let mut about = format!("by {}", name(sort));
    if model.threads.reverse {
        about += ", reversed";
    }
    if !model.threads.filter().is_empty() {
        about += &format!("  {shown} of {all} with {:?}", model.threads.filter());
    }
    let rest = width.saturating_sub(used);
    if rest > about.len() + 2 {
        spans.push(Span::raw(fit(&about, rest, true, theme)));
    } else {
        spans.push(Span::raw(" ".repeat(rest)));
    }
    Line::from(spans).style(theme.title())
}

/// What the table is sorted by, in a word.
pub fn name(sort: Sort) -> &'static str {
    match sort {
        Sort::Cpu => "cpu%",
        Sort::Speedup => "SF",
        Sort::Efficiency => "EF",
        Sort::Slowdown => "slowdown",
        Sort::Big => "big%",
        Sort::Tid => "tid",
        Sort::Name => "comm",
    }
}
