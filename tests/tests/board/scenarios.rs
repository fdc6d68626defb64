//! What a day brings: affinities and cpusets that change while threads run, classes side by side, control groups that come and go,
//! many threads woken at a time, sleep of the whole machine. Nobody is left without a CPU meanwhile.

use amp_board::KernelChoice;
use amp_tests::spun::{self, spun};
use amp_tests::{Lab, Reply};
use serde_json::Value;

/// MASKS are affinities, SETS pairs of cpusets, ARGUMENTS those of scx_amp. Each part has a policy.
const SCRIPT: &str = r#"
sleep 3
i=0; while [ ! -e /sys/kernel/sched_ext/state ] && [ $i -lt 50 ]; do i=$((i+1)); sleep 0.1; done
cd /sys/fs/cgroup
echo "+cpu +cpuset" >cgroup.subtree_control
scx_amp run --policy hsp ARGUMENTS 2>/tmp/log & pid=$!
i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; answers
calm() { echo "calm-$1 $(cat /sys/kernel/sched_ext/state) $(dmesg | grep -c -i -e stall -e 'sched_ext.*disabled' -e 'runnable task')"; }
spin() { name=$1; shift; "$@" amp-workload bench spin --name $name $many --json >/tmp/spin-$name & all="$all $!"; names="$names $name"; }
told() { wait $all; for name in $names; do case $name in idle*) of=$part-idle ;; *) of=$part ;; esac; echo "$of $(tr -d '\n' </tmp/spin-$name)"; done; calm $part; all=; names=; }

part=affinity; many="--threads 8 --seconds 6"; spin A; a=$!
sleep 0.3
for mask in MASKS; do for t in /proc/$a/task/*; do [ -d $t ] && taskset -p $mask ${t##*/} >/dev/null; done; sleep 0.6; done
told

scx_amp ctl policy acfs
part=cpusets; many="--threads 4 --seconds 5"; mkdir x y
spin X sh -c 'echo $$ >/sys/fs/cgroup/x/cgroup.procs; exec "$@"' sh
spin Y sh -c 'echo $$ >/sys/fs/cgroup/y/cgroup.procs; exec "$@"' sh
sleep 0.3
for k in 1 2 3; do for sets in SETS; do echo ${sets%/*} >x/cpuset.cpus; echo ${sets#*/} >y/cpuset.cpus; sleep 0.5; done; done
told; rmdir x y

scx_amp ctl policy pareto
part=classes; many="--seconds 5"
for class in other batch idle; do for i in 1 2 3; do spin $class$i chrt --$class 0; done; done
chrt --fifo 10 amp-workload bench spin --pin 2 --seconds 2 >/dev/null & f=$!
chrt --rr 5 amp-workload bench spin --pin 0 --seconds 2 >/dev/null & g=$!
# all of them woken at a time, some hundred times a second
amp-workload run parallel --threads 12 --step 2k --inner alu --work 2M >/dev/null & h=$!
wait $f $g; told; kill $h 2>/dev/null; wait $h

scx_amp ctl policy rr
part=groups; many="--threads 4 --seconds 5"; spin S
n=0; end=$(($(date +%s) + 4))
while [ $(date +%s) -lt $end ]; do
    n=$((n+1)); mkdir g$n
    (echo $BASHPID >g$n/cgroup.procs; exec amp-workload bench spin --threads 2 --seconds 0.05) >/dev/null
    echo $((n * 37 % 1000 + 1)) >g$n/cpu.weight
    until rmdir g$n 2>/dev/null; do sleep 0.01; done
done
told; echo "groups-made $n"
echo "before $(scx_amp ctl status | tr -d '\n')"

SLEEP
echo "after $(scx_amp ctl status | tr -d '\n')"
echo "huge-pages $(grep THP_enabled /proc/$pid/status)"
kill -INT $pid; wait $pid; echo "status $?"
sed 's/^/log /' /tmp/log
"#;

