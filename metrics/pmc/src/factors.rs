//! Speedup and efficiency factors beside the events: `-V sf,ef`.
//!
//! A platform model makes them of counts of its own event sets, which take turns with those that are
//! asked for.

mod estimates;

pub use estimates::{Estimates, FactorCount};

use super::inventory::CounterInventory;
use super::sets::Set;
use amp_host::bad_input;
use amp_metrics::group::{Group, Whom};
use amp_metrics::providers::{platform_model, Context, PlatformModel, ProviderError};
use amp_metrics::{CoreTypeId, EventSets, MetricId};
use anyhow::{anyhow, bail, Context as _, Result};
use std::path::Path;

/// A factor that a model estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Factor {
    /// Instructions per second on a core type over those on the slowest one.
    Speedup,
    /// Energy-delay product on the slowest core type over that on another one.
    Efficiency,
}

impl Factor {
    /// Both.
    pub const ALL: [Factor; 2] = [Factor::Speedup, Factor::Efficiency];

    /// Its name behind `-V`.
    pub fn name(self) -> &'static str {
        match self {
            Factor::Speedup => "sf",
            Factor::Efficiency => "ef",
        }
    }

    fn long_name(self) -> &'static str {
        match self {
            Factor::Speedup => "speedup factors",
            Factor::Efficiency => "efficiency factors",
        }
    }

    /// The one that is called `name`.
    pub fn named(name: &str) -> Option<Factor> {
        Factor::ALL.into_iter().find(|f| f.name() == name)
    }

    /// The metric of core type `t`.
    fn of(self, t: CoreTypeId) -> MetricId {
        match self {
            Factor::Speedup => MetricId::SpeedupFactor(t),
            Factor::Efficiency => MetricId::EfficiencyFactor(t),
        }
    }
}

/// The factors that are asked for, and the model that estimates them, checked for this machine.
pub struct Factors {
    wanted: Vec<Factor>,
    model: PlatformModel,
    sets: Vec<Set>,
    /// Number of the model's sets, by core type.
    by_type: Vec<usize>,
    /// Names of the core types, fastest first.
    core_types: Vec<String>,
}

impl Factors {
    /// The factors `wanted`, by the model that fits this machine or by that of `file`.
    ///
    /// # Errors
    /// When the machine has one core type, no model fits, or the model's events cannot be counted
    /// at once. [`amp_host::BadInput`] for a file that is not right, and for a factor that the model
    /// does not have.
    pub fn open(
        inventory: &CounterInventory,
        mut wanted: Vec<Factor>,
        file: Option<&Path>,
    ) -> Result<Factors> {
        wanted.sort_unstable();
        wanted.dedup();
        let names: Vec<&str> = wanted.iter().map(|f| f.name()).collect();
        let asked = format!("-V {}", names.join(","));
        if let [only] = &inventory.core_types[..] {
            bail!("{asked}: this machine has one core type (`{only}`), and a factor is of one core type over another");
        }
        let context = Context {
            pmus: &inventory.pmus,
            counters: inventory.need_pmu().map_err(|e| e.to_string()),
            energy_per_core_type: false,
            thread_director: Err("it is not asked for".to_owned()),
            models: None,
            trust: inventory.trust(),
        };
        let (model, sets) = platform_model(file, &context).map_err(|e| match e {
            ProviderError::File(e) => bad_input(format!("--model: {e}")),
            e => anyhow!("{asked}: {e}"),
        })?;
        let factors = Factors::of(inventory, wanted, model, &sets);
        for f in &factors.wanted {
            if !factors.has(*f) {
                return Err(bad_input(format!(
                    "-V {}: model `{}` has no {}",
                    f.name(),
                    factors.model.name,
                    f.long_name()
                )));
            }
        }
        factors.try_sets().with_context(|| asked)?;
        Ok(factors)
    }

    fn of(
        inventory: &CounterInventory,
        wanted: Vec<Factor>,
        model: PlatformModel,
        sets: &EventSets,
    ) -> Factors {
        let types = || inventory.pmus.core_types();
        let by_type: Vec<usize> = types().map(|t| sets.of(t).len()).collect();
        let most = by_type.iter().copied().max().unwrap_or(0);
        let set = |i: usize| {
            // one with fewer sets counts some of them again: what no set counts on a core type looks
            // like time that nobody spent there
            let of = |t| {
                let of = sets.of(t);
                Some((t, of.get(i % of.len().max(1))?))
            };
            let events: Vec<_> = types().filter_map(of).collect();
            let mut names: Vec<&str> = Vec::new();
            for e in events.iter().flat_map(|(_, set)| &set.events) {
                if !names.contains(&e.name.as_str()) {
                    names.push(&e.name);
                }
            }
            let text = format!("for model `{}`: {}", model.name, names.join(","));
            Set::hidden(inventory, text, events)
        };
        Factors {
            wanted,
            sets: (0..most).map(set).collect(),
            by_type,
            core_types: inventory
                .pmus
                .core_types()
                .zip(inventory.counted_names())
                .map(|(t, counted)| counted.unwrap_or_else(|| inventory.name(t).to_owned()))
                .collect(),
            model,
        }
    }

    /// Whether the model has a factor of any core type, from threads on any.
    fn has(&self, factor: Factor) -> bool {
        let types = || (0..self.core_types.len()).map(|t| CoreTypeId(t as u8));
        types().any(|on| types().any(|of| self.model.predicts(on, factor.of(of))))
    }

    /// That this user can count the model's sets here and now.
    fn try_sets(&self) -> Result<()> {
        for set in &self.sets {
            for unit in &set.units {
                Group::open(&unit.events, Whom::Caller, false)?;
            }
            if set.clone().fitting().len() > 1 {
                bail!(
                    "the events of a set cannot be counted at once here and now ({}); others may hold counters (the NMI watchdog: `sysctl kernel.nmi_watchdog=0`; a scheduler; a profiler)",
                    set.text
                );
            }
        }
        Ok(())
    }

    /// The sets that are to be counted, by turns with others.
    pub fn sets(&self) -> &[Set] {
        &self.sets
    }

    /// Names that formulas may use.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.wanted.iter().map(|f| f.name().to_owned())
    }

    /// The estimates of one run, in which the model's sets come after `others` other ones.
    pub fn begin(&self, others: usize) -> Estimates {
        Estimates::new(self, others)
    }
}
