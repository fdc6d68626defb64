//! What the command says to bad input, without any guest. Status 2 is bad input, 1 failed work.

use std::path::Path;
use std::process::{Command, Output};

fn scx_amp(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_scx_amp"))
        .args(args)
        .env(
            "SCX_AMP_CACHE",
            std::env::temp_dir().join("scx_amp-cli-tests"),
        )
        .output()
        .unwrap()
}

/// Runs the command, wants `status`, and returns what it said on standard error.
fn told(status: i32, args: &[&str]) -> String {
    let out = scx_amp(args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(status), "{args:?}: {said}");
    assert!(!said.contains("panicked"), "{args:?}: {said}");
    said
}

fn workload(dir: &Path, text: &str) -> String {
    let path = dir.join("w.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

const GOOD: &str = "name = \"w\"\n[[app]]\nname = \"a\"\ncommand = [\"amp-workload\"]\n";

#[test]
fn an_unknown_policy_is_answered_with_those_there_are() {
    let said = told(2, &["run", "--policy", "best"]);
    assert!(
        said.contains("`best`") && said.contains("hsp") && said.contains("rr"),
        "{said}"
    );
    let dir = tempfile::tempdir().unwrap();
    let w = workload(dir.path(), GOOD);
    let said = told(2, &["bench", &w, "--policies", "rr,best"]);
    assert!(said.contains("`best`") && said.contains("eevdf"), "{said}");
    let said = told(2, &["bench", &w, "--policies", "rr,hsp,rr"]);
    assert!(said.contains("twice"), "{said}");
}

#[test]
fn a_bad_workload_is_told_with_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    for (text, words) in [
        (
            "name = \"w\"\n[[app]]\nname = \"a\"\ncolour = 1\n",
            ["w.toml", "line 4", "colour"],
        ),
        (
            "name = \"w\"\n[[app]]\nname = \"a\"\nthreads = 0\ncommand = [\"x\"]\n",
            ["w.toml", "line 4", "threads"],
        ),
        ("name = \"w\"\n[[app]\n", ["w.toml", "line 2", "]"]),
    ] {
        let said = told(2, &["bench", &workload(dir.path(), text)]);
        for word in words {
            assert!(said.contains(word), "`{word}` in: {said}");
        }
    }
    let said = told(2, &["bench", "/nonexistent/w.toml"]);
    assert!(said.contains("/nonexistent/w.toml"), "{said}");
}

#[test]
fn a_bad_provider_is_told_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.toml");
    std::fs::write(&path, "[[app]]\ncomm = \"x\"\nspeedup = \"fast\"\n").unwrap();
    let said = told(2, &["run", "--provider", &path.display().to_string()]);
    assert!(said.contains("p.toml") && said.contains("line 3"), "{said}");
    assert!(told(2, &["run", "--provider", "crystal-ball"]).contains("crystal-ball"));
    assert!(told(2, &["run", "--provider", "declard"]).contains("did you mean `declared`?"));
    for counts in ["ipc-sampling", "model"] {
        let said = told(1, &["run", "--provider", counts]);
        assert!(said.contains(counts), "{said}");
    }
    let said = told(2, &["run", "--only-cgroup", "/nowhere"]);
    assert!(
        said.contains("/nowhere") && said.contains("cgroup.procs"),
        "{said}"
    );
}

