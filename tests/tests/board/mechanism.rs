//! The mechanism under load on the board: swaps are prompt, a storm of short-lived threads harms
//! nobody, and nobody suffers while user space is silent.

use amp_tests::Lab;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const START: &str = r#"
wait_for() { i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; }
sleep 5
scx_amp run --policy rr --provider none 2>/tmp/log & pid=$!
wait_for enabled
"#;

const STOP: &str = r#"
scx_amp ctl status | tr -d '\n'; echo
kill $pid; wait $pid; echo "status $?"
echo "state $(cat /sys/kernel/sched_ext/state)"
"#;

/// CPUs of `juno` and what they are worth.
const BIG: [usize; 2] = [0, 1];
const CPUS: usize = 6;
const LITTLE_CAPACITY: f64 = 446.0 / 1024.0;

/// What `amp-workload bench spin` printed, told by the number of its threads: CPU time in
/// milliseconds of each thread on each CPU.
fn spins(json: &[Value], threads: usize) -> Vec<Vec<[f64; CPUS]>> {
    let of_thread = |t: &Value| {
        let mut on = [0.0; CPUS];
        for (ms, v) in on.iter_mut().zip(t.as_array().unwrap()) {
            *ms = v.as_f64().unwrap();
        }
        on
    };
    json.iter()
        .filter(|j| j["bench"] == "spin")
        .map(|j| j["cpu_ms"].as_array().unwrap())
        .filter(|t| t.len() == threads)
        .map(|t| t.iter().map(of_thread).collect())
        .collect()
}

fn big_share(on: &[f64; CPUS]) -> f64 {
    BIG.iter().map(|c| on[*c]).sum::<f64>() / on.iter().sum::<f64>()
}

fn status(json: &[Value]) -> &Value {
    json.iter()
        .find(|j| j.get("swap_latency_p50_us").is_some())
        .expect("a status")
}

/// Longest time for which a core may wait idle before it takes what others by turns wait for, in
/// ms.
const HELP_MS: f64 = 20.0;

#[test]
fn a_little_core_helps_out_where_three_threads_share_two_big_ones() {
    let r = Lab::board("quickia")
        .program("place")
        .run(
            "sleep 5\n/place run 0-1:1024,2-3:446 secs=0 swap=0 pin=amp-spin:0 >/tmp/log & pid=$!
             until grep -q ^VERIFIED /tmp/log; do sleep 0.1; done; sleep 0.5
             for i in 1 2 3; do amp-workload bench spin --threads 3 --seconds 1 --json; done
             kill -INT $pid; wait $pid; grep -q 'DETACHED, state=disabled' /tmp/log",
        )
        .ok();
    let per_cpu = |j: &Value, key: &str| -> Vec<f64> {
        let of: Vec<_> = j[key].as_object().unwrap().values().collect();
        of.iter().map(|v| v.as_f64().unwrap() / 1e6).collect()
    };
    let json = r.json();
    assert_eq!(json.len(), 3);
    for j in &json {
        let idle = per_cpu(j, "longest_idle_while_waiting_ns");
        let ran: f64 = per_cpu(j, "ran_ns").iter().sum();
        println!("idle while one waits at most {idle:.1?} ms; {ran:.0} of 3000 ms used");
        assert!(idle.iter().all(|ms| *ms <= HELP_MS), "{j}");
        assert!(ran >= 2500.0, "{j}");
    }
}

