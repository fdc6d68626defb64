//! The bench as a whole: protocol, report, reproducibility, errors.

use amp_eval::workload::Workload;
use amp_machine::MachineFile;
use amp_metrics::Nanos;
use amp_sched::policy::Settings;
use amp_sim::bench::{bench, BenchOptions, Step, What};
use amp_sim::{ProviderSpec, SimError};
use std::ops::ControlFlow;
use std::path::Path;

const MIX: &str = r#"
name = "mix"
[[app]]
name = "fast"
instructions = 30e9
phases = [
  { instructions = 2e9, ips_big = 3e9, ips_small = 1e9, power_big = 2, power_small = 0.5 },
  { instructions = 1e9, ips_big = 2e9, ips_small = 1e9, power_big = 2, power_small = 0.5 },
]
[[app]]
name = "slow"
instructions = 20e9
phases = [{ instructions = 1e9, ips_big = 1.2e9, ips_small = 1e9, power_big = 1, power_small = 0.5 }]
[[app]]
name = "team"
threads = 3
weight = 200
instructions = 40e9
phases = [
  { instructions = 1e9, ips_big = 2e9, ips_small = 1e9, power_big = 2, power_small = 0.5, parallel = false },
  { instructions = 3e9, ips_big = 2e9, ips_small = 1e9, power_big = 2, power_small = 0.5 },
]
"#;

fn workload(text: &str) -> Workload {
    Workload::parse(Path::new("mix.toml"), text).unwrap()
}

fn machine() -> MachineFile {
    crate::common::machine(&[2, 2], 50)
}

fn run(
    policies: &[&str],
    options: &BenchOptions,
) -> Result<amp_eval::evaluation::BenchReport, SimError> {
    bench(&workload(MIX), &machine(), policies, options, &mut |_| {
        ControlFlow::Continue(())
    })
}

#[test]
fn the_protocol_and_the_same_bytes_for_the_same_seed() {
    let noisy = BenchOptions {
        provider: ProviderSpec::Exact {
            sigma: 0.05,
            latency: 1,
        },
        runs: amp_eval::Runs::Exactly(3),
        seed: 7,
        ..BenchOptions::default()
    };
    let report = run(&["eevdf", "rr", "hsp"], &noisy).unwrap();
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(
        serde_json::to_string(&run(&["eevdf", "rr", "hsp"], &noisy).unwrap()).unwrap(),
        text
    );
    let other = BenchOptions { seed: 8, ..noisy };
    assert_ne!(
        serde_json::to_string(&run(&["eevdf", "rr", "hsp"], &other).unwrap()).unwrap(),
        text
    );

    assert_eq!(
        (report.on.as_str(), report.environment.virtual_time),
        ("sim", true)
    );
    let names: Vec<&str> = report.results.iter().map(|r| r.policy.as_str()).collect();
    assert_eq!(names, ["eevdf", "rr", "hsp"]);
    for r in &report.results {
        assert_eq!(r.runs.len(), 3);
        assert!(
            r.apps
                .iter()
                .all(|a| a.completions_s.iter().all(|run| run.len() >= 3)
                    && a.unfinished_share.len() == 3
                    && a.slowdown >= 0.99),
            "{r:?}"
        );
        assert!(r.asp.u.is_some() && r.edp.is_some() && !r.timeline.is_empty());
        assert_eq!(r.swaps_per_s.is_some(), r.policy != "eevdf");
    }
    // alone: fast runs 20·10⁹ at 3 and 10·10⁹ at 2; on small cores everything at 1
    let fast = &report.results[0].apps[0];
    assert!((fast.ct_slow_s - 30.0).abs() < 1e-6);
    assert!(
        (fast.ct_fast_s - (20.0 / 3.0 + 5.0)).abs() < 0.1,
        "{}",
        fast.ct_fast_s
    );
    // team: 10 passes of 1·10⁹ in series and 3·10⁹ on the two slow cores at 1·10⁹ each
    let team = &report.results[0].apps[2];
    assert!(
        (team.ct_slow_s - 10.0 * (1.0 + 1.5)).abs() < 0.3,
        "{}",
        team.ct_slow_s
    );
}

