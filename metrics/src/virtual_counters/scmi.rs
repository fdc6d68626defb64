//! Power of the domains that a system's firmware tells of: SCMI zones below `/sys/class/powercap`.

use super::sensors::Sensors;
use super::{folders, read, VirtualError, VirtualSource};
use crate::ids::{CoreTypeId, Nanos};
use crate::sample::{ThreadSample, VirtualReading};
use std::path::Path;

/// What zones of SCMI are called, with a number behind it \[Linux, drivers/powercap/arm_scmi_powercap.c\].
const ZONES: &str = "arm-scmi:";

/// Zones of core types, told by their names. The firmware gives a mean power over a time of its own;
/// it is taken as constant at the mean of its values at both ends of the interval.
#[derive(Debug)]
pub struct ScmiPowercap(Sensors);

impl ScmiPowercap {
    /// Opens the zones below `class` (`/sys/class/powercap`) whose name contains one of `labels` (in
    /// any case). Of several zones of a core type the first one is taken, which is the outermost.
    ///
    /// # Errors
    /// When there is none, or one cannot be read: a domain need not be measured.
    pub fn open(
        class: &Path,
        labels: &[(String, CoreTypeId)],
    ) -> Result<ScmiPowercap, VirtualError> {
        let mut zones = Sensors::default();
        for dir in folders(class) {
            let folder = dir.file_name().unwrap_or_default().to_string_lossy();
            if !folder.starts_with(ZONES) {
                continue;
            }
            let name = read(&dir.join("name"))?;
            zones.add(dir.join("power_uw"), &name, labels, false)?;
        }
        if zones.is_empty() {
            return Err(VirtualError::None {
                what: "SCMI (powercap)",
                reason: format!("no {ZONES} zone of a core type under {}", class.display()),
            });
        }
        Ok(ScmiPowercap(zones))
    }
}

impl VirtualSource for ScmiPowercap {
    fn name(&self) -> &'static str {
        "scmi-powercap"
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
    fn zones_by_name_and_power_over_time() {
        let d = tempfile::tempdir().unwrap();
        let zone = |folder: &str, name: &str, microwatts: &str| {
            let dir = d.path().join(folder);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("name"), format!("{name}\n")).unwrap();
            std::fs::write(dir.join("power_uw"), format!("{microwatts}\n")).unwrap();
        };
        zone("arm-scmi:0", "SOC", "9000000");
        zone("arm-scmi:0:0", "CPU_BIG", "2000000");
        zone("arm-scmi:0:1", "cpu_little", "500000");
        zone("intel-rapl:0", "big", "1");
        let labels = [
            ("big".to_owned(), CoreTypeId(0)),
            ("little".to_owned(), CoreTypeId(1)),
        ];
        let mut s = ScmiPowercap::open(d.path(), &labels).unwrap();
        let mut out = Vec::new();
        s.sample(Nanos(0), &[], &mut out).unwrap();
        assert!(out.is_empty(), "one reading is no increment");
        zone("arm-scmi:0:0", "CPU_BIG", "4000000");
        s.sample(Nanos::from_millis(500), &[], &mut out).unwrap();
        let of = |t| {
            out.iter()
                .find(|r| r.of == Subject::CoreType(CoreTypeId(t)))
        };
        assert_eq!(out.len(), 2);
        assert!((of(0).unwrap().value - 1.5).abs() < 1e-9, "{out:?}");
        assert!((of(1).unwrap().value - 0.25).abs() < 1e-9, "{out:?}");
        // the driver refuses for a domain that is not measured; here something else is in the file
        zone("arm-scmi:0:1", "cpu_little", "?");
        let e = s.sample(Nanos(1), &[], &mut out).unwrap_err().to_string();
        assert!(e.contains("arm-scmi:0:1/power_uw"), "{e}");
        assert!(ScmiPowercap::open(d.path(), &labels).is_err());
        let e = ScmiPowercap::open(d.path(), &[]).unwrap_err().to_string();
        assert!(e.contains("arm-scmi"), "{e}");
    }
}
