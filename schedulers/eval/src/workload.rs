//! The workload file: one file serves board, host and simulator.
//!
//! ```toml
//! name = "2STH-2STL"
//! machine = "quickia"          # optional: the machine it is for, a shipped one or a file (from this one's folder)
//! [[app]]
//! name = "calculix"            # label, unique in the file
//! threads = 1                  # default 1
//! weight = 100                 # default 100
//! speedup = 2.6                # optional: declared speedup factor, fastest core type over slowest
//! command = ["bzip2", "-9kc", "corpus.bin"]        # board and host
//! instructions = 40e9          # simulator, with phases
//! phases = [
//!   { instructions = 2.0e9, ips_big = 2.4e9, ips_small = 0.8e9, power_big = 0.9, power_small = 0.25, parallel = true },
//!   { instructions = 9.0e9, ips_big = 2.0e9, ips_small = 0.8e9, schedule = "dynamic", loops = 1 },
//! ]
//! ```

use amp_machine::{BadFile, Locator, MachineFile};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// A mix of applications.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// Name for reports.
    pub name: String,
    /// The machine that the mix is for: a shipped one, or the path of a machine file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Its applications, in the order of the file; at least one.
    #[serde(rename = "app")]
    pub apps: Vec<App>,
}

/// One application of a mix. It has a command, phases, or both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct App {
    /// Label, unique in the file.
    pub name: String,
    /// Threads, ≥ 1.
    pub threads: u32,
    /// Scheduling weight, ≥ 1; 100 = default.
    pub weight: u32,
    /// Declared speedup factor, fastest core type over slowest; > 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<f64>,
    /// Program and arguments (board and host).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Instructions from start to completion (simulator); the phases repeat until they are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
    /// Phases (simulator).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
}

/// A stretch of steady behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Length in instructions, > 0.
    pub instructions: f64,
    /// Instructions per second of one thread on a big core, > 0.
    pub ips_big: f64,
    /// Instructions per second of one thread on a small core, > 0.
    pub ips_small: f64,
    /// Power of a big core that runs it, in watts, ≥ 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_big: Option<f64>,
    /// Power of a small core that runs it, in watts, ≥ 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_small: Option<f64>,
    /// Whether all threads run it; `false` marks a serial phase of one runnable thread.
    #[serde(default = "yes")]
    pub parallel: bool,
    /// How threads share the work of a parallel phase.
    #[serde(default)]
    pub schedule: Schedule,
    /// Equal parallel loops that a parallel phase consists of, ≥ 1: after each, threads wait for
    /// each other.
    #[serde(default = "one_loop")]
    pub loops: u32,
    /// Seconds that all threads sleep after each loop (after the phase, where it is serial), ≥ 0:
    /// for a disk, a user, a network. No core shortens it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sleep: f64,
    /// What each thread wants of the cache that the cores of a type share; `None` for nothing worth
    /// mentioning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheUse>,
}

/// How much of a shared cache a thread fills, and what it loses without.
///
/// Threads that want more together than there is have it in proportion to what they want. The speeds
/// of the [`Phase`] are those that a thread has alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheUse {
    /// Working set of a thread, in KiB, > 0. A stream is as large as its arrays.
    pub kib: f64,
    /// How many times as long an instruction takes with none of the working set in the cache as
    /// with all of it, ≥ 1. 1 for a stream, which finds nothing again.
    pub loss: f64,
}

impl CacheUse {
    /// How many times as long an instruction takes in a cache of `size` KiB in which threads want
    /// `wanted` KiB in all, this one's included, as when this one is alone there.
    pub fn slowdown(&self, size: f64, wanted: f64) -> f64 {
        let takes = |wanted: f64| {
            let there = (size / wanted).min(1.0);
            1.0 + (self.loss - 1.0) * (1.0 - there)
        };
        takes(wanted.max(self.kib)) / takes(self.kib)
    }
}

/// How the threads of an application share the work of a parallel phase, in OpenMP's words.
///
/// It decides what fast cores are worth to a parallel program of more threads than fast cores. The
/// application-wide speedup (NB/N)(SF−1)+1 [TR5028 §4] adds up the threads' speeds, which dynamic
/// sharing delivers at any time. With static shares all wait for the slowest thread: a loop gains
/// what the thread with the least time on fast cores gains, which is nothing when loops are shorter
/// than the turns that threads take on fast cores; the utility factor of CAMP describes that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Each thread has an equal share from the start.
    #[default]
    Static,
    /// Whoever is ready takes the next piece, until there is none left.
    Dynamic,
}

