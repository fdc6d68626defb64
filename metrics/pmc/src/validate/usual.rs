//! What is tried on a PMU when nothing else is said: data (`metrics/pmc/usual.toml`).

use amp_workloads::exact::Quantity;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

const SHIPPED: &str = include_str!("../../usual.toml");

/// The file: events by quantity, by architecture.
#[derive(Debug, Deserialize)]
struct File {
    #[allow(dead_code)] // for readers of the file
    about: String,
    #[serde(flatten)]
    architectures: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// Events of `architecture`, each with what it is to count.
fn of(architecture: &str, text: &str) -> Result<Vec<(Quantity, String)>> {
    let mut file: File = toml::from_str(text).context("metrics/pmc/usual.toml")?;
    let mut out = Vec::new();
    for (name, events) in file.architectures.remove(architecture).unwrap_or_default() {
        let quantity = Quantity::by_name(&name).with_context(|| {
            format!("metrics/pmc/usual.toml: [{architecture}] {name}: not a quantity")
        })?;
        out.extend(events.into_iter().map(|e| (quantity, e)));
    }
    // as quantities are listed everywhere else
    out.sort_by_key(|(q, _)| *q);
    Ok(out)
}

/// Events of this machine's architecture, each with what it is to count; not every PMU has all of
/// them.
///
/// # Errors
/// When the file does not fit this program.
pub fn events() -> Result<Vec<(Quantity, String)>> {
    of(std::env::consts::ARCH, SHIPPED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::EventSpec;

    #[test]
    fn what_ships_can_be_read_and_each_event_once() {
        for arch in ["aarch64", "x86_64"] {
            let all = of(arch, SHIPPED).unwrap();
            assert!(
                all.iter().any(|(q, _)| *q == Quantity::Instructions),
                "{arch}"
            );
            let mut seen = std::collections::BTreeSet::new();
            for (q, event) in &all {
                assert!(seen.insert(event), "{arch} {event}");
                assert!(event.parse::<EventSpec>().is_ok(), "{arch} {q:?} {event}");
            }
        }
        assert!(of("z80", SHIPPED).unwrap().is_empty());
        assert!(!events().unwrap().is_empty());
    }

    #[test]
    fn a_misspelt_quantity_is_named() {
        let e = of("a", "about = \"\"\n[a]\nlods = [\"x\"]\n").unwrap_err();
        assert!(e.to_string().contains("[a] lods"), "{e}");
    }
}
