//! The simulated machine.
//!
//! Time is virtual and jumps from event to event: the end of a thread's share of a phase, the end
//! of a time slice, an arrival, a departure. Between events every rate is constant, so progress,
//! energy and CPU time are exact up to the rounding of event times to whole nanoseconds.
//!
//! | file | concern |
//! |---|---|
//! | `state` | CPUs, threads, applications: the data |
//! | `clock` | the event loop; what has been done since the last event |
//! | `life` | processes: arrival, phases, barriers, completion, restart, departure |
//! | `queues` | run queues and virtual time, shared by both disciplines |
//! | `placed` | the discipline of scx_amp's BPF side |
//! | `fair` | the discipline of a core-type-unaware fair scheduler, the baseline |
//! | `cache` | what threads that share a cache cost each other |
//! | `counting` | hardware counters, for providers |
//! | `audit` | what must hold at any moment |

mod audit;
mod cache;
mod clock;
mod counting;
mod fair;
mod life;
mod placed;
mod queues;
mod state;

use crate::error::SimError;
use crate::event::{Event, Events};
use crate::rates::Rates;
use crate::scenario::{self, SimApp};
use crate::truth::{Truth, TruthHandle};
use amp_machine::MachineFile;
use amp_metrics::{
    CoreTypeId, CoreTypeSet, EndedThread, Nanos, Snapshot, Subject, ThreadSample, VirtualCounter,
    VirtualReading, MAX_CORE_TYPES,
};
use amp_sched::{CoreType, Machine, MachineError, Placement, Topology};
use chacha20::ChaCha8Rng;
use counting::Counting;
use rand::SeedableRng;
use state::{App, Cpu, State, Thread};
use std::collections::BTreeSet;

pub use state::{AppStats, MachineStats};

/// How threads get CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// As scx_amp's BPF side does: by placement, work-conserving.
    Placed,
    /// As a fair scheduler does that knows nothing of core types: the baseline `eevdf`.
    Fair,
}

/// Events between two questions whether it is enough.
const ASKED_EVERY: u64 = 1 << 12;

/// Parameters of the machine beside its cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineOptions {
    /// How threads get CPUs.
    pub discipline: Discipline,
    /// Time slice when threads wait.
    pub slice: Nanos,
    /// A slower CPU may take a thread that is placed on a faster type once it has waited this long.
    pub steal_after: Nanos,
    /// A thread that ran for less than this since it woke up last may be woken on a slower idle CPU
    /// too.
    pub short_run: Nanos,
    /// Time between two load balances of [`Discipline::Fair`].
    pub balance: Nanos,
    /// CPU time that a thread loses when it starts on another CPU than before; the machine file's
    /// `[migration] cost_us` when `None`.
    pub migration_cost: Option<Nanos>,
    /// Threads that there may be at a time.
    pub slots: u32,
    /// Whether idle CPUs use the idle power of the machine file's model (nothing where there is no
    /// model), scaled as the workload's own figures cannot be: taken as they stand, in watts.
    pub idle_power: bool,
    /// Completions of every restarting application that end the simulation; 0 never ends it.
    pub completions: usize,
    /// Whether idle CPUs run what is placed on slower types, as far as the policy wants it.
    pub lending: bool,
}

impl Default for MachineOptions {
    /// The BPF side's own constants, no idle power, no end.
    fn default() -> MachineOptions {
        MachineOptions {
            discipline: Discipline::Placed,
            slice: Nanos::from_millis(5),
            steal_after: Nanos::from_millis(20),
            short_run: Nanos::from_millis(1),
            balance: Nanos::from_millis(100),
            migration_cost: None,
            slots: 16_383, // the BPF side's table has 16,384, of which the first is nobody's
            idle_power: false,
            completions: 0,
            lending: true,
        }
    }
}

/// A machine with virtual time, as a [`Machine`] that the engine can schedule.
#[derive(Debug)]
pub struct SimMachine {
    topology: Topology,
    options: MachineOptions,
    migration_cost: Nanos,
    idle_watts: Vec<f64>,
    /// Fastest type first, ascending CPU number within a type.
    cpus: Vec<Cpu>,
    /// Per core type: its CPUs, a range of indices into `cpus`.
    by_type: Vec<std::ops::Range<usize>>,
    /// Per core type: how many of its CPUs have no thread.
    idle: Vec<usize>,
    /// The slot table.
    threads: Vec<Thread>,
    free_slots: Vec<u32>,
    /// Threads that have ended since the last look.
    ended: Vec<EndedThread>,
    apps: Vec<App>,
    /// Per core type: size in KiB of the cache that its cores share; none where nothing is known of
    /// it, or no application wants any.
    caches: Vec<Option<f64>>,
    /// Waiting threads by virtual time: per core type (`Placed`) or per CPU (`Fair`).
    queues: Vec<BTreeSet<(u64, u32)>>,
    /// Virtual time of each queue.
    clocks: Vec<u64>,
    balancing: bool,
    events: Events,
    now: Nanos,
    next_id: i32,
    totals: MachineStats,
    rng: ChaCha8Rng,
    snapshot: Snapshot,
    counting: Counting,
    /// Energy by core type, and what it was at the last snapshot, in joules.
    joules: [f64; MAX_CORE_TYPES],
    metered: [f64; MAX_CORE_TYPES],
    truth: TruthHandle,
    moved: Vec<u32>,
    /// Whether idle CPUs run what is placed on slower types.
    lending: bool,
    /// The thread whose share of the phase has just ended, while it wakes those of the next phase.
    leaving: Option<u32>,
}

