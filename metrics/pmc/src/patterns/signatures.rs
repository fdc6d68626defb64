//! Which events tell of which pattern on which PMU, and from when on: data
//! (`metrics/pmc/patterns.toml`).

use super::super::inventory::CounterInventory;
use amp_host::bad_input;
use amp_metrics::{CoreTypeId, Event, EventSpec};
use anyhow::Result;
use serde::Deserialize;

const SHIPPED: &str = include_str!("../../patterns.toml");

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signatures {
    #[allow(dead_code)] // for readers of the file
    about: String,
    /// Bandwidth saturation.
    pub bandwidth: Bandwidth,
    /// Load imbalance.
    pub imbalance: Imbalance,
    /// False sharing.
    pub sharing: Sharing,
    pmu: Vec<OnPmu>,
}

/// Thresholds of bandwidth saturation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// Part of the attainable rate.
    pub saturated: f64,
    /// Part of the time for which it takes that much.
    pub for_part: f64,
    /// How far the verdict can be trusted.
    pub reliability: String,
}

/// Thresholds of load imbalance.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Imbalance {
    /// Most over mean, less 1.
    pub at_least: f64,
    /// Threads below this part of the busiest one's CPU time do not count.
    pub negligible: f64,
    /// How far the verdict can be trusted.
    pub reliability: String,
}

/// Thresholds of false sharing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// Shared lines per 1000 instructions.
    pub per_1000: f64,
    /// How far the verdict can be trusted.
    pub reliability: String,
}

/// The events of PMUs whose name begins with `name`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnPmu {
    name: String,
    tested: String,
    instructions: String,
    cycles: String,
    #[serde(default)]
    lines: Vec<String>,
    useful: Option<String>,
    refills: Option<String>,
    shared: Option<String>,
}

/// Role of an event in a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    Instructions,
    /// Cycles.
    Cycles,
    /// Lines to or from memory.
    Lines,
    /// Work that waiting threads do not do.
    Useful,
    /// Lines into L1D.
    Refills,
    /// Lines that other cores had or took.
    Shared,
}

/// What is counted on a core type.
#[derive(Clone, Debug)]
pub struct SignatureEvents {
    /// The core type.
    pub core_type: CoreTypeId,
    /// Its name.
    pub name: String,
    /// Its PMU.
    pub pmu: String,
    /// Whether that was ever tried.
    pub tested: String,
    /// The events, each with its role.
    pub events: Vec<(Role, Event)>,
}

impl SignatureEvents {
    /// Whether there is an event for `role`.
    pub fn has(&self, role: Role) -> bool {
        self.events.iter().any(|(r, _)| *r == role)
    }
}

impl Signatures {
    /// Those that come with the command.
    ///
    /// # Errors
    /// When the file does not fit this program.
    pub fn shipped() -> Result<Signatures> {
        Ok(toml::from_str(SHIPPED)?)
    }

    /// What to count on each core type of this machine.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when a PMU is none that the file knows, or does not have its events;
    /// [`super::super::inventory::NoPmu`].
    pub fn plans(&self, inventory: &CounterInventory) -> Result<Vec<SignatureEvents>> {
        inventory.need_pmu()?;
        let mut plans = Vec::new();
        for (t, pmu) in inventory.core_pmus() {
            let Some(on) = self.pmu.iter().find(|p| pmu.name.starts_with(&p.name)) else {
                let known: Vec<&str> = self.pmu.iter().map(|p| p.name.as_str()).collect();
                return Err(bad_input(format!(
                    "PMU `{}`: no events are known that show patterns; there are some for {} (metrics/pmc/patterns.toml)",
                    pmu.name,
                    known.join(", ")
                )));
            };
            let event = |text: &String| -> Result<Event> {
                let spec: EventSpec = text.parse().map_err(bad_input)?;
                inventory.pmus.resolve(t, &spec).map_err(bad_input)
            };
            let mut events = vec![
                (Role::Instructions, event(&on.instructions)?),
                (Role::Cycles, event(&on.cycles)?),
            ];
            for text in &on.lines {
                events.push((Role::Lines, event(text)?));
            }
            for (role, text) in [
                (Role::Useful, &on.useful),
                (Role::Refills, &on.refills),
                (Role::Shared, &on.shared),
            ] {
                if let Some(text) = text {
                    events.push((role, event(text)?));
                }
            }
            plans.push(SignatureEvents {
                core_type: t,
                name: inventory.name(t).to_owned(),
                pmu: pmu.name.clone(),
                tested: on.tested.clone(),
                events,
            });
        }
        Ok(plans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ships_can_be_read() {
        let s = Signatures::shipped().unwrap();
        for p in &s.pmu {
            let all = [&p.instructions, &p.cycles].into_iter();
            let all = all.chain(&p.lines).chain(&p.useful).chain(&p.refills);
            for text in all.chain(&p.shared) {
                let spec: EventSpec = text.parse().unwrap();
                assert!(spec.modifiers.exclude_kernel, "{}: {text}", p.name);
            }
        }
        // the first that fits is taken: no name may hide behind a shorter one
        for (i, p) in s.pmu.iter().enumerate() {
            let before = s.pmu[..i].iter().find(|b| p.name.starts_with(&b.name));
            assert!(before.is_none(), "{} {before:?}", p.name);
        }
        assert!(s.bandwidth.saturated < 1.0 && s.imbalance.at_least > 0.0);
    }
}
