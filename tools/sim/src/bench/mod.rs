//! A workload on a simulated machine under several policies.
//!
//! The protocol of [PMCTrack §4.1.3], as in the live bench: every application alone on the slowest cores and with fast ones,
//! then the mix under each policy with restarts until the longest has completed three times, repeated in shuffled
//! start order.

mod mix;
mod solo;

pub use mix::{run_mix, MixRun};
pub use solo::solo;

use crate::error::SimError;
use crate::machine::{topology_of, MachineOptions};
use crate::provider::ProviderSpec;
use crate::scenario::apps_of;
use amp_eval::evaluation::{
    evaluate, oracle, AppSpec, BenchReport, Environment, MachineFacts, PolicyResult, Solo,
    COMPLETIONS,
};
use amp_eval::workload::Workload;
use amp_machine::MachineFile;
use amp_metrics::Nanos;
use amp_sched::policy::Settings;
use amp_sched::{Policy, Topology};
use std::ops::ControlFlow;

/// How a bench on the simulator goes.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Source of metrics of every policy that is not in `provider_of`.
    pub provider: ProviderSpec,
    /// Sources of metrics of certain policies, by name.
    pub provider_of: Vec<(String, ProviderSpec)>,
    /// Parameters that were turned, by policy.
    pub settings: Settings,
    /// Time between two decisions.
    pub interval: Nanos,
    /// Seed of the start orders, of policies that draw lots, and of the noise of providers.
    pub seed: u64,
    /// Runs of the mix per policy, each in another start order and with other noise; ≥ 1.
    pub runs: u32,
    /// Completions of the longest application that end a run; ≥ 1.
    pub completions: usize,
    /// The longest a run may take, in simulated time; the largest value is no limit.
    pub limit: Nanos,
    /// Events and decisions after which a run is given up: what has no end must stop somewhere.
    pub most_events: u64,
    /// The machine's parameters; `discipline` and `completions` are set by the bench.
    pub machine: MachineOptions,
}

impl Default for BenchOptions {
    /// True speedup factors (IPC sampling for `eqp`, as published), 100 ms, five runs, three completions.
    fn default() -> BenchOptions {
        BenchOptions {
            provider: ProviderSpec::TRUE,
            provider_of: vec![("eqp".to_owned(), ProviderSpec::IPC_SAMPLING)],
            settings: Settings::default(),
            interval: Nanos::from_millis(100),
            seed: 1,
            runs: 5,
            completions: COMPLETIONS,
            limit: Nanos(u64::MAX),
            most_events: 200_000_000,
            machine: MachineOptions::default(),
        }
    }
}

/// What the bench is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// An application alone.
    Solo {
        /// Its label.
        app: &'a str,
    },
    /// A run of the mix.
    Mix {
        /// Under this policy.
        policy: &'a str,
        /// Number of the run, from 1.
        run: u32,
    },
}

impl BenchOptions {
    /// The source of metrics of `policy`.
    pub fn provider_for(&self, policy: &str) -> ProviderSpec {
        let own = self.provider_of.iter().find(|(name, _)| name == policy);
        own.map_or(&self.provider, |(_, spec)| spec).clone()
    }

    /// `policy` with its knobs turned; `None` for the baseline.
    ///
    /// # Errors
    /// When there is no such policy.
    pub fn make_policy(
        &self,
        policy: &str,
        seed: u64,
    ) -> Result<Option<Box<dyn Policy>>, SimError> {
        Ok(self.settings.policy_or_baseline(policy, seed, None)?)
    }

    fn check(&self, policies: &[&str], topology: &Topology) -> Result<(), SimError> {
        let bad = |text: &str| Err(SimError::Parameter(text.to_owned()));
        if policies.is_empty() {
            return bad("no policy is named");
        }
        if self.runs == 0 || self.completions == 0 {
            return bad("at least one run and one completion are needed");
        }
        if self.interval == Nanos::ZERO {
            return bad("the interval must be longer than 0");
        }
        for name in policies {
            self.settings
                .policy_or_baseline(name, self.seed, Some(topology))?;
        }
        Ok(())
    }
}

/// Runs `workload` on `machine` under each of `policies` (`eevdf` is the baseline) and evaluates. `watch` is told every step
/// before it is taken and may stop the bench.
///
/// The same arguments give the same report, byte for byte.
///
/// # Errors
/// When an input is not right, the mix does not end within the limit, or `watch` broke off ([`SimError::Interrupted`]).
pub fn bench(
    workload: &Workload,
    machine: &MachineFile,
    policies: &[&str],
    options: &BenchOptions,
    watch: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>,
) -> Result<BenchReport, SimError> {
    let topology = topology_of(machine)?;
    options.check(policies, &topology)?;
    let apps = apps_of(workload)?;
    let mut ask = |step: Step<'_>| match watch(step) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(SimError::Interrupted),
    };
    let mut solos = Vec::with_capacity(apps.len());
    for app in &apps {
        ask(Step::Solo { app: &app.name })?;
        solos.push(solo(app, machine, options)?);
    }
    let specs: Vec<AppSpec> = apps
        .iter()
        .map(|a| AppSpec {
            name: a.name.clone(),
            weight: a.weight,
        })
        .collect();
    let mut results = Vec::with_capacity(policies.len());
    for policy in policies {
        let mut runs = Vec::with_capacity(options.runs as usize);
        let mut timeline = Vec::new();
        for run in 1..=options.runs {
            ask(Step::Mix { policy, run })?;
            let done = run_mix(&apps, machine, policy, options, run)?;
            if run == 1 {
                timeline = done.timeline;
            }
            runs.push(done.run);
        }
        let mut result: PolicyResult = evaluate(policy, &specs, &solos, &runs)?;
        result.timeline = timeline;
        result.oracle = predict(policy, workload, &solos, &topology);
        results.push(result);
    }
    Ok(BenchReport {
        workload: workload.name.clone(),
        machine: MachineFacts::of(&machine.name, &topology),
        on: "sim".to_owned(),
        provider: provider_names(policies, options),
        environment: Environment {
            commit: None,
            virtual_time: true,
            seed: Some(options.seed),
            ..Environment::default()
        },
        results,
    })
}

/// The oracle's figures, where every application has one thread. For programs with phases, mean speedup factors make
/// it an approximation.
fn predict(
    policy: &str,
    workload: &Workload,
    solos: &[Solo],
    topology: &Topology,
) -> Option<amp_eval::evaluation::OracleResult> {
    if topology.core_types().len() != 2 || workload.apps.iter().any(|a| a.threads != 1) {
        return None;
    }
    let sf: Option<Vec<f64>> = solos
        .iter()
        .map(|s| Some(s.slow_s.first()? / s.fast_s.first()?))
        .collect();
    let weights: Vec<f64> = workload
        .apps
        .iter()
        .map(|a| f64::from(a.weight) / 100.0)
        .collect();
    let cpus = topology.core_types().iter().map(|t| t.cpus.len()).sum();
    oracle::of_policy(
        policy,
        &sf?,
        &weights,
        topology.core_types()[0].cpus.len(),
        cpus,
    )
}

fn provider_names(policies: &[&str], options: &BenchOptions) -> String {
    let mut text = options.provider.name();
    for (policy, spec) in &options.provider_of {
        if policies.contains(&policy.as_str()) && *spec != options.provider {
            text += &format!(", {policy}: {}", spec.name());
        }
    }
    text
}
