//! The protocol in a made-up laboratory.

use super::*;
use crate::contender::Contenders;
use crate::evaluation::{AppRun, MachineFacts, SchedulerFacts, TimelineEntry, Unfinished};
use crate::lab::{AloneRecord, Facts};
use crate::workload::App;
use amp_sched::testing::topology;
use std::collections::HashSet;

/// Seconds of a completion by the placement of pinned threads and the run.
type Seconds = fn(&[Option<usize>], u32) -> f64;

/// A laboratory where every program has one speed, and that writes down what it is asked for.
#[derive(Default)]
struct Made {
    repeatable: bool,
    /// It tells energies.
    energies: bool,
    keys: Vec<Option<String>>,
    /// What was asked for, in order.
    asked: Vec<String>,
    /// Start orders by policy and run.
    orders: Vec<(String, u32, Vec<usize>)>,
    /// The policy and run that fails.
    fails: Option<(&'static str, u32)>,
    /// The user wants to stop during the run that fails.
    interrupted: bool,
    /// It is the contender's own failure.
    gives_up: bool,
    /// Why nothing is possible here.
    refuses: Option<&'static str>,
    /// Seconds of a completion, by the placement of pinned threads and the run.
    seconds: Option<Seconds>,
    /// CPUs per core type; none are two of one each.
    cpus: Vec<u32>,
}

impl Lab for Made {
    type Error = String;

    fn facts(&self, plan: &Plan<'_>) -> Facts {
        Facts {
            machine: MachineFacts::of(
                "made",
                &topology(if self.cpus.is_empty() {
                    &[1, 1]
                } else {
                    &self.cpus
                }),
            ),
            on: "nowhere".into(),
            provider: format!("for {}", labels(plan.policies)),
            environment: Environment::default(),
        }
    }

