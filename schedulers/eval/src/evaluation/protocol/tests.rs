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

/// A run of applications with these completion times, and this share of another pass. It is as long
/// as the longest of them took.
fn run_of(apps: &[(&[f64], f64)]) -> Run {
    let app = |(completions, share): &(&[f64], f64)| AppRun {
        completions_s: completions.to_vec(),
        unfinished: Unfinished::exactly(*share),
        time_s: vec![1.0, 3.0],
    };
    let took = apps.iter().map(|(c, _)| c.iter().sum::<f64>());
    Run {
        apps: apps.iter().map(app).collect(),
        duration_s: took.fold(0.0, f64::max),
        energy_j: Some(12.0),
        total_j: Some(20.0),
        instructions: Some(6e9),
        swaps: Some(30),
    }
}

/// The same without unfinished passes.
fn run(completions: &[&[f64]]) -> Run {
    let apps: Vec<(&[f64], f64)> = completions.iter().map(|c| (*c, 0.0)).collect();
    run_of(&apps)
}

fn evaluated(
    policy: &str,
    apps: &[AppSpec],
    solos: &[Solo],
    runs: &[Run],
) -> Result<PolicyResult, EvaluationError> {
    evaluate(policy, apps, solos, runs, WorkFrom::Instructions)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9)
}

#[test]
fn a_worked_example() {
    let apps = [app("a", 100), app("b", 100)];
    let solos = [solo(50.0, 20.0), solo(30.0, 20.0)];
    // 60 s: a two passes of 25 s and 40 % of the next, b one of 40 s and one of 20 s
    let mix = run_of(&[(&[25.0, 25.0], 0.4), (&[40.0, 20.0], 0.0)]);
    let r = evaluated("rr", &apps, &solos, &[mix]).unwrap();
    // 2.4 and 2 passes: 25 and 30 s each; speedups 2 and 1; slowdowns 1.25 and 1.5
    assert!(close(r.asp.value, 1.0) && close(r.unfairness.value, 1.2));
    assert!(close(r.stp.unwrap().value, 0.8 + 2.0 / 3.0));
    assert!(close(r.apps[0].speedup, 2.0) && close(r.apps[1].slowdown, 1.5));
    assert_eq!(r.apps[1].completions_s, [[40.0, 20.0]]);
    assert_eq!(r.apps[0].unfinished_share, [0.4]);
    // geometric means: 25 and √800
    assert!(close(
        r.asp_gm.unwrap().value,
        1.0 + 30.0 / 800f64.sqrt() - 1.0
    ));
    // only b's completions scatter: u of their mean is 10 of 30; a speedup of 1 has 1/3
    assert!(close(r.apps[1].ct_sched_u.unwrap(), 10.0));
    assert!(close(r.asp.u.unwrap(), 1.0 / 3.0) && close(r.unfairness.u.unwrap(), 0.4));
    // the mean slowdown, of which b's part alone is uncertain: 1.5/3, halved
    let antt = r.figures["antt"];
    assert!(close(antt.value, 1.375) && close(antt.u.unwrap(), 0.25));
    assert!(close(r.runs[0].figures["antt"], 1.375));
    // 12 J · 60 s / 6e9
    assert!(close(r.edp.unwrap().value, 1.2e-7) && r.edp.unwrap().u.is_none());
    // 120 s and 60 s of a slow core's work were done, 50 s and 30 s are one completion of both:
    // 20 J · 80/180, in 60 s · 80/180
    let by_work = r.edp_by_work.unwrap();
    assert!(close(by_work.value, 20.0 * 60.0 * (80f64 / 180.0).powi(2)) && by_work.u.is_none());
    assert_eq!(
        (r.swaps_per_s, r.apps[0].big_time_share),
        (Some(0.5), Some(0.25))
    );
    assert_eq!(r.work_from, Some(WorkFrom::Instructions));
}

