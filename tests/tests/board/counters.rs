//! What threads are charged by BPF at context switches: beside what the board's own CPUs did, and
//! beside perf's own account of a thread.

use amp_board::KernelChoice;
use amp_metrics::multiplex::{PhaseDetector, PhaseRule, DEFAULT_PHASE_CONFIRM};
use amp_tests::{Lab, Reply};
use std::collections::BTreeMap;

/// Cycles, instructions, L1D refills, L2 refills, mispredicted branches.
const EVENTS: [(&str, &str); 5] = [
    ("11", "cycles"),
    ("08", "instructions"),
    ("03", "l1d_refills"),
    ("17", "l2_refills"),
    ("10", "branch_misses"),
];
const LIST: &str = "11,08,03,17,10";

/// The numbers of a line of words and numbers.
fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect()
}

fn not_one_reading_failed(r: &Reply) {
    for stats in r.lines("STATS") {
        assert!(stats.contains("unread: 0,"), "{stats}");
    }
}

#[test]
fn what_threads_are_charged_is_what_the_cpus_did() {
    let programs = [
        "alu",
        "fp",
        "stream --size 8M",
        "chase --size 8M",
        "hash --size 8M",
        "branchy",
    ];
    let mut script = String::from("sleep 5\n");
    for p in programs {
        script += &format!("amp-workload run {p} --work 1000G >/dev/null & pids=\"$pids $!\"\n");
    }
    script += &format!(
        "sleep 1\n/place run 0-1:1024,2-5:446 secs=10 prefix=amp- swap=200 counters={LIST} model=1\nkill $pids\n"
    );
    let r = Lab::board("juno").program("place").run(&script).ok();
    not_one_reading_failed(&r);
    let programs = |l: &&str| l.starts_with("amp-") && !l.starts_with("amp-guest");
    let moves: Vec<&str> = r.lines("SHARE").filter(programs).collect();
    assert_eq!(moves.len(), 6);
    for m in moves {
        let share: f64 = m
            .split("fastest ")
            .nth(1)
            .and_then(|s| s.split(',').next()?.parse().ok())
            .expect("a share");
        assert!((0.1..0.9).contains(&share), "on both core types: {m}");
    }
    let mut seen = BTreeMap::new();
    for line in r.lines("MODEL") {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (charged, model) = match &numbers(line)[..] {
            [.., charged, model] => (*charged, *model),
            other => panic!("{line}: {other:?}"),
        };
        let error = charged / model - 1.0;
        let of = if words[1] == "all" {
            "all CPUs"
        } else {
            words[2]
        };
        println!(
            "{:<14} {of:<8} threads {charged:>12.0}  CPUs {model:>12.0}  {:+.3} %",
            words[0],
            error * 100.0
        );
        assert!(model > 10_000.0, "too few to compare: {line}");
        if words[1] == "all" {
            seen.insert(words[0], error);
        }
    }
    assert_eq!(seen.len(), EVENTS.len());
    for (event, error) in seen {
        assert!(error.abs() <= 0.01, "{event}: {error:+.4}");
    }
}

#[test]
fn a_thread_alone_has_what_perf_counts_for_it() {
    let mut script = String::from(
        "sleep 5\namp-workload run phased --phase hash@8M=20k --phase branchy=50k --phase alu=200k --work 1000G >/dev/null & pid=$!\nsleep 1\n",
    );
    // perf counts on what our five leave free: two at a time
    for core_type in [0, 1] {
        for watched in ["11,08", "03,17", "10"] {
            script += &format!(
                "/place run 0:1024,1:446 secs=3 swap=0 pin=amp-phased:{core_type} counters={LIST} watch=amp-phased watched={watched} | sed 's/^COMPARED/COMPARED {core_type}/'\n"
            );
        }
    }
    script += "kill $pid\n";
    let r = Lab::pair().program("place").run(&script).ok();
    not_one_reading_failed(&r);
    let mut compared = 0;
    for line in r.lines("COMPARED") {
        let [core_type, event, perf, ours] = numbers(line)[..] else {
            panic!("{line}");
        };
        let (_, name) = EVENTS[event as usize];
        let error = ours / perf - 1.0;
        println!(
            "{name:<14} on type {core_type}: perf {perf:>11.0}  BPF {ours:>11.0}  {:+.3} %",
            error * 100.0
        );
        assert!(perf > 10_000.0, "too few to compare: {line}");
        assert!(
            error.abs() <= 0.005,
            "{name} on type {core_type}: {error:+.4}"
        );
        compared += 1;
    }
    assert_eq!(compared, 2 * EVENTS.len());
}

