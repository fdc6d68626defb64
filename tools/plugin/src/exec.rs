//! The hot path: what happens when a block or a memory access is executed.

use crate::board::{board, vcpu};
use crate::clock;
use crate::model::Exposure;
use crate::timing::{BlockEvents, Cost};
use crate::vcpu::{Own, Vcpu, INDIRECT};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;

/// A translated block; one [`Cost`] per core type follows it in memory. With up to four core types it is one cache
/// line of the host.
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
    /// The block was placed by [`Arena::block`](crate::translate::Arena::block) with more than `index` costs.
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

/// User data of [`memory`]: exception level and whether the address hangs on another load.
pub fn memory_flags(level: usize, dependent: bool) -> *mut c_void {
    std::ptr::without_provenance_mut(level | usize::from(dependent) << 1)
}

/// A block is about to execute.
pub extern "C" fn block(i: c_uint, data: *mut c_void) {
    let v = vcpu(i);
    // SAFETY: a callback on this vCPU's thread.
    let own = unsafe { v.own() };
    if own.pending != 0 {
        after_branch(v, data);
    } else {
        // SAFETY: `data` is what was registered with the callback; the reference above is done with.
        unsafe { account(v, data, 0) };
    }
}

/// A block is about to execute, after one that ended in a branch whose way is known now. A function of its own, called
/// last, so that neither needs to save registers.
#[inline(never)]
extern "C" fn after_branch(v: &'static Vcpu, data: *mut c_void) {
    // SAFETY: called from the callback above, which is done with its reference; `data` is a block of the arena.
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
/// On the vCPU's thread, with no other reference from [`Vcpu::own`] alive; `data` is a block of the arena, which
/// outlives its translation, with a cost for each core type.
#[inline(always)]
unsafe fn account(v: &'static Vcpu, data: *mut c_void, lost: u64) {
    // SAFETY: promised by the caller.
    let (own, b) = unsafe { (v.own(), &*data.cast::<Block>()) };
    // SAFETY: as above.
    let cost = unsafe { b.cost(own.type_index) };
    let ps = u64::from(cost.ps) + lost;
    own.pending = b.pending;
    let counts = &mut own.counts[level(b.start)];
    counts.ps += ps;
    counts.pj += u64::from(cost.pj);
    counts.recent.add(b.events);
    let time = v.time.load(Relaxed) + ps;
    v.time.store(time, Relaxed);
    if time >= own.limit {
        clock::sync(v);
    }
}

/// A load or store has executed. Most follow another to the same line: that case is kept free of everything else.
pub extern "C" fn memory(i: c_uint, info: u32, address: u64, data: *mut c_void) {
    let v = vcpu(i);
    // SAFETY: a callback on this vCPU's thread.
    let own = unsafe { v.own() };
    let line = address >> (own.line_shift & 63);
    if line != own.last_line {
        other_line(v, info, address, data);
    }
}

#[inline(never)]
extern "C" fn other_line(v: &Vcpu, info: u32, address: u64, data: *mut c_void) {
    // SAFETY: called from the callback above, which is done with its reference.
    let own = unsafe { v.own() };
    let line = address >> (own.line_shift & 63);
    own.last_line = line;
    let tag = if level(address) == 0 {
        line ^ own.salt
    } else {
        line
    };
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
    counts.prefetched(exposure, hit);
    counts.l1d_refills += 1;
    counts.l2_accesses += 1;
    counts.pj += t.l1d_refill_pj;
    let lost = if hit {
        t.l2_ps[exposure as usize]
    } else {
        counts.l2_refills += 1;
        counts.pj += t.l2_refill_pj;
        t.dram_ps[exposure as usize]
    };
    counts.ps += lost;
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
