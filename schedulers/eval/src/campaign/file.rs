//! The campaign file.

use super::job::Job;
use crate::contender::Contender;
use crate::workload::Workload;
use crate::Runs;
use amp_machine::{BadFile, CpuList, Locator, MachineFile};
use amp_sched::policy::Settings;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Where the jobs of a campaign run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The virtual board.
    #[default]
    Board,
    /// The machine that the command runs on.
    Host,
    /// The simulated machine.
    Sim,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Board => "board",
            Place::Host => "host",
            Place::Sim => "sim",
        })
    }
}

/// A value of a campaign file, and where it stands there.
#[derive(Clone, Debug, PartialEq)]
pub struct Item<T> {
    /// The value.
    pub value: T,
    /// Its first byte in the file.
    pub at: usize,
}

/// What all jobs of a campaign have in common: options of `bench`, absent where the file is silent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Knobs {
    /// Runs of the mix.
    pub runs: Runs,
    /// Completions of every program that end a run.
    pub completions: Option<u32>,
    /// Runs of each program alone.
    pub solo_runs: Option<u32>,
    /// Milliseconds between two decisions.
    pub interval: Option<u64>,
    /// Seconds after which a run is given up.
    pub timeout: Option<u64>,
    /// The board's kernel.
    pub kernel: Option<Item<String>>,
    /// Whether the board's kernel sets the clocks.
    pub dvfs: bool,
    /// Settings of policies.
    pub set: Vec<Item<String>>,
    /// What was measured alone, for the simulator.
    pub solo: Option<Item<PathBuf>>,
    /// CPUs of the fast core type (host).
    pub big_cpus: Option<CpuList>,
}

/// A campaign, as its file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Campaign {
    /// The file.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Its name.
    pub name: String,
    /// Where its jobs run.
    pub place: Place,
    /// What they have in common.
    pub knobs: Knobs,
    /// The mixes, at least one: the file, its text, and what that says.
    pub mixes: Vec<Item<Mix>>,
    /// The machines; empty: each mix's own.
    pub machines: Vec<Item<Machine>>,
    /// What is compared, at least one.
    pub contenders: Vec<Item<Contender>>,
    /// Sources of metrics, at least one.
    pub providers: Vec<Item<Provider>>,
    /// Seeds, at least one.
    pub seeds: Vec<u64>,
}

/// A mix of a campaign.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Its file.
    pub path: PathBuf,
    /// The file's text.
    pub text: String,
    /// What that says.
    pub workload: Workload,
}

/// A machine of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// As `bench --machine` takes it.
    pub asked: String,
    /// As the campaign file has it.
    pub label: String,
}

/// A source of metrics of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// As `bench --provider` takes it.
    pub asked: String,
    /// As the campaign file has it.
    pub label: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    name: Spanned<String>,
    #[serde(default)]
    on: Place,
    mixes: Spanned<Vec<Spanned<String>>>,
    machines: Option<Spanned<Vec<Spanned<String>>>>,
    policies: Spanned<Vec<Spanned<String>>>,
    providers: Option<Spanned<Vec<Spanned<String>>>>,
    seeds: Option<Spanned<Vec<Spanned<u64>>>>,
    runs: Option<Spanned<toml::Value>>,
    completions: Option<Spanned<u32>>,
    solo_runs: Option<Spanned<u32>>,
    interval: Option<Spanned<u64>>,
    timeout: Option<Spanned<u64>>,
    kernel: Option<Spanned<String>>,
    dvfs: Option<Spanned<bool>>,
    #[serde(default)]
    set: Vec<Spanned<String>>,
    solo: Option<Spanned<String>>,
    big_cpus: Option<Spanned<String>>,
}

impl Campaign {
    /// Reads a campaign file, and the mixes and machines that it names.
    ///
    /// # Errors
    /// When a file cannot be read or is not right; the error names file, line and key.
    pub fn load(path: &Path) -> Result<Campaign, BadFile> {
        let text = BadFile::read(path)?;
        Campaign::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Campaign, BadFile> {
        let check = Check {
            path,
            locator: Locator::new(path, text),
        };
        let file: File = toml::from_str(text).map_err(|e| check.locator.toml(&e))?;
        if file.name.get_ref().trim().is_empty() {
            return Err(check.bad(
                file.name.span().start,
                "name",
                "it is empty: a name is needed",
            ));
        }
        check.placed(&file)?;
        let contenders = check.list(&file.policies, "policies")?;
        let contenders = contenders.into_iter().enumerate().map(|(i, item)| {
            let parsed: Result<Contender, _> = item.value.parse();
            let value = parsed.map_err(|e| check.bad(item.at, format!("policies[{i}]"), e))?;
            Ok(Item { value, at: item.at })
        });
        let contenders = contenders.collect::<Result<Vec<_>, BadFile>>()?;
        check.once(&contenders, "policies", Contender::to_string)?;
        let campaign = Campaign {
            path: path.into(),
            text: text.to_owned(),
            name: file.name.get_ref().clone(),
            place: file.on,
            knobs: check.knobs(&file, &contenders)?,
            mixes: check.mixes(&file.mixes)?,
            machines: check.machines(file.machines.as_ref(), file.on)?,
            contenders,
            providers: check.providers(file.providers.as_ref())?,
            seeds: check.seeds(file.seeds.as_ref())?,
        };
        if campaign.machines.is_empty() && campaign.place != Place::Host {
            for mix in &campaign.mixes {
                mix.value.workload.check_machine(&mix.value.path)?;
            }
        }
        Ok(campaign)
    }

    /// What is wrong with the value at byte `at` of the file, of the key called `key`.
    pub fn bad(&self, at: usize, key: impl Into<String>, message: impl fmt::Display) -> BadFile {
        Locator::new(&self.path, &self.text).value(at, key, message.to_string())
    }

    /// Every job, in the order of the file: mix by mix, machine by machine, contender by contender.
    ///
    /// # Errors
    /// When a file that a job depends on cannot be read; the error names it.
    pub fn jobs(&self) -> Result<Vec<Job>, BadFile> {
        Job::all(self)
    }
}

/// Checks values, knowing where they stand.
struct Check<'a> {
    path: &'a Path,
    locator: Locator<'a>,
}

