//! The configuration of `scx_amp run`: its options in a file, under the same names.
//!
//! A value is read as the option of that name reads it, so that what an option takes and refuses
//! holds for the file, too.

use super::options::{RunArgs, RunOptions};
use amp_host::bad_input;
use amp_machine::{BadFile, Locator};
use amp_sched::{closest, did_you_mean};
use anyhow::Result;
use clap::{Args, Command, FromArgMatches};
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Where it is looked for.
pub const PATH: &str = "/etc/scx_amp/config.toml";

/// Options that are for one run.
const NOT_HERE: &[&str] = &[
    "help-stats",
    "monitor",
    "panic-after",
    "wedge-after",
    "slots",
    "record",
    "record-size",
    "record-commands",
];

/// What a configuration says.
#[derive(Debug)]
pub struct Configuration {
    /// The options in it; all others are not set.
    pub args: RunArgs,
    /// The file, to name a place in it; none where there is no file.
    pub file: Option<ConfigurationFile>,
}

/// A configuration that was read.
#[derive(Clone, Debug)]
pub struct ConfigurationFile {
    path: PathBuf,
    text: String,
}

impl ConfigurationFile {
    /// A fault of the key `key`.
    pub fn key(&self, key: &'static str, message: String) -> BadFile {
        Locator::new(&self.path, &self.text).key(key, message)
    }
}

impl Configuration {
    /// The configuration in the file `named`, which must be there then; else that at [`PATH`],
    /// which need not.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming file, line and key at fault.
    pub fn find(named: Option<&Path>) -> Result<Configuration> {
        let path = named.unwrap_or(Path::new(PATH));
        match amp_machine::read_text(path) {
            Ok((text, _)) => Configuration::parse(path, &text),
            Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => {
                Configuration::parse(path, "").map(|c| Configuration { file: None, ..c })
            }
            Err(e) => Err(bad_input(BadFile::whole(path, e.to_string()))),
        }
    }

    /// The configuration with this text.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming file, line and key at fault.
    pub fn parse(path: &Path, text: &str) -> Result<Configuration> {
        let locator = Locator::new(path, text);
        let table = DeTable::parse(text).map_err(|e| bad_input(locator.toml(&e)))?;
        let mut words = Vec::new();
        for (key, value) in table.get_ref() {
            let name = key.get_ref().as_ref();
            let more = as_options(name, value.get_ref())
                .and_then(|w| parsed(&w).map(|_| w))
                .map_err(|why| bad_input(locator.value(value.span().start, name, why)))?;
            words.extend(more);
        }
        // each of them was read before
        let args = parsed(&words).map_err(|why| bad_input(BadFile::whole(path, why)))?;
        let file = ConfigurationFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        Ok(Configuration {
            args,
            file: Some(file),
        })
    }
}

/// Whether the configuration in `named`, or at [`PATH`], can be used: a sentence for the user.
///
/// # Errors
/// [`amp_host::BadInput`] naming file, line and key at fault.
pub fn check(named: Option<&Path>) -> Result<String> {
    let found = Configuration::find(named)?;
    let said = match &found.file {
        Some(file) => format!("{}: can be used", file.path.display()),
        None => format!("there is no {PATH}: defaults hold"),
    };
    RunOptions::new(RunArgs::none(), found)?;
    Ok(said)
}

