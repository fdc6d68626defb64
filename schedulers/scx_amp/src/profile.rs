//! Profiles: a policy, its knobs, a provider and an interval under one name, as data.
//!
//! Shipped ones are the files in `profiles/`; any other file of that form does as well.

use crate::cpufreq::Cpufreq;
use amp_host::bad_input;
use amp_machine::{BadFile, Locator};
use amp_sched::policy::Settings;
use amp_sched::{closest, did_you_mean};
use anyhow::Result;
use serde::Deserialize;
use std::ops::RangeInclusive;
use std::path::Path;
use toml::Spanned;

/// Name and text of each shipped profile.
const SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/profiles.rs"));

/// The profile when none is asked for.
pub const DEFAULT: &str = "auto";

/// Milliseconds that may lie between two decisions.
pub const INTERVALS: RangeInclusive<u64> = 5..=10_000;

/// A policy with its knobs, a provider, and how often is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name, or its file as it was given.
    pub name: String,
    /// What it is for, in a line.
    pub about: String,
    /// Name of the policy.
    pub policy: String,
    /// Name or file of the provider.
    pub provider: String,
    /// `policy.knob=value`, any number.
    pub settings: Vec<String>,
    /// Milliseconds between two decisions; `None` leaves the usual ones.
    pub interval: Option<u64>,
    /// What CPUs are to be clocked at.
    pub cpufreq: Cpufreq,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: String,
    policy: Spanned<String>,
    provider: Spanned<String>,
    #[serde(default)]
    set: Vec<Spanned<String>>,
    interval: Option<Spanned<u64>>,
    #[serde(default)]
    cpufreq: Cpufreq,
}

impl Profile {
    /// The shipped profile called `name`, or the one in the file `name` (`….toml`).
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming the profiles there are, or file, line and key at fault.
    pub fn find(name: &str) -> Result<Profile> {
        if let Some((_, text)) = SHIPPED.iter().find(|(n, _)| *n == name) {
            return parse(name, Path::new(name), text).map_err(bad_input);
        }
        if name.ends_with(".toml") {
            let path = Path::new(name);
            let text = BadFile::read(path).map_err(bad_input)?;
            return parse(name, path, &text).map_err(bad_input);
        }
        let known = SHIPPED.iter().map(|(n, _)| *n);
        Err(bad_input(format!(
            "unknown profile `{name}`: there are {}, or give a FILE.toml{}",
            known.clone().collect::<Vec<_>>().join(", "),
            did_you_mean(&closest(name, known))
        )))
    }
}

/// The profile with this text.
///
/// # Errors
/// Naming file, line and key at fault, and what would be right.
pub fn parse(name: &str, path: &Path, text: &str) -> Result<Profile, BadFile> {
    let locator = Locator::new(path, text);
    let file: File = toml::from_str(text).map_err(|e| locator.toml(&e))?;
    let at = |value: &Spanned<String>, key: &str, e: &dyn std::fmt::Display| {
        locator.value(value.span().start, key, e.to_string())
    };
    let policy = file.policy.get_ref();
    let none: &[&str] = &[];
    Settings::new(none, std::slice::from_ref(policy))
        .map_err(|e| at(&file.policy, "policy", &e))?;
    crate::provider::check_name(file.provider.get_ref())
        .map_err(|e| at(&file.provider, "provider", &e))?;
    for (i, setting) in file.set.iter().enumerate() {
        Settings::new(&[setting.get_ref()], std::slice::from_ref(policy))
            .map_err(|e| at(setting, &format!("set[{i}]"), &e))?;
        // whoever asks for another policy keeps the rest of the profile
        if !setting
            .get_ref()
            .split('=')
            .next()
            .unwrap_or("")
            .contains('.')
        {
            let why = format!(
                "want POLICY.KNOB=VALUE, such as `{policy}.{}`",
                setting.get_ref()
            );
            return Err(at(setting, &format!("set[{i}]"), &why));
        }
    }
    if let Some(ms) = file
        .interval
        .as_ref()
        .filter(|ms| !INTERVALS.contains(ms.get_ref()))
    {
        let why = format!(
            "{} ms: want {} to {}",
            ms.get_ref(),
            INTERVALS.start(),
            INTERVALS.end()
        );
        return Err(locator.value(ms.span().start, "interval", why));
    }
    Ok(Profile {
        name: name.to_owned(),
        about: file.about,
        policy: file.policy.into_inner(),
        provider: file.provider.into_inner(),
        settings: file.set.into_iter().map(Spanned::into_inner).collect(),
        interval: file.interval.map(Spanned::into_inner),
        cpufreq: file.cpufreq,
    })
}

