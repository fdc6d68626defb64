//! `scx_amp replay`, and what `run --record` says to a bad file. Status 2 is bad input.

use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

fn scx_amp(status: i32, args: &[&str]) -> (String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_scx_amp"))
        .args(args)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, said, code) = (text(&out.stdout), text(&out.stderr), out.status.code());
    assert_eq!(code, Some(status), "{args:?}: {said}");
    assert!(!said.contains("panicked"), "{args:?}: {said}");
    (out, said)
}

const HEADER: &str = r#"{"scx_amp_recording":1,"program":"0.1.0","run":"r","part":0,"interval_us":100000,"core_types":[{"name":"big","cpus":"0","capacity":1024},{"name":"little","cpus":"1-2","capacity":446}],"policy":"rr","provider":"none","kernel":"7.3.4"}"#;

/// Ten seconds of three programs that take turns on one fast CPU. They gain 3, 2 and 1.2 on it.
fn recording(counted: bool) -> String {
    let mut text = format!("{HEADER}\n");
    for i in 0..100u64 {
        let _ = write!(text, "{{\"t\":{},\"threads\":[", (i + 1) * 100_000);
        for id in 0..3u64 {
            let big = (i / 5) % 3 == id;
            let comma = if id > 0 { "," } else { "" };
            let who = match i {
                0 => format!("\"who\":{{\"tid\":{0},\"pid\":{0},\"start\":0,\"comm\":\"p{id}\",\"weight\":100}},", 100 + id),
                _ => String::new(),
            };
            let cpu = if big { "[100000]" } else { "[0,100000]" };
            let fast = [300, 200, 120][id as usize] * 1_000_000;
            let ins = if big {
                format!("[{fast}]")
            } else {
                "[0,100000000]".into()
            };
            let counts = match counted {
                true => format!(",\"ins\":{ins},\"counted\":{cpu}"),
                false => String::new(),
            };
            let _ = write!(
                text,
                "{comma}{{\"id\":{id},{who}\"cpu\":{cpu}{counts},\"r\":true}}"
            );
        }
        text += "]}\n";
    }
    text
}

