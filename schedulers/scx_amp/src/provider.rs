//! Providers of metrics on this machine: from a name or a file to a provider that works here.

use amp_host::bad_input;
use amp_metrics::providers::{self, Prepared, ProviderError, ProviderFiles};
use amp_metrics::Provider;
use amp_pmc::CounterInventory;
use amp_sched::closest;
use anyhow::Result;
use std::path::Path;

/// A provider that was asked for. Its files are read once, when it is, and the shipped models
/// parsed, which a file may name: whoever schedules must not wait for a file system, or long for a
/// parser. The text of a provider file is parsed by whoever prepares it.
#[derive(Clone, Debug)]
pub struct Asked {
    name: String,
    files: Option<ProviderFiles>,
}

impl Asked {
    /// The provider called `name`, or the one that the TOML file of that path describes, checked as
    /// far as can be without the machine that it is for.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming the ones there are, or the file, line and key at fault.
    pub fn find(name: &str) -> Result<Asked> {
        let files = if name.ends_with(".toml") {
            Some(ProviderFiles::read(Path::new(name)).map_err(bad_input)?)
        } else {
            check_builtin(name)?;
            None
        };
        providers::get_ready();
        Ok(Asked {
            name: name.to_owned(),
            files,
        })
    }

    /// Name or path, as it was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&self, context: &providers::Context<'_>) -> Result<Prepared> {
        match &self.files {
            Some(files) => providers::prepare_read(files, context),
            None => providers::prepare(&self.name, context),
        }
        .map_err(|e| told(&self.name, e))
    }
}

/// The provider that was asked for, checked for the machine of this inventory. What a trial of its
/// counters has shown is kept; one that failed is made again the next time.
///
/// # Errors
/// [`amp_host::BadInput`] naming the file, line and key at fault; failed work when it is not
/// possible here, saying why.
pub fn prepare(inventory: &mut CounterInventory, asked: &Asked) -> Result<Prepared> {
    asked.prepare(&inventory.context())
}

/// As [`prepare`] on a machine without counters, for the reason `why`.
///
/// # Errors
/// The same.
pub fn without_counters(
    inventory: &mut CounterInventory,
    asked: &Asked,
    why: &str,
) -> Result<Prepared> {
    let context = providers::Context {
        counters: Err(why.to_owned()),
        ..inventory.context()
    };
    asked.prepare(&context)
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
    Asked::find(name).map(drop)
}

fn check_builtin(name: &str) -> Result<()> {
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
        let asked = |name: &str| Asked::find(name).unwrap();
        let auto = prepare(&mut nothing, &asked("auto")).unwrap();
        let why = why_this("auto", &auto).unwrap();
        assert!(
            why.starts_with("provider auto: `declared`; not `model`: ")
                && why.contains("not `measured`: ")
                && why.contains("no PMU"),
            "{why}"
        );
        assert_eq!(why_this("declared", &auto), None);
        let e = prepare(&mut nothing, &asked("ipc-sampling")).unwrap_err();
        assert!(!e.is::<BadInput>(), "{e}");
        assert_eq!(
            format!("{e:#}").matches("no PMU counts").count(),
            1,
            "{e:#}"
        );
    }
}
