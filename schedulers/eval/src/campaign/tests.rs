//! Campaigns in made-up folders, with made-up results.

use super::*;
use crate::evaluation::{
    evaluate, AppRun, AppSpec, BenchReport, PolicyResult, Run, Solo, Unfinished, WorkFrom,
};
use crate::report;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const MIX: &str = "name = \"NAME\"\n[[app]]\nname = \"a\"\ninstructions = 1e9\nphases = [{ instructions = 1e9, ips_big = 2e9, ips_small = 1e9 }]\n";
const FILE: &str = r#"name = "try"
on = "sim"
mixes = ["mixes"]
machines = ["juno", "quickia"]
policies = ["eevdf", "pinned", "rr", "hsp", "acfs"]
providers = ["true", "average"]
seeds = [1, 2]
runs = 2
"#;

/// A folder with a campaign file and two mixes.
fn home(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mixes = dir.path().join("mixes");
    std::fs::create_dir(&mixes).unwrap();
    for name in ["one", "two"] {
        std::fs::write(
            mixes.join(format!("{name}.toml")),
            MIX.replace("NAME", name),
        )
        .unwrap();
    }
    let file = dir.path().join("campaign.toml");
    std::fs::write(&file, text).unwrap();
    (dir, file)
}

fn by(command: &str) -> MadeBy {
    MadeBy {
        command: command.into(),
        kernel: None,
    }
}

/// A result of `runs` runs, whose only program takes `time` seconds in the mix, 4 alone on slow
/// cores and 1 on fast ones.
fn result(policy: &str, times: &[f64]) -> PolicyResult {
    let spec = AppSpec {
        name: "a".into(),
        weight: 100,
    };
    let solo = Solo {
        slow_s: vec![4.0, 4.0],
        fast_s: vec![1.0, 1.0],
    };
    let run = |t: &f64| Run {
        apps: vec![AppRun {
            completions_s: vec![*t; 3],
            unfinished: Unfinished::exactly(0.0),
            time_s: Vec::new(),
        }],
        duration_s: 3.0 * t,
        swaps: Some(3),
        ..Run::default()
    };
    let runs: Vec<Run> = times.iter().map(run).collect();
    evaluate(policy, &[spec], &[solo], &runs, WorkFrom::Time).unwrap()
}

fn report(job: &Job, times: &[f64]) -> BenchReport {
    BenchReport {
        workload: job.mix_name.clone(),
        on: "sim".into(),
        provider: job.provider.clone(),
        results: vec![result(&job.contender.to_string(), times)],
        ..BenchReport::default()
    }
}

/// A made-up result that is that job's alone.
fn own(job: &Job) -> BenchReport {
    let n = f64::from(u32::from_str_radix(&job.digest[..6], 16).unwrap() % 1000) / 1000.0;
    report(job, &[2.0 + n, 2.5 + n])
}

fn told(text: &str) -> String {
    let (_dir, file) = home(text);
    let e = Campaign::load(&file).unwrap_err();
    e.to_string()
}

#[test]
fn a_job_is_a_mix_a_machine_a_contender_a_provider_and_a_seed() {
    let (_dir, file) = home(FILE);
    let campaign = Campaign::load(&file).unwrap();
    let jobs = campaign.jobs().unwrap();
    // eevdf, pinned and rr need no metrics: once; hsp and acfs: once per provider
    assert_eq!(jobs.len(), 2 * 2 * (3 + 2 * 2) * 2);
    let named = |label: Option<&str>| {
        let of = jobs.iter().filter(|j| j.provider_label.as_deref() == label);
        of.map(|j| j.contender.to_string())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(
        named(None).into_iter().collect::<Vec<_>>(),
        ["eevdf", "pinned", "rr"]
    );
    assert_eq!(
        named(Some("average")).into_iter().collect::<Vec<_>>(),
        ["acfs", "hsp"]
    );
    let mut ids: Vec<&String> = jobs.iter().map(|j| &j.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), jobs.len());
    for job in &jobs {
        assert!(
            !job.id.contains('/') && !job.id.starts_with('.'),
            "{}",
            job.id
        );
    }
}