/// The whole machine sleeps; the board's clock goes on meanwhile, so that what threads ran before counts for nothing.
const SLEEP: &str = r#"
scx_amp ctl policy hsp
for k in 1 2; do
    part=sleep$k
    amp-workload bench spin --threads 6 --seconds 600 >/dev/null & a=$!
    sleep 0.5
    rtcwake -m freeze -s 2 >/dev/null; echo "slept $?"
    many="--threads 6 --seconds 1.5"; spin W; told
    kill $a; wait $a
done
"#;

/// The part went well: the scheduler is there, and nobody waited for `gap` ms or more, nor ran less than `least` of the mean.
fn well(r: &Reply, part: &str, least: f64, gap: f64) {
    let all = spun(r, part);
    let well = spun::least(&all) >= least * spun::mean(&all) && spun::longest_gap(&all) < gap;
    assert!(well, "{part}: {all:.0?}");
    assert_eq!(r.line(&format!("calm-{part}")), "enabled 0", "{part}");
}

/// Threads of class idle run, and never wait for as long as the kernel calls a stall.
fn not_forgotten(r: &Reply) {
    let all = spun(r, "classes-idle");
    println!("class idle: {all:.0?}, in ms");
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|t| t.ran > 0.0 && t.gap < 10_000.0));
}

#[test]
fn on_the_board_everybody_has_his_share_whatever_changes() {
    let script = SCRIPT
        .replace("ARGUMENTS", "--provider auto")
        .replace("MASKS", "1 3f 3c 30 3 21 3f")
        .replace("SETS", "0-2/3-5 3-5/0-2 0/1")
        .replace("SLEEP", SLEEP);
    let r = Lab::board("juno").package("util-linux").run(&script).ok();
    // threads of equal weight
    for part in ["affinity", "cpusets", "groups", "sleep1", "sleep2"] {
        well(&r, part, 0.85, 2000.0);
    }
    // two CPUs are taken away for two seconds; who is of class idle weighs 3 of 100
    well(&r, "classes", 0.5, 2000.0);
    not_forgotten(&r);
    assert!(r.line("groups-made").parse::<u32>().unwrap() > 10);
    assert_eq!(r.lines("slept").collect::<Vec<_>>(), ["0"; 2]);
    // whoever the kernel makes huge pages for waits, and so did decisions: for 0.5 to 0.7 s
    assert_eq!(r.line("huge-pages"), "THP_enabled:\t0");
    // on the board a sleep is a silence, each of which BPF bridges; there is no other
    for (when, silences) in [("before", 0), ("after", 2)] {
        let status: Value = serde_json::from_str(r.line(when)).unwrap();
        assert_eq!(
            (&status["fallbacks"], &status["untracked"]),
            (&silences.into(), &0.into()),
            "{when}"
        );
    }
    assert_eq!(r.lines("status").collect::<Vec<_>>(), ["0"]);
}

/// Two sockets of two cores of two threads, of which one is said to be fast. This guest's clock is the host's, which takes its CPUs
/// away at times: only what nobody else can be blamed for is asserted.
#[test]
fn on_two_sockets_of_two_threaded_cores_nobody_is_left_behind() {
    let script = SCRIPT
        .replace("ARGUMENTS", "--provider none --big-cpus 0-3")
        .replace("MASKS", "1 ff f0 c0 3 81 ff")
        .replace("SETS", "0-3/4-7 4-7/0-3 0/1")
        .replace("SLEEP", "");
    let r = Lab::x86_with(KernelChoice::Newest, 2, 2, 2)
        .package("util-linux")
        .run(&script)
        .ok();
    for part in ["affinity", "cpusets", "classes", "groups"] {
        well(&r, part, 0.0, 10_000.0);
    }
    not_forgotten(&r);
    assert!(r.line("groups-made").parse::<u32>().unwrap() > 0);
    assert_eq!(r.lines("status").collect::<Vec<_>>(), ["0"]);
}
