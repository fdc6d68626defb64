//! Providers in front of the simulated machine: the exact one, which only a simulator has, and
//! those that are shipped.

mod exact;

pub use exact::Exact;

use crate::error::SimError;
use crate::machine::SimMachine;
use amp_metrics::providers::{self, Context, UnknownProvider};
use amp_metrics::Provider;
use std::borrow::Cow;
use std::path::Path;

/// Which source of metrics stands between the simulated machine and the policy.
#[derive(Clone, Debug, PartialEq)]
pub enum ProviderSpec {
    /// The truth of the present phase, with relative noise and latency: what a good estimation
    /// model delivers.
    Exact {
        /// Relative standard deviation of each sample, ≥ 0 (below 1).
        sigma: f64,
        /// Age of the data in intervals.
        latency: u32,
    },
    /// Factors of the whole program, whatever the phase: what a static assignment rests on.
    Average,
    /// The shipped provider of this name, or the one that the TOML file of this path describes, fed
    /// by the simulated machine's counters as it would be by a kernel's.
    Shipped(Cow<'static, str>),
    /// No metrics.
    None,
}

impl ProviderSpec {
    /// The truth without noise or latency.
    pub const TRUE: ProviderSpec = ProviderSpec::Exact {
        sigma: 0.0,
        latency: 0,
    };

    /// IPC sampling as it is shipped.
    pub const IPC_SAMPLING: ProviderSpec = ProviderSpec::Shipped(Cow::Borrowed("ipc-sampling"));

    /// The source called `name`: `true` (also `declared`: the phases are the declaration),
    /// `average`, `none`, a shipped provider or the path of a provider file.
    ///
    /// # Errors
    /// When there is none of this name, or the file is not right; the error says what there is.
    pub fn named(name: &str) -> Result<ProviderSpec, SimError> {
        Ok(match name {
            "true" | "declared" => ProviderSpec::TRUE,
            "average" => ProviderSpec::Average,
            "none" => ProviderSpec::None,
            file if file.ends_with(".toml") => {
                providers::files_of(Path::new(file)).map_err(providers::ProviderError::from)?;
                ProviderSpec::Shipped(Cow::Owned(file.to_owned()))
            }
            shipped => {
                let mut known = providers::PROVIDERS.iter().map(|p| p.name);
                if shipped != "auto" && !known.any(|n| n == shipped) {
                    let name = shipped.to_owned();
                    let unknown = providers::ProviderError::from(UnknownProvider { name });
                    return Err(SimError::Parameter(format!(
                        "{unknown}; on the simulator there are `true` and `average` too"
                    )));
                }
                ProviderSpec::Shipped(Cow::Owned(shipped.to_owned()))
            }
        })
    }

    /// The name reports show.
    pub fn name(&self) -> String {
        match self {
            ProviderSpec::Exact { sigma, latency } if *sigma == 0.0 && *latency == 0 => {
                "true".to_owned()
            }
            ProviderSpec::Exact { sigma, latency } => {
                format!("true(sigma={sigma}, latency={latency})")
            }
            ProviderSpec::Average => "average".to_owned(),
            ProviderSpec::Shipped(name) => name.clone().into_owned(),
            ProviderSpec::None => "none".to_owned(),
        }
    }

    /// The provider for `machine`, which counts from now on what the provider wants counted; `seed`
    /// feeds its noise.
    ///
    /// # Errors
    /// When the noise is not a number from 0 up to, but not including, 1; when there is no such
    /// provider, or it cannot work on this machine.
    pub fn make(&self, machine: &mut SimMachine, seed: u64) -> Result<Box<dyn Provider>, SimError> {
        let name = match self {
            ProviderSpec::Exact { sigma, latency } => {
                let exact = Exact::new(machine.truth(), *sigma, *latency, seed)?;
                return Ok(Box::new(exact));
            }
            ProviderSpec::Average => return Ok(Box::new(Exact::average(machine.truth())?)),
            ProviderSpec::Shipped(name) => name.as_ref(),
            ProviderSpec::None => "none",
        };
        let pmus = machine.pmus();
        let context = Context {
            pmus: &pmus,
            counters: Ok(()),
            energy_per_core_type: machine.energy_per_core_type(),
            thread_director: Err("a simulated machine has none".to_owned()),
            models: None,
            trust: None,
        };
        let prepared = providers::prepare(name, &context)?;
        machine.count_events(&prepared.sets)?;
        Ok(prepared.provider)
    }
}
