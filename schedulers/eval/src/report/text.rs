//! The table on the terminal.

use crate::evaluation::{BenchReport, PolicyResult};
use crate::report::columns::{self, Shown};
use crate::report::number::{measured, rounded, UNKNOWN};
use crate::report::words;
use amp_metrics::uncertainty::Measured;
use tabled::builder::Builder;
use tabled::settings::object::{Columns, Object, Rows};
use tabled::settings::peaker::Priority;
use tabled::settings::{Alignment, Style, Width};

/// The result as text: one table of figures per policy, one of slowdowns per application. Tables
/// are at most `width` characters wide, where one is given: cells take more lines then, or rows
/// become columns.
pub fn text(report: &BenchReport, width: Option<usize>) -> String {
    let m = &report.machine;
    let mut out = format!(
        "{} on {} ({}; {}), speedup factors: {}\n",
        report.workload,
        m.name,
        m.cores().join(", "),
        report.on,
        words::source(report)
    );
    let (header, rows) = columns::table(report, |c| c.shown == Shown::Everywhere);
    out += &draw([vec![header], rows].concat(), width);
    out.push('\n');
    for line in words::failures(report) {
        out += &format!("{line}\n");
    }
    out += "slowdown per application and policy:\n";
    out += &draw(applications(report), width);
    out.push('\n');
    out += &notes(report);
    out
}

/// How to read the tables.
fn notes(report: &BenchReport) -> String {
    let mut out = vec!["± is the standard uncertainty.".to_owned()];
    for c in columns::known(report).filter(|c| c.shown == Shown::Everywhere) {
        out.extend(
            c.better
                .words()
                .map(|words| format!("{}: {words}.", c.title)),
        );
    }
    out.push("Slowdown: against having the fast cores to itself.".into());
    out.extend(words::alone_once(report).map(str::to_owned));
    out.extend(words::work(report).map(str::to_owned));
    let mut out = out.join(" ") + "\n";
    let governor = report.environment.governor.as_ref();
    for note in [
        governor.map(|g| format!("Clocks are set by the governor {g}.")),
        words::pinned(report),
        words::stand_in(report),
        words::prediction(report).map(capital),
        report
            .environment
            .virtual_time
            .then(|| "Times are virtual.".into()),
    ] {
        out.extend(note.map(|n| n + "\n"));
    }
    out
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// The slowdown of application number `i` under a policy.
pub(super) fn slowdown(r: &PolicyResult, i: usize) -> String {
    let of = |a: &crate::evaluation::AppResult| {
        measured(Measured {
            value: a.slowdown,
            u: a.slowdown_u,
        })
    };
    r.apps.get(i).map_or_else(|| UNKNOWN.to_owned(), of)
}

fn applications(report: &BenchReport) -> Vec<Vec<String>> {
    let results = &report.results;
    let Some(first) = results.first() else {
        return Vec::new();
    };
    let mut header = vec![
        "application".to_owned(),
        "alone, slow".into(),
        "alone, fast".into(),
    ];
    header.push("SF".into());
    header.extend(results.iter().map(|r| r.policy.clone()));
    let mut table = vec![header];
    for (i, app) in first.apps.iter().enumerate() {
        let mut row = vec![app.name.clone()];
        row.push(format!("{} s", rounded(app.ct_slow_s, 2)));
        row.push(format!("{} s", rounded(app.ct_fast_s, 2)));
        row.push(rounded(app.ct_slow_s / app.ct_fast_s, 2));
        row.extend(results.iter().map(|r| slowdown(r, i)));
        table.push(row);
    }
    table
}

/// Characters beside the text of a column: its frame and the space around it.
const FRAME: usize = 3;

/// Narrowest width of a table whose words stay whole, in characters.
fn narrowest(rows: &[Vec<String>]) -> usize {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let longest = |c: usize| {
        let cells = rows.iter().filter_map(|r| r.get(c));
        let words = cells.flat_map(|cell| cell.split_whitespace());
        words.map(|w| w.chars().count()).max().unwrap_or(0)
    };
    1 + (0..columns).map(|c| longest(c) + FRAME).sum::<usize>()
}

fn transposed(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |r: &Vec<String>, c: usize| r.get(c).cloned().unwrap_or_default();
    (0..columns)
        .map(|c| rows.iter().map(|r| cell(r, c)).collect())
        .collect()
}

/// A table whose first row is its header, at most `width` characters wide. Where words would be
/// broken, rows become columns if that is narrower.
pub(super) fn draw(mut rows: Vec<Vec<String>>, width: Option<usize>) -> String {
    if width.is_some_and(|w| narrowest(&rows) > w) {
        let turned = transposed(&rows);
        if narrowest(&turned) < narrowest(&rows) {
            rows = turned;
        }
    }
    let mut table = Builder::default();
    rows.into_iter().for_each(|row| table.push_record(row));
    let mut table = table.build();
    table.with(Style::rounded());
    table.modify(Columns::new(1..).not(Rows::first()), Alignment::right());
    if let Some(width) = width {
        let narrow = Width::wrap(width).keep_words(true);
        table.with(narrow.priority(Priority::max(true)));
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        vec![
            row([
                "policy",
                "unfairness",
                "throughput",
                "steady-state prediction",
            ]),
            row(["rr", "1.668 ± 0.025", "1.775 ± 0.032", "2.312"]),
        ]
    }

    #[test]
    fn words_stay_whole_where_there_is_a_way() {
        let lines = |width| draw(rows(), width).lines().map(|l| l.chars().count()).max();
        assert!(lines(None) > Some(60), "a pipe has no width");
        for width in [40, 50, 60] {
            let text = draw(rows(), Some(width));
            assert!(lines(Some(width)) <= Some(width), "{text}");
            for word in ["unfairness", "throughput", "steady-state", "1.668"] {
                assert!(text.contains(word), "{width}: {word} is broken\n{text}");
            }
        }
        // policies are columns in a narrow terminal, and rows in a wide one
        let first = |width| {
            draw(rows(), Some(width))
                .lines()
                .nth(1)
                .unwrap_or("")
                .to_owned()
        };
        assert!(first(40).contains("policy") && first(40).contains("rr"));
        assert!(!first(100).contains("rr"));
    }
}
