use super::super::{with_lists, KEYRINGS, LISTS_AGE};
use super::*;
use crate::testing::executable;
use std::sync::atomic::AtomicBool;

/// A machine with Debian sources, a keyring, and fake apt and dpkg programs.
pub(crate) struct Fake {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) cache: Cache,
}

impl Fake {
    pub(crate) fn new() -> Fake {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let p = dir.path().join(name);
            fs::create_dir_all(p.parent().unwrap()).unwrap();
            fs::write(p, text).unwrap();
        };
        put("etc/os-release", "VERSION_CODENAME=bookworm\n");
        put(
            "etc/apt/sources.list",
            "deb http://mirror/debian bookworm main\n",
        );
        put(KEYRINGS[0], "");
        put(
            "var/lib/dpkg/status",
            "Package: libc6\nStatus: installed\n\nPackage: qemu-system-arm\nStatus: installed\n\n",
        );
        let cache = Cache::at(&dir.path().join("cache")).unwrap();
        Fake { dir, cache }
    }

    pub(crate) fn program(&self, name: &str, script: &str) -> &Fake {
        let p = self.dir.path().join("bin").join(name);
        fs::create_dir_all(p.parent().unwrap()).unwrap();
        executable(&p, &format!("#!/bin/sh\n{script}\n"));
        self
    }

    pub(crate) fn host(&self) -> Host {
        Host {
            root: self.dir.path().into(),
            programs: Some(self.dir.path().join("bin")),
            mirror: None,
        }
    }

    fn apt(&self, installed: Installed) -> Apt<'_> {
        let suites = ["bookworm", "sid"].map(|n| Suite {
            uri: "http://mirror/debian".into(),
            name: n.into(),
        });
        Apt::new(
            &self.cache,
            &self.host(),
            "t",
            "arm64",
            suites.to_vec(),
            installed,
        )
        .unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join("cache/apt/t").join(name)).unwrap()
    }
}

fn no() -> AtomicBool {
    AtomicBool::new(false)
}

fn offer() -> Offer {
    Offer {
        package: "foo".into(),
        version: "1:2-3".into(),
        suite: "sid".into(),
    }
}

#[test]
fn the_configuration_is_private_and_signed() {
    let f = Fake::new();
    f.apt(Installed::HostExcept("qemu-system"));
    let conf = f.read("apt.conf");
    let inside = f.dir.path().join("cache/apt/t");
    for key in [
        "Dir::State ",
        "Dir::Cache ",
        "Dir::State::lists",
        "Dir::State::status",
        "Dir::Etc::sourcelist",
    ] {
        let line = conf.lines().find(|l| l.starts_with(key)).unwrap();
        assert!(line.contains(&inside.display().to_string()), "{line}");
    }
    for line in f.read("sources").lines() {
        assert!(
            line.contains("signed-by=") && line.contains("debian-archive-keyring"),
            "{line}"
        );
    }
    let status = f.read("status");
    assert!(
        status.contains("libc6") && !status.contains("qemu-system"),
        "{status}"
    );
    f.apt(Installed::Nothing);
    assert_eq!(f.read("status"), "");
}

#[test]
fn a_missing_keyring_is_named_with_its_package() {
    let f = Fake::new();
    fs::remove_file(f.dir.path().join(KEYRINGS[0])).unwrap();
    let e = Apt::new(
        &f.cache,
        &f.host(),
        "t",
        "arm64",
        vec![],
        Installed::Nothing,
    )
    .unwrap_err();
    assert!(e.to_string().contains("debian-archive-keyring"), "{e}");
}

#[test]
fn suites_that_cannot_be_reached_are_left_out() {
    let f = Fake::new();
    // The source list of the call is its fourth argument: -c FILE -o Dir::Etc::sourcelist=FILE.
    f.program(
        "apt-get",
        "list=${4#*=}; if grep -q ' sid ' \"$list\"; then echo \"E: The repository 'x sid Release' does not have a Release file.\" >&2; exit 100; fi",
    );
    let apt = f.apt(Installed::Nothing);
    apt.update(Duration::ZERO, &no(), &mut |_| ()).unwrap();
    let sources = f.read("sources");
    assert!(
        sources.contains(" bookworm ") && !sources.contains(" sid "),
        "{sources}"
    );
}