/// Who runs more of one program retires more or fewer instructions for the same work: that must not
/// look like energy saved.
#[test]
fn energy_delay_by_work_does_not_depend_on_whose_instructions_there_were() {
    let apps = [app("a", 100), app("b", 100)];
    let solos = [solo(30.0, 10.0), solo(30.0, 10.0)];
    // a retires ten times as much as b; one scheduler favours a, the other b
    let with = |a: usize, b: usize| {
        let passes = |n: usize| vec![60.0 / n as f64; n];
        let (of_a, of_b) = (passes(a), passes(b));
        let mut mix = run_of(&[(&of_a, 0.0), (&of_b, 0.0)]);
        let instructions = (10 * a + b) as f64 * 1e9;
        mix.instructions = Some(instructions);
        mix.energy_j = Some(20.0 * 11e9 / instructions);
        evaluated("rr", &apps, &solos, &[mix]).unwrap()
    };
    let (first, second) = (with(6, 2), with(2, 6));
    let by_work = |r: &PolicyResult| r.edp_by_work.unwrap().value;
    assert!(close(by_work(&first), by_work(&second)));
    assert!(first.edp.unwrap().value * 3.0 < second.edp.unwrap().value);
    // the same work with half the energy in half the time
    let quarter = Run {
        duration_s: 30.0,
        total_j: Some(10.0),
        ..run_of(&[(&[5.0; 6], 0.0), (&[15.0; 2], 0.0)])
    };
    let r = evaluated("rr", &apps, &solos, &[quarter]).unwrap();
    assert!(close(by_work(&r), by_work(&first) / 4.0));
}

#[test]
fn weights_count_in_unfairness() {
    let apps = [app("a", 200), app("b", 100)];
    let solos = [solo(30.0, 10.0), solo(30.0, 10.0)];
    let mix = run_of(&[(&[10.0, 10.0, 10.0, 10.0], 0.0), (&[20.0, 20.0], 0.0)]);
    let r = evaluated("rr", &apps, &solos, &[mix]).unwrap();
    assert!(close(r.unfairness.value, 1.0) && close(r.unfairness.u.unwrap(), 0.0));
    // completions that are alike have one mean
    assert!(close(r.asp_gm.unwrap().value, r.asp.value));
}

/// In each run another application has all the luck. Pooled, they would look alike.
#[test]
fn runs_are_never_pooled() {
    let apps = [app("a", 100), app("b", 100)];
    let solos = [solo(30.0, 10.0), solo(30.0, 10.0)];
    let (lucky, not): (&[f64], &[f64]) = (&[10.0; 3], &[30.0]);
    let runs = [run(&[lucky, not]), run(&[not, lucky])];
    let r = evaluated("eevdf", &apps, &solos, &runs).unwrap();
    assert_eq!(r.runs.len(), 2);
    for one in &r.runs {
        assert!(
            close(one.asp, 2.0) && close(one.unfairness, 3.0) && close(one.asp_gm.unwrap(), 2.0)
        );
    }
    assert!(
        close(r.asp.value, 2.0) && close(r.asp.u.unwrap(), 0.0),
        "{:?}",
        r.asp
    );
    assert!(close(r.unfairness.value, 3.0) && close(r.unfairness.u.unwrap(), 0.0));
    // pooled before the geometric mean: 30 / ⁴√(10³·30) − 1 for each, 2.56 in all
    assert!(close(r.asp_gm.unwrap().value, 2.0), "{:?}", r.asp_gm);
    assert!(r.apps[0].ct_sched_u.unwrap() > 5.0);
    assert!(close(
        r.apps.iter().map(|a| a.speedup - 1.0).sum(),
        r.asp.value
    ));
    // the solo runs' own uncertainty still counts
    let noisy = [
        Solo {
            slow_s: vec![29.0, 31.0],
            fast_s: vec![10.0; 2],
        },
        solo(30.0, 10.0),
    ];
    let r = evaluated("eevdf", &apps, &noisy, &runs).unwrap();
    assert!(r.asp.u.unwrap() > 0.01);
}

