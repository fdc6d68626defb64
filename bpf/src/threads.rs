//! The table of threads that BPF keeps in shared memory.

use crate::shared::{Slot, ANY, BEGAN, LET_GO, MAX_TYPES, MAX_WEIGHT, OVERDUE, QUEUED};
use memmap2::{MmapOptions, MmapRaw};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::atomic::{fence, Ordering};

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Blocked, or its control group has had all the CPU time that it may for now.
    Sleeping,
    /// Waiting for a CPU.
    Queued,
    /// The thread is on a CPU.
    Running,
}

/// A copy of one thread's slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thread {
    /// Index of the slot.
    pub slot: u32,
    /// Use count of the slot: together with `slot` the thread's name for as long as it lives.
    pub generation: u32,
    /// Kernel thread id.
    pub pid: i32,
    /// Process id.
    pub tgid: i32,
    /// Command name, NUL-padded.
    pub comm: [u8; 16],
    /// Hash of the arguments of its process, 0 if not known.
    pub arguments: u64,
    /// Scheduling weight by its nice value alone, 100 = nice 0.
    pub own_weight: u32,
    /// Scheduling weight that is in effect: [`Scheduler::weigh`](crate::Scheduler::weigh).
    pub weight: u32,
    /// Id of the control group that the CPU controller has it in, which is its inode number; 0 if there is none.
    pub group: u64,
    /// Bit `t`: its affinity admits a CPU of core type `t`.
    pub allowed: u8,
    /// What it is doing.
    pub state: State,
    /// CPU it runs on or ran on last.
    pub cpu: u32,
    /// Core type of `cpu`.
    pub core_type: u8,
    /// Core type it was placed on with [`Scheduler::place`](crate::Scheduler::place).
    pub placement: Option<u8>,
    /// CPU time on each core type in ns, up to the last tick or the start of its current run.
    pub runtime: [u64; MAX_TYPES],
    /// Runs that began on another core type than the one it was placed on.
    pub stolen: u64,
    /// Placements that took effect.
    pub swaps: u64,
}

/// What tells at a glance whether a thread has done anything or had anything done to it: two
/// glances that are equal, of a thread that is not busy, mean that its [`Thread`] is the same.
/// Costs one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// Use count of the slot.
    pub generation: u32,
    /// CPU time of the task that its totals contain, ns.
    pub accounted: u64,
    /// Scheduling weight by its nice value alone, 100 = nice 0.
    pub own_weight: u32,
    /// Bit `t`: its affinity admits a CPU of core type `t`.
    pub allowed: u8,
    /// Core type that it ran on last.
    pub core_type: u8,
    /// Whether it is placed.
    pub placed: bool,
    /// Whether it runs or waits for a CPU.
    pub busy: bool,
}

impl Thread {
    /// The command name as text.
    pub fn name(&self) -> String {
        let end = self.comm.iter().position(|c| *c == 0).unwrap_or(16);
        String::from_utf8_lossy(&self.comm[..end]).into_owned()
    }
}

/// The mapped table.
pub(crate) struct Table {
    map: MmapRaw,
    len: u32,
}

impl Table {
    /// Maps the first `len` slots of the array map behind `fd`.
    pub fn map(fd: impl AsFd, len: u32) -> std::io::Result<Table> {
        let bytes = len as usize * size_of::<Slot>();
        let map = MmapOptions::new()
            .len(bytes)
            .map_raw(fd.as_fd().as_raw_fd())?;
        Ok(Table { map, len })
    }

    fn slot(&self, index: u32) -> Option<*mut Slot> {
        // SAFETY: the mapping holds `len` slots and index is below that.
        (index < self.len)
            .then(|| unsafe { self.map.as_mut_ptr().cast::<Slot>().add(index as usize) })
    }

    fn generation(slot: *mut Slot) -> u32 {
        // SAFETY: `slot` points into the mapping, which lives as long as the table; BPF may change
        // it at any time, hence volatile.
        unsafe { addr_of!((*slot).generation).read_volatile() }
    }

    /// Generation of the thread in slot `index`, if there is one.
    pub fn owner(&self, index: u32) -> Option<u32> {
        self.slot(index)
            .map(Self::generation)
            .filter(|g| g % 2 == 1)
    }

    /// A glance at the slot's thread, if there is one. `current` says which slot's thread a CPU
    /// runs.
    pub fn glance(&self, index: u32, current: impl Fn(u32) -> u32) -> Option<Glance> {
        let slot = self.slot(index)?;
        let generation = Self::generation(slot);
        if generation % 2 == 0 {
            return None;
        }
        fence(Ordering::Acquire);
        // SAFETY: as in read(). The fields are read one by one: what is torn differs from the
        // glance before, and somebody looks closely.
        let (glance, noted, cpu) = unsafe {
            let glance = Glance {
                generation,
                accounted: addr_of!((*slot).exec_seen).read_volatile(),
                own_weight: addr_of!((*slot).own_weight).read_volatile().into(),
                allowed: addr_of!((*slot).allowed).read_volatile(),
                core_type: addr_of!((*slot).core_type).read_volatile(),
                placed: addr_of!((*slot).placement).read_volatile() != ANY,
                busy: false,
            };
            let noted = addr_of!((*slot).state).read_volatile();
            (glance, noted, addr_of!((*slot).cpu).read_volatile())
        };
        Some(Glance {
            busy: state(noted, index, || current(cpu)) != State::Sleeping,
            ..glance
        })
    }

