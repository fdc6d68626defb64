//! The journal's file.

use amp_host::bad_input;
use amp_models::journal::{Finished, Journal, Plan, SampleSize};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a finished run's line begins with on a guest's console.
const MARK: &str = "@run ";

/// A journal and the file it is kept in.
pub struct JournalFile {
    /// Content of the journal.
    pub journal: Journal,
    path: PathBuf,
    file: Option<File>,
    console: bool,
}

impl JournalFile {
    /// Reads the journal of an earlier collection, if there is one. `console`: runs are printed,
    /// too.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when it is not one.
    pub fn open(path: PathBuf, console: bool) -> Result<JournalFile> {
        let journal = match amp_machine::read_text(&path) {
            Ok((text, _)) => Journal::parse(&path, &text).map_err(bad_input)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Journal::default(),
            Err(e) => return Err(bad_input(format!("{}: {e}", path.display()))),
        };
        Ok(JournalFile {
            journal,
            path,
            file: None,
            console,
        })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, line: &str) -> Result<()> {
        let what = || format!("cannot write {}", self.path.display());
        if self.file.is_none() {
            // afresh, without a line that was cut off; aside and renamed, so that nothing is lost
            // on the way
            let mut text = String::new();
            if let Some(plan) = &self.journal.plan {
                text += &(serde_json::to_string(plan)? + "\n");
            }
            for run in self.journal.runs.values() {
                text += &(serde_json::to_string(run)? + "\n");
            }
            for size in self.journal.sizes.values() {
                text += &(serde_json::to_string(size)? + "\n");
            }
            let mut aside = self.path.as_os_str().to_owned();
            aside.push(".new");
            std::fs::write(&aside, text).with_context(what)?;
            std::fs::rename(&aside, &self.path).with_context(what)?;
            self.file = Some(
                File::options()
                    .append(true)
                    .open(&self.path)
                    .with_context(what)?,
            );
        }
        if let Some(file) = self.file.as_mut().filter(|_| !line.is_empty()) {
            // one write: a line is there as a whole, or it is the last one
            file.write_all(format!("{line}\n").as_bytes())
                .with_context(what)?;
        }
        Ok(())
    }

    /// Notes what is to be done.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn plan(&mut self, plan: Plan) -> Result<()> {
        if self.console {
            let line = serde_json::to_string(&plan)?;
            amp_host::write_out("-".as_ref(), &format!("{MARK}{line}\n"))?;
        }
        self.journal.plan = Some(plan);
        self.write("")
    }

    /// Notes a run.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, run: Finished) -> Result<()> {
        self.tell(&run)?;
        self.journal.add(run);
        Ok(())
    }

    /// Notes how many runs of a program make a measure.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn size(&mut self, size: SampleSize) -> Result<()> {
        self.tell(&size)?;
        self.journal.size(size);
        Ok(())
    }

    /// Writes a line, and prints it where a host listens.
    fn tell(&mut self, what: &impl serde::Serialize) -> Result<()> {
        let line = serde_json::to_string(what)?;
        if self.console {
            amp_host::write_out("-".as_ref(), &format!("{MARK}{line}\n"))?;
        }
        self.write(&line)
    }

    /// Takes what a guest's console line says, if it is one of ours and whole.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn relay(&mut self, console_line: &str) -> Result<()> {
        let Some(text) = console_line.trim_end().strip_prefix(MARK) else {
            return Ok(());
        };
        // one into which the kernel wrote is not lost: the guest hands over its whole journal at
        // its end
        if let Ok(plan) = serde_json::from_str::<Plan>(text) {
            self.journal.plan = Some(plan);
            return self.write("");
        }
        if self.journal.plan.is_none() {
            return Ok(());
        }
        if let Ok(run) = serde_json::from_str::<Finished>(text) {
            return self.add(run);
        }
        match serde_json::from_str::<SampleSize>(text) {
            Ok(size) => self.size(size),
            Err(_) => Ok(()),
        }
    }

    /// Takes over another journal in place of this one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn replace(&mut self, journal: Journal) -> Result<()> {
        self.journal = journal;
        self.file = None;
        self.write("")
    }

    /// Removes the file: all runs are done.
    pub fn done(self) {
        drop(self.file);
        // one that stays would only be read again
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a guest's console line is a finished run.
pub fn is_run(console_line: &str) -> bool {
    console_line.starts_with(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_models::journal::Counted;

    fn plan() -> Plan {
        let header = r#"{"format":"amp-windows","version":1,"platform":"p","core_types":[{"name":"b","events_per_set":1,"sets":[["x"]]},{"name":"l","events_per_set":1,"sets":[["x"]]}]}"#;
        Plan {
            journal: amp_models::journal::VERSION,
            window: 10,
            sample_ms: 1,
            sigma_ref: 0.01,
            on: String::new(),
            header: serde_json::from_str(header).unwrap(),
        }
    }

    fn run(n: u32) -> Finished {
        Finished {
            program: "p".into(),
            command: vec!["p".into()],
            core_type: 0,
            run: n,
            set: 0,
            instructions: 12,
            windows: vec![Counted(10, 1, 2, None, vec![3])],
        }
    }

    #[test]
    fn what_was_done_is_there_after_a_crash() {
        let d = tempfile::tempdir().unwrap();
        let path = d.path().join("o.journal");
        let mut k = JournalFile::open(path.clone(), false).unwrap();
        assert!(k.journal.plan.is_none());
        k.plan(plan()).unwrap();
        k.add(run(0)).unwrap();
        let size = SampleSize {
            program: "p".into(),
            command: vec!["p".into()],
            core_type: 0,
            r: 3,
        };
        k.size(size.clone()).unwrap();
        k.add(run(1)).unwrap();
        drop(k);
        // the last line is cut off
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut k = JournalFile::open(path.clone(), false).unwrap();
        assert_eq!(
            (k.journal.plan.clone(), k.journal.runs.len()),
            (Some(plan()), 1)
        );
        k.add(run(1)).unwrap();
        drop(k);
        let k = JournalFile::open(path.clone(), false).unwrap();
        assert_eq!(
            (k.journal.runs.len(), k.journal.repeated, k.journal.cut_off),
            (2, 0, false)
        );
        assert_eq!(k.journal.r("p", &size.command, 0), Some(3));
        k.done();
        assert!(!path.exists());
        std::fs::write(&path, "no journal\n").unwrap();
        let e = JournalFile::open(path, false).err().unwrap();
        assert!(e.to_string().contains("line 1"), "{e}");
    }

    #[test]
    fn a_guests_lines_are_taken_over() {
        let d = tempfile::tempdir().unwrap();
        let path = d.path().join("o.journal");
        let mut k = JournalFile::open(path.clone(), false).unwrap();
        let line = |r: &Finished| format!("@run {}\r", serde_json::to_string(r).unwrap());
        // a run of nobody's plan
        k.relay(&line(&run(0))).unwrap();
        assert!(k.journal.runs.is_empty());
        k.relay(&format!("@run {}", serde_json::to_string(&plan()).unwrap()))
            .unwrap();
        for text in [
            &line(&run(0)),
            "@run {\"program\":[  1.2] usb",
            "@bench 1 2 x",
            "other",
        ] {
            k.relay(text).unwrap();
        }
        assert_eq!(
            JournalFile::open(path, false).unwrap().journal.runs.len(),
            1
        );
    }
}
