//! `scx_amp pmc` on the machine that runs the tests, which may have a PMU or not, and may let us
//! count or not.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn pmc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_scx_amp"))
        .arg("pmc")
        .args(args)
        .env_remove("SUDO_UID")
        .env_remove("SUDO_GID")
        .output()
        .unwrap()
}

fn said(out: &Output) -> String {
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// Whether a PMU of this machine lists CPUs, as those of cores do.
fn has_pmu() -> bool {
    let devices = std::fs::read_dir("/sys/bus/event_source/devices");
    let mut devices = devices.into_iter().flatten().flatten();
    devices.any(|d| d.file_name() == "cpu" || d.path().join("cpus").exists())
}

#[test]
fn bad_input_is_told_by_name() {
    for (args, word) in [
        (&["stat"][..], "give a command"),
        (&["stat", "-e", "cs", "-p", "0"], "-p 0"),
        (&["stat", "-e", "cs", "-p", "2147483647"], "no such process"),
        (&["stat", "-e", ",", "--", "true"], "no event"),
        (&["stat", "-e", "software//", "--", "true"], "software//"),
        (&["stat", "-e", "cs", "-m", "x=cs/cz", "--", "true"], "`cz`"),
        (
            &["stat", "-e", "cs", "-m", "x=(cs", "--", "true"],
            "without `)`",
        ),
        (&["stat", "-e", "cs", "-i", "0", "--", "true"], "0"),
        (&["stat", "-V", "sf,enery", "--", "true"], "traffic, sf, ef"),
        (&["stat", "-V", "sf", "-a", "--", "true"], "without -a"),
        (
            &["stat", "-V", "ef", "--window", "1M", "--", "true"],
            "-i ms",
        ),
        (&["stat", "--model", "m.toml", "--", "true"], "-v sf"),
        (&["validate", "-e", "apples=cs"], "apples"),
        (&["validate", "--repetitions", "0"], "0"),
    ] {
        let out = pmc(args);
        let text = said(&out);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.to_lowercase().contains(word), "{args:?}: {text}");
    }
}

#[test]
fn a_machine_without_pmu_counts_what_there_is() {
    if has_pmu() {
        amp_skips::skip("this machine has a PMU");
        return;
    }
    let out = pmc(&["stat", "--", "sh", "-c", "exit 0"]);
    let text = said(&out);
    assert_eq!(out.status.code(), Some(0), "{text}");
    for event in ["instructions", "cycles", "branches", "branch-misses"] {
        let line = text.lines().find(|l| l.contains(&format!("  {event} ")));
        let line = line.unwrap_or_else(|| panic!("{event}: {text}"));
        assert!(line.contains("<not supported>"), "{text}");
    }
    let clock = text.lines().find(|l| l.contains("task-clock")).unwrap();
    assert!(!clock.contains('<'), "{text}");
    let ipc = text.lines().find(|l| l.contains("  ipc ")).unwrap();
    assert!(ipc.contains("`instructions`, `cycles`"), "{text}");

    let both = &["-e", "task-clock:u,r1,cycles:u", "-m", "x=cycles:u/r1"];
    let run = |more: &[&str]| {
        let out = pmc(&[&["stat"], &both[..], more, &["--", "true"]].concat());
        let text = said(&out);
        assert_eq!(out.status.code(), Some(0), "{text}");
        (String::from_utf8(out.stdout).unwrap(), text)
    };
    let json: serde_json::Value = serde_json::from_str(&run(&["--json", "-"]).0).unwrap();
    let counts = json["counts"].as_array().unwrap();
    let of = |event: &str| counts.iter().find(|c| c["event"] == event).unwrap();
    assert!(of("task-clock:u")["count"].is_number(), "{json}");
    assert!(of("task-clock:u").get("supported").is_none(), "{json}");
    for key in ["count", "counted", "u", "low", "high", "coverage", "pmu"] {
        assert!(of("cycles:u")[key].is_null(), "{key}: {json}");
    }
    assert_eq!(of("r1")["supported"], false, "{json}");
    let metric = &json["metrics"][0];
    assert!(metric["value"].is_null(), "{json}");
    assert_eq!(
        metric["not_supported"],
        serde_json::json!(["cycles:u", "r1"])
    );

    let csv = run(&["--csv"]).1;
    let line = |part: &str| csv.lines().find(|l| l.contains(part)).unwrap().to_owned();
    assert_eq!(line(",r1,"), "<not supported>,,,,r1,,,,1,,,,");
    assert_eq!(line(",x,"), "<not supported>,,x,,,,");

    let ticks = run(&["-i", "10", "--csv"]).1;
    assert!(ticks.contains(",1,,,,r1,<not supported>,,\n"), "{ticks}");
    let again = run(&["-r", "2"]).1;
    assert!(again.contains("<not supported>  r1"), "{again}");
    let all = pmc(&["stat", "-a", "-A", "-e", "instructions", "--", "true"]);
    assert_eq!(all.status.code(), Some(0), "{}", said(&all));
}