#[test]
fn where_there_is_no_pmu_nothing_is_counted_and_that_is_said() {
    let script = r#"
wait_for() { i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; }
said() { echo "$1-status $?"; echo "$1 $(tr '\n' ' ' </tmp/said)"; }
# the programs that count load here too
/place run 0-1:1024,2-3:446 secs=1 counters=
for p in ipc-sampling model; do
    scx_amp run --policy acfs --provider $p --big-cpus 0-1 2>/tmp/said; said "run-$p"
done
scx_amp run --policy rr --provider auto --big-cpus 0-1 >/tmp/auto 2>&1 & pid=$!
wait_for enabled; answers
scx_amp ctl provider auto >/tmp/said 2>&1; said ctl-auto
for p in ipc-sampling model; do
    scx_amp ctl provider $p 2>/tmp/said; said "ctl-$p"
done
echo "provider $(scx_amp ctl status | grep '"provider"')"
kill $pid; wait $pid; echo "end $?"
echo "chosen $(grep 'provider auto' /tmp/auto)"
"#;
    let r = Lab::x86(KernelChoice::Newest)
        .program("place")
        .run(script)
        .ok();
    assert!(r.line("DETACHED,").contains("disabled"));
    for who in ["run", "ctl"] {
        assert_eq!(r.line(&format!("{who}-ipc-sampling-status")), "1");
        assert_eq!(r.line(&format!("{who}-model-status")), "1");
        let said = r.line(&format!("{who}-ipc-sampling")).to_owned();
        assert!(
            said.contains("`ipc-sampling` needs hardware counters") && said.contains("no PMU"),
            "{said}"
        );
        let said = r.line(&format!("{who}-model")).to_owned();
        assert!(said.contains("no model fits this machine"), "{said}");
    }
    assert_eq!((r.line("ctl-auto-status"), r.line("end")), ("0", "0"));
    for told in [r.line("ctl-auto"), r.line("chosen")] {
        assert!(
            told.contains("`declared`; not `model`: ") && told.contains("not `measured`: "),
            "{told}"
        );
    }
    assert!(r.line("provider").contains("declared"));
}

/// Waits for the scheduler, and asks it.
const ASK: &str = r#"
state() { echo "$(cat /sys/kernel/sched_ext/state) $(cat /sys/kernel/sched_ext/enable_seq)"; }
wait_for() { i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; }
ask() { scx_amp ctl status | tr -d '\n'; echo; }
sleep 5
"#;

