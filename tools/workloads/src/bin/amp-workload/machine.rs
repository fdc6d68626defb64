//! Affinity, clock and names of the calling thread.

use anyhow::{bail, Context, Result};
use rustix::thread::{CpuSet, Pid};
use rustix::time::{clock_gettime, ClockId};

/// CLOCK_MONOTONIC in nanoseconds. On the board this is virtual time.
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    // the monotonic clock starts at boot and is never negative
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CPU time of the calling thread in nanoseconds.
pub fn thread_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Confines the calling thread to `cpu`; threads it starts later inherit that.
///
/// # Errors
/// When there is no such CPU or it is not ours to use.
pub fn pin(cpu: u32) -> Result<()> {
    if cpu as usize >= CpuSet::MAX_CPU {
        bail!(
            "CPU {cpu}: the highest possible one is {}",
            CpuSet::MAX_CPU - 1
        );
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    rustix::thread::sched_setaffinity(None::<Pid>, &set)
        .with_context(|| format!("CPU {cpu} cannot be used (is it online and in our cpuset?)"))
}

/// Names the calling thread, as `top` and traces show it (15 bytes at most, the rest is cut off).
pub fn name_thread(name: &str) {
    let bytes: Vec<u8> = name.bytes().filter(|b| *b != 0).take(15).collect();
    if let Ok(c) = std::ffi::CString::new(bytes) {
        // a name is for people only: that it cannot be set is no reason to stop
        let _ = rustix::thread::set_name(&c);
    }
}

/// The core of a CPU, named after the first CPU that is a thread of it; the CPU itself when that cannot be
/// read.
pub fn core_of(cpu: u32) -> u32 {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let threads = text.trim().parse::<amp_machine::CpuList>();
    threads
        .ok()
        .and_then(|l| l.0.first().copied())
        .unwrap_or(cpu)
}

/// CPUs that are online, from sysfs; empty when that cannot be read.
pub fn online_cpus() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    text.trim()
        .parse::<amp_machine::CpuList>()
        .map(|l| l.0)
        .unwrap_or_default()
}
