//! The contract of a policy: what it is asked, and how it is registered.

use crate::machine::Placement;
use crate::policy::knobs::{KnobError, Knobs};
use crate::view::View;

/// Decides on placements.
pub trait Policy: Send {
    /// The name it is registered under.
    fn name(&self) -> &'static str {
        self.knobs().policy()
    }

    /// Decides on every thread of `view`. `out` arrives empty. Called once per interval, so that a
    /// policy may add up what the view says of the interval.
    fn place(&mut self, view: &View<'_>, out: &mut Placement);

    /// Whether thread `i` of the last view could well be placed elsewhere if its metrics were known
    /// better. Where it would not, and where the policy moves it in any case, it is hardly worth to be
    /// kept from its place to be measured.
    fn contested(&self, _i: usize) -> bool {
        true
    }

    /// Whether a fast core that is idle, because the threads it is for sleep, may meanwhile run threads
    /// that run where they are placed, on slower ones. It is for policies that give fast cores to whoever
    /// is behind, asleep or not; who gives them to those that gain most gains nothing by it, and energy
    /// is saved by fast cores that sleep.
    fn lends(&self) -> bool {
        false
    }

    /// Its parameters.
    fn knobs(&self) -> &Knobs;

    /// Its parameters, to set them.
    fn knobs_mut(&mut self) -> &mut Knobs;

    /// Turns the parameter `key`; takes effect with the next decision.
    ///
    /// # Errors
    /// When there is no such parameter or the value is not in its range; the error says what is.
    fn set(&mut self, key: &str, value: &str) -> Result<(), KnobError> {
        self.knobs_mut().set(key, value)
    }
}

/// A policy's entry in the registry: its name, and what is known of it before it is made.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name users know it by.
    pub name: &'static str,
    /// What it optimises, in a line.
    pub summary: &'static str,
    /// Metrics that it places threads by: `SF`, `EF`, or `-` for none.
    pub needs: &'static str,
    /// A page of text about it; the first line is `NAME: what it is.`
    pub help: &'static str,
    /// Most core types it can manage.
    pub max_core_types: usize,
    /// Whether it places threads by estimates; a thread without them then gets its fair share of
    /// each core type.
    pub uses_metrics: bool,
    /// Whether threads of equal merit take turns on fast cores. Otherwise they keep their places.
    pub takes_turns: bool,
    /// Makes the policy. The seed feeds the generator of a policy that draws lots.
    pub make: fn(seed: u64) -> Box<dyn Policy>,
}
