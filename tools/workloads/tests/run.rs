//! `amp-workload run` from outside: the kinds of program that are made of kernels.

use std::process::{Command, Output};

fn run(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amp-workload"));
    command.arg("run").args(arguments.split(' '));
    command.output().unwrap()
}

/// The checksum that a run reports.
fn checksum(arguments: &str) -> String {
    let out = run(&format!("{arguments} --json"));
    assert!(out.status.success(), "{arguments}: {out:?}");
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(
        said["work"].as_u64().is_some() && said["parameters"].is_string(),
        "{said}"
    );
    said["checksum"].as_str().unwrap().to_owned()
}

#[test]
fn the_work_and_not_the_way_it_went_decides_the_result() {
    let build = "build --phase alu=3k --phase sort=2 --work";
    for (one, same, other) in [
        (
            "queue --inner sort --threads 3 --work 50 --step 4",
            "queue --inner sort --threads 1 --work 50 --step 4",
            "queue --inner sort --threads 3 --work 51 --step 4",
        ),
        (
            "pipeline --phase alu=2k --phase fp=1k --work 20",
            "pipeline --phase alu=2k --phase fp=1k --work 20 --depth 9",
            "pipeline --phase fp=1k --phase alu=2k --work 20",
        ),
        (
            "server --inner hash@4K --threads 30 --work 70 --step 20 --pause 1",
            "server --inner hash@4K --threads 30 --work 70 --step 20 --pause 0 --seed 5",
            "server --inner hash@4K --threads 30 --work 70 --step 21 --pause 1",
        ),
        (
            "interactive --work 12 --step 300 --pause 1",
            "interactive --work 12 --step 300 --pause 2 --seed 3",
            "interactive --work 13 --step 300 --pause 1",
        ),
        (
            &format!("{build} 9 --threads 4"),
            &format!("{build} 9 --threads 1"),
            &format!("{build} 9 --threads 4 --seed 2"),
        ),
    ] {
        let sum = checksum(one);
        assert_eq!(sum, checksum(same), "{one}");
        assert_ne!(sum, checksum(other), "{one}");
    }
}

#[test]
fn bad_input_is_named_with_status_two() {
    for (arguments, named) in [
        ("queue --work 10 --step 0", "step 0"),
        ("queue --work 10 --phase alu=1", "not with `queue`"),
        ("pipeline --work 10", "--phase"),
        (
            "pipeline --work 10 --phase alu=1 --threads 3",
            "takes no --threads",
        ),
        ("pipeline --work 10 --phase alu=1 --depth 0", "depth 0"),
        ("server --work 10 --threads 4", "needs --step"),
        ("server --work 10 --step 1 --threads 0", "threads 0"),
        ("server --work 10 --step 1 --pause 600001", "600001"),
        ("interactive --work 10", "needs --step"),
        ("build --work 10", "--phase"),
        ("nothing --work 10", "pipeline"),
    ] {
        let out = run(arguments);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(named), "{arguments}: {said}");
    }
}
