//! A provider in a program of its own, fed samples as JSON lines (protocol:
//! `docs/reference/exec-provider.md`).
//!
//! The scheduler never waits for it: lines go through a bounded queue to a thread that writes,
//! answers come from a thread that starts the program and reads. A tick takes in so many and no
//! more, and each must be for a later sample than the last. A program that ends, says what is no
//! answer, or says nothing, is ended with its process group and started again after a pause that
//! doubles; until it answers there are no estimates.

mod child;
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
        self.threads.keep(snapshot, Thread::default);
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
mod tests {
    use super::*;
    use crate::providers::testing::{key, readings, snapshot};

    const SF: MetricId = MetricId::SpeedupFactor(CoreTypeId(0));

    /// A program in the shell's language, which is read line by line.
    fn provider(script: &str) -> Exec {
        let text = format!(
            "kind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", {script:?}]\nsilence_ms = 300\n"
        );
        let mut p = Exec::new("p.toml", toml::from_str(&text).unwrap(), None).unwrap();
        p.event_sets(&Pmus::generic(&[vec![0], vec![1]], 4))
            .unwrap();
        p
    }

    fn interval(p: &mut Exec, ms: u64) {
        p.observe(&snapshot(
            ms,
            &[1, 2],
            vec![readings(1, 0, 0, 100, &[2000, 1000])],
        ));
        p.wait(Duration::from_secs(30));
    }

    /// Answers the hello with nothing and each sample with `answer`, in which N is its number.
    fn answering(answer: &str) -> String {
        format!("read -r hello; n=0; while read -r line; do n=$((n+1)); echo '{answer}' | sed \"s/N/$n/\"; done")
    }

    const HONEST: &str = r#"{"seq":N,"estimates":[{"slot":1,"generation":1,"metric":"sf","core_type":0,"value":2.5,"u":0.1}]}"#;

    #[test]
    fn a_program_that_answers() {
        let mut p = provider(&answering(HONEST));
        interval(&mut p, 0);
        let e = p.estimate(key(1), SF).unwrap();
        assert_eq!((e.value, e.uncertainty), (2.5, Some(0.1)));
        assert_eq!(p.estimate(key(2), SF), None);
        assert_eq!(p.health(), Health::Working);
        interval(&mut p, 6000);
        assert!(p.estimate(key(1), SF).is_some());
    }

    #[test]
    fn crash_garbage_and_lies_fail_and_are_told() {
        let lie = r#"{"seq":N,"estimates":[{"slot":1,"generation":1,"metric":"sf","core_type":0,"value":-1}]}"#;
        for (script, why) in [
            ("exit 3".to_owned(), "ended"),
            (
                "read -r l; echo hello; cat >/dev/null".to_owned(),
                "`hello`",
            ),
            (answering(r#"{"seq":99}"#), "sample 99"),
            (answering(lie), "no estimate"),
            ("read -r l; printf half".to_owned(), "within a line"),
        ] {
            let mut p = provider(&script);
            interval(&mut p, 0);
            let Health::Failed(text) = p.health() else {
                panic!("{script}: working");
            };
            assert!(
                text.contains(why) && text.contains("started again after 0.5 s"),
                "{script}: {text}"
            );
            assert_eq!(p.estimate(key(1), SF), None);
        }
    }

    #[test]
    fn silence_fails_and_a_restart_comes_after_a_growing_pause() {
        let mut p = provider("exec cat >/dev/null");
        for ms in [0, 100, 200, 300] {
            p.observe(&snapshot(ms, &[1], vec![]));
            assert_eq!(p.health(), Health::Working);
        }
        p.observe(&snapshot(400, &[1], vec![]));
        assert!(matches!(p.health(), Health::Failed(t) if t.contains("said nothing for 300 ms")));
        p.observe(&snapshot(800, &[1], vec![]));
        assert!(p.running.is_none(), "the pause is not over");
        p.observe(&snapshot(900, &[1], vec![]));
        assert!(p.running.is_some());
        assert!(matches!(p.health(), Health::Failed(_)), "until it answers");
        p.observe(&snapshot(1300, &[1], vec![]));
        assert!(matches!(p.health(), Health::Failed(t) if t.contains("after 1 s")));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let text = "kind = \"exec\"\ncommand = [\"./no-such\"]\n";
        let mut p = Exec::new(
            "p",
            toml::from_str(text).unwrap(),
            Some(Path::new("/nowhere")),
        )
        .unwrap();
        interval(&mut p, 0);
        assert!(matches!(p.health(), Health::Failed(t) if t.contains("/nowhere/./no-such")));
    }

    /// Bug 1 of the review: a flood of answers kept the scheduler from everything else.
    #[test]
    fn a_flood_of_answers_is_cut_off() {
        // an answer that fills its line, so that reading is slower than writing
        let long = "printf '{\"seq\":0,\"estimates\":['; \
             head -c 3000000 /dev/zero | tr '\\0' ' '; echo ']}'";
        for (script, why) in [
            (
                r#"exec yes '{"seq":0}'"#.to_owned(),
                "sample 0; those up to 0",
            ),
            (
                r#"read -r l; read -r l; exec yes '{"seq":1}'"#.to_owned(),
                "sample 1; those up to 1",
            ),
            (
                format!("while true; do {long}; done"),
                "sample 0; those up to 0",
            ),
            ("exec tr '\\0' x </dev/zero".to_owned(), "too long"),
        ] {
            let mut p = provider(&script);
            p.silence = Nanos::from_millis(1_000_000);
            let begin = std::time::Instant::now();
            while p.failed.is_none() && begin.elapsed() < Duration::from_secs(60) {
                interval(&mut p, 0);
            }
            let Health::Failed(text) = p.health() else {
                panic!("{script}: working");
            };
            assert!(text.contains(why), "{script}: {text}");
            assert!(p.running.is_none());
        }
    }

    #[test]
    fn the_pause_is_short_again_after_several_answers_only() {
        let mut p = provider(&answering(HONEST));
        p.pause = PAUSE.1;
        for n in 1..=SOUND {
            assert_eq!(p.pause, PAUSE.1);
            interval(&mut p, u64::from(n));
        }
        assert_eq!(p.pause, PAUSE.0);
    }

    /// Whether `what` is so within a minute.
    fn soon(mut what: impl FnMut() -> bool) -> bool {
        let begin = std::time::Instant::now();
        while begin.elapsed() < Duration::from_secs(60) {
            if what() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    fn is_there(pid: i32) -> bool {
        // one that has ended, and that nobody has reaped yet, is gone
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|s| !s.rsplit(") ").next().unwrap_or("").starts_with('Z'))
    }

    /// Not a test: what the next one kills.
    #[test]
    #[ignore = "it is run by another test"]
    fn a_scheduler_that_is_killed() {
        let told = std::env::var("PROGRAM_TELLS").unwrap();
        let mut p = provider(&format!("echo $$ >{told}; exec cat >/dev/null"));
        p.observe(&snapshot(0, &[1], vec![]));
        std::thread::sleep(Duration::from_secs(600));
    }

    #[test]
    fn a_program_does_not_outlive_a_scheduler_that_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let told = dir.path().join("pid");
        let mut scheduler = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact"])
            .arg("providers::exec::tests::a_scheduler_that_is_killed")
            .env("PROGRAM_TELLS", &told)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = || -> Option<i32> { std::fs::read_to_string(&told).ok()?.trim().parse().ok() };
        let began = soon(|| pid().is_some());
        scheduler.kill().unwrap();
        scheduler.wait().unwrap();
        assert!(began);
        assert!(soon(|| !is_there(pid().unwrap())));
    }

    fn open_files() -> Vec<PathBuf> {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        all.filter_map(|e| std::fs::read_link(e.path()).ok())
            .collect()
    }

    /// Bug 13 of the review: what the program had started stayed, with it two threads and two
    /// pipes.
    #[test]
    fn nothing_is_left_behind() {
        // one that stays in the group, and one that leaves it and keeps the pipes
        let dir = tempfile::tempdir().unwrap();
        let told = dir.path().join("pids");
        let script = format!(
            "sleep 100 & echo $! >{0}; setsid sh -c 'echo $$ >>{0}; exec sleep 101' 2>/dev/null & \
             echo $$ >>{0}; while read -r line; do :; done",
            told.display()
        );
        let mut p = provider(&script);
        p.observe(&snapshot(0, &[1], vec![]));
        let pids = || -> Vec<i32> {
            let text = std::fs::read_to_string(&told).unwrap_or_default();
            let pids: Vec<i32> = text.lines().filter_map(|l| l.parse().ok()).collect();
            pids
        };
        assert!(soon(|| pids().len() == 3));
        let leader = p.running.as_ref().unwrap().id().unwrap();
        let pipes: Vec<PathBuf> = [0, 1]
            .map(|n| std::fs::read_link(format!("/proc/{leader}/fd/{n}")).unwrap())
            .into();
        assert!(pipes
            .iter()
            .all(|p| p.to_string_lossy().starts_with("pipe:")));
        drop(p);
        assert!(soon(|| !Path::new(&format!("/proc/{leader}")).exists()));
        let left =
            |pids: Vec<i32>| -> Vec<i32> { pids.into_iter().filter(|p| is_there(*p)).collect() };
        assert!(soon(|| left(pids()).len() == 1), "{:?}", left(pids()));
        // whose end of the pipes we do not wait for
        assert!(soon(|| pipes
            .iter()
            .all(|pipe| !open_files().contains(pipe))));
        for pid in left(pids()) {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_raw(pid).unwrap(),
                rustix::process::Signal::KILL,
            );
        }
    }
}
