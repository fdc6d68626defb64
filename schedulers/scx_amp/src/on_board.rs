//! This command again, in a guest of the virtual AMP board that runs the script made here.

use amp_board::{
    artifacts, Arch, Cache, Content, Event, Guest, GuestFile, KernelChoice, Origin, Outcome, Run,
};
use amp_host::bad_input;
use amp_host::progress::Progress;
use amp_machine::MachineFile;
use amp_workloads::catalogue::Needs;
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The machine where nobody says which.
const MACHINE: &str = "juno";
/// The kernel where nobody says which.
pub const NEWEST: &str = "newest";
/// Where the script is in the guest.
const SCRIPT: &str = "/amp/again.sh";

/// A guest in the making.
pub struct OnBoard {
    /// What it keeps between runs.
    pub cache: Cache,
    /// Its machine.
    pub machine: MachineFile,
    run: Run,
}

impl OnBoard {
    /// A guest on `machine` with that kernel (`newest`, or the beginning of a version), and what
    /// programs need.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when there is no such machine or the kernel makes no sense; others
    /// when there is no cache.
    pub fn new(machine: Option<&str>, kernel: &str, needs: &Needs) -> Result<OnBoard> {
        let name = machine.unwrap_or(MACHINE);
        let guest = Guest::amp(name).map_err(bad_input)?;
        let Guest::Amp { machine, .. } = &guest else {
            return Err(bad_input(format!(
                "--machine {name}: not a machine with core types"
            )));
        };
        let machine = machine.clone();
        let mut run = Run::new(guest, format!("exec sh {SCRIPT}"));
        run.kernel = kernel
            .parse()
            .map_err(|e| bad_input(format!("--kernel {e}")))?;
        let packages = needs.packages.iter().chain(&needs.data_packages);
        run.packages = packages.cloned().collect();
        // Virtual time runs at about the pace of the host's. The work is as long as its runs, each
        // of which is bounded.
        run.limits.total = None;
        Ok(OnBoard {
            cache: Cache::open()?,
            machine,
            run,
        })
    }

    /// Lets the guest set the clocks.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when the machine has no operating points, or the kernel that was named
    /// no frequency scaling.
    pub fn dvfs(&mut self) -> Result<()> {
        if !self.machine.scales_frequency() {
            return Err(bad_input(format!(
                "--dvfs: machine `{}` has no operating_points; `juno` has",
                self.machine.name
            )));
        }
        if let KernelChoice::Version(v) = &self.run.kernel {
            return Err(bad_input(format!(
                "--kernel {v}: the cloud flavour has no frequency scaling, which --dvfs needs; want `generic` or such as 7.3-generic"
            )));
        }
        self.run.dvfs = true;
        Ok(())
    }

    /// Ends the guest when it says nothing for so long.
    pub fn silence(&mut self, limit: Duration) {
        self.run.limits.silence = Some(limit);
    }

    /// Puts a file of ours into the guest.
    pub fn file(&mut self, host: &Path, guest: impl Into<String>) {
        self.run.files.push(GuestFile::host(host, guest.into()));
    }

    /// Makes a file in the guest.
    pub fn text(&mut self, guest: &str, text: String) {
        self.run.files.push(GuestFile {
            guest: guest.into(),
            content: Content::Bytes(text.into_bytes(), 0o755),
        });
    }

    /// Takes these files home at the end.
    pub fn collect(&mut self, files: &[&str]) {
        self.run.collect = files.iter().map(|f| (*f).to_owned()).collect();
    }

    /// Boots the guest and runs `words` there, none of which the shell reads; every line that they
    /// print goes to `line`. Nothing when `cancel` was set meanwhile.
    ///
    /// # Errors
    /// Anything that goes wrong on the board, but not that the command failed.
    pub fn execute(
        mut self,
        words: &[String],
        cancel: &AtomicBool,
        line: &mut dyn FnMut(&str),
    ) -> Result<Option<Outcome>> {
        self.text(SCRIPT, script(words));
        let mut progress = Progress::bar();
        let outcome = self
            .run
            .execute(&self.cache, cancel, &mut |event| match event {
                Event::Progress { what, .. } | Event::Note(what) => progress.note(&what),
                Event::Warning(what) => progress.warn(&what),
                Event::Console {
                    line: text,
                    from: Origin::Script,
                } => {
                    progress.relay(&text);
                    line(&text);
                }
                Event::Console { .. } => {}
            });
        drop(progress);
        if cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        Ok(Some(outcome?))
    }

    /// What times of programs alone depend on: the model, its parameters, and how a guest boots.
    ///
    /// # Errors
    /// When the plugin or the guest's programs are not built.
    pub fn model_version(&self) -> Result<String> {
        let plugin = artifacts::plugin(&self.cache)?;
        let mut h = Sha256::new();
        h.update(std::fs::read(&plugin).with_context(|| plugin.display().to_string())?);
        h.update(format!("{:?}", self.machine));
        h.update(amp_board::BOOT.to_le_bytes());
        h.update([u8::from(self.run.dvfs)]);
        let kernels = artifacts::guest_binary(&self.cache, Arch::Arm64, "amp-workload")?;
        h.update(std::fs::read(&kernels).with_context(|| kernels.display().to_string())?);
        let digest = h.finalize();
        Ok(digest.iter().take(12).map(|b| format!("{b:02x}")).collect())
    }
}

/// Reads what a guest is to do, as its host wrote it with serde.
///
/// # Errors
/// [`amp_host::BadInput`] when it cannot be read or is not right; the text names the file, the line
/// and the key.
pub fn request<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let told = |e: &dyn std::fmt::Display| bad_input(format!("--request {}: {e}", path.display()));
    let (text, _) = amp_machine::read_text(path).map_err(|e| told(&e))?;
    serde_json::from_str(&text).map_err(|e| told(&e))
}

fn script(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|w| quote(w)).collect();
    // For half a second after boot something keeps the big CPUs busy; idle virtual time costs
    // nothing.
    format!("sleep 5\nexec {}\n", quoted.join(" "))
}

/// `word` as the shell reads it back.
fn quote(word: &str) -> String {
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
        let words = ["a".to_owned(), "b c".to_owned()];
        assert!(script(&words).ends_with("exec 'a' 'b c'\n"));
    }

    #[test]
    fn bad_input_is_told_before_anything_boots() {
        let needs = Needs::default();
        for (machine, kernel, says) in [
            ("nosuch", "newest", "nosuch"),
            ("juno", "nosuch", "--kernel"),
        ] {
            let e = OnBoard::new(Some(machine), kernel, &needs).err().unwrap();
            assert!(e.is::<amp_host::BadInput>(), "{e:#}");
            assert!(e.to_string().contains(says), "{e:#}");
        }
        for (machine, kernel, says) in [
            ("quickia", "newest", Some("operating_points")),
            ("juno", "7.3", Some("7.3-generic")),
            ("juno", "7.3-generic", None),
            ("juno", "newest", None),
        ] {
            let mut board = OnBoard::new(Some(machine), kernel, &needs).unwrap();
            let told = board.dvfs().err().map(|e| {
                assert!(e.is::<amp_host::BadInput>(), "{e:#}");
                e.to_string()
            });
            assert_eq!(told.is_some(), says.is_some(), "{told:?}");
            assert!(
                told.iter().zip(says).all(|(t, s)| t.contains(s)),
                "{told:?}"
            );
        }
    }
}
