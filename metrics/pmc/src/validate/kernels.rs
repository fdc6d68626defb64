//! The kernels, and the CPU where the second thread of some runs.

use crate::inventory::CounterInventory;
use amp_host::affinity::stay_on;
use amp_host::topology::same_core;
use amp_metrics::CoreTypeId;
use amp_workloads::exact::{
    AdditionCost, Arithmetic, Caches, Kernel, Level, Quantity, Reach, Traffic,
};
use std::path::Path;

/// Loads and stores of a kernel whose data fits a cache.
const ACCESSES: u64 = 400_000;
/// Rounds of the loop of 64 instructions.
const ROUNDS: u64 = 20_000;
/// Branches that go either way.
const BRANCHES: u64 = 200_000;
/// Additions, and floating-point instructions.
const OPERATIONS: u64 = 400_000;
/// Loads of which each is of another page; most of them read page tables, which takes a while.
const PAGES: u64 = 65_536;

/// What makes a kernel, for only one is to have its data in place at a time.
pub(super) type Make = Box<dyn Fn() -> Option<Kernel>>;

/// All kernels that say something of one of the quantities in `tried`. Those that take a second
/// thread have it on CPU `partner`, and are left out where there is none. `cost` is what additions
/// cost there; cycles are not compared where that is not known.
pub(super) fn kernels(
    caches: &Caches,
    partner: Option<u32>,
    cost: Option<AdditionCost>,
    tried: &[Quantity],
) -> Vec<Make> {
    let caches = *caches;
    let any_of = |some: &[Quantity]| tried.iter().any(|q| some.contains(q));
    let mut out: Vec<Make> = vec![
        Box::new(|| Some(Kernel::nops(ROUNDS))),
        Box::new(|| Some(Kernel::random_branches(BRANCHES, 1))),
    ];
    for traffic in Traffic::ALL {
        for level in caches.levels().collect::<Vec<Level>>() {
            out.push(Box::new(move || {
                Kernel::stream(traffic, level, &caches, ACCESSES)
            }));
        }
    }
    if any_of(&[Quantity::Cycles]) {
        for abreast in [false, true] {
            out.push(Box::new(move || {
                Some(Kernel::additions(OPERATIONS, abreast, cost))
            }));
        }
    }
    if any_of(&Quantity::FLOATING_POINT) {
        for kind in Arithmetic::ALL {
            out.push(Box::new(move || Kernel::float(kind, OPERATIONS)));
        }
    }
    if any_of(&Quantity::DTLB) {
        for reach in Reach::ALL {
            out.push(Box::new(move || {
                let kernel = Kernel::pages(reach, PAGES);
                if kernel.is_none() {
                    log::warn!("no pages that are sure to be small: data TLBs are tried with fewer kernels");
                }
                kernel
            }));
        }
    }
    let Some(cpu) = partner else {
        log::warn!("only CPUs of one core: kernels of two threads are left out");
        return out;
    };
    let begin = move || {
        if let Err(e) = stay_on(&[cpu]) {
            log::warn!("{e:#}");
        }
    };
    for first in [true, false] {
        for level in [Level::L1, Level::L2] {
            out.push(Box::new(move || {
                Kernel::triangle(first, level, &caches, ACCESSES, begin)
            }));
        }
        out.push(Box::new(move || {
            Some(Kernel::handoff(first, &caches, begin))
        }));
    }
    out
}

/// A CPU beside `cpu`, of the same core type where there is one; never one that is a thread of the
/// same core, for that has the same caches.
pub(super) fn partner(inventory: &CounterInventory, t: CoreTypeId, cpu: u32) -> Option<u32> {
    let siblings = same_core(Path::new("/sys"), cpu);
    let same_type = inventory.cpus(t).into_iter().rev();
    let others = inventory.core_pmus().flat_map(|(t, _)| inventory.cpus(t));
    same_type.chain(others).find(|c| !siblings.contains(c))
}