#[test]
fn a_fast_core_that_nobody_uses_is_lent_and_given_back_at_once() {
    let script = |options: &str| {
        format!(
            "/place run 0-1:1024,2-5:446 secs=0 swap=0 pin=amp-spin:1,owner:0 {options} >/tmp/log & pid=$!
             until grep -q ^VERIFIED /tmp/log; do sleep 0.1; done; sleep 0.5
             amp-workload bench spin --threads 2 --seconds 3 --json >/tmp/slow & slow=$!
             sleep 1
             amp-workload bench spin --threads 2 --name owner --seconds 1 --json >/tmp/fast
             wait $slow; tr -d '\\n' </tmp/fast; echo; tr -d '\\n' </tmp/slow; echo
             kill -INT $pid; wait $pid; grep -q 'DETACHED, state=disabled' /tmp/log\n"
        )
    };
    let r = Lab::board("juno")
        .program("place")
        .run(&format!("sleep 5\n{}{}", script(""), script("lend=1")))
        .ok();
    let all = spins(&r.json(), 2);
    assert_eq!(all.len(), 4);
    let [kept_fast, kept, lent_fast, lent] = &all[..] else {
        panic!("{all:?}")
    };
    for (what, threads, range) in [
        ("not lent, those placed on big", kept_fast, 0.95..=1.0),
        ("not lent, those placed on little", kept, 0.0..=0.05),
        ("lent, those placed on big", lent_fast, 0.95..=1.0),
        // two of three seconds, less a slice and the time until the placement is known
        ("lent, those placed on little", lent, 0.4..=0.75),
    ] {
        let shares: Vec<f64> = threads.iter().map(big_share).collect();
        println!("{what}: {shares:.3?} of their time on big cores");
        assert!(
            shares.iter().all(|s| range.contains(s)),
            "{what}: {shares:?}"
        );
    }
    // given back at once: nobody waits for a core of his own
    for on in lent_fast.iter() {
        let ran: f64 = on.iter().sum();
        assert!(ran >= 950.0, "{ran} ms of a second");
    }
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
fn ten_thousand_threads_come_and_go_beside_five_busy_cpus() {
    let churn = r#"
amp-workload bench spin --threads 5 --seconds 600 >/dev/null & spin=$!
amp-workload bench churn --threads 10000 --json
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
    assert_eq!(churn["threads"].as_u64(), Some(10_000));
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

/// A commit may come between the timer's look at the clock and its look at the last commit, which then
/// is later than now.
#[test]
fn a_commit_at_the_moment_of_the_timer_is_no_silence() {
    let r = Lab::board("juno")
        .program("place")
        .run("/place run 0-1:1024,2-5:446 secs=20 swap=0 pause=0 heartbeat=500\n")
        .ok();
    let commits: u32 = r
        .line("ROUNDS")
        .split(',')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("how many commits");
    println!("{commits} commits");
    assert!(commits >= 20_000, "one every ms: {commits}");
    let stats = r.line("STATS");
    assert!(stats.contains("fallbacks: 0,"), "{stats}");
}

#[test]
fn while_user_space_is_stopped_everybody_gets_a_fair_share() {
    let load = r#"
kill -STOP $pid
sleep 1
amp-workload bench spin --threads 8 --seconds 4 --json
echo "stopped $(cat /sys/kernel/sched_ext/state)"
kill -CONT $pid
sleep 1
amp-workload bench spin --threads 6 --seconds 2 --json
echo "errors $(dmesg | grep -c -e 'sched_ext.*disabled' -e 'stall')"
"#;
    let r = Lab::board("juno").run(&format!("{START}{load}{STOP}")).ok();
    let json = r.json();
    let s = status(&json);
    assert_eq!((r.line("stopped"), r.line("errors")), ("enabled", "0"));
    assert_eq!(
        s["fallbacks"].as_u64(),
        Some(1),
        "one spell of silence: {s}"
    );
    // the scheduler went on where it was: it ticks and swaps again
    let of = |key: &str| s[key].as_u64().unwrap();
    assert!(of("ticks") >= 20 && of("swaps") >= 3, "{s}");
    // Time counts by capacity. Two threads that may use the same CPUs differ by what the rotation
    // lets them (20 ms), the slices they are in and a period of the timer (10 ms).
    let threads = &spins(&json, 8)[0];
    let scaled: Vec<f64> = threads
        .iter()
        .map(|on| {
            let big: f64 = BIG.iter().map(|c| on[*c]).sum();
            big + (on.iter().sum::<f64>() - big) * LITTLE_CAPACITY
        })
        .collect();
    let mean = scaled.iter().sum::<f64>() / 8.0;
    for (on, scaled) in threads.iter().zip(&scaled) {
        println!(
            "{scaled:.0} ms of big core's worth, {:.3} of the time on big cores",
            big_share(on)
        );
        assert!(
            (0.02..=0.98).contains(&big_share(on)),
            "both core types: {on:?}"
        );
        assert!(
            (scaled - mean).abs() <= 50.0,
            "{scaled} ms against a mean of {mean}"
        );
    }
    // and no CPU was idle meanwhile
    assert!(
        mean * 8.0 >= 0.97 * 4000.0 * (2.0 + 4.0 * LITTLE_CAPACITY),
        "{mean}"
    );
    assert_eq!((r.line("status"), r.line("state")), ("0", "disabled"));
}

/// The kernel's account of them is in hundredths of a second, and has what a process did before it
/// was given its name.
#[test]
fn all_that_short_processes_ran_is_told_when_they_end() {
    let r = Lab::board("juno")
        .program("place")
        .run(
            "sleep 5
             /place run 0-1:1024,2-5:446 secs=0 swap=0 ended=brief heartbeat=5000 >/tmp/log 2>&1 & pid=$!
             until grep -q ^VERIFIED /tmp/log; do kill -0 $pid || { cat /tmp/log; exit 1; }; sleep 0.1; done
             sleep 0.5
             /place short brief 100 2
             sleep 0.5
             kill -INT $pid; wait $pid
             cat /tmp/log",
        )
        .ok();
    let figures = |key: &str| -> (f64, f64) {
        let line = r.line(key);
        let (n, ms) = line.split_once(' ').expect("a number and a time");
        (n.parse().unwrap(), ms.parse().unwrap())
    };
    let ((processes, ran), (told, told_ms)) = (figures("SHORT"), figures("ENDED"));
    println!("{told} of {processes} processes told, {told_ms:.1} of {ran} ms");
    assert_eq!((processes, told), (100.0, 100.0));
    assert!((told_ms - ran).abs() <= 0.05 * ran, "{told_ms} of {ran} ms");
}

/// Busy processes of one name: two of each kind, of which the first begins before the scheduler does. The
/// threads of `place spin` have the arguments of their process.
#[test]
fn programs_of_one_name_are_told_apart_by_their_arguments() {
    let r = Lab::pair()
        .program("place")
        .run(
            "long=$(printf '%04000d' 0)
             begin() { /place busy $2 60000 & pids=\"$pids $!\"; echo \"began $! $1\"; }
             begin a same; begin b samer; begin c same$long; begin d same${long}x
             sleep 1
             /place run 0:1024,1:446 secs=4 swap=0 programs=same >/tmp/log & place=$!
             until grep -q ^VERIFIED /tmp/log; do kill -0 $place || { cat /tmp/log; exit 1; }; sleep 0.1; done
             begin a same; begin b samer; begin c same$long; begin d same${long}x
             /place spin same-too 2 60 & pids=\"$pids $!\"
             wait $place
             cat /tmp/log
             kill $pids",
        )
        .ok();
    let of: BTreeMap<&str, &str> = r
        .lines("PROGRAM")
        .filter_map(|l| l.split_once(' '))
        .collect();
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (pid, kind) in r.lines("began").filter_map(|l| l.split_once(' ')) {
        kinds.entry(kind).or_default().push(of[pid]);
    }
    println!("{kinds:?}");
    let hashes: BTreeSet<&str> = kinds.values().flatten().copied().collect();
    assert_eq!((kinds.len(), hashes.len()), (4, 4));
    assert!(
        kinds.values().all(|k| k.iter().all(|h| *h == k[0])),
        "{kinds:?}"
    );
    assert!(!hashes.contains("0000000000000000"), "{kinds:?}");
    // 8 processes, and the two threads of another one, which has the main one's
    let others: BTreeSet<&str> = of
        .values()
        .copied()
        .filter(|h| !hashes.contains(h))
        .collect();
    assert_eq!((of.len(), others.len()), (8 + 2, 1), "{of:?}");
}

#[test]
fn a_program_that_is_run_again_begins_where_its_last_run_was_placed() {
    // Five of a name share the two big CPUs, so that nobody without a place would choose them. From
    // the second second on user space says nothing; one of the five is run again and again.
    let r = Lab::board("juno")
        .program("place")
        .run(
            "sleep 5
             /place run 0-1:1024,2-5:446 secs=8 swap=0 pin=amp-chase:0 silent=2-8 heartbeat=60000 >/tmp/log & place=$!
             until grep -q ^VERIFIED /tmp/log; do kill -0 $place || { cat /tmp/log; exit 1; }; sleep 0.1; done
             for i in 1 2 3 4; do
                 amp-workload run chase --size 16K --work 1000G >/dev/null & pids=\"$pids $!\"
                 amp-workload run alu --work 1000G >/dev/null & pids=\"$pids $!\"
             done
             amp-workload run chase --size 16K --work 1000G >/dev/null & p=$!
             sleep 3
             for i in 1 2 3 4 5; do
                 kill -KILL $p; wait $p
                 amp-workload run chase --size 16K --work 1000G >/dev/null & p=$!
                 on=
                 for look in 1 2 3 4 5 6; do
                     sleep 0.05
                     on=\"$on $(cut -d' ' -f39 /proc/$p/stat)\"
                 done
                 echo \"began $(cat /proc/$p/comm)$on\"
             done
             wait $place
             cat /tmp/log
             kill $p $pids",
        )
        .ok();
    let began: Vec<&str> = r.lines("began").collect();
    assert_eq!(began.len(), 5);
    for b in &began {
        let mut words = b.split(' ');
        assert_eq!(words.next(), Some("amp-chase"));
        let big = words.filter(|cpu| BIG.contains(&cpu.parse().unwrap()));
        // a little CPU that has nothing to do for a moment helps out, for a slice
        assert!(big.count() >= 5, "{began:?}");
    }
    let stats = r.line("STATS");
    assert!(stats.contains("seats: 5,"), "{stats}");
}
