//! Which cores there are, and who sets their frequency.

use super::report::Check;
use crate::cpufreq;
use crate::live;
use crate::run::RunOptions;
use amp_host::topology::{self, Detected};
use amp_host::BadInput;
use amp_machine::CpuList;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// Drivers whose governor `powersave` adapts the frequency; with any other it is the lowest.
const ADAPTIVE: [&str; 2] = ["intel_pstate", "amd-pstate-epp"];

/// Every check of this file, and the cores if they can be known. `options` are what the
/// configuration says, `big_cpus` goes before its list.
///
/// # Errors
/// [`BadInput`] for a list `big_cpus` that cannot be right here.
pub fn checks(
    root: &Path,
    big_cpus: Option<&CpuList>,
    options: Option<&RunOptions>,
) -> Result<(Vec<Check>, Option<Detected>)> {
    let list = big_cpus.or(options.and_then(|o| o.big_cpus.as_ref()));
    let detected = match topology::detect_under(&root.join("sys"), list) {
        Ok(detected) => detected,
        Err(e) if e.is::<BadInput>() && big_cpus.is_some() => return Err(e),
        Err(e) if e.is::<BadInput>() => {
            let advice = "Correct `big-cpus` in the configuration";
            let check = Check::problem("core types", format!("{e:#}"), advice);
            return Ok((vec![check], None));
        }
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
    let mut found = vec![core_types(&detected, options)];
    found.push(governors(root, &cpus));
    Ok((found, Some(detected)))
}

fn core_types(detected: &Detected, options: Option<&RunOptions>) -> Check {
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
        [only] => {
            let found = format!(
                "all {} CPUs are of one type, so there is nothing to choose between",
                only.cpus.len()
            );
            const NAME_THEM: &str = "If they are not alike (SMT hybrids, virtual machines), name the \
                 fast ones: `--big-cpus LIST`. If they are, the kernel's own scheduler serves as well";
            // `run` without a policy, profile or provider by name leaves such a machine alone: a failure,
            // unless the user has said that it is none
            match options.is_some_and(|o| o.by_name || o.if_hybrid) {
                true => Check::warning(NAME, found, NAME_THEM),
                false => Check::problem(NAME, found, NAME_THEM),
            }
        }
        _ => Check::ok(NAME, each.join(", ")),
    }
}

fn governors(root: &Path, cpus: &[u32]) -> Check {
    const NAME: &str = "frequency";
    let mut by_governor: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut lowest = Vec::new();
    for &cpu in cpus {
        let Some(s) = cpufreq::scaling(root, cpu) else {
            continue;
        };
        if s.governor == "powersave" && !ADAPTIVE.contains(&s.driver.as_str()) {
            lowest.push(cpu);
        }
        by_governor.entry(s.governor).or_default().push(cpu);
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
    use crate::run::config::Configuration;
    use crate::run::RunArgs;

    fn of(tree: &Tree, big_cpus: Option<&str>, name: &str) -> Check {
        let big = big_cpus.map(|l| l.parse::<CpuList>().unwrap());
        let (all, _) = checks(tree.root(), big.as_ref(), None).unwrap();
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
        assert_eq!(c.verdict, Verdict::Problem);
        assert!(c.found.contains("6 CPUs"), "{}", c.found);
        assert!(c.advice.unwrap().contains("--big-cpus"));
        let configured = |text: &str| {
            let path = tree.root().join("config.toml");
            let found = Configuration::parse(&path, text).unwrap();
            let options = RunOptions::new(RunArgs::none(), found).unwrap();
            let (all, _) = checks(tree.root(), None, Some(&options)).unwrap();
            all.into_iter().next().unwrap()
        };
        assert_eq!(configured("").verdict, Verdict::Problem);
        assert_eq!(configured("policy = \"rr\"").verdict, Verdict::Warning);
        assert_eq!(configured("if-hybrid = true").verdict, Verdict::Warning);
        assert_eq!(configured("big-cpus = \"5\"").verdict, Verdict::Ok);
        assert_eq!(configured("big-cpus = \"7\"").verdict, Verdict::Problem);
        let c = of(&tree, Some("5"), "core types");
        assert_eq!(c, Check::ok("core types", "big 5, little 0-4"));
        let big = "7".parse::<CpuList>().unwrap();
        assert!(checks(tree.root(), Some(&big), None)
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