#[test]
fn no_network_names_what_was_wanted_and_where() {
    let f = Fake::new();
    f.program(
        "apt-get",
        "echo \"E: Failed to fetch http://mirror/x  Could not resolve 'mirror'\" >&2; exit 100",
    );
    let apt = f.apt(Installed::Nothing);
    let e = apt.update(Duration::ZERO, &no(), &mut |_| ()).unwrap_err();
    assert!(matches!(
        &e,
        BoardError::Fetch {
            failure: FetchFailure::NoNetwork,
            ..
        }
    ));
    let text = e.to_string();
    assert!(
        text.contains("index of bookworm") && text.contains("cache/apt/t/lists"),
        "{text}"
    );
    let e = apt
        .fetch_one(&offer(), &no(), &mut |_| ())
        .unwrap_err()
        .to_string();
    assert!(e.contains("foo 1:2-3") && e.contains("network"), "{e}");
}

#[test]
fn lists_fetched_before_serve_without_a_network() {
    let f = Fake::new();
    f.program("apt-get", "exit 0");
    let apt = f.apt(Installed::Nothing);
    apt.update(Duration::ZERO, &no(), &mut |_| ()).unwrap();
    f.program(
        "apt-get",
        "echo 'E: Could not resolve mirror' >&2; exit 100",
    );
    apt.update(Duration::ZERO, &no(), &mut |_| ()).unwrap();
    assert!(f.read("sources").contains(" sid "));
}

#[test]
fn lists_of_another_mirror_do_not_serve() {
    let f = Fake::new();
    f.program("apt-get", "echo update >> \"${0%/*}/calls\"");
    let update = |uri: &str| {
        let suite = Suite {
            uri: uri.into(),
            name: "bookworm".into(),
        };
        let (host, nothing) = (f.host(), Installed::Nothing);
        let apt = Apt::new(&f.cache, &host, "t", "arm64", vec![suite], nothing).unwrap();
        apt.update(LISTS_AGE, &no(), &mut |_| ()).unwrap();
        let calls = fs::read_to_string(f.dir.path().join("bin/calls")).unwrap_or_default();
        calls.lines().count()
    };
    let calls = ["http://m", "http://n", "http://n", "http://m"].map(update);
    assert_eq!(calls, [1, 2, 2, 3]);
}

