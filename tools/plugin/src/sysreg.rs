//! System instructions the model acts on: performance monitors, address-space switches, the
//! hints.
//!
//! A read of a system register can be corrected only after it has executed, so the read leaves its
//! value in [`Own::fixes`](crate::vcpu::Own::fixes) and the instruction after it ([`fix`]) puts it
//! into the register. QEMU ends a block after most reads of a performance monitor, so that this is
//! mostly the head of the next block. An interrupt in between does no harm: entries are found by
//! address.

use crate::board::{board, vcpu, Board};
use crate::cache::SALT;
use crate::clock::{self, publish};
use crate::counts::{self, Counts};
use crate::decode::{SysReg, TTBR0_EL1};
use crate::interrupt;
use crate::model::TypeModel;
use crate::pmu::{event, EventTotals};
use crate::private::NO_LINE;
use crate::vcpu::{Fix, Own, Vcpu};
use amp_machine::page::STATE_RUNNING;
use amp_machine::SharedLines;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// User data of [`write`]: register and operand in one word.
pub fn write_data(r: SysReg, rt: u8) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::from(r.0) << 5 | usize::from(rt & 31))
}

/// User data of [`read`].
#[derive(Debug)]
#[repr(C, align(16))]
pub struct ReadSite {
    /// Address of the instruction after the read.
    pub next: u64,
    pub register: SysReg,
    pub rt: u8,
}

/// Totals of an event at both levels, as counter `n` sees them. Needs settled counts.
pub fn totals(
    b: &Board,
    v: &Vcpu,
    t: &TypeModel,
    counts: &[Counts; 2],
    n: usize,
    event: u16,
) -> EventTotals {
    if b.lacks.contains(&event) || !b.tied.iter().all(|t| t.sees(n, event)) {
        return [0; 2];
    }
    if event == event::ENERGY_UJ {
        let now = b.clock.global().max(v.time.load(Relaxed));
        // One figure for the CPU: it counts as user energy unless that is filtered out.
        return [counts::energy(&counts[0], &counts[1], t, now), 0];
    }
    let of = |level: usize| {
        let mut total = counts[level].event(event, t).unwrap_or(0);
        if event == event::L1D_CACHE_INVAL && t.shared_lines == SharedLines::Invalidations {
            total += v.taken[level].load(Relaxed);
        }
        b.fault.map_or(total, |f| f.apply(event, total))
    };
    [of(0), of(1)]
}

/// A performance monitor is about to be read.
pub extern "C" fn read(i: c_uint, data: *mut c_void) {
    let (b, v) = (board(), vcpu(i));
    // SAFETY: a callback on this vCPU's thread; `data` is a site of the arena.
    let (own, site) = unsafe { (v.own(), &*data.cast::<ReadSite>()) };
    own.stats.pmu_accesses += 1;
    own.settle();
    let Own {
        pmu,
        counts,
        fixes,
        model,
        ..
    } = own;
    let Some(value) = pmu.read(site.register, &|n, e| totals(b, v, model, counts, n, e)) else {
        return;
    };
    let slot = fixes
        .iter()
        .position(|f| f.pc == site.next)
        .or_else(|| fixes.iter().position(|f| f.pc == 0))
        // All taken: drop the oldest, which belongs to a read that was never followed (a thread
        // that died).
        .unwrap_or_else(|| {
            fixes.rotate_left(1);
            fixes.len() - 1
        });
    fixes[slot] = Fix {
        pc: site.next,
        value,
        rt: site.rt,
    };
}

/// The instruction after a read of a performance monitor, at the address in `data`, is about to
/// execute.
pub extern "C" fn fix(i: c_uint, data: *mut c_void) {
    let v = vcpu(i);
    // SAFETY: a callback on this vCPU's thread.
    let own = unsafe { v.own() };
    let pc = data.addr() as u64;
    if let Some(f) = own.fixes.iter_mut().find(|f| f.pc == pc) {
        f.pc = 0;
        let (value, rt) = (f.value, f.rt);
        write_general(board(), v, rt, value);
    }
}

/// A register that the model follows is about to be written.
pub extern "C" fn write(i: c_uint, data: *mut c_void) {
    let (b, v) = (board(), vcpu(i));
    // SAFETY: a callback on this vCPU's thread.
    let own = unsafe { v.own() };
    let (register, rt) = (SysReg((data.addr() >> 5) as u16), (data.addr() & 31) as u8);
    let value = read_general(b, v, own, rt);
    if register == TTBR0_EL1 {
        let table = value >> 12 & 0xf_ffff_ffff;
        own.salt = table.wrapping_mul(0x9e37_79b9_7f4a_7c15) & SALT;
        v.private.forget();
        own.missed = [(NO_LINE, 0); 64];
        return;
    }
    own.stats.pmu_accesses += 1;
    own.settle();
    let Own {
        pmu, counts, model, ..
    } = own;
    pmu.write(register, value, &|n, e| totals(b, v, model, counts, n, e));
    interrupt::look(b, v, own);
}

/// The guest asks for fresh totals: a boot is over at the latest now.
pub extern "C" fn hint(i: c_uint, _: *mut c_void) {
    let (b, v) = (board(), vcpu(i));
    if b.boots.swap(false, SeqCst) {
        // SAFETY: this vCPU's thread; QEMU drops what has been translated without callbacks once every vCPU has reached
        // the end of a block.
        unsafe { (b.qemu.flush)(v.cpu.load(Relaxed)) };
    }
    // SAFETY: a callback on this vCPU's thread.
    let own = unsafe { v.own() };
    publish(b, v, own, STATE_RUNNING);
}

/// The guest lets time pass.
pub extern "C" fn pass(i: c_uint, _: *mut c_void) {
    clock::pass(vcpu(i));
}

/// General register `rt` of the vCPU whose thread this is (31: zero).
fn read_general(b: &Board, v: &Vcpu, own: &mut Own, rt: u8) -> u64 {
    if rt == 31 {
        return 0;
    }
    // SAFETY: the callback was registered with access to registers, so QEMU's copy is current; the
    // array is this vCPU's own, and eight bytes long after the call.
    unsafe {
        (b.api.bytes_resize)(own.bytes, 0);
        let n = (b.qemu.read_register)(v.cpu.load(Relaxed), own.bytes, c_int::from(rt));
        if n != 8 {
            return 0;
        }
        u64::from_le(std::ptr::read_unaligned((*own.bytes).data.cast()))
    }
}

fn write_general(b: &Board, v: &Vcpu, rt: u8, value: u64) {
    if rt == 31 {
        return;
    }
    let mut bytes = value.to_le_bytes();
    // SAFETY: the callback was registered with the right to write registers; eight bytes are read.
    unsafe { (b.qemu.write_register)(v.cpu.load(Relaxed), bytes.as_mut_ptr(), c_int::from(rt)) };
}
