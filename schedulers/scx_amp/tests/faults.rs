//! What the command does when what is around it fails: outputs that are full or closed, files that
//! never end, programs that do not. `docs/evidence/faults.md` lists them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes, so that a hang is a failure.
const PATIENCE: Duration = Duration::from_secs(120);

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../metrics/platforms/juno.toml"
);

fn scx_amp(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scx_amp"));
    command
        .args(args)
        .env(
            "SCX_AMP_CACHE",
            std::env::temp_dir().join("scx_amp-cli-tests"),
        )
        .env_remove("SUDO_UID")
        .env_remove("SUDO_GID")
        .stdin(Stdio::null());
    command
}

/// Runs it to its end, which must come.
fn run(command: &mut Command) -> Output {
    let errors = tempfile::tempfile().unwrap();
    let output = tempfile::tempfile().unwrap();
    command.stderr(errors.try_clone().unwrap());
    run_with(command.stdout(output.try_clone().unwrap()), errors, output)
}

/// The same with its output elsewhere; `output` is what is read back.
fn run_with(command: &mut Command, errors: std::fs::File, output: std::fs::File) -> Output {
    let mut child = command.spawn().unwrap();
    let status = ended(&mut child);
    let read = |mut file: std::fs::File| {
        use std::io::{Read, Seek};
        let mut text = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut text).unwrap();
        text
    };
    let out = Output {
        status,
        stdout: read(output),
        stderr: read(errors),
    };
    let said = text(&out.stderr);
    assert!(!said.contains("panicked"), "{command:?}: {said}");
    out
}

fn ended(child: &mut Child) -> std::process::ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn mix() -> String {
    let mixes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/workloads/mixes");
    format!("{mixes}/quickia/2STH-2STL.toml")
}

fn bench(more: &[&str]) -> Command {
    let mut command = scx_amp(&["bench", &mix(), "--on", "sim", "--runs", "2"]);
    command.args(["--policies", "hsp,rr"]).args(more);
    command
}

fn full() -> std::fs::File {
    std::fs::File::create("/dev/full").unwrap()
}

/// The writing end of a pipe that nobody reads.
fn closed() -> std::io::PipeWriter {
    std::io::pipe().unwrap().1
}

/// Bugs 4 and 8 of the review.
#[test]
fn standard_output_may_be_full_or_closed() {
    for args in [
        &["topology"][..],
        &["topology", "--json", "-"],
        &["help", "metrics"],
        &["help", "policy", "hsp"],
        &["model", "show", MODEL],
    ] {
        check_streams(|| scx_amp(args));
    }
    check_streams(|| bench(&[]));
    check_streams(|| bench(&["--json", "-"]));
}

fn check_streams(command: impl Fn() -> Command) {
    let files = || (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let (errors, none) = files();
    let out = run_with(
        command().stdout(full()).stderr(errors.try_clone().unwrap()),
        errors,
        none,
    );
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{:?}: {said}", command());
    assert!(said.contains("standard output"), "{:?}: {said}", command());
    let (errors, none) = files();
    let out = run_with(
        command()
            .stdout(closed())
            .stderr(errors.try_clone().unwrap()),
        errors,
        none,
    );
    assert_eq!(out.status.code(), Some(0), "{:?}", command());
}

/// Bug 8 of the review: exit status 101.
#[test]
fn standard_error_may_be_full_or_closed() {
    for to in [Stdio::from(full()), Stdio::from(closed())] {
        let mut child = scx_amp(&["bench", "/nonexistent.toml"]).stderr(to).spawn();
        assert_eq!(ended(child.as_mut().unwrap()).code(), Some(2));
    }
}

/// Bug 5 of the review: one file that could not be written lost the table and the other file.
#[test]
fn an_output_that_fails_does_not_take_the_others_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let reads = |file: &str| {
        let text = std::fs::read_to_string(file).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let out = run(&mut bench(&[
        "--html",
        "/dev/full",
        "--json",
        &at("ok.json"),
    ]));
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("/dev/full"), "{said}");
    assert!(text(&out.stdout).contains("unfairness"));
    assert!(reads(&at("ok.json"))["results"].is_array());
    let out = run(&mut bench(&[
        "--json",
        "/dev/full",
        "--html",
        &at("ok.html"),
    ]));
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("unfairness"));
    let page = std::fs::read_to_string(at("ok.html")).unwrap();
    assert!(page.trim_end().ends_with("</html>"));
}

/// Bug 6 of the review: the command ran, and then there was nowhere to say what was counted.
#[test]
fn an_output_that_cannot_be_is_told_before_the_command_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran").display().to_string();
    for (what, option) in [
        ("stat", "--json"),
        ("stat", "-o"),
        ("record", "--json"),
        ("patterns", "--json"),
    ] {
        let args = ["pmc", what, option, "/nonexistent/x", "--", "touch", &mark];
        let out = run(&mut scx_amp(&args));
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("/nonexistent: no such folder"), "{said}");
        assert!(!Path::new(&mark).exists());
    }
}

/// Bug 7 of the review: warnings stood among the results.
#[test]
fn what_is_logged_goes_to_standard_error() {
    let out = run(&mut scx_amp(&["topology", "--json", "-"]));
    let found: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    if found["core_types"].as_array().unwrap().len() > 1 {
        amp_skips::skip("this machine would be scheduled");
        return;
    }
    let out = run(&mut scx_amp(&["run", "--if-hybrid", "--policy", "rr"]));
    assert!(out.stdout.is_empty(), "{}", text(&out.stdout));
    assert!(
        text(&out.stderr).contains("[INFO]"),
        "{}",
        text(&out.stderr)
    );
}

