//! Policies, knobs and providers change under load on the board, and nobody notices but the
//! placement.

use amp_sched::policy;
use amp_tests::Lab;
use serde_json::Value;

/// Longest time a thread may be kept from running, beside what it shares by.
const LONGEST_GAP_MS: f64 = 50.0;

/// The three applications: name, threads, speedup factor.
const APPS: [(&str, u32, f64); 3] = [("gains", 3, 3.0), ("middling", 2, 2.0), ("slow", 3, 1.2)];

/// Speedup factors by the names of their threads.
fn provider() -> String {
    let threads = APPS
        .iter()
        .flat_map(|(name, n, sf)| (0..*n).map(move |i| (name, i, sf)));
    threads
        .map(|(name, i, sf)| format!("[[app]]\ncomm = \"{name}-{i}\"\nspeedup = {sf:?}\n"))
        .collect()
}

/// Eight busy threads of three applications for `$1` seconds.
const LOAD: &str = r#"
state() { echo "$(cat /sys/kernel/sched_ext/state) $(cat /sys/kernel/sched_ext/enable_seq)"; }
wait_for() { i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; }
load() {
    amp-workload bench spin --threads 3 --name gains --seconds $1 --json >/tmp/1 & loads=$!
    amp-workload bench spin --threads 2 --name middling --seconds $1 --json >/tmp/2 & loads="$loads $!"
    amp-workload bench spin --threads 3 --name slow --seconds $1 --json >/tmp/3 & loads="$loads $!"
}
loaded() { cat /tmp/1 /tmp/2 /tmp/3; }
ask() { scx_amp ctl status | tr -d '\n'; echo; }
sleep 5
scx_amp run --policy rr --provider /provider.toml 2>/tmp/log & pid=$!
wait_for enabled
# as it is without any change
load 4; wait $loads; loaded
"#;

/// Bad input under load: the policy goes on as it was.
const REFUSED: &str = r#"
for bad in "policy bset" "policy eevdf" "set rr.treshold=1" "set rr.threshold=-1" "set rr.threshold=NaN" "set acfs.uf=0.5" "provider nome" "provider /nowhere.toml"; do
    scx_amp ctl $bad >/dev/null 2>/tmp/e; echo "bad-status $?"; echo "said $(tr '\n' ' ' </tmp/e)"
done
ask
"#;

const END: &str = r#"
wait $loads; loaded
scx_amp top --once | sed 's/^/top /'
kill $pid; wait $pid; echo "status $?"
"#;

/// The longest gap of each thread of these reports, in milliseconds.
fn gaps(json: &[Value]) -> Vec<f64> {
    json.iter()
        .filter_map(|j| j["longest_gap_ns"].as_array())
        .flatten()
        .filter_map(Value::as_f64)
        .map(|ns| ns / 1e6)
        .collect()
}

fn longest(gaps: &[f64]) -> f64 {
    gaps.iter().copied().fold(0.0, f64::max)
}

#[test]
fn no_thread_loses_its_cpu_while_policies_change_twice_a_second() {
    // every policy twice, from and to another neighbour each, and knobs between
    let mut names: Vec<&str> = policy::NAMES.to_vec();
    names.extend(policy::NAMES.iter().rev().skip(1));
    let knobs = [
        "acfs.uf=1.5",
        "rr.threshold=50",
        "pareto.unfairness=1.5",
        "hsp.hysteresis=10",
        "acfs.t_swap=200 acfs.uf=1",
    ];
    let mut changes = String::new();
    for (i, name) in names.iter().enumerate() {
        changes += &format!("sleep 0.5; scx_amp ctl policy {name} >/dev/null; echo \"done $?\"; echo \"state $(state)\"\n");
        if i % 3 == 0 {
            let set = knobs[i / 3 % knobs.len()];
            changes += &format!("scx_amp ctl set {set} >/dev/null; echo \"done $?\"\n");
        }
        if i % 5 == 4 {
            let provider = if i % 2 == 0 { "none" } else { "/provider.toml" };
            changes += &format!("scx_amp ctl provider {provider} >/dev/null; echo \"done $?\"\n");
        }
        if i % 4 == 0 {
            changes += "ask\n";
        }
    }
    // half a second each, what asking takes, and the bad input
    let seconds = names.len() * 3 / 4 + 6;
    let script = format!("{LOAD}state_before=$(state); echo \"before $state_before\"\nload {seconds}\n{changes}{REFUSED}{END}");
    let r = Lab::board("juno")
        .file("/provider.toml", &provider())
        .run(&script)
        .ok();

    // nothing was detached: the state is the same after every change
    let before = r.line("before").to_owned();
    assert!(before.starts_with("enabled "), "{before}");
    let states: Vec<&str> = r.lines("state").collect();
    assert_eq!(states.len(), names.len());
    assert!(states.iter().all(|s| *s == before), "{before}: {states:?}");
    assert!(r.lines("done").all(|s| s == "0"));
    assert_eq!(r.line("status"), "0");

    // nobody waited
    let json = r.json();
    let spins: Vec<Value> = json
        .iter()
        .filter(|j| j["bench"] == "spin")
        .cloned()
        .collect();
    assert_eq!(spins.len(), 6, "three without changes, three with");
    let (control, changed) = (gaps(&spins[..3]), gaps(&spins[3..]));
    println!("longest gaps in ms of virtual time, without changes: {control:.1?}");
    println!(
        "longest gaps in ms of virtual time, with {} changes of policy: {changed:.1?}",
        names.len()
    );
    assert_eq!((control.len(), changed.len()), (8, 8));
    assert!(
        longest(&changed) <= LONGEST_GAP_MS,
        "a thread was kept from running for {:.1} ms",
        longest(&changed)
    );

    // placement went on under every policy
    let status: Vec<&Value> = json.iter().filter(|j| j.get("knobs").is_some()).collect();
    let of = |s: &Value, key: &str| s[key].as_f64().unwrap();
    for pair in status.windows(2) {
        assert!(of(pair[1], "ticks") > of(pair[0], "ticks"));
    }
    // the last one was asked too soon after the one before for a swap to be certain
    for pair in status[..status.len() - 1].windows(2) {
        assert!(
            of(pair[1], "placements") > of(pair[0], "placements"),
            "{pair:?}"
        );
    }
    for s in &status {
        let threads = s["per_thread"].as_array().unwrap();
        assert!(threads.len() >= 8, "{s}");
        assert_eq!(s["untracked"].as_u64(), Some(0));
    }
    assert_eq!(
        of(status[0], "fallbacks"),
        of(status[status.len() - 1], "fallbacks")
    );

    // what was refused was named, with status 2, and changed nothing
    let last = status[status.len() - 1];
    assert_eq!(last["policy"].as_str(), names.last().copied());
    assert_eq!(r.lines("bad-status").collect::<Vec<_>>(), ["2"; 8]);
    let said: Vec<&str> = r.lines("said").collect();
    for (said, wants) in said.iter().zip([
        "unknown policy `bset`",
        "kernel's own scheduler",
        "did you mean",
        "threshold=-1",
        "NaN",
        "acfs.uf=0.5",
        "did you mean `none`?",
        "/nowhere.toml",
    ]) {
        assert!(said.contains(wants), "`{wants}` in: {said}");
    }
}
