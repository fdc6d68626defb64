//! Provider files: a provider by path.

use super::declared::Declared;
use super::exec::{Exec, ExecFile};
use super::history::{History, HistorySettings};
use super::ipc_sampling::{IpcSampling, IpcSamplingSettings};
use super::model::{Model, PlatformModel};
use super::remembered::Remembered;
use super::windowed::Windowed;
use super::{Context, NoMetrics, ProviderError};
use crate::ids::{CoreTypeId, CoreTypeSet, Nanos, MAX_CORE_TYPES};
use crate::provider::Provider;
use amp_machine::{read_text, BadFile, Locator};
use serde::Deserialize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a provider file cannot be used.
#[derive(Debug, Error)]
pub enum ProviderFileError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is not what a provider file must be.
    #[error(transparent)]
    Bad(#[from] BadFile),
    /// A model of another machine.
    #[error("{path}: {why}; without its key `machine` it is taken for any machine whose events it finds")]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// Which machine it is for, and which this is.
        why: String,
    },
}

/// Kinds of provider files.
pub const KINDS: &[&str] = &[
    "declared",
    "ipc-sampling",
    "model",
    "history",
    "windows",
    "remembered",
    "exec",
];

#[derive(Deserialize)]
pub(super) struct Head {
    pub(super) kind: Option<toml::Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IpcSamplingFile {
    #[allow(dead_code)] // dispatched on before
    kind: String,
    #[serde(default)]
    settings: IpcSamplingSettings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryFile {
    #[allow(dead_code)] // dispatched on before
    kind: String,
    /// A provider by name, or another file, looked up from this one's folder.
    inner: toml::Spanned<String>,
    #[serde(default)]
    settings: HistoryFileSettings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowsFile {
    #[allow(dead_code)] // dispatched on before
    kind: String,
    /// A provider by name, or another file, looked up from this one's folder.
    inner: toml::Spanned<String>,
    /// Instructions of a window.
    instructions: toml::Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RememberedFile {
    #[allow(dead_code)] // dispatched on before
    kind: String,
    /// A provider by name, or another file, looked up from this one's folder.
    inner: toml::Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HistoryFileSettings {
    valid_on: Vec<u8>,
    l1_accesses: String,
    branches: String,
    tolerance: f64,
    entries: usize,
    misses: u32,
    refresh_ms: u64,
}

impl Default for HistoryFileSettings {
    fn default() -> HistoryFileSettings {
        let d = HistorySettings::default();
        HistoryFileSettings {
            valid_on: vec![0],
            l1_accesses: d.l1_accesses,
            branches: d.branches,
            tolerance: d.tolerance,
            entries: d.entries,
            misses: d.misses,
            refresh_ms: d.refresh_every.0 / 1_000_000,
        }
    }
}

impl HistoryFileSettings {
    fn check(self) -> Result<HistorySettings, String> {
        let mut valid_on = CoreTypeSet::EMPTY;
        for t in self.valid_on {
            if usize::from(t) >= MAX_CORE_TYPES {
                return Err(format!(
                    "key `valid_on`: {t} is no core type (0, the fastest, to {})",
                    MAX_CORE_TYPES - 1
                ));
            }
            valid_on = valid_on.with(CoreTypeId(t));
        }
        if !(self.tolerance > 0.0 && self.tolerance < 1.0) {
            return Err(format!(
                "key `tolerance`: {} is not between 0 and 1",
                self.tolerance
            ));
        }
        if !(1..=4096).contains(&self.entries) {
            return Err(format!(
                "key `entries`: {} is not within 1 to 4096",
                self.entries
            ));
        }
        Ok(HistorySettings {
            valid_on,
            l1_accesses: self.l1_accesses,
            branches: self.branches,
            tolerance: self.tolerance,
            entries: self.entries,
            misses: self.misses,
            refresh_every: Nanos::from_millis(self.refresh_ms),
        })
    }
}

pub(crate) fn read(path: &Path) -> Result<String, ProviderFileError> {
    read_owned(path).map(|kept| kept.text)
}

/// Owner of a file.
#[derive(Clone, Copy, Debug)]
struct Owner {
    uid: u32,
    gid: u32,
    /// Others than the owner may write to it.
    shared: bool,
}

impl Owner {
    /// Whom a program that the file names runs as: the owner of the file, where this process can
    /// choose.
    fn user(self) -> Result<Option<(u32, u32)>, String> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        if self.shared {
            return Err("others than its owner may write to it, and so choose the program that runs: `chmod go-w` it".to_owned());
        }
        Ok((self.uid != 0).then_some((self.uid, self.gid)))
    }
}

/// A file that was read.
#[derive(Clone, Debug)]
struct Kept {
    path: PathBuf,
    text: String,
    owner: Owner,
}

/// Text and owner of the same file, even if another takes its place meanwhile.
fn read_owned(path: &Path) -> Result<Kept, ProviderFileError> {
    match read_text(path) {
        Ok((text, about)) => Ok(Kept {
            path: path.to_owned(),
            text,
            owner: Owner {
                uid: about.uid(),
                gid: about.gid(),
                shared: about.mode() & 0o022 != 0,
            },
        }),
        Err(source) => Err(ProviderFileError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// A provider file and those that it puts something in front of, as they were when they were read:
/// whoever must not wait for a file system makes the provider of these.
#[derive(Clone, Debug)]
pub struct ProviderFiles {
    /// The first one describes the provider.
    files: Vec<Kept>,
}

impl ProviderFiles {
    /// Reads the file at `path` and those that it names, and checks them as far as can be without
    /// the machine that they are for.
    ///
    /// # Errors
    /// As [`load`].
    pub fn read(path: &Path) -> Result<ProviderFiles, ProviderFileError> {
        let mut reader = Reader::new(None);
        reader.load(path)?;
        Ok(ProviderFiles { files: reader.read })
    }

    /// Their paths, the one that describes the provider first.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|f| f.path.as_path())
    }

    /// The provider that they describe, on the machine of `context`. Nothing is read.
    ///
    /// # Errors
    /// [`ProviderFileError`], naming file, line and key.
    pub fn load(&self, context: &Context<'_>) -> Result<Box<dyn Provider>, ProviderFileError> {
        let mut reader = Reader {
            kept: Some(&self.files),
            ..Reader::new(Some(context))
        };
        match self.files.first() {
            Some(first) => reader.load(&first.path),
            None => Err(BadFile::whole(Path::new(""), "no provider file").into()),
        }
    }
}

/// The provider that a file describes, on the machine of `context`. `kind` says which; a file
/// without `kind` declares speedup factors.
///
/// # Errors
/// [`ProviderFileError`], naming file, line and key.
pub fn load(path: &Path, context: &Context<'_>) -> Result<Box<dyn Provider>, ProviderFileError> {
    Reader::new(Some(context)).load(path)
}

/// The files that a provider file consists of: itself, and those that it puts something in front
/// of. They are checked as far as can be without the machine that they are for.
///
/// # Errors
/// As [`load`].
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>, ProviderFileError> {
    Ok(ProviderFiles::read(path)?
        .paths()
        .map(Path::to_owned)
        .collect())
}

/// Reads a provider file and those that it names.
struct Reader<'a> {
    /// The machine; without one, a provider that depends on it is stood in for.
    context: Option<&'a Context<'a>>,
    /// The files there are; without them, those of the file system.
    kept: Option<&'a [Kept]>,
    /// What was read.
    read: Vec<Kept>,
}

impl<'a> Reader<'a> {
    fn new(context: Option<&'a Context<'a>>) -> Reader<'a> {
        Reader {
            context,
            kept: None,
            read: Vec::new(),
        }
    }

    fn load(&mut self, path: &Path) -> Result<Box<dyn Provider>, ProviderFileError> {
        let file = self.file(path)?;
        self.parse(path, &file.text, Some(file.owner))
    }

    fn file(&mut self, path: &Path) -> Result<Kept, ProviderFileError> {
        let file = match self.kept {
            None => read_owned(path)?,
            Some(kept) => {
                let found = kept.iter().find(|f| f.path == path).cloned();
                found.ok_or_else(|| ProviderFileError::Read {
                    path: path.to_owned(),
                    source: std::io::ErrorKind::NotFound.into(),
                })?
            }
        };
        self.read.push(file.clone());
        Ok(file)
    }

    fn parse(
        &mut self,
        path: &Path,
        text: &str,
        owner: Option<Owner>,
    ) -> Result<Box<dyn Provider>, ProviderFileError> {
        let locator = Locator::new(path, text);
        let bad = |message: String| BadFile::whole(path, message);
        let head: Head = toml::from_str(text).map_err(|e| locator.toml(&e))?;
        let name = path.display().to_string();
        let Some(kind) = head.kind else {
            return Ok(Box::new(Declared::parse(path, text)?));
        };
        match kind.get_ref().as_str() {
            "declared" => Ok(Box::new(Declared::parse(path, text)?)),
            "model" => {
                let mut model = PlatformModel::parse(path, text)?;
                if let Some(context) = self.context {
                    model
                        .is_for(context.pmus)
                        .map_err(|why| ProviderFileError::OtherMachine {
                            path: path.to_owned(),
                            why,
                        })?;
                    model = model.trusting(context.pmus, context.trust);
                }
                Ok(Box::new(Model::new(model)))
            }
            "ipc-sampling" => {
                let file: IpcSamplingFile = toml::from_str(text).map_err(|e| locator.toml(&e))?;
                Ok(Box::new(
                    IpcSampling::new(&name, file.settings).map_err(bad)?,
                ))
            }
            "history" => {
                let file: HistoryFile = toml::from_str(text).map_err(|e| locator.toml(&e))?;
                let settings = file.settings.check().map_err(bad)?;
                let inner = self.inner(path, text, &file.inner, &["history", "remembered"])?;
                Ok(Box::new(History::new(inner, settings)))
            }
            "windows" => {
                let file: WindowsFile = toml::from_str(text).map_err(|e| locator.toml(&e))?;
                // a table sees the windows, not the other way round
                let inner = self.inner(
                    path,
                    text,
                    &file.inner,
                    &["history", "windows", "remembered"],
                )?;
                let at = file.instructions.span().start;
                let windowed = Windowed::new(inner, *file.instructions.get_ref());
                Ok(Box::new(windowed.map_err(|e| locator.at(at, e))?))
            }
            "remembered" => {
                let file: RememberedFile = toml::from_str(text).map_err(|e| locator.toml(&e))?;
                let inner = self.inner(path, text, &file.inner, &["remembered"])?;
                Ok(Box::new(Remembered::new(inner)))
            }
            "exec" => {
                let file: ExecFile = toml::from_str(text).map_err(|e| locator.toml(&e))?;
                let user = owner.map_or(Ok(None), Owner::user).map_err(bad)?;
                let exec = Exec::new(&name, file, path.parent()).map_err(bad)?;
                Ok(Box::new(exec.run_as(user)))
            }
            other => {
                let message = format!("`{other}` is none of `{}`", KINDS.join("`, `"));
                Err(locator.value(kind.span().start, "kind", message).into())
            }
        }
    }

    /// The provider that the file at `path` puts something in front of: by name, or another file,
    /// looked up from its folder. One of the kinds in `never` is refused: a file that names itself
    /// would never end.
    fn inner(
        &mut self,
        path: &Path,
        text: &str,
        key: &toml::Spanned<String>,
        never: &[&str],
    ) -> Result<Box<dyn Provider>, ProviderFileError> {
        let wrong = |why: String| {
            let locator = Locator::new(path, text);
            ProviderFileError::from(locator.value(key.span().start, "inner", why))
        };
        let name = key.get_ref();
        if !name.ends_with(".toml") {
            return match super::bare(name, self.context) {
                Err(ProviderError::NoModel { .. }) if self.context.is_none() => {
                    Ok(Box::new(NoMetrics))
                }
                made => made.map_err(|e| wrong(e.to_string())),
            };
        }
        let file = path.parent().unwrap_or(Path::new(".")).join(name);
        let Kept { text, owner, .. } = self.file(&file)?;
        let head: Head = toml::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let kind = head.kind.map(toml::Spanned::into_inner).unwrap_or_default();
        if never.contains(&kind.as_str()) {
            return Err(wrong(format!("it is of kind `{kind}` itself")));
        }
        self.parse(&file, &text, Some(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Reader::new(None)
            .parse(Path::new("p.toml"), text, None)
            .err()
            .map_or_else(String::new, |e| e.to_string())
    }

    #[test]
    fn kinds_by_name() {
        let name = |text: &str| {
            let p = Reader::new(None).parse(Path::new("p.toml"), text, None);
            p.unwrap().name().to_owned()
        };
        assert_eq!(name("[[app]]\ncomm = \"a\"\nspeedup = 2\n"), "p.toml");
        assert_eq!(
            name("kind = \"declared\"\n[[app]]\ncomm = \"a\"\nspeedup = 2\n"),
            "p.toml"
        );
        assert_eq!(
            name("kind = \"ipc-sampling\"\n[settings]\nmax = 5.0\n"),
            "p.toml"
        );
        assert_eq!(
            name("kind = \"history\"\ninner = \"ipc-sampling\"\n[settings]\nvalid_on = [0, 1]\n"),
            "history(ipc-sampling)"
        );
        assert_eq!(
            name("kind = \"windows\"\ninner = \"ipc-sampling\"\ninstructions = 5_000_000\n"),
            "windows(ipc-sampling)"
        );
        assert_eq!(
            name("kind = \"remembered\"\ninner = \"ipc-sampling\"\n"),
            "remembered(ipc-sampling)"
        );
        // which model, the machine says
        name("kind = \"remembered\"\ninner = \"model\"\n");
        assert_eq!(
            name("kind = \"exec\"\ncommand = [\"/bin/cat\"]\n"),
            "p.toml"
        );
    }

    #[test]
    fn files_that_were_read_are_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let inner = "kind = \"ipc-sampling\"\n[settings]\nmax = 5.0\n";
        std::fs::write(at("inner.toml"), inner).unwrap();
        let outer = "kind = \"remembered\"\ninner = \"inner.toml\"\n";
        std::fs::write(at("outer.toml"), outer).unwrap();
        let files = ProviderFiles::read(&at("outer.toml")).unwrap();
        let paths: Vec<&Path> = files.paths().collect();
        assert_eq!(paths, [at("outer.toml"), at("inner.toml")]);
        std::fs::remove_file(at("inner.toml")).unwrap();
        std::fs::write(at("outer.toml"), "kind = 3").unwrap();
        let pmus = crate::pmu::Pmus::generic(&[vec![0], vec![1]], 4);
        let context = Context {
            pmus: &pmus,
            counters: Ok(()),
            energy_per_core_type: false,
            thread_director: Err("none in a test".to_owned()),
            models: None,
            trust: None,
        };
        let name = files.load(&context).unwrap().name().to_owned();
        assert!(name.starts_with("remembered("), "{name}");
    }

    #[test]
    fn refusals_name_file_line_and_key() {
        for (text, wants) in [
            ("kind = \"modle\"", ["line 1", "`model`"]),
            (
                "kind = \"windows\"\ninner = \"ipc-sampling\"\ninstructions = 5\n",
                ["line 3", "`instructions`"],
            ),
            (
                "kind = \"ipc-sampling\"\n[settings]\nmaxx = 5.0\n",
                ["line 3", "maxx"],
            ),
            (
                "kind = \"ipc-sampling\"\n[settings]\nmax = 0.5\n",
                ["`max`", "within"],
            ),
            ("kind = \"exec\"\n", ["line 1", "command"]),
            ("kind = \"exec\"\ncommand = []\n", ["`command`", "program"]),
            (
                "kind = \"history\"\ninner = \"ipc\"\n",
                ["line 2", "`ipc-sampling`"],
            ),
            (
                "kind = \"history\"\ninner = \"none\"\n[settings]\ntolerance = 2.0\n",
                ["`tolerance`", "between"],
            ),
            ("kind = 3\n", ["line 1", "string"]),
        ] {
            let e = refusal(text);
            assert!(
                e.starts_with("p.toml: ") && wants.iter().all(|w| e.contains(w)),
                "{text}: {e}"
            );
        }
    }

    /// What the program of this file says it runs as; the file gets owner and mode first.
    fn runs_as(uid: u32, mode: u32) -> Result<f64, String> {
        use crate::ids::CoreTypeId;
        use crate::provider::MetricId;
        use crate::providers::testing::{key, snapshot};
        use std::os::unix::fs::{chown, PermissionsExt};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.toml");
        let says = r#"{"seq":1,"estimates":[{"slot":1,"generation":1,"metric":"ipc","core_type":0,"value":'$(id -u)'}]}"#;
        let script = format!("read -r hello; read -r line; echo '{says}'; cat >/dev/null");
        std::fs::write(
            &path,
            format!("kind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", {script:?}]\nsilence_ms = 30000\n"),
        )
        .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(uid), Some(uid)).unwrap();
        let mut p = Reader::new(None).load(&path).map_err(|e| e.to_string())?;
        let told = (0..2000).find_map(|i| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            p.observe(&snapshot(i, &[1], vec![]));
            p.estimate(key(1), MetricId::Ipc(CoreTypeId(0)))
        });
        told.map(|e| e.value)
            .ok_or_else(|| format!("no answer: {:?}", p.health()))
    }

    #[test]
    fn a_program_runs_as_the_owner_of_the_file_that_names_it() {
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(runs_as(me, 0o644), Ok(f64::from(me)));
        if me != 0 {
            amp_skips::skip("that root gives up its rights is tested as root only");
            return;
        }
        assert_eq!(runs_as(65534, 0o600), Ok(65534.0));
        for mode in [0o666, 0o664] {
            let refused = runs_as(0, mode).unwrap_err();
            assert!(refused.contains("chmod go-w"), "{refused}");
        }
    }
}
