//! One run of a program: started on one CPU, read every few milliseconds, cut into windows.

use super::energy::Meter;
use crate::bench::apps::on_cpus;
use crate::pmc::target::{Held, Target};
use amp_metrics::group::{Group, GroupError, Whom};
use amp_metrics::windows::Cutter;
use amp_metrics::Event;
use amp_models::journal::Counted;
use amp_models::programs::Program;
use anyhow::{Context, Result};
use rustix::process::{kill_process_group, Pid, Resource, Signal};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Most windows of a run; a program that has more is cut off there.
const MOST_WINDOWS: usize = 100_000;

/// Why there is no run.
pub enum Failed {
    /// The program's own fault: others may go on.
    Program(String),
    /// The machine's.
    Machine(anyhow::Error),
}

impl From<anyhow::Error> for Failed {
    fn from(e: anyhow::Error) -> Failed {
        Failed::Machine(e)
    }
}

impl From<GroupError> for Failed {
    fn from(e: GroupError) -> Failed {
        Failed::Machine(e.into())
    }
}

/// How programs are run.
pub struct Rules<'a> {
    /// Their working directory.
    pub workdir: PathBuf,
    /// User and group they run as; ours when `None`.
    pub user: Option<(u32, u32)>,
    /// Instructions in a window.
    pub window: NonZeroU64,
    /// Time between two readings.
    pub sample: Duration,
    /// The longest a run may take.
    pub limit: Duration,
    /// Set when the user wants to stop.
    pub cancel: &'a AtomicBool,
}

/// What was counted.
pub struct Ran {
    /// Instructions in all.
    pub instructions: u64,
    /// Complete windows.
    pub windows: Vec<Counted>,
}

/// Kills what is left of a program.
struct Group9(Option<Pid>);

