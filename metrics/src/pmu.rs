//! Performance monitoring units, as the kernel lists them in sysfs.

mod derived;
mod format;
pub mod identity;
mod same;
pub mod vendor;

pub use derived::{VendorMetrics, DURATION};
pub use format::{Format, FormatError};
pub use vendor::{TableError, Tables, VendorEvent, VendorEvents, TABLES_VARIABLE};

use crate::event::{closest, Event, EventAttr, EventError, EventSpec, Generic, SpecKind, Term};
use crate::group::SOFTWARE_NAMES;
use crate::ids::{CoreTypeId, CoreTypeSet};
use amp_machine::CpuList;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Where the kernel lists its PMUs, below the root of sysfs.
pub const DEVICES: &str = "bus/event_source/devices";

/// Type of the only core PMU of a machine with one kind of core (`PERF_TYPE_RAW`).
const RAW: u32 = 4;

/// One PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// Its name in sysfs, for example `cpu_core` or `armv8_cortex_a57`.
    pub name: String,
    /// Type number, for `perf_event_attr.type`.
    pub type_: u32,
    /// CPUs on which it counts, ascending. For an uncore PMU, the CPUs on which it is to be opened.
    pub cpus: Vec<u32>,
    /// Whether it counts what cores do (else: interconnect, memory controller, energy, software).
    pub core: bool,
    /// Core types on whose CPUs it counts; empty for others than core PMUs.
    pub core_types: CoreTypeSet,
    /// Fields of its event codes.
    pub formats: BTreeMap<String, Format>,
    /// Events by the name the kernel gives them: the terms they stand for.
    pub events: BTreeMap<String, String>,
    /// Events that the vendor's table names, where one is in use
    /// ([`Pmus::with_vendor_events`]).
    pub vendor: VendorEvents,
    /// Counters that can be used at once, where a trial has shown it.
    pub counters: Option<usize>,
}

impl Pmu {
    /// Every event by name, with the terms it stands for: those of sysfs, and those that only the
    /// vendor's table names.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.events.iter().map(|(n, t)| (n.as_str(), t.as_str()));
        let known = |n: &str| self.events.contains_key(n);
        let more = self.vendor.iter().filter(move |(n, _)| !known(n));
        own.chain(more.map(|(n, e)| (n.as_str(), e.code.as_str())))
    }

    /// Whether it has one event only, which fields vary (`ibs_op//`): it names none, and counts
    /// nothing that cores or the kernel do.
    fn has_one_event(&self) -> bool {
        !self.core && !self.formats.is_empty() && self.names().next().is_none()
    }

    /// The terms that a name stands for, in upper or lower case; names of sysfs first.
    fn terms_of(&self, name: &str) -> Option<&str> {
        let same = |n: &&String| n.eq_ignore_ascii_case(name);
        let own = self.events.get(name).or_else(|| {
            let key = self.events.keys().find(same);
            key.and_then(|n| self.events.get(n))
        });
        let vendors = || self.vendor.get(&name.to_lowercase());
        own.map(String::as_str)
            .or_else(|| vendors().map(|e| e.code.as_str()))
    }
}

/// Why PMUs cannot be listed.
#[derive(Debug, Error)]
pub enum PmuError {
    /// A file or folder cannot be read.
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
}

/// The PMUs of a machine, and which of them counts on which core type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmus {
    looked_in: PathBuf,
    pmus: Vec<Pmu>,
    core_types: Vec<Vec<u32>>,
    machine: Vec<String>,
}

impl Pmus {
    /// No PMU: everything that needs one is refused.
    pub fn none() -> Pmus {
        Pmus::default()
    }

    /// PMUs that are known otherwise, for example those of a simulated machine. `core_types` are
    /// the CPUs of each core type, fastest first.
    pub fn from_list(pmus: Vec<Pmu>, core_types: &[Vec<u32>]) -> Pmus {
        let all = Pmus {
            pmus,
            ..Pmus::default()
        };
        all.with_core_types(core_types)
    }

    /// One PMU per core type that knows the generic events by name and nothing else: for the
    /// simulator, which counts instructions and cycles itself. `counters` is the number of events
    /// per set.
    pub fn generic(core_types: &[Vec<u32>], counters: usize) -> Pmus {
        let pmus = core_types.iter().enumerate().map(|(t, cpus)| Pmu {
            name: format!("core_type_{t}"),
            type_: RAW + 1 + t as u32,
            cpus: cpus.clone(),
            core: true,
            counters: Some(counters),
            ..Pmu::default()
        });
        Pmus::from_list(pmus.collect(), core_types)
    }

