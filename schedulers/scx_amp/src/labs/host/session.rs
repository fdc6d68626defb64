//! One run of a mix: every application starts together, one that ends is started again, and the run
//! is over when each has completed often enough.

use super::apps::{wait_any, Launcher, Process, Program};
use super::passes::{Begun, InstructionCounter};
use super::where_ran::{PerType, WhereRan};
use crate::bench::Interrupted;
use crate::recording::Recording;
use crate::scheduling::Scheduling;
use amp_eval::evaluation::{Pass, Progress};
use amp_host::clock;
use amp_metrics::Nanos;
use amp_sched::engine::AppTick;
use amp_sched::{MachineError, Topology};
use anyhow::{bail, Result};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Who schedules while the programs run.
pub enum Under<'a> {
    /// The kernel's own scheduler.
    Kernel(&'a Topology),
    /// A policy of ours.
    Policy(Box<Recorded>),
}

/// A policy of ours at work, and the recording of what it does, if there is one.
pub struct Recorded {
    scheduling: Scheduling,
    recording: Option<Recording>,
}

impl Recorded {
    /// Nothing has happened yet.
    pub fn new(scheduling: Scheduling, recording: Option<Recording>) -> Recorded {
        Recorded {
            scheduling,
            recording,
        }
    }

    /// One tick of the engine, of which `read` makes what is asked for.
    ///
    /// # Errors
    /// When the kernel has ended the scheduler.
    pub fn tick<T>(&mut self, read: impl FnOnce(&[AppTick]) -> T) -> Result<T, MachineError> {
        let out = read(self.scheduling.tick()?.apps);
        if let Some(recording) = &mut self.recording {
            recording.tick(&self.scheduling);
        }
        Ok(out)
    }

    /// What is due now: a tick as [`Recorded::tick`], or a glance, of which there is nothing to read.
    fn call<T>(
        &mut self,
        interval: Nanos,
        read: impl FnOnce(&[AppTick]) -> T,
    ) -> Result<Option<T>, MachineError> {
        let out = self.scheduling.call(interval)?.map(|t| read(t.apps));
        if let Some(recording) = &mut self.recording {
            recording.called(&self.scheduling, out.is_some());
        }
        Ok(out)
    }
}

/// Rules of a run of the mix.
pub struct Rules<'a> {
    /// Completions of each application that end the run.
    pub completions: usize,
    /// Time between two ticks of the engine (or two looks at `/proc`).
    pub interval: Nanos,
    /// The longest it may take.
    pub limit: Nanos,
    /// Set when the user wants to stop.
    pub cancel: &'a AtomicBool,
    /// Core types of the machine.
    pub core_types: usize,
    /// Counts instructions of the programs, where nobody else needs the counters.
    pub counter: Option<&'a InstructionCounter>,
}

/// What one interval saw.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Its bounds, from the start of the run.
    pub from: Nanos,
    /// End of the interval.
    pub to: Nanos,
    /// CPU time per application and core type.
    pub ran: Vec<PerType>,
}

/// What a run yielded.
#[derive(Clone, Debug, Default)]
pub struct MixRun {
    /// The passes that each application finished, in the order of the programs.
    pub finished: Vec<Vec<Pass>>,
    /// The pass of each that the end of the run cut off, if there was one.
    pub cut_off: Vec<Option<Pass>>,
    /// Interval by interval.
    pub slices: Vec<Slice>,
    /// Length of the run.
    pub took: Nanos,
    /// Threads moved from one core type to another by the policy.
    pub swaps: u64,
}

/// A program at work.
struct Running {
    process: Process,
    pass: Begun,
}

