//! A workload on a simulated machine under several policies: the simulator as a laboratory of
//! [`amp_eval::bench()`].

mod mix;
mod solo;

pub use amp_eval::{Step, What};
pub use mix::run_mix;
pub use solo::alone;

use crate::error::SimError;
use crate::machine::{topology_of, MachineOptions};
use crate::provider::ProviderSpec;
use crate::scenario::{apps_of, SimApp};
use amp_eval::evaluation::{BenchReport, Environment, MachineFacts, COMPLETIONS};
use amp_eval::lab::{AloneRecord, Cores, Facts, MixSpec, RunRecord};
use amp_eval::solos::SoloCache;
use amp_eval::workload::Workload;
use amp_eval::{Contender, Lab, Plan, Runs, Watch};
use amp_machine::MachineFile;
use amp_metrics::Nanos;
use amp_sched::policy::{Settings, BASELINE};
use amp_sched::{Policy, Topology};
use std::sync::atomic::AtomicBool;

/// Options of a bench on the simulator.
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
    /// Runs of the mix per policy, each in another start order and with other noise.
    pub runs: Runs,
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
    /// True speedup factors (IPC sampling for `eqp`, as published), 100 ms, five runs, three
    /// completions.
    fn default() -> BenchOptions {
        BenchOptions {
            provider: ProviderSpec::TRUE,
            provider_of: vec![("eqp".to_owned(), ProviderSpec::IPC_SAMPLING)],
            settings: Settings::default(),
            interval: Nanos::from_millis(100),
            seed: 1,
            runs: Runs::Exactly(5),
            completions: COMPLETIONS,
            limit: Nanos(u64::MAX),
            most_events: 200_000_000,
            machine: MachineOptions::default(),
        }
    }
}

impl BenchOptions {
    /// What a bench of `workload` under `policies` measures by these options. Alone, each program
    /// runs once: the simulated machine repeats itself.
    pub fn plan<'a>(&self, workload: &'a Workload, policies: &'a [Contender]) -> Plan<'a> {
        Plan {
            workload,
            policies,
            runs: self.runs,
            solo_runs: 1,
            completions: self.completions,
            seed: self.seed,
        }
    }

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
}

/// The simulated machine as a laboratory, whose runs are independent of each other: run `n` of a
/// policy comes out the same whatever ran before. Start orders are drawn by the machine, from seed
/// and run number, the same for every policy.
#[derive(Debug)]
pub struct SimLab<'a> {
    machine: &'a MachineFile,
    topology: Topology,
    apps: Vec<SimApp>,
    options: &'a BenchOptions,
}

impl<'a> SimLab<'a> {
    /// `machine`, ready to run the applications of `workload`.
    ///
    /// # Errors
    /// When the machine has no topology, or an application cannot be simulated.
    pub fn new(
        workload: &Workload,
        machine: &'a MachineFile,
        options: &'a BenchOptions,
    ) -> Result<SimLab<'a>, SimError> {
        Ok(SimLab {
            machine,
            topology: topology_of(machine)?,
            apps: apps_of(workload)?,
            options,
        })
    }

    fn provider_names(&self, policies: &[Contender]) -> String {
        let options = self.options;
        let mut text = options.provider.name();
        for (policy, spec) in &options.provider_of {
            let of = policies.iter().any(|p| p.policy() == Some(policy));
            if of && *spec != options.provider {
                text += &format!(", {policy}: {}", spec.name());
            }
        }
        text
    }
}

impl Lab for SimLab<'_> {
    type Error = SimError;

    fn facts(&self, plan: &Plan<'_>) -> Facts {
        Facts {
            machine: MachineFacts::of(&self.machine.name, &self.topology),
            on: "sim".to_owned(),
            provider: self.provider_names(plan.policies),
            environment: Environment {
                virtual_time: true,
                ..Environment::default()
            },
        }
    }

    fn prepare(&mut self, plan: &Plan<'_>) -> Result<(), SimError> {
        if self.options.interval == Nanos::ZERO {
            let what = "the interval must be longer than 0";
            return Err(SimError::Parameter(what.to_owned()));
        }
        for contender in plan.policies {
            let options = self.options;
            let topology = Some(&self.topology);
            let name = simulated(contender)?;
            options
                .settings
                .policy_or_baseline(name, options.seed, topology)?;
        }
        Ok(())
    }

    fn repeatable(&self) -> bool {
        true
    }

    fn alone(
        &mut self,
        app: usize,
        cores: Cores,
        cancel: &AtomicBool,
    ) -> Result<AloneRecord, SimError> {
        alone(&self.apps[app], cores, self.machine, self.options, cancel)
    }

    fn mix(&mut self, spec: &MixSpec<'_>, cancel: &AtomicBool) -> Result<RunRecord, SimError> {
        let options = BenchOptions {
            completions: spec.completions,
            ..self.options.clone()
        };
        let types = self.topology.core_types();
        let cpus = |app: usize| {
            let t = spec.pinned?.get(app).copied().flatten()?;
            types.get(t).map(|t| t.cpus.clone())
        };
        let there = |(i, app): (usize, &SimApp)| SimApp {
            affinity: cpus(i).or_else(|| app.affinity.clone()),
            ..app.clone()
        };
        let apps: Vec<SimApp> = self.apps.iter().enumerate().map(there).collect();
        run_mix(
            &apps,
            self.machine,
            simulated(spec.policy)?,
            &options,
            spec.run,
            spec.solos,
            cancel,
        )
    }
}

/// The name of the policy or baseline that a contender is, if it can be simulated.
fn simulated(contender: &Contender) -> Result<&str, SimError> {
    match contender {
        Contender::Kernel | Contender::Pinned => Ok(BASELINE),
        Contender::Policy(name) => Ok(name),
        Contender::Scx(_) => Err(SimError::Parameter(format!(
            "`{contender}`: the simulated machine has no kernel to load it into; it goes with --on board or --on host"
        ))),
        Contender::KernelWithoutEas => Err(SimError::Parameter(format!(
            "`{contender}`: the simulated kernel knows no energy model; it goes with --on board --dvfs or --on host"
        ))),
    }
}

/// Runs `workload` on `machine` under each of `policies` (`eevdf` is the baseline) and evaluates:
/// the protocol of [`amp_eval::bench()`] over a [`SimLab`].
///
/// The same arguments give the same report, byte for byte.
///
/// # Errors
/// When an input is not right, the mix does not end within the limit, or `watch` broke off
/// ([`SimError::Interrupted`]).
pub fn bench(
    workload: &Workload,
    machine: &MachineFile,
    policies: &[&str],
    options: &BenchOptions,
    watch: &mut Watch<'_>,
) -> Result<BenchReport, SimError> {
    let policies: Result<Vec<Contender>, _> = policies.iter().map(|p| p.parse()).collect();
    let policies = policies?;
    let plan = options.plan(workload, &policies);
    let mut lab = SimLab::new(workload, machine, options)?;
    let never = AtomicBool::new(false);
    let report = amp_eval::bench(&plan, &mut lab, &mut SoloCache::default(), watch, &never);
    Ok(report?)
}