/// The digest is what tells whether a result is of the job that is asked for.
#[test]
fn everything_that_a_result_depends_on_is_in_the_digest() {
    let digest = |file: &Path| {
        Campaign::load(file).unwrap().jobs().unwrap()[0]
            .digest
            .clone()
    };
    let (dir, file) = home(FILE);
    let base = digest(&file);
    assert_eq!(base, digest(&file));
    for (from, to) in [
        ("runs = 2", "runs = 3"),
        ("runs = 2", "runs = 2\ncompletions = 2"),
        ("runs = 2", "runs = 2\ninterval = 50"),
        ("runs = 2", "runs = 2\ntimeout = 50"),
        ("[\"juno\", ", "[\"opteron\", "),
        ("seeds = [1,", "seeds = [3,"),
        ("\"eevdf\", \"pinned\", ", "\"pinned\", \"eevdf\", "),
    ] {
        let (_dir, other) = home(&FILE.replace(from, to));
        assert_ne!(base, digest(&other), "{to}");
    }
    // where the files lie does not matter, and neither do other jobs
    let (_dir, elsewhere) = home(&FILE.replace("seeds = [1, 2]", "seeds = [1]"));
    assert_eq!(base, digest(&elsewhere));
    let mix = dir.path().join("mixes/one.toml");
    let text = std::fs::read_to_string(&mix).unwrap();
    std::fs::write(&mix, text.replace("ips_big = 2e9", "ips_big = 3e9")).unwrap();
    assert_ne!(base, digest(&file));
}

#[test]
fn settings_go_to_those_they_are_meant_for() {
    let set = "set = [\"acfs.uf=1.5\", \"rr.threshold=50\"]\n";
    let (_dir, file) = home(&format!("{FILE}{set}"));
    let jobs = Campaign::load(&file).unwrap().jobs().unwrap();
    for job in jobs {
        let wanted: &[&str] = match job.contender.policy() {
            Some("acfs") => &["acfs.uf=1.5"],
            Some("rr") => &["rr.threshold=50"],
            _ => &[],
        };
        assert_eq!(job.settings, wanted, "{}", job.contender);
    }
}

