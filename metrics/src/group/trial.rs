//! Whether events can be counted at once here and now.

use super::{Group, GroupError, Whom};
use crate::event::Event;
use rustix::thread::{sched_setaffinity, CpuSet};
use std::time::{Duration, Instant};

/// CPU time after which a group that has no counters has said so.
const TRIAL: Duration = Duration::from_millis(1);

/// Whether `events` of one PMU can be counted at once on `cpu`, one of its cores (none where that makes no
/// difference): counts a thread that is started for it. The kernel accepts sets for which others hold the counters
/// now (the NMI watchdog, a profiler), and only a trial shows. A group of a whole CPU, pinned as well, goes before
/// that of a thread, so nobody loses counters by it. What fails for another reason than the number of counters
/// is taken to fit: whoever opens it is told why not.
pub fn counts_at_once(events: &[Event], cpu: Option<u32>) -> bool {
    std::thread::scope(|s| s.spawn(|| tried_here(events, cpu)).join().unwrap_or(true))
}

fn tried_here(events: &[Event], cpu: Option<u32>) -> bool {
    let opened = Group::open(events, Whom::Caller, false);
    if matches!(opened, Err(GroupError::Refused { .. })) {
        return false;
    }
    let (Ok(mut group), Some(cpu)) = (opened, cpu) else {
        return true;
    };
    let mut one = CpuSet::new();
    let cpu = cpu as usize;
    if cpu >= CpuSet::MAX_CPU {
        return true;
    }
    one.set(cpu);
    // this thread ends with the trial
    if sched_setaffinity(None, &one).is_err() || group.start().is_err() {
        return true;
    }
    let begin = Instant::now();
    while begin.elapsed() < TRIAL {
        std::hint::spin_loop();
    }
    match group.read() {
        Ok(counts) => !counts.running.is_zero(),
        Err(GroupError::Taken { .. }) => false,
        Err(_) => true,
    }
}
