//! Hundreds of busy threads: those who decide are scheduled like everybody else, and are to be on time all the same.

use amp_tests::Lab;

/// Times are of the board. A decision for three hundred threads takes some 6 ms there, more than a slice, and each of six CPUs has
/// fifty threads to run for 5 ms each.
const SCRIPT: &str = r#"
scx_amp run --policy hsp --provider none 2>/tmp/log & pid=$!
answers
for i in 1 2 3 4 5 6; do amp-workload bench spin --threads 50 --seconds 16 >/dev/null & all="$all $!"; done
sleep 2
# nothing is forked in between: whatever is new waits for a turn of all others
main() { read up rest </proc/uptime; read -r ran waited turns </proc/$pid/schedstat; echo "main $up $ran $waited"; }
main; sleep 8; main
scx_amp ctl status >/tmp/status
wait $all
echo "then $(tr -d '\n' </tmp/status)"
kill -INT $pid; wait $pid; echo "status $?"
sed 's/^/log /' /tmp/log
"#;

#[test]
fn decisions_are_made_in_time_among_three_hundred_busy_threads() {
    let r = Lab::board("juno").run(SCRIPT).ok();
    let then: serde_json::Value = serde_json::from_str(r.line("then")).expect("JSON of ctl status");
    let of = |key: &str| {
        then[key]
            .as_f64()
            .unwrap_or_else(|| panic!("{key}: {then}"))
    };
    // when, how long the thread that decides had run, and how long it had waited for a CPU
    let main: Vec<Vec<f64>> = r
        .lines("main")
        .map(|l| l.split(' ').map(|n| n.parse().expect("a number")).collect())
        .collect();
    let [first, second] = &main[..] else {
        panic!("{main:?}");
    };
    let time = second[0] - first[0];
    let (ran, waited) = (
        (second[1] - first[1]) / 1e9 / time,
        (second[2] - first[2]) / 1e9 / time,
    );
    let per_second = of("ticks") / of("uptime_s");
    println!(
        "{} busy threads: {per_second:.2} decisions per second, {} times none for long; in {time:.2} s at work for {:.1} % \
         of the time and waiting for a CPU for {:.1} %",
        of("active"),
        of("fallbacks"),
        ran * 100.0,
        waited * 100.0,
    );
    assert!(of("active") >= 300.0);
    assert_eq!(of("fallbacks"), 0.0);
    assert!(per_second > 5.0, "{per_second} decisions per second");
    assert!(ran < 0.3, "{ran} of a CPU");
    assert_eq!(r.line("status"), "0");
}
