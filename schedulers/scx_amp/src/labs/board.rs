//! The bench on the virtual AMP board: a guest in which the same command runs the whole protocol on
//! its own machine, from one request in a file. The board measures itself; see [`amp_eval::lab`].

use crate::bench::{BenchArgs, Interrupted, On};
use crate::memory;
use crate::on_board::{OnBoard, NEWEST};
use crate::recording;
use amp_board::{peers, Cache, Outcome};
use amp_eval::contender::Scx;
use amp_eval::evaluation::BenchReport;
use amp_eval::solos::SoloCache;
use amp_eval::workload::Workload;
use amp_eval::Contender;
use amp_host::bad_input;
use amp_metrics::providers::files_of;
use amp_pmc::TrustArgs;
use amp_sched::{closest, did_you_mean};
use amp_workloads::catalogue::Catalogue;
use anyhow::{bail, Context, Result};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where things are in the guest.
const WORKLOAD: &str = "/bench/workload.toml";
/// Provider files lie below this as they do on the host, since one names another by the way from
/// its own folder.
const PROVIDERS: &str = "/bench/providers";
const TRUST: &str = "/bench/trust.toml";
const MEMORY: &str = "/bench/memory.json";
const SOLO: &str = "/bench/solo.json";
const RECORDINGS: &str = "/bench/recordings";
const REPORT: &str = "/bench/report.json";
const REQUEST: &str = "/bench/request.json";

