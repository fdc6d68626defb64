//! The mechanism under load on the board: swaps are prompt, a storm of short-lived threads harms nobody, no CPU is left
//! idle that somebody could use, a newcomer gets what is his, and nobody suffers while user space is silent.

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

/// CPUs of `juno` and what they are worth.
const BIG: [usize; 2] = [0, 1];
const CPUS: usize = 6;
const LITTLE_CAPACITY: f64 = 446.0 / 1024.0;

/// What `amp-workload bench spin` printed, told by the number of its threads: CPU time in milliseconds of each thread
/// on each CPU.
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

/// Speedup factors by thread name, for `hsp` to place `hot` and `boss` on big cores.
const DECLARED: &str = r#"
[[app]]
comm = "hot-0"
speedup = 3.0
[[app]]
comm = "boss-0"
speedup = 3.4
[[app]]
comm = "cold-0"
speedup = 1.1
[[app]]
comm = "cold-1"
speedup = 1.2
[[app]]
comm = "cold-2"
speedup = 1.3
[[app]]
comm = "cold-3"
speedup = 1.4
[[app]]
comm = "cold-4"
speedup = 1.15
[[app]]
comm = "cold-5"
speedup = 1.25
"#;

#[test]
fn no_big_core_idles_while_a_thread_waits() {
    // six threads for the four little cores, and two of big cores that stop and go on, over and over
    let load = r#"
amp-workload bench spin --threads 6 --seconds 5 --name cold --json >/tmp/cold & cold=$!
amp-workload bench spin --seconds 5 --name hot >/dev/null & hot=$!
amp-workload bench spin --seconds 5 --name boss >/dev/null & boss=$!
sleep 1
sed -n 's/^cpu[01] /before &/p' /proc/stat
i=0; while [ $i -lt 15 ]; do i=$((i+1)); kill -STOP $hot $boss; sleep 0.1; kill -CONT $hot $boss; sleep 0.1; done
sed -n 's/^cpu[01] /after &/p' /proc/stat
wait $cold $hot $boss
"#;
    let start = START.replace("--policy rr", "--policy hsp --provider /declared.toml");
    let r = Lab::board("juno")
        .file("/declared.toml", DECLARED)
        .run(&format!("{start}{load}{STOP}"))
        .ok();
    // user nice system idle iowait irq softirq …, in hundredths of a second
    let total = |key: &str| {
        r.lines(key)
            .map(|l| {
                let t: Vec<f64> = l
                    .split_whitespace()
                    .skip(1)
                    .map(|v| v.parse().unwrap())
                    .collect();
                (t[3] + t[4], t[..8].iter().sum::<f64>())
            })
            .fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    let (before, after) = (total("before"), total("after"));
    let idle = (after.0 - before.0) / (after.1 - before.1);
    println!("big cores: {:.2} % idle", 100.0 * idle);
    assert!(
        idle <= 0.02,
        "big cores were idle for {:.1} % of the time",
        100.0 * idle
    );
    assert_eq!((r.line("status"), r.line("state")), ("0", "disabled"));
}

#[test]
fn a_restarted_program_gets_its_big_core_back_at_once() {
    let load = r#"
amp-workload bench spin --seconds 8 --name hot >/dev/null & hot=$!
amp-workload bench spin --threads 4 --seconds 8 --name cold >/dev/null & cold=$!
sleep 1
i=0; while [ $i -lt 5 ]; do i=$((i+1)); amp-workload bench spin --seconds 1 --name boss --json; done
wait $hot $cold
"#;
    let start = START.replace("--policy rr", "--policy hsp --provider /declared.toml");
    let r = Lab::board("juno")
        .file("/declared.toml", DECLARED)
        .run(&format!("{start}{load}{STOP}"))
        .ok();
    let boss: Vec<f64> = spins(&r.json(), 1)
        .iter()
        .map(|t| big_share(&t[0]))
        .collect();
    println!("shares of big cores: {boss:.3?}");
    let mean = boss.iter().sum::<f64>() / boss.len() as f64;
    assert_eq!(boss.len(), 5);
    assert!(mean >= 0.98, "shares of big cores: {boss:.3?}");
    assert_eq!((r.line("status"), r.line("state")), ("0", "disabled"));
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
    // Time counts by capacity. Two threads that may use the same CPUs differ by what the rotation lets them (20 ms), the
    // slices they are in and a period of the timer (10 ms).
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
