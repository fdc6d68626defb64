//! `InRelease`: what a suite has, signed. Its signature is checked by `gpgv`, part of GnuPG.

use super::control::paragraphs;
use super::transport::{self, Wanted};
use super::{keyring, Host};
use crate::child;
use crate::error::{BoardError, FetchFailure};
use crate::sources::Suite;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use time::format_description::well_known::Rfc2822;
use time::OffsetDateTime;

/// Most bytes of an `InRelease`; Debian's have 150,000 to 250,000.
const LIMIT: u64 = 8 << 20;

/// What a suite has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Release {
    /// Name by age, such as `stable`.
    pub suite: String,
    /// Name for good, such as `trixie`.
    pub codename: String,
    /// Nothing of it is to be taken by itself.
    not_automatic: bool,
    /// What was taken from it is to be kept up to date from it.
    but_automatic_upgrades: bool,
    /// Files are there under the names of their hashes, too.
    pub by_hash: bool,
    /// Size and SHA-256 of each file.
    pub files: HashMap<String, (u64, String)>,
}

impl Release {
    /// How much its packages are preferred, in apt's numbers.
    pub(super) fn priority(&self) -> i32 {
        match (self.not_automatic, self.but_automatic_upgrades) {
            (false, _) => 500,
            (true, true) => 100,
            (true, false) => 1,
        }
    }

    pub(super) fn read(text: &str) -> Option<(Release, Option<&str>)> {
        let p = paragraphs(text).next()?;
        let word = |name| p.get(name).unwrap_or_default().to_string();
        let yes = |name| p.get(name).is_some_and(|v| v.eq_ignore_ascii_case("yes"));
        let mut files = HashMap::new();
        for line in p.get("SHA256")?.lines() {
            let mut words = line.split_whitespace();
            if let (Some(hash), Some(size), Some(name)) = (words.next(), words.next(), words.next())
            {
                let Ok(size) = size.parse() else { continue };
                files.insert(name.to_string(), (size, hash.to_string()));
            }
        }
        let release = Release {
            suite: word("Suite"),
            codename: word("Codename"),
            not_automatic: yes("NotAutomatic"),
            but_automatic_upgrades: yes("ButAutomaticUpgrades"),
            by_hash: yes("Acquire-By-Hash"),
            files,
        };
        Some((release, p.get("Valid-Until")))
    }

    /// Whether it is the one of that name: a mirror could send another suite's.
    fn is(&self, name: &str) -> bool {
        let older = |n: &str| name.strip_prefix(n).is_some_and(|r| r.starts_with('/'));
        name == self.suite || name == self.codename || older(&self.codename) || older(&self.suite)
    }
}

/// Fetches and verifies the `InRelease` of a suite. `folder` is for temporary files.
///
/// # Errors
/// When gpgv, curl or Debian's keyring is missing, the file cannot be fetched, its signature is not
/// one of Debian's, it is another suite's, or it is out of date.
pub(super) fn fetch(
    host: &Host,
    suite: &Suite,
    what: &str,
    folder: &Path,
    cancel: &AtomicBool,
) -> Result<Release, BoardError> {
    let url = format!("{}/dists/{}/InRelease", suite.uri, suite.name);
    let scratch =
        tempfile::tempdir_in(folder).map_err(BoardError::cache("create a folder in", folder))?;
    let signed = scratch.path().join("InRelease");
    let wanted = Wanted {
        what,
        url: &url,
        to: &signed,
        known: None,
        limit: LIMIT,
    };
    transport::fetch(host, &wanted, cancel, &mut |_| ())?;
    let refused = |failure, why: String| BoardError::Fetch {
        package: what.into(),
        folder: folder.into(),
        failure,
        detail: format!("{url}: {why}"),
    };
    let text = verified(host, &signed, scratch.path(), cancel)?
        .map_err(|why| refused(FetchFailure::NotAuthentic, why))?;
    let unread = || refused(FetchFailure::Other, "no index that can be read".into());
    let (release, until) = Release::read(&text).ok_or_else(unread)?;
    if !release.is(&suite.name) {
        let why = format!(
            "it is the index of {} ({}), not of {}",
            release.codename, release.suite, suite.name
        );
        return Err(refused(FetchFailure::NotAuthentic, why));
    }
    match until.map(|u| (u, is_over(u, OffsetDateTime::now_utc()))) {
        Some((until, Some(true))) => {
            let why = format!("it was valid until {until}");
            Err(refused(FetchFailure::OutOfDate, why))
        }
        Some((until, None)) => {
            let why = format!("`Valid-Until: {until}` is no date");
            Err(refused(FetchFailure::Other, why))
        }
        _ => Ok(release),
    }
}

/// Whether a date of an index lies before `now`; `None` when it is no date.
fn is_over(date: &str, now: OffsetDateTime) -> Option<bool> {
    // RFC 2822 has no zone of the name UTC
    let date = date.strip_suffix("UTC")?.trim_end();
    let date = OffsetDateTime::parse(&format!("{date} +0000"), &Rfc2822).ok()?;
    Some(date < now)
}

