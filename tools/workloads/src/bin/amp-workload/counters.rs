//! Hardware counters through perf, on the PMU of the right core type.
//!
//! On a machine with several core types each has a PMU device of its own, and an event opened on
//! the wrong one never counts. The device whose `cpus` file lists the CPU is the right one.

use amp_machine::CpuList;
use anyhow::{bail, Context, Result};
use perf_event::events::Event;
use perf_event::{Builder, Counter, ReadFormat};
use perf_event_open_sys::bindings::perf_event_attr;
use std::path::Path;

/// Where the kernel lists its PMUs.
const DEVICES: &str = "/sys/bus/event_source/devices";

/// What is counted. The names are those of the JSON output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Retired instructions.
    Instructions,
    /// Core cycles.
    Cycles,
    /// Lines brought into the L1 data cache.
    L1dRefills,
    /// Lines brought into the L2 cache.
    L2Refills,
    /// Mispredicted branches.
    BranchMisses,
}

impl What {
    /// Everything, in the order of the output.
    pub const ALL: [What; 5] = [
        What::Instructions,
        What::Cycles,
        What::L1dRefills,
        What::L2Refills,
        What::BranchMisses,
    ];

    /// Name in the output.
    pub fn name(self) -> &'static str {
        match self {
            What::Instructions => "instructions",
            What::Cycles => "cycles",
            What::L1dRefills => "l1d_refills",
            What::L2Refills => "l2_refills",
            What::BranchMisses => "branch_misses",
        }
    }

    /// Event number in the Arm architecture's common event space (PMUv3: INST_RETIRED, CPU_CYCLES,
    /// L1D_CACHE_REFILL, L2D_CACHE_REFILL, BR_MIS_PRED).
    #[cfg(target_arch = "aarch64")]
    fn event(self, pmu: u32) -> Option<PmuEvent> {
        let config = match self {
            What::Instructions => 0x08,
            What::Cycles => 0x11,
            What::L1dRefills => 0x03,
            What::L2Refills => 0x17,
            What::BranchMisses => 0x10,
        };
        Some(PmuEvent { pmu, config })
    }

    /// The kernel's generic events (type and number of `perf_event.h`); on a hybrid the PMU's type
    /// goes into the upper half of the number. No generic event counts L2 refills.
    #[cfg(not(target_arch = "aarch64"))]
    fn event(self, pmu: u32) -> Option<PmuEvent> {
        const HARDWARE: u32 = 0;
        const CACHE: u32 = 3;
        /// Type of the only PMU of a machine with one core type.
        const RAW: u32 = 4;
        let (kind, config) = match self {
            What::Cycles => (HARDWARE, 0),
            What::Instructions => (HARDWARE, 1),
            What::BranchMisses => (HARDWARE, 5),
            // L1 data cache, read, miss
            What::L1dRefills => (CACHE, 0x1_0000),
            What::L2Refills => return None,
        };
        let upper = if pmu == RAW { 0 } else { u64::from(pmu) << 32 };
        Some(PmuEvent {
            pmu: kind,
            config: config | upper,
        })
    }
}

/// An event by its number on a PMU by its type.
#[derive(Clone, Copy, Debug)]
struct PmuEvent {
    pmu: u32,
    config: u64,
}

impl Event for PmuEvent {
    fn update_attrs(self, attr: &mut perf_event_attr) {
        attr.type_ = self.pmu;
        attr.config = self.config;
    }
}

/// Type number of the PMU that counts on `cpu`.
fn pmu_of(devices: &Path, cpu: u32) -> Result<u32> {
    let kind = |dir: &Path| -> Result<u32> {
        let path = dir.join("type");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        text.trim()
            .parse()
            .with_context(|| format!("{}: not a number", path.display()))
    };
    let dirs = std::fs::read_dir(devices)
        .with_context(|| format!("{}: no perf events in this kernel?", devices.display()))?;
    for dir in dirs.flatten().map(|d| d.path()) {
        // only PMUs of cores have this file; uncore ones have `cpumask`
        let Ok(text) = std::fs::read_to_string(dir.join("cpus")) else {
            continue;
        };
        if text
            .trim()
            .parse::<CpuList>()
            .is_ok_and(|l| l.0.contains(&cpu))
        {
            return kind(&dir);
        }
    }
    let only = devices.join("cpu");
    if only.exists() {
        return kind(&only);
    }
    bail!(
        "CPU {cpu} has no PMU that perf knows (none under {} lists it)",
        devices.display()
    )
}

