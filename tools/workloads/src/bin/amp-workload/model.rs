//! The virtual board's own totals of a CPU: what its counters ought to have counted.

use crate::counters::What;
use amp_machine::page::{CpuTotals, Page, PageError, Total};
use anyhow::{Context, Result};
use serde_json::{json, Map, Value};

/// Totals of one CPU, user and kernel, from a moment on.
pub struct ModelTotals {
    page: Page,
    cpu: u32,
    from: CpuTotals,
}

impl ModelTotals {
    /// Opens the state page; `None` on a machine that is not the board.
    ///
    /// # Errors
    /// When there is a page that cannot be read.
    pub fn open(cpu: u32) -> Result<Option<ModelTotals>> {
        match Page::open() {
            Ok(page) => {
                let from = page.cpu(cpu).context("the board's state page")?;
                Ok(Some(ModelTotals { page, cpu, from }))
            }
            Err(PageError::NoBoard { .. }) => Ok(None),
            Err(e) => Err(e).context("the board's state page"),
        }
    }

    /// Counts from now. The caller must run on the CPU in question: only then are its totals up to date.
    ///
    /// # Errors
    /// When the page cannot be read.
    pub fn start(&mut self) -> Result<()> {
        self.from = self.page.cpu(self.cpu)?;
        Ok(())
    }

    /// What has been counted since, under the names that the counters have.
    ///
    /// # Errors
    /// When the page cannot be read.
    pub fn since(&self) -> Result<Value> {
        let now = self.page.cpu(self.cpu)?;
        let mut all: Map<String, Value> = What::ALL
            .iter()
            .map(|w| {
                let t = match w {
                    What::Instructions => Total::Instructions,
                    What::Cycles => Total::Cycles,
                    What::L1dRefills => Total::L1dRefill,
                    What::L2Refills => Total::L2Refill,
                    What::BranchMisses => Total::Mispredicts,
                };
                (
                    w.name().to_string(),
                    json!(now.total(t).wrapping_sub(self.from.total(t))),
                )
            })
            .collect();
        all.insert(
            "energy_uj".into(),
            json!(now.energy_uj.saturating_sub(self.from.energy_uj)),
        );
        Ok(Value::Object(all))
    }
}
