//! How parallel programs share work is found out.

use amp_eval::evaluation::BenchReport;
use amp_eval::workload::Workload;
use amp_eval::Runs;
use amp_machine::MachineFile;
use amp_sched::policy::Settings;
use amp_sim::bench::{bench, BenchOptions};
use std::ops::ControlFlow;
use std::path::Path;

/// A program of four threads that wait for each other fifty times, or take what is left to do from a
/// heap, beside three programs of one thread.
fn report(schedule: &str, policy: &str, settings: &[&str]) -> BenchReport {
    let mut text = format!(
        "name = \"mix\"\n[[app]]\nname = \"parallel\"\nthreads = 4\ninstructions = 6.3e9\n\
         phases = [{{ instructions = 6.3e9, ips_big = 2.412e9, ips_small = 1e9, schedule = \"{schedule}\", loops = 50 }}]\n"
    );
    for (name, sf) in [("hash", 3.2), ("sort", 1.72), ("chase", 1.16)] {
        text += &format!(
            "[[app]]\nname = \"{name}\"\ninstructions = 2e9\n\
             phases = [{{ instructions = 2e9, ips_big = {sf}e9, ips_small = 1e9 }}]\n"
        );
    }
    let workload = Workload::parse(Path::new("mix.toml"), &text).unwrap();
    let machine = MachineFile::load("juno").unwrap();
    let options = BenchOptions {
        runs: Runs::Exactly(5),
        settings: Settings::new(settings, &[policy]).unwrap(),
        ..BenchOptions::default()
    };
    bench(&workload, &machine, &[policy], &options, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap()
}

/// ASP and unfairness.
fn figures(report: &BenchReport) -> (f64, f64) {
    let r = &report.results[0];
    (r.asp.value, r.unfairness.value)
}

#[test]
fn a_program_that_waits_at_barriers_does_not_get_the_fast_cores() {
    let (asp, unfairness) = figures(&report("static", "acfs", &[]));
    let (kernel, _) = figures(&report("static", "eevdf", &[]));
    let (told, same) = figures(&report("static", "acfs", &["acfs.utility=barrier"]));
    let (taken_in, unfair) = figures(&report("static", "acfs", &["acfs.utility=speedup"]));
    assert!(unfairness < 1.1, "{unfairness}");
    assert!(asp > kernel, "{asp} beside {kernel}");
    // nearly as good as being told (0.927 of it), and far from being told something wrong
    assert!(asp > 0.9 * told, "{asp} beside {told}");
    assert!(unfairness < same + 0.05, "{unfairness} beside {same}");
    assert!(asp > 1.5 * taken_in && unfair > 1.3, "{taken_in} {unfair}");
}

#[test]
fn a_program_whose_threads_never_wait_is_rated_as_before() {
    let auto = figures(&report("dynamic", "acfs", &[]));
    let speedup = figures(&report("dynamic", "acfs", &["acfs.utility=speedup"]));
    assert!(
        (auto.0 / speedup.0 - 1.0).abs() < 0.03,
        "{auto:?} {speedup:?}"
    );
    assert!(
        (auto.1 / speedup.1 - 1.0).abs() < 0.03,
        "{auto:?} {speedup:?}"
    );
}
