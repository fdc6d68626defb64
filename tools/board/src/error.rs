//! What can go wrong between asking for a run and having its result.

use std::io;
use std::path::{Path, PathBuf};

/// Why a package could not be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchFailure {
    /// The mirror cannot be reached.
    NoNetwork,
    /// The file system of the cache folder is full (or a quota or file size limit was hit).
    DiskFull,
    /// A signature or checksum does not match.
    NotAuthentic,
    /// The mirror does not have the file or the suite.
    NotThere,
    /// The index of a suite is older than it says it may be.
    OutOfDate,
    /// A file that is the one of the index cannot be unpacked.
    Damaged,
    /// Anything else; the detail says what.
    Other,
}

impl FetchFailure {
    /// Sorts what apt or dpkg said (in the C locale) into a class.
    pub fn classify(text: &str) -> FetchFailure {
        let has = |needles: &[&str]| needles.iter().any(|n| text.contains(n));
        if has(&[
            "No space left",
            "enough free space",
            "File too large",
            "Disk quota exceeded",
            "File size limit",
        ]) {
            FetchFailure::DiskFull
        } else if has(&[
            "NO_PUBKEY",
            "BADSIG",
            "EXPKEYSIG",
            "is not signed",
            "Hash Sum mismatch",
            "signatures were invalid",
            "cannot be authenticated",
            "signatures couldn't be verified",
        ]) {
            FetchFailure::NotAuthentic
        } else if has(&[
            "Could not resolve",
            "Temporary failure resolving",
            "Could not connect",
            "Cannot initiate the connection",
            "Connection timed out",
            "Connection refused",
            "Connection failed",
            "Network is unreachable",
            "Unable to connect",
            "No route to host",
        ]) {
            FetchFailure::NoNetwork
        } else if has(&["does not have a Release file", "404", "File not found"]) {
            FetchFailure::NotThere
        } else {
            FetchFailure::Other
        }
    }
}

impl std::fmt::Display for FetchFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FetchFailure::NoNetwork => {
                "the mirror cannot be reached: check the network and the proxy (in apt's configuration; without apt, in http_proxy and https_proxy), then repeat"
            }
            FetchFailure::DiskFull => {
                "no room left: free some space or point SCX_AMP_CACHE at a larger file system, then repeat"
            }
            FetchFailure::NotAuthentic => {
                "signature or checksum wrong: nothing of it was kept; repeat, and if it stays, check the mirror, the proxy and Debian's keyring"
            }
            FetchFailure::NotThere => "the mirror does not have it",
            FetchFailure::OutOfDate => {
                "the mirror's index is out of date: check this machine's clock, or name another mirror"
            }
            FetchFailure::Damaged => "it cannot be unpacked",
            FetchFailure::Other => "the fetch failed",
        })
    }
}

