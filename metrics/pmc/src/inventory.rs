//! What can be counted on this machine.

use amp_host::{bad_input, topology};
use amp_metrics::group::software;
use amp_metrics::perf::{self, CounterError};
use amp_metrics::pmu::{Tables, VendorMetrics, DEVICES, TABLES_VARIABLE};
use amp_metrics::providers;
use amp_metrics::trust::{BrokenEvent, EventTrust, TrustFile};
use amp_metrics::virtual_counters::{sensor_labels, Roots, VirtualCounters};
use amp_metrics::{CoreTypeId, Event, EventError, EventSpec, Pmu, Pmus, Topology};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// No PMU of this machine counts what cores do.
#[derive(Debug, Error)]
#[error("this machine has no PMU that counts what cores do: none under {devices} lists their CPUs (a virtual machine without PMU, or a kernel without a driver for it); there are {others}")]
pub struct NoPmu {
    devices: String,
    others: String,
}

/// The counters of a machine: PMUs per core type with the events that they have names for, which of
/// these are known to be broken, and what is counted by others than core PMUs.
///
/// Nothing is opened and nothing in the system is changed before it is asked for:
/// [`try_counters`](Self::try_counters) opens counters for a moment, and sources of virtual
/// counters are looked for when they are taken.
pub struct CounterInventory {
    /// With the events that the vendors' tables name.
    pub pmus: Pmus,
    /// Names of the core types, fastest first.
    pub core_types: Vec<String>,
    trust: Option<TrustFile>,
    /// `/`, but for tests.
    root: PathBuf,
    /// A folder of tables in place of the shipped ones.
    tables: Option<PathBuf>,
    roots: Roots,
    /// Once they were looked for, until somebody takes them.
    virtual_counters: Option<VirtualCounters>,
    energy_per_core_type: bool,
    thread_director: Result<(), String>,
}

impl CounterInventory {
    /// Of this machine, without a trust file.
    ///
    /// # Errors
    /// As [`CounterInventory::of`], and when the core types cannot be read.
    pub fn detect() -> Result<CounterInventory> {
        CounterInventory::of(&topology::detect(None)?.topology)
    }

    /// Of this machine, whose core types are known.
    ///
    /// # Errors
    /// When sysfs cannot be read or understood, or the folder that [`TABLES_VARIABLE`] names is not
    /// one of tables ([`amp_host::BadInput`]).
    pub fn of(topology: &Topology) -> Result<CounterInventory> {
        let tables = std::env::var_os(TABLES_VARIABLE);
        CounterInventory::under(Path::new("/"), topology, tables.as_ref().map(Path::new))
    }

    /// Of the machine whose `/sys` and `/proc` are under `root`, with the vendors' tables in the
    /// folder `tables` in place of the shipped ones, if it is named.
    ///
    /// # Errors
    /// As [`CounterInventory::of`].
    pub fn under(
        root: &Path,
        topology: &Topology,
        tables: Option<&Path>,
    ) -> Result<CounterInventory> {
        let sysfs = root.join("sys");
        let types = topology.core_types();
        let cpus: Vec<Vec<u32>> = types.iter().map(|t| t.cpus.clone()).collect();
        let pmus = Pmus::discover(&sysfs)
            .context("cannot list the PMUs")?
            .with_core_types(&cpus);
        let pmus = pmus
            .with_vendor_events(root, Tables::named(tables))
            .map_err(|e| bad_input(format!("{TABLES_VARIABLE}: {e}")))?;
        Ok(CounterInventory {
            pmus,
            core_types: types.iter().map(|t| t.name.clone()).collect(),
            trust: None,
            root: root.to_owned(),
            tables: tables.map(Path::to_owned),
            roots: Roots {
                resctrl: sysfs.join("fs/resctrl"),
                proc: root.join("proc"),
                sysfs,
            },
            virtual_counters: None,
            energy_per_core_type: false,
            thread_director: Err(String::new()),
        })
    }