/// What `scx_amp run` does without options, and where each value comes from.
///
/// # Errors
/// [`amp_host::BadInput`] naming file, line and key at fault.
pub fn show(named: Option<&Path>) -> Result<String> {
    let found = Configuration::find(named)?;
    let (file, below) = (found.file.clone(), found.args.clone());
    let source = file.map_or_else(
        || format!("there is no {PATH}"),
        |f| format!("from {}", f.path.display()),
    );
    let o = RunOptions::new(RunArgs::none(), found)?;
    let text = |v: &str| toml::Value::from(v).to_string();
    let from =
        |here: bool, else_from: &str| if here { "configuration" } else { else_from }.to_owned();
    let profile = format!("profile {}", o.profile);
    let mut lines = vec![
        (
            "profile",
            text(&o.profile),
            from(below.profile.is_some(), "default"),
        ),
        (
            "policy",
            text(&o.policy),
            from(below.policy.is_some(), &profile),
        ),
        (
            "provider",
            text(&o.provider),
            from(below.provider.is_some(), &profile),
        ),
        (
            "interval",
            o.interval().as_millis().to_string(),
            from(below.interval.is_some(), &profile),
        ),
        (
            "cpufreq",
            text(o.cpufreq().name()),
            from(below.cpufreq.is_some(), &profile),
        ),
        (
            "seed",
            o.seed.to_string(),
            from(below.seed.is_some(), "default"),
        ),
    ];
    let policy = o.policy_for(None)?;
    let knobs = policy.knobs().values();
    let knobs = knobs.map(|(k, v)| format!("{}.{k}={v}", o.policy));
    let engine = o.settings.engine();
    let own = engine
        .values()
        .map(|(k, v)| format!("{}.{k}={v}", engine.policy()));
    let all: Vec<String> = knobs.chain(own).collect();
    lines.push((
        "set",
        toml::Value::from(all).to_string(),
        "all knobs in use".into(),
    ));
    let mut maybe = |key, value: Option<String>| {
        if let Some(value) = value {
            lines.push((key, value, "configuration".into()));
        }
    };
    let path = |p: &PathBuf| text(&p.display().to_string());
    maybe("trust", o.trust.trust.as_ref().map(path));
    maybe(
        "big-cpus",
        o.big_cpus.as_ref().map(|c| text(&c.to_string())),
    );
    maybe("if-hybrid", o.if_hybrid.then(|| "true".into()));
    maybe("only-cgroup", o.only_cgroup.as_ref().map(path));
    maybe("exclude-cgroup", o.exclude_cgroup.as_ref().map(path));
    maybe("rules", o.rules.as_ref().map(path));
    maybe("memory", o.memory.as_ref().map(path));
    maybe("stats", o.stats.map(|s| s.to_string()));
    maybe("metrics", o.metrics.map(|a| text(&a.to_string())));
    let mut out = format!("# {source}\n");
    for (key, value, from) in lines {
        out += &format!("{key} = {value}  # {from}\n");
    }
    Ok(out)
}

/// The options of `run`.
fn command() -> Command {
    RunArgs::augment_args(Command::new("run").no_binary_name(true))
}

fn parsed(words: &[String]) -> Result<RunArgs, String> {
    let read = command().try_get_matches_from(words);
    read.and_then(|m| RunArgs::from_arg_matches(&m))
        .map_err(|e| {
            // the first paragraph says what is wrong, what follows is how to use the command
            let text = e.to_string();
            let first = text.split("\n\n").next().unwrap_or(&text);
            let first = first.trim().trim_start_matches("error: ");
            first.split_whitespace().collect::<Vec<_>>().join(" ")
        })
}

