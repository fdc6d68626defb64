//! Downloads through the `curl` program, each to a temporary file first.
//!
//! A program and no crate: the crates that speak TLS rest on code under licences that may not be
//! linked with GPL-2.0-only programs, and every distribution has curl, which knows its certificates
//! and the proxy of the environment.

use super::Host;
use crate::child::{die_with_parent, Guard, POLL};
use crate::error::{BoardError, FetchFailure};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is to be fetched.
pub(super) struct Wanted<'a> {
    /// What it is called in messages.
    pub what: &'a str,
    /// Address.
    pub url: &'a str,
    /// Where it goes to; its folder gets the temporary file, too.
    pub to: &'a Path,
    /// What a signed index says of it.
    pub known: Option<Known<'a>>,
    /// No more bytes than this are taken.
    pub limit: u64,
}

/// Size and hash of a file, from a signed index.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub size: u64,
    pub sha256: &'a str,
}

/// Tries of a download that breaks off.
const TRIES: usize = 3;

/// Fetches a file; `on_bytes` gets how much has arrived.
///
/// # Errors
/// When curl is missing, the mirror cannot be reached or does not have it, it is not what the index
/// says, the disk is full, or `cancel` became true. What is at `to` is left alone then.
pub(super) fn fetch(
    host: &Host,
    wanted: &Wanted<'_>,
    cancel: &AtomicBool,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<(), BoardError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt(host, wanted, cancel, on_bytes) {
            Err(Stop::Broken(_)) if tries < TRIES => {}
            Err(Stop::Broken(e) | Stop::Final(e)) => return Err(e),
            Ok(()) => return Ok(()),
        }
    }
}

/// Why a try failed.
enum Stop {
    /// The transfer broke off: another try may do.
    Broken(BoardError),
    Final(BoardError),
}

impl From<BoardError> for Stop {
    fn from(e: BoardError) -> Stop {
        Stop::Final(e)
    }
}

fn attempt(
    host: &Host,
    wanted: &Wanted<'_>,
    cancel: &AtomicBool,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<(), Stop> {
    let folder = wanted.to.parent().unwrap_or(Path::new("."));
    let failed = |failure, detail: String| BoardError::Fetch {
        package: wanted.what.into(),
        folder: folder.into(),
        failure,
        detail: format!("{}: {detail}", wanted.url),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder)
        .map_err(BoardError::cache("create a file in", folder))?;
    let mut command = host.command("curl");
    // The user's own configuration of curl could change what comes out.
    command.args(["--disable", "--silent", "--show-error", "--fail"]);
    command.args(["--location", "--max-redirs", "10"]);
    command.args(["--proto", "=http,https", "--proto-redir", "=http,https"]);
    command.args(["--connect-timeout", "30", "--speed-limit", "1"]);
    command.args(["--speed-time", "30", "--output", "-", "--url", wanted.url]);
    command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    die_with_parent(&mut command);
    let mut child = Guard(command.spawn().map_err(missing)?);
    let complaint = child.0.stderr.take().map(|e| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // Unread, a long complaint would keep curl from ending: what is too much is dropped.
            let mut all = e;
            let _ = all.by_ref().take(4096).read_to_end(&mut text);
            let _ = std::io::copy(&mut all, &mut std::io::sink());
            // what follows the first line explains certificates at length
            let text = String::from_utf8_lossy(&text);
            text.lines().next().unwrap_or_default().trim().to_string()
        })
    });
    let limit = wanted.known.map_or(wanted.limit, |k| k.size);
    let (mut bytes, mut hash) = (0, Sha256::new());
    if let Some(mut out) = child.0.stdout.take() {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let n = match wait(&out, cancel)? {
                true => out.read(&mut buffer),
                false => continue,
            };
            let part = match n {
                Ok(0) => break,
                Ok(n) => &buffer[..n],
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(Stop::Broken(failed(FetchFailure::Other, e.to_string()))),
            };
            bytes += part.len() as u64;
            if bytes > limit {
                return Err(Stop::Final(match wanted.known {
                    Some(_) => {
                        let why = format!("more than the {limit} bytes that the index states");
                        failed(FetchFailure::NotAuthentic, why)
                    }
                    None => failed(
                        FetchFailure::Other,
                        format!("more than {limit} bytes: given up"),
                    ),
                }));
            }
            hash.update(part);
            file.write_all(part)
                .map_err(|e| written(e, &failed, folder))?;
            on_bytes(bytes);
        }
    }
    let status = child.0.wait().map_err(missing)?;
    let complaint = complaint.and_then(|c| c.join().ok()).unwrap_or_default();
    if !status.success() {
        let (failure, again) = classify(status.code(), &complaint);
        let why = match complaint.is_empty() {
            true => format!("curl ended with {status}"),
            false => complaint,
        };
        let e = failed(failure, why);
        return Err(if again {
            Stop::Broken(e)
        } else {
            Stop::Final(e)
        });
    }
    if let Some(known) = wanted.known {
        let found = hex(&hash.finalize());
        let wrong = if bytes != known.size {
            Some(format!(
                "{bytes} bytes in place of the {} that the index states",
                known.size
            ))
        } else {
            (!found.eq_ignore_ascii_case(known.sha256))
                .then(|| format!("its SHA-256 is {found}, the index states {}", known.sha256))
        };
        if let Some(why) = wrong {
            return Err(Stop::Final(failed(FetchFailure::NotAuthentic, why)));
        }
    }
    let made = file.persist(wanted.to);
    made.map_err(|e| BoardError::cache("create", wanted.to)(e.error))?;
    Ok(())
}