    /// These PMUs, of core types with these names, and these virtual counters.
    pub fn from_parts(
        pmus: Pmus,
        core_types: &[&str],
        virtual_counters: VirtualCounters,
    ) -> CounterInventory {
        CounterInventory {
            pmus,
            core_types: core_types.iter().map(|n| (*n).to_owned()).collect(),
            trust: None,
            root: PathBuf::new(),
            tables: None,
            roots: Roots::default(),
            energy_per_core_type: virtual_counters.energy_per_core_type(),
            thread_director: virtual_counters.thread_director(),
            virtual_counters: Some(virtual_counters),
        }
    }

    /// With what is known of broken events.
    #[must_use]
    pub fn with_trust(self, trust: Option<TrustFile>) -> CounterInventory {
        CounterInventory { trust, ..self }
    }

    /// What is known of broken events.
    pub fn trust(&self) -> Option<&TrustFile> {
        self.trust.as_ref()
    }

    /// What the trust file says of an event of core type `t`, whatever the event is called there.
    pub fn trusted(&self, t: CoreTypeId, event: &Event) -> Option<&EventTrust> {
        self.trust.as_ref()?.of(&self.pmus, t, event)
    }

    /// Why an event of core type `t` is not to be used, if the trust file calls it broken.
    pub fn broken(&self, t: CoreTypeId, event: &Event) -> Option<BrokenEvent> {
        self.trust.as_ref()?.broken(&self.pmus, t, event)
    }

    /// The derived metrics that the vendors' tables have for each PMU of cores.
    ///
    /// # Errors
    /// When the folder that [`TABLES_VARIABLE`] names is not one of tables ([`amp_host::BadInput`]).
    pub fn vendor_metrics(&self) -> Result<Vec<VendorMetrics>> {
        let tables = Tables::named(self.tables.as_deref());
        let found = self.pmus.vendor_metrics(&self.root, tables);
        found.map_err(|e| bad_input(format!("{TABLES_VARIABLE}: {e}")))
    }

    /// Whether there is a PMU for at least one core type: without one nothing will ever be counted.
    pub fn has_pmu(&self) -> bool {
        self.core_pmus().next().is_some()
    }

    /// That there is a PMU for at least one core type.
    ///
    /// # Errors
    /// [`NoPmu`].
    pub fn need_pmu(&self) -> Result<()> {
        if self.has_pmu() {
            return Ok(());
        }
        let others: Vec<String> = self.pmus.iter().map(|p| format!("`{}`", p.name)).collect();
        Err(NoPmu {
            devices: format!("/sys/{DEVICES}"),
            others: if others.is_empty() {
                "none at all".into()
            } else {
                format!("only {}", others.join(", "))
            },
        }
        .into())
    }

    /// That `spec` names an event of some machine, for machines without a PMU for cores; with one,
    /// the PMU knows.
    ///
    /// # Errors
    /// [`EventError`], with the closest names.
    pub fn known(&self, spec: &EventSpec) -> Result<(), EventError> {
        match self.has_pmu() || software(spec).is_some() {
            true => Ok(()),
            false => self.pmus.known(spec),
        }
    }

    /// Every core type that has a PMU, with its PMU.
    pub fn core_pmus(&self) -> impl Iterator<Item = (CoreTypeId, &Pmu)> {
        let types = self.pmus.core_types();
        types.filter_map(|t| Some((t, self.pmus.of_core_type(t)?)))
    }

    /// Core types that a PMU counts on, fastest first.
    pub fn types_of<'a>(&'a self, pmu: &'a Pmu) -> impl Iterator<Item = CoreTypeId> + 'a {
        let all = self.pmus.core_types();
        all.filter(|t| pmu.core_types.contains(*t))
    }

