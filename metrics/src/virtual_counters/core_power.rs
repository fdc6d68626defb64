//! Energy of single cores: perf's `power_core` PMU (AMD, from Linux 6.15 on).

use super::energy::EnergyEvent;
use super::{VirtualError, VirtualSource};
use crate::ids::{CoreTypeId, Nanos};
use crate::pmu::Pmus;
use crate::sample::{Subject, ThreadSample, VirtualCounter, VirtualReading};
use std::path::Path;

/// The energy of the cores of each core type, without the caches and memory controllers that they
/// share.
#[derive(Debug)]
pub struct CorePower {
    energy: EnergyEvent,
    /// Core type of each CPU that a core is read on.
    types: Vec<(u32, CoreTypeId)>,
    /// Counts of each core type at the last sample.
    last: Vec<u64>,
    at: Option<Nanos>,
}

impl CorePower {
    /// Opens `power_core/energy-core/` on every core.
    ///
    /// # Errors
    /// When there is no such PMU, the kernel refuses, or the machine has one core type: the whole
    /// package says more of that.
    pub fn open(sysfs: &Path, pmus: &Pmus) -> Result<CorePower, VirtualError> {
        const PMU: &str = "power_core";
        const WHAT: &str = "energy of cores (perf)";
        if pmus.core_types().count() == 1 {
            return Err(VirtualError::None {
                what: WHAT,
                reason: "the machine has one core type".to_owned(),
            });
        }
        let energy = EnergyEvent::open(sysfs, pmus, (PMU, "energy-core"), WHAT)?;
        let cpus = pmus.by_name(PMU).map_or(&[][..], |p| &p.cpus);
        Ok(CorePower {
            energy,
            types: types(pmus, cpus),
            last: Vec::new(),
            at: None,
        })
    }
}

/// The core type of each of `cpus` that is of one.
fn types(pmus: &Pmus, cpus: &[u32]) -> Vec<(u32, CoreTypeId)> {
    let of = |cpu: &u32| {
        let mut all = pmus.core_types();
        let own = all.find(|t| pmus.cpus_of(*t).contains(cpu))?;
        Some((*cpu, own))
    };
    cpus.iter().filter_map(of).collect()
}

/// Sums of the counts of CPUs by their core types.
fn sums(counts: impl Iterator<Item = (u32, u64)>, types: &[(u32, CoreTypeId)]) -> Vec<u64> {
    let number = types.iter().map(|(_, t)| t.index() + 1).max().unwrap_or(0);
    let mut out = vec![0u64; number];
    for (cpu, count) in counts {
        let own = types.iter().find(|(c, _)| *c == cpu);
        if let Some(sum) = own.and_then(|(_, t)| out.get_mut(t.index())) {
            *sum = sum.saturating_add(count);
        }
    }
    out
}

impl VirtualSource for CorePower {
    fn name(&self) -> &'static str {
        "rapl-cores"
    }

    fn by_core_type(&self) -> bool {
        true
    }

    fn sample(
        &mut self,
        now: Nanos,
        _threads: &[ThreadSample],
        out: &mut Vec<VirtualReading>,
    ) -> Result<(), VirtualError> {
        let counts = self.energy.set.read()?;
        let each = counts.iter().map(|c| (c.cpu, c.counts.iter().sum()));
        let total = sums(each, &self.types);
        if let Some(at) = self.at {
            for (t, (now_at, before)) in total.iter().zip(&self.last).enumerate() {
                out.push(VirtualReading {
                    counter: VirtualCounter::Energy,
                    of: Subject::CoreType(CoreTypeId(t as u8)),
                    value: now_at.saturating_sub(*before) as f64 * self.energy.scale,
                    over: now.saturating_sub(at),
                });
            }
        }
        (self.last, self.at) = (total, Some(now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_summed_up_by_their_type() {
        let types = [(0, CoreTypeId(0)), (2, CoreTypeId(0)), (4, CoreTypeId(1))];
        let counts = [(0, 5), (2, 7), (4, 11), (9, 1000)];
        assert_eq!(sums(counts.into_iter(), &types), [12, 11]);
        assert!(sums(counts.into_iter(), &[]).is_empty());
    }

    #[test]
    fn a_machine_without_says_so() {
        let e = CorePower::open(Path::new("/nowhere"), &Pmus::none());
        let e = e.unwrap_err().to_string();
        assert!(e.contains("`power_core`"), "{e}");
    }
}
