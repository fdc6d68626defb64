//! What perf counts through the stock PMU driver is what the model did.

use amp_tests::Lab;
use serde_json::Value;

/// Kernels with enough of the event for half a percent to mean something: instructions everywhere, refills where data
/// does not fit.
const CASES: [(&str, &[&str]); 4] = [
    ("alu --work 8M", &["instructions"]),
    (
        "stream --size 8M --work 2M",
        &["instructions", "l1d_refills", "l2_refills"],
    ),
    // So few instructions per second that those of other threads, which perf leaves out, would show.
    ("chase --size 8M --work 1M", &["l1d_refills", "l2_refills"]),
    ("hash --size 8M --work 1M", &["l1d_refills", "l2_refills"]),
];

fn count(v: &Value, name: &str) -> f64 {
    v[name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {v}"))
}

#[test]
fn perf_and_the_model_agree_within_half_a_percent_on_both_core_types() {
    let mut script = String::from("sleep 5\n");
    for (case, _) in CASES {
        for cpu in [1, 4] {
            script += &format!("amp-workload run {case} --pin {cpu} --count --json\n");
        }
    }
    let reply = Lab::board("juno").run(&script).ok();
    let done = reply.json();
    assert_eq!(done.len(), CASES.len() * 2);
    for (i, j) in done.iter().enumerate() {
        let (case, events) = CASES[i / 2];
        for event in events {
            let (perf, model) = (count(&j["perf"], event), count(&j["model"], event));
            let error = (perf / model - 1.0).abs();
            println!(
                "{case} on CPU {}: {event}: perf {perf}, model {model}, {:.3} %",
                j["cpu"],
                error * 100.0
            );
            assert!(
                model > 100_000.0,
                "{case}: too few {event} to compare: {model}"
            );
            assert!(
                error <= 0.005,
                "{case} on CPU {}: {event}: {error:.4}",
                j["cpu"]
            );
        }
    }
}
