//! Core types of a machine, and which CPUs are of which type.

use crate::{CoreTypeId, MAX_CORE_TYPES};
use thiserror::Error;

/// A class of identical cores.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreType {
    /// Name for people, for example `big`.
    pub name: String,
    /// Its CPUs, ascending.
    pub cpus: Vec<u32>,
    /// Capacity as the kernel defines it: 1024 for the fastest core of the machine.
    pub capacity: u32,
}

/// The cores of a machine, fastest core type first.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    core_types: Vec<CoreType>,
    /// Per core type: its physical cores, which are fewer than its CPUs where a core runs several
    /// hardware threads.
    cores: Vec<usize>,
}

/// Why a list of core types is not a topology.
#[derive(Debug, Error, PartialEq)]
pub enum TopologyError {
    /// No core type at all, or more than the tables hold.
    #[error("{0} core types: between 1 and {MAX_CORE_TYPES} are supported")]
    Count(usize),
    /// A core type that no CPU has.
    #[error("core type `{0}` has no CPU")]
    NoCpu(String),
    /// A CPU that is listed twice.
    #[error("CPU {0} belongs to more than one core type")]
    Twice(u32),
}

impl Topology {
    /// A topology of these core types, fastest first; each CPU is a core of its own.
    ///
    /// # Errors
    /// When there are none or too many, one is empty, or a CPU is listed twice.
    pub fn new(core_types: Vec<CoreType>) -> Result<Topology, TopologyError> {
        if core_types.is_empty() || core_types.len() > MAX_CORE_TYPES {
            return Err(TopologyError::Count(core_types.len()));
        }
        let mut seen = std::collections::BTreeSet::new();
        for t in &core_types {
            if t.cpus.is_empty() {
                return Err(TopologyError::NoCpu(t.name.clone()));
            }
            if let Some(cpu) = t.cpus.iter().find(|c| !seen.insert(**c)) {
                return Err(TopologyError::Twice(*cpu));
            }
        }
        let cores = core_types.iter().map(|t| t.cpus.len()).collect();
        Ok(Topology { core_types, cores })
    }

    /// The same where some CPUs are hardware threads of one core (SMT): those for which `core_of`
    /// says the same number.
    #[must_use]
    pub fn with_cores(mut self, core_of: impl Fn(u32) -> u32) -> Topology {
        let distinct = |t: &CoreType| {
            let cores = t.cpus.iter().map(|c| core_of(*c));
            cores.collect::<std::collections::BTreeSet<_>>().len()
        };
        self.cores = self.core_types.iter().map(distinct).collect();
        self
    }

    /// The core types, fastest first.
    pub fn core_types(&self) -> &[CoreType] {
        &self.core_types
    }

    /// The slowest core type, to which speedups refer.
    pub fn slowest(&self) -> CoreTypeId {
        CoreTypeId((self.core_types.len() - 1) as u8)
    }

    /// How many CPUs are of type `t` (0 for an unknown one).
    pub fn nr_cpus(&self, t: CoreTypeId) -> usize {
        self.core_types.get(t.index()).map_or(0, |c| c.cpus.len())
    }

    /// How many physical cores are of type `t` (0 for an unknown one).
    pub fn nr_cores(&self, t: CoreTypeId) -> usize {
        self.cores.get(t.index()).copied().unwrap_or(0)
    }

    /// Whether some cores run several hardware threads.
    pub fn smt(&self) -> bool {
        let mut types = self.core_types.iter().zip(&self.cores);
        types.any(|(t, cores)| *cores < t.cpus.len())
    }

    /// The seats of each core type for `threads` threads: a core is one seat while there are no more
    /// threads than cores. Beyond that the other hardware threads of the cores become seats, fast
    /// cores' first and only as many as are needed: two threads on one fast core get less done each
    /// than one on a slow core, on the hybrid machines that there are.
    pub fn seats(&self, threads: usize) -> [usize; MAX_CORE_TYPES] {
        let mut beyond = threads.saturating_sub(self.cores.iter().sum());
        let mut seats = [0; MAX_CORE_TYPES];
        for ((seats, cores), t) in seats.iter_mut().zip(&self.cores).zip(&self.core_types) {
            let more = beyond.min(t.cpus.len() - cores);
            beyond -= more;
            *seats = cores + more;
        }
        seats
    }

    /// Where each core type stands between the slowest (0) and the fastest (1), by the logarithm of
    /// its capacity; by its place in the list where all capacities are equal.
    pub fn positions(&self) -> Vec<f64> {
        let last = self.core_types.len() - 1; // a topology has at least one core type
        let capacity = |i: usize| f64::from(self.core_types[i].capacity.max(1));
        let range = (capacity(0) / capacity(last)).ln();
        let place = |i: usize| match i {
            0 => 1.0,
            i if i == last => 0.0,
            i if range > 0.0 => ((capacity(i) / capacity(last)).ln() / range).clamp(0.0, 1.0),
            i => 1.0 - i as f64 / last as f64,
        };
        (0..self.core_types.len()).map(place).collect()
    }

    /// The core type of `cpu`.
    pub fn core_type_of(&self, cpu: u32) -> Option<CoreTypeId> {
        let i = self.core_types.iter().position(|t| t.cpus.contains(&cpu))?;
        Some(CoreTypeId(i as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core_type(name: &str, cpus: &[u32]) -> CoreType {
        CoreType {
            name: name.into(),
            cpus: cpus.to_vec(),
            capacity: 1024,
        }
    }

    #[test]
    fn every_cpu_has_one_core_type() {
        let t = Topology::new(vec![core_type("big", &[0, 1]), core_type("little", &[2])]).unwrap();
        assert_eq!(t.slowest(), CoreTypeId(1));
        assert_eq!((t.nr_cpus(CoreTypeId(0)), t.nr_cpus(CoreTypeId(2))), (2, 0));
        assert_eq!(t.core_type_of(2), Some(CoreTypeId(1)));
        assert_eq!(t.core_type_of(3), None);
    }

    #[test]
    fn a_seat_is_a_core_until_there_are_more_threads_than_cores() {
        let t = Topology::new(vec![
            core_type("big", &[0, 1, 2, 3]),
            core_type("little", &[4, 5]),
        ]);
        let t = t.unwrap();
        assert_eq!(t.seats(1)[..3], [4, 2, 0], "every CPU is a core");
        assert!(!t.smt());
        let t = t.with_cores(|cpu| if cpu < 4 { cpu / 2 } else { cpu });
        assert!(t.smt());
        let cores = |t: &Topology, k| t.nr_cores(CoreTypeId(k));
        assert_eq!((cores(&t, 0), cores(&t, 1), cores(&t, 2)), (2, 2, 0));
        let seats: Vec<_> = (0..9).map(|n| [t.seats(n)[0], t.seats(n)[1]]).collect();
        let cores = [2, 2];
        let more = [[3, 2], [4, 2], [4, 2], [4, 2]];
        assert_eq!(seats[..5], [cores; 5]);
        assert_eq!(seats[5..], more);
    }

    #[test]
    fn what_is_no_topology_is_refused() {
        let refused = |types| Topology::new(types).unwrap_err();
        assert_eq!(refused(Vec::new()), TopologyError::Count(0));
        let many = (0..9).map(|i| core_type("t", &[i])).collect();
        assert_eq!(refused(many), TopologyError::Count(9));
        assert_eq!(
            refused(vec![core_type("big", &[])]),
            TopologyError::NoCpu("big".into())
        );
        let twice = vec![core_type("big", &[0, 1]), core_type("little", &[1])];
        assert_eq!(refused(twice), TopologyError::Twice(1));
    }
}
