//! Who waits although a CPU could have him: behind threads that may not run there, where a higher class has every CPU of his core
//! type, as user space falls silent, and behind more threads than a CPU can run in time.

use amp_tests::spun::{longest_gap, spun};
use amp_tests::{Lab, Reply};
use serde_json::Value;

const BEGIN: &str = r#"
sleep 4
place() { /place run $CPUS secs=0 swap=0 "$@" >/tmp/log 2>&1 & pid=$!; until grep -q ^VERIFIED /tmp/log; do kill -0 $pid || { cat /tmp/log; exit 1; }; sleep 0.1; done; sleep 0.5; }
ends() { kill -INT $pid; wait $pid; grep -q 'DETACHED, state=disabled' /tmp/log || { tail /tmp/log; exit 1; }; }
spin() { name=$1; shift; "$@" --name $name --json >/tmp/$name & all="$all $!"; }
told() { wait $all; all=; for n in "$@"; do echo "$n $(tr -d '\n' </tmp/$n)"; done; }
"#;

const CASES: &str = r#"
CPUS=0-1:1024,2-5:446
place pin=owner:0,others:1,many:1,few:1 heartbeat=60000
# a hundred and twenty at the front of the queue may use CPUs 2 and 3 only; their program makes one when it has its turn among them
spin many taskset 0x0c amp-workload bench spin --threads 120 --seconds 30
many=${all##* }; i=0; until [ $(ls /proc/$many/task | wc -l) -gt 120 ] || [ $i -ge 150 ]; do i=$((i+1)); sleep 0.1; done
echo "many $(ls /proc/$many/task | wc -l)"
spin few taskset 0x30 amp-workload bench spin --threads 4 --seconds 3
wait $!; kill $many; told few
# a real-time thread on either big core
spin others amp-workload bench spin --threads 4 --seconds 4
spin owner amp-workload bench spin --seconds 4
sleep 0.5
spin hog chrt -f 50 taskset 0x3 amp-workload bench spin --threads 2 --seconds 3
told others owner hog
ends
# twelve on four cores while nobody decides any more
place pin=many:1 silent=3-60
spin silent taskset 0x3c amp-workload bench spin --threads 12 --seconds 6
told silent
ends
grep -o 'fallbacks: [0-9]*' /tmp/log
echo "stalls $(dmesg | grep -c -i -e 'stall' -e 'sched_ext.*error')"
"#;

/// What is told of the spin called `name`.
fn told(r: &Reply, name: &str) -> Value {
    serde_json::from_str(r.line(name)).unwrap()
}

#[test]
fn nobody_waits_for_a_cpu_that_could_have_him() {
    let r = Lab::board("juno")
        .package("util-linux")
        .program("place")
        .run(&format!("{BEGIN}{CASES}"))
        .ok();
    assert_eq!(r.line("stalls"), "0");
    // two on each CPU, by turns; the kernel's look at all others takes its time: 57 to 200 ms for twelve threads behind up to 200, 432 to 1173 ms
    // where who is behind those was not seen
    let few = spun(&r, "few");
    assert!(longest_gap(&few) < 400.0, "{few:.0?}");
    assert_eq!(r.line("many"), "121");
    // five on four CPUs for three seconds of four: 3.4 s each, and of the owner's at least a half of the three seconds on little cores
    assert!(spun(&r, "hog").iter().all(|t| t.ran > 2500.0));
    let others = spun(&r, "others");
    assert!(
        others.iter().all(|t| t.ran > 2500.0 && t.gap < 250.0),
        "{others:.0?}"
    );
    let owner = spun(&r, "owner");
    let on = told(&r, "owner")["cpu_ms"][0].as_array().unwrap().clone();
    let little: f64 = on.iter().skip(2).filter_map(Value::as_f64).sum();
    assert!(
        owner[0].ran > 2500.0 && little > 1500.0 && owner[0].gap < 250.0,
        "{owner:.0?}, {little:.0}"
    );
    // three on each CPU
    let silent = spun(&r, "silent");
    assert!(longest_gap(&silent) < 100.0, "{silent:.0?}");
    assert_eq!(r.line("fallbacks:"), "1");
}

/// With four hundred the longest gaps of all were 5.4 and 5.7 s before turns were shorter in long queues, 10.3 s with bounds of how far threads may be
/// ahead that shrank while they waited.
#[test]
fn hundreds_on_one_cpu_have_their_turns() {
    let case = r#"
CPUS=0:1024,1:446
place pin=crowd:1 heartbeat=600000
spin crowd amp-workload bench spin --threads 400 --seconds 26
sleep 3; taskset -ap 2 $all | tail -n 1
told crowd
echo "attached $(cat /sys/kernel/sched_ext/state)"
ends
echo "stalls $(dmesg | grep -c -i -e 'stall' -e 'sched_ext.*error')"
"#;
    let r = Lab::pair()
        .package("util-linux")
        .program("place")
        .run(&format!("{BEGIN}{case}"))
        .ok();
    assert_eq!((r.line("attached"), r.line("stalls")), ("enabled", "0"));
    let all = spun(&r, "crowd");
    assert!(all.len() == 400 && longest_gap(&all) < 8_000.0);
}

/// Before turns were shorter, the kernel ended the scheduler after some 13 s: a round took longer than the ten seconds that it lets anybody wait. Some
/// threads do not run for longer than the others let them wait: in the kernel, for a lock that another has.
#[test]
fn nine_hundred_on_one_cpu_are_no_stall() {
    let case = r#"
CPUS=0-1:1024,2-5:446
place pin=crowd:1 heartbeat=600000
spin crowd amp-workload bench spin --threads 900 --seconds 40
i=0; until [ $(ls /proc/${all# }/task | wc -l) -gt 900 ] || [ $i -ge 100 ]; do i=$((i+1)); sleep 0.1; done
echo "there $(ls /proc/${all# }/task | wc -l)"
taskset -ap 2 $all | tail -n 1
told crowd
echo "attached $(cat /sys/kernel/sched_ext/state)"
ends
echo "stalls $(dmesg | grep -c -i -e 'stall' -e 'sched_ext.*error')"
"#;
    let r = Lab::board("juno")
        .package("util-linux")
        .program("place")
        .run(&format!("{BEGIN}{case}"))
        .ok();
    assert_eq!((r.line("attached"), r.line("stalls")), ("enabled", "0"));
    let mut gaps: Vec<f64> = spun(&r, "crowd").iter().map(|t| t.gap).collect();
    gaps.sort_by(f64::total_cmp);
    let [half, most, all] = [gaps[450], gaps[810], gaps[899]];
    println!(
        "longest gaps: half below {half:.0} ms, nine tenths below {most:.0}, all below {all:.0}"
    );
    // they did wait for each other
    assert!((1_000.0..10_000.0).contains(&half));
}
