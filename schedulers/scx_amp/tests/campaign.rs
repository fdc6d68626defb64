//! `scx_amp campaign` on the simulator: resumed, split, killed, merged, and what it says to bad
//! input. Status 2 is bad input, 1 failed work.

use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Longer than anything here takes, so that a hang is a failure.
const PATIENCE: Duration = Duration::from_secs(120);

const CAMPAIGN: &str = r#"name = "try"
on = "sim"
mixes = ["one.toml", "two.toml"]
machines = ["quickia"]
policies = ["eevdf", "pinned", "rr", "hsp"]
providers = ["true", "average"]
seeds = [1, 2]
runs = 2
"#;
/// Its jobs: per mix and seed one of eevdf, pinned and rr each, and two of hsp.
const JOBS: usize = 2 * 2 * (3 + 2);

/// Two programs of different speedup factors.
fn mix(name: &str, instructions: &str) -> String {
    let app = |label: &str, fast: &str| {
        format!(
            "[[app]]\nname = \"{label}\"\ninstructions = {instructions}\n\
             phases = [{{ instructions = 1e9, ips_big = {fast}, ips_small = 1e9 }}]\n"
        )
    };
    format!(
        "name = \"{name}\"\n{}{}",
        app("a", "3e9"),
        app("b", "1.5e9")
    )
}

/// A folder with a campaign in it.
struct Home(tempfile::TempDir);

impl Home {
    fn new(campaign: &str) -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        home.write("one.toml", &mix("one", "5e9"));
        home.write("two.toml", &mix("two", "8e9"));
        home.write("c.toml", campaign);
        home
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.at(name), text).unwrap();
    }

    /// The command with the campaign's file and these words.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scx_amp"));
        command
            .args(["campaign", "c.toml"])
            .args(words)
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs it, wants `status`, and returns what it printed and said.
    fn run(&self, status: i32, words: &[&str]) -> (String, String) {
        let out = self.command(words).output().unwrap();
        let (printed, said) = texts(&out);
        assert_eq!(
            out.status.code(),
            Some(status),
            "{words:?}: {said}{printed}"
        );
        (printed, said)
    }

    /// The result files, and when each was written.
    fn results(&self, dir: &str) -> BTreeMap<PathBuf, SystemTime> {
        let Ok(entries) = std::fs::read_dir(self.at(dir).join("jobs")) else {
            return BTreeMap::new();
        };
        let is_result = |p: &PathBuf| {
            let name = p.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".json") && !name.ends_with(".failed.json")
        };
        let paths = entries.map(|e| e.unwrap().path()).filter(is_result);
        let written = |p: &PathBuf| std::fs::metadata(p).unwrap().modified().unwrap();
        paths.map(|p| (p.clone(), written(&p))).collect()
    }

    /// Whether a job is running. A campaign that has just begun has no folder yet.
    fn is_running(&self, dir: &str) -> bool {
        self.at(dir).join("campaign.json").exists() && self.states(dir).contains_key("running")
    }

    /// The jobs in each state, by `--list`.
    fn states(&self, dir: &str) -> BTreeMap<String, usize> {
        let (list, _) = self.run(0, &["--dir", dir, "--list"]);
        let mut states = BTreeMap::new();
        for line in list.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            assert_eq!(words.len(), 7, "{line}");
            *states.entry(words[0].to_owned()).or_default() += 1;
        }
        states
    }

    fn merged(&self, dirs: &[&str]) -> Value {
        let mut words = vec!["--merge", "--json", "-"];
        for dir in dirs {
            words.extend(["--dir", *dir]);
        }
        serde_json::from_str(&self.run(0, &words).0).unwrap()
    }
}

fn texts(out: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&out.stderr);
    assert!(!said.contains("panicked"), "{said}");
    (text(&out.stdout), said)
}

/// Waits until `done`, which must come.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ended(mut child: Child) -> Output {
    wait_until("it does not end", || child.try_wait().unwrap().is_some());
    child.wait_with_output().unwrap()
}

fn only(state: &str, n: usize) -> BTreeMap<String, usize> {
    BTreeMap::from([(state.to_owned(), n)])
}

