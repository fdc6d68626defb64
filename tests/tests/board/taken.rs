//! Counters that others have, or that this user may not have.

use amp_machine::CpuList;
use amp_tests::Lab;
use std::collections::BTreeMap;

/// All counters of a core: six, and one for cycles.
const ALL: u32 = 7;

/// The CPUs of the machine.
const ALL_CPUS: [u32; 6] = [0, 1, 2, 3, 4, 5];

#[test]
fn counters_that_others_take_are_missed_and_had_again() {
    let mut script = format!(
        r#"
wait_for() {{ i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != $1 ] && [ $i -lt 200 ]; do i=$((i+1)); sleep 0.1; done; }}
ask() {{ scx_amp ctl status | tr -d '\n'; echo; }}
# what a thread has that is moved at just this moment is of another core type, and may be older
looks() {{ for look in 1 2 3; do ask; sleep 0.3; done; }}
told() {{ i=0; until scx_amp ctl status | grep -q "$1" || [ $i -ge 100 ]; do i=$((i+1)); sleep 0.1; done; }}
said() {{ echo "$1-status $?"; echo "$1 $(tr '\n' ' ' </tmp/said)"; }}
hold() {{ echo $1 >&9; i=0; while [ "$(tail -n 1 /tmp/held)" != "HOLD $1" ] && [ $i -lt 1000 ]; do i=$((i+1)); sleep 0.02; done; }}
sleep 3
mkfifo /tmp/hold
/place hold {ALL} </tmp/hold >/tmp/held & holder=$!
exec 9>/tmp/hold
hold on
for p in ipc-sampling model; do scx_amp run --policy acfs --provider $p 2>/tmp/said; said "run-$p"; done
scx_amp run --policy acfs --provider auto >/tmp/log 2>&1 & pid=$!
wait_for enabled; answers
for k in alu fp "hash --size 8M" branchy "chase --size 8M" sort alu; do
    amp-workload run $k --work 1000G >/dev/null & pids="$pids $!"
done
echo "chosen $(grep 'provider auto' /tmp/log)"
scx_amp ctl provider ipc-sampling 2>/tmp/said; said ctl
sleep 0.5; ask
hold off
scx_amp ctl provider ipc-sampling >/tmp/said 2>&1; said again
sleep 2; looks
hold on
told 'not counted on CPU 0-1: '; told 'not counted on CPU 2-5: '; ask
hold off
told '"uncounted": ""'; sleep 2; looks
# could be had at the last trial, and cannot now
scx_amp ctl provider declared >/dev/null
hold on
scx_amp ctl provider ipc-sampling >/tmp/said 2>&1; said gone
scx_amp ctl provider auto >/tmp/said 2>&1; said auto
hold off
kill $pid; wait $pid; echo "end $?"
sed 's/^/log /' /tmp/log
kill $pids $holder
scx_amp pmc stat -e instructions -- true >/tmp/said 2>&1; said root
echo 'nobody:x:65534:65534::/:/bin/sh' >>/etc/passwd
user() {{ start-stop-daemon -S -c nobody -x $(which scx_amp) -- pmc stat "$@" >/tmp/said 2>&1; }}
"#
    );
    // an ordinary user, under every setting that forbids it
    for level in [3, 2] {
        script += &format!(
            "sysctl -w kernel.perf_event_paranoid={level} >/dev/null\n\
             user -e instructions,context-switches -- true; said user-{level}\n\
             user -a -e instructions -- true; said all-{level}\n\
             user -e instructions,cycles -m ipc=instructions/cycles -- true; said mode-{level}\n"
        );
    }
    let r = Lab::board("juno").program("place").run(&script).ok();

    // by name: refused, saying what is missing
    for who in ["run-ipc-sampling", "ctl"] {
        assert_eq!(r.line(&format!("{who}-status")), "1");
        let said = r.line(who);
        assert!(
            said.contains("`ipc-sampling` needs hardware counters")
                && said.contains("counters are taken by another perf user"),
            "{said}"
        );
    }
    assert_eq!(r.line("run-model-status"), "1");
    assert!(r.line("run-model").contains("counters are taken"));
    // whatever is possible: says why it is not what it could be
    let chosen = r.line("chosen");
    assert!(
        chosen.contains("`declared`") && chosen.contains("counters are taken"),
        "{chosen}"
    );
    assert_eq!((r.line("again-status"), r.line("end")), ("0", "0"));

    // what could be counted a moment ago
    assert_eq!(r.line("gone-status"), "1");
    assert!(r.line("gone").contains("counters are taken"));
    let auto = r.line("auto");
    assert_eq!(r.line("auto-status"), "0", "{auto}");
    assert!(
        auto.contains("`declared`") && auto.contains("not `measured`"),
        "{auto}"
    );

    let json = r.json();
    let [shared, counted @ .., _, _, _, _] = &json[..] else {
        panic!("{json:?}")
    };
    let [lost, found @ ..] = &json[1 + counted.len()..] else {
        panic!("{json:?}")
    };
    assert_eq!((counted.len(), found.len()), (3, 3));
    assert_eq!(shared["provider"], "declared");
    assert!(shared["placements"].as_u64().unwrap() > 0, "{shared}");
    for (looks, what) in [(counted, "before"), (found, "after")] {
        // the youngest that any look has of each of the seven programs
        let mut known = BTreeMap::<i64, f64>::new();
        for s in looks {
            assert_eq!(
                (&s["provider"], &s["uncounted"]),
                (&"ipc-sampling".into(), &"".into())
            );
            let ours = |t: &&serde_json::Value| t["comm"].as_str().unwrap().starts_with("amp-");
            for t in s["per_thread"].as_array().unwrap().iter().filter(ours) {
                if let Some(age) = t["metrics"]["ipc"]["age_s"].as_f64() {
                    let youngest = known.entry(t["tid"].as_i64().unwrap()).or_insert(age);
                    *youngest = youngest.min(age);
                }
            }
        }
        println!("IPC {what} the loss, by thread, seconds old: {known:?}");
        assert!(
            known.len() >= 7 && known.values().all(|age| *age < 1.0),
            "{known:?}: {looks:?}"
        );
    }
    let uncounted = lost["uncounted"].as_str().unwrap();
    println!("during it: {uncounted}");
    for cpus in ["0-1", "2-5"] {
        assert!(
            uncounted.contains(&format!("not counted on CPU {cpus}: ")),
            "{uncounted}"
        );
    }
    // and once in the log for each CPU, in one line or in several: a tick may come between two CPUs
    let log = |before: &str, after: &str| -> Vec<u32> {
        let lists = r.lines("log").filter_map(|l| l.split_once(before));
        let lists = lists.filter_map(|(_, l)| l.split_once(after));
        let lists = lists.map(|(cpus, _)| cpus.parse::<CpuList>().unwrap().0);
        let mut cpus: Vec<u32> = lists.flatten().collect();
        cpus.sort_unstable();
        cpus
    };
    assert_eq!(log("nothing is counted on CPU ", " any more"), ALL_CPUS);
    assert_eq!(log("counting on CPU ", " again"), ALL_CPUS);

    assert_eq!(r.line("root-status"), "0");
    for level in [3, 2] {
        for (who, needed) in [("user", 1), ("all", 0)] {
            let said = r.line(&format!("{who}-{level}")).to_owned();
            assert_eq!(r.line(&format!("{who}-{level}-status")), "1", "{said}");
            assert!(
                said.contains(&format!("kernel.perf_event_paranoid is {level}"))
                    && said.contains("CAP_PERFMON")
                    && said.contains(&format!("kernel.perf_event_paranoid={needed}")),
                "{said}"
            );
        }
    }
    // what the kernel's part may be left out of is counted without it, as perf does
    let mode = r.line("mode-2");
    assert_eq!(r.line("mode-2-status"), "0", "{mode}");
    for what in ["user mode only", "instructions:u", "cycles:u", "ipc"] {
        assert!(mode.contains(what), "no {what}: {mode}");
    }
    println!("ordinary user, 2: {mode}");
    println!(
        "ordinary user, 3: {} {}",
        r.line("mode-3-status"),
        r.line("mode-3")
    );
}
