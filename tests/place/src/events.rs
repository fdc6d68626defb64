//! Events of CPUs and threads, opened at the kernel.

use crate::{cpu_list, Error};
use amp_bpf::CpuEvents;
use perf_event_open_sys as perf;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The events that option `key` lists.
pub fn counter_list(options: &BTreeMap<&str, &str>, key: &str) -> Result<Vec<u64>, Error> {
    let list = options.get(key).copied().unwrap_or_default();
    let of = |e: &str| u64::from_str_radix(e.trim_start_matches("0x"), 16);
    let list = list.split(',').filter(|e| !e.is_empty()).map(of);
    Ok(list.collect::<Result<_, _>>()?)
}

/// Type number of the PMU of each CPU that has one.
pub fn pmus() -> Result<BTreeMap<u32, u32>, Error> {
    let mut of = BTreeMap::new();
    for dir in std::fs::read_dir("/sys/bus/event_source/devices")? {
        let dir = dir?.path();
        let Ok(cpus) = std::fs::read_to_string(dir.join("cpus")) else {
            continue;
        };
        let kind: u32 = std::fs::read_to_string(dir.join("type"))?.trim().parse()?;
        for range in cpus.trim().split(',') {
            of.extend(cpu_list(range)?.into_iter().map(|c| (c, kind)));
        }
    }
    Ok(of)
}

/// Opens an event; `leader` is that of its group, or -1 for a leader of its own, which begins
/// disabled. A thread's says beside its count for how long it was enabled and counted, in ns.
pub fn open(kind: u32, config: u64, tid: i32, cpu: i32, leader: i32) -> Result<OwnedFd, Error> {
    let mut attr = perf::bindings::perf_event_attr::default();
    attr.size = std::mem::size_of::<perf::bindings::perf_event_attr>() as u32;
    (attr.type_, attr.config) = (kind, config);
    if leader < 0 && tid < 0 {
        attr.set_disabled(1);
        attr.set_pinned(1);
    }
    if tid >= 0 {
        let both = perf::bindings::PERF_FORMAT_TOTAL_TIME_ENABLED
            | perf::bindings::PERF_FORMAT_TOTAL_TIME_RUNNING;
        attr.read_format = both.into();
    }
    // SAFETY: `attr` is whole and lives over the call, which only reads it.
    let fd = unsafe { perf::perf_event_open(&mut attr, tid, cpu, leader, 8) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Who opened first goes first when counters are given out anew: one that is opened before others
/// and switched on after them takes theirs.
pub fn hold(count: usize) -> Result<(), Error> {
    /// Cycles and instructions, by the architecture's numbers.
    const CYCLES: u64 = 0x11;
    const INSTRUCTIONS: u64 = 0x08;
    let mut events = vec![CYCLES];
    events.resize(count.max(1), INSTRUCTIONS);
    let groups = opened(&events)?;
    println!("HOLD {} CPUs", groups.len());
    for line in std::io::stdin().lines() {
        let line = line?;
        for leader in groups.iter().filter_map(|(_, events)| events.first()) {
            let fd = leader.as_raw_fd();
            // SAFETY: takes no memory of ours.
            let failed = unsafe {
                match line.trim() {
                    "on" => perf::ioctls::ENABLE(fd, 0),
                    _ => perf::ioctls::DISABLE(fd, 0),
                }
            };
            if failed != 0 {
                return Err(std::io::Error::last_os_error().into());
            }
        }
        println!("HOLD {line}");
    }
    Ok(())
}

/// The events of every CPU that has a PMU, counting.
pub fn cpu_groups(counters: &[u64]) -> Result<Vec<(u32, Vec<OwnedFd>)>, Error> {
    let all = opened(counters)?;
    for leader in all.iter().filter_map(|(_, events)| events.first()) {
        // SAFETY: takes no memory of ours.
        if unsafe { perf::ioctls::ENABLE(leader.as_raw_fd(), 0) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
    }
    Ok(all)
}

/// The events of every CPU that has a PMU, one pinned group each, stopped.
fn opened(counters: &[u64]) -> Result<Vec<(u32, Vec<OwnedFd>)>, Error> {
    let mut all = vec![];
    for (cpu, kind) in pmus()? {
        let mut events: Vec<OwnedFd> = vec![];
        for config in counters {
            let leader = events.first().map_or(-1, AsRawFd::as_raw_fd);
            events.push(open(kind, *config, -1, cpu as i32, leader)?);
        }
        all.push((cpu, events));
    }
    Ok(all)
}

pub fn given((cpu, events): &(u32, Vec<OwnedFd>)) -> CpuEvents {
    CpuEvents {
        cpu: *cpu,
        set: 0,
        events: events.iter().map(AsRawFd::as_raw_fd).collect(),
    }
}