    /// Every PMU of cores once, under the fastest core type that it counts on, with all of its online CPUs: in the counts of a
    /// thread the types of one PMU cannot be told apart (Intel's low-power cores, which have that of the other small ones).
    pub fn each_core_pmu(&self) -> impl Iterator<Item = (CoreTypeId, Vec<u32>)> + '_ {
        self.core_pmus().filter_map(|(t, pmu)| {
            let first = self.types_of(pmu).next() == Some(t);
            first.then(|| (t, self.types_of(pmu).flat_map(|o| self.cpus(o)).collect()))
        })
    }

    /// What counts under each core type are of, by name: the type, or several (`small+low`) where one PMU counts on them; `None`
    /// of a type that is counted under a faster one.
    pub fn counted_names(&self) -> Vec<Option<String>> {
        let name = |t: CoreTypeId| {
            let Some(pmu) = self.pmus.of_core_type(t) else {
                return Some(self.name(t).to_owned());
            };
            let names: Vec<&str> = self.types_of(pmu).map(|o| self.name(o)).collect();
            let first = self.types_of(pmu).next() == Some(t);
            first.then(|| names.join("+"))
        };
        self.pmus.core_types().map(name).collect()
    }

    /// Name of a core type.
    pub fn name(&self, t: CoreTypeId) -> &str {
        self.core_types.get(t.index()).map_or("?", String::as_str)
    }

    /// Every CPU, ascending.
    pub fn all_cpus(&self) -> Vec<u32> {
        let types = self.pmus.core_types();
        let mut cpus: Vec<u32> = types.flat_map(|t| self.pmus.cpus_of(t).to_vec()).collect();
        cpus.sort_unstable();
        cpus
    }

    /// CPUs of core type `t` on which its PMU counts: online ones.
    pub fn cpus(&self, t: CoreTypeId) -> Vec<u32> {
        let pmu = self.pmus.of_core_type(t);
        let counted = |c: &&u32| pmu.is_some_and(|p| p.cpus.contains(c));
        self.pmus
            .cpus_of(t)
            .iter()
            .filter(counted)
            .copied()
            .collect()
    }

    /// How many events `cpu`, of core type `t`, counts at once: found out by trying.
    ///
    /// # Errors
    /// When nothing can be counted there, saying why.
    pub fn usable_counters(&self, t: CoreTypeId, cpu: u32) -> Result<usize, CounterError> {
        perf::usable_counters(&self.pmus, t, cpu)
    }

    /// Finds out by trying how many events each PMU counts at once. What a trial has shown is kept;
    /// one that failed is made again the next time.
    ///
    /// # Errors
    /// When a PMU does not count, saying why.
    pub fn try_counters(&mut self) -> Result<(), CounterError> {
        perf::try_all(&mut self.pmus)
    }

    /// Sources of energy, opened anew.
    pub fn energy_sources(&self) -> VirtualCounters {
        let names = self.core_types.iter().map(String::as_str);
        let labels = sensor_labels(names, &self.pmus);
        VirtualCounters::detect_energy(&self.roots, &self.pmus, &labels)
    }

    /// Sources of cache occupancy and memory traffic, opened anew. Groups that another of our
    /// programs has made in resctrl are removed.
    pub fn cache_sources(&self) -> VirtualCounters {
        VirtualCounters::detect_cache(&self.roots)
    }

    /// Sources of energy, cache occupancy, memory traffic and present speeds, to sample them. They can be
    /// taken once.
    pub fn virtual_counters(&mut self) -> VirtualCounters {
        self.find_virtual_counters();
        let none = VirtualCounters::of(Vec::new());
        self.virtual_counters
            .replace(none)
            .unwrap_or_else(|| VirtualCounters::of(Vec::new()))
    }

    fn find_virtual_counters(&mut self) {
        if self.virtual_counters.is_none() {
            let mut all = self.energy_sources();
            all.extend(self.cache_sources());
            let types = self.pmus.core_types();
            let cpus: Vec<Vec<u32>> = types.map(|t| self.pmus.cpus_of(t).to_vec()).collect();
            all.extend(VirtualCounters::detect_speeds(&self.roots, &cpus));
            self.thread_director = all.thread_director();
            self.energy_per_core_type = all.energy_per_core_type();
            self.virtual_counters = Some(all);
        }
    }

    /// All of it for a provider, after a trial.
    pub fn context(&mut self) -> providers::Context<'_> {
        self.find_virtual_counters();
        let counters = self.try_counters().map_err(|e| e.to_string());
        providers::Context {
            pmus: &self.pmus,
            counters,
            energy_per_core_type: self.energy_per_core_type,
            thread_director: self.thread_director.clone(),
            models: None,
            trust: self.trust.as_ref(),
        }
    }
}
