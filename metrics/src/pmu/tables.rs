//! Event names from the kernel's pmu-events tables (`tools/perf/pmu-events/arch` of a kernel tree,
//! JSON).
//!
//! The kernel itself lists only some events in sysfs; the vendors' full lists are in those tables.
//! Entries are kept by PMU *and* name: on a hybrid many names exist on both PMUs with different
//! codes. The `scx_raw_pmu` crate carries the same tables but keeps them by name alone (the last
//! entry read wins), knows x86 only and embeds 26 MB, so its data can be read here (its `arch`
//! folder), its code is not used.

use super::{Pmu, Pmus};
use crate::ids::CoreTypeId;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Environment variable that names the folder of the tables (the one with `x86/` and `arm64/` in
/// it).
pub const TABLES_VARIABLE: &str = "SCX_AMP_PMU_EVENTS";

/// Why tables cannot be used.
#[derive(Debug, Error)]
pub enum TableError {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is not what it must be.
    #[error("{path}: {reason}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The tables do not know this processor.
    #[error("{path}: no events for processor `{cpuid}`")]
    UnknownProcessor {
        /// The map.
        path: PathBuf,
        /// The processor.
        cpuid: String,
    },
}

/// What the map is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processor {
    /// `GenuineIntel-6-97`: vendor, family and model (hex), as perf writes it.
    X86(String),
    /// Main ID register per core type, fastest first.
    Arm(Vec<u64>),
}

impl Processor {
    /// The processor of this machine, from `/proc/cpuinfo` and sysfs; `None` when it cannot be
    /// told. `cpus` is one CPU of each core type, fastest first.
    pub fn detect(proc: &Path, sysfs: &Path, cpus: &[u32]) -> Option<Processor> {
        let midr: Option<Vec<u64>> = cpus
            .iter()
            .map(|c| {
                let file = format!("devices/system/cpu/cpu{c}/regs/identification/midr_el1");
                let text = std::fs::read_to_string(sysfs.join(file)).ok()?;
                u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
            })
            .collect();
        if let Some(midr) = midr.filter(|m| !m.is_empty()) {
            return Some(Processor::Arm(midr));
        }
        let text = std::fs::read_to_string(proc.join("cpuinfo")).ok()?;
        let field = |name: &str| {
            text.lines().find_map(|l| {
                let (key, value) = l.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        let model: u32 = field("model")?.parse().ok()?;
        let (vendor, family) = (field("vendor_id")?, field("cpu family")?);
        Some(Processor::X86(format!("{vendor}-{family}-{model:X}")))
    }
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "EventName")]
    name: Option<String>,
    #[serde(rename = "EventCode")]
    code: Option<String>,
    #[serde(rename = "UMask")]
    umask: Option<String>,
    #[serde(rename = "Unit")]
    unit: Option<String>,
    #[serde(rename = "CounterMask")]
    cmask: Option<String>,
    #[serde(rename = "Invert")]
    invert: Option<String>,
    #[serde(rename = "EdgeDetect")]
    edge: Option<String>,
    #[serde(rename = "MSRIndex")]
    msr_index: Option<String>,
    #[serde(rename = "MSRValue")]
    msr_value: Option<String>,
    #[serde(rename = "BriefDescription")]
    brief: Option<String>,
    #[serde(rename = "ArchStdEvent")]
    standard: Option<String>,
}

/// An event of a table.
struct Row {
    unit: Option<String>,
    name: String,
    terms: String,
    description: Option<String>,
}

/// Events of a processor that the vendor's tables name, by PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    by_pmu: BTreeMap<String, BTreeMap<String, String>>,
    descriptions: BTreeMap<String, BTreeMap<String, String>>,
}