#[test]
fn what_is_not_right_is_told_with_file_line_and_key() {
    for (from, to, words) in [
        ("seeds", "sedes", &["line 7", "sedes", "seeds"][..]),
        (
            "\"hsp\"",
            "\"hps\"",
            &["line 5: key `policies[3]`", "did you mean `hsp`?"],
        ),
        (
            "\"hsp\"",
            "\"rr\"",
            &["line 5: key `policies[3]`", "`rr`", "twice"],
        ),
        ("[1, 2]", "[]", &["line 7: key `seeds`", "at least one"]),
        ("[1, 2]", "[1, 1]", &["line 7: key `seeds[1]`", "twice"]),
        ("[1, 2]", "[-1]", &["line 7: key `seeds", "-1"]),
        (
            "[\"mixes\"]",
            "[]",
            &["line 3: key `mixes`", "at least one"],
        ),
        (
            "[\"mixes\"]",
            "[\"none.toml\"]",
            &["line 3: key `mixes[0]`", "none.toml", "path from this file"],
        ),
        ("[\"mixes\"]", "[\".\", \"mixes\"]", &["campaign.toml"]),
        (
            "[\"mixes\"]",
            "[\"mixes\", \"mixes/one.toml\"]",
            &["line 3: key `mixes[1]`", "both called `one`"],
        ),
        (
            "\"quickia\"",
            "\"enigma\"",
            &["line 4: key `machines[1]`", "enigma", "juno"],
        ),
        (
            "\"quickia\"",
            "\"juno\"",
            &["line 4: key `machines[1]`", "twice"],
        ),
        (
            "\"average\"",
            "\"true\"",
            &["line 6: key `providers[1]`", "twice"],
        ),
        (
            "\"average\"",
            "\"none.toml\"",
            &["line 6: key `providers[1]`", "none.toml"],
        ),
        ("runs = 2", "runs = 0", &["line 8: key `runs`", "1 to 1000"]),
        (
            "runs = 2",
            "runs = \"many\"",
            &["line 8: key `runs`", "auto"],
        ),
        (
            "runs = 2",
            "completions = 0",
            &["line 8: key `completions`", "from 1 to 1000"],
        ),
        (
            "runs = 2",
            "interval = 1",
            &["line 8: key `interval`", "from 5 to 10000"],
        ),
        (
            "runs = 2",
            "kernel = \"7.0\"",
            &["line 8: key `kernel`", "on = \"sim\"", "\"board\""],
        ),
        (
            "runs = 2",
            "dvfs = true",
            &["line 8: key `dvfs`", "on = \"sim\"", "\"board\""],
        ),
        (
            "runs = 2",
            "set = [\"acfs.colour=1\"]",
            &["line 8: key `set[0]`", "colour"],
        ),
        (
            "runs = 2",
            "set = [\"ef.x=1\"]",
            &["line 8: key `set[0]`", "`ef`"],
        ),
        (
            "runs = 2",
            "solo = \"none.json\"",
            &["line 8: key `solo`", "none.json"],
        ),
        (
            "\"sim\"",
            "\"moon\"",
            &["line 2: key `on`", "moon", "board"],
        ),
        (
            "\"sim\"",
            "\"host\"",
            &["line 4: key `machines[1]`", "one machine"],
        ),
        ("\"try\"", "\"\"", &["line 1: key `name`", "empty"]),
        ("name = \"try\"", "", &["name"]),
        ("runs = 2", "runs = = 2", &["line 8", "runs = = 2"]),
    ] {
        let text = FILE.replace(from, to);
        assert_ne!(text, FILE, "{from}");
        let (_dir, file) = home(&text);
        let said = match Campaign::load(&file).and_then(|c| c.jobs()) {
            Ok(_) => panic!("{to} is taken"),
            Err(e) => e.to_string(),
        };
        for word in words.iter().chain(&["campaign.toml"]) {
            assert!(said.contains(word), "{to}: no `{word}` in: {said}");
        }
    }
    // a mix names its own file
    let said = told(&FILE.replace("runs = 2", "runs = 2\nmemory = \"m\""));
    assert!(said.contains("line 9: key `memory`"), "{said}");
}

#[test]
fn a_folder_is_of_one_campaign_as_it_was() {
    let (dir, file) = home(FILE);
    let campaign = Campaign::load(&file).unwrap();
    let at = dir.path().join("deep/results");
    assert!(Folder::existing(&at, &campaign).is_err());
    Folder::begin(&at, &campaign).unwrap();
    Folder::begin(&at, &campaign).unwrap();
    Folder::existing(&at, &campaign).unwrap();
    let again = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let changed = Campaign::load(&file).unwrap();
        Folder::begin(&at, &changed)
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    // neither comments nor order are a change
    again(&format!("# a note\n{FILE}")).unwrap();
    for (from, to, words) in [
        (
            "seeds = [1, 2]",
            "seeds = [1]",
            &["`seeds` was [1, 2] and is [1]", "put it back"][..],
        ),
        ("runs = 2\n", "", &["`runs` was 2 and is not there"]),
        (
            "runs = 2",
            "runs = 2\ncompletions = 1",
            &["`completions` was not there and is 1"],
        ),
        (
            "\"try\"",
            "\"other\"",
            &["of the campaign `try`", "`other`", "--dir"],
        ),
    ] {
        let said = again(&FILE.replace(from, to)).unwrap_err();
        for word in words {
            assert!(said.contains(word), "{to}: no `{word}` in: {said}");
        }
    }
    std::fs::write(at.join("campaign.json"), "{ half").unwrap();
    let said = again(FILE).unwrap_err();
    assert!(
        said.contains("campaign.json") && said.contains("--dir"),
        "{said}"
    );
    // somebody's home is not for us, and neither is what cannot be one
    for (bad, word) in [
        (dir.path().to_owned(), "other files such as"),
        (file.clone(), "not a folder"),
        (file.join("x"), "cannot be written"),
        ("/proc/nowhere".into(), "cannot be written"),
    ] {
        let said = Folder::begin(&bad, &campaign).unwrap_err().to_string();
        assert!(said.contains(word) && said.contains("--dir"), "{said}");
        assert!(said.contains(&bad.display().to_string()), "{said}");
    }
}