/// Runs the mix once, starting the programs in `order` (indices into `programs`), and calls
/// `each_interval` after every look at who ran where.
///
/// # Errors
/// When a program cannot be started or fails, the kernel ends the scheduler, the time is up, or the
/// user interrupts ([`Interrupted`]). Every program has been killed and reaped then.
pub fn run(
    programs: &[Program],
    order: &[usize],
    launcher: &Launcher,
    rules: &Rules<'_>,
    under: &mut Under<'_>,
    each_interval: &mut dyn FnMut() -> Result<()>,
) -> Result<MixRun> {
    let mut running: Vec<Option<Running>> = programs.iter().map(|_| None).collect();
    let types = rules.core_types;
    let mut out = MixRun {
        finished: vec![Vec::new(); programs.len()],
        ..MixRun::default()
    };
    let mut where_ran = WhereRan::default();
    let start = clock::now();
    let swaps_before = under.swaps();
    let mut to_start = order.iter();
    let mut last_tick = start;
    // by the look after which they ended: who was seen by the last one is told of at the next
    let mut ended = [Vec::new(), Vec::new()];
    loop {
        if rules.cancel.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        // one at a time: a start takes many milliseconds on a slow machine, and the scheduler goes on meanwhile
        let starts = to_start.next();
        if let Some(&i) = starts {
            running[i] = Some(under.start(i, &programs[i], launcher, rules)?);
            under.notice(rules.interval);
        }
        let now = clock::now();
        if now.saturating_sub(start) > rules.limit {
            let slow: Vec<&str> = programs
                .iter()
                .zip(&out.finished)
                .filter(|(_, c)| c.len() < rules.completions)
                .map(|(p, _)| p.name.as_str())
                .collect();
            bail!(
                "no end after {:.0} s: still short of {} completions: {}",
                rules.limit.as_secs_f64(),
                rules.completions,
                slow.join(", ")
            );
        }
        for i in 0..programs.len() {
            let Some(r) = &mut running[i] else { continue };
            if !r.process.ended()? {
                continue;
            }
            out.finished[i].push(r.pass.pass(types));
            ended[1].push((i, r.process.pid()));
            running[i] = None;
            if out.finished.iter().any(|c| c.len() < rules.completions) {
                running[i] = Some(under.start(i, &programs[i], launcher, rules)?);
            }
        }
        let done = out.finished.iter().all(|c| c.len() >= rules.completions);
        let pids: Vec<Option<i32>> = running
            .iter()
            .map(|r| r.as_ref().map(|r| r.process.pid()))
            .collect();
        let who = Processes {
            present: &pids,
            ended: &ended,
        };
        let looked = if done {
            Some(under.tick(&mut where_ran, &who)?)
        } else if now >= under.due(last_tick, rules.interval) {
            under.call(&mut where_ran, &who, rules.interval)?
        } else {
            None
        };
        if let Some(Looked {
            mut ran,
            ended: before,
        }) = looked
        {
            for (r, ran) in running.iter_mut().zip(&ran) {
                if let Some(r) = r {
                    r.pass.ran(ran, now);
                }
            }
            // to the program, for the pass that is over has its time already
            for (ran, more) in ran.iter_mut().zip(&before) {
                for (sum, r) in ran.iter_mut().zip(more) {
                    *sum += *r;
                }
            }
            ended.rotate_left(1);
            ended[1].clear();
            each_interval()?;
            let (from, to) = (last_tick.saturating_sub(start), now.saturating_sub(start));
            out.slices.push(Slice { from, to, ran });
            last_tick = now;
        }
        if done {
            break;
        }
        if starts.is_some() {
            continue;
        }
        let next = under.due(last_tick, rules.interval);
        let wait = Duration::from_nanos(next.saturating_sub(clock::now()).0);
        let processes = running.iter().flatten().map(|r| r.process.as_fd());
        let news: Vec<BorrowedFd<'_>> = processes.chain(under.wakes()).collect();
        wait_any(news.iter(), wait)?;
        under.notice(rules.interval);
    }
    let cut_off = |r: &mut Option<Running>| r.as_mut().map(|r| r.pass.pass(types));
    out.cut_off = running.iter_mut().map(cut_off).collect();
    out.took = clock::now().saturating_sub(start);
    out.swaps = under.swaps() - swaps_before;
    Ok(out)
}

/// The processes of the programs.
struct Processes<'a> {
    /// The present one of each program.
    present: &'a [Option<i32>],
    /// Those that ended lately, with the index of their program.
    ended: &'a [Vec<(usize, i32)>; 2],
}

