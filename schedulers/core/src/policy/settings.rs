//! The road from a policy's name and its settings to a policy: the same for every command, with the
//! same checks and the same messages.

use crate::closest::{closest, did_you_mean};
use crate::engine::probes::{self, ENGINE};
use crate::machine::Topology;
use crate::policy::contract::Policy;
use crate::policy::knobs::{KnobError, Knobs};
use crate::policy::registry::{self, PolicyError, TooManyCoreTypes, UnknownPolicy, BASELINE};
use thiserror::Error;

/// Why a policy cannot be had, or not with these settings.
#[derive(Debug, Error, PartialEq)]
pub enum SettingsError {
    /// The policy cannot be had.
    #[error(transparent)]
    Policy(PolicyError),
    /// The parameter or the value is not right.
    #[error("{setting}: {error}{}", did_you_mean(near))]
    Knob {
        /// The setting that was asked for.
        setting: String,
        /// Why it cannot be.
        error: Box<KnobError>,
        /// Settings that may have been meant.
        near: Vec<String>,
    },
    /// The policy exists, and nobody is going to use it.
    #[error("{setting}: `{policy}` is not a policy in use here ({})", in_use.join(", "))]
    NotInUse {
        /// The setting that was asked for.
        setting: String,
        /// The policy.
        policy: String,
        /// Those in use.
        in_use: Vec<String>,
    },
    /// None of several policies has the parameter.
    #[error(
        "{setting}: no policy in use here ({}) has a parameter `{knob}`{}",
        in_use.join(", "),
        did_you_mean(near)
    )]
    Nobodys {
        /// The setting that was asked for.
        setting: String,
        /// The parameter.
        knob: String,
        /// The policies in use.
        in_use: Vec<String>,
        /// Settings that may have been meant.
        near: Vec<String>,
    },
    /// Not of the form of a setting.
    #[error(
        "{0}: want POLICY.KNOB=VALUE such as rr.threshold=50, or KNOB=VALUE for the policy in use"
    )]
    Form(String),
}

impl From<UnknownPolicy> for SettingsError {
    fn from(e: UnknownPolicy) -> SettingsError {
        SettingsError::Policy(e.into())
    }
}

impl From<TooManyCoreTypes> for SettingsError {
    fn from(e: TooManyCoreTypes) -> SettingsError {
        SettingsError::Policy(e.into())
    }
}

/// What the user set: the parameters of every policy of which one was turned, and of the engine
/// (`engine.knob=value`).
#[derive(Clone, Debug, Default)]
pub struct Settings {
    turned: Vec<Knobs>,
}

