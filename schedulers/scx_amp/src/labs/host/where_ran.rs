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
        let of = |pid: &Option<i32>| of_process(ticks, (*pid)?);
        pids.iter().map(|p| of(p).unwrap_or_default()).collect()
    }

    /// What processes that have `ended` (each with the index of its application) ran in that interval
    /// before their end, by application.
    pub fn of_ended<'a>(
        ticks: &[AppTick],
        applications: usize,
        ended: impl Iterator<Item = &'a (usize, i32)>,
    ) -> Vec<PerType> {
        let mut ran = vec![PerType::default(); applications];
        for (app, pid) in ended {
            let (Some(all), Some(of)) = (ran.get_mut(*app), of_process(ticks, *pid)) else {
                continue;
            };
            for (sum, r) in all.iter_mut().zip(of) {
                *sum += r;
            }
        }
        ran
    }

    /// What they ran since the last call, from `/proc`: a thread that used CPU time since the last
    /// look is taken to have spent it on the core type it was last on. What a process ran between the
    /// last call and its end is missing.
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

fn of_process(ticks: &[AppTick], pid: i32) -> Option<PerType> {
    let id = AppId(u64::try_from(pid).ok()?);
    ticks.iter().find(|t| t.app == id).map(|t| t.ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_what_its_last_process_ran_before_its_end() {
        let tick = |pid: u64, big: u64| {
            let mut ran = PerType::default();
            ran[0] = Nanos(big);
            AppTick {
                app: AppId(pid),
                runnable: 1,
                ran,
            }
        };
        let ticks = [tick(7, 40), tick(8, 60), tick(9, 100)];
        let big = |ran: Vec<PerType>| -> Vec<u64> { ran.iter().map(|r| r[0].0).collect() };
        let present = WhereRan::of_ticks(&ticks, &[Some(8), Some(9), None]);
        assert_eq!(big(present), [60, 100, 0]);
        let ended = [(0, 7), (1, 5), (4, 9)];
        let before = WhereRan::of_ended(&ticks, 3, ended.iter());
        assert_eq!(big(before), [40, 0, 0]);
    }
}
