//! The collection on the virtual AMP board: a guest in which the same command runs on its own machine.

use super::here::{write_data, Interrupted};
use super::journal::{is_run, Kept};
use super::{journal_path, list, CollectArgs, Outcome};
use crate::bench::board::{model_version, quote};
use crate::bench::progress::Progress;
use crate::usage::bad_input;
use amp_board::{Cache, Content, Event, Guest, GuestFile, Origin, Run};
use amp_metrics::trust::PLACE;
use amp_models::data::Dataset;
use amp_models::journal::Journal;
use amp_models::programs::Program;
use amp_workloads::catalogue::Catalogue;
use anyhow::{bail, Context, Result};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where things are in the guest.
const PROGRAMS: &str = "/collect/programs.toml";
const EVENTS: &str = "/collect/events.toml";
const OUT: &str = "/collect/windows.jsonl";
const JOURNAL: &str = "/collect/windows.jsonl.journal";
const SCRIPT: &str = "/collect/run.sh";
/// What begins the line that names a program without windows.
const FAILED: &str = "scx_amp: ";

/// Boots the guest, collects in it, and takes over what it found.
///
/// # Errors
/// Bad input, anything that goes wrong on the board, or [`Interrupted`].
pub fn collect(args: &CollectArgs, programs: &[Program], cancel: &AtomicBool) -> Result<Outcome> {
    if args.big_cpus.is_some() || args.workdir.is_some() {
        return Err(bad_input("--big-cpus and --workdir go with --on host"));
    }
    let name = args.machine.as_deref().unwrap_or("juno");
    let guest = Guest::amp(name).map_err(bad_input)?;
    let Guest::Amp { machine, .. } = &guest else {
        return Err(bad_input(format!(
            "--machine {name}: not a machine with core types"
        )));
    };
    let machine = machine.clone();
    let (list_path, list_text) = list(args)?;
    let commands = programs.iter().map(|p| p.command.as_slice());
    let needs = Catalogue::shipped()?.needs(commands);
    let needs = needs.map_err(|e| bad_input(format!("{}: {e}", list_path.display())))?;
    let mut kept = Kept::open(journal_path(&args.out), false)?;
    let cache = Cache::open()?;
    let version = model_version(&cache, &machine)?;
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
    run.collect = vec![OUT.into(), JOURNAL.into()];
    // virtual time runs at about the pace of the host's; each run of a program is bounded
    run.limits.total = None;
    run.limits.silence = Some(Duration::from_secs(
        args.timeout.saturating_mul(10).max(600),
    ));
    let bytes = |guest: &str, text: String| GuestFile {
        guest: guest.into(),
        content: Content::Bytes(text.into_bytes(), 0o755),
    };
    run.files = vec![
        bytes(SCRIPT, script(args, programs, &machine.name, &version)),
        bytes(PROGRAMS, list_text),
    ];
    if let Some(events) = &args.events {
        run.files.push(GuestFile::host(events, EVENTS));
    }
    if let Some(trust) = &args.trust.trust {
        // where the guest's collection looks for it
        run.files.push(GuestFile::host(trust, format!("/{PLACE}")));
    }
    if kept.path().is_file() {
        run.files.push(GuestFile::host(kept.path(), JOURNAL));
    }
    let mut progress = Progress::bar();
    let mut lost = None;
    let mut said = Vec::new();
    let outcome = run.execute(&cache, cancel, &mut |event| match event {
        Event::Progress { what, .. } | Event::Note(what) => progress.note(&what),
        Event::Console {
            line,
            from: Origin::Script,
        } => {
            progress.relay(&line);
            if let Err(e) = kept.relay(&line) {
                lost.get_or_insert(e);
            }
            if !is_run(&line) && !line.starts_with('@') {
                said.push(line.trim_end().to_owned());
            }
        }
        Event::Console { .. } => {}
    });
    drop(progress);
    if cancel.load(Ordering::Relaxed) {
        return Err(Interrupted.into());
    }
    let outcome = outcome?;
    if let Some(e) = lost {
        log::warn!("{e:#}: finished runs would be lost by an interruption");
    }
    let said = said.join("\n");
    let Some(data) = outcome.files.get(OUT) else {
        let told = format!(
            "the collection in the guest (kernel {}) failed:\n{said}",
            outcome.kernel.release
        );
        match outcome.exit_code {
            2 => return Err(bad_input(told)),
            _ => bail!(told),
        }
    };
    let data = Dataset::read(Path::new(OUT), data.as_slice()).context("what the guest wrote")?;
    write_data(&args.out, &data)?;
    // what the guest complained about stands behind its summary
    let (summary, complaint) = said.split_once(FAILED).unwrap_or((&said, ""));
    println!("{}\nWrote {}.", summary.trim_end(), args.out.display());
    let failed: Vec<(String, String)> = programs
        .iter()
        .filter(|p| !data.programs.contains_key(&p.name))
        .map(|p| (p.name.clone(), why(complaint, &p.name)))
        .collect();
    if failed.is_empty() {
        kept.done();
    } else if let Some(text) = outcome.files.get(JOURNAL) {
        // whole, also where the kernel wrote into a line of the console
        kept.replace(Journal::parse(
            Path::new(JOURNAL),
            &String::from_utf8_lossy(text),
        )?)?;
    }
    Ok(Outcome { failed })
}

/// What the guest said of a program.
fn why(complaint: &str, program: &str) -> String {
    let begin = format!("{program}: ");
    let line = complaint.lines().find_map(|l| l.strip_prefix(&begin));
    line.unwrap_or("no windows").to_owned()
}

/// The guest's script. Every value in it is quoted: none is read by the shell.
fn script(args: &CollectArgs, programs: &[Program], machine: &str, version: &str) -> String {
    let today = time::OffsetDateTime::now_utc().date().to_string();
    let mut words = vec![
        "scx_amp".to_string(),
        "model".into(),
        "collect".into(),
        "--on=host".into(),
        format!("--out={OUT}"),
        format!("--machine={machine}"),
        format!("--programs={PROGRAMS}"),
        format!("--window={}", args.window),
        format!("--sample={}", args.sample),
        format!("--sigma-ref={}", args.sigma_ref),
        format!("--repeats={}", args.repeats),
        format!("--timeout={}", args.timeout),
        format!("--date={}", args.date.as_ref().unwrap_or(&today)),
        format!("--model-version={version}"),
        "--progress-lines".into(),
    ];
    if args.events.is_some() {
        words.push(format!("--events={EVENTS}"));
    }
    words.extend(programs.iter().map(|p| format!("--only={}", p.name)));
    let quoted: Vec<String> = words.iter().map(|w| quote(w)).collect();
    // For half a second after boot something keeps the big CPUs busy; idle virtual time costs nothing.
    format!("sleep 5\nexec {}\n", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_complaint_is_told_by_program() {
        let text = "2 of 3 programs have no windows, the others' are in x:\na: on big: ended with status 3: b: no\nb: on little: y\n";
        assert_eq!(why(text, "a"), "on big: ended with status 3: b: no");
        assert_eq!(why(text, "b"), "on little: y");
        assert_eq!(why(text, "c"), "no windows");
    }
}
