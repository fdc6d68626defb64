//! Changing the policy, its parameters and the source of metrics while the engine runs.
//!
//! A change takes effect with the next tick. Until then every thread keeps its place, and the
//! machine is not told anything: a change costs no thread a CPU. A change that is refused leaves
//! everything as it was.
//!
//! | what | kept by | across a change of policy | across a change of provider |
//! |---|---|---|---|
//! | threads, whether they are busy, their place | engine | kept | kept |
//! | CPU time per core type (shares) | machine | kept | kept |
//! | progress relative to running alone ([`Done`](super::Done)) | engine | kept | kept; grows while there are speedup factors |
//! | parameters of the engine | engine | kept | kept |
//! | parameters of each policy | [`Changes`] | kept, those of policies not in use too | kept |
//! | virtual time, credits, turns, smoothed metrics | policy | made anew, from CPU time and progress where that is what they mean | kept |
//! | counts and models behind a metric | provider | kept | made anew |
//!
//! A policy that has been in use before starts afresh like any other: what happened under others in
//! the meantime counts. Virtual times (`acfs`, `adwrr`) and slowdowns (`eqp`, `pareto`) are rebuilt
//! from CPU time and progress at the policy's first decision. Credits of `rr`, `propsp`, `prim` are
//! differences within a few turns and start even.

use super::Engine;
use crate::machine::Topology;
use crate::policy::contract::Policy;
use crate::policy::settings::{Settings, SettingsError};
use amp_metrics::Provider;

/// Carries out changes, and remembers what the user set for policies that are not in use.
#[derive(Debug)]
pub struct Changes {
    seed: u64,
    settings: Settings,
}

impl Changes {
    /// No changes so far. `seed` feeds policies that draw lots.
    pub fn new(seed: u64) -> Changes {
        Changes::with(seed, Settings::default())
    }

    /// The same where something was set before, for policies that are not in use, too.
    pub fn with(seed: u64, settings: Settings) -> Changes {
        Changes { seed, settings }
    }

    /// A policy for a machine of that topology, with what was set for it.
    fn make(&self, topology: &Topology, name: &str) -> Result<Box<dyn Policy>, SettingsError> {
        self.settings.policy(name, self.seed, Some(topology))
    }

    /// The policy that `engine` works with, made anew for a machine of another topology, its
    /// parameters as they are.
    ///
    /// # Errors
    /// When it cannot be had for that machine.
    pub fn policy_for(
        &mut self,
        engine: &Engine,
        topology: &Topology,
    ) -> Result<Box<dyn Policy>, SettingsError> {
        self.settings.keep(engine.policy.knobs().clone());
        self.make(topology, engine.policy.name())
    }

    /// Puts the policy called `name` to work; the parameters are those it had when it was last in
    /// use. False when it is the one in use already, which then goes on undisturbed.
    ///
    /// # Errors
    /// When it cannot be had for this machine.
    pub fn policy(&mut self, engine: &mut Engine, name: &str) -> Result<bool, SettingsError> {
        let next = self.make(&engine.topology, name)?;
        if next.name() == engine.policy.name() {
            return Ok(false);
        }
        self.settings.keep(engine.policy.knobs().clone());
        engine.set_policy(next);
        Ok(true)
    }

    /// A policy and parameters together, all of them or none: what [`Changes::put`] is to carry out.
    /// Nothing changes yet.
    ///
    /// # Errors
    /// Naming the policy that cannot be had for this machine, or the first setting that is not
    /// right.
    pub fn prepare<S: AsRef<str>>(
        &self,
        engine: &Engine,
        policy: &str,
        settings: &[S],
    ) -> Result<PreparedChange, SettingsError> {
        let mut trial = self.settings.clone();
        trial.keep(engine.policy.knobs().clone());
        trial.keep(engine.knobs.clone());
        trial.set(settings, policy, &engine.topology)?;
        Ok(PreparedChange {
            policy: trial.policy(policy, self.seed, Some(&engine.topology))?,
            settings: trial,
        })
    }

    /// Carries out what was prepared. The policy goes on undisturbed when it is the one in use
    /// already.
    pub fn put(&mut self, engine: &mut Engine, change: PreparedChange) {
        if change.policy.name() == engine.policy.name() {
            *engine.policy.knobs_mut() = change.policy.knobs().clone();
        } else {
            engine.set_policy(change.policy);
        }
        engine.knobs = change.settings.engine();
        self.settings = change.settings;
    }

    /// Turns parameters: `policy.knob=value` (or `engine.knob=value`), or `knob=value` for the policy in use. Those of a
    /// policy that is not in use take effect when it is. All are turned, or none.
    ///
    /// # Errors
    /// Naming the first setting that is not right.
    pub fn set<S: AsRef<str>>(
        &mut self,
        engine: &mut Engine,
        settings: &[S],
    ) -> Result<(), SettingsError> {
        let in_use = engine.policy.name();
        let mut trial = self.settings.clone();
        trial.keep(engine.policy.knobs().clone());
        trial.keep(engine.knobs.clone());
        trial.set(settings, in_use, &engine.topology)?;
        if let Some(k) = trial.of(in_use) {
            *engine.policy.knobs_mut() = k.clone();
        }
        engine.knobs = trial.engine();
        self.settings = trial;
        Ok(())
    }

    /// Puts another source of metrics to work.
    pub fn provider(&mut self, engine: &mut Engine, provider: Box<dyn Provider>) {
        engine.set_provider(provider);
    }
}

/// A policy and its parameters, checked and not yet in use.
pub struct PreparedChange {
    policy: Box<dyn Policy>,
    settings: Settings,
}

#[cfg(test)]
mod tests;
