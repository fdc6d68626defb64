//! The machine we run on, through the BPF scheduler.

use crate::banks::CounterBanks;
use crate::cpufreq::{self, Cpufreq};
use crate::groups::Limits;
use crate::run::options::USUAL_INTERVAL;
use amp_bpf::{Config, LoadError, Scheduler, State};
use amp_host::bad_input;
use amp_host::clock;
use amp_host::topology::Detected;
use amp_metrics::virtual_counters::VirtualCounters;
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, EndedThread, EventSets, Nanos, Snapshot, ThreadKey,
    ThreadSample,
};
use amp_pmc::CounterInventory;
use amp_sched::{Machine, MachineError, Placement, Topology};
use anyhow::Result;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

mod capacities;
mod roster;
mod weights;

use capacities::Capacities;
use roster::Roster;
use weights::Weights;

/// Ticks that may fail to come before BPF shares fairly by itself.
const SILENT_TICKS: u32 = 5;

/// Times per interval that the counters of a thread that goes on running are read, at most: what
/// the engine sees is at most that part of an interval old.
const READ_PER_INTERVAL: u32 = 8;

/// How the mechanism is set up.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    /// Time between two ticks of the engine.
    pub interval: Nanos,
    /// Schedule only threads of class `SCHED_EXT`.
    pub only_sched_ext: bool,
    /// Threads that can be placed at a time, where it is not the usual number.
    pub slots: Option<u32>,
    /// What CPUs are to be clocked at.
    pub cpufreq: Cpufreq,
}

/// This machine, scheduled by us until it is dropped.
pub struct Live {
    topology: Topology,
    scheduler: Scheduler,
    counting: CounterBanks,
    /// Energy, cache occupancy, present speeds.
    others: VirtualCounters,
    capacities: Capacities,
    /// Sources of those that are known to be missing.
    missing: usize,
    /// Why the last change of event sets failed, to say it once.
    uncounted: Option<String>,
    /// Slots there are, until it was said that they are not enough.
    enough: Option<u32>,
    snapshot: Snapshot,
    roster: Roster,
    weights: Weights,
    /// Why groups' weights could not be told last, to say it once.
    unweighted: Option<String>,
    /// The same of their limits of CPU time.
    unlimited: Option<String>,
    /// After how long without a commit BPF does without us.
    patience: Nanos,
    committed: Nanos,
}

/// What the mechanism counted.
#[derive(Clone, Copy, Debug)]
pub struct MechanismStats {
    /// Median time from a decision to the thread running on its new core type.
    pub swap_latency_p50: Option<Nanos>,
    /// Placements that took effect.
    pub placements: u64,
    /// Threads that found the slot table full.
    pub untracked: u64,
    /// Readings of counters that failed.
    pub unread: u64,
    /// Times the mechanism had to do without us.
    pub fallbacks: u64,
}

impl Live {
    /// Loads and attaches the scheduler.
    ///
    /// # Errors
    /// When the kernel cannot, we may not, or another scheduler is there.
    pub fn attach(
        detected: &Detected,
        inventory: &mut CounterInventory,
        options: &LiveOptions,
    ) -> Result<Live> {
        amp_host::memory::no_huge_pages();
        let topology = detected.topology.clone();
        let mut config = config(detected);
        config.only_sched_ext = options.only_sched_ext;
        config.counters = inventory.has_pmu();
        config.slots = options.slots.unwrap_or(config.slots);
        // the interval may become longer while the scheduler is loaded
        let longest = options.interval.max(USUAL_INTERVAL);
        let patience = Nanos(longest.0 * u64::from(SILENT_TICKS));
        config.heartbeat_timeout = Some(Duration::from_nanos(patience.0));
        let mut scheduler = Scheduler::load(&config).map_err(told)?;
        follow_interval(&mut scheduler, options.interval);
        scheduler.follow_load(follows_load(options.cpufreq));
        scheduler.attach().map_err(told)?;
        let counting = CounterBanks::new(topology.core_types().len());
        let others = inventory.virtual_counters();
        Ok(Live {
            capacities: Capacities::of(&topology),
            weights: Weights::new(
                topology.core_types().iter().map(|t| t.cpus.len()).sum(),
                Path::new("/"),
            ),
            unweighted: None,
            unlimited: None,
            patience,
            committed: clock::now(),
            topology,
            scheduler,
            counting,
            missing: others.missing().len(),
            others,
            uncounted: None,
            enough: Some(config.slots),
            snapshot: Snapshot::default(),
            roster: Roster::new(rustix::process::getpid().as_raw_nonzero().get()),
        })
    }

    /// The engine ticks at this interval from now on.
    pub fn set_interval(&mut self, interval: Nanos) {
        follow_interval(&mut self.scheduler, interval);
    }

    /// Silence after which the mechanism does without us.
    pub fn patience(&self) -> Nanos {
        self.patience
    }

