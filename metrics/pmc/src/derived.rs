//! Derived metrics of the vendors' tables: `stat -M`, and what `list` tells of them.

use super::formula::{Formula, Threshold};
use super::inventory::CounterInventory;
use amp_host::bad_input;
use amp_metrics::event::closest;
use amp_metrics::pmu::{VendorMetrics, DURATION};
use amp_pmu_events::PmuMetric;
use anyhow::Result;
use serde::Serialize;

/// What metrics are made of, and the metrics.
#[derive(Debug)]
pub struct Wanted {
    /// Their events, as behind `-e`.
    pub events: String,
    /// Each on each PMU that has it.
    pub formulas: Vec<Formula>,
}

/// A metric that cannot be worked out on a PMU, and why.
struct LeftOut {
    metric: String,
    pmu: String,
    why: String,
}

impl LeftOut {
    fn told(&self) -> String {
        format!("metric `{}` on {}: {}", self.metric, self.pmu, self.why)
    }
}

/// The metrics called so, or in groups called so, on every PMU of cores that has them. What of a
/// group cannot be worked out here is left out, which is said. `whole_machine` tells whether
/// everything on every CPU is counted.
///
/// # Errors
/// [`amp_host::BadInput`] when a name is that of no metric and no group (with the closest ones), or
/// nothing of it can be worked out here (with the reason).
pub fn find(here: &CounterInventory, names: &[String], whole_machine: bool) -> Result<Wanted> {
    here.need_pmu().map_err(|e| bad_input(format!("-M: {e}")))?;
    let all = here.vendor_metrics()?;
    let mut out = Wanted {
        events: String::new(),
        formulas: Vec::new(),
    };
    let mut left_out: Vec<LeftOut> = Vec::new();
    for name in names {
        let (mut found, mut refused) = (0, Vec::new());
        for of in &all {
            for metric in of.named(name) {
                match formula(here, of, metric, whole_machine) {
                    Ok(f) => {
                        found += 1;
                        let same = |o: &Formula| (&o.name, &o.pmu) == (&f.name, &f.pmu);
                        if !out.formulas.iter().any(same) {
                            out.formulas.push(f);
                        }
                    }
                    Err(why) => refused.push(LeftOut {
                        metric: metric.name.clone(),
                        pmu: of.pmu.clone(),
                        why,
                    }),
                }
            }
        }
        match (found, refused.first()) {
            (0, None) => return Err(unknown(&all, name)),
            (0, Some(first)) => return Err(bad_input(format!("-M {name}: {}", first.told()))),
            _ => left_out.extend(refused),
        }
    }
    for l in &left_out {
        log::warn!("-M: {}; it is left out", l.told());
    }
    let mut events: Vec<&String> = Vec::new();
    for name in out.formulas.iter().flat_map(|f| &f.names) {
        if name != DURATION && !events.contains(&name) {
            events.push(name);
        }
    }
    let events: Vec<&str> = events.into_iter().map(String::as_str).collect();
    out.events = events.join(",");
    if out.events.is_empty() {
        let reason = format!("-M {}: no event is in it", names.join(","));
        return Err(bad_input(reason));
    }
    Ok(out)
}

/// A metric of a PMU in the unit that its table gives it.
fn formula(
    here: &CounterInventory,
    of: &VendorMetrics,
    metric: &PmuMetric,
    whole_machine: bool,
) -> Result<Formula, String> {
    let expression = of.formula(&here.pmus, metric, whole_machine)?;
    let (factor, unit) = metric.unit();
    let scaled = match factor == 1.0 {
        true => expression,
        false => expression.times(factor),
    };
    // what it needs beyond what is counted may be missing here
    let threshold = of.threshold(&here.pmus, metric, whole_machine);
    let threshold = threshold.ok().flatten().zip(metric.threshold.clone());
    let mut out = Formula::of(&metric.name, &metric.expression, scaled);
    out.unit = unit.map(str::to_owned);
    out.pmu = Some(of.pmu.clone());
    out.threshold = threshold.map(|(over_events, text)| Threshold { text, over_events });
    Ok(out)
}

fn unknown(all: &[VendorMetrics], name: &str) -> anyhow::Error {
    if name.contains('=') {
        return bad_input(format!(
            "-M {name}: a formula of your own goes behind -m; -M takes names of the vendor's metrics"
        ));
    }
    if all.is_empty() {
        return bad_input(format!(
            "-M {name}: the vendors' tables have no metrics for the processors of this machine"
        ));
    }
    let metrics = || all.iter().flat_map(VendorMetrics::iter);
    let groups = metrics().flat_map(PmuMetric::groups).map(str::to_owned);
    let names = metrics().map(|m| m.name.clone()).chain(groups);
    let close = closest(name, names);
    bad_input(format!(
        "-M {name}: no PMU here has a metric or a group of metrics of that name{close}; `scx_amp pmc list` shows all"
    ))
}

/// A metric, for lists.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Groups that it is in.
    groups: Vec<String>,
    /// Its formula, as the table writes it.
    formula: String,
    /// Its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// When its value is worth a look.
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold: Option<String>,
    /// What the vendor says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Why it cannot be worked out here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_here: Option<String>,
}

impl Listed {
    /// Whether its name or that of a group of it is such a one.
    pub fn matches(&self, is: &dyn Fn(&str) -> bool) -> bool {
        is(&self.name) || self.groups.iter().any(|g| is(g))
    }
}

/// Every metric of a PMU.
pub fn listed(here: &CounterInventory, of: &VendorMetrics) -> Vec<Listed> {
    let row = |m: &PmuMetric| Listed {
        name: m.name.clone(),
        groups: m.groups().map(str::to_owned).collect(),
        formula: m.expression.clone(),
        unit: m.unit().1.map(str::to_owned),
        threshold: m.threshold.clone(),
        description: m.brief.clone(),
        not_here: of.formula(&here.pmus, m, false).err(),
    };
    of.iter().map(row).collect()
}

#[cfg(test)]
#[path = "derived_tests.rs"]
mod tests;
