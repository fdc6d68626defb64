//! `scx_amp doctor`: whether `run` would work on this machine, how well, and what to do about it.
//!
//! ```text
//! kernel    sched_ext, type information, permissions, other schedulers
//! cores     core types, frequency governors
//! counters  PMUs, the provider that `auto` takes, the trust file, resctrl
//! report    a check and its outcome
//! ```
//!
//! Checks read files below a root folder, `/` or a made-up tree, and judge them. Only the trial of
//! counters needs the machine itself: it opens counters for a moment, as `run` does. Nothing is
//! loaded, and nothing in the system is changed.

mod cores;
mod counters;
mod kernel;
mod report;
#[cfg(test)]
mod testing;

use crate::groups;
use crate::run::config::{self, Configuration};
use crate::run::{RunArgs, RunOptions};
use amp_host::write_out;
use amp_machine::CpuList;
use amp_pmc::TrustArgs;
use anyhow::Result;
use clap::Args;
use report::{Check, Report};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `scx_amp doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// CPUs of the fast core type, as `run` would be given them
    #[arg(long, value_name = "LIST")]
    big_cpus: Option<CpuList>,
    #[command(flatten)]
    trust: TrustArgs,
    /// Write JSON to FILE, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The command. Status 1 when `run` would not work.
///
/// # Errors
/// [`amp_host::BadInput`] for options that are not right here; when the report cannot be written.
pub fn main(args: &DoctorArgs) -> Result<ExitCode> {
    let report = examine(Path::new("/"), args, counters::on_this_machine)?;
    if let Some(path) = &args.json {
        write_out(
            path,
            &format!("{}\n", serde_json::to_string_pretty(&report)?),
        )?;
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        write_out(Path::new("-"), &report.text())?;
    }
    Ok(ExitCode::from(u8::from(!report.run_would_work)))
}

/// Looks at the machine below `root`; `trial` tries whether its counters count.
fn examine(root: &Path, args: &DoctorArgs, trial: counters::Trial) -> Result<Report> {
    let mut checks = kernel::checks(root);
    let (check, options) = configuration(root);
    checks.push(check);
    let (found, detected) = cores::checks(root, args.big_cpus.as_ref(), options.as_ref())?;
    checks.extend(found);
    let trust = counters::trust(root, args.trust.trust.as_deref())?;
    if let Some(detected) = detected {
        let ours = kernel::is_ours(root);
        let topology = &detected.topology;
        checks.extend(counters::checks(root, topology, &trust, ours, trial));
    }
    checks.push(trust.check);
    checks.push(control_groups(root));
    checks.push(counters::resctrl(root));
    Ok(Report::of(checks))
}

/// Which control groups have a limit of CPU time. That more groups than are looked at may have one is a warning.
fn control_groups(root: &Path) -> Check {
    const NAME: &str = "control groups";
    let Some(found) = groups::limited(root) else {
        let found = "not looked at: version 2 of control groups is not mounted at /sys/fs/cgroup";
        return Check::ok(NAME, found);
    };
    match (found.whole(), found.in_a_line()) {
        (true, None) => Check::ok(NAME, "none has a limit of CPU time"),
        (true, Some(limits)) => Check::ok(
            NAME,
            format!("limits of CPU time, kept while scx_amp schedules: {limits}"),
        ),
        (false, limits) => Check::warning(
            NAME,
            format!(
                "there are more than are looked at; limits of CPU time that are kept: {}",
                limits.unwrap_or_else(|| "none".into())
            ),
            "Use the kernel's own scheduler where limits of the other groups matter",
        ),
    }
}

/// The configuration, and what `run` without options does by it, where it can be used.
fn configuration(root: &Path) -> (Check, Option<RunOptions>) {
    const NAME: &str = "configuration";
    let path = root.join(config::PATH.trim_start_matches('/'));
    let named = std::fs::symlink_metadata(&path).is_ok();
    let found = match named {
        true => Configuration::find(Some(&path)),
        false => Configuration::parse(&path, ""),
    };
    match found.and_then(|c| RunOptions::new(RunArgs::none(), c)) {
        Ok(options) => {
            let found = match named {
                true => format!("{} can be used", config::PATH),
                false => format!("there is no {}: defaults hold", config::PATH),
            };
            (Check::ok(NAME, found), Some(options))
        }
        Err(e) => {
            let advice = "Correct or remove the file; `scx_amp config check` looks at it again";
            // what is wrong with a value need not say where it stands
            let said = format!("{e:#}");
            let said = match said.contains("config.toml") {
                true => said,
                false => format!("{}: {said}", config::PATH),
            };
            (Check::problem(NAME, said, advice), None)
        }
    }
}

/// The text of a file below `root`, trimmed; whatever bytes it has. Nothing where it cannot be
/// read.
fn read(root: &Path, path: &str) -> Option<String> {
    let bytes = std::fs::read(root.join(path)).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::report::Verdict;
    use super::testing::{counts, Tree};
    use super::*;

    fn args() -> DoctorArgs {
        DoctorArgs {
            big_cpus: None,
            trust: TrustArgs::default(),
            json: None,
        }
    }

    fn tree_examined(tree: &Tree) -> Report {
        examine(tree.root(), &args(), counts).unwrap()
    }

    #[test]
    fn run_would_work_on_a_good_machine_and_not_without_sched_ext() {
        let tree = Tree::good();
        let report = tree_examined(&tree);
        let bad = report.checks.iter().find(|c| c.verdict != Verdict::Ok);
        assert_eq!(bad, None);
        assert!(report.run_would_work);
        tree.remove("sys/kernel/sched_ext");
        assert!(!tree_examined(&tree).run_would_work);
    }

    #[test]
    fn the_configuration_is_read_as_run_reads_it() {
        let tree = Tree::good();
        let of = |tree: &Tree| {
            let checks = tree_examined(tree).checks;
            checks
                .into_iter()
                .find(|c| c.name == "configuration")
                .unwrap()
        };
        assert!(of(&tree).found.contains("defaults hold"));
        tree.put("etc/scx_amp/config.toml", "policy = \"acfs\"\n");
        assert!(of(&tree).found.contains("can be used"));
        tree.put("etc/scx_amp/config.toml", "policy = \"best\"\n");
        let c = of(&tree);
        assert_eq!(c.verdict, Verdict::Problem);
        assert!(
            c.found.contains("config.toml") && c.found.contains("best"),
            "{}",
            c.found
        );
    }

    #[test]
    fn nothing_below_the_root_is_changed() {
        let tree = Tree::good();
        tree.put("sys/fs/resctrl/info/L3_MON/mon_features", "llc_occupancy\n");
        // a running instance's group, which opening resctrl would remove
        std::fs::create_dir_all(tree.root().join("sys/fs/resctrl/mon_groups/scx_amp-7")).unwrap();
        let before = tree.files();
        tree_examined(&tree);
        assert_eq!(tree.files(), before);
        assert!(tree
            .root()
            .join("sys/fs/resctrl/mon_groups/scx_amp-7")
            .is_dir());
        assert!(!tree.root().join("run").exists());
    }

    /// Whatever a file holds, there is a report: each file of the tree in turn is one of these, is a
    /// folder, or is not there.
    #[test]
    fn no_content_is_too_odd() {
        let odd: [&[u8]; 9] = [
            b"",
            b"\n",
            b"\0\xff\xfe",
            b"-1\n",
            b"18446744073709551616\n",
            b"4294967295\n",
            b"0-4294967295\n",
            b"config:64-99\n",
            &[b'9'; 5000],
        ];
        let tree = Tree::good();
        tree.put(
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave\n",
        );
        tree.put("sys/kernel/sched_ext/root/ops", "lavd\n");
        tree.put("etc/scx_amp/trust.toml", "format = 1\n");
        tree.put("etc/scx_amp/config.toml", "policy = \"acfs\"\n");
        tree.put("proc/cpuinfo", "flags : x\n");
        for file in tree.files() {
            let whole = std::fs::read(&file).unwrap();
            for content in odd {
                std::fs::write(&file, content).unwrap();
                let text = tree_examined(&tree).text();
                assert!(text.lines().count() > 8, "{}: {text}", file.display());
            }
            std::fs::remove_file(&file).unwrap();
            tree_examined(&tree);
            std::fs::create_dir(&file).unwrap();
            tree_examined(&tree);
            std::fs::remove_dir(&file).unwrap();
            std::fs::write(&file, whole).unwrap();
        }
    }
}
