//! Energy and power sensors below `/sys/class/hwmon`.

use super::sensors::Sensors;
use super::{folders, read, VirtualError, VirtualSource};
use crate::ids::{CoreTypeId, Nanos};
use crate::sample::{ThreadSample, VirtualReading};
use std::path::Path;

/// Sensors of core types, told by their labels. Energy sensors are read as they are; power is taken
/// as constant at the mean of its values at both ends of the interval.
#[derive(Debug)]
pub struct Hwmon(Sensors);

impl Hwmon {
    /// Opens the sensors below `class` whose label contains one of `labels` (in any case). Where a
    /// core type has both an energy and a power sensor, energy is taken.
    ///
    /// # Errors
    /// When there is none, or one cannot be read.
    pub fn open(class: &Path, labels: &[(String, CoreTypeId)]) -> Result<Hwmon, VirtualError> {
        let mut sensors = Sensors::default();
        for dir in folders(class) {
            let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            let mut names: Vec<String> = entries
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .collect();
            // `energy…` before `power…`
            names.sort();
            for name in names {
                let energy = name.starts_with("energy");
                let Some(stem) = name
                    .strip_suffix("_input")
                    .filter(|n| energy || n.starts_with("power"))
                else {
                    continue;
                };
                // a sensor without a label is nobody's
                let Ok(label) = read(&dir.join(format!("{stem}_label"))) else {
                    continue;
                };
                sensors.add(dir.join(&name), &label, labels, energy)?;
            }
        }
        if sensors.is_empty() {
            return Err(VirtualError::None {
                what: "hwmon",
                reason: format!(
                    "no energy or power sensor of a core type under {}",
                    class.display()
                ),
            });
        }
        Ok(Hwmon(sensors))
    }
}

impl VirtualSource for Hwmon {
    fn name(&self) -> &'static str {
        "hwmon"
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
        self.0.sample(now, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Subject;

    #[test]
    fn sensors_by_label_energy_before_power() {
        let d = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let p = d.path().join("hwmon0").join(name);
            std::fs::create_dir_all(p.parent().unwrap()).unwrap();
            std::fs::write(p, text).unwrap();
        };
        // as on Juno: energy of both clusters, power of the little one too, and of the GPU
        for (name, label) in [
            ("energy1", "A57 energy"),
            ("energy3", "GPU energy"),
            ("power2", "A53 power"),
            ("power1", "a57 power"),
        ] {
            put(&format!("{name}_label"), label);
            put(&format!("{name}_input"), "1000000");
        }
        put("temp1_input", "x");
        let labels = [
            ("a57".to_owned(), CoreTypeId(0)),
            ("a53".to_owned(), CoreTypeId(1)),
        ];
        let mut h = Hwmon::open(d.path(), &labels).unwrap();
        let mut out = Vec::new();
        h.sample(Nanos(0), &[], &mut out).unwrap();
        put("energy1_input", "3500000");
        put("power2_input", "3000000");
        h.sample(Nanos::from_millis(500), &[], &mut out).unwrap();
        let of = |t| {
            out.iter()
                .find(|r| r.of == Subject::CoreType(CoreTypeId(t)))
                .unwrap()
                .value
        };
        assert_eq!(out.len(), 2);
        assert!(
            (of(0) - 2.5).abs() < 1e-9 && (of(1) - 1.0).abs() < 1e-9,
            "{out:?}"
        );
        assert!(Hwmon::open(d.path(), &[]).is_err());
    }
}