    /// Copies the slot if a thread owns it and went on owning it meanwhile. `current` says which
    /// slot's thread a CPU runs.
    pub fn read(&self, index: u32, current: impl Fn(u32) -> u32) -> Option<Thread> {
        let slot = self.slot(index)?;
        let before = Self::generation(slot);
        if before % 2 == 0 {
            return None;
        }
        fence(Ordering::Acquire);
        // SAFETY: as above; every bit pattern is a valid `Slot`, and the generation tells whether
        // its owner changed.
        let s = unsafe { slot.read_volatile() };
        fence(Ordering::Acquire);
        if Self::generation(slot) != before || s.pid == 0 {
            return None;
        }
        Some(Thread {
            slot: index,
            generation: before,
            pid: s.pid as i32,
            tgid: s.tgid as i32,
            comm: s.comm,
            arguments: s.arguments,
            own_weight: s.own_weight.into(),
            weight: s.weight,
            group: s.group,
            allowed: s.allowed,
            state: state(s.state, index, || current(s.cpu)),
            cpu: s.cpu,
            core_type: s.core_type,
            placement: (s.placement != ANY).then_some(s.placement as u8),
            runtime: s.runtime,
            stolen: s.nr_stolen,
            swaps: s.nr_swaps,
        })
    }

    /// The slot of the thread, unless it has gone.
    fn owned(&self, index: u32, generation: u32) -> Option<*mut Slot> {
        let slot = self.slot(index)?;
        let there = !generation.is_multiple_of(2) && Self::generation(slot) == generation;
        there.then_some(slot)
    }

    /// Writes what the thread weighs. False if it has gone.
    pub fn weigh(&self, index: u32, generation: u32, weight: u32) -> bool {
        let Some(slot) = self.owned(index, generation) else {
            return false;
        };
        // SAFETY: as above; BPF writes it when the thread comes or has a new nice value, and whoever is later is right.
        unsafe { addr_of_mut!((*slot).weight).write_volatile(weight.clamp(1, MAX_WEIGHT)) };
        true
    }

    /// Writes the index of the limit of CPU time that the thread in slot `index` is under, if there is a thread, by the id of its
    /// control group.
    pub fn limit(&self, index: u32, of: impl Fn(u64) -> u16) {
        let Some(slot) = self.slot(index) else {
            return;
        };
        // SAFETY: as above; BPF writes it when the thread comes or goes to another group, by what it was told before this.
        unsafe {
            let limit = of(addr_of!((*slot).group).read_volatile());
            if addr_of!((*slot).limit).read_volatile() != limit {
                addr_of_mut!((*slot).limit).write_volatile(limit);
            }
        }
    }

    /// Writes a placement. Stamps it with `now` (`CLOCK_MONOTONIC` ns) when the thread wants a CPU
    /// and is on another core type, so that BPF can tell how long the change took. False if the
    /// thread has gone.
    pub fn place(
        &self,
        index: u32,
        generation: u32,
        placement: Option<u8>,
        now: u64,
        current: impl Fn(u32) -> u32,
    ) -> bool {
        let Some(slot) = self.owned(index, generation) else {
            return false;
        };
        let new = placement.map_or(ANY, u32::from);
        // SAFETY: as above; user space is the only writer of `placement`, and BPF only ever clears
        // `placed_at`.
        unsafe {
            if addr_of!((*slot).placement).read_volatile() == new {
                return true;
            }
            addr_of_mut!((*slot).placement).write_volatile(new);
            let cpu = addr_of!((*slot).cpu).read_volatile();
            let state = state(addr_of!((*slot).state).read_volatile(), index, || {
                current(cpu)
            });
            let moves = placement.is_some_and(|t| addr_of!((*slot).core_type).read_volatile() != t)
                && state != State::Sleeping;
            addr_of_mut!((*slot).placed_at).write_volatile(if moves { now } else { 0 });
        }
        true
    }
}

