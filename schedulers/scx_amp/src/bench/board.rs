//! The bench on the virtual AMP board: a guest in which the same command runs on its own machine.

use super::solo_cache::SoloCache;
use super::{BenchArgs, Interrupted};
use crate::on_board::OnBoard;
use amp_eval::evaluation::BenchReport;
use amp_eval::workload::Workload;
use amp_host::bad_input;
use amp_metrics::providers::files_of;
use amp_workloads::catalogue::Catalogue;
use anyhow::{bail, Context, Result};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where things are in the guest.
const WORKLOAD: &str = "/bench/workload.toml";
/// Provider files lie below this as they do on the host, since one names another by the way from its own folder.
const PROVIDERS: &str = "/bench/providers";
const TRUST: &str = "/bench/trust.toml";
const SOLO: &str = "/bench/solo.json";
const REPORT: &str = "/bench/report.json";

/// Boots the guest, runs the bench in it, and takes over its results.
///
/// # Errors
/// Bad input, anything that goes wrong on the board, or [`Interrupted`].
pub fn bench(args: &BenchArgs, workload: &Workload, cancel: &AtomicBool) -> Result<BenchReport> {
    if args.big_cpus.is_some() {
        return Err(bad_input(
            "--big-cpus: the board's kernel tells its core types apart; use it with --on host",
        ));
    }
    let commands = workload.apps.iter().filter_map(|a| a.command.as_deref());
    let needs = Catalogue::shipped()?
        .needs(commands)
        .map_err(|e| bad_input(format!("{}: {e}", args.workload.display())))?;
    let mut board = OnBoard::new(args.machine.as_deref(), &args.kernel, &needs)?;
    let solo_path = match &args.solo_cache {
        Some(path) => path.clone(),
        None => {
            let name = format!("{}.json", board.machine.name);
            board.cache.dir("solo")?.join(name)
        }
    };
    board.silence(Duration::from_secs(args.timeout * 4));
    board.collect(&[REPORT, SOLO]);
    board.file(&args.workload, WORKLOAD);
    if args.provider.ends_with(".toml") {
        for path in files_of(Path::new(&args.provider)).map_err(bad_input)? {
            board.file(&path, in_guest(&path)?);
        }
    }
    if let Some(trust) = &args.trust.trust {
        board.file(trust, TRUST);
    }
    if solo_path.is_file() {
        board.file(&solo_path, SOLO);
    }
    let words = words(args, &board.machine.name, &board.model_version()?)?;
    let Some(outcome) = board.execute(&words, cancel, &mut |_| {})? else {
        return Err(Interrupted.into());
    };
    // what was measured alone stays good even when a run of the mix failed
    if let Some(solo) = outcome.files.get(SOLO) {
        if let Ok(new) = serde_json::from_slice::<SoloCache>(solo) {
            SoloCache::open(Some(&solo_path)).merge(new)?;
        }
    }
    if outcome.exit_code != 0 {
        let said: Vec<&str> = outcome.console.lines().rev().take(12).collect();
        let said: Vec<&str> = said.into_iter().rev().collect();
        bail!(
            "the bench in the guest ended with status {} (kernel {}):\n{}",
            outcome.exit_code,
            outcome.kernel.release,
            here(&said.join("\n"), args)
        );
    }
    let report = outcome
        .files
        .get(REPORT)
        .context("the guest left no report")?;
    let mut report: BenchReport =
        serde_json::from_slice(report).context("the guest's report cannot be read")?;
    report.on = "board".into();
    // a file has another name in the guest
    report.provider = args.provider.clone();
    report.environment.kernel = Some(outcome.kernel.release.clone());
    report.environment.qemu = Some(outcome.qemu.version.clone());
    report.environment.commit = Some(env!("SCX_AMP_COMMIT").into());
    Ok(report)
}

/// What the guest says, with the trust file's name of here.
fn here(said: &str, args: &BenchArgs) -> String {
    match &args.trust.trust {
        Some(path) => said.replace(TRUST, &path.display().to_string()),
        None => said.to_owned(),
    }
}

/// Where a provider file is put in the guest. `..` is resolved by name: the guest has no symbolic links.
fn in_guest(path: &Path) -> Result<String> {
    let mut plain = PathBuf::new();
    for part in std::path::absolute(path)?.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    Ok(format!("{PROVIDERS}{}", plain.display()))
}

/// The command in the guest.
fn words(args: &BenchArgs, machine: &str, model_version: &str) -> Result<Vec<String>> {
    let provider = if args.provider.ends_with(".toml") {
        in_guest(Path::new(&args.provider))?
    } else {
        args.provider.clone()
    };
    let mut words = vec![
        "scx_amp".to_string(),
        "bench".into(),
        WORKLOAD.to_string(),
        "--on=host".into(),
        format!("--machine={machine}"),
        format!("--policies={}", args.policies.join(",")),
        format!("--provider={provider}"),
        format!("--seed={}", args.seed),
        format!("--runs={}", args.runs),
        format!("--solo-runs={}", args.solo_runs),
        format!("--completions={}", args.completions),
        format!("--interval={}", args.interval),
        format!("--timeout={}", args.timeout),
        format!("--json={REPORT}"),
        format!("--solo-cache={SOLO}"),
        format!("--model-version={model_version}"),
        "--progress-lines".into(),
    ];
    words.extend(args.trust.trust.iter().map(|_| format!("--trust={TRUST}")));
    words.extend(args.settings.iter().map(|s| format!("--set={s}")));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_is_given_the_trust_file_that_was_named() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            bench: BenchArgs,
        }
        let args = |options: &[&str]| {
            let all = ["bench", "w.toml"].iter().chain(options);
            <Cli as clap::Parser>::try_parse_from(all).unwrap().bench
        };
        let inside = |options: &[&str]| words(&args(options), "juno", "1").unwrap().join(" ");
        let with = inside(&["--provider", "model", "--trust", "it's here.toml"]);
        assert!(with.contains(" --trust=/bench/trust.toml"), "{with}");
        let said = here("broken (/bench/trust.toml)", &args(&["--trust", "t.toml"]));
        assert_eq!(said, "broken (t.toml)");
        // the board's events are not this machine's: what lies in its place is not for the guest
        assert!(!inside(&["--provider", "model"]).contains("trust"));
    }

    #[test]
    fn provider_files_keep_their_ways_to_each_other() {
        let guest = |path: &str| in_guest(Path::new(path)).unwrap();
        assert_eq!(guest("/a/b/p.toml"), "/bench/providers/a/b/p.toml");
        assert_eq!(guest("/a/b/../c/p.toml"), "/bench/providers/a/c/p.toml");
    }
}