    /// CPUs are clocked so from now on.
    pub fn set_cpufreq(&mut self, cpufreq: Cpufreq) {
        self.scheduler.follow_load(follows_load(cpufreq));
    }

    /// Counts these events from now on, instead of those before.
    ///
    /// # Errors
    /// When they cannot be counted, saying why; those before are counted on then.
    pub fn count_events(&mut self, sets: &EventSets) -> Result<()> {
        self.counting
            .change(&mut self.scheduler, &self.topology, sets)
    }

    /// Tells the mechanism between two steps of something long that we are at work: else it would
    /// do without us.
    ///
    /// # Errors
    /// When it cannot be told.
    pub fn alive(&mut self) -> Result<(), MachineError> {
        self.commit()
    }

    /// A file that is readable when threads have come and go on running, until [`Live::arrived`] is called.
    pub fn wakes(&self) -> BorrowedFd<'_> {
        self.scheduler.wakes()
    }

    /// Whether threads have come, and gone on running for some milliseconds, since the last call.
    pub fn arrived(&mut self) -> bool {
        self.scheduler.arrived()
    }

    /// Detaches the scheduler and closes what it counts. Nothing but looking at what was counted
    /// makes sense afterwards.
    pub fn let_go(&mut self) {
        self.scheduler.detach();
        self.counting = CounterBanks::new(self.topology.core_types().len());
    }

    /// The last snapshot that was taken.
    pub fn last(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Every thread that the mechanism knows, as it is at this moment, ours included.
    pub fn threads_now(&self) -> impl Iterator<Item = amp_bpf::Thread> + '_ {
        self.scheduler.threads()
    }

    /// What one core of each type can do at present, fastest first: 1 to 1024.
    pub fn capacities(&self) -> &[u32] {
        self.capacities.now()
    }

    /// Why something that should be counted is not; nothing while all is.
    pub fn uncounted(&self) -> Option<String> {
        self.counting.trouble()
    }

    /// What the mechanism counted so far.
    pub fn mechanism(&self) -> MechanismStats {
        let s = self.scheduler.stats();
        MechanismStats {
            swap_latency_p50: (s.swap_latency.count > 0).then_some(Nanos(s.swap_latency.p50)),
            placements: s.swap_latency.count,
            untracked: s.untracked,
            unread: s.unread,
            fallbacks: s.fallbacks,
        }
    }

    /// Has the threads of the snapshot weigh what their control groups ask for.
    fn weigh(&mut self) {
        let scheduler = &self.scheduler;
        let (now, threads) = (self.snapshot.now, &mut self.snapshot.threads);
        let new = self.weights.settle(
            now,
            threads,
            scheduler.holds(),
            |slot, generation, weight| {
                // false: the thread has gone since the snapshot
                let _ = scheduler.weigh(slot, generation, weight);
            },
        );
        let told = new.map(|new| self.scheduler.set_group_weights(new));
        let refused = told.and_then(Result::err).map(|e| e.to_string());
        if let Some(why) = refused.iter().find(|_| refused != self.unweighted) {
            log::warn!("new threads do not weigh what their control groups ask for at once: {why}");
        }
        self.unweighted = refused;
        self.limit();
    }

    /// Has BPF keep the limits of CPU time that control groups have. Each time they were read: whoever came meanwhile may have
    /// missed them.
    fn limit(&mut self) {
        let Some(Limits { limits, under }) = self.weights.limits() else {
            return;
        };
        let unlimited = match self.scheduler.set_group_limits(&limits, &under) {
            Ok(0) => None,
            Ok(n) => Some(format!(
                "there is no room for limits of CPU time of {n} control groups: they have none"
            )),
            Err(e) => Some(format!("limits of CPU time are not kept: {e}")),
        };
        if let Some(why) = unlimited.iter().find(|_| unlimited != self.unlimited) {
            log::warn!("{why}");
        }
        self.unlimited = unlimited;
    }

    fn still_ours(&self) -> Result<(), MachineError> {
        match self.scheduler.exited() {
            None => Ok(()),
            Some(reason) if reason.restart => Err(MachineError::Changed(reason.text)),
            Some(reason) => Err(MachineError::Ended(reason.text)),
        }
    }

    fn commit(&mut self) -> Result<(), MachineError> {
        let now = clock::now();
        let silent = Nanos(now.0.saturating_sub(self.committed.0));
        self.committed = now;
        if silent > self.patience {
            log::info!(
                "nothing was decided for {:.1} s: the machine slept, or this process was held up (BPF shares the CPUs meanwhile)",
                silent.0 as f64 / 1e9
            );
        }
        self.scheduler
            .commit()
            .map_err(|e| MachineError::Other(Box::new(e)))
    }
}

/// What the mechanism does once per interval, or for one.
fn follow_interval(scheduler: &mut Scheduler, interval: Nanos) {
    scheduler.count_every(between_readings(interval));
    scheduler.keep_seats(Duration::from_nanos(interval.0));
}

