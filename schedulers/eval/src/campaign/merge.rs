//! One table of a campaign's results, from one or several folders.
//!
//! Figures are those of each run by itself, averaged: over the runs of one seed by the bench, over
//! seeds here. Completion times of different benches are never put together.

use super::folder::{Folder, State};
use super::job::Job;
use crate::contender::PINNED;
use crate::evaluation::{BenchReport, PolicyResult, RunResult, FIGURES};
use amp_metrics::uncertainty::Measured;
use amp_sched::policy::BASELINE;
use std::collections::BTreeSet;
use std::path::PathBuf;
use thiserror::Error;

/// What came of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Its result.
    Done(Box<BenchReport>),
    /// Why it has none.
    Failed(String),
    /// It has not been run to its end; and what is wrong with a result that is there.
    Missing(Option<String>),
}

/// The results of a campaign.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// Every job, in the order of the campaign, and what came of it.
    pub jobs: Vec<(Job, Outcome)>,
    /// The table: a row per mix, machine, contender and provider, in that order.
    pub rows: Vec<Row>,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the mix.
    pub mix: String,
    /// The machine.
    pub machine: String,
    /// Label of the contender.
    pub contender: String,
    /// Source of metrics; none where the contender needs no metrics.
    pub provider: Option<String>,
    /// Jobs that have a result.
    pub done: usize,
    /// Jobs in all: one per seed.
    pub jobs: usize,
    /// The figures over all seeds that have some; none when none has.
    pub result: Option<PolicyResult>,
    /// ASP relative to that of `pinned` with the same mix and machine.
    pub to_pinned: Option<Measured>,
    /// ASP relative to that of `eevdf` with the same mix and machine.
    pub to_baseline: Option<Measured>,
}

/// Folders do not go together.
#[derive(Debug, Error)]
pub enum MergeError {
    /// Two results of one job that differ.
    #[error(
        "{} and {} are results of the same job ({job}) and differ: leave one of the folders out, or remove the file that is wrong",
        first.display(), second.display()
    )]
    Differ {
        /// The job.
        job: String,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
}

/// Puts the results of `jobs` in `folders` together. The order of the folders does not matter.
///
/// # Errors
/// When a job has two results that differ.
pub fn merge(jobs: &[Job], folders: &[Folder]) -> Result<Merged, MergeError> {
    let outcomes = jobs
        .iter()
        .map(|job| Ok((job.clone(), outcome(job, folders)?)));
    let jobs: Vec<(Job, Outcome)> = outcomes.collect::<Result<_, MergeError>>()?;
    let rows = rows(&jobs);
    Ok(Merged { jobs, rows })
}

fn outcome(job: &Job, folders: &[Folder]) -> Result<Outcome, MergeError> {
    let mut done: Option<(Box<BenchReport>, PathBuf)> = None;
    let (mut failed, mut stale) = (BTreeSet::new(), BTreeSet::new());
    for folder in folders {
        match folder.state(job, None) {
            State::Done(report) => {
                let file = folder.result_file(job);
                done = Some(match done {
                    None => (report, file),
                    Some((first, path)) => match same(&first, &report) {
                        true => (earlier(first, report), path),
                        false => {
                            return Err(MergeError::Differ {
                                job: job.to_string(),
                                first: path,
                                second: file,
                            })
                        }
                    },
                });
            }
            State::Failed { failure, .. } => {
                failed.insert(failure.message);
            }
            State::ToDo { stale: Some(why) } => {
                stale.insert(why);
            }
            State::ToDo { stale: None } | State::Running => {}
        }
    }
    Ok(match (done, failed.pop_first()) {
        (Some((report, _)), _) => Outcome::Done(report),
        (None, Some(why)) => Outcome::Failed(why),
        (None, None) => Outcome::Missing(stale.pop_first()),
    })
}

/// Whether two reports have the same figures, wherever their provider's file lay.
fn same(a: &BenchReport, b: &BenchReport) -> bool {
    a.results == b.results && a.machine == b.machine && a.on == b.on
}

/// One of two reports of the same figures, whichever comes first.
fn earlier(a: Box<BenchReport>, b: Box<BenchReport>) -> Box<BenchReport> {
    let text = |r: &BenchReport| serde_json::to_string(r).unwrap_or_default();
    match text(&b) < text(&a) {
        true => b,
        false => a,
    }
}