#[test]
fn ipc_sampling_finds_the_speedups_of_known_kernels() {
    // command, units of work of the solo runs
    let kernels = [
        ("alu", "20M"),
        ("mul", "12M"),
        ("fp", "3M"),
        ("stream --size 8M", "3M"),
        ("chase --size 8M", "600k"),
        ("hash --size 8M", "1M"),
        ("branchy", "2M"),
        ("sort", "200"),
    ];
    let mut script = String::from(ASK);
    for (kernel, work) in kernels {
        for cpu in [1, 4] {
            script +=
                &format!("amp-workload run {kernel} --work {work} --pin {cpu} --count --json\n");
        }
    }
    script +=
        "scx_amp run --policy rr --provider ipc-sampling 2>/dev/null & pid=$!\nwait_for enabled\n";
    for (i, (kernel, _)) in kernels.iter().enumerate() {
        script += &format!(
            "amp-workload run {kernel} --work 1000G >/dev/null & pids=\"$pids $!\"; echo \"program-{i} $!\"\n"
        );
    }
    script += "sleep 12\nask\nscx_amp top --once | sed 's/^/top /'\nscx_amp ctl policy ef >/dev/null\nsleep 5\nask\nkill $pid; wait $pid; kill $pids\n";
    let r = Lab::board("juno").run(&script).ok();
    let json = r.json();
    let solo: Vec<f64> = json.iter().filter_map(|j| j["wall_ns"].as_f64()).collect();
    assert_eq!(solo.len(), 2 * kernels.len());
    // what the CPU drew, idle power included
    let energy = |j: &serde_json::Value| j["model"]["energy_uj"].as_f64();
    let energy: Vec<f64> = json.iter().filter_map(energy).collect();
    assert_eq!(energy.len(), solo.len());
    let status: Vec<_> = json
        .iter()
        .filter(|j| j.get("per_thread").is_some())
        .collect();
    let [status, under_ef] = status[..] else {
        panic!("{status:?}")
    };
    for of in ["big", "little", "cpu0"] {
        let joules = &status["virtual_counters"][format!("energy_J {of}")];
        assert!(joules.as_f64().unwrap() > 0.0, "{status}");
    }
    let threads = status["per_thread"].as_array().unwrap();
    let (mut errors, mut ef_errors) = (vec![], vec![]);
    println!(
        "{:<18} {:>8} {:>8} {:>7}   EF {:>6} {:>8} {:>7}",
        "kernel", "solo", "sampled", "error", "solo", "sampled", "error"
    );
    for (i, (kernel, _)) in kernels.iter().enumerate() {
        let truth = solo[2 * i + 1] / solo[2 * i];
        let tid: i64 = r.line(&format!("program-{i}")).parse().unwrap();
        let thread = threads.iter().find(|t| t["tid"].as_i64() == Some(tid));
        let thread = thread.unwrap_or_else(|| panic!("no {kernel} in {threads:?}"));
        let sf = &thread["metrics"]["sf"];
        let sampled = sf["value"].as_f64().expect("a speedup factor");
        // EF = SF / (energy on the big core over that on the little one)
        let ef_truth = truth * energy[2 * i + 1] / energy[2 * i];
        let ef = thread["metrics"]["ef"]["value"].as_f64();
        let ef = ef.expect("an efficiency factor");
        println!(
            "{kernel:<18} {truth:>8.2} {sampled:>8.2} {:>+7.2}   {ef_truth:>9.2} {ef:>8.2} {:>+7.2}  {}, {:.1} s old, {:.0} % of its time on big cores",
            sampled - truth,
            ef - ef_truth,
            sf["quality"].as_str().unwrap(),
            sf["age_s"].as_f64().unwrap(),
            100.0 * thread["big_time_share"].as_f64().unwrap(),
        );
        assert_ne!(sf["quality"], "partial", "{thread}");
        assert!(thread["metrics"]["ipc"]["value"].as_f64().unwrap() > 0.0);
        errors.push((sampled - truth).abs());
        ef_errors.push((ef - ef_truth).abs());
    }
    let mean = |e: &[f64]| e.iter().sum::<f64>() / e.len() as f64;
    let (sf, ef) = (mean(&errors), mean(&ef_errors));
    println!("mean absolute error {sf:.3}, of EF {ef:.3}");
    // neighbours share caches and memory with it, the solo runs did not
    assert!(sf <= 0.25, "{sf}");
    // and the energy of the cores that they share has to be separated
    assert!(ef <= 0.3, "{ef}");
    assert!(r.lines("top").any(|l| l.contains("energy_J big")));
    // a policy that places by them: the one that gains most by far is on a big core
    assert_eq!(under_ef["policy"], "ef");
    let threads = under_ef["per_thread"].as_array().unwrap();
    let placed = |t: &&serde_json::Value| t["placed"] == "big" && t["comm"] == "amp-hash";
    assert!(threads.iter().any(|t| placed(&t)), "{under_ef}");
}

