//! Policies: which thread goes to which core type.
//!
//! One file per policy, holding its formula with its source. A policy is pure: no clock, no I/O, no randomness but
//! a generator made from the seed it was given. Shared parts, from what is known of a thread to where it goes:
//!
//! - [`threads`], [`apps`]: what is remembered from decision to decision, per thread and per application; [`smooth`]: running
//!   means that start afresh at a change of phase; [`speedups`]: application-wide speedups per core type.
//! - Accounts of who has had what: [`progress`] (virtual time: who is ahead), [`ledger`] (time on fast cores),
//!   [`steering`] (towards given shares, which [`level`] and [`room`] work out), [`turns`] (fair sharing for threads
//!   without estimates, for every policy that needs them).
//! - [`seats`] turns "who deserves a fast core most" into a placement for any number of core types: affinity, load
//!   balance, hysteresis and work conservation are its business and no policy's.
//! - [`knobs`] are the parameters that a user may turn while the scheduler runs.
//!
//! The kernel's own scheduler, `eevdf`, is the baseline of every evaluation and not a policy: it means that no
//! scheduler is loaded.

pub mod acfs;
pub mod adwrr;
pub mod apps;
pub mod ef;
pub mod eqp;
pub mod hsp;
pub mod knobs;
pub mod ledger;
pub mod level;
pub mod pareto;
pub mod prim;
pub mod progress;
pub mod propsp;
pub mod room;
pub mod rr;
pub mod seats;
pub mod smooth;
pub mod speedups;
pub mod steering;
pub mod threads;
pub mod turns;

pub use knobs::{Knob, KnobError, KnobKind, Knobs};

use crate::machine::{Placement, Topology};
use crate::view::View;
use amp_metrics::MAX_CORE_TYPES;
use thiserror::Error;

/// Decides on placements.
pub trait Policy: Send {
    /// The name it is registered under.
    fn name(&self) -> &'static str;

    /// Decides on every thread of `view`. `out` arrives empty. Called once per interval, so that a policy may add up
    /// what the view says of the interval.
    fn place(&mut self, view: &View<'_>, out: &mut Placement);

    /// Its parameters.
    fn knobs(&self) -> &Knobs;

    /// Its parameters, to turn them.
    fn knobs_mut(&mut self) -> &mut Knobs;

    /// Turns the parameter `key`; takes effect with the next decision.
    ///
    /// # Errors
    /// When there is no such parameter or the value is not in its range; the error says what is.
    fn set(&mut self, key: &str, value: &str) -> Result<(), KnobError> {
        self.knobs_mut().set(key, value)
    }
}

/// A policy that can be had by name.
struct Entry {
    name: &'static str,
    help: &'static str,
    /// Most core types it can tell apart.
    max_core_types: usize,
    make: fn(seed: u64) -> Box<dyn Policy>,
}

const ENTRIES: &[Entry] = &[
    Entry {
        name: "hsp",
        help: hsp::HELP,
        max_core_types: MAX_CORE_TYPES,
        make: |_| Box::new(hsp::Hsp::new()),
    },
    Entry {
        name: "rr",
        help: rr::HELP,
        max_core_types: MAX_CORE_TYPES,
        make: |_| Box::new(rr::RoundRobin::new()),
    },
    Entry {
        name: "adwrr",
        help: adwrr::HELP,
        max_core_types: MAX_CORE_TYPES,
        make: |_| Box::new(adwrr::Adwrr::new()),
    },
    Entry {
        name: "eqp",
        help: eqp::HELP,
        max_core_types: MAX_CORE_TYPES,
        make: |_| Box::new(eqp::EqualProgress::new()),
    },
    Entry {
        name: "acfs",
        help: acfs::HELP,
        max_core_types: MAX_CORE_TYPES,
        make: |_| Box::new(acfs::Acfs::new()),
    },
    Entry {
        name: "ef",
        help: ef::HELP,
        max_core_types: 2,
        make: |_| Box::new(ef::EfDriven::new()),
    },
    Entry {
        name: "prim",
        help: prim::HELP,
        max_core_types: MAX_CORE_TYPES,
        make: |seed| Box::new(prim::Prim::new(seed)),
    },
    Entry {
        name: "propsp",
        help: propsp::HELP,
        max_core_types: 2,
        make: |_| Box::new(propsp::PropSp::new()),
    },
    Entry {
        name: "pareto",
        help: pareto::HELP,
        max_core_types: 2,
        make: |_| Box::new(pareto::Pareto::new()),
    },
];

/// Names of all policies, `eevdf` (no scheduler) not among them.
pub const NAMES: &[&str] = &[
    "hsp", "rr", "adwrr", "eqp", "acfs", "ef", "prim", "propsp", "pareto",
];

/// Name of the baseline: the kernel's own scheduler.
pub const BASELINE: &str = "eevdf";

/// There is no such policy.
#[derive(Debug, Error, PartialEq)]
pub enum UnknownPolicy {
    /// The name is not known.
    #[error("unknown policy `{0}`: there are {list}", list = NAMES.join(", "))]
    Name(String),
    /// The baseline was asked for where a policy is needed.
    #[error(
        "`{BASELINE}` is the kernel's own scheduler, a baseline for `bench` and not a policy that can be loaded: there are {list}",
        list = NAMES.join(", ")
    )]
    Baseline,
}

