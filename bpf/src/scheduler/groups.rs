//! What BPF is told of control groups: what their threads weigh, and how much CPU time they may have.

use super::{ns, Scheduler};
use crate::shared::{MAX_GROUPS, MAX_LIMITS};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use std::collections::BTreeMap;
use std::ptr::{addr_of, addr_of_mut};
use std::time::Duration;

/// CPU time that a control group and those below it may have together (`cpu.max`, `cpu.max.burst`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In each period, on all CPUs together.
    pub quota: Duration,
    /// How long a period is.
    pub period: Duration,
    /// What may be saved up beyond the quota.
    pub burst: Duration,
    /// Id of the nearest group above that has a limit, too.
    pub above: Option<u64>,
}

/// What BPF knows.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// What a thread of nice 0 weighs, by the id of its group.
    weights: BTreeMap<u64, u32>,
    /// Where in BPF's array the limit of a group is, by its id.
    limits: BTreeMap<u64, u16>,
    /// Which of them threads of a group are under, by its id.
    under: BTreeMap<u64, u16>,
    /// Places below this one have a queue.
    created: u16,
}

impl Groups {
    /// A place that no limit has, nor had until just now: `gone`, whose queues may have threads.
    fn free(&self, gone: &[u16]) -> Option<u16> {
        let taken = |i: &u16| gone.contains(i) || self.limits.values().any(|l| l == i);
        (1..MAX_LIMITS as u16).find(|i| !taken(i))
    }
}

