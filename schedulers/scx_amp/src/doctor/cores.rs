//! Which cores there are, and who sets their frequency.

use super::read;
use super::report::Check;
use crate::live;
use amp_host::topology::{self, Detected};
use amp_host::BadInput;
use amp_machine::CpuList;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// Drivers whose governor `powersave` adapts the frequency; with any other it is the lowest.
const ADAPTIVE: [&str; 2] = ["intel_pstate", "amd-pstate-epp"];

/// Every check of this file, and the cores if they can be known.
///
/// # Errors
/// [`BadInput`] for a list of fast CPUs that cannot be right here.
pub fn checks(root: &Path, big_cpus: Option<&CpuList>) -> Result<(Vec<Check>, Option<Detected>)> {
    let detected = match topology::detect_under(&root.join("sys"), big_cpus) {
        Ok(detected) => detected,
        Err(e) if e.is::<BadInput>() => return Err(e),
        Err(e) => {
            let check = Check::problem(
                "core types",
                format!("{e:#}"),
                "Mount sysfs on /sys; if it is mounted, please report this",
            );
            return Ok((vec![check], None));
        }
    };
    let cpus = detected.topology.core_types().iter();
    let cpus: Vec<u32> = cpus.flat_map(|t| t.cpus.iter().copied()).collect();
    let mut found = vec![core_types(&detected)];
    found.push(governors(root, &cpus));
    Ok((found, Some(detected)))
}

fn core_types(detected: &Detected) -> Check {
    const NAME: &str = "core types";
    if let Err(e) = live::config(detected).check() {
        return Check::problem(
            NAME,
            format!("{e}"),
            "Name the fast CPUs yourself: `--big-cpus LIST`",
        );
    }
    let types = detected.topology.core_types();
    let each = types.iter();
    let each: Vec<String> = each
        .map(|t| format!("{} {}", t.name, CpuList(t.cpus.clone())))
        .collect();
    match types {
        [only] => Check::warning(
            NAME,
            format!(
                "all {} CPUs are of one type, so there is nothing to choose between",
                only.cpus.len()
            ),
            "If they are not alike (SMT hybrids, virtual machines), name the fast ones: `--big-cpus \
             LIST`. If they are, the kernel's own scheduler serves as well",
        ),
        _ => Check::ok(NAME, each.join(", ")),
    }
}

fn governors(root: &Path, cpus: &[u32]) -> Check {
    const NAME: &str = "frequency";
    let of = |cpu: u32, file: &str| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}");
        read(root, &path).filter(|t| !t.is_empty())
    };
    let mut by_governor: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut lowest = Vec::new();
    for &cpu in cpus {
        let Some(governor) = of(cpu, "scaling_governor") else {
            continue;
        };
        let driver = of(cpu, "scaling_driver").unwrap_or_default();
        if governor == "powersave" && !ADAPTIVE.contains(&driver.as_str()) {
            lowest.push(cpu);
        }
        by_governor.entry(governor).or_default().push(cpu);
    }
    let each = by_governor.iter();
    let each: Vec<String> = each
        .map(|(g, cpus)| format!("governor `{g}` on CPUs {}", CpuList(cpus.clone())))
        .collect();
    match (each.is_empty(), lowest.is_empty()) {
        (true, _) => Check::ok(NAME, "Linux does not set the frequency of these CPUs"),
        (_, true) => Check::ok(NAME, each.join(", ")),
        _ => Check::warning(
            NAME,
            format!(
                "governor `powersave` keeps CPUs {} at their lowest frequency",
                CpuList(lowest)
            ),
            "Choose one that adapts: `cpupower frequency-set -g schedutil`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::super::testing::Tree;
    use super::*;

    fn of(tree: &Tree, big_cpus: Option<&str>, name: &str) -> Check {
        let big = big_cpus.map(|l| l.parse::<CpuList>().unwrap());
        let (all, _) = checks(tree.root(), big.as_ref()).unwrap();
        all.into_iter().find(|c| c.name == name).unwrap()
    }

    #[test]
    fn two_core_types_are_named_and_one_is_warned_of() {
        let tree = Tree::good();
        let c = of(&tree, None, "core types");
        assert_eq!(c, Check::ok("core types", "big 0-1, little 2-5"));
        for cpu in 0..6 {
            tree.put(
                &format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity"),
                "1024\n",
            );
        }
        let c = of(&tree, None, "core types");
        assert_eq!(c.verdict, Verdict::Warning);
        assert!(c.found.contains("6 CPUs"), "{}", c.found);
        assert!(c.advice.unwrap().contains("--big-cpus"));
        let c = of(&tree, Some("5"), "core types");
        assert_eq!(c, Check::ok("core types", "big 5, little 0-4"));
        let big = "7".parse::<CpuList>().unwrap();
        assert!(checks(tree.root(), Some(&big))
            .unwrap_err()
            .is::<BadInput>());
    }

    #[test]
    fn cores_that_cannot_be_read_or_taken_are_a_problem() {
        let tree = Tree::good();
        tree.put("sys/devices/system/cpu/online", "all of them\n");
        let c = of(&tree, None, "core types");
        assert_eq!(c.verdict, Verdict::Problem);
        assert!(c.found.contains("online"), "{}", c.found);
        // more CPUs than the mechanism has room for
        tree.put("sys/devices/system/cpu/online", "0-1,100000\n");
        let c = of(&tree, None, "core types");
        assert_eq!(c.verdict, Verdict::Problem);
        assert!(c.found.contains("100000"), "{}", c.found);
    }

    #[test]
    fn a_governor_that_keeps_the_lowest_frequency_is_warned_of() {
        let tree = Tree::good();
        let none = of(&tree, None, "frequency");
        assert_eq!(none.verdict, Verdict::Ok);
        assert!(none.found.contains("does not set"), "{}", none.found);
        let set = |cpu: u32, governor: &str, driver: &str| {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq");
            tree.put(&format!("{dir}/scaling_governor"), governor);
            tree.put(&format!("{dir}/scaling_driver"), driver);
        };
        for cpu in 0..6 {
            set(cpu, "schedutil\n", "cpufreq-dt\n");
        }
        let c = of(&tree, None, "frequency");
        assert_eq!(
            c,
            Check::ok("frequency", "governor `schedutil` on CPUs 0-5")
        );
        set(2, "powersave\n", "intel_pstate\n");
        assert_eq!(of(&tree, None, "frequency").verdict, Verdict::Ok);
        set(2, "powersave\n", "acpi-cpufreq\n");
        let c = of(&tree, None, "frequency");
        assert_eq!(c.verdict, Verdict::Warning);
        assert!(c.found.contains("CPUs 2 at"), "{}", c.found);
    }
}
