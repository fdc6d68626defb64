//! perf's JSON files, read by the rules of the kernel's generator (`jevents.py`).

use crate::{MapRow, PmuEvent, PmuMetric, TableError, DEFAULT_CORE};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Codes of a few Intel events that the generator takes in place of what the tables say.
const FIXED: &[(&str, &str)] = &[
    ("inst_retired.any", "event=0xc0,period=2000003"),
    ("inst_retired.any_p", "event=0xc0,period=2000003"),
    (
        "cpu_clk_unhalted.ref",
        "event=0x0,umask=0x03,period=2000003",
    ),
    ("cpu_clk_unhalted.thread", "event=0x3c,period=2000003"),
    ("cpu_clk_unhalted.core", "event=0x3c,period=2000003"),
    (
        "cpu_clk_unhalted.thread_any",
        "event=0x3c,any=1,period=2000003",
    ),
];

/// PMUs by their unit in the tables; the unit of any other is the name after `uncore_`.
const UNITS: &[(&str, &str)] = &[
    ("CBO", "uncore_cbox"),
    ("QPI LL", "uncore_qpi"),
    ("SBO", "uncore_sbox"),
    ("iMPH-U", "uncore_arb"),
    ("CPU-M-CF", "cpum_cf"),
    ("CPU-M-SF", "cpum_sf"),
    ("PAI-CRYPTO", "pai_crypto"),
    ("PAI-EXT", "pai_ext"),
    ("UPI LL", "uncore_upi"),
    ("hisi_sicl,cpa", "hisi_sicl,cpa"),
    ("hisi_sccl,ddrc", "hisi_sccl,ddrc"),
    ("hisi_sccl,hha", "hisi_sccl,hha"),
    ("hisi_sccl,l3c", "hisi_sccl,l3c"),
    ("imx8_ddr", "imx8_ddr"),
    ("imx9_ddr", "imx9_ddr"),
    ("L3PMC", "amd_l3"),
    ("DFPMC", "amd_df"),
    ("UMCPMC", "amd_umc"),
    ("cpu_core", "cpu_core"),
    ("cpu_atom", "cpu_atom"),
    ("ali_drw", "ali_drw"),
    ("arm_cmn", "arm_cmn"),
    ("software", "software"),
    ("tool", "tool"),
];

/// Fields of an entry, in the order in which their terms follow the event's code.
const FIELDS: &[(&str, &str)] = &[
    ("AnyThread", "any"),
    ("PortMask", "ch_mask"),
    ("CounterMask", "cmask"),
    ("EdgeDetect", "edge"),
    ("FCMask", "fc_mask"),
    ("Invert", "inv"),
    ("SampleAfterValue", "period"),
    ("UMask", "umask"),
    ("NodeType", "type"),
    ("RdWrMask", "rdwrmask"),
    ("EnAllCores", "enallcores"),
    ("EnAllSlices", "enallslices"),
    ("SliceId", "sliceid"),
    ("ThreadMask", "threadmask"),
];

/// An entry of a file: an event, a derived metric, or both.
type Entry = Map<String, Value>;

/// Entries that others refer to by name (`ArchStdEvent`), by name in lower case: an event, which has
/// no name where the entry is a metric, and the metric.
#[derive(Clone, Debug, Default)]
pub struct Standard(BTreeMap<String, (PmuEvent, PmuMetric)>);

impl Standard {
    /// The standard entries of an architecture: those of the JSON files in `arch` itself
    /// (`arch/arm64`).
    ///
    /// # Errors
    /// [`TableError`], naming the file.
    pub fn read(arch: &Path) -> Result<Standard, TableError> {
        let mut all = BTreeMap::new();
        for path in json_files(arch)? {
            for entry in entries(&path)? {
                let none = Standard::default();
                let event = event(&entry, &none).map_err(bad(&path))?;
                let metric = metric(&entry, &none);
                for name in [event.name.clone(), metric.name.to_lowercase()] {
                    if !name.is_empty() {
                        all.insert(name, (event.clone(), metric.clone()));
                    }
                }
            }
        }
        Ok(Standard(all))
    }
}

/// The rows of an architecture's map.
///
/// # Errors
/// [`TableError`], naming the file.
pub fn read_map(arch: &Path) -> Result<Vec<MapRow>, TableError> {
    Ok(MapRow::parse(&read(&arch.join("mapfile.csv"))?))
}

/// Every event in the files of `folder` itself, by PMU and name.
///
/// # Errors
/// [`TableError`], naming the file, the entry and what is wrong with it.
pub fn read_model(folder: &Path, standard: &Standard) -> Result<Vec<PmuEvent>, TableError> {
    let mut out = Vec::new();
    for path in model_files(folder)? {
        for entry in entries(&path)? {
            let event = event(&entry, standard).map_err(bad(&path))?;
            if !event.name.is_empty() {
                out.push(event);
            }
        }
    }
    out.sort();
    Ok(out)
}