/// The topology that a machine file describes.
///
/// # Errors
/// When it is none; the error names the machine.
pub fn topology_of(machine: &MachineFile) -> Result<Topology, SimError> {
    let types = machine.core_types.iter().map(|t| CoreType {
        name: t.name.clone(),
        cpus: t.cpus.0.clone(),
        capacity: t.capacity,
    });
    Topology::new(types.collect()).map_err(|source| SimError::Topology {
        machine: machine.name.clone(),
        source,
    })
}

/// Cycles in a microsecond. Without a model a thousand: providers compare cycles within a core type
/// only.
fn frequency(t: &amp_machine::CoreType) -> u32 {
    t.model.as_ref().map_or(1000, |m| m.mhz)
}

impl SimMachine {
    /// A machine as `machine` describes it, with these applications. `seed` decides what the
    /// hardware or the kernel would leave to chance: the order in which applications that arrive
    /// together are started, and where [`Discipline::Fair`] puts threads.
    ///
    /// # Errors
    /// When an application is not right or the parameters make no sense.
    pub fn new(
        machine: &MachineFile,
        apps: &[SimApp],
        options: MachineOptions,
        seed: u64,
    ) -> Result<SimMachine, SimError> {
        let topology = topology_of(machine)?;
        if options.slice == Nanos::ZERO || options.balance == Nanos::ZERO {
            return Err(SimError::Parameter(
                "slice and balance must be longer than 0 ns".into(),
            ));
        }
        let mut cpus = Vec::new();
        let mut by_type = Vec::new();
        for (t, ty) in topology.core_types().iter().enumerate() {
            let first = cpus.len();
            cpus.extend(ty.cpus.iter().map(|id| Cpu::new(*id, t)));
            by_type.push(first..cpus.len());
        }
        let ids: Vec<u32> = cpus.iter().map(|c| c.id).collect();
        let (mut threads, slots) = (0, options.slots);
        for app in apps {
            scenario::check(app, &ids)?;
            threads += u64::from(app.threads);
            if threads > u64::from(slots) {
                let app = app.name.clone();
                return Err(SimError::Slots {
                    app,
                    threads,
                    slots,
                });
            }
        }
        let queues = match options.discipline {
            Discipline::Placed => by_type.len(),
            Discipline::Fair => cpus.len(),
        };
        let cost_us = machine.migration.cost_us.max(0.0);
        let idle_watts = machine.core_types.iter().map(|t| match &t.model {
            Some(m) if options.idle_power => m.energy.idle_mw * 1e-3,
            _ => 0.0,
        });
        let mut sim = SimMachine {
            migration_cost: options
                .migration_cost
                .unwrap_or(Nanos((cost_us * 1e3).round() as u64)),
            idle_watts: idle_watts.collect(),
            idle: by_type.iter().map(std::ops::Range::len).collect(),
            caches: cache::sizes(machine, apps),
            by_type,
            cpus,
            threads: Vec::new(),
            free_slots: Vec::new(),
            ended: Vec::new(),
            apps: Vec::new(),
            queues: vec![BTreeSet::new(); queues],
            clocks: vec![0; queues],
            balancing: false,
            events: Events::default(),
            now: Nanos::ZERO,
            next_id: 1000,
            totals: MachineStats::default(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            snapshot: Snapshot::default(),
            counting: Counting::new(machine.core_types.iter().map(frequency)),
            joules: [0.0; MAX_CORE_TYPES],
            metered: [0.0; MAX_CORE_TYPES],
            truth: TruthHandle::new(topology.slowest()),
            moved: Vec::new(),
            lending: false,
            leaving: None,
            topology,
            options,
        };
        for app in apps {
            let rates = app
                .phases
                .iter()
                .map(|p| Rates::of(p, &sim.topology))
                .collect();
            let allowed = app.affinity.as_ref().map(|list| {
                sim.cpus
                    .iter()
                    .map(|c| list.contains(&c.id))
                    .collect::<Vec<_>>()
            });
            let mut types = CoreTypeSet::EMPTY;
            for (i, c) in sim.cpus.iter().enumerate() {
                if allowed.as_ref().is_none_or(|a: &Vec<bool>| a[i]) {
                    types = types.with(c.core_type_id());
                }
            }
            sim.apps.push(App::new(app.clone(), rates, allowed, types));
        }
        sim.schedule_arrivals();
        Ok(sim)
    }

    /// Lets time pass until `t`, or until the simulation is over ([`SimMachine::is_over`]), which
    /// is the moment of the completion that ended it.
    pub fn run_until(&mut self, t: Nanos) {
        self.run_until_or(t, |_| false);
    }

    /// The same, unless `enough` says before that it is enough: phases may be so short that more
    /// happens until `t` than anybody can wait for. It is asked every now and then.
    pub fn run_until_or(&mut self, t: Nanos, enough: impl Fn(&SimMachine) -> bool) {
        for n in 1_u64.. {
            if self.is_over() || (n % ASKED_EVERY == 0 && enough(self)) {
                break;
            }
            let Some((at, event)) = self.events.next_by(t) else {
                self.now = self.now.max(t);
                break;
            };
            self.now = self.now.max(at);
            self.handle(event);
        }
        self.settle_all();
    }

    /// Whether every application that restarts has completed as often as was asked for, and every
    /// other one has ended.
    pub fn is_over(&self) -> bool {
        let needed = self.options.completions;
        needed > 0 && self.apps.iter().all(|a| a.is_over(needed))
    }

    /// What application `i` has done so far.
    pub fn app_stats(&self, i: usize) -> Option<&AppStats> {
        self.apps.get(i).map(|a| &a.stats)
    }

    /// Whether the energy of each core type is known: every phase states its power.
    pub fn energy_per_core_type(&self) -> bool {
        let mut rates = self.apps.iter().flat_map(|a| &a.rates);
        rates.all(|r| r.power.is_some())
    }

    /// What the sensors of the core types show, of the time since the last snapshot.
    fn read_energy(&mut self, over: Nanos) {
        self.snapshot.virtual_counters.clear();
        if !self.energy_per_core_type() {
            return;
        }
        let meters = self.joules.iter().zip(&mut self.metered).enumerate();
        for (t, (joules, metered)) in meters.take(self.by_type.len()) {
            self.snapshot.virtual_counters.push(VirtualReading {
                counter: VirtualCounter::Energy,
                of: Subject::CoreType(CoreTypeId(t as u8)),
                value: joules - *metered,
                over,
            });
            *metered = *joules;
        }
    }

    /// The last snapshot that was taken.
    pub fn last(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What the machine has done so far.
    pub fn stats(&self) -> &MachineStats {
        &self.totals
    }

    /// The machine's parameters.
    pub fn options(&self) -> &MachineOptions {
        &self.options
    }

    /// The true speed of every thread, for providers.
    pub fn truth(&self) -> TruthHandle {
        self.truth.clone()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Cpu { cpu, stamp } => self.cpu_event(cpu, stamp),
            Event::Relief { slot, queued_at } => self.relieve(slot, queued_at),
            Event::Balance => self.balance(),
            Event::Arrive { app } => self.arrive(app),
            Event::Awake { app, process } => self.awake(app, process),
            Event::Depart { app } => self.depart(app),
        }
    }
}

impl Machine for SimMachine {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<&Snapshot, MachineError> {
        self.settle_all();
        self.read_energy(self.now.saturating_sub(self.snapshot.now));
        self.snapshot.now = self.now;
        self.snapshot.threads.clear();
        self.snapshot.readings.clear();
        self.snapshot.ended.clear();
        self.snapshot.ended.append(&mut self.ended);
        let mut truth = Truth::begin(&self.truth, self.now);
        for (slot, t) in self.threads.iter().enumerate() {
            if t.state == State::Free {
                continue;
            }
            let app = &self.apps[t.app];
            let key = t.key(slot as u32);
            self.snapshot.threads.push(ThreadSample {
                key,
                tid: t.tid,
                app: t.process,
                comm: app.comm,
                arguments: 0,
                weight: app.spec.weight,
                allowed: app.types,
                runnable: t.state != State::Asleep,
                core_type: t.core_type,
                placed: t.placed,
                runtime: t.runtime,
            });
            self.counting
                .read(slot as u32, t, &mut self.snapshot.readings);
            truth.record(key, app.rates.get(t.phase), &app.mean);
        }
        drop(truth);
        Ok(&self.snapshot)
    }

    fn apply(&mut self, placement: &Placement) -> Result<(), MachineError> {
        self.carry_out(placement);
        Ok(())
    }

    fn lend(&mut self, fast: bool) {
        self.lending = fast && self.options.lending;
    }

    fn count(&mut self, active: &dyn Fn(CoreTypeId) -> usize) -> Result<(), MachineError> {
        self.turn(active);
        Ok(())
    }

    fn now(&self) -> Nanos {
        self.now
    }
}