#[test]
fn a_full_disk_leaves_no_half_file() {
    let f = Fake::new();
    f.program(
        "apt-get",
        "printf half > foo_1%3a2-3_arm64.deb; printf half > ../pkgcache.bin.Xy12; echo 'E: Write error - write (28: No space left on device)' >&2; exit 100",
    );
    let apt = f.apt(Installed::Nothing);
    let e = apt.fetch_one(&offer(), &no(), &mut |_| ()).unwrap_err();
    assert!(matches!(
        &e,
        BoardError::Fetch {
            failure: FetchFailure::DiskFull,
            ..
        }
    ));
    let text = e.to_string();
    assert!(
        text.contains("foo") && text.contains("cache/apt/t") && text.contains("SCX_AMP_CACHE"),
        "{text}"
    );
    let left = fs::read_dir(f.dir.path().join("cache/apt/t/single"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
    assert!(!f.dir.path().join("cache/apt/t/pkgcache.bin.Xy12").exists());
}

#[test]
fn an_interrupted_download_is_there_for_apt_to_resume() {
    let f = Fake::new();
    let half = "foo_1%3a2-3_arm64.deb";
    f.program(
        "apt-get",
        &format!("printf half > {half}; echo 'E: Connection timed out' >&2; exit 100"),
    );
    let apt = f.apt(Installed::Nothing);
    assert!(apt.fetch_one(&offer(), &no(), &mut |_| ()).is_err());
    f.program(
        "apt-get",
        &format!("test \"$(cat {half})\" = half && printf whole > {half}"),
    );
    let file = apt.fetch_one(&offer(), &no(), &mut |_| ()).unwrap();
    assert_eq!(fs::read_to_string(file).unwrap(), "whole");
}

#[test]
fn packages_of_all_architectures_are_found_under_their_name() {
    let f = Fake::new();
    f.program("apt-get", "printf x > foo_1%3a2-3_all.deb");
    let file = f
        .apt(Installed::Nothing)
        .fetch_one(&offer(), &no(), &mut |_| ())
        .unwrap();
    assert!(file.ends_with("foo_1%3a2-3_all.deb"));
}

#[test]
fn progress_is_told() {
    let f = Fake::new();
    f.program(
        "apt-get",
        "echo dlstatus:1:42.5000:Retrieving; printf x > foo_1%3a2-3_all.deb",
    );
    let mut seen = Vec::new();
    f.apt(Installed::Nothing)
        .fetch_one(&offer(), &no(), &mut |e| {
            if let crate::Event::Progress { percent, .. } = e {
                seen.push(percent);
            }
        })
        .unwrap();
    assert_eq!(seen, [None, Some(42)]);
}

#[test]
fn an_unknown_package_is_named() {
    let f = Fake::new();
    f.program(
        "apt-get",
        "echo 'E: Unable to locate package nosuch' >&2; exit 100",
    );
    let wanted = ["libc6".to_string(), "nosuch".to_string()];
    let e = f
        .apt(Installed::Nothing)
        .resolve(&wanted, None, &no())
        .unwrap_err();
    assert!(
        matches!(&e, BoardError::NoSuchPackage { package, .. } if package == "nosuch"),
        "{e}"
    );
}

#[test]
fn a_missing_apt_is_named() {
    let f = Fake::new();
    let e = f
        .apt(Installed::Nothing)
        .names("x", &no())
        .unwrap_err()
        .to_string();
    assert!(
        e.contains("apt-cache") && e.contains("install the package apt"),
        "{e}"
    );
}

#[test]
fn what_apt_prints_is_understood() {
    let line = "linux-binary-7.2.13+deb14-cloud-arm64 |   7.2.13-1 | http://m/debian sid/main arm64 Packages";
    let o = madison_line(line).unwrap();
    assert_eq!((o.version.as_str(), o.suite.as_str()), ("7.2.13-1", "sid"));
    assert_eq!(madison_line("x | 1 | http://m sid/main Sources"), None);
    let d = inst_line("Inst libbz2-1.0 (1.0.8-5+b1 Debian:12.11/stable [arm64]) []").unwrap();
    assert_eq!(d.file, "libbz2-1.0_1.0.8-5+b1_arm64.deb");
    let d = inst_line("Inst dummy [1] (1:2.0 Debian:testing, Debian:unstable [all])").unwrap();
    assert_eq!(d.file, "dummy_1%3a2.0_all.deb");
    assert_eq!(
        inst_line("Conf libbz2-1.0 (1.0.8-5+b1 Debian:12.11/stable [arm64])"),
        None
    );
}

#[test]
fn what_rotated_out_of_the_archive_is_looked_up_anew_once() {
    let gone = || BoardError::Fetch {
        package: "x".into(),
        folder: "y".into(),
        failure: FetchFailure::NotThere,
        detail: String::new(),
    };
    let mut ages = Vec::new();
    let r = with_lists(false, |age| {
        ages.push(age);
        if age.is_zero() {
            Ok(7)
        } else {
            Err(gone())
        }
    });
    assert_eq!((r.unwrap(), ages), (7, vec![LISTS_AGE, Duration::ZERO]));
    let mut calls = 0;
    let r: Result<(), _> = with_lists(true, |_| {
        calls += 1;
        Err(gone())
    });
    assert!(r.is_err() && calls == 1);
}
