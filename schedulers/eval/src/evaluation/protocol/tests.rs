use super::*;
use crate::evaluation::{oracle, BenchReport, Environment, MachineFacts};

fn app(name: &str, weight: u32) -> AppSpec {
    AppSpec {
        name: name.into(),
        weight,
    }
}

fn solo(slow: f64, fast: f64) -> Solo {
    Solo {
        slow_s: vec![slow; 2],
        fast_s: vec![fast; 2],
    }
}

fn run(completions: &[&[f64]]) -> Run {
    let app = |c: &&[f64]| AppRun {
        completions_s: c.to_vec(),
        time_s: vec![1.0, 3.0],
    };
    Run {
        apps: completions.iter().map(app).collect(),
        duration_s: 60.0,
        energy_j: Some(12.0),
        instructions: Some(6e9),
        swaps: Some(30),
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9)
}

#[test]
fn a_worked_example() {
    let apps = [app("a", 100), app("b", 100)];
    let solos = [solo(50.0, 20.0), solo(30.0, 20.0)];
    let r = evaluate(
        "rr",
        &apps,
        &solos,
        &[run(&[&[25.0, 25.0, 25.0], &[40.0, 22.5]])],
    )
    .unwrap();
    // CT_sched: 25 and √(40·22.5) = 30; speedups 2 and 1; slowdowns 1.25 and 1.5
    assert!(close(r.asp.value, 1.0) && close(r.unfairness.value, 1.2));
    assert!(close(r.apps[0].speedup, 2.0) && close(r.apps[1].slowdown, 1.5));
    assert_eq!(r.apps[1].completions_s, [40.0, 22.5]);
    // mean CT of b: 31.25, its speedup 0.96
    assert!(close(r.asp_by_work.unwrap().value, 0.96));
    assert_eq!(r.other_asp(), r.asp_by_work);
    // only b scatters: u_log = ln(40/22.5)/2, ASP's u = speedup·u_log, unfairness's = 1.2·u_log
    let u_log = (40.0f64 / 22.5).ln() / 2.0;
    assert!(close(r.apps[1].ct_sched_u.unwrap(), 30.0 * u_log));
    assert!(close(r.asp.u.unwrap(), u_log) && close(r.unfairness.u.unwrap(), 1.2 * u_log));
    // 12 J · 60 s / 6e9
    assert!(close(r.edp.unwrap().value, 1.2e-7) && r.edp.unwrap().u.is_none());
    assert_eq!(
        (r.swaps_per_s, r.apps[0].big_time_share),
        (Some(0.5), Some(0.25))
    );
    assert_eq!(r.unfairness_per_run, None);
}

#[test]
fn weights_count_in_unfairness() {
    let apps = [app("a", 200), app("b", 100)];
    let solos = [solo(30.0, 10.0), solo(30.0, 10.0)];
    let r = evaluate("rr", &apps, &solos, &[run(&[&[10.0, 10.0], &[20.0, 20.0]])]).unwrap();
    assert!(close(r.unfairness.value, 1.0) && close(r.unfairness.u.unwrap(), 0.0));
    // completions that are alike have one mean
    assert!(close(r.asp_by_work.unwrap().value, r.asp.value) && r.other_asp().is_none());
}

#[test]
fn repeated_runs_scatter_as_runs() {
    // in each run another application is the lucky one: ASP hardly moves, the applications do
    let apps = [app("a", 100), app("b", 100)];
    let solos = [solo(30.0, 10.0), solo(30.0, 10.0)];
    let (lucky, not): (&[f64], &[f64]) = (&[10.0; 3], &[30.0; 3]);
    let r = evaluate(
        "eevdf",
        &apps,
        &solos,
        &[run(&[lucky, not]), run(&[not, lucky])],
    )
    .unwrap();
    assert_eq!(r.runs.len(), 2);
    assert!(close(r.runs[0].asp, 2.0) && close(r.runs[1].asp, 2.0));
    assert!(close(r.asp.u.unwrap(), 0.0), "{:?}", r.asp);
    assert!(r.apps[0].ct_sched_u.unwrap() > 5.0);
    // pooled, they fare alike; in every run, one fared three times worse
    assert!(close(r.unfairness.value, 1.0));
    assert!(close(r.unfairness_per_run.unwrap().value, 3.0));
    // by work every run counts by itself
    assert!(close(r.asp_by_work.unwrap().value, 2.0) && r.asp.value < 1.5);
    // the solo runs' own uncertainty still counts
    let noisy = [
        Solo {
            slow_s: vec![29.0, 31.0],
            fast_s: vec![10.0; 2],
        },
        solo(30.0, 10.0),
    ];
    let r = evaluate(
        "eevdf",
        &apps,
        &noisy,
        &[run(&[lucky, not]), run(&[not, lucky])],
    )
    .unwrap();
    assert!(r.asp.u.unwrap() > 0.01);
}

#[test]
fn one_completion_has_no_uncertainty() {
    let single = Solo {
        slow_s: vec![30.0],
        fast_s: vec![10.0],
    };
    let r = evaluate("hsp", &[app("a", 100)], &[single], &[run(&[&[10.0]])]).unwrap();
    assert_eq!((r.asp.value, r.asp.u), (2.0, None));
    assert_eq!(r.apps[0].slowdown_u, None);
    // one application alone is as fair as can be
    assert_eq!(r.unfairness, Measured::exact(1.0));
}

