//! The form in which tables are shipped: text, one event or metric a line, compressed with gzip.
//!
//! ```text
//! pmu cpu_core                                                  pmu cpu_core
//! name ⇥ terms ⇥ counters ⇥ scale ⇥ flags ⇥ description         name ⇥ formula ⇥ groups ⇥ threshold ⇥ scale ⇥ description
//! ```
//!
//! Flags are `p` (counted once per package) and `d` (deprecated). A backslash, a tab or an end of
//! line in a text is written as in C.

use crate::{PmuEvent, PmuMetric};
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flate2::Compression;
use std::io::{Read, Write};

/// Largest table that is read, bytes of text: several times the largest there is.
const LARGEST: u64 = 16 << 20;

/// What one line of a table is of.
trait Row: Ord + Sized {
    /// Columns behind the PMU.
    const COLUMNS: usize;

    /// The PMU.
    fn pmu(&self) -> &str;

    /// The columns.
    fn columns(&self) -> Vec<&str>;

    /// The row of these columns, of which there are [`COLUMNS`](Self::COLUMNS).
    fn of(pmu: &str, columns: &[String]) -> Self;
}

/// A column that may be empty.
fn optional(column: &str) -> Option<String> {
    (!column.is_empty()).then(|| column.to_owned())
}

impl Row for PmuEvent {
    const COLUMNS: usize = 6;

    fn pmu(&self) -> &str {
        &self.pmu
    }

    fn columns(&self) -> Vec<&str> {
        let flags = match (self.per_package, self.deprecated) {
            (true, true) => "pd",
            (true, false) => "p",
            (false, true) => "d",
            (false, false) => "",
        };
        vec![
            &self.name,
            &self.terms,
            self.counters.as_deref().unwrap_or_default(),
            self.scale.as_deref().unwrap_or_default(),
            flags,
            self.brief.as_deref().unwrap_or_default(),
        ]
    }

    fn of(pmu: &str, columns: &[String]) -> PmuEvent {
        PmuEvent {
            pmu: pmu.to_owned(),
            name: columns[0].clone(),
            terms: columns[1].clone(),
            counters: optional(&columns[2]),
            scale: optional(&columns[3]),
            per_package: columns[4].contains('p'),
            deprecated: columns[4].contains('d'),
            brief: optional(&columns[5]),
        }
    }
}

impl Row for PmuMetric {
    const COLUMNS: usize = 6;

    fn pmu(&self) -> &str {
        &self.pmu
    }

    fn columns(&self) -> Vec<&str> {
        vec![
            &self.name,
            &self.expression,
            self.groups.as_deref().unwrap_or_default(),
            self.threshold.as_deref().unwrap_or_default(),
            self.scale.as_deref().unwrap_or_default(),
            self.brief.as_deref().unwrap_or_default(),
        ]
    }

    fn of(pmu: &str, columns: &[String]) -> PmuMetric {
        PmuMetric {
            pmu: pmu.to_owned(),
            name: columns[0].clone(),
            expression: columns[1].clone(),
            groups: optional(&columns[2]),
            threshold: optional(&columns[3]),
            scale: optional(&columns[4]),
            brief: optional(&columns[5]),
        }
    }
}

/// The compressed table of these events, by PMU and name.
///
/// # Errors
/// Those of the compressor, which writes to memory.
pub fn write(events: &[PmuEvent]) -> std::io::Result<Vec<u8>> {
    compressed(events)
}

/// The compressed table of these metrics, by PMU and name.
///
/// # Errors
/// As [`write`].
pub fn write_metrics(metrics: &[PmuMetric]) -> std::io::Result<Vec<u8>> {
    compressed(metrics)
}

/// The events of a compressed table.
///
/// # Errors
/// When it is not what [`write`] makes, with the reason.
pub fn read(compressed: &[u8]) -> Result<Vec<PmuEvent>, String> {
    rows(compressed)
}

