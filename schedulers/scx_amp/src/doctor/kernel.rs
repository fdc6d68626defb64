//! Whether a scheduler can be loaded: the kernel, its type information, permissions, and who else
//! schedules.

use super::read;
use super::report::Check;
use crate::control;
use amp_board::kernel::btf;
use amp_bpf::LoadError;
use std::path::Path;

/// The first kernel that scx_amp is made for.
const FIRST: (u32, u32) = (6, 18);

/// Where service managers keep the control groups of running services.
const SLICES: [&str; 3] = [
    "sys/fs/cgroup/system.slice",
    "sys/fs/cgroup/unified/system.slice",
    "sys/fs/cgroup/systemd/system.slice",
];
/// Services that load schedulers.
const LOADERS: [&str; 2] = ["scx.service", "scx_loader.service"];

/// What to do without a kernel that can load schedulers.
const BOOT: &str = "Boot a kernel of version 6.18 or newer that was built with \
    CONFIG_SCHED_CLASS_EXT=y, or use the virtual board (`scx_amp board`), which brings one";

/// Every check of this file.
pub fn checks(root: &Path) -> Vec<Check> {
    let obstacles = amp_bpf::obstacles(root);
    let mut found = vec![
        sched_ext(root, &obstacles),
        types(root, &obstacles),
        permissions(root, &obstacles),
        scheduler(&obstacles),
        socket(root),
    ];
    found.extend(loaders(root));
    found
}

/// Whether the scheduler that is loaded is of this program.
pub fn is_ours(root: &Path) -> bool {
    loaded(&amp_bpf::obstacles(root)).is_some_and(our_name)
}

/// The kernel may append a version to the name in the BPF object.
fn our_name(name: &str) -> bool {
    name == "amp" || name.starts_with("amp_")
}

fn loaded(obstacles: &[LoadError]) -> Option<&str> {
    obstacles.iter().find_map(|o| match o {
        LoadError::Busy { name } => Some(name.as_str()),
        _ => None,
    })
}

fn without_sched_ext(obstacles: &[LoadError]) -> bool {
    let none = |o: &LoadError| matches!(o, LoadError::NoSchedExt { .. });
    obstacles.iter().any(none)
}

fn release(root: &Path) -> Option<String> {
    read(root, "proc/sys/kernel/osrelease").filter(|r| !r.is_empty())
}

fn sched_ext(root: &Path, obstacles: &[LoadError]) -> Check {
    const NAME: &str = "kernel";
    let release = release(root).unwrap_or_else(|| "(of unknown release)".into());
    if without_sched_ext(obstacles) {
        let built = read(root, &format!("boot/config-{release}"))
            .is_some_and(|c| c.lines().any(|l| l.trim() == "CONFIG_SCHED_CLASS_EXT=y"));
        return match built {
            true => Check::problem(
                NAME,
                format!(
                    "{release} was built with sched_ext, but /sys/kernel/sched_ext is not there"
                ),
                "Mount sysfs on /sys (`mount -t sysfs sysfs /sys`)",
            ),
            false => Check::problem(
                NAME,
                format!("{release} has no sched_ext (no /sys/kernel/sched_ext)"),
                BOOT,
            ),
        };
    }
    match version(&release) {
        Some(v) if v < FIRST => Check::warning(
            NAME,
            format!(
                "{release} has sched_ext, but scx_amp is made for {}.{} and newer",
                FIRST.0, FIRST.1
            ),
            "Boot a newer kernel; on this one anything may go wrong",
        ),
        _ => Check::ok(NAME, format!("{release} has sched_ext")),
    }
}

/// Major and minor number of a release, where it begins with them.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn types(root: &Path, obstacles: &[LoadError]) -> Check {
    const NAME: &str = "type information";
    const PATH: &str = "sys/kernel/btf/vmlinux";
    let image = match std::fs::read(root.join(PATH)) {
        Ok(image) => image,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Check::problem(
                NAME,
                format!("the kernel does not describe its types (no /{PATH})"),
                "Boot a kernel that was built with CONFIG_DEBUG_INFO_BTF=y",
            )
        }
        Err(e) => {
            return Check::warning(
                NAME,
                format!("/{PATH}: {e}"),
                "Run `scx_amp doctor` as root to know more",
            )
        }
    };
    match btf::judge(&image) {
        Ok(btf::Verdict::Loads) => Check::ok(NAME, "/sys/kernel/btf/vmlinux describes sched_ext"),
        // the kernel's own line says that already
        Ok(btf::Verdict::NoSchedExt) if without_sched_ext(obstacles) => {
            Check::ok(NAME, format!("/{PATH} is there"))
        }
        Ok(btf::Verdict::NoSchedExt) => Check::problem(
            NAME,
            format!("/{PATH} does not describe sched_ext"),
            BOOT,
        ),
        Ok(btf::Verdict::ImplicitArgument(kfuncs)) => Check::problem(
            NAME,
            format!(
                "/{PATH} describes {} wrongly: no sched_ext scheduler can be loaded",
                kfuncs.first().map_or("kernel functions", String::as_str)
            ),
            "Boot another build of the kernel: this one's types were written by a faulty pahole (1.30)",
        ),
        Err(why) => Check::warning(
            NAME,
            format!("/{PATH}: {why}"),
            "If `scx_amp run` fails while it loads, boot another kernel",
        ),
    }
}

