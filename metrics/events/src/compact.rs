//! The form in which tables are shipped: text, one event a line, compressed with gzip.
//!
//! ```text
//! pmu cpu_core
//! name ⇥ terms ⇥ counters ⇥ scale ⇥ flags ⇥ description
//! ```
//!
//! Flags are `p` (counted once per package) and `d` (deprecated). A backslash, a tab or an end of
//! line in a text is written as in C.

use crate::PmuEvent;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flate2::Compression;
use std::io::{Read, Write};

/// Largest table that is read, bytes of text: several times the largest there is.
const LARGEST: u64 = 16 << 20;

/// The compressed table of these events, by PMU and name.
///
/// # Errors
/// Those of the compressor, which writes to memory.
pub fn write(events: &[PmuEvent]) -> std::io::Result<Vec<u8>> {
    let mut sorted: Vec<&PmuEvent> = events.iter().collect();
    sorted.sort();
    let mut out = String::new();
    let mut pmu = "";
    for e in sorted {
        if e.pmu != pmu {
            pmu = &e.pmu;
            out = out + "pmu " + pmu + "\n";
        }
        let optional = |t: &Option<String>| escape(t.as_deref().unwrap_or_default());
        let flags = [(e.per_package, "p"), (e.deprecated, "d")];
        let flags: String = flags
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, f)| *f)
            .collect();
        let columns = [
            escape(&e.name),
            escape(&e.terms),
            optional(&e.counters),
            optional(&e.scale),
            flags,
            optional(&e.brief),
        ];
        out += &columns.join("\t");
        out.push('\n');
    }
    // without a time: the same events are the same bytes
    let mut gz = GzEncoder::new(Vec::new(), Compression::best());
    gz.write_all(out.as_bytes())?;
    gz.finish()
}

/// The events of a compressed table.
///
/// # Errors
/// When it is not what [`write`] makes, with the reason.
pub fn read(compressed: &[u8]) -> Result<Vec<PmuEvent>, String> {
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
        let columns: Vec<&str> = line.split('\t').collect();
        let ([name, terms, counters, scale, flags, brief], Some(pmu)) = (&columns[..], pmu) else {
            return Err(format!("line {}: not an event of a PMU", i + 1));
        };
        let optional = |t: &str| (!t.is_empty()).then(|| unescape(t));
        out.push(PmuEvent {
            pmu: pmu.to_owned(),
            name: unescape(name),
            terms: unescape(terms),
            brief: optional(brief),
            scale: optional(scale),
            counters: optional(counters),
            per_package: flags.contains('p'),
            deprecated: flags.contains('d'),
        });
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
