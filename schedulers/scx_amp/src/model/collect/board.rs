//! The collection on the virtual AMP board: a guest in which the same command runs on its own
//! machine.

use super::collection::{write_data, Interrupted};
use super::journal::{is_run, JournalFile};
use super::{journal_path, list, CollectArgs, On, Outcome};
use crate::on_board::{OnBoard, NEWEST};
use amp_host::bad_input;
use amp_metrics::trust::PLACE;
use amp_models::data::Dataset;
use amp_models::journal::Journal;
use amp_models::programs::Program;
use amp_pmc::TrustArgs;
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
const REQUEST: &str = "/collect/request.json";
/// What begins the line that names a program without windows.
const FAILED: &str = "scx_amp: ";

/// Boots the guest, collects in it, and takes over what it found.
///
/// # Errors
/// Bad input, anything that goes wrong on the board, or [`Interrupted`].
pub fn collect(args: &CollectArgs, programs: &[Program], cancel: &AtomicBool) -> Result<Outcome> {
    let (list_path, list_text) = list(args)?;
    let commands = programs.iter().map(|p| p.command.as_slice());
    let needs = Catalogue::shipped()?.needs(commands);
    let needs = needs.map_err(|e| bad_input(format!("{}: {e}", list_path.display())))?;
    let mut kept = JournalFile::open(journal_path(&args.out), false)?;
    let mut board = OnBoard::new(
        args.machine.as_deref(),
        args.kernel.as_deref().unwrap_or(NEWEST),
        &needs,
    )?;
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
    let request = request(args, programs, &board.machine.name, &board.model_version()?);
    board.text(REQUEST, serde_json::to_string_pretty(&request)?);
    let words = ["scx_amp", "model", "collect", "--request", REQUEST].map(str::to_owned);
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
    let summary = summary.trim_end();
    amp_host::print(&format!("{summary}\nWrote {}.\n", args.out.display()))?;
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

/// The guest's reason for leaving out a program.
fn why(complaint: &str, program: &str) -> String {
    let begin = format!("{program}: ");
    let line = complaint.lines().find_map(|l| l.strip_prefix(&begin));
    line.unwrap_or("no windows").to_owned()
}

/// What the guest is to do: the same as here, on its own machine, with files where they are there.
fn request(args: &CollectArgs, programs: &[Program], machine: &str, version: &str) -> CollectArgs {
    let today = time::OffsetDateTime::now_utc().date().to_string();
    CollectArgs {
        out: OUT.into(),
        on: On::Host,
        machine: Some(machine.to_owned()),
        programs: Some(PROGRAMS.into()),
        only: programs.iter().map(|p| p.name.clone()).collect(),
        events: args.events.as_ref().map(|_| EVENTS.into()),
        // it lies where the guest's collection looks for it
        trust: TrustArgs::default(),
        kernel: None,
        date: Some(args.date.clone().unwrap_or(today)),
        model_version: version.to_owned(),
        progress_lines: true,
        request: None,
        ..args.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            collect: CollectArgs,
        }
        let words = "collect --out here.jsonl --window 5M --sample 8 --sigma-ref 0.02 --repeats 3 --timeout 70 \
                     --events e.toml --select held-out --date 2026-01-31 --kernel 7.0";
        let args = <Cli as clap::Parser>::try_parse_from(words.split_whitespace()).unwrap();
        let text = "[[program]]\nname = \"a b\"\ncommand = [\"true\"]\n";
        let programs = amp_models::programs::parse(Path::new("p.toml"), text).unwrap();
        let sent = request(&args.collect, &programs, "juno", "v1");
        let text = serde_json::to_string(&sent).unwrap();
        let got: CollectArgs = serde_json::from_str(&text).unwrap();
        assert_eq!(got, sent);
        assert_eq!((got.on, got.out.as_path()), (On::Host, Path::new(OUT)));
        assert_eq!(
            (got.window.get(), got.sample, got.sigma_ref),
            (5_000_000, 8, 0.02)
        );
        assert_eq!((got.repeats, got.timeout), (3, 70));
        assert_eq!(got.events.as_deref(), Some(Path::new(EVENTS)));
        assert_eq!(
            (got.only, got.date.as_deref()),
            (vec!["a b".to_owned()], Some("2026-01-31"))
        );
    }

    #[test]
    fn a_guests_complaint_is_told_by_program() {
        let text = "2 of 3 programs have no windows, the others' are in x:\na: on big: ended with status 3: b: no\nb: on little: y\n";
        assert_eq!(why(text, "a"), "on big: ended with status 3: b: no");
        assert_eq!(why(text, "b"), "on little: y");
        assert_eq!(why(text, "c"), "no windows");
    }
}
