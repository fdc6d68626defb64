//! Derived metrics that the vendors' tables have for core PMUs, and what their formulas ask of a
//! machine.

use super::vendor::{is_of, processor, read_table};
use super::{Pmus, TableError, Tables};
use crate::event::EventSpec;
use crate::ids::CoreTypeId;
use amp_machine::CpuList;
use amp_pmu_events::expression::Expression;
use amp_pmu_events::{json, Cpu, Leaf, MetricError, Metrics, PmuMetric, Shipped};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The derived metrics of a core PMU.
#[derive(Clone, Debug)]
pub struct VendorMetrics {
    /// The PMU's name.
    pub pmu: String,
    /// The fastest core type that it counts on.
    pub core_type: CoreTypeId,
    metrics: Metrics,
    processor: Cpu,
    root: PathBuf,
}

impl Pmus {
    /// The derived metrics of each core PMU, of the machine whose `/sys` and `/proc` are below `root`;
    /// none of a PMU for which the tables have none.
    ///
    /// # Errors
    /// [`TableError`], where a folder of tables is named.
    pub fn vendor_metrics(
        &self,
        root: &Path,
        tables: Tables<'_>,
    ) -> Result<Vec<VendorMetrics>, TableError> {
        let mut out: Vec<VendorMetrics> = Vec::new();
        for (t, pmu) in self
            .core_types()
            .filter_map(|t| Some((t, self.of_core_type(t)?)))
        {
            if out.iter().any(|m| m.pmu == pmu.name) {
                continue;
            }
            let Some(cpu) = pmu.cpus.iter().find_map(|c| processor(root, *c)) else {
                continue;
            };
            let Ok(all) = read_table(&cpu, tables, Shipped::metrics, json::read_metrics)? else {
                continue;
            };
            let own: Vec<PmuMetric> = all.into_iter().filter(|m| is_of(&m.pmu, pmu)).collect();
            if !own.is_empty() {
                out.push(VendorMetrics {
                    pmu: pmu.name.clone(),
                    core_type: t,
                    metrics: Metrics::new(own),
                    processor: cpu,
                    root: root.to_owned(),
                });
            }
        }
        Ok(out)
    }
}

impl VendorMetrics {
    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &PmuMetric> {
        self.metrics.iter()
    }

