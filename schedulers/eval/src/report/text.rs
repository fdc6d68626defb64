//! The table on the terminal.

use crate::evaluation::{BenchReport, PolicyResult};
use crate::report::number::{maybe, measured, rounded, UNKNOWN};
use amp_metrics::uncertainty::Measured;
use tabled::builder::Builder;
use tabled::settings::object::{Columns, Object, Rows};
use tabled::settings::{Alignment, Style};

/// The result as text: one table of ASP, unfairness and EDP per policy, one of slowdowns per application.
pub fn text(report: &BenchReport) -> String {
    let m = &report.machine;
    let mut out = format!(
        "{} on {} ({} big, {} small; {}), speedup factors: {}\n",
        report.workload, m.name, m.big, m.small, report.on, report.provider
    );
    out += &policies(report);
    out.push('\n');
    out += &by_work(report);
    out += "slowdown per application and policy:\n";
    out += &applications(report);
    out.push('\n');
    out += "± is the standard uncertainty. ASP: higher is better. Unfairness: 1 is ideal. Slowdown: against having the fast cores to itself.\n";
    if report.environment.virtual_time {
        out += "Times are virtual.\n";
    }
    out
}

fn policies(report: &BenchReport) -> String {
    let results = &report.results;
    let energy = results.iter().any(|r| r.edp.is_some());
    let repeated = results.iter().any(|r| r.unfairness_per_run.is_some());
    let oracle = results.iter().any(|r| r.oracle.is_some());
    let mut header = vec!["policy", "ASP", "unfairness"];
    header.extend(repeated.then_some("unfairness per run"));
    header.extend(energy.then_some("EDP (J·s/instr.)"));
    header.push("swaps/s");
    header.extend(oracle.then_some("oracle ASP"));
    header.extend(oracle.then_some("oracle unfairness"));
    let mut table = Builder::default();
    table.push_record(header);
    for r in results {
        let mut row = vec![r.policy.clone(), measured(r.asp), measured(r.unfairness)];
        row.extend(repeated.then(|| maybe(r.unfairness_per_run)));
        row.extend(energy.then(|| maybe(r.edp)));
        row.push(
            r.swaps_per_s
                .map_or_else(|| UNKNOWN.to_owned(), |s| rounded(s, 2)),
        );
        let of = |f: fn(&crate::evaluation::OracleResult) -> f64| {
            r.oracle
                .as_ref()
                .map_or_else(|| UNKNOWN.to_owned(), |o| rounded(f(o), 3))
        };
        row.extend(oracle.then(|| of(|o| o.asp)));
        row.extend(oracle.then(|| of(|o| o.unfairness)));
        table.push_record(row);
    }
    draw(table)
}

/// A line on policies whose ASP hangs on the kind of mean; nothing where there is none.
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
        "ASP by the work done (mean instead of geometric-mean completion times) is another: {}.\n",
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

fn applications(report: &BenchReport) -> String {
    let results = &report.results;
    let Some(first) = results.first() else {
        return String::new();
    };
    let mut table = Builder::default();
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
    draw(table)
}

fn draw(table: Builder) -> String {
    let mut table = table.build();
    table.with(Style::rounded());
    table.modify(Columns::new(1..).not(Rows::first()), Alignment::right());
    table.to_string()
}
