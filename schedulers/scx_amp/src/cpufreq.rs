//! The clocks of CPUs: who sets them, and what the scheduler asks for.
//!
//! Under a sched_ext scheduler the governor schedutil clocks CPUs by what the scheduler says of them,
//! and takes them to be fully busy where it says nothing. No other governor asks.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

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

/// The governors of frequency scaling on the machine below `root`; none where there is no scaling.
pub fn governors(root: &Path) -> BTreeSet<String> {
    let policies = fs::read_dir(root.join("sys/devices/system/cpu/cpufreq"));
    let of = |e: fs::DirEntry| fs::read_to_string(e.path().join("scaling_governor")).ok();
    let all = policies.into_iter().flatten().flatten();
    all.filter_map(of).map(|g| g.trim().to_owned()).collect()
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
        for (policy, governor) in [("policy0", "powersave\n"), ("policy4", "schedutil\n")] {
            let dir = t.path().join("sys/devices/system/cpu/cpufreq").join(policy);
            fs::create_dir_all(&dir).unwrap();
            assert!(!asked(t.path()));
            fs::write(dir.join("scaling_governor"), governor).unwrap();
        }
        let names: Vec<String> = governors(t.path()).into_iter().collect();
        assert_eq!(names, ["powersave", "schedutil"]);
        assert!(asked(t.path()));
    }
}
