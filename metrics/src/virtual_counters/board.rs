//! Energy of the virtual board, from its state page.

use super::{VirtualError, VirtualSource};
use crate::ids::{CoreTypeId, Nanos, MAX_CORE_TYPES};
use crate::sample::{Subject, ThreadSample, VirtualCounter, VirtualReading};
use amp_machine::page::Page;
use std::path::Path;

/// Energy per CPU and per core type, static power included.
#[derive(Debug)]
pub struct BoardEnergy {
    page: Page,
    last: Vec<u64>,
    at: Option<Nanos>,
}

impl BoardEnergy {
    /// Opens the page of the board this guest runs on.
    ///
    /// # Errors
    /// When this is no guest of the board, or the page cannot be read (that needs root).
    pub fn open(sysfs: &Path) -> Result<BoardEnergy, VirtualError> {
        Ok(BoardEnergy {
            page: Page::open_under(sysfs)?,
            last: Vec::new(),
            at: None,
        })
    }
}

impl VirtualSource for BoardEnergy {
    fn name(&self) -> &'static str {
        "board"
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
        let cpus = self.page.snapshot()?.cpus;
        if let Some(at) = self.at {
            let over = now.saturating_sub(at);
            let mut push = |of, micro: u64| {
                out.push(VirtualReading {
                    counter: VirtualCounter::Energy,
                    of,
                    value: micro as f64 * 1e-6,
                    over,
                });
            };
            let mut by_type = [None; MAX_CORE_TYPES];
            for (c, last) in cpus.iter().zip(&self.last) {
                let micro = c.energy_uj.saturating_sub(*last);
                push(Subject::Cpu(c.cpu), micro);
                if let Some(sum) = by_type.get_mut(c.core_type as usize) {
                    *sum = Some(sum.unwrap_or(0) + micro);
                }
            }
            for (t, micro) in by_type.iter().enumerate() {
                if let Some(micro) = micro {
                    push(Subject::CoreType(CoreTypeId(t as u8)), *micro);
                }
            }
        }
        self.last.clear();
        self.last.extend(cpus.iter().map(|c| c.energy_uj));
        self.at = Some(now);
        Ok(())
    }
}