#[test]
fn a_result_counts_when_it_is_whole_and_of_the_job() {
    let (dir, file) = home(FILE);
    let campaign = Campaign::load(&file).unwrap();
    let folder = Folder::begin(&dir.path().join("r"), &campaign).unwrap();
    let jobs = campaign.jobs().unwrap();
    let (job, other) = (&jobs[0], &jobs[1]);
    let me = by("me");
    let stale = |by: &MadeBy| match folder.state(job, Some(by)) {
        State::ToDo { stale } => stale.unwrap_or_default(),
        state => panic!("{state:?}"),
    };
    assert_eq!(stale(&me), "");
    folder.finish(job, &me, own(job)).unwrap();
    let done = |state: State| match state {
        State::Done(report) => report.results[0].asp,
        state => panic!("{state:?}"),
    };
    assert_eq!(done(folder.state(job, Some(&me))), own(job).results[0].asp);
    // by another command it is one for a table, but not for going on
    let said = stale(&by("you"));
    assert!(said.contains("made by me, and this is you"), "{said}");
    done(folder.state(job, None));
    let path = folder.result_file(job);
    let good = std::fs::read_to_string(&path).unwrap();
    for (bad, word) in [
        (good[..good.len() / 2].to_owned(), "damaged"),
        (String::new(), "damaged"),
        ("[]".into(), "damaged"),
        (good.replace(&job.digest, &other.digest), "of another job"),
        (
            good.replace("\"policy\": \"eevdf\"", "\"policy\": \"rr\""),
            "damaged",
        ),
    ] {
        std::fs::write(&path, &bad).unwrap();
        let said = stale(&me);
        assert!(said.contains(word) && said.contains(&job.id), "{said}");
    }
    folder.finish(job, &me, own(job)).unwrap();
    done(folder.state(job, Some(&me)));
}