/// The text that is signed; the inner error says why the signature does not count.
fn verified(
    host: &Host,
    signed: &Path,
    folder: &Path,
    cancel: &AtomicBool,
) -> Result<Result<String, String>, BoardError> {
    let keyring = keyring(host)?;
    let plain = folder.join("Release");
    let mut command = host.command("gpgv");
    command.arg("--homedir").arg(folder);
    // as apt has it: no hash of which two texts can be made to have the same
    command.args(["--weak-digest", "SHA1", "--weak-digest", "RIPEMD160"]);
    command
        .args(["--status-fd", "1", "--keyring"])
        .arg(&keyring);
    command.arg("--output").arg(&plain).arg(signed);
    let done = child::run(&mut command, cancel, &mut |_| ());
    let done = match done {
        Err(BoardError::Spawn { program, source })
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            return Err(BoardError::NoTool {
                what: program,
                package: "gpgv (or gnupg, where gpgv has no package of its own)",
            })
        }
        done => done?,
    };
    if let Err(why) = judge(&done.stdout) {
        let said = done.stderr.lines().take(3).collect::<Vec<_>>().join("; ");
        let keyring = keyring.display();
        return Ok(Err(format!("{why} with the keys of {keyring} ({said})")));
    }
    // gpgv wrote what the signature covers, and nothing else of the file
    match fs::read(&plain) {
        Ok(text) => Ok(Ok(String::from_utf8_lossy(&text).into_owned())),
        Err(e) => Ok(Err(format!("gpgv gave no text: {e}"))),
    }
}

/// Judges what gpgv reports (`doc/DETAILS` of GnuPG). Debian signs with several keys, of which
/// older keyrings do not have all: one good signature does, and no bad one may be there.
fn judge(status: &str) -> Result<(), &'static str> {
    let words = status.lines().filter_map(|l| l.strip_prefix("[GNUPG:] "));
    let words: Vec<&str> = words.filter_map(|l| l.split(' ').next()).collect();
    let count = |word: &str| words.iter().filter(|w| **w == word).count();
    let both = ["GOODSIG", "VALIDSIG"];
    let mut signatures = words.split(|w| *w == "NEWSIG");
    let good = signatures.any(|s| both.iter().all(|b| s.contains(b)));
    if count("BADSIG") > 0 {
        Err("a signature is wrong")
    } else if good && count("PLAINTEXT") == 1 {
        Ok(())
    } else if count("NODATA") > 0 || words.is_empty() {
        Err("it is not signed")
    } else if count("EXPKEYSIG") + count("REVKEYSIG") > 0 {
        Err("it is signed by a key that is out of date or revoked")
    } else {
        Err("no signature can be verified")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_good_signature_does_and_a_bad_one_does_not() {
        let status = |words: &[&str]| {
            let lines = words.iter().map(|w| format!("[GNUPG:] {w} x\n"));
            judge(&lines.collect::<String>())
        };
        assert!(status(&[
            "PLAINTEXT",
            "NEWSIG",
            "ERRSIG",
            "NO_PUBKEY",
            "GOODSIG",
            "VALIDSIG"
        ])
        .is_ok());
        assert!(status(&["PLAINTEXT", "GOODSIG", "VALIDSIG", "BADSIG"]).is_err());
        assert!(status(&["PLAINTEXT", "EXPKEYSIG", "VALIDSIG"]).is_err());
        assert!(status(&["PLAINTEXT", "NEWSIG", "GOODSIG", "NEWSIG", "VALIDSIG"]).is_err());
        assert!(status(&["PLAINTEXT", "GOODSIG", "VALIDSIG", "PLAINTEXT"]).is_err());
        assert!(status(&["NODATA"]).is_err() && judge("").is_err());
        // what a key's owner is called counts for nothing
        assert!(judge("[GNUPG:] ERRSIG GOODSIG\n[GNUPG:] NO_PUBKEY VALIDSIG\n").is_err());
    }

    #[test]
    fn validity_ends_at_its_date() {
        let now = OffsetDateTime::from_unix_timestamp(1_797_000_000).unwrap();
        assert_eq!(is_over("Thu, 03 Dec 2026 02:14:46 UTC", now), Some(true));
        assert_eq!(is_over("Sat, 4 Dec 2038 02:14:46 UTC", now), Some(false));
        assert_eq!(is_over("tomorrow", now), None);
    }

    #[test]
    fn what_a_release_says() {
        let text = "Suite: stable-backports\nCodename: trixie-backports\nNotAutomatic: yes\nButAutomaticUpgrades: yes\n\
             Valid-Until: never\nSHA256:\n abc 12 main/x\n d 1x main/y\n";
        let (r, until) = Release::read(text).unwrap();
        assert_eq!((r.priority(), until), (100, Some("never")));
        assert_eq!(
            r.files,
            HashMap::from([("main/x".into(), (12, "abc".into()))])
        );
        assert!(r.is("trixie-backports") && r.is("stable-backports") && !r.is("trixie"));
        let (r, _) = Release::read("Codename: buster\nSHA256:\n").unwrap();
        assert!(r.is("buster/updates") && r.priority() == 500);
        assert_eq!(Release::read("Codename: x\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(SHA256:|[a-z]: ?|[ \n0-9]){0,20}", date in ".{0,12}") {
            let _ = Release::read(&text);
            let _ = is_over(&date, OffsetDateTime::UNIX_EPOCH);
        }
    }
}
