//! A campaign's results: one table over all mixes, JSON with every job's result, and a page.

use crate::campaign::{Job, Merged, Outcome, Row};
use crate::contender::PINNED;
use crate::evaluation::{BenchReport, PolicyResult};
use crate::report::charts;
use crate::report::columns::{self, Column, Figure, Shown};
use crate::report::number::{measured, UNKNOWN};
use crate::report::text::draw;
use crate::report::words;
use amp_charts::escape;
use amp_charts::page::{document, figure, header, table};
use amp_metrics::uncertainty::Measured;
use amp_sched::policy::BASELINE;
use serde_json::{json, Value};
use std::collections::BTreeSet;

/// Columns of the text table, by their keys; the page has all.
const IN_TEXT: [&str; 4] = ["asp", "unfairness", "edp_by_work", "runs"];

/// A column of the table.
struct Shows {
    title: String,
    of: Box<dyn Fn(&Row) -> String>,
}

impl Shows {
    fn new(title: impl Into<String>, of: impl Fn(&Row) -> String + 'static) -> Shows {
        Shows {
            title: title.into(),
            of: Box::new(of),
        }
    }
}

fn results(merged: &Merged) -> impl Iterator<Item = &PolicyResult> {
    merged.rows.iter().filter_map(|r| r.result.as_ref())
}

/// The columns: those that name a row, without those that all rows have alike, and those of
/// figures.
fn columns(merged: &Merged, wanted: impl Fn(&Column) -> bool) -> Vec<Shows> {
    let known = |m: Option<Measured>| m.map_or_else(|| UNKNOWN.to_owned(), measured);
    let mut out = vec![Shows::new("mix", |r| r.mix.clone())];
    let machines: BTreeSet<&str> = merged.rows.iter().map(|r| r.machine.as_str()).collect();
    if machines.len() > 1 {
        out.push(Shows::new("machine", |r| r.machine.clone()));
    }
    out.push(Shows::new("policy", |r| r.contender.clone()));
    let named = merged.rows.iter().filter_map(|r| r.provider.as_ref());
    if named.collect::<BTreeSet<_>>().len() > 1 {
        let provider = |r: &Row| r.provider.clone().unwrap_or_else(|| UNKNOWN.to_owned());
        out.push(Shows::new("provider", provider));
    }
    if merged.rows.iter().any(|r| r.done < r.jobs) {
        out.push(Shows::new("jobs", |r| match r.done {
            0 if r.jobs == 1 => "none".to_owned(),
            done => format!("{done}/{}", r.jobs),
        }));
    }
    for c in columns::columns() {
        if !wanted(c) || !results(merged).any(|r| c.of(r).is_some()) {
            continue;
        }
        out.push(Shows::new(c.header(), move |r: &Row| {
            let figure = r.result.as_ref().and_then(|r| c.of(r));
            figure.map_or_else(|| UNKNOWN.to_owned(), Figure::text)
        }));
        if c.key != "asp" {
            continue;
        }
        if merged.rows.iter().any(|r| r.to_pinned.is_some()) {
            let title = format!("ASP / {PINNED}");
            out.push(Shows::new(title, move |r| known(r.to_pinned)));
        }
        if merged.rows.iter().any(|r| r.to_baseline.is_some()) {
            let title = format!("ASP / {BASELINE}");
            out.push(Shows::new(title, move |r| known(r.to_baseline)));
        }
    }
    out
}

fn cells(columns: &[Shows], rows: &[&Row]) -> Vec<Vec<String>> {
    let cells = |r: &&Row| columns.iter().map(|c| (c.of)(r)).collect();
    rows.iter().map(cells).collect()
}

fn titles(columns: &[Shows]) -> Vec<String> {
    columns.iter().map(|c| c.title.clone()).collect()
}

/// The results as text: one table over all mixes, at most `width` characters wide where one is
/// given. Where it is too narrow, each mix has a table of its own.
pub fn text(name: &str, merged: &Merged, width: Option<usize>) -> String {
    let mut columns = columns(merged, |c| IN_TEXT.contains(&c.key));
    let rows: Vec<&Row> = merged.rows.iter().collect();
    let mut out = format!("campaign {name}: {}\n", progress(merged));
    let whole = draw(
        [vec![titles(&columns)], cells(&columns, &rows)].concat(),
        None,
    );
    let needs = whole.lines().map(|l| l.chars().count()).max();
    if width.is_some_and(|w| needs > Some(w)) {
        columns.remove(0);
        for group in rows.chunk_by(|a, b| a.mix == b.mix) {
            let mix = group.first().map_or("", |r| &r.mix);
            let part = [vec![titles(&columns)], cells(&columns, group)].concat();
            out += &format!("{mix}\n{}\n", draw(part, width));
        }
    } else {
        out += &whole;
        out.push('\n');
    }
    for line in missing(merged) {
        out += &format!("{line}\n");
    }
    out += &notes(merged).join("\n");
    out.push('\n');
    out
}

/// How many jobs have a result.
fn progress(merged: &Merged) -> String {
    let is_done = |o: &Outcome| matches!(o, Outcome::Done(_));
    let done = merged.jobs.iter().filter(|(_, o)| is_done(o)).count();
    format!("{done} of {} jobs are done", merged.jobs.len())
}

/// A line on every job without a result: why it has none.
fn missing(merged: &Merged) -> Vec<String> {
    let line = |(job, outcome): &(Job, Outcome)| match outcome {
        Outcome::Done(_) => None,
        Outcome::Failed(why) => Some(format!("failed: {job}: {why}")),
        Outcome::Missing(None) => Some(format!("missing: {job}")),
        Outcome::Missing(Some(why)) => Some(format!("missing: {job}: {why}")),
    };
    merged.jobs.iter().filter_map(line).collect()
}

