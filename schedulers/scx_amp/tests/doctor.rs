//! `scx_amp doctor` on the machine that the tests run on, whatever that is.

use std::process::{Command, Output};

fn doctor(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_scx_amp"))
        .arg("doctor")
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn the_exit_status_says_whether_run_would_work() {
    let out = doctor(&["--json", "-"]);
    let said = String::from_utf8_lossy(&out.stdout);
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let problem = checks.iter().any(|c| c["verdict"] == "problem");
    assert_eq!(report["run_would_work"], !problem, "{said}");
    assert_eq!(out.status.code(), Some(i32::from(problem)), "{said}");
    for c in checks {
        let fine = c["verdict"] == "ok";
        assert_eq!(c["do"].is_null(), fine, "{c}");
    }
}

#[test]
fn there_is_a_line_per_check() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("doctor.json");
    let out = doctor(&["--json", file.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&out.stdout);
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(text.lines().count(), checks.len() + 1, "{text}");
    for (line, c) in text.lines().zip(checks) {
        let (verdict, name) = (c["verdict"].as_str().unwrap(), c["name"].as_str().unwrap());
        assert!(line.starts_with(verdict) && line.contains(name), "{line}");
    }
    assert!(
        text.ends_with("above.\n") || text.ends_with("would work.\n"),
        "{text}"
    );
}

#[test]
fn bad_options_are_told() {
    for (args, words) in [
        (["--big-cpus", "4095"], ["--big-cpus", "4095"]),
        (["--trust", "/no/such.toml"], ["/no/such.toml", "scx_amp"]),
    ] {
        let out = doctor(&args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        for w in words {
            assert!(said.contains(w), "{said}");
        }
    }
}
