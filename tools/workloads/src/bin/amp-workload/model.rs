//! The virtual board's own totals of a CPU: what its counters ought to have counted.

use crate::counters::What;
use crate::machine;
use amp_machine::page::{publish_hint, CpuTotals, Page, PageError, Total};
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

    /// Counts from now. The caller must run on the CPU in question: only then are its totals up to
    /// date.
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

/// Totals by the names of the events that count the same.
const EVENTS: [(&str, Total); 9] = [
    ("inst_retired", Total::Instructions),
    ("cpu_cycles", Total::Cycles),
    ("l1d_cache", Total::L1dAccess),
    ("l1d_cache_refill", Total::L1dRefill),
    ("l2d_cache", Total::L2Access),
    ("l2d_cache_refill", Total::L2Refill),
    ("br_retired", Total::Branches),
    ("br_mis_pred", Total::Mispredicts),
    ("st_retired", Total::Stores),
];

/// What a CPU does in user mode from a moment on, whoever runs there.
pub struct UserTotals {
    page: Page,
    cpu: u32,
    from: CpuTotals,
}

impl UserTotals {
    /// Counts on `cpu` from now. The caller visits it, for only there its totals are up to date,
    /// and stays.
    ///
    /// # Errors
    /// When there is no such CPU, or no page.
    pub fn start(cpu: u32) -> Result<UserTotals> {
        let page = Page::open().context("the board's state page")?;
        machine::pin(cpu)?;
        publish_hint();
        let from = page.cpu(cpu).context("the board's state page")?;
        Ok(UserTotals { page, cpu, from })
    }

    /// What there was since, by event. The caller visits the CPU and stays.
    ///
    /// # Errors
    /// When the page cannot be read.
    pub fn since(self) -> Result<Value> {
        machine::pin(self.cpu)?;
        publish_hint();
        let now = self.page.cpu(self.cpu)?;
        let user = |t| now.split(t).user.wrapping_sub(self.from.split(t).user);
        let all = EVENTS
            .iter()
            .map(|(name, t)| ((*name).to_owned(), json!(user(*t))));
        Ok(Value::Object(all.collect()))
    }
}
