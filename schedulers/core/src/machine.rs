//! The contract between the engine and whatever it schedules.

use amp_metrics::{CoreTypeId, Nanos, Snapshot, ThreadKey, MAX_CORE_TYPES};
use thiserror::Error;

/// A class of identical cores.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreType {
    /// Name for people, for example `big`.
    pub name: String,
    /// Its CPUs, ascending.
    pub cpus: Vec<u32>,
    /// Capacity as the kernel defines it: 1024 for the fastest core of the machine.
    pub capacity: u32,
}

/// The cores of a machine, fastest core type first.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    core_types: Vec<CoreType>,
}

/// Why a list of core types is not a topology.
#[derive(Debug, Error, PartialEq)]
pub enum TopologyError {
    /// No core type at all, or more than the tables hold.
    #[error("{0} core types: between 1 and {MAX_CORE_TYPES} are supported")]
    Count(usize),
    /// A core type that no CPU has.
    #[error("core type `{0}` has no CPU")]
    NoCpu(String),
    /// A CPU that is listed twice.
    #[error("CPU {0} belongs to more than one core type")]
    Twice(u32),
}

impl Topology {
    /// A topology of these core types, fastest first.
    ///
    /// # Errors
    /// When there are none or too many, one is empty, or a CPU is listed twice.
    pub fn new(core_types: Vec<CoreType>) -> Result<Topology, TopologyError> {
        if core_types.is_empty() || core_types.len() > MAX_CORE_TYPES {
            return Err(TopologyError::Count(core_types.len()));
        }
        let mut seen = std::collections::BTreeSet::new();
        for t in &core_types {
            if t.cpus.is_empty() {
                return Err(TopologyError::NoCpu(t.name.clone()));
            }
            if let Some(cpu) = t.cpus.iter().find(|c| !seen.insert(**c)) {
                return Err(TopologyError::Twice(*cpu));
            }
        }
        Ok(Topology { core_types })
    }

    /// The core types, fastest first.
    pub fn core_types(&self) -> &[CoreType] {
        &self.core_types
    }

    /// The slowest core type, to which speedups refer.
    pub fn slowest(&self) -> CoreTypeId {
        CoreTypeId((self.core_types.len() - 1) as u8)
    }

    /// How many CPUs are of type `t` (0 for an unknown one).
    pub fn nr_cpus(&self, t: CoreTypeId) -> usize {
        self.core_types.get(t.index()).map_or(0, |c| c.cpus.len())
    }

    /// The core type of `cpu`.
    pub fn core_type_of(&self, cpu: u32) -> Option<CoreTypeId> {
        let i = self.core_types.iter().position(|t| t.cpus.contains(&cpu))?;
        Some(CoreTypeId(i as u8))
    }
}

/// What a policy decided: a core type for each thread it has an opinion on. A thread that is not named keeps the
/// placement it had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    entries: Vec<(ThreadKey, Option<CoreTypeId>)>,
}

impl Placement {
    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Places `thread` on core type `t`.
    pub fn place(&mut self, thread: ThreadKey, t: CoreTypeId) {
        self.entries.push((thread, Some(t)));
    }

    /// Leaves `thread` to the mechanism: any core type will do.
    pub fn release(&mut self, thread: ThreadKey) {
        self.entries.push((thread, None));
    }

    /// Every decision, in the order it was made.
    pub fn iter(&self) -> impl Iterator<Item = (ThreadKey, Option<CoreTypeId>)> + '_ {
        self.entries.iter().copied()
    }

    /// How many decisions there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no decision.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Why a machine can be scheduled no longer.
#[derive(Debug, Error)]
pub enum MachineError {
    /// The kernel ended the scheduler; the text is its reason.
    #[error("the kernel ended the scheduler: {0}")]
    Ended(String),
    /// CPUs have come or gone, and with them the scheduler: it has to be loaded again for the machine as it is now.
    #[error("the machine has changed: {0}")]
    Changed(String),
    /// Something else failed.
    #[error(transparent)]
    Other(#[from] Box<dyn std::error::Error + Send + Sync>),
}

/// Something with cores of several types and threads to place on them.
pub trait Machine {
    /// Its cores.
    fn topology(&self) -> &Topology;

    /// Looks at every thread. The snapshot stays valid until the next call.
    ///
    /// # Errors
    /// When the machine has stopped being ours to schedule.
    fn sample(&mut self) -> Result<&Snapshot, MachineError>;

    /// Carries out a placement. A thread that has gone since the snapshot is silently skipped.
    ///
    /// # Errors
    /// When the machine has stopped being ours to schedule.
    fn apply(&mut self, placement: &Placement) -> Result<(), MachineError>;

    /// Tells which event set of each core type is to be counted from now on ([`amp_metrics::Provider::active_set`]). Called
    /// once per tick, after the provider has seen the snapshot. A machine that counts nothing, or that counts all sets at
    /// once, has nothing to do.
    ///
    /// # Errors
    /// When the machine has stopped being ours to schedule.
    fn count(&mut self, _active: &dyn Fn(CoreTypeId) -> usize) -> Result<(), MachineError> {
        Ok(())
    }

    /// The machine's own time.
    fn now(&self) -> Nanos;
}
