//! Cores of two hardware threads: a core is one seat until there is more work than cores.

use amp_board::KernelChoice;
use amp_tests::Lab;

/// CPUs 0 to 3 are two fast cores, 4 and 6 two slow ones, whose second threads are offline as on machines whose
/// slow cores have none. Four busy threads, then six.
const SCRIPT: &str = r#"
wait_for() { i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; }
echo 0 >/sys/devices/system/cpu/cpu5/online; echo 0 >/sys/devices/system/cpu/cpu7/online
scx_amp topology --big-cpus 0-3 --json /t; echo "topology $(tr -d '\n' </t)"
for policy in eevdf hsp acfs rr; do
    pid=
    if [ $policy != eevdf ]; then
        scx_amp run --policy $policy --provider /speeds.toml --big-cpus 0-3 2>/tmp/log & pid=$!
        wait_for enabled
    fi
    for threads in 4 6; do
        echo "$policy-$threads $(amp-workload bench spin --name sp --threads $threads --seconds 5 --json)"
    done
    [ -z "$pid" ] || { kill $pid; wait $pid; echo "status $?"; }
done
"#;

/// What each thread gains on fast cores.
const SPEEDS: &str = r#"
kind = "declared"
[[app]]
comm = "sp-0"
speedup = 3.0
[[app]]
comm = "sp-1"
speedup = 2.5
[[app]]
comm = "sp-2"
speedup = 1.5
[[app]]
comm = "sp-3"
speedup = 1.4
[[app]]
comm = "sp-4"
speedup = 2.2
[[app]]
comm = "sp-5"
speedup = 2.0
"#;

const CORES: u32 = 4;
const SECONDS: f64 = 5.0;

#[test]
fn a_core_gets_a_second_thread_only_when_every_core_has_one() {
    let r = Lab::x86_with(KernelChoice::Newest, 1, CORES, 2)
        .file("/speeds.toml", SPEEDS)
        .run(SCRIPT)
        .ok();
    println!("{}", r.line("topology"));
    assert_eq!(r.lines("status").collect::<Vec<_>>(), ["0"; 3]);
    for policy in ["eevdf", "hsp", "acfs", "rr"] {
        for threads in ["4", "6"] {
            let key = format!("{policy}-{threads}");
            let seen: serde_json::Value = serde_json::from_str(r.line(&key)).unwrap();
            let crowded = seen["crowded_core_beside_idle_core_ns"].as_f64().unwrap();
            let share = crowded / (SECONDS * 1e9);
            println!("{policy}, {threads} threads: for {share:.4} of the time two shared a core beside an idle one");
            // up to 0.003 in the runs that this was made with, from 0.13 where each CPU is a seat; with six, whose
            // figures say little about seats, it is only told
            if policy != "eevdf" && threads == "4" {
                assert!(share < 0.03, "{policy}, {threads} threads: {share}");
            }
        }
    }
}