impl Scheduler {
    /// Sets what threads of nice 0 weigh, by the id of their control group, that come to it or get another nice
    /// value from now on; 100 in groups that are not named. At most 4,096 groups count, those of the lowest ids. Threads that
    /// are there already keep their weight ([`Scheduler::weigh`]).
    ///
    /// # Errors
    /// When the kernel refuses; what was set by then is in effect.
    pub fn set_group_weights(
        &mut self,
        weights: &BTreeMap<u64, u32>,
    ) -> Result<(), libbpf_rs::Error> {
        let map = &self.skel.maps.group_weights;
        for id in self
            .groups
            .weights
            .keys()
            .filter(|id| !weights.contains_key(id))
        {
            // one that is gone is gone
            let _ = map.delete(&id.to_ne_bytes());
        }
        self.groups.weights.retain(|id, _| weights.contains_key(id));
        for (id, weight) in weights.iter().take(MAX_GROUPS) {
            if self.groups.weights.get(id) != Some(weight) {
                map.update(&id.to_ne_bytes(), &weight.to_ne_bytes(), MapFlags::ANY)?;
                self.groups.weights.insert(*id, *weight);
            }
        }
        let some = u32::from(!self.groups.weights.is_empty());
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            // SAFETY: as in `lend` (scheduler.rs).
            unsafe { addr_of_mut!(bss.shared.weighted).write_volatile(some) }
        }
        Ok(())
    }

    /// Sets how much CPU time control groups may have, by their ids, and which of these limits the threads of each group are
    /// under: the nearest one, its own or that of a group above. Threads that come meanwhile may miss it: call it again now
    /// and then. Says of how many groups the limit has no room: there is some for 1,023 limits, and for 4,096 groups under them.
    ///
    /// # Errors
    /// When the kernel refuses; what was set by then is in effect.
    pub fn set_group_limits(
        &mut self,
        limits: &BTreeMap<u64, Limit>,
        under: &BTreeMap<u64, u64>,
    ) -> Result<usize, libbpf_rs::Error> {
        if limits.is_empty() && self.groups.limits.is_empty() && self.groups.under.is_empty() {
            return Ok(0);
        }
        let known = &mut self.groups.limits;
        let gone: Vec<u16> = (known.extract_if(.., |id, _| !limits.contains_key(id)))
            .map(|(_, i)| i)
            .collect();
        // without a quota BPF holds nobody; before their places are another group's
        gone.iter().for_each(|i| self.write_limit(*i, None));
        // one that fails keeps no other from its limit
        let mut failed = None;
        for id in limits.keys() {
            if !self.groups.limits.contains_key(id) {
                failed = self.create_limit(*id, &gone).err().or(failed);
            }
        }
        let place = |id: &u64| self.groups.limits.get(id).copied();
        let set: Vec<(u16, &Limit, u16)> = (limits.iter())
            .filter_map(|(id, l)| {
                Some((place(id)?, l, l.above.and_then(|a| place(&a)).unwrap_or(0)))
            })
            .collect();
        for (i, limit, above) in set {
            self.write_limit(i, Some((limit, above)));
        }
        let some = u32::from(!self.groups.limits.is_empty());
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            // SAFETY: as in `lend` (scheduler.rs).
            unsafe {
                addr_of_mut!(bss.shared.nr_limits).write_volatile(self.groups.created.into());
                addr_of_mut!(bss.shared.limited).write_volatile(some);
            }
        }
        let left_out = self.put_under(under);
        let under = &self.groups.under;
        let of = |group| under.get(&group).copied().unwrap_or(0);
        (1..self.slots_used()).for_each(|slot| self.table.limit(slot, of));
        match failed {
            Some(e) => Err(e),
            None => left_out,
        }
    }

    /// Writes limit `i`, and the place of the one above.
    fn write_limit(&mut self, i: u16, limit: Option<(&Limit, u16)>) {
        let bss = self.skel.maps.bss_data.as_mut();
        let Some(raw) = bss.and_then(|b| b.limits.get_mut(usize::from(i))) else {
            return;
        };
        let quota = limit.map_or(0, |(l, _)| ns(l.quota).max(1));
        // SAFETY: as in `lend` (scheduler.rs); BPF may see one before the other, which is right again a period later.
        unsafe {
            if let Some((l, _)) = limit {
                addr_of_mut!(raw.period).write_volatile(ns(l.period).max(1));
                addr_of_mut!(raw.most).write_volatile(quota.saturating_add(ns(l.burst)));
            }
            let above = limit.map_or(0, |(_, above)| u32::from(above));
            addr_of_mut!(raw.above).write_volatile(above);
            addr_of_mut!(raw.quota).write_volatile(quota);
        }
    }

    /// Finds a place for the limit of group `id`, if there is one besides `gone`.
    fn create_limit(&mut self, id: u64, gone: &[u16]) -> Result<(), libbpf_rs::Error> {
        let Some(i) = self.groups.free(gone) else {
            return Ok(());
        };
        // what had that place before has its queue
        if i >= self.groups.created {
            let mut index = u32::from(i).to_ne_bytes();
            let input = ProgramInput {
                context_in: Some(&mut index),
                ..ProgramInput::default()
            };
            let made = self.skel.progs.amp_create_limit.test_run(input)?;
            let error = made.return_value as i32;
            if error != 0 {
                return Err(libbpf_rs::Error::from_raw_os_error(-error));
            }
            self.groups.created = i + 1;
        }
        let bss = self.skel.maps.bss_data.as_mut();
        if let Some(raw) = bss.and_then(|b| b.limits.get_mut(usize::from(i))) {
            // SAFETY: as in `lend` (scheduler.rs); without a quota BPF does not look at it.
            unsafe {
                addr_of_mut!(raw.left).write_volatile(0);
                addr_of_mut!(raw.until).write_volatile(0);
            }
        }
        self.groups.limits.insert(id, i);
        Ok(())
    }

    /// Whether somebody waits for CPU time of his control group, as of some milliseconds ago. Who does is
    /// [asleep](crate::State::Sleeping) otherwise.
    pub fn holds(&self) -> bool {
        self.shared().is_some_and(|shared| {
            // SAFETY: as in stats() (scheduler.rs).
            unsafe { addr_of!((*shared).holding).read_volatile() != 0 }
        })
    }

    /// Tells BPF which limit the threads of each group are under; says of how many groups it has no room.
    fn put_under(&mut self, under: &BTreeMap<u64, u64>) -> Result<usize, libbpf_rs::Error> {
        let map = &self.skel.maps.group_limits;
        let known = &mut self.groups;
        let wanted: BTreeMap<u64, u16> = (under.iter())
            .filter_map(|(id, limited)| Some((*id, *known.limits.get(limited)?)))
            .take(MAX_GROUPS)
            .collect();
        for (id, _) in (known.under).extract_if(.., |id, _| !wanted.contains_key(id)) {
            // one that is gone is gone
            let _ = map.delete(&id.to_ne_bytes());
        }
        for (id, limit) in &wanted {
            if known.under.get(id) != Some(limit) {
                let value = u32::from(*limit).to_ne_bytes();
                map.update(&id.to_ne_bytes(), &value, MapFlags::ANY)?;
                known.under.insert(*id, *limit);
            }
        }
        Ok(under.len().saturating_sub(wanted.len()))
    }
}
