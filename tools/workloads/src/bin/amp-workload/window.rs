//! A stretch of work, timed and counted: by perf, and by the board's own model where there is one.

use crate::counters::{Counters, Scope, What};
use crate::machine;
use crate::model::ModelTotals;
use anyhow::{Context, Result};
use serde_json::{json, Value};

/// Counters of a CPU, ready to be started; or only a clock.
pub struct Instruments {
    counters: Option<Counters>,
    model: Option<ModelTotals>,
}

/// What was measured.
pub struct Measured {
    /// From start to end.
    pub wall_ns: u64,
    /// Counts by name, or null.
    pub perf: Value,
    /// The model's totals of the CPU by name, or null.
    pub model: Value,
}

impl Instruments {
    /// Counters on `cpu`, to which the caller must have pinned itself; `None` for a clock only.
    ///
    /// # Errors
    /// When the CPU cannot be counted on.
    pub fn open(cpu: Option<u32>) -> Result<Instruments> {
        let Some(cpu) = cpu else {
            return Ok(Instruments {
                counters: None,
                model: None,
            });
        };
        let counters = Counters::open(cpu, Scope::Thread, &What::ALL).context("--count")?;
        Ok(Instruments {
            counters: Some(counters),
            model: ModelTotals::open(cpu)?,
        })
    }

    /// Measures `work`.
    ///
    /// # Errors
    /// When a counter cannot be read, or was not on the hardware all the time.
    pub fn measure<T>(mut self, work: impl FnOnce() -> T) -> Result<(T, Measured)> {
        // Perf and the model see the same stretch but for one start and one stop of the counters;
        // reading them comes later, for it costs more than that.
        if let Some(m) = &mut self.model {
            m.start()?;
        }
        if let Some(c) = &mut self.counters {
            c.start()?;
        }
        let start = machine::now_ns();
        let done = work();
        let wall_ns = machine::now_ns() - start;
        if let Some(c) = &mut self.counters {
            c.stop()?;
        }
        let model = self.model.map(|m| m.since()).transpose()?;
        let perf = match &mut self.counters {
            Some(c) => c
                .read()?
                .iter()
                .map(|(w, n)| (w.name().to_string(), json!(n)))
                .collect(),
            None => Value::Null,
        };
        Ok((
            done,
            Measured {
                wall_ns,
                perf,
                model: model.unwrap_or_default(),
            },
        ))
    }
}