/// Target of a set of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The calling thread and those it starts, while on CPUs of the PMU.
    Thread,
    /// The CPU, whoever runs.
    Cpu,
}

/// Counters of user and kernel mode, stopped at first. They are one group: on the hardware together
/// or not at all, and started and stopped by one system call, so that they cover the same window.
pub struct Counters(Vec<(What, Counter)>);

impl Counters {
    /// Opens a counter for each of `what` on the PMU of `cpu`, leaving out what the architecture
    /// cannot name.
    ///
    /// # Errors
    /// When the CPU has no PMU or the kernel refuses; the error names the event.
    pub fn open(cpu: u32, scope: Scope, what: &[What]) -> Result<Counters> {
        let pmu = pmu_of(Path::new(DEVICES), cpu)?;
        let mut counters: Vec<(What, Counter)> = Vec::new();
        for w in what {
            let Some(event) = w.event(pmu) else { continue };
            let mut b = Builder::new(event);
            b.exclude_kernel(false).exclude_hv(false);
            // times are read so that multiplexing shows
            b.read_format(ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING);
            match scope {
                Scope::Thread => b.observe_self().any_cpu().inherit(true),
                Scope::Cpu => b.any_pid().one_cpu(cpu as usize),
            };
            let built = match counters.first_mut() {
                None => b.build(),
                // members follow their leader, which starts stopped
                Some((_, leader)) => b.enabled(true).build_with_group(leader),
            };
            let c = built.with_context(|| {
                format!(
                    "{} on CPU {cpu} (PMU type {pmu}): root, or perf_event_paranoid ≤ 0?",
                    w.name()
                )
            })?;
            counters.push((*w, c));
        }
        Ok(Counters(counters))
    }

    /// Starts them all.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(&mut self) -> Result<()> {
        match self.0.first_mut() {
            Some((w, leader)) => leader.enable().with_context(|| w.name()),
            None => Ok(()),
        }
    }

    /// Stops them all.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn stop(&mut self) -> Result<()> {
        match self.0.first_mut() {
            Some((w, leader)) => leader.disable().with_context(|| w.name()),
            None => Ok(()),
        }
    }

    /// The counts.
    ///
    /// # Errors
    /// When one was not on the hardware all the time it was enabled: there is no honest count then.
    pub fn read(&mut self) -> Result<Vec<(What, u64)>> {
        let mut out = Vec::new();
        for (w, c) in &mut self.0 {
            let v = c.read_full().with_context(|| w.name())?;
            if v.time_enabled() != v.time_running() {
                bail!(
                    "{} was on the PMU for {:?} of {:?} only: too many events, or the thread left its core type",
                    w.name(),
                    v.time_running().unwrap_or_default(),
                    v.time_enabled().unwrap_or_default()
                );
            }
            out.push((*w, v.count()));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let d = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let p = d.path().join(name);
            std::fs::create_dir_all(p.parent().unwrap()).unwrap();
            std::fs::write(p, text).unwrap();
        }
        d
    }

    #[test]
    fn the_pmu_that_lists_the_cpu_is_taken() {
        let d = tree(&[
            ("armv8_cortex_a57/type", "10\n"),
            ("armv8_cortex_a57/cpus", "0-1\n"),
            ("armv8_cortex_a53/type", "9\n"),
            ("armv8_cortex_a53/cpus", "2-5\n"),
            ("uncore_imc/type", "20\n"),
            ("uncore_imc/cpumask", "0\n"),
        ]);
        assert_eq!(pmu_of(d.path(), 1).unwrap(), 10);
        assert_eq!(pmu_of(d.path(), 4).unwrap(), 9);
        let e = pmu_of(d.path(), 6).unwrap_err().to_string();
        assert!(e.contains("CPU 6"), "{e}");
    }

    #[test]
    fn a_machine_with_one_core_type_has_one_pmu() {
        let d = tree(&[("cpu/type", "4\n"), ("software/type", "1\n")]);
        assert_eq!(pmu_of(d.path(), 3).unwrap(), 4);
    }

    #[test]
    fn a_type_that_is_no_number_names_the_file() {
        let d = tree(&[("cpu/type", "x\n")]);
        assert!(pmu_of(d.path(), 0)
            .unwrap_err()
            .to_string()
            .contains("cpu/type"));
    }
}
