//! The evaluation of a mix: from completion times to aggregate speedup, unfairness and EDP.
//!
//! ```text
//! Solo (alone, slow cores only; alone, fast cores too) ─┐
//! Run  (the mix under a policy, repeated)  ─────────────┴─► evaluate ─► PolicyResult ─► BenchReport
//! Oracle (steady single-threaded applications) ───────────────────────────┘
//! ```
//!
//! This is arithmetic only: who starts programs and reads clocks is elsewhere. [`BenchReport`] is
//! what `bench --json` writes; it can be read back, because the guest of the board writes it and
//! the host renders it.

mod figures;
pub mod oracle;
mod passes;
mod protocol;
mod results;
mod timeline;

pub use figures::{AppTimes, Better, Made, MixFigure, FIGURES};
pub use passes::{Pass, Progress, Unfinished, WorkFrom};
pub use protocol::{evaluate, AppRun, AppSpec, EvaluationError, Run, Solo, COMPLETIONS};
pub use results::{
    AppResult, BenchReport, CoreTypeFacts, Environment, FailedContender, MachineFacts,
    OracleResult, PinnedFacts, PolicyResult, RunResult, SchedulerFacts, TimelineEntry,
};
pub use timeline::Timeline;
