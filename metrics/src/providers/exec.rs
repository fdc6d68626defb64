//! A provider in a program of its own, fed samples as JSON lines (protocol:
//! `docs/reference/exec-provider.md`).
//!
//! The scheduler never waits for it: lines go through a bounded queue to a thread that writes,
//! answers come from a thread that starts the program and reads. A tick takes in so many and no
//! more, and each must be for a later sample than the last. A program that ends, says what is no
//! answer, or says nothing, is ended with its process group and started again after a pause that
//! doubles; until it answers there are no estimates.

mod child;
mod confined;
mod protocol;
mod trusted;

pub use protocol::PROTOCOL;

use super::threads::Threads;
use crate::estimate::{Estimate, Quality};
use crate::event::{EventError, EventSet, EventSets, EventSpec};
use crate::ids::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::pmu::Pmus;
use crate::provider::{Health, MetricId, Provider};
use crate::sample::Snapshot;
use child::{Running, QUEUE};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// First pause before a restart, and the longest.
const PAUSE: (Nanos, Nanos) = (Nanos(500_000_000), Nanos(60_000_000_000));

/// Estimates that a tick takes in: once there are as many, the answers that wait do so until the
/// next tick.
const ENOUGH: usize = 1 << 16;
/// Answers in a row after which a program counts as sound, and its next pause is the first again.
const SOUND: u32 = 8;

/// A provider file of kind `exec`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecFile {
    #[allow(dead_code)] // dispatched on by whoever reads provider files
    kind: String,
    /// Program and arguments. No shell is involved. A program with a `/` in it is looked up from
    /// the file's folder.
    command: Vec<String>,
    /// Events to count on every core type, by turns if there are several sets; instructions and
    /// cycles are always there.
    #[serde(default)]
    event_set: Vec<BTreeMap<String, EventSpec>>,
    /// Without an answer to any sample for so long, the program counts as silent, milliseconds.
    #[serde(default = "default_silence")]
    silence_ms: u64,
    /// Estimates older than this are stale, milliseconds.
    #[serde(default = "default_stale")]
    stale_after_ms: u64,
}

fn default_silence() -> u64 {
    2000
}

fn default_stale() -> u64 {
    5000
}

#[derive(Clone, Copy, Debug)]
struct Said {
    value: f64,
    uncertainty: Option<f64>,
    at: Nanos,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    /// Speedup, efficiency, IPC; per core type.
    said: [[Option<Said>; MAX_CORE_TYPES]; 3],
}

fn place(metric: MetricId) -> (usize, usize) {
    match metric {
        MetricId::SpeedupFactor(t) => (0, t.index()),
        MetricId::EfficiencyFactor(t) => (1, t.index()),
        MetricId::Ipc(t) => (2, t.index()),
    }
}

/// The provider.
pub struct Exec {
    name: String,
    command: Vec<String>,
    specs: Vec<Vec<(String, EventSpec)>>,
    silence: Nanos,
    stale_after: Nanos,
    sets: EventSets,
    core_types: usize,
    turn: usize,
    user: Option<(u32, u32)>,
    running: Option<Running>,
    /// When the program was asked first without having answered since.
    asked: Option<Nanos>,
    failed: Option<String>,
    retry_at: Nanos,
    pause: Nanos,
    /// Number of the last sample that was passed on.
    seq: u64,
    /// The last one that was answered.
    answered: u64,
    /// Answers since the start of the program, up to [`SOUND`].
    answers: u32,
    threads: Threads<Thread>,
    now: Nanos,
}