fn permissions(root: &Path, obstacles: &[LoadError]) -> Check {
    const NAME: &str = "permissions";
    for o in obstacles {
        if let LoadError::NotPermitted { missing } = o {
            return Check::problem(
                NAME,
                format!("this process lacks {missing}"),
                "Run scx_amp as root (`sudo scx_amp run`); `sudo scx_amp doctor` sees more than this",
            );
        }
    }
    let status = read(root, "proc/self/status").unwrap_or_default();
    match status.lines().any(|l| l.starts_with("CapEff:")) {
        true => Check::ok(NAME, "CAP_BPF and CAP_SYS_ADMIN are there"),
        false => Check::warning(
            NAME,
            "/proc/self/status does not say which capabilities there are",
            "Mount procfs on /proc, or run scx_amp as root and see",
        ),
    }
}

fn scheduler(obstacles: &[LoadError]) -> Check {
    const NAME: &str = "other schedulers";
    match loaded(obstacles) {
        Some(name) if our_name(name) => Check::problem(
            NAME,
            format!("scx_amp schedules this machine already (`{name}`), and only one scheduler can be loaded"),
            "Nothing needs to be done if it should: `scx_amp ctl status` shows it. To start another \
             one, end it first: `systemctl stop scx_amp`, or Ctrl-C where it was started",
        ),
        Some(name) => Check::problem(
            NAME,
            format!("the sched_ext scheduler `{name}` is loaded, and only one can be"),
            "Stop it first: end its program, or the service that started it (`systemctl stop scx`)",
        ),
        None => Check::ok(NAME, "none is loaded"),
    }
}

/// The control socket of `run`.
fn socket(root: &Path) -> Check {
    const NAME: &str = "control socket";
    let dir = root.join(control::DIR.trim_start_matches('/'));
    if std::fs::symlink_metadata(&dir).is_err() {
        return Check::ok(NAME, format!("{} will be made by `run`", control::DIR));
    }
    if let Err(e) = control::check_dir(&dir) {
        // whoever is not root cannot judge what is root's
        return match rustix::process::geteuid().is_root() {
            true => Check::problem(
                NAME,
                format!("{e:#}"),
                format!("Remove it (`rm -r {}`): `run` makes it anew", control::DIR),
            ),
            false => Check::ok(NAME, format!("{} is for root only", control::DIR)),
        };
    }
    let there = std::fs::symlink_metadata(dir.join(control::SOCKET)).is_ok();
    let socket = format!("{}/{}", control::DIR, control::SOCKET);
    Check::ok(
        NAME,
        match (there, is_ours(root)) {
            (true, true) => format!("a running scx_amp serves {socket}"),
            (true, false) => format!(
                "{socket} was left behind by a `run` that was killed; the next one replaces it"
            ),
            (false, _) => format!("{} is there, for root only", control::DIR),
        },
    )
}

