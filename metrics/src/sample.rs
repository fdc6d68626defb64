//! What a machine reports once per interval.

use crate::event::MAX_EVENTS;
use crate::ids::{AppId, CoreTypeId, CoreTypeSet, Nanos, ThreadKey, MAX_CORE_TYPES};
use std::fmt;

/// What tells programs apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramName {
    /// Command name, NUL-padded.
    pub comm: [u8; 16],
    /// A hash of the arguments that its process was started with: of an interpreter they say what the
    /// program is. 0: whatever they are, or not known.
    pub arguments: u64,
}

impl ProgramName {
    /// All programs of this command name.
    pub fn any(comm: [u8; 16]) -> ProgramName {
        ProgramName { comm, arguments: 0 }
    }

    /// Whether it stands for all programs of its command name.
    pub fn is_any(&self) -> bool {
        self.arguments == 0
    }

    /// What stands for all programs of its command name.
    #[must_use]
    pub fn kin(&self) -> ProgramName {
        ProgramName::any(self.comm)
    }
}

/// One thread as seen at the end of an interval. All totals are since the thread was first seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadSample {
    /// Stable name of the thread.
    pub key: ThreadKey,
    /// Kernel thread id (simulator: a running number).
    pub tid: i32,
    /// The application it belongs to.
    pub app: AppId,
    /// Command name, NUL-padded, as the kernel shows it.
    pub comm: [u8; 16],
    /// Hash of the arguments of its process, see [`ProgramName`].
    pub arguments: u64,
    /// Scheduling weight, 100 = default (nice 0), by the thread's nice value and what its control groups ask for.
    pub weight: u32,
    /// Core types on which its affinity allows at least one CPU.
    pub allowed: CoreTypeSet,
    /// Whether it was running or waiting for a CPU when the snapshot was taken.
    pub runnable: bool,
    /// Core type it ran on last.
    pub core_type: CoreTypeId,
    /// Core type it is placed on, if a policy has placed it.
    pub placed: Option<CoreTypeId>,
    /// CPU time per core type since it was first seen.
    pub runtime: [Nanos; MAX_CORE_TYPES],
}

impl ThreadSample {
    /// The program that it runs.
    pub fn program(&self) -> ProgramName {
        ProgramName {
            comm: self.comm,
            arguments: self.arguments,
        }
    }
}

/// A thread that has ended, as it was at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedThread {
    /// Its name.
    pub key: ThreadKey,
    /// Kernel thread id.
    pub tid: i32,
    /// The application it belonged to.
    pub app: AppId,
    /// Command name, NUL-padded, as the kernel showed it.
    pub comm: [u8; 16],
    /// Hash of the arguments of its process, see [`ProgramName`].
    pub arguments: u64,
    /// CPU time per core type since it was first seen.
    pub runtime: [Nanos; MAX_CORE_TYPES],
}

impl EndedThread {
    /// The program that it ran.
    pub fn program(&self) -> ProgramName {
        ProgramName {
            comm: self.comm,
            arguments: self.arguments,
        }
    }
}

/// The state of a machine at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was taken.
    pub now: Nanos,
    /// Every thread that may be placed but for those that rest, in no particular order.
    pub threads: Vec<ThreadSample>,
    /// Threads that rest: they have neither run nor waited for a CPU in any of the last
    /// [`RESTING_AFTER`] snapshots, nor were they placed. Most threads of a machine do, and nobody
    /// should have to look at them. A machine may leave this empty and count everybody among
    /// `threads`.
    pub resting: Vec<ThreadSample>,
    /// Threads that were in the previous snapshot and have ended. A machine that has no `resting`
    /// may leave this empty, too: whoever is missing has ended.
    pub gone: Vec<ThreadKey>,
    /// Threads that have ended since the previous snapshot, those included that began after it. It adds
    /// to `gone` how much they had run; a machine that cannot tell leaves it empty.
    pub ended: Vec<EndedThread>,
    /// What the counters counted since the previous snapshot: at most one reading per thread, core
    /// type, event set and generation, in no particular order. Empty where nothing counts. Cut into
    /// windows ([`crate::providers::Windowed`]) there may be several, oldest first.
    pub readings: Vec<Reading>,
    /// What the virtual counters (energy, cache occupancy) say of the same interval. Empty where
    /// there are none.
    pub virtual_counters: Vec<VirtualReading>,
}

/// Snapshots without a sign of life after which a thread may be among those that rest.
pub const RESTING_AFTER: u8 = 16;

impl Snapshot {
    /// Every thread that may be placed, those that rest included.
    pub fn everybody(&self) -> impl Iterator<Item = &ThreadSample> {
        self.threads.iter().chain(&self.resting)
    }

