//! What goes wrong while setting up is reported, with what to do about it, and leaves nothing half
//! done.

use amp_tests::{repository, scx_amp};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

fn told(out: &Output) -> String {
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    println!("{text}");
    text
}

/// Namespaces of its own are root's to make; `./test` runs as root wherever it can install
/// packages.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        amp_skips::skip("cutting off network and disk takes root (run it as `sudo ./test`)");
    }
    root
}

/// A shell in namespaces of its own, with an empty cache folder that holds `mib` MiB.
fn fetch(namespaces: &str, cache: &Path, mib: u32) -> Output {
    let script = r#"mount -t tmpfs -o size="$2"m none "$1" || exit 99
SCX_AMP_CACHE="$1" "$3" board fetch; rc=$?
find "$1" -name '*.deb' -o -name '*.cpio' -o -name 'vmlinu*' -o -path '*partial/*' | sed 's/^/left /'
exit $rc"#;
    Command::new("unshare")
        .args([namespaces, "--", "sh", "-c", script, "sh"])
        .arg(cache)
        .arg(mib.to_string())
        .arg(scx_amp())
        .output()
        .expect("unshare of util-linux")
}

#[test]
fn without_a_network_a_fetch_says_so() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = fetch("-mn", dir.path(), 64);
    let text = told(&out);
    assert_eq!(out.status.code(), Some(1));
    assert!(text.contains("network"), "{text}");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "", "nothing is left");
}

#[test]
fn on_a_full_disk_a_fetch_says_so_and_leaves_no_half_file() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut out = fetch("-m", dir.path(), 30);
    let mut text = told(&out);
    // a mirror that is out of reach for a moment is another test's
    for _ in 0..3 {
        if text.contains("the mirror cannot be reached") {
            out = fetch("-m", dir.path(), 30);
            text = told(&out);
        }
    }
    assert_eq!(out.status.code(), Some(1));
    assert!(text.contains("disk") || text.contains("space"), "{text}");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "", "nothing is left");
}

/// `PATH` with what the script needs to get as far as looking for clang.
#[test]
fn without_clang_the_build_says_which_to_install() {
    let bin = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in [
        "sh", "sed", "cut", "dirname", "basename", "env", "rustc", "cargo", "rustup",
    ] {
        if let Some(at) = std::env::split_paths(&path)
            .map(|d| d.join(tool))
            .find(|f| f.is_file())
        {
            symlink(at, bin.path().join(tool)).unwrap();
        }
    }
    let out = Command::new(repository().join("tools/setup/build.sh"))
        .env("PATH", bin.path())
        .env_remove("BPF_CLANG")
        .output()
        .unwrap();
    let text = told(&out);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text.contains("clang-19") && text.contains("packages.sh"),
        "{text}"
    );
}
