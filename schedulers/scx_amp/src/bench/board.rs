//! The bench on the virtual AMP board: a guest in which the same command runs on its own machine.

use super::progress::Progress;
use super::solo_cache::SoloCache;
use super::{BenchArgs, Interrupted};
use crate::usage::bad_input;
use amp_board::{artifacts, Arch, Cache, Content, Event, Guest, GuestFile, Origin, Run};
use amp_metrics::providers::files_of;
use amp_sched::evaluation::BenchReport;
use amp_sched::workload::Workload;
use amp_workloads::catalogue::Catalogue;
use anyhow::{bail, Context, Result};
use sha2::{Digest, Sha256};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where things are in the guest.
const WORKLOAD: &str = "/bench/workload.toml";
/// Provider files lie below this as they do on the host, since one names another by the way from its own folder.
const PROVIDERS: &str = "/bench/providers";
const TRUST: &str = "/bench/trust.toml";
const SOLO: &str = "/bench/solo.json";
const REPORT: &str = "/bench/report.json";
const SCRIPT: &str = "/bench/run.sh";

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
    let name = args.machine.as_deref().unwrap_or("juno");
    let guest = Guest::amp(name).map_err(bad_input)?;
    let Guest::Amp { machine, .. } = &guest else {
        return Err(bad_input(format!(
            "--machine {name}: not a machine with core types"
        )));
    };
    let machine = machine.clone();
    let commands = workload.apps.iter().filter_map(|a| a.command.as_deref());
    let needs = Catalogue::shipped()?
        .needs(commands)
        .map_err(|e| bad_input(format!("{}: {e}", args.workload.display())))?;
    let cache = Cache::open()?;
    let solo_path = match &args.solo_cache {
        Some(path) => path.clone(),
        None => cache.dir("solo")?.join(format!("{}.json", machine.name)),
    };
    let mut run = Run::new(guest, format!("exec sh {SCRIPT}"));
    run.kernel = args
        .kernel
        .parse()
        .map_err(|e| bad_input(format!("--kernel {e}")))?;
    run.packages = needs
        .packages
        .iter()
        .chain(&needs.data_packages)
        .cloned()
        .collect();
    run.collect = vec![REPORT.into(), SOLO.into()];
    // Virtual time runs at about the pace of the host's; a bench is as long as its runs, and each of them is bounded.
    run.limits.total = None;
    run.limits.silence = Some(Duration::from_secs(args.timeout * 4));
    let version = model_version(&cache, &machine)?;
    let script = script(args, &machine.name, &version)?;
    run.files = vec![
        GuestFile::host(&args.workload, WORKLOAD),
        GuestFile {
            guest: SCRIPT.into(),
            content: Content::Bytes(script.into_bytes(), 0o755),
        },
    ];
    if args.provider.ends_with(".toml") {
        for path in files_of(Path::new(&args.provider)).map_err(bad_input)? {
            let guest = in_guest(&path)?;
            run.files.push(GuestFile::host(&path, &guest));
        }
    }
    if let Some(trust) = &args.trust.trust {
        run.files.push(GuestFile::host(trust, TRUST));
    }
    if solo_path.is_file() {
        run.files.push(GuestFile::host(&solo_path, SOLO));
    }

    let mut progress = Progress::bar();
    let outcome = run.execute(&cache, cancel, &mut |event| match event {
        Event::Progress { what, .. } | Event::Note(what) => progress.note(&what),
        Event::Console {
            line,
            from: Origin::Script,
        } => progress.relay(&line),
        Event::Console { .. } => {}
    });
    drop(progress);
    if cancel.load(Ordering::Relaxed) {
        return Err(Interrupted.into());
    }
    let outcome = outcome?;
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

/// What times of programs alone depend on: the model and its parameters.
///
/// # Errors
/// When the plugin or the guest's programs are not built.
pub(crate) fn model_version(cache: &Cache, machine: &amp_machine::MachineFile) -> Result<String> {
    let plugin = artifacts::plugin(cache)?;
    let mut h = Sha256::new();
    h.update(std::fs::read(&plugin).with_context(|| plugin.display().to_string())?);
    h.update(format!("{machine:?}"));
    let kernels = artifacts::guest_binary(cache, Arch::Arm64, "amp-workload")?;
    h.update(std::fs::read(&kernels).with_context(|| kernels.display().to_string())?);
    Ok(h.finalize()
        .iter()
        .take(12)
        .map(|b| format!("{b:02x}"))
        .collect())
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

/// The guest's script. Every value in it is quoted: none is read by the shell.
fn script(args: &BenchArgs, machine: &str, model_version: &str) -> Result<String> {
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
    let quoted: Vec<String> = words.iter().map(|w| quote(w)).collect();
    // For half a second after boot something keeps the big CPUs busy; idle virtual time costs nothing.
    Ok(format!("sleep 5\nexec {}\n", quoted.join(" ")))
}

/// `word` as the shell reads it back.
pub(crate) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_word_is_read_by_the_shell() {
        for word in ["a b", "$(id)", "it's", "`x`;", "\"", "*"] {
            let out = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quote(word))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&out.stdout), word);
        }
    }

    #[test]
    fn the_guest_is_given_the_trust_file_that_was_named() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            bench: BenchArgs,
        }
        let args = |words: &[&str]| {
            let words = ["bench", "w.toml"].iter().chain(words);
            <Cli as clap::Parser>::try_parse_from(words).unwrap().bench
        };
        let script = |words: &[&str]| script(&args(words), "juno", "1").unwrap();
        let with = script(&["--provider", "model", "--trust", "it's here.toml"]);
        assert!(with.contains(" '--trust=/bench/trust.toml'"), "{with}");
        let said = here("broken (/bench/trust.toml)", &args(&["--trust", "t.toml"]));
        assert_eq!(said, "broken (t.toml)");
        // the board's events are not this machine's: what lies in its place is not for the guest
        assert!(!script(&["--provider", "model"]).contains("trust"));
    }

    #[test]
    fn provider_files_keep_their_ways_to_each_other() {
        let guest = |path: &str| in_guest(Path::new(path)).unwrap();
        assert_eq!(guest("/a/b/p.toml"), "/bench/providers/a/b/p.toml");
        assert_eq!(guest("/a/b/../c/p.toml"), "/bench/providers/a/c/p.toml");
    }
}
