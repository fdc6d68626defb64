//! `./soak kernels` with made-up results: which kernels may fail.

use amp_tests::repository;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::process::Command;

/// Takes the place of the command: `LOST` and `MISSING` are kernels that fail and that there are
/// none of.
const COMMAND: &str = r#"#!/bin/sh
while [ "$1" != --kernel ]; do shift; done
case " $LOST " in *" $2 "*) echo "soak-failed: made up"; exit 1 ;; esac
case " $MISSING " in *" $2 "*) echo "no such kernel"; exit 2 ;; esac
echo "soak-ok $2: made up"
"#;

/// Exit status of the slice and what it says, with these kernels lost and missing.
fn kernels(which: &str, lost: &str, missing: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::copy(repository().join("soak"), at("soak")).unwrap();
    for name in ["tools", "Cargo.toml"] {
        symlink(repository().join(name), at(name)).unwrap();
    }
    let folder = Command::new(at("tools/setup/build.sh"))
        .arg("--where")
        .env("CARGO_TARGET_DIR", at("target"))
        .output()
        .unwrap();
    let folder = String::from_utf8(folder.stdout).unwrap();
    let folder = std::path::Path::new(folder.trim());
    assert!(folder.starts_with(dir.path()), "{}", folder.display());
    std::fs::create_dir_all(folder).unwrap();
    let command = folder.join("scx_amp");
    std::fs::write(&command, COMMAND).unwrap();
    std::fs::set_permissions(&command, PermissionsExt::from_mode(0o755)).unwrap();
    let out = Command::new(at("soak"))
        .arg("kernels")
        .env("CARGO_TARGET_DIR", at("target"))
        .env("KERNELS", which)
        .env("LOST", lost)
        .env("MISSING", missing)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    println!("{text}");
    (out.status.code(), text)
}

#[test]
fn only_the_newest_kernel_may_fail_where_pinned_ones_do_not() {
    const CANARY: &str = "== canary, for information: the newest kernel fails";
    for (which, lost, missing, status, canary) in [
        ("7.0 newest", "", "", 0, false),
        ("7.0 newest", "newest", "", 0, true),
        ("7.0 newest", "", "newest", 0, false),
        ("7.0 7.2 newest", "newest", "7.2", 0, true),
        ("7.0 7.2 newest", "7.2", "", 1, false),
        ("7.0 7.2 newest", "7.2 newest", "", 1, false),
        ("7.0 newest", "newest", "7.0", 1, false),
        ("newest", "", "", 1, false),
        ("7.0 newest", "", "7.0 newest", 1, false),
    ] {
        let (code, text) = kernels(which, lost, missing);
        let said = text.contains(CANARY);
        assert_eq!(
            (code, said),
            (Some(status), canary),
            "{which}; lost {lost}; missing {missing}:\n{text}"
        );
    }
}
