//! Threads that wake up beside busy ones, and light threads beside heavy ones, under the mechanism
//! alone and under the kernel's own scheduler on the same boot.

use amp_tests::{Lab, Reply};

/// Each part runs first without a scheduler of ours (`eevdf`), then with (`amp`).
const AROUND: &str = r#"
sleep 5
eevdf=eevdf; amp=amp
part() {
PART
}
part eevdf
/place run 0-1:1024,2-5:446 secs=0 swap=0 heartbeat=5000 OPTIONS >/tmp/log 2>&1 & pid=$!
until grep -q ^VERIFIED /tmp/log; do kill -0 $pid || { cat /tmp/log; exit 1; }; sleep 0.1; done
sleep 0.5
part amp
kill -INT $pid; wait $pid
grep -q 'DETACHED, state=disabled' /tmp/log
grep ^STATS /tmp/log
echo "stalls $(dmesg | grep -c -i -e 'stall' -e 'sched_ext.*error')"
"#;

fn both(part: &str) -> Reply {
    both_with("", part)
}

/// The same with options for `place`.
fn both_with(options: &str, part: &str) -> Reply {
    let script = AROUND.replace("OPTIONS", options).replace("PART", part);
    let r = Lab::board("juno").program("place").run(&script).ok();
    assert_eq!(r.line("stalls"), "0");
    r
}

/// The figures that `what` of `scheduler` printed, in ms.
fn ms(r: &Reply, scheduler: &str, what: &str) -> Vec<f64> {
    let key = format!("{scheduler}-{what}");
    let all: Vec<f64> = r
        .lines(&key)
        .flat_map(|l| l.split([' ', ',', '[', ']']).filter_map(|n| n.parse().ok()))
        .map(|ns: f64| ns / 1e6)
        .collect();
    assert!(!all.is_empty(), "{key} in:\n{}", r.0.console);
    all
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

fn most(of: &[f64]) -> f64 {
    of.iter().copied().fold(0.0, f64::max)
}

/// Half a slice of the mechanism. Who waits for a slice to end waits longer in the mean.
const HALF_A_SLICE_MS: f64 = 2.5;

#[test]
fn a_pinned_thread_that_wakes_up_beside_busy_ones_does_not_wait_for_a_slice_to_end() {
    let r = both(
        r#"for n in 3 6 12; do
    amp-workload bench spin --threads $n --seconds 600 >/dev/null & s=$!
    sleep 0.3
    for c in 0 1 2 3; do amp-workload bench wake --pin $c --period-us 10000 --rounds 100 --json >/tmp/w$c & w[$c]=$!; done
    wait ${w[0]} ${w[1]} ${w[2]} ${w[3]}
    kill $s; wait $s
    for c in 0 1 2 3; do
        echo "$1-$n-p50 $(sed 's/.*"p50"://;s/,.*//' /tmp/w$c)"
        echo "$1-$n-p90 $(sed 's/.*"p90"://;s/,.*//' /tmp/w$c)"
    done
done"#,
    );
    for n in [3, 6, 12] {
        let of = |who: &str, p: &str| ms(&r, who, &format!("{n}-{p}"));
        println!(
            "{n} spinners, eevdf: p50 {:.2?} p90 {:.2?} ms",
            of("eevdf", "p50"),
            of("eevdf", "p90")
        );
        println!(
            "{n} spinners, amp: p50 {:.2?} p90 {:.2?} ms",
            of("amp", "p50"),
            of("amp", "p90")
        );
    }
    for n in [3, 6, 12] {
        let p50 = ms(&r, "amp", &format!("{n}-p50"));
        assert_eq!(p50.len(), 4);
        assert!(most(&p50) < HALF_A_SLICE_MS, "{n} spinners: {p50:?} ms");
        let p90 = ms(&r, "amp", &format!("{n}-p90"));
        assert!(mean(&p90) < HALF_A_SLICE_MS, "{n} spinners: {p90:?} ms");
    }
}

#[test]
fn nice_19_takes_no_more_from_a_thread_of_nice_0_than_under_eevdf() {
    let nineteen = ["19"; 18].join(" ");
    let r = both(&format!(
        r#"/place spin hog 18 30 {nineteen} >/dev/null & s=$!
    sleep 0.5
    amp-workload bench spin --threads 1 --seconds 3 --json >/tmp/zero
    for c in 1 4; do
        amp-workload bench wake --pin $c --period-us 10000 --rounds 100 --json >/tmp/w
        echo "$1-wake-p90 $(sed 's/.*"p90"://;s/,.*//' /tmp/w)"
    done
    kill $s; wait $s
    echo "$1-ran $(sed 's/.*"cpu_ms"://;s/,"idle.*//' /tmp/zero)""#
    ));
    let share = |who: &str| ms(&r, who, "ran").iter().sum::<f64>() * 1e6 / 3e3;
    let (theirs, ours) = (share("eevdf"), share("amp"));
    println!("eevdf {theirs:.3}, amp {ours:.3} of a CPU beside 18 hogs of nice 19");
    println!(
        "wake-ups, p90 in ms: eevdf {:.2?}, amp {:.2?}",
        ms(&r, "eevdf", "wake-p90"),
        ms(&r, "amp", "wake-p90")
    );
    assert!(ours >= theirs - 0.03, "{ours} of a CPU, eevdf {theirs}");
    assert!(most(&ms(&r, "amp", "wake-p90")) < HALF_A_SLICE_MS);
}

/// It did not before the kernel's search was kept from handing the writer's CPU over, either: the
/// reader's own CPU is idle, and is tried first.
#[test]
fn a_reader_does_not_wait_for_a_writer_that_goes_on_computing() {
    let r = both(
        r#"amp-workload bench message --json >/tmp/m; echo "$1-p90 $(sed 's/.*"p90"://;s/,.*//' /tmp/m)""#,
    );
    let (theirs, ours) = (ms(&r, "eevdf", "p90")[0], ms(&r, "amp", "p90")[0]);
    println!("p90 {ours:.2} ms, eevdf {theirs:.2}");
    assert!(ours < 1.0, "{ours} ms");
}

/// Three threads that belong on the two big CPUs: one of them runs on a little one all the time.
/// That is in nobody's way who wakes up elsewhere.
#[test]
fn a_thread_that_runs_foreign_keeps_no_wake_up_from_preempting() {
    let r = both_with(
        "pin=foreign:0,amp-spin:1",
        r#"amp-workload bench spin --threads 3 --name foreign --seconds 600 >/dev/null & f=$!
    amp-workload bench spin --threads 3 --seconds 600 >/dev/null & s=$!
    sleep 1
    for c in 0 1; do amp-workload bench wake --period-us 10000 --rounds 150 --json >/tmp/w$c & w[$c]=$!; done
    wait ${w[0]} ${w[1]}
    kill $f $s; wait $f $s
    for c in 0 1; do
        for p in p50 p90 p99; do echo "$1-$p $(sed "s/.*\"$p\"://;s/[,}].*//" /tmp/w$c)"; done
    done"#,
    );
    for who in ["eevdf", "amp"] {
        let of = |p: &str| ms(&r, who, p);
        println!(
            "{who}: p50 {:.2?} p90 {:.2?} p99 {:.2?} ms",
            of("p50"),
            of("p90"),
            of("p99")
        );
    }
    let p90 = ms(&r, "amp", "p90");
    assert_eq!(p90.len(), 2);
    assert!(most(&p90) < HALF_A_SLICE_MS, "{p90:?} ms");
}

