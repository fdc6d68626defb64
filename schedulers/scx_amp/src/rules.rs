//! `run --rules FILE.toml`: rules of the user for single programs, read again when the file changes.
//!
//! ```toml
//! [[rule]]
//! comm = "cc1*"                 # which threads: all that is said must fit, the first rule that fits holds
//! exe = "/usr/lib/**"
//! cgroup = "/user.slice/**"
//! prefer = "slow"               # what holds for them: see amp_sched::engine::rules
//! never = "fast"
//! weight = 50
//! slowdown = 1.5
//! place = false
//! ```
//!
//! `run --exclude-cgroup` is a rule before all others: threads of the group are not placed.
//!
//! A thread of its own looks after the file, because reading it may take any time.

mod book;
mod file;
mod watch;

use amp_host::bad_input;
use amp_sched::Engine;
use anyhow::Result;
use book::Book;
pub use file::RuleFile;
use std::path::{Path, PathBuf};
use watch::{stamp, Watch};

/// The rules in a file, kept up with it.
#[derive(Debug)]
pub struct Rules {
    path: Option<PathBuf>,
    file: RuleFile,
    watch: Option<Watch>,
    /// Control group whose threads are not placed, as `/proc/PID/cgroup` shows it.
    excluded: Option<String>,
    /// Why the file as it is now cannot be used; those before hold then.
    failed: Option<String>,
}

impl Rules {
    /// The rules in the file at `path`, where there is one; threads of the control group `excluded`
    /// are not placed at all.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming file, line and key at fault; when there can be no thread that
    /// looks after the file.
    pub fn new(path: Option<&Path>, excluded: Option<String>) -> Result<Rules> {
        let read = path.and_then(stamp);
        let file = path.map(RuleFile::load).transpose().map_err(bad_input)?;
        let watch = path.map(|p| Watch::begin(p, read, watch::LOOK));
        Ok(Rules {
            file: file.unwrap_or_default(),
            path: path.map(Path::to_owned),
            watch: watch.transpose()?,
            excluded,
            failed: None,
        })
    }

    /// Whether there are none, and none may come.
    pub fn is_empty(&self) -> bool {
        self.path.is_none() && self.excluded.is_none()
    }

    /// Has them hold for the threads of `engine`.
    pub fn put(&self, engine: &mut Engine) {
        let book = Book::new(self.file.clone(), "/proc", self.excluded.clone());
        engine.set_rules(Some(Box::new(book)));
    }

    /// Has the rules hold that the file has come to contain, if it has been read again. A file that
    /// cannot be used is told once, and changes nothing.
    pub fn refresh(&mut self, engine: &mut Engine) {
        match self.watch.as_ref().and_then(Watch::changed) {
            None => {}
            Some(Ok(file)) => {
                self.file = file;
                self.failed = None;
                self.put(engine);
                log::info!("now {}", self.what());
            }
            Some(Err(e)) => {
                log::warn!("{e}: the rules before hold on");
                self.failed = Some(e.to_string());
            }
        }
    }

    /// How many there are, and where from.
    pub fn what(&self) -> String {
        let file = self.path.as_ref().map(|p| {
            let n = self.file.len();
            let s = if n == 1 { "" } else { "s" };
            format!("{n} rule{s} from {}", p.display())
        });
        let group = self
            .excluded
            .as_ref()
            .map(|g| format!("nobody of {g} is placed"));
        let both: Vec<String> = file.into_iter().chain(group).collect();
        both.join(", ")
    }

    /// Why the file as it is now cannot be used.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::providers;
    use amp_sched::{policy, CoreType, Topology};

    fn engine() -> Engine {
        let t = |name: &str, cpus: Vec<u32>, capacity| CoreType {
            name: name.into(),
            cpus,
            capacity,
        };
        let topology = Topology::new(vec![t("big", vec![0], 1024), t("little", vec![1], 400)]);
        Engine::new(
            topology.unwrap(),
            policy::by_name("rr", 1).unwrap(),
            providers::by_name("none").unwrap(),
        )
    }

    #[test]
    fn a_file_that_turns_bad_changes_nothing() {
        let d = tempfile::tempdir().unwrap();
        let path = d.path().join("rules.toml");
        std::fs::write(&path, "[[rule]]\ncomm = \"a\"\nprefer = \"fast\"\n").unwrap();
        let mut e = engine();
        let mut rules = Rules::new(Some(&path), None).unwrap();
        rules.put(&mut e);
        rules.refresh(&mut e);
        assert_eq!((rules.file.len(), rules.failed()), (1, None));
        let mut until = |rules: &mut Rules, what: &dyn Fn(&Rules) -> bool| {
            for _ in 0..6000 {
                rules.refresh(&mut e);
                if what(rules) {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            panic!("{rules:?}");
        };
        let says = |r: &Rules, what: &str| r.failed().is_some_and(|why| why.contains(what));

        // at once: the thread may look between a file's emptying and its writing
        let new = d.path().join("new");
        std::fs::write(&new, "[[rule]]\ncomm = \"a\"\nprefer = \"fsat\"\n# bad\n").unwrap();
        std::fs::rename(&new, &path).unwrap();
        until(&mut rules, &|r| says(r, "line 3: key `rule[0].prefer`"));
        assert_eq!(rules.file.len(), 1);
        std::fs::remove_file(&path).unwrap();
        until(&mut rules, &|r| says(r, "rules.toml: No such file"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        until(&mut rules, &|r| says(r, "not a regular file"));
        assert_eq!(rules.file.len(), 1);
        std::fs::remove_file(&path).unwrap();

        let two = "[[rule]]\ncomm = \"a\"\nweight = 50\n[[rule]]\ncomm = \"b\"\nplace = false\n";
        std::fs::write(&path, two).unwrap();
        until(&mut rules, &|r| r.failed().is_none() && r.file.len() == 2);
        assert!(rules.what().starts_with("2 rules from "));
    }
}
