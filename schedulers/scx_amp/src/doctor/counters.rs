//! What can be counted, and which provider of metrics `auto` takes.

use super::read;
use super::report::Check;
use amp_host::{bad_input, BadInput};
use amp_metrics::pmu::TABLES_VARIABLE;
use amp_metrics::providers::{self, Context};
use amp_metrics::trust::TrustFile;
use amp_metrics::Topology;
use amp_pmc::CounterInventory;
use anyhow::Result;
use std::path::Path;

/// Tries whether the counters of a machine count; the reason if they do not.
pub type Trial = fn(&mut CounterInventory) -> Result<(), String>;

/// The trial on the machine that this process runs on, the same one as before `run`.
pub fn on_this_machine(inventory: &mut CounterInventory) -> Result<(), String> {
    inventory.try_counters().map_err(|e| e.to_string())
}

/// Checks of PMUs, counting and provider. `ours`: a scheduler of this program is loaded. Its
/// counters are not to be disturbed by a trial.
pub fn checks(
    root: &Path,
    topology: &Topology,
    trust: &Trusted,
    ours: bool,
    trial: Trial,
) -> Vec<Check> {
    let tables = std::env::var_os(TABLES_VARIABLE);
    let found = CounterInventory::under(root, topology, tables.as_ref().map(Path::new));
    let mut inventory = match found {
        Ok(inventory) => inventory.with_trust(trust.file.clone()),
        Err(e) => {
            let advice = match e.is::<BadInput>() {
                true => format!("Correct or unset {TABLES_VARIABLE}"),
                false => {
                    "Please report this: the kernel's list of PMUs cannot be understood".into()
                }
            };
            return vec![Check::problem("PMUs", format!("{e:#}"), advice)];
        }
    };
    let mut checks = vec![pmus(&inventory)];
    if ours {
        checks.push(Check::ok(
            "provider",
            "not tried while scx_amp schedules: see `scx_amp ctl status`",
        ));
        return checks;
    }
    let counters = trial(&mut inventory);
    if inventory.has_pmu() {
        checks.push(counting(root, &inventory, &counters));
    }
    checks.push(provider(&inventory, counters));
    checks
}

fn pmus(inventory: &CounterInventory) -> Check {
    const NAME: &str = "PMUs";
    const WITHOUT: &str =
        "Declare speedup factors (`--provider FILE.toml`), or choose a policy that \
         needs none (`scx_amp help policy`); a virtual machine needs to be given a PMU";
    if let Err(e) = inventory.need_pmu() {
        return Check::warning(NAME, format!("{e}"), WITHOUT);
    }
    let types = inventory.pmus.core_types();
    let without: Vec<&str> = types
        .filter(|t| inventory.pmus.of_core_type(*t).is_none())
        .map(|t| inventory.name(t))
        .collect();
    if !without.is_empty() {
        let found = format!("no PMU counts on core type {}", without.join(", "));
        return Check::warning(NAME, found, WITHOUT);
    }
    let each = inventory.core_pmus();
    let each: Vec<String> = each
        .map(|(t, pmu)| format!("{}: `{}`", inventory.name(t), pmu.name))
        .collect();
    Check::ok(NAME, each.join(", "))
}

fn counting(root: &Path, inventory: &CounterInventory, trial: &Result<(), String>) -> Check {
    const NAME: &str = "counting";
    if let Err(why) = trial {
        let level = read(root, "proc/sys/kernel/perf_event_paranoid");
        let level = level.map_or_else(String::new, |l| {
            format!(" (kernel.perf_event_paranoid is {l})")
        });
        return Check::warning(
            NAME,
            format!("a trial failed{level}: {why}"),
            "Until then policies do without counters; `scx_amp pmc list` tries again",
        );
    }
    let each = inventory.core_pmus();
    let each: Vec<String> = each
        .filter_map(|(t, pmu)| Some(format!("{} on {}", pmu.counters?, inventory.name(t))))
        .collect();
    Check::ok(NAME, format!("events at once: {}", each.join(", ")))
}

