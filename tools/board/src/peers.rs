//! Peers: published scx schedulers, built for the board's guest and kept in the cache.
//!
//! ```text
//! peers.toml (names, versions) ─► peer.sh (cargo install) ─► cache/peers/scx_NAME-VERSION/bin/scx_NAME
//! ```

use crate::cache::Cache;
use crate::child;
use crate::error::BoardError;
use crate::event::{progress, Event, Sink};
use crate::seal::{self, Care, State};
use crate::version;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

const SHIPPED: &str = include_str!("../peers.toml");
/// The script that builds one, from the top of the source tree.
const SCRIPT: &str = "tools/setup/peer.sh";
/// Folder of the cache.
const FOLDER: &str = "peers";
/// Lines of the compiler that an error shows.
const LAST_LINES: usize = 15;

/// A published scheduler of a certain version.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name without `scx_`.
    pub name: String,
    /// Version of its crate.
    pub version: String,
    /// What is known of it on the board.
    #[serde(default)]
    pub notes: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Peers {
    peer: Vec<Peer>,
}

impl Peer {
    /// Name of its crate and of its program.
    pub fn crate_name(&self) -> String {
        format!("scx_{}", self.name)
    }

    fn folder(&self) -> PathBuf {
        Path::new(FOLDER).join(format!("{}-{}", self.crate_name(), self.version))
    }

    /// Where its program is, when it was built.
    pub fn program(&self, cache: &Cache) -> PathBuf {
        let bin = cache.path(self.folder()).join("bin");
        bin.join(self.crate_name())
    }

    /// Whether its program is there and not damaged.
    fn is_built(&self, cache: &Cache) -> bool {
        let program = self.program(cache);
        program.is_file() && !matches!(seal::look(&program, Care::Usual), Ok(State::Damaged(_)))
    }

    /// What is wrong with its program; `None` when it is as it was built, or nothing is known of
    /// that.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub fn damage(&self, cache: &Cache, care: Care) -> Result<Option<String>, BoardError> {
        match seal::look(&self.program(cache), care)? {
            State::Damaged(why) => Ok(Some(why)),
            State::Whole | State::Unsealed => Ok(None),
        }
    }
}

/// The peers that are known, with the versions that were tried.
///
/// # Errors
/// When the shipped list cannot be read.
pub fn shipped() -> Result<Vec<Peer>, BoardError> {
    let peers: Result<Peers, _> = toml::from_str(SHIPPED);
    let peers = peers.map_err(|e| BoardError::Peers {
        why: format!("peers.toml: {e}"),
    })?;
    Ok(peers.peer)
}

/// All peers that were built, damaged ones included, in no order.
pub(crate) fn kept(cache: &Cache) -> Vec<Peer> {
    let shipped = shipped().unwrap_or_default();
    let entries = fs::read_dir(cache.path(FOLDER));
    let entries = entries.into_iter().flatten().flatten();
    let found = entries.filter_map(|e| {
        let folder = e.file_name().to_string_lossy().into_owned();
        let (name, version) = folder.strip_prefix("scx_")?.rsplit_once('-')?;
        let peer = Peer {
            name: name.to_owned(),
            version: version.to_owned(),
            notes: None,
        };
        let known = shipped
            .iter()
            .find(|p| p.name == name && p.version == version);
        let peer = known.cloned().unwrap_or(peer);
        peer.program(cache).is_file().then_some(peer)
    });
    found.collect()
}

/// The peers that are built and not damaged, each name once and sorted: where there are several
/// versions, the shipped one, else the newest.
pub fn built(cache: &Cache) -> Vec<Peer> {
    let shipped = shipped().unwrap_or_default();
    let mut found = kept(cache);
    found.retain(|p| p.is_built(cache));
    let other = |p: &Peer| !shipped.contains(p);
    found.sort_by(|a, b| {
        let newest_first = || version::compare(&b.version, &a.version);
        (&a.name, other(a))
            .cmp(&(&b.name, other(b)))
            .then_with(newest_first)
    });
    found.dedup_by(|a, b| a.name == b.name);
    found
}