/// A run that ends when a program is nearly through its slow pass, and another that ends just after
/// it, differ by next to nothing.
#[test]
fn a_pass_that_is_cut_off_counts() {
    let apps = [app("a", 100), app("b", 100)];
    let solos = [solo(30.0, 10.0), solo(30.0, 10.0)];
    // b: a fast pass of 10 s, then 29.9 s of a slow one of 30 s, or all of it
    let other: &[f64] = &[20.0, 20.0];
    let cut = run_of(&[(other, 0.0), (&[10.0], 29.9 / 30.0)]);
    let whole = run_of(&[(other, 0.0), (&[10.0, 30.0], 0.0)]);
    let asp = |r: Run| evaluated("eevdf", &apps, &solos, &[r]).unwrap();
    let (cut, whole) = (asp(cut), asp(whole));
    assert!((cut.asp.value / whole.asp.value - 1.0).abs() < 0.01);
    // with the pass dropped, b would look twice as fast
    assert!(cut.asp_gm.unwrap().value > whole.asp.value + 0.9);
}

/// A third of the time on a core that is four times as fast is a speed of 2, however the passes
/// fall.
#[test]
fn a_geometric_mean_is_no_measure_of_work() {
    let apps = [app("a", 100)];
    // 20 s on a fast core: 2 passes; 40 s on a slow one: 1
    let mix = run(&[&[10.0, 10.0, 40.0]]);
    let r = evaluated("eevdf", &apps, &[solo(40.0, 10.0)], &[mix]).unwrap();
    assert!(close(r.asp.value, 1.0), "{:?}", r.asp);
    // 40 / ³√4000 − 1
    assert!(
        (r.asp_gm.unwrap().value - 1.5198).abs() < 1e-3,
        "{:?}",
        r.asp_gm
    );
}

#[test]
fn work_by_time_where_nobody_counted() {
    let apps = [app("a", 100)];
    let mut mix = run(&[&[10.0, 10.0]]);
    (mix.duration_s, mix.apps[0].unfinished.by_instructions) = (25.0, None);
    mix.apps[0].unfinished.by_time = Some(0.5);
    assert_eq!(mix.work_from(), WorkFrom::Time);
    let r = evaluate("rr", &apps, &[solo(20.0, 10.0)], &[mix], WorkFrom::Time).unwrap();
    assert!(close(r.asp.value, 1.0) && r.work_from == Some(WorkFrom::Time));
}

#[test]
fn one_completion_has_no_uncertainty() {
    let single = Solo {
        slow_s: vec![30.0],
        fast_s: vec![10.0],
    };
    let r = evaluated("hsp", &[app("a", 100)], &[single], &[run(&[&[10.0]])]).unwrap();
    assert!(close(r.asp.value, 2.0) && r.asp.u.is_none());
    assert_eq!(r.apps[0].slowdown_u, None);
    // one application alone is as fair as can be
    assert_eq!(r.unfairness, Measured::exact(1.0));
}

/// What runs differ by is known, however often programs ran alone.
#[test]
fn runs_differ_even_where_programs_ran_alone_once() {
    let once = Solo {
        slow_s: vec![30.0],
        fast_s: vec![10.0],
    };
    let runs = [run(&[&[10.0]]), run(&[&[15.0]])];
    let r = evaluated("hsp", &[app("a", 100)], &[once], &runs).unwrap();
    // gains of 2 and of 1
    assert!(close(r.asp.value, 1.5) && close(r.asp.u.unwrap(), 0.5));
    assert!(r.apps[0].slowdown_u.is_some());
    assert_eq!((r.apps[0].ct_slow_u, r.apps[0].ct_fast_u), (None, None));
}

