//! `scx_amp run --record`, `bench --record`: the running scheduler writes down what happens.

use crate::scheduling::Scheduling;
use amp_host::bad_input;
use amp_machine::CpuList;
use amp_metrics::Nanos;
use amp_recording::file::Offer;
use amp_recording::format::{Change, RecordedCoreType, Who, VERSION};
use amp_recording::{Header, Recorder, RecordingFile};
use amp_sched::{Engine, Machine, Topology};
use anyhow::{Context, Result};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most bytes of a command line that are recorded.
const COMMAND_BYTES: u64 = 1024;
const MIB: u64 = 1 << 20;

/// MiB that a recording may have unless the user says otherwise.
const RECORD_SIZE: u64 = 64;

/// Options of what is recorded.
#[derive(Args, Clone, Debug)]
pub struct RecordArgs {
    /// Write what happens to FILE, for `scx_amp replay`; the older half is in FILE.1.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Most that FILE and FILE.1 may have together, in MiB.
    #[arg(long, default_value_t = RECORD_SIZE, value_name = "MIB", requires = "record", value_parser = clap::value_parser!(u64).range(1..=2048))]
    pub record_size: u64,
    /// Record command lines, which may contain secrets.
    #[arg(long, requires = "record")]
    pub record_commands: bool,
}

/// Whether `dir` is a folder for recordings, or one can be made there; nothing is changed.
///
/// # Errors
/// [`amp_host::BadInput`] when it is neither.
pub fn check_folder(dir: &Path) -> Result<()> {
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty());
    let why = if dir.is_dir() {
        return Ok(());
    } else if dir.symlink_metadata().is_ok() {
        "is no folder"
    } else if !parent.unwrap_or(Path::new(".")).is_dir() {
        "cannot be made: there is no folder for it"
    } else {
        return Ok(());
    };
    Err(bad_input(format!("--record {}: {why}", dir.display())))
}

/// Makes the folder of recordings, for its owner's eyes only, where there is none.
///
/// # Errors
/// When the system refuses.
pub fn make_folder(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    check_folder(dir)?;
    if dir.is_dir() {
        return Ok(());
    }
    let made = std::fs::DirBuilder::new().mode(0o700).create(dir);
    made.with_context(|| format!("--record {}", dir.display()))
}

/// A recording in progress.
pub struct Recording {
    recorder: Recorder,
    file: RecordingFile,
    core_types: Vec<RecordedCoreType>,
    /// Why nothing is recorded any more.
    ended: Option<String>,
}

impl RecordArgs {
    /// Nothing is recorded.
    pub fn none() -> RecordArgs {
        RecordArgs {
            record: None,
            record_size: RECORD_SIZE,
            record_commands: false,
        }
    }

    /// What happens is recorded in `file`, of the usual size and without command lines.
    pub fn to(file: PathBuf) -> RecordArgs {
        RecordArgs {
            record: Some(file),
            ..RecordArgs::none()
        }
    }

    /// Whether the file can be made, where there is to be one. A scheduler that is running already
    /// may be writing it.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when it cannot be had.
    pub fn check(&self) -> Result<()> {
        let checked = self.record.as_deref().map_or(Ok(()), RecordingFile::check);
        checked.map_err(|e| bad_input(format!("--record: {e}")))
    }

    /// Makes the file, where there is to be one.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when it cannot be had.
    pub fn create(&self) -> Result<Option<RecordingFile>> {
        let file = self.record.as_deref().map(RecordingFile::create);
        file.transpose()
            .map_err(|e| bad_input(format!("--record: {e}")))
    }

    /// Begins to record to `file` what `scheduling` does at every `interval`.
    pub fn begin(
        &self,
        file: RecordingFile,
        scheduling: &Scheduling,
        interval: Nanos,
    ) -> Recording {
        let now = how(scheduling.engine());
        let core_types = core_types(scheduling.machine().topology());
        let header = Header {
            scx_amp_recording: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            run: unlike_any_other(),
            part: 0,
            interval_us: interval.0 / 1000,
            core_types: core_types.clone(),
            policy: now.policy,
            knobs: now.knobs,
            provider: now.provider,
            kernel: Some(kernel()),
            commands: self.record_commands,
        };
        let command_of = self.record_commands.then_some(command_of as _);
        let most = self.record_size * MIB / 2;
        Recording {
            recorder: Recorder::new(header, most, scheduling.sets(), command_of),
            file,
            core_types,
            ended: None,
        }
    }
}

impl Recording {
    /// Records the tick that `scheduling` has just made.
    pub fn tick(&mut self, scheduling: &Scheduling) {
        if self.ended.is_some() {
            return;
        }
        let snapshot = scheduling.machine().last();
        let provider = scheduling.engine().provider();
        let Some(chunk) = self.recorder.tick(snapshot, provider) else {
            return;
        };
        match self.file.offer(chunk) {
            Offer::Taken => self.recorder.taken(),
            Offer::Behind => {}
            Offer::Ended(why) => self.end(why),
        }
    }

