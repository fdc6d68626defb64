//! RAPL: energy counters of x86 packages.

use super::{folders, number, read, VirtualError, VirtualSource};
use crate::event::{EventSet, EventSpec};
use crate::ids::Nanos;
use crate::perf::OpenSet;
use crate::pmu::{Pmus, DEVICES};
use crate::sample::{Subject, ThreadSample, VirtualCounter, VirtualReading};
use std::path::{Path, PathBuf};

/// The machine's energy over an interval.
fn machine(joules: f64, over: Nanos) -> VirtualReading {
    VirtualReading {
        counter: VirtualCounter::Energy,
        of: Subject::Machine,
        value: joules,
        over,
    }
}

#[derive(Debug)]
struct Zone {
    file: PathBuf,
    /// Value after which the counter starts again from 0, microjoules.
    range: u64,
    last: u64,
}

/// RAPL through powercap: the packages of the machine, summed up.
#[derive(Debug)]
pub struct Powercap {
    zones: Vec<Zone>,
    at: Option<Nanos>,
}

impl Powercap {
    /// Opens the packages below `class` (`/sys/class/powercap`).
    ///
    /// # Errors
    /// When there is none, or it cannot be read (that needs root).
    pub fn open(class: &Path) -> Result<Powercap, VirtualError> {
        let mut zones = Vec::new();
        for dir in folders(class) {
            // `intel-rapl:0` is a package, `intel-rapl:0:1` a part of it; `psys` holds packages and
            // more
            let name = dir
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let package = name
                .strip_prefix("intel-rapl:")
                .is_some_and(|n| !n.contains(':'));
            if !package || !read(&dir.join("name"))?.starts_with("package") {
                continue;
            }
            let file = dir.join("energy_uj");
            zones.push(Zone {
                last: number(&file)?,
                range: number(&dir.join("max_energy_range_uj"))?,
                file,
            });
        }
        if zones.is_empty() {
            return Err(VirtualError::None {
                what: "RAPL (powercap)",
                reason: format!("no intel-rapl package under {}", class.display()),
            });
        }
        Ok(Powercap { zones, at: None })
    }
}

impl VirtualSource for Powercap {
    fn name(&self) -> &'static str {
        "rapl-powercap"
    }

    fn sample(
        &mut self,
        now: Nanos,
        _threads: &[ThreadSample],
        out: &mut Vec<VirtualReading>,
    ) -> Result<(), VirtualError> {
        let values = self.zones.iter().map(|z| number(&z.file));
        let values: Vec<u64> = values.collect::<Result<_, _>>()?;
        let mut sum = 0;
        for (z, value) in self.zones.iter_mut().zip(values) {
            // once around at most: the counter lasts for minutes at full power
            sum += if value >= z.last {
                value - z.last
            } else {
                z.range.saturating_sub(z.last) + value
            };
            z.last = value;
        }
        if let Some(at) = self.at {
            out.push(machine(sum as f64 * 1e-6, now.saturating_sub(at)));
        }
        self.at = Some(now);
        Ok(())
    }
}

/// An event of a PMU that counts energy, on each CPU that the PMU names.
#[derive(Debug)]
pub(super) struct EnergyEvent {
    pub set: OpenSet,
    /// Joules per count.
    pub scale: f64,
}

impl EnergyEvent {
    /// Opens `event` of `pmu`; `what` is the source, for messages.
    ///
    /// # Errors
    /// When there is no such PMU, or the kernel refuses.
    pub fn open(
        sysfs: &Path,
        pmus: &Pmus,
        (pmu, event): (&str, &str),
        what: &'static str,
    ) -> Result<EnergyEvent, VirtualError> {
        let none = |reason: String| VirtualError::None { what, reason };
        let of = pmus
            .by_name(pmu)
            .ok_or_else(|| none(format!("no PMU `{pmu}`")))?;
        let spec: EventSpec = format!("{pmu}/{event}/")
            .parse()
            .map_err(crate::perf::CounterError::from)?;
        let resolved = pmus.resolve_named(&spec).map_err(|e| none(e.to_string()))?;
        let path = sysfs
            .join(DEVICES)
            .join(format!("{pmu}/events/{event}.scale"));
        let text = read(&path)?;
        let scale = text.parse::<f64>().ok();
        let scale = scale.filter(|s| s.is_finite() && *s > 0.0);
        let scale = scale.ok_or(VirtualError::Bad {
            path,
            text,
            want: "a factor above 0",
        })?;
        let set = EventSet {
            events: vec![resolved],
        };
        Ok(EnergyEvent {
            set: OpenSet::open(&set, &of.cpus)?,
            scale,
        })
    }
}

