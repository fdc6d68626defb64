//! A laboratory: a place where programs and policies can be run and timed.
//!
//! The protocol is [`crate::bench()`]; a laboratory only does what the protocol asks for. There are
//! two kinds: this machine (`scx_amp bench --on host`) and the simulated one (`amp_sim::SimLab`).
//!
//! The virtual board is no third kind. It measures itself: the command boots a guest, hands it the
//! whole request, and the guest runs the same protocol over the same host laboratory, whose machine
//! is then the board. So no time ever crosses the border of the guest, and what the host adds is
//! only the way there and back.

use crate::contender::Contender;
use crate::evaluation::{
    AppRun, Environment, MachineFacts, Progress, Run, SchedulerFacts, TimelineEntry,
};
use crate::solos::SoloTimes;
use crate::Plan;
use std::fmt;
use std::sync::atomic::AtomicBool;

/// What a report says of a laboratory.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The machine.
    pub machine: MachineFacts,
    /// Where it is: `host`, `board` or `sim`.
    pub on: String,
    /// Source of metrics.
    pub provider: String,
    /// What else one must know to repeat a bench; the protocol adds the seed.
    pub environment: Environment,
}

/// The cores that a program alone may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// Those of the slowest core type only.
    Slow,
    /// All fast ones are available.
    Fast,
    /// Those of a core type between, by its position in the list of core types, fastest first. A
    /// program of more threads than it has CPUs may use all slower ones, too.
    Between(usize),
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cores::Slow => f.write_str("slow cores"),
            Cores::Fast => f.write_str("fast cores"),
            Cores::Between(t) => write!(f, "cores of type {}", t + 1),
        }
    }
}

/// A program alone, run once.
#[derive(Clone, Debug, PartialEq)]
pub struct AloneRecord {
    /// Its completion time in seconds.
    pub took_s: f64,
    /// Instructions that it retired, where the machine counts them.
    pub instructions: Option<f64>,
    /// Energy that it took, in joules, where the machine tells: as little as possible of what else
    /// is there.
    pub energy_j: Option<f64>,
    /// Its course, where its own instructions are counted.
    pub progress: Option<Progress>,
}

/// What a run of the mix is to be.
#[derive(Clone, Copy, Debug)]
pub struct MixSpec<'a> {
    /// What schedules: a policy, the baseline, or another contender.
    pub policy: &'a Contender,
    /// Number of the run, from 1. Run `n` of every policy is the same experiment.
    pub run: u32,
    /// The order in which programs start, as indices into the workload: the same for every policy.
    /// A laboratory that draws its own start order from seed and run number may leave it.
    pub order: &'a [usize],
    /// The core type of each application, where the contender pins them: its position in the list of
    /// core types, fastest first, or `None` to leave it free.
    pub pinned: Option<&'a [Option<usize>]>,
    /// Completions of every program that end the run.
    pub completions: usize,
    /// The programs alone, in the order of the workload.
    pub solos: &'a [SoloTimes],
}

/// One run of the mix, as it was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunRecord {
    /// The applications, in the order of the workload.
    pub apps: Vec<AppRun>,
    /// Length of the run in seconds.
    pub duration_s: f64,
    /// Energy that the machine used in the whole run, in joules.
    pub energy_j: Option<f64>,
    /// Instructions that the machine retired in the whole run.
    pub instructions: Option<f64>,
    /// Pairs of threads that changed places; none for the baseline.
    pub swaps: Option<u64>,
    /// Which application was on which core type when.
    pub timeline: Vec<TimelineEntry>,
}

impl RunRecord {
    /// The run as the evaluation takes it: with the energy of `once` instructions, one completion
    /// of every program, so that a run that happened to last longer is not charged for it. Without
    /// `once` the energy is not known.
    pub fn as_run(&self, once: Option<f64>) -> Run {
        let share = |energy: f64| Some(energy * once? / self.instructions?.max(1.0));
        Run {
            apps: self.apps.clone(),
            duration_s: self.duration_s,
            energy_j: self.energy_j.and_then(share),
            total_j: self.energy_j,
            instructions: self.instructions,
            swaps: self.swaps,
        }
    }
}

/// A place where programs and policies can be run and timed.
///
/// `cancel` is set when the user wants to stop: a run in progress ends with any error then, and
/// leaves nothing behind.
pub trait Lab {
    /// Why something cannot be run here.
    type Error: fmt::Debug + fmt::Display;

    /// Facts about the laboratory.
    fn facts(&self, plan: &Plan<'_>) -> Facts;

    /// Makes ready for the bench, before anything is measured; refuses what cannot be had here.
    ///
    /// # Errors
    /// When a policy, or a source of metrics, cannot be had here.
    fn prepare(&mut self, plan: &Plan<'_>) -> Result<(), Self::Error>;

    /// Whether a program alone takes the same time whenever it is run. It is run once then, and its
    /// time counts as two equal observations, whose uncertainty is 0.
    fn repeatable(&self) -> bool {
        false
    }

    /// Whether the machine tells how much energy a program alone takes.
    fn tells_energy(&self) -> bool {
        false
    }

    /// What the times of application number `app` alone are kept under: a digest of all that they
    /// depend on. None: they are not kept.
    fn key(&self, app: usize) -> Option<String> {
        let _ = app;
        None
    }

    /// What is known of the program behind a contender, where there is one.
    fn scheduler(&self, contender: &Contender) -> Option<SchedulerFacts> {
        let _ = contender;
        None
    }

    /// Why a contender itself failed, when that is what [`Lab::mix`] failed of: it was not loaded,
    /// or the kernel ended it. The contender is reported as failed then, and the bench goes on.
    /// Anything else ends the bench.
    fn gave_up(error: &Self::Error) -> Option<String> {
        let _ = error;
        None
    }

    /// Runs application number `app` alone, once.
    ///
    /// # Errors
    /// When it cannot be started, fails, or does not end.
    fn alone(
        &mut self,
        app: usize,
        cores: Cores,
        cancel: &AtomicBool,
    ) -> Result<AloneRecord, Self::Error>;

    /// Runs the mix once under a policy.
    ///
    /// # Errors
    /// When a program fails, the policy cannot be put to work, or the run does not end. What
    /// [`Lab::gave_up`] makes of an error decides whether the bench goes on.
    fn mix(&mut self, spec: &MixSpec<'_>, cancel: &AtomicBool) -> Result<RunRecord, Self::Error>;
}