impl std::fmt::Debug for Exec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exec")
            .field("command", &self.command)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Exec {
    /// Whether a line of a program is an answer: for `amp-fuzz`.
    #[doc(hidden)]
    pub fn understands(line: &str) -> bool {
        protocol::Answer::parse(line).is_ok()
    }

    /// The provider that runs the program of this file, which lies in `folder`. The program is
    /// started with the first interval.
    ///
    /// # Errors
    /// Names the key that is not right.
    pub fn new(name: &str, file: ExecFile, folder: Option<&Path>) -> Result<Exec, String> {
        let Some(program) = file.command.first().filter(|p| !p.is_empty()) else {
            return Err(
                "key `command`: name at least the program, such as [\"./estimate.py\"]".to_owned(),
            );
        };
        let mut command = file.command.clone();
        let path = PathBuf::from(program);
        if path.is_relative() && program.contains('/') {
            command[0] = folder
                .unwrap_or(Path::new("."))
                .join(path)
                .display()
                .to_string();
        }
        if file.silence_ms == 0 {
            return Err("key `silence_ms`: 0 leaves no time to answer".to_owned());
        }
        let mut specs = Vec::new();
        let none = vec![BTreeMap::new()];
        for set in if file.event_set.is_empty() {
            &none
        } else {
            &file.event_set
        } {
            let mut events = Vec::new();
            for key in ["instructions", "cycles"] {
                let spec = match set.get(key) {
                    Some(s) => s.clone(),
                    None => key.parse().map_err(|e: EventError| e.to_string())?,
                };
                events.push((key.to_owned(), spec));
            }
            let others = set
                .iter()
                .filter(|(k, _)| *k != "instructions" && *k != "cycles");
            events.extend(others.map(|(k, s)| (k.clone(), s.clone())));
            specs.push(events);
        }
        Ok(Exec {
            name: name.to_owned(),
            command,
            specs,
            silence: Nanos::from_millis(file.silence_ms),
            stale_after: Nanos::from_millis(file.stale_after_ms),
            sets: EventSets::default(),
            core_types: 0,
            turn: 0,
            user: None,
            running: None,
            asked: None,
            failed: None,
            retry_at: Nanos::ZERO,
            pause: PAUSE.0,
            seq: 0,
            answered: 0,
            answers: 0,
            threads: Threads::default(),
            now: Nanos::ZERO,
        })
    }

    /// The program is to run as this user and group, not as the scheduler's: a scheduler runs as
    /// root, and has no need for its estimates to.
    #[must_use]
    pub fn run_as(mut self, user: Option<(u32, u32)>) -> Exec {
        self.user = user;
        self
    }

    fn fail(&mut self, why: &str) {
        self.running = None;
        self.threads = Threads::default();
        let program = self.command.first().map_or("", String::as_str);
        let pause = self.pause.as_secs_f64();
        self.failed = Some(format!(
            "{program}: {why}; it is started again after {pause} s"
        ));
        self.retry_at = self.now + self.pause;
        self.pause = Nanos(self.pause.0.saturating_mul(2)).min(PAUSE.1);
    }

    fn take_answers(&mut self) -> Result<(), String> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        let mut estimates = 0;
        for _ in 0..QUEUE {
            let Some(answer) = running.said()? else {
                break;
            };
            if answer.seq > self.seq {
                return Err(format!(
                    "it answered sample {}, the last one is {}",
                    answer.seq, self.seq
                ));
            }
            if answer.seq <= self.answered {
                return Err(format!(
                    "it answered sample {}; those up to {} are answered already",
                    answer.seq, self.answered
                ));
            }
            self.answered = answer.seq;
            for e in &answer.estimates {
                let (kind, t) = place(e.metric()?);
                // a thread that has ended meanwhile is no error
                if let Some(thread) = self.threads.get_mut(e.thread()) {
                    thread.said[kind][t] = Some(Said {
                        value: e.value,
                        uncertainty: e.u,
                        at: self.now,
                    });
                }
            }
            self.asked = None;
            self.failed = None;
            self.answers = (self.answers + 1).min(SOUND);
            if self.answers == SOUND {
                self.pause = PAUSE.0;
            }
            estimates += answer.estimates.len();
            if estimates >= ENOUGH {
                break;
            }
        }
        Ok(())
    }

    fn step(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        if self.running.is_none() {
            if self.now < self.retry_at {
                return Ok(());
            }
            let running = Running::start(&self.command, self.user)?;
            running.tell(protocol::hello(&self.sets, self.core_types)?);
            self.running = Some(running);
            self.asked = None;
            // what was passed on before was passed to another
            self.answered = self.seq;
            self.answers = 0;
        }
        self.take_answers()?;
        self.seq += 1;
        if let Some(running) = &self.running {
            running.tell(protocol::sample(self.seq, snapshot, &self.sets)?);
        }
        let since = *self.asked.get_or_insert(self.now);
        if self.now.saturating_sub(since) > self.silence {
            let ms = self.silence.0 / 1_000_000;
            return Err(format!("it has said nothing for {ms} ms"));
        }
        Ok(())
    }

    /// Waits until the program has answered all there is to answer or `patience` is over, and takes
    /// the answers in. For tests and for offline use; a scheduler must not wait.
    pub fn wait(&mut self, patience: Duration) {
        let step = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        while waited < patience {
            std::thread::sleep(step);
            waited += step;
            if let Err(why) = self.take_answers() {
                self.fail(&why);
            }
            if self.running.is_none() || self.asked.is_none() {
                return;
            }
        }
    }
}

impl Provider for Exec {
    fn name(&self) -> &str {
        &self.name
    }

    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        let mut sets = EventSets::default();
        for t in pmus.core_types() {
            for events in &self.specs {
                let events = events.iter().map(|(n, s)| Ok(pmus.resolve(t, s)?.named(n)));
                sets.push(
                    t,
                    EventSet {
                        events: events.collect::<Result<_, EventError>>()?,
                    },
                );
            }
        }
        self.core_types = pmus.core_types().count();
        self.sets = sets.clone();
        Ok(sets)
    }

    fn active_set(&self, _t: CoreTypeId) -> usize {
        self.turn % self.specs.len().max(1)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.now = snapshot.now;
        self.turn = self.turn.wrapping_add(1);
        self.threads.keep(snapshot, |_| Thread::default());
        if let Err(why) = self.step(snapshot) {
            self.fail(&why);
        }
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let (kind, t) = place(metric);
        let said = (*self.threads.get(thread)?.said.get(kind)?.get(t)?)?;
        let age = self.now.saturating_sub(said.at);
        Some(Estimate {
            value: said.value,
            uncertainty: said.uncertainty,
            age,
            quality: if age > self.stale_after {
                Quality::Stale
            } else {
                Quality::Multiplexed
            },
        })
    }

    fn health(&self) -> Health {
        match &self.failed {
            Some(why) => Health::Failed(why.clone()),
            None => Health::Working,
        }
    }
}

#[cfg(test)]
mod tests;