fn file(dir: &Path, text: &str) -> String {
    let path = dir.join("rec");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn other_policies_are_asked_what_they_would_have_done() {
    let dir = tempfile::tempdir().unwrap();
    let rec = file(dir.path(), &recording(true));
    let (out, _) = scx_amp(0, &["replay", &rec, "--json", "-"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    let results = json["results"].as_array().unwrap();
    let names: Vec<&str> = results
        .iter()
        .map(|r| r["policy"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["rr", "hsp", "acfs"]);
    let asp = |i: usize| results[i]["asp"]["value"].as_f64().unwrap();
    // rr gives each a third of the time on the fast CPU: 2/3 + 1/3 + 0.2/3; hsp all to the first
    assert!((asp(0) - 1.07).abs() < 0.08, "{}", asp(0));
    assert!((asp(1) - 2.0).abs() < 0.05, "{}", asp(1));
    // all of it is known, so that the doubt is that of replays: a part of the speeds of three programs, and of unfairness
    for r in results {
        let of = |key: &str, what: &str| r[key][what].as_f64().unwrap();
        let speed = of("asp", "u") / (of("asp", "value") + 3.0);
        let unfairness = of("unfairness", "u") / of("unfairness", "value");
        assert!((0.08..0.1).contains(&speed), "{speed}");
        assert!((0.19..0.22).contains(&unfairness), "{unfairness}");
    }
    let replay = &json["environment"]["replay"];
    assert!(
        replay["counted_on_both"].as_f64().unwrap() > 0.99,
        "{replay}"
    );
    assert_eq!(
        (
            json["environment"]["draws"].as_u64(),
            replay["policy"].as_str()
        ),
        (Some(1), Some("rr"))
    );
    assert_eq!(json["machine"]["name"], "recorded");
    let page = dir.path().join("p.html").display().to_string();
    let (out, _) = scx_amp(0, &["replay", &rec, "--policies", "rr", "--html", &page]);
    assert!(
        out.contains("100 % of the work was seen on both core types"),
        "{out}"
    );
    assert!(
        out.contains("10.0 s recorded under rr")
            && out.contains("Check: under rr")
            && out.contains("what replays were off by beside the board"),
        "{out}"
    );
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("</html>") && page.contains("seen on both core types"));
}

#[test]
fn what_is_not_known_is_said_and_uncertain() {
    let dir = tempfile::tempdir().unwrap();
    let text = recording(false);
    let rec = file(dir.path(), &text[..text.len() - 20]);
    let (out, _) = scx_amp(0, &["replay", &rec, "--policies", "hsp"]);
    assert!(
        out.contains("100 % unknown") && out.contains("drawn between 1 and 5.3"),
        "{out}"
    );
    assert!(
        out.contains("known by CPU time") && out.contains("line 101 was cut off"),
        "{out}"
    );
    let (out, _) = scx_amp(0, &["replay", &rec, "--policies", "hsp", "--json", "-"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert!(
        json["results"][0]["asp"]["u"].as_f64().unwrap() > 0.3,
        "{}",
        json["results"][0]["asp"]
    );
    assert_eq!(json["environment"]["draws"], 5);
}

#[test]
fn a_trace_for_perfetto() {
    let dir = tempfile::tempdir().unwrap();
    let rec = file(dir.path(), &recording(true));
    let (out, _) = scx_amp(0, &["replay", &rec, "--perfetto", "-"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    let slices = json["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["ph"] == "X");
    assert!(slices.count() > 30);
}

#[test]
fn a_bad_recording_is_told_with_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let good = recording(true);
    let says = |text: &str| {
        let rec = file(dir.path(), text);
        let said = scx_amp(2, &["replay", &rec]).1;
        assert!(said.contains(&rec), "{said}");
        said
    };
    let said = says(&good.replacen("\"t\":300000", "\"t\":300000,\"x\":1", 1));
    assert!(said.contains("line 4: key `x`: unknown field"), "{said}");
    assert!(says("").contains("empty"));
    assert!(says(&format!("{HEADER}\n")).contains("nothing was recorded"));
    assert!(says(&format!("{HEADER}\n{{\"t\":5}}\n")).contains("no thread ran"));
    let said = says(&good.replacen("\"rr\"", "\"xx\"", 1));
    assert!(
        said.contains("line 1: key `policy`: unknown policy `xx`"),
        "{said}"
    );
    let rec = file(dir.path(), &good);
    let said = scx_amp(2, &["replay", "/nonexistent/rec"]).1;
    assert!(said.contains("/nonexistent/rec"), "{said}");
    assert!(scx_amp(2, &["replay", &rec, "--policies", "best"])
        .1
        .contains("best"));
    assert!(scx_amp(2, &["replay", &rec, "--policies", "rr,rr"])
        .1
        .contains("twice"));
    assert!(scx_amp(2, &["replay", &rec, "--set", "rr.nothing=1"])
        .1
        .contains("nothing"));
    assert!(scx_amp(2, &["replay", &rec, "--provider", "crystal-ball"])
        .1
        .contains("crystal-ball"));
    let both = ["replay", &rec, "--perfetto", "-", "--policies", "rr"];
    assert!(scx_amp(2, &both).1.contains("--perfetto"));
}

#[test]
fn a_file_that_is_no_recording_is_not_recorded_over() {
    let dir = tempfile::tempdir().unwrap();
    let rec = file(dir.path(), "Dear Sir");
    let said = scx_amp(2, &["run", "--record", &rec]).1;
    assert!(
        said.contains("--record") && said.contains(&rec) && said.contains("no recording"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(&rec).unwrap(), "Dear Sir");
    let free = dir.path().join("free").display().to_string();
    assert!(
        scx_amp(2, &["run", "--record", &free, "--record-size", "0"])
            .1
            .contains("--record-size")
    );
    assert!(scx_amp(2, &["run", "--record-commands"])
        .1
        .contains("--record"));
}