#[test]
fn a_bad_profile_rule_or_configuration_is_told_with_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let rules = file("rules.toml", "[[rule]]\ncomm = \"x\"\nprefer = \"quick\"\n");
    let said = told(2, &["run", "--rules", &rules]);
    assert!(
        said.contains("rules.toml: line 3: key `rule[0].prefer`"),
        "{said}"
    );
    let profile = file(
        "p.toml",
        "about = \"x\"\npolicy = \"hsp\"\nprovider = \"nome\"\n",
    );
    for command in [&["run", "--profile"][..], &["ctl", "profile"]] {
        // who talks to a running scheduler has it look
        let status = if command[0] == "run" { 2 } else { 1 };
        let args: Vec<&str> = command.iter().copied().chain([&*profile]).collect();
        let said = told(status, &args);
        assert!(
            said.contains("p.toml: line 3: key `provider`") || status == 1,
            "{said}"
        );
    }
    assert!(told(2, &["run", "--profile", "sever"]).contains("did you mean `server`?"));
    let config = file("c.toml", "interval = 50\nonly_cgroup = \"x\"\n");
    for what in ["check", "show"] {
        let said = told(2, &["config", what, &config]);
        assert!(said.contains("c.toml: line 2: key `only_cgroup`"), "{said}");
        assert!(said.contains("did you mean `only-cgroup`?"), "{said}");
    }
    let said = told(2, &["run", "--only-cgroup", "a", "--exclude-cgroup", "b"]);
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn a_bad_machine_or_program_is_told_before_anything_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let w = workload(dir.path(), GOOD);
    let said = told(2, &["bench", &w, "--machine", "enigma"]);
    assert!(said.contains("enigma") && said.contains("juno"), "{said}");
    let w = workload(dir.path(), &GOOD.replace("amp-workload", "frobnicate"));
    let said = told(2, &["bench", &w]);
    assert!(said.contains("frobnicate"), "{said}");
}

#[test]
fn a_bad_machine_of_a_mix_is_told_with_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("broken.toml"), "name = \"x\"\ncpus = 3\n").unwrap();
    for (machine, words) in [
        ("enigma", ["no machine `enigma`", "juno"]),
        ("enigma.toml", ["enigma.toml: ", "No such file"]),
        ("broken.toml", ["broken.toml: line 2", "`cpus`"]),
    ] {
        let text = GOOD.replacen('\n', &format!("\nmachine = \"{machine}\"\n"), 1);
        let w = workload(dir.path(), &text);
        for on in ["sim", "board"] {
            let said = told(2, &["bench", &w, "--on", on]);
            let place = format!("{w}: line 2: key `machine`: ");
            for word in [place.as_str(), words[0], words[1]] {
                assert!(said.contains(word), "--on {on}: `{word}` in: {said}");
            }
        }
        // a machine that is named takes its place
        let said = told(2, &["bench", &w, "--on", "sim", "--machine", "juno"]);
        assert!(!said.contains("key `machine`"), "{said}");
    }
}

#[test]
fn a_kernel_without_sched_ext_is_told_how_to_get_one() {
    if Path::new("/sys/kernel/sched_ext").exists() {
        amp_skips::skip("this machine's kernel has sched_ext");
        return;
    }
    let said = told(1, &["run", "--policy", "rr"]);
    assert!(
        said.contains("sched_ext") && said.contains("scx_amp board"),
        "{said}"
    );
}

#[test]
fn status_of_no_scheduler_is_an_error() {
    for args in [
        &["ctl", "status"][..],
        &["ctl", "policy", "rr"],
        &["ctl", "set", "acfs.uf=1.5"],
        &["ctl", "provider", "none"],
        &["top", "--once"],
    ] {
        let said = told(1, args);
        assert!(said.contains("no scx_amp is running"), "{args:?}: {said}");
    }
    told(2, &["ctl", "set"]);
    told(2, &["top", "--every", "0"]);
}

