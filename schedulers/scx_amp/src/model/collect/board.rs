//! The collection on the virtual AMP board: a guest in which the same command runs on its own machine.

use super::here::{write_data, Interrupted};
use super::journal::{is_run, Kept};
use super::{journal_path, list, CollectArgs, Outcome};
use crate::on_board::OnBoard;
use amp_host::bad_input;
use amp_metrics::trust::PLACE;
use amp_models::data::Dataset;
use amp_models::journal::Journal;
use amp_models::programs::Program;
use amp_workloads::catalogue::Catalogue;
use anyhow::{bail, Context, Result};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where things are in the guest.
const PROGRAMS: &str = "/collect/programs.toml";
const EVENTS: &str = "/collect/events.toml";
const OUT: &str = "/collect/windows.jsonl";
const JOURNAL: &str = "/collect/windows.jsonl.journal";
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
    let (list_path, list_text) = list(args)?;
    let commands = programs.iter().map(|p| p.command.as_slice());
    let needs = Catalogue::shipped()?.needs(commands);
    let needs = needs.map_err(|e| bad_input(format!("{}: {e}", list_path.display())))?;
    let mut kept = Kept::open(journal_path(&args.out), false)?;
    let mut board = OnBoard::new(args.machine.as_deref(), &args.kernel, &needs)?;
    board.silence(Duration::from_secs(
        args.timeout.saturating_mul(10).max(600),
    ));
    board.collect(&[OUT, JOURNAL]);
    board.text(PROGRAMS, list_text);
    if let Some(events) = &args.events {
        board.file(events, EVENTS);
    }
    if let Some(trust) = &args.trust.trust {
        // where the guest's collection looks for it
        board.file(trust, format!("/{PLACE}"));
    }
    if kept.path().is_file() {
        board.file(kept.path(), JOURNAL);
    }
    let words = words(args, programs, &board.machine.name, &board.model_version()?);
    let mut lost = None;
    let mut said = Vec::new();
    let outcome = board.execute(&words, cancel, &mut |line| {
        if let Err(e) = kept.relay(line) {
            lost.get_or_insert(e);
        }
        if !is_run(line) && !line.starts_with('@') {
            said.push(line.trim_end().to_owned());
        }
    })?;
    let Some(outcome) = outcome else {
        return Err(Interrupted.into());
    };
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

/// The command in the guest.
fn words(args: &CollectArgs, programs: &[Program], machine: &str, version: &str) -> Vec<String> {
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
    words
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