/// RAPL through perf's `power` PMU.
#[derive(Debug)]
pub struct PowerPmu {
    energy: EnergyEvent,
    last: u64,
    at: Option<Nanos>,
}

impl PowerPmu {
    /// Opens `power/energy-pkg/` on every package.
    ///
    /// # Errors
    /// When there is no such PMU, or the kernel refuses.
    pub fn open(sysfs: &Path, pmus: &Pmus) -> Result<PowerPmu, VirtualError> {
        Ok(PowerPmu {
            energy: EnergyEvent::open(sysfs, pmus, ("power", "energy-pkg"), "RAPL (perf)")?,
            last: 0,
            at: None,
        })
    }
}

impl VirtualSource for PowerPmu {
    fn name(&self) -> &'static str {
        "rapl-perf"
    }

    fn sample(
        &mut self,
        now: Nanos,
        _threads: &[ThreadSample],
        out: &mut Vec<VirtualReading>,
    ) -> Result<(), VirtualError> {
        let counts = self.energy.set.read()?;
        let total: u64 = counts.iter().flat_map(|c| &c.counts).sum();
        if let Some(at) = self.at {
            let joules = total.saturating_sub(self.last) as f64 * self.energy.scale;
            out.push(machine(joules, now.saturating_sub(at)));
        }
        (self.last, self.at) = (total, Some(now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_summed_up_and_wrap_around() {
        let d = tempfile::tempdir().unwrap();
        let zone = |z: &str, name: &str, uj: u64| {
            let dir = d.path().join(z);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("name"), format!("{name}\n")).unwrap();
            std::fs::write(dir.join("energy_uj"), format!("{uj}\n")).unwrap();
            std::fs::write(dir.join("max_energy_range_uj"), "1000000000\n").unwrap();
        };
        zone("intel-rapl:0", "package-0", 999_000_000);
        zone("intel-rapl:1", "package-1", 5_000_000);
        zone("intel-rapl:0:0", "core", 1);
        zone("intel-rapl:2", "psys", 1);
        let mut p = Powercap::open(d.path()).unwrap();
        let mut out = Vec::new();
        p.sample(Nanos(0), &[], &mut out).unwrap();
        assert!(out.is_empty(), "one reading is no increment");
        zone("intel-rapl:0", "package-0", 1_000_000);
        zone("intel-rapl:1", "package-1", 8_000_000);
        p.sample(Nanos::from_millis(100), &[], &mut out).unwrap();
        assert!((out[0].value - 5.0).abs() < 1e-9, "{out:?}");
        assert_eq!(out[0].over, Nanos::from_millis(100));
        std::fs::write(d.path().join("intel-rapl:0/energy_uj"), "x").unwrap();
        let e = p.sample(Nanos(1), &[], &mut out).unwrap_err().to_string();
        assert!(e.contains("intel-rapl:0/energy_uj"), "{e}");
    }

    #[test]
    fn a_machine_without_says_so() {
        let e = Powercap::open(Path::new("/nowhere"))
            .unwrap_err()
            .to_string();
        assert!(e.contains("/nowhere"), "{e}");
        let e = PowerPmu::open(Path::new("/nowhere"), &Pmus::none())
            .unwrap_err()
            .to_string();
        assert!(e.contains("`power`"), "{e}");
    }
}
