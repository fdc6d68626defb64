//! Policies side by side over a folder of mixes, beside what was published of them.
//!
//! A comparison is a file, for instance `tools/workloads/comparisons/quickia.toml`: which machine,
//! which mixes, which policies with which metrics, and the published figures as claims that either
//! hold here or do not.

mod claim;
mod table;

pub use claim::{Claim, Figure, Scope};

use crate::bench::{bench, BenchOptions, Step};
use crate::error::SimError;
use crate::machine::MachineOptions;
use crate::provider::ProviderSpec;
use amp_eval::evaluation::PolicyResult;
use amp_eval::workload::Workload;
use amp_eval::Runs;
use amp_machine::{BadFile, Locator, MachineFile};
use amp_sched::policy::{Settings, SettingsError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// A comparison as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Title.
    pub name: String,
    /// Where the published figures are from.
    pub source: String,
    /// A shipped machine by name, or a machine file.
    pub machine: String,
    /// The folder of the mixes, relative to the file.
    pub mixes: PathBuf,
    /// What is compared.
    #[serde(rename = "column")]
    pub columns: Vec<Column>,
    /// What was published.
    #[serde(default, rename = "published")]
    pub claims: Vec<Claim>,
}

/// A policy and what it goes by.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Label, unique in the file.
    pub label: String,
    /// The policy, or the baseline.
    pub policy: String,
    /// Where its metrics come from, as [`ProviderSpec::named`] has it; the truth when absent. A
    /// provider file is looked up from this one's folder.
    #[serde(default = "truth")]
    pub provider: String,
    /// Relative noise of the truth; 0 when absent.
    #[serde(default)]
    pub sigma: f64,
    /// Age of the metrics of the truth, in intervals; 0 when absent.
    #[serde(default)]
    pub latency: u32,
    /// Parameters to turn.
    #[serde(default)]
    pub knobs: BTreeMap<String, String>,
}

fn truth() -> String {
    ProviderSpec::TRUE.name()
}

impl Column {
    fn provider(&self) -> Result<ProviderSpec, SimError> {
        Ok(match ProviderSpec::named(&self.provider)? {
            ProviderSpec::Exact { .. } => ProviderSpec::Exact {
                sigma: self.sigma,
                latency: self.latency,
            },
            other => other,
        })
    }

    fn settings(&self) -> Result<Settings, SettingsError> {
        let knobs = self.knobs.iter().map(|(k, v)| format!("{k}={v}"));
        Settings::new(&knobs.collect::<Vec<_>>(), &[&self.policy])
    }

    fn options(&self, runs: u32, seed: u64) -> Result<BenchOptions, SimError> {
        Ok(BenchOptions {
            provider: self.provider()?,
            provider_of: Vec::new(),
            settings: self.settings()?,
            runs: Runs::Exactly(runs),
            seed,
            // the kernels of the papers do not know it
            machine: MachineOptions {
                lending: false,
                ..MachineOptions::default()
            },
            ..BenchOptions::default()
        })
    }
}

/// Outcome of a comparison.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Title and source.
    pub title: String,
    /// Labels of the columns.
    pub labels: Vec<String>,
    /// Per mix: its name, and a result per column.
    pub mixes: Vec<(String, Vec<PolicyResult>)>,
    /// The claims, and what they come to here.
    pub claims: Vec<(Claim, claim::Verdict)>,
}

impl Comparison {
    /// Reads a comparison and the mixes of its folder, by file name.
    ///
    /// # Errors
    /// When a file cannot be read or is not right; the text names it.
    pub fn load(path: &Path) -> Result<Comparison, SimError> {
        let bad = |message: String| BadFile::whole(path, message);
        let text = BadFile::read(path)?;
        let mut c: Comparison =
            toml::from_str(&text).map_err(|e| Locator::new(path, &text).toml(&e))?;
        if let Some(folder) = path.parent() {
            c.mixes = folder.join(&c.mixes);
            for column in &mut c.columns {
                if column.provider.ends_with(".toml") {
                    column.provider = folder.join(&column.provider).display().to_string();
                }
            }
        }
        for column in &c.columns {
            let provider = column.provider();
            provider.map_err(|e| bad(format!("column `{}`: {e}", column.label)))?;
        }
        for (i, a) in c.columns.iter().enumerate() {
            if c.columns[..i].iter().any(|b| b.label == a.label) {
                return Err(bad(format!("there are two columns `{}`", a.label)).into());
            }
            let settings = a.settings();
            settings.map_err(|e| bad(format!("column `{}`: {e}", a.label)))?;
        }
        let known = |l: &str| c.columns.iter().any(|a| a.label == l);
        let named = c.claims.iter().flat_map(Claim::labels);
        if let Some(l) = named.into_iter().find(|l| !known(l)) {
            return Err(bad(format!(
                "a published figure names column `{l}`, which there is not"
            ))
            .into());
        }
        Ok(c)
    }

    /// The mixes, in the order of their file names.
    ///
    /// # Errors
    /// When the folder or a file in it cannot be read, or there is none.
    pub fn workloads(&self) -> Result<Vec<Workload>, SimError> {
        let bad = |message: String| BadFile::whole(&self.mixes, message);
        let folder = std::fs::read_dir(&self.mixes).map_err(|e| bad(e.to_string()))?;
        let mut files: Vec<PathBuf> = folder
            .filter_map(|e| Some(e.ok()?.path()))
            .filter(|p| p.extension().is_some_and(|e| e == "toml"))
            .collect();
        files.sort();
        if files.is_empty() {
            return Err(bad("there is no workload file in it".into()).into());
        }
        let load = |f: &PathBuf| Ok(Workload::load(f)?);
        files.iter().map(load).collect()
    }

    /// Runs every mix under every column, so often each. `watch` gets the mix and the step before
    /// it is taken.
    ///
    /// # Errors
    /// As [`bench()`], and when a file is not right.
    pub fn run(
        &self,
        runs: u32,
        seed: u64,
        watch: &mut dyn FnMut(&str, Step<'_>) -> ControlFlow<()>,
    ) -> Result<Outcome, SimError> {
        let machine = MachineFile::load(&self.machine)
            .map_err(|e| BadFile::whole(Path::new(&self.machine), e.to_string()))?;
        let mut mixes = Vec::new();
        for workload in self.workloads()? {
            let mut results = Vec::with_capacity(self.columns.len());
            for column in &self.columns {
                let options = column.options(runs, seed)?;
                let watch = &mut |step: Step<'_>| watch(&workload.name, step);
                let report = bench(&workload, &machine, &[&column.policy], &options, watch)?;
                results.extend(report.results);
            }
            mixes.push((workload.name, results));
        }
        let labels: Vec<String> = self.columns.iter().map(|c| c.label.clone()).collect();
        let judged = |c: &Claim| (c.clone(), c.judge(&labels, &mixes));
        Ok(Outcome {
            title: format!("{} ({})", self.name, self.source),
            claims: self.claims.iter().map(judged).collect(),
            labels,
            mixes,
        })
    }
}

impl Outcome {
    /// What was published and does not hold here.
    pub fn unmet(&self) -> Vec<String> {
        let unmet = self.claims.iter().filter(|(_, v)| !v.holds);
        unmet
            .map(|(c, v)| format!("{c}; here: {}", v.here))
            .collect()
    }
}