/// Services that may load another scheduler at any time.
fn loaders(root: &Path) -> Option<Check> {
    const NAME: &str = "services";
    let active = |s: &&str| SLICES.iter().any(|d| root.join(d).join(s).is_dir());
    let active: Vec<&str> = LOADERS.iter().copied().filter(active).collect();
    if active.is_empty() {
        return None;
    }
    Some(Check::warning(
        NAME,
        format!(
            "{} is active and may load another scheduler",
            active.join(" and ")
        ),
        format!(
            "Stop it for good: `systemctl disable --now {}`",
            active.join(" ")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::super::testing::Tree;
    use super::*;

    fn of(tree: &Tree, name: &str) -> Check {
        let all = checks(tree.root());
        let found = all.into_iter().find(|c| c.name == name);
        found.unwrap_or_else(|| panic!("no check of {name}"))
    }

    /// The check of that name has this verdict, and says these words.
    fn says(tree: &Tree, name: &str, verdict: Verdict, words: &[&str]) {
        let c = of(tree, name);
        let text = format!("{} / {}", c.found, c.advice.clone().unwrap_or_default());
        assert_eq!(c.verdict, verdict, "{text}");
        assert_eq!(c.advice.is_some(), verdict != Verdict::Ok, "{text}");
        for w in words {
            assert!(text.contains(w), "{w}: {text}");
        }
    }

    #[test]
    fn a_good_kernel_has_no_problem() {
        let tree = Tree::good();
        for c in checks(tree.root()) {
            assert_eq!(c.verdict, Verdict::Ok, "{}: {}", c.name, c.found);
        }
        says(&tree, "kernel", Verdict::Ok, &["7.2.13+deb14-amd64"]);
    }

    #[test]
    fn a_kernel_without_sched_ext_is_a_problem() {
        let tree = Tree::good();
        tree.remove("sys/kernel/sched_ext");
        let words = [
            "7.2.13+deb14-amd64 has no sched_ext",
            "CONFIG_SCHED_CLASS_EXT=y",
        ];
        says(&tree, "kernel", Verdict::Problem, &words);
        tree.put(
            "boot/config-7.2.13+deb14-amd64",
            "CONFIG_SCHED_CLASS_EXT=y\n",
        );
        says(&tree, "kernel", Verdict::Problem, &["mount -t sysfs"]);
    }

    #[test]
    fn an_old_kernel_is_warned_of_and_an_odd_name_is_not() {
        let tree = Tree::good();
        tree.put("proc/sys/kernel/osrelease", "6.12.4\n");
        says(&tree, "kernel", Verdict::Warning, &["6.12.4", "6.18"]);
        tree.put("proc/sys/kernel/osrelease", "mine\n");
        says(&tree, "kernel", Verdict::Ok, &["mine"]);
        tree.remove("proc/sys/kernel/osrelease");
        says(&tree, "kernel", Verdict::Ok, &["unknown"]);
    }

    #[test]
    fn type_information_is_read() {
        let tree = Tree::good();
        tree.put_bytes(
            "sys/kernel/btf/vmlinux",
            &super::super::testing::btf("sched_ext_ops", &["dsq", "aux"]),
        );
        let words = ["scx_bpf_create_dsq", "wrongly", "pahole"];
        says(&tree, "type information", Verdict::Problem, &words);
        tree.put_bytes(
            "sys/kernel/btf/vmlinux",
            &super::super::testing::btf("task_struct", &[]),
        );
        says(
            &tree,
            "type information",
            Verdict::Problem,
            &["does not describe sched_ext"],
        );
        tree.remove("sys/kernel/sched_ext");
        says(&tree, "type information", Verdict::Ok, &["is there"]);
        tree.put("sys/kernel/btf/vmlinux", "not BTF");
        says(&tree, "type information", Verdict::Warning, &["no BTF"]);
        tree.remove("sys/kernel/btf/vmlinux");
        says(
            &tree,
            "type information",
            Verdict::Problem,
            &["CONFIG_DEBUG_INFO_BTF"],
        );
    }

    #[test]
    fn missing_capabilities_are_named() {
        let tree = Tree::good();
        tree.put("proc/self/status", "CapEff:\t0000000000200000\n");
        says(&tree, "permissions", Verdict::Problem, &["CAP_BPF", "sudo"]);
        tree.put("proc/self/status", "Name:\tx\n");
        says(&tree, "permissions", Verdict::Warning, &["/proc"]);
    }

    #[test]
    fn another_scheduler_is_named_and_ours_is_known() {
        let tree = Tree::good();
        assert!(!is_ours(tree.root()));
        tree.put("sys/kernel/sched_ext/state", "enabled\n");
        tree.put("sys/kernel/sched_ext/root/ops", "lavd_1.0\n");
        says(
            &tree,
            "other schedulers",
            Verdict::Problem,
            &["`lavd_1.0`", "Stop it"],
        );
        assert!(!is_ours(tree.root()));
        tree.put("sys/kernel/sched_ext/root/ops", "amp\n");
        says(
            &tree,
            "other schedulers",
            Verdict::Problem,
            &["already", "ctl status"],
        );
        assert!(is_ours(tree.root()));
    }

    #[test]
    fn a_socket_is_ours_or_left_behind_and_its_folder_is_roots() {
        use std::os::unix::fs::PermissionsExt;
        let tree = Tree::good();
        says(&tree, "control socket", Verdict::Ok, &["will be made"]);
        tree.put("run/scx_amp/status.sock", "");
        let dir = tree.root().join("run/scx_amp");
        let mode = |m| std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(m)).unwrap();
        mode(0o700);
        says(&tree, "control socket", Verdict::Ok, &["left behind"]);
        tree.put("sys/kernel/sched_ext/state", "enabled\n");
        tree.put("sys/kernel/sched_ext/root/ops", "amp\n");
        says(&tree, "control socket", Verdict::Ok, &["serves"]);
        mode(0o755);
        match rustix::process::geteuid().is_root() {
            true => says(
                &tree,
                "control socket",
                Verdict::Problem,
                &["0700", "rm -r"],
            ),
            false => says(&tree, "control socket", Verdict::Ok, &["root"]),
        }
    }

    #[test]
    fn services_that_load_schedulers_are_warned_of() {
        for slice in SLICES {
            let tree = Tree::good();
            assert_eq!(loaders(tree.root()), None);
            tree.put(&format!("{slice}/scx_loader.service/cgroup.procs"), "1\n");
            let words = ["scx_loader.service", "systemctl disable --now"];
            says(&tree, "services", Verdict::Warning, &words);
        }
    }
}