/// The metrics of a compressed table.
///
/// # Errors
/// When it is not what [`write_metrics`] makes, with the reason.
pub fn read_metrics(compressed: &[u8]) -> Result<Vec<PmuMetric>, String> {
    rows(compressed)
}

fn compressed<R: Row>(rows: &[R]) -> std::io::Result<Vec<u8>> {
    let mut sorted: Vec<&R> = rows.iter().collect();
    sorted.sort();
    let mut out = String::new();
    let mut pmu = "";
    for row in sorted {
        if row.pmu() != pmu {
            pmu = row.pmu();
            out = out + "pmu " + pmu + "\n";
        }
        let columns: Vec<String> = row.columns().into_iter().map(escape).collect();
        out += &columns.join("\t");
        out.push('\n');
    }
    // without a time: the same rows are the same bytes
    let mut gz = GzEncoder::new(Vec::new(), Compression::best());
    gz.write_all(out.as_bytes())?;
    gz.finish()
}

fn rows<R: Row>(compressed: &[u8]) -> Result<Vec<R>, String> {
    let mut text = String::new();
    let mut limited = GzDecoder::new(compressed).take(LARGEST);
    limited
        .read_to_string(&mut text)
        .map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    let mut pmu = None;
    for (i, line) in text.lines().enumerate() {
        if let Some(name) = line.strip_prefix("pmu ") {
            pmu = Some(name);
            continue;
        }
        let columns: Vec<String> = line.split('\t').map(unescape).collect();
        match pmu {
            Some(pmu) if columns.len() == R::COLUMNS => out.push(R::of(pmu, &columns)),
            _ => return Err(format!("line {}: not a row of a PMU", i + 1)),
        }
    }
    Ok(out)
}

fn escape(s: &str) -> String {
    let s = s.replace('\\', "\\\\").replace('\t', "\\t");
    s.replace('\n', "\\n").replace('\r', "\\r")
}

fn unescape(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut chars = s.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            c => c,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events() -> impl Strategy<Value = Vec<PmuEvent>> {
        let texts = ("[a-z_]{1,9}", "[a-z_.0-9]{1,9}", "[a-z=,0-9]{0,20}");
        let optional = || proptest::option::of("\\PC{1,20}|[\\\\\t\n\ra]{1,5}");
        let event = (texts, optional(), optional(), any::<bool>(), any::<bool>());
        let event = event.prop_map(
            |((pmu, name, terms), brief, scale, per_package, deprecated)| PmuEvent {
                pmu,
                name,
                terms,
                counters: scale.clone(),
                brief,
                scale,
                per_package,
                deprecated,
            },
        );
        proptest::collection::vec(event, 0..8)
    }

    proptest! {
        #[test]
        fn events_come_back_as_they_went(mut all in events()) {
            let back = read(&write(&all).unwrap()).unwrap();
            all.sort();
            prop_assert_eq!(back, all);
        }

        #[test]
        fn metrics_come_back_as_they_went(all in events()) {
            let mut all: Vec<PmuMetric> = all
                .into_iter()
                .map(|e| PmuMetric {
                    pmu: e.pmu,
                    name: e.name,
                    expression: e.terms,
                    groups: e.scale.clone(),
                    threshold: e.brief.clone(),
                    scale: e.scale,
                    brief: e.brief,
                })
                .collect();
            let back = read_metrics(&write_metrics(&all).unwrap()).unwrap();
            all.sort();
            prop_assert_eq!(back, all);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, text in "(pmu [a-z]\n)?\\PC{0,30}") {
            let _ = read(&bytes);
            let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
            gz.write_all(text.as_bytes()).unwrap();
            let _ = read(&gz.finish().unwrap());
        }
    }

    #[test]
    fn what_is_no_table_is_refused() {
        assert!(read(b"text").is_err());
        let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
        gz.write_all(b"pmu cpu\na\tb\n").unwrap();
        let e = read(&gz.finish().unwrap()).unwrap_err();
        assert!(e.contains("line 2"), "{e}");
    }
}