/// CPU time of the one thread in `/tmp/one` over the seconds that it was busy for.
const SHARE: &str = r#"echo "$1-ran $(sed 's/.*"cpu_ms"://;s/,"idle.*//' /tmp/one)"
    echo "$1-gap $(sed 's/.*"longest_gap_ns"://;s/\].*//' /tmp/one)""#;

/// Shares of a CPU under eevdf and under our scheduler, of a thread that is busy for 4 s.
fn shares(r: &Reply, beside: &str) -> (f64, f64) {
    let share = |who: &str| ms(r, who, "ran").iter().sum::<f64>() * 1e6 / 4e3;
    let (theirs, ours) = (share("eevdf"), share("amp"));
    println!("eevdf {theirs:.3}, amp {ours:.3} of a CPU beside {beside}");
    println!(
        "longest time without: eevdf {:.0?}, amp {:.0?} ms",
        ms(r, "eevdf", "gap"),
        ms(r, "amp", "gap")
    );
    (theirs, ours)
}

/// The three have one weight, so that a third is fair. It takes no rescue: a spinner that gets its
/// CPU only after 500 ms of waiting may make up for it later, and its share would be none the less.
fn a_spinner_gets_its_turns_beside(what: &str) {
    let r = both(&format!(
        r#"amp-workload bench {what} >/dev/null & p=$!
    sleep 0.3
    amp-workload bench spin --pin 1 --seconds 4 --json >/tmp/one
    kill $p; wait $p
    {SHARE}"#
    ));
    let (_, ours) = shares(&r, what);
    let stats = r.line("STATS");
    assert!(stats.contains(" rescued: 0,"), "{stats}");
    assert!(ours >= 0.28, "{ours} of a CPU");
}

#[test]
fn a_spinner_gets_its_turns_beside_a_pipe_on_its_cpu() {
    a_spinner_gets_its_turns_beside("pipe --cpus 1,1 --rounds 10000k");
}

#[test]
fn a_spinner_gets_its_turns_beside_threads_that_yield_on_its_cpu() {
    a_spinner_gets_its_turns_beside("yield --cpu 1 --rounds 10000k");
}

/// A hundred threads of nice 19 are worth one of nice 0 here, and one and a half under eevdf.
#[test]
fn a_hundred_threads_of_nice_19_do_not_take_a_cpu_from_one_of_nice_0() {
    let nineteen = ["19"; 100].join(" ");
    let r = both(&format!(
        r#"taskset 0x2 /place spin hog 100 600 {nineteen} >/dev/null & s=$!
    sleep 2
    amp-workload bench spin --pin 1 --seconds 4 --json >/tmp/one
    kill $s; wait $s
    {SHARE}"#
    ));
    let (theirs, ours) = shares(&r, "100 hogs of nice 19");
    assert!(ours >= theirs - 0.05, "{ours} of a CPU, eevdf {theirs}");
}

/// Its turn comes when each of the others has had half a second, and it waits behind more of them
/// than a look at a queue reaches. The kernel ends a scheduler that lets a thread wait for 10 s; it
/// looks every 5 s.
#[test]
fn a_thread_of_nice_19_behind_many_of_nice_0_is_not_forgotten() {
    let r = both_with(
        "prefix=light",
        r#"[ $1 = amp ] || return
    taskset 0x2 /place spin many 130 600 >/dev/null & s=$!
    taskset 0x2 /place spin light 1 600 19 >/dev/null & l=$!
    sleep 18
    echo "state $(cat /sys/kernel/sched_ext/state)"
    kill $s $l; wait $s $l"#,
    );
    assert_eq!(r.line("state"), "enabled");
    let stats = r.line("STATS");
    println!("{stats}");
    assert!(!stats.contains(" rescued: 0,"), "{stats}");
}
