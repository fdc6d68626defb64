//! What programs were like in earlier runs of the scheduler: for threads of which another provider
//! knows nothing of its own yet.
//!
//! ```text
//! inner provider ─ fresh estimates ─► Memory (by executable, name and arguments) ─► written, read at the next start
//!        │                              │
//!        └── has one of its own ──► it  └── has none yet, and not for long ──► what is remembered
//! ```

use super::threads::Threads;
use crate::estimate::{Estimate, Quality};
use crate::event::{EventError, EventSets};
use crate::ids::{AppId, CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::memory::{Comm, Executable, Key, Memory, SHOWN};
use crate::pmu::Pmus;
use crate::provider::{Health, MetricId, Provider};
use crate::sample::{ProgramName, Snapshot, ThreadSample};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// CPU time of a thread for which the memory speaks in place of the inner provider, at most. A
/// memory that is wrong is over by then, even where the inner provider can only measure what the
/// policy would have to change first.
pub const TRUSTED_FOR: Nanos = Nanos::from_secs(10);

/// A thread whose executable was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The thread.
    pub thread: ThreadKey,
    /// Its command name when it was asked for.
    pub comm: Comm,
    /// Its process.
    pub app: AppId,
    /// What was found.
    pub what: Finding,
}

/// What a look for an executable has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The executable.
    Executable(Executable),
    /// The thread is called otherwise by now: to be asked for again.
    Changed,
    /// There is none: a kernel thread, one that has ended, or one that we may not look at.
    None,
}

/// Finds out which executables threads run. What may wait (a file system) does so elsewhere.
pub trait Identify: Send {
    /// Begins to look; false when that is not possible now.
    fn ask(&mut self, thread: &ThreadSample) -> bool;
    /// The next answer, if there is one by now.
    fn found(&mut self) -> Option<Found>;
}

/// A memory that a provider fills and asks, and others read, write and clear.
#[derive(Clone, Debug, Default)]
pub struct SharedMemory(Arc<Mutex<Memory>>);

impl SharedMemory {
    /// The memory to be shared.
    pub fn new(memory: Memory) -> SharedMemory {
        SharedMemory(Arc::new(Mutex::new(memory)))
    }

    /// The memory, for a moment: the scheduling thread waits meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Memory> {
        // every method of a memory leaves it whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which program a thread runs.
#[derive(Clone, Debug, Default)]
enum Bound {
    /// To be asked for.
    #[default]
    Unknown,
    /// Asked for.
    Asked,
    /// There is no executable to remember it by.
    Nameless,
    /// The program, and what those of its name have in common.
    To(Vec<Record>),
}

/// A program that is remembered, or will be.
#[derive(Clone, Debug)]
enum Record {
    /// It is not in the memory yet.
    New(Key),
    /// It is in the memory.
    Known(u64),
}

impl Record {
    fn known(&self) -> Option<u64> {
        match self {
            Record::New(_) => None,
            Record::Known(id) => Some(*id),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Thread {
    name: ProgramName,
    runtime: [Nanos; MAX_CORE_TYPES],
    /// CPU time when it began the program.
    began: Nanos,
    met: bool,
    bound: Bound,
    /// Of which factors the inner provider had a fresh estimate.
    own: [[bool; MAX_CORE_TYPES]; 2],
    /// What is remembered.
    recalled: [[Option<Estimate>; MAX_CORE_TYPES]; 2],
    /// Whether that is by name alone.
    by_name: bool,
}

/// A memory that lasts around `inner`, whose fresh estimates of a thread go first, and from the
/// first of them on all of its estimates.
///
/// Until then, and for [`TRUSTED_FOR`] of the thread's CPU time at most, the memory answers with
/// the quality [`Quality::Stale`] and with the uncertainty that age and scatter give. So a memory
/// that is wrong misleads for no longer than that, unless the inner provider took it for what is to be
/// [expected](Provider::expect) and weighs its own measurements against it. Until the executable of a thread is known (an
/// interval, mostly), the program of the same name that was met last answers where the inner
/// provider has nothing at all.
///
/// Only what states an uncertainty is remembered: what somebody declared was not measured.
pub struct Lasting {
    inner: Box<dyn Provider>,
    memory: SharedMemory,
    identify: Box<dyn Identify>,
    clock: fn() -> u64,
    on: Arc<str>,
    core_types: usize,
    threads: Threads<Thread>,
    forgotten: u64,
}

impl std::fmt::Debug for Lasting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lasting")
            .field("inner", &self.inner.name())
            .finish_non_exhaustive()
    }
}

/// Seconds since 1970.
pub fn wall_clock() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
    since.map_or(0, |d| d.as_secs())
}

impl Lasting {
    /// The memory around `inner` on a machine with these core types
    /// ([`crate::memory::core_types`]), by a `clock` of seconds since 1970.
    pub fn new(
        inner: Box<dyn Provider>,
        memory: SharedMemory,
        identify: Box<dyn Identify>,
        core_types: &str,
        clock: fn() -> u64,
    ) -> Lasting {
        let forgotten = memory.lock().forgotten();
        Lasting {
            inner,
            memory,
            identify,
            clock,
            on: core_types.into(),
            core_types: core_types.split(' ').count().min(MAX_CORE_TYPES),
            threads: Threads::default(),
            forgotten,
        }
    }