impl Workload {
    /// Reads a workload file.
    ///
    /// # Errors
    /// When it cannot be read or is not right; the error names file, line and key.
    pub fn load(path: &Path) -> Result<Workload, BadFile> {
        Workload::parse(path, &BadFile::read(path)?)
    }

    /// As [`Workload::load`], from text; `path` is for messages.
    ///
    /// # Errors
    /// When the text is not right; the error names file, line and key.
    pub fn parse(path: &Path, text: &str) -> Result<Workload, BadFile> {
        let check = Check(Locator::new(path, text));
        let file: File = toml::from_str(text).map_err(|e| check.0.toml(&e))?;
        check.text(&file.name, "name")?;
        if let Some(machine) = &file.machine {
            check.text(machine, "machine")?;
        }
        if file.apps.is_empty() {
            return Err(check.error(file.name.span(), "app", "at least one [[app]] is needed"));
        }
        let mut seen = HashMap::new();
        let mut apps = Vec::with_capacity(file.apps.len());
        for app in file.apps {
            let (span, app) = (app.span(), app.into_inner());
            let (name, at) = (app.name.get_ref(), app.name.span());
            if let Some(before) = seen.insert(name.clone(), at.clone()) {
                let line = check.0.line(before.start);
                let message = format!("`{name}` is the name of the application at line {line} too");
                return Err(check.error(at, "name", message));
            }
            apps.push(check.app(span, app)?);
        }
        Ok(Workload {
            name: file.name.into_inner(),
            machine: file.machine.map(|m| beside(path, m.into_inner())),
            apps,
        })
    }

    /// Whether the machine that the mix is for can be had; the mix was read from the file at
    /// `path`.
    ///
    /// # Errors
    /// When there is none of that name or its file is not right; the error names file, line and
    /// key of the mix, and then those of the machine.
    pub fn check_machine(&self, path: &Path) -> Result<(), BadFile> {
        let Some(Err(e)) = self.machine.as_deref().map(MachineFile::load) else {
            return Ok(());
        };
        let text = amp_machine::read_text(path).map_or(String::new(), |(text, _)| text);
        Err(Locator::new(path, &text).key("machine", e.to_string()))
    }
}

/// A machine file is looked up from the folder of the workload file at `path`.
fn beside(path: &Path, machine: String) -> String {
    match path.parent() {
        Some(folder) if machine.ends_with(".toml") => folder.join(machine).display().to_string(),
        _ => machine,
    }
}

impl App {
    /// Mean speedup factor over its phases: time on a small core over time on a big one for the
    /// same instructions. `None` without phases.
    pub fn phases_speedup(&self) -> Option<f64> {
        let time = |ips: fn(&Phase) -> f64| -> f64 {
            self.phases.iter().map(|p| p.instructions / ips(p)).sum()
        };
        (!self.phases.is_empty()).then(|| time(|p| p.ips_small) / time(|p| p.ips_big))
    }
}

fn one_loop() -> u32 {
    1
}

fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

