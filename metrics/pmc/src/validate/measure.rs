//! Counts of a piece of work, and what the board's model says of it.

use super::candidates::{Candidate, Turn};
use amp_machine::page::{publish_hint, CpuTotals, Page, Total};
use amp_workloads::exact::Quantity;
use anyhow::Result;

/// Times nothing is measured, to know what starting and stopping counts.
const EMPTY: usize = 5;

/// What an event has counted, and what the board's model has counted meanwhile.
pub(super) type Counted = (u64, Option<u64>);

/// Counts of `work` for each event in the order of the `turn`, whose events are of `candidates`. The model is asked
/// after one reading of the counters and before the other: that allocates, and how much user code it
/// takes differs from time to time. While they are on it is not asked: that would be counted.
pub(super) fn counted(
    turn: &mut Turn,
    candidates: &[Candidate],
    page: Option<&Page>,
    cpu: u32,
    work: impl FnOnce(),
) -> Result<Vec<Counted>> {
    let group = &mut turn.group;
    let before = group.read()?;
    let truth_before = truth(page, cpu);
    group.start()?;
    work();
    group.stop()?;
    let truth_after = truth(page, cpu);
    let after = group.read()?;
    let (enabled, running) = (
        after.enabled - before.enabled,
        after.running - before.running,
    );
    if running < enabled {
        anyhow::bail!(
            "the counters were on for {running:?} of {enabled:?} only: another perf user has them"
        );
    }
    let of = |c: &Candidate| {
        let (b, a) = (truth_before.as_ref()?, truth_after.as_ref()?);
        Some(user(a, c.quantity)?.wrapping_sub(user(b, c.quantity)?))
    };
    let counts = after.counts.iter().zip(&before.counts);
    let counts = counts.map(|(a, b)| a.saturating_sub(*b));
    let counts = counts.chain(std::iter::repeat(0));
    let in_order = turn.order.iter().map(|i| &candidates[*i]);
    Ok(in_order.zip(counts).map(|(c, n)| (n, of(c))).collect())
}

/// What starting and stopping alone count, at least.
pub(super) fn empty(
    turn: &mut Turn,
    candidates: &[Candidate],
    page: Option<&Page>,
    cpu: u32,
) -> Result<Vec<Counted>> {
    let mut least = counted(turn, candidates, page, cpu, || {})?;
    for _ in 1..EMPTY {
        for (l, c) in least
            .iter_mut()
            .zip(counted(turn, candidates, page, cpu, || {})?)
        {
            *l = (l.0.min(c.0), l.1.min(c.1));
        }
    }
    Ok(least)
}

/// The board's own totals of the CPU that this runs on.
pub(super) fn truth(page: Option<&Page>, cpu: u32) -> Option<CpuTotals> {
    publish_hint();
    page?.cpu(cpu).ok()
}

/// A quantity as the board's model has it; `None` for those that it has no total of.
fn user(t: &CpuTotals, q: Quantity) -> Option<u64> {
    let of = |total| Some(t.split(total).user);
    match q {
        Quantity::Instructions => of(Total::Instructions),
        Quantity::Loads => Some(of(Total::L1dAccess)?.wrapping_sub(of(Total::Stores)?)),
        Quantity::Stores => of(Total::Stores),
        Quantity::Accesses => of(Total::L1dAccess),
        Quantity::L1Refills => of(Total::L1dRefill),
        Quantity::L2Accesses => of(Total::L2Access),
        // the board's machines have no L3
        Quantity::L2Refills | Quantity::MemoryReads => of(Total::L2Refill),
        Quantity::L2WriteBacks | Quantity::MemoryWrites => of(Total::L2WriteBack),
        Quantity::Branches => of(Total::Branches),
        Quantity::Mispredicts => of(Total::Mispredicts),
        Quantity::Cycles => of(Total::Cycles),
        Quantity::L3Accesses
        | Quantity::L3Refills
        | Quantity::L3LoadRefills
        | Quantity::DtlbMisses
        | Quantity::DtlbRefills
        | Quantity::DtlbWalks
        | Quantity::FloatingPoint
        | Quantity::ScalarFlops
        | Quantity::VectorFloatingPoint
        | Quantity::Flops => None,
    }
}
