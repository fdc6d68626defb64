//! What the machine did while something ran: instructions and energy, where it says so.
//!
//! The virtual board tells both on its state page. On other machines energy comes from hwmon or
//! RAPL; instructions are counted on every CPU then, since energy-delay is energy × time /
//! instructions.

use amp_host::clock;
use amp_machine::page::{publish_hint, Page, Total};
use amp_metrics::perf::OpenSet;
use amp_metrics::virtual_counters::EnergyMeter;
use amp_metrics::{EventSet, EventSpec};
use amp_pmc::CounterInventory;
use anyhow::{Context, Result};

/// Instructions and energy of the whole machine since a point in time that is the same for all
/// readings of a meter; none where nobody counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Retired instructions.
    pub instructions: Option<f64>,
    /// Energy in joules.
    pub energy_j: Option<f64>,
    /// The same without what idle CPUs draw, on the board, which tells that apart; else the same.
    pub working_j: Option<f64>,
}

/// Counts what the whole machine does.
pub struct Meter {
    board: Option<Page>,
    energy: EnergyMeter,
    /// Instructions on the CPUs of each core type; empty where they are not counted.
    instructions: Vec<OpenSet>,
}

impl Meter {
    /// The meter of this machine; it shows what there is.
    pub fn open(inventory: &CounterInventory) -> Meter {
        let board = Page::open().ok();
        let energy = EnergyMeter::of(inventory.energy_sources());
        if let (None, Some(source), true) = (&board, energy.name(), energy.is_estimate()) {
            log::warn!("energy is an estimate by {source}, from clocks and busy time: no sensor of this machine is known");
        }
        let instructions = match (&board, energy.name()) {
            (None, Some(source)) => match instructions(inventory) {
                Ok(sets) => sets,
                Err(e) => {
                    log::warn!("{source} tells energy, but no instructions are counted, so there is no EDP: {e:#}");
                    Vec::new()
                }
            },
            _ => Vec::new(),
        };
        Meter {
            board,
            energy,
            instructions,
        }
    }

    /// Whether this machine is the virtual board, whose clock is virtual.
    pub fn is_board(&self) -> bool {
        self.board.is_some()
    }

    /// Whether there is a source of energy.
    pub fn tells_energy(&self) -> bool {
        self.board.is_some() || self.energy.name().is_some()
    }

    /// Ends an interval of the energy source: due every second or so while something runs.
    ///
    /// # Errors
    /// When the source can no longer be read.
    pub fn interval(&mut self) -> Result<()> {
        match self.board {
            Some(_) => Ok(()),
            None => Ok(self.energy.sample(clock::now())?),
        }
    }

    /// The present counts.
    ///
    /// # Errors
    /// When what was there at the start cannot be read.
    pub fn read(&mut self) -> Result<Counts> {
        if let Some(page) = &self.board {
            publish_hint();
            let s = page.snapshot().context("the board's state page")?;
            let all = s.cpus.iter().map(|c| c.total(Total::Instructions));
            return Ok(Counts {
                instructions: Some(all.sum::<u64>() as f64),
                energy_j: Some(s.energy_uj() as f64 * 1e-6),
                working_j: Some(s.working_uj() as f64 * 1e-6),
            });
        }
        self.interval()?;
        let mut sum = 0;
        for set in &mut self.instructions {
            let cpus = set.read().context("instructions of the machine")?;
            sum += cpus.iter().flat_map(|c| &c.counts).sum::<u64>();
        }
        Ok(Counts {
            instructions: (!self.instructions.is_empty()).then_some(sum as f64),
            energy_j: self.energy.total_j(),
            working_j: self.energy.total_j(),
        })
    }
}

/// Counters of instructions on every CPU.
fn instructions(inventory: &CounterInventory) -> Result<Vec<OpenSet>> {
    inventory.need_pmu()?;
    let spec: EventSpec = "instructions".parse()?;
    let open = |t| {
        let event = inventory.pmus.resolve(t, &spec)?;
        let events = vec![event];
        Ok(OpenSet::open(&EventSet { events }, &inventory.cpus(t))?)
    };
    inventory.pmus.core_types().map(open).collect()
}

impl Counts {
    /// What was added since `before`.
    pub fn since(self, before: Counts) -> Counts {
        let added = |now: Option<f64>, then: Option<f64>| Some(now? - then?);
        Counts {
            instructions: added(self.instructions, before.instructions),
            energy_j: added(self.energy_j, before.energy_j),
            working_j: added(self.working_j, before.working_j),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::{CoreType, Topology};
    use std::path::Path;

    fn inventory(root: &Path) -> CounterInventory {
        let core = |name: &str, cpus: &[u32], capacity| CoreType {
            name: name.into(),
            cpus: cpus.to_vec(),
            capacity,
        };
        let types = vec![core("big", &[0], 1024), core("little", &[1], 400)];
        CounterInventory::under(root, &Topology::new(types).unwrap(), None).unwrap()
    }

    #[test]
    fn energy_of_a_host_is_that_of_its_packages() {
        let dir = tempfile::tempdir().unwrap();
        let zone = dir.path().join("sys/class/powercap/intel-rapl:0");
        std::fs::create_dir_all(&zone).unwrap();
        let write = |name: &str, text: &str| std::fs::write(zone.join(name), text).unwrap();
        write("name", "package-0\n");
        write("max_energy_range_uj", "1000000000\n");
        write("energy_uj", "1000000\n");
        let mut meter = Meter::open(&inventory(dir.path()));
        assert!(!meter.is_board());
        let before = meter.read().unwrap();
        write("energy_uj", "3000000\n");
        meter.interval().unwrap();
        write("energy_uj", "4500000\n");
        let added = meter.read().unwrap().since(before);
        assert_eq!(added.energy_j, Some(3.5));
        assert_eq!(added.working_j, added.energy_j);
        assert!(meter.tells_energy());
        // the fake tree has no PMU: no instructions are made up
        assert_eq!(added.instructions, None);
        write("energy_uj", "x\n");
        let e = format!("{:#}", meter.read().unwrap_err());
        assert!(e.contains("energy_uj"), "{e}");
    }

    #[test]
    fn where_nobody_counts_there_are_no_figures() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sys")).unwrap();
        let mut meter = Meter::open(&inventory(dir.path()));
        let before = meter.read().unwrap();
        assert_eq!(meter.read().unwrap().since(before), Counts::default());
    }
}
