//! The kernels, and the CPU where the second thread of some runs.

use crate::bench::apps::stay_on;
use crate::pmc::here::Here;
use amp_machine::CpuList;
use amp_metrics::CoreTypeId;
use amp_workloads::exact::{Caches, Kernel, Level, Traffic};
use std::path::Path;

/// Loads and stores of a kernel whose data fits a cache.
const ACCESSES: u64 = 400_000;
/// Rounds of the loop of 64 instructions.
const ROUNDS: u64 = 20_000;
/// Branches that go either way.
const BRANCHES: u64 = 200_000;

/// What makes a kernel, for only one is to have its data in place at a time.
pub(super) type Make = Box<dyn Fn() -> Option<Kernel>>;

/// All kernels. Those that take a second thread have it on CPU `partner`, and are left out where there is none.
pub(super) fn kernels(caches: &Caches, partner: Option<u32>) -> Vec<Make> {
    let caches = *caches;
    let mut out: Vec<Make> = vec![
        Box::new(|| Some(Kernel::nops(ROUNDS))),
        Box::new(|| Some(Kernel::random_branches(BRANCHES, 1))),
    ];
    for traffic in Traffic::ALL {
        for level in [Level::L1, Level::L2, Level::Memory] {
            out.push(Box::new(move || {
                Some(Kernel::stream(traffic, level, &caches, ACCESSES))
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

/// A CPU beside `cpu`, of the same core type where there is one; never one that is a thread of the same core, for that
/// has the same caches.
pub(super) fn partner(here: &Here, t: CoreTypeId, cpu: u32) -> Option<u32> {
    let same_core = of_same_core(Path::new("/sys"), cpu);
    let same_type = here.cpus(t).into_iter().rev();
    let others = here.core_pmus().flat_map(|(t, _)| here.cpus(t));
    same_type.chain(others).find(|c| !same_core.contains(c))
}

/// CPUs that are threads of the same core as `cpu` (SMT), itself included.
fn of_same_core(sysfs: &Path, cpu: u32) -> Vec<u32> {
    let dir = sysfs.join(format!("devices/system/cpu/cpu{cpu}/topology"));
    // the second is the older name of the first
    let listed = ["core_cpus_list", "thread_siblings_list"]
        .iter()
        .find_map(|f| std::fs::read_to_string(dir.join(f)).ok())
        .and_then(|text| text.trim().parse::<CpuList>().ok());
    let mut cpus = listed.map_or_else(Vec::new, |l| l.0);
    if !cpus.contains(&cpu) {
        cpus.push(cpu);
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_core_are_known() {
        let d = tempfile::tempdir().unwrap();
        let dir = d.path().join("devices/system/cpu/cpu3/topology");
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(of_same_core(d.path(), 3), [3]);
        std::fs::write(dir.join("thread_siblings_list"), "2-3\n").unwrap();
        assert_eq!(of_same_core(d.path(), 3), [2, 3]);
        std::fs::write(dir.join("core_cpus_list"), "3,7\n").unwrap();
        assert_eq!(of_same_core(d.path(), 3), [3, 7]);
        std::fs::write(dir.join("core_cpus_list"), "?\n").unwrap();
        assert_eq!(of_same_core(d.path(), 3), [3]);
    }
}
