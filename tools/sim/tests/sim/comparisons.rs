//! What was published of the paper's mixes holds on the simulator.

use amp_eval::workload::{App, Phase, Schedule, Workload};
use amp_machine::MachineFile;
use amp_sim::bench::{bench, BenchOptions, Step};
use amp_sim::compare::Comparison;
use amp_sim::ProviderSpec;
use std::ops::ControlFlow;
use std::path::PathBuf;

fn comparison(name: &str) -> Comparison {
    let folder = [env!("CARGO_MANIFEST_DIR"), "../workloads/comparisons"];
    let file = folder.iter().collect::<PathBuf>().join(name);
    Comparison::load(&file).unwrap()
}

/// What was published holds, but for what is `known` not to. A figure that comes to hold is a
/// reason to shorten the list.
fn holds(name: &str, known: &[&str]) {
    let outcome = comparison(name)
        .run(3, 1, &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    println!("{outcome}");
    let unmet = outcome.unmet();
    assert!(
        unmet.len() == known.len() && unmet.iter().zip(known).all(|(u, k)| u.starts_with(k)),
        "{unmet:?}"
    );
}

#[test]
fn quickia_is_as_published() {
    // about 11 %, where a policy without any unfairness would reach 12; over other draws of the
    // synthetic programs it is 9 to 21 %
    holds(
        "quickia.toml",
        &["unfairness of acfs below eqp: 13 % or more"],
    );
}

#[test]
fn opteron_is_as_published() {
    holds("opteron.toml", &[]);
}

#[test]
fn energy_is_as_published() {
    holds("ef.toml", &[]);
}

/// Programs that by turns use a big core well and badly, each in its own rhythm: equals on average,
/// so that a static assignment has nothing to go by.
#[test]
fn following_phases_saves_energy_over_a_static_assignment() {
    let phase = |seconds: f64, watts: f64| Phase {
        instructions: seconds * 0.6e9,
        ips_big: 1.68e9,
        ips_small: 0.6e9,
        power_big: Some(watts),
        power_small: Some(0.25),
        parallel: true,
        schedule: Schedule::Static,
        loops: 1,
        sleep: 0.0,
        cache: None,
    };
    let app = |i: u32| App {
        name: format!("p{i}"),
        threads: 1,
        weight: 100,
        speedup: None,
        command: None,
        instructions: Some(60e9),
        phases: vec![
            phase(3.0 + 0.7 * f64::from(i), 0.7),
            phase(4.5 - 0.4 * f64::from(i), 1.8),
        ],
    };
    let mix = Workload {
        name: "phased".into(),
        machine: None,
        apps: (0..6).map(app).collect(),
    };
    let machine = MachineFile::load("juno").unwrap();
    let edp = |provider| {
        let options = BenchOptions {
            provider,
            runs: amp_eval::Runs::Exactly(2),
            ..BenchOptions::default()
        };
        let go = &mut |_: Step<'_>| ControlFlow::Continue(());
        let report = bench(&mix, &machine, &["ef"], &options, go).unwrap();
        report.results[0].edp.unwrap().value
    };
    let (follows, fixed) = (edp(ProviderSpec::TRUE), edp(ProviderSpec::Average));
    println!("EDP {follows:.3e} following phases, {fixed:.3e} static");
    assert!(follows < 0.9 * fixed, "{follows} {fixed}");
}

#[test]
fn a_comparison_that_is_not_right_says_why() {
    let folder = std::env::temp_dir().join(format!("amp-sim-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("c.toml");
    let load = |columns: &str| {
        let head = "name = \"n\"\nsource = \"s\"\nmachine = \"quickia\"\nmixes = \"nowhere\"\n";
        std::fs::write(&file, format!("{head}{columns}")).unwrap();
        Comparison::load(&file)
    };
    let a = "[[column]]\nlabel = \"a\"\npolicy = \"rr\"\n";
    let e = load(&format!("{a}{a}")).unwrap_err().to_string();
    assert!(e.contains("c.toml") && e.contains("two columns `a`"), "{e}");
    let claim = "[[published]]\nfigure = \"asp\"\nbest = \"b\"\n";
    let e = load(&format!("{a}{claim}")).unwrap_err().to_string();
    assert!(e.contains("column `b`"), "{e}");
    let e = load(&a.replace("label", "lable")).unwrap_err().to_string();
    assert!(e.contains("lable"), "{e}");
    let e = load(a).unwrap().workloads().unwrap_err().to_string();
    assert!(e.contains("nowhere"), "{e}");
    std::fs::remove_dir_all(&folder).unwrap();
}
