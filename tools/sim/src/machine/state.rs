//! CPUs, threads and applications.

use crate::rates::{self, Rates};
use crate::scenario::SimApp;
use amp_metrics::{AppId, CoreTypeId, CoreTypeSet, Nanos, ThreadKey, MAX_CORE_TYPES};

#[derive(Debug)]
pub(super) struct Cpu {
    /// Number in the machine file.
    pub id: u32,
    /// Index of its core type.
    pub ty: usize,
    pub running: Option<u32>,
    /// When its last thread left it.
    pub left: Nanos,
    /// Up to when its thread's (or its idle) time has been accounted.
    pub settled: Nanos,
    /// When its thread started to run; slices end at whole multiples of the slice after it.
    pub started: Nanos,
    /// Voids events that were scheduled before the last change.
    pub stamp: u64,
    /// How many times as long its thread's instructions take as alone, because of those that share
    /// a cache with it; from `settled` on.
    pub slowdown: f64,
}

impl Cpu {
    pub fn new(id: u32, ty: usize) -> Cpu {
        Cpu {
            id,
            ty,
            running: None,
            left: Nanos::ZERO,
            settled: Nanos::ZERO,
            started: Nanos::ZERO,
            stamp: 0,
            slowdown: 1.0,
        }
    }

    pub fn core_type_id(&self) -> CoreTypeId {
        CoreTypeId(self.ty as u8)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The slot belongs to nobody.
    Free,
    /// At a barrier, idle while another thread is in a serial phase, or in a sleep of all threads.
    Asleep,
    /// The thread waits in this queue.
    Queued(usize),
    /// The thread runs on this CPU.
    Running(usize),
}

#[derive(Debug)]
pub(super) struct Thread {
    pub generation: u32,
    pub tid: i32,
    /// Its application, and the process that it is of.
    pub app: usize,
    pub process: AppId,
    pub state: State,
    /// Phase of the application in which it works or worked last.
    pub phase: usize,
    /// Instructions of its share of the phase that are left.
    pub left: f64,
    /// Migration cost that it has yet to pay, in CPU time.
    pub debt: Nanos,
    pub placed: Option<CoreTypeId>,
    pub core_type: CoreTypeId,
    pub last_cpu: Option<usize>,
    pub vtime: u64,
    /// The queue to whose clock `vtime` refers.
    pub clock: usize,
    pub queued_at: Nanos,
    /// CPU time since it woke up last.
    pub burst: Nanos,
    pub runtime: [Nanos; MAX_CORE_TYPES],
    pub instructions: [f64; MAX_CORE_TYPES],
}

impl Thread {
    pub fn free() -> Thread {
        Thread {
            generation: 0,
            tid: 0,
            app: 0,
            process: AppId(0),
            state: State::Free,
            phase: 0,
            left: 0.0,
            debt: Nanos::ZERO,
            placed: None,
            core_type: CoreTypeId::FASTEST,
            last_cpu: None,
            vtime: 0,
            clock: 0,
            queued_at: Nanos::ZERO,
            burst: Nanos::ZERO,
            runtime: [Nanos::ZERO; MAX_CORE_TYPES],
            instructions: [0.0; MAX_CORE_TYPES],
        }
    }

    pub fn key(&self, slot: u32) -> ThreadKey {
        ThreadKey {
            slot,
            generation: self.generation,
        }
    }
}

/// What an application has done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppStats {
    /// How long each of its completed processes took.
    pub completions: Vec<Nanos>,
    /// CPU time of all its threads so far by core type.
    pub runtime: [Nanos; MAX_CORE_TYPES],
    /// Instructions of all its threads so far by core type.
    pub instructions: [f64; MAX_CORE_TYPES],
    /// Energy of the CPUs while they ran it, in joules; `None` once it ran a phase that states no
    /// power.
    pub energy_j: Option<f64>,
}