/// The words of a command line that say the same as `name = value`.
fn as_options(name: &str, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let command = command();
    let known: Vec<_> = command
        .get_arguments()
        .filter(|a| a.get_long().is_some_and(|l| !NOT_HERE.contains(&l)))
        .collect();
    let Some(arg) = known.iter().find(|a| a.get_long() == Some(name)) else {
        let mut names: Vec<&str> = known.iter().filter_map(|a| a.get_long()).collect();
        names.sort_unstable();
        return Err(format!(
            "no such option: there are {}{}",
            names.join(", "),
            did_you_mean(&closest(name, names.iter().copied()))
        ));
    };
    let several = matches!(arg.get_action(), clap::ArgAction::Append);
    let word = |value: &DeValue<'_>| match value {
        DeValue::String(s) => Ok(format!("--{name}={s}")),
        DeValue::Integer(i) => Ok(format!("--{name}={i}")),
        DeValue::Float(f) => Ok(format!("--{name}={f}")),
        other => Err(format!(
            "want a text or a number, not a {}",
            other.type_str()
        )),
    };
    match value {
        DeValue::Boolean(on) if !arg.get_action().takes_values() => {
            Ok(on.then(|| format!("--{name}")).into_iter().collect())
        }
        _ if !arg.get_action().takes_values() => Err("want true or false".into()),
        DeValue::Array(all) if several => all.iter().map(|v| word(v.get_ref())).collect(),
        _ if several => Err("want a list, such as [\"hsp.smoothing=8\"]".into()),
        value => Ok(vec![word(value)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<RunArgs> {
        Configuration::parse(Path::new("c.toml"), text).map(|c| c.args)
    }

    #[test]
    fn options_are_read_under_their_names() {
        let a = read(
            "profile = \"fair\"\nbig-cpus = \"0-3\"\ninterval = 50\nif-hybrid = true\n\
             set = [\"acfs.uf=1.2\", \"engine.probes=0\"]\nonly-cgroup = \"user.slice\"\n",
        )
        .unwrap();
        assert_eq!(a.profile.as_deref(), Some("fair"));
        assert_eq!(a.big_cpus.unwrap().0, [0, 1, 2, 3]);
        assert_eq!((a.interval, a.if_hybrid), (Some(50), true));
        assert_eq!(a.settings, ["acfs.uf=1.2", "engine.probes=0"]);
        assert_eq!(a.only_cgroup.as_deref(), Some(Path::new("user.slice")));
        assert!(a.policy.is_none());
        assert!(!read("if-hybrid = false").unwrap().if_hybrid);
        // a text that looks like another option is a text
        let a = read("profile = \"--policy=rr\"").unwrap();
        assert_eq!(
            (a.profile.as_deref(), a.policy),
            (Some("--policy=rr"), None)
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_key() {
        for (text, wants) in [
            (
                "\ninterval = 1",
                "line 2: key `interval`: invalid value '1'",
            ),
            ("intervall = 50", "did you mean `interval`?"),
            ("big-cpus = \"x\"", "line 1: key `big-cpus`"),
            ("if-hybrid = 1", "key `if-hybrid`: want true or false"),
            ("interval = true", "key `interval`: want a text or a number"),
            ("set = \"hsp.smoothing=8\"", "key `set`: want a list"),
            ("set = [[]]", "key `set`: want a text or a number"),
            ("panic-after = 1", "key `panic-after`: no such option"),
            ("interval = 50\ninterval = 60", "line 2"),
            ("interval", "line 1"),
        ] {
            let e = read(text).unwrap_err();
            assert!(e.is::<amp_host::BadInput>(), "{text}");
            let said = e.to_string();
            assert!(
                said.contains("c.toml") && said.contains(wants),
                "{text}\n{said}"
            );
        }
    }

    #[test]
    fn a_file_that_is_named_must_be_there() {
        let e = Configuration::find(Some(Path::new("/no.toml"))).unwrap_err();
        assert!(
            e.is::<amp_host::BadInput>() && e.to_string().contains("/no.toml"),
            "{e}"
        );
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        let d = tempfile::tempdir().unwrap();
        let file = d.path().join("c.toml");
        std::fs::write(
            &file,
            "profile = \"server\"\nbig-cpus = \"0-1\"\nstats = 5\n",
        )
        .unwrap();
        let shown = show(Some(&file)).unwrap();
        for line in [
            "profile = \"server\"  # configuration",
            "policy = \"pareto\"  # profile server",
            "seed = 1  # default",
            "big-cpus = \"0-1\"  # configuration",
        ] {
            assert!(shown.contains(line), "{shown}");
        }
        assert!(shown.contains("pareto.unfairness=1.2"), "{shown}");
        std::fs::write(&file, &shown).unwrap();
        assert!(check(Some(&file)).unwrap().contains("can be used"));
        assert_eq!(
            show(Some(&file))
                .unwrap()
                .matches("pareto.unfairness=1.2")
                .count(),
            1
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z\\-]{1,12} = [\"\\[\\]a-z0-9.=,-]{0,20}\n?") {
            let _ = read(&text);
        }
    }
}