    fn prepare(&mut self, _: &Plan<'_>) -> Result<(), String> {
        self.refuses.map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn scheduler(&self, contender: &Contender) -> Option<SchedulerFacts> {
        contender.scx().map(|scx| SchedulerFacts {
            program: scx.program(),
            ..SchedulerFacts::default()
        })
    }

    fn gave_up(error: &String) -> Option<String> {
        error.strip_prefix("its own ").map(str::to_owned)
    }

    fn repeatable(&self) -> bool {
        self.repeatable
    }

    fn tells_energy(&self) -> bool {
        self.energies
    }

    fn key(&self, app: usize) -> Option<String> {
        self.keys.get(app).cloned().flatten()
    }

    fn alone(&mut self, app: usize, cores: Cores, _: &AtomicBool) -> Result<AloneRecord, String> {
        self.asked.push(format!("{app} {cores}"));
        let took_s = match cores {
            Cores::Slow => 30.0,
            Cores::Fast => 10.0 * (app + 1) as f64,
            // the first one does nearly as well there as on the fastest, the others gain nothing
            Cores::Between(t) if app == 0 => 9.0 + 2.0 * t as f64,
            Cores::Between(_) => 30.0,
        };
        let instructions = Some(1e9);
        Ok(AloneRecord {
            took_s,
            instructions,
            energy_j: self.energies.then_some(match cores {
                Cores::Slow => 6.0,
                Cores::Fast => 12.0,
                Cores::Between(_) => 9.0,
            }),
            progress: None,
        })
    }

    fn mix(&mut self, spec: &MixSpec<'_>, cancel: &AtomicBool) -> Result<RunRecord, String> {
        self.asked.push(format!("{} {}", spec.policy, spec.run));
        let order = spec.order.to_vec();
        self.orders.push((spec.policy.to_string(), spec.run, order));
        if self
            .fails
            .is_some_and(|(p, run)| p == spec.policy.to_string() && run == spec.run)
        {
            cancel.store(self.interrupted, Ordering::Relaxed);
            let whose = if self.gives_up { "its own " } else { "" };
            return Err(format!("{whose}the machine is on fire"));
        }
        let pinned = self.seconds.zip(spec.pinned);
        let seconds = pinned.map_or(20.0, |(seconds, p)| seconds(p, spec.run));
        let app = |_| AppRun {
            completions_s: vec![seconds; spec.completions],
            unfinished: Unfinished::NOTHING,
            time_s: vec![1.0, 1.0],
        };
        Ok(RunRecord {
            apps: (0..spec.order.len()).map(app).collect(),
            duration_s: 3.0 * seconds,
            energy_j: Some(40.0),
            instructions: Some(8e9),
            swaps: Some(6),
            timeline: vec![TimelineEntry {
                app: format!("run {}", spec.run),
                t0_s: 0.0,
                t1_s: 1.0,
                core_type_share: vec![1.0, 0.0],
            }],
        })
    }
}

fn workload(apps: usize) -> Workload {
    let app = |i: usize| App {
        name: format!("app{i}"),
        threads: 1,
        weight: 100,
        speedup: None,
        command: Some(vec!["true".into()]),
        instructions: None,
        phases: Vec::new(),
    };
    Workload {
        name: "mix".into(),
        machine: None,
        apps: (0..apps).map(app).collect(),
    }
}

fn policies() -> Vec<Contender> {
    "rr,hsp".parse::<Contenders>().unwrap().0
}

fn labels(policies: &[Contender]) -> String {
    let labels: Vec<String> = policies.iter().map(ToString::to_string).collect();
    labels.join("+")
}

fn plan<'a>(workload: &'a Workload, policies: &'a [Contender]) -> Plan<'a> {
    Plan {
        workload,
        policies,
        runs: Runs::Exactly(3),
        solo_runs: 2,
        completions: 3,
        seed: 1,
    }
}

fn go(lab: &mut Made, plan: &Plan<'_>) -> Result<BenchReport, BenchError<String>> {
    let watch = &mut |_: Step<'_>| ControlFlow::Continue(());
    bench(
        plan,
        lab,
        &mut SoloCache::default(),
        watch,
        &AtomicBool::new(false),
    )
}

#[test]
fn programs_alone_come_first_and_policies_take_turns() {
    let (w, p) = (workload(2), policies());
    let mut lab = Made::default();
    let mut steps = Vec::new();
    let mut watch = |s: Step<'_>| {
        steps.push((s.done, s.total, s.what.to_string()));
        ControlFlow::Continue(())
    };
    let plan = plan(&w, &p);
    let stop = AtomicBool::new(false);
    let report = bench(
        &plan,
        &mut lab,
        &mut SoloCache::default(),
        &mut watch,
        &stop,
    )
    .unwrap();
    assert_eq!(
        lab.asked,
        [
            "0 slow cores",
            "0 fast cores",
            "0 slow cores",
            "0 fast cores",
            "1 slow cores",
            "1 fast cores",
            "1 slow cores",
            "1 fast cores",
            "rr 1",
            "hsp 1",
            "rr 2",
            "hsp 2",
            "rr 3",
            "hsp 3",
        ]
    );
    // every step is announced, in order, with the number of all of them
    assert_eq!(steps.len(), 14);
    assert!(steps
        .iter()
        .enumerate()
        .all(|(i, s)| (s.0, s.1) == (i as u64, 14)));
    assert_eq!(steps[1].2, "app0 alone, fast cores");
    assert_eq!(steps[9].2, "hsp, run 1 of 3");

