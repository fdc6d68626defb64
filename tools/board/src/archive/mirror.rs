//! Which mirror of Debian's archive is used, and which release of it.
//!
//! One that was named (`board fetch --mirror`, `SCX_AMP_MIRROR`) comes first, and is kept in the
//! cache. Without one, the machine's own apt sources say it.

use super::{release, Host};
use crate::cache::Cache;
use crate::error::BoardError;
use crate::event::{progress, Sink};
use crate::sources::{Sources, Suite};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

/// The environment variable that names a mirror.
pub const VARIABLE: &str = "SCX_AMP_MIRROR";
/// What is said in place of an address to forget a mirror.
pub const NONE: &str = "none";

const RECORD: &str = "mirror.json";

/// A mirror that was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Address of the archive, or [`NONE`].
    pub uri: String,
    /// Codename of the release to use; that of the mirror's `stable` unless said.
    pub suite: Option<String>,
}

impl Mirror {
    /// The one that [`VARIABLE`] names.
    pub(super) fn of_environment() -> Option<Mirror> {
        let uri = std::env::var(VARIABLE).ok().filter(|v| !v.is_empty())?;
        Some(Mirror { uri, suite: None })
    }
}

/// A mirror as the cache keeps it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    mirror: String,
    codename: String,
}

impl Kept {
    fn sources(self) -> Sources {
        let suite = |end: &str| Suite {
            uri: self.mirror.clone(),
            name: format!("{}{end}", self.codename),
        };
        Sources {
            suites: vec![suite(""), suite("-updates")],
            codename: self.codename.clone(),
            mirror: self.mirror.clone(),
        }
    }
}

/// Mirror and release to fetch from. One that was named is kept in the cache; where no release was
/// named with it, the mirror is asked for its `stable`.
///
/// # Errors
/// When none is named and the machine's apt sources have none, the one named is no address, or its
/// `stable` cannot be fetched or verified.
pub fn sources(
    cache: &Cache,
    host: &Host,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Sources, BoardError> {
    let kept: Option<Kept> = cache.read_record(RECORD);
    match (&host.mirror, kept) {
        (Some(named), kept) if named.uri != NONE => {
            let uri = address(&named.uri)?;
            let suite = named.suite.as_deref().map(checked_suite).transpose()?;
            let same = |k: &Kept| k.mirror == uri && suite.is_none_or(|s| k.codename == s);
            if let Some(kept) = kept.filter(same) {
                return Ok(kept.sources());
            }
            let codename = match suite {
                Some(s) => s.to_string(),
                None => stable(cache, host, &uri, cancel, sink)?,
            };
            let kept = Kept {
                mirror: uri,
                codename,
            };
            cache.write_record(RECORD, &kept)?;
            Ok(kept.sources())
        }
        (None, Some(kept)) => Ok(kept.sources()),
        _ => match Sources::read(&host.root) {
            Err(BoardError::NoSources { .. }) if !host.has_apt() => Err(BoardError::NoMirror),
            other => other,
        },
    }
}

/// Makes a mirror that was named the one for this and for later fetches, and returns it; [`NONE`]
/// forgets it.
///
/// # Errors
/// As [`sources`].
pub fn choose(
    cache: &Cache,
    host: &Host,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Option<Sources>, BoardError> {
    let _lock = cache.lock(cancel, sink)?;
    if host.mirror.as_ref().is_some_and(|m| m.uri == NONE) {
        let path = cache.path(RECORD);
        return match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(BoardError::cache("remove", &path)(e))
            }
            _ => Ok(None),
        };
    }
    sources(cache, host, cancel, sink).map(Some)
}

/// An address without a slash at its end.
fn address(text: &str) -> Result<String, BoardError> {
    let bad = |why: &str| BoardError::Mirror {
        mirror: text.into(),
        why: why.into(),
    };
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|p| text.strip_prefix(p));
    let rest = rest.ok_or_else(|| bad("an address begins with http:// or https://"))?;
    // what apt's sources could not have
    let odd = |c: char| c.is_whitespace() || c.is_control() || "\"'[]{}\\".contains(c);
    if rest.trim_matches('/').is_empty() || text.contains(odd) {
        return Err(bad("it is no address"));
    }
    Ok(text.trim_end_matches('/').to_string())
}

fn checked_suite(name: &str) -> Result<&str, BoardError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    match name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain) {
        true => Ok(name),
        false => Err(BoardError::Mirror {
            mirror: name.into(),
            why: "it is no name of a suite, such as `trixie`".into(),
        }),
    }
}

/// Codename of the mirror's stable release.
fn stable(
    cache: &Cache,
    host: &Host,
    uri: &str,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<String, BoardError> {
    let suite = Suite {
        uri: uri.into(),
        name: "stable".into(),
    };
    let what = "index of stable";
    progress(sink, what, None);
    let staging = cache.staging()?;
    let found = release::fetch(host, &suite, what, staging.path(), cancel)?;
    checked_suite(&found.codename).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cache: &Cache, mirror: Option<(&str, Option<&str>)>) -> Result<Sources, BoardError> {
        let host = Host {
            root: cache.path("none"),
            programs: Some(cache.path("none")),
            mirror: mirror.map(|(uri, suite)| Mirror {
                uri: uri.into(),
                suite: suite.map(String::from),
            }),
        };
        let never = AtomicBool::new(false);
        if mirror.is_some_and(|(uri, _)| uri == NONE) {
            choose(cache, &host, &never, &mut |_| ())?;
        }
        sources(cache, &host, &never, &mut |_| ())
    }

    #[test]
    fn a_mirror_is_named_once_and_kept() {
        let t = tempfile::tempdir().unwrap();
        let cache = Cache::at(t.path()).unwrap();
        let said = ask(&cache, None).unwrap_err().to_string();
        for w in ["--mirror", VARIABLE, "debian.org/mirror/list"] {
            assert!(said.contains(w), "no `{w}` in {said}");
        }
        let named = ask(&cache, Some(("http://m/debian/", Some("trixie")))).unwrap();
        assert_eq!(
            (named.mirror.as_str(), named.codename.as_str()),
            ("http://m/debian", "trixie")
        );
        let names: Vec<&str> = named.suites.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["trixie", "trixie-updates"]);
        assert_eq!(ask(&cache, None).unwrap(), named);
        assert_eq!(ask(&cache, Some(("http://m/debian", None))).unwrap(), named);
        // another one has to be asked for its stable, and nothing is there to ask with
        let e = ask(&cache, Some(("http://n/debian", None))).unwrap_err();
        assert!(matches!(e, BoardError::NoTool { .. }), "{e}");
        assert!(matches!(
            ask(&cache, Some((NONE, None))),
            Err(BoardError::NoMirror)
        ));
        assert!(matches!(ask(&cache, None), Err(BoardError::NoMirror)));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let t = tempfile::tempdir().unwrap();
        let cache = Cache::at(t.path()).unwrap();
        for bad in [
            "ftp://m/debian",
            "m/debian",
            "http://",
            "http://m/a b",
            "http://m/\n",
        ] {
            let e = ask(&cache, Some((bad, Some("sid")))).unwrap_err();
            assert!(matches!(e, BoardError::Mirror { .. }), "{e}");
        }
        for bad in ["", "../x", "-t", "a b"] {
            let e = ask(&cache, Some(("http://m/debian", Some(bad)))).unwrap_err();
            assert!(matches!(e, BoardError::Mirror { .. }), "{e}");
        }
    }
}