#[test]
fn groups_of_a_machine_without_pmu_are_not_supported() {
    if has_pmu() {
        amp_skips::skip("this machine has a PMU");
        return;
    }
    for group in ["branches", "caches", "stalls"] {
        let out = pmc(&["stat", "-g", group, "--", "true"]);
        let text = said(&out);
        assert_eq!(out.status.code(), Some(0), "{text}");
        assert!(text.matches("<not supported>").count() >= 4, "{text}");
    }
}

#[test]
fn what_there_is_to_count_is_listed_without_a_pmu_too() {
    let list = |args: &[&str]| {
        let out = pmc(&[&["list"], args].concat());
        let text = said(&out);
        assert_eq!(out.status.code(), Some(0), "{text}");
        String::from_utf8(out.stdout).unwrap()
    };
    let all = list(&[]);
    for event in ["task-clock", "page-faults", "context-switches"] {
        assert!(all.contains(&format!("\n  {event} ")), "{all}");
    }
    let without = all.contains("no PMU that counts what cores do");
    assert_eq!(without, !has_pmu(), "{all}");
    let some = list(&["*FAULTS"]);
    assert!(
        some.contains("major-faults") && !some.contains("clock"),
        "{some}"
    );
    let json: serde_json::Value = serde_json::from_str(&list(&["--json", "-"])).unwrap();
    let pmus = json["pmus"].as_array().unwrap();
    let software = pmus.iter().find(|p| p["pmu"] == "software").unwrap();
    let events = software["events"].as_array().unwrap();
    assert!(
        events.iter().any(|e| e["name"] == "cpu-migrations"),
        "{json}"
    );
}

#[test]
fn unknown_names_are_bad_input_with_suggestions_on_every_machine() {
    for (args, close) in [
        (
            &["stat", "-e", "instructons", "--", "true"][..],
            "`instructions`",
        ),
        (&["stat", "-e", "task-clok", "--", "true"], "`task-clock`"),
        (
            &["stat", "-e", "software/task-clok/", "--", "true"],
            "`task-clock`",
        ),
        (
            &["stat", "-e", "nosuch/event=1/", "--", "true"],
            "`software`",
        ),
        (&["stat", "-e", "cs", "-m", "x=cz", "--", "true"], "`cs`"),
        (&["stat", "-V", "enery", "--", "true"], "energy"),
        (&["stat", "-g", "cache", "--", "true"], "caches"),
        (
            &["stat", "--strategy", "robin", "--", "true"],
            "round-robin",
        ),
        (&["record", "-e", "cyles", "--", "true"], "`cycles`"),
        (
            &["validate", "-e", "loads=L1-dcache-load"],
            "`L1-dcache-loads`",
        ),
        (&["validate", "-e", "load=cycles"], "loads"),
        (&["list", "page-falts"], "`page-faults`"),
        (&["mrc", "-g", "cache", "--", "true"], "caches"),
        (
            &[
                "mrc",
                "-e",
                "instructons",
                "-m",
                "x=instructons",
                "--",
                "true",
            ],
            "`instructions`",
        ),
    ] {
        let out = pmc(args);
        let text = said(&out);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains(close), "{args:?}: {text}");
    }
}

#[test]
fn what_cannot_be_done_without_a_pmu_says_so() {
    if has_pmu() {
        amp_skips::skip("this machine has a PMU");
        return;
    }
    for args in [
        &["validate"][..],
        &["validate", "-e", "instructions=instructions"],
        &["record", "-e", "instructions", "--", "true"],
        &["patterns", "--", "true"],
        &["stat", "--window", "1M", "--", "true"],
        &["mrc", "--", "true"],
    ] {
        let out = pmc(args);
        let text = said(&out);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {text}");
        assert!(text.contains("no PMU that counts what cores do"), "{text}");
    }
    // nothing was asked for by name: the clock shows where a program is as well
    let out = pmc(&["record", "--", "true"]);
    let text = said(&out);
    assert_eq!(out.status.code(), Some(0), "{text}");
    assert!(text.contains("cpu-clock"), "{text}");
}

