//! `scx_amp pmc` on the machine that runs the tests, which may have a PMU or not, and may let us
//! count or not.

use std::process::{Command, Output};

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
fn a_machine_without_pmu_says_so() {
    if has_pmu() {
        amp_skips::skip("this machine has a PMU");
        return;
    }
    for args in [
        &["list"][..],
        &["stat", "--", "true"],
        &["stat", "-e", "instructions", "-a"],
        &["validate"],
    ] {
        let out = pmc(args);
        let text = said(&out);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {text}");
        assert!(text.contains("no PMU that counts what cores do"), "{text}");
    }
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
