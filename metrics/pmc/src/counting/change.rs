//! Which set is on.

use super::{Counting, Part};
use amp_metrics::group::{Group, GroupError};
use std::collections::HashMap;

impl Counting {
    /// Puts a set on, or off.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn switch(&mut self, set: usize, on: bool) -> Result<(), GroupError> {
        self.switch_parts(on, |p| p.set == set && !p.unit.is_always_on())
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

    /// The set that the strategy wants next.
    pub(super) fn next(&mut self, at_s: f64) -> usize {
        self.strategy.next(at_s).min(self.sets.len() - 1)
    }

    /// Puts set `to` on in place of `from`, group by group: each system call interrupts whoever is
    /// counted, and between the two that concern it nothing counts.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn replace(&mut self, from: usize, to: usize) -> Result<(), GroupError> {
        if from == to {
            self.switch(from, false)?;
            return self.switch(to, true);
        }
        let of = |set: usize| {
            let parts = self.parts.iter().enumerate();
            parts.filter(move |(_, p)| p.set == set && !p.unit.is_always_on())
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