#[test]
fn bad_input_is_named() {
    let a = [app("bzip2", 100)];
    let good = run(&[&[10.0]]);
    let e = |s: &[Solo], r: &[Run]| evaluate("rr", &a, s, r).unwrap_err().to_string();
    assert!(e(&[solo(1.0, 1.0)], &[]).contains("no run"));
    assert!(e(&[], std::slice::from_ref(&good)).contains("1 applications but 0 solo times"));
    assert!(
        e(&[solo(0.0, 1.0)], std::slice::from_ref(&good)).contains("`bzip2`: alone on slow cores")
    );
    assert!(
        e(&[solo(1.0, f64::NAN)], std::slice::from_ref(&good)).contains("alone with fast cores")
    );
    assert!(e(&[solo(1.0, 1.0)], &[good.clone(), run(&[&[]])]).contains("run 2 of the mix"));
    let endless = Run {
        duration_s: f64::INFINITY,
        ..good
    };
    assert!(e(&[solo(1.0, 1.0)], &[endless]).contains("run 1 took inf s"));
}

/// Steady applications whose completion times follow from the oracle's shares evaluate to the
/// oracle's figures.
#[test]
fn evaluation_and_oracle_agree() {
    let sf = [3.0, 2.2, 1.5, 1.1];
    let apps: Vec<_> = (0..4).map(|i| app(&i.to_string(), 100)).collect();
    let solos: Vec<_> = sf.iter().map(|s| solo(60.0, 60.0 / s)).collect();
    for policy in ["hsp", "rr", "acfs"] {
        let want = oracle::of_policy(policy, &sf, &[], 2, 4).unwrap();
        let times: Vec<Vec<f64>> = want
            .big_time_share
            .iter()
            .zip(sf)
            .map(|(f, sf)| vec![60.0 / (f * sf + 1.0 - f); 3])
            .collect();
        let times: Vec<&[f64]> = times.iter().map(|t| &t[..]).collect();
        let got = evaluate(policy, &apps, &solos, &[run(&times)]).unwrap();
        assert!(close(got.asp.value, want.asp) && close(got.unfairness.value, want.unfairness));
    }
}

#[test]
fn the_report_has_the_agreed_shape_and_can_be_read_back() {
    let apps = [app("calculix", 100), app("b", 100)];
    let solos = [
        solo(50.0, 16.6),
        Solo {
            slow_s: vec![50.0],
            fast_s: vec![40.0],
        },
    ];
    let mut r = evaluate("acfs", &apps, &solos, &[run(&[&[21.0, 20.9], &[45.0]])]).unwrap();
    r.edp = None;
    r.energy_j = None;
    let topology = amp_sched::testing::topology(&[2, 4]);
    let report = BenchReport {
        workload: "mix".into(),
        machine: MachineFacts::of("juno", &topology),
        on: "sim".into(),
        provider: "declared".into(),
        environment: Environment {
            kernel: Some("7.2".into()),
            virtual_time: true,
            more: [("model".to_owned(), serde_json::json!("v1"))].into(),
            ..Environment::default()
        },
        results: vec![r],
        failed: Vec::new(),
    };
    let text = serde_json::to_string(&report).unwrap();
    let v: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(v["machine"]["big"], 2);
    assert_eq!(v["machine"]["small"], 4);
    assert_eq!(v["environment"]["virtual_time"], true);
    assert_eq!(v["environment"]["qemu"], serde_json::Value::Null);
    assert_eq!(v["environment"]["model"], "v1");
    let p = &v["results"][0];
    assert!(p["asp"]["value"].is_f64() && p["asp"]["u"].is_null() && p["edp"].is_null());
    assert_eq!(p["swaps_per_s"], 0.5);
    let keys = [
        "name",
        "ct_slow_s",
        "ct_fast_s",
        "ct_sched_s",
        "slowdown",
        "speedup",
    ];
    assert!(keys.iter().all(|k| !p["apps"][0][k].is_null()));
    assert_eq!(
        p["apps"][0]["completions_s"],
        serde_json::json!([21.0, 20.9])
    );
    assert_eq!(p["apps"][0]["big_time_share"], 0.25);
    assert_eq!(serde_json::from_str::<BenchReport>(&text).unwrap(), report);
}

/// The example of the command surface, word for word, can be read.
#[test]
fn the_documented_example_can_be_read() {
    let text = r#"{"workload":"…","machine":{"name":"juno","big":2,"small":4},"on":"sim","provider":"…",
 "environment":{"kernel":"…","commit":"…","qemu":"…","virtual_time":true},
 "results":[{"policy":"acfs","asp":{"value":3.87,"u":0.02},"unfairness":{"value":1.01,"u":0.004},
   "edp":{"value":1.2e-9,"u":1e-11},"swaps_per_s":1.2,
   "apps":[{"name":"calculix","ct_slow_s":50.0,"ct_fast_s":16.6,"ct_sched_s":21.0,"slowdown":1.26,"speedup":2.38,
            "big_time_share":0.55,"completions_s":[21.0,20.9,21.1]}]}]}"#;
    let r: BenchReport = serde_json::from_str(text).unwrap();
    assert_eq!(r.results[0].apps[0].big_time_share, Some(0.55));
    assert_eq!(r.results[0].edp, Some(Measured::new(1.2e-9, 1e-11)));
}