/// Waits a little for something to read; whether there is something.
fn wait(out: &impl std::os::fd::AsFd, cancel: &AtomicBool) -> Result<bool, BoardError> {
    if cancel.load(Ordering::Relaxed) {
        return Err(BoardError::Cancelled);
    }
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(POLL.subsec_nanos()),
    };
    match poll(&mut [PollFd::new(out, PollFlags::IN)], Some(&timeout)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(BoardError::Spawn {
            program: "curl".into(),
            source: e.into(),
        }),
    }
}

fn missing(source: std::io::Error) -> BoardError {
    let program = "curl".to_string();
    match source.kind() {
        ErrorKind::NotFound => BoardError::NoTool {
            what: program,
            package: "curl",
        },
        _ => BoardError::Spawn { program, source },
    }
}

fn written(
    e: std::io::Error,
    failed: &impl Fn(FetchFailure, String) -> BoardError,
    folder: &Path,
) -> BoardError {
    match is_full(&e) {
        true => failed(FetchFailure::DiskFull, e.to_string()),
        false => BoardError::cache("write to", folder)(e),
    }
}

/// Whether there is no room left.
pub(super) fn is_full(e: &std::io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}

/// Sorts curl's exit status (curl(1)) into a class; whether another try may do.
fn classify(code: Option<i32>, complaint: &str) -> (FetchFailure, bool) {
    match code {
        // names of proxy and host, connection, timeout, proxy
        Some(5 | 6 | 7 | 28 | 97) => (FetchFailure::NoNetwork, false),
        // broken off
        Some(16 | 18 | 52 | 55 | 56 | 92) => (FetchFailure::NoNetwork, true),
        Some(22) if ["404", "410"].iter().any(|c| complaint.ends_with(c)) => {
            (FetchFailure::NotThere, false)
        }
        _ => (FetchFailure::Other, false),
    }
}

/// Whether a file is what the index says of it.
pub(super) fn is_whole(path: &Path, known: Known<'_>) -> bool {
    let Ok(mut file) = fs::File::open(path) else {
        return false;
    };
    let mut hash = Sha256::new();
    let mut read = || -> std::io::Result<u64> {
        let (mut buffer, mut bytes) = (vec![0; 64 * 1024], 0);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(bytes),
                n => {
                    hash.update(&buffer[..n]);
                    bytes += n as u64;
                }
            }
        }
    };
    let size = read();
    size.is_ok_and(|s| s == known.size) && hex(&hash.finalize()).eq_ignore_ascii_case(known.sha256)
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_curl_says_falls_into_its_class() {
        let said = "curl: (22) The requested URL returned error: ";
        let class = |code, text: &str| classify(Some(code), text);
        assert_eq!(
            class(22, &format!("{said}404")),
            (FetchFailure::NotThere, false)
        );
        assert_eq!(
            class(22, &format!("{said}503")),
            (FetchFailure::Other, false)
        );
        assert_eq!(class(6, ""), (FetchFailure::NoNetwork, false));
        assert_eq!(class(18, ""), (FetchFailure::NoNetwork, true));
        assert_eq!(classify(None, ""), (FetchFailure::Other, false));
    }
}
