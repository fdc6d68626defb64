//! Other sched_ext schedulers in a bench: our own command under another name, and made-up ones that
//! fail in every way. A real one takes part where it was built.

use amp_board::{peers, Cache, KernelChoice};
use amp_eval::evaluation::BenchReport;
use amp_tests::Lab;

/// Programs that last as long on any core: only who schedules matters here.
const MIX: &str = r#"
name = "four seconds"
[[app]]
name = "one"
command = ["amp-workload", "bench", "spin", "--threads", "1", "--seconds", "4"]
[[app]]
name = "another"
command = ["amp-workload", "bench", "spin", "--threads", "1", "--seconds", "4"]
"#;

/// A scheduler for a guest whose first two CPUs are big.
const RIVAL: &str = "run --big-cpus 0-1 --policy rr --provider none";

const PROGRAMS: &str = r#"
cd /usr/local/bin
ln -s scx_amp scx_rival
cat >scx_quits <<'END'
#!/bin/sh
echo no symbol cpufreq >&2
exit 3
END
cat >scx_ejected <<'END'
#!/bin/sh
scx_amp run --big-cpus 0-1 --policy rr --provider none &
while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ]; do sleep 0.1; done
sleep 1
kill -9 $!
exec sleep 1000
END
chmod +x scx_quits scx_ejected
cd /
bench="scx_amp bench /mix.toml --on host --big-cpus 0-1 --runs 2 --solo-runs 1 --completions 1"
"#;

#[test]
fn a_bench_with_schedulers_that_work_and_that_fail() {
    let script = format!(
        r#"{PROGRAMS}
$bench --policies 'eevdf,scx:rival {RIVAL},scx:quits,scx:ejected' --json /r >/tmp/out 2>/tmp/err
echo "status $?"; cat /tmp/err; echo "report $(tr -d '\n' </r)"
echo "shown $(grep -c 'failed in run' /tmp/out)"
echo "state $(cat /sys/kernel/sched_ext/state)"
$bench --policies rr,scx:rivl 2>/tmp/err; echo "absent $?"; echo "said $(tr '\n' ' ' </tmp/err)"
for signal in INT KILL; do
    $bench --policies 'scx:rival {RIVAL}' >/dev/null 2>&1 & pid=$!
    i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done
    echo "before $(cat /sys/kernel/sched_ext/state)"
    kill -$signal $pid; wait $pid
    # the kernel is free before the program that has been killed is gone
    i=0; until [ "$(cat /sys/kernel/sched_ext/state) $(pgrep scx_rival)" = "disabled " ] || [ $i -ge 300 ]; do i=$((i+1)); sleep 0.1; done
    echo "after $(cat /sys/kernel/sched_ext/state) $(pgrep scx_rival)"
done
"#
    );
    let r = Lab::x86(KernelChoice::Newest)
        .file("/mix.toml", MIX)
        .run(&script)
        .ok();
    assert_eq!(r.line("status"), "0");
    let report: BenchReport = serde_json::from_str(r.line("report")).unwrap();
    let rival = format!("scx:rival {RIVAL}");
    let names: Vec<&str> = report.results.iter().map(|p| p.policy.as_str()).collect();
    assert_eq!(names, ["eevdf", &rival]);
    let facts = report.results[1].scheduler.as_ref().unwrap();
    assert_eq!(facts.program, "scx_rival");
    assert!(facts.version.as_deref().unwrap().contains("scx_amp"));
    assert_eq!(facts.arguments.join(" "), RIVAL);
    assert_eq!(facts.kernel.as_deref(), Some(r.0.kernel.release.as_str()));
    let failed: Vec<(&str, u32)> = report
        .failed
        .iter()
        .map(|f| (f.policy.as_str(), f.run))
        .collect();
    assert_eq!(failed, [("scx:quits", 1), ("scx:ejected", 1)]);
    let why = |i: usize| report.failed[i].why.as_str();
    assert!(
        why(0).contains("ended with status 3") && why(0).contains("no symbol cpufreq"),
        "{}",
        why(0)
    );
    assert!(
        why(1).contains("the kernel ended it in mid-run"),
        "{}",
        why(1)
    );
    assert_eq!(r.line("shown"), "2");
    assert_eq!(r.line("state"), "disabled");

    assert_eq!(r.line("absent"), "2");
    let said = r.line("said");
    assert!(
        said.contains("`scx_rivl`") && said.contains("did you mean `scx:rival`?"),
        "{said}"
    );

    assert_eq!(r.lines("before").collect::<Vec<_>>(), ["enabled"; 2]);
    assert_eq!(r.lines("after").collect::<Vec<_>>(), ["disabled"; 2]);
}

#[test]
fn a_published_scheduler_takes_part() {
    let built = peers::built(&Cache::open().unwrap());
    if !built.iter().any(|p| p.name == "bpfland") {
        amp_skips::skip("`scx_amp board fetch --peers=bpfland` has not been run");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mix, json) = (dir.path().join("mix.toml"), dir.path().join("r.json"));
    std::fs::write(&mix, MIX).unwrap();
    let out = amp_tests::command(&[
        "bench",
        mix.to_str().unwrap(),
        "--on=board",
        "--machine=juno",
        "--runs=1",
        "--solo-runs=1",
        "--completions=1",
        "--policies=scx:bpfland,rr",
        &format!("--json={}", json.display()),
    ]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let text = std::fs::read_to_string(json).unwrap();
    let report: BenchReport = serde_json::from_str(&text).unwrap();
    assert!(report.failed.is_empty(), "{:?}", report.failed);
    let facts = report.results[0].scheduler.as_ref().unwrap();
    assert_eq!(facts.program, "scx_bpfland");
    assert!(facts.version.as_deref().unwrap().contains("scx_bpfland"));
}
