//! The hot path: what happens when a block or a memory access is executed.

use crate::board::{board, vcpu, Board};
use crate::cache::L2Access;
use crate::clock;
use crate::coherence::Access;
use crate::model::{Exposure, Pace, NEAR};
use crate::private::Question;
use crate::timing::{BlockEvents, Cost};
use crate::vcpu::{Own, Vcpu, INDIRECT};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;

/// A translated block; one [`Cost`] per core type follows it in memory. With up to two core types
/// it is one cache line of the host.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Block {
    pub events: BlockEvents,
    /// Address of its first instruction.
    pub start: u64,
    /// What [`Own::pending`] becomes.
    pub pending: u64,
    /// The first costs; see [`Block::cost`].
    costs: [Cost; 4],
}

/// Offset of the first cost in a [`Block`].
pub const COSTS: usize = std::mem::offset_of!(Block, costs);

impl Block {
    /// A block, its costs yet to be put at [`COSTS`].
    pub fn new(start: u64, pending: u64, events: BlockEvents) -> Block {
        Block {
            events,
            start,
            pending,
            costs: [Cost::default(); 4],
        }
    }

    /// Its cost on a core type.
    ///
    /// # Safety
    /// The block was placed by [`Arena::block`](crate::translate::Arena::block) with more than
    /// `index` costs.
    #[inline]
    unsafe fn cost(&self, index: usize) -> Cost {
        // SAFETY: promised by the caller.
        unsafe {
            *std::ptr::from_ref(self)
                .byte_add(COSTS)
                .cast::<Cost>()
                .add(index)
        }
    }
}

/// Level from an address: the kernel lives in the upper half.
#[inline]
pub fn level(address: u64) -> usize {
    (address >> 63) as usize
}

/// User data of [`load`] and [`store`]: exception level and whether the address depends on another
/// load.
pub fn memory_flags(level: usize, dependent: bool) -> *mut c_void {
    std::ptr::without_provenance_mut(level | if dependent { DEPENDENT } else { 0 })
}

/// Bits of [`memory_flags`] beside the level, and one that [`store`] adds.
const DEPENDENT: usize = 2;
const STORE: usize = 4;

/// A block is about to execute.
pub extern "C" fn block(i: c_uint, data: *mut c_void) {
    let v = vcpu(i);
    // SAFETY: a callback on this vCPU's thread.
    let own = unsafe { v.own() };
    if own.pending != 0 {
        after_branch(v, data);
    } else {
        // SAFETY: `data` is what was registered with the callback; the reference above is done
        // with.
        unsafe { account(v, data, 0) };
    }
}

/// A block is about to execute, after one that ended in a branch whose way is known now. A function
/// of its own, called last, so that neither needs to save registers.
#[inline(never)]
extern "C" fn after_branch(v: &'static Vcpu, data: *mut c_void) {
    // SAFETY: called from the callback above, which is done with its reference; `data` is a block
    // of the arena.
    let (own, start) = unsafe { (v.own(), (*data.cast::<Block>()).start) };
    let pc = own.pending;
    let mispredicted = if pc & INDIRECT == 0 {
        own.predictor.direction(pc, start != pc)
    } else {
        own.predictor.target(pc, start)
    };
    let mut lost = 0;
    if mispredicted {
        lost = own.model.mispredict_ps;
        let counts = &mut own.counts[level(pc)];
        counts.mispredicts += 1;
        counts.frontend_ps += lost;
    }
    // SAFETY: as in the caller.
    unsafe { account(v, data, lost) };
}

/// Adds the block's cost, and `lost` picoseconds, to the vCPU's time and totals.
///
/// # Safety
/// On the vCPU's thread, with no other reference from [`Vcpu::own`] alive; `data` is a block of the
/// arena, which outlives its translation, with a cost for each core type.
#[inline(always)]
unsafe fn account(v: &'static Vcpu, data: *mut c_void, lost: u64) {
    // SAFETY: promised by the caller.
    let (own, b) = unsafe { (v.own(), &*data.cast::<Block>()) };
    // SAFETY: as above.
    let cost = unsafe { b.cost(own.type_index) };
    let ps = ((u64::from(cost.ps) * own.pace.time) >> Pace::SHIFT) + lost;
    own.pending = b.pending;
    let counts = &mut own.counts[level(b.start)];
    counts.ps += ps;
    counts.pj += (u64::from(cost.pj) * own.pace.energy) >> Pace::SHIFT;
    counts.recent.add(b.events);
    let time = v.time.load(Relaxed) + ps;
    v.time.store(time, Relaxed);
    if time >= own.limit {
        clock::sync(v);
    }
}

