//! Programs that were measured alone, as the simulator takes them: one steady phase of the speeds
//! that they had.
//!
//! What a bench on the board or on a host keeps of a program alone, its instructions and how long
//! it took on slow and on fast cores, is enough for a phase. What the simulator then leaves out is
//! contention for caches, start-up and the cost of scheduling.

use crate::error::SimError;
use amp_eval::evaluation::AppResult;
use amp_eval::workload::{App, Phase, Schedule, Workload};
use amp_machine::BadFile;
use amp_metrics::uncertainty::Measured;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A program alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alone {
    /// Instructions from start to completion; where they are not known, what takes a nanosecond on
    /// a slow core is one.
    pub instructions: Option<f64>,
    /// Completion time on slow cores only, seconds, > 0.
    pub slow_s: f64,
    /// Completion time with fast cores, seconds, > 0.
    pub fast_s: f64,
}

impl Alone {
    /// A program of a bench's report.
    pub fn of(app: &AppResult) -> Alone {
        Alone {
            instructions: None,
            slow_s: app.ct_slow_s,
            fast_s: app.ct_fast_s,
        }
    }

    /// The program as one phase.
    pub fn phase(&self) -> Phase {
        let instructions = self.instructions.unwrap_or(self.slow_s * 1e9);
        Phase {
            instructions,
            ips_big: instructions / self.fast_s,
            ips_small: instructions / self.slow_s,
            power_big: None,
            power_small: None,
            parallel: true,
            schedule: Schedule::Static,
            loops: 1,
            sleep: 0.0,
            cache: None,
        }
    }

    /// Lets `app` be simulated so.
    pub fn give(&self, app: &mut App) {
        let phase = self.phase();
        (app.instructions, app.phases) = (Some(phase.instructions), vec![phase]);
    }
}

/// A file of programs that were measured alone: the solo cache of `scx_amp bench`, or a report that
/// it wrote.
#[derive(Clone, Debug)]
pub struct Kept {
    path: PathBuf,
    programs: Vec<Program>,
}

#[derive(Clone, Debug)]
struct Program {
    name: String,
    command: Option<Vec<String>>,
    alone: Alone,
}

#[derive(Deserialize)]
struct File {
    /// A solo cache.
    #[serde(default)]
    entries: BTreeMap<String, Entry>,
    /// A report.
    #[serde(default)]
    results: Vec<Results>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    #[serde(default)]
    command: Option<Vec<String>>,
    slow_s: Vec<f64>,
    fast_s: Vec<f64>,
    instructions: Option<f64>,
}

#[derive(Deserialize)]
struct Results {
    apps: Vec<Times>,
}

/// What a report says of an application alone.
#[derive(Deserialize)]
struct Times {
    name: String,
    ct_slow_s: f64,
    ct_fast_s: f64,
}

impl Kept {
    /// Reads such a file.
    ///
    /// # Errors
    /// When it cannot be read, is neither, or holds a time that is none; the error names it.
    pub fn load(path: &Path) -> Result<Kept, SimError> {
        let bad = |message: String| BadFile::whole(path, message);
        let text = BadFile::read(path)?;
        let file: File = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        let mut programs = Vec::new();
        for e in file.entries.into_values() {
            let mean = |times: &[f64]| Measured::geometric_mean(times).map(|m| m.value);
            // an entry of a bench that was broken off
            let (Some(slow_s), Some(fast_s)) = (mean(&e.slow_s), mean(&e.fast_s)) else {
                continue;
            };
            programs.push(Program {
                name: e.name,
                command: e.command,
                alone: Alone {
                    instructions: e.instructions,
                    slow_s,
                    fast_s,
                },
            });
        }
        // every policy's result repeats them
        for app in file.results.into_iter().take(1).flat_map(|r| r.apps) {
            programs.push(Program {
                name: app.name,
                command: None,
                alone: Alone {
                    instructions: None,
                    slow_s: app.ct_slow_s,
                    fast_s: app.ct_fast_s,
                },
            });
        }
        let right = |x: f64| x.is_finite() && x > 0.0;
        for p in &programs {
            let a = &p.alone;
            if !(right(a.slow_s) && right(a.fast_s) && a.instructions.is_none_or(right)) {
                let message = format!("`{}`: times and instructions must be above 0", p.name);
                return Err(bad(message).into());
            }
        }
        if programs.is_empty() {
            let what = "no program alone: a solo cache or a report of `scx_amp bench` is needed";
            return Err(bad(what.into()).into());
        }
        Ok(Kept {
            path: path.to_owned(),
            programs,
        })
    }

    /// What is known of `app`: the program of its command where commands were kept, else of its
    /// name.
    fn find(&self, app: &App) -> Result<Option<Alone>, SimError> {
        let same = |p: &&Program| p.command.is_some() && p.command == app.command;
        let named =
            |p: &&Program| p.name == app.name && (p.command.is_none() || app.command.is_none());
        let mut found: Vec<Alone> = self.programs.iter().filter(same).map(|p| p.alone).collect();
        if found.is_empty() {
            found = self
                .programs
                .iter()
                .filter(named)
                .map(|p| p.alone)
                .collect();
        }
        found.dedup();
        match found[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => {
                let message = format!(
                    "{} programs are called `{}`, and not every one says by which command",
                    found.len(),
                    app.name
                );
                Err(BadFile::whole(&self.path, message).into())
            }
        }
    }