/// A model that needs two event sets by turns: its one factor rests on a metric of each.
fn two_sets() -> String {
    let mut s = String::from("kind = \"model\"\nname = \"two-sets\"\n");
    for (t, pmu) in [("big", "armv8_cortex_a57"), ("little", "armv8_cortex_a53")] {
        s += &format!(
            r#"
[[core_type]]
name = "{t}"
pmu = "{pmu}"
[[core_type.event_set]]
instructions = "inst_retired"
cycles = "cpu_cycles"
branch_misses = "br_mis_pred"
[[core_type.event_set]]
instructions = "inst_retired"
cycles = "cpu_cycles"
l2_refills = "l2d_cache_refill"
[[core_type.metric]]
name = "misses"
count = "branch_misses"
per = "instructions"
scale = 1000.0
[[core_type.metric]]
name = "refills"
count = "l2_refills"
per = "instructions"
scale = 1000.0
[[core_type.factor]]
predicts = "speedup"
of = "big"
base = 2.0
error = 0.5
range = [1.0, 4.0]
linear = {{ misses = -0.01, refills = 0.001 }}
"#
        );
    }
    s
}

/// More events than a core has counters: six, and one for cycles. Models count instructions and
/// cycles in every set.
fn too_many() -> String {
    let events = [
        "inst_retired",
        "l1d_cache_refill",
        "l1d_cache",
        "l2d_cache_refill",
        "l2d_cache",
        "br_mis_pred",
        "br_pred",
    ];
    let mut s = String::from("kind = \"model\"\nname = \"too-many\"\n");
    for (t, pmu) in [("big", "armv8_cortex_a57"), ("little", "armv8_cortex_a53")] {
        s += &format!("[[core_type]]\nname = \"{t}\"\npmu = \"{pmu}\"\n[[core_type.event_set]]\n");
        for (i, e) in events.iter().enumerate() {
            s += &format!("e{i} = \"{e}\"\n");
        }
    }
    s
}

/// A table of phases in front of [`two_sets`].
const HISTORY: &str = "kind = \"history\"\ninner = \"two-sets.toml\"\n";
/// Five million instructions at a time.
const WINDOWS: &str = "kind = \"windows\"\ninner = \"ipc-sampling\"\ninstructions = 5_000_000\n";
/// Factors by command name.
const SPEEDS: &str = "kind = \"declared\"\n[[app]]\ncomm = \"amp-hash\"\nspeedup = 3.2\n[[app]]\ncomm = \"amp-fp\"\nspeedup = 2.4\n";
/// A program of its own, which says the same of every thread. The guest's awk is in none of the folders
/// in which such programs are looked up.
const PROGRAM: &str = "kind = \"exec\"\ncommand = [\"/amp/bin/awk\", \"-f\", \"/answers.awk\"]\n";
const ANSWERS: &str = r#"
/"type":"sample"/ {
    match($0, /"seq":[0-9]+/); seq = substr($0, RSTART, RLENGTH); all = ""; rest = $0
    while (match(rest, /"slot":[0-9]+,"generation":[0-9]+/)) {
        all = all (all == "" ? "" : ",") "{" substr(rest, RSTART, RLENGTH) ",\"metric\":\"sf\",\"core_type\":0,\"value\":2.0}"
        rest = substr(rest, RSTART + RLENGTH)
    }
    print "{" seq ",\"estimates\":[" all "]}"; fflush()
}
"#;