/// Boots the guest, runs the bench in it, and takes over its results.
///
/// # Errors
/// Bad input, anything that goes wrong on the board, or [`Interrupted`].
pub fn bench(args: &BenchArgs, workload: &Workload, cancel: &AtomicBool) -> Result<BenchReport> {
    let commands = workload.apps.iter().filter_map(|a| a.command.as_deref());
    let needs = Catalogue::shipped()?
        .needs(commands)
        .map_err(|e| bad_input(format!("{}: {e}", args.workload.display())))?;
    let mut board = OnBoard::new(
        args.machine_for(workload),
        args.kernel.as_deref().unwrap_or(NEWEST),
        &needs,
    )?;
    if args.dvfs {
        board.dvfs()?;
    }
    let solo_path = match &args.solo_cache {
        Some(path) => path.clone(),
        None => {
            let name = format!("{}.json", board.machine.name);
            board.cache.dir("solo")?.join(name)
        }
    };
    board.silence(Duration::from_secs(args.timeout_s().saturating_mul(4)));
    let mut home = vec![REPORT, SOLO];
    home.extend(args.memory.as_ref().map(|_| MEMORY));
    home.extend(args.record.as_ref().map(|_| RECORDINGS));
    board.collect(&home);
    if let Some(memory) = args.memory.as_ref().filter(|m| m.is_file()) {
        board.file(memory, MEMORY);
    }
    board.file(&args.workload, WORKLOAD);
    if args.provider.ends_with(".toml") {
        for path in files_of(Path::new(&args.provider)).map_err(bad_input)? {
            board.file(&path, in_guest(&path)?);
        }
    }
    if let Some(trust) = &args.trust.trust {
        board.file(trust, TRUST);
    }
    for scx in args.policies.iter().filter_map(Contender::scx) {
        board.file(&peer(scx)?, format!("/usr/local/bin/{}", scx.program()));
    }
    if solo_path.is_file() {
        board.file(&solo_path, SOLO);
    }
    let request = request(args, &board.machine.name, &board.model_version()?)?;
    board.text(REQUEST, serde_json::to_string_pretty(&request)?);
    let words = ["scx_amp", "bench", "--request", REQUEST].map(str::to_owned);
    let Some(outcome) = board.execute(&words, cancel, &mut |_| {})? else {
        return Err(Interrupted.into());
    };
    // what was measured alone stays good even when a run of the mix failed
    if let Some(solo) = outcome.files.get(SOLO) {
        if let Ok(new) = serde_json::from_slice::<SoloCache>(solo) {
            SoloCache::open(Some(&solo_path)).merge(new)?;
        }
    }
    // and how it failed may stand in a recording
    if let Some(dir) = &args.record {
        keep_recordings(dir, &outcome)?;
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
    if let Some((path, memory)) = args.memory.as_ref().zip(outcome.files.get(MEMORY)) {
        let text = std::str::from_utf8(memory).context("the guest's memory cannot be read")?;
        memory::save(path, text).with_context(|| format!("--memory {}", path.display()))?;
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

/// Puts the guest's recordings into `dir`.
fn keep_recordings(dir: &Path, outcome: &Outcome) -> Result<()> {
    recording::make_folder(dir)?;
    for (path, content) in &outcome.files {
        let name = Path::new(path).strip_prefix(RECORDINGS);
        if let Some(name) = name.ok().and_then(Path::file_name) {
            let path = dir.join(name);
            let text = std::str::from_utf8(content)
                .with_context(|| format!("the guest's {} cannot be read", path.display()))?;
            amp_host::write_out(&path, text)?;
        }
    }
    Ok(())
}

/// The program of `scx` that was built for the board.
///
/// # Errors
/// [`amp_host::BadInput`] when there is none; the text says how to build it, or which names there
/// are.
pub fn peer(scx: &Scx) -> Result<PathBuf> {
    let cache = Cache::open()?;
    let built = peers::built(&cache);
    if let Some(peer) = built.iter().find(|p| p.name == scx.name()) {
        return Ok(peer.program(&cache));
    }
    let shipped = peers::shipped()?;
    let known = || {
        let all = built.iter().chain(&shipped);
        all.map(|p| p.name.as_str())
    };
    let how = match known().any(|n| n == scx.name()) {
        true => format!("`scx_amp board fetch --peers={}` builds it", scx.name()),
        false => {
            let near: Vec<String> = closest(scx.name(), known())
                .into_iter()
                .map(|n| format!("scx:{n}"))
                .collect();
            let all: BTreeSet<&str> = known().collect();
            let all: Vec<&str> = all.into_iter().collect();
            format!("there are {}{}", all.join(", "), did_you_mean(&near))
        }
    };
    Err(bad_input(format!(
        "--policies: `{scx}`: no `{}` was built for the board; {how}",
        scx.program()
    )))
}

/// What the guest says, with the trust file's name of here.
fn here(said: &str, args: &BenchArgs) -> String {
    match &args.trust.trust {
        Some(path) => said.replace(TRUST, &path.display().to_string()),
        None => said.to_owned(),
    }
}

/// Where a provider file is put in the guest. `..` is resolved by name: the guest has no symbolic
/// links.
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

/// What the guest is to do: the same as here, on its own machine, with files where they are there.
fn request(args: &BenchArgs, machine: &str, model_version: &str) -> Result<BenchArgs> {
    let provider = match args.provider.ends_with(".toml") {
        true => in_guest(Path::new(&args.provider))?,
        false => args.provider.clone(),
    };
    Ok(BenchArgs {
        workload: WORKLOAD.into(),
        on: On::Host,
        machine: Some(machine.to_owned()),
        provider,
        trust: TrustArgs {
            trust: args.trust.trust.as_ref().map(|_| TRUST.into()),
        },
        memory: args.memory.as_ref().map(|_| MEMORY.into()),
        record: args.record.as_ref().map(|_| RECORDINGS.into()),
        kernel: None,
        json: Some(REPORT.into()),
        html: None,
        solo_cache: Some(SOLO.into()),
        model_version: model_version.to_owned(),
        progress_lines: true,
        request: None,
        ..args.clone()
    })
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
        let inside = |options: &[&str]| request(&args(options), "juno", "1").unwrap();
        let with = inside(&["--provider", "model", "--trust", "it's here.toml"]);
        assert_eq!(with.trust.trust.as_deref(), Some(Path::new(TRUST)));
        assert_eq!(with.memory, None);
        let with = inside(&["--provider", "model", "--memory", "m.json"]);
        assert_eq!(with.memory.as_deref(), Some(Path::new(MEMORY)));
        let said = here("broken (/bench/trust.toml)", &args(&["--trust", "t.toml"]));
        assert_eq!(said, "broken (t.toml)");
        // the board's events are not this machine's: what lies in its place is not for the guest
        assert_eq!(inside(&["--provider", "model"]).trust.trust, None);
    }

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            bench: BenchArgs,
        }
        let words = "bench w.toml --policies rr,acfs --set acfs.uf=1.5 --set rr.threshold=50 --seed 7 --runs 2 \
                     --completions 4 --interval 20 --timeout 99 --solo-runs 5 --provider a/p.toml --kernel 7.0 \
                     --html page.html --solo-cache kept.json";
        let args = <Cli as clap::Parser>::try_parse_from(words.split_whitespace()).unwrap();
        let sent = request(&args.bench, "juno", "v1").unwrap();
        let text = serde_json::to_string(&sent).unwrap();
        let got: BenchArgs = serde_json::from_str(&text).unwrap();
        assert_eq!(got, sent);
        assert_eq!((got.on, got.machine.as_deref()), (On::Host, Some("juno")));
        assert_eq!(got.policies.names(), ["rr", "acfs"]);
        assert_eq!(got.settings, ["acfs.uf=1.5", "rr.threshold=50"]);
        assert_eq!(
            (got.seed, got.runs, got.completions, got.interval),
            (7, amp_eval::Runs::Exactly(2), 4, 20)
        );
        assert_eq!(
            (got.timeout, got.solo_runs, got.html),
            (Some(99), Some(5), None)
        );
        assert!(got.provider.starts_with(PROVIDERS) && got.provider.ends_with("a/p.toml"));
        assert_eq!(got.solo_cache.as_deref(), Some(Path::new(SOLO)));
        // a guest of another version says so instead of leaving something out
        let more = text.replacen('{', "{\"colour\":1,", 1);
        let e = serde_json::from_str::<BenchArgs>(&more).unwrap_err();
        assert!(e.to_string().contains("colour"), "{e}");
    }

    #[test]
    fn provider_files_keep_their_ways_to_each_other() {
        let guest = |path: &str| in_guest(Path::new(path)).unwrap();
        assert_eq!(guest("/a/b/p.toml"), "/bench/providers/a/b/p.toml");
        assert_eq!(guest("/a/b/../c/p.toml"), "/bench/providers/a/c/p.toml");
    }
}