    assert_eq!(
        (report.on.as_str(), report.provider.as_str()),
        ("nowhere", "for rr+hsp")
    );
    assert_eq!(report.environment.seed, Some(1));
    let rr = &report.results[0];
    assert_eq!((rr.policy.as_str(), rr.runs.len()), ("rr", 3));
    assert_eq!(rr.timeline[0].app, "run 1");
    // speedup factors 3 and 1.5 by turns on one fast core of two: 2 and 1.25 times as fast
    let prediction = rr.oracle.as_ref().unwrap();
    assert!((prediction.asp - 1.25).abs() < 1e-12, "{prediction:?}");
    // 40 J for 8·10⁹ instructions; a completion of both programs is 2·10⁹
    assert_eq!(rr.energy_j.unwrap().value, 10.0);
}

#[test]
fn every_policy_meets_the_same_orders_and_a_seed_draws_them() {
    let (w, p) = (workload(6), policies());
    let of = |seed: u64| {
        let mut lab = Made::default();
        go(
            &mut lab,
            &Plan {
                seed,
                ..plan(&w, &p)
            },
        )
        .unwrap();
        lab.orders
    };
    let orders = of(1);
    for (policy, run, order) in &orders {
        let first = orders.iter().find(|o| o.1 == *run).unwrap();
        assert_eq!(order, &first.2, "{policy}, run {run}");
        let all: HashSet<&usize> = order.iter().collect();
        assert_eq!(all.len(), 6);
    }
    assert!(orders[0].2 != orders[2].2 || orders[2].2 != orders[4].2);
    assert_eq!(of(1), orders);
    assert_ne!(of(2), orders);
}

#[test]
fn kept_times_are_used_where_there_are_enough() {
    let (w, p) = (workload(3), policies());
    let key = |k: &str| Some(k.to_owned());
    let mut lab = Made {
        // the first is known, of the second too little, of the third nothing is ever kept
        keys: vec![key("known"), key("once"), None],
        ..Made::default()
    };
    let times = |n: usize| SoloTimes {
        name: "kept".into(),
        command: None,
        slow_s: vec![40.0; n],
        fast_s: vec![20.0; n],
        ..SoloTimes::default()
    };
    let mut kept = SoloCache::default();
    kept.put("known".into(), times(2)).unwrap();
    kept.put("once".into(), times(1)).unwrap();
    let watch = &mut |_: Step<'_>| ControlFlow::Continue(());
    let stop = AtomicBool::new(false);
    let report = bench(&plan(&w, &p), &mut lab, &mut kept, watch, &stop).unwrap();
    assert!(
        !lab.asked.iter().any(|a| a.starts_with("0 ")),
        "{:?}",
        lab.asked
    );
    assert_eq!(lab.asked.iter().filter(|a| a.starts_with("1 ")).count(), 4);
    let apps = &report.results[0].apps;
    assert!((apps[0].ct_slow_s - 40.0).abs() < 1e-9 && (apps[1].ct_slow_s - 30.0).abs() < 1e-9);
    // energy of one completion is not known without everybody's instructions
    assert_eq!(report.results[0].energy_j, None);
    assert_eq!(kept.get("once").unwrap().slow_s, [30.0, 30.0]);

    // a second bench measures only what is never kept
    lab.asked.clear();
    bench(&plan(&w, &p), &mut lab, &mut kept, watch, &stop).unwrap();
    assert_eq!(
        lab.asked[..5],
        [
            "2 slow cores",
            "2 fast cores",
            "2 slow cores",
            "2 fast cores",
            "rr 1"
        ]
    );
}

#[test]
fn programs_run_alone_on_every_core_type() {
    let (w, p) = (workload(1), policies());
    let key = Some("k".to_owned());
    let mut lab = Made {
        keys: vec![key],
        cpus: vec![1, 3, 2, 4],
        energies: true,
        ..Made::default()
    };
    let mut kept = SoloCache::default();
    // kept of a bench that asked for two core types
    let two = SoloTimes {
        slow_s: vec![30.0; 2],
        fast_s: vec![10.0; 2],
        ..SoloTimes::default()
    };
    kept.put("k".into(), two).unwrap();
    let mut last = None;
    let mut watch = |s: Step<'_>| {
        last = Some((s.done, s.total));
        ControlFlow::Continue(())
    };
    let stop = AtomicBool::new(false);
    bench(&plan(&w, &p), &mut lab, &mut kept, &mut watch, &stop).unwrap();
    let once = [
        "0 slow cores",
        "0 fast cores",
        "0 cores of type 2",
        "0 cores of type 3",
    ];
    assert_eq!(lab.asked[..8], [once, once].concat());
    assert_eq!(last, Some((13, 14)));
    let known = kept.get("k").unwrap();
    assert_eq!(known.between_s, [vec![11.0; 2], vec![13.0; 2]]);
    let near = |a: Option<Vec<f64>>, b: [f64; 3]| {
        let a = a.unwrap();
        assert!(
            a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9) && a.len() == 3,
            "{a:?}"
        );
    };
    near(known.speedups(), [3.0, 30.0 / 11.0, 30.0 / 13.0]);
    // energy times delay on slow cores is 180 Js
    near(known.efficiencies(), [1.5, 180.0 / 99.0, 180.0 / 117.0]);

    // they are enough for the next one
    lab.asked.clear();
    let watch = &mut |_: Step<'_>| ControlFlow::Continue(());
    bench(&plan(&w, &p), &mut lab, &mut kept, watch, &stop).unwrap();
    assert_eq!(lab.asked[0], "rr 1");
}