/// The peers of a list: `NAME`, with or without `scx_`, or `NAME@VERSION`, separated by commas. An
/// empty list is all that are shipped.
///
/// # Errors
/// [`BoardError::Peers`] naming the first that there is not.
pub fn parse(list: &str) -> Result<Vec<Peer>, BoardError> {
    let shipped = shipped()?;
    if list.trim().is_empty() {
        return Ok(shipped);
    }
    let items = list.split(',').map(str::trim);
    let peers = items.map(|item| {
        let (name, version) = match item.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (item, None),
        };
        let name = name.strip_prefix("scx_").unwrap_or(name);
        let word = |w: &str, more: &[char]| {
            let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(&c);
            w.starts_with(|c: char| c.is_ascii_alphanumeric()) && w.chars().all(fits)
        };
        let known = shipped.iter().find(|p| p.name == name);
        match (known, version) {
            (Some(p), None) => Ok(p.clone()),
            (known, Some(v)) if word(name, &['_']) && word(v, &['.', '-', '+']) => Ok(Peer {
                name: name.to_owned(),
                version: v.to_owned(),
                notes: known
                    .filter(|p| p.version == v)
                    .and_then(|p| p.notes.clone()),
            }),
            _ => Err(BoardError::Peers {
                why: format!(
                    "no peer `{item}`: there are {}, and NAME@VERSION for any other crate scx_NAME",
                    names(&shipped)
                ),
            }),
        }
    });
    peers.collect()
}

fn names(peers: &[Peer]) -> String {
    let names: Vec<&str> = peers.iter().map(|p| p.name.as_str()).collect();
    names.join(", ")
}

