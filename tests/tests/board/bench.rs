//! The main job: what policies do to a mix of programs on `juno`, against each other and against
//! the analytic oracle.

use amp_eval::evaluation::{BenchReport, PolicyResult, COMPLETIONS};
use amp_tests::{command, repository};

/// Enough for an uncertainty, and for what is asserted here; figures to quote take the command's
/// default of five.
const RUNS: usize = 2;

fn bench(mix: &str, policies: &str) -> BenchReport {
    let dir = tempfile::tempdir().unwrap();
    let (json, html) = (dir.path().join("r.json"), dir.path().join("r.html"));
    let workload = repository().join(format!("tools/workloads/mixes/{mix}.toml"));
    let out = command(&[
        "bench",
        workload.to_str().unwrap(),
        "--on=board",
        "--machine=juno",
        &format!("--runs={RUNS}"),
        // virtual time repeats itself: a second time alone says nothing new
        "--solo-runs=1",
        &format!("--policies={policies}"),
        &format!("--json={}", json.display()),
        &format!("--html={}", html.display()),
    ]);
    println!("{}", String::from_utf8_lossy(&out.stdout));
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("<svg") && !page.contains("http-equiv") && !page.contains("src=\"http"));
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

fn of<'a>(r: &'a BenchReport, policy: &str) -> &'a PolicyResult {
    r.results.iter().find(|p| p.policy == policy).unwrap()
}

#[test]
fn hsp_is_near_the_oracle_and_ahead_and_rr_shares_equally() {
    let r = bench("juno-2h4l", "eevdf,rr,hsp");
    let (eevdf, rr, hsp) = (of(&r, "eevdf"), of(&r, "rr"), of(&r, "hsp"));
    assert!(r.environment.virtual_time && r.on == "board");
    for p in &r.results {
        assert!(
            p.asp.u.is_some_and(|u| u > 0.0),
            "{}: an uncertainty on ASP",
            p.policy
        );
        assert!(
            p.unfairness.u.is_some(),
            "{}: an uncertainty on unfairness",
            p.policy
        );
        assert!(
            p.apps.iter().all(|a| a.completions_s.len() == RUNS
                && a.completions_s.iter().all(|c| c.len() >= COMPLETIONS)),
            "{}: {RUNS} runs of {COMPLETIONS}",
            p.policy
        );
        assert!(!p.timeline.is_empty(), "{}: a timeline", p.policy);
        assert!(p.edp.is_some(), "{}: the board knows its energy", p.policy);
    }
    assert!(
        hsp.asp.value > rr.asp.value,
        "hsp {:?} rr {:?}",
        hsp.asp,
        rr.asp
    );
    assert!(
        hsp.asp.value > eevdf.asp.value,
        "hsp {:?} eevdf {:?}",
        hsp.asp,
        eevdf.asp
    );
    let oracle = hsp
        .oracle
        .as_ref()
        .expect("a single-threaded mix has an oracle");
    let off = hsp.asp.value / oracle.asp - 1.0;
    println!(
        "hsp: ASP {:.3} against the oracle's {:.3}: {:+.1} %",
        hsp.asp.value,
        oracle.asp,
        off * 100.0
    );
    // The goal is 5 %, and is not reached: ten benches of three runs (2026-11-22) were 5.2 to 6.7 %
    // below, on average 5.90 with a standard deviation of 0.49. This is to catch what is worse.
    assert!(off.abs() <= 0.08, "hsp's ASP is {off:+.3} off the oracle");
    let shares: Vec<f64> = rr.apps.iter().map(|a| a.big_time_share.unwrap()).collect();
    let spread = shares.iter().cloned().fold(f64::MIN, f64::max)
        - shares.iter().cloned().fold(f64::MAX, f64::min);
    println!("rr: big-time shares {shares:.3?}, spread {spread:.3}");
    // Two runs are short: in the simulator, whose rr is exact, sixty benches of two runs had 0.009 to
    // 0.059, those of thirty runs 0.012 to 0.025 (`rr_gives_every_program_the_same_share_of_big_cores`
    // of amp-sim asserts that). This is to catch a program that is left out.
    assert!(
        spread <= 0.08,
        "rr's big-time shares differ by {spread:.3}: {shares:?}"
    );
}

/// A program that fills memory, which takes the kernel many quick instructions, and then waits for it.
const CUT_OFF: &str = r#"
name = "cut off"
[[app]]
name = "chase"
command = ["amp-workload", "run", "chase", "--size", "8M", "--work", "1.2M"]
[[app]]
name = "longer"
command = ["amp-workload", "bench", "spin", "--threads", "1", "--seconds", "1.7"]
"#;

/// Two accounts of the pass that the end of a run cuts off agree. Where the kernel's instructions on behalf
/// of the program counted, they were 0.07 to 0.12 apart in nine of ten runs, and 0.52 in one: of those there
/// are as many as the kernel happens to find large pages. Ten runs without were 0.025 to 0.055 apart: what is left
/// is that the program's beginning gains more from a big core than its end.
#[test]
fn what_the_kernel_did_for_a_program_is_no_work() {
    let dir = tempfile::tempdir().unwrap();
    let (mix, json) = (dir.path().join("mix.toml"), dir.path().join("r.json"));
    std::fs::write(&mix, CUT_OFF).unwrap();
    let out = command(&[
        "bench",
        mix.to_str().unwrap(),
        "--on=board",
        "--machine=juno",
        "--policies=eevdf",
        "--runs=3",
        "--solo-runs=1",
        "--completions=1",
        &format!("--json={}", json.display()),
    ]);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let report: BenchReport = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let chase = &of(&report, "eevdf").apps[0];
    println!(
        "by instructions {:.3?}, by time {:.3?}",
        chase.unfinished_share, chase.unfinished_by_time
    );
    assert_eq!(chase.unfinished_share.len(), 3);
    assert_eq!(chase.unfinished_by_time.len(), 3);
    for (work, time) in chase.unfinished_share.iter().zip(&chase.unfinished_by_time) {
        assert!((work - time).abs() <= 0.07, "{work:.3} and {time:.3}");
    }
}
