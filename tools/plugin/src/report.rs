//! The summary at exit.

use crate::board::board;
use crate::counts::energy;
use amp_machine::page::Total;

/// Prints a summary to standard error if it was asked for. QEMU is ending: no vCPU executes any
/// more.
pub fn at_exit() {
    let b = board();
    if !b.report {
        return;
    }
    for v in b.vcpus {
        // SAFETY: QEMU calls this when its vCPUs have stopped.
        let own = unsafe { v.own() };
        own.settle();
        let (t, s) = (own.model, own.stats);
        let totals = [own.counts[0].totals(t), own.counts[1].totals(t)];
        let sum = |k: Total| totals[0][k as usize] + totals[1][k as usize];
        let now = b.clock.global();
        eprintln!(
            "amp-board-plugin: cpu{} type {} instructions {} (user {}) active {:.1} ms, l1d {}/{} l2 {}/{} branches {}/{} \
             snoops {} writebacks {} energy {} uJ, syncs {} waits {} timeouts {} pmu {} overflows {} passes {}",
            v.index,
            t.index,
            sum(Total::Instructions),
            totals[0][Total::Instructions as usize],
            sum(Total::ActivePs) as f64 / 1e9,
            sum(Total::L1dRefill),
            sum(Total::L1dAccess),
            sum(Total::L2Refill),
            sum(Total::L2Access),
            sum(Total::Mispredicts),
            sum(Total::Branches),
            own.counts.iter().map(|c| c.snoops).sum::<u64>(),
            own.counts.iter().map(|c| c.l2_writebacks).sum::<u64>(),
            energy(&own.counts[0], &own.counts[1], t, now),
            s.syncs,
            s.waits,
            s.timeouts,
            s.pmu_accesses,
            s.overflows,
            s.passes,
        );
    }
    eprintln!(
        "amp-board-plugin: virtual {:.3} s, skipped {:.3} s, rescues {}",
        b.clock.global() as f64 / 1e12,
        b.clock.skipped() as f64 / 1e12,
        b.clock.rescues(),
    );
}
