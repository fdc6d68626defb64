//! What the machine did while something ran: instructions and energy, where it says so.

use amp_machine::page::{publish_hint, Page, Total};
use anyhow::{Context, Result};

/// Instructions and energy of the whole machine since it started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts {
    /// Retired instructions.
    pub instructions: f64,
    /// Energy in joules.
    pub energy_j: f64,
}

/// The board's state page, on a machine that is the virtual board.
pub struct Meter(Option<Page>);

impl Meter {
    /// The meter of this machine; one that shows nothing where there is no board.
    pub fn open() -> Meter {
        Meter(Page::open().ok())
    }

    /// Whether this machine is the virtual board, whose clock is virtual.
    pub fn is_board(&self) -> bool {
        self.0.is_some()
    }

    /// The present counts; `None` where nobody counts.
    ///
    /// # Errors
    /// When the page is there but cannot be read.
    pub fn read(&self) -> Result<Option<Counts>> {
        let Some(page) = &self.0 else { return Ok(None) };
        publish_hint();
        let s = page.snapshot().context("the board's state page")?;
        let instructions: u64 = s.cpus.iter().map(|c| c.total(Total::Instructions)).sum();
        Ok(Some(Counts {
            instructions: instructions as f64,
            energy_j: s.energy_uj() as f64 * 1e-6,
        }))
    }
}

impl Counts {
    /// What was added since `before`.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            instructions: self.instructions - before.instructions,
            energy_j: self.energy_j - before.energy_j,
        }
    }
}