fn reports(merged: &Merged) -> impl Iterator<Item = &BenchReport> {
    merged.jobs.iter().filter_map(|(_, outcome)| match outcome {
        Outcome::Done(report) => Some(&**report),
        _ => None,
    })
}

/// How to read the table, and what to know of it.
fn notes(merged: &Merged) -> Vec<String> {
    let mut out = vec![
        "± is the standard uncertainty. ASP: higher is better. Unfairness: 1 is ideal. Figures of several seeds are means over all their runs, each run by itself."
            .to_owned(),
    ];
    let any = |name: &str| results(merged).any(|r| r.policy == name);
    if reports(merged).any(|r| r.on == "sim") && any(BASELINE) {
        out.push(format!(
            "{BASELINE} is a stand-in on the simulator: a fair scheduler that does not know core types."
        ));
    }
    out.extend(
        reports(merged)
            .find_map(words::alone_once)
            .map(str::to_owned),
    );
    if reports(merged).any(|r| r.environment.virtual_time) {
        out.push("Times are virtual.".into());
    }
    let distinct = |of: fn(&BenchReport) -> Option<String>| -> Vec<String> {
        let all: BTreeSet<String> = reports(merged).filter_map(of).collect();
        all.into_iter().collect()
    };
    for (what, found) in [
        ("kernels", distinct(|r| r.environment.kernel.clone())),
        (
            "commits of scx_amp",
            distinct(|r| r.environment.commit.clone()),
        ),
        ("versions of QEMU", distinct(|r| r.environment.qemu.clone())),
    ] {
        if found.len() > 1 {
            out.push(format!(
                "Warning: results are of {} {what} ({}): figures of one do not go with those of another.",
                found.len(),
                found.join(", ")
            ));
        }
    }
    out
}

/// The results for programs: the table's rows, and every job with its result.
pub fn json(name: &str, merged: &Merged) -> Value {
    let row = |r: &Row| {
        let mut figures = serde_json::Map::new();
        for c in columns::columns() {
            let field = r
                .result
                .as_ref()
                .and_then(|r| c.of(r))
                .map(Figure::measured);
            figures.insert(c.key.to_owned(), json!(field));
        }
        json!({
            "mix": r.mix, "machine": r.machine, "policy": r.contender, "provider": r.provider,
            "done": r.done, "jobs": r.jobs,
            "figures": figures,
            "asp_to_pinned": r.to_pinned, "asp_to_eevdf": r.to_baseline,
        })
    };
    let job = |(job, outcome): &(Job, Outcome)| {
        let (state, result, why) = match outcome {
            Outcome::Done(report) => ("done", Some(report), None),
            Outcome::Failed(why) => ("failed", None, Some(why)),
            Outcome::Missing(why) => ("missing", None, why.as_ref()),
        };
        json!({
            "job": job.id, "mix": job.mix_name, "machine": job.machine_label,
            "policy": job.contender, "provider": job.provider_label, "seed": job.seed,
            "state": state, "why": why, "result": result,
        })
    };
    json!({
        "campaign": name,
        "rows": merged.rows.iter().map(row).collect::<Vec<_>>(),
        "jobs": merged.jobs.iter().map(job).collect::<Vec<_>>(),
    })
}

/// The results as one self-contained HTML page.
pub fn html(name: &str, merged: &Merged) -> String {
    let mut body = header(name, &progress(merged));
    for line in missing(merged) {
        body += &format!("<p class=\"note\">{}</p>\n", escape(&line));
    }
    body += "<section><h2>All mixes</h2>";
    let columns = columns(merged, |c| c.shown == Shown::Everywhere || c.key == "runs");
    let rows: Vec<&Row> = merged.rows.iter().collect();
    body += &table(&titles(&columns), &cells(&columns, &rows));
    for note in notes(merged) {
        body += &format!("<p class=\"note\">{}</p>", escape(&note));
    }
    body += "</section>\n";
    if results(merged).any(|r| r.oracle.is_some()) {
        body += "<p class=\"note\"><span class=\"key\"><i class=\"diamond\"></i></span>Steady-state prediction: single-threaded programs of constant speedup factors, without overheads. Whiskers: ± one standard uncertainty.</p>\n";
    }
    for group in rows.chunk_by(|a, b| (&a.mix, &a.machine) == (&b.mix, &b.machine)) {
        body += &mix(group);
    }
    document(&format!("{name}: a campaign"), &body)
}

/// The charts of one mix on one machine.
fn mix(rows: &[&Row]) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let labelled = |r: &&Row| {
        let mut result = r.result.clone()?;
        // the baseline keeps its name, and so its colour
        if let Some(provider) = &r.provider {
            result.policy = format!("{}, {provider}", r.contender);
        }
        Some(result)
    };
    let report = BenchReport {
        workload: first.mix.clone(),
        results: rows.iter().filter_map(labelled).collect(),
        ..BenchReport::default()
    };
    if report.results.is_empty() {
        return String::new();
    }
    let title = format!("{} on {}", first.mix, first.machine);
    let mut out = format!(
        "<section><h2>{}</h2><div class=\"bars pair\">",
        escape(&title)
    );
    for column in columns::columns()
        .iter()
        .filter(|c| ["asp", "unfairness"].contains(&c.key))
    {
        let Some(chart) = &column.chart else { continue };
        let note = column.better.words().unwrap_or_default();
        let bars = charts::policy_bars(&report, column, chart, 500.0);
        out += &figure(chart.title, note, &bars);
    }
    out + "</div></section>\n"
}
