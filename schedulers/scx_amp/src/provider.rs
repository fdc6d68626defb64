//! Providers of metrics on this machine: from a name or a file to a provider that works here.

use amp_host::bad_input;
use amp_metrics::providers::{self, Prepared, ProviderError};
use amp_metrics::Provider;
use amp_pmc::CounterInventory;
use amp_sched::closest;
use anyhow::Result;
use std::path::Path;

/// The provider called `name`, or the one that the TOML file of that path describes, checked for
/// the machine of this inventory. What a trial of its counters has shown is kept; one that failed
/// is made again the next time.
///
/// # Errors
/// [`amp_host::BadInput`] naming the ones there are, or the file, line and key at fault; failed
/// work when it is not possible here, saying why.
pub fn prepare(inventory: &mut CounterInventory, name: &str) -> Result<Prepared> {
    providers::prepare(name, &inventory.context()).map_err(|e| told(name, e))
}

/// As [`prepare`] on a machine without counters, for the reason `why`.
///
/// # Errors
/// The same.
pub fn without_counters(
    inventory: &mut CounterInventory,
    name: &str,
    why: &str,
) -> Result<Prepared> {
    let context = providers::Context {
        counters: Err(why.to_owned()),
        ..inventory.context()
    };
    providers::prepare(name, &context).map_err(|e| told(name, e))
}

/// The same for a provider that was made otherwise.
///
/// # Errors
/// When it is not possible here, saying why.
pub fn checked(inventory: &mut CounterInventory, provider: Box<dyn Provider>) -> Result<Prepared> {
    providers::check(provider, &inventory.context()).map_err(whole)
}

/// Whether `name` can be a provider on some machine.
///
/// # Errors
/// [`amp_host::BadInput`] naming the ones there are, or the file, line and key at fault.
pub fn check_name(name: &str) -> Result<()> {
    if name.ends_with(".toml") {
        return providers::files_of(Path::new(name))
            .map(drop)
            .map_err(bad_input);
    }
    let known = providers::PROVIDERS.iter().map(|p| p.name);
    if known.chain(["auto"]).any(|n| n == name) {
        return Ok(());
    }
    let unknown = providers::UnknownProvider {
        name: name.to_owned(),
    };
    Err(told(name, unknown.into()))
}

fn told(name: &str, e: ProviderError) -> anyhow::Error {
    match e {
        ProviderError::Unknown(_) => {
            let known = providers::PROVIDERS.iter().map(|p| p.name);
            match closest(name, known.chain(["auto"])).first() {
                Some(meant) => bad_input(format!("{e}; did you mean `{meant}`?")),
                None => bad_input(e),
            }
        }
        ProviderError::File(_) => bad_input(e),
        e => whole(e),
    }
}

/// An error whose text contains its causes already.
fn whole(e: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{e}")
}

/// Which provider `auto` chose and why none before it, in a sentence; nothing when it was asked for
/// by name.
pub fn why_this(asked: &str, prepared: &Prepared) -> Option<String> {
    (asked == "auto").then(|| {
        let over = prepared.passed_over.iter();
        let over: Vec<String> = over.map(|(n, why)| format!("not `{n}`: {why}")).collect();
        let taken = format!("provider auto: `{}`", prepared.provider.name());
        match over.is_empty() {
            true => taken,
            false => format!("{taken}; {}", over.join("; ")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_host::BadInput;
    use amp_metrics::virtual_counters::VirtualCounters;
    use amp_metrics::Pmus;

    #[test]
    fn names_are_checked_without_a_machine() {
        for name in ["auto", "none", "model", "ipc-sampling"] {
            check_name(name).unwrap();
        }
        for (name, wants) in [("nome", "did you mean `none`?"), ("/no.toml", "/no.toml")] {
            let e = check_name(name).unwrap_err();
            assert!(e.is::<BadInput>() && e.to_string().contains(wants), "{e}");
        }
    }

    #[test]
    fn auto_says_what_it_took_and_why() {
        let topology = amp_sched::Topology::new(vec![amp_sched::CoreType {
            name: "only".into(),
            cpus: vec![0],
            capacity: 1024,
        }])
        .unwrap();
        let none = Pmus::none().with_core_types(&[topology.core_types()[0].cpus.clone()]);
        let none_else = VirtualCounters::of(Vec::new());
        let mut nothing = CounterInventory::from_parts(none, &["only"], none_else);
        assert!(!nothing.has_pmu());
        let auto = prepare(&mut nothing, "auto").unwrap();
        let why = why_this("auto", &auto).unwrap();
        assert!(
            why.starts_with("provider auto: `declared`; not `model`: ")
                && why.contains("not `remembered`: ")
                && why.contains("no PMU"),
            "{why}"
        );
        assert_eq!(why_this("declared", &auto), None);
        let e = prepare(&mut nothing, "ipc-sampling").unwrap_err();
        assert!(!e.is::<BadInput>(), "{e}");
        assert_eq!(
            format!("{e:#}").matches("no PMU counts").count(),
            1,
            "{e:#}"
        );
    }
}
