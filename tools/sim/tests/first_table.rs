//! The program that `./quickstart` begins with.

use amp_eval::evaluation::BenchReport;
use std::process::{Command, Output};

fn first_table(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_first-table"))
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn it_shows_a_table_and_writes_both_files() {
    let dir = tempfile::tempdir().unwrap();
    let mix = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../workloads/mixes/juno-real.toml"
    );
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (json, page) = (file("a.json"), file("a.html"));
    let out = first_table(&[mix, "rr,hsp", &json, &page]);
    let table = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{table}");
    let report: BenchReport =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    for policy in &report.results {
        let asp = policy.asp.value;
        assert!(table.contains(&policy.policy) && asp > 1.0, "{table}");
    }
    assert!(std::fs::read_to_string(page).unwrap().contains("<svg"));
}

#[test]
fn what_is_wrong_is_named() {
    for (args, says) in [
        (&["nowhere.toml", "hsp", "a", "b"][..], "nowhere.toml"),
        (&["nowhere.toml"], "usage"),
    ] {
        let out = first_table(args);
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(
            out.status.code() == Some(2) && said.contains(says),
            "{said}"
        );
    }
}