/// Every shipped profile.
#[cfg(feature = "screen")]
pub fn shipped() -> impl Iterator<Item = Profile> {
    // a unit test reads them all
    SHIPPED
        .iter()
        .filter_map(|(name, _)| Profile::find(name).ok())
}

/// Every shipped profile in a line: its name, what it is for, policy and provider.
///
/// # Errors
/// None in a released version: a unit test reads them.
pub fn list() -> Result<String> {
    let mut out = String::new();
    for (name, _) in SHIPPED {
        let p = Profile::find(name)?;
        out += &format!(
            "{name:<10} {} (policy {}, provider {})\n",
            p.about, p.policy, p.provider
        );
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_host::BadInput;

    #[test]
    fn shipped_profiles_can_be_used() {
        for name in ["auto", "throughput", "fair", "latency", "battery", "server"] {
            assert_eq!(Profile::find(name).unwrap().name, name);
        }
        let listed = list().unwrap();
        assert_eq!(listed.lines().count(), SHIPPED.len());
        let server = Profile::find("server").unwrap();
        assert_eq!(server.policy, "pareto");
        assert_eq!(server.settings.len(), 1);
        assert!(SHIPPED.iter().any(|(n, _)| *n == DEFAULT));
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_key() {
        const GOOD: &str = "about = \"x\"\npolicy = \"hsp\"\nprovider = \"none\"\n";
        let told = |text: &str| {
            let d = tempfile::tempdir().unwrap();
            let path = d.path().join("mine.toml");
            std::fs::write(&path, text).unwrap();
            let e = Profile::find(path.to_str().unwrap()).unwrap_err();
            assert!(e.is::<BadInput>());
            e.to_string()
        };
        for (text, wants) in [
            (
                GOOD.replace("hsp", "hps"),
                "line 2: key `policy`: unknown policy `hps`",
            ),
            (GOOD.replace("none", "nome"), "line 3: key `provider`"),
            (
                format!("{GOOD}set = [\"hsp.hysteresi=1\"]"),
                "line 4: key `set[0]`",
            ),
            (
                format!("{GOOD}set = [\"rr.threshold=9\"]"),
                "line 4: key `set[0]`",
            ),
            (
                format!("{GOOD}set = [\"smoothing=4\"]"),
                "`hsp.smoothing=4`",
            ),
            (
                format!("{GOOD}interval = 1"),
                "line 4: key `interval`: 1 ms: want 5 to 10000",
            ),
            (format!("{GOOD}cpufreq = \"half\""), "key `cpufreq`"),
            (format!("{GOOD}polcy = 1"), "line 4: key `polcy`"),
            ("policy = \"hsp\"".to_owned(), "missing field"),
            ("policy".to_owned(), "line 1"),
        ] {
            let said = told(&text);
            assert!(said.contains(wants), "{text}\n{said}");
        }
        let said = Profile::find("sever").unwrap_err().to_string();
        assert!(said.contains("did you mean `server`?"), "{said}");
        let said = Profile::find("/no.toml").unwrap_err();
        assert!(said.is::<BadInput>() && said.to_string().contains("/no.toml"));
    }
}