fn yes() -> bool {
    true
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

fn hundred() -> Spanned<u32> {
    Spanned::new(0..0, 100)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    machine: Option<Spanned<String>>,
    #[serde(rename = "app", default)]
    apps: Vec<Spanned<FileApp>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileApp {
    name: Spanned<String>,
    #[serde(default = "one")]
    threads: Spanned<u32>,
    #[serde(default = "hundred")]
    weight: Spanned<u32>,
    speedup: Option<Spanned<f64>>,
    command: Option<Spanned<Vec<String>>>,
    instructions: Option<Spanned<f64>>,
    #[serde(default)]
    phases: Vec<Spanned<Phase>>,
}

/// Checks values, knowing where they stand.
struct Check<'a>(Locator<'a>);

impl Check<'_> {
    fn error(&self, span: Range<usize>, key: &'static str, message: impl Into<String>) -> BadFile {
        self.0.value(span.start, key, message)
    }

    fn text(&self, value: &Spanned<String>, key: &'static str) -> Result<(), BadFile> {
        if value.get_ref().trim().is_empty() {
            return Err(self.error(value.span(), key, "it is empty: a name is needed"));
        }
        Ok(())
    }

    fn at_least_one(&self, value: &Spanned<u32>, key: &'static str) -> Result<u32, BadFile> {
        if *value.get_ref() == 0 {
            return Err(self.error(
                value.span(),
                key,
                "0: a whole number of at least 1 is needed",
            ));
        }
        Ok(*value.get_ref())
    }

    fn positive(&self, value: f64, span: Range<usize>, key: &'static str) -> Result<f64, BadFile> {
        if value.is_finite() && value > 0.0 {
            return Ok(value);
        }
        Err(self.error(
            span,
            key,
            format!("{value}: a finite number above 0 is needed"),
        ))
    }

    fn app(&self, span: Range<usize>, app: FileApp) -> Result<App, BadFile> {
        self.text(&app.name, "name")?;
        let threads = self.at_least_one(&app.threads, "threads")?;
        let weight = self.at_least_one(&app.weight, "weight")?;
        let number = |v: &Option<Spanned<f64>>, key| {
            v.as_ref()
                .map(|v| self.positive(*v.get_ref(), v.span(), key))
                .transpose()
        };
        let speedup = number(&app.speedup, "speedup")?;
        let instructions = number(&app.instructions, "instructions")?;
        if let Some(command) = &app.command {
            if command
                .get_ref()
                .first()
                .is_none_or(|program| program.is_empty())
            {
                let message = "a program is needed, such as [\"bzip2\", \"-9kc\", \"corpus.bin\"]";
                return Err(self.error(command.span(), "command", message));
            }
        }
        for phase in &app.phases {
            self.phase(phase)?;
        }
        if app.command.is_none() && app.phases.is_empty() {
            let name = app.name.get_ref();
            let message = format!(
                "`{name}` has neither `command` (board and host) nor `phases` (simulator): one of them is needed"
            );
            return Err(self.error(span, "app", message));
        }
        if !app.phases.is_empty() && instructions.is_none() {
            let message = "it is missing: with `phases`, the instructions from start to completion are needed";
            return Err(self.error(span, "instructions", message));
        }
        Ok(App {
            name: app.name.into_inner(),
            threads,
            weight,
            speedup,
            command: app.command.map(Spanned::into_inner),
            instructions,
            phases: app.phases.into_iter().map(Spanned::into_inner).collect(),
        })
    }

    fn phase(&self, phase: &Spanned<Phase>) -> Result<(), BadFile> {
        let p = phase.get_ref();
        for (value, key) in [
            (p.instructions, "instructions"),
            (p.ips_big, "ips_big"),
            (p.ips_small, "ips_small"),
        ] {
            self.positive(value, phase.span(), key)?;
        }
        if p.loops == 0 {
            let message = "must be at least 1".to_owned();
            return Err(self.error(phase.span(), "loops", message));
        }
        if !(p.sleep.is_finite() && p.sleep >= 0.0) {
            let message = format!(
                "{}: a finite number of seconds, 0 or more, is needed",
                p.sleep
            );
            return Err(self.error(phase.span(), "sleep", message));
        }
        if let Some(c) = &p.cache {
            self.positive(c.kib, phase.span(), "cache.kib")?;
            if !(c.loss.is_finite() && c.loss >= 1.0) {
                let message = format!("{}: a finite number, 1 or more, is needed", c.loss);
                return Err(self.error(phase.span(), "cache.loss", message));
            }
        }
        for (value, key) in [(p.power_big, "power_big"), (p.power_small, "power_small")] {
            if let Some(v) = value.filter(|v| !(v.is_finite() && *v >= 0.0)) {
                let message = format!("{v}: a finite number of watts, 0 or more, is needed");
                return Err(self.error(phase.span(), key, message));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "mix"
[[app]]
name = "a"
command = ["bzip2", "-9kc", "corpus.bin"]
speedup = 2
[[app]]
name = "b"
threads = 4
weight = 200
instructions = 40e9
phases = [
  { instructions = 2.0e9, ips_big = 2.4e9, ips_small = 0.8e9, power_big = 0.9, power_small = 0.25, parallel = false },
  { instructions = 1e9, ips_big = 1e9, ips_small = 1e9 },
]
"#;

    fn parse(text: &str) -> Result<Workload, BadFile> {
        Workload::parse(Path::new("w.toml"), text)
    }

    #[test]
    fn a_good_file() {
        let w = parse(GOOD).unwrap();
        assert_eq!((w.name.as_str(), w.apps.len()), ("mix", 2));
        let (a, b) = (&w.apps[0], &w.apps[1]);
        assert_eq!((a.threads, a.weight, a.speedup), (1, 100, Some(2.0)));
        assert_eq!((b.threads, b.weight, b.phases.len()), (4, 200, 2));
        assert!(!b.phases[0].parallel && b.phases[1].parallel && b.phases[1].power_big.is_none());
        // (2.5 + 1) s on a small core, (0.8333 + 1) s on a big one
        assert!((b.phases_speedup().unwrap() - 3.5 / (1.0 + 2.0 / 2.4)).abs() < 1e-12);
        assert_eq!(a.phases_speedup(), None);
        // what is written out can be read again
        assert_eq!(parse(&toml::to_string(&w).unwrap()).unwrap(), w);
    }

    #[test]
    fn the_machine_that_a_mix_is_for() {
        let of = |key: &str| {
            let text = GOOD.replacen("name = \"mix\"", &format!("name = \"mix\"\n{key}"), 1);
            Workload::parse(Path::new("mixes/w.toml"), &text).map(|w| w.machine)
        };
        assert_eq!(of("").unwrap(), None);
        assert_eq!(of("machine = \"juno\"").unwrap().as_deref(), Some("juno"));
        let file = of("machine = \"mine/m.toml\"").unwrap();
        assert_eq!(file.as_deref(), Some("mixes/mine/m.toml"));
        let e = of("machine = \" \"").unwrap_err().to_string();
        assert!(e.contains("line 3") && e.contains("`machine`"), "{e}");
        let e = of("machine = 4").unwrap_err().to_string();
        assert!(
            e.contains("line 3: key `machine`: ") && e.contains("`4`"),
            "{e}"
        );
    }

    #[test]
    fn errors_name_file_line_key_and_what_is_right() {
        for (from, to, wants) in [
            (
                "threads = 4",
                "threads = 0",
                &["line 9", "`threads`", "at least 1"][..],
            ),
            (
                "threads = 4",
                "threads = -1",
                &["line 9", "threads`", "`-1`"],
            ),
            (
                "weight = 200",
                "weight = -200",
                &["line 10", "weight`", "`-200`"],
            ),
            (
                "ips_small = 0.8e9",
                "ips_small = 0.8e9, schedule = \"guided\"",
                &["line 13", "unknown variant `guided`", "`dynamic`"],
            ),
            (
                "ips_small = 0.8e9",
                "ips_small = 0.8e9, loops = 0",
                &["line 13", "`loops`", "at least 1"],
            ),
            (
                "threads = 4",
                "treads = 4",
                &["line 9", "unknown field `treads`", "`threads`"],
            ),
            (
                "weight = 200",
                "weight = 0",
                &["line 10", "`weight`", "at least 1"],
            ),
            (
                "speedup = 2",
                "speedup = nan",
                &["line 6", "`speedup`", "above 0"],
            ),
            (
                "speedup = 2",
                "speedup = -2",
                &["line 6", "`speedup`", "above 0"],
            ),
            (
                "speedup = 2",
                "speedup = \"x\"",
                &["line 6", "speedup`", "\"x\""],
            ),
            (
                "name = \"b\"",
                "name = \"a\"",
                &["line 8", "`name`", "line 4"],
            ),
            (
                "name = \"b\"",
                "name = \"\"",
                &["line 8", "`name`", "empty"],
            ),
            ("name = \"mix\"", "", &["missing field `name`"]),
            (
                "instructions = 40e9",
                "",
                &["line 7", "`instructions`", "missing"],
            ),
            (
                "instructions = 40e9",
                "instructions = inf",
                &["line 11", "`instructions`"],
            ),
            (
                "ips_small = 0.8e9",
                "ips_small = 0",
                &["line 13", "`ips_small`", "above 0"],
            ),
            (
                "power_big = 0.9",
                "power_big = -1",
                &["line 13", "`power_big`", "watts"],
            ),
            (
                "power_big = 0.9",
                "power = 1",
                &["line 13", "unknown field `power`"],
            ),
            (
                "command = [\"bzip2\", \"-9kc\", \"corpus.bin\"]",
                "command = []",
                &["line 5", "`command`", "bzip2"],
            ),
            (
                "command = [\"bzip2\", \"-9kc\", \"corpus.bin\"]",
                "",
                &["line 3", "`app`", "`a` has neither `command`"],
            ),
            ("[[app]]\nname = \"a\"", "[[app]\nname = \"a\"", &["line 3"]),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let e = parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(
                e.starts_with("w.toml: ") && wants.iter().all(|w| e.contains(w)),
                "{to}: {e}"
            );
        }
        let e = parse("name = \"empty\"\n").unwrap_err().to_string();
        assert!(e.contains("`app`") && e.contains("at least one"), "{e}");
        let e = Workload::load(Path::new("no/such.toml"))
            .unwrap_err()
            .to_string();
        assert!(e.starts_with("no/such.toml: "), "{e}");
    }
}
