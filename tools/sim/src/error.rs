//! What can go wrong.

use amp_eval::contender::ContenderError;
use amp_eval::evaluation::EvaluationError;
use amp_eval::BenchError;
use amp_machine::BadFile;
use amp_sched::policy::SettingsError;
use amp_sched::TopologyError;
use thiserror::Error;

/// Why a simulation cannot be run.
#[derive(Debug, Error)]
pub enum SimError {
    /// An application of the workload cannot be simulated.
    #[error(
        "workload `{workload}`: application `{app}` has no `phases` and `instructions`: the simulator needs them, or kept times of it alone"
    )]
    NoPhases {
        /// The workload.
        workload: String,
        /// The application.
        app: String,
    },
    /// A file of programs measured alone, or a comparison or something that belongs to it, cannot
    /// be used.
    #[error(transparent)]
    File(#[from] BadFile),
    /// An application is not right.
    #[error("application `{app}`: {what}")]
    App {
        /// The application.
        app: String,
        /// The reason.
        what: String,
    },
    /// There are more threads than the scheduler has slots for.
    #[error(
        "application `{app}`: with it the mix has {threads} threads, and the machine has slots for {slots}"
    )]
    Slots {
        /// The first application that does not fit.
        app: String,
        /// Threads of all applications up to it.
        threads: u64,
        /// Slots there are.
        slots: u32,
    },
    /// A parameter is not right.
    #[error("{0}")]
    Parameter(String),
    /// The machine file describes no topology.
    #[error("machine `{machine}`: {source}")]
    Topology {
        /// The machine.
        machine: String,
        /// The reason.
        source: TopologyError,
    },
    /// There is no such source of metrics, or it cannot work here.
    #[error("{0}")]
    Provider(Box<amp_metrics::providers::ProviderError>),
    /// A provider wants something counted that the simulated PMUs do not count.
    #[error("event `{event}`: the simulated machine counts instructions and cycles only")]
    Uncounted {
        /// The event.
        event: String,
    },
    /// What is to be compared means nothing.
    #[error(transparent)]
    Contender(#[from] ContenderError),
    /// The policy cannot be had, or not with these settings.
    #[error(transparent)]
    Policy(#[from] SettingsError),
    /// The engine gave up.
    #[error(transparent)]
    Machine(#[from] amp_sched::MachineError),
    /// The mix does not end.
    #[error(
        "no end after {after_s:.0} simulated seconds{events}; still short of {needed} completions: {short}"
    )]
    Endless {
        /// Simulated time until it was given up.
        after_s: f64,
        /// The number of events, where that was the limit.
        events: String,
        /// Completions that were asked for.
        needed: usize,
        /// Applications that have fewer.
        short: String,
    },
    /// A program alone, or a run of the mix, failed.
    #[error("{run}: {source}")]
    Run {
        /// Which: the application alone, or policy and number of the run.
        run: String,
        /// What happened.
        source: Box<SimError>,
    },
    /// The figures cannot be evaluated.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// Somebody wants it to stop.
    #[error("interrupted")]
    Interrupted,
}

impl From<amp_metrics::providers::ProviderError> for SimError {
    fn from(e: amp_metrics::providers::ProviderError) -> SimError {
        SimError::Provider(Box::new(e))
    }
}

impl From<BenchError<SimError>> for SimError {
    fn from(e: BenchError<SimError>) -> SimError {
        let run = |run: String, e| SimError::Run {
            run,
            source: Box::new(e),
        };
        match e {
            BenchError::Plan(what) => SimError::Parameter(what.to_owned()),
            BenchError::Interrupted => SimError::Interrupted,
            BenchError::Lab(e) => e,
            BenchError::Alone { app, cores, error } => {
                run(format!("application `{app}` alone on {cores}"), error)
            }
            BenchError::Mix {
                policy,
                run: n,
                error,
            } => run(format!("policy `{policy}`, run {n}"), error),
            BenchError::Evaluation(e) => SimError::Evaluation(e),
            // nothing is kept of the simulator's times
            BenchError::Keep(e) => SimError::Parameter(e.to_string()),
        }
    }
}