    /// Records what `scheduling` has just done: a tick if it `decided`, else a glance.
    pub fn called(&mut self, scheduling: &Scheduling, decided: bool) {
        match decided {
            true => self.tick(scheduling),
            false => self.glance(scheduling),
        }
    }

    /// Takes in what a glance of `scheduling` saw.
    fn glance(&mut self, scheduling: &Scheduling) {
        if self.ended.is_none() {
            self.recorder.glance(scheduling.machine().last());
        }
    }

    /// Policy, knobs or provider have changed.
    pub fn changed(&mut self, scheduling: &Scheduling) {
        self.recorder.count(scheduling.sets());
        self.recorder.changed(how(scheduling.engine()));
    }

    /// The scheduler was loaded again, perhaps on a machine with other cores.
    pub fn begin_anew(&mut self, scheduling: &Scheduling) {
        self.recorder.begin_anew();
        self.changed(scheduling);
        if core_types(scheduling.machine().topology()) != self.core_types && self.ended.is_none() {
            self.end("the machine has other CPUs now".to_owned());
        }
    }

    fn end(&mut self, why: String) {
        log::warn!("recording to {} ended: {why}", self.file.path().display());
        self.ended = Some(why);
    }

    /// What a status says of it: where it writes, how much it has, and why it ended if it has.
    pub fn status(&self) -> BTreeMap<String, String> {
        let ended = self.ended.clone().or_else(|| self.file.ended());
        let about = [
            ("file", Some(self.file.path().display().to_string())),
            ("bytes", Some(self.file.bytes().to_string())),
            ("ended", ended),
        ];
        let told = about
            .into_iter()
            .filter_map(|(key, text)| Some((key.to_owned(), text?)));
        told.collect()
    }
}

fn how(engine: &Engine) -> Change {
    let knobs = engine.policy().knobs().values();
    let knobs: BTreeMap<String, String> = knobs.map(|(k, v)| (k.to_owned(), v)).collect();
    Change {
        policy: engine.policy().name().to_owned(),
        knobs,
        provider: engine.provider().name().to_owned(),
    }
}

fn core_types(topology: &Topology) -> Vec<RecordedCoreType> {
    let types = topology.core_types().iter();
    types
        .map(|t| RecordedCoreType {
            name: t.name.clone(),
            cpus: CpuList(t.cpus.clone()),
            capacity: t.capacity.max(1),
        })
        .collect()
}

/// A name that no other recording has.
fn unlike_any_other() -> String {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
    let ns = since.map_or(0, |d| d.as_nanos());
    format!("{ns:x}-{:x}", std::process::id())
}

fn kernel() -> String {
    let uname = rustix::system::uname();
    uname.release().to_string_lossy().into_owned()
}

/// The command line of the process of `who`, if `who` is still called as in the sample. Between the
/// sample and now it may have begun another program, whose command line is not that of the old name.
/// The kernel clears the command line, then changes the name, then sets the new command line: so
/// the name is read last.
fn command_of(who: &Who) -> Option<Vec<String>> {
    let of_process = format!("/proc/{}", who.pid);
    let words = read_some(&format!("{of_process}/cmdline"))?;
    let comm = read_some(&format!("{of_process}/task/{}/comm", who.tid))?;
    let comm = comm.strip_suffix(b"\n").unwrap_or(&comm);
    if String::from_utf8_lossy(comm) != who.comm {
        return None;
    }
    let words = words.strip_suffix(b"\0").unwrap_or(&words);
    let words = words.split(|b| *b == 0);
    Some(
        words
            .map(|w| String::from_utf8_lossy(w).into_owned())
            .collect(),
    )
}

fn read_some(path: &str) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(COMMAND_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_of_a_process() {
        let own = i32::try_from(std::process::id()).unwrap();
        let comm = std::fs::read_to_string(format!("/proc/{own}/comm")).unwrap();
        let mut who = Who {
            tid: own,
            pid: u64::from(std::process::id()),
            comm: comm.trim_end().to_owned(),
            ..Who::default()
        };
        let command = command_of(&who).unwrap();
        let expected: Vec<String> = std::env::args().collect();
        assert!(command == expected || command.join(" ").len() as u64 >= COMMAND_BYTES - 1);
        // seen as a shell that has begun this program since: the shell's command line is gone
        who.comm = "sh".to_owned();
        assert_eq!(command_of(&who), None);
        who.pid = u64::MAX;
        assert_eq!(command_of(&who), None);
    }
    #[test]
    fn a_folder_of_recordings_is_there_or_can_be_made() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let new = place.path().join("new");
        check_folder(&new).unwrap();
        assert!(!new.exists());
        make_folder(&new).unwrap();
        let mode = std::fs::metadata(&new).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        make_folder(&new).unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        for bad in [file.clone(), file.join("below"), place.path().join("a/b")] {
            let e = check_folder(&bad).unwrap_err();
            assert!(e.is::<amp_host::BadInput>());
            assert!(e.to_string().contains(&bad.display().to_string()), "{e}");
        }
    }
}