    /// Takes in which executables were found.
    fn take_findings(&mut self, memory: &mut Memory, now: u64) {
        while let Some(found) = self.identify.found() {
            let Some(t) = self.threads.get_mut(found.thread) else {
                continue;
            };
            if t.name.comm != found.comm || !matches!(t.bound, Bound::Asked) {
                continue;
            }
            // what its name alone has promised was perhaps another program
            t.recalled = Default::default();
            t.by_name = false;
            t.bound = match found.what {
                Finding::Changed => Bound::Unknown,
                Finding::None => Bound::Nameless,
                Finding::Executable(executable) => {
                    let mut names = vec![t.name, t.name.kin()];
                    names.dedup();
                    let records = names.into_iter().map(|name| {
                        let key = Key {
                            on: self.on.clone(),
                            executable: executable.clone(),
                            name,
                        };
                        memory.find(&key).map_or(Record::New(key), Record::Known)
                    });
                    let records: Vec<Record> = records.collect();
                    // what earlier runs say, before this one is among them
                    t.recall_first(memory, &records, now);
                    for (which, c, known) in t.not_own() {
                        if known.is_some() {
                            self.inner.expect(found.thread, metric(which, c), known);
                        }
                    }
                    for c in 0..self.core_types.saturating_sub(1) {
                        let shown = shown_before(memory, &records, c, now);
                        if shown.is_some() {
                            let of = CoreTypeId(c as u8); // below MAX_CORE_TYPES
                            self.inner.expect_shown(found.thread, of, shown);
                        }
                    }
                    for id in records.iter().filter_map(Record::known) {
                        memory.meet(id, found.app, now);
                    }
                    Bound::To(records)
                }
            };
        }
    }

    /// What the inner provider knows of a thread that ran.
    fn fresh(&self, key: ThreadKey, which: usize, c: usize) -> Option<Estimate> {
        let e = match which {
            SHOWN => self.inner.shown(key, CoreTypeId(c as u8)), // below MAX_CORE_TYPES
            _ => self.inner.estimate(key, metric(which, c)),
        }?;
        (e.quality < Quality::Partial && e.value.is_finite()).then_some(e)
    }

    fn take_thread(&mut self, s: &ThreadSample, memory: &mut Memory, now: u64) {
        let Some(t) = self.threads.get_mut(s.key) else {
            return;
        };
        if !t.met || t.name != s.program() {
            // an exec makes it another program
            *t = Thread {
                name: s.program(),
                runtime: t.runtime,
                began: s.runtime.iter().copied().sum(),
                met: true,
                ..Thread::default()
            };
            if let Some(id) = memory.of_name(&self.on, s.program()) {
                t.recall(memory, id, now);
                t.by_name = true;
            }
        }
        if t.runtime == s.runtime {
            return;
        }
        t.runtime = s.runtime;
        if matches!(t.bound, Bound::Unknown) && self.identify.ask(s) {
            t.bound = Bound::Asked;
        }
        let slowest = self.core_types.saturating_sub(1);
        for which in [0, 1, SHOWN] {
            for c in 0..slowest {
                let Some(e) = self.fresh(s.key, which, c) else {
                    continue;
                };
                let Some(t) = self.threads.get_mut(s.key) else {
                    return;
                };
                if let Some(own) = t.own.get_mut(which) {
                    own[c] = true;
                }
                let Some(u) = e.uncertainty else {
                    continue;
                };
                let Bound::To(records) = &mut t.bound else {
                    continue;
                };
                records.retain_mut(|record| {
                    if let Record::New(key) = record {
                        let Some(id) = memory.enter(key, now) else {
                            return false;
                        };
                        memory.meet(id, s.app, now);
                        *record = Record::Known(id);
                    }
                    true
                });
                for id in records.iter().filter_map(Record::known) {
                    memory.learn(id, (which, c), (e.value, u), now);
                }
            }
        }
    }

