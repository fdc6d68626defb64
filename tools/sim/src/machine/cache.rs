//! Shared caches: what running threads cost each other.
//!
//! The cores of a type share one cache, as on the virtual board. Threads that run there and want more
//! together than there is have it in proportion to what they want ([`CacheUse::slowdown`]). Memory's
//! rate is not modelled, nor that a cache takes time to fill.

use super::SimMachine;
use crate::scenario::SimApp;
use amp_eval::workload::CacheUse;
use amp_machine::MachineFile;

/// Size in KiB of the cache that the cores of each type share; none without a model of it, and none
/// at all when no application wants any.
pub(super) fn sizes(machine: &MachineFile, apps: &[SimApp]) -> Vec<Option<f64>> {
    let wanted = apps
        .iter()
        .flat_map(|a| &a.phases)
        .any(|p| p.cache.is_some());
    let size = |t: &amp_machine::CoreType| {
        let model = t.model.as_ref().filter(|_| wanted)?;
        Some(f64::from(model.l2.size_kib))
    };
    machine.core_types.iter().map(size).collect()
}

impl SimMachine {
    /// Shares the cache of core type `ty` anew: who runs there, or what they do, has changed.
    pub(super) fn share_cache(&mut self, ty: usize) {
        let Some(size) = self.caches[ty] else { return };
        let cpus = self.by_type[ty].clone();
        let wanted = cpus.clone().filter_map(|cpu| self.cache_use(cpu));
        let wanted: f64 = wanted.map(|u| u.kib).sum();
        for cpu in cpus {
            let slowdown = self
                .cache_use(cpu)
                .map_or(1.0, |u| u.slowdown(size, wanted));
            if slowdown.to_bits() == self.cpus[cpu].slowdown.to_bits() {
                continue;
            }
            // up to now it went on as before
            self.settle(cpu);
            self.cpus[cpu].slowdown = slowdown;
            if self.cpus[cpu].running.is_some() {
                self.arm(cpu);
            }
        }
    }

    /// What the thread on `cpu`, if there is one, wants of the cache.
    fn cache_use(&self, cpu: usize) -> Option<CacheUse> {
        let t = &self.threads[self.cpus[cpu].running? as usize];
        self.apps[t.app].spec.phases.get(t.phase)?.cache
    }
}
