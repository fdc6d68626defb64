//! On which core type each application ran.
//!
//! Under a policy the kernel side accounts every nanosecond per thread and core type. Under the
//! kernel's own scheduler nobody does, so there the processor that each thread was last on is
//! looked up once per interval in `/proc`: the same cadence as a policy's ticks, so that looking
//! costs the same.

use amp_metrics::{AppId, Nanos, MAX_CORE_TYPES};
use amp_sched::engine::AppTick;
use amp_sched::Topology;
use std::collections::HashMap;

/// CPU time per core type.
pub type PerType = [Nanos; MAX_CORE_TYPES];

/// Looks up where applications run when nobody accounts for it.
#[derive(Debug, Default)]
pub struct WhereRan {
    ticks: HashMap<i32, u64>,
}

impl WhereRan {
    /// What each application (by index in `pids`, the present process of each) ran in the last
    /// tick's interval.
    pub fn of_ticks(ticks: &[AppTick], pids: &[Option<i32>]) -> Vec<PerType> {
        let of = |pid: &Option<i32>| {
            let id = AppId(u64::try_from((*pid)?).ok()?);
            ticks.iter().find(|t| t.app == id).map(|t| t.ran)
        };
        pids.iter().map(|p| of(p).unwrap_or_default()).collect()
    }

    /// What they ran since the last call, from `/proc`: a thread that used CPU time since the last
    /// look is taken to have spent it on the core type it was last on.
    pub fn look_up(&mut self, topology: &Topology, pids: &[Option<i32>]) -> Vec<PerType> {
        let mut out = vec![PerType::default(); pids.len()];
        let ns_per_tick = 1_000_000_000 / procfs::ticks_per_second().max(1);
        for (app, pid) in pids.iter().enumerate() {
            // a process may end between any two of these reads: then it ran nowhere from now on
            let Some(Ok(process)) = pid.map(procfs::process::Process::new) else {
                continue;
            };
            let Ok(tasks) = process.tasks() else { continue };
            for stat in tasks.flatten().filter_map(|t| t.stat().ok()) {
                let total = stat.utime + stat.stime;
                let used = total - self.ticks.insert(stat.pid, total).unwrap_or(0).min(total);
                let cpu = stat.processor.and_then(|p| u32::try_from(p).ok());
                if let Some(t) = cpu.and_then(|c| topology.core_type_of(c)) {
                    out[app][t.index()] += Nanos(used * ns_per_tick);
                }
            }
        }
        out
    }
}
