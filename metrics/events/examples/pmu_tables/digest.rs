//! What is compared of an event, and the hash of all events of a PMU. The test of the shipped
//! tables includes this file, too.

use amp_pmu_events::{MapRow, PmuEvent};
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

/// Hash of the sorted lines.
pub fn hash(events: &[PmuEvent]) -> String {
    let mut lines: Vec<String> = events.iter().map(line).collect();
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
