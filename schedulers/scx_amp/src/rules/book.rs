//! Which rule holds for which thread, with what of it has to be looked up kept.

use super::file::RuleFile;
use amp_metrics::{Nanos, ThreadKey, ThreadSample};
use amp_sched::{Prefer, Rule, Rulebook};
use rustc_hash::FxHashMap;
use std::path::PathBuf;

/// A thread is looked at again after so long: it may be in another control group.
const AGAIN: Nanos = Nanos::from_millis(5_000);

/// Rules, and what is known of the threads they were asked about.
#[derive(Debug)]
pub struct Book {
    file: RuleFile,
    proc: PathBuf,
    now: Nanos,
    known: FxHashMap<ThreadKey, Known>,
    swept: Nanos,
    /// Control group whose threads are not placed.
    excluded: Option<String>,
}

/// What holds for threads of a group that is left out.
const EXCLUDED: Rule = Rule {
    number: 0,
    prefer: Prefer::Any,
    never_fast: false,
    weight: None,
    slowdown: None,
    place: false,
};

/// A thread that was looked up.
#[derive(Clone, Copy, Debug)]
struct Known {
    comm: [u8; 16],
    at: Nanos,
    rule: Option<Rule>,
}

impl Book {
    /// These rules for threads whose processes are found below `proc`; those in the control group
    /// `excluded`, and in the groups below it, are not placed.
    pub fn new(file: RuleFile, proc: impl Into<PathBuf>, excluded: Option<String>) -> Book {
        Book {
            file,
            proc: proc.into(),
            now: Nanos::ZERO,
            known: FxHashMap::default(),
            swept: Nanos::ZERO,
            excluded,
        }
    }

    fn look_up(&self, thread: &ThreadSample) -> Option<Rule> {
        let length = thread.comm.iter().position(|b| *b == 0);
        let comm = String::from_utf8_lossy(&thread.comm[..length.unwrap_or(thread.comm.len())]);
        let dir = self.proc.join(thread.tid.to_string());
        // what has gone meanwhile, or is a kernel thread, has neither
        let exe = std::cell::OnceCell::new();
        let exe = || -> Option<&str> {
            let read = || {
                std::fs::read_link(dir.join("exe"))
                    .ok()?
                    .into_os_string()
                    .into_string()
                    .ok()
            };
            exe.get_or_init(read).as_deref()
        };
        let cgroup = std::cell::OnceCell::new();
        let cgroup = || -> Option<&str> {
            let read = || {
                let text = std::fs::read_to_string(dir.join("cgroup")).ok()?;
                // the line of the unified hierarchy
                let path = text.lines().find_map(|l| l.strip_prefix("0::"))?;
                Some(path.to_owned())
            };
            cgroup.get_or_init(read).as_deref()
        };
        if let Some(group) = &self.excluded {
            // the root of the hierarchy holds everybody
            let inside = |path: &str| {
                let rest = path.strip_prefix(group.trim_end_matches('/'));
                rest.is_some_and(|r| r.is_empty() || r.starts_with('/'))
            };
            if cgroup().is_some_and(inside) {
                return Some(EXCLUDED);
            }
        }
        self.file.first(&comm, exe, cgroup)
    }
}

impl Rulebook for Book {
    fn begin(&mut self, now: Nanos) {
        self.now = now;
        let sweep = now.saturating_sub(self.swept) > AGAIN;
        if sweep {
            // a thread that is still there is looked up again when it is asked about
            self.known.retain(|_, k| now.saturating_sub(k.at) <= AGAIN);
            self.swept = now;
        }
    }

    fn rule(&mut self, thread: &ThreadSample) -> Option<Rule> {
        match self.known.get(&thread.key) {
            // whoever is called otherwise has begun another program, mostly
            Some(k) if k.comm == thread.comm && self.now.saturating_sub(k.at) <= AGAIN => k.rule,
            _ => {
                let known = Known {
                    comm: thread.comm,
                    at: self.now,
                    rule: self.look_up(thread),
                };
                self.known.insert(thread.key, known);
                known.rule
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::{AppId, CoreTypeId, CoreTypeSet, MAX_CORE_TYPES};
    use std::path::Path;

    fn thread(tid: i32, comm: &str) -> ThreadSample {
        let mut name = [0; 16];
        name[..comm.len()].copy_from_slice(comm.as_bytes());
        ThreadSample {
            key: ThreadKey {
                slot: tid as u32,
                generation: 1,
            },
            tid,
            app: AppId(1),
            comm: name,
            arguments: 0,
            weight: 100,
            allowed: CoreTypeSet::ALL,
            runnable: true,
            core_type: CoreTypeId(0),
            placed: None,
            runtime: [Nanos::ZERO; MAX_CORE_TYPES],
        }
    }

    #[test]
    fn programs_and_groups_are_looked_up_and_looked_up_again() {
        let proc = tempfile::tempdir().unwrap();
        let dir = proc.path().join("7");
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink("/opt/game", dir.join("exe")).unwrap();
        std::fs::write(dir.join("cgroup"), "1:cpu:/x\n0::/user.slice/a\n").unwrap();
        let text = "[[rule]]\nexe = \"/opt/*\"\ncgroup = \"/user.slice/*\"\nprefer = \"fast\"\n\
                    [[rule]]\ncomm = \"made\"\nplace = false\n";
        let file = RuleFile::parse(Path::new("r"), text).unwrap();
        let mut book = Book::new(file, proc.path(), None);
        let mut number = |ms, t: &ThreadSample| {
            book.begin(Nanos::from_millis(ms));
            book.rule(t).map(|r| r.number)
        };
        let (game, gone) = (thread(7, "game"), thread(8, "made"));
        assert_eq!((number(100, &game), number(100, &gone)), (Some(1), Some(2)));
        // in another group: noticed after a while
        std::fs::write(dir.join("cgroup"), "0::/system.slice\n").unwrap();
        assert_eq!(number(200, &game), Some(1));
        assert_eq!(number(6_000, &game), None);
        // another name: noticed at once
        assert_eq!(number(6_100, &thread(7, "made")), Some(2));
        let mut all = Book::new(
            RuleFile::default(),
            proc.path(),
            Some("/system.slice".into()),
        );
        all.begin(Nanos::from_millis(1));
        assert_eq!(all.rule(&game), Some(EXCLUDED));
        let mut other = Book::new(RuleFile::default(), proc.path(), Some("/system".into()));
        assert_eq!(other.rule(&game), None);
        // sixteen bytes without an end are a name, too
        assert_eq!(number(6_200, &thread(9, "sixteen-bytes-ab")), None);
    }
}