impl Check<'_> {
    fn bad(&self, at: usize, key: impl Into<String>, message: impl fmt::Display) -> BadFile {
        self.locator.value(at, key, message.to_string())
    }

    /// `name` from the folder of the campaign file.
    fn beside(&self, name: &str) -> PathBuf {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        folder.join(name)
    }

    /// A name as it is, a file from the folder of the campaign file.
    fn asked(&self, label: &str) -> String {
        match label.ends_with(".toml") {
            true => self.beside(label).display().to_string(),
            false => label.to_owned(),
        }
    }

    /// Options that mean nothing where the campaign runs.
    fn placed(&self, file: &File) -> Result<(), BadFile> {
        let start = |s: Option<std::ops::Range<usize>>| s.map(|s| s.start);
        let (board, host, sim) = (Place::Board, Place::Host, Place::Sim);
        for (key, at, goes_with) in [
            (
                "kernel",
                start(file.kernel.as_ref().map(Spanned::span)),
                &[board][..],
            ),
            (
                "dvfs",
                start(file.dvfs.as_ref().map(Spanned::span)),
                &[board],
            ),
            ("solo", start(file.solo.as_ref().map(Spanned::span)), &[sim]),
            (
                "solo-runs",
                start(file.solo_runs.as_ref().map(Spanned::span)),
                &[board, host],
            ),
            (
                "big-cpus",
                start(file.big_cpus.as_ref().map(Spanned::span)),
                &[host],
            ),
        ] {
            let Some(at) = at.filter(|_| !goes_with.contains(&file.on)) else {
                continue;
            };
            let words: Vec<String> = goes_with.iter().map(|p| format!("\"{p}\"")).collect();
            let words = words.join(" or ");
            let message = format!(
                "it means nothing with on = \"{}\": it goes with {words}",
                file.on
            );
            return Err(self.bad(at, key, message));
        }
        Ok(())
    }

    /// A list that has something.
    fn list<T: Clone>(
        &self,
        list: &Spanned<Vec<Spanned<T>>>,
        key: &'static str,
    ) -> Result<Vec<Item<T>>, BadFile> {
        if list.get_ref().is_empty() {
            return Err(self.bad(
                list.span().start,
                key,
                "it is empty: at least one is needed",
            ));
        }
        let item = |s: &Spanned<T>| Item {
            value: s.get_ref().clone(),
            at: s.span().start,
        };
        Ok(list.get_ref().iter().map(item).collect())
    }

    /// Refuses what is there twice, by its name.
    fn once<T>(
        &self,
        items: &[Item<T>],
        key: &'static str,
        name: impl Fn(&T) -> String,
    ) -> Result<(), BadFile> {
        for (i, item) in items.iter().enumerate() {
            let mine = name(&item.value);
            if items[..i].iter().any(|other| name(&other.value) == mine) {
                let message = format!("`{mine}` is named twice: once is enough");
                return Err(self.bad(item.at, format!("{key}[{i}]"), message));
            }
        }
        Ok(())
    }

    fn mixes(&self, list: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<Item<Mix>>, BadFile> {
        let mut out: Vec<Item<Mix>> = Vec::new();
        for (i, item) in self.list(list, "mixes")?.into_iter().enumerate() {
            let path = self.beside(&item.value);
            let wrong = |message: String| self.bad(item.at, format!("mixes[{i}]"), message);
            let files = match path.is_dir() {
                true => files_in(&path).map_err(|e| wrong(format!("{}: {e}", path.display())))?,
                false => vec![path.clone()],
            };
            if files.is_empty() {
                return Err(wrong(format!(
                    "{}: no workload file (*.toml) is in this folder",
                    path.display()
                )));
            }
            for path in files {
                let text = amp_machine::read_text(&path).map_err(|e| {
                    let path = path.display();
                    wrong(format!(
                        "{path}: {e}; want a workload file or a folder of them, by its path from this file"
                    ))
                })?;
                let (text, _) = text;
                let workload = Workload::parse(&path, &text)?;
                let twin = out.iter().find(|m| m.value.workload.name == workload.name);
                if let Some(twin) = twin {
                    return Err(wrong(format!(
                        "{} and {} are both called `{}`: a table needs different names",
                        twin.value.path.display(),
                        path.display(),
                        workload.name
                    )));
                }
                let value = Mix {
                    path,
                    text,
                    workload,
                };
                out.push(Item { value, at: item.at });
            }
        }
        Ok(out)
    }

    fn machines(
        &self,
        list: Option<&Spanned<Vec<Spanned<String>>>>,
        place: Place,
    ) -> Result<Vec<Item<Machine>>, BadFile> {
        let Some(list) = list else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for (i, item) in self.list(list, "machines")?.into_iter().enumerate() {
            let label = item.value;
            let asked = self.asked(&label);
            let wrong = |e: String| self.bad(item.at, format!("machines[{i}]"), e);
            match place {
                Place::Host if i > 0 => {
                    return Err(wrong(
                        "on = \"host\" has one machine, this one: want one name for it".into(),
                    ))
                }
                Place::Host => {}
                Place::Board | Place::Sim => {
                    MachineFile::load(&asked).map_err(|e| wrong(e.to_string()))?;
                }
            }
            let value = Machine { asked, label };
            out.push(Item { value, at: item.at });
        }
        self.once(&out, "machines", |m| m.label.clone())?;
        Ok(out)
    }

    fn providers(
        &self,
        list: Option<&Spanned<Vec<Spanned<String>>>>,
    ) -> Result<Vec<Item<Provider>>, BadFile> {
        let labels = match list {
            Some(list) => self.list(list, "providers")?,
            None => vec![Item {
                value: "declared".to_owned(),
                at: 0,
            }],
        };
        let provider = |item: Item<String>| Item {
            at: item.at,
            value: Provider {
                asked: self.asked(&item.value),
                label: item.value,
            },
        };
        let out: Vec<Item<Provider>> = labels.into_iter().map(provider).collect();
        self.once(&out, "providers", |p| p.label.clone())?;
        Ok(out)
    }

    fn seeds(&self, list: Option<&Spanned<Vec<Spanned<u64>>>>) -> Result<Vec<u64>, BadFile> {
        let Some(list) = list else {
            return Ok(vec![1]);
        };
        let items = self.list(list, "seeds")?;
        self.once(&items, "seeds", u64::to_string)?;
        Ok(items.into_iter().map(|i| i.value).collect())
    }

    /// A number from `range`, as `bench` wants it.
    fn number<T: Copy + PartialOrd + fmt::Display>(
        &self,
        value: Option<&Spanned<T>>,
        key: &'static str,
        range: (T, T),
    ) -> Result<Option<T>, BadFile> {
        let Some(value) = value else { return Ok(None) };
        let (n, (low, high)) = (*value.get_ref(), range);
        if n < low || n > high {
            let message = format!("{n}: want a whole number from {low} to {high}");
            return Err(self.bad(value.span().start, key, message));
        }
        Ok(Some(n))
    }

    fn knobs(&self, file: &File, contenders: &[Item<Contender>]) -> Result<Knobs, BadFile> {
        let runs = match &file.runs {
            None => Runs::default(),
            Some(value) => {
                let text = match value.get_ref() {
                    toml::Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                text.parse()
                    .map_err(|e| self.bad(value.span().start, "runs", e))?
            }
        };
        let set = file.set.iter().map(|s| Item {
            value: s.get_ref().clone(),
            at: s.span().start,
        });
        let set: Vec<Item<String>> = set.collect();
        let all: Vec<Contender> = contenders.iter().map(|c| c.value.clone()).collect();
        let names = crate::Contenders(all).names();
        for (i, s) in set.iter().enumerate() {
            Settings::new(&[&s.value], &names)
                .map_err(|e| self.bad(s.at, format!("set[{i}]"), e))?;
        }
        let text = |s: &Spanned<String>| Item {
            value: s.get_ref().clone(),
            at: s.span().start,
        };
        let solo = file.solo.as_ref().map(text);
        let big_cpus = file.big_cpus.as_ref().map(|s| {
            let list = s.get_ref().parse();
            list.map_err(|e| self.bad(s.span().start, "big-cpus", e))
        });
        Ok(Knobs {
            runs,
            completions: self.number(file.completions.as_ref(), "completions", (1, 1000))?,
            solo_runs: self.number(file.solo_runs.as_ref(), "solo-runs", (1, 1000))?,
            interval: self.number(file.interval.as_ref(), "interval", (5, 10_000))?,
            timeout: self.number(file.timeout.as_ref(), "timeout", (1, i64::MAX as u64))?,
            kernel: file.kernel.as_ref().map(text),
            dvfs: file.dvfs.as_ref().is_some_and(|d| *d.get_ref()),
            set,
            solo: solo.map(|s| Item {
                value: self.beside(&s.value),
                at: s.at,
            }),
            big_cpus: big_cpus.transpose()?,
        })
    }
}

/// The TOML files of a folder, by name.
fn files_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
