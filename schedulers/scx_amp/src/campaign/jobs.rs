//! From a job of a campaign to the bench that it is.

use crate::bench::{self, BenchArgs, On};
use crate::labs::host::kernel_release;
use amp_board::KernelChoice;
use amp_eval::campaign::{Campaign, Item, Job, MadeBy, Place};
use amp_eval::workload::Workload;
use amp_eval::{Contender, Contenders};
use amp_host::bad_input;
use amp_pmc::TrustArgs;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// What makes results here: this command, and on a host its kernel.
pub fn made_by(campaign: &Campaign) -> MadeBy {
    let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("SCX_AMP_COMMIT"));
    MadeBy {
        command: format!("scx_amp {version} {commit}").trim_end().to_owned(),
        kernel: match campaign.place {
            Place::Host => kernel_release(),
            Place::Board | Place::Sim => None,
        },
    }
}

/// The bench that `job` is. `solos` is the folder for times of programs alone that are kept with
/// the campaign.
pub fn bench_args(campaign: &Campaign, job: &Job, solos: &Path) -> BenchArgs {
    let knobs = &campaign.knobs;
    let usual = usual();
    BenchArgs {
        workload: job.mix.clone(),
        on: on(campaign.place),
        machine: job.machine.clone(),
        policies: Contenders(vec![job.contender.clone()]),
        settings: job.settings.clone(),
        provider: job.provider.clone(),
        seed: job.seed,
        runs: knobs.runs,
        solo_runs: knobs.solo_runs,
        completions: knobs.completions.unwrap_or(usual.completions),
        interval: knobs.interval.unwrap_or(usual.interval),
        big_cpus: knobs.big_cpus.clone(),
        kernel: knobs.kernel.as_ref().map(|k| k.value.clone()),
        dvfs: knobs.dvfs,
        timeout: knobs.timeout,
        // the board's are kept with its other things, where all benches find them
        solo_cache: (campaign.place == Place::Host).then(|| solos.join("host.json")),
        solo: knobs.solo.as_ref().map(|s| s.value.clone()),
        ..usual
    }
}

fn on(place: Place) -> On {
    match place {
        Place::Board => On::Board,
        Place::Host => On::Host,
        Place::Sim => On::Sim,
    }
}

/// The options of a bench of which nobody has said anything.
fn usual() -> BenchArgs {
    BenchArgs {
        workload: PathBuf::new(),
        on: On::Board,
        machine: None,
        policies: Contenders(vec![Contender::Kernel]),
        settings: Vec::new(),
        provider: "declared".into(),
        trust: TrustArgs { trust: None },
        memory: None,
        seed: 1,
        runs: amp_eval::Runs::Enough,
        solo_runs: None,
        completions: bench::COMPLETIONS,
        interval: bench::INTERVAL_MS,
        big_cpus: None,
        kernel: None,
        dvfs: false,
        cpufreq: None,
        timeout: None,
        json: None,
        html: None,
        solo_cache: None,
        record: None,
        solo: None,
        compare: Vec::new(),
        workdir: None,
        model_version: String::new(),
        progress_lines: false,
        request: None,
    }
}

/// Everything that can be said of a campaign before anything is started, as a bench would say it.
///
/// # Errors
/// [`amp_host::BadInput`], naming file, line and key.
pub fn check(campaign: &Campaign) -> Result<()> {
    if let Some(kernel) = &campaign.knobs.kernel {
        let parsed = kernel.value.parse::<KernelChoice>();
        parsed.map_err(|e| bad_input(campaign.bad(kernel.at, "kernel", e)))?;
    }
    let knobs = &campaign.knobs;
    let args = |mix: &Path| BenchArgs {
        workload: mix.into(),
        on: on(campaign.place),
        solo: knobs.solo.as_ref().map(|s| s.value.clone()),
        ..usual()
    };
    let told = |key: &'static str, at: usize, i: usize, done: Result<Workload>| -> Result<()> {
        let wrong = |e: anyhow::Error| {
            let text = e.to_string();
            let text = text
                .strip_prefix("--policies: ")
                .or(text.strip_prefix("--provider: "))
                .unwrap_or(&text);
            bad_input(campaign.bad(at, format!("{key}[{i}]"), text))
        };
        done.map(|_| ()).map_err(wrong)
    };
    for (i, Item { value: mix, at }) in campaign.mixes.iter().enumerate() {
        told("mixes", *at, i, bench::prepared(&args(&mix.path)))?;
    }
    let Some(first) = campaign.mixes.first().map(|m| &m.value.path) else {
        return Ok(());
    };
    for (i, Item { value, at }) in campaign.contenders.iter().enumerate() {
        let args = BenchArgs {
            policies: Contenders(vec![value.clone()]),
            ..args(first)
        };
        told("policies", *at, i, bench::prepared(&args))?;
    }
    for (i, Item { value, at }) in campaign.providers.iter().enumerate() {
        let args = BenchArgs {
            provider: value.asked.clone(),
            ..args(first)
        };
        told("providers", *at, i, bench::prepared(&args))?;
    }
    Ok(())
}
