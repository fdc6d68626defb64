//! What `tools/setup/install.sh` installs, and what it removes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the installer into the folder `dest`.
fn install(dest: &Path, prefix: &str, what: &[&str]) -> Output {
    let programs = Path::new(env!("CARGO_BIN_EXE_scx_amp")).parent().unwrap();
    Command::new(repository().join("tools/setup/install.sh"))
        .args(what)
        .env("DESTDIR", dest)
        .env("PREFIX", prefix)
        .env("PROGRAMS", programs)
        .output()
        .unwrap()
}

/// Files below `dir`, by their paths from there.
fn files(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    found.insert(path.strip_prefix(dir).unwrap().display().to_string());
                }
            }
        }
    }
    found
}

#[test]
fn what_is_installed_is_removed() {
    let dest = tempfile::tempdir().unwrap();
    let out = install(dest.path(), "/opt/amp", &[]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let there = files(dest.path());
    for file in [
        "bin/scx_amp",
        "lib/systemd/system/scx_amp.service",
        "share/bash-completion/completions/scx_amp",
        "share/fish/vendor_completions.d/scx_amp.fish",
        "share/man/man1/scx_amp-run.1",
        "share/man/man1/scx_amp.1",
        "share/zsh/site-functions/_scx_amp",
    ] {
        assert!(
            there.contains(&format!("opt/amp/{file}")),
            "{file}: {there:?}"
        );
    }
    let unit = dest
        .path()
        .join("opt/amp/lib/systemd/system/scx_amp.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    assert!(
        unit.contains("\nExecStart=/opt/amp/bin/scx_amp run"),
        "{unit}"
    );
    let installed = dest.path().join("opt/amp/bin/scx_amp");
    assert!(Command::new(installed)
        .arg("--version")
        .output()
        .unwrap()
        .status
        .success());
    // another program's page stays
    let other = "opt/amp/share/man/man1/scx_lavd.1";
    std::fs::write(dest.path().join(other), "").unwrap();
    assert!(install(dest.path(), "/opt/amp", &["uninstall"])
        .status
        .success());
    assert_eq!(files(dest.path()), BTreeSet::from([other.to_owned()]));
}

#[test]
fn a_bad_prefix_or_word_is_told() {
    let dest = tempfile::tempdir().unwrap();
    for (prefix, what, wanted) in [
        ("opt", vec![], "PREFIX"),
        ("/opt", vec!["remove"], "uninstall"),
    ] {
        let out = install(dest.path(), prefix, &what);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(wanted), "{said}");
    }
    assert!(files(dest.path()).is_empty());
}

#[test]
fn the_unit_uses_options_that_exist() {
    let unit = std::fs::read_to_string(repository().join("dist/systemd/scx_amp.service")).unwrap();
    let command = unit
        .lines()
        .find_map(|l| l.strip_prefix("ExecStart=/usr/bin/scx_amp "));
    let out = Command::new(env!("CARGO_BIN_EXE_scx_amp"))
        .args(command.unwrap().split_whitespace())
        .arg("--help")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
}

#[test]
fn what_another_checkout_has_built_is_built_again() {
    let target = tempfile::tempdir().unwrap();
    let here = repository().canonicalize().unwrap();
    let known = |dir: &str, name: &str| {
        let path = target.path().join(dir).join(".fingerprint").join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let make = || {
        let ours = [
            known("release", "amp-board-plugin-1"),
            known("x86_64-unknown-linux-gnu/release", "scx_amp-2"),
            known("x86_64-unknown-linux-gnu/debug", "amp-metrics-3"),
        ];
        let theirs = known("x86_64-unknown-linux-gnu/release", "serde-4");
        let there = ours.each_ref().map(|p| p.exists());
        assert_eq!((there, theirs.exists()), ([true; 3], true));
        (ours, theirs)
    };
    let claim = || {
        let out = Command::new("sh")
            .args(["-euc", r#". "$(dirname "$0")/lib.sh"; claim_target"#])
            .arg(here.join("tools/setup/build.sh"))
            .env("CARGO_TARGET_DIR", target.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.is_empty(), "{said}");
    };
    let left = |(ours, theirs): &([PathBuf; 3], PathBuf)| {
        let ours = ours.each_ref().map(|p| p.exists());
        (ours, theirs.exists())
    };
    let builder = target.path().join("checkout");
    for other in [None, Some("/another/checkout\n")] {
        if let Some(other) = other {
            std::fs::write(&builder, other).unwrap();
        }
        let all = make();
        claim();
        assert_eq!(left(&all), ([false; 3], true), "{other:?}");
    }
    let who = std::fs::read_to_string(&builder).unwrap();
    assert_eq!(who.trim(), here.to_str().unwrap());
    let all = make();
    claim();
    assert_eq!(left(&all), ([true; 3], true), "ours is kept");
}