/// A load has executed. Most accesses follow another to the same line: that case is kept free of
/// everything else.
pub extern "C" fn load(i: c_uint, info: u32, address: u64, data: *mut c_void) {
    let v = vcpu(i);
    let line = address >> (v.line_shift & 63);
    if !v.private.may_load(line) {
        other_line(v, info, address, data);
    }
}

/// A store has executed; of an instruction that does both, the load was told before. The line must
/// also be this core's to store to.
pub extern "C" fn store(i: c_uint, info: u32, address: u64, data: *mut c_void) {
    let v = vcpu(i);
    let line = address >> (v.line_shift & 63);
    if !v.private.may_store(line) {
        let flags = data.addr() | STORE;
        other_line(v, info, address, std::ptr::without_provenance_mut(flags));
    }
}

/// A function that needs no stack, and calls the next one last.
#[inline(never)]
extern "C" fn other_line(v: &'static Vcpu, info: u32, address: u64, data: *mut c_void) {
    // SAFETY: called from the callbacks above, which hold no reference.
    let own = unsafe { v.own() };
    let store = data.addr() & STORE != 0;
    let line = address >> (v.line_shift & 63);
    if !v.private.quick(line, tag(v, own, line), store) {
        older_line(v, info, address, data);
    }
}

#[inline(never)]
extern "C" fn older_line(v: &'static Vcpu, info: u32, address: u64, data: *mut c_void) {
    // SAFETY: called from the function above, which is done with its reference.
    let own = unsafe { v.own() };
    let flags = data.addr();
    let store = flags & STORE != 0;
    let line = address >> (v.line_shift & 63);
    let tag = tag(v, own, line);
    if let Some(question) = v.private.access(line, tag, store) {
        beyond(v, own, info, address, (flags, tag, question));
    }
}

/// What caches and directory know virtual line `line` by.
#[inline]
fn tag(v: &Vcpu, own: &Own, line: u64) -> u64 {
    if level(line << (v.line_shift & 63)) == 0 {
        line ^ own.salt
    } else {
        line
    }
}

/// Asks the directory about the line that was used last ([`crate::private`] says why).
pub fn recheck(b: &Board, v: &Vcpu, own: &Own) {
    let Some(directory) = &b.coherence else {
        return;
    };
    v.private.recheck(|line| {
        let tag = tag(v, own, line);
        let (has, owns) = directory.allows(v.index, tag);
        (tag, has, owns)
    });
}

/// What L1 cannot answer: a miss, or a store to a line that may not be this core's alone.
#[inline(never)]
fn beyond(
    v: &'static Vcpu,
    own: &mut Own,
    info: u32,
    address: u64,
    (flags, tag, question): (usize, u64, Question),
) {
    let b = board();
    let Some(directory) = &b.coherence else {
        if question.victim.is_some() {
            miss(b, v, own, info, address, flags);
        }
        return;
    };
    let access = Access {
        cpu: v.index,
        level: level(address),
        tag,
        store: flags & STORE != 0,
        missed: question.victim.is_some(),
        now: v.time.load(Relaxed),
    };
    v.private.ask(tag, access.store);
    let effect = directory.access(b, access);
    if effect.contended {
        v.private.reject(tag, question);
    }
    if let Some(from) = effect.from {
        transfer(b, v, own, from, flags);
        if effect.contended {
            own.counts[flags & 1].invalidations += 1;
            directory.arrived(v.index, tag, v.time.load(Relaxed));
        }
    } else if access.missed && !effect.contended {
        miss(b, v, own, info, address, flags);
    } else {
        if effect.upgrade {
            let ps = own.model.transfer_ps[NEAR][Exposure::Independent as usize];
            lose(v, own, flags, ps);
        }
        if effect.dirtied {
            // mostly a line that was read just before
            let line = address >> v.line_shift;
            let known = own.missed[line as usize % own.missed.len()];
            if known.0 == line {
                own.l2.stored(known.1);
            } else if let Some(physical) = physical(b, info, address) {
                own.l2.stored(physical >> v.line_shift);
            }
        }
    }
}

