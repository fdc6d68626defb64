//! What control groups ask of the CPU scheduler. The kernel leaves all of that to the one that is loaded: ours
//! keeps weights, idle groups and limits of CPU time ([`Tree`]).

mod limit;
mod tree;
mod walk;
mod watch;

pub use tree::{Limits, Load, Tree};
use walk::walk;
pub use watch::Watch;

use std::fmt;
use std::path::{Path, PathBuf};

/// Where control groups are mounted, below the root.
const GROUPS: &str = "sys/fs/cgroup";
/// Groups that are looked at: a container host has thousands.
const MOST: usize = 10_000;

/// A limit of CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The group, below the mount.
    group: PathBuf,
    /// `cpu.max 20000 100000`.
    what: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{} ({})", self.group.display(), self.what)
    }
}

/// What a look at all control groups has found.
#[derive(Debug)]
pub struct Found {
    /// The limits, by group.
    settings: Vec<Setting>,
    /// Whether all groups were looked at, and not the first ones only.
    whole: bool,
}

/// Which control groups below `root` (`/`) have a limit of CPU time. Nothing where there is no second version of control
/// groups.
pub fn limited(root: &Path) -> Option<Found> {
    let mount = root.join(GROUPS);
    if !mount.join("cgroup.controllers").is_file() {
        return None;
    }
    let mut settings = Vec::new();
    let whole = walk(&mount, MOST, (), |dir, ()| {
        let group = dir.strip_prefix(&mount).unwrap_or(dir);
        settings.extend(told(dir).map(|what| Setting {
            group: group.to_owned(),
            what,
        }));
        Some(())
    });
    let by_group = |a: &Setting, b: &Setting| a.group.cmp(&b.group).then(a.what.cmp(&b.what));
    settings.sort_by(by_group);
    Some(Found { settings, whole })
}

/// That of one group, as `cpu.max 20000 100000`.
fn told(dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(dir.join("cpu.max")).ok()?;
    let value = text.trim();
    (!value.starts_with("max")).then(|| format!("cpu.max {value}"))
}

impl Found {
    /// All of it in a line: some by name, the others by number. Nothing where nothing was found.
    pub fn in_a_line(&self) -> Option<String> {
        const NAMED: usize = 3;
        let some = self.settings.iter().take(NAMED);
        let named: Vec<String> = some.map(ToString::to_string).collect();
        let others = self.settings.len().saturating_sub(NAMED);
        let cut = match self.whole {
            true => String::new(),
            false => format!(" (of the first {MOST} groups)"),
        };
        match (named.is_empty(), others) {
            (true, _) => None,
            (_, 0) => Some(format!("{}{cut}", named.join(", "))),
            _ => Some(format!("{}, and {others} more{cut}", named.join(", "))),
        }
    }

    /// Whether all groups were looked at.
    pub fn whole(&self) -> bool {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        let root = tempfile::tempdir().unwrap();
        assert!(limited(root.path()).is_none(), "no control groups");
        let said = || limited(root.path()).unwrap().in_a_line();
        let put = |group: &str, file: &str, text: &str| {
            let dir = root.path().join(GROUPS).join(group);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(file), format!("{text}\n")).unwrap();
        };
        put("", "cgroup.controllers", "cpu memory");
        for group in ["a", "a/b", "c.service"] {
            put(group, "cpu.weight", "100");
            put(group, "cpu.max", "max 100000");
            put(group, "cpu.idle", "0");
        }
        assert_eq!(said(), None);
        put("a/b", "cpu.weight", "50");
        put("a", "cpu.idle", "1");
        put("c.service", "cpu.max", "20000 100000");
        assert_eq!(said().unwrap(), "/c.service (cpu.max 20000 100000)");
        for group in ["a", "a/b", "d"] {
            put(group, "cpu.max", "1000 100000");
        }
        assert_eq!(
            said().unwrap(),
            "/a (cpu.max 1000 100000), /a/b (cpu.max 1000 100000), /c.service (cpu.max 20000 100000), and 1 more"
        );
    }
}
