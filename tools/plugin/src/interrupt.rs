//! Overflow interrupts of the performance monitors: one level-triggered line per CPU, as the device
//! tree says.
//!
//! Nobody knows when a counter of misses will overflow, only how many more it takes and that a
//! cycle has no more than a few. So the vCPU looks again after as many cycles as it takes at that
//! rate; what remains shrinks from look to look, and at the end it looks at each block (a least
//! distance would have it look in slow blocks only). A sample is taken where the interrupt is: at
//! the beginning of the block after that in which the counter wrapped, which is this board's skid.

use crate::board::Board;
use crate::sysreg::totals;
use crate::vcpu::{Own, Vcpu};
use amp_machine::PMU_SPI_BASE;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Moves the line to where it belongs, and sets the time of the next look. On the vCPU's thread,
/// without the big lock.
pub fn look(b: &Board, v: &Vcpu, own: &mut Own) {
    own.settle();
    let Own {
        pmu, counts, model, ..
    } = &mut *own;
    let (up, next) = pmu.look(&|n, e| totals(b, v, model, counts, n, e));
    own.overflow_at = next.map_or(u64::MAX, |cycles| {
        let ps = cycles as f64 * own.model.ps_per_cycle;
        v.time.load(Relaxed).saturating_add(ps as u64)
    });
    own.limit = own.sync_at.min(own.overflow_at);
    if up != own.line_up {
        own.line_up = up;
        own.stats.overflows += u64::from(up);
        if own.line.is_null() {
            // vCPUs are made before the interrupt controller
            own.line = b.qemu.shared_interrupt(PMU_SPI_BASE + v.index as u32);
        }
        b.qemu.set_line(own.line, up);
        if up {
            v.called.store(1, SeqCst);
        }
    }
}
