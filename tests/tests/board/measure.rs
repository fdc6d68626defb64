//! The C example of libs/measure, linked against the static library: on this machine, and on the board, where it counts.

use amp_board::{artifacts, Arch, Cache};
use amp_tests::Lab;
use std::process::{Command, Output};

fn region(arguments: &[&str]) -> Output {
    let cache = Cache::open().expect("the cache folder");
    let path = artifacts::guest_binary(&cache, Arch::host(), "measure-region");
    let path = path.expect("tools/setup/build.sh builds it");
    Command::new(path)
        .args(arguments)
        .output()
        .expect("it runs")
}

#[test]
fn c_counts_or_is_told_why_not() {
    const ROUNDS: u64 = 4_000_000;
    let out = region(&["instructions:u", &ROUNDS.to_string()]);
    let (said, why) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    if out.status.success() {
        let counts = said.lines().filter(|l| l.starts_with("count "));
        let sum: u64 = counts
            .map(|l| {
                l.split(' ')
                    .nth(3)
                    .expect("a count")
                    .parse::<u64>()
                    .expect("a number")
            })
            .sum();
        let known = 2 * ROUNDS;
        assert!(sum >= known && sum < known + known / 100, "{said}");
        return;
    }
    amp_skips::skip(&format!("this machine cannot count: {why}"));
    assert_eq!(out.status.code(), Some(1));
    // no PMU, or no leave to use it
    assert!(
        why.contains("no PMU") || why.contains("perf_event_paranoid"),
        "{why}"
    );
}

#[test]
fn bad_input_from_c_is_told() {
    let out = region(&[" , "]);
    let why = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1));
    assert!(why.contains("no event in it"), "{why}");
}

/// A loop of two instructions a round, started twice: what is counted is known, whether the kernel is asked or, once it permits
/// that, not; also of a program that is moved between core types meanwhile.
const REGIONS: &str = r#"
region() { as=$1; shift; "$@" >/tmp/$as; echo "$as-status $?"; sed "s/^/$as /" /tmp/$as; }
sleep 2
events=instructions:u,cycles:u
many=$events,br_retired:u,br_mis_pred:u,l1d_cache:u,l1d_cache_refill:u,l2d_cache:u,l2d_cache_refill:u,ld_retired:u,st_retired:u
region kept taskset -c 0 /measure-region $events 4000000 direct
sysctl -w kernel.perf_user_access=1 >/dev/null
for cpu in 0 1; do
    region asked-$cpu taskset -c $cpu /measure-region $events 4000000
    region direct-$cpu taskset -c $cpu /measure-region $events 4000000 direct
done
for cpu in 0 1; do region turns-$cpu taskset -c $cpu /measure-region $many 4000000 turns; done
/measure-region $many 4000000 2>/err; echo "too-many $?"; sed 's/^/too-many-says /' /err
region software taskset -c 0 /measure-region $events,task-clock:u 4000000 direct
/measure-region $events 100000000 direct >/tmp/moved & m=$!
while kill -0 $m 2>/dev/null; do for cpu in 0 1; do taskset -pc $cpu $m >/dev/null 2>&1; sleep 0.07; done; done
wait $m; echo "moved-status $?"; sed 's/^/moved /' /tmp/moved
/measure-region instructons 2>/err; echo "misspelt $?"; sed 's/^/says /' /err
"#;

#[test]
fn a_known_loop_has_its_count_with_and_without_the_kernel() {
    let r = Lab::pair().program("measure-region").run(REGIONS).ok();
    // of lines such as `count armv8_cortex_a57 instructions:u 8000798 0.025718`, on each PMU
    let figures = |run: &str, what: &str, event: &str, at: usize| -> Vec<f64> {
        let lines = r.lines(run).map(|l| l.split(' ').collect::<Vec<_>>());
        let lines = lines.filter(|w| w[0] == what && w.get(2) == Some(&event));
        lines.map(|w| w[at].parse().expect("a number")).collect()
    };
    let says = |run: &str, what: &str| -> f64 {
        let value = r.lines(run).find_map(|l| l.strip_prefix(what));
        value.expect(what).trim().parse().expect("a number")
    };
    for (run, direct, instructions) in [
        ("kept", 0.0, 8e6),
        ("asked-0", 0.0, 8e6),
        ("direct-0", 1.0, 8e6),
        ("asked-1", 0.0, 8e6),
        ("direct-1", 1.0, 8e6),
        ("software", 0.0, 8e6),
        ("moved", 1.0, 2e8),
    ] {
        assert_eq!(r.line(&format!("{run}-status")), "0");
        assert_eq!(says(run, "direct "), direct, "{run}");
        let of = |what: &str, event: &str| figures(run, what, event, 3).iter().sum::<f64>();
        let (counted, overhead) = (
            of("count", "instructions:u"),
            of("overhead", "instructions:u"),
        );
        println!(
            "{run}: {counted} instructions, {overhead} of them and {} cycles for a start and a stop, which take {:.2} us",
            of("overhead", "cycles:u"),
            says(run, "empty ") * 1e6
        );
        assert!(
            (counted / instructions - 1.0).abs() <= 5e-4,
            "{run}: {counted}"
        );
        assert!(overhead < 10_000.0, "{run}: {overhead}");
        assert!(of("count", "cycles:u") > 1e6, "{run}");
        assert!(
            figures(run, "count", "cycles:u", 4).iter().sum::<f64>() > 0.0,
            "{run}"
        );
        assert!(says(run, "energy ") > 0.0, "{run}");
    }
    let moved = figures("moved", "count", "instructions:u", 3);
    assert!(
        moved.len() == 2 && moved.iter().all(|n| *n > 1e6),
        "on both core types: {moved:?}"
    );
    for (cpu, pmu) in [(0, "armv8_cortex_a57"), (1, "armv8_cortex_a53")] {
        let run = format!("turns-{cpu}");
        assert_eq!(r.line(&format!("{run}-status")), "0");
        let row = |what: &str, event: &str| -> Vec<f64> {
            let lines = r.lines(&run).map(|l| l.split(' ').collect::<Vec<_>>());
            let mut lines = lines.filter(|w| w[0] == what && w[1] == pmu && w[2] == event);
            let row = lines.next().expect(event);
            row[3..]
                .iter()
                .map(|n| n.parse().expect("a number"))
                .collect()
        };
        // two hundred times of 20,000 rounds, each of two instructions, one of them a branch
        for (event, known) in [("instructions:u", 8e6), ("br_retired:u", 4e6)] {
            let (count, overhead) = (row("count", event), row("overhead", event)[0]);
            let [counted, _, u, coverage] = count[..] else {
                panic!("{count:?}");
            };
            let own = counted - 200.0 * overhead;
            println!(
                "{run}: {event} {counted} ± {u}, {own} of them the loop's, counted {coverage} of the time"
            );
            assert!((own / known - 1.0).abs() < 0.01, "{event}: {own}");
            assert!(u > 0.0 && u < 0.05 * counted, "{event}: {u}");
            assert!((0.4..0.6).contains(&coverage), "{event}: {coverage}");
        }
    }
    assert_eq!(r.line("too-many"), "1");
    let said = r.lines("too-many-says").collect::<Vec<_>>().join(" ");
    assert!(said.contains("refuses it as number"), "{said}");
    assert_eq!(r.line("misspelt"), "1");
    let said = r.lines("says").find(|l| l.contains("instructons"));
    assert!(
        said.is_some_and(|l| l.contains("`instructions`")),
        "{said:?}"
    );
}