    fn recalled(&self, thread: ThreadKey, which: usize, c: usize) -> Option<(Estimate, bool)> {
        let t = self.threads.get(thread)?;
        let ran = t.runtime.iter().copied().sum::<Nanos>();
        if *t.own.get(which)?.get(c)? || ran.saturating_sub(t.began) > TRUSTED_FOR {
            return None;
        }
        let known = (*t.recalled.get(which)?.get(c)?)?;
        Some((known, t.by_name))
    }
}

impl Thread {
    /// Of the first of them that is in the memory.
    fn recall_first(&mut self, memory: &Memory, records: &[Record], now: u64) {
        if let Some(id) = records.iter().find_map(Record::known) {
            self.recall(memory, id, now);
        }
    }

    /// What is remembered of the factors of which the inner provider had nothing fresh.
    fn not_own(&self) -> Vec<(usize, usize, Option<Estimate>)> {
        let all = (0..2).flat_map(|which| (0..MAX_CORE_TYPES).map(move |c| (which, c)));
        let rest = all.filter(|(which, c)| !self.own[*which][*c]);
        rest.map(|(which, c)| (which, c, self.recalled[which][c]))
            .collect()
    }

    fn recall(&mut self, memory: &Memory, id: u64, now: u64) {
        for (which, row) in self.recalled.iter_mut().enumerate() {
            for (c, cell) in row.iter_mut().enumerate() {
                *cell = memory.recall(id, which, c, now);
            }
        }
    }
}

/// What moves of this very program have shown of its factor on core type `c`: what others of its name did is none of it.
fn shown_before(memory: &Memory, records: &[Record], c: usize, now: u64) -> Option<Estimate> {
    memory.recall(records.first()?.known()?, SHOWN, c, now)
}

/// The metric that factor `which` of a program is on core type `c`.
fn metric(which: usize, c: usize) -> MetricId {
    let c = CoreTypeId(c as u8);
    match which {
        0 => MetricId::SpeedupFactor(c),
        _ => MetricId::EfficiencyFactor(c),
    }
}

impl Provider for Lasting {
    /// That of the inner provider: what the estimates rest on.
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(&*self.inner)
    }

    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        self.inner.event_sets(pmus)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.inner.observe(snapshot);
        self.threads.keep(snapshot, |_| Thread::default());
        let now = (self.clock)();
        let memory = self.memory.clone();
        let mut memory = memory.lock();
        self.take_findings(&mut memory, now);
        for s in &snapshot.threads {
            self.take_thread(s, &mut memory, now);
        }
        if memory.forgotten() != self.forgotten {
            self.forgotten = memory.forgotten();
            for s in &snapshot.threads {
                let Some(t) = self.threads.get_mut(s.key) else {
                    continue;
                };
                t.recalled = Default::default();
                if let Bound::To(records) = std::mem::take(&mut t.bound) {
                    t.recall_first(&memory, &records, now);
                    t.bound = Bound::To(records);
                }
                let records = match &t.bound {
                    Bound::To(records) => records.as_slice(),
                    _ => &[],
                };
                let shown = |c| shown_before(&memory, records, c, now);
                let shown: Vec<_> = (0..MAX_CORE_TYPES).map(shown).collect();
                for (which, c, known) in t.not_own() {
                    self.inner.expect(s.key, metric(which, c), known);
                }
                for (c, known) in (0..).zip(shown) {
                    self.inner.expect_shown(s.key, CoreTypeId(c), known);
                }
            }
        }
    }

    fn estimate(&self, thread: ThreadKey, of: MetricId) -> Option<Estimate> {
        let said = self.inner.estimate(thread, of);
        let (which, c) = match of {
            MetricId::SpeedupFactor(c) => (0, c),
            MetricId::EfficiencyFactor(c) => (1, c),
            MetricId::Ipc(_) => return said,
        };
        // the mean of a program's phases says less than the last of them, if it was measured
        if said.is_some_and(|e| e.quality < Quality::Partial)
            || self.inner.health() != Health::Working
        {
            return said;
        }
        let Some((known, by_name)) = self.recalled(thread, which, c.index()) else {
            return said;
        };
        match said {
            Some(e) if by_name && e.quality != Quality::Partial => said,
            _ => Some(known),
        }
    }
}

#[cfg(test)]
mod tests;