#[test]
fn a_failure_is_kept_until_the_job_is_done() {
    let (dir, file) = home(FILE);
    let campaign = Campaign::load(&file).unwrap();
    let folder = Folder::begin(&dir.path().join("r"), &campaign).unwrap();
    let job = &campaign.jobs().unwrap()[0];
    let me = by("me");
    let failure = Failure {
        job: job.digest.clone(),
        made_by: me.clone(),
        status: 1,
        message: "the board fell off the table".into(),
    };
    folder.fail(job, &failure).unwrap();
    match folder.state(job, Some(&me)) {
        State::Failed { failure: found, .. } => assert_eq!(found, failure),
        state => panic!("{state:?}"),
    }
    // another command's failure says nothing
    let fresh = State::ToDo { stale: None };
    assert_eq!(folder.state(job, Some(&by("you"))), fresh);
    folder.finish(job, &me, own(job)).unwrap();
    assert!(matches!(folder.state(job, Some(&me)), State::Done(_)));
    assert_eq!(
        std::fs::read_dir(dir.path().join("r/jobs"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn a_job_is_one_processs_at_a_time() {
    let (dir, file) = home(FILE);
    let campaign = Campaign::load(&file).unwrap();
    let folder = Folder::begin(&dir.path().join("r"), &campaign).unwrap();
    let jobs = campaign.jobs().unwrap();
    let claim = folder.claim(&jobs[0]).unwrap().unwrap();
    assert!(folder.claim(&jobs[0]).unwrap().is_none());
    assert_eq!(folder.state(&jobs[0], None), State::Running);
    let second = folder.claim(&jobs[1]).unwrap();
    assert!(second.is_some());
    drop(claim);
    assert_eq!(folder.state(&jobs[0], None), State::ToDo { stale: None });
    assert!(folder.claim(&jobs[0]).unwrap().is_some());
}

#[test]
fn the_table_is_of_runs_by_themselves_over_all_seeds() {
    let (dir, file) = home(&FILE.replace("[\"juno\", \"quickia\"]", "[\"juno\"]"));
    let campaign = Campaign::load(&file).unwrap();
    let folder = Folder::begin(&dir.path().join("r"), &campaign).unwrap();
    let jobs = campaign.jobs().unwrap();
    let me = by("me");
    for job in jobs.iter().filter(|j| j.mix_name == "one") {
        let times: &[f64] = match (job.contender.to_string().as_str(), job.seed) {
            ("eevdf", _) => &[2.0, 2.0],
            // work would say 1.25 if completions were pooled
            ("hsp", 1) => &[1.0, 1.0],
            ("hsp", _) => &[4.0, 4.0],
            ("pinned", _) => &[1.0, 1.0],
            ("acfs", 2) => continue,
            _ => &[2.0, 2.0],
        };
        folder.finish(job, &me, report(job, times)).unwrap();
    }
    let failed = jobs.iter().find(|j| j.mix_name == "two").unwrap();
    let failure = Failure {
        job: failed.digest.clone(),
        made_by: me.clone(),
        status: 1,
        message: "no luck".into(),
    };
    folder.fail(failed, &failure).unwrap();
    let merged = merge(&jobs, std::slice::from_ref(&folder)).unwrap();
    let row = |contender: &str, provider: Option<&str>| {
        let is = |r: &&Row| {
            r.mix == "one" && r.contender == contender && r.provider.as_deref() == provider
        };
        merged.rows.iter().find(is).unwrap()
    };
    let hsp = row("hsp", Some("true"));
    let figures = hsp.result.as_ref().unwrap();
    // ASP of the runs: 4/1-1 twice, 4/4-1 twice
    assert_eq!(figures.asp.value, 1.5);
    let u = figures.asp.u.unwrap();
    assert!((u - 3f64.sqrt() / 2.0).abs() < 1e-12, "{u}");
    assert_eq!((figures.runs.len(), hsp.done, hsp.jobs), (4, 2, 2));
    assert_eq!(figures.unfairness.value, 1.0);
    // the slowdowns of the runs: 1 twice, 4 twice
    let antt = figures.figures["antt"];
    assert_eq!(
        (
            antt.value,
            antt.u.map(|u| (u - 3f64.sqrt() / 2.0).abs() < 1e-12)
        ),
        (2.5, Some(true))
    );
    assert_eq!(hsp.to_baseline.unwrap().value, 1.5);
    assert_eq!(hsp.to_pinned.unwrap().value, 0.5);
    // 12 swaps in 2·3·1 + 2·3·4 seconds
    assert!((figures.swaps_per_s.unwrap() - 12.0 / 30.0).abs() < 1e-12);
    assert_eq!(row("pinned", None).to_pinned, None);
    let acfs = row("acfs", Some("average"));
    assert_eq!((acfs.done, acfs.jobs), (1, 2));
    assert_eq!(acfs.result.as_ref().unwrap().runs.len(), 2);
    // every row is there, with or without figures
    assert_eq!(merged.rows.len(), 2 * (3 + 2 * 2));
    let none = merged.rows.iter().find(|r| r.mix == "two").unwrap();
    assert_eq!((none.done, &none.result), (0, &None));
    for width in [None, Some(100), Some(60)] {
        let text = report::campaign::text("try", &merged, width);
        for word in [
            "hsp",
            "average",
            "failed: two on juno, eevdf, seed 1: no luck",
            "missing: one on juno, acfs",
            "0/2",
        ] {
            assert!(text.contains(word), "{width:?}: no `{word}` in:\n{text}");
        }
        let longest = text
            .lines()
            .filter(|l| l.starts_with(['│', '╭']))
            .map(|l| l.chars().count())
            .max();
        assert!(width.is_none() || longest <= width, "{text}");
    }
    let json = report::campaign::json("try", &merged);
    let jobs_json = json["jobs"].as_array().unwrap();
    assert_eq!(jobs_json.len(), jobs.len());
    let states: std::collections::BTreeSet<&str> = jobs_json
        .iter()
        .map(|j| j["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        states.into_iter().collect::<Vec<_>>(),
        ["done", "failed", "missing"]
    );
    let row = json["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["policy"] == "hsp")
        .unwrap();
    assert_eq!(row["figures"]["asp"]["value"].as_f64(), Some(1.5));
    assert_eq!(row["asp_to_eevdf"]["value"].as_f64(), Some(1.5));
    let page = report::campaign::html("t<y", &merged);
    assert!(
        page.contains("t&lt;y") && !page.contains("t<y") && page.contains("no luck"),
        "{page}"
    );
}

#[test]
fn the_same_job_twice_must_be_the_same() {
    let (dir, file) = home(FILE);
    let campaign = Campaign::load(&file).unwrap();
    let at = |name: &str| Folder::begin(&dir.path().join(name), &campaign).unwrap();
    let (a, b) = (at("a"), at("b"));
    let jobs = campaign.jobs().unwrap();
    a.finish(&jobs[0], &by("me"), own(&jobs[0])).unwrap();
    b.finish(&jobs[0], &by("me"), own(&jobs[0])).unwrap();
    let both = merge(&jobs, &[a.clone(), b.clone()]).unwrap();
    assert_eq!(both, merge(&jobs, std::slice::from_ref(&a)).unwrap());
    b.finish(&jobs[0], &by("me"), report(&jobs[0], &[3.0, 3.5]))
        .unwrap();
    let said = merge(&jobs, &[a.clone(), b.clone()])
        .unwrap_err()
        .to_string();
    for file in [a.result_file(&jobs[0]), b.result_file(&jobs[0])] {
        assert!(said.contains(&file.display().to_string()), "{said}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever shards did what, interrupted wherever, in whichever folders: going on does each job
    /// once, and the table is the same.
    #[test]
    fn interrupted_anywhere_a_campaign_goes_on(
        of in 1usize..5,
        cuts in prop::collection::vec(0usize..15, 5),
        apart in any::<bool>(),
        turned in any::<bool>(),
    ) {
        let (dir, file) = home(&FILE.replace("[\"juno\", \"quickia\"]", "[\"juno\"]").replace("[1, 2]", "[1]"));
        let campaign = Campaign::load(&file).unwrap();
        let jobs = campaign.jobs().unwrap();
        let me = by("me");
        let costs: Vec<u64> = jobs.iter().map(|j| j.cost).collect();
        let mut runs = vec![0; jobs.len()];
        let mut folders = Vec::new();
        for index in 1..=of {
            let shard: Shard = format!("{index}/{of}").parse().unwrap();
            let name = if apart { index.to_string() } else { "all".into() };
            // the first call does a prefix, and the second the rest
            for most in [cuts[index - 1], usize::MAX] {
                let folder = Folder::begin(&dir.path().join(&name), &campaign).unwrap();
                let todo = shard.of(&costs).into_iter().filter(|i| {
                    matches!(folder.state(&jobs[*i], Some(&me)), State::ToDo { .. })
                });
                for i in todo.take(most).collect::<Vec<_>>() {
                    let _claim = folder.claim(&jobs[i]).unwrap().unwrap();
                    folder.finish(&jobs[i], &me, own(&jobs[i])).unwrap();
                    runs[i] += 1;
                }
                folders.push(folder);
            }
        }
        prop_assert!(runs.iter().all(|n| *n == 1), "{runs:?}");
        if turned {
            folders.reverse();
        }
        let merged = merge(&jobs, &folders).unwrap();
        prop_assert!(merged.jobs.iter().all(|(_, o)| matches!(o, Outcome::Done(_))));
        let whole = Folder::begin(&dir.path().join("whole"), &campaign).unwrap();
        for job in &jobs {
            whole.finish(job, &me, own(job)).unwrap();
        }
        prop_assert_eq!(merged, merge(&jobs, &[whole]).unwrap());
    }
}
