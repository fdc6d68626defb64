//! The hot path: what happens when a block or a memory access is executed.

use crate::board::{board, vcpu};
use crate::clock;
use crate::model::Exposure;
use crate::timing::{Cost, Events};
use crate::vcpu::{Own, Vcpu, INDIRECT};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;

/// A translated block; one [`Cost`] per core type follows it in memory.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Block {
    pub events: Events,
    /// Address of its first instruction.
    pub start: u64,
    /// What [`Own::pending`] becomes.
    pub pending: u64,
    /// Exception level, 0 or 1.
    pub level: usize,
    pub reserved: u64,
}

impl Block {
    /// Its cost on a core type.
    ///
    /// # Safety
    /// The block was placed by [`Arena::block`](crate::translate::Arena::block) with more than `index` costs.
    #[inline]
    unsafe fn cost(&self, index: usize) -> Cost {
        // SAFETY: promised by the caller.
        unsafe { *std::ptr::from_ref(self).add(1).cast::<Cost>().add(index) }
    }
}

/// Level from an address: the kernel lives in the upper half.
pub fn level(address: u64) -> usize {
    (address >> 63) as usize
}

/// User data of [`memory`]: exception level and whether the address hangs on another load.
pub fn memory_flags(level: usize, dependent: bool) -> *mut c_void {
    std::ptr::without_provenance_mut(level | usize::from(dependent) << 1)
}

/// A block is about to execute.
pub extern "C" fn block(i: c_uint, data: *mut c_void) {
    let v = vcpu(i);
    // SAFETY: a callback on this vCPU's thread; `data` is a block of the arena, which outlives its translation, with a
    // cost for each core type.
    let (own, b) = unsafe { (v.own(), &*data.cast::<Block>()) };
    // SAFETY: as above.
    let mut cost = unsafe { b.cost(own.model.index) };
    if own.pending != 0 {
        cost.ps += resolve(own, b.start);
    }
    own.pending = b.pending;
    own.pending_level = b.level;
    let counts = &mut own.counts[b.level & 1];
    counts.cost.ps += cost.ps;
    counts.cost.pj += cost.pj;
    counts.recent.instructions += b.events.instructions;
    counts.recent.accesses += b.events.accesses;
    counts.recent.branches += b.events.branches;
    counts.recent.stores += b.events.stores;
    let time = v.time.load(Relaxed) + cost.ps;
    v.time.store(time, Relaxed);
    if time >= own.limit {
        clock::sync(v, own);
    }
}

/// Where the last block's branch went is known now: time lost if that was not predicted.
#[inline]
fn resolve(own: &mut Own, now: u64) -> u64 {
    let pc = own.pending & !INDIRECT;
    let mispredicted = if own.pending & INDIRECT == 0 {
        own.predictor.direction(pc, now != pc)
    } else {
        own.predictor.target(pc, now)
    };
    if !mispredicted {
        return 0;
    }
    let lost = own.model.mispredict_ps;
    let counts = &mut own.counts[own.pending_level & 1];
    counts.mispredicts += 1;
    counts.frontend_ps += lost;
    lost
}

/// A load or store has executed.
pub extern "C" fn memory(i: c_uint, info: u32, address: u64, data: *mut c_void) {
    let v = vcpu(i);
    // SAFETY: a callback on this vCPU's thread.
    let own = unsafe { v.own() };
    let line = address >> own.line_shift;
    if line == own.last_line {
        return;
    }
    own.last_line = line;
    let tag = if address >> 63 == 0 { line ^ own.salt } else { line };
    if !own.l1.access(tag) {
        miss(v, own, info, address, data.addr());
    }
}

#[inline(never)]
fn miss(v: &Vcpu, own: &mut Own, info: u32, address: u64, flags: usize) {
    let api = &board().api;
    // SAFETY: `info` and `address` are those of the access whose callback this is.
    let physical = unsafe {
        let h = (api.hwaddr)(info, address);
        if h.is_null() {
            address
        } else if (api.hwaddr_is_io)(h) {
            return;
        } else {
            (api.hwaddr_phys)(h)
        }
    };
    let hit = own.l2.access(physical >> own.line_shift, &mut own.random);
    let exposure = if in_stream(own, address >> own.line_shift) {
        Exposure::Sequential
    } else if flags & 2 != 0 {
        Exposure::Dependent
    } else {
        Exposure::Independent
    };
    let t = own.model;
    let counts = &mut own.counts[flags & 1];
    counts.l1d_refills += 1;
    counts.l2_accesses += 1;
    counts.cost.pj += t.l1d_refill_pj;
    let lost = if hit {
        t.l2_ps[exposure as usize]
    } else {
        counts.l2_refills += 1;
        counts.cost.pj += t.l2_refill_pj;
        t.dram_ps[exposure as usize]
    };
    counts.cost.ps += lost;
    counts.backend_ps += lost;
    v.time.store(v.time.load(Relaxed) + lost, Relaxed);
}

/// Whether a miss on `line` follows one of the last streams, which then moves on; else it starts a new one.
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
