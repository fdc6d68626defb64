//! CPUs that come and go while the scheduler runs: it is there again with what was asked of it.

use amp_tests::Lab;
use serde_json::Value;

/// Takes both big CPUs away one by one and gives them back together, under counters and with knobs
/// turned. `look` prints the status as a line of JSON once the scheduler has been there again for
/// the CPUs that are online.
const SCRIPT: &str = r#"
sleep 2
scx_amp run --policy acfs --set acfs.uf=1.5 --provider ipc-sampling >/tmp/log 2>&1 & pid=$!
state() { cat /sys/kernel/sched_ext/state; }
online() {
    read before rest </proc/uptime
    echo $2 > /sys/devices/system/cpu/cpu$1/online || echo "refused-$1 $2"
    read after rest </proc/uptime
    echo "took $before $after"
}
look() {
    i=0; while [ "$(grep -c 'scheduling with' /tmp/log)" -lt $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done
    sleep 2
    echo "state-$1 $(state)"
    scx_amp ctl status | tr -d '\n'; echo
}
amp-workload bench spin --threads 4 --seconds 600 >/dev/null & load=$!
look 1
scx_amp ctl set acfs.uf=1.7 >/dev/null; scx_amp ctl policy rr >/dev/null; scx_amp ctl policy acfs >/dev/null
online 1 0; look 2
online 0 0; look 3
online 0 1; online 1 1; look 4
kill -0 $load && echo "load runs"
kill $load
kill -INT $pid; wait $pid; echo "status $?"
echo "down $(state)"
sed 's/^/log /' /tmp/log
dmesg | sed '1,/Run .init/d' | tail -n 60 | sed 's/^/dmesg /'
grep 'scheduling with' /tmp/log | sed 's/.*: /with /'
"#;

/// Threads of which a metric of that name is known.
fn threads_with(status: &Value, metric: &str) -> usize {
    let threads = status["per_thread"].as_array();
    let known = |t: &&Value| t["metrics"].get(metric).is_some();
    threads.map_or(0, |t| t.iter().filter(known).count())
}

#[test]
fn cpus_come_and_go_under_the_scheduler() {
    let r = Lab::part_of_juno(["0-1", "2-3"]).run(SCRIPT).ok();
    let json = r.json();
    let log: Vec<&str> = r.lines("log").collect();
    assert_eq!(json.len(), 4, "a status after every change: {log:#?}");
    for (i, status) in json.iter().enumerate() {
        assert_eq!(r.line(&format!("state-{}", i + 1)), "enabled");
        assert_eq!(status["policy"], "acfs");
        assert_eq!(status["provider"], "ipc-sampling");
        let uf = if i == 0 { "1.5" } else { "1.7" };
        assert_eq!(
            status["knobs"]["uf"], uf,
            "{i}: knobs stay as they were turned"
        );
        println!("{i}: {} threads have an IPC", threads_with(status, "ipc"));
        assert!(
            threads_with(status, "ipc") >= 1,
            "{i}: counters count again"
        );
    }
    // nobody waits for a CPU that goes, the kernel's own threads least of all
    let changes = ["cpu 1 off", "cpu 0 off", "cpu 0 on", "cpu 1 on"];
    assert_eq!(r.lines("took").count(), changes.len());
    for (what, took) in changes.iter().zip(r.lines("took")) {
        let times: Vec<f64> = took.split(' ').map(|t| t.parse().unwrap()).collect();
        let seconds = times[1] - times[0];
        println!("{what}: {seconds:.2} s");
        assert!(seconds < 2.0, "{what}: {seconds} s");
    }
    let with: Vec<&str> = r.lines("with").collect();
    assert_eq!(
        with,
        [
            "big 0-1, little 2-3",
            "big 0, little 2-3",
            "core 2-3",
            "big 0-1, little 2-3"
        ]
    );
    assert_eq!(r.line("load"), "runs");
    assert_eq!((r.line("status"), r.line("down")), ("0", "disabled"));
}
