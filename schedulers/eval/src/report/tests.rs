use super::*;
use crate::evaluation::{
    evaluate, oracle, AppRun, AppSpec, BenchReport, Environment, FailedContender, MachineFacts,
    PinnedFacts, Run, Solo, Timeline, Unfinished, WorkFrom,
};
use amp_metrics::{AppId, Nanos};
use amp_sched::testing::{Fake, Noisy};
use amp_sched::{policy, Engine, Machine};

const APPS: [(&str, f64); 6] = [
    ("calculix", 3.1),
    ("bzip2", 2.4),
    ("stream", 1.4),
    ("chase", 1.2),
    ("gnugo", 1.9),
    ("sql <&> \"quoted\"", 1.3),
];

/// A whole report from the fake machine: what the bench does, in small.
fn report(policies: &[&str]) -> BenchReport {
    let sf: Vec<f64> = APPS.iter().map(|a| a.1).collect();
    let specs: Vec<AppSpec> = APPS
        .iter()
        .map(|a| AppSpec {
            name: a.0.into(),
            weight: 100,
        })
        .collect();
    let solos: Vec<Solo> = sf
        .iter()
        .map(|s| Solo {
            slow_s: vec![30.0, 30.2],
            fast_s: vec![30.0 / s, 30.1 / s],
        })
        .collect();
    let mut machine = MachineFacts::default();
    let mut results = Vec::new();
    for name in policies {
        let mut runs = Vec::new();
        let mut entries = Vec::new();
        for seed in 0..3 {
            let mut fake = Fake::new(&[2, 4]);
            machine = MachineFacts::of("juno", fake.topology());
            let keys: Vec<_> = (0..6).map(|a| fake.spawn(a)).collect();
            let declared: Vec<_> = sf.iter().enumerate().map(|(i, s)| (i as u64, *s)).collect();
            // The page needs a row of that name; the fake machine has no kernel of its own, so rr
            // with a coarser interval stands in. Its figures mean nothing.
            let chosen = if *name == policy::BASELINE {
                "rr"
            } else {
                name
            };
            let mut e = Engine::new(
                fake.topology().clone(),
                policy::by_name(chosen, seed).unwrap(),
                Box::new(Noisy::new(&declared, 0.03, seed)),
            );
            let labels: Vec<&str> = APPS.iter().map(|a| a.0).collect();
            let mut timeline = Timeline::new(&labels, 2, Nanos::ZERO);
            let mut done = [0.0; 6];
            let mut begun = [0.0; 6];
            let mut completions = vec![Vec::new(); 6];
            while completions.iter().any(|c: &Vec<f64>| c.len() < 3) {
                if *name == policy::BASELINE {
                    fake.run();
                }
                let tick = e.tick(&mut fake).unwrap();
                let now = tick.now.as_secs_f64();
                for a in tick.apps {
                    let AppId(i) = a.app;
                    let i = i as usize;
                    timeline.record(i, tick.now, tick.interval, &a.ran);
                    done[i] += a.ran[0].as_secs_f64() * sf[i] + a.ran[1].as_secs_f64();
                    if done[i] >= 30.0 {
                        completions[i].push(now - begun[i]);
                        (done[i], begun[i]) = (0.0, now);
                    }
                }
            }
            let apps =
                completions
                    .into_iter()
                    .zip(&keys)
                    .zip(&done)
                    .map(|((completions_s, k), done)| AppRun {
                        completions_s,
                        unfinished: Unfinished::exactly(done / 30.0),
                        time_s: fake.thread(*k).runtime[..2]
                            .iter()
                            .map(|t| t.as_secs_f64())
                            .collect(),
                    });
            runs.push(Run {
                apps: apps.collect(),
                duration_s: fake.snapshot.now.as_secs_f64(),
                energy_j: Some(40.0 + seed as f64),
                total_j: Some(90.0 + seed as f64),
                instructions: Some(2e11),
                swaps: (*name != policy::BASELINE).then(|| e.totals().swaps),
            });
            if seed == 0 {
                entries = timeline.entries();
            }
        }
        let mut r = evaluate(name, &specs, &solos, &runs, WorkFrom::Instructions).unwrap();
        r.oracle = oracle::of_policy(name, &sf, &[], 2, 6);
        r.timeline = entries;
        results.push(r);
    }
    BenchReport {
        workload: "2STH-4STL".into(),
        machine,
        on: "board".into(),
        provider: "declared".into(),
        environment: Environment {
            kernel: Some("7.2.12+deb13-cloud-arm64".into()),
            commit: Some("0123abc".into()),
            qemu: Some("10.0.2".into()),
            virtual_time: true,
            governor: Some("schedutil".into()),
            seed: Some(1),
            more: [("dilation".to_owned(), serde_json::json!(8))].into(),
        },
        results,
        failed: Vec::new(),
    }
}

#[test]
fn every_core_type_of_a_machine_is_named() {
    let mut three = report(&["rr"]);
    three.machine = MachineFacts::of("phone", &amp_sched::testing::topology(&[1, 3, 4]));
    for (said, wanted) in [
        (
            text(&three, None),
            "phone (1 type0, 3 type1, 4 type2; board)",
        ),
        (html(&three), "1 type0, 3 type1 and 4 type2 cores"),
        (text(&report(&["rr"]), None), "(2 big, 4 small; board)"),
        (html(&report(&["rr"])), "2 big and 4 small cores"),
    ] {
        assert!(said.contains(wanted), "{wanted} is missing:\n{said}");
    }
    let at = |t: &str| format!("type{t}");
    three.results[0].pinned = Some(PinnedFacts {
        placement: [("a", "0"), ("b", "1"), ("c", "2"), ("d", "1")]
            .map(|(app, t)| (app.to_owned(), at(t)))
            .into(),
        tried: 0,
        runs_of_best: 0,
        asp_of_best_and_worst: None,
    });
    let said = text(&three, None);
    assert!(
        said.contains("pinned: a on type0; b, d on type1; chosen"),
        "{said}"
    );
}