/// Of 8 programs on 1 + 3 + 4 CPUs there are 280 placements: too many to try them.
#[test]
fn pinned_takes_the_largest_sum_of_speeds_where_there_are_many_placements() {
    let mut w = workload(8);
    for (i, app) in w.apps.iter_mut().enumerate() {
        app.command = Some(vec!["true".into(), i.to_string()]);
    }
    let p = vec![Contender::Pinned];
    let mut lab = Made {
        cpus: vec![1, 3, 4],
        seconds: Some(|_, _| 20.0),
        ..Made::default()
    };
    let report = go(&mut lab, &plan(&w, &p)).unwrap();
    let pinned = report.results[0].pinned.clone().unwrap();
    assert_eq!(pinned.tried, 0);
    let on = |t: &str| -> Vec<&str> {
        let mut on: Vec<&str> = (pinned.placement.iter())
            .filter(|(_, on)| *on == t)
            .map(|(app, _)| app.as_str())
            .collect();
        on.sort_unstable();
        on
    };
    // factors 3 and 2.7, 1.5 and 1, 1 and 1, …
    assert_eq!((on("type0"), on("type1").len()), (vec!["app1"], 3));
    assert!(on("type1").contains(&"app0"), "{pinned:?}");
}

#[test]
fn efficiency_factors_are_those_of_the_solo_runs() {
    let w = workload(2);
    let key = |k: &str| Some(k.to_owned());
    let watch = &mut |_: Step<'_>| ControlFlow::Continue(());
    let stop = AtomicBool::new(false);
    let without = SoloTimes {
        slow_s: vec![30.0; 2],
        fast_s: vec![10.0; 2],
        ..SoloTimes::default()
    };
    assert_eq!(without.efficiency(), None);
    for (policy, energies, asked) in [("hsp", true, 0), ("ef", false, 0), ("ef", true, 4)] {
        let p = vec![policy.parse().unwrap()];
        let mut lab = Made {
            keys: vec![key("0"), key("1")],
            energies,
            ..Made::default()
        };
        // kept by a version that knew no energies
        let mut kept = SoloCache::default();
        kept.put("0".into(), without.clone()).unwrap();
        kept.put("1".into(), without.clone()).unwrap();
        bench(&plan(&w, &p), &mut lab, &mut kept, watch, &stop).unwrap();
        let alone = |app: &str| lab.asked.iter().filter(|a| a.starts_with(app)).count();
        assert_eq!((alone("0 "), alone("1 ")), (asked, asked), "{policy}");
        if asked > 0 {
            // EDP 30 s · 6 J over 10 s · 12 J, and over 20 s · 12 J
            let ef = |k: &str| kept.get(k).unwrap().efficiency().unwrap();
            assert!((ef("0") - 1.5).abs() < 1e-9 && (ef("1") - 0.75).abs() < 1e-9);
            let text = serde_json::to_string(kept.get("0").unwrap()).unwrap();
            let again: SoloTimes = serde_json::from_str(&text).unwrap();
            assert_eq!(&again, kept.get("0").unwrap());
        }
    }
}

