//! `run --only-cgroup`: one control group is scheduled, the others are left to the kernel, and get
//! their class back.

use amp_tests::Lab;

const SCRIPT: &str = r#"
sleep 5
mkdir -p /sys/fs/cgroup/user.slice/a.scope
scx_amp run --policy rr --only-cgroup nobody.slice 2>/tmp/e; echo "missing-status $?"
echo "missing $(tr '\n' ' ' </tmp/e)"
scx_amp run --policy rr --provider none --only-cgroup user.slice 2>/tmp/log & pid=$!
i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done
(echo $BASHPID >/sys/fs/cgroup/user.slice/a.scope/cgroup.procs; exec amp-workload bench spin --name inside --threads 3 --seconds 4) >/dev/null & in=$!
amp-workload bench spin --name outside --threads 3 --seconds 4 >/dev/null & out=$!
sleep 1.5
# field 41: the scheduling class
classes() { awk -v what="$1" '{print what, $2, $41}' /proc/$2/task/*/stat; }
classes during $in; classes during $out
scx_amp ctl status | tr -d '\n'; echo
kill $pid; wait $pid; echo "status $?"
classes after $in
echo "state $(cat /sys/kernel/sched_ext/state)"
"#;

#[test]
fn threads_of_the_group_are_scheduled_and_no_others() {
    let r = Lab::board("juno").run(SCRIPT).ok();
    assert_eq!(r.line("missing-status"), "2");
    assert!(
        r.line("missing").contains("nobody.slice"),
        "{}",
        r.line("missing")
    );
    let class = |line: &str| line.rsplit(' ').next().unwrap_or_default().to_owned();
    let of = |when: &str, name: &str| -> Vec<String> {
        let name = format!("({name}-");
        r.lines(when)
            .filter(|l| l.starts_with(&name))
            .map(class)
            .collect()
    };
    assert_eq!(of("during", "inside"), ["7"; 3], "SCHED_EXT");
    assert_eq!(of("during", "outside"), ["0"; 3], "as they were");
    assert_eq!(of("after", "inside"), ["0"; 3], "given back");
    let status = r.json();
    let names: Vec<&str> = status[0]["per_thread"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|t| t["comm"].as_str())
        .collect();
    for name in ["inside-0", "inside-1", "inside-2"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(names.iter().all(|n| !n.starts_with("outside")), "{names:?}");
    assert_eq!((r.line("status"), r.line("state")), ("0", "disabled"));
}

/// Six busy threads in the group and one outside of it that is kept on each of six CPUs. Left to
/// the kernel, those outside gather on some of the CPUs, and the group has the others alone.
const FULL: &str = r#"
sleep 5
mkdir -p /sys/fs/cgroup/user.slice
scx_amp run --policy rr --provider none --only-cgroup user.slice 2>/tmp/log & pid=$!
i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done
(echo $BASHPID >/sys/fs/cgroup/user.slice/cgroup.procs; exec amp-workload bench spin --name inside --threads 6 --seconds 4 --json) >/tmp/inside & in=$!
for cpu in 0 1 2 3 4 5; do
    taskset -c $cpu amp-workload bench spin --name outside --seconds 4 --json >/tmp/outside$cpu & out="$out $!"
done
wait $in $out
cat /tmp/inside /tmp/outside*
echo "attached $(cat /sys/kernel/sched_ext/state)"
kill $pid; wait $pid; echo "status $?"
echo "warned $(grep -c 'runs threads of other groups first' /tmp/log)"
"#;

#[test]
fn on_a_full_machine_the_group_keeps_what_the_kernel_says_and_the_user_is_told() {
    let r = Lab::board("juno").run(FULL).ok();
    assert_eq!((r.line("attached"), r.line("status")), ("enabled", "0"));
    assert_eq!(r.line("warned"), "1");
    let json = r.json();
    let ran: Vec<f64> = json
        .iter()
        .map(|j| {
            let threads = j["cpu_ms"].as_array().unwrap().iter();
            let cpus = threads.flat_map(|t| t.as_array().unwrap());
            cpus.filter_map(serde_json::Value::as_f64).sum()
        })
        .collect();
    assert_eq!(ran.len(), 7, "the group's, and one on each CPU");
    let share = ran[0] / ran.iter().sum::<f64>();
    println!("the group's share is {share:.3}");
    // 5 % of each CPU, less what the windows in which the kernel gives them leave over
    assert!((0.04..0.2).contains(&share), "{share}");
}
