//! Changing the policy, its parameters and the source of metrics while the engine runs.
//!
//! A change takes effect with the next tick. Until then every thread keeps its place, and the machine is not told
//! anything: a change costs no thread a CPU. A change that is refused leaves everything as it was.
//!
//! | what | kept by | across a change of policy | across a change of provider |
//! |---|---|---|---|
//! | threads, whether they are busy, their place | engine | kept | kept |
//! | CPU time per core type (shares) | machine | kept | kept |
//! | progress relative to running alone ([`Done`](super::Done)) | engine | kept | kept; grows while there are speedup factors |
//! | parameters of each policy | [`Changes`] | kept, those of policies not in use too | kept |
//! | virtual time, credits, turns, smoothed metrics | policy | made anew, from CPU time and progress where that is what they mean | kept |
//! | counts and models behind a metric | provider | kept | made anew |
//!
//! A policy that has been in use before starts afresh like any other: what happened under others in the meantime counts.
//! Virtual times (`acfs`, `adwrr`) and slowdowns (`eqp`, `pareto`) are rebuilt from CPU time and progress at the
//! policy's first decision. Credits of `rr`, `propsp`, `prim` are differences within a few turns and start even.

use super::Engine;
use crate::closest::closest;
use crate::machine::Topology;
use crate::policy::{self, Knob, KnobError, Knobs, Policy, PolicyError, UnknownPolicy};
use amp_metrics::Provider;
use std::fmt;
use thiserror::Error;

/// Why a change was refused. Nothing has been changed then.
#[derive(Debug, Error, PartialEq)]
pub enum ChangeError {
    /// The policy cannot be had.
    #[error("{error}{}", DidYouMean(near))]
    Policy {
        /// Why.
        error: PolicyError,
        /// Names that may have been meant.
        near: Vec<String>,
    },
    /// The parameter or the value is not right.
    #[error("{setting}: {error}{}", DidYouMean(near))]
    Knob {
        /// What was asked for.
        setting: String,
        /// Why it cannot be.
        error: Box<KnobError>,
        /// Settings that may have been meant.
        near: Vec<String>,
    },
    /// Not of the form of a setting.
    #[error(
        "{0}: want POLICY.KNOB=VALUE such as rr.threshold=50, or KNOB=VALUE for the policy in use"
    )]
    Form(String),
}

struct DidYouMean<'a>(&'a [String]);

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.iter().enumerate() {
            let before = if i == 0 { "; did you mean" } else { " or" };
            write!(f, "{before} `{name}`")?;
        }
        f.write_str(if self.0.is_empty() { "" } else { "?" })
    }
}

/// What a setting asks for.
struct Setting<'a> {
    policy: &'a str,
    knob: &'a str,
    value: &'a str,
}

/// Carries out changes, and remembers what the user set for policies that are not in use.
#[derive(Debug)]
pub struct Changes {
    seed: u64,
    /// Parameters that have been turned, by policy, in order of the first time.
    turned: Vec<Knobs>,
}

impl Changes {
    /// No changes so far. `seed` feeds policies that draw lots.
    pub fn new(seed: u64) -> Changes {
        Changes {
            seed,
            turned: Vec::new(),
        }
    }

    /// A policy for a machine of that topology, with what was set for it.
    fn make(&self, topology: &Topology, name: &str) -> Result<Box<dyn Policy>, ChangeError> {
        let made = policy::for_machine(name, self.seed, topology);
        let mut made = made.map_err(|error| ChangeError::Policy {
            near: match &error {
                PolicyError::Unknown(UnknownPolicy::Name(name)) => {
                    owned(closest(name, policy::NAMES.iter().copied()))
                }
                _ => Vec::new(),
            },
            error,
        })?;
        if let Some(k) = self.turned.iter().find(|k| k.policy() == made.name()) {
            *made.knobs_mut() = k.clone();
        }
        Ok(made)
    }