/// Builds `peer` unless it is there, or always with `again`; returns whether anything was built.
///
/// # Errors
/// When it does not build (the error shows what the compiler said last, and where the rest is), the
/// source tree is not found, or `cancel` became true.
pub fn build(
    cache: &Cache,
    peer: &Peer,
    again: bool,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<bool, BoardError> {
    if peer.is_built(cache) && !again {
        return Ok(false);
    }
    if let Some(why) = peer.damage(cache, Care::Usual)? {
        sink(Event::Warning(format!(
            "peer {} {} in the cache is damaged ({why}): it is built again",
            peer.crate_name(),
            peer.version
        )));
    }
    build_by(&script()?, cache, peer, cancel, sink)?;
    Ok(true)
}

fn build_by(
    script: &Path,
    cache: &Cache,
    peer: &Peer,
    cancel: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<(), BoardError> {
    let (name, version) = (peer.crate_name(), &peer.version);
    let log = cache.dir(FOLDER)?.join(format!("{name}-{version}.log"));
    let mut log_file = File::create(&log).map_err(BoardError::cache("create", &log))?;
    let staging = cache.staging()?;
    let root = staging.path().join("root");
    let mut command = Command::new("sh");
    // cargo tells everything on standard error
    command.args(["-c", "exec \"$0\" \"$@\" 2>&1"]);
    command.arg(script).arg(&name).arg(version).arg(&root);
    command.env(
        "CARGO_TARGET_DIR",
        cache.dir(Path::new(FOLDER).join("target"))?,
    );
    command.env("CARGO_TERM_COLOR", "never");
    progress(sink, format!("building {name} {version}"), None);
    let mut unwritten = None;
    let done = child::run(&mut command, cancel, &mut |line| {
        if let Err(e) = writeln!(log_file, "{line}") {
            unwritten.get_or_insert(e);
        }
        progress(sink, format!("{name} {version}: {}", line.trim()), None);
    })?;
    if let Some(e) = unwritten {
        return Err(BoardError::cache("write", &log)(e));
    }
    let program = root.join("bin").join(&name);
    if !done.status.success() || !program.is_file() {
        let lines: Vec<&str> = done.stdout.lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        return Err(BoardError::PeerBuild {
            name,
            version: version.clone(),
            last: last.join("\n"),
            log,
        });
    }
    seal::put(&program)?;
    cache.publish(&root, peer.folder())?;
    Ok(())
}

/// The script, in the source tree that the current folder or the running program is in, or that
/// this crate was built from.
fn script() -> Result<PathBuf, BoardError> {
    let here = std::env::current_dir().ok();
    let exe = std::env::current_exe().ok();
    let built_from = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let starts = [here, exe, Some(built_from)];
    let folders = starts.iter().flatten().flat_map(|p| p.ancestors());
    let mut scripts = folders.map(|d| d.join(SCRIPT));
    scripts
        .find(|s| s.is_file())
        .ok_or_else(|| BoardError::Peers {
            why: format!("{SCRIPT} is not found: run this in scx_amp's source tree"),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::testing::executable;

    fn peer(name: &str, version: &str) -> Peer {
        Peer {
            name: name.into(),
            version: version.into(),
            notes: None,
        }
    }

    fn put(cache: &Cache, peer: &Peer) {
        let program = peer.program(cache);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(program, "x").unwrap();
    }

    #[test]
    fn the_shipped_list_is_read_and_lists_are_parsed() {
        let all = shipped().unwrap();
        assert_eq!(parse("").unwrap(), all);
        let some = parse("scx_bpfland, rusty@9.1,own@0.1.0-rc.1").unwrap();
        assert_eq!(some[0], *all.iter().find(|p| p.name == "bpfland").unwrap());
        assert_eq!(some[1..], [peer("rusty", "9.1"), peer("own", "0.1.0-rc.1")]);
        for wrong in ["bpfl", "own", "x@", "x@-1", "../x@1", "bpfland,,"] {
            let said = parse(wrong).unwrap_err().to_string();
            assert!(
                said.contains("bpfland") && said.contains("no peer `"),
                "{said}"
            );
        }
    }

    #[test]
    fn of_several_versions_the_shipped_one_counts_else_the_newest() {
        let t = tempfile::tempdir().unwrap();
        let cache = Cache::at(t.path()).unwrap();
        assert!(built(&cache).is_empty());
        let pinned = shipped().unwrap().remove(0);
        for p in [
            &peer(&pinned.name, "99.0.0"),
            &pinned,
            &peer("own", "0.9.0"),
            &peer("own", "0.10.0"),
        ] {
            put(&cache, p);
        }
        cache.dir("peers/scx_half-1.0/bin").unwrap();
        cache.dir("peers/target").unwrap();
        assert_eq!(built(&cache), [pinned, peer("own", "0.10.0")]);
    }

    #[test]
    fn one_that_builds_is_kept_and_one_that_does_not_shows_the_compilers_words() {
        let t = tempfile::tempdir().unwrap();
        let cache = Cache::at(&t.path().join("cache")).unwrap();
        let script = t.path().join("peer.sh");
        let go = |text: &str, events: &mut Vec<Event>| {
            executable(&script, &format!("#!/bin/sh\n{text}\n"));
            let never = AtomicBool::new(false);
            let own = peer("own", "1.0");
            build_by(&script, &cache, &own, &never, &mut |e| events.push(e))
        };
        let mut events = Vec::new();
        let failing = "echo '   Compiling x' >&2; echo 'error: no such symbol' >&2; exit 101";
        let said = go(failing, &mut events).unwrap_err().to_string();
        for w in ["scx_own 1.0", "error: no such symbol", "scx_own-1.0.log"] {
            assert!(said.contains(w), "no `{w}` in {said}");
        }
        let log = fs::read_to_string(cache.path("peers/scx_own-1.0.log")).unwrap();
        assert!(log.contains("Compiling x"));
        let shown =
            |e: &Event| matches!(e, Event::Progress { what, .. } if what.contains("Compiling x"));
        assert!(events.iter().any(shown), "{events:?}");
        assert!(built(&cache).is_empty());
        let works = "mkdir -p $3/bin; echo $1 $2 $CARGO_TARGET_DIR > $3/bin/$1";
        go(works, &mut events).unwrap();
        assert_eq!(built(&cache), [peer("own", "1.0")]);
        let text = fs::read_to_string(peer("own", "1.0").program(&cache)).unwrap();
        assert!(
            text.starts_with("scx_own 1.0 ") && text.contains("peers/target"),
            "{text}"
        );
    }
}