#[test]
fn statistics_are_described_and_not_monitored_where_there_are_none() {
    let out = scx_amp(&["run", "--help-stats"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && text.contains("alone_s"), "{text}");
    let said = told(1, &["run", "--monitor", "1"]);
    assert!(said.contains("/var/run/scx/root/stats"), "{said}");
    told(2, &["run", "--monitor", "0"]);
    told(2, &["run", "--monitor", "1", "--help-stats"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    std::fs::write(&file, "monitor = 1\n").unwrap();
    let said = told(2, &["config", "check", file.to_str().unwrap()]);
    assert!(said.contains("no such option"), "{said}");
}

#[test]
fn where_figures_are_served_is_checked() {
    let said = told(2, &["run", "--metrics", "localhost:9464"]);
    assert!(
        said.contains("--metrics") && said.contains("IP:PORT"),
        "{said}"
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    let name = file.to_str().unwrap();
    std::fs::write(&file, "metrics = 9464\n").unwrap();
    let out = scx_amp(&["config", "show", name]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(
        text.contains("metrics = \"127.0.0.1:9464\"  # configuration"),
        "{text}"
    );
    std::fs::write(&file, "\nmetrics = \"everywhere\"\n").unwrap();
    let said = told(2, &["config", "check", name]);
    assert!(
        said.contains("line 2") && said.contains("metrics") && said.contains("IP:PORT"),
        "{said}"
    );
}

#[test]
fn the_topology_is_told_as_text_and_json() {
    let out = scx_amp(&["topology", "--json", "-"]);
    assert!(out.status.success());
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(!v["core_types"].as_array().unwrap().is_empty());
    let out = scx_amp(&["topology"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("CPUs"));
}

/// What a command that succeeds prints.
fn shown(args: &[&str]) -> String {
    let out = scx_amp(args);
    assert!(out.status.success(), "{args:?}");
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn every_policy_has_a_line_and_a_page() {
    let list = shown(&["help", "policy"]);
    let (lines, _) = list
        .split_once("\n\n")
        .expect("an empty line below the list");
    for line in list.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let names: Vec<&str> = lines
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    let baseline = amp_sched::policy::BASELINE;
    let all = [baseline]
        .into_iter()
        .chain(amp_sched::policy::NAMES.iter().copied());
    assert_eq!(names, all.collect::<Vec<_>>());
    for (name, line) in names
        .iter()
        .zip(lines.lines())
        .filter(|(n, _)| **n != baseline)
    {
        let page = shown(&["help", "policy", name]);
        assert!(page.starts_with(name), "{name}");
        let needs = line.split_whitespace().last().unwrap();
        if needs == "-" {
            assert!(page.contains("no metrics"), "{line}\n{page}");
        }
    }
    let line = |name: &str| lines.lines().find(|l| l.starts_with(name)).unwrap();
    assert!(line("hsp").contains("throughput") && line("hsp").ends_with("SF"));
    assert!(line("ef").ends_with("EF, SF"));
    assert!(told(2, &["help", "policy", "best"]).contains("`best`"));
}

#[test]
fn a_page_defines_every_metric() {
    let page = shown(&["help", "metrics"]);
    for (word, formula) in [
        ("ASP", "(CT_slow / CT_sched - 1)"),
        ("STP", "rate alone with the big cores"),
        ("unfairness", "max(W slowdown) / min(W slowdown)"),
        ("slowdown", "CT_sched / CT_fast"),
        ("speedup factor", "IPS_big / IPS_small"),
        ("efficiency factor", "EDP_small / EDP_big"),
        ("EDP", "energy x time / instructions"),
    ] {
        assert!(
            page.contains(word) && page.contains(formula),
            "{word}: {page}"
        );
    }
    for line in page.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn help_begins_with_what_the_command_does() {
    for args in [&["--help"][..], &["-h"]] {
        let text = shown(args);
        assert!(text.starts_with("Schedules machines"), "{text}");
    }
}

#[test]
fn every_kind_of_contender_is_in_the_help_of_bench() {
    let text = shown(&["bench", "--help"]);
    let (_, option) = text.split_once("--policies <LIST>").unwrap();
    let (option, _) = option.split_once("--set ").unwrap();
    for kind in ["policies", "`eevdf`", "`pinned`", "scx:NAME"] {
        assert!(option.contains(kind), "{kind}: {option}");
    }
}

#[test]
fn a_bad_setting_is_told_with_knob_and_range() {
    for (setting, words) in [
        ("rr.threshold=-1", ["threshold", "-1"]),
        ("rr.threshold=NaN", ["threshold", "NaN"]),
        ("rr.colour=1", ["colour", "threshold"]),
        ("hsp.turn=1", ["`hsp`", "rr"]),
        ("threshold", ["POLICY.KNOB=VALUE", "threshold"]),
    ] {
        let said = told(2, &["run", "--policy", "rr", "--set", setting]);
        for word in words {
            assert!(said.contains(word), "{setting}: `{word}` in: {said}");
        }
    }
}

#[test]
fn the_simulator_compares_policies_in_seconds() {
    let mix = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tools/workloads/mixes/quickia/2STH-2STL.toml"
    );
    let out = scx_amp(&[
        "bench",
        mix,
        "--on",
        "sim",
        "--machine",
        "quickia",
        "--policies",
        "hsp,acfs",
        "--runs",
        "2",
        "--json",
        "-",
    ]);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let of = |i: usize, what: &str| v["results"][i][what]["value"].as_f64().unwrap();
    assert!(of(0, "asp") > of(1, "asp"), "hsp has the higher ASP: {v}");
    assert!(
        of(1, "unfairness") < of(0, "unfairness"),
        "acfs is the fairer one: {v}"
    );
    let said = told(2, &["bench", mix, "--on", "board"]);
    assert!(said.contains("`command`"), "{said}");
    let dir = tempfile::tempdir().unwrap();
    let said = told(2, &["bench", &workload(dir.path(), GOOD), "--on", "sim"]);
    assert!(said.contains("`phases`"), "{said}");
}

/// What changed is found; what did not change is not; and what cannot be compared is bad input.
#[test]
fn two_benches_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let mix = mix("quickia/2STH-2STL");
    for (name, policy, seed) in [("a", "hsp", "1"), ("b", "hsp", "2"), ("c", "rr", "1")] {
        let json = at(name);
        shown(&[
            "bench",
            &mix,
            "--on",
            "sim",
            "--policies",
            policy,
            "--seed",
            seed,
            "--json",
            &json,
        ]);
    }
    let verdicts = |a: &str, b: &str| -> Vec<String> {
        let text = shown(&["bench", "--compare", &at(a), &at(b), "--json", "-"]);
        let v: serde_json::Value = serde_json::from_str(&text).unwrap();
        let all = v["changes"].as_array().unwrap().iter();
        let asp = all.filter(|c| c["figure"] == "asp" || c["figure"] == "unfairness");
        asp.map(|c| c["verdict"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(verdicts("a", "a"), ["same", "same"]);
    // rr gets less work done, and is fairer
    assert_eq!(verdicts("a", "c"), ["worse", "better"]);
    let text = shown(&["bench", "--compare", &at("a"), &at("b")]);
    assert!(
        text.contains("seed: 1 → 2") && text.contains("Welch"),
        "{text}"
    );

    let said = told(2, &["bench", "--compare", &at("a"), &at("nosuch")]);
    assert!(said.contains("nosuch"), "{said}");
    std::fs::write(dir.path().join("d"), "{}").unwrap();
    let said = told(2, &["bench", "--compare", &at("d"), &at("a")]);
    assert!(
        said.contains("no result of `scx_amp bench --json`"),
        "{said}"
    );
    shown(&[
        "bench",
        &mix,
        "--on",
        "sim",
        "--policies",
        "rr,acfs",
        "--runs",
        "2",
        "--json",
        &at("e"),
    ]);
    let said = told(2, &["bench", "--compare", &at("a"), &at("e")]);
    assert!(
        said.contains("no policy is in both") && said.contains("rr, acfs"),
        "{said}"
    );
    let said = told(2, &["bench", &mix, "--on", "sim", "--runs", "some"]);
    assert!(
        said.contains("`some`") && said.contains("auto:SECONDS"),
        "{said}"
    );
}

fn mix(name: &str) -> String {
    format!(
        "{}/../../tools/workloads/mixes/{name}.toml",
        env!("CARGO_MANIFEST_DIR")
    )
}

#[test]
fn the_mixes_of_real_programs_run_on_the_simulator_too() {
    for name in [
        "juno-real",
        "juno-2h4l",
        "juno-contention",
        "juno-threads",
        "quickia-2h2l",
        "quickia-3h1l",
    ] {
        let mix = mix(name);
        let args = ["--on", "sim", "--policies", "eevdf,rr,hsp", "--runs", "1"];
        let out = scx_amp(&[&["bench", &mix, "--json", "-"], &args[..]].concat());
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.is_empty(), "{name}: {said}");
        let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let of = |i: usize| v["results"][i]["asp"]["value"].as_f64().unwrap();
        assert!(of(2) > of(1), "{name}: hsp has a higher ASP than rr");
        let machine = v["machine"]["name"].as_str().unwrap();
        assert!(name.starts_with(machine), "{name} on {machine}");
    }
}

#[test]
fn a_mix_on_another_machine_than_its_own_is_warned_of() {
    let of_quickia = mix("quickia/4STH");
    let args = ["--on", "sim", "--machine", "juno", "--policies", "rr"];
    let said = told(
        0,
        &[&["bench", &of_quickia, "--runs", "1"], &args[..]].concat(),
    );
    assert!(
        said.contains("--machine juno") && said.contains("`4STH` is for quickia"),
        "{said}"
    );
    // a file of one's own may name a machine that is not there
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(&of_quickia).unwrap();
    let w = workload(dir.path(), &text.replace("\"quickia\"", "\"quikia\""));
    let said = told(2, &["bench", &w, "--on", "sim"]);
    assert!(said.contains("quikia"), "{said}");
}

/// Each completion takes 1,500 simulated seconds: 600 seconds are for programs that may hang.
#[test]
fn a_long_mix_ends_on_the_simulator_unless_there_is_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let text = "name = \"long\"\n[[app]]\nname = \"a\"\ninstructions = 3e12\n\
                phases = [{ instructions = 1e11, ips_big = 2e9, ips_small = 1e9 }]\n";
    let w = workload(dir.path(), text);
    let args = [
        "bench",
        &w,
        "--on",
        "sim",
        "--policies",
        "hsp",
        "--runs",
        "1",
    ];
    told(0, &args);
    // a limit that is reached is failed work
    let said = told(1, &[&args[..], &["--timeout", "600"]].concat());
    assert!(said.contains("600 simulated seconds"), "{said}");
}

#[test]
fn the_simulator_takes_the_shipped_providers() {
    let args = [
        "--on",
        "sim",
        "--policies",
        "acfs",
        "--runs",
        "1",
        "--json",
        "-",
    ];
    let asp = |provider: &str| {
        let mix = mix("quickia/2STH-2STL");
        let out = scx_amp(&[&["bench", &mix, "--provider", provider], &args[..]].concat());
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{provider}: {said}");
        let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(v["provider"].as_str().unwrap().contains(provider));
        v["results"][0]["unfairness"]["value"].as_f64().unwrap()
    };
    // what is sampled is never the truth, and what is remembered of a program makes up for some of it
    let (truth, sampled, none) = (asp("true"), asp("ipc-sampling"), asp("none"));
    assert!(
        truth < sampled && sampled < none,
        "{truth} {sampled} {none}"
    );
    asp("remembered");
    let said = told(
        2,
        &[
            "bench",
            &mix("quickia/4STH"),
            "--on",
            "sim",
            "--provider",
            "nome",
        ],
    );
    assert!(
        said.contains("`nome`") && said.contains("`remembered`"),
        "{said}"
    );
}

#[test]
fn a_trust_file_is_looked_at_before_a_bench_begins() {
    let dir = tempfile::tempdir().unwrap();
    let w = workload(dir.path(), GOOD);
    for on in ["board", "host"] {
        let said = told(2, &["bench", &w, "--on", on, "--trust", "/no/such.toml"]);
        assert!(said.contains("/no/such.toml"), "{said}");
    }
    let mix = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tools/workloads/mixes/quickia/2STH-2STL.toml"
    );
    let said = told(2, &["bench", mix, "--on", "sim", "--trust", "/t.toml"]);
    assert!(
        said.contains("--trust") && said.contains("simulated"),
        "{said}"
    );
}

#[test]
fn options_that_mean_nothing_where_the_bench_runs_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let w = workload(dir.path(), GOOD);
    let folder = dir.path().display().to_string();
    for (on, option, value, goes_with) in [
        ("board", "--workdir", folder.as_str(), "--on host"),
        ("board", "--big-cpus", "0", "--on host"),
        ("board", "--solo", "s.json", "--on sim"),
        ("host", "--kernel", "newest", "--on board"),
        ("host", "--solo", "s.json", "--on sim"),
        ("sim", "--workdir", folder.as_str(), "--on host"),
        ("sim", "--big-cpus", "0", "--on host"),
        ("sim", "--kernel", "7.0", "--on board"),
        ("sim", "--trust", "t.toml", "--on board or host"),
        ("sim", "--solo-cache", "s.json", "--on board or host"),
        ("sim", "--solo-runs", "3", "--on board or host"),
    ] {
        let said = told(2, &["bench", &w, "--on", on, option, value]);
        assert!(
            said.contains(option) && said.contains("means nothing") && said.contains(goes_with),
            "{on} {option}: {said}"
        );
    }
    let collect = ["model", "collect", "--out", "o.jsonl"];
    let said = told(
        2,
        &[&collect[..], &["--on", "host", "--kernel", "7.0"]].concat(),
    );
    assert!(said.contains("--kernel"), "{said}");
    let said = told(2, &[&collect[..], &["--workdir", &folder]].concat());
    assert!(said.contains("--workdir"), "{said}");
}

#[test]
fn a_bad_request_is_told_with_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("request.json");
    std::fs::write(&path, "{\n \"colour\": 1 }").unwrap();
    let file = path.display().to_string();
    for command in [&["bench"][..], &["model", "collect"]] {
        let said = told(2, &[command, &["--request", &file]].concat());
        for word in ["request.json", "colour", "line 2"] {
            assert!(said.contains(word), "{command:?}: `{word}` in {said}");
        }
        let said = told(2, command);
        assert!(said.contains("required"), "{said}");
    }
}

#[test]
fn programs_measured_alone_can_be_simulated() {
    let dir = tempfile::tempdir().unwrap();
    let two = format!("{GOOD}[[app]]\nname = \"b\"\ncommand = [\"true\"]\n");
    let w = workload(dir.path(), &two);
    let solo = dir.path().join("solo.json");
    let entry = |name: &str, fast: f64| {
        format!(
            r#""{name}":{{"name":"{name}","slow_s":[20.0],"fast_s":[{fast}],"instructions":2e10}}"#
        )
    };
    let text = format!(
        "{{\"entries\":{{{},{}}}}}",
        entry("a", 5.0),
        entry("b", 10.0)
    );
    std::fs::write(&solo, text).unwrap();
    let file = solo.display().to_string();
    let out = scx_amp(&[
        "bench",
        &w,
        "--on=sim",
        "--policies=hsp",
        "--solo",
        &file,
        "--json=-",
    ]);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let alone = v["results"][0]["apps"][0]["ct_slow_s"].as_f64().unwrap();
    assert!((alone - 20.0).abs() < 0.1, "{alone}");
    let said = told(2, &["bench", &w, "--on", "sim", "--solo", "/no/such.json"]);
    assert!(
        said.contains("--solo") && said.contains("/no/such.json"),
        "{said}"
    );
}

#[test]
fn a_bad_comparison_is_told_with_its_file() {
    let said = told(2, &["compare", "/nowhere.toml"]);
    assert!(said.contains("/nowhere.toml"), "{said}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    std::fs::write(&path, "name = \"x\"\nwrong = 1\n").unwrap();
    let said = told(2, &["compare", path.to_str().unwrap()]);
    assert!(said.contains("c.toml") && said.contains("wrong"), "{said}");
}

#[test]
fn a_comparison_prints_its_figures_beside_the_published() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tools/workloads/comparisons/quickia.toml"
    );
    let out = scx_amp(&["compare", file, "--runs", "1"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}");
    for wanted in ["4STH", "mean", "published", "unfairness of acfs below rr"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}