#[test]
fn what_is_done_is_not_run_again() {
    let home = Home::new(CAMPAIGN);
    assert_eq!(home.states("r"), only("to-do", JOBS));
    let (printed, _) = home.run(0, &["--dir", "r"]);
    assert!(
        printed.contains(&format!("{JOBS} of {JOBS} jobs are done")),
        "{printed}"
    );
    assert_eq!(home.states("r"), only("done", JOBS));
    let first = home.results("r");
    assert_eq!(first.len(), JOBS);
    home.run(0, &["--dir", "r"]);
    assert_eq!(first, home.results("r"));
    // one that is gone and one that is damaged are run again, and no other
    let mut paths = first.keys();
    let (gone, damaged) = (paths.next().unwrap(), paths.next().unwrap());
    let good = std::fs::read_to_string(damaged).unwrap();
    std::fs::remove_file(gone).unwrap();
    std::fs::write(damaged, &good[..good.len() / 2]).unwrap();
    let before = home.results("r");
    let (printed, said) = home.run(0, &["--dir", "r"]);
    let name = damaged.file_name().unwrap().to_string_lossy().into_owned();
    assert!(said.contains(&name) && said.contains("damaged"), "{said}");
    assert!(
        printed.contains(&format!("({} of them before)", JOBS - 2)),
        "{printed}"
    );
    assert_eq!(std::fs::read_to_string(damaged).unwrap(), good);
    let after = home.results("r");
    for (path, written) in &before {
        assert_eq!(
            path == damaged,
            after[path] != *written,
            "{}",
            path.display()
        );
    }
    // a mix that changed: its jobs, and no others
    home.write("two.toml", &mix("two", "6e9"));
    let (printed, _) = home.run(0, &["--dir", "r"]);
    assert!(
        printed.contains(&format!("({} of them before)", JOBS / 2)),
        "{printed}"
    );
}

