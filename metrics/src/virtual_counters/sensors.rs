//! Sensors of core types: files of energy or power, told by their labels.

use super::{number, VirtualError};
use crate::ids::{CoreTypeId, Nanos};
use crate::sample::{Subject, VirtualCounter, VirtualReading};
use std::path::PathBuf;

#[derive(Debug)]
struct Sensor {
    file: PathBuf,
    /// Cumulative energy in microjoules, else power in microwatts.
    energy: bool,
    of: CoreTypeId,
    last: u64,
}

/// One sensor for each core type that has any. Energy is read as it is; power is taken as constant at
/// the mean of its values at both ends of the interval.
#[derive(Debug, Default)]
pub(super) struct Sensors {
    sensors: Vec<Sensor>,
    at: Option<Nanos>,
}

impl Sensors {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sensors.is_empty()
    }

    /// Adds the sensor in `file` to the core type whose text is in `label` (in any case). One that is no
    /// core type's is left out, and so is a second one of the same.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn add(
        &mut self,
        file: PathBuf,
        label: &str,
        labels: &[(String, CoreTypeId)],
        energy: bool,
    ) -> Result<(), VirtualError> {
        let label = label.to_lowercase();
        let mut matching = labels.iter();
        let matching = matching.find(|(text, _)| label.contains(&text.to_lowercase()));
        let Some((_, of)) = matching else {
            return Ok(());
        };
        if self.sensors.iter().all(|s| s.of != *of) {
            self.sensors.push(Sensor {
                last: number(&file)?,
                file,
                energy,
                of: *of,
            });
        }
        Ok(())
    }

    /// Adds the energy of each core type since the last call, at time `now`; none the first time.
    ///
    /// # Errors
    /// When one cannot be read; nothing has changed then.
    pub fn sample(
        &mut self,
        now: Nanos,
        out: &mut Vec<VirtualReading>,
    ) -> Result<(), VirtualError> {
        let over = self.at.map(|at| now.saturating_sub(at));
        let values = self.sensors.iter().map(|s| number(&s.file));
        let values: Vec<u64> = values.collect::<Result<_, _>>()?;
        for (s, value) in self.sensors.iter_mut().zip(values) {
            if let Some(over) = over {
                let micro = if s.energy {
                    // the counter of a driver that was loaded anew starts from 0
                    value.saturating_sub(s.last) as f64
                } else {
                    (value as f64 + s.last as f64) / 2.0 * over.as_secs_f64()
                };
                out.push(VirtualReading {
                    counter: VirtualCounter::Energy,
                    of: Subject::CoreType(s.of),
                    value: micro * 1e-6,
                    over,
                });
            }
            s.last = value;
        }
        self.at = Some(now);
        Ok(())
    }
}
