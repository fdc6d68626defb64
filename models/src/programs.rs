//! The list of programs that a collection runs: commands, and sweeps of a command over parameters.
//!
//! ```toml
//! [[program]]
//! name = "bzip2"
//! command = ["bzip2", "-9kc", "corpus.txt"]
//! held_out = true            # never trained on: for the last table (default false)
//!
//! [[sweep]]                  # a program for each row of values
//! name = "chase-{size}"
//! command = ["amp-workload", "run", "chase", "--size", "{size}", "--work", "{work}"]
//! values = [{ size = "16K", work = "8M" }, { size = "8M", work = "600k" }]
//! ```

use amp_machine::{BadFile, Locator};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name in the data.
    pub name: String,
    /// Executable and arguments.
    pub command: Vec<String>,
    /// Whether it is kept out of training and of every choice made for it.
    #[serde(default)]
    pub held_out: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sweep {
    name: String,
    command: Vec<String>,
    #[serde(default)]
    held_out: bool,
    values: Vec<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    program: Vec<Program>,
    #[serde(default)]
    sweep: Vec<Sweep>,
}

/// The list that comes with the project.
pub const SHIPPED: &str = include_str!("../programs.toml");

/// Parses a list; `path` is for messages. Programs come in the order of the file, sweeps last.
///
/// # Errors
/// What is wrong, with the line or the program.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Program>, BadFile> {
    let bad = |message: String| BadFile::whole(path, message);
    let doc: Document = toml::from_str(text).map_err(|e| Locator::new(path, text).toml(&e))?;
    let mut all = doc.program;
    for s in &doc.sweep {
        if s.values.is_empty() {
            return Err(bad(format!("sweep `{}`: `values` is empty", s.name)));
        }
        for row in &s.values {
            let fill =
                |text: &str| filled(text, row).map_err(|m| bad(format!("sweep `{}`: {m}", s.name)));
            all.push(Program {
                name: fill(&s.name)?,
                command: s
                    .command
                    .iter()
                    .map(|w| fill(w))
                    .collect::<Result<_, _>>()?,
                held_out: s.held_out,
            });
        }
    }
    if all.is_empty() {
        return Err(bad("there is no `[[program]]` and no `[[sweep]]`".into()));
    }
    let mut names = BTreeSet::new();
    for p in &all {
        if p.name.is_empty() || p.name.chars().any(char::is_control) {
            return Err(bad(format!("program {:?}: not a name", p.name)));
        }
        if p.command.first().is_none_or(String::is_empty) {
            return Err(bad(format!("program `{}`: `command` is empty", p.name)));
        }
        if !names.insert(p.name.as_str()) {
            return Err(bad(format!("program `{}` stands there twice", p.name)));
        }
    }
    Ok(all)
}

/// `text` with each `{key}` replaced.
fn filled(text: &str, row: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (key, after) = after
            .split_once('}')
            .ok_or_else(|| format!("`{text}`: a `{{` without `}}`"))?;
        let value = row
            .get(key)
            .ok_or_else(|| format!("`{text}`: a row of `values` has no `{key}`"))?;
        out.push_str(before);
        out.push_str(value);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<Vec<Program>, String> {
        parse(Path::new("p.toml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn sweeps_are_programs() {
        let all = list(
            "[[program]]\nname = 'a'\ncommand = ['x', '-1']\nheld_out = true\n\
             [[sweep]]\nname = 'c-{n}'\ncommand = ['c', '--n={n}', '{w}k']\nvalues = [{ n = '1', w = '2' }, { n = '3', w = '4' }]\n",
        )
        .unwrap();
        let names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["a", "c-1", "c-3"]);
        assert!(all[0].held_out && !all[1].held_out);
        assert_eq!(all[2].command, ["c", "--n=3", "4k"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, want) in [
            ("", "no `[[program]]`"),
            ("[[program]]\nname = 'a'\ncommand = []\n", "program `a`: `command` is empty"),
            ("[[program]]\nname = ''\ncommand = ['x']\n", "not a name"),
            ("[[program]]\nname = 'a'\ncommand = ['x']\nheldout = true\n", "heldout"),
            ("[[program]]\nname = 'a'\ncommand = ['x']\n[[program]]\nname = 'a'\ncommand = ['y']\n", "twice"),
            ("[[sweep]]\nname = 's'\ncommand = ['{n}']\nvalues = [{ m = '1' }]\n", "sweep `s`: `{n}`: a row of `values` has no `n`"),
            ("[[sweep]]\nname = 's{'\ncommand = ['x']\nvalues = [{ m = '1' }]\n", "without `}`"),
            ("[[sweep]]\nname = 's'\ncommand = ['x']\nvalues = []\n", "`values` is empty"),
        ] {
            let e = list(text).unwrap_err();
            assert!(e.starts_with("p.toml: ") && e.contains(want), "{text}: {e}");
        }
    }

    #[test]
    fn the_shipped_list_is_right() {
        let all = parse(Path::new("programs.toml"), SHIPPED).unwrap();
        let held_out = all.iter().filter(|p| p.held_out).count();
        assert!(
            held_out >= 4 && all.len() - held_out >= 16,
            "{held_out} of {}",
            all.len()
        );
    }

    /// As in the catalogue (amp-workloads, *no_command_replaces_a_device*), for the same programs.
    #[test]
    fn no_command_replaces_a_device() {
        let all = parse(Path::new("programs.toml"), SHIPPED).unwrap();
        let to_device = |p: &&Program| p.command.iter().any(|a| a.contains("/dev/"));
        let names: BTreeSet<&str> = all
            .iter()
            .filter(to_device)
            .map(|p| &*p.command[0])
            .collect();
        let alone = BTreeSet::from(["lame", "sort", "opusenc", "clustalw"]);
        assert_eq!(names, alone);
    }

    #[test]
    fn outliers_are_not_in_the_shipped_list() {
        let kept = parse(Path::new("programs.toml"), SHIPPED).unwrap();
        let out = parse(Path::new("outliers.toml"), include_str!("../outliers.toml")).unwrap();
        // those that were taken out of training, and others
        for name in [
            "stream@1M",
            "stream@1536K",
            "chase@1M",
            "chase@2M",
            "hash@1M",
            "hash@2M",
            "alu+chase@1M",
        ] {
            assert!(out.iter().any(|p| p.name == name), "{name}");
        }
        assert!(out.len() > 7);
        for program in &out {
            assert!(!program.held_out, "{}", program.name);
            assert!(
                kept.iter().all(|k| k.name != program.name),
                "{}",
                program.name
            );
        }
    }
}