/// The time of a miss or a wait.
#[inline]
fn lose(v: &Vcpu, own: &mut Own, flags: usize, ps: u64) {
    let counts = &mut own.counts[flags & 1];
    counts.ps += ps;
    counts.backend_ps += ps;
    v.time.store(v.time.load(Relaxed) + ps, Relaxed);
}

/// The line comes from another core's L1: through the cluster's L2, or from another cluster.
fn transfer(b: &Board, v: &Vcpu, own: &mut Own, from: usize, flags: usize) {
    let t = own.model;
    let far = b.vcpus.get(from).is_some_and(|o| o.core_type != t.index);
    let counts = &mut own.counts[flags & 1];
    counts.l1d_refills += 1;
    counts.l2_accesses += 1;
    counts.pj += t.l1d_refill_pj;
    if far {
        counts.l2_refills += 1;
    } else {
        counts.snoops += 1;
    }
    let exposure = if flags & DEPENDENT != 0 {
        Exposure::Dependent
    } else {
        Exposure::Independent
    };
    let ps = t.transfer_ps[usize::from(far)][exposure as usize];
    lose(v, own, flags, ps);
}

/// Physical address of the access whose callback this is; `None` for a device.
#[inline]
fn physical(b: &Board, info: u32, address: u64) -> Option<u64> {
    // SAFETY: `info` and `address` are those of the access whose callback this is.
    unsafe {
        let h = (b.api.hwaddr)(info, address);
        if h.is_null() {
            Some(address)
        } else if (b.api.hwaddr_is_io)(h) {
            None
        } else {
            Some((b.api.hwaddr_phys)(h))
        }
    }
}

#[inline(never)]
fn miss(b: &Board, v: &Vcpu, own: &mut Own, info: u32, address: u64, flags: usize) {
    let Some(physical) = physical(b, info, address) else {
        return;
    };
    let store = flags & STORE != 0;
    let line = address >> v.line_shift;
    let physical = physical >> v.line_shift;
    own.missed[line as usize % own.missed.len()] = (line, physical);
    let found = own.l2.access(physical, store, own.fills, &mut own.random);
    let exposure = if in_stream(own, line) {
        Exposure::Sequential
    } else if flags & DEPENDENT != 0 {
        Exposure::Dependent
    } else {
        Exposure::Independent
    };
    let t = own.model;
    let counts = &mut own.counts[flags & 1];
    counts.prefetched(exposure, matches!(found, L2Access::Hit));
    counts.l1d_refills += 1;
    counts.l2_accesses += 1;
    counts.pj += t.l1d_refill_pj;
    let ps = match found {
        L2Access::Hit => t.l2_ps[exposure as usize],
        L2Access::Filled { written_back } => {
            counts.l2_refills += 1;
            counts.l2_writebacks += u64::from(written_back);
            counts.pj += t.l2_refill_pj;
            let lines = 1 + u64::from(written_back);
            let now = v.time.load(Relaxed);
            let wait = b.memory.as_ref().map_or(0, |m| m.use_by(now, lines));
            t.dram_ps[exposure as usize] + wait
        }
    };
    lose(v, own, flags, ps);
}

/// Whether a miss on `line` follows one of the last streams, which then moves on; else it starts a
/// new one.
fn in_stream(own: &mut Own, line: u64) -> bool {
    let next_to = |s: u64| s.wrapping_add(1) == line || s == line.wrapping_add(1);
    match own.streams.iter_mut().find(|s| next_to(**s)) {
        Some(s) => {
            *s = line;
            true
        }
        None => {
            own.streams[own.next_stream & 3] = line;
            own.next_stream += 1;
            false
        }
    }
}
