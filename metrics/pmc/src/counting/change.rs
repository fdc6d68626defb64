//! Which set is on.

use super::Counting;
use amp_metrics::group::{Group, GroupError};
use std::collections::HashMap;

impl Counting {
    /// Puts a set on, or off.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn switch(&mut self, set: usize, on: bool) -> Result<(), GroupError> {
        let groups = self
            .parts
            .iter_mut()
            .filter(|p| p.set == set)
            .flat_map(|p| &mut p.groups);
        for g in groups {
            if on {
                g.start()?;
            } else {
                g.stop()?;
            }
        }
        Ok(())
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
            parts.filter(move |(_, p)| p.set == set)
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