/// Every provider by turns while the machine is busy. The guest has no resctrl; a folder that looks
/// like it stands in for it.
#[test]
fn fifty_changes_of_provider_lose_nothing() {
    const LAPS: usize = 5;
    let lap = [
        "model",
        "/two-sets.toml",
        "none",
        "/program.toml",
        "declared",
        "/history.toml",
        "auto",
        "/speeds.toml",
        "/windows.toml",
        "remembered",
        "ipc-sampling",
    ];
    let mut script = String::from(ASK);
    script += r#"
mount -t tmpfs none /sys/fs && mkdir -p /sys/fs/resctrl/info/L3_MON /sys/fs/resctrl/mon_groups
echo llc_occupancy >/sys/fs/resctrl/info/L3_MON/mon_features
groups() { echo "groups $1 $(ls /sys/fs/resctrl/mon_groups | grep -c scx_amp-)"; }
scx_amp run --policy rr --provider ipc-sampling 2>/tmp/log & pid=$!
wait_for enabled
for k in alu fp "hash --size 8M" branchy; do
    amp-workload run $k --work 1000G >/dev/null & pids="$pids $!"
done
# the fewest of several looks: a file that is being read just now is no leak
fds() { least=9999; for look in 1 2 3 4 5; do now=$(ls /proc/$pid/fd | wc -l); [ $now -lt $least ] && least=$now; sleep 0.13; done; echo "fds $1 $least"; }
children() { echo "children $1 $(cat /proc/$pid/task/*/children | wc -w)"; }
sleep 3
echo "state $(state)"
# connections of earlier requests close in their own time
fds begin
groups begin
ask
"#;
    script += &format!("for lap in $(seq {LAPS}); do\n");
    for p in lap {
        script += &format!("scx_amp ctl provider {p} >/dev/null; echo \"swap $?\"; [ $((lap % 5)) = 0 ] && sleep 0.5\n");
    }
    script += r#"echo "state $(state)"
[ $((lap % 4)) = 0 ] && ask
done
sleep 2
fds end
children end
ask
for bad in /too-many.toml /nothing.toml; do scx_amp ctl provider $bad 2>/tmp/said; echo "refused $?"; echo "said $(tr '\n' ' ' </tmp/said)"; done
sleep 2
fds refused
ask
"#;
    for p in [
        "/two-sets.toml",
        "/windows.toml",
        "/program.toml",
        "/history.toml",
    ] {
        // the table of phases learns of a thread only when it is on a big core
        let wait = if p == "/history.toml" { 8 } else { 4 };
        script += &format!("scx_amp ctl provider {p} >/dev/null; sleep {wait}\nask\n");
        if p == "/program.toml" {
            script += "children during\n";
        }
    }
    script += r#"
scx_amp top --once | sed 's/^/top /'
kill $pid; wait $pid; echo "end $?"
for p in $pids; do [ -d /proc/$p ] && echo "alive $p"; done
kill $pids
groups end
echo "left $(ps | grep -c '[a]nswers.awk')"
"#;
    let r = Lab::pair()
        .file("/two-sets.toml", &two_sets())
        .file("/too-many.toml", &too_many())
        .file("/history.toml", HISTORY)
        .file("/windows.toml", WINDOWS)
        .file("/speeds.toml", SPEEDS)
        .file("/program.toml", PROGRAM)
        .file("/answers.awk", ANSWERS)
        .run(&script)
        .ok();
    assert_eq!(r.line("end"), "0");
    let swaps: Vec<&str> = r.lines("swap").collect();
    assert_eq!(swaps.len(), LAPS * lap.len());
    assert!(swaps.iter().all(|s| *s == "0"), "{swaps:?}");
    // never detached
    let states: Vec<&str> = r.lines("state").collect();
    assert!(states[0].starts_with("enabled "));
    assert!(states.iter().all(|s| *s == states[0]), "{states:?}");
    // nothing left open, with the same provider as at the beginning; no program, and no group once
    // it has ended
    let fds: Vec<f64> = r.lines("fds").map(|l| numbers(l)[0]).collect();
    println!(
        "open files at the beginning, after {} swaps, after refusals: {fds:?}",
        swaps.len()
    );
    assert!(fds.iter().all(|n| *n == fds[0]), "{fds:?}");
    let children: Vec<&str> = r.lines("children").collect();
    assert_eq!(children, ["end 0", "during 1"]);
    assert_eq!(r.line("left"), "0");
    let groups: Vec<&str> = r.lines("groups").collect();
    // one for each thread that has run of late: the four, and what else was awake
    assert!((4.0..48.0).contains(&numbers(groups[0])[0]), "{groups:?}");
    assert_eq!(groups[1], "end 0");
    // placement went on, and so did the scheduler and every thread
    assert_eq!(r.lines("alive").count(), 4);
    let json = r.json();
    let status: Vec<_> = json.iter().filter(|j| j.get("knobs").is_some()).collect();
    assert_eq!(status.len(), LAPS / 4 + 7);
    for pair in status.windows(2) {
        for key in ["ticks", "placements"] {
            let of = |s: &serde_json::Value| s[key].as_u64().unwrap();
            assert!(of(pair[1]) > of(pair[0]), "{key}: {} {}", pair[0], pair[1]);
        }
    }
    let ours = |t: &&serde_json::Value| {
        let comm = t["comm"].as_str().unwrap();
        ["amp-alu", "amp-fp", "amp-hash", "amp-branchy"].contains(&comm)
    };
    for s in &status {
        let threads = s["per_thread"].as_array().unwrap();
        assert_eq!(threads.iter().filter(ours).count(), 4, "{s}");
    }
    assert_eq!(
        status[status.len() - 1]["fallbacks"],
        status[0]["fallbacks"]
    );
    // what cannot be is refused by name, and the one before goes on counting
    assert_eq!(r.lines("refused").collect::<Vec<_>>(), ["1", "2"]);
    let said: Vec<&str> = r.lines("said").collect();
    assert!(
        said[0].contains("`too-many`") && said[0].matches("9 events, at most 7").count() == 1,
        "{}",
        said[0]
    );
    let [.., swapping, _, refused, turns, windows, program, history] = &status[..] else {
        panic!("{status:?}")
    };
    // with the last status before the provider began
    for &(before, s, provider, metric) in &[
        (swapping, refused, "ipc-sampling", "ipc"),
        (refused, turns, "two-sets", "sf"),
        (turns, windows, "windows(ipc-sampling)", "ipc"),
        (windows, program, "/program.toml", "sf"),
        (program, history, "history(two-sets)", "sf"),
    ] {
        assert_eq!(s["provider"], provider);
        assert_eq!(s["provider_failed"], "", "{s}");
        // of another program the memory may speak, by what it learned from the providers before
        let threads: Vec<_> = s["per_thread"]
            .as_array()
            .unwrap()
            .iter()
            .filter(ours)
            .collect();
        let age = |t: &serde_json::Value| t["metrics"][metric]["age_s"].as_f64();
        let known: Vec<f64> = threads.iter().copied().filter_map(age).collect();
        println!(
            "{}: {metric} of {} threads, at most {:.1} s old",
            s["provider"],
            known.len(),
            known.iter().copied().fold(0.0, f64::max)
        );
        assert_eq!(known.len(), 4, "{s}");
        // measured since this provider began; how often a thread is measured is up to the policy
        let uptime = |s: &serde_json::Value| s["uptime_s"].as_f64().unwrap();
        let since = uptime(s) - uptime(before);
        let older: Vec<_> = threads
            .iter()
            .filter(|t| age(t) >= Some(since))
            .map(|t| (&t["comm"], &t["metrics"]))
            .collect();
        assert!(
            older.is_empty(),
            "{provider}, began at most {since} s ago: {older:?}"
        );
    }
}

