//! Groups of events and metrics by a name, as data (`metrics/pmc/groups/`).

use super::formula::Formula;
use super::inventory::CounterInventory;
use super::sets::Set;
use amp_host::bad_input;
use amp_machine::{BadFile, Locator};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;

/// Name and text of those that come with the command: the files of `groups/`, sorted by name.
const SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/groups.rs"));

/// What a file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// What is counted, in a few words.
    about: String,
    /// What the group measures, its formulas in words, and what good and bad values look like.
    explanation: String,
    variant: Vec<Variant>,
}

/// The events for some machines: the first variant counts all of whose events a machine has.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Sets, as behind `-e`.
    pub events: Vec<String>,
    /// Metrics, as behind `-m`.
    #[serde(default)]
    pub metrics: Vec<String>,
}

fn read(name: &str) -> Result<File> {
    let shipped = SHIPPED.iter().find(|(n, _)| *n == name);
    let text = match shipped {
        Some((_, text)) => (*text).to_owned(),
        None if name.ends_with(".toml") => {
            let read = amp_machine::read_text(Path::new(name));
            read.map_err(|e| bad_input(format!("-g {name}: {e}")))?.0
        }
        None => {
            let known: Vec<&str> = SHIPPED.iter().map(|(n, _)| *n).collect();
            return Err(bad_input(format!(
                "-g {name}: there is no such group; there are {}, or give a file whose name ends in .toml",
                known.join(", ")
            )));
        }
    };
    parse(name, &text)
}

/// The group with this text, whose file is called `name`.
fn parse(name: &str, text: &str) -> Result<File> {
    let locator = Locator::new(Path::new(name), text);
    let told = |bad: BadFile| bad_input(format!("-g {bad}"));
    let file: File = toml::from_str(text).map_err(|e| told(locator.toml(&e)))?;
    for (key, value) in [("about", &file.about), ("explanation", &file.explanation)] {
        if value.trim().is_empty() {
            let needed = "it is empty: a text is needed";
            return Err(told(locator.key(key, needed)));
        }
    }
    if file.variant.is_empty() {
        let needed = "there is no [[variant]]: at least one is needed";
        return Err(told(locator.key("variant", needed)));
    }
    Ok(file)
}

/// Whether `text` is that of a group whose formulas can be read: for `amp-fuzz`.
pub fn is_group(text: &str) -> bool {
    parse("mutant.toml", text).is_ok_and(|file| {
        file.variant.iter().all(|v| {
            let names = v.events.iter().flat_map(|e| e.split(','));
            let known: Vec<String> = names.map(str::to_owned).collect();
            let read = |m: &String| Formula::parse_with(m, &known, &[]).is_ok();
            v.metrics.iter().all(read)
        })
    })
}

/// A shipped group, for lists.
#[derive(Debug, Serialize)]
pub struct Listed {
    name: &'static str,
    about: String,
    explanation: String,
}

/// Every shipped group.
///
/// # Errors
/// None in a released version: a unit test reads them.
pub fn shipped() -> Result<Vec<Listed>> {
    let listed = |(name, _): &(&'static str, &str)| {
        let file = read(name)?;
        Ok(Listed {
            name,
            about: file.about,
            explanation: file.explanation,
        })
    };
    SHIPPED.iter().map(listed).collect()
}

/// The text of these groups with their explanations.
pub fn explained(groups: &[Listed]) -> String {
    let mut out = String::from("Groups for `scx_amp pmc stat -g`:\n");
    for g in groups {
        // writing to a string cannot fail
        let _ = writeln!(out, "  {}: {}", g.name, g.about);
        for line in g.explanation.trim().lines() {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}

/// The end of `pmc stat --help`: the shipped groups.
pub fn help() -> String {
    shipped().map_or_else(|e| format!("{e:#}"), |g| explained(&g))
}

/// The group called `name`, or in the file `name`: what of it suits this machine.
///
/// # Errors
/// [`amp_host::BadInput`] when there is no such group, its file is not one, or no variant suits:
/// then with what is wrong with the last.
pub fn find(here: &CounterInventory, name: &str) -> Result<Variant> {
    let file = read(name)?;
    let mut refused = None;
    for v in &file.variant {
        match v
            .events
            .iter()
            .try_for_each(|e| Set::parse(here, e).map(drop))
        {
            Ok(()) => return Ok(v.clone()),
            Err(e) => refused = Some(e),
        }
    }
    Err(match refused {
        Some(e) => bad_input(format!("-g {name} ({}): {e}", file.about)),
        None => bad_input(format!("-g {name}: there is no [[variant]]")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_groups_can_be_read() {
        for (name, _) in SHIPPED.iter().copied() {
            let f = read(name).unwrap();
            assert!(
                !f.about.is_empty() && f.variant.iter().all(|v| !v.events.is_empty()),
                "{name}"
            );
            for v in &f.variant {
                let known: Vec<String> = v
                    .events
                    .iter()
                    .flat_map(|e| e.split(','))
                    .map(str::to_owned)
                    .collect();
                for m in &v.metrics {
                    super::super::formula::Formula::parse(m, &known)
                        .unwrap_or_else(|e| panic!("{name}: {e}"));
                }
            }
        }
    }

    #[test]
    fn every_shipped_group_is_explained() {
        let groups = shipped().unwrap();
        let names: Vec<&str> = groups.iter().map(|g| g.name).collect();
        assert!(names.contains(&"caches") && names.is_sorted(), "{names:?}");
        let text = explained(&groups);
        for g in &groups {
            assert!(g.explanation.split_whitespace().count() > 30, "{}", g.name);
            assert!(
                text.contains(&format!("  {}: {}\n    ", g.name, g.about)),
                "{text}"
            );
        }
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
        assert_eq!(help(), text);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("g.toml");
        std::fs::write(
            &file,
            "about = \"x\"\nexplanation = \"y\"\nvariant = [{ events = [\"nosuch\"], speed = 1 }]\n",
        )
        .unwrap();
        let file = file.display().to_string();
        let silent = dir.path().join("silent.toml");
        std::fs::write(&silent, "about = \"x\"\nvariant = []\n").unwrap();
        let silent = silent.display().to_string();
        let empty = dir.path().join("empty.toml");
        std::fs::write(&empty, "about = \"x\"\nexplanation = \" \"\nvariant = []\n").unwrap();
        let empty = empty.display().to_string();
        let without = dir.path().join("without.toml");
        std::fs::write(
            &without,
            "about = \"x\"\nexplanation = \"y\"\nvariant = []\n",
        )
        .unwrap();
        let without = without.display().to_string();
        for (name, part) in [
            ("nosuch", "branches, caches"),
            ("/no/such.toml", "/no/such.toml"),
            (&file, "g.toml: line 3: key `variant[0].speed`"),
            (&silent, "silent.toml: line 1"),
            (&silent, "`explanation`"),
            (&empty, "empty.toml: line 2: key `explanation`"),
            (
                &without,
                "without.toml: line 3: key `variant`: there is no [[variant]]",
            ),
        ] {
            let e = read(name).unwrap_err();
            assert!(
                e.is::<amp_host::BadInput>() && format!("{e:#}").contains(part),
                "{e:#}"
            );
        }
    }
}