/// Why the board could not fetch, build or finish a run.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// A file or folder of the cache cannot be used.
    #[error("cannot {action} {path}: {source}{}", room_hint(.source))]
    Cache {
        /// What was tried, as a verb such as `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Something kept in the cache is damaged, and cannot be fetched again.
    #[error("{what} in the cache is damaged ({why}), and cannot be fetched again: {source}")]
    Damaged {
        /// The thing, such as a kernel with its release.
        what: String,
        /// What is wrong with which file.
        why: String,
        /// Why not.
        source: Box<BoardError>,
    },
    /// No folder for the cache is known.
    #[error("no cache folder: neither SCX_AMP_CACHE nor HOME is set")]
    NoCacheFolder,
    /// The machine's apt sources name no Debian archive.
    #[error(
        "no Debian archive among the apt sources under {}: need an entry such as `deb http://MIRROR/debian bookworm main`, or a mirror by `scx_amp board fetch --mirror URL` (debian.org/mirror/list has them)",
        .looked.display()
    )]
    NoSources {
        /// Folder that was searched.
        looked: PathBuf,
    },
    /// No mirror is known.
    #[error("no mirror of Debian's archive is known, and this machine has no apt that names one: name one once, `scx_amp board fetch --mirror URL`, or in the environment variable SCX_AMP_MIRROR; debian.org/mirror/list has them")]
    NoMirror,
    /// A mirror, or the release named with it, that cannot be one.
    #[error("mirror `{mirror}`: {why}")]
    Mirror {
        /// What was given.
        mirror: String,
        /// The reason.
        why: String,
    },
    /// A host program or file is missing.
    #[error("{what} is missing: install the package {package}")]
    NoTool {
        /// Program or file.
        what: String,
        /// Package that has it, by its name in Debian.
        package: &'static str,
    },
    /// A package cannot be fetched or unpacked.
    #[error("cannot fetch {package} into {}: {failure}{}", .folder.display(), detail_lines(.detail))]
    Fetch {
        /// Package, or `index of SUITE`.
        package: String,
        /// Folder it was to go to.
        folder: PathBuf,
        /// Class of the failure.
        failure: FetchFailure,
        /// Last lines of what apt said, or address and reason.
        detail: String,
    },
    /// No suite that can be reached has the package.
    #[error("no package {package} for {arch} in {suites}")]
    NoSuchPackage {
        /// Its name.
        package: String,
        /// Debian architecture.
        arch: &'static str,
        /// Suites searched.
        suites: String,
    },
    /// QEMU is not of the series the plugin knows.
    #[error("QEMU {wanted}.x is needed, the archive has {found}: see `scx_amp board list` for what is cached")]
    QemuVersion {
        /// Versions found.
        found: String,
        /// Series wanted.
        wanted: &'static str,
    },
    /// No kernel answers the request.
    #[error("no Debian {flavour} kernel `{request}` for {arch} among those from 6.18 on (the first with all of sched_ext that is needed); there are: {known}")]
    NoKernel {
        /// What was asked for.
        request: String,
        /// Its flavour.
        flavour: crate::kernel::Flavour,
        /// Debian architecture.
        arch: &'static str,
        /// What there is instead.
        known: String,
    },
    /// The kernel cannot load sched_ext schedulers.
    #[error(
        "kernel {kernel} (package {package}) cannot load a sched_ext scheduler: {why}; {}",
        .works.as_ref().map_or("no kernel that can is known here".to_string(), |w| format!("{w} can: use --kernel {w}"))
    )]
    KernelCannotLoad {
        /// Release, as `uname -r` gives it.
        kernel: String,
        /// Debian package.
        package: String,
        /// The reason.
        why: String,
        /// Release of one that can.
        works: Option<String>,
    },
    /// A peer that there is not, or that cannot be looked for.
    #[error("--peers: {why}")]
    Peers {
        /// The reason.
        why: String,
    },
    /// A peer does not build.
    #[error("{name} {version} does not build; the whole log is {}{}", .log.display(), detail_lines(.last))]
    PeerBuild {
        /// The crate.
        name: String,
        /// Its version.
        version: String,
        /// What was said last.
        last: String,
        /// Everything that was said.
        log: PathBuf,
    },
    /// A kernel image cannot be read.
    #[error("{path}: {why}")]
    KernelImage {
        /// The image.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// QEMU's device tree cannot be turned into the machine's.
    #[error("device tree of {machine}: {why}")]
    DeviceTree {
        /// Name of the machine.
        machine: String,
        /// The reason.
        why: String,
    },
    /// The machine file does not suit the board.
    #[error("machine {machine} cannot run on the board: {why}")]
    MachineUnfit {
        /// Name of the machine.
        machine: String,
        /// What is missing, or superfluous.
        why: String,
    },
    /// The guest is to set clocks, and its kernel cannot.
    #[error("kernel {kernel} has no frequency scaling, which `--dvfs` needs: take one of the generic flavour (`--kernel generic`)")]
    NoFrequencyScaling {
        /// Release of the kernel.
        kernel: String,
    },
    /// The machine file cannot be used.
    #[error(transparent)]
    Machine(#[from] amp_machine::MachineError),
    /// One of our own binaries has not been built.
    #[error("{name} is missing (looked in {}): build it with `{command}`", join_paths(.looked))]
    Artifact {
        /// File name.
        name: String,
        /// Places searched.
        looked: Vec<PathBuf>,
        /// Command that builds it.
        command: String,
    },
    /// A file for the guest cannot be read.
    #[error("{path}: {source}")]
    HostFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A guest path that cannot be used.
    #[error("guest path `{path}`: must be absolute and free of `..`")]
    GuestPath {
        /// The path as given.
        path: String,
    },
    /// QEMU refused the model plugin.
    #[error("QEMU refused the plugin {}: {message}", .plugin.display())]
    PluginRefused {
        /// The plugin.
        plugin: PathBuf,
        /// What QEMU or the plugin said.
        message: String,
    },
    /// QEMU ended before the guest did.
    #[error("QEMU died ({status}){}{}", detail_lines(.stderr), console_lines(.console))]
    QemuDied {
        /// Exit status.
        status: String,
        /// Last lines of its standard error.
        stderr: String,
        /// Last console lines.
        console: Vec<String>,
    },
    /// The guest kernel panicked.
    #[error("the guest kernel panicked: {message}{}", console_lines(.console))]
    GuestPanic {
        /// The panic line.
        message: String,
        /// Last console lines.
        console: Vec<String>,
    },
    /// The guest went silent or took too long.
    #[error("the guest was stopped after {seconds} s {what}{}", console_lines(.console))]
    GuestHung {
        /// `without console output` or `in total`.
        what: &'static str,
        /// The limit, host seconds.
        seconds: u64,
        /// Last console lines.
        console: Vec<String>,
    },
    /// The guest powered off without leaving a result.
    #[error("the guest powered off without a result{}", console_lines(.console))]
    NoResult {
        /// Last console lines.
        console: Vec<String>,
    },
    /// The guest's agent could not do its work.
    #[error("the guest agent failed: {message}{}", console_lines(.console))]
    Agent {
        /// What it reported.
        message: String,
        /// Last console lines.
        console: Vec<String>,
    },
    /// A host program could not be started.
    #[error("cannot start {program}: {source}")]
    Spawn {
        /// Program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
}

impl BoardError {
    /// A [`BoardError::Cache`] maker for `map_err`.
    pub(crate) fn cache<'a>(
        action: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> BoardError + 'a {
        move |source| BoardError::Cache {
            action,
            path: path.into(),
            source,
        }
    }
}

fn room_hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            " (free some space or point SCX_AMP_CACHE at a larger file system)"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " (point SCX_AMP_CACHE at a folder you may write to)"
        }
        _ => "",
    }
}

