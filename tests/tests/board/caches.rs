//! A core type behind several last-level caches: each has its queue, and the queues stay level.

use amp_board::KernelChoice;
use amp_tests::Lab;

/// Five threads may use the first socket's CPUs only, the others any: without help from the first
/// socket's CPUs those would have less than the five.
const SCRIPT: &str = r#"
i=0; while [ ! -e /sys/kernel/sched_ext/state ] && [ $i -lt 50 ]; do i=$((i+1)); sleep 0.1; done
scx_amp run --policy acfs --provider none 2>/tmp/log & pid=$!
i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done
scx_amp topology
taskset 0xf amp-workload bench spin --threads 5 --name first --seconds 12 --json >/tmp/a & a=$!
taskset 0xf0 amp-workload bench spin --threads 3 --name second --seconds 12 --json >/tmp/b & b=$!
amp-workload bench spin --threads 8 --name any --seconds 12 --json >/tmp/c
wait $a $b
cat /tmp/a /tmp/b /tmp/c
kill $pid; wait $pid; echo "status $?"
"#;

#[test]
fn threads_of_two_sockets_get_shares_within_ten_percent() {
    let r = Lab::x86_sockets(KernelChoice::Newest, 2, 4)
        .package("util-linux")
        .run(SCRIPT)
        .ok();
    assert_eq!(r.line("status"), "0");
    let json = r.json();
    let mut ran = Vec::new();
    for j in json.iter().filter(|j| j["bench"] == "spin") {
        for on in j["cpu_ms"].as_array().unwrap() {
            let ms = on
                .as_array()
                .unwrap()
                .iter()
                .filter_map(serde_json::Value::as_f64);
            ran.push(ms.sum::<f64>());
        }
    }
    assert_eq!(ran.len(), 16);
    let mean = ran.iter().sum::<f64>() / 16.0;
    println!("{ran:.0?} ms, mean {mean:.0}");
    for ms in &ran {
        assert!(
            (ms / mean - 1.0).abs() <= 0.10,
            "{ms} ms of {mean}: {ran:?}"
        );
    }
}