/// The reference for steady programs is the analytic optimum, and the worst placement is worse.
#[test]
fn the_best_pinned_placement_is_the_optimum_of_steady_programs() {
    let app = |(i, sf): (usize, &f64)| {
        format!(
            "[[app]]\nname = \"a{i}\"\ninstructions = 20e9\n\
             phases = [{{ instructions = 1e9, ips_big = {sf}e9, ips_small = 1e9 }}]\n"
        )
    };
    let apps: Vec<String> = [1.2, 3.0, 1.6, 2.4].iter().enumerate().map(app).collect();
    let mix = workload(&format!("name = \"steady\"\n{}", apps.concat()));
    let options = BenchOptions::default();
    let report = bench(&mix, &machine(), &["hsp", "pinned"], &options, &mut |_| {
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    let (hsp, pinned) = (&report.results[0], &report.results[1]);
    let facts = pinned.pinned.as_ref().unwrap();
    assert_eq!((facts.tried, hsp.pinned.is_none()), (6, true));
    let (best, worst) = facts.asp_of_best_and_worst.unwrap();
    // 3.0 and 2.4 on the fast cores, or 1.2 and 1.6
    assert!(
        (best - 3.4).abs() < 1e-3 && (worst - 0.8).abs() < 1e-3,
        "{facts:?}"
    );
    assert!((pinned.asp.value - 3.4).abs() < 1e-3, "{:?}", pinned.asp);
    assert_eq!(facts.placement["a1"], report.machine.core_type_name(0));
    assert!((hsp.asp.value / pinned.asp.value - 1.0).abs() < 0.02);
    let text = amp_eval::report::text(&report, None);
    assert!(
        text.contains("a1, a3 on") && text.contains("best of 6 placements"),
        "{text}"
    );
}

#[test]
fn every_policy_there_is_can_be_run() {
    let options = BenchOptions {
        runs: amp_eval::Runs::Exactly(1),
        completions: 1,
        ..BenchOptions::default()
    };
    let report = run(amp_sched::policy::NAMES, &options).unwrap();
    for r in &report.results {
        assert!(
            r.asp.value.is_finite() && r.unfairness.value >= 1.0,
            "{}",
            r.policy
        );
    }
}

#[test]
fn bad_input_is_named_and_a_watcher_may_stop_it() {
    let e = |policies: &[&str], o: BenchOptions| run(policies, &o).unwrap_err().to_string();
    let d = BenchOptions::default;
    assert!(e(&["hps"], d()).contains("`hps`"));
    assert!(e(&[], d()).contains("no policy"));
    assert!(e(
        &["rr"],
        BenchOptions {
            runs: amp_eval::Runs::Exactly(0),
            ..d()
        }
    )
    .contains("at least one run"));
    assert!(e(
        &["rr"],
        BenchOptions {
            interval: Nanos::ZERO,
            ..d()
        }
    )
    .contains("interval"));
    let nan = ProviderSpec::Exact {
        sigma: f64::NAN,
        latency: 0,
    };
    assert!(e(
        &["rr"],
        BenchOptions {
            provider: nan,
            ..d()
        }
    )
    .contains("noise NaN"));
    let refused = |setting: &str| Settings::new(&[setting], &["rr"]).unwrap_err().to_string();
    assert!(refused("rr.treshold=1").contains("treshold"));
    assert!(refused("rr.threshold=-1").contains("threshold"));
    assert!(refused("hsp.turn=1").contains("hsp.turn"));
    for bad in ["NaN", "-inf", "1e", "60001"] {
        let e = refused(&format!("rr.threshold={bad}"));
        assert!(e.contains("threshold") && e.contains(bad), "{e}");
    }
    let short = BenchOptions {
        limit: Nanos::from_millis(5000),
        ..d()
    };
    assert!(e(&["rr"], short).contains("no end after 5 simulated seconds"));
    let few = BenchOptions {
        most_events: 1000,
        ..d()
    };
    let e_few = e(&["rr"], few);
    assert!(
        e_few.contains("no end after") && e_few.contains("1000 events"),
        "{e_few}"
    );

    let live = workload("name = \"l\"\n[[app]]\nname = \"bzip2\"\ncommand = [\"bzip2\"]\n");
    let go = &mut |_: Step<'_>| ControlFlow::Continue(());
    let e = bench(&live, &machine(), &["rr"], &d(), go)
        .unwrap_err()
        .to_string();
    assert!(
        e.contains("`l`") && e.contains("`bzip2`") && e.contains("phases"),
        "{e}"
    );

    let app = |i| {
        format!(
            "[[app]]\nname = \"a{i}\"\nthreads = 4\ninstructions = 1e9\nphases = [{{ instructions = 1e9, \
             ips_big = 2e9, ips_small = 1e9 }}]\n"
        )
    };
    let crowd: String = (0..4096).map(app).collect();
    let crowd = workload(&format!("name = \"crowd\"\n{crowd}"));
    let e = bench(&crowd, &machine(), &["rr"], &d(), go)
        .unwrap_err()
        .to_string();
    assert!(
        e.contains("`a4095`") && e.contains("16384 threads") && e.contains("16383"),
        "{e}"
    );
    let three = crate::common::machine(&[1, 1, 1], 0);
    let all = ["ef", "pareto", "propsp"];
    let report = bench(&workload(MIX), &three, &all, &d(), go).unwrap();
    let asp: Vec<f64> = report.results.iter().map(|r| r.asp.value).collect();
    assert!(
        asp.len() == 3 && asp.iter().all(|asp| *asp > 0.0),
        "{asp:?}"
    );

    let mut steps = Vec::new();
    let stop = &mut |s: Step<'_>| match s.what {
        What::Mix { policy, run: 2, .. } => {
            steps.push(policy.to_string());
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    let e = bench(&workload(MIX), &machine(), &["rr", "hsp"], &d(), stop);
    assert!(matches!(e, Err(SimError::Interrupted)));
    assert_eq!(steps, ["rr"]);
}