impl Tables {
    /// Reads the tables below `arch` (the folder with `x86/` and `arm64/`) for the core PMUs of
    /// `pmus`.
    ///
    /// # Errors
    /// [`TableError`], naming the file.
    pub fn load(arch: &Path, processor: &Processor, pmus: &Pmus) -> Result<Tables, TableError> {
        let mut tables = Tables::default();
        match processor {
            Processor::X86(id) => {
                let dir = arch.join("x86");
                let dir = dir.join(look_up(&dir.join("mapfile.csv"), id, |re, id| {
                    regex::Regex::new(&format!("^(?:{re})$"))
                        .map(|re| re.is_match(id))
                        .map_err(|e| e.to_string())
                })?);
                let core: Vec<&Pmu> = pmus.iter().filter(|p| p.core).collect();
                for row in read_dir(&dir, &BTreeMap::new())? {
                    // entries without a unit are for the core PMU, whatever its name; those of
                    // uncore units are left out
                    let of = core.iter().filter(|p| match &row.unit {
                        Some(u) => *u == p.name,
                        None => true,
                    });
                    for p in of {
                        tables.insert(&p.name, &row);
                    }
                }
            }
            Processor::Arm(midr) => {
                let dir = arch.join("arm64");
                let standard = standard_events(&dir.join("common-and-microarch.json"))?;
                for (t, midr) in midr.iter().enumerate() {
                    let Some(pmu) = pmus.of_core_type(CoreTypeId(t as u8)) else {
                        continue;
                    };
                    // variant and revision are zero in the map
                    let id = format!("{:#018x}", midr & !0x00f0_000f);
                    let same = |a: &str, b: &str| Ok(a.eq_ignore_ascii_case(b));
                    let dir = dir.join(look_up(&dir.join("mapfile.csv"), &id, same)?);
                    for row in read_dir(&dir, &standard)? {
                        tables.insert(&pmu.name, &row);
                    }
                }
            }
        }
        Ok(tables)
    }

    /// Events of the PMU called `pmu`: name in lower case, terms.
    pub fn of(&self, pmu: &str) -> impl Iterator<Item = (&str, &str)> {
        let all = self.by_pmu.get(pmu).into_iter().flatten();
        all.map(|(n, t)| (n.as_str(), t.as_str()))
    }

    /// What the vendor says of event `name` (in lower case) of the PMU called `pmu`.
    pub fn description(&self, pmu: &str, name: &str) -> Option<&str> {
        let text = self.descriptions.get(pmu)?.get(name)?;
        Some(text)
    }

    fn insert(&mut self, pmu: &str, row: &Row) {
        let (name, terms) = (row.name.clone(), row.terms.clone());
        let all = self.by_pmu.entry(pmu.to_owned()).or_default();
        all.insert(name, terms);
        if let Some(text) = &row.description {
            let all = self.descriptions.entry(pmu.to_owned()).or_default();
            all.insert(row.name.clone(), text.clone());
        }
    }

    /// Names that two PMUs have, and how many of them have different codes.
    pub fn collisions(&self) -> (usize, usize) {
        let mut codes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, terms) in self.by_pmu.values().flatten() {
            codes.entry(name).or_default().push(terms);
        }
        let shared = codes.values().filter(|c| c.len() > 1);
        let different = |c: &&Vec<&str>| c.windows(2).any(|w| w[0] != w[1]);
        (shared.clone().count(), shared.filter(different).count())
    }
}

impl Pmus {
    /// The same with the events of `tables` added to those that sysfs lists; where both have a
    /// name, sysfs is right: it is what this kernel says of this machine.
    #[must_use]
    pub fn with_tables(mut self, tables: &Tables) -> Pmus {
        for pmu in &mut self.pmus {
            for (name, terms) in tables.of(&pmu.name) {
                pmu.events
                    .entry(name.to_owned())
                    .or_insert_with(|| terms.to_owned());
            }
        }
        self
    }
}

/// The folder that the map names for this processor.
fn look_up(
    map: &Path,
    cpuid: &str,
    matches: impl Fn(&str, &str) -> Result<bool, String>,
) -> Result<String, TableError> {
    let text = read(map)?;
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let mut columns = line.split(',').map(str::trim);
        let (Some(id), Some(_), Some(dir)) = (columns.next(), columns.next(), columns.next())
        else {
            continue;
        };
        if id == "Family-model" || dir.contains("..") {
            continue;
        }
        let found = matches(id, cpuid).map_err(|reason| TableError::Bad {
            path: map.to_owned(),
            reason,
        })?;
        if found {
            return Ok(dir.to_owned());
        }
    }
    Err(TableError::UnknownProcessor {
        path: map.to_owned(),
        cpuid: cpuid.to_owned(),
    })
}

fn read(path: &Path) -> Result<String, TableError> {
    let text = amp_machine::read_text(path);
    text.map(|(text, _)| text)
        .map_err(|source| TableError::Read {
            path: path.to_owned(),
            source,
        })
}

/// The events that many Arm tables refer to by name only; none when the file is missing.
fn standard_events(path: &Path) -> Result<BTreeMap<String, Row>, TableError> {
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let rows = entries(path)?;
    let rows = rows.into_iter().filter_map(row);
    Ok(rows.map(|r| (r.name.clone(), r)).collect())
}