    /// Reads the PMUs of this machine from `sysfs` (`/sys`; a fixture in tests). A machine without
    /// any is no error.
    ///
    /// # Errors
    /// When a file is there but cannot be read or understood; the error names it.
    pub fn discover(sysfs: &Path) -> Result<Pmus, PmuError> {
        let looked_in = sysfs.join(DEVICES);
        let mut paths = Vec::new();
        match std::fs::read_dir(&looked_in) {
            // an entry that vanishes meanwhile is a PMU that is gone
            Ok(dir) => paths.extend(dir.flatten().map(|e| e.path())),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(source) => {
                return Err(PmuError::Read {
                    path: looked_in,
                    source,
                })
            }
        }
        paths.sort();
        let online = read_cpus(&sysfs.join("devices/system/cpu/online"))?;
        let mut pmus = Vec::new();
        for dir in paths {
            pmus.extend(read_pmu(&dir, online.as_deref())?);
        }
        Ok(Pmus {
            looked_in,
            pmus,
            core_types: Vec::new(),
            machine: identity::names(sysfs),
        })
    }

    /// The same with core types assigned: `core_types` are the CPUs of each, fastest first. The PMU
    /// of a core type is the core PMU that counts on all its CPUs that are in the PMU's list, and
    /// on at least one.
    #[must_use]
    pub fn with_core_types(mut self, core_types: &[Vec<u32>]) -> Pmus {
        self.core_types = core_types.to_vec();
        for pmu in &mut self.pmus {
            pmu.core_types = CoreTypeSet::EMPTY;
            for (t, cpus) in core_types.iter().enumerate() {
                if pmu.core && cpus.iter().any(|c| pmu.cpus.contains(c)) {
                    pmu.core_types = pmu.core_types.with(CoreTypeId(t as u8));
                }
            }
        }
        self
    }

    /// What the machine calls itself, the most specific name first ([`identity::names`]); empty
    /// where it does not say.
    pub fn machine(&self) -> &[String] {
        &self.machine
    }

    /// The same of a machine of these names.
    #[must_use]
    pub fn of_machine(mut self, names: &[&str]) -> Pmus {
        self.machine = names.iter().map(|n| (*n).to_owned()).collect();
        self
    }

