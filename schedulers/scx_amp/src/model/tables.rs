//! Tables for people.

use super::phases;
use amp_metrics::uncertainty::Measured;
use amp_models::accuracy::{Accuracy, Predicted};
use amp_models::data::Dataset;
use amp_models::matching::MatchedData;
use amp_models::platform::{Evaluated, Platform};
use amp_models::training::{Method, Options, Trained};
use std::path::Path;
use tabled::builder::Builder;
use tabled::settings::Style;

pub(super) const UNKNOWN: &str = "–";

pub(super) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut b = Builder::default();
    b.push_record(head.iter().copied());
    for r in rows {
        b.push_record(r);
    }
    format!("{}\n", b.build().with(Style::rounded()))
}

fn percent(m: Measured) -> String {
    format!("{:.1} %", m.scale(100.0))
}

/// Programs, windows, mean absolute error, relative error, correlation.
fn cells(a: Option<&Accuracy>) -> Vec<String> {
    let Some(a) = a else {
        return vec![UNKNOWN.to_owned(); ACCURACY.len()];
    };
    vec![
        a.programs.to_string(),
        a.windows.to_string(),
        a.mae.to_string(),
        percent(a.relative),
        a.correlation.map_or(UNKNOWN.to_owned(), |c| c.to_string()),
    ]
}

const ACCURACY: [&str; 5] = [
    "programs",
    "windows",
    "mean abs. error",
    "relative error",
    "correlation",
];
/// The interval for programs to come, and how many windows of programs it was not made from it
/// holds.
const INTERVAL: [&str; 2] = ["prediction interval", "holds"];

pub(super) fn core_type(data: &Dataset, t: usize) -> &str {
    data.header
        .core_types
        .get(t)
        .map_or("?", |t| t.name.as_str())
}

/// The outcome of a training.
pub fn trained(data: &Dataset, trained: &Trained, options: &Options) -> String {
    let method = match options.learner.method {
        Method::Stumps => "stumps",
        Method::Linear => "linear",
        Method::Both => "both",
    };
    let mut rows = Vec::new();
    let mut ladder = Vec::new();
    for t in &trained.core_types {
        for f in &t.factors {
            let all = [
                (method, Some(&f.accuracy)),
                ("linear (baseline)", f.baseline.as_ref()),
            ];
            for (method, a) in all {
                let mut row = vec![
                    core_type(data, t.on).to_owned(),
                    format!(
                        "{} of {}",
                        f.target.quantity.name(),
                        core_type(data, f.target.of)
                    ),
                    method.to_owned(),
                ];
                row.extend(cells(a));
                row.push(a.map_or(UNKNOWN.to_owned(), |a| format!("±{:.3}", a.prediction)));
                let covered = a.and_then(|a| a.coverage);
                row.push(covered.map_or(UNKNOWN.to_owned(), percent));
                rows.push(row);
            }
        }
        let events: Vec<&str> = data
            .header
            .core_types
            .get(t.on)
            .into_iter()
            .flat_map(|t| t.events())
            .collect();
        let names = |of: &[usize]| {
            let names: Vec<&str> = of.iter().filter_map(|e| events.get(*e).copied()).collect();
            match names.is_empty() {
                true => UNKNOWN.to_owned(),
                false => names.join(" "),
            }
        };
        for r in &t.ladder {
            let maes: Vec<String> = r
                .accuracy
                .iter()
                .map(|a| format!("{:.3}", a.mae.value))
                .collect();
            ladder.push(vec![
                core_type(data, t.on).to_owned(),
                format!("{}{}", r.sets, if r.chosen { " ←" } else { "" }),
                names(&r.dropped),
                format!("{:.4}", r.error),
                maes.join(", "),
            ]);
        }
    }
    let head: Vec<&str> = ["on", "factor", "method"]
        .into_iter()
        .chain(ACCURACY)
        .chain(INTERVAL)
        .collect();
    let counts = trained.programs.iter().map(String::as_str);
    let phases = phase_counts(counts.zip(trained.phases.iter().copied()));
    let outliers = match trained.outliers.is_empty() {
        true => String::new(),
        false => format!(
            "Not trained on, the factors are unsure where these are: {}\n",
            trained.outliers.join(", ")
        ),
    };
    format!(
        "Cross-validated, each program predicted by a model that has not seen it (95.4 % prediction intervals):\n{}\
         {outliers}{phases}What fewer event sets cost (error: squared, in units of the factor's variance; by groups of programs):\n{}",
        table(&head, rows),
        table(&["on", "event sets", "dropped", "error", "mean abs. errors"], ladder),
    )
}

