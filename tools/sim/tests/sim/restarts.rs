//! Programs of short runs beside long ones: fairness is to the program, not to each run of it.

use amp_eval::workload::Workload;
use amp_eval::Runs;
use amp_machine::MachineFile;
use amp_sched::policy::Settings;
use amp_sim::bench::{bench, BenchOptions};
use std::ops::ControlFlow;
use std::path::Path;

/// Unfairness of `policy`, given the true factors, to two programs of two seconds that gain much from fast
/// cores and two that gain less and last for an interval and a half, over and over again.
fn unfairness(policy: &str, settings: &[&str]) -> f64 {
    let mut text = "name = \"mix\"\n".to_string();
    for (name, sf, instructions) in [
        ("long-a", 3.2, 2e9),
        ("long-b", 3.2, 2e9),
        ("short-a", 1.7, 0.15e9),
        ("short-b", 1.7, 0.15e9),
    ] {
        text += &format!(
            "[[app]]\nname = \"{name}\"\ninstructions = {instructions:e}\n\
             phases = [{{ instructions = {instructions:e}, ips_big = {sf}e9, ips_small = 1e9 }}]\n"
        );
    }
    let workload = Workload::parse(Path::new("mix.toml"), &text).unwrap();
    let machine = MachineFile::load("juno").unwrap();
    let options = BenchOptions {
        // five runs have 1.04 to 1.11, by their seed
        runs: Runs::Exactly(40),
        settings: Settings::new(settings, &[policy]).unwrap(),
        ..BenchOptions::default()
    };
    let report = bench(&workload, &machine, &[policy], &options, &mut |_| {
        ControlFlow::Continue(())
    });
    report.unwrap().results[0].unfairness.value
}

#[test]
fn a_program_of_short_runs_gets_no_more_than_its_share() {
    let acfs = unfairness("acfs", &[]);
    let pareto = unfairness("pareto", &["pareto.unfairness=1.05"]);
    println!("acfs {acfs:.3}, pareto under 1.05 {pareto:.3}");
    assert!(acfs < 1.08, "{acfs}");
    assert!(pareto < 1.08, "{pareto}");
}
