//! Runs the jobs of a campaign that are to do, one after the other.

use super::jobs;
use crate::bench::{self, Interrupted};
use amp_eval::campaign::{Campaign, Failure, Folder, Job, MadeBy, Place, State};
use amp_eval::evaluation::BenchReport;
use amp_host::{print, tell, BadInput};
use anyhow::{anyhow, bail, Context, Result};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// The jobs of this process, and how far it is.
struct Work<'a> {
    campaign: &'a Campaign,
    folder: &'a Folder,
    made_by: MadeBy,
    /// The board's kernel that results are of, where the campaign names none: it goes on with that.
    kernel: Option<String>,
    began: SystemTime,
    estimate: Estimate,
    /// Jobs that had a result already, or were done by somebody else meanwhile.
    were_done: usize,
    done: usize,
    failed: usize,
    /// Jobs that other processes are at.
    elsewhere: usize,
}

/// Runs those of `mine` that have no result.
///
/// # Errors
/// When jobs failed, a result cannot be written, or the user wants to stop.
pub fn run(campaign: &Campaign, folder: &Folder, mine: &[&Job], cancel: &AtomicBool) -> Result<()> {
    let mut work = Work {
        campaign,
        folder,
        made_by: jobs::made_by(campaign),
        kernel: None,
        began: SystemTime::now(),
        estimate: Estimate::default(),
        were_done: 0,
        done: 0,
        failed: 0,
        elsewhere: 0,
    };
    let mut left: u64 = mine.iter().map(|j| j.cost).sum();
    for (i, job) in mine.iter().enumerate() {
        if cancel.load(Ordering::Relaxed) {
            return Err(work.interrupted(mine.len()));
        }
        let done = work.job(job, (i + 1, mine.len()), left, cancel);
        match done {
            Err(e) if e.is::<Interrupted>() => return Err(work.interrupted(mine.len())),
            done => done?,
        }
        left -= job.cost;
    }
    work.summary(mine.len())
}