/// Every derived metric in the files of `folder` itself, by PMU and name; the first of a name on a
/// PMU counts.
///
/// # Errors
/// [`TableError`], naming the file.
pub fn read_metrics(folder: &Path, standard: &Standard) -> Result<Vec<PmuMetric>, TableError> {
    let mut out: BTreeMap<(String, String), PmuMetric> = BTreeMap::new();
    for path in model_files(folder)? {
        for entry in entries(&path)? {
            let metric = metric(&entry, standard);
            if !metric.name.is_empty() {
                let key = (metric.pmu.clone(), metric.name.clone());
                out.entry(key).or_insert(metric);
            }
        }
    }
    Ok(out.into_values().collect())
}

fn bad(path: &Path) -> impl Fn(String) -> TableError + '_ {
    |reason| TableError::Bad {
        path: path.to_owned(),
        reason,
    }
}

fn read(path: &Path) -> Result<String, TableError> {
    let text = amp_machine::read_text(path);
    text.map(|(text, _)| text)
        .map_err(|source| TableError::Read {
            path: path.to_owned(),
            source,
        })
}

fn entries(path: &Path) -> Result<Vec<Entry>, TableError> {
    serde_json::from_str(&read(path)?).map_err(|e| bad(path)(e.to_string()))
}

/// The JSON files of a folder, by name.
fn json_files(folder: &Path) -> Result<Vec<PathBuf>, TableError> {
    let found = std::fs::read_dir(folder).map_err(|source| TableError::Read {
        path: folder.to_owned(),
        source,
    })?;
    let mut paths: Vec<PathBuf> = found.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.is_file() && p.extension().is_some_and(|e| e == "json"));
    paths.sort();
    Ok(paths)
}

/// The files of a model: without the explanations of groups of metrics.
fn model_files(folder: &Path) -> Result<Vec<PathBuf>, TableError> {
    let mut paths = json_files(folder)?;
    paths.retain(|p| !p.to_string_lossy().ends_with("metricgroups.json"));
    Ok(paths)
}

/// A text of an entry that is not empty.
fn text<'a>(entry: &'a Entry, key: &str) -> Option<&'a str> {
    entry.get(key)?.as_str().filter(|t| !t.is_empty())
}

/// What the generator makes of an entry. The name is empty where the entry is no event.
fn event(entry: &Entry, standard: &Standard) -> Result<PmuEvent, String> {
    let name = text(entry, "EventName").unwrap_or_default().to_lowercase();
    let of = |reason: String| match (text(entry, "EventName"), text(entry, "ArchStdEvent")) {
        (Some(n), _) | (None, Some(n)) => format!("`{n}`: {reason}"),
        (None, None) => reason,
    };
    let mut out = PmuEvent {
        pmu: pmu(text(entry, "Unit")),
        name,
        terms: terms(entry).map_err(of)?,
        brief: brief(entry),
        scale: text(entry, "ScaleUnit").map(str::to_owned),
        counters: text(entry, "Counter").map(str::to_owned),
        per_package: flag(entry, "PerPkg"),
        deprecated: flag(entry, "Deprecated"),
    };
    if let Some(wanted) = text(entry, "ArchStdEvent") {
        let of_standard = standard.0.get(&wanted.to_lowercase());
        let (s, _) = of_standard.ok_or_else(|| format!("`{wanted}` is not a standard event"))?;
        // the code is the standard's; what else the entry does not say is, too
        out.terms = s.terms.clone();
        if out.name.is_empty() {
            out.name = s.name.clone();
        }
        out.brief = out.brief.or_else(|| s.brief.clone());
        out.scale = out.scale.or_else(|| s.scale.clone());
        out.per_package |= s.per_package;
        out.deprecated |= s.deprecated;
    }
    if let Some((_, fixed)) = FIXED.iter().find(|(n, _)| *n == out.name) {
        out.terms = (*fixed).to_owned();
    }
    Ok(out)
}

/// What the generator makes of an entry as a metric. The name is empty where it is none.
fn metric(entry: &Entry, standard: &Standard) -> PmuMetric {
    let owned = |key: &str| text(entry, key).map(str::to_owned);
    let mut out = PmuMetric {
        pmu: pmu(text(entry, "Unit")),
        name: owned("MetricName").unwrap_or_default(),
        expression: owned("MetricExpr").unwrap_or_default(),
        groups: owned("MetricGroup"),
        threshold: owned("MetricThreshold"),
        scale: owned("ScaleUnit"),
        brief: brief(entry),
    };
    let wanted = text(entry, "ArchStdEvent").map(str::to_lowercase);
    if let Some((_, s)) = wanted.and_then(|w| standard.0.get(&w)) {
        if out.name.is_empty() {
            out.name.clone_from(&s.name);
        }
        if out.expression.is_empty() {
            out.expression.clone_from(&s.expression);
        }
        out.groups = out.groups.or_else(|| s.groups.clone());
        out.threshold = out.threshold.or_else(|| s.threshold.clone());
        out.scale = out.scale.or_else(|| s.scale.clone());
        out.brief = out.brief.or_else(|| s.brief.clone());
    }
    out
}