/// How many phases programs have.
fn phase_counts<'a>(all: impl Iterator<Item = (&'a str, usize)>) -> String {
    let several: Vec<String> = all
        .filter(|(_, n)| *n > 1)
        .map(|(p, n)| format!("{p} {n}"))
        .collect();
    match several.is_empty() {
        true => "Phases: one in every program\n".to_owned(),
        false => format!("Phases: {}; one in the others\n", several.join(", ")),
    }
}

/// The programs that a platform file says it was trained on.
fn seen(platform: &Platform) -> Vec<&str> {
    listed(platform, "programs")
}

/// A list of programs in the summary of a platform file.
fn listed<'a>(platform: &'a Platform, key: &str) -> Vec<&'a str> {
    let programs = platform
        .summary()
        .and_then(|s| s.get(key))
        .and_then(|p| p.as_array());
    programs
        .into_iter()
        .flatten()
        .filter_map(|p| p.as_str())
        .collect()
}

/// How good predictions are, per factor and program.
pub fn evaluated(
    platform: &Platform,
    data: &Dataset,
    matched: &MatchedData,
    all: &[Evaluated],
) -> String {
    let seen = seen(platform);
    let mut rows = Vec::new();
    let mut any_seen = false;
    for e in all {
        let on = core_type(data, e.on).to_owned();
        let factor = format!(
            "{} of {}",
            e.target.quantity.name(),
            core_type(data, e.target.of)
        );
        for (p, program) in matched.programs.iter().enumerate() {
            let own = e.predicted.iter().zip(&e.uncertainty);
            let (of_program, uncertainty): (Vec<Predicted>, Vec<f64>) =
                own.filter(|(x, _)| x.program == p).unzip();
            let a = Accuracy::of(&of_program);
            if a.is_none() {
                continue;
            }
            let known = seen.contains(&program.name.as_str());
            any_seen |= known;
            let mark = if known { " *" } else { "" };
            let mut row = vec![
                on.clone(),
                factor.clone(),
                format!("{}{mark}", program.name),
            ];
            row.extend(cells(a.as_ref()).into_iter().skip(1));
            row.push(within(&of_program, &uncertainty));
            rows.push(row);
        }
        let mut row = vec![
            on,
            factor,
            format!("all {}", e.accuracy.as_ref().map_or(0, |a| a.programs)),
        ];
        row.extend(cells(e.accuracy.as_ref()).into_iter().skip(1));
        row.push(within(&e.predicted, &e.uncertainty));
        rows.push(row);
    }
    let head: Vec<&str> = ["on", "factor", "program"]
        .into_iter()
        .chain(ACCURACY.into_iter().skip(1))
        .chain(["within 2 u"])
        .collect();
    let note = if any_seen {
        "* trained on: these figures flatter; those of `model show` are cross-validated\n"
    } else {
        ""
    };
    format!(
        "{}{note}{}",
        table(&head, rows),
        phases::table_of(data, matched, all)
    )
}

/// Part of the windows within the interval of the standard uncertainty that is stated of each.
fn within(all: &[Predicted], uncertainty: &[f64]) -> String {
    Accuracy::within(all, uncertainty).map_or(UNKNOWN.to_owned(), percent)
}