fn entries(path: &Path) -> Result<Vec<Entry>, TableError> {
    serde_json::from_str(&read(path)?).map_err(|e| TableError::Bad {
        path: path.to_owned(),
        reason: e.to_string(),
    })
}

fn row(e: Entry) -> Option<Row> {
    let (name, terms) = terms(&e)?;
    Some(Row {
        unit: e.unit,
        name,
        terms,
        description: e.brief,
    })
}

/// Every event in the JSON files of `dir`; those without a code of their own are looked up in
/// `standard`.
fn read_dir(dir: &Path, standard: &BTreeMap<String, Row>) -> Result<Vec<Row>, TableError> {
    let found = std::fs::read_dir(dir).map_err(|source| TableError::Read {
        path: dir.to_owned(),
        source,
    })?;
    let mut paths: Vec<PathBuf> = found.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "json"));
    // groups of derived metrics, a map from name to text
    paths.retain(|p| p.file_name().is_some_and(|n| n != "metricgroups.json"));
    paths.sort();
    let mut out = Vec::new();
    for path in paths {
        for e in entries(&path)? {
            let known = e.standard.as_ref().map(|n| n.to_lowercase());
            match known.and_then(|n| standard.get(&n)) {
                Some(s) => out.push(Row {
                    unit: None,
                    name: s.name.clone(),
                    terms: s.terms.clone(),
                    description: e.brief.or_else(|| s.description.clone()),
                }),
                None => out.extend(row(e)),
            }
        }
    }
    Ok(out)
}

/// What perf's table compiler makes of an entry; `None` for derived metrics, and for entries
/// without a code of their own (`ArchStdEvent`, looked up elsewhere).
fn terms(e: &Entry) -> Option<(String, String)> {
    let name = e.name.as_ref()?.to_lowercase();
    // off-core events have two codes, of which one is as good as the other
    let code = e.code.as_ref()?.split(',').next()?.trim();
    let mut out = format!("event={}", hex(code)?);
    let nonzero = |v: &Option<String>| hex(v.as_deref()?).filter(|v| v != "0x0");
    for (field, value) in [
        ("umask", &e.umask),
        ("cmask", &e.cmask),
        ("inv", &e.invert),
        ("edge", &e.edge),
    ] {
        if let Some(v) = nonzero(value) {
            out.push_str(&format!(",{field}={v}"));
        }
    }
    if let Some(v) = nonzero(&e.msr_value) {
        let field = match e.msr_index.as_deref().unwrap_or_default().trim() {
            "0x3F6" | "0x3f6" => "ldlat",
            "0x3F7" | "0x3f7" => "frontend",
            _ => "offcore_rsp",
        };
        out.push_str(&format!(",{field}={v}"));
    }
    Some((name, out))
}

