//! Threads that may use some CPUs of a core type only.

use amp_tests::{Lab, Reply};

const PLACE: &str = r#"
sleep 5
/place run 0-1:1024,2-5:446 secs=0 swap=0 pin=big:0,little:1 heartbeat=5000 >/tmp/log 2>&1 & pid=$!
until grep -q ^VERIFIED /tmp/log; do kill -0 $pid || { cat /tmp/log; exit 1; }; sleep 0.1; done
sleep 0.5
PART
kill -INT $pid; wait $pid
grep -q 'DETACHED, state=disabled' /tmp/log
echo "stalls $(dmesg | grep -c -i -e 'stall' -e 'sched_ext.*error')"
"#;

fn placed(part: &str) -> Reply {
    let r = Lab::board("juno")
        .program("place")
        .run(&PLACE.replace("PART", part))
        .ok();
    assert_eq!(r.line("stalls"), "0");
    r
}

/// CPU 1 is idle all the time, but neither of them may use it.
#[test]
fn threads_stay_where_they_may_run_whatever_is_idle_and_wherever_they_are_placed() {
    let r = placed(
        r#"amp-workload bench spin --pin 0 --name A --seconds 4 --json >/tmp/a & a=$!
taskset 0xd amp-workload bench spin --name B --seconds 4 --json >/tmp/b & b=$!
sleep 0.5
before=$(awk '/nr_migrations/ {n += $3} END {print n}' /proc/$b/task/*/sched)
sleep 3
after=$(awk '/nr_migrations/ {n += $3} END {print n}' /proc/$b/task/*/sched)
echo "migrations $((after - before))"
wait $a $b; cat /tmp/a /tmp/b
# placed on big cores, which they may not use
switches() { awk '/^ctxt/ {print $2}' /proc/stat; }
taskset 0xc amp-workload bench spin --threads 3 --name big --seconds 3 >/dev/null & p=$!
sleep 0.5
before=$(switches); sleep 2; echo "switches $(($(switches) - before))"
wait $p"#,
    );
    // a slice is 5 ms: 800 on two CPUs in 2 s, and what the rest of the machine does
    let switches: u32 = r.line("switches").parse().unwrap();
    println!("{switches} switches in 2 s of three threads on two CPUs");
    assert!(switches < 3000, "{switches}");
    let migrations: u32 = r.line("migrations").parse().unwrap();
    let json = r.json();
    let ran = |j: &serde_json::Value| -> f64 {
        let on = j["cpu_ms"][0].as_array().unwrap();
        on.iter().map(|ms| ms.as_f64().unwrap()).sum::<f64>() / 4e3
    };
    assert_eq!(json.len(), 2);
    let (a, b) = (ran(&json[0]), ran(&json[1]));
    println!("A {a:.3}, B {b:.3} of a CPU, {migrations} migrations of B in 3 s");
    assert!(a + b >= 1.96, "{a} and {b}");
    assert!(migrations < 15, "{migrations} migrations in 3 s");
}

/// Three threads are kept on CPU 0, and five are placed on four little cores: the other big one helps out. Who waits for a big core can
/// not have that one, so there is no reason to take it from the thread that it runs.
#[test]
fn a_thread_on_a_borrowed_core_is_not_in_the_way_of_those_who_may_not_use_it() {
    let r = placed(
        r#"switches() { awk '/^ctxt/ {print $2}' /proc/stat; }
taskset 0x1 amp-workload bench spin --threads 3 --name kept --seconds 4 >/dev/null & p=$!
amp-workload bench spin --threads 5 --name little --seconds 4 --json >/tmp/l & q=$!
sleep 1
before=$(switches); sleep 2; echo "switches $(($(switches) - before))"
wait $p $q; cat /tmp/l"#,
    );
    let json = r.json();
    let on_big: f64 = json[0]["cpu_ms"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t[1].as_f64().unwrap())
        .sum();
    let switches: u32 = r.line("switches").parse().unwrap();
    println!("{switches} switches in 2 s; the five ran on CPU 1 for {on_big:.0} ms of 4000");
    // a slice is 5 ms: 2400 on six CPUs, and what the rest of the machine does
    assert!(switches < 3000, "{switches}");
    assert!(on_big > 3000.0, "{on_big} ms");
}