/// Bugs 2 and 10 of the review, on the command line.
#[test]
fn a_file_that_is_no_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo.toml");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let fifo = fifo.display().to_string();
    for args in [
        &["run", "--provider", &fifo][..],
        &["run", "--profile", &fifo],
        &["run", "--rules", &fifo],
        &["config", "check", &fifo],
        &["bench", &fifo],
        &["bench", &mix(), "--on", "sim", "--machine", &fifo],
        &["bench", &mix(), "--on", "sim", "--provider", &fifo],
        &["bench", "--compare", &fifo, &fifo],
        &["replay", &fifo],
        &["model", "train", &fifo, "--out", "-"],
        &["model", "eval", MODEL, &fifo],
        &["model", "collect", "--programs", &fifo, "--out", "x.csv"],
        &["pmc", "stat", "-g", &fifo, "--", "true"],
    ] {
        let out = run(&mut scx_amp(args));
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("not a regular file"), "{args:?}: {said}");
    }
}

/// Bug 17 of the review.
#[test]
fn bad_options_of_the_board_are_told_before_anything_is_fetched() {
    for (args, word) in [
        (&["--file", "nocolon"][..], "HOST:GUEST"),
        (&["--file", "/etc/passwd:x"], "absolute"),
        (&["--collect", "relative"], "absolute"),
        (&["--collect", "/a/../b"], "absolute"),
        (&["--plugin-arg", "x"], "KEY=VALUE"),
        (
            &["--plugin-arg", "x=1", "--plain", "x86_64"],
            "cannot be used with",
        ),
    ] {
        let out = run(scx_amp(&["board", "run"]).args(args).args(["-c", "true"]));
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

/// Bug 19 of the review: programs ran alone for hours first.
#[test]
fn a_policy_that_cannot_be_loaded_is_told_before_programs_run() {
    if Path::new("/sys/kernel/sched_ext").exists() {
        amp_skips::skip("this machine's kernel has sched_ext");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let mix = dir.path().join("w.toml");
    let command = format!("command = [\"touch\", {:?}]", mark.display().to_string());
    std::fs::write(
        &mix,
        format!("name = \"w\"\n[[app]]\nname = \"a\"\n{command}\n"),
    )
    .unwrap();
    let args = ["bench", mix.to_str().unwrap(), "--on", "host"];
    let out = run(scx_amp(&args).args(["--big-cpus", "0", "--policies", "rr"]));
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("sched_ext"), "{said}");
    assert!(!mark.exists());
}

/// Bug 9 of the review: phases that take no time were simulated for ever, and no signal ended it.
#[test]
fn the_simulator_ends_whatever_the_phases_are() {
    let dir = tempfile::tempdir().unwrap();
    let mix = dir.path().join("w.toml");
    for (instructions, ips) in [("5e-324", "1e9"), ("1.0", "1e9"), ("1e9", "9e18")] {
        let phase = format!("instructions = {instructions}, ips_big = {ips}, ips_small = 5e8");
        let app = format!("name = \"a\"\ninstructions = 1e12\nphases = [ {{ {phase} }} ]\n");
        std::fs::write(&mix, format!("name = \"w\"\n[[app]]\n{app}")).unwrap();
        let args = ["bench", mix.to_str().unwrap(), "--on", "sim"];
        let mut child = scx_amp(&args)
            .args(["--policies", "rr", "--runs", "2"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        // before there is a handler, anything ends on the signal
        wait_for(|| {
            (handles(&child, rustix::process::Signal::INT) || ended_by_itself(&mut child))
                .then_some(())
        });
        std::thread::sleep(SIMULATES);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        ended(&mut child);
    }
}

/// Time in which a simulation has begun, on any but the slowest machine; there, the test shows less.
const SIMULATES: Duration = Duration::from_millis(500);

fn ended_by_itself(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

/// Whether `child` has a handler of its own for `signal`.
fn handles(child: &Child, signal: rustix::process::Signal) -> bool {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    caught.is_some_and(|set| set >> (signal.as_raw() - 1) & 1 == 1)
}

fn wait_for<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bug 12 of the review: a command that ignores SIGTERM was waited for, whatever the user did.
#[test]
fn a_command_that_does_not_want_to_end_is_killed_with_what_it_started() {
    for interrupted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let told: PathBuf = dir.path().join("pids");
        let script = format!(
            "trap '' TERM INT; sleep 600 & echo $$ $! >{0}.new; mv {0}.new {0}; while true; do wait; done",
            told.display()
        );
        let args = ["pmc", "stat", "-e", "task-clock:u", "--timeout"];
        // long enough for the shell to have told on any machine
        let time = if interrupted { "600000" } else { "3000" };
        let mut child = scx_amp(&args)
            .args([time, "--", "sh", "-c", &script])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pids: Vec<String> = wait_for(|| {
            let text = std::fs::read_to_string(&told).ok();
            let gone = text.is_none() && child.try_wait().unwrap().is_some();
            assert!(!gone, "nothing can be counted here");
            Some(text?.split_whitespace().map(str::to_owned).collect())
        });
        if interrupted {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        }
        assert_eq!(ended(&mut child).code(), Some(137));
        wait_for(|| pids.iter().all(|p| !runs(p)).then_some(()));
    }
}

/// Whether a process is there and has not ended.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|s| !s.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}