fn provider(inventory: &CounterInventory, counters: Result<(), String>) -> Check {
    const NAME: &str = "provider";
    // The context of `run`, without the sources that make and remove groups in resctrl.
    let context = Context {
        pmus: &inventory.pmus,
        counters,
        energy_per_core_type: inventory.energy_sources().energy_per_core_type(),
        thread_director: Err("`auto` does not take it".into()),
        models: None,
        trust: inventory.trust(),
    };
    let prepared = match providers::prepare("auto", &context) {
        Ok(prepared) => prepared,
        Err(e) => {
            return Check::problem(NAME, e.to_string(), "Name another one: `--provider NAME`");
        }
    };
    let over = prepared.passed_over.iter();
    let over: String = over.map(|(n, why)| format!("; not `{n}`: {why}")).collect();
    let found = format!("`auto` takes `{}`{over}", prepared.provider.name());
    match prepared.sets.is_empty() {
        true => Check::warning(
            NAME,
            found,
            "Until factors are declared (`--provider FILE.toml`), policies that need them share \
             fast cores equally",
        ),
        false => Check::ok(NAME, found),
    }
}

/// The trust file, and what there is to say of it.
pub struct Trusted {
    /// The file, if there is one that can be used.
    pub file: Option<TrustFile>,
    /// The check of it.
    pub check: Check,
}

/// Looks for the trust file: the one that was `named`, else the platform's.
///
/// # Errors
/// [`BadInput`] for a file that was named and cannot be used.
pub fn trust(root: &Path, named: Option<&Path>) -> Result<Trusted> {
    const NAME: &str = "trust file";
    let file = match TrustFile::find(root, named) {
        Ok(file) => file,
        Err(e) if named.is_some() => return Err(bad_input(e)),
        Err(e) => {
            return Ok(Trusted {
                file: None,
                check: Check::problem(
                    NAME,
                    e.to_string(),
                    "Remove the file, or make it anew: `scx_amp pmc validate --out FILE`",
                ),
            })
        }
    };
    let now = read(root, "proc/sys/kernel/osrelease").unwrap_or_default();
    let check = match &file {
        None => Check::ok(NAME, "none: no event is known to be broken"),
        Some(f) if f.trust.kernel != now => Check::warning(
            NAME,
            format!(
                "{} was measured under kernel {}, this is {now}",
                f.path.display(),
                f.trust.kernel
            ),
            "Measure again: `scx_amp pmc validate --out FILE`",
        ),
        Some(f) => Check::ok(NAME, f.path.display().to_string()),
    };
    Ok(Trusted { file, check })
}

