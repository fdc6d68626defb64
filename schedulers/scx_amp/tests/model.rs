//! `scx_amp model`, from a file of windows to a platform file and its accuracy.

use std::path::Path;
use std::process::{Command, Output};

fn model(args: &[&str]) -> Output {
    let command = &mut Command::new(env!("CARGO_BIN_EXE_scx_amp"));
    command.arg("model").args(args).output().unwrap()
}

/// Runs the command, wants `status`, and returns what it said on standard output and standard
/// error.
fn told(status: i32, args: &[&str]) -> (String, String) {
    let out = model(args);
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let (said, complained) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(status), "{args:?}: {complained}");
    assert!(!complained.contains("panicked"), "{args:?}: {complained}");
    (said, complained)
}

const HEADER: &str = r#"{"format":"amp-windows","version":1,"platform":"paper","kernel":"6.18","date":"2026-11-20","core_types":[{"name":"big","events_per_set":1,"sets":[["misses"]]},{"name":"little","events_per_set":1,"sets":[["misses"]]}]}"#;

/// `programs` programs of 12 windows each whose speedup falls from 3 to 1 with their misses. The
/// third and the fourth of them have two phases.
fn data(path: &Path, programs: u64) {
    let mut text = format!("{HEADER}\n");
    for p in 0..programs {
        for w in 0..12 {
            let phase = u64::from((p == 2 || p == 3) && w >= 6);
            let misses = 100 * (p % 5) + w + 150 * phase;
            for (name, base) in [("big", 1000 + 4 * misses), ("little", 3000)] {
                let time = base * 1000;
                text += &format!(
                    "[\"prog{p}\",\"{name}\",0,0,{w},1000000,{time},{time},null,[{misses}]]\n"
                );
            }
        }
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn from_windows_to_a_model_and_its_accuracy() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (windows, out, again, html) = (
        path("w.jsonl"),
        path("m.toml"),
        path("n.toml"),
        path("m.html"),
    );
    data(Path::new(&windows), 10);
    let (said, _) = told(0, &["train", &windows, "--out", &out, "--seed", "3"]);
    for want in [
        "speedup of big",
        "linear (baseline)",
        "event sets",
        "Wrote ",
    ] {
        assert!(said.contains(want), "{said}");
    }
    told(0, &["train", &windows, "--out", &again, "--seed", "3"]);
    assert_eq!(std::fs::read(&out).unwrap(), std::fs::read(&again).unwrap());
    let (said, _) = told(0, &["show", &out]);
    assert!(
        said.contains("kernel: 6.18") && said.contains("seed: 3") && said.contains("prog9"),
        "{said}"
    );
    let (said, _) = told(0, &["eval", &out, &windows, "--html", &html]);
    assert!(
        said.contains("prog0 *") && said.contains("all 10") && said.contains("flatter"),
        "{said}"
    );
    let page = std::fs::read_to_string(&html).unwrap();
    // predicted against true on each core type, one point per window and one entry in the legend
    // for each of four programs; and over time, for the two programs with phases. The second half
    // of a point's circle leads back.
    let count = |what: &str| page.matches(what).count();
    assert_eq!(
        (count("<svg"), count(" 0 1 0 -"), count("</i>prog")),
        (4, 240, 8)
    );
    let (said, _) = told(0, &["train", &windows, "--out", "-", "--method", "linear"]);
    assert!(
        said.starts_with('#') && said.contains("linear = {"),
        "{said}"
    );
}

#[test]
fn bad_input_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (windows, out) = (path("w.jsonl"), path("m.toml"));
    data(Path::new(&windows), 2);
    let (_, said) = told(2, &["train", &windows, "--out", &out]);
    assert!(
        said.contains("w.jsonl: 2 programs") && said.contains("3 are needed"),
        "{said}"
    );
    let text = std::fs::read_to_string(&windows).unwrap();
    std::fs::write(&windows, text.trim_end().strip_suffix("]]").unwrap()).unwrap();
    let (_, said) = told(2, &["train", &windows, "--out", &out]);
    assert!(
        said.contains("w.jsonl: line 49: character") && said.contains("cut off"),
        "{said}"
    );
    let (_, said) = told(2, &["train", &path("none"), "--out", &out]);
    assert!(said.contains("none: No such file"), "{said}");
    let (_, said) = told(2, &["train", &windows, "--out", &out, "--tolerance", "nan"]);
    assert!(said.contains("--tolerance"), "{said}");
    data(Path::new(&windows), 4);
    let (_, said) = told(2, &["train", &windows, &windows, "--out", &out]);
    assert!(said.contains("`prog0` is in a file before it"), "{said}");
    assert!(!Path::new(&out).exists());
    for (text, want) in [
        ("kind = \"model\"\ncore_type = 3\n", "line 2"),
        ("kind = \"model\"\n", "core_type"),
    ] {
        std::fs::write(&out, text).unwrap();
        for args in [&["show", &out][..], &["eval", &out, &windows][..]] {
            let (_, said) = told(2, args);
            assert!(said.contains("m.toml: ") && said.contains(want), "{said}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_is_failed_work() {
    let dir = tempfile::tempdir().unwrap();
    let windows = dir.path().join("w.jsonl");
    data(&windows, 4);
    let out = dir.path().join("none").join("m.toml");
    let (_, said) = told(
        1,
        &[
            "train",
            &windows.display().to_string(),
            "--out",
            &out.display().to_string(),
        ],
    );
    assert!(said.contains("cannot write"), "{said}");
}

#[test]
fn a_model_of_other_events_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let windows = dir.path().join("w.jsonl");
    data(&windows, 4);
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../metrics/platforms/juno.toml"
    );
    let (_, said) = told(2, &["eval", shipped, &windows.display().to_string()]);
    assert!(
        said.contains("juno.toml: ") && said.contains("the model needs event `"),
        "{said}"
    );
}
