//! Every shipped machine boots, its kernel sees its core types, and the scheduler runs on it.

use amp_tests::Lab;

const SCRIPT: &str = r#"
sleep 2
echo "topology $(scx_amp topology --json - | tr -d '\n ')"
scx_amp run --policy rr --provider none 2>/tmp/log & pid=$!
i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done
amp-workload bench spin --threads 4 --seconds 1 >/dev/null
echo "up $(cat /sys/kernel/sched_ext/state)"
kill $pid; wait $pid; echo "status $?"
"#;

/// `types` are the CPUs of each core type, fastest first.
fn boots(machine: &str, types: &[&str]) {
    let r = Lab::board(machine).run(SCRIPT).ok();
    let topology: serde_json::Value = serde_json::from_str(r.line("topology")).unwrap();
    let cpus: Vec<&str> = topology["core_types"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["cpus"].as_str().unwrap())
        .collect();
    assert_eq!(cpus, types, "{topology}");
    assert_eq!((r.line("up"), r.line("status")), ("enabled", "0"));
    // else the first program that asks for random numbers computes for seconds until there are some
    let log = &r.0.kernel_log;
    let (random, programs) = (log.find("crng init done"), log.find("as init process"));
    assert!(random.is_some() && random < programs, "{log}");
}

#[test]
fn quickia() {
    boots("quickia", &["0-1", "2-3"]);
}

#[test]
fn opteron() {
    boots("opteron", &["0-1", "2-11"]);
}

#[test]
fn laptop() {
    boots("laptop", &["0-1", "2-11"]);
}

#[test]
fn alderlake() {
    boots("alderlake", &["0-7", "8-15"]);
}

/// Three core types, and the fastest has the last CPU.
#[test]
fn snapdragon888() {
    boots("snapdragon888", &["7", "4-6", "0-3"]);
}