/// Cache occupancy and memory traffic: nothing needs them, `ctl status` shows them.
pub fn resctrl(root: &Path) -> Check {
    const NAME: &str = "resctrl";
    if root.join("sys/fs/resctrl/info/L3_MON").is_dir() {
        return Check::ok(NAME, "mounted: cache occupancy can be shown");
    }
    let cpuinfo = read(root, "proc/cpuinfo").unwrap_or_default();
    let monitors = cpuinfo
        .lines()
        .filter(|l| l.starts_with("flags"))
        .any(|l| l.split_whitespace().any(|f| f == "cqm_occup_llc"));
    Check::ok(
        NAME,
        match monitors {
            true => "not mounted, and no provider needs it (`mount -t resctrl resctrl /sys/fs/resctrl` shows cache occupancy)",
            false => "not mounted, and no provider needs it",
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::super::testing::{self, Tree};
    use super::*;
    use amp_host::topology;

    fn all(tree: &Tree, ours: bool, trial: Trial) -> Vec<Check> {
        let detected = topology::detect_under(&tree.root().join("sys"), None).unwrap();
        let trust = trust(tree.root(), None).unwrap();
        checks(tree.root(), &detected.topology, &trust, ours, trial)
    }

    fn of(tree: &Tree, trial: Trial, name: &str) -> Check {
        let found = all(tree, false, trial).into_iter().find(|c| c.name == name);
        found.unwrap_or_else(|| panic!("no check of {name}"))
    }

    #[test]
    fn pmus_are_named_per_core_type() {
        let tree = Tree::good();
        let c = of(&tree, testing::counts, "PMUs");
        assert_eq!(
            c,
            Check::ok(
                "PMUs",
                "big: `armv8_cortex_a57`, little: `armv8_cortex_a53`"
            )
        );
        let c = of(&tree, testing::counts, "counting");
        assert_eq!(
            c,
            Check::ok("counting", "events at once: 6 on big, 6 on little")
        );
        let pmus = "sys/bus/event_source/devices";
        tree.remove(&format!("{pmus}/armv8_cortex_a53"));
        let c = of(&tree, testing::counts, "PMUs");
        assert_eq!(c.verdict, Verdict::Warning);
        assert!(c.found.contains("core type little"), "{}", c.found);
        tree.remove(&format!("{pmus}/armv8_cortex_a57"));
        let c = of(&tree, testing::denied, "PMUs");
        assert_eq!(c.verdict, Verdict::Warning);
        assert!(c.found.contains("no PMU that counts"), "{}", c.found);
        let checks = all(&tree, false, testing::denied);
        assert!(checks.iter().all(|c| c.name != "counting"), "{checks:?}");
    }

    #[test]
    fn a_trial_that_fails_is_told_with_the_reason() {
        let tree = Tree::good();
        tree.put("proc/sys/kernel/perf_event_paranoid", "3\n");
        let c = of(&tree, testing::denied, "counting");
        assert_eq!(c.verdict, Verdict::Warning);
        assert!(
            c.found.contains("perf_event_paranoid is 3") && c.found.contains("not permitted"),
            "{}",
            c.found
        );
        let c = of(&tree, testing::denied, "provider");
        assert_eq!(c.verdict, Verdict::Warning);
        assert!(
            c.found
                .starts_with("`auto` takes `declared`; not `model`: "),
            "{}",
            c.found
        );
        assert!(c.advice.unwrap().contains("--provider FILE.toml"));
    }

    #[test]
    fn auto_is_asked_as_run_asks_it() {
        let c = of(&Tree::good(), testing::counts, "provider");
        assert_eq!(c.verdict, Verdict::Ok);
        assert!(
            c.found
                .starts_with("`auto` takes `measured`; not `model`: "),
            "{}",
            c.found
        );
    }

    #[test]
    fn nothing_is_tried_while_ours_counts() {
        let tree = Tree::good();
        let never: Trial = |_| panic!("a trial disturbs what is counted");
        let checks = all(&tree, true, never);
        let c = checks.iter().find(|c| c.name == "provider").unwrap();
        assert_eq!(c.verdict, Verdict::Ok);
        assert!(c.found.contains("ctl status"), "{}", c.found);
    }

    #[test]
    fn a_list_of_pmus_that_cannot_be_understood_is_a_problem() {
        let tree = Tree::good();
        tree.put(
            "sys/bus/event_source/devices/armv8_cortex_a57/type",
            "many\n",
        );
        let c = of(&tree, testing::counts, "PMUs");
        assert_eq!(c.verdict, Verdict::Problem);
        assert!(c.found.contains("type"), "{}", c.found);
    }

    #[test]
    fn trust_files_are_found_old_or_wrong() {
        let tree = Tree::good();
        let look = || trust(tree.root(), None).unwrap();
        assert_eq!(look().check.verdict, Verdict::Ok);
        let text = "format = 1\nkernel = \"6.1\"\nrepetitions = 3\n";
        tree.put("etc/scx_amp/trust.toml", text);
        let t = look();
        assert_eq!(t.check.verdict, Verdict::Warning);
        assert!(t.file.is_some() && t.check.found.contains("under kernel 6.1"));
        tree.put(
            "etc/scx_amp/trust.toml",
            &text.replace("6.1", testing::RELEASE),
        );
        assert_eq!(look().check.verdict, Verdict::Ok);
        tree.put("etc/scx_amp/trust.toml", "format = 9\n");
        let t = look();
        assert_eq!(t.check.verdict, Verdict::Problem);
        assert!(t.file.is_none() && t.check.found.contains("trust.toml"));
        let named = trust(tree.root(), Some(Path::new("/no/such.toml")));
        assert!(named.err().unwrap().is::<BadInput>());
    }

    #[test]
    fn resctrl_is_never_needed() {
        let tree = Tree::good();
        let found = |tree: &Tree| {
            let c = resctrl(tree.root());
            assert_eq!(c.verdict, Verdict::Ok);
            c.found
        };
        assert_eq!(found(&tree), "not mounted, and no provider needs it");
        tree.put("proc/cpuinfo", "flags\t\t: fpu cqm_occup_llc\n");
        assert!(found(&tree).contains("mount -t resctrl"));
        tree.put("sys/fs/resctrl/info/L3_MON/mon_features", "llc_occupancy\n");
        assert!(found(&tree).starts_with("mounted"));
    }
}