fn rows(jobs: &[(Job, Outcome)]) -> Vec<Row> {
    let key = |j: &Job| {
        (
            j.mix_name.clone(),
            j.machine_label.clone(),
            j.contender.to_string(),
            j.provider_label.clone(),
        )
    };
    // jobs that differ by their seeds alone stand together
    let groups = jobs.chunk_by(|(a, _), (b, _)| key(a) == key(b));
    let mut rows: Vec<Row> = groups
        .filter_map(|group| {
            let (mix, machine, contender, provider) = key(&group.first()?.0);
            let results = group.iter().filter_map(|(_, outcome)| match outcome {
                Outcome::Done(report) => report.results.first(),
                _ => None,
            });
            let results: Vec<&PolicyResult> = results.collect();
            Some(Row {
                mix,
                machine,
                contender,
                provider,
                done: results.len(),
                jobs: group.len(),
                result: over_seeds(&results),
                to_pinned: None,
                to_baseline: None,
            })
        })
        .collect();
    let references: Vec<Row> = rows.clone();
    for row in &mut rows {
        row.to_pinned = row.relative_to(PINNED, &references);
        row.to_baseline = row.relative_to(BASELINE, &references);
    }
    rows
}

impl Row {
    /// Its ASP relative to that of `reference`; none for the reference itself.
    fn relative_to(&self, reference: &str, all: &[Row]) -> Option<Measured> {
        if self.contender == reference {
            return None;
        }
        let alike =
            |r: &&Row| r.contender == reference && r.mix == self.mix && r.machine == self.machine;
        let of = all.iter().find(alike)?.result.as_ref()?.asp;
        (of.value > 0.0).then_some(self.result.as_ref()?.asp / of)
    }
}

/// The figures over several seeds: the mean over the runs of all of them, and its uncertainty by
/// the scatter of these runs and what the uncertainties of the seeds have beside their own scatter,
/// which is that of the programs alone.
fn over_seeds(results: &[&PolicyResult]) -> Option<PolicyResult> {
    let (first, rest) = results.split_first()?;
    let mut out = PolicyResult {
        apps: Vec::new(),
        timeline: Vec::new(),
        ..(*first).clone()
    };
    if rest.is_empty() {
        return Some(out);
    }
    let over = |figure: &dyn Fn(&PolicyResult) -> Option<Measured>,
                of: &dyn Fn(&RunResult) -> Option<f64>| {
        let of_seed = |r: &&PolicyResult| -> Option<(Measured, Vec<f64>)> {
            let runs: Option<Vec<f64>> = r.runs.iter().map(of).collect();
            Some((figure(r)?, runs?))
        };
        let seeds: Option<Vec<_>> = results.iter().map(of_seed).collect();
        mean(&seeds?)
    };
    out.asp = over(&|r| Some(r.asp), &|r| Some(r.asp))?;
    out.asp_gm = over(&|r| r.asp_gm, &|r| r.asp_gm);
    out.stp = over(&|r| r.stp, &|r| r.stp);
    out.unfairness = over(&|r| Some(r.unfairness), &|r| Some(r.unfairness))?;
    out.edp = over(&|r| r.edp, &|r| r.edp);
    out.edp_by_work = over(&|r| r.edp_by_work, &|r| r.edp_by_work);
    out.figures = FIGURES
        .iter()
        .filter_map(|f| {
            let all = over(&|r| r.figures.get(f.key).copied(), &|r| {
                r.figures.get(f.key).copied()
            });
            Some((f.key.to_owned(), all?))
        })
        .collect();
    // not known run by run
    out.energy_j = None;
    out.swaps_per_s = swaps_per_s(results);
    out.runs = results
        .iter()
        .flat_map(|r| r.runs.iter().cloned())
        .collect();
    let alike =
        |same: fn(&PolicyResult, &PolicyResult) -> bool| rest.iter().all(|r| same(r, first));
    if !alike(|a, b| a.pinned == b.pinned) {
        out.pinned = None;
    }
    if !alike(|a, b| a.oracle == b.oracle) {
        out.oracle = None;
    }
    Some(out)
}

/// The mean over all runs of several seeds, each with its figure and the figures of its runs.
fn mean(seeds: &[(Measured, Vec<f64>)]) -> Option<Measured> {
    let runs: Vec<f64> = seeds
        .iter()
        .flat_map(|(_, runs)| runs.iter().copied())
        .collect();
    let beside = seeds.iter().map(|(figure, runs)| {
        let scatter = Measured::mean(runs).and_then(|m| m.u).unwrap_or(0.0);
        figure
            .u
            .map(|u| (u * u - scatter * scatter).max(0.0).sqrt())
    });
    let beside = beside.reduce(|a, b| Some(a?.max(b?)))?;
    Some(Measured::mean(&runs)?.with_further(beside))
}

/// Swaps of all runs over the time of all runs.
fn swaps_per_s(results: &[&PolicyResult]) -> Option<f64> {
    let time = |r: &PolicyResult| r.runs.iter().map(|r| r.duration_s).sum::<f64>();
    let swaps: Option<f64> = results.iter().map(|r| Some(r.swaps_per_s? * time(r))).sum();
    let all: f64 = results.iter().map(|r| time(r)).sum();
    swaps.filter(|_| all > 0.0).map(|s| s / all)
}