/// What is in a platform file.
pub fn show(path: &Path, platform: &Platform) -> String {
    let mut out = format!(
        "{}\n",
        platform.name().unwrap_or(&path.display().to_string())
    );
    if let Some(source) = platform.source() {
        out += &format!("{source}\n");
    }
    let summary = platform.summary();
    for key in ["date", "kernel", "windows", "seed"] {
        if let Some(v) = summary.and_then(|s| s.get(key)) {
            out += &format!(
                "{key}: {}\n",
                v.as_str().map_or_else(|| v.to_string(), str::to_owned)
            );
        }
    }
    let programs = seen(platform);
    if !programs.is_empty() {
        out += &format!("programs: {}\n", programs.join(" "));
    }
    let outliers = listed(platform, "outliers");
    if !outliers.is_empty() {
        out += &format!("unsure where these are: {}\n", outliers.join(" "));
    }
    let sets = platform.core_types().flat_map(|(name, pmu, sets)| {
        let row = |(i, events): (usize, Vec<&str>)| {
            let events = match events.is_empty() {
                true => UNKNOWN.to_owned(),
                false => events.join(" "),
            };
            vec![
                name.to_owned(),
                pmu.unwrap_or(UNKNOWN).to_owned(),
                (i + 1).to_string(),
                events,
            ]
        };
        sets.into_iter().enumerate().map(row).collect::<Vec<_>>()
    });
    out += &table(
        &[
            "core type",
            "PMU",
            "set",
            "events beside instructions and cycles",
        ],
        sets.collect(),
    );
    let factors = platform.factors().map(|f| {
        let size = match (f.stumps, f.linear) {
            (s, 0) => format!("{s} stumps"),
            (0, l) => format!("{l} linear terms"),
            (s, l) => format!("{s} stumps, {l} linear terms"),
        };
        let error = format!("{:.3}", f.error);
        vec![f.on, format!("{} of {}", f.predicts, f.of), size, error]
    });
    out += &table(
        &["on", "factor", "formula", "standard error"],
        factors.collect(),
    );
    let accuracy = summary
        .and_then(|s| s.get("accuracy"))
        .and_then(|a| a.as_array());
    let rows: Vec<Vec<String>> = accuracy
        .into_iter()
        .flatten()
        .filter_map(|a| a.as_table())
        .map(|a| {
            let text = |key: &str| {
                a.get(key).map_or(UNKNOWN.to_owned(), |v| {
                    v.as_str().map_or(v.to_string(), str::to_owned)
                })
            };
            let number = |key: &str| {
                let m = a.get(key)?.as_table()?;
                let value = m.get("value")?.as_float()?;
                Some(Measured {
                    value,
                    u: m.get("u").and_then(toml::Value::as_float),
                })
            };
            let measured = |key: &str| number(key).map_or(UNKNOWN.to_owned(), |m| m.to_string());
            vec![
                text("core_type"),
                format!("{} of {}", text("predicts"), text("of")),
                text("method"),
                text("programs"),
                text("windows"),
                measured("mean_absolute_error"),
                number("relative_error").map_or(UNKNOWN.to_owned(), percent),
                measured("correlation"),
                format!("±{}", text("prediction_interval")),
                number("coverage").map_or(UNKNOWN.to_owned(), percent),
            ]
        })
        .collect();
    if !rows.is_empty() {
        let head: Vec<&str> = ["on", "factor", "method"]
            .into_iter()
            .chain(ACCURACY)
            .chain(INTERVAL)
            .collect();
        out += &format!(
            "Cross-validated by program (95.4 % prediction intervals):\n{}",
            table(&head, rows)
        );
    }
    if let Some(counts) = summary.and_then(|s| s.get("phases")?.as_table()) {
        let count = |(p, n): (&'_ String, &toml::Value)| Some((p.clone(), n.as_integer()?));
        let all: Vec<(String, i64)> = counts.iter().filter_map(count).collect();
        let all = all
            .iter()
            .map(|(p, n)| (p.as_str(), usize::try_from(*n).unwrap_or(0)));
        out += &phase_counts(all);
    }
    out
}