/// Which phase a window is of: 0 is all alu, 1 all hash, anything between a bit of both. Told by
/// the L2 refills per cycle, of which alu has none.
fn shares(windows: &[[f64; 3]]) -> Vec<f64> {
    let rates: Vec<f64> = windows.iter().map(|[_, c, refills]| refills / c).collect();
    let mut sorted = rates.clone();
    sorted.sort_by(f64::total_cmp);
    // half of the time is hash's
    let of_hash = sorted[sorted.len() * 7 / 8];
    rates.iter().map(|r| r / of_hash).collect()
}

/// What became of the changes of phase.
#[derive(Debug)]
struct Detected {
    changes: usize,
    /// Found with the window in which they happened, the first whole window of the new phase, the
    /// second one.
    found: [usize; 3],
    false_alarms: usize,
}

/// What a detector sees of a recorded run.
fn detected(windows: &[[f64; 3]], rule: &PhaseRule) -> Detected {
    let shares = shares(windows);
    let (mut changes, mut phase) = (Vec::new(), None);
    for (w, share) in shares.iter().enumerate() {
        let here = match share {
            s if *s < 0.02 => Some(false),
            s if *s > 0.9 => Some(true),
            _ => None,
        };
        match (phase, here) {
            (Some(p), h) if h != Some(p) => {
                changes.push(w);
                // what a window of both changes to is what was not there before
                phase = Some(!p);
            }
            (None, h) => phase = h,
            _ => {}
        }
    }
    let mut d = PhaseDetector::default();
    let ipc = windows.iter().map(|[i, c, _]| i / c);
    let alarms: Vec<usize> = ipc
        .enumerate()
        .filter(|(_, ipc)| d.step(*ipc, rule))
        .map(|(w, _)| w)
        .collect();
    let mut found = [0; 3];
    for c in &changes {
        if let Some(late) = (0..3).find(|late| alarms.contains(&(c + late))) {
            found[late] += 1;
        }
    }
    // a second alarm for the same change is a false one
    Detected {
        changes: changes.len(),
        found,
        false_alarms: alarms.len() - found.iter().sum::<usize>(),
    }
}

