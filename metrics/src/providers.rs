//! The providers that are built in, and their registry.

pub mod declared;

pub use declared::{Declarations, Declared, ProviderFileError, Speedups};

use crate::provider::Provider;
use thiserror::Error;

/// A provider that can be had by name.
#[derive(Clone, Copy)]
pub struct ProviderEntry {
    /// Name on the command line.
    pub name: &'static str,
    /// What it rests on, in one line.
    pub summary: &'static str,
    make: fn() -> Box<dyn Provider>,
}

/// Every provider that is built in.
pub const PROVIDERS: &[ProviderEntry] = &[
    ProviderEntry {
        name: "declared",
        summary:
            "speedup factors as declared per application, by the workload file or a provider file",
        make: || Box::new(Declared::new(Declarations::default())),
    },
    ProviderEntry {
        name: "none",
        summary: "no metrics: policies that need them fall back on fair shares",
        make: || Box::new(NoMetrics),
    },
];

/// There is no such provider.
#[derive(Debug, Error, PartialEq)]
#[error(
    "unknown provider `{name}`: there are {}, or the path of a provider file (*.toml)",
    names()
)]
pub struct UnknownProvider {
    /// The name that was asked for.
    pub name: String,
}

fn names() -> String {
    let names: Vec<String> = PROVIDERS.iter().map(|p| format!("`{}`", p.name)).collect();
    names.join(", ")
}

/// The provider called `name`.
///
/// # Errors
/// When there is none; the error lists what there is.
pub fn by_name(name: &str) -> Result<Box<dyn Provider>, UnknownProvider> {
    let found = PROVIDERS.iter().find(|p| p.name == name);
    found.map(|p| (p.make)()).ok_or_else(|| UnknownProvider {
        name: name.to_owned(),
    })
}

/// Knows nothing, honestly.
struct NoMetrics;

impl Provider for NoMetrics {
    fn name(&self) -> &str {
        "none"
    }

    fn observe(&mut self, _snapshot: &crate::Snapshot) {}

    fn estimate(
        &self,
        _thread: crate::ThreadKey,
        _metric: crate::MetricId,
    ) -> Option<crate::Estimate> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_answers_to_its_name() {
        for p in PROVIDERS {
            assert_eq!(by_name(p.name).unwrap().name(), p.name);
        }
    }

    #[test]
    fn an_unknown_name_lists_what_there_is() {
        let e = by_name("pmc").err().unwrap().to_string();
        assert!(
            e.contains("`pmc`") && e.contains("`declared`") && e.contains(".toml"),
            "{e}"
        );
    }
}
