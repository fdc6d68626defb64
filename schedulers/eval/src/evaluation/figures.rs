//! Figures of a mix, each an entry of [`FIGURES`] and nothing else: tables, pages, JSON, comparisons
//! and campaigns find them there.
//!
//! Aggregate speedup, throughput, unfairness and energy × delay are not among them. Programs know
//! those by fields of their own ([`PolicyResult`](super::PolicyResult)).

use super::protocol::Run;
use amp_metrics::uncertainty::Measured;

/// Which values are good ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Large ones.
    Higher,
    /// Small ones.
    Lower,
    /// Those near 1.
    One,
    /// Neither: the figure describes, it does not judge.
    Neither,
}

/// An application's times per unit of work, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppTimes {
    /// Alone on slow cores only.
    pub slow: Measured,
    /// Alone with all fast cores available.
    pub fast: Measured,
    /// In the mix, by the work done over the whole run.
    pub mix: Measured,
    /// Weight, 1 = default.
    pub weight: f64,
}

/// What a figure is made of.
#[derive(Clone, Copy, Debug)]
pub enum Made {
    /// The times of all applications. Its uncertainty follows from theirs.
    OfTimes(fn(&[AppTimes]) -> Measured),
    /// What was counted in a run; none where it was not. Its uncertainty is the scatter of the runs.
    OfRun(fn(&Run) -> Option<f64>),
}

/// A figure of a mix under a policy. That of several runs is the mean of theirs.
#[derive(Clone, Copy, Debug)]
pub struct MixFigure {
    /// Its key in JSON, under `figures` of a policy and of each run.
    pub key: &'static str,
    /// Title of its column.
    pub title: &'static str,
    /// Unit; empty for a ratio.
    pub unit: &'static str,
    /// Which values are good ones.
    pub better: Better,
    /// Whether the text table has it, and `--compare` tests it. The page has it anyway.
    pub is_headline: bool,
    /// How it is computed.
    pub made: Made,
}

/// Every figure, in the order of the columns.
pub const FIGURES: &[MixFigure] = &[
    // average normalized turnaround time [Eyerman and Eeckhout, IEEE Micro 28(3), 2008]
    MixFigure {
        key: "antt",
        title: "ANTT",
        unit: "",
        better: Better::Lower,
        is_headline: false,
        made: Made::OfTimes(|apps| {
            let slowdowns: Measured = apps.iter().map(|a| a.mix / a.fast).sum();
            slowdowns.scale(1.0 / apps.len().max(1) as f64)
        }),
    },
];

impl Better {
    /// Which values are good ones, in words; nothing where neither are.
    pub fn words(self) -> Option<&'static str> {
        match self {
            Better::Higher => Some("higher is better"),
            Better::Lower => Some("lower is better"),
            Better::One => Some("1 is ideal"),
            Better::Neither => None,
        }
    }
}