impl Settings {
    /// The settings of a command that works with the policies `in_use` ([`BASELINE`] may be among
    /// them). Each is `policy.knob=value`, or `knob=value` for every policy in use that has such a
    /// parameter.
    ///
    /// # Errors
    /// Naming the first policy that there is not, or the first setting that is not right or meant
    /// for a policy that is not in use.
    pub fn new<S: AsRef<str>, P: AsRef<str>>(
        texts: &[S],
        in_use: &[P],
    ) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        for name in in_use.iter().map(P::as_ref).filter(|n| *n != BASELINE) {
            registry::entry(name)?;
        }
        for text in texts.iter().map(S::as_ref) {
            let s = Setting::parse(text)?;
            if let Some(policy) = s.policy.filter(|p| *p != ENGINE) {
                registry::entry(policy)?;
                if !in_use.iter().any(|p| p.as_ref() == policy) {
                    return Err(SettingsError::NotInUse {
                        setting: text.to_owned(),
                        policy: policy.to_owned(),
                        in_use: owned(in_use),
                    });
                }
            }
            settings.turn(&s, in_use, None)?;
        }
        Ok(settings)
    }

    /// Turns parameters while the policy `in_use` is at work on a machine of that `topology`. Those
    /// of other policies are kept until they are made. All are turned, or none.
    ///
    /// # Errors
    /// Naming the first setting that is not right.
    pub fn set<S: AsRef<str>>(
        &mut self,
        texts: &[S],
        in_use: &str,
        topology: &Topology,
    ) -> Result<(), SettingsError> {
        self.turn_all(texts, in_use, Some(topology))
    }

    /// The same before the machine is known.
    ///
    /// # Errors
    /// Naming the first setting that is not right.
    pub fn add<S: AsRef<str>>(&mut self, texts: &[S], in_use: &str) -> Result<(), SettingsError> {
        self.turn_all(texts, in_use, None)
    }

    fn turn_all<S: AsRef<str>>(
        &mut self,
        texts: &[S],
        in_use: &str,
        topology: Option<&Topology>,
    ) -> Result<(), SettingsError> {
        // every change is tried on a copy first
        let mut trial = self.clone();
        for text in texts {
            trial.turn(&Setting::parse(text.as_ref())?, &[in_use], topology)?;
        }
        *self = trial;
        Ok(())
    }

    /// The policy called `name` with what was set for it, for a machine of that `topology` where it
    /// is known. `seed` feeds a policy that draws lots.
    ///
    /// # Errors
    /// When there is none of that name, or it cannot tell so many core types apart.
    pub fn policy(
        &self,
        name: &str,
        seed: u64,
        topology: Option<&Topology>,
    ) -> Result<Box<dyn Policy>, SettingsError> {
        let made = match topology {
            Some(t) => registry::for_machine(name, seed, t).map_err(SettingsError::Policy)?,
            None => registry::by_name(name, seed)?,
        };
        Ok(self.apply(made))
    }

    /// As [`Settings::policy`]; `None` for the baseline.
    ///
    /// # Errors
    /// As [`Settings::policy`].
    pub fn policy_or_baseline(
        &self,
        name: &str,
        seed: u64,
        topology: Option<&Topology>,
    ) -> Result<Option<Box<dyn Policy>>, SettingsError> {
        (name != BASELINE)
            .then(|| self.policy(name, seed, topology))
            .transpose()
    }

    /// The engine's own parameters.
    pub fn engine(&self) -> Knobs {
        self.of(ENGINE).cloned().unwrap_or_else(probes::knobs)
    }

    /// What was set for the policy called `name`, if anything was.
    pub fn of(&self, name: &str) -> Option<&Knobs> {
        self.turned.iter().find(|k| k.policy() == name)
    }

    /// Keeps the parameters of a policy for the next time it is made.
    pub fn keep(&mut self, knobs: Knobs) {
        match self
            .turned
            .iter_mut()
            .find(|k| k.policy() == knobs.policy())
        {
            Some(k) => *k = knobs,
            None => self.turned.push(knobs),
        }
    }

    fn apply(&self, mut policy: Box<dyn Policy>) -> Box<dyn Policy> {
        if let Some(k) = self.of(policy.name()) {
            *policy.knobs_mut() = k.clone();
        }
        policy
    }

    /// Turns one parameter, of one policy or of all those in use that have it.
    fn turn<P: AsRef<str>>(
        &mut self,
        s: &Setting<'_>,
        in_use: &[P],
        topology: Option<&Topology>,
    ) -> Result<(), SettingsError> {
        let mut meant: Vec<Knobs> = Vec::new();
        if s.policy == Some(ENGINE) {
            meant.push(self.engine());
        }
        let names = in_use.iter().map(P::as_ref).filter(|n| *n != BASELINE);
        let policies = s.policy.map_or_else(|| names.collect(), |p| vec![p]);
        for name in policies.into_iter().filter(|p| *p != ENGINE) {
            meant.push(self.policy(name, 0, topology)?.knobs().clone());
        }
        if s.policy.is_none() && meant.len() != 1 {
            let near = match &meant[..] {
                [] => Vec::new(),
                several => near(several, s.knob),
            };
            meant.retain(|k| k.iter().any(|k| k.key == s.knob));
            if meant.is_empty() {
                return Err(SettingsError::Nobodys {
                    setting: s.text.to_owned(),
                    knob: s.knob.to_owned(),
                    in_use: owned(in_use),
                    near,
                });
            }
        }
        for mut knobs in meant {
            if let Err(error) = knobs.set(s.knob, s.value) {
                return Err(SettingsError::Knob {
                    setting: s.text.to_owned(),
                    near: match &error {
                        KnobError::Unknown { .. } => near(std::slice::from_ref(&knobs), s.knob),
                        _ => Vec::new(),
                    },
                    error: Box::new(error),
                });
            }
            self.keep(knobs);
        }
        Ok(())
    }
}

/// What one setting asks for.
struct Setting<'a> {
    text: &'a str,
    policy: Option<&'a str>,
    knob: &'a str,
    value: &'a str,
}