#[test]
fn the_text_has_every_policy_and_application() {
    let t = text(&report(&["eevdf", "rr", "hsp"]), None);
    for wanted in [
        "eevdf",
        "rr",
        "hsp",
        "calculix",
        "ASP",
        "unfairness",
        "±",
        "EDP",
        "virtual",
    ] {
        assert!(t.contains(wanted), "{wanted} is missing:\n{t}");
    }
    let widths: Vec<usize> = t
        .lines()
        .filter(|l| l.starts_with('│'))
        .map(|l| l.chars().count())
        .collect();
    assert!(widths[..4].windows(2).all(|w| w[0] == w[1]), "ragged:\n{t}");
}

#[test]
fn tables_fit_a_narrow_terminal() {
    let r = report(&["eevdf", "rr", "hsp"]);
    let wide = |t: &str| {
        t.lines()
            .filter(|l| l.starts_with('│'))
            .map(|l| l.chars().count())
            .max()
    };
    assert!(wide(&text(&r, None)).unwrap() > 80);
    let narrow = text(&r, Some(80));
    assert!(wide(&narrow).unwrap() <= 80, "{narrow}");
    for name in ["calculix", "unfairness", "hsp"] {
        assert!(narrow.contains(name), "{name}: {narrow}");
    }
    // wide enough: nothing changes
    assert_eq!(text(&r, Some(400)), text(&r, None));
}

#[test]
fn the_simulators_baseline_is_no_headline() {
    let board = report(&["eevdf", "hsp"]);
    assert!(html(&board).contains("above eevdf") && !text(&board, None).contains("stand-in"));
    let sim = BenchReport {
        on: "sim".into(),
        provider: "true".into(),
        ..board
    };
    for said in [html(&sim), text(&sim, None)] {
        assert!(
            !said.contains("above eevdf") && said.contains("stand-in"),
            "{said}"
        );
        assert!(
            said.contains("true values of the phase (provider `true`)"),
            "{said}"
        );
        assert!(
            said.contains("teady-state prediction") && !said.contains("analytic oracle"),
            "{said}"
        );
    }
}

#[test]
fn the_page_is_self_contained_and_well_formed() {
    let page = html(&report(&["eevdf", "rr", "hsp"]));
    for banned in [
        "http:", "https:", "<script", "src=", "href=", "url(", "@import", "NaN", "inf",
    ] {
        assert!(!page.contains(banned), "{banned}");
    }
    assert!(page.contains("sql &lt;&amp;&gt; &quot;quoted&quot;") && !page.contains("sql <&>"));
    for wanted in [
        "7.2.12+deb13-cloud-arm64",
        "10.0.2",
        "schedutil",
        "0123abc",
        "dilation",
        "virtual",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert_eq!(page.matches("<figure>").count(), 3 + 1 + 3);
    balanced(&page);
}

/// Every element that is opened is closed, in order.
fn balanced(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let body = &page[page.find("<body>").unwrap()..];
    for tag in body.split('<').skip(1) {
        let inner = &tag[..tag.find('>').unwrap()];
        if let Some(name) = inner.strip_prefix('/') {
            if name == "html" {
                break;
            }
            assert_eq!(open.pop(), Some(name), "…{tag}");
        } else if !inner.ends_with('/') {
            open.push(inner.split([' ', '>']).next().unwrap());
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn an_empty_and_a_minimal_report_can_be_shown() {
    let empty = BenchReport {
        results: Vec::new(),
        ..report(&[])
    };
    assert!(text(&empty, None).contains("2STH-4STL"));
    assert!(html(&empty).contains("No policy has a result"));

    let minimal = r#"{"workload":"w","machine":{"name":"m","big":1,"small":1},"on":"host","provider":"declared",
        "environment":{"virtual_time":false},
        "results":[{"policy":"rr","asp":{"value":0.0,"u":null},"unfairness":{"value":1.0,"u":null},"apps":[
          {"name":"a","ct_slow_s":1.0,"ct_fast_s":1.0,"ct_sched_s":1.0,"slowdown":1.0,"speedup":1.0,"completions_s":[[1.0]]}]}]}"#;
    let r: BenchReport = serde_json::from_str(minimal).unwrap();
    assert!(text(&r, None).contains("1.000"));
    balanced(&html(&r));
    assert!(!html(&r).contains("NaN"));
}

#[test]
fn a_contender_that_failed_is_told_with_the_reason() {
    let mut r = report(&["eevdf", "hsp"]);
    assert!(!text(&r, None).contains("failed in run"));
    r.failed = vec![FailedContender {
        policy: "scx:lavd".into(),
        run: 2,
        why: "it ended with status 1: no symbol <cpufreq>".into(),
        scheduler: None,
    }];
    let (text, page) = (text(&r, None), html(&r));
    let line = "scx:lavd failed in run 2: it ended with status 1: no symbol <cpufreq>\n";
    assert!(text.contains(line), "{text}");
    assert!(page.contains("no symbol &lt;cpufreq&gt;"));
    balanced(&page);
    let json = serde_json::to_string(&r).unwrap();
    let read: BenchReport = serde_json::from_str(&json).unwrap();
    assert_eq!(read.failed, r.failed);
}
