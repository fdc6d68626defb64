//! A policy at work on this machine's kernel: the engine and the live machine together.

use crate::cpufreq::Cpufreq;
use crate::live::Live;
use amp_metrics::providers::{Declarations, DeclaredFactors, Prepared};
use amp_metrics::{AppId, EventSets, Nanos, Provider};
use amp_sched::{Changes, Engine, MachineError, Policy, Tick};
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

/// An attached scheduler that is ticked by its owner. Dropping it detaches it.
pub struct Scheduling {
    machine: Live,
    engine: Engine,
    /// What is counted for the provider.
    sets: EventSets,
    declared: Option<Apps>,
}

/// Factors of a workload's applications, told to the provider as their processes come and
/// go.
struct Apps {
    factors: Vec<DeclaredFactors>,
    declarations: Declarations,
    present: HashMap<usize, AppId>,
}

impl Scheduling {
    /// Puts `policy` to work on `machine`, fed by `provider`.
    pub fn new(machine: Live, policy: Box<dyn Policy>, provider: Box<dyn Provider>) -> Scheduling {
        let engine = Engine::new(
            amp_sched::Machine::topology(&machine).clone(),
            policy,
            provider,
        );
        Scheduling {
            machine,
            engine,
            sets: EventSets::default(),
            declared: None,
        }
    }

    /// The same with a provider that may want something counted.
    ///
    /// # Errors
    /// When that cannot be counted.
    pub fn counting(
        mut machine: Live,
        policy: Box<dyn Policy>,
        prepared: Prepared,
    ) -> Result<Scheduling> {
        count(&mut machine, &prepared)?;
        Ok(Scheduling {
            sets: prepared.sets,
            ..Scheduling::new(machine, policy, prepared.provider)
        })
    }

    /// Puts another provider to work.
    ///
    /// # Errors
    /// When what it wants counted cannot be; the one before stays.
    pub fn change_provider(&mut self, changes: &mut Changes, prepared: Prepared) -> Result<()> {
        count(&mut self.machine, &prepared)?;
        changes.provider(&mut self.engine, prepared.provider);
        self.sets = prepared.sets;
        Ok(())
    }

    /// Between two steps of something that takes long: we are at work.
    ///
    /// # Errors
    /// When the mechanism cannot be told.
    pub fn alive(&mut self) -> Result<(), MachineError> {
        self.machine.alive()
    }

    /// From now on [`Scheduling::app_started`] declares application `i` with `factors[i]` through
    /// `declarations`.
    pub fn declare(&mut self, declarations: Declarations, factors: Vec<DeclaredFactors>) {
        self.declared = Some(Apps {
            factors,
            declarations,
            present: HashMap::new(),
        });
    }

    /// Application `app` runs as process `pid` from now on.
    pub fn app_started(&mut self, app: usize, pid: i32) {
        let Some(apps) = &mut self.declared else {
            return;
        };
        let Ok(id) = u64::try_from(pid).map(AppId) else {
            return;
        };
        if let Some(old) = apps.present.insert(app, id) {
            apps.declarations.withdraw(old);
        }
        if let Some(factors) = apps.factors.get(app) {
            apps.declarations.declare(id, *factors);
        }
    }

    /// One tick of the engine.
    ///
    /// # Errors
    /// When the kernel has ended the scheduler.
    pub fn tick(&mut self) -> Result<Tick<'_>, MachineError> {
        self.engine.tick(&mut self.machine)
    }

    /// When the engine is to be called next, with a decision every `interval`.
    pub fn due(&self, interval: Nanos) -> Nanos {
        self.engine.due(interval)
    }

    /// What is due now: a tick of the engine, or a glance, which may lead to one.
    ///
    /// # Errors
    /// When the kernel has ended the scheduler.
    pub fn call(&mut self, interval: Nanos) -> Result<Option<Tick<'_>>, MachineError> {
        self.engine.call(&mut self.machine, interval)
    }

    /// A file that is readable when threads have come, until [`Scheduling::notice`] is called.
    pub fn wakes(&self) -> BorrowedFd<'_> {
        self.machine.wakes()
    }

    /// Takes note of threads that have come: it may be that the engine is to be called sooner for that.
    pub fn notice(&mut self, interval: Nanos) {
        if self.machine.arrived() {
            let now = amp_sched::Machine::now(&self.machine);
            self.engine.arrived(now, interval);
        }
    }

    /// Decisions may come less often on an idle machine. Whoever asks for it calls [`Scheduling::notice`] whenever
    /// [`Scheduling::wakes`] is readable.
    pub fn let_rest(&mut self) {
        let most = self.machine.patience();
        self.engine.let_rest(Nanos(most.0 / 5 * 4));
    }

    /// Leaves the machine to the kernel's scheduler and counts no more. Ticks fail from now on.
    pub fn let_go(&mut self) {
        self.machine.let_go();
    }

    /// Pairs of threads that the policy made change places.
    pub fn swaps(&self) -> u64 {
        self.engine.totals().swaps
    }

    /// What is counted for the provider.
    pub fn sets(&self) -> &EventSets {
        &self.sets
    }

    /// The engine, for its counts.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine, to change what it works with.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// CPUs are clocked so from now on.
    pub fn set_cpufreq(&mut self, cpufreq: Cpufreq) {
        self.machine.set_cpufreq(cpufreq);
    }

    /// Ticks come at this interval from now on.
    pub fn set_interval(&mut self, interval: Nanos) {
        self.machine.set_interval(interval);
    }

    /// The machine, for its counts.
    pub fn machine(&self) -> &Live {
        &self.machine
    }
}

fn count(machine: &mut Live, prepared: &Prepared) -> Result<()> {
    machine
        .count_events(&prepared.sets)
        .with_context(|| format!("provider `{}`", prepared.provider.name()))
}