    /// Gives every single-threaded application of `workload` that the file knows the phase that was
    /// measured.
    ///
    /// # Errors
    /// When an application can be simulated neither by the file nor by phases of its own; the error
    /// says why.
    pub fn complete(&self, workload: &mut Workload) -> Result<(), SimError> {
        let name = &workload.name;
        for app in &mut workload.apps {
            let found = match app.threads {
                1 => self.find(app)?,
                _ => None,
            };
            match found {
                Some(alone) => alone.give(app),
                None if !app.phases.is_empty() => {}
                None => {
                    let why = match app.threads {
                        1 => "is not in it".to_owned(),
                        n => format!(
                            "has {n} threads, and times alone do not say how they share the work: it needs `phases`"
                        ),
                    };
                    let message = format!("workload `{name}`: application `{}` {why}", app.name);
                    return Err(BadFile::whole(&self.path, message).into());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIX: &str = r#"
name = "mix"
[[app]]
name = "a"
command = ["bzip2", "x"]
[[app]]
name = "b"
command = ["perl"]
"#;

    fn mix(text: &str) -> Workload {
        Workload::parse(Path::new("mix.toml"), text).unwrap()
    }

    fn complete(json: &str, workload: &str) -> Result<Workload, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("solo.json");
        std::fs::write(&path, json).unwrap();
        let mut w = mix(workload);
        let done = Kept::load(&path).and_then(|k| k.complete(&mut w));
        done.map(|()| w).map_err(|e| e.to_string())
    }

    fn entry(name: &str, command: &str, slow: f64) -> String {
        format!(
            r#"{{"name":"{name}",{command}"slow_s":[{slow},{slow}],"fast_s":[1.0],"instructions":3e9}}"#
        )
    }

    fn cache(entries: &[String]) -> String {
        let all = entries.iter().enumerate();
        let all: Vec<String> = all.map(|(i, e)| format!("\"{i}\":{e}")).collect();
        format!("{{\"entries\":{{{}}}}}", all.join(","))
    }

    #[test]
    fn a_solo_cache_gives_instructions_and_speeds() {
        let w = complete(&cache(&[entry("a", "", 2.0), entry("b", "", 4.0)]), MIX).unwrap();
        let p = w.apps[1].phases[0];
        assert_eq!((p.instructions, p.ips_big), (3e9, 3e9));
        assert!((p.ips_small - 0.75e9).abs() < 1.0);
        assert_eq!(w.apps[1].instructions, Some(3e9));
    }

    #[test]
    fn a_report_gives_the_ratio_of_speeds() {
        let app = |name: &str| {
            format!(r#"{{"name":"{name}","ct_slow_s":2.0,"ct_fast_s":0.5,"slowdown":2}}"#)
        };
        let json = format!(r#"{{"results":[{{"apps":[{},{}]}}]}}"#, app("a"), app("b"));
        let p = complete(&json, MIX).unwrap().apps[0].phases[0];
        assert_eq!((p.instructions, p.ips_big, p.ips_small), (2e9, 4e9, 1e9));
    }

    #[test]
    fn a_program_is_found_by_its_command_and_two_of_a_name_are_told() {
        let by_command = [
            entry("a", "\"command\":[\"bzip2\",\"y\"],", 9.0),
            entry("a", "\"command\":[\"bzip2\",\"x\"],", 2.0),
            entry("perl", "\"command\":[\"perl\"],", 4.0),
        ];
        let w = complete(&cache(&by_command), MIX).unwrap();
        assert_eq!(w.apps[0].phases[0].ips_small, 1.5e9);
        assert_eq!(w.apps[1].phases[0].ips_small, 0.75e9);
        let two = [
            entry("a", "", 9.0),
            entry("a", "", 2.0),
            entry("b", "", 1.0),
        ];
        let e = complete(&cache(&two), MIX).unwrap_err();
        assert!(
            e.contains("solo.json") && e.contains("2 programs") && e.contains("`a`"),
            "{e}"
        );
    }

    #[test]
    fn what_cannot_be_simulated_is_named() {
        let e = complete(&cache(&[entry("a", "", 2.0)]), MIX).unwrap_err();
        assert!(
            e.contains("`mix`") && e.contains("`b`") && e.contains("not in it"),
            "{e}"
        );
        let threads = MIX.replace("name = \"b\"", "name = \"b\"\nthreads = 4");
        let both = cache(&[entry("a", "", 2.0), entry("b", "", 2.0)]);
        let e = complete(&both, &threads).unwrap_err();
        assert!(e.contains("4 threads") && e.contains("`phases`"), "{e}");
        let phases = "instructions = 1e9\nphases = [{ instructions = 1e9, ips_big = 2e9, ips_small = 1e9 }]\n";
        let w = complete(&both, &format!("{threads}{phases}")).unwrap();
        assert_eq!(w.apps[1].phases[0].ips_big, 2e9);
        for bad in ["", "{}", "[1]", &cache(&[entry("a", "", -2.0)])] {
            let e = complete(bad, MIX).unwrap_err();
            assert!(e.contains("solo.json"), "{bad}: {e}");
        }
    }
}