fn detail_lines(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() {
        String::new()
    } else {
        format!("\n{}", indent(text.lines()))
    }
}

fn console_lines(lines: &[String]) -> String {
    if lines.is_empty() {
        "; the console stayed empty".into()
    } else {
        format!(
            "; last console lines:\n{}",
            indent(lines.iter().map(String::as_str))
        )
    }
}

fn indent<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines
        .map(|l| format!("    {l}"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn join_paths(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|p| p.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_messages_fall_into_their_class() {
        let cases = [
            (
                "E: Failed to fetch … Could not resolve 'mirror.example'",
                FetchFailure::NoNetwork,
            ),
            (
                "Error writing to file - write (28: No space left on device)",
                FetchFailure::DiskFull,
            ),
            (
                "E: You don't have enough free space in /x/archives/.",
                FetchFailure::DiskFull,
            ),
            (
                "Error writing to file - write (27: File too large)",
                FetchFailure::DiskFull,
            ),
            (
                "GPG error: … NO_PUBKEY 0E98404D386FA1D9",
                FetchFailure::NotAuthentic,
            ),
            (
                "E: Failed to fetch … 404  Not Found",
                FetchFailure::NotThere,
            ),
            ("E: Unmet dependencies", FetchFailure::Other),
        ];
        for (text, want) in cases {
            assert_eq!(FetchFailure::classify(text), want, "{text}");
        }
    }

    #[test]
    fn a_refused_kernel_names_one_that_works() {
        let e = BoardError::KernelCannotLoad {
            kernel: "7.1.13".into(),
            package: "linux-binary-7.1.13".into(),
            why: "because".into(),
            works: Some("7.2.13".into()),
        };
        assert!(
            e.to_string().contains("7.2.13 can: use --kernel 7.2.13"),
            "{e}"
        );
    }
}