    /// Every PMU, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Pmu> {
        self.pmus.iter()
    }

    /// How many core types were assigned.
    pub fn core_types(&self) -> impl Iterator<Item = CoreTypeId> {
        (0..self.core_types.len()).map(|t| CoreTypeId(t as u8))
    }

    /// CPUs of core type `t`.
    pub fn cpus_of(&self, t: CoreTypeId) -> &[u32] {
        self.core_types.get(t.index()).map_or(&[], Vec::as_slice)
    }

    /// The PMU that counts on core type `t`.
    pub fn of_core_type(&self, t: CoreTypeId) -> Option<&Pmu> {
        self.pmus
            .iter()
            .find(|p| p.core && p.core_types.contains(t))
    }

    /// The PMU called `name`.
    pub fn by_name(&self, name: &str) -> Option<&Pmu> {
        self.pmus.iter().find(|p| p.name == name)
    }

    /// Notes how many counters of the PMU called `name` a trial has shown to be usable.
    pub fn set_counters(&mut self, name: &str, counters: usize) {
        if let Some(p) = self.pmus.iter_mut().find(|p| p.name == name) {
            p.counters = Some(counters);
        }
    }

    /// The event `spec` on the PMU of core type `t`.
    ///
    /// # Errors
    /// [`EventError`]: no PMU there, no such event (the closest names are in the text), no such field, a value that
    /// does not fit, or a PMU named that counts elsewhere.
    pub fn resolve(&self, t: CoreTypeId, spec: &EventSpec) -> Result<Event, EventError> {
        let pmu = self.of_core_type(t).ok_or_else(|| EventError::NoPmu {
            core_type: t,
            looked_in: self.looked_in.display().to_string(),
        })?;
        if let SpecKind::Terms { pmu: named, .. } = &spec.kind {
            // perf's `cpu` is the PMU of the core where there is no PMU of that name
            let any = named == "cpu" && self.by_name("cpu").is_none();
            if *named != pmu.name && !any {
                return Err(match self.by_name(named) {
                    None => self.unknown_pmu(spec, named),
                    Some(_) => EventError::WrongPmu {
                        spec: spec.to_string(),
                        pmu: named.clone(),
                        core_type: t,
                        right: pmu.name.clone(),
                    },
                });
            }
        }
        self.resolve_on(pmu, spec)
    }

    /// The event `spec` on the PMU it names, whatever that counts: for uncore and energy events.
    ///
    /// # Errors
    /// As [`Pmus::resolve`]; [`EventError::Syntax`] when it names no PMU.
    pub fn resolve_named(&self, spec: &EventSpec) -> Result<Event, EventError> {
        let SpecKind::Terms { pmu, .. } = &spec.kind else {
            return Err(EventError::Syntax {
                spec: spec.to_string(),
                reason: "it names no PMU".into(),
            });
        };
        let found = self
            .by_name(pmu)
            .ok_or_else(|| self.unknown_pmu(spec, pmu))?;
        self.resolve_on(found, spec)
    }

    /// That `spec`, which is no software event, is one that a machine could have, for machines
    /// where no PMU counts what cores do: a generic event, a raw code, or an event of another PMU.
    ///
    /// # Errors
    /// [`EventError::UnknownName`] with the closest names; as [`Pmus::resolve_named`] for an event
    /// of a PMU.
    pub fn known(&self, spec: &EventSpec) -> Result<(), EventError> {
        match &spec.kind {
            SpecKind::Generic(_) | SpecKind::Raw(_) => Ok(()),
            SpecKind::Terms { .. } => self.resolve_named(spec).map(drop),
            SpecKind::Name(name) => Err(EventError::UnknownName {
                spec: spec.to_string(),
                event: name.clone(),
                closest: closest(name, everywhere()),
            }),
        }
    }

    fn unknown_pmu(&self, spec: &EventSpec, pmu: &str) -> EventError {
        let have: Vec<String> = self.pmus.iter().map(|p| format!("`{}`", p.name)).collect();
        EventError::UnknownPmu {
            spec: spec.to_string(),
            pmu: pmu.to_owned(),
            have: if have.is_empty() {
                "none".to_owned()
            } else {
                have.join(", ")
            },
        }
    }

    fn resolve_on(&self, pmu: &Pmu, spec: &EventSpec) -> Result<Event, EventError> {
        let mut attr = EventAttr {
            type_: pmu.type_,
            exclude_user: spec.modifiers.exclude_user,
            exclude_kernel: spec.modifiers.exclude_kernel,
            precise: spec.modifiers.precise,
            ..EventAttr::default()
        };
        match &spec.kind {
            SpecKind::Raw(config) => attr.config = *config,
            SpecKind::Generic(g) => generic(&mut attr, pmu, *g),
            SpecKind::Name(name) => self.apply_name(&mut attr, pmu, spec, name)?,
            SpecKind::Terms { terms, .. } if terms.is_empty() && !pmu.has_one_event() => {
                return Err(EventError::Syntax {
                    spec: spec.to_string(),
                    reason: "nothing between the slashes".into(),
                });
            }
            SpecKind::Terms { terms, .. } => {
                for term in terms {
                    match term {
                        Term::Field { name, value } => {
                            apply_field(&mut attr, pmu, spec, name, *value)?;
                        }
                        Term::Name(name) => self.apply_name(&mut attr, pmu, spec, name)?,
                    }
                }
            }
        }
        Ok(Event {
            name: spec.to_string(),
            pmu: pmu.name.clone(),
            attr,
        })
    }

    /// A bare name: an event of the PMU first (sysfs, then the vendor's table), then a one-bit
    /// field, then a generic event.
    fn apply_name(
        &self,
        attr: &mut EventAttr,
        pmu: &Pmu,
        spec: &EventSpec,
        name: &str,
    ) -> Result<(), EventError> {
        let found = pmu.terms_of(name);
        if let Some(text) = found {
            // `source=?`: drivers of interconnects leave a field of the code to the user
            let open = |part: &&str| part.trim().ends_with("=?");
            let (open, rest): (Vec<&str>, Vec<&str>) = text.split(',').partition(open);
            let fields = open.iter().map(|part| part.trim().trim_end_matches("=?"));
            let missing: Vec<&str> = fields.filter(|f| !spec.gives(f)).collect();
            if !missing.is_empty() {
                return Err(EventError::Open {
                    spec: spec.to_string(),
                    pmu: pmu.name.clone(),
                    event: name.to_owned(),
                    fields: format!("{}=N", missing.join("=N,")),
                });
            }
            let text = rest.join(",");
            let terms = crate::event::parse_terms(&text).map_err(|reason| EventError::Sysfs {
                file: self
                    .looked_in
                    .join(&pmu.name)
                    .join("events")
                    .join(name)
                    .display()
                    .to_string(),
                reason,
            })?;
            for term in terms {
                let (field, value) = match &term {
                    Term::Field { name, value } => (name, *value),
                    Term::Name(flag) => (flag, 1),
                };
                apply_field(attr, pmu, spec, field, value)?;
            }
            return Ok(());
        }
        if pmu.formats.contains_key(name) {
            return apply_field(attr, pmu, spec, name, 1);
        }
        if let Some(g) = Generic::by_name(name) {
            generic(attr, pmu, g);
            return Ok(());
        }
        Err(EventError::UnknownEvent {
            spec: spec.to_string(),
            pmu: pmu.name.clone(),
            event: name.to_owned(),
            closest: closest(
                name,
                pmu.names().map(|(n, _)| n.to_owned()).chain(everywhere()),
            ),
        })
    }
}

