//! The contract between the engine and whatever it schedules.

pub use amp_metrics::{CoreType, Topology, TopologyError};
use amp_metrics::{CoreTypeId, Nanos, Snapshot, ThreadKey};
use thiserror::Error;

/// What a policy decided: a core type for each thread it has an opinion on. A thread that is not
/// named keeps the placement it had.
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

    /// Places `thread` on core type `t`, instead of what was decided on it before.
    pub fn change(&mut self, thread: ThreadKey, t: CoreTypeId) {
        match self.entries.iter_mut().find(|(key, _)| *key == thread) {
            Some((_, to)) => *to = Some(t),
            None => self.place(thread, t),
        }
    }

    /// Lets `change` alter each decision, in the order it was made.
    pub fn revise(&mut self, mut change: impl FnMut(ThreadKey, &mut Option<CoreTypeId>)) {
        for (key, to) in &mut self.entries {
            change(*key, to);
        }
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
    /// CPUs have come or gone, and with them the scheduler: it has to be loaded again for the
    /// machine as it is now.
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

    /// Says whether a core that is idle may run what is placed on slower core types and runs there.
    /// Called once per tick. A machine on which no core is ever idle beside slower ones has nothing to
    /// do.
    fn lend(&mut self, _fast: bool) {}

    /// Sets which event set of each core type is counted from now on
    /// ([`amp_metrics::Provider::active_set`]). Called once per tick, after the provider has seen
    /// the snapshot. A machine that counts nothing, or that counts all sets at once, has nothing to
    /// do.
    ///
    /// # Errors
    /// When the machine has stopped being ours to schedule.
    fn count(&mut self, _active: &dyn Fn(CoreTypeId) -> usize) -> Result<(), MachineError> {
        Ok(())
    }

    /// The machine's own time.
    fn now(&self) -> Nanos;
}
