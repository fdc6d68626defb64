//! Providers in front of the simulated machine.

mod exact;
mod ipc_sampling;

pub use exact::Exact;
pub use ipc_sampling::IpcSampling;

use crate::error::SimError;
use crate::truth::TruthHandle;
use amp_metrics::Provider;

/// Which source of metrics stands between the simulated machine and the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProviderSpec {
    /// The truth of the present phase, with relative noise and latency: what a good estimation model delivers.
    Exact {
        /// Relative standard deviation of each sample, ≥ 0 (below 1).
        sigma: f64,
        /// Age of the data in intervals.
        latency: u32,
    },
    /// Factors of the whole program, whatever the phase: what a static assignment rests on.
    Average,
    /// Speedup factors from running on both core types by turns [PMCTrack §4.1, EQP].
    IpcSampling,
    /// No metrics.
    None,
}

impl ProviderSpec {
    /// The truth without noise or latency.
    pub const TRUE: ProviderSpec = ProviderSpec::Exact {
        sigma: 0.0,
        latency: 0,
    };

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
            ProviderSpec::IpcSampling => "ipc-sampling".to_owned(),
            ProviderSpec::None => "none".to_owned(),
        }
    }

    /// The provider, fed by the machine behind `truth`; `seed` feeds its noise.
    ///
    /// # Errors
    /// When the noise is not a number from 0 up to, but not including, 1.
    pub fn make(&self, truth: TruthHandle, seed: u64) -> Result<Box<dyn Provider>, SimError> {
        Ok(match *self {
            ProviderSpec::Exact { sigma, latency } => {
                Box::new(Exact::new(truth, sigma, latency, seed)?)
            }
            ProviderSpec::Average => Box::new(Exact::average(truth)?),
            ProviderSpec::IpcSampling => Box::new(IpcSampling::new(truth)),
            ProviderSpec::None => amp_metrics::providers::by_name("none")
                .map_err(|e| SimError::Parameter(e.to_string()))?,
        })
    }
}
