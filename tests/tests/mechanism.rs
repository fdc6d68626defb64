//! The mechanism under load on the board: swaps are prompt, and a storm of short-lived threads harms nobody.

use amp_tests::Lab;
use serde_json::Value;

const START: &str = r#"
wait_for() { i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != $1 ] && [ $i -lt 200 ]; do i=$((i+1)); sleep 0.1; done; }
sleep 5
scx_amp run --policy rr 2>/tmp/log & pid=$!
wait_for enabled
"#;

const STOP: &str = r#"
scx_amp ctl status | tr -d '\n'; echo
kill $pid; wait $pid; echo "status $?"
echo "state $(cat /sys/kernel/sched_ext/state)"
"#;

fn status(json: &[Value]) -> &Value {
    json.iter()
        .find(|j| j.get("swap_latency_p50_us").is_some())
        .expect("a status")
}

#[test]
fn a_swap_takes_effect_within_two_milliseconds_with_every_cpu_busy() {
    let spin = "amp-workload bench spin --threads 6 --seconds 8 >/dev/null\n";
    let r = Lab::board("juno").run(&format!("{START}{spin}{STOP}")).ok();
    let json = r.json();
    let s = status(&json);
    let (swaps, median) = (
        s["swaps"].as_u64().unwrap(),
        s["swap_latency_p50_us"].as_f64().unwrap(),
    );
    println!("{swaps} placements, median latency {median:.0} us of virtual time");
    assert!(swaps >= 20, "{s}");
    assert!(
        median > 0.0 && median < 2000.0,
        "median swap latency {median} us"
    );
    assert_eq!((r.line("status"), r.line("state")), ("0", "disabled"));
}

#[test]
fn thirty_thousand_threads_come_and_go_beside_five_busy_cpus() {
    let churn = r#"
amp-workload bench spin --threads 5 --seconds 600 >/dev/null & spin=$!
amp-workload bench churn --threads 30000 --json
kill $spin
sleep 1
"#;
    let r = Lab::board("juno")
        .run(&format!("{START}{churn}{STOP}"))
        .ok();
    let json = r.json();
    let churn = json
        .iter()
        .find(|j| j["bench"] == "churn")
        .expect("the churn's own report");
    println!("{churn}");
    assert_eq!(churn["threads"].as_u64(), Some(30_000));
    let s = status(&json);
    println!("{s}");
    assert_eq!(
        s["untracked"].as_u64(),
        Some(0),
        "a slot for every thread: {s}"
    );
    assert!(s["threads"].as_u64().unwrap() < 300, "slots came back: {s}");
    // the policy's round went on at its pace: at least eight of ten ticks came
    let (ticks, uptime) = (
        s["ticks"].as_f64().unwrap(),
        s["uptime_s"].as_f64().unwrap(),
    );
    assert!(ticks >= 8.0 * uptime, "{ticks} ticks in {uptime} s: {s}");
    assert_eq!((r.line("status"), r.line("state")), ("0", "disabled"));
}