/// Names of events that are the same on every machine.
fn everywhere() -> impl Iterator<Item = String> {
    let software = SOFTWARE_NAMES.iter().map(|(n, _)| (*n).to_owned());
    software.chain(Generic::names())
}

/// A generic event on this PMU. The kernel takes the PMU's type from the upper half of the number;
/// without one it takes whichever PMU comes first, which on a hybrid may be the wrong one.
fn generic(attr: &mut EventAttr, pmu: &Pmu, g: Generic) {
    attr.type_ = g.type_;
    let upper = if pmu.type_ == RAW { 0 } else { pmu.type_ };
    attr.config |= g.config | u64::from(upper) << 32;
}

fn apply_field(
    attr: &mut EventAttr,
    pmu: &Pmu,
    spec: &EventSpec,
    field: &str,
    value: u64,
) -> Result<(), EventError> {
    match field {
        "config" => attr.config |= value,
        "config1" => attr.config1 |= value,
        "config2" => attr.config2 |= value,
        _ => {
            let format = pmu.formats.get(field).ok_or_else(|| {
                let have: Vec<&str> = pmu.formats.keys().map(String::as_str).collect();
                EventError::UnknownField {
                    spec: spec.to_string(),
                    pmu: pmu.name.clone(),
                    field: field.to_owned(),
                    have: have.join(", "),
                }
            })?;
            format
                .put(attr, value)
                .map_err(|bits| EventError::TooLarge {
                    spec: spec.to_string(),
                    pmu: pmu.name.clone(),
                    field: field.to_owned(),
                    value,
                    bits,
                })?;
        }
    }
    Ok(())
}

fn read_text(path: &Path) -> Result<Option<String>, PmuError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PmuError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// A CPU list; an empty file is an empty list (every CPU of the PMU is offline), no file is `None`.
fn read_cpus(path: &Path) -> Result<Option<Vec<u32>>, PmuError> {
    match read_text(path)? {
        None => Ok(None),
        Some(text) if text.is_empty() => Ok(Some(Vec::new())),
        Some(text) => match text.parse::<CpuList>() {
            Ok(list) => Ok(Some(list.0)),
            Err(reason) => Err(PmuError::Bad {
                path: path.to_owned(),
                reason,
            }),
        },
    }
}

/// Every regular file of `dir` with its text; none when there is no such folder.
fn read_files(dir: &Path) -> Result<Vec<(String, PathBuf, String)>, PmuError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(e) => e,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(PmuError::Read {
                path: dir.to_owned(),
                source,
            })
        }
    };
    let mut out = Vec::new();
    for e in entries.flatten() {
        let name = e.file_name().to_string_lossy().into_owned();
        if let Some(text) = read_text(&e.path())? {
            out.push((name, e.path(), text));
        }
    }
    Ok(out)
}

fn read_pmu(dir: &Path, online: Option<&[u32]>) -> Result<Option<Pmu>, PmuError> {
    let Some(name) = dir.file_name().map(|n| n.to_string_lossy().into_owned()) else {
        return Ok(None);
    };
    let path = dir.join("type");
    let Some(text) = read_text(&path)? else {
        return Ok(None);
    };
    let type_ = text.parse().map_err(|_| PmuError::Bad {
        path,
        reason: format!("`{text}` is not a type number"),
    })?;
    // `cpus` lists where a core PMU counts, `cpumask` where an uncore one is to be opened; the core
    // PMU of a machine with one kind of core, `cpu`, has neither and counts everywhere.
    let cpus = read_cpus(&dir.join("cpus"))?;
    let mask = read_cpus(&dir.join("cpumask"))?;
    let everywhere = name == "cpu" && type_ == RAW;
    let core = cpus.is_some() || everywhere;
    let cpus = match (cpus, mask) {
        (Some(cpus), _) | (None, Some(cpus)) => cpus,
        (None, None) if everywhere => online.map(<[u32]>::to_vec).unwrap_or_default(),
        (None, None) => Vec::new(),
    };
    let mut formats = BTreeMap::new();
    for (field, path, text) in read_files(&dir.join("format"))? {
        let format = text.parse().map_err(|e: FormatError| PmuError::Bad {
            path,
            reason: e.to_string(),
        })?;
        formats.insert(field, format);
    }
    let mut events = BTreeMap::new();
    for (event, _, text) in read_files(&dir.join("events"))? {
        // `.scale`, `.unit`, `.snapshot` and `.per-pkg` describe the event before the dot
        if !event.contains('.') {
            events.insert(event, text);
        }
    }
    Ok(Some(Pmu {
        name,
        type_,
        cpus,
        core,
        formats,
        events,
        ..Pmu::default()
    }))
}
