//! What the scheduler costs a machine on which nothing happens.

use amp_tests::Lab;

/// Expired timers per second while nothing runs, by the kernel's count; then with one busy thread.
/// The counters of idle CPUs stand for wake-ups: the mechanism's timer is the only one of its kind.
const LOOKS: &str = r#"
expired() { awk '/HRTIMER/ { for (i = 2; i <= NF; i++) n += $i } END { print n }' /proc/softirqs; }
look() {
    before=$(expired); woken=$(switches); sleep 10
    echo "$1 $(($(expired) - before))"; echo "woken-$1 $(($(switches) - woken))"
}
# of user space's threads, whoever they wait for
switches() { [ -z "$pid" ] && echo 0 || cat /proc/$pid/task/*/status | awk '/ctxt_switches/ { n += $2 } END { print n }'; }
sleep 5
look kernel
scx_amp run --policy rr --provider none 2>/tmp/log & pid=$!
i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done
sleep 3
look idle
amp-workload run alu --work 1000G >/dev/null & busy=$!
look busy
kill $busy
sleep 1
look again
echo "state $(cat /sys/kernel/sched_ext/state)"
kill $pid; wait $pid; echo "end $?"
"#;

#[test]
fn an_idle_machine_has_no_timer_of_ours() {
    let r = Lab::board("juno").run(LOOKS).ok();
    let per_second = |what: &str| -> f64 { r.line(what).parse::<f64>().unwrap() / 10.0 };
    println!(
        "timers per second: kernel's own scheduler {:.1}, idle {:.1}, one busy thread {:.1}, idle again {:.1}",
        per_second("kernel"),
        per_second("idle"),
        per_second("busy"),
        per_second("again")
    );
    println!(
        "wake-ups of user space per second: idle {:.1}, one busy thread {:.1}, idle again {:.1}",
        per_second("woken-idle"),
        per_second("woken-busy"),
        per_second("woken-again")
    );
    // ten decisions a second while somebody runs
    assert!(per_second("woken-busy") > 9.0);
    // one every 5 ms as long as somebody runs: the count is of the right timer
    assert!(per_second("busy") > 150.0);
    // each of ten decisions a second is somebody who runs, and others wake up now and then
    for what in ["idle", "again"] {
        let over = per_second(what) - per_second("kernel");
        assert!(over < 60.0, "{what}: {over}");
    }
    assert_eq!(r.line("state"), "enabled");
    assert_eq!(r.line("end"), "0");
}