/// What the machine has done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineStats {
    /// How often a thread started to run on a CPU.
    pub switches: u64,
    /// How often it was another CPU than the last time.
    pub migrations: u64,
    /// How often it was of another core type.
    pub type_changes: u64,
    /// CPU time that went to the cost of migrations so far.
    pub migration_time: Nanos,
    /// CPU time by core type.
    pub busy: [Nanos; MAX_CORE_TYPES],
    /// Idle time of all CPUs by core type.
    pub idle: [Nanos; MAX_CORE_TYPES],
    /// Energy of idle CPUs, in joules.
    pub idle_energy_j: f64,
    /// Events handled.
    pub events: u64,
}

/// A running process of an application.
#[derive(Debug)]
pub(super) struct Process {
    pub id: AppId,
    pub started: Nanos,
    pub threads: Vec<u32>,
    /// Phases begun so far.
    pub phases: usize,
    /// Instructions not yet handed out to a phase.
    pub left: f64,
    /// Parallel loops of the present phase that have not begun.
    pub loops: u32,
    /// Instructions of each of them.
    pub loop_length: f64,
    /// How long all threads sleep after the present loop.
    pub sleep: Nanos,
    /// Instructions of the present loop that no thread has taken yet.
    pub pool: f64,
    /// The least that a thread takes of them.
    pub piece: f64,
    /// Threads that have not ended their share of the present loop.
    pub at_work: usize,
}

/// A thread that takes the next piece of a loop gets half of what would be its equal share of the
/// rest, but at least this part of its equal share of the whole loop: so few pieces that they cost
/// little, and so small ones in the end that threads finish almost together (OpenMP's guided
/// schedule).
const LEAST_PIECE: f64 = 1.0 / 64.0;

impl Process {
    /// Sets out a loop of `instructions` for so many threads; `dynamic` when they share it piece by
    /// piece.
    pub fn set_out(&mut self, instructions: f64, workers: usize, dynamic: bool) {
        let share = instructions / workers as f64;
        self.at_work = workers;
        self.pool = instructions;
        self.piece = if dynamic { share * LEAST_PIECE } else { share };
    }

    /// The next piece of the loop for one thread, in instructions; 0 when there is none left.
    pub fn take(&mut self) -> f64 {
        let guided = self.pool / (2 * self.at_work.max(1)) as f64;
        let mut piece = guided.max(self.piece);
        // no crumbs: what is left over by rounding belongs to the last piece
        if self.pool < piece * (1.0 + 1e-9) {
            piece = self.pool;
        }
        self.pool -= piece;
        piece
    }
}

#[derive(Debug)]
pub(super) struct App {
    pub spec: SimApp,
    /// Per phase.
    pub rates: Vec<Rates>,
    /// Mean rates of the whole program.
    pub mean: Rates,
    /// Per CPU; everywhere when `None`.
    pub cpus: Option<Vec<bool>>,
    pub types: CoreTypeSet,
    pub comm: [u8; 16],
    pub process: Option<Process>,
    pub gone: bool,
    pub stats: AppStats,
}

impl App {
    pub fn new(
        spec: SimApp,
        rates: Vec<Rates>,
        cpus: Option<Vec<bool>>,
        types: CoreTypeSet,
    ) -> App {
        let mut comm = [0; 16];
        for (c, b) in comm.iter_mut().take(15).zip(spec.name.bytes()) {
            *c = b;
        }
        let stats = AppStats {
            energy_j: Some(0.0),
            ..AppStats::default()
        };
        let lengths = spec.phases.iter().map(|p| p.instructions);
        let mean = rates::mean(&lengths.zip(rates.iter().copied()).collect::<Vec<_>>());
        App {
            spec,
            rates,
            mean,
            cpus,
            types,
            comm,
            process: None,
            gone: false,
            stats,
        }
    }

    pub fn may_use(&self, cpu: usize) -> bool {
        self.cpus
            .as_ref()
            .is_none_or(|c| c.get(cpu).copied().unwrap_or(false))
    }

    pub fn is_over(&self, needed: usize) -> bool {
        if self.spec.departure.is_some() || !self.spec.restart {
            return self.gone;
        }
        self.stats.completions.len() >= needed
    }
}
