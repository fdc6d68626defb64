//! One run of a program: started on one CPU, read every few milliseconds, cut into windows.

use amp_host::clock;
use amp_host::launch::{wait_any, Launch, LaunchError};
use amp_metrics::group::{Group, GroupError, Whom};
use amp_metrics::virtual_counters::{EnergyMeter, VirtualError};
use amp_metrics::windows::Cutter;
use amp_metrics::{CoreTypeId, Event};
use amp_models::journal::Counted;
use amp_models::programs::Program;
use anyhow::Result;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest time in one wait: then the user may have interrupted.
const LONGEST: Duration = Duration::from_secs(1);
/// Most windows of a run; a program that has more is cut off there.
const MOST_WINDOWS: usize = 100_000;

/// Why there is no run.
pub enum Failed {
    /// The program's own fault: others may go on.
    Program(String),
    /// The machine's.
    Machine(anyhow::Error),
}

impl From<VirtualError> for Failed {
    fn from(e: VirtualError) -> Failed {
        Failed::Machine(e.into())
    }
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

/// Counts of a run.
pub struct Ran {
    /// Instructions in all.
    pub instructions: u64,
    /// Complete windows.
    pub windows: Vec<Counted>,
}

/// Runs `program` once on `cpu`, which is of `core_type`, counting `events`: instructions, cycles and others.
///
/// # Errors
/// [`Failed`]: the program's failure with its last words, or why nothing can be counted.
pub fn run(
    program: &Program,
    cpu: u32,
    core_type: CoreTypeId,
    events: &[Event],
    meter: &mut EnergyMeter,
    rules: &Rules<'_>,
) -> Result<Ran, Failed> {
    let launch = launch(program, cpu, rules)?;
    let held = launch.hold().map_err(fault)?;
    let pid = held.pid();
    let mut group = Group::open_at_once(events, Whom::Task(pid), true)?;
    let mut cutter = Cutter::new(rules.window);
    meter.sample(clock::now())?;
    let mut counted = WindowCounts {
        instructions: 0,
        windows: Vec::new(),
        energy: meter.name().map(|_| 0.0),
        events: events.len() - 2,
    };
    counted.take(&mut group, &mut cutter)?;
    let began = Instant::now();
    // on any way out its process group is killed, and then waited for
    let mut process = held.release().map_err(fault)?;
    let mut next = began;
    loop {
        next += rules.sample;
        let left = next.saturating_duration_since(Instant::now());
        let ended = wait_any(std::iter::once(&process), left.min(LONGEST)).map_err(fault)?;
        meter.sample(clock::now())?;
        if let (Some(sum), Some(more)) = (&mut counted.energy, meter.interval_j(cpu, core_type)) {
            *sum += more;
        }
        counted.take(&mut group, &mut cutter)?;
        if ended {
            break;
        }
        if rules.cancel.load(Ordering::Relaxed) {
            return Err(Failed::Machine(super::collection::Interrupted.into()));
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
    match process.status().map_err(fault)? {
        0 => {}
        s => {
            let words = process.last_words(500).trim().replace('\n', " | ");
            let words = match words.is_empty() {
                true => words,
                false => format!(": {words}"),
            };
            return Err(Failed::Program(format!("ended with status {s}{words}")));
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
struct WindowCounts {
    /// Retired in all.
    instructions: u64,
    windows: Vec<Counted>,
    /// Joules, where somebody counts them.
    energy: Option<f64>,
    events: usize,
}

impl WindowCounts {
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

fn launch(program: &Program, cpu: u32, rules: &Rules<'_>) -> Result<Launch> {
    let launch = Launch::new(&program.command)?
        .in_dir(&rules.workdir)
        .as_user(rules.user)
        .on_cpus(&[cpu])
        .clean_environment()
        .fixed_addresses()
        // should we be killed, it ends by itself
        .cpu_time_limit(rules.limit.saturating_add(Duration::from_secs(1)))
        .apart()?;
    Ok(launch)
}

/// Whose fault it is that a program did not run.
fn fault(e: LaunchError) -> Failed {
    match e {
        LaunchError::System { .. } => Failed::Machine(e.into()),
        e => Failed::Program(format!("{:#}", anyhow::Error::from(e))),
    }
}