    /// How many threads there are, those that rest included.
    pub fn population(&self) -> usize {
        self.threads.len() + self.resting.len()
    }
}

/// What one event set counted for one thread on one core type in one interval.
///
/// A reading belongs to exactly one programming of the counters: whoever fills it in never charges
/// a delta across two generations or two CPUs.
#[derive(Clone, Copy, PartialEq)]
pub struct Reading {
    /// The thread.
    pub thread: ThreadKey,
    /// The core type it ran on.
    pub core_type: CoreTypeId,
    /// Index of the event set among those that the provider declared for that core type.
    pub set: u32,
    /// Which programming of the counters counted; changes whenever the sets or the active one
    /// change.
    pub generation: u32,
    /// CPU time of the thread on this core type in the interval, counted or not.
    pub ran: Nanos,
    /// The part of it in which the counters counted; `counted` / `ran` is the coverage.
    pub counted: Nanos,
    len: u8,
    deltas: [u64; MAX_EVENTS],
}

impl Reading {
    /// A reading with the increments `deltas`, in the order of the set's events. Whatever is beyond
    /// [`MAX_EVENTS`] is left out.
    pub fn new(
        thread: ThreadKey,
        core_type: CoreTypeId,
        set: u32,
        generation: u32,
        deltas: &[u64],
    ) -> Reading {
        let mut inline = [0; MAX_EVENTS];
        let len = deltas.len().min(MAX_EVENTS);
        inline[..len].copy_from_slice(&deltas[..len]);
        Reading {
            thread,
            core_type,
            set,
            generation,
            ran: Nanos::ZERO,
            counted: Nanos::ZERO,
            len: len as u8,
            deltas: inline,
        }
    }

    /// The same with `counted` of the `ran` CPU time covered.
    #[must_use]
    pub fn over(mut self, ran: Nanos, counted: Nanos) -> Reading {
        self.ran = ran;
        self.counted = counted;
        self
    }

    /// Increments, in the order of the set's events.
    pub fn deltas(&self) -> &[u64] {
        &self.deltas[..usize::from(self.len)]
    }

    /// The part of the thread's CPU time on this core type in which the counters counted, 0 to 1; 0
    /// when it did not run.
    pub fn coverage(&self) -> f64 {
        match self.ran.0 {
            0 => 0.0,
            ran => (self.counted.0 as f64 / ran as f64).min(1.0),
        }
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("thread", &self.thread)
            .field("core_type", &self.core_type)
            .field("set", &self.set)
            .field("generation", &self.generation)
            .field("ran", &self.ran)
            .field("counted", &self.counted)
            .field("deltas", &self.deltas())
            .finish()
    }
}

/// A quantity that no core PMU counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VirtualCounter {
    /// Energy, joules; an increment.
    Energy,
    /// Last-level cache occupancy, bytes; a level.
    LlcOccupancy,
    /// Memory traffic (all, local and remote), bytes; an increment.
    MemoryTraffic,
    /// How fast the hardware says that cores are now, in parts of the fastest that it can express (0 to 1); a level.
    Performance,
    /// How frugal it says that they are, in the same way; a level.
    Efficiency,
    /// The fastest clock that cores may have now over the fastest that they can have (0 to 1); a level.
    ClockLimit,
}

impl VirtualCounter {
    /// Name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            VirtualCounter::Energy => "energy",
            VirtualCounter::LlcOccupancy => "llc_occupancy",
            VirtualCounter::MemoryTraffic => "memory_traffic",
            VirtualCounter::Performance => "performance",
            VirtualCounter::Efficiency => "efficiency",
            VirtualCounter::ClockLimit => "clock_limit",
        }
    }

    /// Unit of the value.
    pub fn unit(self) -> &'static str {
        match self {
            VirtualCounter::Energy => "J",
            VirtualCounter::LlcOccupancy | VirtualCounter::MemoryTraffic => "B",
            VirtualCounter::Performance
            | VirtualCounter::Efficiency
            | VirtualCounter::ClockLimit => "ratio",
        }
    }
}

/// What a virtual counter speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The machine, or all of it that the sensor sees.
    Machine,
    /// All cores of one type.
    CoreType(CoreTypeId),
    /// One CPU.
    Cpu(u32),
    /// One application.
    App(AppId),
}

/// A virtual counter at the end of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VirtualReading {
    /// What is counted.
    pub counter: VirtualCounter,
    /// What the counter belongs to.
    pub of: Subject,
    /// Increment over the interval, or level at its end: see [`VirtualCounter`].
    pub value: f64,
    /// Time that an increment covers; zero for a level.
    pub over: Nanos,
}
