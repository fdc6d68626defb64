//! The registry of policies.
//!
//! A new policy is one file beside the others in `registry/` and its entry here: a `mod` line, and
//! a line of [`ENTRIES`].

use crate::closest::{closest, did_you_mean};
use crate::machine::Topology;
use crate::policy::contract::{Entry, Policy};
use thiserror::Error;

pub mod acfs;
pub mod adwrr;
pub mod ef;
pub mod eqp;
pub mod hsp;
pub mod pareto;
pub mod prim;
pub mod propsp;
pub mod rr;

/// Every policy that is known by name.
pub const ENTRIES: &[Entry] = &[
    hsp::ENTRY,
    rr::ENTRY,
    adwrr::ENTRY,
    eqp::ENTRY,
    acfs::ENTRY,
    ef::ENTRY,
    prim::ENTRY,
    propsp::ENTRY,
    pareto::ENTRY,
];

/// Names of all policies, in the order of [`ENTRIES`]; `eevdf` (no scheduler) is not among them.
pub const NAMES: &[&str] = &{
    let mut names = [""; ENTRIES.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = ENTRIES[i].name;
        i += 1;
    }
    names
};

/// Name of the baseline: the kernel's own scheduler.
pub const BASELINE: &str = "eevdf";

/// There is no such policy.
#[derive(Debug, Error, PartialEq)]
pub enum UnknownPolicy {
    /// The name is not known.
    #[error(
        "unknown policy `{0}`: there are {list}, and for `bench` the baseline `{BASELINE}`{near}",
        list = NAMES.join(", "),
        near = did_you_mean(&closest(.0, NAMES.iter().copied()))
    )]
    Name(String),
    /// The baseline was asked for where a policy is needed.
    #[error(
        "`{BASELINE}` is the kernel's own scheduler, a baseline for `bench` and not a policy that can be loaded: there are {list}",
        list = NAMES.join(", ")
    )]
    Baseline,
}

pub(super) fn entry(name: &str) -> Result<&'static Entry, UnknownPolicy> {
    ENTRIES
        .iter()
        .find(|e| e.name == name)
        .ok_or_else(|| match name {
            BASELINE => UnknownPolicy::Baseline,
            other => UnknownPolicy::Name(other.to_owned()),
        })
}

/// Whether the policy called `name` places threads by metrics; one that is not registered may.
pub(crate) fn uses_metrics(name: &str) -> bool {
    entry(name).map_or(true, |e| e.uses_metrics)
}

/// The policy called `name`. `seed` feeds the generator of policies that need one; the same seed
/// and the same views give the same placements.
///
/// # Errors
/// When there is none; the error lists what there is.
pub fn by_name(name: &str, seed: u64) -> Result<Box<dyn Policy>, UnknownPolicy> {
    entry(name).map(|e| (e.make)(seed))
}

/// The machine has more core types than the policy can manage.
#[derive(Debug, Error, PartialEq)]
#[error(
    "policy `{policy}` is for machines of at most {max} core types and this one has {types}: use one of {}",
    able.join(", ")
)]
pub struct TooManyCoreTypes {
    /// The policy.
    pub policy: &'static str,
    /// Core types that it can manage.
    pub max: usize,
    /// Core types of the machine.
    pub types: usize,
    /// Policies that can manage so many.
    pub able: Vec<&'static str>,
}

/// Why a policy cannot be had for a machine.
#[derive(Debug, Error, PartialEq)]
pub enum PolicyError {
    /// There is no policy of that name.
    #[error(transparent)]
    Unknown(#[from] UnknownPolicy),
    /// The machine has too many core types for it.
    #[error(transparent)]
    CoreTypes(#[from] TooManyCoreTypes),
}

/// Whether a policy can manage so many core types.
fn manages(e: &Entry, types: usize) -> Result<(), TooManyCoreTypes> {
    if types <= e.max_core_types {
        return Ok(());
    }
    let able = ENTRIES.iter().filter(|e| e.max_core_types >= types);
    Err(TooManyCoreTypes {
        policy: e.name,
        max: e.max_core_types,
        types,
        able: able.map(|e| e.name).collect(),
    })
}

/// The policy called `name` for a machine of this topology; otherwise as [`by_name`]. A policy that
/// is made by [`by_name`] and shown a machine of too many core types fair-shares them all.
///
/// # Errors
/// When there is none, or it cannot manage so many core types; the error lists those that can.
pub fn for_machine(
    name: &str,
    seed: u64,
    topology: &Topology,
) -> Result<Box<dyn Policy>, PolicyError> {
    let e = entry(name)?;
    manages(e, topology.core_types().len())?;
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
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_policy_and_its_page() {
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
    fn every_entry_says_in_a_line_what_it_optimises_and_needs() {
        for e in ENTRIES {
            let words = e.summary.split_whitespace().count();
            assert!((4..=12).contains(&words), "{}: {}", e.name, e.summary);
            assert!(!e.summary.ends_with('.'), "{}: {}", e.name, e.summary);
            assert_eq!(e.uses_metrics, e.needs != "-", "{}: {}", e.name, e.needs);
        }
    }

    #[test]
    fn a_policy_for_two_core_types_says_so() {
        let for_two = Entry {
            max_core_types: 2,
            ..*entry("pareto").unwrap()
        };
        assert_eq!(manages(&for_two, 2), Ok(()));
        let e = manages(&for_two, 3).unwrap_err().to_string();
        assert!(e.contains("at most 2 core types and this one has 3"), "{e}");
        assert!(e.contains("acfs") && e.contains("propsp"), "{e}");
        let three = crate::testing::topology(&[1, 2, 3]);
        for name in NAMES {
            assert_eq!(for_machine(name, 1, &three).unwrap().name(), *name);
        }
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