fn hex(s: &str) -> Option<String> {
    crate::event::parse_number(s.trim()).map(|n| format!("{n:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &Path, name: &str, text: &str) {
        let p = dir.join(name);
        std::fs::create_dir_all(p.parent().unwrap()).unwrap();
        std::fs::write(p, text).unwrap();
    }

    fn hybrid() -> Pmus {
        let pmu = |name: &str, type_, cpus| Pmu {
            name: name.into(),
            type_,
            cpus,
            core: true,
            formats: [("event", "config:0-7"), ("umask", "config:8-15")]
                .map(|(k, v)| (k.to_owned(), v.parse().unwrap()))
                .into(),
            ..Pmu::default()
        };
        Pmus::from_list(
            vec![
                pmu("cpu_core", 4, vec![0, 1]),
                pmu("cpu_atom", 10, vec![2, 3]),
            ],
            &[vec![0, 1], vec![2, 3]],
        )
    }

    #[test]
    fn names_that_collide_stay_apart() {
        let d = tempfile::tempdir().unwrap();
        file(
            d.path(),
            "x86/mapfile.csv",
            "Family-model,Version,Filename,EventType\nGenuineIntel-6-(97|9A),v1,two,core\n",
        );
        file(
            d.path(),
            "x86/two/a.json",
            r#"[{"EventName":"X.MISS","EventCode":"0x10","UMask":"0x1","Unit":"cpu_core","BriefDescription":"…"},
                {"EventName":"X.MISS","EventCode":"0x20","UMask":"0x2","Unit":"cpu_atom"},
                {"EventName":"Y","EventCode":"0x5","Unit":"iMC"},
                {"MetricName":"m","MetricExpr":"a / b"}]"#,
        );
        file(d.path(), "x86/two/metricgroups.json", r#"{"a":"b"}"#);
        let processor = Processor::X86("GenuineIntel-6-97".into());
        let tables = Tables::load(d.path(), &processor, &hybrid()).unwrap();
        assert_eq!(tables.collisions(), (1, 1));
        let pmus = hybrid().with_tables(&tables);
        let spec = "x.miss".parse().unwrap();
        assert_eq!(
            pmus.resolve(CoreTypeId(0), &spec).unwrap().attr.config,
            0x110
        );
        assert_eq!(
            pmus.resolve(CoreTypeId(1), &spec).unwrap().attr.config,
            0x220
        );
        let other = Processor::X86("GenuineIntel-6-970".into());
        let e = Tables::load(d.path(), &other, &hybrid()).unwrap_err();
        assert!(matches!(e, TableError::UnknownProcessor { .. }), "{e}");
    }

    #[test]
    fn an_arm_core_type_has_its_own_table() {
        let d = tempfile::tempdir().unwrap();
        file(
            d.path(),
            "arm64/mapfile.csv",
            "# comment\n0x00000000410fd070,v1,arm/a57,core\n0x00000000410fd030,v1,arm/a53,core\n",
        );
        file(
            d.path(),
            "arm64/arm/a57/c.json",
            r#"[{"ArchStdEvent":"L1D_CACHE"}]"#,
        );
        file(
            d.path(),
            "arm64/arm/a53/c.json",
            r#"[{"EventName":"PREFETCH_LINEFILL","EventCode":"0xC2"}]"#,
        );
        let processor = Processor::Arm(vec![0x411f_d071, 0x410f_d034]);
        let tables = Tables::load(d.path(), &processor, &hybrid()).unwrap();
        assert_eq!(
            tables.of("cpu_atom").collect::<Vec<_>>(),
            [("prefetch_linefill", "event=0xc2")]
        );
        assert_eq!(tables.of("cpu_core").count(), 0);
        // with the file of the common events, the name alone is enough
        file(
            d.path(),
            "arm64/common-and-microarch.json",
            r#"[{"EventName":"L1D_CACHE","EventCode":"0x04","BriefDescription":"L1D access"}]"#,
        );
        let tables = Tables::load(d.path(), &processor, &hybrid()).unwrap();
        assert_eq!(
            tables.of("cpu_core").collect::<Vec<_>>(),
            [("l1d_cache", "event=0x4")]
        );
        assert_eq!(
            tables.description("cpu_core", "l1d_cache"),
            Some("L1D access")
        );
        assert_eq!(tables.description("cpu_atom", "l1d_cache"), None);
    }

    #[test]
    fn a_broken_table_names_its_file() {
        let d = tempfile::tempdir().unwrap();
        file(d.path(), "x86/mapfile.csv", "GenuineIntel-6-97,v1,two,core");
        file(d.path(), "x86/two/a.json", "[{]");
        let processor = Processor::X86("GenuineIntel-6-97".into());
        let e = Tables::load(d.path(), &processor, &hybrid()).unwrap_err();
        assert!(e.to_string().contains("two/a.json"), "{e}");
    }

    #[test]
    fn a_table_that_is_no_file_is_not_waited_for() {
        let t = tempfile::tempdir().unwrap();
        let map = t.path().join("mapfile.csv");
        let made = std::process::Command::new("mkfifo").arg(&map).status();
        assert!(made.unwrap().success());
        let said = read(&map).unwrap_err().to_string();
        assert!(said.contains("mapfile.csv"), "{said}");
    }

    /// The real tables, where somebody has them: none may be misread.
    #[test]
    fn the_kernels_own_tables() {
        let Some(arch) = std::env::var_os(TABLES_VARIABLE) else {
            return;
        };
        let arch = PathBuf::from(arch);
        for (id, least) in [("GenuineIntel-6-97", 300), ("GenuineIntel-6-AA", 300)] {
            let processor = Processor::X86(id.into());
            let tables = Tables::load(&arch, &processor, &hybrid()).unwrap();
            let of = |p: &str| tables.of(p).count();
            println!(
                "{id}: cpu_core {} cpu_atom {} names on both {:?}",
                of("cpu_core"),
                of("cpu_atom"),
                tables.collisions()
            );
            assert!(of("cpu_core") + of("cpu_atom") > least);
            for (_, terms) in tables.of("cpu_core").chain(tables.of("cpu_atom")) {
                crate::event::parse_terms(terms).unwrap();
            }
        }
    }
}