impl Setting<'_> {
    fn parse(text: &str) -> Result<Setting<'_>, SettingsError> {
        let form = || SettingsError::Form(text.to_owned());
        let (key, value) = text.split_once('=').ok_or_else(form)?;
        let (policy, knob) = match key.split_once('.') {
            Some((policy, knob)) => (Some(policy.trim()), knob.trim()),
            None => (None, key.trim()),
        };
        if knob.is_empty() || policy == Some("") {
            return Err(form());
        }
        Ok(Setting {
            text,
            policy,
            knob,
            value,
        })
    }
}

fn owned<S: AsRef<str>>(names: &[S]) -> Vec<String> {
    names.iter().map(|n| n.as_ref().to_owned()).collect()
}

/// Close names of the policies' own, else policies that have one of exactly that name.
fn near(of: &[Knobs], asked: &str) -> Vec<String> {
    let own = of.iter().flat_map(Knobs::iter).map(|k| k.key);
    let own = closest(asked, own);
    if !own.is_empty() {
        return owned(&own);
    }
    let all = registry::ENTRIES.iter();
    all.filter(|e| (e.make)(0).knobs().iter().any(|k| k.key == asked))
        .map(|e| format!("{}.{asked}", e.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(texts: &[&str], in_use: &[&str]) -> String {
        Settings::new(texts, in_use).unwrap_err().to_string()
    }

    #[test]
    fn a_bare_parameter_is_meant_for_every_policy_in_use_that_has_it() {
        let s = Settings::new(&["utility=camp"], &["eevdf", "rr", "hsp", "acfs"]).unwrap();
        assert!(s.of("rr").is_none() && s.of("eevdf").is_none());
        for name in ["hsp", "acfs"] {
            let made = s.policy(name, 1, None).unwrap();
            let mut values = made.knobs().values();
            assert!(
                values.any(|v| v == ("utility", "camp".to_owned())),
                "{name}"
            );
        }
        assert!(s.policy_or_baseline("eevdf", 1, None).unwrap().is_none());
    }

    #[test]
    fn the_engine_has_parameters_too() {
        let s = Settings::new(&["engine.probes=2.5"], &["eevdf"]).unwrap();
        assert_eq!(s.engine().number(0), 2.5);
        assert_eq!(Settings::default().engine().number(0), 5.0);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_may_have_been_meant() {
        for (texts, in_use, words) in [
            (
                &[][..],
                &["hps"][..],
                &["unknown policy `hps`", "did you mean `hsp`?"][..],
            ),
            (
                &["acsf.uf=2"],
                &["rr"],
                &["unknown policy `acsf`", "did you mean `acfs`?"],
            ),
            (
                &["acfs.uf=2"],
                &["rr", "hsp"],
                &["acfs.uf=2: `acfs` is not a policy in use here (rr, hsp)"],
            ),
            (
                &["treshold=2"],
                &["rr"],
                &["treshold=2: policy `rr`", "did you mean `threshold`?"],
            ),
            (
                &["treshold=2"],
                &["rr", "hsp"],
                &[
                    "no policy in use here (rr, hsp)",
                    "did you mean `threshold`?",
                ],
            ),
            (
                &["uf=2"],
                &["rr", "hsp"],
                &["has a parameter `uf`", "did you mean `acfs.uf`?"],
            ),
            (
                &["threshold=1"],
                &["eevdf"],
                &["no policy in use here (eevdf)"],
            ),
            (
                &["threshold=0"],
                &["rr"],
                &["threshold=0", "from 1 to 60000 ms"],
            ),
            (
                &["engine.probe=1"],
                &["rr"],
                &["policy `engine` has no parameter", "did you mean `probes`?"],
            ),
            (
                &["engine.probes=-1"],
                &["eevdf"],
                &["probes=-1: a number from 0 to 100 %"],
            ),
            (
                &["threshold"],
                &["rr"],
                &["threshold: want POLICY.KNOB=VALUE"],
            ),
            (
                &["eevdf.threshold=1"],
                &["eevdf"],
                &["kernel's own scheduler"],
            ),
        ] {
            let told = told(texts, in_use);
            for w in words {
                assert!(told.contains(w), "`{w}` in: {told}");
            }
        }
    }
}