#[test]
fn a_repeatable_laboratory_runs_each_program_once() {
    let (w, p) = (workload(1), policies());
    let mut lab = Made {
        repeatable: true,
        ..Made::default()
    };
    let report = go(&mut lab, &plan(&w, &p)).unwrap();
    assert_eq!(lab.asked[..3], ["0 slow cores", "0 fast cores", "rr 1"]);
    let app = &report.results[0].apps[0];
    assert_eq!((app.ct_slow_u, app.ct_fast_u), (Some(0.0), Some(0.0)));
}

#[test]
fn a_failure_names_policy_and_run() {
    let (w, p) = (workload(2), policies());
    let mut lab = Made {
        fails: Some(("hsp", 2)),
        ..Made::default()
    };
    let e = go(&mut lab, &plan(&w, &p)).unwrap_err().to_string();
    assert_eq!(e, "policy `hsp`, run 2: the machine is on fire");
    assert_eq!(lab.asked.last().unwrap(), "hsp 2");
    let mut lab = Made {
        refuses: Some("no counters here"),
        ..Made::default()
    };
    let e = go(&mut lab, &plan(&w, &p)).unwrap_err().to_string();
    assert_eq!((e.as_str(), lab.asked.len()), ("no counters here", 0));
    for bad in [
        Plan {
            policies: &[],
            ..plan(&w, &p)
        },
        Plan {
            runs: Runs::Exactly(0),
            ..plan(&w, &p)
        },
        Plan {
            solo_runs: 0,
            ..plan(&w, &p)
        },
        Plan {
            completions: 0,
            ..plan(&w, &p)
        },
    ] {
        assert!(matches!(go(&mut lab, &bad), Err(BenchError::Plan(_))));
    }
}

#[test]
fn a_watcher_or_the_user_stops_it() {
    let (w, p) = (workload(2), policies());
    let mut lab = Made::default();
    let watch = &mut |s: Step<'_>| match s.what {
        What::Mix { run: 2, .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let stop = AtomicBool::new(false);
    let e = bench(
        &plan(&w, &p),
        &mut lab,
        &mut SoloCache::default(),
        watch,
        &stop,
    );
    assert!(matches!(e, Err(BenchError::Interrupted)));
    assert_eq!(lab.asked.last().unwrap(), "hsp 1");

    // set during a run, which fails for it: an interruption, not a failure
    let mut lab = Made {
        fails: Some(("hsp", 1)),
        interrupted: true,
        ..Made::default()
    };
    let e = go(&mut lab, &plan(&w, &p));
    assert!(matches!(e, Err(BenchError::Interrupted)));
    assert_eq!(lab.asked.last().unwrap(), "hsp 1");
}

#[test]
fn a_contender_that_fails_is_left_out_and_the_others_go_on() {
    let w = workload(1);
    let p: Contenders = "eevdf,scx:bpfland -s 5,rr".parse().unwrap();
    let mut lab = Made {
        fails: Some(("scx:bpfland -s 5", 2)),
        gives_up: true,
        ..Made::default()
    };
    let mut steps = Vec::new();
    let mut watch = |s: Step<'_>| {
        steps.push((s.done, s.total));
        ControlFlow::Continue(())
    };
    let (kept, stop) = (&mut SoloCache::default(), AtomicBool::new(false));
    let report = bench(&plan(&w, &p), &mut lab, kept, &mut watch, &stop).unwrap();
    let runs = &lab.asked[4..];
    assert_eq!(
        runs,
        [
            "eevdf 1",
            "scx:bpfland -s 5 1",
            "rr 1",
            "eevdf 2",
            "scx:bpfland -s 5 2",
            "rr 2",
            "eevdf 3",
            "rr 3"
        ]
    );
    // its third run counts as done
    assert_eq!((steps[10], steps[11]), ((10, 13), (12, 13)));
    let names: Vec<&str> = report.results.iter().map(|r| r.policy.as_str()).collect();
    assert_eq!(names, ["eevdf", "rr"]);
    let [failed] = &report.failed[..] else {
        panic!("{:?}", report.failed);
    };
    assert_eq!(
        (failed.policy.as_str(), failed.run),
        ("scx:bpfland -s 5", 2)
    );
    assert_eq!(failed.why, "the machine is on fire");
    let program = failed.scheduler.as_ref().map(|s| s.program.as_str());
    assert_eq!(program, Some("scx_bpfland"));
}