#[test]
fn bad_input_is_named() {
    let a = [app("bzip2", 100)];
    let good = run(&[&[10.0]]);
    let e = |s: &[Solo], r: &[Run]| evaluated("rr", &a, s, r).unwrap_err().to_string();
    assert!(e(&[solo(1.0, 1.0)], &[]).contains("no run"));
    assert!(e(&[], std::slice::from_ref(&good)).contains("1 applications but 0 solo times"));
    assert!(
        e(&[solo(0.0, 1.0)], std::slice::from_ref(&good)).contains("`bzip2`: alone on slow cores")
    );
    assert!(
        e(&[solo(1.0, f64::NAN)], std::slice::from_ref(&good)).contains("alone with fast cores")
    );
    let nothing = Run {
        duration_s: 60.0,
        ..run(&[&[]])
    };
    assert!(e(&[solo(1.0, 1.0)], &[good.clone(), nothing]).contains("run 2 of the mix"));
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
        let shares = want.big_time_share.iter().zip(sf);
        let of = |(f, sf): (&f64, f64)| {
            // three minutes at this speed
            let speed = f * sf + 1.0 - f;
            AppRun {
                completions_s: vec![60.0 / speed; (3.0 * speed) as usize],
                unfinished: Unfinished::exactly((3.0 * speed).fract()),
                time_s: Vec::new(),
            }
        };
        let mix = Run {
            apps: shares.map(of).collect(),
            duration_s: 180.0,
            ..Run::default()
        };
        let got = evaluated(policy, &apps, &solos, &[mix]).unwrap();
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
    let mix = run_of(&[(&[21.0, 20.9], 0.15), (&[45.0], 0.0)]);
    let mut r = evaluated("acfs", &apps, &solos, &[mix]).unwrap();
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
    assert_eq!(p["swaps_per_s"], 30.0 / 45.0);
    assert!(p["asp_gm"]["value"].is_f64() && p["stp"]["value"].is_f64());
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
        serde_json::json!([[21.0, 20.9]])
    );
    assert_eq!(p["apps"][0]["unfinished_share"], serde_json::json!([0.15]));
    assert_eq!(p["apps"][0]["big_time_share"], 0.25);
    let back: BenchReport = serde_json::from_str(&text).unwrap();
    // a number may come back one bit off
    let (a, b) = (&back.results[0], &report.results[0]);
    assert!(close(a.asp.value, b.asp.value) && a.asp.u == b.asp.u);
    assert_eq!(a.apps[0].completions_s, b.apps[0].completions_s);
    assert_eq!(a.apps[0].unfinished_share, b.apps[0].unfinished_share);
    assert_eq!((a.runs.len(), a.work_from), (1, b.work_from));
    assert_eq!(
        (back.machine, back.environment, back.provider),
        (report.machine, report.environment, report.provider)
    );
}

/// The example of the command surface, word for word, can be read.
#[test]
fn the_documented_example_can_be_read() {
    let text = r#"{"workload":"…","machine":{"name":"juno","big":2,"small":4},"on":"sim","provider":"…",
 "environment":{"kernel":"…","commit":"…","qemu":"…","virtual_time":true},
 "results":[{"policy":"acfs","asp":{"value":3.87,"u":0.02},"asp_gm":{"value":3.88,"u":0.02},"stp":{"value":4.9,"u":0.01},"unfairness":{"value":1.01,"u":0.004},
   "edp":{"value":1.2e-9,"u":1e-11},"swaps_per_s":1.2,
   "apps":[{"name":"calculix","ct_slow_s":50.0,"ct_fast_s":16.6,"ct_sched_s":21.0,"slowdown":1.26,"speedup":2.38,
            "big_time_share":0.55,"completions_s":[[21.0,20.9,21.1],[20.8,21.0,21.2]],"unfinished_share":[0.4,0.1]}]}]}"#;
    let r: BenchReport = serde_json::from_str(text).unwrap();
    assert_eq!(r.results[0].apps[0].big_time_share, Some(0.55));
    assert_eq!(r.results[0].apps[0].unfinished_share, [0.4, 0.1]);
    assert_eq!(r.results[0].stp, Some(Measured::new(4.9, 0.01)));
    assert_eq!(r.results[0].edp, Some(Measured::new(1.2e-9, 1e-11)));
}
