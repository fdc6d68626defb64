//! Instructions of the whole machine: from the board's own totals when there are any, else from
//! perf.

use crate::counters::{Counters, Scope, What};
use crate::machine;
use amp_machine::page::{Page, Total};
use anyhow::{Context, Result};

/// Something that knows how many instructions all CPUs have retired, in user and kernel mode.
pub enum Meter {
    /// The board's state page.
    Board(Page),
    /// One counter per CPU.
    Perf(Vec<Counters>),
    /// No counters.
    None,
}

impl Meter {
    /// The best there is. Falling back to nothing is no error: the time alone is still a result.
    pub fn open() -> Meter {
        if let Ok(page) = Page::open() {
            return Meter::Board(page);
        }
        let cpus = machine::online_cpus();
        let open = || -> Result<Vec<Counters>> {
            let mut all = Vec::new();
            for cpu in cpus {
                let mut c = Counters::open(cpu, Scope::Cpu, &[What::Instructions])?;
                c.start()?;
                all.push(c);
            }
            Ok(all)
        };
        match open() {
            Ok(c) if !c.is_empty() => Meter::Perf(c),
            _ => Meter::None,
        }
    }

    /// Where the counts come from, for the output.
    pub fn source(&self) -> Option<&'static str> {
        match self {
            Meter::Board(_) => Some("board"),
            Meter::Perf(_) => Some("perf"),
            Meter::None => None,
        }
    }

    /// Instructions since the meter was opened, or since boot.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn instructions(&mut self) -> Result<Option<u64>> {
        match self {
            Meter::Board(page) => {
                let cpus = page.snapshot().context("the board's state page")?.cpus;
                Ok(Some(
                    cpus.iter().map(|c| c.total(Total::Instructions)).sum(),
                ))
            }
            Meter::Perf(all) => {
                let mut sum = 0;
                for c in all {
                    sum += c.read()?.first().context("no counter")?.1;
                }
                Ok(Some(sum))
            }
            Meter::None => Ok(None),
        }
    }
}

/// Time and instructions between two moments.
pub struct Window {
    meter: Meter,
    instructions: Option<u64>,
    ns: u64,
}

/// Counts and times of a [`Window`].
pub struct Passed {
    /// Virtual time on the board.
    pub ns: u64,
    /// Instructions of all CPUs.
    pub instructions: Option<u64>,
    /// Source of the counts.
    pub source: Option<&'static str>,
}

impl Window {
    /// Starts now.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn start(mut meter: Meter) -> Result<Window> {
        let instructions = meter.instructions()?;
        Ok(Window {
            meter,
            instructions,
            ns: machine::now_ns(),
        })
    }

    /// Ends now.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn end(mut self) -> Result<Passed> {
        let ns = machine::now_ns() - self.ns;
        let now = self.meter.instructions()?;
        let instructions = now.zip(self.instructions).map(|(b, a)| b - a);
        Ok(Passed {
            ns,
            instructions,
            source: self.meter.source(),
        })
    }
}

impl Passed {
    /// `ns_per_op`, `instructions_per_op` and their source, for `operations` operations.
    pub fn per_operation(&self, operations: u64) -> serde_json::Value {
        let n = operations.max(1) as f64;
        serde_json::json!({
            "operations": operations,
            "wall_ns": self.ns,
            "ns_per_op": self.ns as f64 / n,
            "instructions": self.instructions,
            "instructions_per_op": self.instructions.map(|i| i as f64 / n),
            "instructions_source": self.source,
        })
    }
}