/// What the programs ran since the last look.
struct Looked {
    /// Their present processes.
    ran: Vec<PerType>,
    /// Processes that ended before; empty where nobody knows.
    ended: Vec<PerType>,
}

impl Processes<'_> {
    fn of_ticks(&self, ticks: &[AppTick]) -> Looked {
        let ended = self.ended.iter().flatten();
        Looked {
            ran: WhereRan::of_ticks(ticks, self.present),
            ended: WhereRan::of_ended(ticks, self.present.len(), ended),
        }
    }
}

impl Under<'_> {
    fn start(
        &mut self,
        app: usize,
        program: &Program,
        launcher: &Launcher,
        rules: &Rules<'_>,
    ) -> Result<Running> {
        let process = launcher.start(program, program.cpus.as_deref())?;
        if let Under::Policy(p) = self {
            p.scheduling.app_started(app, process.pid());
        }
        let pass = Begun::new(process.pid(), process.started, rules.counter);
        Ok(Running { process, pass })
    }

    fn tick(&mut self, seen: &mut WhereRan, who: &Processes<'_>) -> Result<Looked> {
        match self {
            Under::Kernel(topology) => Ok(Looked {
                ran: seen.look_up(topology, who.present),
                ended: Vec::new(),
            }),
            Under::Policy(p) => Ok(p.tick(|apps| who.of_ticks(apps))?),
        }
    }

    /// A file that is readable when threads have come.
    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Under::Kernel(_) => None,
            Under::Policy(p) => Some(p.scheduling.wakes()),
        }
    }

    /// Takes note of threads that have come.
    fn notice(&mut self, interval: Nanos) {
        if let Under::Policy(p) = self {
            p.scheduling.notice(interval);
        }
    }

    /// When the next look at the programs is due, `last` being the time of the last.
    fn due(&self, last: Nanos, interval: Nanos) -> Nanos {
        match self {
            Under::Kernel(_) => last + interval,
            Under::Policy(p) => p.scheduling.due(interval),
        }
    }

    /// What is due; `None` where nothing is told of who ran.
    fn call(
        &mut self,
        seen: &mut WhereRan,
        who: &Processes<'_>,
        interval: Nanos,
    ) -> Result<Option<Looked>> {
        match self {
            Under::Kernel(_) => self.tick(seen, who).map(Some),
            Under::Policy(p) => Ok(p.call(interval, |apps| who.of_ticks(apps))?),
        }
    }

    fn swaps(&self) -> u64 {
        match self {
            Under::Kernel(_) => 0,
            Under::Policy(p) => p.scheduling.swaps(),
        }
    }
}

/// Time between two looks at how many instructions a program alone has retired.
const LOOK: Duration = Duration::from_millis(20);

/// Runs one program alone on `cpus` and returns how long it took, and its course where `rules` has a
/// counter.
///
/// # Errors
/// As [`run`].
pub fn solo(
    program: &Program,
    cpus: Option<&[u32]>,
    launcher: &Launcher,
    rules: &Rules<'_>,
) -> Result<(Nanos, Option<Progress>)> {
    let mut r = launcher.start(program, cpus)?;
    let mut pass = Begun::new(r.pid(), r.started, rules.counter);
    let started = r.started;
    let age = || clock::now().saturating_sub(started);
    let mut looks = Vec::new();
    while !r.ended()? {
        if rules.cancel.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        if age() > rules.limit {
            bail!(
                "app `{}` alone: no end after {:.0} s",
                program.name,
                age().as_secs_f64()
            );
        }
        let wait = match pass.instructions() {
            Some(instructions) => {
                looks.push((instructions, age().as_secs_f64()));
                LOOK
            }
            None => Duration::from_millis(500),
        };
        wait_any(std::iter::once(&r), wait)?;
    }
    let took = age();
    let end = pass.instructions().map(|all| (all, took.as_secs_f64()));
    looks.extend(end);
    // without its end a course is none
    Ok((took, end.and_then(|_| Progress::of(&looks))))
}