impl Work<'_> {
    /// Runs one job, unless it is done, somebody is at it, or it has failed since this began.
    fn job(&mut self, job: &Job, at: (usize, usize), left: u64, cancel: &AtomicBool) -> Result<()> {
        if self.settled(job) {
            return Ok(());
        }
        let claim = self.folder.claim(job);
        let claim = claim.with_context(|| {
            format!(
                "{}: cannot take job {}",
                self.folder.path().display(),
                job.id
            )
        })?;
        let Some(_claim) = claim else {
            self.elsewhere += 1;
            return Ok(());
        };
        // whoever had it may have ended meanwhile
        if self.settled(job) {
            return Ok(());
        }
        if std::io::stderr().is_terminal() {
            let (i, n) = at;
            tell(&format!(
                "job {i} of {n}{}: {job}",
                self.estimate.words(left)
            ));
        }
        let begin = Instant::now();
        let result = self.bench(job, cancel);
        self.estimate.took(job.cost, begin.elapsed());
        self.keep(job, result, cancel)
    }

    /// Whether there is nothing to do for a job; counts it then.
    fn settled(&mut self, job: &Job) -> bool {
        match self.folder.state(job, Some(&self.made_by)) {
            State::Done(report) => {
                self.known(&report);
                self.were_done += 1;
                true
            }
            State::Failed { at, .. } if at >= self.began => {
                self.failed += 1;
                true
            }
            State::Failed { .. } | State::Running | State::ToDo { stale: None } => false,
            State::ToDo { stale: Some(why) } => {
                tell(&format!("scx_amp: {why}: this job is run again"));
                false
            }
        }
    }

    /// On the board a campaign stays with one kernel, whatever the newest one is tomorrow.
    fn known(&mut self, report: &BenchReport) {
        if self.campaign.place == Place::Board && self.campaign.knobs.kernel.is_none() {
            self.kernel = self.kernel.take().or(report.environment.kernel.clone());
        }
    }

    fn bench(&self, job: &Job, cancel: &AtomicBool) -> Result<BenchReport> {
        let mut args = jobs::bench_args(self.campaign, job, &self.folder.path().join("solo"));
        args.kernel = args.kernel.or(self.kernel.clone());
        let workload = bench::prepared(&args)?;
        let report = bench::measure(&args, &workload, cancel)?;
        if report.results.is_empty() {
            let why = report.failed.first();
            let why = why.map(|f| format!("{} failed in run {}: {}", f.policy, f.run, f.why));
            bail!(why.unwrap_or_else(|| "no contender has a result".into()));
        }
        // files are read again by the bench: it must have been those that the job is of
        let now = self.campaign.jobs()?;
        let unchanged =
            amp_machine::read_text(&job.mix).is_ok_and(|(now, _)| self.is_text(job, &now));
        if !unchanged || !now.iter().any(|j| j.digest == job.digest) {
            bail!("a file that it depends on was changed while it ran");
        }
        Ok(report)
    }

    /// Whether `text` is that of the job's mix as the campaign read it.
    fn is_text(&self, job: &Job, text: &str) -> bool {
        let mut mixes = self.campaign.mixes.iter().map(|m| &m.value);
        mixes.any(|m| m.path == job.mix && m.text == text)
    }

    /// Keeps what came of a job. A failure is one of the job; the others go on.
    fn keep(&mut self, job: &Job, result: Result<BenchReport>, cancel: &AtomicBool) -> Result<()> {
        let write = |written: std::io::Result<()>| {
            written.with_context(|| format!("cannot write into {}", self.folder.path().display()))
        };
        match result {
            Ok(report) => {
                self.known(&report);
                write(self.folder.finish(job, &self.made_by, report))?;
                self.done += 1;
            }
            Err(e) if e.is::<Interrupted>() || cancel.load(Ordering::Relaxed) => {
                return Err(Interrupted.into())
            }
            Err(e) => {
                let failure = Failure {
                    job: job.digest.clone(),
                    made_by: self.made_by.clone(),
                    status: if e.is::<BadInput>() { 2 } else { 1 },
                    message: format!("{e:#}"),
                };
                tell(&format!("scx_amp: {job}: {}", failure.message));
                write(self.folder.fail(job, &failure))?;
                self.failed += 1;
            }
        }
        Ok(())
    }

    fn interrupted(&self, jobs: usize) -> anyhow::Error {
        anyhow!(
            "interrupted: {} of {jobs} jobs are done; the same command goes on from here",
            self.were_done + self.done
        )
    }

    fn summary(&self, jobs: usize) -> Result<()> {
        let mut text = format!("{} of {jobs} jobs are done", self.were_done + self.done);
        if self.were_done > 0 {
            text += &format!(" ({} of them before)", self.were_done);
        }
        if self.elsewhere > 0 {
            text += &format!("; other processes are at {}", self.elsewhere);
        }
        if self.failed > 0 {
            bail!(
                "{text}; {} failed, and are tried again by the same command",
                self.failed
            );
        }
        let (file, dir) = (self.campaign.path.display(), self.folder.path().display());
        print(&format!(
            "{text}\nthe table: scx_amp campaign {file} --dir {dir} --merge\n"
        ))
    }
}

/// How long the jobs that are left may take, by those that were run.
#[derive(Debug, Default)]
struct Estimate {
    cost: u64,
    took: Duration,
}

impl Estimate {
    fn took(&mut self, cost: u64, took: Duration) {
        self.cost += cost;
        self.took += took;
    }

    fn words(&self, left: u64) -> String {
        if self.cost == 0 {
            return String::new();
        }
        let seconds = self.took.as_secs_f64() / self.cost as f64 * left as f64;
        let words = match seconds {
            s if s < 90.0 => format!("{s:.0} s"),
            s if s < 5400.0 => format!("{:.0} min", s / 60.0),
            s => format!("{:.1} h", s / 3600.0),
        };
        format!(", about {words} left")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_estimated_from_what_was_run() {
        let mut e = Estimate::default();
        assert_eq!(e.words(100), "");
        e.took(10, Duration::from_secs(20));
        assert_eq!(e.words(4), ", about 8 s left");
        assert_eq!(e.words(100), ", about 3 min left");
        assert_eq!(e.words(10_000), ", about 5.6 h left");
    }
}