impl Drop for Group9 {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // it may be gone
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Runs `program` once on `cpu`, counting `events`: instructions, cycles and others.
///
/// # Errors
/// [`Failed`]: the program's failure with its last words, or why nothing can be counted.
pub fn run(
    program: &Program,
    cpu: u32,
    events: &[Event],
    meter: &mut Meter,
    rules: &Rules<'_>,
) -> Result<Ran, Failed> {
    let mut errors = tempfile::tempfile().context("cannot create a temporary file")?;
    let cmd = command(program, rules, &errors).context("cannot create a temporary file")?;
    let held = on_cpus(&[cpu], || Held::of(cmd))?;
    let held = held.map_err(|e| Failed::Program(format!("{e:#}")))?;
    let pid = held.pid();
    let mut group = Group::open_at_once(events, Whom::Task(pid), true)?;
    let mut cutter = Cutter::new(rules.window);
    let mut counted = Counting {
        instructions: 0,
        windows: Vec::new(),
        energy: meter.joules(cpu)?.map(|_| 0.0),
        events: events.len() - 2,
    };
    counted.take(&mut group, &mut cutter)?;
    let began = Instant::now();
    // declared before the process is known to run: on any way out its group is killed, and then waited for
    let _group = Group9(Pid::from_raw(pid));
    let running = held
        .release()
        .map_err(|e| Failed::Program(format!("{e:#}")))?;
    let target = Target::Command(running);
    let mut next = began;
    loop {
        next += rules.sample;
        let ended = target.wait(Some(next))?;
        if let (Some(sum), Some(more)) = (&mut counted.energy, meter.joules(cpu)?) {
            *sum += more;
        }
        counted.take(&mut group, &mut cutter)?;
        if ended {
            break;
        }
        if rules.cancel.load(Ordering::Relaxed) {
            return Err(Failed::Machine(super::here::Interrupted.into()));
        }
        if began.elapsed() > rules.limit {
            let limit = rules.limit.as_secs();
            return Err(Failed::Program(format!(
                "has not ended after {limit} s (--timeout)"
            )));
        }
        next = next.max(Instant::now());
    }
    let instructions = counted.instructions;
    let Target::Command(running) = target else {
        return Err(Failed::Machine(anyhow::anyhow!("no command")));
    };
    match running.status()? {
        0 => {}
        s => {
            return Err(Failed::Program(format!(
                "ended with status {s}{}",
                last_words(&mut errors)
            )))
        }
    }
    if counted.windows.is_empty() {
        return Err(Failed::Program(format!(
            "retired {instructions} instructions, a window has {}",
            rules.window
        )));
    }
    Ok(Ran {
        instructions,
        windows: counted.windows,
    })
}

/// What was counted so far.
struct Counting {
    /// Retired in all.
    instructions: u64,
    windows: Vec<Counted>,
    /// Joules, where somebody counts them.
    energy: Option<f64>,
    events: usize,
}

impl Counting {
    /// Takes a reading.
    fn take(&mut self, group: &mut Group, cutter: &mut Cutter) -> Result<(), Failed> {
        let now = match group.read() {
            // the next one has all of it
            Err(e) if e.is_passing() => return Ok(()),
            other => other?,
        };
        let Some((instructions, others)) = now.counts.split_first() else {
            return Ok(());
        };
        let mut counts = others.to_vec();
        counts.push(now.running.as_nanos() as u64);
        // nanojoules
        counts.extend(self.energy.map(|j| (j * 1e9) as u64));
        self.instructions = *instructions;
        let (windows, events) = (&mut self.windows, self.events);
        cutter.read(0, *instructions, &counts, |w| {
            let (Some(cycles), Some(time)) = (w.counts.first(), w.counts.get(1 + events)) else {
                return;
            };
            if windows.len() < MOST_WINDOWS {
                windows.push(Counted(
                    w.instructions,
                    (*cycles).max(1),
                    (*time).max(1),
                    w.counts.get(2 + events).map(|nj| *nj as f64 * 1e-9),
                    w.counts.get(1..1 + events).unwrap_or_default().to_vec(),
                ));
            }
        });
        Ok(())
    }
}

fn command(program: &Program, rules: &Rules<'_>, errors: &File) -> Result<Command> {
    let (exe, args) = program.command.split_first().context("an empty command")?;
    let mut cmd = Command::new(exe);
    cmd.args(args).current_dir(&rules.workdir).process_group(0);
    // the same on every machine, and short: the environment is copied to the stack, whose layout counts
    cmd.env_clear();
    for name in ["PATH", "HOME"] {
        cmd.env(name, std::env::var_os(name).unwrap_or_default());
    }
    cmd.env("LC_ALL", "C");
    cmd.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors.try_clone()?);
    if let Some((uid, gid)) = rules.user {
        cmd.uid(uid).gid(gid);
    }
    let seconds = rules.limit.as_secs().saturating_add(1);
    // SAFETY: between fork and exec the closure only makes system calls, which is async-signal-safe; it allocates
    // nothing and takes no lock.
    unsafe {
        cmd.pre_exec(move || {
            // The same addresses in every run: with them go cache conflicts and collisions in the branch predictor.
            // A kernel without it, or one that does not let us, gives runs that differ more.
            libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            // should we be killed, it ends by itself
            let mut limit = rustix::process::getrlimit(Resource::Cpu);
            limit.current = Some(limit.maximum.map_or(seconds, |m| m.min(seconds)));
            Ok(rustix::process::setrlimit(Resource::Cpu, limit)?)
        });
    }
    Ok(cmd)
}

fn last_words(errors: &mut File) -> String {
    let mut text = Vec::new();
    let from = errors.metadata().map_or(0, |m| m.len().saturating_sub(500));
    let read = errors
        .seek(SeekFrom::Start(from))
        .and_then(|_| errors.take(500).read_to_end(&mut text));
    match read {
        Ok(n) if n > 0 => format!(
            ": {}",
            String::from_utf8_lossy(&text).trim().replace('\n', " | ")
        ),
        _ => String::new(),
    }
}
