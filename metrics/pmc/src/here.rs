//! What can be counted on this machine.

use amp_host::bad_input;
use amp_host::topology;
use amp_metrics::pmu::{Processor, Tables, DEVICES, TABLES_VARIABLE};
use amp_metrics::{CoreTypeId, Pmu, Pmus};
use anyhow::{Context, Result};
use std::path::Path;
use thiserror::Error;

/// Nothing here counts what cores do.
#[derive(Debug, Error)]
#[error("this machine has no PMU that counts what cores do: none under {devices} lists their CPUs (a virtual machine without PMU, or a kernel without a driver for it); there are {others}")]
pub struct NoPmu {
    devices: String,
    others: String,
}

/// The machine's PMUs and core types.
pub struct Here {
    /// With the tables' events, where there are tables.
    pub pmus: Pmus,
    /// Names of the core types, fastest first.
    pub core_types: Vec<String>,
    /// The vendor's tables.
    pub tables: Tables,
}

impl Here {
    /// Looks at this machine.
    ///
    /// # Errors
    /// When sysfs cannot be read or understood, or the folder that [`TABLES_VARIABLE`] names is not one of tables
    /// ([`amp_host::BadInput`]).
    pub fn detect() -> Result<Here> {
        Here::of(&topology::detect(None)?)
    }

    /// As [`Here::detect`], with core types that are known.
    ///
    /// # Errors
    /// As [`Here::detect`].
    pub fn of(found: &topology::Detected) -> Result<Here> {
        let types = found.topology.core_types();
        let cpus: Vec<Vec<u32>> = types.iter().map(|t| t.cpus.clone()).collect();
        let pmus = Pmus::discover(Path::new("/sys"))
            .context("cannot list the PMUs")?
            .with_core_types(&cpus);
        let tables = match std::env::var_os(TABLES_VARIABLE) {
            None => Tables::default(),
            Some(dir) => {
                let first: Vec<u32> = cpus.iter().filter_map(|c| c.first().copied()).collect();
                let processor = Processor::detect(Path::new("/proc"), Path::new("/sys"), &first)
                    .with_context(|| {
                        format!("{TABLES_VARIABLE}: cannot tell which processor this is")
                    })?;
                Tables::load(Path::new(&dir), &processor, &pmus)
                    .map_err(|e| bad_input(format!("{TABLES_VARIABLE}: {e}")))?
            }
        };
        Ok(Here {
            pmus: pmus.with_tables(&tables),
            core_types: types.iter().map(|t| t.name.clone()).collect(),
            tables,
        })
    }

    /// That there is a PMU for at least one core type.
    ///
    /// # Errors
    /// [`NoPmu`].
    pub fn need_pmu(&self) -> Result<()> {
        if self.core_pmus().next().is_some() {
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

    /// Every core type that has a PMU, with its PMU.
    pub fn core_pmus(&self) -> impl Iterator<Item = (CoreTypeId, &Pmu)> {
        let types = self.pmus.core_types();
        types.filter_map(|t| Some((t, self.pmus.of_core_type(t)?)))
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
}
