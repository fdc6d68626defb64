//! On which CPUs a thread runs.

use anyhow::{Context, Result};
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

/// Restricts the calling thread to `cpus`.
///
/// # Errors
/// When none of them is online.
pub fn stay_on(cpus: &[u32]) -> Result<()> {
    let mut set = CpuSet::new();
    for c in cpus
        .iter()
        .map(|c| *c as usize)
        .filter(|c| *c < CpuSet::MAX_CPU)
    {
        set.set(c);
    }
    sched_setaffinity(None, &set).with_context(|| format!("cannot use CPUs {cpus:?}"))
}

/// Runs `f` with this thread on `cpus`. What `f` starts inherits them from its first instruction.
///
/// # Errors
/// When none of them is online.
pub fn on_cpus<T>(cpus: &[u32], f: impl FnOnce() -> T) -> Result<T> {
    let before = sched_getaffinity(None).context("sched_getaffinity")?;
    stay_on(cpus)?;
    let out = f();
    sched_setaffinity(None, &before).context("sched_setaffinity")?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_cpus_back() {
        let count = || sched_getaffinity(None).unwrap().count();
        let before = count();
        assert_eq!(on_cpus(&[0], count).unwrap(), 1);
        assert_eq!(count(), before);
        let e = stay_on(&[]).unwrap_err().to_string();
        assert!(e.contains("cannot use CPUs []"), "{e}");
    }
}
