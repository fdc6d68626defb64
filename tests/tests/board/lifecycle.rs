//! Whatever ends the scheduler, the kernel is back with its own, and nothing is left behind: on the
//! board, and on a stock x86_64 machine with two kernels.

use amp_board::KernelChoice;
use amp_eval::evaluation::BenchReport;
use amp_tests::{Lab, Reply};

/// Starts the scheduler, ends it in every way there is, and reports the kernel's state before and
/// after. `$BIG` is empty where the kernel distinguishes core types.
const ENDS: &str = r#"
state() { cat /sys/kernel/sched_ext/state; }
programs() { ps | grep -c '[a]mp-workload run alu'; }
wait_for() { i=0; while [ "$(state)" != $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; state; }
sleep 2
for end in INT TERM KILL PANIC; do
    extra=; [ $end = PANIC ] && extra="--panic-after 30"
    scx_amp run --policy rr --provider none $BIG $extra 2>/tmp/log & pid=$!
    echo "up-$end $(wait_for enabled)"
    amp-workload bench spin --threads 4 --seconds 1 >/dev/null
    [ $end = PANIC ] || kill -$end $pid
    wait $pid; echo "status-$end $?"
    echo "down-$end $(wait_for disabled)"
done
# the first scheduler stays, the second is told
scx_amp run --policy rr --provider none $BIG 2>/dev/null & pid=$!
wait_for enabled >/dev/null
scx_amp run --policy hsp $BIG 2>/tmp/second; echo "second-status $?"
echo "second $(tr '\n' ' ' </tmp/second)"
answers
echo "socket $(stat -c %a /run/scx_amp)"
scx_amp ctl status >/tmp/status && echo "policy $(grep '"policy"' /tmp/status)"
kill $pid; wait $pid
# not root
cp "$(which scx_amp)" /tmp/; chmod 755 /tmp /tmp/scx_amp
echo 'nobody:x:65534:65534::/:/bin/sh' >>/etc/passwd; echo 'nogroup:x:65534:' >>/etc/group
start-stop-daemon -S -c nobody:nogroup -x /tmp/scx_amp -- run --policy rr --provider none $BIG 2>/tmp/nobody; echo "nobody-status $?"
echo "nobody $(tr '\n' ' ' </tmp/nobody)"
# a bench that is killed outright takes its programs with it, one that is interrupted says so
for end in KILL INT; do
    scx_amp bench /bench.toml --on host --policies rr --runs 2 --solo-runs 1 $BIG 2>/tmp/bench-err & pid=$!
    # both at one look: between two passes there may be no program for a moment, and a slow host takes its time
    i=0; n=0; up=
    while [ $i -lt 3000 ]; do
        n=$(programs); up=$(state); [ "$up" = enabled ] && [ "$n" -gt 0 ] && break
        i=$((i+1)); sleep 0.1
    done
    echo "programs-$end $n"; echo "bench-up-$end $up"
    kill -$end $pid; wait $pid; echo "bench-status-$end $?"
    echo "bench-down-$end $(wait_for disabled)"
    i=0; while [ "$(programs)" != 0 ] && [ $i -lt 50 ]; do i=$((i+1)); sleep 0.1; done
    echo "left-$end $(programs)"
done
echo "interrupted $(tr '\n' ' ' </tmp/bench-err)"
"#;

const BENCH: &str = r#"
name = "endless"
[[app]]
name = "a"
command = ["amp-workload", "run", "alu", "--work", "60M"]
[[app]]
name = "b"
command = ["amp-workload", "run", "alu", "--work", "60M"]
"#;

fn ends(lab: Lab, big: &str) -> Reply {
    let script = format!("BIG='{big}'\n{ENDS}");
    let r = lab.file("/bench.toml", BENCH).run(&script).ok();
    println!("kernel {}", r.0.kernel.release);
    for end in ["INT", "TERM", "KILL", "PANIC"] {
        assert_eq!(r.line(&format!("up-{end}")), "enabled");
        assert_eq!(r.line(&format!("down-{end}")), "disabled");
    }
    assert_eq!((r.line("status-INT"), r.line("status-TERM")), ("0", "0"));
    assert_eq!(r.line("status-KILL"), "137");
    assert_eq!(r.line("status-PANIC"), "101");
    assert_eq!(r.line("second-status"), "1");
    let second = r.line("second");
    assert!(
        second.contains("`amp") && second.contains("stop it first"),
        "{second}"
    );
    assert_eq!(r.line("socket"), "700");
    assert!(r.line("policy").contains("rr"));
    assert_eq!(r.line("nobody-status"), "1");
    assert!(r.line("nobody").contains("sudo"), "{}", r.line("nobody"));
    for end in ["KILL", "INT"] {
        assert!(r.line(&format!("programs-{end}")).parse::<u32>().unwrap() > 0);
        assert_eq!(r.line(&format!("bench-up-{end}")), "enabled");
        assert_eq!(r.line(&format!("bench-down-{end}")), "disabled");
        assert_eq!(r.line(&format!("left-{end}")), "0");
    }
    assert_eq!(r.line("bench-status-INT"), "1");
    assert!(r.line("interrupted").contains("interrupted"));
    r
}

#[test]
fn on_the_board() {
    ends(Lab::pair(), "");
}

#[test]
fn on_x86_64_with_the_newest_kernel() {
    ends(Lab::x86(KernelChoice::Newest), "--big-cpus 0-1");
}

#[test]
fn on_x86_64_with_kernel_7_0() {
    let r = ends(
        Lab::x86(KernelChoice::Version("7.0".into())),
        "--big-cpus 0-1",
    );
    assert!(r.0.kernel.release.starts_with("7.0."));
}

/// The mix that ships for such machines, as docs/guide/bench.md has it. All CPUs of the guest are
/// alike, and how fast they are is the host's business: no figure is expected, only that programs
/// are where they belong.
#[test]
fn a_bench_on_x86_64_ends_with_its_figures() {
    let mix = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tools/workloads/mixes/x86-smoke.toml"
    );
    let mix = std::fs::read_to_string(mix).unwrap();
    let r = Lab::x86(KernelChoice::Newest)
        .file("/mix.toml", &mix)
        .run("scx_amp bench /mix.toml --on host --big-cpus 0-1 --policies eevdf,hsp --runs 2 --solo-runs 2 --json /r >/dev/null 2>/e && echo \"report $(tr -d '\\n' </r)\" || { cat /e; false; }")
        .ok();
    let report: BenchReport = serde_json::from_str(r.line("report")).unwrap();
    assert_eq!(report.results.len(), 2);
    for p in &report.results {
        assert!(
            p.asp.value.is_finite() && p.asp.u.is_some(),
            "{}: {:?}",
            p.policy,
            p.asp
        );
        assert_eq!(p.apps.len(), 4);
    }
    let hsp = report.results.iter().find(|p| p.policy == "hsp").unwrap();
    let big = |name: &str| {
        hsp.apps
            .iter()
            .find(|a| a.name == name)
            .and_then(|a| a.big_time_share)
            .unwrap()
    };
    assert!(
        big("alu") > big("branchy"),
        "the higher speedup factor is on the big cores: {:?}",
        hsp.apps
    );
}

#[test]
fn a_list_of_big_cpus_is_checked_against_the_machine() {
    let r = Lab::x86(KernelChoice::Newest)
        .run("for l in 0-3 7 x; do scx_amp run --big-cpus $l 2>/tmp/e; echo \"status $?\"; echo \"said $(tr '\\n' ' ' </tmp/e)\"; done")
        .ok();
    assert_eq!(r.lines("status").collect::<Vec<_>>(), ["2", "2", "2"]);
    let said: Vec<&str> = r.lines("said").collect();
    assert!(said[0].contains("every online CPU"), "{said:?}");
    assert!(
        said[1].contains("CPU 7") && said[1].contains("0-3"),
        "{said:?}"
    );
    assert!(said[2].contains("`x`"), "{said:?}");
}
