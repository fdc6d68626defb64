//! The launcher with made-up programs and a made-up kernel: a folder in which the programs write
//! what the kernel would.

use super::*;
use amp_eval::Contender;
use tempfile::TempDir;

const QUICK: Patience = Patience {
    load: Duration::from_secs(20),
    end: Duration::from_secs(20),
};

fn scx(text: &str) -> Scx {
    let contender: Contender = text.parse().unwrap();
    contender.scx().unwrap().clone()
}

/// A kernel without a scheduler, and room for programs.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("kernel/root")).unwrap();
        let place = Place { dir };
        place.set("disabled");
        place
    }

    fn kernel(&self) -> PathBuf {
        self.dir.path().join("kernel")
    }

    fn set(&self, state: &str) {
        std::fs::write(self.kernel().join("state"), format!("{state}\n")).unwrap();
    }

    fn state(&self) -> String {
        let text = std::fs::read_to_string(self.kernel().join("state")).unwrap();
        text.trim().to_owned()
    }

    /// A program `scx_made` with this script, which runs in the kernel's folder. Another process
    /// writes it: a child of another test's thread, between fork and exec, would have a copy of our
    /// descriptor, and no file is run that is open for writing.
    fn program(&self, script: &str) -> Installed {
        let plain = self.dir.path().join("text");
        let text = format!("#!/bin/sh\ncd '{}'\n{script}\n", self.kernel().display());
        std::fs::write(&plain, text).unwrap();
        let mut install = std::process::Command::new("install");
        let file = self.dir.path().join("scx_made");
        let made = install.args(["-m", "755"]).args([plain, file]).status();
        assert!(made.unwrap().success());
        let path = self.dir.path().display().to_string();
        Installed::find_in(&scx("scx:made -s 5"), &path).unwrap()
    }

    fn start(&self, installed: &Installed, patience: Patience) -> Result<Peer> {
        let never = AtomicBool::new(false);
        Peer::start_with(installed, &[0], &never, &self.kernel(), patience)
    }
}

/// Loads, and unloads when it is interrupted.
const GOOD: &str = "trap 'echo disabled > state; exit 0' INT\n\
    echo made_1.0 > root/ops; echo enabled > state; while :; do sleep 0.05; done";

fn why(e: &anyhow::Error) -> &str {
    let failed: Option<&PeerFailed> = e.downcast_ref();
    &failed.unwrap_or_else(|| panic!("{e:#}")).0
}

#[test]
fn one_that_loads_is_checked_and_ended() {
    let place = Place::new();
    let mut peer = place.start(&place.program(GOOD), QUICK).unwrap();
    assert_eq!(place.state(), "enabled");
    peer.check().unwrap();
    peer.end().unwrap();
    assert_eq!(place.state(), "disabled");
    // also when nobody ends it
    drop(place.start(&place.program(GOOD), QUICK).unwrap());
    assert_eq!(place.state(), "disabled");
}

#[test]
fn one_that_exits_at_once_is_told_with_its_words() {
    let place = Place::new();
    for (script, words) in [
        (
            "echo loading; echo no symbol cpufreq >&2; exit 3",
            ["scx_made ended with status 3", "loading\nno symbol cpufreq"],
        ),
        ("echo $1 $2", ["ended with status 0", "-s 5"]),
    ] {
        let e = place.start(&place.program(script), QUICK).unwrap_err();
        let why = why(&e);
        assert!(why.starts_with("it was not loaded"), "{why}");
        for w in words {
            assert!(why.contains(w), "{script}: no `{w}` in {why}");
        }
    }
}

#[test]
fn one_that_never_loads_is_given_up_and_killed() {
    let place = Place::new();
    let program = place.program("trap '' INT; echo verifying; echo $$ > pid; sleep 1000");
    let short = Patience {
        // long enough for a shell to start on any machine
        load: Duration::from_secs(3),
        end: Duration::from_millis(100),
    };
    let e = place.start(&program, short).unwrap_err();
    let why = why(&e);
    assert!(
        why.contains("not loaded after 3 s (sched_ext is `disabled`)") && why.contains("verifying"),
        "{why}"
    );
    let pid = std::fs::read_to_string(place.kernel().join("pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists());
}

#[test]
fn one_that_ends_or_is_ejected_in_mid_run_is_noticed() {
    let place = Place::new();
    let wait = "while [ ! -e now ]; do sleep 0.02; done";
    let killed = format!("({wait}; kill -9 $$) & {GOOD}");
    let ejected = format!(
        "echo made > root/ops; echo enabled > state; {wait}\n\
        echo disabled > state; echo 'stall: runnable task' >&2; exec sleep 1000"
    );
    for (script, words) in [
        (killed.as_str(), ["ended in mid-run", "signal 9"]),
        (
            ejected.as_str(),
            ["the kernel ended it in mid-run", "runnable task"],
        ),
    ] {
        place.set("disabled");
        let mut peer = place.start(&place.program(script), QUICK).unwrap();
        let now = place.kernel().join("now");
        std::fs::write(&now, "").unwrap();
        let mut seen = None;
        within(Duration::from_secs(20), || {
            seen = peer.check().err();
            seen.is_some()
        });
        let e = seen.expect("it is noticed");
        // a real kernel does this by itself when the program is gone
        place.set("disabled");
        std::fs::remove_file(&now).unwrap();
        for w in words {
            assert!(why(&e).contains(w), "no `{w}` in {e:#}");
        }
    }
}

#[test]
fn none_is_started_beside_another_or_after_an_interruption() {
    let place = Place::new();
    place.set("enabled");
    std::fs::write(place.kernel().join("root/ops"), "other\n").unwrap();
    let e = place.start(&place.program(GOOD), QUICK).unwrap_err();
    assert!(
        !e.is::<PeerFailed>() && e.to_string().contains("`other`"),
        "{e:#}"
    );
    place.set("disabled");
    let stop = AtomicBool::new(true);
    let program = place.program("exec sleep 1000");
    let e = Peer::start_with(&program, &[0], &stop, &place.kernel(), QUICK).unwrap_err();
    assert!(e.is::<Interrupted>());
}

#[test]
fn a_program_is_found_by_its_name_and_says_its_version() {
    let place = Place::new();
    let mut found = place.program("[ \"$1\" = --version ] && echo scx_made 1.2.3");
    found.ask_version();
    let facts = found.facts(Some("7.0".into()));
    assert_eq!(
        (facts.program.as_str(), facts.version.as_deref()),
        ("scx_made", Some("scx_made 1.2.3"))
    );
    assert_eq!(facts.arguments, ["-s", "5"]);
    let mut found = place.program("echo no such option >&2; exit 2");
    found.ask_version();
    assert_eq!(found.facts(None).version, None);
    let path = place.dir.path().display().to_string();
    let e = Installed::find_in(&scx("scx:mad"), &path).unwrap_err();
    let said = e.to_string();
    assert!(e.is::<amp_host::BadInput>());
    assert!(
        said.contains("`scx_mad`") && said.contains("did you mean `scx:made`?"),
        "{said}"
    );
    // a folder of that name is no program
    std::fs::create_dir(place.dir.path().join("scx_folder")).unwrap();
    assert!(Installed::find_in(&scx("scx:folder"), &path).is_err());
}
