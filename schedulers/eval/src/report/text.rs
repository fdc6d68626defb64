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
/// are at most `width` characters wide, where one is given: cells take more lines then.
pub fn text(report: &BenchReport, width: Option<usize>) -> String {
    let m = &report.machine;
    let mut out = format!(
        "{} on {} ({} big, {} small; {}), speedup factors: {}\n",
        report.workload,
        m.name,
        m.big,
        m.small,
        report.on,
        words::source(report)
    );
    let (header, rows) = columns::table(report, |c| c.shown == Shown::Everywhere);
    let mut table = Builder::default();
    table.push_record(header);
    rows.into_iter().for_each(|row| table.push_record(row));
    out += &draw(table, width);
    out.push('\n');
    out += &by_work(report);
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
    let mut out = out.join(" ") + "\n";
    for note in [
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

/// A line on policies whose ASP depends on the kind of mean; nothing where there is none.
fn by_work(report: &BenchReport) -> String {
    let differ = report.results.iter().filter_map(|r| {
        let asp = measured(r.other_asp()?);
        Some(format!("{} {asp}", r.policy))
    });
    let differ: Vec<String> = differ.collect();
    if differ.is_empty() {
        return String::new();
    }
    format!(
        "ASP by the work done (mean instead of geometric-mean completion times) differs: {}.\n",
        differ.join(", ")
    )
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

fn applications(report: &BenchReport) -> Builder {
    let results = &report.results;
    let mut table = Builder::default();
    let Some(first) = results.first() else {
        return table;
    };
    let mut header = vec![
        "application".to_owned(),
        "alone, slow".into(),
        "alone, fast".into(),
    ];
    header.push("SF".into());
    header.extend(results.iter().map(|r| r.policy.clone()));
    table.push_record(header);
    for (i, app) in first.apps.iter().enumerate() {
        let mut row = vec![app.name.clone()];
        row.push(format!("{} s", rounded(app.ct_slow_s, 2)));
        row.push(format!("{} s", rounded(app.ct_fast_s, 2)));
        row.push(rounded(app.ct_slow_s / app.ct_fast_s, 2));
        row.extend(results.iter().map(|r| slowdown(r, i)));
        table.push_record(row);
    }
    table
}

fn draw(table: Builder, width: Option<usize>) -> String {
    let mut table = table.build();
    table.with(Style::rounded());
    table.modify(Columns::new(1..).not(Rows::first()), Alignment::right());
    if let Some(width) = width {
        let narrow = Width::wrap(width).keep_words(true);
        table.with(narrow.priority(Priority::max(true)));
    }
    table.to_string()
}