#[test]
fn phases_of_a_program_are_seen_as_often_as_they_change() {
    let program = "amp-workload run phased --phase alu=40M --phase hash@8M=4M --pin 1";
    let paper = "kind = \"ipc-sampling\"\n[settings]\nphase_confirm = 1\n";
    let mut script = format!(
        "{ASK}{program} --work 3 --json\n\
         scx_amp pmc stat -i 100 -e instructions,cycles,l2d_cache_refill --json /windows.json -- {program} --work 12 >/dev/null || exit 1\n\
         {program} --work 1000 >/dev/null & load=$!\n"
    );
    for (provider, secs) in [("/paper.toml", 10), ("ipc-sampling", 12)] {
        script += &format!(
            "scx_amp run --policy hsp --provider {provider} 2>/dev/null & pid=$!\n\
             wait_for enabled; sleep 3; ask; sleep {secs}; ask; kill $pid; wait $pid\n"
        );
    }
    script += "kill $load\n";
    let r = Lab::board("juno")
        .file("/paper.toml", paper)
        .collect("/windows.json")
        .run(&script)
        .ok();

    // window by window
    let windows: serde_json::Value = serde_json::from_str(&r.file("/windows.json")).unwrap();
    let windows: Vec<[f64; 3]> = windows["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| {
            let count = |event: &str| -> f64 {
                let counts = w["counts"].as_array().unwrap().iter();
                let of = counts.filter(|c| c["core_type"] == "big" && c["event"] == event);
                of.map(|c| c["count"].as_f64().unwrap()).sum()
            };
            ["instructions", "cycles", "l2d_cache_refill"].map(count)
        })
        // the last one is what was left
        .filter(|[_, cycles, _]| *cycles > 1e6)
        .collect();
    for confirm in [1, DEFAULT_PHASE_CONFIRM] {
        let rule = PhaseRule {
            confirm,
            ..PhaseRule::default()
        };
        let seen = detected(&windows, &rule);
        let [at_once, first, second] = seen.found;
        println!(
            "{confirm} departing: {} changes, found with the window they fall into {at_once}, the first after it {first}, the second {second}; {} false alarms in {} samples",
            seen.changes,
            seen.false_alarms,
            windows.len()
        );
        assert!(seen.changes >= 20, "{seen:?}");
        // within two samples of the new phase
        assert_eq!(at_once + first + second, seen.changes, "{seen:?}");
        if confirm == DEFAULT_PHASE_CONFIRM {
            assert!(seen.false_alarms * 100 < windows.len(), "{seen:?}");
        }
    }

    // and as it is counted while it is scheduled
    let json = r.json();
    let solo = json.iter().find_map(|j| j["wall_ns"].as_f64());
    let round = solo.expect("a solo run") / 3e9;
    let seen: Vec<(f64, f64)> = json
        .iter()
        .filter_map(|j| {
            let threads = j["per_thread"].as_array()?;
            let of = |t: &&serde_json::Value| t["comm"] == "amp-phased";
            let phase = threads.iter().find(of)?["phase"]["number"].as_f64()?;
            Some((j["uptime_s"].as_f64()?, phase))
        })
        .collect();
    let [a, b, c, d] = seen[..] else {
        panic!("{seen:?}")
    };
    for (what, (from, before), (to, after), most) in [
        ("the paper's rule", a, b, 2.0),
        ("two samples in a row", c, d, 1.0),
    ] {
        let (found, truth) = (after - before, 2.0 * (to - from) / round);
        println!(
            "{what}: in {:.1} s, phases of {:.2} s: {found} changes seen, {truth:.1} happened",
            to - from,
            round / 2.0
        );
        assert!(found >= truth - 1.5 && found <= most * truth + 1.5);
    }
}
