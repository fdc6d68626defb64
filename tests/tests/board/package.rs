//! The Debian package in a system with systemd on a disk: installed, enabled, there after a reboot,
//! started again after faults, and gone without a trace.

use amp_tests::{repository, Lab, Reply};
use std::path::PathBuf;
use std::process::Command;

const TRIAL_UNIT: &str = "[Service]\nType=exec\nExecStart=/bin/sh /var/trial/trial.sh\n";

/// Runs in the initramfs of the last boot.
const HAND_OVER: &str = r#"
cat /mnt/var/trial/found
echo "boots $(cat /mnt/var/trial/boots)"
"#;

/// What a Debian system has that the trial needs; the rest comes as dependencies.
const SYSTEM: [&str; 13] = [
    "coreutils",
    "diffutils",
    "dpkg",
    "e2fsprogs",
    "findutils",
    "grep",
    "init-system-helpers",
    "libc-bin",
    "perl-base",
    "sed",
    "systemd",
    "usr-is-merged",
    "util-linux",
];

/// The arm64 package of the programs that guests have.
fn package(into: &std::path::Path) -> PathBuf {
    let out = Command::new(repository().join("tools/setup/package.sh"))
        .arg("--board")
        .arg(into)
        .output()
        .expect("tools/setup/package.sh");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "package.sh: {said}");
    let files = std::fs::read_dir(into).expect("the folder of the package");
    let mut debs: Vec<PathBuf> = files.flatten().map(|f| f.path()).collect();
    assert_eq!(debs.len(), 1, "one package: {debs:?}");
    debs.remove(0)
}

#[test]
fn the_package_lasts_over_a_reboot_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut lab = Lab::pair()
        .disk(1024)
        .without_programs()
        .program_text("/init", include_str!("package/init.sh"))
        .file("/var/trial/trial.sh", include_str!("package/trial.sh"))
        .file("/etc/systemd/system/trial.service", TRIAL_UNIT)
        .host_file("/var/trial/scx-amp.deb", &package(dir.path()));
    for name in SYSTEM {
        lab = lab.package(name);
    }
    let r: Reply = lab.run(HAND_OVER).ok();
    println!("kernel {}", r.0.kernel.release);
    println!("host seconds {:.0}", r.0.host_seconds);

    assert!(r.line("installed").starts_with("installed "));
    assert!(r.line("installed").ends_with(" arm64"));
    assert_eq!(r.line("as-installed"), "disabled inactive disabled");
    assert_eq!(r.line("enabled"), "enabled");

    assert_eq!(r.line("another"), "boot");
    assert_eq!(r.line("up"), "enabled");
    assert_eq!(r.line("active"), "active /usr/bin/scx_amp");
    assert_eq!(r.line("profile"), "auto hsp");
    assert_eq!(r.line("statistics"), "served");
    assert_eq!(r.line("change-status"), "0");
    assert_eq!(r.line("changed"), "fair acfs enabled");

    assert_eq!(r.line("killed"), "disabled");
    assert_eq!(r.line("started-again"), "enabled 1");
    assert_eq!(r.line("profile-again"), "auto hsp", "as the unit says");
    assert_eq!(r.line("ejected"), "disabled");
    assert_eq!(r.line("started-anew"), "enabled 2");
    assert!(r.line("ticks").parse::<u64>().is_ok(), "status answers");
    let journal: Vec<&str> = r.lines("journal").collect();
    let reported = |what: &str| journal.iter().any(|l| l.contains(what));
    assert!(reported("status=9/KILL"), "{journal:?}");
    assert!(reported("sysrq"), "{journal:?}");

    assert_eq!(r.line("stopped"), "inactive disabled");
    assert_eq!(r.line("purged"), "unknown");
    assert_eq!(r.line("unit"), "none");
    assert_eq!(r.line("programs"), "0");
    assert_eq!(r.lines("path").collect::<Vec<_>>(), [""; 0]);
    assert_eq!(r.lines("left").collect::<Vec<_>>(), [""; 0]);
    assert_eq!(r.line("end"), "disabled");
    assert_eq!(r.line("boots"), "3");
}
