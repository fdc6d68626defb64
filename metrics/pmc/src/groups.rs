//! Groups of events and metrics by a name, as data (`metrics/groups/`).

use super::inventory::CounterInventory;
use super::sets::Set;
use amp_host::bad_input;
use anyhow::Result;
use serde::Deserialize;
use std::path::Path;

/// Those that come with the command.
const SHIPPED: [(&str, &str); 3] = [
    ("branches", include_str!("../../groups/branches.toml")),
    ("caches", include_str!("../../groups/caches.toml")),
    ("stalls", include_str!("../../groups/stalls.toml")),
];

/// What a file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: String,
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
        None if name.ends_with(".toml") => std::fs::read_to_string(Path::new(name))
            .map_err(|e| bad_input(format!("-g {name}: {e}")))?,
        None => {
            let known: Vec<&str> = SHIPPED.iter().map(|(n, _)| *n).collect();
            return Err(bad_input(format!(
                "-g {name}: there is no such group; there are {}, or give a file whose name ends in .toml",
                known.join(", ")
            )));
        }
    };
    toml::from_str(&text).map_err(|e| bad_input(format!("-g {name}: {e}")))
}

/// The group called `name`, or in the file `name`: what of it suits this machine.
///
/// # Errors
/// [`amp_host::BadInput`] when there is no such group, its file is not one, or no variant suits: then with what is
/// wrong with the last.
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
        // no PMU at all: that is not the group's fault
        Some(e) if !e.is::<amp_host::BadInput>() => e,
        Some(e) => bad_input(format!("-g {name} ({}): {e}", file.about)),
        None => bad_input(format!("-g {name}: it has no [[variant]]")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_groups_can_be_read() {
        for (name, _) in SHIPPED {
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
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("g.toml");
        std::fs::write(
            &file,
            "about = \"x\"\nvariant = [{ events = [\"nosuch\"], speed = 1 }]\n",
        )
        .unwrap();
        let file = file.display().to_string();
        for (name, part) in [
            ("nosuch", "branches, caches"),
            ("/no/such.toml", "/no/such.toml"),
            (&file, "speed"),
        ] {
            let e = read(name).unwrap_err();
            assert!(
                e.is::<amp_host::BadInput>() && format!("{e:#}").contains(part),
                "{e:#}"
            );
        }
    }
}
