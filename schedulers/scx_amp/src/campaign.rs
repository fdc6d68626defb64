//! `scx_amp campaign`: many benches from one file, resumed and split among processes and machines.
//!
//! What a campaign is, its jobs, its folder and its table are [`amp_eval::campaign`]; here are the
//! options, and what makes a bench of a job ([`jobs`]). Jobs are run by [`work`].

mod jobs;
mod work;

use amp_eval::campaign::{merge, Campaign, Folder, Job, Shard, State};
use amp_eval::report;
use amp_host::{bad_input, check_out, output, print, write_out};
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Options of `scx_amp campaign`.
#[derive(Args, Debug)]
pub struct CampaignArgs {
    /// Mixes, machines, policies, providers and seeds, and options of `bench` (see
    /// docs/reference/campaign-file.md)
    #[arg(value_name = "CAMPAIGN.toml")]
    file: PathBuf,
    /// Folder of the results, a file per job; made if it is not there. What is done in it is not
    /// run again. With --merge there may be several
    #[arg(long, required = true, value_name = "DIR")]
    dir: Vec<PathBuf>,
    /// Only the I-th of N parts of the jobs
    #[arg(long, value_name = "I/N", conflicts_with = "merge")]
    shard: Option<Shard>,
    /// Run nothing; list the jobs, one a line: state (done, failed, running, to-do), name of the
    /// result file, mix, machine, policy, provider, seed, separated by tabs
    #[arg(long, conflicts_with = "merge")]
    list: bool,
    /// Run nothing; show the results as one table
    #[arg(long)]
    merge: bool,
    /// Write the table and every job's result as JSON to FILE, or to standard output with `-`
    #[arg(long, value_name = "FILE", requires = "merge")]
    json: Option<PathBuf>,
    /// Write the table and charts as one self-contained HTML page
    #[arg(long, value_name = "FILE", requires = "merge")]
    html: Option<PathBuf>,
}

/// Runs the jobs of a campaign, lists them, or shows what came out.
///
/// # Errors
/// Bad input, jobs that failed, an output that cannot be written, or
/// [`crate::bench::Interrupted`].
pub fn main(args: &CampaignArgs, cancel: &AtomicBool) -> Result<()> {
    let campaign = Campaign::load(&args.file).map_err(bad_input)?;
    let jobs = campaign.jobs().map_err(bad_input)?;
    if args.merge {
        return show(args, &campaign, &jobs);
    }
    let [dir] = &args.dir[..] else {
        return Err(bad_input(
            "--dir is given several times: that goes with --merge; jobs are run in one folder",
        ));
    };
    let costs: Vec<u64> = jobs.iter().map(|j| j.cost).collect();
    let mine = args.shard.unwrap_or(Shard::ALL).of(&costs);
    let mine: Vec<&Job> = mine.into_iter().filter_map(|i| jobs.get(i)).collect();
    if args.list {
        return list(&campaign, dir, &mine);
    }
    jobs::check(&campaign)?;
    let folder = Folder::begin(dir, &campaign).map_err(bad_input)?;
    work::run(&campaign, &folder, &mine, cancel)
}

/// Lists the jobs. In a folder that is not there all are to do.
fn list(campaign: &Campaign, dir: &Path, mine: &[&Job]) -> Result<()> {
    let folder = match dir.exists() {
        true => Some(Folder::existing(dir, campaign).map_err(bad_input)?),
        false => None,
    };
    let made_by = jobs::made_by(campaign);
    let mut out = String::new();
    for job in mine {
        let state = match folder.as_ref().map(|f| f.state(job, Some(&made_by))) {
            None | Some(State::ToDo { .. }) => "to-do",
            Some(State::Running) => "running",
            Some(State::Failed { .. }) => "failed",
            Some(State::Done(_)) => "done",
        };
        let words = [
            state.to_owned(),
            job.id.clone(),
            job.mix_name.clone(),
            job.machine_label.clone(),
            job.contender.to_string(),
            job.provider_label.clone().unwrap_or_else(|| "-".into()),
            job.seed.to_string(),
        ];
        // a name may have anything in it, and a line has to stay one
        let words = words.map(|w| w.replace(['\t', '\n', '\r'], " "));
        out += &(words.join("\t") + "\n");
    }
    print(&out)
}

/// Shows the results of all folders.
fn show(args: &CampaignArgs, campaign: &Campaign, jobs: &[Job]) -> Result<()> {
    let outputs = [&args.json, &args.html].into_iter().flatten();
    outputs.into_iter().try_for_each(|path| check_out(path))?;
    let mut folders = Vec::new();
    for dir in &args.dir {
        folders.push(Folder::existing(dir, campaign).map_err(bad_input)?);
    }
    let merged = merge(jobs, &folders).map_err(bad_input)?;
    let name = &campaign.name;
    let shown = match args.json.as_deref() == Some(Path::new("-")) {
        true => Ok(()),
        false => print(&report::campaign::text(
            name,
            &merged,
            amp_host::terminal_width(),
        )),
    };
    let json = args.json.as_deref().map_or(Ok(()), |path| {
        let json = serde_json::to_string_pretty(&report::campaign::json(name, &merged))?;
        write_out(path, &format!("{json}\n"))
    });
    let html = args.html.as_deref().map_or(Ok(()), |path| {
        write_out(path, &report::campaign::html(name, &merged))
    });
    output::all([shown, json, html])
}