#[test]
fn a_command_counts_and_keeps_its_status_and_its_output() {
    let out = pmc(&[
        "stat",
        "-e",
        "task-clock:u",
        "-e",
        "page-faults:u",
        "-m",
        "load=task-clock:u/seconds/1e9",
        "--json",
        "-",
        "--",
        "sh",
        "-c",
        "echo out; exit 7",
    ]);
    let text = said(&out);
    if out.status.code() == Some(1) {
        // not even for one's own programs: all that can be shown is that it says so
        assert!(
            text.contains("perf_event_paranoid") || text.contains("does not count"),
            "{text}"
        );
        amp_skips::skip("not even software events can be counted here");
        return;
    }
    assert_eq!(out.status.code(), Some(7), "{text}");
    assert!(
        text.contains("out"),
        "the command's output goes to standard error: {text}"
    );
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["sets"].as_array().unwrap().len(), 2);
    assert_eq!(json["multiplexing"]["strategy"], "round-robin");
    assert!(json["counts"][0]["counted"].as_u64().unwrap() > 0, "{json}");
    let load = json["metrics"][0]["value"].as_f64().unwrap();
    assert!(
        (0.5..=1.5).contains(&load),
        "CPU time per time on a CPU: {json}"
    );
}

/// Set for the program of the test that follows the next one: it runs that.
const WATCHED: &str = "AMP_TEST_EACH_IS_COUNTED";

/// Threads that begin one after the other. Under a program that counts, each lasts until that has opened an event for it, however
/// slow the machine.
#[test]
fn one_thread_after_another() {
    let watched = std::env::var_os(WATCHED).is_some();
    for _ in 0..if watched { 60 } else { 1 } {
        let before = if watched { events_of_parent() } else { 0 };
        let lasts = move || {
            let until = Instant::now() + Duration::from_secs(20);
            let mut last = before;
            // Two are opened for this thread, and those of many others that have ended may be closed first: so once it differs and stays
            // so for a moment.
            while watched && (last.abs_diff(before) < 2 || events_of_parent() != last) {
                assert!(Instant::now() < until, "this thread is not counted");
                last = events_of_parent();
                std::thread::sleep(Duration::from_millis(3));
            }
        };
        std::thread::spawn(lasts).join().unwrap();
    }
}

/// How many events the parent process has open. They are counted by what the kernel calls them: it has other files, and opens some for moments.
fn events_of_parent() -> usize {
    let files = format!("/proc/{}/fd", std::os::unix::process::parent_id());
    let files = std::fs::read_dir(files).expect("files of one's own user's processes");
    let is_event = |f: std::io::Result<std::fs::DirEntry>| {
        let link = std::fs::read_link(f.ok()?.path()).ok()?;
        link.to_str()?.contains("[perf_event]").then_some(())
    };
    files.filter_map(is_event).count()
}

#[test]
fn a_program_may_start_more_threads_than_there_may_be_open_files() {
    // each of the threads above takes two files: one for the event, one for how long it has run. With an odd number of files the last one
    // is left, to look with; with an even one there is none
    for more in ["", "exec 9</dev/null; "] {
        let count = format!(
            r#"ulimit -n 60; {more}exec "$0" pmc stat --per-thread -e task-clock -- "$@" >/dev/null"#
        );
        let own = std::env::current_exe().unwrap();
        let out = Command::new("sh")
            .args(["-c", &count, env!("CARGO_BIN_EXE_scx_amp")])
            .arg(own)
            .args(["--exact", "one_thread_after_another"])
            .env(WATCHED, "1")
            // a child of another user could not see what is open
            .env_remove("SUDO_UID")
            .env_remove("SUDO_GID")
            .output()
            .unwrap();
        let text = said(&out);
        if text.contains("perf_event_paranoid") {
            amp_skips::skip("this user may not count");
            return;
        }
        assert_eq!(out.status.code(), Some(0), "{text}");
        let rows = text.lines().filter(|l| l.contains("task-clock")).count();
        assert!(rows > 60, "{rows}: {text}");
        assert!(!text.contains("not at all"), "{text}");
    }
}
