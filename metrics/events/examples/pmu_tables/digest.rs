//! What is compared of an event and of a metric, and the hash of all of a PMU's. The test of the
//! shipped tables includes this file, too.

use amp_pmu_events::{Leaf, MapRow, Metrics, PmuEvent, PmuMetric};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Events by PMU.
pub type ByPmu = BTreeMap<String, Vec<PmuEvent>>;

pub fn by_pmu(events: Vec<PmuEvent>) -> ByPmu {
    let mut out = ByPmu::new();
    for e in events {
        out.entry(e.pmu.clone()).or_default().push(e);
    }
    out
}

/// An event as a line: everything that the generator keeps and we do. Counters are not in it, for
/// the generator drops them.
pub fn line(e: &PmuEvent) -> String {
    let optional = |t: &Option<String>| t.clone().unwrap_or_default();
    format!(
        "{}|{}|{}|{}|{}|{}",
        e.name,
        e.terms,
        optional(&e.scale),
        u8::from(e.per_package),
        u8::from(e.deprecated),
        optional(&e.brief)
    )
}

/// Metrics by PMU.
pub type MetricsByPmu = BTreeMap<String, Vec<PmuMetric>>;

pub fn metrics_by_pmu(metrics: Vec<PmuMetric>) -> MetricsByPmu {
    let mut out = MetricsByPmu::new();
    for m in metrics {
        out.entry(m.pmu.clone()).or_default().push(m);
    }
    out
}

/// Inputs at which formulas are compared.
const POINTS: u64 = 5;

/// What stands for the count of an event, or for what a machine is like, at one input: the same for
/// the same name on every machine. Truths are 0 or 1.
fn at_point(leaf: &Leaf, point: u64) -> f64 {
    let (name, truth) = match leaf {
        Leaf::Value(name) => (name.to_lowercase(), false),
        Leaf::Literal(name) => (format!("#{name}"), name == "smt_on" || name == "core_wide"),
        Leaf::Sources(name) => (format!("sources {}", name.to_lowercase()), false),
        Leaf::HasEvent(name) => (format!("has {}", name.to_lowercase()), true),
        Leaf::IsProcessor(name) => (format!("is {}", name.to_lowercase()), true),
    };
    let digest = Sha256::digest(format!("{point} {name}").as_bytes());
    let bits = digest
        .iter()
        .take(4)
        .fold(0, |n: u32, b| n << 8 | u32::from(*b));
    match truth {
        true => f64::from(bits & 1),
        false => 0.5 + f64::from(bits) / f64::from(u32::MAX) * 1000.0,
    }
}

/// A metric as a line: everything that the generator keeps and we do. The generator writes formulas
/// anew, in terms of other metrics where it can, so that texts differ; in their place stand their
/// values, to nine digits, at inputs that no formula is made for.
pub fn metric_line(m: &PmuMetric, all: &Metrics) -> String {
    let optional = |t: &Option<String>| t.clone().unwrap_or_default();
    let values: Vec<String> = match all.formula(m, &|_| None) {
        Ok(formula) => (0..POINTS)
            .map(|p| {
                let values: Vec<f64> = formula.leaves().iter().map(|l| at_point(l, p)).collect();
                let value = formula.evaluate(&values);
                value.map_or("none".to_owned(), |(v, _)| format!("{v:.8e}"))
            })
            .collect(),
        Err(e) => vec![e.to_string()],
    };
    format!(
        "{}|{}|{}|{}|{}|{}",
        m.name,
        values.join(" "),
        optional(&m.groups),
        optional(&m.threshold),
        optional(&m.scale),
        optional(&m.brief)
    )
}

/// The lines of the reference for the metrics of one table.
pub fn metric_table_lines(name: &str, metrics: &MetricsByPmu) -> Vec<String> {
    let line = |(pmu, of): (&String, &Vec<PmuMetric>)| {
        let all = Metrics::new(of.iter().cloned());
        let lines = of.iter().map(|m| metric_line(m, &all)).collect();
        format!("metrics {name} {pmu} {} {}", of.len(), hash_of(lines))
    };
    metrics.iter().map(line).collect()
}

/// Hash of the sorted lines of events.
pub fn hash(events: &[PmuEvent]) -> String {
    hash_of(events.iter().map(line).collect())
}

fn hash_of(mut lines: Vec<String>) -> String {
    lines.sort();
    let digest = Sha256::digest(lines.join("\n").as_bytes());
    digest.iter().fold(String::new(), |mut out, b| {
        // writing to a string cannot fail
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// The lines of the reference for one table: name of the table, PMU, number of events, hash.
pub fn table_lines(name: &str, events: &ByPmu) -> Vec<String> {
    let line = |(pmu, events): (&String, &Vec<PmuEvent>)| {
        format!("table {name} {pmu} {} {}", events.len(), hash(events))
    };
    events.iter().map(line).collect()
}

/// The line of the reference for a row of a map.
pub fn map_line(arch: &str, row: &MapRow) -> String {
    format!("map {arch} {} {}", row.cpuid, row.folder)
}
