//! Energy of the CPU a program runs on, from whoever counts it.

use amp_metrics::virtual_counters::{BoardEnergy, PowerPmu, Powercap, VirtualSource};
use amp_metrics::{Nanos, Pmus, Subject};
use anyhow::Result;
use std::path::Path;

/// A source of energy: of a CPU where it measures each CPU, else of the whole machine.
pub struct Meter(Option<Box<dyn VirtualSource>>);

impl Meter {
    /// The most detailed source of this machine, if there is one: the board's page, else RAPL.
    pub fn open(pmus: &Pmus) -> Meter {
        let sysfs = Path::new("/sys");
        let boxed = |s| Box::new(s) as Box<dyn VirtualSource>;
        let board = BoardEnergy::open(sysfs).ok().map(boxed);
        let powercap = || Powercap::open(&sysfs.join("class/powercap")).ok();
        let perf = || PowerPmu::open(sysfs, pmus).ok();
        Meter(
            board
                .or_else(|| powercap().map(|s| Box::new(s) as _))
                .or_else(|| perf().map(|s| Box::new(s) as _)),
        )
    }

    /// Its name.
    pub fn name(&self) -> Option<&'static str> {
        self.0.as_ref().map(|s| s.name())
    }

    /// Joules of `cpu` since the last call; 0 at the first one. `None` without a source.
    ///
    /// # Errors
    /// When the source can no longer be read.
    pub fn joules(&mut self, cpu: u32) -> Result<Option<f64>> {
        let Some(source) = &mut self.0 else {
            return Ok(None);
        };
        let mut readings = Vec::new();
        source.sample(Nanos(amp_host::clock::now().0), &[], &mut readings)?;
        let of = |subject: Subject| readings.iter().find(|r| r.of == subject).map(|r| r.value);
        let value = of(Subject::Cpu(cpu)).or_else(|| of(Subject::Machine));
        Ok(Some(value.unwrap_or(0.0)))
    }
}