/// Each job is the bench that it says it is.
#[test]
fn a_job_is_a_bench() {
    let home = Home::new(CAMPAIGN);
    home.run(0, &["--dir", "r"]);
    let merged = home.merged(&["r"]);
    let jobs = merged["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), JOBS);
    for job in jobs.iter().filter(|j| j["mix"] == "two" && j["seed"] == 2) {
        let policy = job["policy"].as_str().unwrap();
        let provider = job["provider"].as_str().unwrap_or("declared");
        let words = [
            "bench",
            "two.toml",
            "--on",
            "sim",
            "--machine",
            "quickia",
            "--runs",
            "2",
            "--seed",
            "2",
            "--policies",
            policy,
            "--provider",
            provider,
            "--json",
            "-",
        ];
        let bench = Command::new(env!("CARGO_BIN_EXE_scx_amp"))
            .args(words)
            .current_dir(home.0.path())
            .output()
            .unwrap();
        let bench: Value = serde_json::from_slice(&bench.stdout).unwrap();
        let result = &job["result"];
        assert_eq!(result["results"], bench["results"], "{policy}, {provider}");
        assert_eq!(result["provider"], bench["provider"]);
    }
    // the table for people has every row, and page and JSON say the same
    let (text, _) = home.run(0, &["--dir", "r", "--merge", "--html", "p.html"]);
    for word in ["one", "two", "eevdf", "ASP / pinned", "average", "stand-in"] {
        assert!(text.contains(word), "no `{word}` in:\n{text}");
    }
    assert_eq!(merged["rows"].as_array().unwrap().len(), 2 * 5);
    let page = std::fs::read_to_string(home.at("p.html")).unwrap();
    assert!(
        page.contains("<svg") && page.contains("hsp, average"),
        "{page}"
    );
}

#[test]
fn shards_are_parts_of_one_campaign_in_one_folder_or_several() {
    let home = Home::new(CAMPAIGN);
    home.run(0, &["--dir", "whole"]);
    let mut dirs = Vec::new();
    for shard in ["1/3", "2/3", "3/3"] {
        home.run(0, &["--dir", "shared", "--shard", shard]);
        let own = format!("own{}", &shard[..1]);
        home.run(0, &["--dir", &own, "--shard", shard]);
        dirs.push(own);
    }
    assert_eq!(home.results("shared").len(), JOBS);
    let parts = dirs.iter().map(|d| home.results(d).len());
    assert_eq!(parts.sum::<usize>(), JOBS);
    let whole = home.merged(&["whole"]);
    assert_eq!(home.merged(&["shared"]), whole);
    assert_eq!(home.merged(&["own3", "own1", "own2"]), whole);
    // a shard that is missing leaves rows that say so
    let (text, _) = home.run(0, &["--merge", "--dir", "own1", "--dir", "own2"]);
    assert!(text.contains("missing: "), "{text}");
    // the same job twice, with other figures
    let path = home.results("own1").into_keys().next().unwrap();
    let other = home
        .at("whole")
        .join("jobs")
        .join(path.file_name().unwrap());
    let mut result: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    result["results"][0]["asp"]["value"] = 99.0.into();
    std::fs::write(&path, result.to_string()).unwrap();
    let (_, said) = home.run(2, &["--merge", "--dir", "whole", "--dir", "own1"]);
    for file in [path, other] {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(said.contains(&name) && said.contains("differ"), "{said}");
    }
}

#[test]
fn processes_in_one_folder_do_not_run_the_same_job() {
    let home = Home::new(CAMPAIGN);
    let start = || {
        let mut command = home.command(&["--dir", "r"]);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<Child> = (0..3).map(|_| start()).collect();
    let mut ran = 0;
    for child in children {
        let out = ended(child);
        let (printed, said) = texts(&out);
        assert!(out.status.success(), "{said}");
        let number = |text: &str| -> usize {
            text.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
                .parse()
                .unwrap()
        };
        let before = printed.split_once('(').map_or(0, |(_, rest)| number(rest));
        ran += number(&printed) - before;
    }
    assert_eq!(ran, JOBS);
    assert_eq!(home.states("r"), only("done", JOBS));
}

/// A campaign that takes far longer than a test waits.
fn long() -> String {
    CAMPAIGN.replace("runs = 2", "runs = 1000\ncompletions = 1000")
}

#[test]
fn a_process_that_is_killed_loses_the_job_in_hand_and_no_other() {
    let home = Home::new(&CAMPAIGN.replace("runs = 2", "runs = 300"));
    let mut child = home
        .command(&["--dir", "r"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("no two results", || home.results("r").len() >= 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = home.results("r");
    let states = home.states("r");
    assert_eq!(states.get("done"), Some(&before.len()), "{states:?}");
    assert_eq!(
        states.get("running"),
        None,
        "its lock went with it: {states:?}"
    );
    assert!(before.len() < JOBS, "it was not killed in mid-run");
    home.run(0, &["--dir", "r"]);
    let after = home.results("r");
    assert_eq!(after.len(), JOBS);
    for (path, written) in before {
        assert_eq!(after[&path], written, "{} was run again", path.display());
    }
}

#[test]
fn an_interrupt_ends_it_and_says_how_to_go_on() {
    let home = Home::new(&long());
    let mut command = home.command(&["--dir", "r"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("no job is running", || home.is_running("r"));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let out = ended(child);
    let (_, said) = texts(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.contains("interrupted") && said.contains("goes on"),
        "{said}"
    );
    // an interrupted job is no failed one
    assert_eq!(home.states("r"), only("to-do", JOBS));
}

#[test]
fn a_job_that_fails_says_why_and_the_rest_goes_on() {
    let home = Home::new(&format!("{CAMPAIGN}timeout = 60\n"));
    home.write("two.toml", &mix("two", "1e12"));
    let (_, said) = home.run(1, &["--dir", "r"]);
    let wanted = format!("{} failed", JOBS / 2);
    assert!(
        said.contains(&wanted) && said.contains("tried again"),
        "{said}"
    );
    let wanted = BTreeMap::from([
        ("done".to_owned(), JOBS / 2),
        ("failed".to_owned(), JOBS / 2),
    ]);
    assert_eq!(home.states("r"), wanted);
    let (text, _) = home.run(0, &["--dir", "r", "--merge"]);
    assert!(
        text.contains("failed: two on quickia, rr, seed 1: "),
        "{text}"
    );
    let kept = std::fs::read_dir(home.at("r/jobs"))
        .unwrap()
        .map(|e| e.unwrap().path());
    let failed = kept.filter(|p| p.to_string_lossy().ends_with(".failed.json"));
    for path in failed {
        let text = std::fs::read_to_string(&path).unwrap();
        let failure: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(failure["status"], 1, "{text}");
        assert!(
            failure["message"].as_str().unwrap().contains("60"),
            "{text}"
        );
    }
    // each is tried again, once
    let (_, said) = home.run(1, &["--dir", "r"]);
    assert_eq!(said.lines().count(), JOBS / 2 + 1, "{said}");
}

#[test]
fn bad_input_is_told_before_anything_runs() {
    let told = |home: &Home, words: &[&str], wanted: &[&str]| {
        let (_, said) = home.run(2, words);
        for word in wanted {
            assert!(said.contains(word), "{words:?}: no `{word}` in: {said}");
        }
    };
    let home = Home::new(CAMPAIGN);
    for shard in ["0/3", "4/3", "x", "3"] {
        told(
            &home,
            &["--dir", "r", "--shard", shard],
            &[shard, "--shard", "such as 3/8"],
        );
    }
    told(&home, &["--dir", "r", "--dir", "s"], &["--dir", "--merge"]);
    told(&home, &[], &["--dir"]);
    told(
        &home,
        &["--dir", "r", "--merge", "--shard", "1/2"],
        &["--shard", "--merge"],
    );
    told(&home, &["--dir", "r", "--json", "x.json"], &["--merge"]);
    told(
        &home,
        &["--dir", "none", "--merge"],
        &["none", "no such folder"],
    );
    told(
        &home,
        &["--dir", ".", "--merge"],
        &["not the folder of a campaign"],
    );
    told(
        &home,
        &["--dir", "."],
        &["not the folder of a campaign", "--dir"],
    );
    told(&home, &["--dir", "c.toml"], &["c.toml", "not a folder"]);
    told(
        &home,
        &["--dir", "/proc/r"],
        &["/proc/r", "cannot be written"],
    );
    for (from, to, words) in [
        (
            "\"rr\"",
            "\"rrr\"",
            &["c.toml: line 5: key `policies[2]`", "did you mean `rr`?"][..],
        ),
        (
            "\"rr\"",
            "\"scx:bpfland\"",
            &["c.toml: line 5: key `policies[2]`", "simulator"],
        ),
        (
            "\"average\"",
            "\"averag\"",
            &["c.toml: line 6: key `providers[1]`", "averag"],
        ),
        (
            "\"two.toml\"",
            "\"three.toml\"",
            &["c.toml: line 3: key `mixes[1]`", "three.toml"],
        ),
        (
            "\"sim\"",
            "\"board\"",
            &["c.toml: line 3: key `mixes[0]`", "`command`"],
        ),
        ("seeds", "sedes", &["c.toml: line 7", "sedes"]),
    ] {
        home.write("c.toml", &CAMPAIGN.replace(from, to));
        told(&home, &["--dir", "r"], words);
    }
    assert!(!home.at("r").exists(), "nothing was begun");
    // a campaign that changed, and one of another name
    home.write("c.toml", CAMPAIGN);
    home.run(0, &["--dir", "r", "--shard", "1/20"]);
    home.write("c.toml", &CAMPAIGN.replace("[1, 2]", "[1, 2, 3]"));
    for words in [
        &["--dir", "r"][..],
        &["--dir", "r", "--list"],
        &["--dir", "r", "--merge"],
    ] {
        told(
            &home,
            words,
            &[
                "c.toml has changed",
                "`seeds` was [1, 2] and is [1, 2, 3]",
                "put it back",
            ],
        );
    }
    home.write("c.toml", &CAMPAIGN.replace("\"try\"", "\"other\""));
    told(
        &home,
        &["--dir", "r"],
        &["of the campaign `try`", "`other`"],
    );
    let missing = Path::new(env!("CARGO_BIN_EXE_scx_amp"));
    let out = Command::new(missing)
        .args(["campaign", "/nowhere/c.toml", "--dir", "r"])
        .output();
    let out = out.unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(texts(&out).1.contains("/nowhere/c.toml"));
}

#[test]
fn campaigns_of_the_evidence_can_be_listed() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/campaign");
    let files: Vec<PathBuf> = std::fs::read_dir(here)
        .unwrap()
        .map(|f| f.unwrap().path())
        .filter(|f| f.extension().is_some_and(|e| e == "toml"))
        .collect();
    assert!(!files.is_empty());
    let nowhere = tempfile::tempdir().unwrap();
    for file in files {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scx_amp"));
        command.arg("campaign").arg(&file).arg("--list");
        let out = command.arg("--dir").arg(nowhere.path().join("none"));
        let out = out.output().unwrap();
        let (printed, said) = texts(&out);
        assert!(out.status.success(), "{}: {said}", file.display());
        assert!(printed.lines().count() > 1, "{printed}");
        assert!(
            printed.lines().all(|l| l.starts_with("to-do\t")),
            "{printed}"
        );
    }
}