    /// The policy that `engine` works with, made anew for a machine of another topology, its parameters as they are.
    ///
    /// # Errors
    /// When it cannot be had for that machine.
    pub fn policy_for(
        &mut self,
        engine: &Engine,
        topology: &Topology,
    ) -> Result<Box<dyn Policy>, ChangeError> {
        self.remember(engine.policy.knobs().clone());
        self.make(topology, engine.policy.name())
    }

    /// Puts the policy called `name` to work; the parameters are those it had when it was last in use. False when it is the one in
    /// use already, which then goes on undisturbed.
    ///
    /// # Errors
    /// When it cannot be had for this machine.
    pub fn policy(&mut self, engine: &mut Engine, name: &str) -> Result<bool, ChangeError> {
        let next = self.make(&engine.topology, name)?;
        if next.name() == engine.policy.name() {
            return Ok(false);
        }
        self.remember(engine.policy.knobs().clone());
        engine.set_policy(next);
        Ok(true)
    }

    /// Turns parameters: `policy.knob=value`, or `knob=value` for the policy in use. Those of a policy that is not in use take effect when
    /// it is. All are turned, or none.
    ///
    /// # Errors
    /// Naming the first setting that is not right.
    pub fn set<S: AsRef<str>>(
        &mut self,
        engine: &mut Engine,
        settings: &[S],
    ) -> Result<(), ChangeError> {
        // every change is tried on copies first
        let in_use = engine.policy.name();
        let mut trial: Vec<Knobs> = vec![engine.policy.knobs().clone()];
        for text in settings {
            let text = text.as_ref();
            let s = parse(text, in_use).ok_or_else(|| ChangeError::Form(text.to_owned()))?;
            let at = match trial.iter().position(|k| k.policy() == s.policy) {
                Some(at) => at,
                None => {
                    trial.push(self.make(&engine.topology, s.policy)?.knobs().clone());
                    trial.len() - 1
                }
            };
            trial[at]
                .set(s.knob, s.value)
                .map_err(|error| ChangeError::Knob {
                    setting: text.to_owned(),
                    near: match &error {
                        KnobError::Unknown { .. } => near_knobs(&trial[at], s.knob),
                        _ => Vec::new(),
                    },
                    error: Box::new(error),
                })?;
        }
        let mut trial = trial.into_iter();
        if let Some(k) = trial.next() {
            *engine.policy.knobs_mut() = k;
        }
        trial.for_each(|k| self.remember(k));
        Ok(())
    }

    /// Puts another source of metrics to work.
    pub fn provider(&mut self, engine: &mut Engine, provider: Box<dyn Provider>) {
        engine.set_provider(provider);
    }

    fn remember(&mut self, knobs: Knobs) {
        match self
            .turned
            .iter_mut()
            .find(|k| k.policy() == knobs.policy())
        {
            Some(k) => *k = knobs,
            None => self.turned.push(knobs),
        }
    }
}

fn owned(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// Close names of the policy's own, else policies that have one of exactly that name.
fn near_knobs(of: &Knobs, asked: &str) -> Vec<String> {
    let own = closest(asked, of.iter().map(|k| k.key));
    if !own.is_empty() {
        return owned(own);
    }
    let has = |name: &&&str| {
        policy::by_name(name, 0).is_ok_and(|p| p.knobs().iter().any(|k: &Knob| k.key == asked))
    };
    policy::NAMES
        .iter()
        .filter(has)
        .map(|p| format!("{p}.{asked}"))
        .collect()
}

fn parse<'a>(text: &'a str, in_use: &'a str) -> Option<Setting<'a>> {
    let (key, value) = text.split_once('=')?;
    let (policy, knob) = key.split_once('.').unwrap_or((in_use, key));
    (!policy.is_empty() && !knob.is_empty()).then_some(Setting {
        policy: policy.trim(),
        knob: knob.trim(),
        value,
    })
}

#[cfg(test)]
mod tests;
