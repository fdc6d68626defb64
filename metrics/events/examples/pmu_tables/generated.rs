//! What the kernel's generator has written: the C file that `jevents.py all all ARCH FILE.c` makes,
//! read back.

use amp_pmu_events::{PmuEvent, PmuMetric};
use anyhow::{bail, ensure, Context, Result};
use std::collections::BTreeMap;

/// The tables and maps of the C file.
pub struct Generated {
    /// Events by the name of the table: `pmu_events__arm_cortex_a53`.
    pub tables: BTreeMap<String, Vec<PmuEvent>>,
    /// Derived metrics, by the same name.
    pub metrics: BTreeMap<String, Vec<PmuMetric>>,
    /// Architecture, pattern of processors and name of the table, in order.
    pub map: Vec<(String, String, String)>,
}

/// The name that the generator gives to the table of a folder.
pub fn table_name(folder: &str) -> String {
    format!("pmu_events__{}", folder.replace(['/', '-'], "_"))
}

/// A string of C between its quotation marks.
fn unescaped(s: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = s.as_bytes();
    while let Some((&c, tail)) = rest.split_first() {
        rest = tail;
        if c != b'\\' {
            out.push(c);
            continue;
        }
        let octal = rest
            .iter()
            .take(3)
            .take_while(|d| (b'0'..=b'7').contains(d));
        let digits = octal.count();
        if digits > 0 {
            let text = std::str::from_utf8(&rest[..digits])?;
            out.push(u8::from_str_radix(text, 8)?);
            rest = &rest[digits..];
            continue;
        }
        let (&c, tail) = rest.split_first().context("a string ends in a backslash")?;
        rest = tail;
        out.push(match c {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            other => other,
        });
    }
    Ok(out)
}

/// What a line says between two texts.
fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    line.trim().strip_prefix(before)?.split(after).next()
}

impl Generated {
    pub fn parse(text: &str) -> Result<Generated> {
        let mut strings = Vec::new();
        // lists of offsets by name, then the lists of a table with the offset of the PMU's name
        let mut lists: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut tables: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
        let mut map = Vec::new();
        let (mut list, mut table, mut entries) = (None, None, None);
        let (mut arch, mut cpuid) = (None, None);
        for line in text.lines() {
            if let Some(at) = between(line, "/* offset=", " ") {
                ensure!(
                    at.parse::<usize>()? == strings.len(),
                    "offset {at} is not there"
                );
            } else if line.starts_with('"') {
                // what else may stand on the line is a comment
                let end = line.rfind("\" /* also").unwrap_or(line.len() - 1);
                strings.extend(unescaped(&line[1..end])?);
            } else if let Some(n) = between(line, "static const struct compact_pmu_event ", "[") {
                list = Some(n);
                lists.insert(n, Vec::new());
            } else if let Some(n) = between(line, "static const struct pmu_table_entry ", "[") {
                (table, list) = (Some(n), None);
                tables.insert(n, Vec::new());
            } else if let Some(n) = between(line, ".entries = ", ",") {
                entries = Some(n);
            } else if let Some(n) = between(line, ".pmu_name = { ", " ") {
                let of = entries.take().context("a PMU's name without its events")?;
                let table = table.and_then(|t| tables.get_mut(t));
                table.context("events of no table")?.push((of, n.parse()?));
            } else if let Some(n) = between(line, ".arch = \"", "\"") {
                arch = Some(n);
            } else if let Some(n) = between(line, ".cpuid = \"", "\"") {
                cpuid = Some(n);
            } else if let Some(n) = between(line, ".pmus = ", ",") {
                // the first after a processor: its metrics follow, and then tables of systems
                if let (Some(a), Some(c)) = (arch, cpuid.take()) {
                    map.push((a.to_owned(), c.to_owned(), n.to_owned()));
                }
            } else if let (Some(of), Some(n)) = (list, between(line, "{ ", " }")) {
                let offsets = lists.get_mut(of).context("an event of no list")?;
                offsets.push(n.parse().with_context(|| format!("{of}: `{n}`"))?);
            }
        }
        let mut out = Generated {
            tables: BTreeMap::new(),
            metrics: BTreeMap::new(),
            map,
        };
        for (name, pmus) in &tables {
            let events = name.starts_with("pmu_events");
            // the list that events of the same model have
            let of_model = name.replace("pmu_metrics", "pmu_events");
            for (of, pmu) in pmus {
                let (pmu, _) = text_at(&strings, *pmu)?;
                for at in lists.get(of).with_context(|| format!("no list {of}"))? {
                    if events {
                        let event = event(&strings, *at, &pmu)?;
                        out.tables.entry(of_model.clone()).or_default().push(event);
                    } else {
                        let metric = metric(&strings, *at, &pmu)?;
                        out.metrics
                            .entry(of_model.clone())
                            .or_default()
                            .push(metric);
                    }
                }
            }
        }
        Ok(out)
    }
}

fn text_at(strings: &[u8], at: usize) -> Result<(String, usize)> {
    let rest = strings.get(at..).context("an offset past the strings")?;
    let end = rest.iter().position(|b| *b == 0);
    let end = end.context("a string without an end")?;
    Ok((String::from_utf8(rest[..end].to_vec())?, at + end + 1))
}

/// Name, topic, description, terms, compatible, deprecated, per package, unit …: strings that end in
/// zero, and single letters for flags.
fn event(strings: &[u8], at: usize, pmu: &str) -> Result<PmuEvent> {
    let (name, at) = text_at(strings, at)?;
    let (_topic, at) = text_at(strings, at)?;
    let (brief, at) = text_at(strings, at)?;
    let (terms, at) = text_at(strings, at)?;
    let (_compatible, at) = text_at(strings, at)?;
    let flag = |at: usize| match strings.get(at) {
        Some(b'0') => Ok(false),
        Some(b'1') => Ok(true),
        other => bail!("{name}: {other:?} is not a flag"),
    };
    let (deprecated, per_package) = (flag(at)?, flag(at + 1)?);
    let (scale, _) = text_at(strings, at + 2)?;
    let optional = |t: String| (!t.is_empty()).then_some(t);
    Ok(PmuEvent {
        pmu: pmu.to_owned(),
        name,
        terms,
        brief: optional(brief),
        scale: optional(scale),
        counters: None,
        per_package,
        deprecated,
    })
}

/// Name, groups, formula, threshold, description, long description, scale …
fn metric(strings: &[u8], at: usize, pmu: &str) -> Result<PmuMetric> {
    let (name, at) = text_at(strings, at)?;
    let (groups, at) = text_at(strings, at)?;
    let (expression, at) = text_at(strings, at)?;
    let (threshold, at) = text_at(strings, at)?;
    let (brief, at) = text_at(strings, at)?;
    let (_long, at) = text_at(strings, at)?;
    let (scale, _) = text_at(strings, at)?;
    let optional = |t: String| (!t.is_empty()).then_some(t);
    Ok(PmuMetric {
        pmu: pmu.to_owned(),
        name,
        expression,
        groups: optional(groups),
        threshold: optional(threshold),
        scale: optional(scale),
        brief: optional(brief),
    })
}
