//! What perf counts through the stock PMU driver is what the model did.

use amp_tests::Lab;
use serde_json::Value;

/// Kernels with enough of the event for half a percent to mean something: instructions everywhere,
/// refills where data does not fit.
const CASES: [(&str, &[&str]); 4] = [
    ("alu --work 8M", &["instructions"]),
    (
        "stream --size 8M --work 2M",
        &["instructions", "l1d_refills", "l2_refills"],
    ),
    // So few instructions per second that those of other threads, which perf leaves out, would
    // show.
    ("chase --size 8M --work 1M", &["l1d_refills", "l2_refills"]),
    ("hash --size 8M --work 1M", &["l1d_refills", "l2_refills"]),
];

fn count(v: &Value, name: &str) -> f64 {
    v[name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {v}"))
}

/// Runs of each case: the model's totals are of all that its CPU did, so that a thread of the
/// kernel's that had its turn there (up to 175,000 instructions were seen) stands in them and not
/// in perf's counts of the program.
const RUNS: usize = 2;

#[test]
fn perf_and_the_model_agree_within_half_a_percent_on_both_core_types() {
    let mut script = String::from("sleep 5\n");
    for (case, _) in CASES {
        for cpu in [1, 4] {
            let run = format!("amp-workload run {case} --pin {cpu} --count --json\n");
            script += &run.repeat(RUNS);
        }
    }
    let reply = Lab::board("juno").run(&script).ok();
    let done = reply.json();
    assert_eq!(done.len(), CASES.len() * 2 * RUNS);
    for (i, runs) in done.chunks(RUNS).enumerate() {
        let (case, events) = CASES[i / 2];
        let cpu = &runs[0]["cpu"];
        for event in events {
            let errors = runs.iter().map(|j| {
                let (perf, model) = (count(&j["perf"], event), count(&j["model"], event));
                assert!(
                    model > 100_000.0,
                    "{case}: too few {event} to compare: {model}"
                );
                let error = perf / model - 1.0;
                println!(
                    "{case} on CPU {cpu}: {event}: perf {perf}, model {model}, {:+.3} %",
                    error * 100.0
                );
                // perf counts nothing that was not done
                assert!(error <= 0.005, "{case} on CPU {cpu}: {event}: {error:.4}");
                error.abs()
            });
            let least = errors.fold(f64::INFINITY, f64::min);
            assert!(least <= 0.005, "{case} on CPU {cpu}: {event}: {least:.4}");
        }
    }
}