fn flag(entry: &Entry, key: &str) -> bool {
    text(entry, key).is_some_and(|t| t != "0")
}

fn pmu(unit: Option<&str>) -> String {
    let Some(unit) = unit else {
        return DEFAULT_CORE.into();
    };
    match UNITS.iter().find(|(u, _)| *u == unit) {
        Some((_, pmu)) => (*pmu).to_owned(),
        None => format!("uncore_{}", unit.to_lowercase()),
    }
}

/// The description, with what the generator adds to it.
fn brief(entry: &Entry) -> Option<String> {
    let mut out = text(entry, "BriefDescription")?.to_owned();
    for end in [".  ", ". ", "."] {
        if let Some(rest) = out.strip_suffix(end) {
            out.truncate(rest.len());
        }
    }
    if out.is_empty() {
        return None;
    }
    let mut more = String::new();
    let errata = entry.get("Errata").and_then(Value::as_str);
    if entry.contains_key("Data_LA") {
        more += "  Supports address when precise";
        if errata.is_some() {
            more += ".";
        }
    }
    if let Some(e) = errata {
        more = more + "  Spec update: " + e;
    }
    match text(entry, "PEBS") {
        Some(_) if out.contains("(Precise Event)") => {}
        Some("2") => more += " (Must be precise)",
        Some(_) => more += " (Precise event)",
        None => {}
    }
    Some(out + &more)
}

/// The terms of an entry's own code.
fn terms(entry: &Entry) -> Result<String, String> {
    let number = |key: &str, text: &str| {
        any_base(text).ok_or_else(|| format!("`{key}`: `{text}` is not a number"))
    };
    let mut code = 0;
    if let Some(t) = value(entry, "EventCode")? {
        // off-core events have two codes, of which one is as good as the other
        code = number("EventCode", t.split(',').next().unwrap_or_default())?;
    }
    if let Some(t) = value(entry, "ExtSel")? {
        code |= number("ExtSel", t)? << 8;
    }
    let mut out = format!("event={}", hex(code));
    let instead = [
        ("ConfigCode", "config"),
        ("EventidCode", "eventid"),
        ("LegacyConfigCode", "legacy-hardware-config"),
        ("LegacyCacheCode", "legacy-cache-config"),
    ];
    for (key, term) in instead {
        if let Some(t) = value(entry, key)? {
            out = format!("{term}={}", hex(number(key, t)?));
            break;
        }
    }
    for (key, term) in FIELDS {
        let Some(t) = value(entry, key)? else {
            continue;
        };
        let canonical = match t.starts_with("0x") {
            true => number(key, t).map(hex)?,
            false => number(key, t)?.to_string(),
        };
        if canonical != "0" {
            out = format!("{out},{term}={canonical}");
        }
    }
    if let Some(filter) = text(entry, "Filter") {
        out = format!("{out},{filter}");
    }
    if let Some(index) = text(entry, "MSRIndex") {
        let first = index.split(',').next().unwrap_or_default();
        let term = match number("MSRIndex", first)? {
            0x3f6 => "ldlat",
            0x1a6 | 0x1a7 => "offcore_rsp",
            0x3f7 => "frontend",
            _ => return Err(format!("`MSRIndex`: register {first} is not known")),
        };
        // as it stands there; where there is none, the generator writes `ldlat=None`, which perf
        // cannot read
        if let Some(v) = value(entry, "MSRValue")? {
            number("MSRValue", v)?;
            out = format!("{out},{term}={v}");
        }
    }
    Ok(out)
}

/// The text of a field; numbers are texts in these files.
fn value<'a>(entry: &'a Entry, key: &str) -> Result<Option<&'a str>, String> {
    match entry.get(key) {
        None => Ok(None),
        Some(Value::String(t)) => Ok(Some(t)),
        Some(other) => Err(format!("`{key}`: {other} is not a text")),
    }
}

fn any_base(s: &str) -> Option<u64> {
    let s = s.trim();
    match s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => s.parse().ok(),
    }
}

/// As `%#llx` of C below 10, else in hexadecimal: the generator's way.
fn hex(n: u64) -> String {
    match n {
        0..10 => n.to_string(),
        _ => format!("{n:#x}"),
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
