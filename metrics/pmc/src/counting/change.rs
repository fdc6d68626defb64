//! Which set is on.

use super::{Counting, Part};
use amp_metrics::group::{Group, GroupError};
use std::collections::HashMap;

impl Counting {
    /// Puts the active sets on, or off.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn switch_active(&mut self, on: bool) -> Result<(), GroupError> {
        let active = self.active.clone();
        self.switch_parts(on, |p| active.contains(&p.set) && !p.unit.is_always_on())
    }

    /// Puts on, or off, what is no set's alone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn switch_always_on(&mut self, on: bool) -> Result<(), GroupError> {
        self.switch_parts(on, |p| p.unit.is_always_on())
    }

    fn switch_parts(&mut self, on: bool, which: impl Fn(&Part) -> bool) -> Result<(), GroupError> {
        let parts = self.parts.iter_mut().filter(|p| which(p));
        let mut groups = parts.flat_map(|p| &mut p.groups);
        groups.try_for_each(if on { Group::start } else { Group::stop })
    }

    /// The sets that the strategy wants next, each once.
    pub(super) fn next(&mut self, at_s: f64) -> Vec<usize> {
        let at_once = self.order.at_once.clamp(1, self.sets.len().max(1));
        let mut chosen = vec![0; at_once];
        self.order.strategy.choose(at_s, &mut chosen);
        let last = self.sets.len().saturating_sub(1);
        chosen.iter_mut().for_each(|s| *s = (*s).min(last));
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }

    /// Puts the active sets on in place of `before`. What stays on goes on counting.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn replace_by_active(&mut self, before: &[usize]) -> Result<(), GroupError> {
        let without = |of: &[usize], others: &[usize]| -> Vec<usize> {
            of.iter().filter(|s| !others.contains(s)).copied().collect()
        };
        let old = without(before, &self.active);
        let new = without(&self.active, before);
        let (all_old, all_new) = (old.iter().map(|s| Some(*s)), new.iter().map(|s| Some(*s)));
        let none = || std::iter::repeat(None);
        let pairs = all_old.chain(none()).zip(all_new.chain(none()));
        for pair in pairs.take(old.len().max(new.len())) {
            self.replace(pair.0, pair.1)?;
        }
        Ok(())
    }

    /// Puts set `to` on in place of `from`, group by group: each system call interrupts whoever is
    /// counted, and between the two that concern it nothing counts.
    fn replace(&mut self, from: Option<usize>, to: Option<usize>) -> Result<(), GroupError> {
        let of = |set: Option<usize>| {
            let parts = self.parts.iter().enumerate();
            parts.filter(move |(_, p)| Some(p.set) == set && !p.unit.is_always_on())
        };
        let mut new: HashMap<_, usize> = of(to).map(|(i, p)| (p.key(), i)).collect();
        let old: Vec<(usize, Option<usize>)> =
            of(from).map(|(i, p)| (i, new.remove(&p.key()))).collect();
        let mut alone: Vec<usize> = new.into_values().collect();
        alone.sort_unstable();
        for (i, j) in old {
            // a thread may have ended before all of its events were open
            let pairs = self.parts[i].groups.len();
            let same = |j: &usize| self.parts[*j].groups.len() == pairs;
            let j = match j.filter(same) {
                Some(j) => j,
                None => {
                    self.parts[i].groups.iter_mut().try_for_each(Group::stop)?;
                    let new = j.map(|j| &mut self.parts[j].groups);
                    new.into_iter().flatten().try_for_each(Group::start)?;
                    continue;
                }
            };
            for k in 0..pairs {
                self.parts[i].groups[k].stop()?;
                self.parts[j].groups[k].start()?;
            }
        }
        for j in alone {
            self.parts[j].groups.iter_mut().try_for_each(Group::start)?;
        }
        Ok(())
    }
}