/// Three programs, two of which share the fast core: what a run takes goes by the one on the slow core.
fn by_the_slow_one(placement: &[Option<usize>], run: u32) -> f64 {
    match (placement.iter().position(|t| *t == Some(1)), run) {
        // it is lucky the first time, as its measured runs are not
        (Some(0), 1) => 16.0,
        (Some(0), _) => 24.0,
        (Some(1), _) => 18.0,
        _ => 23.0,
    }
}

#[test]
fn the_best_placement_is_not_the_luckiest_one() {
    let (mut w, p) = (workload(3), "pinned".parse::<Contenders>().unwrap().0);
    // programs that are alike change places with nobody
    for (i, app) in w.apps.iter_mut().enumerate() {
        app.command = Some(vec![i.to_string()]);
    }
    let mut lab = Made {
        seconds: Some(by_the_slow_one),
        ..Made::default()
    };
    let mut steps = Vec::new();
    let mut watch = |s: Step<'_>| {
        steps.push((s.done, s.total, s.what.to_string()));
        ControlFlow::Continue(())
    };
    let (plan, stop) = (plan(&w, &p), AtomicBool::new(false));
    let kept = &mut SoloCache::default();
    let report = bench(&plan, &mut lab, kept, &mut watch, &stop).unwrap();
    let pinned = report.results[0].pinned.as_ref().unwrap();
    let slow: Vec<&str> = pinned
        .placement
        .iter()
        .filter(|(_, t)| **t == report.machine.core_type_name(1))
        .map(|(app, _)| app.as_str())
        .collect();
    assert_eq!(
        (slow, pinned.tried, pinned.runs_of_best),
        (vec!["app1"], 3, 3)
    );
    // three placements once, two of them twice more, three runs of the best one
    let of_pinned: Vec<&str> = steps
        .iter()
        .map(|s| s.2.as_str())
        .filter(|what| what.starts_with("pinned"))
        .collect();
    assert_eq!(
        of_pinned,
        [
            "pinned, placement 1 of 3",
            "pinned, placement 2 of 3",
            "pinned, placement 3 of 3",
            "pinned, placement 1 of the best 2, run 2",
            "pinned, placement 2 of the best 2, run 2",
            "pinned, placement 1 of the best 2, run 3",
            "pinned, placement 2 of the best 2, run 3",
            "pinned, run 1 of 3",
            "pinned, run 2 of 3",
            "pinned, run 3 of 3",
        ]
    );
    let last = steps.last().unwrap();
    assert_eq!(last.0 + 1, last.1, "every step is announced: {steps:?}");
    let mut of_mix = steps.iter().filter(|s| !s.2.contains("alone"));
    assert!(of_mix.all(|s| s.1 == last.1), "{steps:?}");
    let (best, worst) = pinned.asp_of_best_and_worst.unwrap();
    assert!(best > worst, "{best} {worst}");
    let said = crate::report::text(&report, None);
    assert!(
        said.contains("the best of 3 placements, tried once each, the best ones 3 times: ASP from"),
        "{said}"
    );
}