/// What the thread of slot `index` is doing, given the state in its slot and the slot of what its
/// CPU runs.
fn state(noted: u8, index: u32, current: impl FnOnce() -> u32) -> State {
    match noted {
        QUEUED | LET_GO | OVERDUE => State::Queued,
        BEGAN if current() == index => State::Running,
        // going to sleep leaves no trace in the slot
        _ => State::Sleeping,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table over a plain file instead of a BPF map, and a way to play BPF's part in it.
    fn table(len: u32) -> Table {
        let file = tempfile::tempfile().unwrap();
        file.set_len(u64::from(len) * size_of::<Slot>() as u64)
            .unwrap();
        Table::map(&file, len).unwrap()
    }

    fn with(t: &Table, index: u32, f: impl FnOnce(&mut Slot)) {
        // SAFETY: a test's own mapping, one thread.
        f(unsafe { &mut *t.slot(index).unwrap() })
    }

    fn occupy(t: &Table, index: u32) {
        with(t, index, |s| {
            s.generation = 7;
            s.pid = 42;
            s.tgid = 40;
            s.state = BEGAN;
            s.core_type = 1;
            s.placement = ANY;
            s.comm[..3].copy_from_slice(b"abc");
            s.runtime[1] = 5;
        });
    }

    #[test]
    fn reads_only_owned_slots() {
        let t = table(4);
        occupy(&t, 2);
        assert_eq!((0..9).filter_map(|i| t.read(i, |_| 2)).count(), 1);
        let thread = t.read(2, |_| 2).unwrap();
        assert_eq!(
            (thread.slot, thread.generation, thread.pid, thread.tgid),
            (2, 7, 42, 40)
        );
        assert_eq!(
            (thread.name().as_str(), thread.state, thread.placement),
            ("abc", State::Running, None)
        );
        assert_eq!(thread.runtime[1], 5);
        with(&t, 2, |s| s.generation += 1);
        assert_eq!(t.read(2, |_| 2), None);
    }

    #[test]
    fn stamps_a_placement_that_moves_a_thread_that_wants_a_cpu() {
        let t = table(2);
        occupy(&t, 1);
        assert!(t.place(1, 7, Some(0), 99, |_| 1));
        with(&t, 1, |s| assert_eq!((s.placement, s.placed_at), (0, 99)));
        assert_eq!(t.read(1, |_| 1).unwrap().placement, Some(0));
        // the same again is no news
        assert!(t.place(1, 7, Some(0), 100, |_| 1));
        with(&t, 1, |s| assert_eq!(s.placed_at, 99));
        // back to where it is: nothing to wait for
        assert!(t.place(1, 7, Some(1), 101, |_| 1));
        with(&t, 1, |s| assert_eq!((s.placement, s.placed_at), (1, 0)));
    }

    #[test]
    fn what_a_thread_weighs_is_within_bounds_and_no_sign_of_life() {
        let t = table(2);
        occupy(&t, 1);
        with(&t, 1, |s| (s.own_weight, s.weight, s.group) = (100, 100, 5));
        let glance = t.glance(1, |_| 0).unwrap();
        for (wanted, is) in [(250, 250), (0, 1), (1 << 20, MAX_WEIGHT)] {
            assert!(t.weigh(1, 7, wanted));
            let thread = t.read(1, |_| 0).unwrap();
            assert_eq!(
                (thread.own_weight, thread.weight, thread.group),
                (100, is, 5)
            );
        }
        assert_eq!(t.glance(1, |_| 0).unwrap(), glance);
    }

    #[test]
    fn a_thread_is_under_the_limit_of_its_group() {
        let t = table(3);
        occupy(&t, 1);
        with(&t, 1, |s| s.group = 5);
        for limit in [7, 0] {
            (0..4).for_each(|i| t.limit(i, |group| if group == 5 { limit } else { 0 }));
            with(&t, 1, |s| assert_eq!(s.limit, limit));
            with(&t, 2, |s| assert_eq!(s.limit, 0));
        }
        // who is held sleeps to everybody else, and waits once it is let go
        for (state, is) in [
            (crate::shared::HELD, State::Sleeping),
            (LET_GO, State::Queued),
        ] {
            with(&t, 1, |s| s.state = state);
            assert_eq!(t.read(1, |_| 1).unwrap().state, is);
        }
    }

    #[test]
    fn does_not_stamp_a_sleeping_or_a_released_thread() {
        let t = table(2);
        occupy(&t, 1);
        assert_eq!(t.read(1, |_| 0).unwrap().state, State::Sleeping);
        assert!(t.place(1, 7, Some(0), 99, |_| 0));
        with(&t, 1, |s| assert_eq!((s.placement, s.placed_at), (0, 0)));
        assert!(t.place(1, 7, None, 100, |_| 1));
        with(&t, 1, |s| assert_eq!((s.placement, s.placed_at), (ANY, 0)));
    }

    #[test]
    fn a_thread_that_has_gone_cannot_be_placed() {
        let t = table(2);
        occupy(&t, 1);
        assert!(!t.place(1, 5, Some(0), 99, |_| 1), "an earlier owner");
        assert!(!t.place(1, 8, Some(0), 99, |_| 1), "nobody");
        assert!(!t.place(9, 7, Some(0), 99, |_| 9), "no such slot");
        for (index, generation) in [(1, 5), (1, 8), (9, 7)] {
            assert!(!t.weigh(index, generation, 300));
        }
        with(&t, 1, |s| assert_eq!((s.placement, s.placed_at), (ANY, 0)));
    }
}