fn entry(name: &str) -> Result<&'static Entry, UnknownPolicy> {
    ENTRIES
        .iter()
        .find(|e| e.name == name)
        .ok_or_else(|| match name {
            BASELINE => UnknownPolicy::Baseline,
            other => UnknownPolicy::Name(other.to_owned()),
        })
}

/// The policy called `name`. `seed` feeds the generator of policies that need one; the same seed and the same views
/// give the same placements.
///
/// # Errors
/// When there is none; the error lists what there is.
pub fn by_name(name: &str, seed: u64) -> Result<Box<dyn Policy>, UnknownPolicy> {
    entry(name).map(|e| (e.make)(seed))
}

/// The machine has more core types than the policy can tell apart.
#[derive(Debug, Error, PartialEq)]
#[error(
    "policy `{policy}` is for machines of at most {max} core types and this one has {types}: use one of {}",
    able.join(", ")
)]
pub struct TooManyCoreTypes {
    /// The policy.
    pub policy: &'static str,
    /// Core types that it can tell apart.
    pub max: usize,
    /// Core types of the machine.
    pub types: usize,
    /// Policies that can tell so many apart.
    pub able: Vec<&'static str>,
}

/// Why a policy cannot be had for a machine.
#[derive(Debug, Error, PartialEq)]
pub enum PolicyError {
    /// There is none of that name.
    #[error(transparent)]
    Unknown(#[from] UnknownPolicy),
    /// The machine has too many core types for it.
    #[error(transparent)]
    CoreTypes(#[from] TooManyCoreTypes),
}

/// The policy called `name` for a machine of this topology; otherwise as [`by_name`]. A policy that is made by
/// [`by_name`] and shown a machine of too many core types fair-shares them all.
///
/// # Errors
/// When there is none, or it cannot tell so many core types apart; the error lists those that can.
pub fn for_machine(
    name: &str,
    seed: u64,
    topology: &Topology,
) -> Result<Box<dyn Policy>, PolicyError> {
    let e = entry(name)?;
    let types = topology.core_types().len();
    if types > e.max_core_types {
        let able = ENTRIES.iter().filter(|e| e.max_core_types >= types);
        return Err(TooManyCoreTypes {
            policy: e.name,
            max: e.max_core_types,
            types,
            able: able.map(|e| e.name).collect(),
        }
        .into());
    }
    Ok((e.make)(seed))
}

/// A page of text about the policy called `name`, its parameters included.
///
/// # Errors
/// When there is none; the error lists what there is.
pub fn help(name: &str) -> Result<String, UnknownPolicy> {
    let e = entry(name)?;
    Ok(format!("{}\nParameters:\n{}", e.help, (e.make)(0).knobs()))
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_policy_and_its_page() {
        assert_eq!(NAMES.len(), ENTRIES.len());
        for name in NAMES {
            assert_eq!(by_name(name, 1).unwrap().name(), *name);
            let page = help(name).unwrap();
            for knob in by_name(name, 1).unwrap().knobs().iter() {
                assert!(
                    page.contains(knob.key),
                    "{name}: {} is missing\n{page}",
                    knob.key
                );
            }
        }
    }

    #[test]
    fn a_policy_for_two_core_types_says_so() {
        let three = crate::testing::topology(&[1, 2, 3]);
        let e = for_machine("pareto", 1, &three).err().unwrap().to_string();
        assert!(e.contains("at most 2 core types and this one has 3"), "{e}");
        assert!(e.contains("acfs") && !e.contains("propsp"), "{e}");
        assert_eq!(for_machine("acfs", 1, &three).unwrap().name(), "acfs");
        let e = for_machine("hps", 1, &three).err().unwrap().to_string();
        assert!(e.contains("unknown policy `hps`"), "{e}");
        for name in NAMES {
            let two = crate::testing::topology(&[1, 2]);
            assert_eq!(for_machine(name, 1, &two).unwrap().name(), *name);
        }
    }

    #[test]
    fn an_unknown_name_lists_what_there_is() {
        let e = by_name("hps", 1).err().unwrap().to_string();
        assert!(
            e.contains("`hps`") && NAMES.iter().all(|n| e.contains(n)),
            "{e}"
        );
        let e = by_name("eevdf", 1).err().unwrap().to_string();
        assert!(e.contains("baseline") && e.contains("rr"), "{e}");
    }
}
