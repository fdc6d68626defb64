//! Vendors' names of events, beside those that the kernel lists in sysfs.
//!
//! They come from perf's tables, which `amp-pmu-events` reads and carries. Which table is a PMU's is
//! decided as perf decides it, by the processor of one of its CPUs; which of its events are the
//! PMU's, by the PMU's name.

use super::{Pmu, Pmus};
use crate::event::Term;
use amp_pmu_events::json::{self, Standard};
use amp_pmu_events::{file_name, Counters, PmuEvent, Shipped, DEFAULT_CORE};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

pub use amp_pmu_events::{Cpu, KERNEL};

/// Environment variable that names a folder of tables to be used in place of the shipped ones: the
/// one with `x86/` and `arm64/` in it, `tools/perf/pmu-events/arch` of a kernel's tree.
pub const TABLES_VARIABLE: &str = "SCX_AMP_PMU_EVENTS";

/// Why tables cannot be used.
#[derive(Debug, Error)]
pub enum TableError {
    /// A file cannot be read, or is not what it must be.
    #[error(transparent)]
    Table(#[from] amp_pmu_events::TableError),
    /// A map has a row that is no pattern.
    #[error("{path}: {reason}")]
    Map {
        /// The map.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The tables do not know this processor.
    #[error("{path}: no events for processor `{cpu}`")]
    UnknownProcessor {
        /// The map.
        path: PathBuf,
        /// The processor.
        cpu: Cpu,
    },
    /// Neither `/proc/cpuinfo` nor sysfs says which processor this is.
    #[error("cannot tell which processor this is")]
    NoProcessor,
}

/// Where vendors' names are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables<'a> {
    /// In the tables inside this program. A processor that they do not know is no error.
    Shipped,
    /// In the tables of a folder, as [`TABLES_VARIABLE`] names it.
    Folder(&'a Path),
}

impl<'a> Tables<'a> {
    /// Those of the folder, if one is named.
    pub fn named(folder: Option<&'a Path>) -> Tables<'a> {
        folder.map_or(Tables::Shipped, Tables::Folder)
    }
}

/// An event that a vendor's table names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VendorEvent {
    /// Terms, as sysfs writes them.
    pub code: String,
    /// What the vendor says of it.
    pub description: Option<String>,
    /// Factor and unit of one count (`64Bytes`).
    pub scale: Option<String>,
    /// Counters that can count it; `None` where the table does not say.
    pub counters: Option<Counters>,
    /// Whether the vendor has replaced it by another event.
    pub deprecated: bool,
}

impl From<PmuEvent> for VendorEvent {
    fn from(e: PmuEvent) -> VendorEvent {
        VendorEvent {
            code: e.code(),
            description: e.brief,
            scale: e.scale,
            // what is not understood is as good as not said
            counters: e.counters.and_then(|c| c.parse().ok()),
            deprecated: e.deprecated,
        }
    }
}

/// Events by name in lower case.
pub type VendorEvents = Arc<BTreeMap<String, VendorEvent>>;

/// The processor that CPU number `cpu` is, from `/sys` or `/proc/cpuinfo` below `root`; `None` when
/// they do not say.
pub fn processor(root: &Path, cpu: u32) -> Option<Cpu> {
    let file = format!("sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
    if let Ok(text) = std::fs::read_to_string(root.join(file)) {
        let midr = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16);
        return midr.ok().map(Cpu::Arm);
    }
    let text = std::fs::read_to_string(root.join("proc/cpuinfo")).ok()?;
    let field = |name: &str| {
        text.lines().find_map(|l| {
            let (key, value) = l.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    let model: u32 = field("model")?.parse().ok()?;
    let (vendor, family) = (field("vendor_id")?, field("cpu family")?);
    Some(Cpu::X86 {
        model: format!("{vendor}-{family}-{model:X}"),
        stepping: field("stepping").and_then(|s| s.parse().ok()),
    })
}

impl Pmus {
    /// PMUs that count no cores and of which there are several, by what their names have in common:
    /// `uncore_imc`, or `imc`, is `uncore_imc_0`, `uncore_imc_1` and so on, as perf understands it.
    pub fn instances<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Pmu> {
        self.iter().filter(move |p| !p.core && is_of(name, p))
    }

    /// The same with the events that the vendors' tables have for the PMUs of the machine whose
    /// `/sys` and `/proc` are below `root`. Where sysfs has an event of the same name, that one is
    /// used: it is what this kernel says of this machine.
    ///
    /// # Errors
    /// [`TableError`], where a folder of tables is named. The shipped tables never fail.
    pub fn with_vendor_events(
        mut self,
        root: &Path,
        tables: Tables<'_>,
    ) -> Result<Pmus, TableError> {
        // one table serves several PMUs, and is large
        let mut read: Vec<(Cpu, Vec<PmuEvent>)> = Vec::new();
        let mut unknown = None;
        for pmu in &mut self.pmus {
            // software, tracepoints and the like count on no CPU of their own
            if !pmu.core && pmu.cpus.is_empty() {
                continue;
            }
            let Some(cpu) = pmu.cpus.iter().find_map(|c| processor(root, *c)) else {
                unknown.get_or_insert(TableError::NoProcessor);
                continue;
            };
            if !read.iter().any(|(c, _)| *c == cpu) {
                match events(&cpu, tables)? {
                    Ok(all) => read.push((cpu.clone(), all)),
                    Err(e) => {
                        unknown.get_or_insert(e);
                        continue;
                    }
                }
            }
            let all = read.iter().find(|(c, _)| *c == cpu);
            let all = all.into_iter().flat_map(|(_, events)| events);
            let implemented = Implemented::of(&cpu, pmu);
            let own = all.filter(|e| is_of(&e.pmu, pmu) && implemented.has(e));
            pmu.vendor = Arc::new(own.map(|e| (e.name.clone(), e.clone().into())).collect());
        }
        match (tables, unknown) {
            // a folder that was named is there to be used; one core type may have none, all of them
            // may not
            (Tables::Folder(_), Some(e)) if read.is_empty() => Err(e),
            _ => Ok(self),
        }
    }
}

/// The events of a processor, or that it has no table.
fn events(cpu: &Cpu, tables: Tables<'_>) -> Result<Result<Vec<PmuEvent>, TableError>, TableError> {
    read_table(cpu, tables, Shipped::events, json::read_model)
}

/// What the shipped table of a processor has, or that of a folder; or that there is none.
pub(super) fn read_table<T>(
    cpu: &Cpu,
    tables: Tables<'_>,
    shipped: fn(&Shipped) -> T,
    read: fn(&Path, &Standard) -> Result<T, amp_pmu_events::TableError>,
) -> Result<Result<T, TableError>, TableError> {
    let Tables::Folder(arch) = tables else {
        let table = Shipped::of(cpu);
        return Ok(table
            .map(|t| shipped(&t))
            .ok_or(TableError::UnknownProcessor {
                path: file_name(cpu.arch(), "shipped").into(),
                cpu: cpu.clone(),
            }));
    };
    let arch = arch.join(cpu.arch());
    let rows = json::read_map(&arch)?;
    let path = || arch.join("mapfile.csv");
    let row = cpu.find(&rows);
    let row = row.map_err(|reason| TableError::Map {
        path: path(),
        reason,
    })?;
    let Some(row) = row.filter(|r| !r.folder.contains("..")) else {
        return Ok(Err(TableError::UnknownProcessor {
            path: path(),
            cpu: cpu.clone(),
        }));
    };
    Ok(Ok(read(&arch.join(&row.folder), &Standard::read(&arch)?)?))
}

/// Which of the Arm architecture's common events a core implements. It says so itself, and the
/// driver lists those in sysfs and no others. A table is for a design, of which a core may lack some
/// (and a virtual machine's PMU many); the driver would count nothing for these.
struct Implemented(Option<Vec<u64>>);

impl Implemented {
    fn of(cpu: &Cpu, pmu: &Pmu) -> Implemented {
        let says = matches!(cpu, Cpu::Arm(_)) && pmu.core && !pmu.events.is_empty();
        Implemented(says.then(|| pmu.events.values().filter_map(|t| code(t)).collect()))
    }

    fn has(&self, e: &PmuEvent) -> bool {
        match (&self.0, code(&e.terms)) {
            // the codes that the core's identification covers
            (Some(listed), Some(code @ (0..0x40 | 0x4000..0x4040))) => listed.contains(&code),
            _ => true,
        }
    }
}

/// The value of the field `event` among terms.
fn code(terms: &str) -> Option<u64> {
    let terms = crate::event::parse_terms(terms).ok()?;
    terms.into_iter().find_map(|t| match t {
        Term::Field { name, value } if name == "event" => Some(value),
        _ => None,
    })
}

/// Whether events that a table has for `wanted` are those of `pmu`, as perf decides it
/// (`perf_pmu__name_wildcard_match`). perf takes the unit `cpu_lowpower` of Arrow Lake's table for
/// an uncore unit, and so finds it on no PMU; here it is the core PMU of that name.
pub(super) fn is_of(wanted: &str, pmu: &Pmu) -> bool {
    let bare = |name: &str| name.strip_prefix("uncore_").unwrap_or(name).to_owned();
    if pmu.core {
        return wanted == DEFAULT_CORE || bare(wanted) == pmu.name;
    }
    let (name, wanted) = (bare(&pmu.name), bare(wanted));
    let mut rest = name.as_str();
    if wanted.contains(',') {
        // parts of the name, each with a number
        for part in wanted.split(',') {
            let Some(after) = rest.strip_prefix(part) else {
                return false;
            };
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            rest = after.strip_prefix('_').unwrap_or(after);
        }
        return rest.is_empty();
    }
    rest.strip_prefix(&*wanted).is_some_and(is_instance)
}

/// Whether this follows the name of a unit of which there are several: nothing, `_0`, `3`, or an
/// address of at least three hexadecimal digits.
fn is_instance(suffix: &str) -> bool {
    if suffix.is_empty() {
        return true;
    }
    let digits = suffix.strip_prefix('_').unwrap_or(suffix);
    let decimal = digits.bytes().all(|b| b.is_ascii_digit());
    let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    !digits.is_empty() && (decimal || hex && digits.len() > 2)
}

#[cfg(test)]
#[path = "vendor_tests.rs"]
mod tests;