fn between_readings(interval: Nanos) -> Duration {
    Duration::from_nanos(interval.0) / READ_PER_INTERVAL
}

/// The mechanism's configuration for a machine like this.
pub fn config(detected: &Detected) -> Config {
    let topology = &detected.topology;
    let core_types = topology
        .core_types()
        .iter()
        .map(|t| amp_bpf::CoreType {
            cpus: t.cpus.clone(),
            capacity: t.capacity.clamp(1, 1024),
        })
        .collect();
    let mut config = Config::new(core_types);
    let nr = detected.llc_of.keys().max().map_or(0, |c| *c as usize + 1);
    config.llc = (0..nr as u32)
        .map(|c| detected.llc_of.get(&c).copied().unwrap_or(0))
        .collect();
    let nr = detected.core_of.keys().max().map_or(0, |c| c + 1);
    config.core = (0..nr)
        .map(|c| detected.core_of.get(&c).copied().unwrap_or(c))
        .collect();
    config
}

/// A topology that the mechanism cannot take is the user's to mend; all else is failed work.
fn told(e: LoadError) -> anyhow::Error {
    match e {
        LoadError::Config(c) => bad_input(c),
        other => other.into(),
    }
}

impl Machine for Live {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<&Snapshot, MachineError> {
        self.still_ours()?;
        let (scheduler, counting) = (&self.scheduler, &mut self.counting);
        let weights = &mut self.weights;
        weights.begin();
        self.roster.look(scheduler, &mut self.snapshot, |t, out| {
            weights.note(t);
            counting.read(scheduler, t, out);
        });
        if let Some(slots) = self.enough.filter(|_| self.scheduler.untracked() > 0) {
            log::warn!(
                "more threads than can be placed at a time ({}): those beyond run on any core",
                slots - 1
            );
            self.enough = None;
        }
        self.roster.bury(self.scheduler.ended(), &mut self.snapshot);
        self.snapshot.now = clock::now();
        self.weigh();
        self.others.sample(&mut self.snapshot);
        for failed in self.others.missing().iter().skip(self.missing) {
            log::warn!("no longer sampled: {failed}");
        }
        self.missing = self.others.missing().len();
        for (t, capacity) in self.capacities.update(&self.snapshot.virtual_counters) {
            self.scheduler.set_capacity(t.0, capacity);
        }
        // A tick without a change still says that we are alive.
        self.commit()?;
        Ok(&self.snapshot)
    }

    fn apply(&mut self, placement: &Placement) -> Result<(), MachineError> {
        for (thread, core_type) in placement.iter() {
            // false: the thread has gone since the snapshot
            let _ = self
                .scheduler
                .place(thread.slot, thread.generation, core_type.map(|t| t.0));
        }
        self.commit()
    }

    fn lend(&mut self, fast: bool) {
        self.scheduler.lend(fast);
    }

    fn count(&mut self, active: &dyn Fn(CoreTypeId) -> usize) -> Result<(), MachineError> {
        let now = self.snapshot.now;
        self.counting.mend(&mut self.scheduler, now);
        let turned = self.counting.rotate(&mut self.scheduler, now, active);
        let refused = turned.err().map(|e| format!("{e:#}"));
        // without readings the provider's estimates grow old, and the policy does without
        if let Some(why) = refused.iter().find(|_| refused != self.uncounted) {
            log::warn!("the next events cannot be counted: {why}");
        }
        self.uncounted = refused;
        Ok(())
    }

    fn now(&self) -> Nanos {
        clock::now()
    }
}

/// Whether the mechanism is to say what load there is: not where nobody asks.
fn follows_load(cpufreq: Cpufreq) -> bool {
    cpufreq == Cpufreq::Load && cpufreq::asked(Path::new("/"))
}

fn ended_of(e: &amp_bpf::Ended) -> EndedThread {
    EndedThread {
        key: ThreadKey {
            slot: e.slot,
            generation: e.generation,
        },
        tid: e.pid,
        app: AppId(u64::try_from(e.tgid).unwrap_or(0)),
        comm: e.comm,
        arguments: e.arguments,
        runtime: e.runtime.map(Nanos),
    }
}

fn sample_of(t: &amp_bpf::Thread) -> ThreadSample {
    ThreadSample {
        key: ThreadKey {
            slot: t.slot,
            generation: t.generation,
        },
        tid: t.pid,
        app: AppId(u64::try_from(t.tgid).unwrap_or(0)),
        comm: t.comm,
        arguments: t.arguments,
        weight: t.own_weight,
        allowed: CoreTypeSet::from_bits(t.allowed),
        runnable: t.state != State::Sleeping,
        core_type: CoreTypeId(t.core_type),
        placed: t.placement.map(CoreTypeId),
        runtime: t.runtime.map(Nanos),
    }
}
