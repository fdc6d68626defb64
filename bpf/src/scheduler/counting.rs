//! Which events are counted, and what has been counted for a thread.

use super::{ns, Scheduler};
use crate::config::MAX_CORE_TYPES;
use crate::counters::{self, CounterError, Counts, CpuEvents};
use crate::shared::Meter;
use crate::threads::Thread;
use libbpf_rs::{MapCore, MapFlags};
use std::ptr::addr_of;
use std::time::Duration;

impl Scheduler {
    /// Takes these events to hand, instead of those there were. Nothing is counted then, until
    /// [`count`](Self::count) says so.
    ///
    /// A CPU that is left out, or whose events do not count, charges nobody. All CPUs of a core
    /// type must have as many events in a set; CPUs of different types may have different ones.
    ///
    /// # Errors
    /// See [`CounterError`]. When the events make no sense, nothing has changed; when the kernel
    /// refused them, there are none.
    pub fn set_counters(&mut self, events: &[CpuEvents]) -> Result<(), CounterError> {
        let c = self.counting.as_ref().ok_or(CounterError::Off)?;
        let sets = counters::per_type(events, &c.cpu_type, self.nr_cpus)?;
        for t in 0..MAX_CORE_TYPES as u8 {
            self.count(t, None)?;
        }
        let c = self.counting.as_mut().ok_or(CounterError::Off)?;
        let map = &self.skel.maps.events;
        for key in c.keys.drain(..) {
            // one that is gone is gone
            let _ = map.delete(&key.to_ne_bytes());
        }
        c.sets = counters::Sets::default();
        if events.is_empty() {
            c.link = None;
        }
        for e in events {
            for (i, fd) in e.events.iter().enumerate() {
                let key = counters::key(e.cpu, e.set, i);
                map.update(&key.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
                    .map_err(|e| CounterError::Kernel {
                        what: "handing an event to BPF",
                        source: std::io::Error::other(e),
                    })?;
                c.keys.push(key);
            }
        }
        c.sets = sets;
        Ok(())
    }

    /// Counts set `set` of core type `core_type` from now on, or nothing there. Its events should
    /// count already: a reading that fails charges nobody. Returns the generation that the counts
    /// of threads will carry, 0 for nothing; every call begins another.
    ///
    /// # Errors
    /// When there is no such set, or the kernel refuses to show us context switches.
    pub fn count(&mut self, core_type: u8, set: Option<u32>) -> Result<u64, CounterError> {
        let c = self.counting.as_mut().ok_or(CounterError::Off)?;
        let t = usize::from(core_type);
        let sets = c.sets.get(t).map_or(&[][..], Vec::as_slice);
        let events = match set {
            None => 0,
            Some(set) => *sets.get(set as usize).ok_or(CounterError::Set {
                core_type,
                set,
                sets: sets.len(),
            })?,
        };
        let Some(generation) = c.generation.get_mut(t) else {
            return Ok(0);
        };
        let begun = match set {
            None => 0,
            Some(_) => {
                *generation += 1;
                *generation
            }
        };
        let bss = self.skel.maps.bss_data.as_mut();
        let meters = &mut bss.ok_or(CounterError::Off)?.meters;
        let types = (u32::from(core_type), c.table.types());
        let cpus = c.cpu_type.iter().take(self.nr_cpus);
        let of_type = cpus.zip(meters.iter_mut()).enumerate();
        for (cpu, (_, meter)) in of_type.filter(|(_, (of, _))| **of == core_type) {
            let meter: *mut Meter = std::ptr::addr_of_mut!(*meter).cast();
            let first = counters::key(cpu as u32, set.unwrap_or(0), 0);
            // SAFETY: `meter` points into the object's mapped .bss; shared.rs asserts that both
            // types have one layout.
            unsafe { counters::announce(meter, types, begun, first, events) };
        }
        if set.is_some() && c.link.is_none() {
            let link = self.skel.progs.amp_switch.attach();
            c.link = Some(link.map_err(|e| CounterError::Kernel {
                what: "attaching to context switches",
                source: std::io::Error::other(e),
            })?);
        }
        Ok(begun)
    }

    /// A thread that goes on running without a switch is read at the first tick of its CPU after
    /// `period` of CPU time, from now on; at every tick if this is never called. Readings take
    /// the CPU's time: a small part of the time between two looks at them is often enough.
    pub fn count_every(&mut self, period: Duration) {
        let Some(bss) = self.skel.maps.bss_data.as_mut() else {
            return;
        };
        for meter in bss.meters.iter_mut().take(self.nr_cpus) {
            let meter: *mut Meter = std::ptr::addr_of_mut!(*meter).cast();
            // SAFETY: as in count().
            unsafe { counters::read_every(meter, ns(period)) };
        }
    }

    /// What has been counted for `thread` on core type `core_type` by the present generation, or an
    /// earlier one if it has not run there since. Nothing was counted for a thread that has gone.
    /// `None` if it cannot be read now because its CPU is writing it: later it can.
    pub fn counts(&self, thread: &Thread, core_type: u8) -> Option<Counts> {
        let Some(c) = &self.counting else {
            return Some(Counts::default());
        };
        let counts = c.table.read(thread.slot, core_type);
        match self.table.owner(thread.slot) == Some(thread.generation) {
            true => counts,
            false => Some(Counts::default()),
        }
    }

    /// Readings that have failed on `cpu` since loading: while a set is to count there, its events
    /// do not. 0 for a CPU that is not there.
    pub fn unread_on(&self, cpu: u32) -> u64 {
        let bss = self.skel.maps.bss_data.as_ref();
        let meter = bss.and_then(|b| b.meters.get(cpu as usize));
        // SAFETY: as in Scheduler::stats().
        meter.map_or(0, |m| unsafe { addr_of!(m.nr_dropped).read_volatile() })
    }

    /// Readings that have failed on any CPU.
    pub(super) fn unread(&self) -> u64 {
        let bss = self.skel.maps.bss_data.as_ref();
        let meters = bss.map_or(&[][..], |b| &b.meters);
        let meters = meters.iter();
        // SAFETY: as in Scheduler::stats().
        let dropped = meters.map(|m| unsafe { addr_of!(m.nr_dropped).read_volatile() });
        dropped.sum()
    }
}
