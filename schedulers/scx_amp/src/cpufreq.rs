//! The clocks of CPUs: who sets them, and what the scheduler asks for.
//!
//! Under a sched_ext scheduler the governor schedutil clocks CPUs by what the scheduler says of them,
//! and takes them to be fully busy where it says nothing. No other governor asks.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Where sysfs has CPUs.
const CPUS: &str = "sys/devices/system/cpu";
/// The governor that asks the scheduler.
const ASKS: &str = "schedutil";

/// What CPUs are to be clocked at.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cpufreq {
    /// What their load needs.
    #[default]
    Load,
    /// The fastest clock, as if they were always busy.
    Full,
}

impl Cpufreq {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Cpufreq::Load => "load",
            Cpufreq::Full => "full",
        }
    }
}

/// Who sets the clock of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// The governor, which chooses it.
    pub governor: String,
    /// The driver, which sets it; empty where it has no name.
    pub driver: String,
}

/// Who sets the clock of `cpu` on the machine below `root`; `None` where Linux does not.
pub fn scaling(root: &Path, cpu: u32) -> Option<Scaling> {
    let of = |file: &str| {
        let path = format!("{CPUS}/cpu{cpu}/cpufreq/{file}");
        let bytes = fs::read(root.join(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    Some(Scaling {
        governor: of("scaling_governor").filter(|g| !g.is_empty())?,
        driver: of("scaling_driver").unwrap_or_default(),
    })
}

/// The governors of frequency scaling on the machine below `root`; none where there is no scaling.
pub fn governors(root: &Path) -> BTreeSet<String> {
    let all = fs::read_dir(root.join(CPUS))
        .into_iter()
        .flatten()
        .flatten();
    let number = |e: fs::DirEntry| e.file_name().to_str()?.strip_prefix("cpu")?.parse().ok();
    all.filter_map(number)
        .filter_map(|cpu| scaling(root, cpu))
        .map(|s| s.governor)
        .collect()
}

/// Whether a governor of the machine below `root` asks the scheduler.
pub fn asked(root: &Path) -> bool {
    governors(root).contains(ASKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_the_governors_of_its_clocks() {
        let t = tempfile::tempdir().unwrap();
        assert!(governors(t.path()).is_empty());
        for (cpu, governor) in [("cpu0", "powersave\n"), ("cpu14", "schedutil\n")] {
            let dir = t.path().join(CPUS).join(cpu).join("cpufreq");
            fs::create_dir_all(&dir).unwrap();
            assert!(!asked(t.path()));
            fs::write(dir.join("scaling_governor"), governor).unwrap();
        }
        let names: Vec<String> = governors(t.path()).into_iter().collect();
        assert_eq!(names, ["powersave", "schedutil"]);
        assert!(asked(t.path()));
    }
}