    /// Those called `name`, or in the group of that name; upper and lower case are the same.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a PmuMetric> {
        let one = self.metrics.get(name);
        let in_group = |m: &&PmuMetric| m.groups().any(|g| g.eq_ignore_ascii_case(name));
        let group = self.iter().filter(move |m| one.is_none() && in_group(m));
        one.into_iter().chain(group)
    }

    /// The formula of a metric over events as [`EventSpec`] reads them, each with the PMU in it.
    /// `whole_machine` tells whether everything on every CPU is counted.
    ///
    /// # Errors
    /// Why it cannot be worked out here: an event that the PMU does not have, something about the
    /// machine that is not known, or a formula that is none.
    pub fn formula(
        &self,
        pmus: &Pmus,
        metric: &PmuMetric,
        whole_machine: bool,
    ) -> Result<Expression<String>, String> {
        let known = |l: &Leaf| self.known(pmus, l, whole_machine);
        let formula = self.metrics.formula(metric, &known);
        self.over_specs(pmus, formula.map_err(told)?)
    }

    /// The expression that is not 0 where the value of a metric is worth a look; `None` where the
    /// table has none.
    ///
    /// # Errors
    /// As [`VendorMetrics::formula`].
    pub fn threshold(
        &self,
        pmus: &Pmus,
        metric: &PmuMetric,
        whole_machine: bool,
    ) -> Result<Option<Expression<String>>, String> {
        let known = |l: &Leaf| self.known(pmus, l, whole_machine);
        let threshold = self.metrics.threshold(metric, &known).map_err(told)?;
        threshold.map(|t| self.over_specs(pmus, t)).transpose()
    }

    fn over_specs(
        &self,
        pmus: &Pmus,
        formula: Expression<Leaf>,
    ) -> Result<Expression<String>, String> {
        formula.map_leaves(&mut |leaf| match leaf {
            Leaf::Value(name) if name == DURATION => Ok(name.clone()),
            Leaf::Value(text) => self.event(pmus, text),
            Leaf::Literal(name) => Err(format!("`#{name}` is not known here")),
            // the others are known
            Leaf::HasEvent(name) | Leaf::Sources(name) | Leaf::IsProcessor(name) => {
                Err(format!("`{name}` is not known here"))
            }
        })
    }

    /// An event of a formula, with its PMU.
    fn event(&self, pmus: &Pmus, text: &str) -> Result<String, String> {
        let own = &self.pmu;
        let spec = match text.split_once('/') {
            Some((pmu, rest)) if *pmu == **own || pmu == "cpu" => format!("{own}/{rest}"),
            Some((pmu, _))
                if pmus.by_name(pmu).is_some() || pmus.instances(pmu).next().is_some() =>
            {
                return Err(format!(
                    "`{text}` is of PMU `{pmu}`, and a metric is of one PMU"
                ));
            }
            // an event with fields of its own
            Some((name, rest)) => format!("{own}/{name},{rest}"),
            None => {
                let (name, modifiers) = text.split_once(':').unwrap_or((text, ""));
                format!("{own}/{name}/{modifiers}")
            }
        };
        let parsed: EventSpec = spec.parse().map_err(|e| format!("{e}"))?;
        match pmus.resolve(self.core_type, &parsed) {
            Ok(_) => Ok(spec),
            Err(_) => Err(format!("PMU `{own}` has no event `{text}`")),
        }
    }

    /// What of a formula is known beforehand.
    fn known(&self, pmus: &Pmus, leaf: &Leaf, whole_machine: bool) -> Option<f64> {
        let truth = |t: bool| Some(f64::from(u8::from(t)));
        match leaf {
            Leaf::Value(_) => None,
            Leaf::HasEvent(name) => truth(self.event(pmus, name).is_ok()),
            Leaf::IsProcessor(pattern) => truth(self.processor.is(pattern).unwrap_or(false)),
            // one core PMU counts an event of cores
            Leaf::Sources(name) => self.event(pmus, name).ok().map(|_| 1.0),
            Leaf::Literal(name) => match name.as_str() {
                "smt_on" => truth(self.smt()),
                "core_wide" => truth(whole_machine || !self.smt()),
                "has_pmem" => truth(self.root.join("sys/firmware/acpi/tables/NFIT").exists()),
                "num_cpus" => self.cpus("present").map(|c| c.len() as f64),
                "num_cpus_online" => self.cpus("online").map(|c| c.len() as f64),
                "num_cores" => self.kinds("core_cpus_list"),
                "num_dies" => self.kinds("die_cpus_list"),
                "num_packages" => self.kinds("package_cpus_list"),
                "slots" => self.slots(),
                _ => None,
            },
        }
    }

    fn smt(&self) -> bool {
        let file = self.root.join("sys/devices/system/cpu/smt/active");
        std::fs::read_to_string(file).is_ok_and(|t| t.trim() == "1")
    }

    /// The CPUs of a list of sysfs.
    fn cpus(&self, list: &str) -> Option<Vec<u32>> {
        let file = self.root.join("sys/devices/system/cpu").join(list);
        let text = std::fs::read_to_string(file).ok()?;
        let CpuList(cpus) = text.trim().parse().ok()?;
        Some(cpus)
    }

    /// How many different lists the online CPUs have in this file of `topology`.
    fn kinds(&self, file: &str) -> Option<f64> {
        let list = |cpu| {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            std::fs::read_to_string(self.root.join(folder).join(file)).ok()
        };
        let kinds: Option<BTreeSet<String>> = self.cpus("online")?.into_iter().map(list).collect();
        Some(kinds?.len() as f64)
    }

    /// Operations that an Arm core can issue in a cycle, as its PMU says it.
    fn slots(&self) -> Option<f64> {
        let file = self.root.join("sys").join(super::DEVICES);
        let text = std::fs::read_to_string(file.join(&self.pmu).join("caps/slots")).ok()?;
        let text = text.trim();
        let hex = text.strip_prefix("0x").unwrap_or(text);
        let slots = u64::from_str_radix(hex, 16).ok()?;
        (slots > 0).then_some(slots as f64)
    }
}

/// Seconds from the beginning of counting to its end, in formulas.
pub const DURATION: &str = "duration_time";

fn told(e: MetricError) -> String {
    e.to_string()
}

#[cfg(test)]
#[path = "derived_tests.rs"]
mod tests;
